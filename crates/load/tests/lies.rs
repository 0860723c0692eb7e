//! The checker finds every lie of a lying server, and believes an honest one, however often it
//! dies.

mod common;

use common::liar::{Liar, Lie};
use common::{args, uri};
use headgate_load::{Report, run_with};

const ALWAYS: &[&str] =
    &["--verify", "--block-size", "4k", "--seed", "1", "--flush-every", "5", "--depth", "4"];

fn load(liar: &Liar, more: &[&str]) -> Report {
    let uri = uri(&liar.socket, "disk");
    let reads = if more.contains(&"--read-percent") { &[][..] } else { &["--read-percent", "40"] };
    let words: Vec<&str> = [uri.as_str()]
        .into_iter()
        .chain(ALWAYS.iter().copied())
        .chain(more.iter().copied())
        .chain(reads.iter().copied())
        .collect();
    run_with(&args(&words), &Default::default()).unwrap()
}

fn faults(report: &Report) -> String {
    report.targets[0].verification.as_ref().unwrap().first_faults.join("\n")
}

#[test]
fn an_honest_server_that_dies_again_and_again_is_believed() {
    let dir = common::tempdir();
    // Long enough for a whole check: 256 blocks in reads of up to 256 KiB.
    let liar = Liar::start(dir.path(), Lie::None, Some(300));
    let report = load(
        &liar,
        &[
            "--ios",
            "5000",
            "--reconnect",
            "10",
            "--fua-percent",
            "10",
            "--write-zeroes-percent",
            "10",
        ],
    );
    assert_eq!(report.exit_code(), 0, "{report}");
    assert!(report.targets[0].reconnects >= 15, "{report}");
    assert!(report.targets[0].verification.as_ref().unwrap().blocks_checked > 2000, "{report}");
}

#[test]
fn every_lie_is_found_out() {
    for (lie, fuse, sign) in [
        (Lie::LoseFlushed, Some(300), "a durable write is lost"),
        (Lie::Tear, None, "torn write"),
        (Lie::ReadStale, None, "stale data"),
        (Lie::Misplace, None, "misplaced write"),
        (Lie::Damage, None, "damaged data"),
    ] {
        let dir = common::tempdir();
        let liar = Liar::start(dir.path(), lie, fuse);
        let report = load(&liar, &["--ios", "2000", "--reconnect", "10"]);
        assert_eq!(report.exit_code(), 1, "{lie:?}: {report}");
        assert!(faults(&report).contains(sign), "{lie:?}: {report}");
        assert!(faults(&report).contains("block "), "{lie:?}: {report}");
    }
}

#[test]
fn a_death_ends_the_load_unless_told_to_call_again() {
    let dir = common::tempdir();
    let liar = Liar::start(dir.path(), Lie::None, Some(100));
    let report = load(&liar, &["--ios", "1000"]);
    assert_eq!(report.exit_code(), 1);
    assert!(report.targets[0].failure.as_ref().unwrap().contains("hung up"), "{report}");
}

#[test]
fn failed_writes_are_errors_and_may_have_happened() {
    let dir = common::tempdir();
    let liar = Liar::start(dir.path(), Lie::FailButWrite, None);
    let report = load(&liar, &["--ios", "1000"]);
    assert_eq!(report.exit_code(), 1);
    assert!(report.targets[0].errors[&5] > 100, "{report}");
    assert_eq!(report.targets[0].verification.as_ref().unwrap().faults, 0, "{report}");
}

#[test]
fn a_second_run_checks_what_the_first_one_left() {
    let dir = common::tempdir();
    let journal = dir.path().join("journal");
    let journal = journal.to_str().unwrap();
    let liar = Liar::start(dir.path(), Lie::None, None);
    let first = load(&liar, &["--ios", "500", "--journal", journal]);
    assert_eq!(first.exit_code(), 0, "{first}");
    let second = load(&liar, &["--ios", "1", "--read-percent", "100", "--journal", journal]);
    assert_eq!(second.exit_code(), 0, "{second}");
    assert!(second.targets[0].verification.as_ref().unwrap().blocks_checked > 100, "{second}");
    drop(liar);

    // The same journal and an empty disk.
    std::fs::remove_file(dir.path().join("liar.sock")).unwrap();
    let empty = Liar::start(dir.path(), Lie::None, None);
    let third = load(&empty, &["--ios", "1", "--read-percent", "100", "--journal", journal]);
    assert_eq!(third.exit_code(), 1, "{third}");
    assert!(faults(&third).contains("found zeroes: a durable write is lost"), "{third}");
}
