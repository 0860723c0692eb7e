//! Why each disk that is not moved stays.

use crate::balance::{
    Aim, Ended, does_less_with, far_apart, helps, ideal, missed, most_missed, relievable, worth_moving,
};
use crate::forced::{Stuck, call, space_for};
use crate::map::{Map, Mark};
use crate::space::{excess, fullness};
use crate::{Load, NotThere, Permille, Stay, Staying};
use std::collections::BTreeMap;

/// One reason for each disk whose unit has not moved. O(u·D) for u units and D devices.
pub(crate) fn stays(map: &Map, stuck: &BTreeMap<usize, Stuck>, ended: Ended) -> Vec<Staying> {
    let (_, mean) = map.imbalance_with(&[]);
    let mut order: Vec<(u128, usize)> = (0..map.devices.len())
        .filter(|&device| map.devices[device].counts)
        .map(|device| (map.normalised(device), device))
        .collect();
    order.sort_unstable();
    let pool = Around { map, mean, order, ended };
    let mut reasons: Vec<Option<Stay>> = vec![None; map.pool.disks.len()];
    for (index, unit) in map.units.iter().enumerate().filter(|(_, unit)| !unit.moved) {
        let why = reason(&pool, stuck, index);
        for &disk in &unit.disks {
            reasons[disk] = Some(match (&why, unit.pinned) {
                (Stay::Pinned, Some(pinned)) if pinned != disk && !is_pinned(map, disk) => {
                    Stay::WithPinned(map.pool.disks[pinned].name.clone())
                }
                _ => why.clone(),
            });
        }
    }
    let disks = map.pool.disks.iter().zip(reasons);
    disks.filter_map(|(disk, why)| Some(Staying { disk: disk.name.clone(), why: why? })).collect()
}

fn is_pinned(map: &Map, disk: usize) -> bool {
    map.pool.disks[disk].mobility == crate::Mobility::Pinned
}

struct Around<'a, 'b> {
    map: &'b Map<'a>,
    mean: f64,
    /// Devices that count, the least loaded first.
    order: Vec<(u128, usize)>,
    ended: Ended,
}

fn reason(pool: &Around, stuck: &BTreeMap<usize, Stuck>, unit: usize) -> Stay {
    let map = pool.map;
    if map.units[unit].pinned.is_some() {
        return Stay::Pinned;
    }
    let name = |store: usize| map.pool.datastores[store].name.clone();
    if let Some(Stuck { why, because }) = stuck.get(&unit) {
        return match because {
            Some((store, because)) => {
                Stay::Stuck { why: Box::new(why.clone()), datastore: name(*store), because: because.clone() }
            }
            None => Stay::NowhereToGo { why: Box::new(why.clone()) },
        };
    }
    let parts = map.divided.get(&map.units[unit].family);
    if let Some(&other) = parts.and_then(|parts| parts.iter().find(|&&part| part != unit)) {
        return Stay::Gathering(call(map, other));
    }
    // A disk on a datastore that is too full is asked about space first.
    let store = map.units[unit].store;
    let due = excess(map, store).is_some() && map.units[unit].used > 0 && map.held(unit).is_none();
    if due && let Err(Some((datastore, because))) = space_for(map, unit) {
        return Stay::Full { full: fullness(map, store), datastore: name(datastore), because };
    }
    for_load(pool, unit)
}

fn for_load(pool: &Around, unit: usize) -> Stay {
    let map = pool.map;
    let balance = &map.pool.rules.balance;
    match pool.ended {
        Ended::Alone => return Stay::Alone,
        Ended::Unmodelled => return Stay::Unmodelled,
        Ended::Balanced => {
            let imbalance = Permille::of_ratio(map.imbalance());
            return Stay::Balanced { imbalance, start: balance.start };
        }
        Ended::Reached | Ended::Nothing | Ended::Capped => {}
    }
    if let Err(why) = worth_moving(map, unit) {
        return why;
    }
    let source = map.device_of(unit);
    let much = map.normalised(source);
    if (much as f64) <= pool.mean {
        return Stay::NotBusy { load: Permille::of_ratio(much as f64 / pool.mean) };
    }
    if let Err(why) = relievable(map, source) {
        return why;
    }
    match pool.ended {
        Ended::Reached => return Stay::Suffices,
        Ended::Capped => {
            let calm = &map.pool.rules.calm;
            return Stay::Enough { most: calm.most.unwrap_or(u32::MAX), window: calm.window };
        }
        _ => {}
    }
    against_each(pool, unit, much)
}

/// What stands against the best target: the one with the least load of those that take the unit, or else of all.
fn against_each(pool: &Around, unit: usize, much: u128) -> Stay {
    let map = pool.map;
    let mut first = None;
    for &(little, target) in &pool.order {
        if !far_apart(map, pool.mean, much, little) {
            break;
        }
        let datastore = || map.pool.datastores[map.devices[target].stores[0]].name.clone();
        let because = match map.way_in(unit, target, Mark::Relieve) {
            Ok(_) if map.is_learning(target) => NotThere::Learning,
            Ok(_) => match against(map, unit, target) {
                Some(why) => return why,
                None => return Stay::Suffices,
            },
            Err(because) => because,
        };
        first.get_or_insert(Stay::NoRoom { datastore: datastore(), because });
    }
    first.unwrap_or(Stay::NoneBetter)
}

fn against(map: &Map, unit: usize, target: usize) -> Option<Stay> {
    let datastore = || map.pool.datastores[map.devices[target].stores[0]].name.clone();
    if let Some(wait) = map.barred(unit, target) {
        return Some(Stay::NoReturn { datastore: datastore(), wait });
    }
    let load = map.units[unit].load;
    let source = map.device_of(unit);
    let ideals = Aim::ALL.into_iter().filter_map(|aim| ideal(map, source, target, aim));
    let best = ideals.min_by_key(|&ideal| missed(load, ideal))?;
    if missed(load, best) > most_missed(map) {
        return Some(Stay::LittleGain { datastore: datastore(), load: Load(load), ideal: Load(best) });
    }
    match helps(map, unit, target, None) {
        Ok(_) => does_less_with(map, unit, target, None)
            .map(|less| Stay::DoesLess { datastore: datastore(), less }),
        Err(why) => Some(why),
    }
}
