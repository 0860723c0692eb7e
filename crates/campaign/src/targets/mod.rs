//! Whether latency targets are kept that could be, and what those cost others that could not.
//!
//! A target promises something to a disk that asks for no more than its reservation
//! (`docs/operator.md`). Whether it could be kept is found out without the scheduler, by an
//! [ideal] order behind windows of many sizes:
//!
//! - *feasible*: behind one of the windows requests in the order of their reservations stay within
//!   [`FEASIBLE`] of the target, for all such disks at once;
//! - *infeasible*: they take [`INFEASIBLE`] times the target or more behind each window, even if
//!   the disk's requests always go first;
//! - what lies between is not judged.

pub mod draw;
pub mod ideal;

use crate::judge::{Measure, Sample};
use crate::record::Record;
use crate::run::run;
use crate::setup::{Load, Setup, Suspect, Withheld};
use crate::tally::Tally;
use anyhow::Result;
use headgate_units::LatencyTarget;
use ideal::Order;

/// The most that an ideal order may take of a target that has to be kept.
pub const FEASIBLE: f64 = 0.7;

/// The least that it takes of a target that nobody can keep.
pub const INFEASIBLE: f64 = 1.2;

/// Windows that are tried.
const WINDOWS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// Virtual time of an ideal run, in seconds.
const IDEAL: u64 = 65;

/// Whether a target could be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feasibility {
    /// With some margin.
    Feasible,
    /// By no order, whatever the window.
    Infeasible,
    /// It is near to what is possible.
    Unclear,
}

/// A target, and what an ideal order gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aim {
    /// Whose.
    pub disk: usize,
    /// What is aimed at.
    pub target: LatencyTarget,
    /// The least part of the target that the disk's requests take if they always go first.
    pub first: f64,
    /// The least that they take in the order of reservations.
    pub due: f64,
    /// What follows.
    pub feasibility: Feasibility,
}

/// The targets of a set-up.
pub fn aims(setup: &Setup) -> Vec<Aim> {
    let Some(phase) = setup.phases.first() else { return Vec::new() };
    let windows = || WINDOWS.into_iter().filter(|&window| window <= setup.window);
    let least = |parts: &mut dyn Iterator<Item = f64>| parts.fold(f64::INFINITY, f64::min);
    let disks = phase.disks.iter().enumerate();
    let mut aims: Vec<Aim> = disks
        .filter_map(|(disk, (policy, _))| {
            let target = policy.latency_target()?;
            let first = least(&mut windows().filter_map(|window| {
                let took = ideal::run(setup, window, Order::First(disk), IDEAL);
                part_of(target, took.get(disk))
            }));
            let feasibility = match first >= INFEASIBLE {
                true => Feasibility::Infeasible,
                false => Feasibility::Unclear,
            };
            Some(Aim { disk, target, first, due: f64::INFINITY, feasibility })
        })
        .collect();
    for window in windows() {
        let took = ideal::run(setup, window, Order::Due, IDEAL);
        let part = |aim: &Aim| part_of(aim.target, took.get(aim.disk));
        let open = |aim: &&Aim| aim.feasibility != Feasibility::Infeasible;
        let keeps_all =
            aims.iter().filter(open).all(|aim| part(aim).is_some_and(|part| part <= FEASIBLE));
        for aim in &mut aims {
            aim.due = aim.due.min(part(aim).unwrap_or(f64::INFINITY));
            if keeps_all && open(&&*aim) {
                aim.feasibility = Feasibility::Feasible;
            }
        }
    }
    aims
}

/// The latency at the target's quantile, in parts of the target; `None` where nothing was measured.
fn part_of(target: LatencyTarget, took: Option<&Tally>) -> Option<f64> {
    let latency = took?.quantile(f64::from(target.quantile()) / 1_000.0)?;
    Some(latency / target.latency().as_secs_f64())
}

/// The latency that a run reached at the quantile of a target once it had settled, in parts of the
/// target.
pub fn reached(setup: &Setup, record: &Record, aim: &Aim) -> Option<f64> {
    let mut took = Tally::default();
    let settled = setup.settle as f64;
    let all = record.took.get(aim.disk).into_iter().flatten();
    all.filter(|(at, _)| *at >= settled).for_each(|&(_, time)| took.add(time));
    part_of(aim.target, Some(&took))
}

/// Compares a run of a set-up with targets with what could be kept.
///
/// # Errors
/// Those of [`run`].
pub fn judge(
    setup: &Setup,
    record: &Record,
    suspect: Suspect,
    found: &mut dyn FnMut(Sample),
) -> Result<()> {
    let aims = aims(setup);
    for aim in aims.iter().filter(|aim| aim.feasibility == Feasibility::Feasible) {
        let Some(part) = reached(setup, record, aim) else { continue };
        let due = aim.target.latency().as_secs_f64();
        let (measure, disk, from) = (Measure::Target, aim.disk, setup.settle);
        let error = (part - 1.0).max(0.0);
        found(Sample { measure, disk, from, got: part * due, due, error });
    }
    reservations(setup, record, found);
    if aims.iter().all(|aim| aim.feasibility == Feasibility::Infeasible) {
        let without = run(setup, Suspect { withheld: Withheld::Targets, ..suspect })?;
        loss(setup, record, &without, found);
    }
    Ok(())
}

/// Which disks always ask, in the first phase.
fn saturating(setup: &Setup) -> impl Iterator<Item = usize> {
    let disks = setup.phases.first().into_iter().flat_map(|phase| phase.disks.iter().enumerate());
    disks.filter(|(_, (_, load))| matches!(load, Load::Queued(_))).map(|(disk, _)| disk)
}

/// Reservations of disks that always ask, as promised and not as the storage delivered: a window
/// that is too narrow makes it deliver less.
fn reservations(setup: &Setup, record: &Record, found: &mut dyn FnMut(Sample)) {
    const SPAN: usize = 5;
    let Some(phase) = setup.phases.first() else { return };
    for disk in saturating(setup) {
        let Some((policy, _)) = phase.disks.get(disk) else { continue };
        let Some(rate) = policy.reservation() else { continue };
        for from in setup.settle..=setup.seconds().saturating_sub(SPAN) {
            let got = record.rate(disk, from, from + SPAN) * SPAN as f64;
            let due = rate.get() as f64 * SPAN as f64;
            let wait = rate.get() as f64 / phase.rate.get() as f64;
            let error = (due - got - 1.0 - wait).max(0.0) / due;
            found(Sample { measure: Measure::Reservation5, disk, from, got, due, error });
        }
    }
}

/// What disks that always ask lose over the whole run beside targets that nobody can keep, beyond
/// what the disks with the targets get more.
fn loss(setup: &Setup, record: &Record, without: &Record, found: &mut dyn FnMut(Sample)) {
    let seconds = setup.seconds();
    let sum = |record: &Record, disks: &[usize]| {
        disks.iter().map(|&disk| record.rate(disk, 0, seconds)).sum::<f64>()
    };
    let others: Vec<usize> = saturating(setup).collect();
    let aimed: Vec<usize> = (0..setup.disks.len()).filter(|disk| !others.contains(disk)).collect();
    let more = (sum(record, &aimed) - sum(without, &aimed)).max(0.0);
    let (got, due) = (sum(record, &others), sum(without, &others) - more);
    let error = (due - got).max(0.0) / due.max(f64::MIN_POSITIVE);
    let disk = others.first().copied().unwrap_or(0);
    found(Sample { measure: Measure::TargetLoss, disk, from: 0, got, due, error });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;
    use crate::draw::draw;
    use crate::setup::{Phase, policy};
    use headgate_devices::ServiceTime;
    use headgate_units::{Iops, Nanos};

    /// Storage of 1,000 per second and a window of 32. A disk that sends 83 per second at random
    /// times and has 300 reserved, beside one that saturates: the example of decision 52.
    fn example(target: &str, latency: Nanos, clients: u32) -> Setup {
        let aimed = policy(300, 0, 100).with_latency_target(target.parse().ok()).unwrap();
        let disks = vec![
            (aimed, Load::Thinking { clients, rate: 83.0 }),
            (policy(0, 0, 100), Load::Queued(64)),
        ];
        let service = ServiceTime::Constant;
        let rate = Iops::new(1_000).unwrap();
        let phases = vec![Phase { seconds: 60, rate, disks }];
        let drawn = draw(Class::LatencyTarget, 0);
        let disks = vec![drawn.disks[0]; 2];
        Setup { window: 32, latency, service, disks, phases, ..drawn }
    }

    fn feasible(target: &str, latency: Nanos) -> Feasibility {
        aims(&example(target, latency, 16))[0].feasibility
    }

    #[test]
    fn a_target_is_feasible_where_some_window_keeps_it_in_the_order_of_reservations() {
        assert_eq!(feasible("p99=10ms", Nanos::ZERO), Feasibility::Feasible);
        // The storage takes 20 ms for one request alone.
        assert_eq!(feasible("p99=10ms", Nanos::from_millis(20)), Feasibility::Infeasible);
        // One request of the other disk is in front of most, whatever the order.
        assert_eq!(feasible("p99=1ms", Nanos::ZERO), Feasibility::Infeasible);
        // Two that come at once go 3.3 ms apart by the reservation; at once if they go first.
        assert_eq!(feasible("p95=3ms", Nanos::ZERO), Feasibility::Unclear);
    }

    #[test]
    fn a_window_that_gives_less_than_is_reserved_keeps_no_target() {
        let mut setup = example("p95=20ms", Nanos::from_millis(6), 16);
        assert_eq!(aims(&setup)[0].feasibility, Feasibility::Feasible);
        // 500 per second in all: three requests or more in flight.
        setup.phases[0].disks[1].0 = policy(450, 0, 100);
        let took = |window| {
            part_of(aims(&setup)[0].target, ideal::run(&setup, window, Order::Due, IDEAL).first())
        };
        assert!(took(1).unwrap() > 10.0, "{:?}", took(1));
        assert!(took(4).unwrap() < 1.0, "{:?}", took(4));
    }

    fn worst(setup: &Setup, window: u32, order: Order) -> f64 {
        ideal::run(setup, window, order, IDEAL)[0].worst().unwrap()
    }

    #[test]
    fn behind_a_window_of_one_a_request_waits_for_one_of_others() {
        let setup = example("p99=10ms", Nanos::ZERO, 1);
        for (window, most) in [(1, 0.002), (8, 0.009)] {
            for order in [Order::First(0), Order::Due] {
                let worst = worst(&setup, window, order);
                // A disk with one client that asks again at once waits for its reservation.
                let wait = if order == Order::Due { 1.0 / 300.0 } else { 0.0 };
                assert!(worst <= most + wait, "{order:?} behind {window}: {worst}");
                assert!(worst > most - 0.001, "{order:?} behind {window}: {worst}");
            }
        }
    }

    #[test]
    fn a_reservation_is_due_whatever_the_storage_delivers() {
        let mut setup = example("p99=10ms", Nanos::ZERO, 1);
        setup.phases[0].disks[1].0 = policy(400, 0, 100);
        setup.settle = 0;
        let worst = |cost: f64| {
            let disks =
                [20.0, cost].map(|cost| crate::record::DiskSecond { cost, ..Default::default() });
            let second = crate::record::Second { disks: disks.to_vec(), ..Default::default() };
            let record = Record { seconds: vec![second; 60], ..Record::default() };
            let mut found = Vec::new();
            reservations(&setup, &record, &mut |sample| found.push(sample));
            assert_eq!(found.len(), 56, "a span begins in each second but the last four");
            found.iter().map(|sample| sample.error).fold(0.0, f64::max)
        };
        assert_eq!(worst(400.0), 0.0);
        assert!((worst(200.0) - 0.5).abs() < 0.001, "{}", worst(200.0));
    }

    #[test]
    fn what_targets_cost_is_counted_beyond_what_their_disks_get_more() {
        let setup = example("p99=10ms", Nanos::ZERO, 1);
        let lost = |got: [f64; 2]| {
            let second = |costs: [f64; 2]| crate::record::Second {
                disks: costs
                    .map(|cost| crate::record::DiskSecond { cost, ..Default::default() })
                    .to_vec(),
                ..Default::default()
            };
            let record = |costs| Record { seconds: vec![second(costs); 120], ..Record::default() };
            let mut found = Vec::new();
            loss(&setup, &record(got), &record([50.0, 950.0]), &mut |sample| found.push(sample));
            (found[0].error * 1_000.0).round() / 1_000.0
        };
        assert_eq!(lost([50.0, 950.0]), 0.0);
        assert_eq!(lost([80.0, 920.0]), 0.0);
        assert_eq!(lost([80.0, 460.0]), 0.5);
        assert_eq!(lost([50.0, 475.0]), 0.5);
        assert_eq!(lost([20.0, 950.0]), 0.0);
    }
}
