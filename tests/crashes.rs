//! A byte acknowledged is a byte kept: servers are killed at any instant, and every block that was flushed is found again.

use headgate_lab::peer::{QEMU_STORAGE_DAEMON, StorageDaemon};
use headgate_lab::writer::Writer;
use headgate_lab::{DiskSpec, Server, wait_for, with_lab};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const KILLS: u32 = 20;
const PATIENCE: Duration = Duration::from_secs(60);
const BLOCKS: u64 = 1024;

/// Another client of the server, besides the writer, that must get on after each crash.
trait Companion {
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

/// Kills the server again and again while a writer writes, each time after it has had more flushes acknowledged.
fn survives_being_killed(
    server: &mut dyn Server,
    disk: &str,
    companion: &mut dyn Companion,
) -> anyhow::Result<()> {
    let writer = Writer::new(server.nbd_socket(), disk, 1, BLOCKS);
    let progress = writer.progress();
    thread::scope(|scope| {
        let writer = scope.spawn(|| writer.run());
        let outcome = (1..=KILLS).try_for_each(|round| {
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
    let (writes, crashes) =
        (progress.writes.load(Ordering::Relaxed), progress.crashes.load(Ordering::Relaxed));
    eprintln!("{}: {crashes} crashes survived, {writes} writes acknowledged", server.name());
    anyhow::ensure!(crashes >= u64::from(KILLS), "only {crashes} crashes were noticed");
    Ok(())
}

#[test]
fn a_peer_killed_under_nbd_writes_keeps_what_was_flushed() {
    with_lab(&[QEMU_STORAGE_DAEMON], |lab| {
        let mut server = StorageDaemon::start(lab, &[DiskSpec::mib("disk", 16)])?;
        survives_being_killed(&mut server, "disk", &mut Alone)
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
            std::fs::File::options().write(true).open(server.image("disk")?)?.set_len(BLOCKS * 4096)?;
            server.start_again()?;
            let verdict = writer.join().expect("the writer does not panic");
            let verdict = format!("{:#}", verdict.expect_err("an emptied disk passed the check"));
            anyhow::ensure!(verdict.contains("holds zeroes; durable was Version"), "{verdict}");
            Ok(())
        })
    });
}
