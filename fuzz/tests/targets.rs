//! Every target on its kept inputs, its seeds and some mutations of them. Each is a process of its
//! own: an input may end one. `HEADGATE_FUZZ_MUTATIONS` asks for more.

use std::path::Path;
use std::process::Command;

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
