//! `headgate sim`: what it prints, draws and writes, and how it ends.

use crate::support::{HEADGATE, Printed, run};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

const SCENARIO: &str = r#"
name = "pair"
title = "Two VMs on 500 IOPS"
duration = "20s"
seeds = [1, 2, 3]
[windows]
late = "12s..20s"
early = "2s..10s"
[[datastore]]
name = "lun"
device = "rate=500,latency=1ms"
cost-model = "unit"
[[vm]]
name = "small"
disk = [{ shares = 100, reservation = 200 }]
workload = [{ kind = "closed", outstanding = 32 }]
[[vm]]
name = "large"
start = "10s"
disk = [{ shares = 900 }]
workload = [{ kind = "closed", outstanding = 32 }]
[[variant]]
name = "mclock"
[[variant]]
name = "sfq"
set = { "datastore.lun.scheduler" = "sfq" }
[[expect]]
about = "the reservation holds"
variant = "mclock"
measure = "iops"
of = "small"
window = "late"
equals = 200
within = "3%"
paper = 210
"#;

const FAILING: &str = r#"
[[expect]]
variant = "sfq"
measure = "iops"
of = "small"
window = "late"
at-least = 200
"#;

fn headgate(line: &str) -> Printed {
    run(Path::new("/nonexistent"), line)
}

fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_run_says_what_every_vm_got_and_judges_it() {
    let dir = tempfile::tempdir().unwrap();
    let pair = file(dir.path(), "pair.toml", SCENARIO);
    let printed = headgate(&format!("sim run {pair}"));
    assert_eq!(printed.code, 0, "{}{}", printed.out, printed.err);
    let early =
        printed.out.find("variant mclock, window early (2 s to 10 s), seeds 1, 2, 3").unwrap();
    let late =
        printed.out.find("variant mclock, window late (12 s to 20 s), seeds 1, 2, 3").unwrap();
    assert!(early < late, "windows are in the order of time: {}", printed.out);
    assert!(
        !printed.out[early..late].contains("large"),
        "who does nothing is not listed: {}",
        printed.out
    );
    assert!(printed.out[late..].contains("large"), "{}", printed.out);
    assert!(
        printed.out.contains("off paper: [mclock] iops of small in late: 200.0/s"),
        "{}",
        printed.out
    );
    assert!(printed.err.contains("6 runs,"), "{}", printed.err);
}

#[test]
fn what_is_not_as_expected_ends_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let pair = file(dir.path(), "pair.toml", &(SCENARIO.to_owned() + FAILING));
    let printed = headgate(&format!("sim run {pair} --seeds 1"));
    assert_eq!(printed.code, 1, "{}", printed.out);
    assert!(printed.out.contains("FAILS: [sfq] iops of small in late: 50.00/s"), "{}", printed.out);
    assert!(printed.err.contains("error: 1 of 2 expectations do not hold"), "{}", printed.err);
    let one = headgate(&format!("sim run {pair} --variant mclock --seeds 1"));
    assert_eq!(one.code, 0, "what was not run does not fail: {}", one.err);
    assert!(one.out.contains("not run: [sfq]"), "{}", one.out);
}

#[test]
fn the_same_run_prints_the_same_json_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let pair = file(dir.path(), "pair.toml", SCENARIO);
    let print = || headgate(&format!("sim run {pair} --json --seeds 4")).out;
    let first = print();
    assert_eq!(first, print());
    let json: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(json["scenario"], "pair");
    let runs: Vec<(String, u64)> = json["outcomes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| (run["variant"].as_str().unwrap().to_owned(), run["seed"].as_u64().unwrap()))
        .collect();
    let expected: Vec<(String, u64)> = ["mclock", "sfq"]
        .iter()
        .flat_map(|v| (1..=4).map(move |seed| ((*v).to_owned(), seed)))
        .collect();
    assert_eq!(runs, expected, "the order is that of the file, whichever run ended first");
    assert_eq!(json["verdicts"][0]["judgement"], "holds");
}

#[test]
fn figures_are_svg_or_png_by_their_name() {
    let dir = tempfile::tempdir().unwrap();
    let pair = file(dir.path(), "pair.toml", SCENARIO);
    let svg = dir.path().join("pair.svg");
    assert_eq!(headgate(&format!("sim run {pair} --seeds 1 --plot {}", svg.display())).code, 0);
    let drawn = std::fs::read_to_string(&svg).unwrap();
    for text in [
        "pair: mclock",
        "pair: sfq",
        "large starts",
        "throughput (IOPS)",
        "mean latency (ms)",
        "time (s)",
    ] {
        assert!(drawn.contains(text), "{text}");
    }
    let png = dir.path().join("pair.png");
    assert_eq!(headgate(&format!("sim run {pair} --seeds 1 --plot {}", png.display())).code, 0);
    assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"));
    let printed = headgate(&format!("sim run {pair} --plot pair.gif"));
    assert!(
        printed.code == 2 && printed.err.contains("neither in .svg nor in .png"),
        "{}",
        printed.err
    );
    let printed = headgate(&format!("sim run {pair} --seeds 1 --plot /no/such/dir/x.svg"));
    assert!(
        printed.code == 1 && printed.err.contains("cannot write /no/such/dir/x.svg"),
        "{}",
        printed.err
    );
}

#[test]
fn wrong_scenarios_name_the_line_and_end_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let bad = file(dir.path(), "bad.toml", &SCENARIO.replace("shares = 900", "sharez = 900"));
    let printed = headgate(&format!("sim run {bad}"));
    assert_eq!(printed.code, 2, "{}", printed.err);
    assert!(printed.err.contains("bad.toml") && printed.err.contains("sharez"), "{}", printed.err);
    let pair = file(dir.path(), "pair.toml", SCENARIO);
    let printed = headgate(&format!("sim run {pair} --variant fifo"));
    assert!(
        printed.code == 2 && printed.err.contains("expected one of mclock, sfq"),
        "{}",
        printed.err
    );
    assert_eq!(headgate(&format!("sim run {pair} --seeds 0")).code, 2);
    let printed = headgate("sim run /no/such.toml");
    assert!(
        printed.code == 1 && printed.err.contains("cannot read /no/such.toml"),
        "{}",
        printed.err
    );
    let json = headgate(&format!("sim run {bad} --json"));
    assert!(serde_json::from_str::<Value>(&json.err).is_ok(), "{}", json.err);
}

#[test]
fn ctrl_c_ends_a_run_without_results() {
    let dir = tempfile::tempdir().unwrap();
    let long = SCENARIO.replace("\"20s\"", "\"100000s\"");
    let pair = file(dir.path(), "pair.toml", &long);
    let picture = dir.path().join("pair.svg");
    let mut child = Command::new(HEADGATE)
        .args(["sim", "run", &pair, "--plot", &picture.display().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A signal before the handler is there would end the process by itself.
    let status = format!("/proc/{}/status", child.id());
    let catches = |line: &str| {
        let mask =
            line.strip_prefix("SigCgt:").map(|mask| u64::from_str_radix(mask.trim(), 16).unwrap());
        mask.is_some_and(|mask| mask & (1 << (libc::SIGINT - 1)) != 0)
    };
    while !std::fs::read_to_string(&status).unwrap().lines().any(catches) {
        std::thread::yield_now();
    }
    // SAFETY: a signal to a child that was not waited for yet.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let said: Vec<String> =
        BufReader::new(child.stderr.take().unwrap()).lines().map(|line| line.unwrap()).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said:?}");
    assert_eq!(said, ["error: interrupted: nothing is printed or written"]);
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(printed.is_empty() && !picture.exists(), "{printed}");
}

#[test]
fn traces_are_replayed_from_beside_the_scenario() {
    let dir = tempfile::tempdir().unwrap();
    let lines: String =
        (0..500).map(|i| format!("{},d{},R,{},4096,\n", i * 2_000_000, i % 2, i * 8_192)).collect();
    file(dir.path(), "t.csv", &format!("at_ns,disk,op,offset,bytes,latency_ns\n{lines}"));
    let scenario = |trace: &str| {
        format!(
            "name = \"replay\"\ntitle = \"A trace\"\nduration = \"2s\"\n[[datastore]]\nname = \"lun\"\n\
             device = \"rate=2000,latency=1ms\"\n[[vm]]\nname = \"vm\"\ndisk = [{{}}]\n\
             workload = [{{ kind = \"replay\", trace = \"{trace}\" }}]\n"
        )
    };
    let completed = |trace: &str| -> u64 {
        let path = file(dir.path(), "replay.toml", &scenario(trace));
        let printed = headgate(&format!("sim run {path} --seeds 1 --json"));
        assert_eq!(printed.code, 0, "{}", printed.err);
        let json: Value = serde_json::from_str(&printed.out).unwrap();
        json["outcomes"][0]["subjects"][0]["whole"]["counters"]["completed"].as_u64().unwrap()
    };
    assert_eq!(completed("t.csv"), 500);
    assert_eq!(completed("t.csv#d1"), 250);
    let path = file(dir.path(), "replay.toml", &scenario("nothing.csv"));
    let printed = headgate(&format!("sim run {path}"));
    assert!(printed.code == 1 && printed.err.contains("cannot read the trace"), "{}", printed.err);
}

#[test]
fn explain_is_an_operators_calculator() {
    let line = "sim explain --disk RD:reservation=250,shares=100 --disk OLTP:reservation=250,shares=200 \
                --disk DM:shares=300,limit=1000 --capacity 250,1200,2000";
    let printed = headgate(line);
    assert_eq!(printed.code, 0, "{}", printed.err);
    assert!(
        printed.out.starts_with(
            "DISK  SHARES  RESERVATION  LIMIT  OF 250  OF 1200  OF 2000\n\
             RD       100          250      -   125 !    250 R  333.3\n\
             OLTP     200          250      -   125 !    380    666.7\n\
             DM       300            -   1000     0 0    570     1000 L\n"
        ),
        "{}",
        printed.out
    );
    assert!(
        printed.out.contains("RD: its reservation holds it up below 1500\n"),
        "{}",
        printed.out
    );
    assert!(printed.out.contains("DM: its limit holds it down from 2000 on\n"), "{}", printed.out);
    let json: Value = serde_json::from_str(&headgate(&format!("{line} --json")).out).unwrap();
    assert_eq!(
        json[0]["disks"][1]["allocations"][1],
        serde_json::json!({"iops": 380.0, "clamp": "share"})
    );

    let dir = tempfile::tempdir().unwrap();
    let pair = file(dir.path(), "pair.toml", SCENARIO);
    let printed = headgate(&format!("sim explain {pair} --capacity 500"));
    assert!(
        printed.out.starts_with("datastore lun\n") && printed.out.contains("200 R"),
        "{}",
        printed.out
    );
}

#[test]
fn explain_refuses_what_cannot_be() {
    for (line, said) in [
        ("sim explain --capacity 100", "required"),
        ("sim explain --disk a --capacity 0", "'0' is not a rate"),
        ("sim explain --disk a", "--capacity"),
        ("sim explain --disk a:limit=10,reservation=20 --capacity 100", "above the limit"),
        ("sim explain --disk a:weight=10 --capacity 100", "expected shares, reservation, limit or"),
        ("sim explain --disk a:limit=9,limit-mode=hard --capacity 100", "expected strict or soft"),
    ] {
        let printed = headgate(line);
        assert!(printed.code == 2 && printed.err.contains(said), "{line}: {}", printed.err);
    }
}

#[test]
fn the_schema_is_json() {
    let schema: Value = serde_json::from_str(&headgate("sim schema").out).unwrap();
    assert_eq!(schema["title"], "Headgate scenario");
}

#[test]
fn a_pool_is_printed_with_its_models_and_moves() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = include_str!("../../../../experiments/ba-16-subset-sum.toml");
    let pool = file(dir.path(), "ba-16-subset-sum.toml", experiment);
    let plot = dir.path().join("pool.svg");
    let printed = headgate(&format!("sim run {pool} --seeds 10 --plot {}", plot.display()));
    assert_eq!(printed.code, 0, "{}{}", printed.out, printed.err);
    for said in [
        "the pool with seed 1",
        "per outstanding read",
        "here -> there, 10 GiB, to balance load",
        "median of imbalance",
    ] {
        assert!(printed.out.contains(said), "{said}: {}", printed.out);
    }
    let drawn = std::fs::read_to_string(plot).unwrap();
    assert!(
        drawn.contains("part of the seeds")
            && drawn.contains("reads outstanding")
            && drawn.contains("<circle")
    );
}

#[test]
fn the_scenario_of_the_documentation_runs() {
    let page = include_str!("../../../../docs/simulator.md");
    let scenario =
        page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let night = file(dir.path(), "night.toml", scenario);
    let printed = headgate(&format!("sim run {night} --seeds 1"));
    assert_eq!(printed.code, 0, "{}{}", printed.out, printed.err);
    assert!(printed.out.contains("holds: [mclock]"), "{}", printed.out);
}

#[test]
fn the_picture_of_the_readme_is_what_its_command_draws() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let at = |name: &str| root.join("docs/images").join(name);
    let scratch = tempfile::tempdir().unwrap();
    let drawn = scratch.path().join("drawn.svg");
    let printed = headgate(&format!(
        "sim run {} --plot {}",
        at("held-reservation.toml").display(),
        drawn.display()
    ));
    assert_eq!(printed.code, 0, "{}", printed.err);
    let (drawn, kept) = (std::fs::read(drawn).unwrap(), at("held-reservation.svg"));
    assert!(
        drawn == std::fs::read(&kept).unwrap(),
        "{} is out of date: draw it again with the command in its scenario",
        kept.display()
    );
}
