//! Theorem 2: how long a request waits whose disk asks for no more than its reservation.

use crate::harness::*;
use headgate_qos::{Config, CostModel, Floor, Policy, SchedulerKind};
use headgate_units::Bytes;
use std::collections::VecDeque;

/// Half of the bound on debt: how late a disk with requests in flight may ask and keep its turn.
const PATIENCE: u64 = 125 * MS;

/// Watches disk 0, whose arrivals conform to its reservation.
struct Delay {
    shape: Shape,
    /// The longest service of a reference IO.
    pace: u64,
    stalls: u64,
    floor: u64,
    patience: u64,
    /// When the requests of disk 0 arrived that are not done, and how many of them are sent.
    pending: VecDeque<u64>,
    sent: usize,
    /// The most that was reserved for each disk, and whether it was ever without a reservation.
    reserved: Vec<u64>,
    free: Vec<bool>,
    worst: Verdict,
}

impl Delay {
    fn new(setup: &Setup) -> Delay {
        let Floor::OneIn(n) = setup.config.floor else { panic!("a set-up without a floor") };
        Delay {
            shape: setup.shape.unwrap(),
            pace: setup.pace,
            stalls: setup.stalls,
            floor: n.into(),
            patience: PATIENCE,
            pending: VecDeque::new(),
            sent: 0,
            reserved: vec![0; setup.policies.len()],
            free: vec![false; setup.policies.len()],
            worst: Verdict { found: 0, bound: 1 },
        }
    }

    /// The bound for a request of disk 0, in nanoseconds. See `docs/theorems.md`.
    fn bound(&self, cost: u64, view: &View) -> i128 {
        let wide = i128::from;
        let disks = 0..view.policies.len();
        let sum = |of: &dyn Fn(usize) -> u64| disks.clone().map(of).sum::<u64>();
        let one_each = sum(&|i| if self.reserved[i] > 0 { view.largest[i] } else { 0 });
        let unreserved = disks.clone().filter(|i| self.free[*i]).map(|i| view.largest[i]).max();
        let largest = *view.largest.iter().max().unwrap();
        let others = sum(&|i| if i > 0 { self.reserved[i] } else { 0 });
        let with_floor = |x: i128| x + (x + wide(self.floor) - 1) / wide(self.floor);
        let early = wide((self.shape.burst - cost) * SECOND).div_euclid(wide(self.shape.rate)) + 1;
        let window = wide(u64::from(view.window) * largest * self.pace);
        let turns = with_floor(wide(one_each * self.pace));
        let floor = wide(unreserved.unwrap_or(0) * self.pace);
        let patience =
            with_floor(wide(self.patience) * wide(others) * wide(self.pace) / wide(SECOND) + 1);
        early + window + turns + floor + patience + wide(self.stalls)
    }
}

impl Observer for Delay {
    fn see(&mut self, event: Event, view: &View) {
        for (i, policy) in view.policies.iter().enumerate() {
            let reserved = policy.reservation().map_or(0, |r| r.get());
            self.reserved[i] = self.reserved[i].max(reserved);
            self.free[i] |= reserved == 0;
        }
        let (cost, arrived) = match event {
            Event::Arrived { disk: 0 } => return self.pending.push_back(view.now),
            Event::Sent { disk: 0, .. } => return self.sent += 1,
            Event::Withdrawn { disk: 0 } => return self.pending.truncate(self.sent),
            Event::Done { disk: 0, cost, arrived } => {
                self.pending.pop_front();
                self.sent -= 1;
                (cost, arrived)
            }
            // What is not done is late already.
            Event::End => match self.pending.front() {
                Some(arrived) => (1, *arrived),
                None => return,
            },
            _ => return,
        };
        let found = i128::from(view.now - arrived);
        let bound = self.bound(cost, view);
        self.worst = self.worst.or(Verdict { found, bound });
    }

    fn verdict(&self) -> Verdict {
        self.worst
    }
}

fn case(name: &'static str, window: u32, others: Vec<Policy>, stalls: u64) -> Case {
    let cost_model = CostModel::Chunks { reference: Bytes::from_kib(4) };
    let config = Config { cost_model, ..Config::default() };
    let shape = Some(Shape { rate: 100, burst: 4 });
    let policies = [vec![policy(1, 100, 0)], others].concat();
    // Less for the others is within the theorem.
    let less = policies[1].reservation().map_or(0, |r| r.get() / 8);
    let menu = vec![
        policies[1],
        policy(5, less, 0),
        policy(1_000, 0, 0),
        policy(1_000, 0, 40),
        policy(1, 30, 40),
    ];
    let last = policies.len() - 1;
    let keep = |disk, outstanding, cost| Action::Keep { disk, outstanding, cost };
    let (pace, order) = (MS, Order::FirstIn);
    Case {
        name,
        setup: Setup { config, window, pace, order, stalls, shape, policies, menu },
        start: vec![],
        alphabet: vec![
            keep(0, 9, 1),
            keep(0, 9, 4),
            keep(1, 1, 4),
            keep(1, 30, 4),
            keep(last, 9, 4),
            Action::Wait(60 * MS),
        ],
        depth: 4,
        space: Space {
            disks: last + 1,
            counts: vec![1, 4, 40, 120],
            costs: vec![1, 2, 4],
            depths: vec![0, 1, 3, 9, 60],
            waits: vec![MS, 10 * MS, 40 * MS, 120 * MS, 200 * MS],
            policies: vec![(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (1, 0)],
            paces: vec![MS / 2, MS],
            stalls: if stalls > 0 { vec![20 * MS, 40 * MS, 400 * MS] } else { vec![] },
        },
        length: 14,
        steps: 400,
        tail: 300 * MS,
        observer: Box::new(|setup| Box::new(Delay::new(setup))),
    }
}

fn cases() -> Vec<Case> {
    let free = || policy(1_000, 0, 0);
    vec![
        case("beside unreserved", 4, vec![free(), policy(1, 0, 300)], 0),
        case("a window of one", 1, vec![policy(1, 600, 0), free()], 0),
        case("a window of eight", 8, vec![policy(1, 600, 0), free()], 0),
        case("reserved to the last IO", 4, vec![policy(1_000, 888, 0), free()], 0),
        case("three reserved", 4, vec![policy(50, 400, 0), policy(50, 400, 0), free()], 0),
        case("stalls of 40 ms", 4, vec![policy(1, 700, 0), free()], 40 * MS),
        case("stalls of 400 ms", 4, vec![policy(1, 700, 0), free()], 400 * MS),
    ]
}

#[test]
fn requests_within_the_reservation_are_done_in_time() {
    for worst in worst_of(&cases(), &product(SchedulerKind::MClock)) {
        assert!(!worst.verdict.is_broken(), "{worst}");
    }
}

#[test]
fn the_textbook_is_in_time_and_its_mistakes_are_found() {
    let cases = cases();
    for worst in worst_of(&cases, &textbook(Mistake::None)) {
        assert!(!worst.verdict.is_broken(), "{worst}");
    }
    for mistake in [Mistake::NoReservations, Mistake::HalfTheReservation, Mistake::DueByShares] {
        assert!(breaks(&cases, &textbook(mistake)), "{mistake:?}");
    }
    for kind in [SchedulerKind::Sfq, SchedulerKind::Fifo] {
        assert!(breaks(&cases, &product(kind)), "{kind} knows reservations");
    }
}

/// A disk without a reservation has requests in flight, or waits for its limit. It is given a
/// reservation, which fits. Nothing is owed to it for the time before.
#[test]
fn a_reservation_that_was_just_set_is_not_late() {
    let send = Action::Send { disk: 0, count: 1, cost: 1 };
    let keep = |disk, outstanding| Action::Keep { disk, outstanding, cost: 1 };
    let set = |entry| Action::Policy { disk: 1, entry };
    let steady = |n: u32| vec![[send, Action::Wait(10 * MS)]; n as usize].concat();
    // Found by the search: 125 ms of the reservation at once.
    let in_flight = [keep(1, 1), send, set(2), set(0), keep(1, 60)];
    // 5 s of it. The limit goes while the disk waits for it, after the reservation was set.
    let held_back = [keep(2, 9), set(3), keep(1, 30)];
    let lifted = [send, set(4), set(0)];
    let sequences = [
        [&steady(9), &in_flight[..], &steady(50)].concat(),
        [&held_back[..], &steady(50), &lifted, &steady(50)].concat(),
    ];
    let case = case("just set", 1, vec![policy(1, 600, 0), policy(1_000, 0, 0)], 0);
    for actions in sequences {
        let observer = Box::new(Delay { patience: 2 * MS, ..Delay::new(&case.setup) });
        let subject = product(SchedulerKind::MClock)(&case.setup);
        let verdict = World::new(&case.setup, subject, observer).play(&actions, SECOND);
        println!("{verdict:?}");
        assert!(!verdict.is_broken(), "{verdict:?}");
    }
}
