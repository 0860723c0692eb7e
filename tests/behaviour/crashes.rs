//! A byte acknowledged is a byte kept: servers are killed at any instant, and every block that was
//! flushed is found again.

use headgate_lab::guest::{Drive, Guest, Machine, QEMU};
use headgate_lab::headgate::Headgate;
use headgate_lab::peer::{QEMU_STORAGE_DAEMON, StorageDaemon};
use headgate_lab::writer::Writer;
use headgate_lab::{DiskSpec, Server, count, tools, wait_for, with_lab};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Kills of a test, unless `HEADGATE_KILLS` says otherwise.
const KILLS: u32 = 20;
const PATIENCE: Duration = Duration::from_secs(60);
/// For a guest without KVM, which begins and verifies between its writes.
const GUEST_PATIENCE: Duration = Duration::from_secs(300);
const BLOCKS: u64 = 1024;

/// Another client of the server, besides the writer, that must get on after each crash.
pub(crate) trait Companion {
    /// Waits until it has got on since the last call.
    fn get_on(&mut self, round: u32) -> anyhow::Result<()>;
}

/// Nobody else.
struct Alone;

impl Companion for Alone {
    fn get_on(&mut self, _: u32) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Kills the server again and again while a writer writes, each time after it has had more flushes
/// acknowledged.
fn survives_being_killed(
    server: &mut dyn Server,
    disk: &str,
    companion: &mut dyn Companion,
) -> anyhow::Result<Survival> {
    let kills = count("HEADGATE_KILLS", KILLS)?;
    let writer = Writer::new(server.nbd_socket(), disk, 1, BLOCKS);
    let progress = writer.progress();
    thread::scope(|scope| {
        let writer = scope.spawn(|| writer.run());
        let outcome = (1..=kills).try_for_each(|round| {
            let more = |counter: &AtomicU64, than: u64| {
                wait_for("the writer should get on", PATIENCE, || {
                    let now = counter.load(Ordering::Relaxed);
                    Ok((now > than || writer.is_finished()).then_some(()))
                })
            };
            // Not always after the same number of flushes: the instant of death shall vary.
            let flushes = progress.flushes.load(Ordering::Relaxed);
            more(&progress.flushes, flushes + u64::from(round % 7))?;
            companion.get_on(round)?;
            server.kill()?;
            server.start_again()?;
            more(&progress.crashes, u64::from(round) - 1)
        });
        let outcome = outcome.and_then(|()| companion.get_on(0));
        progress.stop.store(true, Ordering::Relaxed);
        writer.join().expect("the writer does not panic")?;
        outcome
    })?;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (writes, crashes, held_back) =
        (count(&progress.writes), count(&progress.crashes), count(&progress.held_back));
    eprintln!(
        "{}: {crashes} crashes survived, {held_back} of them while old requests were held back, {writes} writes acknowledged",
        server.name()
    );
    anyhow::ensure!(crashes >= u64::from(kills), "only {crashes} crashes were noticed");
    Ok(Survival { crashes, held_back })
}

/// What a server went through.
struct Survival {
    crashes: u64,
    held_back: u64,
}

#[test]
fn a_peer_killed_under_nbd_writes_keeps_what_was_flushed() {
    with_lab(&[QEMU_STORAGE_DAEMON], |lab| {
        let mut server = StorageDaemon::start(lab, &[DiskSpec::mib("disk", 16)])?;
        survives_being_killed(&mut server, "disk", &mut Alone).map(drop)
    });
}

#[test]
fn a_server_that_forgets_a_flushed_block_is_caught() {
    with_lab(&[QEMU_STORAGE_DAEMON], |lab| {
        let mut server = StorageDaemon::start(lab, &[DiskSpec::mib("disk", 16)])?;
        let writer = Writer::new(server.nbd_socket(), "disk", 1, BLOCKS);
        let progress = writer.progress();
        thread::scope(|scope| {
            let writer = scope.spawn(|| writer.run());
            wait_for("flushes", PATIENCE, || {
                Ok((progress.flushes.load(Ordering::Relaxed) > 50).then_some(()))
            })?;
            server.kill()?;
            std::fs::File::options().write(true).open(server.image("disk")?)?.set_len(0)?;
            std::fs::File::options()
                .write(true)
                .open(server.image("disk")?)?
                .set_len(BLOCKS * 4096)?;
            server.start_again()?;
            let verdict = writer.join().expect("the writer does not panic");
            let verdict = format!("{:#}", verdict.expect_err("an emptied disk passed the check"));
            anyhow::ensure!(verdict.contains("holds zeroes; durable was Version"), "{verdict}");
            Ok(())
        })
    });
}

/// Writes, syncs and checks all it wrote, over and over, each time another pattern; until told to
/// stop or something is wrong.
const GUEST_LOAD: &str = r#"
(
  round=0
  while [ ! -e /tmp/stop ]; do
    round=$((round + 1))
    fio --name=crash --filename=/dev/vda --direct=1 --ioengine=libaio --iodepth=16 --thread --rw=randwrite --bsrange=4k-16k \
        --size=8m --fsync=32 --verify=crc32c --verify_fatal=1 --randseed=$round >/tmp/fio.log 2>&1 || touch /tmp/failed
    [ -e /tmp/failed ] && break
  done
  touch /tmp/done
) &
"#;

impl Companion for Guest {
    fn get_on(&mut self, round: u32) -> anyhow::Result<()> {
        let more = 20 + round % 5 * 40;
        // The fifth field of a disk's statistics: writes completed.
        let script = format!(
            "from=$(awk '{{print $5}}' /sys/block/vda/stat)
             end=$(($(date +%s) + 240))
             while [ $(awk '{{print $5}}' /sys/block/vda/stat) -lt $((from + {more})) ]; do
               if [ -e /tmp/done ]; then cat /tmp/fio.log; dmesg | tail -20; exit 1; fi
               if [ $(date +%s) -gt $end ]; then
                 echo stuck: $(cat /sys/block/vda/stat), in flight $(cat /sys/block/vda/inflight)
                 exit 1
               fi
               usleep 20000
             done"
        );
        self.run(&script, GUEST_PATIENCE).map(drop)
    }
}

#[test]
fn the_daemon_killed_under_a_guest_and_an_nbd_client_keeps_every_flushed_byte() {
    with_lab(&[QEMU, "nbdcopy"], |lab| {
        // Every eighth request comes back late: the daemon dies with old requests under way and
        // younger ones acknowledged.
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&[
            "datastore",
            "add",
            "array",
            "--emulated",
            "rate=3000,latency=1ms,depth=64,stragglers=8:100ms",
        ])?;
        for disk in ["guest", "client"] {
            daemon.command(&["disk", "create", disk, "--datastore", "array", "--size=16M"])?;
        }
        let drive = Drive::VhostUser { socket: daemon.vhost_socket("guest") };
        let mut guest = Guest::boot(lab, &Machine { cpus: 2, ..Machine::new("guest", drive) })?;
        guest.run(GUEST_LOAD, PATIENCE)?;
        let survival = survives_being_killed(&mut daemon, "client", &mut guest)?;
        anyhow::ensure!(
            survival.held_back * 2 > survival.crashes,
            "only {} of {} crashes with completions out of order",
            survival.held_back,
            survival.crashes
        );

        let script = "touch /tmp/stop; while [ ! -e /tmp/done ]; do sleep 0.1; done; cat /tmp/fio.log; test ! -e /tmp/failed";
        guest.run(script, PATIENCE)?;
        anyhow::ensure!(
            !guest.console().contains("I/O error"),
            "the guest saw IO errors:\n{}",
            guest.console()
        );
        let seen = guest.run("sha256sum /dev/vda", PATIENCE)?;
        guest.power_off()?;
        let copy = lab.dir().join("copy.raw");
        tools::nbdcopy(&daemon.nbd_uri("guest"), &copy.to_string_lossy())?;
        anyhow::ensure!(
            seen.starts_with(&tools::sha256(&copy)?),
            "the disk is not what the guest last read"
        );
        daemon.stop()
    });
}

#[test]
fn the_daemon_killed_before_anything_completed_serves_the_first_requests_after_all() {
    with_lab(&[QEMU], |lab| {
        // Each request takes two seconds: there is time to kill the daemon between the first
        // request and its completion.
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["datastore", "add", "slow", "--emulated", "rate=1000,latency=2s"])?;
        daemon.command(&["disk", "create", "disk", "--datastore", "slow", "--size=16M"])?;
        let drive = Drive::VhostUser { socket: daemon.vhost_socket("disk") };
        thread::scope(|scope| {
            let guest = scope.spawn(|| Guest::boot(lab, &Machine::new("guest", drive)));
            // The first is the firmware's, the next ones are the kernel's.
            for _ in 0..3 {
                wait_for("the first request", PATIENCE, || {
                    anyhow::ensure!(
                        !guest.is_finished(),
                        "the guest booted without asking its disk"
                    );
                    let metrics = daemon.metrics()?;
                    Ok((metrics.of_disk("headgate_disk_in_flight_requests", "disk")? > 0.0)
                        .then_some(()))
                })?;
                anyhow::ensure!(
                    daemon.metrics()?.ops("disk")? == 0.0,
                    "a request has completed already"
                );
                daemon.kill()?;
                daemon.start_again()?;
            }
            let mut guest = guest.join().expect("booting does not panic")?;
            guest.run("dd if=/dev/vda of=/dev/null bs=1M count=1 iflag=direct", PATIENCE)?;
            anyhow::ensure!(
                !guest.console().contains("I/O error"),
                "IO errors:\n{}",
                guest.console()
            );
            guest.power_off()
        })?;
        daemon.stop()
    });
}
