//! How shards wait, as others see it. All of it is atomic, and a shard waits for nobody.

use headgate_polling::{Chooser, Mode};
use headgate_units::Nanos;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Who decides how shards wait for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// Each shard, by what it measures ([`headgate_polling`]).
    #[default]
    Adaptive,
    /// They always sleep.
    Plain,
    /// They never sleep: each takes a whole processor. For hosts that have set some aside.
    Poll,
    /// Always in this mode, with sleeps after a busy poll that found nothing. To measure one alone.
    Only(Mode),
}

/// What a shard publishes.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// The place of the incumbent in [`Mode::ALL`].
    incumbent: AtomicUsize,
    trials: AtomicU64,
    changes: AtomicU64,
    served: AtomicU64,
    cpu: AtomicU64,
    /// When [`Waits::spend`] was called last.
    last: AtomicU64,
    /// Time in each mode, in ns.
    spent: [AtomicU64; Mode::ALL.len()],
}

impl Waits {
    /// The time since the last call was spent in this mode. By the shard alone.
    pub(crate) fn spend(&self, mode: Mode, now: Nanos, served: u64, cpu: Nanos) {
        let last = self.last.swap(now.0, Ordering::Relaxed);
        if last > 0 {
            self.spent[mode as usize].fetch_add(now.0.saturating_sub(last), Ordering::Relaxed);
        }
        self.served.store(served, Ordering::Relaxed);
        self.cpu.store(cpu.0, Ordering::Relaxed);
    }

    /// What the chooser has come to.
    pub(crate) fn choose(&self, chooser: &Chooser) {
        let (trials, changes) = chooser.counts();
        self.incumbent.store(chooser.incumbent() as usize, Ordering::Relaxed);
        self.trials.store(trials, Ordering::Relaxed);
        self.changes.store(changes, Ordering::Relaxed);
    }

    /// A reading, for the shard of this name.
    pub(crate) fn read(&self, shard: &str) -> ShardWaits {
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        ShardWaits {
            shard: shard.to_owned(),
            incumbent: Mode::ALL[self.incumbent.load(Ordering::Relaxed)],
            trials: load(&self.trials),
            changes: load(&self.changes),
            served: load(&self.served),
            cpu: Nanos(load(&self.cpu)),
            spent: Mode::ALL.map(|mode| (mode, Nanos(load(&self.spent[mode as usize])))),
        }
    }
}

/// How a shard waits. Up to a millisecond old while it is busy, and as old as its last request
/// while it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardWaits {
    /// The shard's name.
    pub shard: String,
    /// The mode that it has found best.
    pub incumbent: Mode,
    /// Trials of others that ended.
    pub trials: u64,
    /// How often the incumbent changed.
    pub changes: u64,
    /// Requests answered.
    pub served: u64,
    /// Processor time of its thread.
    pub cpu: Nanos,
    /// How long it was in each mode.
    pub spent: [(Mode, Nanos); Mode::ALL.len()],
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_polling::Rule;

    #[test]
    fn time_goes_to_the_mode_that_it_was_spent_in() {
        let waits = Waits::default();
        waits.spend(Mode::Sleep, Nanos(100), 0, Nanos(1));
        waits.spend(Mode::Sleep, Nanos(130), 5, Nanos(2));
        waits.spend(Mode::HoldAnswers, Nanos(200), 9, Nanos(70));
        waits.choose(&Chooser::new(Rule::Fixed(Mode::PollClient), 0));
        let read = waits.read("shard-0");
        assert_eq!(read.spent.map(|(_, spent)| spent.0), [30, 0, 0, 70]);
        assert_eq!((read.served, read.cpu, read.incumbent), (9, Nanos(70), Mode::PollClient));
    }
}
