//! Theorem 1: disks with requests queued, without reservation and limit, are served by shares.

use crate::harness::*;
use headgate_qos::{Config, CostModel, Policy, SchedulerKind};
use headgate_units::Bytes;

/// Where service is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    WhenSent,
    WhenDone,
}

/// What a disk had before the interval.
#[derive(Clone, Copy, PartialEq, Eq)]
enum History {
    /// Neither reservation nor limit, ever.
    Plain,
    /// Any policy.
    Any,
}

/// Watches disks 0 and 1.
struct Fairness {
    counted: Counted,
    history: History,
    /// Normalised service of disk 0 less that of disk 1 since both were backlogged, times both
    /// weights; its least and its greatest value since.
    period: Option<(i128, i128, i128)>,
    worst: i128,
    bound: i128,
}

/// The case in which disks had reservations and limits before.
const AFTER_ANY: &str = "after any policy";

/// mClock's lead and the credit of a disk that was held back, in reference IOs.
const LEAD: u64 = 16;

impl Fairness {
    fn new(counted: Counted, history: History) -> Fairness {
        Fairness { counted, history, period: None, worst: 0, bound: 0 }
    }

    fn is_plain(policy: &Policy) -> bool {
        policy.reservation().is_none() && policy.limit().is_none()
    }

    /// `c_i/w_i + c_j/w_j + max(σ_i/w_i, σ_j/w_j)`, times both weights. See `docs/theorems.md`.
    fn allowed(&self, view: &View) -> i128 {
        let weight = |i: usize| i128::from(view.policies[i].shares().get());
        let cost = |i: usize| i128::from(view.largest[i]);
        let credit = |i: usize| view.policies[i].burst().get();
        let ahead = |i: usize| match self.history {
            History::Plain => cost(i),
            History::Any => i128::from(LEAD).max(4 * cost(i)),
        };
        let behind = |i: usize| match self.history {
            History::Plain => i128::from(credit(i)),
            History::Any => i128::from(LEAD.max(credit(i))),
        };
        let one = |i: usize, j: usize| ahead(i) * weight(j) + (behind(j) + cost(j)) * weight(i);
        let sent = one(0, 1).max(one(1, 0));
        let in_flight = i128::from(view.window) * (cost(0) * weight(1) + cost(1) * weight(0));
        match self.counted {
            Counted::WhenSent => sent,
            Counted::WhenDone => sent + in_flight,
        }
    }

    fn count(&mut self, disk: usize, cost: u64, view: &View) {
        let Some((sum, least, most)) = &mut self.period else { return };
        let weight = |i: usize| i128::from(view.policies[i].shares().get());
        match disk {
            0 => *sum += i128::from(cost) * weight(1),
            1 => *sum -= i128::from(cost) * weight(0),
            _ => return,
        }
        (*least, *most) = ((*least).min(*sum), (*most).max(*sum));
        self.worst = self.worst.max(*most - *least);
    }
}

impl Observer for Fairness {
    fn see(&mut self, event: Event, view: &View) {
        match (event, self.counted) {
            (Event::Sent { disk, cost }, Counted::WhenSent)
            | (Event::Done { disk, cost, .. }, Counted::WhenDone) => self.count(disk, cost, view),
            (Event::Policy { disk: 0 | 1, .. }, _) => self.period = None,
            _ => {}
        }
        let both = (0..2).all(|i| view.queued[i] > 0 && Fairness::is_plain(&view.policies[i]));
        match (both, self.period) {
            (true, None) => self.period = Some((0, 0, 0)),
            (false, _) => self.period = None,
            _ => {}
        }
        self.bound = self.allowed(view);
    }

    fn verdict(&self) -> Verdict {
        Verdict { found: self.worst, bound: self.bound.max(1) }
    }
}

fn setup(window: u32, order: Order, policies: Vec<Policy>) -> Setup {
    let cost_model = CostModel::Chunks { reference: Bytes::from_kib(4) };
    let config = Config { cost_model, ..Config::default() };
    let menu = vec![
        policies[0],
        policy(policies[0].shares().get(), 400, 0),
        policy(policies[0].shares().get(), 0, 20),
        policy(7, 200, 0),
        policy(12, 0, 30),
        policy(11, 0, 0),
    ];
    let (pace, stalls, shape) = (MS, SECOND, None);
    Setup { config, window, pace, order, stalls, shape, policies, menu }
}

fn case(name: &'static str, setup: Setup, counted: Counted, history: History) -> Case {
    let keep = |disk, outstanding, cost| Action::Keep { disk, outstanding, cost };
    let mut alphabet = vec![
        keep(0, 12, 1),
        keep(0, 12, 9),
        keep(1, 12, 1),
        keep(1, 12, 9),
        Action::Wait(23 * MS),
        Action::Withdraw { disk: 0 },
    ];
    let mut policies = vec![];
    if setup.policies.len() > 2 {
        alphabet[3] = keep(2, 8, 9);
        policies = vec![(2, 0), (2, 1), (2, 2), (2, 3), (2, 4)];
    }
    if history == History::Any {
        alphabet[1] = Action::Policy { disk: 0, entry: 1 };
        alphabet[2] = Action::Policy { disk: 0, entry: 0 };
        policies.extend([(0, 0), (0, 1), (0, 2), (0, 5)]);
    }
    let space = Space {
        disks: setup.policies.len(),
        counts: vec![1, 2, 7],
        costs: vec![1, 2, 9, 16],
        depths: vec![0, 1, 2, 12],
        waits: vec![MS, 3 * MS, 8 * MS, 40 * MS, 170 * MS],
        policies,
        paces: vec![MS / 2, MS, 4 * MS],
        stalls: vec![10 * MS],
    };
    Case {
        name,
        setup,
        start: vec![],
        alphabet,
        depth: 4,
        space,
        length: 12,
        steps: 400,
        tail: 100 * MS,
        observer: Box::new(move |_| Box::new(Fairness::new(counted, history))),
    }
}

fn cases() -> Vec<Case> {
    let two = || vec![policy(3, 0, 0), policy(5, 0, 0)];
    let four = || [two(), vec![policy(1, 300, 0), policy(9, 0, 50)]].concat();
    let uneven = || vec![policy(1, 0, 0), policy(1_000, 0, 0), policy(30, 400, 0)];
    let credit = |w| policy(w, 0, 0).with_burst(headgate_qos::Burst::default());
    use Counted::*;
    use History::*;
    use Order::*;
    vec![
        case("two disks", setup(1, FirstIn, two()), WhenSent, Plain),
        case(
            "two disks with idle credit",
            setup(1, FirstIn, vec![credit(3), credit(1)]),
            WhenSent,
            Plain,
        ),
        case("beside a reservation and a limit", setup(4, FirstIn, four()), WhenSent, Plain),
        case("shares of 1 and 1,000", setup(2, FirstIn, uneven()), WhenSent, Plain),
        case("counted when done", setup(4, FirstIn, two()), WhenDone, Plain),
        case("counted when done, last in first", setup(4, LastIn, two()), WhenDone, Plain),
        case(AFTER_ANY, setup(4, FirstIn, four()), WhenSent, Any),
    ]
}

#[test]
fn disks_with_requests_queued_are_served_by_shares() {
    for worst in worst_of(&cases(), &product(SchedulerKind::MClock)) {
        assert!(!worst.verdict.is_broken(), "{worst}");
    }
}

#[test]
fn the_textbook_is_fair_too_and_its_mistakes_are_found() {
    let all = cases();
    // What a policy leaves behind is bounded by rules of the product: the textbook has none.
    let plain: Vec<Case> = cases().into_iter().filter(|case| case.name != AFTER_ANY).collect();
    for worst in worst_of(&plain, &textbook(Mistake::None)) {
        assert!(!worst.verdict.is_broken(), "{worst}");
    }
    for mistake in [
        Mistake::WallClock,
        Mistake::CreditForSleep,
        Mistake::SharesPerRequest,
        Mistake::TurnsOfEight,
        Mistake::ReturnsLast,
    ] {
        assert!(breaks(&all, &textbook(mistake)), "{mistake:?}");
    }
    assert!(breaks(&all, &product(SchedulerKind::Fifo)), "FIFO is fair");
}
