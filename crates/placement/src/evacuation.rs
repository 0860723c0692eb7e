//! Moves that are not for load: what rules and maintenance demand, and what frees space.

use crate::balance::{Planned, movable};
use crate::cost::effect;
use crate::plan_state::{Mark, PlanState};
use crate::space::{excess, fullness};
use crate::{Name, NotThere, State, Why};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// A unit that should leave and cannot.
pub(crate) struct Stuck {
    pub(crate) why: Why,
    /// Where it would go first, and why it cannot; `None` when there is nowhere.
    pub(crate) because: Option<(usize, NotThere)>,
}

/// Makes the moves that rules and maintenance demand. What cannot be done is told by unit.
///
/// The largest load goes first and to the device that has least to do afterwards. If that leaves
/// disks behind for want of space, it is tried anew with the largest disks first, and the better of
/// the two is taken.
pub(crate) fn repair(state: &mut PlanState, plan: &mut Vec<Planned>) -> BTreeMap<usize, Stuck> {
    let mut stuck = gather(state, plan);
    let begun = plan.len();
    let by_load = repair_in(state, plan, |state, unit| state.units[unit].load);
    let for_space = |stuck: &BTreeMap<usize, Stuck>| {
        stuck.values().any(|stuck| matches!(stuck.because, Some((_, NotThere::Space { .. }))))
    };
    if !for_space(&by_load) {
        stuck.extend(by_load);
        return stuck;
    }
    take_back(state, plan, begun);
    let by_size = repair_in(state, plan, |state, unit| state.units[unit].used);
    if by_size.len() < by_load.len() {
        stuck.extend(by_size);
        return stuck;
    }
    take_back(state, plan, begun);
    stuck.extend(repair_in(state, plan, |state, unit| state.units[unit].load));
    stuck
}

fn take_back(state: &mut PlanState, plan: &mut Vec<Planned>, to: usize) {
    for planned in plan.drain(to..).rev() {
        state.unshift(planned.unit, planned.from);
    }
}

/// Why a unit must not stay where it is.
fn must_leave(state: &PlanState, unit: usize) -> Option<Why> {
    let store = &state.pool.datastores[state.units[unit].store];
    if store.state == State::Maintenance {
        return Some(Why::Maintenance);
    }
    if let Some(class) =
        state.units[unit].class.as_ref().filter(|&class| store.class.as_ref() != Some(class))
    {
        return Some(Why::Class(class.clone()));
    }
    state.too_close(unit).map(|rule| Why::AntiAffinity {
        rule: state.pool.rules.anti_affinity[rule].name.clone(),
        from: state.member_on(rule, state.device_of(unit), Some(unit)),
    })
}

fn repair_in(
    state: &mut PlanState,
    plan: &mut Vec<Planned>,
    first: impl Fn(&PlanState, usize) -> u64,
) -> BTreeMap<usize, Stuck> {
    let mut stuck = BTreeMap::new();
    let mut due: Vec<usize> = (0..state.units.len())
        .filter(|&unit| !state.units[unit].moved && must_leave(state, unit).is_some())
        .collect();
    due.sort_by_key(|&unit| (Reverse(first(state, unit)), unit));
    for unit in due {
        // Another may have left in the meantime.
        let Some(why) = must_leave(state, unit) else { continue };
        if state.units[unit].pinned.is_some()
            || state.divided.contains_key(&state.units[unit].family)
        {
            continue;
        }
        match best_for(state, unit) {
            Ok(to) => record(state, plan, unit, to, why),
            Err(because) => _ = stuck.insert(unit, Stuck { why, because }),
        }
    }
    stuck
}

/// Brings families together that are on several datastores.
fn gather(state: &mut PlanState, plan: &mut Vec<Planned>) -> BTreeMap<usize, Stuck> {
    let mut stuck = BTreeMap::new();
    for (_, parts) in state.divided.clone() {
        // Where a pinned disk is, or else most of the bytes: that costs least.
        let main = parts
            .iter()
            .copied()
            .max_by_key(|&part| {
                let unit = &state.units[part];
                (unit.pinned.is_some(), must_leave(state, part).is_none(), unit.used, Reverse(part))
            })
            .unwrap_or(parts[0]);
        let mut order: Vec<usize> = vec![state.units[main].store];
        if state.units[main].pinned.is_none() {
            order.extend(by_load_after(state, main));
        }
        let with = call(state, main);
        let why = Why::Affinity(with.clone());
        let mut refused = None;
        for to in order {
            match move_all(state, plan, &parts, to, &why) {
                Ok(()) => {
                    refused = None;
                    break;
                }
                Err(because) => _ = refused.get_or_insert((to, because)),
            }
        }
        if let Some(because) = refused {
            for &part in &parts {
                let because = Some(because.clone());
                stuck.insert(part, Stuck { why: why.clone(), because });
            }
        }
    }
    stuck
}

/// How a unit is called.
pub(crate) fn call(state: &PlanState, unit: usize) -> Name {
    let first = &state.pool.disks[state.units[unit].disks[0]].name;
    match state.units[unit].disks.len() - 1 {
        0 => Name::from(format!("'{first}'")),
        others => Name::from(format!("'{first}' and {others} more")),
    }
}

fn move_all(
    state: &mut PlanState,
    plan: &mut Vec<Planned>,
    parts: &[usize],
    to: usize,
    why: &Why,
) -> Result<(), NotThere> {
    let begun = plan.len();
    for &part in parts {
        if state.units[part].store == to {
            // What is there stays only if it may.
            let spec = &state.pool.datastores[to];
            let refused = match spec.state {
                State::Maintenance => Some(NotThere::Maintenance),
                _ => state.units[part]
                    .class
                    .as_ref()
                    .filter(|&class| spec.class.as_ref() != Some(class))
                    .cloned()
                    .map(NotThere::Class),
            };
            if let Some(why) = refused {
                take_back(state, plan, begun);
                return Err(why);
            }
            continue;
        }
        let possible = match state.units[part].pinned {
            Some(disk) => Err(NotThere::Affinity {
                with: state.pool.disks[disk].name.clone(),
                on: state.pool.datastores[state.units[part].store].name.clone(),
            }),
            None => state.fits(part, to, Mark::Last),
        };
        if let Err(because) = possible {
            take_back(state, plan, begun);
            return Err(because);
        }
        record(state, plan, part, to, why.clone());
    }
    Ok(())
}

fn record(state: &mut PlanState, plan: &mut Vec<Planned>, unit: usize, to: usize, why: Why) {
    let effect = effect(state, unit, state.stores[to].device, None);
    let group_size = state.units[unit].disks.len();
    let (before, from) = (state.imbalance(), state.units[unit].store);
    state.shift(unit, to);
    plan.push(Planned {
        unit,
        from,
        to,
        why,
        effect,
        group_size,
        imbalance: (before, state.imbalance()),
    });
}

/// Datastores by the normalised load of their device with the unit on it, the least first; unknown
/// devices that have something to learn by, and those that would become too full, last. The unit's
/// own is left out.
pub(crate) fn by_load_after(state: &PlanState, unit: usize) -> Vec<usize> {
    let (load, demand) = (state.units[unit].load, state.units[unit].demand);
    let mut stores: Vec<usize> =
        (0..state.stores.len()).filter(|&store| store != state.units[unit].store).collect();
    let own = state.device_of(unit);
    stores.sort_by_cached_key(|&store| {
        let device = state.stores[store].device;
        let more = if device == own { 0 } else { load };
        let after = u128::from(state.devices[device].load.saturating_add(more))
            * u128::from(state.devices[device].slope);
        (
            state.overfull(store, state.takes(unit, store)),
            state.has_models() && state.is_learning(device),
            device != own && state.spoils(device, demand),
            after,
            state.volume(store).occupied,
            store,
        )
    });
    stores
}

/// The best datastore that takes the unit, or the best of all and why it does not.
fn best_for(state: &PlanState, unit: usize) -> Result<usize, Option<(usize, NotThere)>> {
    let mut refused = None;
    for store in by_load_after(state, unit) {
        match state.fits(unit, store, Mark::Last) {
            Ok(()) => return Ok(store),
            Err(because) => _ = refused.get_or_insert((store, because)),
        }
    }
    Err(refused)
}

/// Moves disks away from datastores that are too full. At most `left` disks; the number that moved.
pub(crate) fn free_space(
    state: &mut PlanState,
    plan: &mut Vec<Planned>,
    mut left: Option<u32>,
) -> u32 {
    let mut moved = 0;
    for volume in 0..state.volumes.len() {
        let first = state.volumes[volume].stores[0];
        while let Some(excess) = excess(state, first) {
            let Some((unit, to)) = relief(state, volume, excess, left) else { break };
            let disks = u32::try_from(state.units[unit].disks.len()).unwrap_or(u32::MAX);
            left = left.map(|left| left.saturating_sub(disks));
            moved += disks;
            let full = fullness(state, first);
            record(state, plan, unit, to, Why::Space(full));
        }
    }
    moved
}

/// The unit to move: the smallest that is enough, else the largest; and the datastore with least to
/// do that has room for it.
fn relief(
    state: &PlanState,
    volume: usize,
    excess: u64,
    left: Option<u32>,
) -> Option<(usize, usize)> {
    let emptied = |store: usize| state.pool.datastores[store].state == State::Maintenance;
    let stores = state.volumes[volume].stores.iter().filter(|&&store| !emptied(store));
    let here = stores.flat_map(|&store| {
        let units = state.devices[state.stores[store].device].units.iter().copied();
        units.filter(move |&unit| state.units[unit].store == store)
    });
    let mut units: Vec<usize> = here
        .filter(|&unit| state.units[unit].used > 0)
        .filter(|&unit| {
            left.is_none_or(|left| state.units[unit].disks.len() as u64 <= u64::from(left))
        })
        .filter(|&unit| movable(state, unit).is_ok())
        .collect();
    units.sort_by_key(|&unit| {
        let used = state.units[unit].used;
        if used >= excess { (0, used, unit) } else { (1, u64::MAX - used, unit) }
    });
    units.into_iter().find_map(|unit| Some((unit, space_for(state, unit).ok()?)))
}

/// A datastore for a unit that leaves for space, or why the best is none.
pub(crate) fn space_for(
    state: &PlanState,
    unit: usize,
) -> Result<usize, Option<(usize, NotThere)>> {
    let rules = &state.pool.rules;
    let (source, load, from) =
        (state.device_of(unit), state.units[unit].load, state.units[unit].store);
    let full = fullness(state, from);
    let bound = state.imbalance().max(rules.balance.start.as_f64());
    let mut refused = None;
    for to in by_load_after(state, unit) {
        let target = state.stores[to].device;
        let mut fits = state.fits(unit, to, Mark::Relieve);
        let little = fullness(state, to).0.saturating_add(rules.space.difference.0) > full.0;
        let same = state.stores[to].volume == state.stores[from].volume;
        if fits.is_ok() && (little || same) {
            fits = Err(NotThere::AsFull);
        }
        if fits.is_ok() && target != source {
            let loads = [
                (source, state.devices[source].load.saturating_sub(load)),
                (target, state.devices[target].load.saturating_add(load)),
            ];
            if state.imbalance_with(&loads).0 > bound {
                fits = Err(NotThere::Busy);
            } else if state.barred(unit, target).is_some() {
                fits = Err(NotThere::Lately);
            } else if state.has_models() && state.is_learning(target) {
                fits = Err(NotThere::Learning);
            }
        }
        match fits {
            Ok(()) => return Ok(to),
            Err(because) => _ = refused.get_or_insert((to, because)),
        }
    }
    Err(refused)
}
