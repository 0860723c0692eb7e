//! A host that stood still while its disk was taken from it writes nothing more to that disk.

use anyhow::{Context, ensure};
use headgate_lab::etcd::Etcd;
use headgate_lab::headgate::Headgate;
use headgate_lab::loop_device::Loop;
use headgate_lab::nbd::{CMD_FLUSH, CMD_WRITE, Client};
use headgate_lab::process::run;
use headgate_lab::{Lab, Server, wait_for, with_lab};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const BLOCK: usize = 4096;
/// As many as a disk's queue takes.
const BLOCKS: u64 = 200;

/// A node for a device. Two hosts have one each: locks on one do not reach the other, as they do
/// not reach from host to host.
fn make_node(lab: &Lab, device: &Path) -> anyhow::Result<PathBuf> {
    let node = lab.dir().join("lun");
    if node.exists() {
        fs::remove_file(&node)?;
    }
    let number = fs::metadata(device)?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let mut command = Command::new("mknod");
    command.arg(&node).args(["b", &major.to_string(), &minor.to_string()]);
    run(command, MINUTE)?;
    ensure!(fs::metadata(&node)?.file_type().is_block_device());
    Ok(node)
}

fn signal(name: &str, daemon: &Headgate) -> anyhow::Result<()> {
    let mut command = Command::new("kill");
    command.args([name, &daemon.pid().to_string()]);
    run(command, MINUTE).map(drop)
}

#[test]
fn an_evicted_host_that_stood_still_writes_nothing_more() {
    with_lab(&["losetup", "mknod"], |lab| {
        let file = lab.dir().join("device");
        fs::File::create(&file)?.set_len(16 << 20)?;
        let Some(device) = Loop::attach(&file) else {
            eprintln!("SKIPPED: no loop devices here");
            return Ok(());
        };
        let etcd = Etcd::start(lab)?;
        let start = |name| Headgate::start_as(lab, name, &[], &["--etcd", &etcd.url()]);
        let (mut one, mut two) = (start("one")?, start("two")?);
        let add = |host: &Headgate, node: &Path| {
            host.command(&["datastore", "add", "shared", "--block", &node.display().to_string()])
        };
        add(&one, &make_node(lab, &device.0)?)?;
        one.command(&["disk", "create", "db", "--datastore=shared", "--limit=50"])?;

        // More writes than a second takes, of which some are always on their way.
        let mut old = Client::connect(one.nbd_socket(), "db")?;
        let offset = |block: u64| block * BLOCK as u64;
        for block in 0..BLOCKS {
            old.send((CMD_WRITE, 0), block, offset(block), BLOCK as u32, &[0xaa; BLOCK])?;
        }
        old.reply()?.context("the first host hung up")?;
        signal("-STOP", &one)?;

        add(&two, &make_node(lab, &device.0)?)?;
        two.command_for(MINUTE, &["disk", "takeover", "db", "--datastore=shared", "--evict"])?;
        let mut new = Client::connect(two.nbd_socket(), "db")?;
        for block in 0..BLOCKS {
            let written = new.ask((CMD_WRITE, 0), offset(block), BLOCK as u32, &[0xbb; BLOCK])?;
            ensure!(written == Some(0), "block {block}: {written:?}");
        }
        ensure!(new.ask((CMD_FLUSH, 0), 0, 0, &[])? == Some(0));

        signal("-CONT", &one)?;
        wait_for("the first host should notice", MINUTE, || {
            Ok((one.json(&["disk", "show", "db"])?["state"] != "serving").then_some(()))
        })?;
        // What it had queued is not answered either.
        while old.reply()?.is_some() {}
        let mut theirs = Vec::new();
        for block in 0..BLOCKS {
            if new.read(offset(block), BLOCK as u32)? != [0xbb; BLOCK] {
                theirs.push(block);
            }
        }
        ensure!(theirs.is_empty(), "the former holder wrote blocks {theirs:?}");
        [&mut one, &mut two].into_iter().try_for_each(Server::stop)
    });
}
