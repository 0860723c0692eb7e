//! Theorem 4: no slot of the window is empty while a request waits that may be served.

use crate::harness::*;
use headgate_qos::{Config, CostModel, LimitMode, Policy, SchedulerKind};
use headgate_units::{Bytes, Nanos};

/// Nanoseconds in which a slot was empty and a disk waited that might have been served.
///
/// A disk under a strict limit may wait only while it has had its limit: while there is a time s
/// with `S(s, now) > ∫ limit`, where S is what it was sent since s under limits.
struct Waste {
    /// What stood after the last event.
    since: u64,
    has_room: bool,
    queued: Vec<u32>,
    policies: Vec<Policy>,
    /// What the limit of each disk came to, in billionths of a reference IO.
    earned: Vec<u128>,
    /// What each disk was sent since it had no limit, and what the limit had come to.
    sent: Vec<Vec<(u128, u64)>>,
    wasted: u64,
    /// A tag is a whole number of nanoseconds. A change of a limit rounds it once more.
    rounded: u64,
}

impl Waste {
    fn new(setup: &Setup) -> Waste {
        Waste {
            since: 0,
            has_room: false,
            queued: vec![],
            policies: vec![],
            earned: vec![0; setup.policies.len()],
            sent: vec![vec![]; setup.policies.len()],
            wasted: 0,
            rounded: 0,
        }
    }

    /// For how long from the last event the limit explains that the disk waits.
    fn explained(&self, disk: usize, limit: u64) -> u64 {
        let mut sum = 0;
        let until = |(earned, cost): &(u128, u64)| {
            sum += u128::from(*cost) * u128::from(SECOND);
            earned + sum
        };
        let until = self.sent[disk].iter().rev().map(until).max().unwrap_or(0);
        until.saturating_sub(self.earned[disk]).div_ceil(limit.into()) as u64
    }

    /// Judges the time from the last event to now.
    fn judge(&mut self, now: u64) {
        let time = now - self.since;
        for (disk, policy) in self.policies.iter().enumerate() {
            if self.has_room && self.queued[disk] > 0 {
                let explained = match (policy.limit(), policy.limit_mode()) {
                    (Some(limit), LimitMode::Strict) => self.explained(disk, limit.get()),
                    _ => 0,
                };
                self.wasted += time.saturating_sub(explained);
            }
            let limit = policy.limit().map_or(0, |l| l.get());
            self.earned[disk] += u128::from(limit) * u128::from(time);
        }
        self.since = now;
    }
}

impl Observer for Waste {
    fn see(&mut self, event: Event, view: &View) {
        self.judge(view.now);
        match event {
            Event::Sent { disk, cost } => self.sent[disk].push((self.earned[disk], cost)),
            Event::Policy { disk, before } => match (before.limit(), view.policies[disk].limit()) {
                (None, _) => self.sent[disk].clear(),
                (Some(from), Some(to)) => self.rounded += 1 + from.get().div_ceil(to.get()),
                (Some(_), None) => {}
            },
            _ => {}
        }
        self.has_room = view.in_flight < view.window;
        self.queued.clear();
        self.queued.extend_from_slice(view.queued);
        self.policies.clear();
        self.policies.extend_from_slice(view.policies);
    }

    fn verdict(&self) -> Verdict {
        Verdict { found: self.wasted.into(), bound: self.rounded.into() }
    }
}

pub fn case(name: &'static str, window: u32, policies: Vec<Policy>) -> Case {
    let cost_model = CostModel::Chunks { reference: Bytes::from_kib(4) };
    // Slack as hosts have it, so that a tick of 30 ms is more.
    let config = Config { cost_model, limit_slack: Nanos::from_millis(20), ..Config::default() };
    let soft = policy(1, 0, 30).with_limit_mode(LimitMode::Soft);
    let menu = vec![policy(2, 0, 0), policy(2, 0, 20), policy(9, 60, 60), soft];
    let disks = policies.len();
    let (pace, stalls, shape, order) = (4 * MS, SECOND, None, Order::FirstIn);
    let send = |disk, count, cost| Action::Send { disk, count, cost };
    Case {
        name,
        setup: Setup { config, window, pace, order, stalls, shape, policies, menu },
        start: vec![],
        alphabet: vec![
            send(0, 1, 1),
            send(0, 5, 3),
            send(1, 4, 1),
            send(disks - 1, 3, 2),
            Action::Wait(30 * MS),
        ],
        depth: 5,
        space: Space {
            disks,
            counts: vec![1, 2, 7],
            costs: vec![1, 3, 8],
            depths: vec![0, 1, 4],
            waits: vec![MS, 7 * MS, 50 * MS, 333 * MS, 1_100 * MS],
            policies: (0..disks).flat_map(|d| (0..4).map(move |e| (d, e))).collect(),
            paces: vec![MS, 4 * MS, 20 * MS],
            stalls: vec![5 * MS, 200 * MS],
        },
        length: 14,
        steps: 400,
        tail: 300 * MS,
        observer: Box::new(|setup| Box::new(Waste::new(setup))),
    }
}

fn cases() -> Vec<Case> {
    let soft = policy(1, 0, 30).with_limit_mode(LimitMode::Soft);
    vec![
        case("free and limited", 2, vec![policy(1, 0, 0), policy(3, 0, 25)]),
        case("reserved at its limit", 3, vec![policy(3, 0, 25), policy(1, 40, 40)]),
        case("reserved and soft", 3, vec![policy(5, 0, 20), policy(1, 80, 0), soft]),
        case("one slot", 1, vec![policy(1, 0, 0), policy(3, 0, 25), soft]),
    ]
}

#[test]
fn no_slot_is_empty_while_a_request_may_be_served() {
    for worst in worst_of(&cases(), &product(SchedulerKind::MClock)) {
        assert!(!worst.verdict.is_broken(), "{worst}");
    }
}

#[test]
fn the_textbook_wastes_nothing_and_its_mistakes_are_found() {
    let cases = cases();
    for worst in worst_of(&cases, &textbook(Mistake::None)) {
        assert!(!worst.verdict.is_broken(), "{worst}");
    }
    for mistake in
        [Mistake::KeepsSlot, Mistake::HeadOfLine, Mistake::LostWakeUp, Mistake::CoarseLimit]
    {
        assert!(breaks(&cases, &textbook(mistake)), "{mistake:?}");
    }
}
