//! Moves that part workloads which disturb each other, whatever their loads:
//! [`Interference::Streams`].

use crate::balance::{Planned, halfway, relievable, worth_moving};
use crate::cost::{effect, rates, slope};
use crate::interference::Demand;
use crate::plan_state::{Mark, PlanState};
use crate::{DeviceModel, Interference, Permille, Why};
use alloc::vec::Vec;
use headgate_units::Nanos;

/// Targets that are looked at: those with the least normalised load.
const TARGETS: usize = 8;
/// Units of a device that are looked at again when a target has changed: those that gained most
/// when all of them were looked at.
const SHORT: usize = 16;
/// All units of a device are looked at again when this part of them has come or gone.
const STALE: usize = 16;
/// Moves of a device that are looked at more closely, the best first.
const TRIES: usize = 8;

/// A move, and what it gains as long as neither device changes.
#[derive(Clone, Copy)]
struct Found {
    /// Requests per nanosecond that the two do more together, and the same in parts of what they do
    /// now.
    gain: f64,
    more: Permille,
    unit: usize,
    target: usize,
}

/// What is known of moves away from a device.
#[derive(Default)]
struct Source {
    /// Whether `best` holds.
    known: bool,
    best: Option<Found>,
    /// Those with most to gain when all were looked at, and how many have come or gone since.
    short: Vec<usize>,
    changes: usize,
    looked: bool,
}

/// Moves units where source and target do more together afterwards, as long as that is more than
/// [`Balance::start`](crate::Balance::start) of what they do now; the disks that moved, `left` at
/// most.
///
/// By what is predicted for requests of all kinds at once. Each move must also save waiting (see
/// [`effect`]): what gains is not one fast stream at the cost of many others. Σ n/√L of the pool
/// grows with every move, here and in balancing, so nothing goes in circles. No unit moves twice.
/// O(u) for all units at first and O(D) for each move; all units on a device are looked at again
/// when a sixteenth of them is other ones, or none of those that were the best is worth while.
pub(crate) fn untangle(state: &mut PlanState, plan: &mut Vec<Planned>, left: Option<u32>) -> u32 {
    if state.pool.rules.interference == Interference::None || !state.has_models() {
        return 0;
    }
    let mut moved = 0u32;
    let mut sources: Vec<Source> = state.devices.iter().map(|_| Source::default()).collect();
    loop {
        let targets = least_loaded(state);
        let left = left.map(|left| left.saturating_sub(moved));
        for (device, source) in sources.iter_mut().enumerate().filter(|(_, source)| !source.known) {
            source.best = best_from(state, device, source, &targets, left);
            source.known = true;
        }
        let best = sources.iter().filter_map(|source| source.best.as_ref());
        let best = best.max_by(|a, b| a.gain.total_cmp(&b.gain));
        let Some(&Found { unit, target, .. }) = best else { return moved };
        let (source, group_size) = (state.device_of(unit), state.units[unit].disks.len());
        let possible = (more(state, unit, target), state.way_in(unit, target, Mark::Relieve));
        let (Some(more), Ok(to), true) = (possible.0, possible.1, few_enough(group_size, left))
        else {
            sources[source].best = None;
            continue;
        };
        let effect = effect(state, unit, target, None);
        let (from, before) = (state.units[unit].store, state.imbalance());
        state.shift(unit, to);
        let (why, imbalance) = (Why::Throughput(more), (before, state.imbalance()));
        plan.push(Planned { unit, from, to, why, effect, group_size, imbalance });
        moved = moved.saturating_add(u32::try_from(group_size).unwrap_or(u32::MAX));
        // What was best with one of the two may be so no more.
        for (device, found) in sources.iter_mut().enumerate() {
            let changed = device == source || device == target;
            let meets = |best: &Found| best.target == target || best.target == source;
            if changed || found.best.as_ref().is_some_and(meets) {
                found.known = false;
            }
            if changed {
                found.changes += 1;
            }
        }
    }
}

fn few_enough(disks: usize, left: Option<u32>) -> bool {
    left.is_none_or(|left| disks as u64 <= u64::from(left))
}

fn least_loaded(state: &PlanState) -> Vec<usize> {
    let mut order: Vec<usize> = (0..state.devices.len())
        .filter(|&device| state.devices[device].counts && state.devices[device].model.is_some())
        .collect();
    order.sort_by_key(|&device| (state.normalised(device), device));
    order.truncate(TARGETS);
    order
}

fn best_from(
    state: &PlanState,
    device: usize,
    source: &mut Source,
    targets: &[usize],
    left: Option<u32>,
) -> Option<Found> {
    if !state.devices[device].counts || relievable(state, device).is_err() {
        return None;
    }
    let worth = |all: &[Found]| {
        let worth = all.iter().filter(|found| found.more > state.pool.rules.balance.start);
        worth.take(TRIES).find(|found| is_worth(state, found.unit, found.target)).copied()
    };
    if source.looked && source.changes * STALE <= state.devices[device].units.len() {
        let here = |&unit: &usize| state.device_of(unit) == device;
        let all = gains(state, device, source.short.iter().copied().filter(here), targets, left);
        if let Some(found) = worth(&all) {
            return Some(found);
        }
        if source.changes == 0 {
            return None;
        }
    }
    let all = gains(state, device, state.devices[device].units.iter().copied(), targets, left);
    (source.looked, source.changes) = (true, 0);
    source.short.clear();
    for found in &all {
        if source.short.len() == SHORT {
            break;
        }
        if !source.short.contains(&found.unit) {
            source.short.push(found.unit);
        }
    }
    worth(&all)
}

/// What each move away from a device would gain, the most first. O(u·log u).
fn gains(
    state: &PlanState,
    source: usize,
    units: impl Iterator<Item = usize>,
    targets: &[usize],
    left: Option<u32>,
) -> Vec<Found> {
    let rate = |device, more, less| state.rate_with(device, more, less, slope);
    let nothing = Demand::default();
    let here = rate(source, nothing, nothing);
    let there: Vec<(usize, f64)> = targets
        .iter()
        .filter(|&&target| target != source)
        .map(|&target| (target, rate(target, nothing, nothing)))
        .collect();
    let mut all = Vec::new();
    for unit in units.filter(|&unit| few_enough(state.units[unit].disks.len(), left)) {
        if worth_moving(state, unit).is_err() {
            continue;
        }
        let demand = state.units[unit].demand;
        let without = rate(source, nothing, demand);
        all.extend(there.iter().map(|&(target, before)| {
            let gain = without + rate(target, demand, nothing) - here - before;
            Found { gain, more: Permille::of_ratio(gain / (here + before)), unit, target }
        }));
    }
    all.sort_by(|a, b| b.gain.total_cmp(&a.gain).then(a.unit.cmp(&b.unit)));
    all
}

/// How much more the two devices do together after a move, in parts of what they do now; `None`
/// where that is too little.
fn more(state: &PlanState, unit: usize, target: usize) -> Option<Permille> {
    let (before, after) = rates(state, (unit, Demand::default()), target, slope, slope);
    let more = Permille::of_ratio(after / before - 1.0);
    (more > state.pool.rules.balance.start).then_some(more)
}

/// Whether it may go there, is surely better there, and pays.
fn is_worth(state: &PlanState, unit: usize, target: usize) -> bool {
    if state.way_in(unit, target, Mark::Relieve).is_err() || state.barred(unit, target).is_some() {
        return false;
    }
    // Also if both models are half as far off as they admit.
    let fast = |model: &DeviceModel| halfway(model.slope.as_picos(), model.low);
    let slow = |model: &DeviceModel| halfway(model.slope.as_picos(), model.high);
    let (before, after) = rates(state, (unit, Demand::default()), target, fast, slow);
    let effect = effect(state, unit, target, None);
    let most = state.pool.rules.copy.payback;
    let pays = most == Nanos::MAX || effect.payback.is_some_and(|payback| payback <= most);
    after > before && effect.saves > 0.0 && pays
}
