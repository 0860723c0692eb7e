//! The hostile mode: what servers of other projects withstand, and that a server which does not is
//! found out.

mod common;

use common::liar::{Liar, Lie};
use common::{args, start, uri};
use headgate_load::hostile::Reaction;
use headgate_load::{Control, Report, run_with};
use std::process::Command;

fn attack(targets: &[&str], more: &[&str]) -> Report {
    let words: Vec<&str> = targets.iter().chain(more).copied().collect();
    run_with(&args(&words), &Control::default()).unwrap()
}

fn reactions<'a>(report: &'a Report, scenario: &str) -> &'a [Reaction] {
    &report.hostile.iter().find(|s| s.scenario == scenario).unwrap().reactions
}

#[test]
fn qemu_nbd_withstands_every_attack() {
    let dir = common::tempdir();
    let socket = dir.path().join("nbd.sock");
    let image = dir.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let mut command = Command::new("qemu-nbd");
    command.args(["-f", "raw", "-x", "disk", "-t", "--shared=0", "-k"]).arg(&socket).arg(&image);
    let Some(_peer) = start(&mut command, &socket) else { return };
    let report = attack(&[&uri(&socket, "disk")], &["--hostile", "all", "--depth", "4", "--json"]);
    assert_eq!(report.exit_code(), 0, "{:#?}", report.hostile);
    assert_eq!(report.hostile.len(), 25);
    assert!(report.total.ios > 0);
    assert!(matches!(reactions(&report, "unknown-export"), [Reaction::Error(_)]));
    assert_eq!(reactions(&report, "garbage-handshake"), [Reaction::Disconnected]);
    assert_eq!(reactions(&report, "half-header"), [Reaction::Silence]);
    assert_eq!(reactions(&report, "misaligned"), [Reaction::Served]);
    assert_eq!(reactions(&report, "status-flood"), [Reaction::Served]);
}

#[test]
fn a_device_is_attacked_while_another_one_is_served() {
    let dir = common::tempdir();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let mut command = Command::new("qemu-storage-daemon");
    for disk in ["a", "b"] {
        std::fs::File::create(path(&format!("{disk}.img"))).unwrap().set_len(16 << 20).unwrap();
        command
            .arg("--blockdev")
            .arg(format!("driver=file,node-name={disk},filename={}.img", path(disk)));
        let address = format!("addr.type=unix,addr.path={}", path(disk));
        command
            .arg("--export")
            .arg(format!("type=vhost-user-blk,id={disk},node-name={disk},{address},writable=on"));
    }
    let nbd = dir.path().join("nbd.sock");
    command.arg("--nbd-server").arg(format!("addr.type=unix,addr.path={}", nbd.display()));
    let Some(_peer) = start(&mut command, &nbd) else { return };
    // This peer dies of rings outside memory; the rest it withstands.
    let scenarios = "descriptor-loop,indirect-loop,out-of-range-address,zero-length,behind-the-end,unknown-request,bad-head,unknown-message";
    let report =
        attack(&[&path("a"), &path("b")], &["--hostile", scenarios, "--depth", "4", "--json"]);
    assert_eq!(report.exit_code(), 0, "{:#?}", report.hostile);
    assert_eq!(reactions(&report, "descriptor-loop"), [Reaction::Disconnected]);
    assert!(matches!(reactions(&report, "behind-the-end"), [Reaction::Error(_)]));

    let alone = run_with(&args(&[&path("a"), "--hostile", "all"]), &Control::default());
    assert!(alone.unwrap_err().to_string().contains("name a second disk"));
    let unknown =
        run_with(&args(&[&path("a"), &path("b"), "--hostile", "nonsense"]), &Control::default());
    assert!(unknown.unwrap_err().to_string().contains("descriptor-loop"));
}

#[test]
fn a_server_that_an_attack_takes_from_others_is_found_out() {
    let dir = common::tempdir();
    // It serves one client after the other: whoever comes second waits for ever.
    let liar = Liar::start(dir.path(), Lie::None, None);
    let report = attack(
        &[&uri(&liar.socket, "disk")],
        &["--hostile", "garbage-handshake", "--timeout", "1", "--json"],
    );
    assert_eq!(report.exit_code(), 1);
    assert!(report.hostile[0].failure.is_some());
}
