use super::*;
use crate::window::board::{Bound, HostReport};
use crate::window::demand::ActiveShares;
use crate::window::slots::Slots;
use proptest::prelude::*;

const PERIOD: Nanos = Nanos::from_secs(4);
const REST: u16 = 20;

/// Millionths of uniform randomness.
struct Dice(u64);

impl Dice {
    fn part(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / f64::from(1u32 << 31)
    }

    /// About a normal distribution of this deviation around 1.
    fn noise(&mut self, deviation: f64) -> f64 {
        let sum: f64 = (0..12).map(|_| self.part()).sum();
        1.0 + (sum - 6.0) * deviation
    }
}

/// Storage of which the latency grows by as much with each request: the rate at a mean latency, of
/// a highest one of 1. Nine tenths at ten times the least.
fn rate_at(latency: Nanos, least: Nanos) -> f64 {
    (1.0 - least.0 as f64 / latency.0 as f64).max(0.0)
}

fn load(work: f64, fill: Fill) -> Load {
    let work = (work * 3e9) as u64;
    Load { work, ios: work * 4 / 1_000_000, in_use: Slots::whole(60), fill }
}

fn update(load: Load, latency: Nanos) -> Update {
    let report = HostReport {
        latency,
        ios: load.ios,
        work: load.work,
        window: Slots::whole(60),
        bound: Bound::Free,
        shares: ActiveShares::ZERO,
        threshold: latency,
        period: PERIOD,
        follows: Some(latency),
    };
    Update {
        window: Slots::whole(60),
        bound: Bound::Free,
        beta: Slots::ONE,
        latency: Some(latency),
        threshold: latency,
        hosts: 1,
        differing: 0,
        held: None,
        load,
        event: None,
        report,
    }
}

fn millis(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

/// So many periods on such storage, with full windows; the changes and when they came.
fn run(
    following: &mut Following,
    periods: u32,
    least: Nanos,
    wobble: &mut dyn FnMut() -> f64,
) -> Vec<(u32, Change)> {
    let mut changes = Vec::new();
    for period in 0..periods {
        let latency = following.threshold();
        assert!(latency >= following.base(), "a trial goes below the threshold");
        assert!(latency.0 <= following.base().0 * 16 / 9 + 2, "a trial goes far above it");
        let work = rate_at(latency, least) * wobble();
        let update = update(load(work, Fill::Full), latency);
        changes.extend(following.period(&update, BoardView::Alone).map(|change| (period, change)));
    }
    changes
}

/// Periods in which a threshold could take so many steps.
fn steps(n: u32) -> u32 {
    n * (PERIODS_OF_A_TRIAL + u32::from(REST) + 9)
}

fn part(following: &Following, least: Nanos) -> f64 {
    rate_at(following.base(), least)
}

#[test]
fn it_ends_near_nine_tenths_from_either_side_and_follows_storage_that_changes() {
    let mut dice = Dice(7);
    for begin in [millis(12), millis(30), millis(110)] {
        let mut following = Following::new(millis(30), begin, REST);
        for least in [millis(3), millis(6), millis(2)] {
            let changes = run(&mut following, steps(40), least, &mut || dice.noise(0.01));
            let part = part(&following, least);
            assert!((0.85..0.95).contains(&part), "{part} at {}", following.base());
            for pair in changes.windows(2) {
                assert!(pair[1].0 - pair[0].0 >= PERIODS_OF_A_TRIAL, "{pair:?}");
            }
            for (_, Change { from, to, .. }) in changes {
                assert!(to.0 <= from.0 * 11 / 10 + 1 && to.0 >= from.0 * 19 / 20 - 1);
            }
        }
    }
}

#[test]
fn near_nine_tenths_it_stays_and_rests_longer_each_time() {
    let mut following = Following::new(millis(30), millis(30), REST);
    let mut trials = Vec::new();
    for period in 0..40 * PERIODS_OF_A_TRIAL {
        let before = following.activity();
        let latency = following.threshold();
        let update = update(load(rate_at(latency, millis(3)), Fill::Full), latency);
        assert_eq!(following.period(&update, BoardView::Alone), None);
        if before != Activity::Trying(0) && following.activity() == Activity::Trying(0) {
            trials.push(period);
        }
    }
    let gaps: Vec<u32> =
        trials.windows(2).map(|pair| pair[1] - pair[0] - PERIODS_OF_A_TRIAL).collect();
    // And until windows were full for eight periods.
    let rest = u32::from(REST);
    let gaps: Vec<u32> = gaps.iter().map(|gap| gap - 9).collect();
    assert_eq!(gaps[..5], [2 * rest, 4 * rest, 8 * rest, 16 * rest, 16 * rest]);
}

/// On for thirty periods, off for ten.
#[test]
fn a_load_with_pauses_is_learned_from() {
    let mut following = Following::new(millis(30), millis(30), REST);
    for period in 0..2 * steps(40) {
        let latency = following.threshold();
        let fill = if period % 40 < 30 { Fill::Full } else { Fill::Spare };
        let work = if fill == Fill::Full { rate_at(latency, millis(9)) } else { 0.1 };
        following.period(&update(load(work, fill), latency), BoardView::Alone);
    }
    assert!((0.85..0.95).contains(&part(&following, millis(9))), "{}", following.base());
}

#[test]
fn load_that_is_small_or_comes_in_bursts_does_not_drive_it() {
    let mut dice = Dice(3);
    let mut following = Following::new(millis(30), millis(30), REST);
    for _ in 0..steps(20) {
        let latency = following.threshold();
        let update = update(load(dice.part(), Fill::Spare), latency);
        assert_eq!(following.period(&update, BoardView::Alone), None);
        assert_eq!(following.threshold(), millis(30), "a trial that can say nothing");
    }
    // One period of sixteen has up to five times the work: nine tenths are still at 30 ms.
    let mut bursts = || {
        let burst = if dice.part() < 1.0 / 16.0 { 1.0 + 4.0 * dice.part() } else { 1.0 };
        burst * dice.noise(0.01)
    };
    run(&mut following, steps(40), millis(3), &mut bursts);
    assert!((0.85..0.95).contains(&part(&following, millis(3))), "{}", following.base());
}

/// Half of the time windows are full, and the load grows by half during each trial and falls again.
#[test]
fn load_that_grows_is_no_gain() {
    let mut following = Following::new(millis(30), millis(30), REST);
    let mut period = 0u32;
    let mut growing = || {
        period += 1;
        1.0 + 0.5 * f64::from(period % 700) / 700.0
    };
    run(&mut following, steps(40), millis(3), &mut growing);
    assert!((0.85..0.95).contains(&part(&following, millis(3))), "{}", following.base());
}

#[test]
fn where_windows_can_be_no_smaller_it_rises_to_four_times_at_most() {
    let mut following = Following::new(millis(30), millis(30), REST);
    let mut before = following.base();
    for _ in 0..steps(40) {
        let update = update(load(1.0, Fill::Pressed), millis(500));
        if let Some(change) = following.period(&update, BoardView::Alone) {
            assert_eq!(change.reason, Reason::Pressed);
            assert!(change.to > before);
            before = change.to;
        }
    }
    assert_eq!(following.base(), millis(120));
}

#[test]
fn it_does_not_fall_below_one_and_a_half_times_what_nearly_idle_storage_takes() {
    let mut following = Following::new(millis(30), millis(30), REST);
    // One request after the other.
    let idle = Load { work: 1_000, ios: 400, in_use: Slots::ONE, fill: Fill::Spare };
    following.period(&update(idle, millis(10)), BoardView::Alone);
    // More requests bring nothing: without that it would fall without end.
    for _ in 0..steps(30) {
        let update = update(load(1.0, Fill::Full), following.threshold());
        following.period(&update, BoardView::Alone);
    }
    assert_eq!(following.base(), millis(15));
    // A day later that is forgotten.
    for _ in 0..REMEMBERED + steps(60) {
        let update = update(load(1.0, Fill::Full), following.threshold());
        following.period(&update, BoardView::Alone);
    }
    assert!(following.base() < millis(14), "{}", following.base());
}

/// Hosts on one board, which all can read a period later.
struct Hosts {
    hosts: Vec<Option<Following>>,
    reports: Vec<Option<HostReport>>,
    least: Nanos,
}

impl Hosts {
    fn new(bases: &[u64], least: Nanos) -> Hosts {
        let new = |base: &u64| Some(Following::new(millis(30), millis(*base), REST));
        let hosts: Vec<_> = bases.iter().map(new).collect();
        Hosts { reports: vec![None; hosts.len()], hosts, least }
    }

    /// A period; all act by the smallest threshold on the board.
    fn period(&mut self) {
        let latency = self.reports.iter().flatten().map(|report| report.threshold).min();
        let before = self.reports.clone();
        for (index, host) in self.hosts.iter_mut().enumerate() {
            let Some(host) = host else {
                // One that died says nothing; one that is set by hand was put there by the test.
                continue;
            };
            let peers: Vec<Peer> = before
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index)
                .filter_map(|(other, report)| {
                    let rank = if other < index { Rank::Before } else { Rank::After };
                    report.map(|report| Peer { report, age: Nanos::ZERO, rank })
                })
                .collect();
            let latency = latency.unwrap_or(host.base());
            let update = update(load(rate_at(latency, self.least), Fill::Full), latency);
            let board = BoardView::Shared(&peers);
            host.period(&update, board);
            let threshold = host.adopted(board, PERIOD).unwrap_or(host.threshold());
            self.reports[index] =
                Some(HostReport { threshold, follows: Some(host.base()), ..update.report });
        }
    }

    fn bases(&self) -> Vec<Nanos> {
        self.hosts.iter().flatten().map(Following::base).collect()
    }
}

#[test]
fn hosts_agree_on_one_threshold_and_the_next_goes_on_when_the_first_is_gone() {
    let mut hosts = Hosts::new(&[40, 20, 100], millis(6));
    for _ in 0..10 {
        hosts.period();
    }
    let begun = hosts.bases();
    assert!(begun.iter().all(|base| *base == begun[0]), "{begun:?}");
    for _ in 0..steps(20) {
        hosts.period();
    }
    let [first, others @ ..] = &hosts.bases()[..] else { panic!("three hosts") };
    assert!(others.iter().all(|base| base == first));
    assert!((0.85..0.95).contains(&rate_at(*first, millis(6))), "{first}");
    // The first dies, and the storage becomes twice as fast.
    (hosts.hosts[0], hosts.reports[0], hosts.least) = (None, None, millis(3));
    for _ in 0..steps(25) {
        hosts.period();
    }
    let [next, last] = hosts.bases()[..] else { panic!("two hosts") };
    assert_eq!(next, last);
    assert!((0.85..0.95).contains(&rate_at(next, millis(3))), "{next}");
    // It comes back with what it once knew, and takes what the others have.
    hosts.hosts[0] = Some(Following::new(millis(30), millis(100), REST));
    for _ in 0..5 {
        hosts.period();
    }
    assert_eq!(hosts.bases(), [next; 3]);
    assert_eq!(hosts.hosts[2].as_ref().unwrap().activity(), Activity::Adopting);
}

#[test]
fn nobody_tries_beside_a_threshold_that_is_set_by_hand_or_without_a_board() {
    let mut hosts = Hosts::new(&[30, 30], millis(9));
    let by_hand = update(load(1.0, Fill::Full), millis(20)).report;
    hosts.reports.push(Some(HostReport { follows: None, ..by_hand }));
    for _ in 0..steps(5) {
        hosts.period();
    }
    assert_eq!(hosts.bases(), [millis(30); 2]);
    assert_eq!(hosts.hosts[0].as_ref().unwrap().activity(), Activity::Hindered);
    let mut alone = Following::new(millis(30), millis(30), REST);
    for _ in 0..steps(5) {
        let update = update(load(0.5, Fill::Full), millis(30));
        assert_eq!(alone.period(&update, BoardView::Unreachable), None);
        assert_eq!(alone.threshold(), millis(30));
    }
    assert_eq!(alone.activity(), Activity::Joining);
}

proptest! {
    #[test]
    fn nothing_that_is_reported_takes_it_out_of_its_bounds(
        given in 10_000u64..10_000_000_000,
        periods in prop::collection::vec(
            (any::<u64>(), any::<u64>(), any::<u64>(), 0u8..3, 0u8..8, any::<u64>()), 1..900),
    ) {
        let mut following = Following::new(Nanos(given), Nanos(given), 1);
        for (work, ios, latency, fill, who, of) in periods {
            let fill = [Fill::Spare, Fill::Full, Fill::Pressed][usize::from(fill)];
            let in_use = Slots::from_millionths(of);
            let update = update(Load { work, ios, in_use, fill }, Nanos(latency));
            let report = HostReport { follows: Some(Nanos(of)), ..update.report };
            let peer = [Peer { report, age: Nanos::ZERO, rank: Rank::Before }];
            let board = match who {
                0 => BoardView::Unreachable,
                1 => BoardView::Shared(&peer),
                _ => BoardView::Alone,
            };
            following.period(&update, board);
            let acts = following.adopted(board, PERIOD).unwrap_or(following.threshold());
            let most = (given * 4).min(BOUNDS.1.0);
            prop_assert!((BOUNDS.0.0..=most).contains(&following.base().0));
            prop_assert!((BOUNDS.0..=BOUNDS.1).contains(&acts), "{}", acts);
        }
    }
}
