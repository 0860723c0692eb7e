//! Planes and channels as stations with queues: when each operation of the chips ends.

use super::lane::Who;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
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
}

#[derive(Debug, Default)]
struct Station {
    /// The operation that is being served.
    busy: bool,
    host: VecDeque<u32>,
    collection: VecDeque<u32>,
}

/// All planes and channels. Each serves one operation at a time, those of hosts first, each class
/// in the order in which it came.
#[derive(Debug)]
pub(super) struct Fabric {
    times: CellTimes,
    planes: u32,
    dies: u32,
    channels: u32,
    stations: Vec<Station>,
    operations: Slab<Operation>,
    /// Ends of steps: one at most for each station. Then the number in which they were begun, so
    /// that equal times have an order.
    ends: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    begun: u64,
}

impl Fabric {
    pub(super) fn new(geometry: Geometry, channels: u32, times: CellTimes) -> Fabric {
        let planes = geometry.planes();
        let mut stations = Vec::new();
        stations.resize_with((planes + channels) as usize, Station::default);
        Fabric {
            times,
            planes,
            dies: geometry.dies(),
            channels,
            stations,
            operations: Slab::new(),
            ends: BinaryHeap::new(),
            begun: 0,
        }
    }

    /// When the next step ends.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.ends.peek().map(|&Reverse((at, ..))| at)
    }

    /// Begins an operation, or lets it wait for its first station.
    pub(super) fn begin(&mut self, now: Nanos, task: Task, class: Class, who: Who) {
        let key = self.operations.insert(Operation { task, step: 0, class, who }) as u32;
        self.enqueue(now, key);
    }

    /// Ends the next step, which must be due. Whose operation it was, if it was its last step.
    pub(super) fn end(&mut self) -> Option<Who> {
        let Reverse((now, _, key)) = self.ends.pop()?;
        let operation = self.operations.get_mut(key as usize)?;
        let (task, step) = (operation.task, operation.step);
        operation.step += 1;
        if let Some((station, _)) = self.station(task, step) {
            self.stations[station].busy = false;
            self.serve(now, station);
        }
        if self.station(task, step + 1).is_some() {
            self.enqueue(now, key);
            return None;
        }
        Some(self.operations.remove(key as usize).who)
    }

    fn enqueue(&mut self, now: Nanos, key: u32) {
        let Operation { task, step, class, .. } = self.operations[key as usize];
        let Some((station, _)) = self.station(task, step) else { return };
        match class {
            Class::Host => self.stations[station].host.push_back(key),
            Class::Collection => self.stations[station].collection.push_back(key),
        }
        self.serve(now, station);
    }

    fn serve(&mut self, now: Nanos, index: usize) {
        let station = &mut self.stations[index];
        if station.busy {
            return;
        }
        let Some(key) = station.host.pop_front().or_else(|| station.collection.pop_front()) else {
            return;
        };
        station.busy = true;
        let Operation { task, step, .. } = self.operations[key as usize];
        let time = self.station(task, step).map_or(Nanos::ZERO, |(_, time)| time);
        self.ends.push(Reverse((now + time, self.begun, key)));
        self.begun += 1;
    }

    /// Where a step of a task is done, and for how long; `None` after the last.
    fn station(&self, task: Task, step: u8) -> Option<(usize, Nanos)> {
        let CellTimes { read, program, erase, transfer } = self.times;
        let cells = |plane: PlaneId, time: Nanos| Some((plane.0 as usize, time));
        let channel = |plane: PlaneId| {
            let channel = plane.0 % self.dies % self.channels;
            Some(((self.planes + channel) as usize, transfer))
        };
        match (task, step) {
            (Task::Read { plane }, 0) => cells(plane, read),
            (Task::Read { plane }, 1) => channel(plane),
            (Task::Program { plane }, 0) => channel(plane),
            (Task::Program { plane }, 1) => cells(plane, program),
            (Task::Copy { plane }, 0) => cells(plane, read + program),
            (Task::Move { from, .. }, 0) => cells(from, read),
            (Task::Move { from, .. }, 1) => channel(from),
            (Task::Move { to, .. }, 2) => channel(to),
            (Task::Move { to, .. }, 3) => cells(to, program),
            (Task::Erase { plane }, 0) => cells(plane, erase),
            _ => None,
        }
    }
}
