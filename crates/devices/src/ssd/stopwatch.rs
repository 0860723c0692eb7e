//! How long something lasted, in parts.

use headgate_units::Nanos;

/// Adds up the time in which it runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stopwatch {
    since: Option<Nanos>,
    sum: Nanos,
}

impl Stopwatch {
    pub(super) fn start(&mut self, now: Nanos) {
        self.since.get_or_insert(now);
    }

    pub(super) fn stop(&mut self, now: Nanos) {
        if let Some(since) = self.since.take() {
            self.sum = Nanos(self.sum.0.saturating_add(now.0.saturating_sub(since.0)));
        }
    }

    /// Whether it is to run from now on.
    pub(super) fn run_while(&mut self, it_lasts: bool, now: Nanos) {
        if it_lasts { self.start(now) } else { self.stop(now) }
    }

    /// What has come together since it was last asked. It runs on if it ran.
    pub(super) fn take(&mut self, now: Nanos) -> Nanos {
        if self.since.is_some() {
            self.stop(now);
            self.start(now);
        }
        core::mem::take(&mut self.sum)
    }
}
