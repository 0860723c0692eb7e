//! `headgate trace`: what it prints, and how it ends.

use crate::support::{Daemon, HEADGATE, Printed, run};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const MSR: &str = "\
128166372003061629,web,1,Read,7014609920,24576,41286
128166372016382155,web,1,Write,2517331968,8192,13491
128166372016853767,web,0,Read,1317441536,4096,1121
";

fn trace(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn headgate(line: &str) -> Printed {
    run(Path::new("/nonexistent"), line)
}

#[test]
fn stat_says_what_is_in_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let file = trace(dir.path(), "web.csv", MSR);
    let printed = headgate(&format!("trace stat {file}"));
    assert_eq!(printed.code, 0, "{}", printed.err);
    for said in
        [" msr\n", "3: 2 reads (28 KiB), 1 writes (8 KiB)", "1.379 s", "web_1", "reads' latency:"]
    {
        assert!(printed.out.contains(said), "{said}: {}", printed.out);
    }
    let printed = headgate(&format!("trace stat {file} --json"));
    let json: serde_json::Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!(json["report"]["format"], "msr");
    assert_eq!(json["whole"]["reads"]["requests"], 2);
    assert_eq!(json["disks"][0]["disk"], "web_1");
    assert_eq!(json["whole"]["outstanding"]["max"], 0);
}

#[test]
fn outstanding_requests_are_not_invented() {
    let dir = tempfile::tempdir().unwrap();
    let file = trace(dir.path(), "disk.trace", "0.0 0 1024 8 1\n1.25 0 1032 8 0\n");
    let printed = headgate(&format!("trace stat {file}"));
    assert!(printed.out.contains("unknown: the trace has no completion times"), "{}", printed.out);
    assert!(
        printed.out.contains("outstanding unknown, size 4 KiB, reads 50 %, random 0 %"),
        "{}",
        printed.out
    );
    let printed = headgate(&format!("trace stat {file} --json"));
    let json: serde_json::Value = serde_json::from_str(&printed.out).unwrap();
    assert!(json["whole"]["outstanding"].is_null());
    assert_eq!(json["whole"]["outstanding_unknown"], "no-latencies");
}

#[test]
fn mistakes_name_their_line_and_may_be_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = trace(dir.path(), "web.csv", &MSR.replace("2517331968", "-1"));
    let printed = headgate(&format!("trace stat {file}"));
    assert_eq!(printed.code, 1);
    assert!(
        printed.err.contains("web.csv: line 2: the offset is '-1', expected a whole number"),
        "{}",
        printed.err
    );
    assert!(
        printed.err.contains("hint: leave out what cannot be read and count it: --lenient"),
        "{}",
        printed.err
    );
    let printed = headgate(&format!("trace stat {file} --lenient"));
    assert_eq!(printed.code, 0, "{}", printed.err);
    assert!(
        printed.out.contains("1 lines of 3 were left out; the first: line 2"),
        "{}",
        printed.out
    );
    let printed = headgate(&format!("trace stat {file} --json"));
    let json: serde_json::Value = serde_json::from_str(&printed.err).unwrap();
    assert!(json["error"].as_str().unwrap().contains("line 2"));
}

#[test]
fn conversion_keeps_everything_and_overwrites_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = trace(dir.path(), "web.csv", MSR);
    let out = dir.path().join("out.csv").display().to_string();
    assert_eq!(headgate(&format!("trace convert {file} {out}")).code, 0);
    let written = std::fs::read_to_string(&out).unwrap();
    assert_eq!(
        written,
        "at_ns,disk,op,offset,bytes,latency_ns\n0,web_1,R,7014609920,24576,4128600\n\
         1332052600,web_1,W,2517331968,8192,1349100\n1379213800,web_0,R,1317441536,4096,112100\n"
    );
    assert_eq!(headgate(&format!("trace convert {file} -")).out, written);
    let again = headgate(&format!("trace convert {file} {out}"));
    assert!(
        again.code == 1 && again.err.contains("cannot write") && again.err.contains("exists"),
        "{}",
        again.err
    );
    let bad = trace(dir.path(), "bad.csv", &MSR.replace("Write", "Wrote"));
    let other = dir.path().join("other.csv");
    let printed = headgate(&format!("trace convert {bad} {}", other.display()));
    assert!(printed.code == 1 && printed.err.contains("the type is 'Wrote'"), "{}", printed.err);
    assert!(!other.exists(), "what is not finished is removed");
}

#[test]
fn what_is_no_trace_is_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let prose = trace(dir.path(), "prose.txt", "once upon a time\n");
    let printed = headgate(&format!("trace stat {prose}"));
    assert!(printed.code == 1 && printed.err.contains("--format FORMAT"), "{}", printed.err);
    let printed = headgate("trace stat /no/such/file");
    assert!(
        printed.code == 1 && printed.err.contains("cannot read /no/such/file"),
        "{}",
        printed.err
    );
    let printed = headgate(&format!("trace stat {}", dir.path().display()));
    assert!(printed.code == 2 && printed.err.contains("is a directory"), "{}", printed.err);
    let printed = headgate(&format!("trace stat {prose} --format cvs"));
    assert!(
        printed.code == 2 && printed.err.contains("expected one of csv, csv-us, vscsi"),
        "{}",
        printed.err
    );
    assert_eq!(headgate("trace stat").code, 2);
}

#[test]
fn a_conversion_that_is_stopped_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.csv");
    // Waits for more on standard input, for ever.
    let mut child = Command::new(HEADGATE)
        .args(["trace", "convert", "-"])
        .arg(&out)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(MSR.as_bytes()).unwrap();
    while !out.exists() {
        std::thread::yield_now();
    }
    // SAFETY: a signal to a child that was not waited for yet.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
    let stdin = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is removed"), "{said}");
    assert!(!out.exists());
}

#[test]
fn a_trace_is_replayed_on_a_disk_at_its_times() {
    let daemon = Daemon::start(&[]);
    daemon.ok("disk create d --size 16M");
    let dir = tempfile::tempdir().unwrap();
    // For 0.4 s every 2 ms; every tenth lies beyond the disk's end, every twentieth is longer than
    // one request may be.
    let line = |i: u64| {
        let op = ["R", "W", "R", "F", "D"][i as usize % 5];
        let offset = if i % 10 == 7 { 1 << 40 } else { i * 4_096 };
        let bytes = if i % 20 == 1 { 3 << 20 } else { 8_192 };
        format!("{},{},{op},{offset},{bytes},\n", i * 2_000_000, if i < 150 { "a" } else { "b" })
    };
    let text: String = (0..200).map(line).collect();
    let file =
        trace(dir.path(), "t.csv", &format!("at_ns,disk,op,offset,bytes,latency_ns\n{text}"));
    let nbd = format!("nbd+unix:///d?socket={}", daemon.dir().join("nbd.sock").display());
    let vhost = daemon.dir().join("vhost/d.sock").display().to_string();
    for target in [&nbd, &vhost] {
        let printed = headgate(&format!("trace replay {file} {target} --json"));
        assert_eq!(printed.code, 0, "{}{}", printed.out, printed.err);
        let report: serde_json::Value = serde_json::from_str(&printed.out).unwrap();
        let one = &report["targets"][0];
        assert_eq!(
            one["replay"],
            serde_json::json!({"requests": 160, "split": 10, "moved": 20, "left_out": 40})
        );
        // Ten requests of three parts each.
        assert_eq!(one["all"]["ios"], 180);
        assert_eq!(one["flushes"]["ios"], 40);
        assert!(
            one["seconds"].as_f64().unwrap() >= 0.39,
            "it lasts at least as long as the trace: {one}"
        );
    }
    let printed =
        headgate(&format!("trace replay {file} {nbd} --disk b --speed 1000 --reads-only --json"));
    let report: serde_json::Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!(report["targets"][0]["replay"]["requests"], 20);
    assert_eq!(report["targets"][0]["writes"]["ios"], 0);
    let printed = headgate(&format!("trace replay {file} {nbd} --disk c"));
    assert_eq!(printed.code, 1);
    assert!(
        printed.out.contains("the trace has no disk 'c'; its disks are a, b"),
        "{}{}",
        printed.out,
        printed.err
    );
    let text = headgate(&format!("trace replay {file} {nbd} --speed 1000"));
    assert!(
        text.out.contains("160 recorded requests replayed, 10 of them in parts"),
        "{}",
        text.out
    );
    assert_eq!(headgate(&format!("trace replay {file} http://x")).code, 2);
}
