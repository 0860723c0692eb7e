//! What the scheduler keeps today, and what it does not.

use headgate_campaign::bars::{BARS, KNOWN_MISSES, RATCHET_SEEDS, ratchet};
use headgate_campaign::campaign::{campaign, cores, score};
use headgate_campaign::class::Class;
use headgate_campaign::report;
use headgate_campaign::setup::Suspect;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

fn scores(
    classes: &[Class],
    seeds: u64,
    jobs: usize,
) -> std::collections::BTreeMap<Class, headgate_campaign::judge::Score> {
    let stop = AtomicBool::new(false);
    campaign(classes, 0..seeds, Suspect::default(), jobs, &stop, &|_, _| {}).unwrap()
}

/// A failure says what to do: mend what got worse, or take what is met off the list.
#[test]
fn every_bar_is_met_or_a_known_miss_that_got_no_worse() {
    let scores = scores(&Class::ALL, RATCHET_SEEDS, cores());
    let wrong: Vec<String> =
        scores.iter().flat_map(|(&class, score)| ratchet(class, score)).collect();
    let table = report::classes(&scores);
    assert!(wrong.is_empty(), "{}\n\n{table}", wrong.join("\n"));
}

/// Set-ups in which limited disks, or requests that fall due together, made all reservations lose
/// (decision 78). They are beyond the seeds of the ratchet.
#[test]
fn reservations_hold_where_a_rule_gave_them_away() {
    let bar = BARS.iter().find(|bar| bar.name == "reservation-5s").unwrap();
    let set_ups = [
        (Class::LongStall, 471),
        (Class::LongStall, 653),
        (Class::LongStall, 608),
        (Class::Swing, 956),
        (Class::Swing, 526),
    ];
    for (class, seed) in set_ups {
        let score = score(class, seed, Suspect::default()).unwrap();
        assert!(bar.is_met(&score), "{class} {seed}: {:?}", bar.value(&score));
        assert!(bar.value(&score).is_some(), "{class} {seed} is judged");
    }
}

/// Set-ups in which limits forgot what their disks waited, or let them have too much afterwards, or
/// in which limits of one direction were asked for what turns do not leave (decision 82).
#[test]
fn limits_hold_where_a_rule_forgot_them() {
    let set_ups = [
        // A limit of both that does not bind.
        (Class::Directions, 189, "limit-short"),
        (Class::Directions, 42, "limit-short"),
        // A share that is near twice the limit of one direction.
        (Class::Directions, 818, "limit-short"),
        // Many short waits for room in each second.
        (Class::OnOff, 1068, "limit-short"),
        (Class::Swing, 1127, "limit-short"),
        (Class::HeavyTail, 1074, "reservation-5s"),
        // Reservations with limits that let them make good for a stall.
        (Class::LongStall, 1151, "limit-short"),
        // A request takes 70 ms at the limit.
        (Class::LargeSizes, 497, "limit-over"),
    ];
    for (class, seed, name) in set_ups {
        let bar = BARS.iter().find(|bar| bar.name == name).unwrap();
        let score = score(class, seed, Suspect::default()).unwrap();
        assert!(bar.value(&score).is_some(), "{class} {seed} is judged");
        assert!(bar.is_met(&score), "{class} {seed}: {:?}", bar.value(&score));
    }
}

#[test]
fn the_known_misses_are_listed_once() {
    let names: BTreeSet<(Class, &str)> = KNOWN_MISSES.iter().map(|miss| (miss.0, miss.1)).collect();
    assert_eq!(names.len(), KNOWN_MISSES.len());
}

#[test]
fn a_seed_gives_the_same_figures_on_any_number_of_threads() {
    let classes = [Class::HeavyTail, Class::Hostile, Class::Latency];
    let text = |jobs| {
        let scores = scores(&classes, 3, jobs);
        report::classes(&scores) + &report::verdicts(&scores)
    };
    assert_eq!(text(1), text(3));
}
