//! Theorem 3: a limit from above and from below, over any interval.

use crate::harness::*;
use headgate_qos::{Config, CostModel, PeakTime, SchedulerKind};
use headgate_units::{Bytes, Iops, Nanos};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// At most `∫ limit + 250 ms · limit + c` in any interval.
    Above,
    /// At most `l (n + λ + 3/8 slack (n - 1)) + c` in n seconds, λ the larger of the slack and
    /// `min(c/l, 50 ms)`.
    AboveInSeconds,
    /// At most `∫ l + max((p - l) T, 250 ms · l) + c` of a limit l with a peak p for T.
    AbovePeak,
    /// At least `∫ limit - 250 ms · limit - c` while the window has room.
    Below,
    /// At least `∫ limit - (250 ms + d) · limit - c` beside others, where its share exceeds it.
    BelowBesideOthers,
}

/// Lateness that a limit makes good for.
const LATENESS: u64 = 250 * MS;

/// Watches disk 0. Service and limits in billionths of a reference IO.
struct Limits {
    claim: Claim,
    slack: u64,
    since: u64,
    /// After the last event: whether the claim is about the time that follows.
    applies: bool,
    /// When the storage goes on after a stall.
    blocked: u64,
    limit: u64,
    largest_limit: u64,
    /// What was sent less what the limit came to, and its least and greatest value.
    surplus: i128,
    least: i128,
    most: i128,
    /// Times and costs of what was sent under this limit.
    sent: Vec<(u64, u64)>,
    worst: Verdict,
}

fn parts(ios: u64) -> i128 {
    i128::from(ios) * i128::from(SECOND)
}

impl Limits {
    fn new(claim: Claim, setup: &Setup) -> Limits {
        Limits {
            claim,
            slack: setup.config.limit_slack.0,
            since: 0,
            applies: false,
            blocked: 0,
            limit: 0,
            largest_limit: 0,
            surplus: 0,
            least: 0,
            most: 0,
            sent: vec![],
            worst: Verdict { found: 0, bound: 1 },
        }
    }

    fn forget(&mut self) {
        (self.surplus, self.least, self.most) = (0, 0, 0);
        self.sent.clear();
    }

    fn note(&mut self, found: i128, bound: i128) {
        self.worst = self.worst.or(Verdict { found, bound });
    }

    /// The greatest wait for others at a window that is always full: `(Σ w_j c_i/w_i + Σ c_j + c)`
    /// over the rate of the storage.
    fn wait(view: &View) -> i128 {
        let own = i128::from(view.policies[0].shares().get());
        let turn = |i: usize| {
            let weight = i128::from(view.policies[i].shares().get());
            weight * i128::from(view.largest[0]) + i128::from(view.largest[i]) * own
        };
        let others: i128 = (1..view.policies.len()).map(turn).sum();
        let largest = i128::from(*view.largest.iter().max().unwrap());
        (others / own + 1 + largest) * i128::from(view.pace)
    }

    /// Time passes under the limit.
    fn pass(&mut self, now: u64, view: &View) {
        let time = now - self.since;
        self.since = now;
        if time == 0 {
            return;
        }
        if !self.applies {
            return self.forget();
        }
        self.surplus -= i128::from(self.limit) * i128::from(time);
        self.least = self.least.min(self.surplus);
        let short = self.most - self.surplus;
        let allowed = parts(view.largest[0].max(1));
        let late = i128::from(self.largest_limit) * i128::from(LATENESS);
        match self.claim {
            Claim::Below => self.note(short, allowed + late),
            Claim::BelowBesideOthers => {
                let wait = i128::from(self.largest_limit) * Limits::wait(view);
                self.note(short, allowed + late + wait);
            }
            _ => {}
        }
    }

    fn send(&mut self, cost: u64, view: &View) {
        if self.limit == 0 {
            return;
        }
        self.surplus += parts(cost);
        self.most = self.most.max(self.surplus);
        self.sent.push((view.now, cost));
        // A tag is a whole number of nanoseconds.
        let largest = parts(view.largest[0]) + i128::from(self.largest_limit);
        let over = self.surplus - self.least;
        match self.claim {
            Claim::Above => {
                let late = i128::from(self.largest_limit) * i128::from(LATENESS);
                self.note(over, late + largest);
            }
            Claim::AbovePeak => {
                let policy = &view.policies[0];
                let peak = policy.peak().map_or(0, |p| p.get()).saturating_sub(self.limit);
                let kept = parts(peak * u64::from(policy.peak_time().as_secs()));
                let late = i128::from(self.limit) * i128::from(LATENESS);
                self.note(over, kept.max(late) + largest);
            }
            Claim::AboveInSeconds => {
                for seconds in 1..=3 {
                    let within = |(at, _): &&(u64, u64)| at + seconds * SECOND > view.now;
                    let sum: u64 =
                        self.sent.iter().rev().take_while(within).map(|(_, cost)| cost).sum();
                    let one = (view.largest[0] * SECOND / self.limit).min(50 * MS);
                    let slack = self.slack.max(one) + self.slack * 3 / 8 * (seconds - 1);
                    let bound = i128::from(self.limit) * i128::from(seconds * SECOND + slack);
                    self.note(parts(sum), bound + largest);
                }
            }
            _ => {}
        }
    }
}

impl Observer for Limits {
    fn see(&mut self, event: Event, view: &View) {
        self.pass(view.now, view);
        match event {
            Event::Sent { disk: 0, cost } => self.send(cost, view),
            Event::Stalled(time) => self.blocked = self.blocked.max(view.now) + time,
            Event::Policy { disk: 0, before } => {
                if before.limit().is_none() || self.claim == Claim::AbovePeak {
                    self.forget();
                } else if self.claim == Claim::AboveInSeconds {
                    self.sent.clear();
                }
            }
            _ => {}
        }
        self.limit = view.policies[0].limit().map_or(0, |l| l.get());
        self.largest_limit = self.largest_limit.max(self.limit);
        let waits = view.queued[0] > 0;
        self.applies = self.limit > 0
            && match self.claim {
                Claim::Above | Claim::AboveInSeconds | Claim::AbovePeak => true,
                Claim::Below => waits && view.in_flight < view.window,
                Claim::BelowBesideOthers => waits && self.blocked <= view.now,
            };
    }

    fn verdict(&self) -> Verdict {
        self.worst
    }
}

fn config(slack: u64) -> Config {
    let cost_model = CostModel::Chunks { reference: Bytes::from_kib(4) };
    Config { cost_model, limit_slack: Nanos::from_millis(slack), ..Config::default() }
}

fn case(name: &'static str, claim: Claim, window: u32, slack: u64) -> Case {
    let policies = vec![policy(1, 0, 40), policy(9, 0, 0), policy(1, 100, 0)];
    let menu = vec![policy(1, 0, 40), policy(1, 0, 10), policy(1, 0, 0), policy(2, 25, 60)];
    let keep = |disk, outstanding, cost| Action::Keep { disk, outstanding, cost };
    let mut alphabet = vec![
        keep(0, 30, 1),
        keep(1, 4, 4),
        keep(1, 0, 1),
        Action::Wait(180 * MS),
        Action::Wait(430 * MS),
        Action::Policy { disk: 0, entry: 1 },
        Action::Policy { disk: 0, entry: 0 },
    ];
    if claim == Claim::AboveInSeconds {
        alphabet.truncate(5);
    }
    let changes = if claim == Claim::AboveInSeconds { 1 } else { 4 };
    Case {
        name,
        setup: Setup {
            config: config(slack),
            window,
            pace: 5 * MS,
            order: Order::FirstIn,
            stalls: 2 * SECOND,
            shape: None,
            policies,
            menu,
        },
        start: vec![],
        alphabet,
        depth: 4,
        space: Space {
            disks: 3,
            counts: vec![1, 5],
            costs: vec![1, 2, 4, 10],
            depths: vec![0, 4, 30],
            waits: vec![5 * MS, 70 * MS, 250 * MS, 400 * MS, 1_000 * MS],
            policies: (0..changes).map(|e| (0, e)).collect(),
            paces: vec![MS, 5 * MS, 25 * MS],
            stalls: vec![50 * MS, 160 * MS, 300 * MS],
        },
        length: 14,
        steps: 400,
        tail: 1_500 * MS,
        observer: Box::new(move |setup| Box::new(Limits::new(claim, setup))),
    }
}

/// Storage of 500 IOs per second. The wait for others is within the slack of 20 ms.
fn beside_others() -> Case {
    let mut case = case("from below, beside others", Claim::BelowBesideOthers, 2, 20);
    case.setup.policies = vec![policy(9, 0, 40), policy(1, 0, 0), policy(1, 0, 30)];
    (case.setup.pace, case.setup.stalls, case.setup.menu) =
        (2 * MS, 0, case.setup.policies.clone());
    let keep = |disk, outstanding, cost| Action::Keep { disk, outstanding, cost };
    case.alphabet = vec![
        keep(0, 30, 1),
        keep(0, 30, 2),
        keep(1, 8, 3),
        keep(2, 8, 2),
        Action::Wait(430 * MS),
        Action::Withdraw { disk: 1 },
    ];
    let space = &mut case.space;
    (space.costs, space.paces, space.stalls, space.policies) = (vec![1, 2], vec![], vec![], vec![]);
    case
}

fn peak() -> Case {
    let mut case = case("from above, with a peak", Claim::AbovePeak, 4, 20);
    let with = |seconds, peak| {
        let time = PeakTime::from_secs(seconds).unwrap();
        policy(1, 0, 20).with_peaks(Iops::new(peak).ok(), None, time).unwrap()
    };
    case.setup.policies[0] = with(1, 60);
    case.setup.menu = vec![with(1, 60), with(2, 25), policy(1, 0, 20), with(1, 200)];
    case
}

pub fn cases() -> Vec<Case> {
    vec![
        case("from above", Claim::Above, 2, 20),
        case("from above, slack of 1 ms", Claim::Above, 2, 1),
        case("from above in seconds", Claim::AboveInSeconds, 2, 20),
        case("from above in seconds, slack of 1 ms", Claim::AboveInSeconds, 2, 1),
        peak(),
        case("from below, with room", Claim::Below, 6, 20),
        case("from below, with room, slack of 1 ms", Claim::Below, 6, 1),
        beside_others(),
    ]
}

#[test]
fn a_limit_holds_from_above_and_below() {
    for worst in worst_of(&cases(), &product(SchedulerKind::MClock)) {
        assert!(!worst.verdict.is_broken(), "{worst}");
    }
}

#[test]
fn wrong_limits_are_found() {
    let cases = cases();
    for mistake in [
        // 250 ms of lateness, at once.
        Mistake::None,
        Mistake::DeepBucket,
        Mistake::LimitPerRequest,
        Mistake::LimitForgetsDebt,
        Mistake::CoarseLimit,
    ] {
        assert!(breaks(&cases, &textbook(mistake)), "{mistake:?}");
    }
    assert!(breaks(&cases, &product(SchedulerKind::Sfq)), "SFQ has limits");
}
