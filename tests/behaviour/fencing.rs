//! A host that stood still while its disk was taken from it writes nothing more to that disk.

use anyhow::{Context, ensure};
use headgate_lab::etcd::Etcd;
use headgate_lab::headgate::Headgate;
use headgate_lab::loop_device::Loop;
use headgate_lab::nbd::{CMD_FLUSH, CMD_WRITE, Client};
use headgate_lab::process::run;
use headgate_lab::{Lab, Server, count, wait_for, with_lab};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const BLOCK: usize = 4096;
/// As many as a disk's queue takes.
const BLOCKS: u64 = 200;
/// Evictions, unless `HEADGATE_EVICTIONS` says otherwise: there and back.
const EVICTIONS: u32 = 2;

/// A node for a device. Two hosts have one each: locks on one do not reach the other, as they do
/// not reach from host to host.
pub(crate) fn make_node(lab: &Lab, name: &str, device: &Path) -> anyhow::Result<PathBuf> {
    let node = lab.dir().join(name);
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

pub(crate) fn signal(name: &str, process: u32) -> anyhow::Result<()> {
    let mut command = Command::new("kill");
    command.args([name, &process.to_string()]);
    run(command, MINUTE).map(drop)
}

/// A disk that goes from host to host while the one that has it stands still.
struct Contest<'l> {
    lab: &'l Lab,
    device: Loop,
    hosts: [Headgate; 2],
}

impl<'l> Contest<'l> {
    /// Two hosts with one etcd and one device; `None`, aloud, where there are no loop devices.
    fn start(lab: &'l Lab) -> anyhow::Result<Option<(Etcd, Contest<'l>)>> {
        let file = lab.dir().join("device");
        fs::File::create(&file)?.set_len(16 << 20)?;
        let Some(device) = Loop::attach(&file) else {
            eprintln!("SKIPPED: no loop devices here");
            return Ok(None);
        };
        let etcd = Etcd::start(lab)?;
        let start = |name| Headgate::start_as(lab, name, &[], &["--etcd", &etcd.url()]);
        let hosts = [start("one")?, start("two")?];
        Ok(Some((etcd, Contest { lab, device, hosts })))
    }

    /// A datastore on the device, by a node of its own.
    fn add_datastore(&self, host: &Headgate) -> anyhow::Result<()> {
        let node = make_node(self.lab, "lun", &self.device.0)?.display().to_string();
        host.command(&["datastore", "add", "shared", "--block", &node]).map(drop)
    }

    /// The host that has the disk stands still with writes queued and under way, the other one
    /// evicts it, writes over everything and flushes, and the first goes on.
    fn round(&self, round: usize) -> anyhow::Result<()> {
        let (one, two) = (&self.hosts[round % 2], &self.hosts[(round + 1) % 2]);
        let [theirs, ours] = [2 * round + 1, 2 * round + 2].map(|byte| [byte as u8; BLOCK]);
        // More writes than a second takes, of which some are always on their way.
        let mut old = Client::connect(one.nbd_socket(), "db")?;
        let offset = |block: u64| block * BLOCK as u64;
        for block in 0..BLOCKS {
            old.send((CMD_WRITE, 0), block, offset(block), BLOCK as u32, &theirs)?;
        }
        old.reply()?.context("the first host hung up")?;
        signal("-STOP", one.pid())?;

        if round == 0 {
            self.add_datastore(two)?;
            two.command_for(MINUTE, &["disk", "takeover", "db", "--datastore=shared", "--evict"])?;
        } else {
            make_node(self.lab, "lun", &self.device.0)?;
            two.command_for(MINUTE, &["disk", "takeover", "db", "--evict"])?;
        }
        let mut new = Client::connect(two.nbd_socket(), "db")?;
        two.command(&["disk", "set", "db", "--limit=none"])?;
        for block in 0..BLOCKS {
            let written = new.ask((CMD_WRITE, 0), offset(block), BLOCK as u32, &ours)?;
            ensure!(written == Some(0), "block {block}: {written:?}");
        }
        ensure!(new.ask((CMD_FLUSH, 0), 0, 0, &[])? == Some(0));

        signal("-CONT", one.pid())?;
        wait_for("the first host should notice", MINUTE, || {
            Ok((one.json(&["disk", "show", "db"])?["state"] != "serving").then_some(()))
        })?;
        // What it had queued is not answered either.
        while old.reply()?.is_some() {}
        let mut wrong = Vec::new();
        for block in 0..BLOCKS {
            if new.read(offset(block), BLOCK as u32)? != ours {
                wrong.push(block);
            }
        }
        ensure!(wrong.is_empty(), "round {round}: the former holder wrote blocks {wrong:?}");
        two.command(&["disk", "set", "db", "--limit=50"]).map(drop)
    }
}

#[test]
fn an_evicted_host_that_stood_still_writes_nothing_more() {
    with_lab(&["losetup", "mknod"], |lab| {
        let Some((_etcd, mut contest)) = Contest::start(lab)? else { return Ok(()) };
        contest.add_datastore(&contest.hosts[0])?;
        contest.hosts[0].command(&["disk", "create", "db", "--datastore=shared", "--limit=50"])?;
        let rounds = count("HEADGATE_EVICTIONS", EVICTIONS)?;
        for round in 0..rounds as usize {
            contest.round(round)?;
        }
        eprintln!("{rounds} hosts stood still, were evicted and wrote nothing more");
        contest.hosts.iter_mut().try_for_each(Server::stop)
    });
}

/// A host that was evicted and has not heard of it takes the disk back: it asks etcd who has it,
/// and trusts nothing that it knew.
#[test]
fn an_evicted_host_that_does_not_know_takes_its_disk_back() {
    with_lab(&["losetup", "mknod"], |lab| {
        let Some((etcd, mut contest)) = Contest::start(lab)? else { return Ok(()) };
        let [one, two] = &contest.hosts;
        contest.add_datastore(one)?;
        one.command(&["disk", "create", "db", "--datastore=shared"])?;
        signal("-STOP", one.pid())?;
        contest.add_datastore(two)?;
        let take = ["disk", "takeover", "db", "--datastore=shared", "--evict"];
        two.command_for(MINUTE, &take)?;
        signal("-STOP", two.pid())?;

        // It stops the disk, for its term is over, and cannot learn whose it is.
        signal("-STOP", etcd.pid())?;
        signal("-CONT", one.pid())?;
        wait_for("the first host should stop its disk", MINUTE, || {
            Ok((one.json(&["disk", "show", "db"])?["state"] != "serving").then_some(()))
        })?;
        make_node(lab, "lun", &contest.device.0)?;
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| one.command_for(MINUTE, &take));
            let patience = std::time::Instant::now() + Duration::from_secs(1);
            wait_for("time to pass", MINUTE, || {
                let over = taken.is_finished() || std::time::Instant::now() > patience;
                Ok(over.then_some(()))
            })?;
            signal("-CONT", etcd.pid())?;
            taken.join().expect("it does not panic").map(drop)
        })?;
        let mut client = Client::connect(one.nbd_socket(), "db")?;
        ensure!(client.ask((CMD_WRITE, 0), 0, BLOCK as u32, &[7; BLOCK])? == Some(0));
        signal("-CONT", two.pid())?;
        contest.hosts.iter_mut().try_for_each(Server::stop)
    });
}
