//! Moves that are not for load: what rules and maintenance demand, and what frees space.

use crate::balance::{Planned, movable};
use crate::cost::effect;
use crate::map::{Map, Mark};
use crate::space::{excess, fullness};
use crate::{Name, NotThere, State, Why};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A unit that should leave and cannot.
pub(crate) struct Stuck {
    pub(crate) why: Why,
    /// Where it would go first, and why it cannot; `None` when there is nowhere.
    pub(crate) because: Option<(usize, NotThere)>,
}

/// Makes the moves that rules and maintenance demand. What cannot be done is told by unit.
///
/// The largest load goes first and to the device that has least to do afterwards. If that leaves disks behind for want of space, it is
/// tried anew with the largest disks first, and the better of the two is taken.
pub(crate) fn repair(map: &mut Map, plan: &mut Vec<Planned>) -> BTreeMap<usize, Stuck> {
    let mut stuck = gather(map, plan);
    let begun = plan.len();
    let by_load = repair_in(map, plan, |map, unit| map.units[unit].load);
    let for_space = |stuck: &BTreeMap<usize, Stuck>| {
        stuck.values().any(|stuck| matches!(stuck.because, Some((_, NotThere::Space { .. }))))
    };
    if !for_space(&by_load) {
        stuck.extend(by_load);
        return stuck;
    }
    take_back(map, plan, begun);
    let by_size = repair_in(map, plan, |map, unit| map.units[unit].used);
    if by_size.len() < by_load.len() {
        stuck.extend(by_size);
        return stuck;
    }
    take_back(map, plan, begun);
    stuck.extend(repair_in(map, plan, |map, unit| map.units[unit].load));
    stuck
}

fn take_back(map: &mut Map, plan: &mut Vec<Planned>, to: usize) {
    for planned in plan.drain(to..).rev() {
        map.unshift(planned.unit, planned.from);
    }
}

/// Why a unit must not stay where it is.
fn must_leave(map: &Map, unit: usize) -> Option<Why> {
    let store = &map.pool.datastores[map.units[unit].store];
    if store.state == State::Maintenance {
        return Some(Why::Maintenance);
    }
    if let Some(class) = map.units[unit].class.as_ref().filter(|&class| store.class.as_ref() != Some(class)) {
        return Some(Why::Class(class.clone()));
    }
    map.too_close(unit).map(|rule| Why::Apart {
        rule: map.pool.rules.apart[rule].name.clone(),
        from: map.member_on(rule, map.device_of(unit), Some(unit)),
    })
}

fn repair_in(
    map: &mut Map,
    plan: &mut Vec<Planned>,
    first: impl Fn(&Map, usize) -> u64,
) -> BTreeMap<usize, Stuck> {
    let mut stuck = BTreeMap::new();
    let mut due: Vec<usize> = (0..map.units.len())
        .filter(|&unit| !map.units[unit].moved && must_leave(map, unit).is_some())
        .collect();
    due.sort_by_key(|&unit| (Reverse(first(map, unit)), unit));
    for unit in due {
        // Another may have left in the meantime.
        let Some(why) = must_leave(map, unit) else { continue };
        if map.units[unit].pinned.is_some() || map.divided.contains_key(&map.units[unit].family) {
            continue;
        }
        match best_for(map, unit) {
            Ok(to) => record(map, plan, unit, to, why),
            Err(because) => _ = stuck.insert(unit, Stuck { why, because }),
        }
    }
    stuck
}

/// Brings families together that are on several datastores.
fn gather(map: &mut Map, plan: &mut Vec<Planned>) -> BTreeMap<usize, Stuck> {
    let mut stuck = BTreeMap::new();
    for (_, parts) in map.divided.clone() {
        // Where a pinned disk is, or else most of the bytes: that costs least.
        let main = parts
            .iter()
            .copied()
            .max_by_key(|&part| {
                let unit = &map.units[part];
                (unit.pinned.is_some(), must_leave(map, part).is_none(), unit.used, Reverse(part))
            })
            .unwrap_or(parts[0]);
        let mut order: Vec<usize> = vec![map.units[main].store];
        if map.units[main].pinned.is_none() {
            order.extend(by_load_after(map, main));
        }
        let with = call(map, main);
        let why = Why::Together(with.clone());
        let mut refused = None;
        for to in order {
            match move_all(map, plan, &parts, to, &why) {
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
pub(crate) fn call(map: &Map, unit: usize) -> Name {
    let first = &map.pool.disks[map.units[unit].disks[0]].name;
    match map.units[unit].disks.len() - 1 {
        0 => Name::from(format!("'{first}'")),
        others => Name::from(format!("'{first}' and {others} more")),
    }
}

fn move_all(
    map: &mut Map,
    plan: &mut Vec<Planned>,
    parts: &[usize],
    to: usize,
    why: &Why,
) -> Result<(), NotThere> {
    let begun = plan.len();
    for &part in parts {
        if map.units[part].store == to {
            // What is there stays only if it may.
            let spec = &map.pool.datastores[to];
            let refused = match spec.state {
                State::Maintenance => Some(NotThere::Maintenance),
                _ => map.units[part]
                    .class
                    .as_ref()
                    .filter(|&class| spec.class.as_ref() != Some(class))
                    .cloned()
                    .map(NotThere::Class),
            };
            if let Some(why) = refused {
                take_back(map, plan, begun);
                return Err(why);
            }
            continue;
        }
        let possible = match map.units[part].pinned {
            Some(disk) => Err(NotThere::Together {
                with: map.pool.disks[disk].name.clone(),
                on: map.pool.datastores[map.units[part].store].name.clone(),
            }),
            None => map.fits(part, to, Mark::Full),
        };
        if let Err(because) = possible {
            take_back(map, plan, begun);
            return Err(because);
        }
        record(map, plan, part, to, why.clone());
    }
    Ok(())
}

fn record(map: &mut Map, plan: &mut Vec<Planned>, unit: usize, to: usize, why: Why) {
    let effect = effect(map, unit, map.stores[to].device, None);
    let company = map.units[unit].disks.len();
    let (before, from) = (map.imbalance(), map.units[unit].store);
    map.shift(unit, to);
    plan.push(Planned { unit, from, to, why, effect, company, imbalance: (before, map.imbalance()) });
}

/// Datastores by the normalised load of their device with the unit on it, the least first; unknown devices that have something to
/// learn by, and those that would become too full, last. The unit's own is left out.
pub(crate) fn by_load_after(map: &Map, unit: usize) -> Vec<usize> {
    let (load, demand) = (map.units[unit].load, map.units[unit].demand);
    let mut stores: Vec<usize> =
        (0..map.stores.len()).filter(|&store| store != map.units[unit].store).collect();
    let own = map.device_of(unit);
    stores.sort_by_cached_key(|&store| {
        let device = map.stores[store].device;
        let more = if device == own { 0 } else { load };
        let after =
            u128::from(map.devices[device].load.saturating_add(more)) * u128::from(map.devices[device].slope);
        (
            map.free(store, Mark::Relieve) < map.takes(unit, store),
            map.has_models() && map.is_learning(device),
            device != own && map.spoils(device, demand),
            after,
            map.volume(store).occupied,
            store,
        )
    });
    stores
}

/// The best datastore that takes the unit, or the best of all and why it does not.
fn best_for(map: &Map, unit: usize) -> Result<usize, Option<(usize, NotThere)>> {
    let mut refused = None;
    for store in by_load_after(map, unit) {
        match map.fits(unit, store, Mark::Full) {
            Ok(()) => return Ok(store),
            Err(because) => _ = refused.get_or_insert((store, because)),
        }
    }
    Err(refused)
}

/// Moves disks away from datastores that are too full. At most `left` disks; the number that moved.
pub(crate) fn free_space(map: &mut Map, plan: &mut Vec<Planned>, mut left: Option<u32>) -> u32 {
    let mut moved = 0;
    for volume in 0..map.volumes.len() {
        let first = map.volumes[volume].stores[0];
        while let Some(excess) = excess(map, first) {
            let Some((unit, to)) = relief(map, volume, excess, left) else { break };
            let disks = u32::try_from(map.units[unit].disks.len()).unwrap_or(u32::MAX);
            left = left.map(|left| left.saturating_sub(disks));
            moved += disks;
            let full = fullness(map, first);
            record(map, plan, unit, to, Why::Space(full));
        }
    }
    moved
}

/// The unit to move: the smallest that is enough, else the largest; and the datastore with least to do that has room for it.
fn relief(map: &Map, volume: usize, excess: u64, left: Option<u32>) -> Option<(usize, usize)> {
    let emptied = |store: usize| map.pool.datastores[store].state == State::Maintenance;
    let stores = map.volumes[volume].stores.iter().filter(|&&store| !emptied(store));
    let here = stores.flat_map(|&store| {
        let units = map.devices[map.stores[store].device].units.iter().copied();
        units.filter(move |&unit| map.units[unit].store == store)
    });
    let mut units: Vec<usize> = here
        .filter(|&unit| map.units[unit].used > 0)
        .filter(|&unit| left.is_none_or(|left| map.units[unit].disks.len() as u64 <= u64::from(left)))
        .filter(|&unit| movable(map, unit).is_ok())
        .collect();
    units.sort_by_key(|&unit| {
        let used = map.units[unit].used;
        if used >= excess { (0, used, unit) } else { (1, u64::MAX - used, unit) }
    });
    units.into_iter().find_map(|unit| Some((unit, space_for(map, unit).ok()?)))
}

/// A datastore for a unit that leaves for space, or why the best is none.
pub(crate) fn space_for(map: &Map, unit: usize) -> Result<usize, Option<(usize, NotThere)>> {
    let rules = &map.pool.rules;
    let (source, load, from) = (map.device_of(unit), map.units[unit].load, map.units[unit].store);
    let full = fullness(map, from);
    let bound = map.imbalance().max(rules.balance.start.as_f64());
    let mut refused = None;
    for to in by_load_after(map, unit) {
        let target = map.stores[to].device;
        let mut fits = map.fits(unit, to, Mark::Relieve);
        let little = fullness(map, to).0.saturating_add(rules.space.difference.0) > full.0;
        let same = map.stores[to].volume == map.stores[from].volume;
        if fits.is_ok() && (little || same) {
            fits = Err(NotThere::AsFull);
        }
        if fits.is_ok() && target != source {
            let loads = [
                (source, map.devices[source].load.saturating_sub(load)),
                (target, map.devices[target].load.saturating_add(load)),
            ];
            if map.imbalance_with(&loads).0 > bound {
                fits = Err(NotThere::Busy);
            } else if map.barred(unit, target).is_some() {
                fits = Err(NotThere::Lately);
            } else if map.has_models() && map.is_learning(target) {
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
