//! Pools: what is learnt, who is placed where, and disks that move under their guests.

use crate::common::{near, outcome, scenario};
use headgate_sim::{Outcome, Quiet, SubjectKind, judge, run};
use headgate_units::{Bytes, Nanos};

/// Two datastores of which the one is twice as fast, with all disks on the slow one.
fn crowd(pool: &str, more: &str) -> String {
    format!(
        r#"
        name = "crowd"
        title = "All on the slow one"
        duration = "60s"
        windows = {{ before = "2s..10s", after = "50s..60s" }}
        [pool]
        sample = "500ms"
        advice = ["20s", "30s", "40s"]
        payback = "10000h"
        {pool}
        [tide]
        low = "20%"
        every = "500ms"
        during = ["10s..45s"]
        [[datastore]]
        name = "slow"
        device = "rate=500,latency=2ms"
        queue-depth = 256
        [[datastore]]
        name = "fast"
        device = "rate=1000,latency=2ms"
        queue-depth = 256
        [[vm]]
        name = "vm"
        count = 6
        disk = [{{ datastore = "slow", size = "1G" }}]
        workload = [{{ kind = "closed", outstanding = 8, read = "70%" }}]
        {more}
        "#
    )
}

fn iops(outcome: &Outcome, name: &str, window: &str) -> f64 {
    let subject = outcome.subject(name).unwrap();
    subject.spans.iter().find(|stretch| stretch.name == window).unwrap().iops()
}

#[test]
fn former_names_of_affinity_and_anti_affinity_are_read() {
    let rules = |keys: &str| {
        let scenario = scenario(&crowd(keys, ""));
        scenario.variants[0].setup.pool.as_ref().unwrap().rules.clone()
    };
    let now = rules("affinity = [['vm-1', 'vm-2']]\nanti-affinity = [['vm-3', 'vm-4']]");
    let former = rules("together = [['vm-1', 'vm-2']]\napart = [['vm-3', 'vm-4']]");
    assert_eq!((now.affinity.len(), now.anti_affinity.len()), (1, 1));
    assert_eq!(now, former);
}

#[test]
fn disks_go_where_the_load_should_be() {
    let outcome = outcome(&crowd("", ""), 1);
    let pool = outcome.pool.as_ref().unwrap();
    // The first to learn by, then the rest.
    let rounds: Vec<usize> = pool
        .rounds
        .iter()
        .map(|round| pool.moves.iter().filter(|m| m.advised == round.at).count())
        .collect();
    assert_eq!(rounds[0], 1, "{:?}", pool.moves);
    assert!(pool.moves.iter().all(|step| step.from == "slow" && step.done == Some(step.advised)));
    let on: Vec<u32> = pool.datastores.iter().map(|store| store.disks).collect();
    assert_eq!(on, [2, 4]);
    assert!(near(iops(&outcome, "slow", "before"), 500.0, 0.03), "all is there");
    assert!(near(iops(&outcome, "slow", "after"), 500.0, 0.03), "both are busy");
    assert!(near(iops(&outcome, "fast", "after"), 1_000.0, 0.03));
    let slopes: Vec<f64> =
        pool.datastores.iter().map(|s| s.model.unwrap().slope.as_millis_f64()).collect();
    // Of reads alone, which are 70 % of what the storage does.
    assert!(near(slopes[0], 2.0 / 0.7, 0.1) && near(slopes[1], 1.0 / 0.7, 0.1), "{slopes:?}");
    assert!(pool.violations == 0 && pool.copied == Bytes(0));
}

#[test]
fn by_chance_disks_move_once_and_anywhere() {
    let moves = |seed| {
        let pool = outcome(&crowd("balance = \"random\"", ""), seed).pool.unwrap();
        assert!(pool.moves.iter().all(|step| step.advised == Nanos::from_secs(20)), "once");
        assert!(pool.moves.iter().all(|step| step.to == "fast"), "all were on the other");
        pool.moves.into_iter().map(|step| step.disk).collect::<Vec<_>>()
    };
    let each: Vec<Vec<String>> = (1..=8).map(moves).collect();
    assert_eq!(each[0], moves(1));
    let moved: usize = each.iter().map(Vec::len).sum();
    // 48 disks, each with one half.
    assert!((12..=36).contains(&moved), "{each:?}");
    assert!(each.iter().any(|one| one != &each[0]), "{each:?}");
}

#[test]
fn what_a_pool_does_is_the_same_each_time_and_nothing_is_lost() {
    let text = crowd("moves = \"copy\"\ncopy-shares = 100000", "");
    let first = outcome(&text, 7);
    assert_eq!(first, outcome(&text, 7));
    let of_vms = first.subjects.iter().filter(|subject| subject.kind == SubjectKind::Vm);
    let vms: u64 = of_vms.map(|subject| subject.whole.counters.completed).sum();
    let stores = first.subjects.iter().filter(|subject| subject.kind == SubjectKind::Datastore);
    let stores: u64 = stores.map(|subject| subject.whole.counters.completed).sum();
    assert_eq!(
        vms, stores,
        "a guest's request counts once, at one datastore, copies and mirrors do not"
    );
    for subject in &first.subjects {
        let counters = subject.whole.counters;
        assert!(counters.arrived - counters.completed <= 48, "{}: {counters:?}", subject.name);
    }
}

#[test]
fn who_places_by_number_or_space_does_so() {
    let text = |place: &str| {
        crowd("balance = \"off\"", "")
            .replace(
                "disk = [{ datastore = \"slow\", size = \"1G\" }]",
                &format!("disk = [{{ place = \"{place}\", size = \"1G\" }}]"),
            )
            .replace("name = \"fast\"", "name = \"fast\"\ncapacity = \"100G\"")
            .replace("name = \"slow\"", "name = \"slow\"\ncapacity = \"10G\"")
    };
    let on = |place: &str, seed: u64| -> Vec<u32> {
        let pool = outcome(&text(place), seed).pool.unwrap();
        assert!(pool.disks.iter().all(|disk| disk.first == disk.last && disk.first.is_some()));
        pool.datastores.iter().map(|store| store.disks).collect()
    };
    assert_eq!(on("count", 1), [3, 3]);
    assert_eq!(on("space", 1), [0, 6]);
    assert_eq!(on("random", 5), on("random", 5));
    assert!((1..20).any(|seed| on("random", seed) != on("random", 1)), "by the seed");
}

#[test]
fn a_disk_without_any_place_ends_the_run() {
    let text = crowd("", "").replace(
        "disk = [{ datastore = \"slow\", size = \"1G\" }]",
        "disk = [{ place = \"space\", size = \"3000G\" }]",
    );
    let scenario = scenario(&text);
    let error = run(&scenario, "default", 1, &mut Quiet).unwrap_err();
    assert!(error.to_string().contains("no datastore of the pool has room for 'vm-3'"), "{error}");
}

#[test]
fn sweeps_measure_every_combination_on_a_new_device() {
    let text = r#"
        name = "sweep"
        title = "A sweep"
        duration = "2m"
        [[datastore]]
        name = "lun"
        device = "rate=1000,latency=1ms"
        queue-depth = 256
        [[vm]]
        name = "iometer"
        disk = [{}]
        workload = [{ kind = "closed" }]
        [[sweep]]
        name = "points"
        vm = "iometer"
        outstanding = [10, 20, 40]
        size = ["4K", "8K"]
        read = ["0%", "100%"]
        random = ["0%", "100%"]
        settle = "500ms"
        measure = "1s"
        [[expect]]
        measure = "linear-in-outstanding"
        of = "points"
        at-least = 0.999
        [[expect]]
        measure = "sweep-latency"
        of = "points"
        where = { outstanding = [20] }
        equals = "20ms"
        within = "3%"
        [[expect]]
        about = "nothing but their number matters there, and the fit finds that"
        measure = "model-error"
        of = "points"
        at-most = 0.05
        [[expect]]
        measure = "rise-with-reads"
        of = "points"
        equals = 0
        slack = 0.02
    "#;
    let scenario = scenario(text);
    let outcomes = [run(&scenario, "default", 1, &mut Quiet).unwrap()];
    assert_eq!(outcomes[0].sweeps[0].points.len(), 24);
    for verdict in judge(&scenario, &outcomes) {
        assert_eq!(verdict.judgement, headgate_sim::Judgement::Holds, "{verdict}");
    }
}

/// A disk with a limit, alone on a datastore with this queue depth: what was learnt of it.
fn limited(limit: u32, depth: u32) -> (f64, [u64; 5]) {
    let outcome = outcome(
        &format!(
            r#"
            name = "limited"
            title = "A disk that waits"
            duration = "200s"
            windows = {{ all = "0s..200s" }}
            [pool]
            sample = "2s"
            [[datastore]]
            name = "lun"
            device = "rate=500,latency=2ms"
            queue-depth = {depth}
            [[vm]]
            name = "vm"
            disk = [{{ limit = {limit}, size = "1G" }}]
            workload = [{{ kind = "closed", outstanding = 8 }}]
            "#
        ),
        1,
    );
    let pool = outcome.pool.unwrap();
    (pool.disks[0].traits.unwrap().outstanding.as_f64(), pool.datastores[0].totals.left_out)
}

#[test]
fn who_waits_for_its_limit_demands_less_than_who_waits_for_the_window() {
    use headgate_placement::LeftOut;
    // 100 a second for 2 ms each: at the device are 0.2 of the eight.
    let (outstanding, left_out) = limited(100, 32);
    assert!(outstanding < 0.4, "{outstanding}");
    assert_eq!(left_out[LeftOut::Windowed as usize], 0, "{left_out:?}");
    // This limit is far away: two slots hold six of the eight back.
    let (outstanding, left_out) = limited(2_000, 2);
    assert!(near(outstanding, 8.0, 0.07), "{outstanding}");
    assert_eq!(left_out[LeftOut::Limited as usize], 0, "{left_out:?}");
}
