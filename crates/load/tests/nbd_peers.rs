//! The same load on every NBD server that is installed here.

mod common;

use common::{Peer, args, start, uri};
use headgate_load::{Control, run_with};
use std::path::Path;
use std::process::Command;

const DISK_MIB: u64 = 16;

fn image(dir: &Path) -> String {
    let image = dir.join("image");
    std::fs::File::create(&image).unwrap().set_len(DISK_MIB << 20).unwrap();
    image.to_str().unwrap().to_owned()
}

fn qemu_nbd(dir: &Path, socket: &Path) -> Option<Peer> {
    let mut command = Command::new("qemu-nbd");
    command.args(["-f", "raw", "-x", "disk", "-t", "--shared=8", "-k"]).arg(socket).arg(image(dir));
    start(&mut command, socket)
}

fn storage_daemon(dir: &Path, socket: &Path) -> Option<Peer> {
    let mut command = Command::new("qemu-storage-daemon");
    command.arg("--blockdev").arg(format!("driver=file,node-name=disk,filename={}", image(dir)));
    command.arg("--nbd-server").arg(format!("addr.type=unix,addr.path={}", socket.display()));
    command.arg("--export").arg("type=nbd,id=disk,node-name=disk,name=disk,writable=on");
    start(&mut command, socket)
}

fn nbdkit(dir: &Path, socket: &Path) -> Option<Peer> {
    let mut command = Command::new("nbdkit");
    command.arg("-f").arg("-U").arg(socket).arg("file").arg(image(dir));
    start(&mut command, socket)
}

type Start = fn(&Path, &Path) -> Option<Peer>;
const PEERS: &[(&str, Start)] =
    &[("qemu-nbd", qemu_nbd), ("qemu-storage-daemon", storage_daemon), ("nbdkit", nbdkit)];

#[test]
fn verified_mixed_load_is_clean_on_every_peer() {
    for (name, start) in PEERS {
        let dir = common::tempdir();
        let socket = dir.path().join("nbd.sock");
        let Some(_peer) = start(dir.path(), &socket) else { continue };
        for extra in [
            &["--connections", "2"][..],
            &["--structured-replies"],
            &["--sequential", "--rate", "20000"],
        ] {
            if *name == "qemu-storage-daemon" && extra[0] == "--connections" {
                // This version does not promise that connections see each other's flushes when
                // writable.
                continue;
            }
            let uri = uri(&socket, "disk");
            let fixed = "--verify --read-percent 50 --block-size 4k:70,64k:30 --write-zeroes-percent 10 --flush-every 20 --fua-percent 5 --ios 1200";
            let words: Vec<&str> = [uri.as_str()]
                .into_iter()
                .chain(fixed.split(' '))
                .chain(extra.iter().copied())
                .collect();
            let report = run_with(&args(&words), &Control::default()).unwrap();
            assert_eq!(report.exit_code(), 0, "{name} {extra:?}: {report}");
            assert_eq!(report.total.ios, 1200, "{name} {extra:?}");
            assert!(report.targets[0].flushes.ios > 10 && report.targets[0].reads.ios > 400);
            assert!(report.targets[0].verification.as_ref().unwrap().blocks_checked > 1200);
        }
    }
}

#[test]
fn what_an_export_cannot_do_is_said_before_the_load() {
    let dir = common::tempdir();
    let socket = dir.path().join("nbd.sock");
    let mut command = Command::new("nbdkit");
    command.arg("-f").arg("-r").arg("-U").arg(&socket).args(["memory", "1M"]);
    let Some(_peer) = start(&mut command, &socket) else { return };
    let uri = uri(&socket, "");
    let fails = |more: &[&str]| {
        let words: Vec<&str> = [uri.as_str()].into_iter().chain(more.iter().copied()).collect();
        let error = run_with(&args(&words), &Control::default()).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        error.to_string()
    };
    assert!(fails(&["--read-percent", "0"]).contains("read-only"));
    assert!(
        fails(&["--offset-range", "0-2M"]).contains("ends at byte 2097152, the disk at 1048576")
    );
    assert!(fails(&["--block-size", "2M"]).contains("does not fit"));
}

#[test]
fn an_unknown_export_is_named() {
    let dir = common::tempdir();
    let socket = dir.path().join("nbd.sock");
    let Some(_peer) = qemu_nbd(dir.path(), &socket) else { return };
    let uri = uri(&socket, "nobody");
    let error = run_with(&args(&[&uri]), &Control::default()).unwrap_err().to_string();
    assert!(error.contains("refuses export 'nobody'"), "{error}");
}
