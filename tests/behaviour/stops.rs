//! A machine is paused under load: its rings stop, and what was not served goes back into them.
//! Then it goes on, and all of it is served.

use anyhow::{Context, ensure};
use headgate_lab::guest::{Drive, Guest, Machine, QEMU};
use headgate_lab::headgate::Headgate;
use headgate_lab::{Server, wait_for, with_lab};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
/// Pauses, each of which must find more than so many requests.
const PAUSES: u32 = 20;
const QUEUED: u64 = 20;

/// More requests at a time than the limit lets through in a pause's time, of two priorities, so
/// that they are served in another order than they were sent. Every block is checked.
const LOAD: &str = r#"
fio --direct=1 --ioengine=libaio --thread --filename=/dev/vda --rw=randwrite --bs=4k --size=4m \
    --iodepth=48 --verify=crc32c --verify_fatal=1 --randrepeat=0 --group_reporting \
    --prioclass=2 --name=high --prio=0 --name=low --prio=7 --offset=8m >/tmp/fio.log 2>&1 &
"#;

/// Requests of the disk that are queued or at the storage.
fn outstanding(daemon: &Headgate) -> anyhow::Result<u64> {
    let stats: serde_json::Value = serde_json::from_str(&daemon.get("/v1/stats")?)?;
    let stores = stats.as_array().context("a list of datastores")?;
    let mut disks = stores.iter().filter_map(|store| store["disks"].as_array()).flatten();
    let disk = disks.find(|disk| disk["name"] == "disk").context("no such disk")?;
    disk["stats"]["outstanding"].as_u64().with_context(|| format!("none in {disk}"))
}

#[test]
fn a_machine_that_is_paused_again_and_again_loses_nothing() {
    with_lab(&[QEMU, "fio"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["disk", "create", "disk", "--size=16M", "--limit=300"])?;
        let drive = Drive::VhostUser { socket: daemon.vhost_socket("disk") };
        let mut guest = Guest::boot(lab, &Machine { cpus: 2, ..Machine::new("guest", drive) })?;
        let mut monitor = guest.monitor()?;
        guest.run(LOAD, PATIENCE)?;
        for pause in 0..PAUSES {
            wait_for("requests should wait for the limit", PATIENCE, || {
                Ok((outstanding(&daemon)? > QUEUED).then_some(()))
            })?;
            monitor.execute("stop", PATIENCE)?;
            let left = outstanding(&daemon)?;
            ensure!(left == 0, "pause {pause}: {left} requests are queued or under way");
            monitor.execute("cont", PATIENCE)?;
        }
        // The load goes on to its end, and finds what it wrote.
        let end = "while pidof fio >/dev/null; do sleep 0.1; done; cat /tmp/fio.log";
        let said = guest.run(end, PATIENCE)?;
        eprintln!("{said}");
        ensure!(said.contains("err= 0") && !said.contains("verify:"), "the load failed:\n{said}");
        ensure!(said.contains("READ:"), "nothing was verified:\n{said}");
        let console = guest.console();
        ensure!(!console.contains("I/O error"), "the guest saw IO errors:\n{console}");
        guest.power_off()?;
        daemon.stop()
    });
}
