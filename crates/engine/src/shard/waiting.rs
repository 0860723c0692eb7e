//! How the shard waits: what the [`Chooser`] is told, and what its choice means here.

use crate::clock;
use crate::waits::{Waiting, Waits};
use headgate_polling::{AWAY_AFTER, Chooser, Mode, Rule, Totals};
use headgate_units::Nanos;
use std::sync::Arc;

/// The longest busy poll before a sleep. A client on another processor that answers at once needs
/// its own wake-up first. Longer gaps are those of clients that have little to ask.
const LONGEST: Nanos = Nanos::from_micros(50);

/// Chooses, and counts what it takes to choose.
pub(crate) struct Waiter {
    chooser: Chooser,
    patience: Nanos,
    /// Requests answered.
    pub served: u64,
    away: Nanos,
    waits: Arc<Waits>,
}

impl Waiter {
    /// `seed` tells shards apart.
    pub(crate) fn new(waiting: Waiting, seed: u64, waits: Arc<Waits>) -> Waiter {
        let (rule, patience) = match waiting {
            Waiting::Adaptive => (Rule::Measured, LONGEST),
            Waiting::Plain => (Rule::Fixed(Mode::Sleep), LONGEST),
            Waiting::Poll => (Rule::Fixed(Mode::PollClient), Nanos::MAX),
            Waiting::Only(mode) => (Rule::Fixed(mode), LONGEST),
        };
        Waiter { chooser: Chooser::new(rule, seed), patience, served: 0, away: Nanos::ZERO, waits }
    }

    /// One that always sleeps.
    #[cfg(test)]
    pub(super) fn plain() -> Waiter {
        Waiter::new(Waiting::Plain, 0, Arc::default())
    }

    pub(super) fn mode(&self) -> Mode {
        self.chooser.mode()
    }

    /// How long to busy-poll before sleeping. `None`: not at all.
    pub(super) fn patience(&self) -> Option<Nanos> {
        (self.mode() != Mode::Sleep).then_some(self.patience)
    }

    /// The shard slept for so long.
    pub(super) fn slept(&mut self, time: Nanos) {
        if time > AWAY_AFTER {
            self.away += time;
        }
    }

    /// Once in every turn.
    #[inline]
    pub(super) fn after_wait(&mut self, now: Nanos) {
        if self.chooser.is_due(now) {
            self.look(now);
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&mut self, now: Nanos) {
        let cpu = clock::thread_cpu();
        self.waits.spend(self.chooser.mode(), now, self.served, cpu);
        self.chooser.look(Totals { now, away: self.away, served: self.served, cpu });
        self.waits.choose(&self.chooser);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_published_however_it_is_chosen() {
        for waiting in [Waiting::Adaptive, Waiting::Plain, Waiting::Poll] {
            let waits = Arc::<Waits>::default();
            let mut waiter = Waiter::new(waiting, 0, waits.clone());
            for millis in 0..200 {
                waiter.served += 1;
                waiter.after_wait(Nanos::from_millis(1 + millis));
            }
            let read = waits.read("0");
            assert!(read.served >= 150, "{waiting:?}: {} of 200", read.served);
            let spent: u64 = read.spent.iter().map(|(_, spent)| spent.0).sum();
            assert!(spent >= 150_000_000, "{waiting:?}: {spent} ns of 200 ms");
        }
    }
}
