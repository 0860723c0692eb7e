//! What the threads of the view share with each other and with whoever looks.

use headgate_cluster::{EtcdError, Identity};
use headgate_fleet::{HostKey, View};
use headgate_units::Nanos;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// Why there is no view.
#[derive(Debug, Error)]
pub enum FleetError {
    /// A thread cannot be started.
    #[error("cannot start a thread for the view of all hosts: {0}")]
    Thread(#[from] io::Error),
    /// etcd cannot be used.
    #[error("cannot prepare the view of all hosts: {0}")]
    Etcd(#[from] EtcdError),
}

/// Where hosts meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    Etcd,
    Nowhere,
}

/// What the threads share with whoever looks.
pub(super) struct Shared {
    pub(super) own: HostKey,
    pub(super) meeting: Meeting,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    pub(super) view: View,
    /// What is wrong now.
    pub(super) error: Option<String>,
    /// Another daemon has told something in this host's name: which one, and when.
    pub(super) duplicate: Option<(String, Nanos)>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// What a host tells of itself besides what its control plane knows.
#[derive(Clone, Debug)]
pub struct Myself {
    /// Who it is.
    pub identity: Identity,
    /// Where its API is, if others can reach it.
    pub api: Option<String>,
}

/// A clock that never goes back.
pub(super) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

/// Seconds since 1970.
pub(super) fn wall() -> u64 {
    u64::try_from(clock_gettime(ClockId::Realtime).tv_sec).unwrap_or(0)
}
