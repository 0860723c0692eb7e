//! What requests of reserved disks take beside a neighbour that saturates the storage.

use headgate_campaign::latency::contest::{Contest, Outcome};
use headgate_campaign::latency::deadlines::Eligible;
use headgate_campaign::latency::grid::{Below, Cell, RATE, Reserved, SHARES};
use headgate_campaign::latency::order::Rule;
use headgate_campaign::setup::{Suspect, Withheld};
use headgate_qos::SchedulerKind;

const HEADGATE: Rule = gate(SchedulerKind::MClock, Withheld::Nothing);
const FIFO: Rule = gate(SchedulerKind::Fifo, Withheld::Nothing);
const UNTOLD: Rule = gate(SchedulerKind::MClock, Withheld::Reservations);

const fn gate(kind: SchedulerKind, withheld: Withheld) -> Rule {
    Rule::Gate(Suspect { kind, withheld })
}

/// Milliseconds that rates rounded to nanoseconds may sum up to in a run.
const ROUNDING: f64 = 0.01;

/// Milliseconds that one request of each other reserved disk takes. mClock goes by the tags at
/// which requests start, so as many may go first that are due later; one disk alone has nobody
/// before it.
fn start_order(reserved: Reserved) -> f64 {
    (reserved.rates().len() - 1) as f64 / RATE as f64 * 1e3
}

/// As many as property tests run cases, one unless that is set.
fn seeds() -> u64 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1)
}

/// By how much a rule completes the latest request of a run past its deadline and W/T, in
/// milliseconds; the worst over windows and shares. At most 0 by the theorem, whatever arrives.
fn past_the_bound(rule: Rule, reserved: Reserved, seed: u64) -> f64 {
    let mut worst = f64::MIN;
    for window in Cell::WINDOWS {
        let cell = Cell { below: Below::Constant, reserved, window };
        for shares in SHARES {
            let late = cell.contest(shares, 45, seed).run(rule).unwrap().late;
            worst = worst.max(late.worst() - cell.slack());
        }
    }
    worst
}

#[test]
fn no_request_is_later_than_its_deadline_and_the_window() {
    for seed in 0..seeds() {
        for reserved in Reserved::ALL {
            let past = past_the_bound(HEADGATE, reserved, seed);
            let most = start_order(reserved) + ROUNDING;
            assert!(past <= most, "{reserved:?}, seed {seed}: {past} ms");
            for eligible in [Eligible::AtOnce, Eligible::AtStart] {
                let past = past_the_bound(Rule::Deadline(eligible), reserved, seed);
                assert!(past <= ROUNDING, "the theorem, {eligible:?}, {reserved:?}: {past} ms");
            }
        }
    }
}

#[test]
fn arrival_order_and_shares_alone_are_later_than_that() {
    for rule in [FIFO, UNTOLD, gate(SchedulerKind::Sfq, Withheld::Nothing)] {
        for reserved in [Reserved::One, Reserved::Twenty] {
            let past = past_the_bound(rule, reserved, 0);
            assert!(past > 50.0, "{rule:?}, {reserved:?}: {past} ms");
        }
    }
}

/// Runs that differ by their seed only.
const SEEDS: u64 = 12;

/// Means of so many independent runs are further than this many standard errors from what they
/// estimate about once in 10,000 times (t distribution of 11 degrees of freedom, one side).
const ERRORS: f64 = 5.3;

/// Mean and standard error over the seeds.
fn mean(of: impl Fn(u64) -> f64) -> (f64, f64) {
    let found: Vec<f64> = (0..SEEDS).map(of).collect();
    let count = found.len() as f64;
    let mean = found.iter().sum::<f64>() / count;
    let squares: f64 = found.iter().map(|found| (found - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0) / count).sqrt())
}

fn p99(outcome: &Outcome) -> f64 {
    outcome.took.quantile(0.99)
}

/// By how much the p99 beside a neighbour is above that alone and W/T on storage of random service
/// times, in milliseconds: the least that chance leaves of it, over windows and shares.
fn above_the_sum(rule: Rule) -> f64 {
    let mut worst = f64::MIN;
    for window in [8, 32] {
        let cell = Cell { below: Below::Exponential, reserved: Reserved::One, window };
        for shares in [1, 1_000] {
            let contest = |seed| cell.contest(shares, 30, seed);
            // The same arrivals on both sides: what they have in common cancels out.
            let above = |contest: Contest| {
                p99(&contest.run(rule).unwrap()) - p99(&contest.alone().unwrap()) - cell.slack()
            };
            let (above, error) = mean(|seed| above(contest(seed)));
            worst = worst.max(above - ERRORS * error);
        }
    }
    worst
}

#[test]
fn on_random_service_times_the_p99_is_that_alone_and_the_window() {
    assert!(above_the_sum(HEADGATE) <= 0.0);
    for rule in [FIFO, UNTOLD] {
        let above = above_the_sum(rule);
        assert!(above > 0.0, "{rule:?}: {above} ms");
    }
}
