//! What a gate lets out beside what is out, against the definition of its window: a list of what
//! every request in flight costs.

use headgate_qos::window::Slots;
use headgate_qos::{
    AnyScheduler, Config, Cost, CostModel, Decision, DiskId, Gate, Io, IoKind, Policy,
    SchedulerKind,
};
use headgate_units::{Bytes, Iops, Nanos};
use proptest::prelude::*;

/// `1 + size / 300 KiB`, in millionths.
fn affine(bytes: u64) -> u128 {
    1_000_000 + u128::from(bytes) * 1_000_000 / (300 << 10)
}

/// What is in flight counts for, where one counts for no more than so much.
fn counted(flying: &[(DiskId, Cost)], most: u128) -> u128 {
    flying.iter().map(|(_, cost)| u128::from(cost.as_millionths()).min(most)).sum()
}

fn sizes() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![
        0u64,
        512,
        4 << 10,
        64 << 10,
        1 << 20,
        5 << 20,
        64 << 20,
        1 << 30,
        u64::MAX,
    ])
}

type Step = (u8, u64, usize, u64, u32);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0u8..10, sizes(), 0usize..3, 0u64..5_000_000, 0u32..40), 1..250)
}

struct Run {
    gate: Gate<u32>,
    disks: Vec<DiskId>,
    flying: Vec<(DiskId, Cost)>,
    now: Nanos,
    window: u32,
}

impl Run {
    fn new(model: CostModel) -> Run {
        let config = Config::for_hosts(model);
        let scheduler = AnyScheduler::new(SchedulerKind::MClock, config).unwrap();
        let mut gate = Gate::new(Nanos::ZERO, scheduler, Slots::whole(8));
        // Without a reservation the window is what was set.
        let disks = (0..3).map(|_| gate.register(Nanos::ZERO, Policy::default())).collect();
        Run { gate, disks, flying: Vec::new(), now: Nanos::ZERO, window: 8 }
    }

    fn step(&mut self, (what, bytes, which, passed, size): Step) {
        self.now += Nanos(passed);
        let (now, disk) = (self.now, self.disks[which]);
        match what {
            0..3 => {
                if !self.flying.is_empty() {
                    let (disk, cost) = self.flying.swap_remove(size as usize % self.flying.len());
                    self.gate.complete(now, disk, cost);
                }
            }
            3 => {
                self.gate.unregister(now, disk).unwrap();
                self.disks[which] = self.gate.register(now, Policy::default());
            }
            4 => {
                self.window = size.max(1);
                self.gate.set_window(now, Slots::whole(self.window));
            }
            _ => {
                let kind = if size % 2 == 0 { IoKind::Read } else { IoKind::Write };
                let io = Io { bytes: Bytes(bytes), kind, ..Io::default() };
                self.gate.enqueue(now, disk, io, size).unwrap();
            }
        }
    }

    fn finish(mut self) {
        for disk in self.disks.clone() {
            self.gate.unregister(self.now, disk).unwrap();
        }
        for (disk, cost) in std::mem::take(&mut self.flying) {
            self.gate.complete(self.now, disk, cost);
        }
        assert_eq!((self.gate.in_flight(), self.gate.work_in_flight()), (0, Cost::default()));
    }
}

proptest! {
    /// Never at or above the window, in requests or in work, and never held back below it. What
    /// one request counts for is bounded by half of the window or up to a quarter more.
    #[test]
    fn the_window_is_an_upper_bound_and_holds_nothing_back_below_it(steps in steps()) {
        let mut run = Run::new(CostModel::default());
        for step in steps {
            run.step(step);
            let work = u128::from(run.window) * affine(1 << 20);
            loop {
                let least = counted(&run.flying, work / 2);
                let most = counted(&run.flying, work * 5 / 8 + 1_000_000);
                let requests = run.flying.len();
                match run.gate.next(run.now) {
                    Decision::Dispatch(sent) => {
                        prop_assert!(requests < run.window as usize);
                        prop_assert!(requests == 0 || least < work, "{} of {}", least, work);
                        run.flying.push((sent.disk, sent.cost));
                    }
                    _ => {
                        let is_open = requests < run.window as usize && most < work;
                        prop_assert!(run.gate.queued() == 0 || !is_open, "{} of {}", most, work);
                        break;
                    }
                }
            }
            prop_assert_eq!(run.gate.in_flight() as usize, run.flying.len());
        }
        run.finish();
    }

    /// Under `unit` a window is a number of requests, whatever their sizes.
    #[test]
    fn where_each_request_costs_one_only_their_number_counts(steps in steps()) {
        let mut run = Run::new(CostModel::Unit);
        for step in steps {
            run.step(step);
            while let Decision::Dispatch(sent) = run.gate.next(run.now) {
                run.flying.push((sent.disk, sent.cost));
            }
            prop_assert!(run.gate.queued() == 0 || run.flying.len() >= run.window as usize);
        }
        run.finish();
    }

    /// Costs change while requests are in flight, and nothing is left of them in the end.
    #[test]
    fn nothing_is_left_where_costs_are_learned(steps in steps()) {
        let mut run = Run::new("learned".parse().unwrap());
        for step in steps {
            // Stretches of a second, so that costs change.
            run.step((step.0, step.1, step.2, step.3 * 200, step.4));
            while let Decision::Dispatch(sent) = run.gate.next(run.now) {
                run.flying.push((sent.disk, sent.cost));
            }
        }
        run.finish();
    }
}

/// A full window of 1 MiB requests is a number of requests under every model: also where learned
/// costs have gone to where they go.
#[test]
fn requests_of_1_mib_fill_the_window_by_their_number() {
    for model in ["unit", "affine=300K", "affine=64K", "chunks=32K", "learned", "learned=16K"] {
        let mut run = Run::new(model.parse().unwrap());
        run.gate.set_window(Nanos::ZERO, Slots::whole(32));
        let io = Io { bytes: Bytes::from_mib(1), kind: IoKind::Write, ..Io::default() };
        for key in 0..40 {
            run.gate.enqueue(Nanos::ZERO, run.disks[0], io, key).unwrap();
        }
        while let Decision::Dispatch(sent) = run.gate.next(Nanos::ZERO) {
            run.flying.push((sent.disk, sent.cost));
        }
        assert_eq!(run.flying.len(), 32, "{model}");
        run.finish();
    }
}

/// The window follows costs that are learned: of writes that come to cost eight times as much, as
/// many are in flight as before.
#[test]
fn a_window_of_requests_stays_one_while_their_costs_are_learned() {
    let mut run = Run::new("learned".parse().unwrap());
    let limit = Policy::default().with_reservation(Iops::new(1).ok()).unwrap();
    let disk = run.gate.register(Nanos::ZERO, limit);
    run.gate.set_narrow(Nanos::ZERO, headgate_qos::Narrow::Never);
    let io = |key: u64| Io {
        bytes: Bytes::from_mib(1),
        position: (key * 7_919) << 22,
        kind: IoKind::Write,
        ..Io::default()
    };
    let small =
        |key: u64| Io { bytes: Bytes(4_096), position: (key * 104_729) << 22, ..Io::default() };
    let (mut key, mut first) = (0u64, None);
    for turn in 0..20_000u64 {
        run.now = Nanos::from_millis(turn * 2);
        while run.gate.queued() < 20 {
            key += 1;
            let (disk, io) =
                if key % 2 == 0 { (disk, io(key)) } else { (run.disks[0], small(key)) };
            run.gate.enqueue(run.now, disk, io, 0).unwrap();
        }
        while let Decision::Dispatch(sent) = run.gate.next(run.now) {
            first = first.or((sent.disk == disk).then_some(sent.cost));
            run.flying.push((sent.disk, sent.cost));
        }
        assert_eq!(run.flying.len(), 8, "turn {turn}");
        let (disk, cost) = run.flying.remove(0);
        run.gate.complete(run.now, disk, cost);
    }
    let costs = run.gate.learned_costs().unwrap();
    assert!(costs.classes[2].requests > 100 && first.is_some());
    run.finish();
}
