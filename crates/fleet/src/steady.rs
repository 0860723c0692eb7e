//! Loads that stay about the same are no news: what is told again is what has changed by more than
//! a twentieth.

use crate::{DatastoreWord, DiskWord, HostWord, Rate, Waits, Workload};
use alloc::vec::Vec;
use headgate_units::Nanos;

/// Changes of so small a part are none.
const TWENTIETH: u64 = 20;

/// What was said, unless it has become wrong by more than a twentieth, and by more than 1.
fn held(said: u64, now: u64) -> u64 {
    let far = said.abs_diff(now) > (said / TWENTIETH).max(1);
    if far || (said == 0) != (now == 0) { now } else { said }
}

fn held_rate(said: Rate, now: Rate) -> Rate {
    Rate(held(said.0, now.0))
}

fn held_time(said: Option<Nanos>, now: Option<Nanos>) -> Option<Nanos> {
    // Latencies come from histograms and jump from bucket to bucket.
    let wide = |said: Nanos, now: Nanos| said.0.abs_diff(now.0) > said.0 / 5;
    match (said, now) {
        (Some(said), Some(now)) if !wide(said, now) => Some(said),
        _ => now,
    }
}

impl HostWord {
    pub(crate) fn steadied(self, said: &HostWord) -> HostWord {
        HostWord {
            received: held_rate(said.received, self.received),
            bandwidth: held_rate(said.bandwidth, self.bandwidth),
            queued: held(said.queued, self.queued),
            ..self
        }
    }
}

/// What has a name.
pub(crate) trait Steady: Clone {
    fn name(&self) -> &str;
    /// Itself, with what was said where that is still about right.
    fn steadied(self, said: &Self) -> Self;
}

impl Steady for DatastoreWord {
    fn name(&self) -> &str {
        &self.name
    }

    fn steadied(self, said: &DatastoreWord) -> DatastoreWord {
        let space = match (said.space, self.space) {
            (Some(said), Some(now))
                if said.size == now.size && held(said.free.0, now.free.0) == said.free.0 =>
            {
                Some(said)
            }
            _ => self.space,
        };
        DatastoreWord {
            received: held_rate(said.received, self.received),
            bandwidth: held_rate(said.bandwidth, self.bandwidth),
            latency: held_time(said.latency, self.latency),
            window: crate::Thousandths(held(said.window.0, self.window.0)),
            in_flight: held(said.in_flight, self.in_flight),
            queued: held(said.queued, self.queued),
            space,
            ..self
        }
    }
}

fn held_waits(said: Option<&Waits>, now: Option<Waits>) -> Option<Waits> {
    match (said, now) {
        (Some(said), Some(now))
            if said.cause == now.cause
                && said.behind == now.behind
                && said.part.0.abs_diff(now.part.0) <= 100 =>
        {
            Some(said.clone())
        }
        (_, now) => now,
    }
}

fn held_workload(said: Option<Workload>, now: Option<Workload>) -> Option<Workload> {
    match (said, now) {
        (Some(said), Some(now))
            if held(said.outstanding.0, now.outstanding.0) == said.outstanding.0
                && held(said.size.0, now.size.0) == said.size.0
                && said.read.0.abs_diff(now.read.0) <= 50
                && said.random.0.abs_diff(now.random.0) <= 50 =>
        {
            Some(said)
        }
        _ => now,
    }
}

impl Steady for DiskWord {
    fn name(&self) -> &str {
        &self.name
    }

    fn steadied(self, said: &DiskWord) -> DiskWord {
        DiskWord {
            received: held_rate(said.received, self.received),
            bandwidth: held_rate(said.bandwidth, self.bandwidth),
            queued: held(said.queued, self.queued),
            latency: held_time(said.latency, self.latency),
            waits: held_waits(said.waits.as_ref(), self.waits),
            workload: held_workload(said.workload, self.workload),
            ..self
        }
    }
}

/// A list, with what was said of those of the same name, where that is still about right.
/// O(n log n).
pub(crate) fn steady<T: Steady>(said: &[T], now: Vec<T>) -> Vec<T> {
    let mut by_name: Vec<&T> = said.iter().collect();
    by_name.sort_by(|a, b| a.name().cmp(b.name()));
    let known = |name: &str| {
        let at = by_name.binary_search_by(|one| one.name().cmp(name)).ok()?;
        by_name.get(at).copied()
    };
    now.into_iter()
        .map(|one| match known(one.name()) {
            Some(said) => one.steadied(said),
            None => one,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// By the definition: what is shown is off by a twentieth or by 1, and never hides that
        /// something began or ended.
        #[test]
        fn what_is_held_is_about_right(said in 0u64..100_000, now in 0u64..100_000) {
            let held = held(said, now);
            prop_assert!(held.abs_diff(now) * 20 <= said.max(20), "{said} {now} {held}");
            prop_assert_eq!(held == 0, now == 0);
        }
    }
}
