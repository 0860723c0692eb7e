//! Priorities of applications: the policy of a VM, and the effective priority of a request.

use headgate_units::Priority;

/// How much one unit of priority weighs beside the shares of disks whose priorities stay within
/// their VM: priority 100, the default, weighs as much as normal shares.
pub const SHARES_PER_PRIORITY: u64 = 10;

/// The scope of a VM's priorities: the streams that its streams compete with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PriorityScope {
    /// Against each other only. Reservation, limit and shares of each disk stay what they are,
    /// priorities divide what they give.
    #[default]
    WithinVm,
    /// Against the streams of all disks with this scope, by priority, and against disks without it
    /// by [`SHARES_PER_PRIORITY`]. Instead of the disk's shares and idle credit; its reservation
    /// and limit still bind.
    AcrossVms,
}

/// The priority policy of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PriorityPolicy {
    /// The highest effective priority of a request.
    pub max: Priority,
    /// The priority of requests without one, at most [`PriorityPolicy::max`].
    pub default: Priority,
    /// The streams that the VM's streams compete with.
    pub scope: PriorityScope,
}

impl PriorityPolicy {
    /// The default of [`PriorityPolicy::default`]: 100.
    pub const DEFAULT_PRIORITY: Priority = match Priority::new(100) {
        Ok(priority) => priority,
        Err(_) => Priority::MIN,
    };

    /// The final priority: `min(max, given)`, or `min(max, default)` where none was given. (Bai,
    /// Huang: *Tag Scheduler*, the rule of final priorities.) O(1).
    #[inline]
    pub fn resolve(&self, given: Option<Priority>) -> Priority {
        given.unwrap_or(self.default).min(self.max)
    }
}

impl Default for PriorityPolicy {
    /// Everything that may be asked for counts, within the VM.
    fn default() -> PriorityPolicy {
        PriorityPolicy {
            max: Priority::MAX,
            default: PriorityPolicy::DEFAULT_PRIORITY,
            scope: PriorityScope::WithinVm,
        }
    }
}

/// A given priority in eight bits; 0 where none was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given(u8);

impl Given {
    pub(crate) const NONE: Given = Given(0);

    #[inline]
    pub(crate) fn new(given: Option<Priority>) -> Given {
        Given(given.map_or(0, Priority::get))
    }

    #[inline]
    pub(crate) fn get(self) -> Option<Priority> {
        if self.0 == 0 { None } else { Priority::new(u64::from(self.0)).ok() }
    }

    #[inline]
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// What [`Given::bits`] gave.
    #[inline]
    pub(crate) const fn from_bits(bits: u8) -> Given {
        Given(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priority(n: u64) -> Priority {
        Priority::new(n).unwrap()
    }

    #[test]
    fn no_request_counts_for_more_than_the_vm_may() {
        // TG-6: what is given, the VM's maximum, its default, what it counts for.
        for (given, max, default, counts) in [
            (Some(254), 8, 3, 8),
            (Some(9), 8, 3, 8),
            (Some(8), 8, 3, 8),
            (Some(7), 8, 3, 7),
            (Some(1), 8, 3, 1),
            (None, 8, 3, 3),
            (None, 8, 100, 8),
            (Some(254), 254, 100, 254),
            (None, 1, 1, 1),
        ] {
            let policy = PriorityPolicy {
                max: priority(max),
                default: priority(default),
                scope: PriorityScope::AcrossVms,
            };
            let resolved = policy.resolve(given.map(priority));
            assert_eq!(resolved, priority(counts), "{given:?} of {max}, default {default}");
        }
    }

    #[test]
    fn a_given_priority_survives_eight_bits() {
        assert_eq!(Given::from_bits(Given::NONE.bits()).get(), None);
        for n in 1..=254 {
            let given = Given::new(Some(priority(n)));
            assert_eq!(Given::from_bits(given.bits()).get(), Some(priority(n)));
        }
    }
}
