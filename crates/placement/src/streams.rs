//! Moves that part workloads which disturb each other, whatever their loads: [`Interference::Streams`].

use crate::balance::{Planned, halfway, relievable, worth_moving};
use crate::cost::{effect, rates};
use crate::interference::Demand;
use crate::map::{Map, Mark};
use crate::{DeviceModel, Interference, Permille, Why};
use headgate_units::Nanos;

/// Targets that are looked at: those with the least normalised load.
const TARGETS: usize = 8;
/// Moves of a device that are looked at more closely, the best first.
const TRIES: usize = 8;

/// The best move away from a device, while neither it nor any target has changed.
struct Found {
    gain: f64,
    unit: usize,
    target: usize,
}

/// Moves units where source and target do more together afterwards, as long as that is more than [`Balance::start`](crate::Balance::start) of what they do now; the disks that
/// moved, `left` at most.
///
/// By what is predicted for requests of all kinds at once. Each move must also save waiting (see [`effect`]): what gains is not one fast stream at the
/// cost of many others. The sum over a pool of what is saved grows with every move, here and in balancing, so nothing goes in circles. No unit moves twice.
/// O(u·8) for all units at first, and for those on changed devices after each move.
pub(crate) fn untangle(map: &mut Map, plan: &mut Vec<Planned>, left: Option<u32>) -> u32 {
    if map.pool.rules.interference == Interference::None || !map.has_models() {
        return 0;
    }
    let mut moved = 0u32;
    let mut found: Vec<Option<Option<Found>>> = map.devices.iter().map(|_| None).collect();
    loop {
        let targets = least_loaded(map);
        let left = left.map(|left| left.saturating_sub(moved));
        for (source, best) in found.iter_mut().enumerate() {
            best.get_or_insert_with(|| best_from(map, source, &targets, left));
        }
        let best = found.iter().flatten().flatten().max_by(|a, b| a.gain.total_cmp(&b.gain));
        let Some(&Found { unit, target, .. }) = best else { return moved };
        let (source, company) = (map.device_of(unit), map.units[unit].disks.len());
        let possible = (rated(map, unit, target), map.way_in(unit, target, Mark::Relieve));
        let (Some((_, more)), Ok(to), true) = (possible.0, possible.1, few_enough(company, left)) else {
            found[source] = Some(None);
            continue;
        };
        let effect = effect(map, unit, target, None);
        let (from, before) = (map.units[unit].store, map.imbalance());
        map.shift(unit, to);
        let (why, imbalance) = (Why::Throughput(more), (before, map.imbalance()));
        plan.push(Planned { unit, from, to, why, effect, company, imbalance });
        moved = moved.saturating_add(u32::try_from(company).unwrap_or(u32::MAX));
        // What was best with one of the two may be so no more.
        for (device, best) in found.iter_mut().enumerate() {
            let meets = matches!(best, Some(Some(best)) if best.target == target || best.target == source);
            if device == source || device == target || meets {
                *best = None;
            }
        }
    }
}

fn few_enough(disks: usize, left: Option<u32>) -> bool {
    left.is_none_or(|left| disks as u64 <= u64::from(left))
}

fn least_loaded(map: &Map) -> Vec<usize> {
    let mut order: Vec<usize> = (0..map.devices.len())
        .filter(|&device| map.devices[device].counts && map.devices[device].model.is_some())
        .collect();
    order.sort_by_key(|&device| (map.normalised(device), device));
    order.truncate(TARGETS);
    order
}

fn best_from(map: &Map, source: usize, targets: &[usize], left: Option<u32>) -> Option<Found> {
    if !map.devices[source].counts || relievable(map, source).is_err() {
        return None;
    }
    let movable = map.devices[source].units.iter().copied();
    let mut all: Vec<Found> = movable
        .filter(|&unit| few_enough(map.units[unit].disks.len(), left) && worth_moving(map, unit).is_ok())
        .flat_map(|unit| targets.iter().map(move |&target| (unit, target)))
        .filter(|&(_, target)| target != source)
        .filter_map(|(unit, target)| rated(map, unit, target).map(|(gain, _)| Found { gain, unit, target }))
        .collect();
    all.sort_by(|a, b| b.gain.total_cmp(&a.gain).then(a.unit.cmp(&b.unit)));
    all.into_iter().take(TRIES).find(|found| is_worth(map, found.unit, found.target))
}

/// How many requests more the two devices do together, per nanosecond and in parts of what they do now; `None` where that is too little.
fn rated(map: &Map, unit: usize, target: usize) -> Option<(f64, Permille)> {
    let slope = |model: &DeviceModel| model.slope.as_picos();
    let (before, after) = rates(map, (unit, Demand::default()), target, slope, slope);
    let more = Permille::of_ratio(after / before - 1.0);
    (more > map.pool.rules.balance.start).then_some((after - before, more))
}

/// Whether it may go there, is surely better there, and pays.
fn is_worth(map: &Map, unit: usize, target: usize) -> bool {
    if map.way_in(unit, target, Mark::Relieve).is_err() || map.barred(unit, target).is_some() {
        return false;
    }
    // Also if both models are half as far off as they admit.
    let fast = |model: &DeviceModel| halfway(model.slope.as_picos(), model.low);
    let slow = |model: &DeviceModel| halfway(model.slope.as_picos(), model.high);
    let (before, after) = rates(map, (unit, Demand::default()), target, fast, slow);
    let effect = effect(map, unit, target, None);
    let most = map.pool.rules.copy.payback;
    let pays = most == Nanos::MAX || effect.payback.is_some_and(|payback| payback <= most);
    after > before && effect.saves > 0.0 && pays
}
