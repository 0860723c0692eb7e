//! Takes memory back from connections that do nothing.
//!
//! A connection keeps its buffers for its next requests. When it has been idle from one round to
//! the next, it is told to give back what it does not use. What a client has not collected stays.
//! One that holds nothing is not looked at until it does: a thousand of them cost nothing.

use super::budget::{Account, Watched};
use super::port::Reclaim;
use headgate_engine::PortRef;
use std::io;
use std::sync::Weak;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two rounds.
const ROUND: Duration = Duration::from_secs(1);

/// A connection that holds something.
struct Holder {
    account: Weak<Account>,
    port: PortRef,
    /// Of its last round.
    turns: u64,
}

type Come = (Weak<Account>, PortRef);

/// The way in for new connections. The thread that takes memory back ends with it, and with the
/// last connection.
pub(super) struct Register(Sender<Come>);

impl Register {
    /// Looks after a connection from now on.
    pub(super) fn add(&self, account: Weak<Account>, port: PortRef) {
        if let Some(found) = account.upgrade() {
            let (way, account, port) = (self.0.clone(), account.clone(), port.clone());
            found.on_held(move || send(&way, account.clone(), port.clone()));
        }
        send(&self.0, account, port);
    }
}

fn send(way: &Sender<Come>, account: Weak<Account>, port: PortRef) {
    if way.send((account, port)).is_err() {
        tracing::error!("the thread that takes memory back from NBD clients is gone");
    }
}

/// Starts the thread.
pub(super) fn start() -> io::Result<Register> {
    let (new, come) = channel();
    thread::Builder::new().name("nbd-memory".into()).spawn(move || run(&come))?;
    Ok(Register(new))
}

/// Until nobody can register any more. Where nobody holds anything it sleeps.
fn run(come: &Receiver<Come>) {
    let mut watched: Vec<Holder> = Vec::new();
    // Connections that keep coming do not put a round off.
    let mut due = Instant::now() + ROUND;
    loop {
        let next = if watched.is_empty() {
            let next = come.recv().map_err(|_| RecvTimeoutError::Disconnected);
            due = Instant::now() + ROUND;
            next
        } else {
            come.recv_timeout(due.saturating_duration_since(Instant::now()))
        };
        match next {
            Ok((account, port)) => watched.push(Holder { account, port, turns: 0 }),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if Instant::now() >= due {
            round(&mut watched);
            due = Instant::now() + ROUND;
        }
    }
}

fn round(watched: &mut Vec<Holder>) {
    watched.retain_mut(|one| {
        let Some(account) = one.account.upgrade() else { return false };
        if account.rest() == Watched::NoMore {
            return false;
        }
        let turns = account.turns();
        let is_idle = std::mem::replace(&mut one.turns, turns) == turns;
        // One that is gone drops its account.
        !is_idle || one.port.command(Box::new(Reclaim)).is_ok()
    });
}
