//! Loads that stay about the same are no news: what is told again is what has changed by more than
//! a twentieth.

use crate::{DatastoreWord, DiskWord, HostWord, Rate, Thousandths, Waits, Workload};
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
            window: Thousandths(held(said.window.0, self.window.0)),
            in_flight: held(said.in_flight, self.in_flight),
            queued: held(said.queued, self.queued),
            space,
            ..self
        }
    }
}

/// Parts of waiting that differ by no more are the same.
const PART_HELD: u64 = 50;

fn held_waits(said: Option<&Waits>, now: Option<Waits>) -> Option<Waits> {
    let near = |said: Thousandths, now: Thousandths| said.0.abs_diff(now.0) <= PART_HELD;
    let same = |said: &Waits, now: &Waits| {
        let behind = match (&said.behind, &now.behind) {
            (Some(said), Some(now)) => said.disk == now.disk && near(said.part, now.part),
            (None, None) => true,
            _ => false,
        };
        behind && said.cause == now.cause && near(said.part, now.part)
    };
    match (said, now) {
        (Some(said), Some(now)) if same(said, &now) => Some(said.clone()),
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

        /// Whom a disk waits for is right, and each part to a twentieth of its time.
        #[test]
        fn parts_of_waiting_that_are_held_are_about_right(
            parts in prop::array::uniform4(0u64..=1_000),
            others in prop::array::uniform2(0u8..3),
        ) {
            let waits = |part: u64, behind: u64, other: u8| Waits {
                cause: crate::Cause::Neighbours,
                part: Thousandths(part),
                behind: (other > 0).then(|| crate::Behind {
                    disk: alloc::format!("d{other}"),
                    part: Thousandths(behind),
                }),
            };
            let said = waits(parts[0], parts[1], others[0]);
            let now = waits(parts[2], parts[3], others[1]);
            let held = held_waits(Some(&said), Some(now.clone())).unwrap();
            prop_assert!(held.part.0.abs_diff(now.part.0) <= 50);
            let of = |waits: &Waits| waits.behind.clone().map(|one| (one.disk, one.part.0));
            match (of(&held), of(&now)) {
                (Some(held), Some(now)) => {
                    prop_assert!(held.0 == now.0 && held.1.abs_diff(now.1) <= 50);
                }
                (held, now) => prop_assert_eq!(held, now),
            }
        }
    }
}
