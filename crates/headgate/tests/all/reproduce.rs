//! `headgate reproduce`: what it prints and writes, with which seeds and traces, and how it ends.

use crate::support::{HEADGATE, Printed, run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    assert!(first.starts_with("mc-") || first.starts_with("pa-"), "{out}{said}");
    assert!(!rest.contains(first), "{out}{said}");
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
    assert!(page.contains("ours / published"), "published numbers are drawn");
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
fn claims_are_held_to_other_values_of_chosen_parameters() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.html");
    let line = format!("reproduce op-02 --sensitivity --seeds 1 --report {}", report.display());
    let printed = headgate(&line);
    assert_eq!(printed.code, 0, "{}{}", printed.out, printed.err);
    for said in ["[affine=27K]", "chunks=4K", "in part", "! does not hold there", "4 claims"] {
        assert!(printed.out.contains(said), "{said}: {}", printed.out);
    }
    let page = std::fs::read_to_string(&report).unwrap();
    assert!(page.contains("headgate reproduce op-02 --sensitivity --seeds 1"), "{page}");
    let json: Value = serde_json::from_str(&headgate(&format!("{line} --json")).out).unwrap();
    let one = &json[0];
    assert_eq!(
        (&one["experiment"], &one["seeds"]),
        (&"op-02-clean".into(), &serde_json::json!([1]))
    );
    let own: Vec<&Value> =
        one["values"].as_array().unwrap().iter().filter(|one| one["origin"] == "file").collect();
    assert!(own.len() == 1 && own[0]["value"] == "affine=27K", "{one}");
    let total = &one["claims"][3];
    assert_eq!(
        (&total["reach"], &total["at"][0]["judgement"]),
        (&"in-part".into(), &"holds".into())
    );

    // The file says that its claim holds at one point with its own seeds; with one it does not.
    let printed = headgate("reproduce op-01 --sensitivity --seeds 1");
    assert_eq!(printed.code, 0, "{}{}", printed.out, printed.err);
    assert!(
        printed.out.contains("all of it is one claim, which holds: in part"),
        "{}",
        printed.out
    );

    for (line, said) in [
        ("reproduce mc-04 --sensitivity", "none of these experiments has a [[sensitivity]]"),
        ("reproduce op-02 --sensitivity --mutate", "cannot be used with"),
        ("reproduce op-02 --sensitivity --full", "cannot be used with"),
    ] {
        let printed = headgate(line);
        assert!(printed.code == 2 && printed.err.contains(said), "{line}: {}", printed.err);
    }
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

/// Ten seconds of small requests in MSR's format; as many disks.
fn msr(disks: u32) -> String {
    let line = |i: u32| {
        let (kind, at) =
            (if i.is_multiple_of(4) { "Read" } else { "Write" }, 128_166_372_003_061_629_u64);
        let offset = u64::from(i * 7 % 1_000) * 8_192;
        format!("{},web,{},{kind},{offset},4096,100\n", at + u64::from(i) * 40_000, i % disks)
    };
    (0..2_500).map(line).collect()
}

#[test]
fn anybodys_trace_takes_the_place_of_one_that_an_experiment_replays() {
    let dir = tempfile::tempdir().unwrap();
    let web = file(dir.path(), "my web.csv", &msr(2));
    let web = |disk: &str| format!("{web}{disk}");
    let report = dir.path().join("report.html");
    let mut command = Command::new(HEADGATE);
    command.args(["reproduce", "op-05-traces", "--seeds", "1"]).env_remove("HEADGATE_TRACES");
    command.args(["--report", &report.display().to_string()]);
    for (name, disk) in [
        ("msr_hm0_cut10k_w80", ""),
        ("cloudphysics_vm_2h.csv.gz", "#web_1"),
        ("hp_ajw_1992_week", "#web_0"),
    ] {
        command.args(["--traces", &format!("{name}={}", web(disk))]);
    }
    let ended = command.output().unwrap();
    let [out, said] = [ended.stdout, ended.stderr].map(|text| String::from_utf8(text).unwrap());
    // Whatever is expected of it: it runs, and says so.
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{said}");
    let one = web("#web_1");
    assert!(out.contains(&format!("{one} in the place of cloudphysics_vm_2h.csv.gz")), "{out}");
    let table = out.split("IOPS and mean latency by variant in steady\n").nth(1).expect(&out);
    let rows: Vec<Vec<&str>> = table
        .lines()
        .take(4)
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    assert_eq!(rows[0][..4], ["NAME", "alone-F", "alone-M", "alone-E"], "{table}");
    let firsts: Vec<&str> = rows[1..].iter().map(|row| row[0]).collect();
    assert_eq!(firsts, ["F", "M", "E"], "{table}");
    assert!(rows[1][1].contains(" / ") && rows[1][2] == "-", "F runs alone, M does not: {table}");
    let page = std::fs::read_to_string(&report).unwrap();
    assert!(page.contains("in the place of hp_ajw_1992_week.csv.gz"), "{page}");
    assert!(page.contains("--seeds 1 --traces 'msr_hm0_cut10k_w80="), "{page}");
}

#[test]
fn a_trace_that_nothing_replays_is_refused_with_what_was_expected() {
    let dir = tempfile::tempdir().unwrap();
    let web = file(dir.path(), "web.csv", &msr(1));
    let notes = file(dir.path(), "notes.txt", "to do\nnothing\n");
    let refused = |names: &str, traces: &[&str]| {
        let mut command = Command::new(HEADGATE);
        command.args(["reproduce", names]).env_remove("HEADGATE_TRACES");
        for one in traces {
            command.args(["--traces", one]);
        }
        let ended = command.output().unwrap();
        assert!(ended.stdout.is_empty(), "nothing ran");
        (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
    };
    let own = |name: &str, file: &str| format!("{name}={file}");
    let hm0 = own("msr_hm0_cut10k_w80", &web);
    for (names, traces, code, said) in [
        ("op", vec![own("mine", &web)], 2, "replays a trace 'mine', expected one of cloudphysics_"),
        (
            "mc-04",
            vec![hm0.clone()],
            2,
            "those that do are ba-15-traces, op-05-traces, op-08-traces",
        ),
        ("op", vec![hm0.clone(), hm0.clone()], 2, "gives msr_hm0_cut10k_w80.csv.gz twice"),
        ("op", vec![hm0.clone()], 2, "is not replayed: op-05-traces: it replays traces, and cloud"),
        ("op", vec!["/a".into(), "/b".into()], 2, "two directories, /a and /b"),
        ("op", vec!["hm0=".into()], 2, "no file behind 'hm0='"),
        ("op", vec![own("msr_hm0_cut10k_w80", "/no/such")], 1, "cannot read the trace /no/such"),
        ("op", vec![own("msr_hm0_cut10k_w80", &format!("{web}#sdb"))], 1, "disks are web_0"),
        ("op", vec![own("msr_hm0_cut10k_w80", &notes)], 1, "expected a trace as csv, csv-us"),
    ] {
        let traces: Vec<&str> = traces.iter().map(String::as_str).collect();
        let (ended, error) = refused(names, &traces);
        assert_eq!(ended, Some(code), "{traces:?}: {error}");
        assert!(error.contains(said), "{traces:?}: {error}");
    }
}

/// Real traces, where there are any: `HEADGATE_TRACES=DIR`.
#[test]
fn real_traces_take_each_others_place() {
    let Some(dir) = std::env::var_os("HEADGATE_TRACES").map(PathBuf::from) else {
        println!("skipped: HEADGATE_TRACES=DIR says where traces are");
        return;
    };
    let published = dir.join("original/systor17.csv.gz");
    let short = dir.join("fiu_cheetah_mail_10k.csv.gz");
    if !published.exists() || !short.exists() {
        println!("skipped: {} or {} is not there", published.display(), short.display());
        return;
    }
    let printed = headgate(&format!(
        "reproduce op-05-traces --seeds 1 --traces {} --traces msr_hm0_cut10k_w80={} \
         --traces cloudphysics_vm_2h={}",
        dir.display(),
        published.display(),
        short.display()
    ));
    assert!(matches!(printed.code, 0 | 1), "{}", printed.err);
    let said = "systor17.csv.gz in the place of msr_hm0_cut10k_w80.csv.gz";
    assert!(printed.out.contains(said), "{}", printed.out);
    assert!(printed.out.contains("IOPS and mean latency by variant in steady"), "{}", printed.out);
}
