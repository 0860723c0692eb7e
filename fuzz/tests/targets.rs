//! Every target on its kept inputs, its seeds and some mutations of them. Each is a process of its
//! own: an input may end one. `HEADGATE_FUZZ_MUTATIONS` asks for more.

use headgate_fuzz::Target;
use headgate_fuzz::drive::{Count, Until, drive};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

fn mutations(usual: u32) -> String {
    match std::env::var("HEADGATE_FUZZ_MUTATIONS") {
        Ok(text) => text,
        Err(_) => usual.to_string(),
    }
}

fn run(target: &str, usual: u32) {
    let found = Path::new(env!("CARGO_TARGET_TMPDIR")).join("found");
    let out = Command::new(env!("CARGO_BIN_EXE_headgate-fuzz"))
        .args(["run", target, "--mutations", &mutations(usual), "--found"])
        .arg(&found)
        .output()
        .unwrap();
    let said = [out.stdout, out.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    println!("{said}");
    assert!(
        out.status.success(),
        "{target}: {}; inputs that did not come back are in {}\n{said}",
        out.status,
        found.display()
    );
}

#[test]
fn api() {
    run("api", 500);
}

#[test]
fn board() {
    run("board", 20_000);
}

#[test]
fn fleet() {
    run("fleet", 20_000);
}

#[test]
fn catalog() {
    run("catalog", 3_000);
}

#[test]
fn nbd_counters() {
    run("nbd_counters", 10_000);
}

#[test]
fn nbd_negotiation() {
    run("nbd_negotiation", 20_000);
}

#[test]
fn nbd_replies() {
    run("nbd_replies", 20_000);
}

#[test]
fn nbd_requests() {
    run("nbd_requests", 10_000);
}

#[test]
fn scenario() {
    run("scenario", 2_000);
}

#[test]
fn stripe() {
    run("stripe", 5_000);
}

#[test]
fn texts() {
    run("texts", 50_000);
}

#[test]
fn trace() {
    run("trace", 20_000);
}

#[test]
fn vhost_messages() {
    run("vhost_messages", 2_000);
}

#[test]
fn vring_chain() {
    run("vring_chain", 10_000);
}

/// A target without a test would not be run by anybody.
#[test]
fn every_target_has_a_test() {
    let source = include_str!("targets.rs");
    for target in headgate_fuzz::all() {
        assert!(source.contains(&format!("run(\"{}\",", target.name)), "{}", target.name);
    }
}

/// A driver that reports nothing would be as good as none: a target that is told a wrong thing must
/// fail, and leave the input behind.
#[test]
fn an_input_that_breaks_a_promise_fails_the_run_and_is_kept() {
    let found = tempfile::tempdir().unwrap();
    let broken = Target::new("broken", 8, |input| {
        assert!(!input.contains(&b'x'), "x");
    });
    let mut count = Count::default();
    let mut drive = |target: &Target| {
        let until = Until::Mutations(100_000);
        drive(target, until, 1, found.path(), &AtomicBool::new(false), &mut count).unwrap_err()
    };
    let error = drive(&broken);
    assert!(error.to_string().contains("made it panic"), "{error}");
    let kept = headgate_fuzz::corpus::pack(found.path()).unwrap();
    assert!(kept.len() == 1 && kept[0].contains(&b'x'), "{kept:?}");
    let elsewhere = Target::new("elsewhere", 8, |input| {
        if input.contains(&b'x') {
            let thread = std::thread::spawn(|| panic!("nobody looks at this"));
            assert!(thread.join().is_err());
        }
    });
    let error = drive(&elsewhere);
    assert!(error.to_string().contains("in another thread"), "{error}");
    // What was fed until then, and the empty input of each run.
    assert!(count.kept == 2 && count.mutations >= 2, "{count:?}");
}

#[test]
fn a_run_that_is_stopped_feeds_no_more_and_counts_what_it_fed() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let stopping = Target::new("stopping", 8, |input| {
        if !input.is_empty() {
            STOP.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    let (found, mut count) = (tempfile::tempdir().unwrap(), Count::default());
    drive(&stopping, Until::Mutations(100_000), 1, found.path(), &STOP, &mut count).unwrap();
    assert!(count.kept == 1 && count.mutations < 100, "{count:?}");
    let before = count.executions();
    drive(&stopping, Until::Mutations(100_000), 1, found.path(), &STOP, &mut count).unwrap();
    assert_eq!(count.executions(), before);
}
