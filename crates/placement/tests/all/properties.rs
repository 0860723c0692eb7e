//! What holds for any pool, however odd. 300 pools for each; `PROPTEST_CASES=10000` for more.

use crate::common::*;
use headgate_placement::*;
use headgate_units::{Bytes, Nanos};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Where each disk is after the advice.
fn afterwards(pool: &Pool, advice: &Advice) -> BTreeMap<Name, Name> {
    let mut at: BTreeMap<Name, Name> =
        pool.disks.iter().map(|disk| (disk.name.clone(), disk.datastore.clone())).collect();
    for step in &advice.moves {
        assert_eq!(
            at.insert(step.disk.clone(), step.to.clone()),
            Some(step.from.clone()),
            "a disk moves once"
        );
    }
    at
}

fn store<'a>(pool: &'a Pool, name: &Name) -> &'a Datastore {
    pool.datastores.iter().find(|store| store.name == *name).expect("a datastore of the pool")
}

fn disk_of<'a>(pool: &'a Pool, name: &Name) -> Option<&'a PoolDisk> {
    pool.disks.iter().find(|disk| disk.name == *name)
}

/// Datastores that share spindles have one.
fn device(store: &Datastore) -> Name {
    store
        .spindles
        .as_ref()
        .map_or_else(|| store.name.clone(), |name| format!("spindles of {name}").into())
}

/// Datastores that have their space together.
fn sharers<'a>(pool: &'a Pool, with: &Datastore) -> Vec<&'a Datastore> {
    let shared = |store: &&Datastore| {
        store.name == with.name || (with.volume.is_some() && store.volume == with.volume)
    };
    pool.datastores.iter().filter(shared).collect()
}

/// What may be taken of a space, and how much of that others take.
fn bounds(sharers: &[&Datastore], space: &Space) -> (u64, u64, u64) {
    let capacity = sharers.iter().map(|store| store.capacity.0).min().unwrap();
    let foreign = sharers.iter().map(|store| store.foreign.0).max().unwrap();
    let thick = sharers.iter().all(|store| store.provisioning == Provisioning::Thick);
    // As rules.toml says it: up to `full`, or as long as `keep` stays free.
    let thin = space.full.of(capacity).max(capacity.saturating_sub(space.keep.0));
    (capacity, if thick { capacity } else { thin }, foreign)
}

/// What a disk takes where it is on a datastore.
fn takes(disk: &PoolDisk, on: &Datastore) -> u64 {
    if on.provisioning == Provisioning::Thick { disk.size.0 } else { disk.used.0 }
}

/// Sets of disks that must be together, by closing over all rules the naive way.
fn families(pool: &Pool) -> Vec<BTreeSet<Name>> {
    let mut sets: Vec<BTreeSet<Name>> =
        pool.disks.iter().map(|disk| BTreeSet::from([disk.name.clone()])).collect();
    let mut links: Vec<Vec<Name>> = pool
        .rules
        .affinity
        .iter()
        .map(|group| {
            group.disks.iter().filter(|name| disk_of(pool, name).is_some()).cloned().collect()
        })
        .collect();
    let vms: BTreeSet<&Name> = pool.disks.iter().filter_map(|disk| disk.vm.as_ref()).collect();
    links.extend(vms.into_iter().map(|vm| {
        let of_vm =
            pool.disks.iter().filter(|d| d.vm.as_ref() == Some(vm) && d.affinity == Affinity::Vm);
        of_vm.map(|disk| disk.name.clone()).collect()
    }));
    for link in links {
        let (touched, mut rest): (Vec<_>, Vec<_>) =
            sets.into_iter().partition(|set| link.iter().any(|name| set.contains(name)));
        if !touched.is_empty() {
            rest.push(touched.into_iter().flatten().collect());
        }
        sets = rest;
    }
    sets
}

fn check_constraints(pool: &Pool, advice: &Advice) {
    let after = afterwards(pool, advice);
    let moved: BTreeSet<&Name> = advice.moves.iter().map(|step| &step.disk).collect();
    for step in &advice.moves {
        let (disk, to) = (disk_of(pool, &step.disk).unwrap(), store(pool, &step.to));
        assert_ne!(step.from, step.to);
        assert_eq!(disk.mobility, Mobility::Free, "{step}");
        assert_eq!(to.state, State::Active, "{step}");
        assert!(disk.class.is_none() || disk.class == to.class, "{step}");
        if matches!(step.why, Why::Load | Why::Exchange(_)) {
            assert!(disk.workload.is_some(), "{step}");
            assert_ne!(device(store(pool, &step.from)), device(to), "{step}");
            assert!(step.imbalance.1 <= step.imbalance.0, "{step}");
        }
        if let Why::Space(_) = step.why {
            assert!(step.imbalance.1 <= step.imbalance.0.max(pool.rules.balance.start), "{step}");
        }
        if !is_voluntary(step) {
            continue;
        }
        for past in pool.history.iter().filter(|past| past.disk == step.disk) {
            assert!(past.at + pool.rules.calm.hold <= pool.now, "{step}");
            let back = pool
                .datastores
                .iter()
                .any(|store| store.name == past.from && device(store) == device(to));
            let elsewhere = device(store(pool, &step.from)) != device(to);
            assert!(
                !(back && elsewhere) || past.at + pool.rules.calm.no_return <= pool.now,
                "{step}"
            );
        }
    }
    if let Some(most) = pool.rules.calm.most {
        let recent =
            pool.history.iter().filter(|past| past.at + pool.rules.calm.window > pool.now).count();
        let voluntary = advice.moves.iter().filter(|step| is_voluntary(step)).count();
        assert!(voluntary <= (most as usize).saturating_sub(recent));
    }
    for rule in &pool.rules.anti_affinity {
        let members: BTreeSet<&Name> =
            rule.disks.iter().filter(|name| after.contains_key(*name)).collect();
        for &a in &members {
            for &b in members.iter().filter(|&&b| a < b && (moved.contains(a) || moved.contains(b)))
            {
                let (one, other) = (store(pool, &after[a]), store(pool, &after[b]));
                let were =
                    [a, b].map(|name| device(store(pool, &disk_of(pool, name).unwrap().datastore)));
                assert!(
                    device(one) != device(other) || were[0] == were[1],
                    "{a} and {b} by {}",
                    rule.name
                );
                assert!(device(one) != device(other) || !(moved.contains(a) && moved.contains(b)));
            }
        }
    }
    for family in families(pool) {
        let at: BTreeSet<&Name> = family.iter().map(|name| &after[name]).collect();
        let were: BTreeSet<&Name> =
            family.iter().map(|name| &disk_of(pool, name).unwrap().datastore).collect();
        let any_moved = family.iter().any(|name| moved.contains(name));
        assert!(
            at.len() == 1 || (at == were && !any_moved),
            "{family:?} was on {were:?}, will be on {at:?}"
        );
    }
    for place in &pool.datastores {
        let here = |name: &Name| disk_of(pool, name).unwrap().datastore == place.name;
        let counted = |name: &Name| here(name) || after[name] == place.name;
        let (mut comes, mut reserved, mut comes_reserved) = (false, 0, false);
        for disk in pool.disks.iter().filter(|disk| counted(&disk.name)) {
            comes |= !here(&disk.name);
            reserved += disk.reservation.map_or(0, |iops| iops.get());
            comes_reserved |= !here(&disk.name) && disk.reservation.is_some();
        }
        let sharers = sharers(pool, place);
        let (capacity, most_used, foreign) = bounds(&sharers, &pool.rules.space);
        let (mut used, mut size) = (foreign, foreign);
        let alone = sharers.len() == 1;
        for store in sharers {
            let on =
                |disk: &&PoolDisk| disk.datastore == store.name || after[&disk.name] == store.name;
            for disk in pool.disks.iter().filter(on) {
                used += takes(disk, store);
                size += disk.size.0;
            }
        }
        let reservable = place.reservable.unwrap_or(u64::MAX);
        assert!(!comes_reserved || reserved <= reservable, "{} is overbooked", place.name);
        // Even if nothing has left yet.
        assert!(!comes || used <= most_used, "{} overflows", place.name);
        // What comes to others of its volume is theirs to judge.
        if let Some(most) = place.promisable.filter(|_| alone) {
            let disks = size - foreign;
            assert!(!comes || disks <= most.0, "{} is promised more than it may be", place.name);
        }
        if let Some(most) = pool.rules.space.overcommit {
            assert!(!comes || size <= most.of(capacity), "{} is promised too much", place.name);
        }
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn no_rule_is_ever_broken(seed: u64) {
        let pool = any_pool(seed);
        let Ok(advice) = advise(&pool) else { return Ok(()) };
        check_constraints(&pool, &advice);
        // Each disk is told of once, in words.
        let told: Vec<&Name> =
            advice.moves.iter().map(|step| &step.disk).chain(advice.stays.iter().map(|stay| &stay.disk)).collect();
        let names: BTreeSet<&Name> = told.iter().copied().collect();
        prop_assert!(told.len() == pool.disks.len() && names.len() == pool.disks.len());
        advice.moves.iter().for_each(|step| assert!(step.to_string().len() > 20));
        advice.stays.iter().for_each(|stay| assert!(stay.why.to_string().len() > 5));
        prop_assert_eq!(&advice, &advise(&pool).unwrap(), "the same pool gives the same advice");
        let written = serde_json::to_string(&advice).unwrap();
        prop_assert_eq!(serde_json::from_str::<Advice>(&written).unwrap(), advice);
    }

    #[test]
    fn a_new_disk_breaks_no_rule_and_is_refused_only_for_a_reason(seed: u64) {
        let pool = any_pool(seed);
        let mut dice = Dice(!seed);
        let mut new = new_disk("disk31");
        new.size = gib(1 + dice.roll(120));
        new.class = dice.one_in(3).then(|| "fast".into());
        new.vm = dice.one_in(2).then(|| format!("vm{}", dice.roll(8)).into());
        new.affinity = if dice.one_in(2) { Affinity::Vm } else { Affinity::None };
        let with_it = |datastore: &Name| {
            let mut with = pool.clone();
            let mut disk = disk("disk31", datastore.as_str(), 4);
            (disk.size, disk.used, disk.vm, disk.affinity) = (new.size, new.size, new.vm.clone(), new.affinity);
            disk.class = new.class.clone();
            with.disks.push(disk);
            with
        };
        match place(&pool, &new) {
            Ok(placement) => {
                let to = store(&pool, &placement.datastore);
                prop_assert_eq!(to.state, State::Active);
                prop_assert!(new.class.is_none() || new.class == to.class);
                let sharers = sharers(&pool, to);
                let (_, most, foreign) = bounds(&sharers, &pool.rules.space);
                let on = |store: &Datastore| -> u64 {
                    let here = pool.disks.iter().filter(|disk| disk.datastore == store.name);
                    here.map(|disk| takes(disk, store)).sum()
                };
                let here: u64 = sharers.into_iter().map(on).sum();
                prop_assert!(here + foreign + new.size.0 <= most);
                prop_assert_eq!(placement.ranking.len() + placement.refused.len(), pool.datastores.len());
                let with = with_it(&to.name);
                for rule in pool.rules.anti_affinity.iter().filter(|rule| rule.disks.contains(&new.name)) {
                    let others = rule.disks.iter().filter(|name| **name != new.name);
                    let on = others.filter_map(|name| disk_of(&pool, name));
                    prop_assert!(on.map(|d| device(store(&pool, &d.datastore))).all(|other| other != device(to)));
                }
                if let Some(family) = families(&with).iter().find(|f| f.contains(&new.name) && f.len() > 1) {
                    let of_others = family.iter().filter_map(|name| disk_of(&pool, name));
                    prop_assert!(of_others.map(|d| &d.datastore).any(|at| *at == to.name));
                }
            }
            Err(NoPlace::Nowhere(refused)) => prop_assert_eq!(refused.len(), pool.datastores.len()),
            Err(other) => prop_assert!(matches!(other, NoPlace::Pool(_)), "{}", other),
        }
    }

    /// Numbers from anywhere: a damaged catalog, a clock that stepped back.
    #[test]
    fn wild_numbers_do_no_harm(seed: u64) {
        let mut pool = any_pool(seed);
        let mut dice = Dice(seed);
        let mut wild = move || match dice.roll(4) {
            0 => 0,
            1 => u64::MAX,
            2 => dice.roll(1_000),
            _ => dice.roll(u64::MAX),
        };
        pool.now = Nanos(wild());
        for store in &mut pool.datastores {
            (store.capacity, store.foreign) = (Bytes(wild()), Bytes(wild()));
            store.model.iter_mut().for_each(|model| {
                model.slope = Slope::from_picos(wild());
                (model.low, model.high, model.base) = (wild(), wild(), wild() as i64);
                (model.floor, model.size, model.random) = (Nanos(wild()), Bytes(wild()), Permille(wild() as u32));
            });
        }
        for disk in &mut pool.disks {
            (disk.size, disk.used) = (Bytes(wild()), Bytes(wild()));
            disk.workload = Some(WorkloadProfile {
                outstanding: Outstanding::from_thousandths(wild() as u32),
                size: Bytes(wild()),
                read: Permille(wild() as u32),
                random: Permille(wild() as u32),
            });
        }
        let rules = &mut pool.rules;
        (rules.balance.start, rules.balance.gain) = (Permille(wild() as u32), Permille(wild() as u32));
        (rules.space.full, rules.space.relieve) = (Permille(wild() as u32), Permille(wild() as u32));
        rules.space.keep = Bytes(wild());
        (rules.copy.payback, rules.copy.overhead) = (Nanos(wild()), Bytes(wild()));
        rules.constants.outstanding = Outstanding::from_thousandths(wild() as u32);
        rules.constants.size = Bytes(wild());
        if let Ok(advice) = advise(&pool) {
            prop_assert_eq!(advice.moves.len() + advice.stays.len(), pool.disks.len());
            advice.moves.iter().for_each(|step| _ = step.to_string());
            advice.stays.iter().for_each(|stay| _ = stay.why.to_string());
        }
        let new = NewDisk { size: Bytes(wild()), ..new_disk("new") };
        if let Err(error) = place(&pool, &new) {
            prop_assert!(error.to_string().len() > 5);
        }
    }

    #[test]
    fn under_constant_load_advice_comes_to_an_end(seed: u64) {
        let mut pool = any_pool(seed);
        pool.rules.calm = restless();
        let mut visited = 0;
        loop {
            let Ok(advice) = advise(&pool) else { return Ok(()) };
            if advice.moves.is_empty() {
                break;
            }
            check_constraints(&pool, &advice);
            apply(&mut pool, &advice, Nanos::from_secs(8 * HOUR));
            visited += 1;
            prop_assert!(visited <= 20, "still moving: {:?}", advice.moves);
        }
        // And it stays at its end.
        pool.now += Nanos::from_secs(1_000 * HOUR);
        prop_assert_eq!(advise(&pool).unwrap().moves, []);
    }

    #[test]
    fn the_imbalance_is_what_its_definition_says(seed: u64) {
        let mut pool = plain_pool(seed);
        pool.rules.interference = Interference::None;
        let advice = advise(&pool).unwrap();
        let told = |outlook: &Outlook| outlook.imbalance.as_f64();
        prop_assert!((told(&advice.before) - imbalance(&pool)).abs() < 2e-3);
        apply(&mut pool, &advice, Nanos::ZERO);
        prop_assert!((told(&advice.after) - imbalance(&pool)).abs() < 2e-3);
        prop_assert!(advice.after.imbalance <= advice.before.imbalance);
        let again = advise(&pool).unwrap();
        prop_assert_eq!(again.before.datastores, advice.after.datastores);
    }
}

/// Properties of pools in which nothing happens say nothing.
#[test]
fn the_pools_are_worth_testing() {
    let (mut whys, mut stays, mut sound) = (BTreeMap::new(), BTreeMap::new(), 0);
    for seed in 0..1_000 {
        let Ok(advice) = advise(&any_pool(seed)) else { continue };
        sound += 1;
        let kind = |text: String| {
            text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("").to_owned()
        };
        for step in &advice.moves {
            *whys.entry(kind(format!("{:?}", step.why))).or_insert(0) += 1;
        }
        for stay in &advice.stays {
            *stays.entry(kind(format!("{:?}", stay.why))).or_insert(0) += 1;
        }
    }
    println!("{sound} of 1000 pools; moves {whys:?}; stays {stays:?}");
    assert!(sound > 600);
    for why in [
        "Load",
        "Exchange",
        "Throughput",
        "Space",
        "Maintenance",
        "Class",
        "Affinity",
        "AntiAffinity",
    ] {
        assert!(whys.get(why).is_some_and(|&count| count >= 20), "{why}");
    }
    assert!(stays.len() >= 18);
}

/// 40 days of workloads that vary by a tenth either way, asked every eight hours, in 300 pools. No
/// disk moves twice within a day or goes back within a week (checked with the other rules); and in
/// the second half hardly anything moves at all.
#[test]
fn noise_makes_no_disk_wander() {
    let mut late: Vec<usize> = (0..300u64)
        .map(|seed| {
            let mut pool = plain_pool(seed);
            pool.rules.calm = Calm::default();
            let nominal: Vec<u32> = pool
                .disks
                .iter()
                .map(|disk| disk.workload.unwrap().outstanding.as_thousandths())
                .collect();
            let mut dice = Dice(seed);
            let mut late = 0;
            for round in 0..120 {
                for (disk, &nominal) in pool.disks.iter_mut().zip(&nominal) {
                    let noisy = u64::from(nominal) * (900 + dice.roll(201)) / 1_000;
                    disk.workload.as_mut().unwrap().outstanding =
                        Outstanding::from_thousandths(noisy as u32);
                }
                let advice = advise(&pool).unwrap();
                check_constraints(&pool, &advice);
                if round >= 60 {
                    late += advice.moves.len();
                }
                apply(&mut pool, &advice, Nanos::from_secs(8 * HOUR));
            }
            late
        })
        .collect();
    late.sort_unstable();
    println!(
        "moves from day 20 to day 40: median {}, 90 % {}, most {}",
        late[150], late[270], late[299]
    );
    assert!(late[150] == 0 && late[270] <= 4 && late[299] <= 16, "{late:?}");
}

/// Datastores of their own with models, disks with workloads, and nothing else.
fn plain_pool(seed: u64) -> Pool {
    let mut dice = Dice(seed ^ 0x5EED);
    let mut pool = Pool { now: Nanos::from_secs(1_000 * HOUR), ..Pool::default() };
    for n in 0..2 + dice.roll(6) {
        pool.datastores.push(datastore(&format!("ds{n}"), 200 + dice.roll(2_000)));
    }
    let stores = pool.datastores.len() as u64;
    for n in 0..stores + dice.roll(20) {
        let mut disk = disk(
            &format!("disk{n}"),
            &format!("ds{}", dice.roll(stores)),
            1 + dice.roll(32) as u32,
        );
        disk.used = Bytes::from_gib(1 + dice.roll(60));
        pool.disks.push(disk);
    }
    pool.rules.calm = restless();
    pool
}
