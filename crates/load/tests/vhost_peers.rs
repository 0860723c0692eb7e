//! vhost-user-blk as qemu-storage-daemon serves it.

mod common;

use common::{Peer, args, start};
use headgate_load::{Control, LoadError, Report, run_with};
use std::path::Path;
use std::process::Command;

const DISK_MIB: u64 = 16;

/// Waits for an NBD socket beside the device's: the latter takes one connection only.
fn storage_daemon(dir: &Path, device: &str) -> Option<Peer> {
    let image = dir.join("image");
    if !image.exists() {
        std::fs::File::create(&image).unwrap().set_len(DISK_MIB << 20).unwrap();
    }
    let nbd = dir.join("nbd.sock");
    let _ = std::fs::remove_file(&nbd);
    let _ = std::fs::remove_file(dir.join("vhost.sock"));
    let mut command = Command::new("qemu-storage-daemon");
    command
        .arg("--blockdev")
        .arg(format!("driver=file,node-name=disk,filename={}", image.display()));
    command.arg("--export").arg(format!(
        "type=vhost-user-blk,id=disk,node-name=disk,addr.type=unix,addr.path={},writable=on{device}",
        dir.join("vhost.sock").display()
    ));
    command.arg("--nbd-server").arg(format!("addr.type=unix,addr.path={}", nbd.display()));
    start(&mut command, &nbd)
}

fn load(dir: &Path, more: &str) -> Result<Report, LoadError> {
    let socket = dir.join("vhost.sock");
    let words: Vec<&str> =
        std::iter::once(socket.to_str().unwrap()).chain(more.split_whitespace()).collect();
    run_with(&args(&words), &Control::default())
}

#[test]
fn verified_mixed_load_is_clean_in_every_form() {
    let dir = common::tempdir();
    let Some(_peer) = storage_daemon(dir.path(), ",num-queues=4") else { return };
    for form in [
        "",
        "--queues 4",
        "--direct-descriptors",
        "--spin --depth 8",
        "--rate 20000 --sequential",
        "--priority rt/0:50,be/7:50",
    ] {
        let mixed = "--verify --read-percent 50 --block-size 4k:70,64k:30 --write-zeroes-percent 10 --flush-every 20 --ios 1200";
        let report = load(dir.path(), &format!("{mixed} {form}")).unwrap();
        assert_eq!(report.exit_code(), 0, "'{form}': {report}");
        assert_eq!(report.total.ios, 1200, "'{form}': {report}");
        assert!(report.targets[0].flushes.ios > 10 && report.targets[0].reads.ios > 400);
        assert!(report.targets[0].verification.as_ref().unwrap().blocks_checked > 1200);
    }
}

#[test]
fn what_a_device_cannot_do_is_said_before_the_load() {
    let dir = common::tempdir();
    let Some(_peer) = storage_daemon(dir.path(), ",num-queues=2") else { return };
    let fails = |more: &str| load(dir.path(), more).unwrap_err().to_string();
    assert!(fails("--queues 3").contains("has 2 queues"));
    assert!(fails("--read-percent 0 --fua-percent 1").contains("no FUA"));
    assert!(fails("--direct-descriptors --depth 512").contains("--depth 512 is too much"));
    assert!(fails("--block-size 32M --depth 1024").contains("more than 8 GiB"));
    let nowhere = tempfile::tempdir().unwrap();
    assert!(load(nowhere.path(), "").unwrap_err().to_string().contains("cannot connect"));
}

#[test]
fn a_device_that_was_killed_is_found_again_with_all_that_was_flushed() {
    let dir = common::tempdir();
    let Some(mut peer) = storage_daemon(dir.path(), "") else { return };
    let control = Control::default();
    std::thread::scope(|scope| {
        let socket = dir.path().join("vhost.sock");
        let control = &control;
        let load = scope.spawn(move || {
            let fixed =
                "--verify --read-percent 40 --flush-every 10 --seconds 60 --reconnect 30 --depth 8";
            let words: Vec<&str> =
                std::iter::once(socket.to_str().unwrap()).chain(fixed.split(' ')).collect();
            run_with(&args(&words), control).unwrap()
        });
        for kills in 0..3 {
            let flushes = control.flushes();
            while (control.flushes() < flushes + 5 || control.reconnects() < kills)
                && !load.is_finished()
            {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            peer.0.kill().unwrap();
            peer.0.wait().unwrap();
            peer = storage_daemon(dir.path(), "").unwrap();
        }
        while control.reconnects() < 3 && !load.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        control.stop();
        let report = load.join().unwrap();
        assert_eq!(report.exit_code(), 0, "{report}");
        assert_eq!(report.targets[0].reconnects, 3, "{report}");
    });
}
