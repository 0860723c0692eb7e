//! `headgate reproduce`: what it prints and writes, with which seeds and traces, and how it ends.

mod support;

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{HEADGATE, Printed, run};

fn headgate(line: &str) -> Printed {
    run(Path::new("/nonexistent"), line)
}

fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn experiments_that_ended_before_ctrl_c_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.html");
    let child = Command::new(HEADGATE)
        .args(["reproduce", "mc", "pa", "--seeds", "1", "--seeds-from", "9000"])
        .args(["--report", &report.display().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // There is one as soon as the first experiment has ended.
    while !report.exists() {
        std::thread::yield_now();
    }
    // SAFETY: a signal to a child that was not waited for yet.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let ended = child.wait_with_output().unwrap();
    let [out, said] = [ended.stdout, ended.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains("experiments are done, and kept"), "{said}");
    let rest = said.split("hint: 'headgate reproduce ").nth(1).expect(&said);
    assert!(rest.contains(" --seeds 1 --seeds-from 9000' runs the others"), "{said}");
    let first = out.split(':').next().unwrap();
    assert!(first.starts_with("mc-") && !rest.contains(first), "{out}{said}");
    assert!(std::fs::read_to_string(&report).unwrap().contains(&format!("id=\"{first}\"")));
}

#[test]
fn experiments_are_listed_and_found_by_the_beginning_of_their_names() {
    let printed = headgate("reproduce");
    assert!(printed.code == 0 && printed.out.contains("mc-04-reservations"), "{}", printed.out);
    let json: Value = serde_json::from_str(&headgate("reproduce --list --json").out).unwrap();
    let all = json.as_array().unwrap();
    assert!(
        all.iter().any(|one| one["name"] == "mc-04-reservations" && one["variants"][1] == "sfq")
    );
    let printed = headgate("reproduce xy");
    assert!(
        printed.code == 2 && printed.err.contains("there is no experiment 'xy'"),
        "{}",
        printed.err
    );
    assert_eq!(headgate("reproduce --all mc-04").code, 2);
}

#[test]
fn an_experiment_is_reproduced_with_a_report() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.html");
    let printed = headgate(&format!("reproduce mc-04 --seeds 1 --report {}", report.display()));
    assert_eq!(printed.code, 0, "{}{}", printed.out, printed.err);
    assert!(
        printed.out.contains("PAPER") && printed.out.contains("numbers as expected"),
        "{}",
        printed.out
    );
    for said in ["AS PUBLISHED", "within 5 % (", "mClock, dmClock", "published numbers within 20 %"]
    {
        assert!(printed.out.contains(said), "{said}: {}", printed.out);
    }
    let page = std::fs::read_to_string(&report).unwrap();
    assert!(page.contains("headgate reproduce mc-04 --seeds 1") && page.contains("<svg"));
}

#[test]
fn experiments_run_with_seeds_that_their_files_do_not_name() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.html");
    let line = format!("reproduce op-11 --seeds-from 9000 --report {} --json", report.display());
    let seeds = |options: &str| -> Value {
        let printed = headgate(&format!("{line}{options}"));
        assert_eq!(printed.code, 0, "{}", printed.err);
        serde_json::from_str::<Value>(&printed.out).unwrap()[0]["seeds"].clone()
    };
    assert_eq!(seeds(" --seeds 2"), serde_json::json!([9000, 9001]));
    let page = std::fs::read_to_string(&report).unwrap();
    assert!(page.contains("headgate reproduce op-11 --seeds 2 --seeds-from 9000"), "{page}");
    assert!(page.contains("Seeds 9000, 9001."), "{page}");
    let listed: Value = serde_json::from_str(&headgate("reproduce --list --json").out).unwrap();
    let own = listed.as_array().unwrap().iter().find(|one| one["name"] == "op-11-example").unwrap();
    let many = own["seeds"].as_array().unwrap().len() as u64;
    assert_eq!(seeds(""), Value::from_iter(9000..9000 + many));

    for options in ["", " --mutate"] {
        let beyond = format!("reproduce op-11 --seeds 2 --seeds-from {}{options}", u64::MAX);
        let printed = headgate(&beyond);
        assert_eq!(printed.code, 2, "{}", printed.err);
        let said = "there are not 2 seeds from 18446744073709551615 on";
        assert!(printed.err.contains(said), "{}", printed.err);
    }
    for (option, said) in [("1 --full", "cannot be used with"), ("-1", "'-1'"), ("x", "'x'")] {
        let printed = headgate(&format!("reproduce op-11 --seeds-from {option}"));
        assert!(printed.code == 2 && printed.err.contains(said), "{option}: {}", printed.err);
    }
}

#[test]
fn a_number_that_is_as_expected_and_not_as_published_is_no_plain_pass() {
    let printed = headgate("reproduce pa-01 --seeds 1");
    assert_eq!(printed.code, 0, "{}{}", printed.out, printed.err);
    assert!(printed.out.contains("off paper"), "{}", printed.out);
    let json: Value =
        serde_json::from_str(&headgate("reproduce pa-01 --seeds 1 --json").out).unwrap();
    let off: Vec<&Value> = json[0]["verdicts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["standing"] == "off-paper")
        .collect();
    assert_eq!(off.len(), 1, "{json}");
    assert_eq!(
        (&off[0]["judgement"], &off[0]["published"]["closeness"]),
        (&Value::from("holds"), &Value::from("differs"))
    );
    assert_eq!(
        (&json[0]["tally"]["numbers"], &json[0]["tally"]["differ"]),
        (&Value::from(1), &Value::from(1))
    );
}

#[test]
fn checks_are_tried_with_wrong_policies() {
    let printed = headgate("reproduce op-11 --mutate");
    assert_eq!(printed.code, 0, "{}{}", printed.out, printed.err);
    assert!(printed.out.contains("no-isolation"), "{}", printed.out);
    assert!(printed.out.contains("3 of 3 checks notice a wrong policy"), "{}", printed.out);
    assert_eq!(headgate("reproduce op-11 --mutate --full").code, 2);
}

#[test]
fn experiments_without_their_traces_are_skipped_aloud() {
    let printed = headgate("reproduce ba-15-traces --traces /nonexistent");
    assert_eq!(printed.code, 0, "{}{}", printed.out, printed.err);
    assert!(
        printed.out.contains("skipped: it replays traces, and /nonexistent/"),
        "{}",
        printed.out
    );
    assert!(printed.err.contains("ba-15-traces: skipped:"), "{}", printed.err);
    let json: Value =
        serde_json::from_str(&headgate("reproduce ba-15-traces --traces /nonexistent --json").out)
            .unwrap();
    assert!(json[0]["skipped"].as_str().is_some_and(|why| why.contains("is not there")), "{json}");
}
