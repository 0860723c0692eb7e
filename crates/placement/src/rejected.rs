//! Why each disk that is not moved stays.

use crate::balance::{
    Aim, Ended, does_less_with, far_apart, helps, ideal, missed, most_missed, relievable,
    worth_moving,
};
use crate::evacuation::{Stuck, call, space_for};
use crate::plan_state::{Mark, PlanState};
use crate::space::{excess, fullness};
use crate::{Load, NotThere, Permille, Stay, Staying};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// One reason for each disk whose unit has not moved. O(u·D) for u units and D devices.
pub(crate) fn rejected(
    state: &PlanState,
    stuck: &BTreeMap<usize, Stuck>,
    ended: Ended,
) -> Vec<Staying> {
    let (_, mean) = state.imbalance_with(&[]);
    let mut order: Vec<(u128, usize)> = (0..state.devices.len())
        .filter(|&device| state.devices[device].counts)
        .map(|device| (state.normalised(device), device))
        .collect();
    order.sort_unstable();
    let pool = Around { state, mean, order, ended };
    let mut reasons: Vec<Option<Stay>> = vec![None; state.pool.disks.len()];
    for (index, unit) in state.units.iter().enumerate().filter(|(_, unit)| !unit.moved) {
        let why = reason(&pool, stuck, index);
        for &disk in &unit.disks {
            reasons[disk] = Some(match (&why, unit.pinned) {
                (Stay::Pinned, Some(pinned)) if pinned != disk && !is_pinned(state, disk) => {
                    Stay::WithPinned(state.pool.disks[pinned].name.clone())
                }
                _ => why.clone(),
            });
        }
    }
    let disks = state.pool.disks.iter().zip(reasons);
    disks.filter_map(|(disk, why)| Some(Staying { disk: disk.name.clone(), why: why? })).collect()
}

fn is_pinned(state: &PlanState, disk: usize) -> bool {
    state.pool.disks[disk].mobility == crate::Mobility::Pinned
}

struct Around<'a, 'b> {
    state: &'b PlanState<'a>,
    mean: f64,
    /// Devices that count, the least loaded first.
    order: Vec<(u128, usize)>,
    ended: Ended,
}

fn reason(pool: &Around, stuck: &BTreeMap<usize, Stuck>, unit: usize) -> Stay {
    let state = pool.state;
    if state.units[unit].pinned.is_some() {
        return Stay::Pinned;
    }
    let name = |store: usize| state.pool.datastores[store].name.clone();
    if let Some(Stuck { why, because }) = stuck.get(&unit) {
        return match because {
            Some((store, because)) => Stay::Stuck {
                why: Box::new(why.clone()),
                datastore: name(*store),
                because: because.clone(),
            },
            None => Stay::NowhereToGo { why: Box::new(why.clone()) },
        };
    }
    let parts = state.divided.get(&state.units[unit].family);
    if let Some(&other) = parts.and_then(|parts| parts.iter().find(|&&part| part != unit)) {
        return Stay::Gathering(call(state, other));
    }
    // A disk on a datastore that is too full is asked about space first.
    let store = state.units[unit].store;
    let due =
        excess(state, store).is_some() && state.units[unit].used > 0 && state.held(unit).is_none();
    if due && let Err(Some((datastore, because))) = space_for(state, unit) {
        return Stay::Full { full: fullness(state, store), datastore: name(datastore), because };
    }
    for_load(pool, unit)
}

fn for_load(pool: &Around, unit: usize) -> Stay {
    let state = pool.state;
    let balance = &state.pool.rules.balance;
    match pool.ended {
        Ended::Alone => return Stay::Alone,
        Ended::Unmodelled => return Stay::Unmodelled,
        Ended::Balanced => {
            let imbalance = Permille::of_ratio(state.imbalance());
            return Stay::Balanced { imbalance, start: balance.start };
        }
        Ended::Reached | Ended::Nothing | Ended::Capped => {}
    }
    if let Err(why) = worth_moving(state, unit) {
        return why;
    }
    let source = state.device_of(unit);
    let much = state.normalised(source);
    if (much as f64) <= pool.mean {
        return Stay::NotBusy { load: Permille::of_ratio(much as f64 / pool.mean) };
    }
    if let Err(why) = relievable(state, source) {
        return why;
    }
    match pool.ended {
        Ended::Reached => return Stay::Suffices,
        Ended::Capped => {
            let calm = &state.pool.rules.calm;
            return Stay::Enough { most: calm.most.unwrap_or(u32::MAX), window: calm.window };
        }
        _ => {}
    }
    against_each(pool, unit, much)
}

/// What stands against the best target: the one with the least load of those that take the unit, or
/// else of all.
fn against_each(pool: &Around, unit: usize, much: u128) -> Stay {
    let state = pool.state;
    let mut first = None;
    for &(little, target) in &pool.order {
        if !far_apart(state, pool.mean, much, little) {
            break;
        }
        let datastore = || state.pool.datastores[state.devices[target].stores[0]].name.clone();
        let because = match state.way_in(unit, target, Mark::Relieve) {
            Ok(_) if state.is_learning(target) => NotThere::Learning,
            Ok(_) => match against(state, unit, target) {
                Some(why) => return why,
                None => return Stay::Suffices,
            },
            Err(because) => because,
        };
        first.get_or_insert(Stay::NoRoom { datastore: datastore(), because });
    }
    first.unwrap_or(Stay::NoneBetter)
}

fn against(state: &PlanState, unit: usize, target: usize) -> Option<Stay> {
    let datastore = || state.pool.datastores[state.devices[target].stores[0]].name.clone();
    if let Some(wait) = state.barred(unit, target) {
        return Some(Stay::NoReturn { datastore: datastore(), wait });
    }
    let load = state.units[unit].load;
    let source = state.device_of(unit);
    let ideals = Aim::ALL.into_iter().filter_map(|aim| ideal(state, source, target, aim));
    let best = ideals.min_by_key(|&ideal| missed(load, ideal))?;
    if missed(load, best) > most_missed(state) {
        return Some(Stay::LittleGain {
            datastore: datastore(),
            load: Load(load),
            ideal: Load(best),
        });
    }
    match helps(state, unit, target, None) {
        Ok(_) => does_less_with(state, unit, target, None)
            .map(|less| Stay::DoesLess { datastore: datastore(), less }),
        Err(why) => Some(why),
    }
}
