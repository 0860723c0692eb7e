//! The checks can fail: schedulers that are known to be wrong miss what they must miss.

use headgate_campaign::bars::BARS;
use headgate_campaign::campaign::score;
use headgate_campaign::class::Class;
use headgate_campaign::experiments;
use headgate_campaign::judge::Score;
use headgate_campaign::setup::{Suspect, Withheld};
use headgate_qos::SchedulerKind;

fn judged(class: Class, seeds: &[u64], suspect: Suspect) -> Score {
    let mut all = Score::default();
    for &seed in seeds {
        all.merge(score(class, seed, suspect).unwrap());
    }
    all
}

#[track_caller]
fn misses(class: Class, suspect: Suspect, name: &str) {
    misses_in(class, &[0, 1, 2, 3, 4, 5], suspect, name);
}

#[track_caller]
fn misses_in(class: Class, seeds: &[u64], suspect: Suspect, name: &str) {
    let bar = BARS.iter().find(|bar| bar.name == name).unwrap();
    let good = judged(class, seeds, Suspect::default());
    assert!(bar.is_met(&good), "the premise: {class} meets {name}: {:?}", bar.value(&good));
    assert!(bar.value(&good).is_some(), "the premise: {class} measures {name}");
    let bad = judged(class, seeds, suspect);
    assert!(!bar.is_met(&bad), "{suspect:?} meets {name}: {:?}", bar.value(&bad));
}

fn kind(kind: SchedulerKind) -> Suspect {
    Suspect { kind, ..Suspect::default() }
}

fn without(withheld: Withheld) -> Suspect {
    Suspect { withheld, ..Suspect::default() }
}

#[test]
fn arrival_order_breaks_reservations_limits_shares_and_deadlines() {
    misses(Class::Constant, kind(SchedulerKind::Fifo), "reservation-5s");
    misses(Class::Constant, kind(SchedulerKind::Fifo), "reservation-1s");
    misses(Class::Constant, kind(SchedulerKind::Fifo), "limit-over");
    misses(Class::Constant, kind(SchedulerKind::Fifo), "shares");
    misses(Class::Latency, kind(SchedulerKind::Fifo), "late");
}

#[test]
fn shares_alone_break_reservations_and_limits() {
    misses(Class::Constant, kind(SchedulerKind::Sfq), "reservation-5s");
    misses(Class::Exponential, kind(SchedulerKind::Sfq), "reservation-5s");
    misses(Class::Constant, kind(SchedulerKind::Sfq), "limit-over");
    misses(Class::Latency, kind(SchedulerKind::Sfq), "late");
}

#[test]
fn without_limits_disks_get_too_much_and_with_half_of_them_too_little() {
    misses(Class::Constant, without(Withheld::Limits), "limit-over");
    misses(Class::Constant, without(Withheld::HalfOfLimits), "limit-short");
}

#[test]
fn without_limits_of_reads_and_of_writes_a_direction_gets_too_much() {
    misses(Class::Directions, without(Withheld::Directions), "limit-over");
    misses(Class::Directions, without(Withheld::SwappedDirections), "limit-over");
    misses(Class::Directions, without(Withheld::SwappedDirections), "limit-short");
    misses(Class::Directions, without(Withheld::HalfOfLimits), "limit-short");
}

#[test]
fn in_order_of_arrival_reads_and_writes_take_no_turns() {
    misses(Class::Directions, kind(SchedulerKind::Sfq), "turns");
    misses(Class::Directions, without(Withheld::Directions), "turns");
}

#[test]
fn without_targets_they_are_missed_and_a_window_of_one_costs_others_too_much() {
    misses(Class::LatencyTarget, without(Withheld::Targets), "target");
    // Set-ups of targets that nobody can keep, at which others lose little.
    misses_in(Class::LatencyTarget, &[19, 44], without(Withheld::Window), "target-loss");
}

#[test]
fn without_shares_or_reservations_what_they_promise_is_missed() {
    misses(Class::Constant, without(Withheld::Shares), "shares");
    misses(Class::Constant, without(Withheld::Reservations), "reservation-5s");
    misses(Class::Constant, without(Withheld::Reservations), "reservation-1s");
}

/// What pauses and limits excuse, they excuse nobody from.
#[test]
fn beside_pauses_and_new_disks_it_is_missed_as_well() {
    let missed = |class, suspect, name| misses_in(class, &[0, 1], suspect, name);
    for class in [Class::Stall, Class::HeavyTail, Class::LargeSizes, Class::Registration] {
        missed(class, without(Withheld::Reservations), "reservation-5s");
    }
    for class in [Class::Exponential, Class::Registration] {
        misses(class, without(Withheld::HalfOfLimits), "limit-short");
    }
    missed(Class::LongStall, kind(SchedulerKind::Fifo), "reservation-5s");
    missed(Class::Registration, kind(SchedulerKind::Fifo), "limit-over");
    missed(Class::Registration, without(Withheld::Shares), "shares");
}

#[test]
fn without_a_floor_the_unreserved_get_nothing() {
    let first = |suspect| experiments::floor(suspect).unwrap().remove(0);
    assert!(first(Suspect::default()).short() < 0.02, "the premise");
    assert!(first(without(Withheld::Floor)).short() > 0.9);
}
