//! Keeps leases in etcd, on a thread that may block on it.

use super::Eviction;
use super::lock::locked;
use headgate_cluster::lease::{Duty, LeaseError, Terms, Token};
use headgate_cluster::{Client, EtcdError, EtcdLeases, Identity, Servers};
use headgate_units::{AtomicNanos, Nanos};
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;
use tracing::{info, warn};

/// How long to wait after a failure.
const RETRY: Duration = Duration::from_millis(500);

/// After a failure, callers fail at once for this long instead of waiting again: many disks may ask
/// at the same time.
const NOT_AGAIN: Duration = Duration::from_secs(2);

/// Why leases in etcd cannot be kept.
#[derive(Debug, Error)]
pub enum KeeperError {
    /// The client cannot start.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

/// The thread's state, for callers that must not wait for it.
#[derive(Debug, Default)]
struct Known {
    /// Until when disks may be served that are held.
    until: Option<Nanos>,
    /// The disks that are held, and until when each may be served.
    held: BTreeMap<String, (Token, Arc<AtomicNanos>)>,
    /// It answered the last question.
    answers: bool,
}

impl Known {
    fn holds(&self, disk: &str, token: Token) -> bool {
        self.held.get(disk).is_some_and(|(own, _)| *own == token)
    }

    /// Takes what the leases are now. Terms of disks that are no longer held are over at once, and
    /// for ever.
    fn update<'a>(
        &mut self,
        until: Option<Nanos>,
        held: impl Iterator<Item = (&'a str, Token)>,
        answers: bool,
    ) {
        let mut before = std::mem::take(&mut self.held);
        for (disk, token) in held {
            let kept = before.remove(disk);
            let term = match kept {
                Some((own, term)) if own == token => term,
                Some((_, lost)) => {
                    lost.set(Nanos::ZERO);
                    Arc::default()
                }
                None => Arc::default(),
            };
            term.set(until.unwrap_or(Nanos::ZERO));
            self.held.insert(disk.to_owned(), (token, term));
        }
        before.values().for_each(|(_, lost)| lost.set(Nanos::ZERO));
        self.until = until;
        self.answers = answers;
    }
}

enum Command {
    Acquire(String, Eviction, Sender<Result<(Token, Duration), LeaseError>>),
    Release(String, Sender<()>),
}

/// Renews this host's leases until dropped.
pub struct Keeper {
    commands: Option<Sender<Command>>,
    known: Arc<Mutex<Known>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts without leases. Does not contact etcd before the first one is wanted.
    ///
    /// # Errors
    /// When there is no event loop or no thread to be had.
    pub fn start(etcd: Servers, own: &Identity) -> Result<Keeper, KeeperError> {
        let terms = Terms::default();
        let patience = Duration::from_nanos(terms.ttl().0 / 5);
        let leases = EtcdLeases::new(Client::new(etcd, patience)?, own, terms);
        let (commands, inbox) = channel();
        let known = Arc::new(Mutex::new(Known { answers: true, ..Known::default() }));
        let worker =
            Worker { leases, own: own.host.to_string(), terms, known: known.clone(), failed: None };
        let thread = std::thread::Builder::new()
            .name("headgate-etcd".into())
            .spawn(move || worker.run(&inbox))
            .map_err(KeeperError::Thread)?;
        Ok(Keeper { commands: Some(commands), known, thread: Some(thread) })
    }

    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        let (answer, wait) = channel();
        self.commands.as_ref()?.send(command(answer)).ok()?;
        wait.recv().ok()
    }

    /// Becomes the holder: its number, and how long to wait before the first request.
    pub(crate) fn acquire(
        &self,
        disk: &str,
        eviction: Eviction,
    ) -> Result<(Token, Duration), LeaseError> {
        let answer = self.ask(|answer| Command::Acquire(disk.to_owned(), eviction, answer));
        answer.unwrap_or(Err(LeaseError::Etcd(EtcdError::NoEndpoint)))
    }

    /// Gives a disk back. If etcd cannot be reached, its lease ends by itself.
    pub(crate) fn release(&self, disk: &str) {
        self.ask(|answer| Command::Release(disk.to_owned(), answer));
    }

    /// Until when disks that are held may be served.
    pub(crate) fn serves_until(&self) -> Option<Nanos> {
        locked(&self.known).until
    }

    /// Whether this holder may serve its disk now.
    pub(crate) fn may_serve(&self, disk: &str, token: Token, now: Nanos) -> bool {
        let known = locked(&self.known);
        known.until.is_some_and(|until| now < until) && known.holds(disk, token)
    }

    /// Until when this holder may serve its disk; `None` when it is the holder no more.
    pub(crate) fn term(&self, disk: &str, token: Token) -> Option<Arc<AtomicNanos>> {
        let known = locked(&self.known);
        let (own, term) = known.held.get(disk)?;
        (*own == token).then(|| term.clone())
    }

    /// Whether the disk is still this holder's, served or not.
    pub(crate) fn holds(&self, disk: &str, token: Token) -> bool {
        locked(&self.known).holds(disk, token)
    }

    /// Whether etcd answered the last question.
    pub(crate) fn answers(&self) -> bool {
        locked(&self.known).answers
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the keeper of leases panicked");
        }
    }
}

struct Worker {
    leases: EtcdLeases,
    /// This host.
    own: String,
    terms: Terms,
    known: Arc<Mutex<Known>>,
    /// When etcd did not answer the last question, and why.
    failed: Option<(Instant, String)>,
}

/// The clock that terms are kept by. It goes on while the machine is suspended, as etcd's does.
pub(crate) fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Nanos::from_secs(time.tv_sec.unsigned_abs()) + Nanos(time.tv_nsec.unsigned_abs())
}

impl Worker {
    fn run(mut self, inbox: &Receiver<Command>) {
        loop {
            match inbox.recv_timeout(self.pause()) {
                Ok(Command::Acquire(disk, eviction, answer)) => {
                    let outcome = self.acquire(&disk, eviction);
                    self.publish();
                    // Who asked may be gone; the lease is released by the next one, or ends with
                    // the daemon.
                    let _ = answer.send(outcome);
                }
                Ok(Command::Release(disk, answer)) => {
                    let outcome = self.leases.release(&disk);
                    self.note(outcome.err().as_ref());
                    self.publish();
                    let _ = answer.send(());
                }
                Err(RecvTimeoutError::Timeout) => self.renew(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// How long until the next renewal.
    fn pause(&mut self) -> Duration {
        if self.failed.is_some() {
            return RETRY;
        }
        let now = now();
        match self.leases.duty(now) {
            Duty::Serve { renew_at, .. } => Duration::from_nanos(renew_at.0.saturating_sub(now.0)),
            Duty::Pause { .. } => Duration::ZERO,
            Duty::Stop => RETRY,
        }
    }

    fn renew(&mut self) {
        let now = now();
        match self.leases.renew(now) {
            Ok(lost) => {
                // Without a lease there was no request to etcd.
                if self.leases.duty(now) != Duty::Stop {
                    self.note(None);
                }
                if !lost.is_empty() {
                    warn!(disks = ?lost, "leases are lost");
                }
            }
            Err(e) => self.note(Some(&e)),
        }
        self.publish();
    }

    /// Says once when etcd stops or begins to answer.
    fn note(&mut self, error: Option<&EtcdError>) {
        match error {
            Some(e) if self.failed.is_none() => warn!(error = %e, "leases cannot be renewed"),
            None if self.failed.is_some() => info!("etcd answers again"),
            _ => {}
        }
        self.failed = error.map(|error| (Instant::now(), error.to_string()));
    }

    fn publish(&mut self) {
        let now = now();
        let until = match self.leases.duty(now) {
            Duty::Serve { stop_at, .. } => Some(stop_at),
            Duty::Pause { .. } | Duty::Stop => None,
        };
        locked(&self.known).update(until, self.leases.disks(), self.failed.is_none());
    }

    fn acquire(&mut self, disk: &str, eviction: Eviction) -> Result<(Token, Duration), LeaseError> {
        if let Some((at, why)) = &self.failed
            && at.elapsed() < NOT_AGAIN
        {
            return Err(EtcdError::JustNow(why.clone()).into());
        }
        let first = self.try_acquire(disk);
        let Err(LeaseError::Held { holder, token, .. }) = &first else {
            return first.map(|token| (token, Duration::ZERO));
        };
        // The state directory is locked: an earlier daemon of this host is no more.
        let was_ours = holder.host == self.own;
        if !was_ours && eviction == Eviction::Never {
            return first.map(|token| (token, Duration::ZERO));
        }
        if !was_ours {
            warn!(disk, former = %holder, "taken by force");
        }
        self.leases.evict(disk, *token)?;
        let wait = if was_ours { Duration::ZERO } else { Duration::from_nanos(self.terms.ttl().0) };
        Ok((self.try_acquire(disk)?, wait))
    }

    fn try_acquire(&mut self, disk: &str) -> Result<Token, LeaseError> {
        let now = now();
        let outcome = self.leases.acquire(now, disk);
        match &outcome {
            Err(LeaseError::Etcd(e)) => self.note(Some(e)),
            _ => self.note(None),
        }
        outcome
    }
}
