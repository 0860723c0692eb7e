//! What requests cost, learned from what the storage did.
//!
//! # The problem
//! A declared model says what a request costs by its size. It says nothing of writes, which cost a
//! RAID-5 array four accesses, or of sequential requests, which cost it none. Disks that divide
//! such storage by declared costs do not divide its time.
//!
//! # The model
//! While the window is full the storage is busy, and its time is what the requests took:
//!
//! > T = Σ n_k·b_k + s_k·p_k
//!
//! n_k are the requests of class k sent in a stretch of T ns, s_k their bytes. The classes are
//! reads and writes, random and sequential, and requests without data. b_k and p_k are sought. The
//! cost of a request is its time as a part of that of a random read of 4 KiB, which costs one
//! reference IO. Latencies are not looked at: a write-back cache answers early what it pays for
//! later, and a device with many arms serves many requests in the time of one.
//!
//! # The fit
//! Least squares over stretches of a second or more, with these additions:
//! - Terms are held to the declared model, relative to a random read, by as much as the variance of
//!   a stretch is of how far from the model a cost may be expected. What was not observed, and what
//!   observation cannot tell apart, stays as declared.
//! - A stretch that differs from what was expected by more than a quarter, or three deviations,
//!   weighs less the more it differs: a stall is no cost of the requests beside it.
//! - Terms are taken to change slowly, a class's with the device time that is spent on it: evidence
//!   stays while nobody sends such requests. No term falls below its bound.
//! - Three such stretches in a row, longer all or shorter all, are taken for a change of the
//!   device: all of its times change by as much, and costs are in doubt again.
//!
//! # Variation
//! A scheduler that divides exactly sends the same mix all the time, and from one mix nothing can
//! be learned of its parts: least of all that they have changed. So costs are charged a little too
//! high and too low in turn, by a sign drawn for each class and stretch, and no more than what is
//! uncertain of them: an eighth at first, nothing where there is no other class to compare with or
//! no doubt left. A random read of 4 KiB costs one in every stretch.
//!
//! # Bounds
//! A request costs a sixteenth of a reference IO at least; one of a random class costs a quarter
//! beside its bytes. It costs at most 64 and one for each KiB. A cost rises by 10 % of itself in
//! a stretch and falls by 5 %: what is cheap has to be so for a while.
//!
//! # Hostile guests
//! A class is one for all disks of the datastore: who makes it dear pays for it too. Costs that
//! rise because of one guest's requests are seen in the stretches that hold them. What a guest
//! gains by cheap requests of a class, before dear ones of the same class, ends with the evidence.
//! `docs/decisions/0053-learned-costs.md` has what was tried, and what is left.
//!
//! # Complexity
//! O(1) for each request, a table look-up and a multiplication. About 3,000 multiplications a
//! stretch. Nothing is allocated but when disks are registered.
//!
//! # Source
//! Least squares with forgetting and a ridge are textbook. Persistent excitation is the term of
//! adaptive control for what variation is for. The rest is ours.

mod charging;
mod class;
// Rows and columns are numbers in what solves equations.
#[allow(clippy::needless_range_loop)]
mod factors;
#[allow(clippy::needless_range_loop)]
mod fit;
mod stretch;
mod table;
#[cfg(test)]
mod tests;
mod variation;

use crate::cost::Cost;
use crate::scheduler::Decision;
use fit::Fit;
use headgate_units::{Bytes, Nanos};
use stretch::{Sample, Stretches};
use table::REFERENCE;
use variation::Variation;

pub(crate) use charging::Charging;
pub use class::IoClass;
pub(crate) use table::{CostTable, QueuedSize};

/// A cost rises by so much of itself in a stretch,
const RISE: f64 = 0.1;

/// falls by so much,
const FALL: f64 = 0.05;

/// and one that is nothing as if it were this part of the declared.
const STEP_FROM: f64 = 1.0 / 8.0;

/// The most of any, and of a byte.
const MOST: f64 = 64.0;
const MOST_PER_BYTE: f64 = 1.0 / 1_024.0;

type PerClass = [f64; IoClass::COUNT];

/// What was learned of the costs of one datastore, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnedCosts {
    /// When learning began, on the clock of the gate's caller.
    pub since: Nanos,
    /// Busy time that was learned from.
    pub busy: Nanos,
    /// The device time of a random read of 4 KiB; zero while nothing is known.
    pub reference: Nanos,
    /// In the order of [`IoClass::ALL`].
    pub classes: [LearnedClass; IoClass::COUNT],
}

/// What was learned of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnedClass {
    /// What a request of 4 KiB costs, without the variation of the present stretch; of
    /// [`IoClass::NoData`] what any costs.
    pub small: Cost,
    /// The same of 64 KiB.
    pub large: Cost,
    /// Requests that were learned from.
    pub requests: u64,
    /// Of the busy time that was learned from, what the class had, at the costs of the time.
    pub busy: Nanos,
}

/// Learns the costs of one datastore's requests.
///
/// The [gate](crate::Gate) says what it sends and when the storage is busy. Times are its caller's
/// clock; a step back counts as no time.
#[derive(Clone, Debug)]
pub(crate) struct CostLearner {
    since: Nanos,
    stretches: Stretches,
    fit: Fit,
    variation: Variation,
    /// Reference IOs for a request and for a byte, where they have got to.
    base: PerClass,
    per_byte: PerClass,
    declared: (PerClass, PerClass),
    busy: u64,
    requests: [u64; IoClass::COUNT],
    busy_of: [u64; IoClass::COUNT],
}

impl CostLearner {
    /// Begins with the declared model: `1 + size / reference`, of 512 bytes at least.
    pub(crate) fn new(now: Nanos, reference: Bytes) -> CostLearner {
        let size = reference.0.max(512) as f64;
        let fit = Fit::new(size);
        let (base, per_byte) = fit.relative(REFERENCE.0 as f64);
        CostLearner {
            since: now,
            stretches: Stretches::new(),
            fit,
            variation: Variation::new(),
            base,
            per_byte,
            declared: (base, per_byte),
            busy: 0,
            requests: [0; IoClass::COUNT],
            busy_of: [0; IoClass::COUNT],
        }
    }

    /// What requests cost now.
    pub(crate) fn table(&self) -> CostTable {
        let (mut base, mut per_byte) = (self.base, self.per_byte);
        for class in 0..IoClass::COUNT {
            base[class] *= self.variation.of_request(class);
            per_byte[class] *= self.variation.of_byte(class);
        }
        let one = (base[0] + per_byte[0] * REFERENCE.0 as f64).max(1e-6);
        CostTable::new(base.map(|b| b / one), per_byte.map(|p| p / one))
    }

    /// The window has room: a request goes to the storage, or there is nothing to send.
    #[inline]
    pub(crate) fn decided<R>(&mut self, now: Nanos, decision: &Decision<R>) {
        match decision {
            Decision::Dispatch(sent) => self.stretches.dispatched(sent.size),
            Decision::WaitUntil(_) | Decision::Idle => self.stretches.opened(now),
        }
    }

    /// The window is full, with so many in flight. Returns what requests cost from now on where
    /// that changes.
    #[inline]
    pub(crate) fn filled(&mut self, now: Nanos, in_flight: u32) -> Option<CostTable> {
        let sent = self.stretches.filled(now, in_flight, self.variation.random())?;
        Some(self.learn(&sent))
    }

    #[inline(never)]
    fn learn(&mut self, sent: &Sample) -> CostTable {
        let device = self.fit.learn(sent);
        self.busy = self.busy.saturating_add(sent.busy.0);
        for class in 0..IoClass::COUNT {
            let requests = u64::from(sent.requests[class]);
            self.requests[class] = self.requests[class].saturating_add(requests);
            let busy = (self.fit.share(class) * sent.busy.0 as f64) as u64;
            self.busy_of[class] = self.busy_of[class].saturating_add(busy);
        }
        self.variation.next(&mut self.fit, sent, device);
        self.approach();
        self.table()
    }

    /// Moves costs towards what the fit says.
    fn approach(&mut self) {
        let (base, per_byte) = self.fit.relative(REFERENCE.0 as f64);
        for class in 0..IoClass::COUNT {
            let least = IoClass::ALL[class].least();
            let (declared, per) = (self.declared.0[class], self.declared.1[class]);
            step(&mut self.base[class], base[class].clamp(least, MOST), declared);
            step(&mut self.per_byte[class], per_byte[class].clamp(0.0, MOST_PER_BYTE), per);
        }
    }

    /// What was learned.
    pub(crate) fn report(&self) -> LearnedCosts {
        let one = (self.base[0] + self.per_byte[0] * REFERENCE.0 as f64).max(1e-6);
        let table = CostTable::new(self.base.map(|b| b / one), self.per_byte.map(|p| p / one));
        LearnedCosts {
            since: self.since,
            busy: Nanos(self.busy),
            reference: Nanos(self.fit.reference_time(REFERENCE.0 as f64) as u64),
            classes: core::array::from_fn(|index| LearnedClass {
                small: table.cost_of(IoClass::ALL[index], REFERENCE),
                large: table.cost_of(IoClass::ALL[index], Bytes::from_kib(64)),
                requests: self.requests[index],
                busy: Nanos(self.busy_of[index]),
            }),
        }
    }
}

/// Moves a cost towards another.
fn step(cost: &mut f64, towards: f64, declared: f64) {
    let from = cost.max(declared * STEP_FROM);
    *cost += (towards - *cost).clamp(-FALL * from, RISE * from);
}
