//! The balancing loop (section 4.3, algorithm 1), and what is asked of a move besides.

use crate::cost::{Effect, effect, rates, slope};
use crate::evacuation::call;
use crate::interference::Demand;
use crate::plan_state::{Mark, PlanState};
use crate::subset::subset;
use crate::{Balance, Interference, Load, Permille, Stay, Why};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use headgate_units::Nanos;

/// A move that has been made in the plan state.
pub(crate) struct Planned {
    pub(crate) unit: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) why: Why,
    pub(crate) effect: Effect,
    /// Disks of this decision.
    pub(crate) group_size: usize,
    pub(crate) imbalance: (f64, f64),
}

/// How balancing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was balanced from the beginning.
    Balanced,
    /// It is now: at the goal, or below where balancing starts and nothing helps further.
    Reached,
    /// No further move helps.
    Nothing,
    /// No more disks may move.
    Capped,
    /// Nothing is known of any device.
    Unmodelled,
    /// There are not two devices.
    Alone,
}

/// Items of a subset-sum: of more, those with most load per byte are looked at.
const CANDIDATES: usize = 256;
/// Of a chosen subset the smallest that make up less than this part together stay: moves that
/// change nothing.
const CRUMBS: u64 = 50;
/// Single units tried for a pair of devices.
const TRIES: usize = 8;
/// Under [`Interference::Streams`]: how much less two devices may do together for the sake of their
/// loads. On devices that are saturated whatever moves, half of all moves make them do a little
/// less, as the mix of requests becomes another on either.
const LESS: Permille = Permille(30);
/// But not if so many units move at once: streams that have a device for themselves do not keep it
/// while crowds wait elsewhere. Crowds also come first.
const CROWD: usize = 8;

/// Moves for load until the pool is balanced or nothing helps. At most `left` disks.
///
/// Every move lowers the imbalance and no unit moves twice, so it ends. A pair of devices that had
/// no move is not tried again until one of them has changed. With D devices and u units each it
/// takes O(D²·u·(log u + D)) in the worst case; usually all but the first round is saved.
pub(crate) fn balance(
    state: &mut PlanState,
    plan: &mut Vec<Planned>,
    mut left: Option<u32>,
    which: Which,
) -> Ended {
    if state.devices.iter().filter(|device| device.counts).count() < 2 {
        return Ended::Alone;
    }
    if !state.has_models() {
        return Ended::Unmodelled;
    }
    let balance = state.pool.rules.balance;
    if state.imbalance() <= balance.start.as_f64() {
        return Ended::Balanced;
    }
    let mut changes = vec![0u32; state.devices.len()];
    let mut in_vain: BTreeMap<(usize, usize, Aim), (u32, u32)> = BTreeMap::new();
    loop {
        let (imbalance, mean) = state.imbalance_with(&[]);
        if imbalance <= balance.goal.as_f64() {
            return Ended::Reached;
        }
        if left == Some(0) {
            return Ended::Capped;
        }
        let mut order: Vec<(u128, usize)> = (0..state.devices.len())
            .filter(|&device| state.devices[device].counts)
            .map(|device| (state.normalised(device), device))
            .collect();
        order.sort_by_key(|&(normalised, device)| (Reverse(normalised), device));
        let mut moved = None;
        'pairs: for &aim in which.aims() {
            for &(much, source) in &order {
                if (much as f64) <= mean {
                    break;
                }
                if relievable(state, source).is_err() {
                    continue;
                }
                for &(little, target) in order.iter().rev() {
                    if !far_apart(state, mean, much, little) {
                        break;
                    }
                    let seen = (changes[source], changes[target]);
                    if in_vain.get(&(source, target, aim)) == Some(&seen) {
                        continue;
                    }
                    let done = between(state, (source, target), aim, left, which);
                    if !done.is_empty() {
                        moved = Some((source, target, done));
                        break 'pairs;
                    }
                    in_vain.insert((source, target, aim), seen);
                }
            }
        }
        let Some((source, target, done)) = moved else {
            return if imbalance <= balance.start.as_f64() {
                Ended::Reached
            } else {
                Ended::Nothing
            };
        };
        changes[source] += 1;
        changes[target] += 1;
        if let Some(left) = &mut left {
            let disks: usize =
                done.iter().map(|planned| state.units[planned.unit].disks.len()).sum();
            *left = left.saturating_sub(u32::try_from(disks).unwrap_or(u32::MAX));
        }
        plan.extend(done);
    }
}

/// Whether disks may leave a device for its load.
pub(crate) fn relievable(state: &PlanState, device: usize) -> Result<(), Stay> {
    if state.devices[device].model.is_none() {
        return Err(Stay::Unmodelled);
    }
    if state.never_busy(device) {
        return Err(Stay::NeverBusy);
    }
    let least = state.pool.rules.balance.latency;
    match state.latency(device) {
        Some(latency) if latency < least => Err(Stay::FastEnough { latency, least }),
        _ => Ok(()),
    }
}

/// Whether two devices differ by more than the part of the mean that noise makes.
pub(crate) fn far_apart(state: &PlanState, mean: f64, much: u128, little: u128) -> bool {
    much > little && (much - little) as f64 > 2.0 * state.pool.rules.balance.start.as_f64() * mean
}

/// Whether a unit may move for load or space, whatever the target.
pub(crate) fn movable(state: &PlanState, unit: usize) -> Result<(), Stay> {
    let moving = &state.units[unit];
    if moving.pinned.is_some() {
        return Err(Stay::Pinned);
    }
    if moving.moved || state.divided.contains_key(&moving.family) {
        return Err(Stay::Suffices);
    }
    state.held(unit).map_or(Ok(()), |wait| Err(Stay::Held(wait)))
}

/// The same for load.
pub(crate) fn worth_moving(state: &PlanState, unit: usize) -> Result<(), Stay> {
    movable(state, unit)?;
    if !state.units[unit].known {
        return Err(Stay::Unknown);
    }
    if state.units[unit].load == 0 { Err(Stay::Idle) } else { Ok(()) }
}

/// Moves from one device to another, made in the plan state; none when none helps.
fn between(
    state: &mut PlanState,
    (source, target): (usize, usize),
    aim: Aim,
    left: Option<u32>,
    which: Which,
) -> Vec<Planned> {
    let Some(ideal) = ideal(state, source, target, aim) else { return Vec::new() };
    // With half of the usual load each, there is no crowd in it.
    let usual = state.devices[source].load / state.devices[source].workloads.max(1) as u64;
    if which == Which::Crowds && ideal / (CROWD as u64 / 2) < usual {
        return Vec::new();
    }
    let few_enough = |disks: usize| left.is_none_or(|left| disks as u64 <= u64::from(left));
    let mut candidates: Vec<usize> = state.devices[source]
        .units
        .iter()
        .copied()
        .filter(|&unit| few_enough(state.units[unit].disks.len()))
        .filter(|&unit| worth_moving(state, unit).is_ok() && state.barred(unit, target).is_none())
        .filter(|&unit| state.way_in(unit, target, Mark::Relieve).is_ok())
        .collect();
    if candidates.is_empty() || which == Which::Crowds && candidates.len() < CROWD {
        return Vec::new();
    }
    if state.is_learning(target) {
        return Vec::new();
    }
    if state.devices[target].model.is_some() {
        let chosen = choose(state, ideal, &mut candidates);
        let mut done = make(state, target, ideal, &chosen, left);
        if which == Which::Crowds && done.len() < CROWD {
            take_back(state, &mut done);
        }
        if !done.is_empty() {
            return done;
        }
    }
    if which == Which::Crowds {
        return Vec::new();
    }
    // Nothing fits below the ideal: then one that overshoots a little, or a single one to learn by.
    candidates.sort_by_key(|&unit| (state.units[unit].load.abs_diff(ideal), unit));
    for &unit in candidates.iter().take(TRIES) {
        let done = make(state, target, ideal, &[unit], left);
        if !done.is_empty() {
            return done;
        }
    }
    if state.devices[target].model.is_some() {
        exchange(state, (source, target), ideal, &candidates, left)
    } else {
        Vec::new()
    }
}

/// One unit for another, where disks are so large that no single move helps. O(u·log u).
fn exchange(
    state: &mut PlanState,
    (source, target): (usize, usize),
    ideal: u64,
    candidates: &[usize],
    left: Option<u32>,
) -> Vec<Planned> {
    let mut others: Vec<usize> = state.devices[target]
        .units
        .iter()
        .copied()
        .filter(|&unit| worth_moving(state, unit).is_ok() && state.barred(unit, source).is_none())
        .filter(|&unit| state.way_in(unit, source, Mark::Relieve).is_ok())
        .collect();
    others.sort_by_key(|&unit| (state.units[unit].load, unit));
    let mut pairs: Vec<(Permille, usize, usize)> = Vec::new();
    for &unit in candidates {
        let load = state.units[unit].load;
        let at =
            others.partition_point(|&other| state.units[other].load < load.saturating_sub(ideal));
        for &other in &others[at.saturating_sub(1)..others.len().min(at + 1)] {
            if state.units[other].load < load {
                pairs.push((missed(net_load(state, unit, Some(other)), ideal), unit, other));
            }
        }
    }
    pairs.sort_unstable();
    let before = state.normalised(source).abs_diff(state.normalised(target));
    // Two copies for one decision: twice the difference, twice the gain.
    let Balance { start, gain, .. } = state.pool.rules.balance;
    let most = Permille(1_000u32.saturating_sub(gain.0.saturating_mul(2)));
    if (before as f64) <= 3.0 * start.as_f64() * state.imbalance_with(&[]).1 {
        return Vec::new();
    }
    for (missed, unit, other) in pairs.into_iter().take(TRIES) {
        let group_size = state.units[unit].disks.len() + state.units[other].disks.len();
        if missed > most || left.is_some_and(|left| group_size as u64 > u64::from(left)) {
            continue;
        }
        let Ok((effect, imbalance)) = helps(state, unit, target, Some(other)) else { continue };
        if does_less_with(state, unit, target, Some(other)).is_some() {
            continue;
        }
        let ways =
            (state.way_in(unit, target, Mark::Relieve), state.way_in(other, source, Mark::Relieve));
        let (Ok(to), Ok(back)) = ways else { continue };
        // Both may take of one space, and of what may be promised of it.
        let from = state.units[unit].store;
        state.shift(unit, to);
        let both = state.fits(other, back, Mark::Relieve);
        state.unshift(unit, from);
        if both.is_err() {
            continue;
        }
        let plan = [(unit, other, to), (other, unit, back)].map(|(unit, other, to)| {
            let why = Why::Exchange(call(state, other));
            let planned = Planned {
                unit,
                from: state.units[unit].store,
                to,
                why,
                effect,
                group_size,
                imbalance,
            };
            state.shift(unit, to);
            planned
        });
        return plan.into();
    }
    Vec::new()
}

/// What is balanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Only where many units go from one device to another at once. With so many it does not matter
    /// much which they are.
    Crowds,
    All,
}

impl Which {
    fn aims(self) -> &'static [Aim] {
        match self {
            // What has moved moves no more: a crowd must not be too large.
            Which::Crowds => &[Aim::Level, Aim::Beyond],
            Which::All => &Aim::ALL,
        }
    }
}

/// How far to go between two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Aim {
    /// Until one of the two is where balance of the whole pool has it, N* = ΣS/ΣP.
    Level,
    /// The same, but the target may have as much more as noise makes: where many lack a little and
    /// one has it all.
    Beyond,
    /// Until they are equal, (S_x - ΔL)/P_x = (S_n + ΔL)/P_n: as a last resort, where those that
    /// lack load cannot take it.
    Equal,
}

impl Aim {
    /// In the order in which they are tried.
    pub(crate) const ALL: [Aim; 3] = [Aim::Level, Aim::Beyond, Aim::Equal];
}

/// ΔL: the load that should go from one device to another; `None` where one of the two is where it
/// should be but for noise.
pub(crate) fn ideal(state: &PlanState, source: usize, target: usize, aim: Aim) -> Option<u64> {
    let slope = |device: usize| state.devices[device].slope as f64;
    let (much, little) = (state.normalised(source) as f64, state.normalised(target) as f64);
    let noise = state.pool.rules.balance.start.as_f64() * state.level;
    let (excess, lack) = (much - state.level, state.level - little);
    // Casts saturate; below zero is zero.
    let until = |lack: f64| (excess / slope(source)).min(lack / slope(target)) as u64;
    match aim {
        Aim::Level => (excess.min(lack) > noise).then(|| until(lack)),
        Aim::Beyond => (excess > noise && lack + noise / 2.0 > 0.0).then(|| until(lack + noise)),
        Aim::Equal => Some(((much - little) / (slope(source) + slope(target))) as u64),
    }
}

/// What a move of so much load leaves of the ideal: too little or too much, relative to it.
pub(crate) fn missed(moved: u64, ideal: u64) -> Permille {
    Permille::of_ratio(moved.abs_diff(ideal) as f64 / ideal.max(1) as f64)
}

/// What to move, so that the loads of the two devices come near each other (pairwise step): the
/// cheapest by load per byte if that reaches three quarters of the ideal, else what the subset-sum
/// finds.
fn choose(state: &PlanState, ideal: u64, candidates: &mut [usize]) -> Vec<usize> {
    let cost = |unit: usize| {
        u128::from(state.units[unit].used.saturating_add(state.pool.rules.copy.overhead.0)).max(1)
    };
    let load = |unit: usize| u128::from(state.units[unit].load);
    candidates.sort_by(|&a, &b| {
        let (a_first, b_first) = (load(a) * cost(b), load(b) * cost(a));
        b_first.cmp(&a_first).then(a.cmp(&b))
    });
    let looked_at = &candidates[..candidates.len().min(CANDIDATES)];

    let all = looked_at.iter().map(|&unit| load(unit)).sum::<u128>();
    let (mut cheapest, mut sum) = (Vec::new(), 0);
    for &unit in looked_at {
        if sum + load(unit) <= u128::from(ideal) {
            sum += load(unit);
            cheapest.push(unit);
        }
    }
    if 4 * sum >= 3 * all.min(u128::from(ideal)) {
        return without_crumbs(state, cheapest);
    }
    let mut heaviest = looked_at.to_vec();
    heaviest.sort_by_key(|&unit| (Reverse(state.units[unit].load), unit));
    let loads: Vec<u64> = heaviest.iter().map(|&unit| state.units[unit].load).collect();
    let chosen = subset(&loads, ideal).into_iter().map(|index| heaviest[index]).collect();
    without_crumbs(state, chosen)
}

fn without_crumbs(state: &PlanState, mut chosen: Vec<usize>) -> Vec<usize> {
    chosen.sort_by_key(|&unit| (Reverse(state.units[unit].load), unit));
    let mut crumbs =
        chosen.iter().map(|&unit| Load(state.units[unit].load)).sum::<Load>().0 / CRUMBS;
    while let Some(&smallest) = chosen.last() {
        let load = state.units[smallest].load;
        if load > crumbs {
            break;
        }
        crumbs -= load;
        chosen.pop();
    }
    chosen
}

/// What a move takes from the source and brings to the target.
fn net_load(state: &PlanState, unit: usize, back: Option<usize>) -> u64 {
    state.units[unit].load.saturating_sub(back.map_or(0, |back| state.units[back].load))
}

/// Makes those of the moves that help, and none if together they do not help enough.
fn make(
    state: &mut PlanState,
    target: usize,
    ideal: u64,
    chosen: &[usize],
    mut left: Option<u32>,
) -> Vec<Planned> {
    let mut done: Vec<Planned> = Vec::new();
    let mut moved = 0u64;
    let Some(source) = chosen.first().map(|&unit| state.device_of(unit)) else { return done };
    let rate = rate_of_both(state, source, target);
    for &unit in chosen {
        let group_size = state.units[unit].disks.len();
        if left.is_some_and(|left| group_size as u64 > u64::from(left)) {
            continue;
        }
        let Ok(to) = state.way_in(unit, target, Mark::Relieve) else { continue };
        let Ok((effect, imbalance)) = helps(state, unit, target, None) else { continue };
        left = left.map(|left| left - group_size as u32);
        moved = moved.saturating_add(state.units[unit].load);
        let from = state.units[unit].store;
        state.shift(unit, to);
        done.push(Planned { unit, from, to, why: Why::Load, effect, group_size, imbalance });
    }
    let less = does_less(state, (rate, rate_of_both(state, source, target))).is_some();
    if less && done.len() < CROWD || missed(moved, ideal) > most_missed(state) {
        take_back(state, &mut done);
    }
    done
}

fn take_back(state: &mut PlanState, done: &mut Vec<Planned>) {
    for planned in done.drain(..).rev() {
        state.unshift(planned.unit, planned.from);
    }
}

/// By how much a move may miss the ideal.
pub(crate) fn most_missed(state: &PlanState) -> Permille {
    Permille(1_000u32.saturating_sub(state.pool.rules.balance.gain.0))
}

/// Whether one unit's move to a device is worth while, but for how much of the difference it
/// closes, and for what both devices do together ([`does_less`]).
pub(crate) fn helps(
    state: &PlanState,
    unit: usize,
    target: usize,
    back: Option<usize>,
) -> Result<(Effect, (f64, f64)), Stay> {
    let source = state.device_of(unit);
    let datastore = || state.pool.datastores[state.devices[target].stores[0]].name.clone();
    let load = net_load(state, unit, back);
    if !is_sure(state, source, target, load) {
        return Err(Stay::Unsure { datastore: datastore() });
    }
    let loads = [
        (source, state.devices[source].load.saturating_sub(load)),
        (target, state.devices[target].load.saturating_add(load)),
    ];
    let (before, after) = (state.imbalance(), state.imbalance_with(&loads).0);
    // The last digits of a float are no reason to move a disk.
    if after >= before - 1e-9 {
        let (before, after) = (Permille::of_ratio(before), Permille::of_ratio(after));
        return Err(Stay::Worse { datastore: datastore(), before, after });
    }
    let effect = effect(state, unit, target, back);
    let most = state.pool.rules.copy.payback;
    if most < Nanos::MAX || state.pool.rules.interference == Interference::Streams {
        match effect.payback {
            None if effect.saves <= 0.0 || most < Nanos::MAX => {
                return Err(Stay::NoBenefit { datastore: datastore() });
            }
            Some(payback) if payback > most => {
                return Err(Stay::Costly { datastore: datastore(), payback, most });
            }
            _ => {}
        }
    }
    Ok((effect, (before, after)))
}

/// By how much two devices do too much less together after moves for load, where that is asked.
fn does_less(state: &PlanState, (before, after): (f64, f64)) -> Option<Permille> {
    let less = after < before * (1.0 - LESS.as_f64());
    let asked = state.pool.rules.interference == Interference::Streams;
    (asked && less).then(|| Permille::of_ratio(1.0 - after / before))
}

/// [`does_less`] of one unit's move, or of an exchange.
pub(crate) fn does_less_with(
    state: &PlanState,
    unit: usize,
    target: usize,
    back: Option<usize>,
) -> Option<Permille> {
    let back = back.map_or_else(Demand::default, |back| state.units[back].demand);
    does_less(state, rates(state, (unit, back), target, slope, slope))
}

/// Requests per nanosecond that two devices do together.
fn rate_of_both(state: &PlanState, one: usize, other: usize) -> f64 {
    let rate = |device| state.rate_with(device, Demand::default(), Demand::default(), slope);
    rate(one) + rate(other)
}

/// Half of the way from a slope to one of its bounds.
pub(crate) fn halfway(slope: u64, bound: u64) -> u64 {
    slope.midpoint(bound)
}

/// Whether the source is still the busier one after the move, or the difference still smaller, when
/// its device is better than the model says and the target's is worse, each by half of what the
/// model leaves open.
fn is_sure(state: &PlanState, source: usize, target: usize, load: u64) -> bool {
    let load = u128::from(load);
    let (x, n) = (&state.devices[source], &state.devices[target]);
    let fast = u128::from(x.model.map_or(x.slope, |model| halfway(x.slope, model.low)));
    let slow =
        u128::from(n.model.or(n.assumed).map_or(n.slope, |model| halfway(n.slope, model.high)));
    let (much, little) = (u128::from(x.load) * fast, u128::from(n.load) * slow);
    let after = much.saturating_sub(load * fast).abs_diff(little.saturating_add(load * slow));
    much > little && after < much - little
}
