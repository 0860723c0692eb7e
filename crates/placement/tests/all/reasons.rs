//! Every move and every stay has a reason, and it is the right one.

use crate::common::*;
use headgate_placement::*;
use headgate_units::{Bytes, Nanos};

/// Three datastores alike, eight disks of 8 outstanding requests on the first, and one on each
/// other.
fn crowd() -> Pool {
    let mut pool = Pool { now: Nanos::from_secs(1_000 * HOUR), ..Pool::default() };
    pool.datastores = ["a", "b", "c"].map(|name| datastore(name, 1_000)).into();
    pool.disks = (0..8).map(|n| disk(&format!("d{n}"), "a", 8)).collect();
    pool.disks.push(disk("on-b", "b", 8));
    pool.disks.push(disk("on-c", "c", 8));
    pool
}

fn advice(pool: &Pool) -> Advice {
    advise(pool).unwrap()
}

fn stay(pool: &Pool, disk: &str) -> Stay {
    let advice = advice(pool);
    let found = advice.stays.iter().find(|stay| stay.disk.as_str() == disk);
    found.unwrap_or_else(|| panic!("{disk} moves: {:?}", advice.moves)).why.clone()
}

fn moved(advice: &Advice) -> Vec<(&str, &str)> {
    advice.moves.iter().map(|step| (step.disk.as_str(), step.to.as_str())).collect()
}

fn disk_mut<'a>(pool: &'a mut Pool, name: &str) -> &'a mut PoolDisk {
    pool.disks.iter_mut().find(|disk| disk.name.as_str() == name).unwrap()
}

#[test]
fn a_crowd_is_spread_evenly() {
    let pool = crowd();
    let advice = advice(&pool);
    // Ten disks on three datastores: 4, 3 and 3, which differ by 14 %.
    assert_eq!(advice.verdict, LoadOutcome::NoBeneficialMove);
    assert_eq!(advice.moves.len(), 4, "{advice:#?}");
    let disks: Vec<u32> = advice.after.datastores.iter().map(|store| store.disks).collect();
    assert_eq!(disks, [4, 3, 3]);
    assert!(advice.after.latency < advice.before.latency);
    for step in &advice.moves {
        assert!(
            step.source.after < step.source.before && step.target.after > step.target.before,
            "{step}"
        );
        assert!(step.payback.unwrap() >= step.takes, "{step}");
        // 20 GiB at 50 MiB/s.
        assert_eq!(step.takes, Nanos(409_600_000_000));
    }
    assert!(matches!(stay(&pool, "on-b"), Stay::NotBusy { .. }));
    let text = advice.moves[0].to_string();
    assert!(
        text.contains("a -> ") && text.contains("20 GiB in 409.60 s, to balance load; pays after"),
        "{text}"
    );
}

#[test]
fn faster_devices_get_more() {
    let mut pool = crowd();
    // P of 1 : 2 : 3, as arrays of 3, 6 and 9 disks.
    for (store, slope) in pool.datastores.iter_mut().zip([3_000, 1_500, 1_000]) {
        store.model = Some(model(slope));
    }
    pool.disks.truncate(8);
    let advice = advice(&pool);
    let disks: Vec<u32> = advice.after.datastores.iter().map(|store| store.disks).collect();
    assert_eq!(disks, [1, 3, 4], "{advice:#?}");
}

#[test]
fn balanced_pools_are_left_alone() {
    let mut pool = crowd();
    pool.disks = (0..9).map(|n| disk(&format!("d{n}"), ["a", "b", "c"][n % 3], 8)).collect();
    assert_eq!(advice(&pool).verdict, LoadOutcome::Balanced);
    assert_eq!(stay(&pool, "d0"), Stay::Balanced { imbalance: Permille(0), start: Permille(100) });
}

#[test]
fn what_may_not_move_says_so() {
    let mut pool = crowd();
    for n in 0..8 {
        disk_mut(&mut pool, &format!("d{n}")).mobility = Mobility::Pinned;
    }
    let all_pinned = advice(&pool);
    assert_eq!((all_pinned.verdict, all_pinned.moves.len()), (LoadOutcome::NoBeneficialMove, 0));
    assert_eq!(stay(&pool, "d0"), Stay::Pinned);

    let free = disk_mut(&mut pool, "d1");
    (free.mobility, free.affinity, free.vm) = (Mobility::Free, Affinity::Vm, Some("vm".into()));
    let pinned = disk_mut(&mut pool, "d0");
    (pinned.affinity, pinned.vm) = (Affinity::Vm, Some("vm".into()));
    assert_eq!(stay(&pool, "d1"), Stay::WithPinned("d0".into()));

    disk_mut(&mut pool, "d2").mobility = Mobility::Free;
    disk_mut(&mut pool, "d2").workload = None;
    assert_eq!(stay(&pool, "d2"), Stay::Unknown);
    disk_mut(&mut pool, "d2").workload = Some(profile(0));
    assert_eq!(stay(&pool, "d2"), Stay::Idle);

    disk_mut(&mut pool, "d2").workload = Some(profile(8));
    let at = pool.now - Nanos::from_secs(HOUR);
    pool.history = vec![PastMove { disk: "d2".into(), from: "b".into(), at }];
    assert_eq!(stay(&pool, "d2"), Stay::Held(Nanos::from_secs(23 * HOUR)));
    // A day later it may move, but not back; and then it may.
    pool.now += Nanos::from_secs(24 * HOUR);
    assert_eq!(moved(&advice(&pool)), [("d2", "c")]);
    pool.datastores[2].state = State::Closed;
    assert!(
        matches!(stay(&pool, "d2"), Stay::NoReturn { datastore, .. } if datastore.as_str() == "b")
    );
    pool.now += Nanos::from_secs(7 * 24 * HOUR);
    assert_eq!(moved(&advice(&pool)), [("d2", "b")]);
}

#[test]
fn where_there_is_no_way_in_the_reason_is_told() {
    let mut pool = crowd();
    pool.rules.calm = restless();
    pool.datastores[1].state = State::Closed;
    pool.datastores[2].foreign = gib(9_000);
    let why = stay(&pool, "d0");
    assert!(
        matches!(why, Stay::NoRoom { because: NotThere::Closed | NotThere::Space { .. }, .. }),
        "{why}"
    );
    assert_eq!(advice(&pool).verdict, LoadOutcome::NoBeneficialMove);

    let mut pool = crowd();
    let all = pool.disks.iter().map(|disk| disk.name.clone()).collect();
    pool.rules.anti_affinity.push(Group { name: "no two".into(), disks: all });
    let why = stay(&pool, "d0").to_string();
    assert!(why.contains("rule 'no two'"), "{why}");

    let mut pool = crowd();
    pool.datastores[0].class = Some("fast".into());
    for n in 0..8 {
        disk_mut(&mut pool, &format!("d{n}")).class = Some("fast".into());
    }
    assert!(matches!(stay(&pool, "d0"), Stay::NoRoom { because: NotThere::Class(_), .. }));
}

#[test]
fn datastores_on_the_same_spindles_are_one() {
    let mut pool = crowd();
    for store in &mut pool.datastores[..2] {
        store.spindles = Some("array".into());
    }
    let first = advice(&pool);
    assert!(
        moved(&first).iter().all(|&(_, to)| to == "c") && !first.moves.is_empty(),
        "{first:#?}"
    );
    let one = &first.before.datastores;
    assert!(one[0].load == one[1].load && one[0].relative == one[1].relative);
    pool.datastores[2].spindles = Some("array".into());
    assert_eq!(advice(&pool).verdict, LoadOutcome::OneDevice);
    assert_eq!(stay(&pool, "d0"), Stay::Alone);
}

#[test]
fn unknown_devices_get_one_disk_to_learn_by() {
    let mut pool = crowd();
    pool.disks.truncate(8);
    pool.datastores[1].model = None;
    pool.datastores[2].model = None;
    let first = advice(&pool);
    let mut to: Vec<&str> = first.moves.iter().map(|step| step.to.as_str()).collect();
    to.sort_unstable();
    assert_eq!(to, ["b", "c"], "one each");
    apply(&mut pool, &first, Nanos::from_secs(8 * HOUR));
    let again = advice(&pool);
    assert_eq!((again.verdict, again.moves.len()), (LoadOutcome::NoBeneficialMove, 0));
    let left = pool.disks.iter().find(|disk| disk.datastore.as_str() == "a").unwrap().name.clone();
    assert!(matches!(stay(&pool, left.as_str()), Stay::NoRoom { because: NotThere::Learning, .. }));
    // Once they are known, they get more.
    pool.datastores[1].model = Some(model(1_000));
    pool.datastores[2].model = Some(model(1_000));
    assert!(!advice(&pool).moves.is_empty());
}

#[test]
fn without_any_model_nothing_moves_for_load() {
    let mut pool = crowd();
    pool.datastores.iter_mut().for_each(|store| store.model = None);
    let advice = advice(&pool);
    assert_eq!((advice.verdict, advice.moves.len()), (LoadOutcome::NoModels, 0));
    assert_eq!((advice.before.latency, stay(&pool, "d0")), (None, Stay::Unmodelled));
}

#[test]
fn devices_that_are_fast_enough_are_not_relieved() {
    let mut pool = crowd();
    pool.rules.balance.latency = Nanos::from_millis(100);
    assert!(matches!(stay(&pool, "d0"), Stay::FastEnough { .. }));
    let mut pool = crowd();
    pool.datastores[0].model =
        Some(DeviceModel { evidence: Evidence::Flat, low: 0, ..model(1_000) });
    assert_eq!(stay(&pool, "d0"), Stay::NeverBusy);
}

#[test]
fn moves_that_do_not_pay_are_not_made() {
    let mut pool = crowd();
    for disk in &mut pool.disks {
        (disk.size, disk.used) = (gib(900), gib(900));
    }
    pool.rules.copy.rate = headgate_units::BytesPerSec::new(10 << 20).unwrap();
    let why = stay(&pool, "d0");
    assert!(
        matches!(why, Stay::Costly { payback, .. } if payback > Nanos::from_secs(24 * HOUR)),
        "{why}"
    );
    assert_eq!(advice(&pool).verdict, LoadOutcome::NoBeneficialMove);
}

#[test]
fn unsure_models_move_nothing() {
    let mut pool = crowd();
    pool.disks.truncate(8);
    pool.disks.extend((0..6).map(|n| disk(&format!("more{n}"), ["b", "c"][n % 2], 8)));
    for store in &mut pool.datastores {
        store
            .model
            .iter_mut()
            .for_each(|model| (model.low, model.high) = (model.low / 3, model.high * 3));
    }
    assert!(matches!(stay(&pool, "d0"), Stay::Unsure { .. }), "{}", stay(&pool, "d0"));
}

#[test]
fn a_single_large_disk_is_not_carried_around() {
    let mut pool = crowd();
    pool.disks = vec![disk("large", "a", 60), disk("small", "b", 1)];
    let why = stay(&pool, "large");
    assert!(
        matches!(why, Stay::LittleGain { load, ideal, .. } if load.0 > ideal.0 * 9 / 5),
        "{why}"
    );
    assert_eq!(advice(&pool).moves, []);
}

#[test]
fn large_disks_are_exchanged() {
    let mut pool = crowd();
    pool.datastores.truncate(2);
    pool.datastores[0].model = Some(model(4_000));
    pool.disks = vec![disk("large", "a", 40), disk("small", "b", 10)];
    let advice = advice(&pool);
    assert_eq!(moved(&advice), [("large", "b"), ("small", "a")]);
    assert_eq!(advice.moves[0].why, Why::Exchange("'small'".into()));
    assert_eq!(advice.moves[0].group_size, 2);
}

#[test]
fn not_more_than_the_cap_moves() {
    let mut pool = crowd();
    pool.rules.calm.most = Some(2);
    assert_eq!((advice(&pool).moves.len(), advice(&pool).verdict), (2, LoadOutcome::Capped));
    let at = pool.now - Nanos::from_secs(HOUR);
    pool.history = vec![PastMove { disk: "gone".into(), from: "gone".into(), at }];
    assert_eq!(advice(&pool).moves.len(), 1);
    assert!(
        advice(&pool).stays.iter().any(|stay| matches!(stay.why, Stay::Enough { most: 2, .. }))
    );
    pool.now += Nanos::from_secs(8 * HOUR);
    assert_eq!(advice(&pool).moves.len(), 2);
}

#[test]
fn maintenance_empties_a_datastore_whatever_was_lately() {
    let mut pool = crowd();
    pool.datastores[0].state = State::Maintenance;
    pool.rules.calm.most = Some(0);
    pool.history = (0..8)
        .map(|n| PastMove { disk: format!("d{n}").into(), from: "b".into(), at: pool.now })
        .collect();
    disk_mut(&mut pool, "d7").mobility = Mobility::Pinned;
    let first = advice(&pool);
    assert_eq!(first.moves.len(), 7);
    assert!(first.moves.iter().all(|step| step.why == Why::Maintenance));
    let disks: Vec<u32> = first.after.datastores.iter().map(|store| store.disks).collect();
    assert!(disks == [1, 4, 5] || disks == [1, 5, 4], "{disks:?}");

    // No room for all: what stays says where it would have gone, and why it cannot.
    pool.datastores[1].state = State::Closed;
    pool.datastores[2].capacity = gib(100);
    let tight = advice(&pool);
    assert_eq!(tight.moves.len(), 3);
    let stuck = tight
        .stays
        .iter()
        .filter(|stay| matches!(&stay.why, Stay::Stuck { why, .. } if **why == Why::Maintenance));
    assert_eq!(stuck.count(), 4);
}

#[test]
fn the_largest_go_first_when_space_is_tight() {
    let mut pool = crowd();
    pool.datastores[0].state = State::Maintenance;
    pool.disks.truncate(3);
    // By load small, small, large; but then the large one would fit nowhere.
    for (disk, (used, outstanding)) in pool.disks.iter_mut().zip([(30, 20), (30, 16), (60, 2)]) {
        (disk.size, disk.used, disk.workload) = (gib(used), gib(used), Some(profile(outstanding)));
    }
    pool.datastores[1].capacity = gib(70);
    pool.datastores[2].capacity = gib(70);
    assert_eq!(advice(&pool).moves.len(), 3);
}

#[test]
fn families_are_brought_together_where_most_of_their_bytes_are() {
    let mut pool = crowd();
    pool.rules
        .affinity
        .push(Group { name: "set".into(), disks: vec!["d0".into(), "on-b".into(), "on-c".into()] });
    disk_mut(&mut pool, "on-b").used = gib(35);
    let advice = advice(&pool);
    let by_rule: Vec<&Move> =
        advice.moves.iter().filter(|step| matches!(step.why, Why::Affinity(_))).collect();
    assert_eq!(by_rule.len(), 2);
    assert!(by_rule.iter().all(|step| step.to.as_str() == "b"));
    // Where it cannot be, they say so.
    pool.datastores.iter_mut().for_each(|store| store.state = State::Closed);
    assert!(matches!(stay(&pool, "d0"), Stay::Stuck { .. }), "{}", stay(&pool, "d0"));
}

#[test]
fn what_should_be_apart_or_elsewhere_is_moved() {
    let mut pool = crowd();
    pool.rules.anti_affinity.push(Group {
        name: "pair".into(),
        disks: vec!["d0".into(), "d1".into(), "missing".into()],
    });
    disk_mut(&mut pool, "d0").mobility = Mobility::Pinned;
    pool.datastores[2].class = Some("fast".into());
    disk_mut(&mut pool, "d2").class = Some("fast".into());
    let advice = advice(&pool);
    let why = |name: &str| {
        advice.moves.iter().find(|step| step.disk.as_str() == name).map(|step| step.why.clone())
    };
    assert_eq!(why("d1"), Some(Why::AntiAffinity { rule: "pair".into(), from: "d0".into() }));
    assert_eq!(why("d2"), Some(Why::Class("fast".into())));
}

#[test]
fn space_is_freed_by_the_smallest_that_is_enough() {
    let mut pool = crowd();
    pool.rules.balance.start = Permille(10_000);
    pool.datastores[0].capacity = gib(190);
    for (n, used) in [(0, 5), (1, 9), (2, 12), (3, 30)] {
        disk_mut(&mut pool, &format!("d{n}")).used = gib(used);
    }
    // 136 of 190 GiB: below 80 %, 152. With 20 more, 4 above.
    assert_eq!(advice(&pool).moves, []);
    disk_mut(&mut pool, "d4").used = gib(40);
    let relieved = advice(&pool);
    assert_eq!(moved(&relieved).iter().map(|step| step.0).collect::<Vec<_>>(), ["d0"]);
    assert!(
        matches!(relieved.moves[0].why, Why::Space(Permille(821))),
        "{:?}",
        relieved.moves[0].why
    );
    // Others as full: nothing is gained.
    for store in &mut pool.datastores[1..] {
        (store.capacity, store.foreign) = (gib(1_000), gib(770));
    }
    let why = stay(&pool, "d0");
    assert!(matches!(why, Stay::Full { because: NotThere::AsFull, .. }), "{why}");
}

/// Of 1,000 GiB 930 are taken. Another with room below the marks goes first, whatever its load;
/// with none, disks may come as long as 8 GiB stay free.
#[test]
fn the_last_gibibytes_are_for_what_fits_nowhere_else() {
    let mut pool = crowd();
    pool.disks.retain(|disk| disk.datastore.as_str() != "c");
    (pool.datastores[2].capacity, pool.datastores[2].foreign) = (gib(1_000), gib(930));
    let sized = |size| NewDisk { size: gib(size), ..new_disk("new") };
    let placed = place(&pool, &sized(62)).unwrap();
    let ranking: Vec<&str> = placed.ranking.iter().map(|at| at.datastore.as_str()).collect();
    assert_eq!((ranking.len(), ranking[2]), (3, "c"), "{ranking:?}");
    // Fuller than 90 % comes after fuller than 80 %, which has more to do.
    (pool.datastores[1].capacity, pool.datastores[1].foreign) = (gib(1_000), gib(790));
    pool.datastores.remove(0);
    pool.disks.retain(|disk| disk.datastore.as_str() != "a");
    let busy = |pool: &Pool| pool.disks.iter().filter(|d| d.datastore.as_str() == "b").count();
    assert!(busy(&pool) > 0);
    assert_eq!(place(&pool, &sized(62)).unwrap().datastore.as_str(), "b");
    pool.datastores.remove(0);
    pool.disks.clear();
    assert_eq!(place(&pool, &sized(62)).unwrap().datastore.as_str(), "c");
    let NoPlace::Nowhere(refused) = place(&pool, &sized(63)).unwrap_err() else { panic!() };
    assert_eq!(refused, [("c".into(), NotThere::Space { needs: gib(63), free: gib(62) })]);
    pool.rules.space.keep = gib(100);
    assert!(place(&pool, &sized(1)).is_err(), "a tenth is less, and is full already");
}

/// Eight disks of 40 GiB, of which 20 are written, fill a datastore of 320 GiB that gives disks all
/// of their size.
#[test]
fn a_datastore_where_nothing_grows_is_filled_and_not_relieved() {
    let mut pool = crowd();
    pool.rules.balance.start = Permille(10_000);
    (pool.datastores[0].capacity, pool.datastores[0].provisioning) =
        (gib(320), Provisioning::Thick);
    let full = advice(&pool);
    assert_eq!(full.moves, []);
    assert_eq!(
        (full.before.datastores[0].used, full.before.datastores[0].full),
        (gib(320), Permille(1_000))
    );
    // Where disks grow, so many bytes are relieved.
    let mut grown = pool.clone();
    grown.datastores[0].provisioning = Provisioning::Thin;
    grown.disks.iter_mut().for_each(|disk| disk.used = disk.size);
    assert!(matches!(advice(&grown).moves[0].why, Why::Space(_)));
    // The last disk that has room, and the first that has none, whatever will be written of them.
    for (size, fits) in [(40, true), (41, false)] {
        let mut pool = pool.clone();
        pool.disks.remove(7);
        let new = NewDisk { size: gib(size), expected: Some(gib(1)), ..new_disk("new") };
        let placed = place(&pool, &new).unwrap();
        assert_eq!(placed.ranking.iter().any(|at| at.datastore.as_str() == "a"), fits);
        let no_room = (Name::from("a"), NotThere::Space { needs: gib(41), free: gib(40) });
        assert_eq!(placed.refused, if fits { Vec::new() } else { vec![no_room] });
    }
}

/// Two datastores on one file system of 190 GiB, of which 176 GiB are taken: it lacks 24 GiB, not
/// each of them.
#[test]
fn what_datastores_share_is_counted_once() {
    let mut pool = crowd();
    pool.rules.balance.start = Permille(10_000);
    for store in &mut pool.datastores[..2] {
        (store.capacity, store.foreign, store.volume) = (gib(190), gib(6), Some("fs".into()));
    }
    pool.disks
        .iter_mut()
        .filter(|disk| disk.datastore.as_str() == "b")
        .for_each(|disk| disk.used = gib(10));
    let relieved = advice(&pool);
    let full: Vec<Permille> = relieved.before.datastores.iter().map(|store| store.full).collect();
    assert_eq!(full, [Permille(926), Permille(926), Permille(2)]);
    // 20 or 10 GiB are not enough, 40 are; and nothing goes from one to the other.
    assert_eq!(moved(&relieved).iter().map(|step| step.1).collect::<Vec<_>>(), ["c", "c"]);
    let full: Vec<Permille> = relieved.after.datastores.iter().map(|store| store.full).collect();
    assert_eq!(full[..2], [Permille(768), Permille(768)], "{:?}", moved(&relieved));
    // 152 GiB are 80 %: what was taken from one is missing to the other.
    pool.disks.retain(|disk| disk.datastore.as_str() != "c");
    pool.datastores.truncate(2);
    let nowhere = place(&pool, &new_disk("new")).unwrap_err();
    let NoPlace::Nowhere(refused) = nowhere else { panic!("{nowhere}") };
    assert!(refused.iter().all(|(_, why)| matches!(why, NotThere::Space { .. })), "{refused:?}");
}

#[test]
fn contradictions_are_named() {
    let mut pool = crowd();
    pool.disks.push(disk("d0", "b", 1));
    assert_eq!(advise(&pool).unwrap_err(), PoolError::TwoDisks("d0".into()));
    let mut pool = crowd();
    pool.datastores.push(datastore("a", 1));
    assert_eq!(advise(&pool).unwrap_err(), PoolError::TwoDatastores("a".into()));
    let mut pool = crowd();
    pool.disks.push(disk("lost", "nowhere", 1));
    assert!(advise(&pool).unwrap_err().to_string().contains("'nowhere', which is not in the pool"));
    let mut pool = crowd();
    let pair = Group { name: "pair".into(), disks: vec!["d0".into(), "d1".into()] };
    (pool.rules.affinity, pool.rules.anti_affinity) = (vec![pair.clone()], vec![pair]);
    assert!(matches!(advise(&pool), Err(PoolError::AffinityConflict { .. })));
    pool.rules.anti_affinity.clear();
    disk_mut(&mut pool, "d0").class = Some("fast".into());
    disk_mut(&mut pool, "d1").class = Some("cheap".into());
    assert!(advise(&pool).unwrap_err().to_string().contains("classes 'fast' and 'cheap'"));
}

#[test]
fn new_disks_go_where_load_is_least_and_say_why() {
    let mut pool = crowd();
    pool.datastores[1].model = Some(model(4_000));
    let placed = place(&pool, &new_disk("new")).unwrap();
    assert_eq!((placed.datastore.as_str(), placed.basis), ("c", Basis::LeastLoad));
    assert_eq!(placed.ranking.len(), 3);
    assert!(placed.ranking.windows(2).all(|pair| pair[0].load <= pair[1].load));

    let mut rules = pool.clone();
    rules
        .rules
        .anti_affinity
        .push(Group { name: "pair".into(), disks: vec!["new".into(), "on-c".into()] });
    assert_eq!(place(&rules, &new_disk("new")).unwrap().datastore.as_str(), "b");
    assert!(matches!(
        &place(&rules, &new_disk("new")).unwrap().refused[..],
        [(_, NotThere::AntiAffinity { .. })]
    ));

    let vm = |mut pool: Pool| {
        let (vm, affinity) = (Some("vm".into()), Affinity::Vm);
        let of_vm = disk_mut(&mut pool, "d3");
        (of_vm.vm, of_vm.affinity) = (vm.clone(), affinity);
        place(&pool, &NewDisk { vm, affinity, ..new_disk("new") }).unwrap()
    };
    assert_eq!(
        (vm(pool.clone()).datastore.as_str(), vm(pool.clone()).basis),
        ("a", Basis::Together)
    );

    let large = NewDisk { size: gib(20_000), ..new_disk("new") };
    let none = place(&pool, &large).unwrap_err().to_string();
    assert!(none.contains("'a': 19.53 TiB do not fit"), "{none}");
    assert_eq!(place(&pool, &new_disk("d0")).unwrap_err(), NoPlace::Exists("d0".into()));
    assert_eq!(place(&Pool::default(), &new_disk("d0")).unwrap_err(), NoPlace::Empty);
}

#[test]
fn a_new_daemon_that_knows_nothing_spreads_disks() {
    let mut pool = crowd();
    pool.disks.clear();
    pool.datastores.iter_mut().for_each(|store| store.model = None);
    for n in 0..9 {
        let mut new = new_disk(&format!("new{n}"));
        new.size = gib(10);
        let placed = place(&pool, &new).unwrap();
        assert_eq!(placed.basis, if n < 3 { Basis::ToLearn } else { Basis::Assumed });
        let mut made = disk(new.name.as_str(), placed.datastore.as_str(), 0);
        (made.workload, made.used) = (None, Bytes(0));
        pool.disks.push(made);
    }
    for store in &pool.datastores {
        assert_eq!(pool.disks.iter().filter(|disk| disk.datastore == store.name).count(), 3);
    }
}
