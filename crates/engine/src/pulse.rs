//! Whether a shard takes its turns, for threads that must not wait for one that does not.
//!
//! A shard never blocks, unless the kernel or a client finds a way that we do not know. Then its
//! disks stand still, and that is all that may: every call of a shard is a question that has to be
//! answered within three seconds, and who asks later is told at once.

use headgate_units::Nanos;
use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// A shard that has not answered for so long stands still. A turn takes microseconds to a few
/// milliseconds; on a machine whose processors are overrun it may take some tenths of a second.
pub(crate) const STALLED: Nanos = Nanos::from_secs(3);

/// One that has answered somebody within this time is not asked for the sake of asking: on an idle
/// host each question wakes it up, and others ask it once a second.
const FRESH: Nanos = Nanos::from_millis(1_500);

/// What a shard's thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Its own work.
    Turn,
    /// It is in the kernel: it hands over requests, or waits for something to happen.
    Kernel,
    /// It works for a client of the disk with this number.
    Client(u32),
}

/// What other threads see of a shard's thread. All of it is atomic, and the shard waits for nobody.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// When the oldest question was asked that is not answered, by `CLOCK_MONOTONIC`; 0: none.
    asked: AtomicU64,
    /// When one was answered last, likewise.
    answered: AtomicU64,
    activity: AtomicU64,
    /// The number of the thread, for `/proc`.
    thread: AtomicI32,
}

const TURN: u64 = 0;
const KERNEL: u64 = 1;
const CLIENT: u64 = 2;

impl Pulse {
    /// The calling thread is the shard's.
    pub(crate) fn begin(&self) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn set(&self, activity: Activity) {
        let code = match activity {
            Activity::Turn => TURN,
            Activity::Kernel => KERNEL,
            Activity::Client(disk) => CLIENT + u64::from(disk),
        };
        self.activity.store(code, Ordering::Relaxed);
    }

    pub(crate) fn activity(&self) -> Activity {
        match self.activity.load(Ordering::Relaxed) {
            TURN => Activity::Turn,
            KERNEL => Activity::Kernel,
            // It was made of 32 bits.
            code => Activity::Client((code - CLIENT) as u32),
        }
    }

    pub(crate) fn thread(&self) -> i32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// A question goes to the shard at `now`.
    pub(crate) fn ask(&self, now: Nanos) {
        let _ = self.asked.compare_exchange(0, now.0.max(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The shard has come to a question.
    pub(crate) fn answer(&self, now: Nanos) {
        self.answered.store(now.0, Ordering::Relaxed);
        self.asked.store(0, Ordering::Relaxed);
    }

    /// Whether nothing is known of the last moment: no question waits, and none was answered.
    pub(crate) fn is_silent(&self, now: Nanos) -> bool {
        let answered = Nanos(self.answered.load(Ordering::Relaxed));
        self.asked.load(Ordering::Relaxed) == 0 && now.since(answered) >= FRESH
    }

    /// For how long the shard has stood still, if it does.
    pub(crate) fn stalled_for(&self, now: Nanos) -> Option<Nanos> {
        let asked = self.asked.load(Ordering::Relaxed);
        let waited = now.since(Nanos(asked));
        (asked != 0 && waited >= STALLED).then_some(waited)
    }
}

/// A shard that does not take its turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Its number.
    pub shard: usize,
    /// For how long.
    pub waited: Nanos,
    /// Its thread's number.
    pub thread: i32,
    /// The disk for whose client it works, if it does.
    pub disk: Option<String>,
    /// Whether it is in the kernel, where it hands over requests or waits.
    pub in_kernel: InKernel,
}

/// Where a shard stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InKernel {
    /// In the call that hands requests to the kernel.
    Yes,
    /// In a turn.
    No,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.waited.0 / 1_000_000_000;
        write!(f, "shard {} has not answered for {seconds} s", self.shard)?;
        match (&self.disk, self.in_kernel) {
            (Some(disk), _) => write!(f, ", in the service of a client of disk '{disk}'"),
            (None, InKernel::Yes) => write!(f, ", as it hands requests to the kernel"),
            (None, InKernel::No) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_oldest_question_that_waits_tells() {
        let pulse = Pulse::default();
        assert_eq!(pulse.stalled_for(Nanos::MAX), None, "nobody has asked");
        pulse.ask(Nanos::from_secs(10));
        pulse.ask(Nanos::from_secs(12));
        assert_eq!(pulse.stalled_for(Nanos::from_secs(12)), None);
        assert_eq!(pulse.stalled_for(Nanos::from_secs(13)), Some(Nanos::from_secs(3)));
        pulse.answer(Nanos::from_secs(14));
        assert_eq!(pulse.stalled_for(Nanos::MAX), None);
        // A clock that shows its origin asks, too.
        pulse.ask(Nanos::ZERO);
        assert!(!pulse.is_silent(Nanos::MAX));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Ask,
        Answer,
        Look,
    }

    proptest! {
        /// A shard stands still from some instant on, whoever asks it and whoever only looks, each
        /// second. It is found out within the time that an answer is fresh, and that a question
        /// may take, and two looks.
        #[test]
        fn a_shard_that_stands_still_is_found_whoever_asks(
            steps in prop::collection::vec(
                (1u64..1_000, prop_oneof![Just(Step::Ask), Just(Step::Answer), Just(Step::Look)]),
                0..40,
            ),
        ) {
            let (pulse, mut now) = (Pulse::default(), Nanos::from_secs(10));
            for (millis, step) in steps {
                now += Nanos::from_millis(millis);
                match step {
                    Step::Ask => pulse.ask(now),
                    Step::Answer => pulse.answer(now),
                    Step::Look if pulse.is_silent(now) => pulse.ask(now),
                    Step::Look => {}
                }
            }
            let stood = now;
            while pulse.stalled_for(now).is_none() {
                if pulse.is_silent(now) {
                    pulse.ask(now);
                }
                now += Nanos::from_secs(1);
                prop_assert!(now.since(stood) <= FRESH + STALLED + Nanos::from_secs(2));
            }
        }
    }

    #[test]
    fn activities_are_kept() {
        let pulse = Pulse::default();
        for activity in
            [Activity::Turn, Activity::Kernel, Activity::Client(0), Activity::Client(u32::MAX)]
        {
            pulse.set(activity);
            assert_eq!(pulse.activity(), activity);
        }
    }
}
