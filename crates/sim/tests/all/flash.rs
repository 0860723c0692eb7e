//! Flash drives in scenarios: who is told what, what is counted, what is refused.

use headgate_sim::{Quiet, Scenario, judge, run};

const THREE: &str = r#"
    name = "x"
    title = "Three writers on a drive"
    duration = "20s"
    [[datastore]]
    name = "ssd"
    device = "ssd=48M,dies=2,planes=2,aged=yes"
    scheduler = "fifo"
    [[vm]]
    name = "a"
    disk = [{ size = "16M", shares = 1000 }]
    workload = [{ kind = "closed", outstanding = 1, read = "0%" }]
    [[vm]]
    name = "b"
    disk = [{ size = "16M", shares = 3000 }]
    workload = [{ kind = "closed", outstanding = 1, read = "0%" }]
    [[vm]]
    name = "c"
    disk = [{ size = "16M", shares = 6000 }]
    workload = [{ kind = "closed", outstanding = 1, read = "0%" }]
    [[event]]
    at = "10s"
    do = "policy"
    vm = "a"
    shares = 6000
    [[variant]]
    name = "none"
    [[variant]]
    name = "static"
    set = { "datastore.ssd.device" = "ssd=48M,dies=2,planes=2,aged=yes,isolation=static" }
    [[expect]]
    measure = "own-moved"
    of = "a"
    variant = "static"
    at-least = 1
    [[expect]]
    measure = "own-moved"
    of = "a"
    variant = "none"
    at-most = 0.6
    [[expect]]
    measure = "write-amplification"
    of = "ssd"
    per = { measure = "extra-writes" }
    at-least = 1.01
"#;

fn parse(text: &str) -> Scenario {
    Scenario::parse("x.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn disks_are_owners_and_their_shares_divide_space() {
    let scenario = parse(THREE);
    let outcomes =
        ["none", "static"].map(|variant| run(&scenario, variant, 1, &mut Quiet).unwrap());
    for verdict in judge(&scenario, &outcomes) {
        assert_eq!(verdict.judgement, headgate_sim::Judgement::Holds, "{verdict}");
    }
    let [none, fixed] = &outcomes;
    // In nanoseconds times blocks: the change of shares at 10 s makes a's space as large as c's.
    let spare = |vm: &str, second: usize| {
        fixed.subject(vm).unwrap().series[second].flash.spare / 1_000_000_000
    };
    assert!(spare("c", 5) > 4 * spare("a", 5), "{} {}", spare("c", 5), spare("a", 5));
    assert!(spare("c", 15).abs_diff(spare("a", 15)) <= 1);
    let moved = |vm: &str| none.subject(vm).unwrap().whole.counters.flash;
    let all = ["a", "b", "c"].map(moved);
    let (caused, suffered) =
        all.iter().fold((0, 0), |(c, s), flash| (c + flash.moved_for, s + flash.moved));
    assert_eq!(
        caused, suffered,
        "every page that was moved was somebody's, and moved for somebody"
    );
    // By whom and of whom: rows and columns of the one table are the sums above.
    let table = none.moved_pages.as_ref().unwrap();
    assert_eq!(table.vms, ["a", "b", "c"]);
    for (vm, flash) in all.iter().enumerate() {
        assert_eq!(table.pages[vm].iter().sum::<u64>(), flash.moved_for);
        assert_eq!(table.pages.iter().map(|row| row[vm]).sum::<u64>(), flash.moved);
        assert_eq!(table.pages[vm][vm], flash.moved_own_for);
        assert!(table.pages[vm].iter().all(|&pages| pages > 0), "{table:?}");
    }
    let table = fixed.moved_pages.as_ref().unwrap();
    let others =
        (0..9).filter(|cell| cell / 3 != cell % 3).map(|cell| table.pages[cell / 3][cell % 3]);
    assert_eq!(others.sum::<u64>(), 0, "under isolation each moves its own");
    let whole = none.subject("ssd").unwrap().whole.counters.flash;
    assert_eq!(
        (whole.moved_for, whole.writes),
        (caused, all.iter().map(|flash| flash.writes).sum())
    );
}

#[test]
fn targets_and_steps_of_space_are_recorded() {
    let text = THREE.replace(
        "    [[variant]]\n    name = \"none\"",
        r#"
    [[expect]]
    variant = "dynamic"
    measure = "target-utilisation"
    of = "c"
    window = "late"
    equals = 0.872
    slack = 0.001
    [[expect]]
    variant = "dynamic"
    measure = "space-step"
    of = ["a", "b", "c"]
    window = "late"
    at-most = 1
    [[variant]]
    name = "dynamic"
    [variant.set]
    "datastore.ssd.device" = "ssd=48M,dies=2,planes=2,aged=yes,isolation=dynamic,rated=1000,targets=published"
    "interval" = "10ms"
    [[variant]]
    name = "none""#,
    );
    let text = text
        .replace("duration = \"20s\"", "duration = \"9s\"\n    windows = { late = \"2s..9s\" }");
    let text = text.replace(
        "    [[event]]\n    at = \"10s\"\n    do = \"policy\"\n    vm = \"a\"\n    shares = 6000\n",
        "",
    );
    let scenario = parse(&text);
    let outcome = run(&scenario, "dynamic", 1, &mut Quiet).unwrap();
    let verdicts = judge(&scenario, std::slice::from_ref(&outcome));
    let mine: Vec<_> =
        verdicts.iter().filter(|verdict| verdict.variant == "dynamic").take(2).collect();
    for verdict in &mine {
        assert_eq!(verdict.judgement, headgate_sim::Judgement::Holds, "{verdict}");
    }
    // A rate divided by weight: 100, 300 and 600 of 1,000.
    let target =
        |vm: &str| outcome.subject(vm).unwrap().whole.counters.flash.target_utilisation().unwrap();
    assert!(target("a") > target("b") && target("b") > target("c"));
    let without = run(&scenario, "none", 1, &mut Quiet).unwrap();
    assert_eq!(without.subject("a").unwrap().whole.counters.flash.target_utilisation(), None);
}

#[test]
fn outcomes_say_what_flash_did_only_where_there_is_some() {
    let flash = run(&parse(THREE), "none", 1, &mut Quiet).unwrap();
    assert!(serde_json::to_string(&flash).unwrap().contains("moved-own-for"));
    let without = THREE.replace("\"ssd=48M,dies=2,planes=2,aged=yes\"", "\"rate=500\"");
    let other = run(&parse(&without), "none", 1, &mut Quiet).unwrap();
    assert!(!serde_json::to_string(&other).unwrap().contains("flash"));
}

#[test]
fn a_drive_has_no_room_beyond_its_size() {
    let error = |text: &str| Scenario::parse("x.toml", text).map(|_| ()).unwrap_err().to_string();
    let said = error(&THREE.replace("\"16M\", shares = 3000", "\"17M\", shares = 3000"));
    assert!(
        said.contains("the disks on 'ssd' are 49 MiB and it has 48 MiB; give disks a smaller size"),
        "{said}"
    );
    let said = error(&THREE.replace("scheduler = \"fifo\"", "capacity = \"1G\""));
    assert!(said.contains("the device says itself that it has 48 MiB"), "{said}");
    let said = error(&THREE.replace("dies=2", "dies=99"));
    assert!(said.contains("an ssd has 1 to 64 dies, not 99"), "{said}");
    let said =
        error(&THREE.replace("read = \"0%\" }]\n    [[event]]", "hot = \"80\" }]\n    [[event]]"));
    assert!(said.contains("'80' is not a hot part; write whole percentages"), "{said}");
}
