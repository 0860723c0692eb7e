//! Planes and channels as stations with queues: when each operation of the chips ends.

use super::lane::Who;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use headgate_flash::{CellTimes, Geometry, PlaneId};
use headgate_units::Nanos;
use slab::Slab;

/// Who goes first where both wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Requests of hosts.
    Host,
    /// Collection and levelling: they yield, but are not interrupted.
    Collection,
}

/// What the chips do, step by step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// Cells to register, register to controller.
    Read { plane: PlaneId },
    /// Controller to register, register to cells.
    Program { plane: PlaneId },
    /// Cells to register and back, in one plane.
    Copy { plane: PlaneId },
    /// From one plane over the controller to another.
    Move { from: PlaneId, to: PlaneId },
    /// Erases a block.
    Erase { plane: PlaneId },
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    task: Task,
    step: u8,
    class: Class,
    who: Who,
    /// Of its present step.
    stop: Stop,
}

/// A step: which station does it, and what.
#[derive(Clone, Copy, Debug)]
struct Stop {
    station: u32,
    work: Work,
}

/// What a station does, which says how long it takes.
#[derive(Clone, Copy, Debug)]
enum Work {
    Read,
    Program,
    Copy,
    Erase,
    Transfer,
}

const WORKS: usize = 5;

#[derive(Debug, Default)]
struct Station {
    /// The operation that is being served.
    busy: bool,
    host: VecDeque<u32>,
    collection: VecDeque<u32>,
}

/// When a step ends, and its operation. The key has the time in its upper half and in its lower one
/// the number in which steps were begun, so that equal times have an order.
#[derive(Clone, Copy, Debug)]
struct End {
    key: u128,
    operation: u32,
}

/// No key is as large.
const NEVER: u128 = u128::MAX;

/// All planes and channels. Each serves one operation at a time, those of hosts first, each class
/// in the order in which it came. A step costs O(1).
#[derive(Debug)]
pub(super) struct Fabric {
    /// How long each work takes.
    times: [Nanos; WORKS],
    /// The station of each plane's channel.
    channels: Vec<u32>,
    stations: Vec<Station>,
    operations: Slab<Operation>,
    /// Ends of steps, one at most for each station: for each work those that do it. All take as
    /// long, so what began first ends first.
    ends: [VecDeque<End>; WORKS],
    /// The least key of all ends, [`NEVER`] if there is none, and where it is.
    first: (u128, usize),
    begun: u64,
}

impl Fabric {
    pub(super) fn new(geometry: Geometry, channels: u32, times: CellTimes) -> Fabric {
        let (planes, dies) = (geometry.planes(), geometry.dies());
        let mut stations = Vec::new();
        stations.resize_with((planes + channels) as usize, Station::default);
        let CellTimes { read, program, erase, transfer } = times;
        Fabric {
            times: [read, program, read + program, erase, transfer],
            channels: (0..planes).map(|plane| planes + plane % dies % channels).collect(),
            stations,
            operations: Slab::new(),
            ends: Default::default(),
            first: (NEVER, 0),
            begun: 0,
        }
    }

    /// When the next step ends.
    #[inline]
    pub(super) fn next(&self) -> Option<Nanos> {
        (self.first.0 != NEVER).then_some(time_of(self.first.0))
    }

    /// Begins an operation, or lets it wait for its first station.
    pub(super) fn begin(&mut self, now: Nanos, task: Task, class: Class, who: Who) {
        let Some(stop) = self.stop(task, 0) else { return };
        let key = self.operations.insert(Operation { task, step: 0, class, who, stop }) as u32;
        self.enqueue(now, key);
    }

    /// Ends the next step, which must be due. Whose operation it was, if it was its last step.
    pub(super) fn end(&mut self) -> Option<Who> {
        let End { key, operation } = self.take_first()?;
        let now = time_of(key);
        let ended = *self.operations.get(operation as usize)?;
        let station = ended.stop.station as usize;
        self.stations[station].busy = false;
        self.serve(now, station);
        let Some(stop) = self.stop(ended.task, ended.step + 1) else {
            return Some(self.operations.remove(operation as usize).who);
        };
        self.operations[operation as usize] = Operation { step: ended.step + 1, stop, ..ended };
        self.enqueue(now, operation);
        None
    }

    fn take_first(&mut self) -> Option<End> {
        let taken = self.ends[self.first.1].pop_front();
        self.first = (NEVER, 0);
        for (work, ends) in self.ends.iter().enumerate() {
            let key = ends.front().map_or(NEVER, |end| end.key);
            if key < self.first.0 {
                self.first = (key, work);
            }
        }
        taken
    }

    fn enqueue(&mut self, now: Nanos, key: u32) {
        let Operation { class, stop, .. } = self.operations[key as usize];
        let station = &mut self.stations[stop.station as usize];
        match class {
            Class::Host => station.host.push_back(key),
            Class::Collection => station.collection.push_back(key),
        }
        self.serve(now, stop.station as usize);
    }

    fn serve(&mut self, now: Nanos, index: usize) {
        let station = &mut self.stations[index];
        if station.busy {
            return;
        }
        let Some(operation) = station.host.pop_front().or_else(|| station.collection.pop_front())
        else {
            return;
        };
        station.busy = true;
        let work = self.operations[operation as usize].stop.work as usize;
        let key = u128::from((now + self.times[work]).0) << 64 | u128::from(self.begun);
        self.begun += 1;
        let ends = &mut self.ends[work];
        // Behind all, unless time ran backwards.
        let behind = ends.iter().rev().take_while(|end| end.key > key).count();
        ends.insert(ends.len() - behind, End { key, operation });
        if key < self.first.0 {
            self.first = (key, work);
        }
    }

    /// Where a step of a task is done, and what that is; `None` after the last.
    fn stop(&self, task: Task, step: u8) -> Option<Stop> {
        let cells = |plane: PlaneId, work| Some(Stop { station: plane.0, work });
        let channel = |plane: PlaneId| {
            Some(Stop { station: self.channels[plane.0 as usize], work: Work::Transfer })
        };
        match (task, step) {
            (Task::Read { plane }, 0) => cells(plane, Work::Read),
            (Task::Read { plane }, 1) => channel(plane),
            (Task::Program { plane }, 0) => channel(plane),
            (Task::Program { plane }, 1) => cells(plane, Work::Program),
            (Task::Copy { plane }, 0) => cells(plane, Work::Copy),
            (Task::Move { from, .. }, 0) => cells(from, Work::Read),
            (Task::Move { from, .. }, 1) => channel(from),
            (Task::Move { to, .. }, 2) => channel(to),
            (Task::Move { to, .. }, 3) => cells(to, Work::Program),
            (Task::Erase { plane }, 0) => cells(plane, Work::Erase),
            _ => None,
        }
    }
}

#[inline]
fn time_of(key: u128) -> Nanos {
    Nanos((key >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_units::Bytes;
    use proptest::prelude::*;

    /// Task, step, class, when it came to its station, and when the step ends if it is served.
    type Entry = (Task, u8, Class, u64, Option<(Nanos, u64)>);

    /// What stations do, looked for anew at each step among all operations.
    #[derive(Default)]
    struct Plain {
        operations: Vec<Option<Entry>>,
        came: u64,
        begun: u64,
    }

    fn steps(fabric: &Fabric, task: Task, step: u8) -> Option<(u32, Nanos)> {
        fabric.stop(task, step).map(|stop| (stop.station, fabric.times[stop.work as usize]))
    }

    impl Plain {
        fn come(&mut self, now: Nanos, fabric: &Fabric, index: usize) {
            self.came += 1;
            let came = self.came;
            if let Some((task, step, _, at, _)) = &mut self.operations[index] {
                *at = came;
                let station = steps(fabric, *task, *step).unwrap().0;
                self.serve(now, fabric, station);
            }
        }

        fn serve(&mut self, now: Nanos, fabric: &Fabric, station: u32) {
            let here = |&(task, step, ..): &Entry| steps(fabric, task, step).unwrap().0 == station;
            let there = || self.operations.iter().flatten().filter(|one| here(one));
            if there().any(|one| one.4.is_some()) {
                return;
            }
            let next = there().min_by_key(|one| (one.2 == Class::Collection, one.3)).map(|o| o.3);
            let chosen = |one: &&mut Entry| Some(one.3) == next;
            if let Some(one) = self.operations.iter_mut().flatten().find(chosen) {
                one.4 = Some((now + steps(fabric, one.0, one.1).unwrap().1, self.begun));
                self.begun += 1;
            }
        }

        fn end(&mut self, fabric: &Fabric) -> Option<(Nanos, Option<u32>)> {
            let ends = self.operations.iter().flatten().filter_map(|one| one.4);
            let (now, number) = ends.min()?;
            let is_it = |one: &Option<Entry>| one.is_some_and(|one| one.4 == Some((now, number)));
            let index = self.operations.iter().position(is_it)?;
            let (task, step, class, came, _) = self.operations[index].take()?;
            let station = steps(fabric, task, step).unwrap().0;
            self.serve(now, fabric, station);
            if steps(fabric, task, step + 1).is_none() {
                return Some((now, Some(index as u32)));
            }
            self.operations[index] = Some((task, step + 1, class, came, None));
            self.operations[index].as_mut()?.3 = u64::MAX;
            self.come(now, fabric, index);
            Some((now, None))
        }
    }

    proptest! {
        #[test]
        fn steps_end_in_the_order_of_a_list_of_all(
            begun in prop::collection::vec((0u8..6, 0u32..4, 0u32..4, any::<bool>()), 1..120),
        ) {
            let geometry = Geometry::new(2, 2, 4, 4, Bytes(4_096)).unwrap();
            let times = CellTimes {
                read: Nanos(25),
                program: Nanos(200),
                erase: Nanos(1_500),
                transfer: Nanos(25),
            };
            let mut fabric = Fabric::new(geometry, 2, times);
            let (mut plain, mut now) = (Plain::default(), Nanos::ZERO);
            for (what, from, to, host) in begun {
                let (plane, from, to) = (PlaneId(to), PlaneId(from), PlaneId(to));
                let task = match what {
                    0 => Task::Read { plane },
                    1 => Task::Program { plane },
                    2 => Task::Copy { plane },
                    3 => Task::Move { from, to },
                    4 => Task::Erase { plane },
                    _ => {
                        let expected = plain.end(&fabric);
                        prop_assert_eq!(fabric.next(), expected.map(|(at, _)| at));
                        let ended = fabric.end();
                        let who = expected.and_then(|(_, who)| who).map(Who::Request);
                        prop_assert_eq!(ended, who);
                        now = expected.map_or(now, |(at, _)| at);
                        continue;
                    }
                };
                let class = if host { Class::Host } else { Class::Collection };
                let index = plain.operations.len();
                fabric.begin(now, task, class, Who::Request(index as u32));
                plain.operations.push(Some((task, 0, class, u64::MAX, None)));
                plain.come(now, &fabric, index);
            }
            while let Some((at, who)) = plain.end(&fabric) {
                prop_assert_eq!(fabric.next(), Some(at));
                prop_assert_eq!(fabric.end(), who.map(Who::Request));
            }
            prop_assert_eq!(fabric.next(), None);
        }
    }
}
