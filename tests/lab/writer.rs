//! A client that writes through NBD with many requests under way, keeps the [`Ledger`], and after
//! each crash of the server checks the whole disk.

use crate::ledger::{BLOCK, Flush, Force, Ledger, splitmix};
use crate::nbd::{CMD_FLUSH, CMD_TRIM, CMD_WRITE, CMD_WRITE_ZEROES, Client, FLAG_FUA};
use crate::wait_for;
use anyhow::{Context, ensure};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Requests under way at once, unless the test says otherwise.
const DEPTH: usize = 16;
/// How long the server may be away.
const AWAY: Duration = Duration::from_secs(60);

/// What a writer has seen so far; shared with the test that watches it.
#[derive(Default)]
pub struct Progress {
    /// Writes, trims and zeroings acknowledged.
    pub writes: AtomicU64,
    /// Flushes acknowledged.
    pub flushes: AtomicU64,
    /// Flushes refused.
    pub refused: AtomicU64,
    /// Times the connection was lost and the disk checked.
    pub crashes: AtomicU64,
    /// Times the server died holding back a request though a younger one had been acknowledged.
    pub held_back: AtomicU64,
    /// Set by the test: come to an end.
    pub stop: AtomicBool,
}

enum Sent {
    Write(u64),
    Flush(Flush),
}

/// The writer.
pub struct Writer {
    socket: PathBuf,
    export: String,
    depth: usize,
    ledger: Ledger,
    random: u64,
    /// Has a request under way been overtaken by a younger one.
    overtaken: bool,
    refusals: Refusals,
    trims: Trims,
    /// How long it waits for an answer.
    patience: Duration,
    progress: Arc<Progress>,
}

/// What may be answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusals {
    None,
    /// Such a flush has made nothing durable.
    Flushes,
}

/// Whether it trims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trims {
    Sent,
    Never,
}

/// How a stretch of writing ended.
enum End {
    Stopped,
    Disconnected,
}

impl Writer {
    /// A writer for an export of zeroes that nobody else writes, on its first `blocks` blocks.
    pub fn new(socket: &Path, export: &str, seed: u64, blocks: u64) -> Writer {
        Writer {
            socket: socket.to_owned(),
            export: export.to_owned(),
            depth: DEPTH,
            ledger: Ledger::new(seed, blocks),
            random: seed,
            overtaken: false,
            refusals: Refusals::None,
            trims: Trims::Sent,
            patience: AWAY,
            progress: Arc::default(),
        }
    }

    /// With so many requests under way at once.
    #[must_use]
    pub fn with_depth(mut self, depth: usize) -> Writer {
        self.depth = depth;
        self
    }

    /// Whose flushes may fail: the server under the disk may have lost what it had acknowledged.
    #[must_use]
    pub fn with_refused_flushes(mut self) -> Writer {
        self.refusals = Refusals::Flushes;
        self
    }

    /// That never trims: while a disk is copied a trim leaves what is not copied yet as it is.
    #[must_use]
    pub fn without_trims(mut self) -> Writer {
        self.trims = Trims::Never;
        self
    }

    /// That waits so long for an answer: the storage under the disk may be away.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Writer {
        self.patience = patience;
        self
    }

    /// What it has done, seen from another thread.
    pub fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }

    /// Writes until told to stop, checking the disk whenever the server has been away, and once at
    /// the end.
    pub fn run(mut self) -> anyhow::Result<()> {
        self.work()
    }

    /// The same, of one that may go on later: it begins with a check.
    fn work(&mut self) -> anyhow::Result<()> {
        loop {
            let mut client = wait_for("the server should be back", AWAY, || {
                Ok(Client::connect(&self.socket, &self.export).ok())
            })?;
            client.stream.set_read_timeout(Some(self.patience))?;
            match self.check(&mut client).and_then(|()| self.write(&mut client)) {
                Ok(End::Stopped) => {
                    let mut client = Client::connect(&self.socket, &self.export)?;
                    return self.check(&mut client);
                }
                Ok(End::Disconnected) => {}
                // Killed in the middle of a check: check again.
                Err(e) if is_disconnect(&e) => {}
                Err(e) => return Err(e.context(format!("export {}", self.export))),
            }
            self.progress.crashes.fetch_add(1, Ordering::Relaxed);
            if std::mem::take(&mut self.overtaken) {
                self.progress.held_back.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Reads everything back and makes what is there durable.
    fn check(&mut self, client: &mut Client) -> anyhow::Result<()> {
        const STRIDE: u64 = 64;
        for from in (0..self.ledger.blocks()).step_by(STRIDE as usize) {
            let blocks = STRIDE.min(self.ledger.blocks() - from);
            let bytes = client.read(from * BLOCK as u64, blocks as u32 * BLOCK as u32)?;
            for (block, bytes) in (from..).zip(bytes.chunks(BLOCK)) {
                self.ledger.on_read_back(block, bytes)?;
            }
        }
        let mut flushed = client.ask((CMD_FLUSH, 0), 0, 0, &[])?;
        if self.refusals == Refusals::Flushes && flushed.is_some_and(|error| error != 0) {
            // What it had not flushed before is on the disk, as was just read.
            flushed = client.ask((CMD_FLUSH, 0), 0, 0, &[])?;
        }
        ensure!(
            flushed.is_none_or(|error| error == 0),
            "the flush after a check failed: {flushed:?}"
        );
        Ok(())
    }

    fn write(&mut self, client: &mut Client) -> anyhow::Result<End> {
        let mut under_way: HashMap<u64, Sent> = HashMap::new();
        let mut handle = 0;
        let mut youngest = 0;
        loop {
            let stopping = self.progress.stop.load(Ordering::Relaxed);
            while under_way.len() < self.depth && !stopping {
                handle += 1;
                let (sent, result) = self.send_one(client, handle);
                under_way.insert(handle, sent);
                if result.is_err() {
                    return Ok(End::Disconnected);
                }
            }
            if under_way.is_empty() {
                return Ok(End::Stopped);
            }
            let Some((error, answered)) = client.reply()? else { return Ok(End::Disconnected) };
            let sent =
                under_way.remove(&answered).context("a reply to a handle that is not under way")?;
            youngest = youngest.max(answered);
            self.overtaken = under_way.keys().any(|&handle| handle < youngest);
            if error != 0 && self.refusals == Refusals::Flushes && matches!(sent, Sent::Flush(_)) {
                self.progress.refused.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            ensure!(error == 0, "the server answered with error {error}");
            match sent {
                Sent::Write(block) => {
                    self.ledger.on_write_done(block);
                    self.progress.writes.fetch_add(1, Ordering::Relaxed);
                }
                Sent::Flush(flush) => {
                    self.ledger.on_flush_done(flush);
                    self.progress.flushes.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Sends a request of a random kind: mostly writes, now and then a flush, a trim or zeroes. A
    /// server that dies meanwhile may have seen it or not, so it counts as sent either way.
    fn send_one(&mut self, client: &mut Client, handle: u64) -> (Sent, anyhow::Result<()>) {
        let dice = self.dice(100);
        if dice < 8 {
            let flush = self.ledger.flush();
            return (Sent::Flush(flush), client.send((CMD_FLUSH, 0), handle, 0, 0, &[]));
        }
        let blocks = self.ledger.blocks();
        let mut block = self.dice(blocks);
        while self.ledger.is_busy(block) {
            block = (block + 1) % blocks;
        }
        let offset = block * BLOCK as u64;
        let length = BLOCK as u32;
        let (force, flags) =
            if dice.is_multiple_of(10) { (Force::Fua, FLAG_FUA) } else { (Force::No, 0) };
        let result = match dice {
            8..12 => {
                self.ledger.zero(block, force);
                client.send((CMD_WRITE_ZEROES, flags), handle, offset, length, &[])
            }
            // Headgate and its peers promise zeroes after a trim of whole blocks.
            12..16 if self.trims == Trims::Sent => {
                self.ledger.zero(block, Force::No);
                client.send((CMD_TRIM, 0), handle, offset, length, &[])
            }
            _ => {
                let bytes = self.ledger.write(block, force);
                client.send((CMD_WRITE, flags), handle, offset, length, &bytes)
            }
        };
        (Sent::Write(block), result)
    }

    fn dice(&mut self, sides: u64) -> u64 {
        self.random = self.random.wrapping_add(1);
        splitmix(self.random) % sides
    }
}

/// Has writers write, and check what they wrote, while something is done; they must get on before
/// it and after it, each within `patience`, and none may lose its connection. They can do so again.
pub fn beside<T>(
    writers: &mut [Writer],
    patience: Duration,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let progress: Vec<_> = writers.iter().map(Writer::progress).collect();
    progress.iter().for_each(|one| one.stop.store(false, Ordering::Relaxed));
    let outcome = thread::scope(|scope| {
        let writers: Vec<_> =
            writers.iter_mut().map(|writer| scope.spawn(|| writer.work())).collect();
        let get_on = || {
            let before: Vec<u64> =
                progress.iter().map(|one| one.flushes.load(Ordering::Relaxed)).collect();
            wait_for("the clients should get on", patience, || {
                let mut all = progress.iter().zip(&before).zip(&writers);
                let done = all.all(|((one, before), writer)| {
                    one.flushes.load(Ordering::Relaxed) > before + 3 || writer.is_finished()
                });
                Ok(done.then_some(()))
            })
        };
        let outcome = get_on().and_then(|()| work());
        let outcome = outcome.and_then(|done| get_on().map(|()| done));
        progress.iter().for_each(|one| one.stop.store(true, Ordering::Relaxed));
        for writer in writers {
            writer.join().expect("the writer does not panic")?;
        }
        outcome
    })?;
    let crashes = |one: &Arc<Progress>| one.crashes.load(Ordering::Relaxed);
    ensure!(progress.iter().all(|one| crashes(one) == 0), "a client lost its connection");
    Ok(outcome)
}

/// Is this error the end of the connection, or something that the server did wrong?
fn is_disconnect(error: &anyhow::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|e| matches!(e.kind(), UnexpectedEof | ConnectionReset | BrokenPipe))
    })
}
