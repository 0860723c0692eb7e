//! Control of a load from another thread, and its progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The completions of one receive, for the progress line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batch {
    pub ios: u64,
    pub bytes: u64,
    pub flushes: u64,
    pub errors: u64,
}

/// Watches and ends a run from another thread.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    interrupted: Arc<AtomicBool>,
    ios: AtomicU64,
    pub(crate) bytes: AtomicU64,
    flushes: AtomicU64,
    errors: AtomicU64,
    pub(crate) reconnects: AtomicU64,
    pub(crate) ended: AtomicU64,
}

impl Control {
    /// Ends the load; a verified one still reads everything back.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the run as fast as possible, with a report of what there is.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
    }

    /// Set by a signal handler to [`interrupt`](Control::interrupt).
    pub(crate) fn interrupt_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupted)
    }

    /// Requests completed so far.
    pub fn ios(&self) -> u64 {
        self.ios.load(Ordering::Relaxed)
    }

    /// Flushes completed so far.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// Requests failed so far.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Deaths of servers survived so far.
    pub fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.is_interrupted()
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, batch: &Batch) {
        self.ios.fetch_add(batch.ios, Ordering::Relaxed);
        self.bytes.fetch_add(batch.bytes, Ordering::Relaxed);
        if batch.flushes > 0 {
            self.flushes.fetch_add(batch.flushes, Ordering::Relaxed);
        }
        if batch.errors > 0 {
            self.errors.fetch_add(batch.errors, Ordering::Relaxed);
        }
    }
}
