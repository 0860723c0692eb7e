//! Draining connections: closed, with their last requests still at the storage.
//!
//! A client that lost its connection connects again and writes again what was not answered. Were an
//! old write to land after that, it would undo a newer one. So a connection's requests wait until
//! those of connections that closed before it have ended.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// The draining connections of one disk. Locked for moments only, when a connection starts or
/// ends.
#[derive(Debug, Default)]
pub struct Draining {
    under_way: Mutex<usize>,
    changed: Condvar,
}

impl Draining {
    pub(super) fn begin(&self) {
        *self.lock() += 1;
    }

    pub(super) fn end(&self) {
        let mut under_way = self.lock();
        *under_way = under_way.saturating_sub(1);
        self.changed.notify_all();
    }

    pub(super) fn is_none(&self) -> bool {
        *self.lock() == 0
    }

    /// Waits until no connection drains.
    pub(super) fn wait(&self) {
        let waited = self.changed.wait_while(self.lock(), |under_way| *under_way > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Counts as a connection that drains until it is dropped.
    pub(super) fn hold(self: &Arc<Draining>) -> Hold {
        self.begin();
        Hold(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Draining::hold`].
pub(super) struct Hold(Arc<Draining>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// What drains, for every disk that has connections, by the disk's name.
#[derive(Debug, Default)]
pub(super) struct ByDisk(Mutex<HashMap<String, Weak<Draining>>>);

impl ByDisk {
    pub(super) fn of(&self, disk: &str) -> Arc<Draining> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(disk).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, draining| draining.strong_count() > 0);
        let new = Arc::new(Draining::default());
        all.insert(disk.to_owned(), Arc::downgrade(&new));
        new
    }
}
