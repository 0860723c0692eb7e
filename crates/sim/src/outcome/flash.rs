use super::per_second;
use headgate_devices::{FlashCounters, Utilisation};
use headgate_units::Nanos;
use serde::Serialize;

/// Counters of flash drives for one disk, in pages and blocks: sums, so that intervals add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct FlashTotals {
    /// Pages that it wrote.
    pub writes: u64,
    /// Pages that were moved because it wrote, its own and others'.
    pub moved_for: u64,
    /// Of these, its own.
    pub moved_own_for: u64,
    /// Its pages that were moved, for any writer.
    pub moved: u64,
    /// Blocks that were collected because it wrote.
    pub victims: u64,
    /// Pages of those blocks.
    pub victim_pages: u64,
    /// Of these, those that were still of use.
    pub victim_valid: u64,
    /// Those blocks that held pages of several disks.
    pub victims_mixed: u64,
    /// Blocks of its over-provisioning space, or of the shared space, integrated over
    /// time, in block-nanoseconds: as of the ends of intervals.
    pub spare: u64,
    /// How full its victims are to be, in millionths, integrated over the time in which it has a
    /// target, in microseconds: as of the ends of intervals.
    #[serde(skip_serializing_if = "is_zero")]
    pub target: u64,
    /// That time, in microseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub targeted: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl FlashTotals {
    pub(super) fn each(self, other: &FlashTotals, f: impl Fn(u64, u64) -> u64) -> FlashTotals {
        FlashTotals {
            writes: f(self.writes, other.writes),
            moved_for: f(self.moved_for, other.moved_for),
            moved_own_for: f(self.moved_own_for, other.moved_own_for),
            moved: f(self.moved, other.moved),
            victims: f(self.victims, other.victims),
            victim_pages: f(self.victim_pages, other.victim_pages),
            victim_valid: f(self.victim_valid, other.victim_valid),
            victims_mixed: f(self.victims_mixed, other.victims_mixed),
            spare: f(self.spare, other.spare),
            target: f(self.target, other.target),
            targeted: f(self.targeted, other.targeted),
        }
    }

    /// Whether no flash drive did anything.
    pub fn is_nothing(&self) -> bool {
        *self == FlashTotals::default()
    }

    /// What a device counted; blocks for the time that has passed since it was asked last.
    pub(crate) fn take(
        &mut self,
        counted: &FlashCounters,
        target: Option<Utilisation>,
        passed: Nanos,
    ) {
        let targeted = if target.is_some() { passed.0 } else { 0 };
        let target = target.map_or(0, |target| u64::from(target.millionths()));
        *self = FlashTotals {
            writes: counted.writes,
            moved_for: counted.moved_for,
            moved_own_for: counted.moved_own_for,
            moved: counted.moved,
            victims: counted.victims,
            victim_pages: counted.victim_pages,
            victim_valid: counted.victim_valid,
            victims_mixed: counted.victims_mixed,
            spare: self.spare.saturating_add(counted.spare.saturating_mul(passed.0)),
            // Microseconds, or a day would not fit.
            target: self.target.saturating_add(target.saturating_mul(targeted / 1_000)),
            targeted: self.targeted.saturating_add(targeted / 1_000),
        };
    }

    /// Pages written per second, over a time of `length`.
    pub fn page_writes(&self, length: Nanos) -> f64 {
        per_second(self.writes as f64, length)
    }

    /// Pages moved for each page written; `None` when none was.
    pub fn extra_writes(&self) -> Option<f64> {
        (self.writes > 0).then(|| self.moved_for as f64 / self.writes as f64)
    }

    /// Which part of the pages of collected blocks was of use; `None` when none was collected.
    pub fn utilisation(&self) -> Option<f64> {
        (self.victim_pages > 0).then(|| self.victim_valid as f64 / self.victim_pages as f64)
    }

    /// Which part of those pages is to be of use; `None` where there is no target.
    pub fn target_utilisation(&self) -> Option<f64> {
        (self.targeted > 0).then(|| self.target as f64 / self.targeted as f64 / 1e6)
    }

    /// Which part of the pages that were moved because it wrote was its own; `None` when none was
    /// moved.
    pub fn own_moved(&self) -> Option<f64> {
        (self.moved_for > 0).then(|| self.moved_own_for as f64 / self.moved_for as f64)
    }

    /// Which part of the collected blocks held pages of several disks; `None` when none was
    /// collected.
    pub fn mixed(&self) -> Option<f64> {
        (self.victims > 0).then(|| self.victims_mixed as f64 / self.victims as f64)
    }

    /// The mean of its over-provisioning space in blocks, over a time of `length`.
    pub fn mean_spare(&self, length: Nanos) -> f64 {
        per_second(self.spare as f64 / 1e9, length)
    }
}

/// Pages that flash drives moved: because which VM wrote, and of which VM they were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct MovedPages {
    /// VMs with disks on flash, in the order of the file.
    pub vms: Vec<String>,
    /// A row for each that wrote, in it the pages of each.
    pub pages: Vec<Vec<u64>>,
}
