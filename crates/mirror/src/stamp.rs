//! How a file system tells that somebody changed an image.
//!
//! What changed until an instant is worth knowing later only if nothing has changed since. The
//! [`Stamp`] of that instant is compared with the one of later: nobody can change a file and leave
//! it its [`Stamp::changed`]: of a file's times that is the one which nobody can set. But the
//! kernel's clock for it ticks. Two changes within a tick have one time, so a stamp is good for
//! this only once its tick is over: [`Stamp::sees_from`].

use headgate_units::{Bytes, Nanos};

/// Changes that are so far apart never have the same time: the clocks of kernels tick every 10 ms
/// or more often, and this is two of those ticks.
const APART: Nanos = Nanos::from_millis(20);

/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// What a file system says of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The number of the device that the file system is on.
    pub device: u64,
    /// The number of the file there.
    pub inode: u64,
    /// How long it is.
    pub length: Bytes,
    /// When its content changed last, since 1970. Anybody may set it to anything.
    pub modified: Nanos,
    /// When anything of it changed last, since 1970.
    pub changed: Nanos,
}

impl Stamp {
    /// From which instant on, since 1970, a change gives the image another stamp. `None`: that is
    /// not known, for the file system counts in seconds.
    #[must_use]
    pub fn sees_from(&self) -> Option<Nanos> {
        let counts_finer = !self.changed.0.is_multiple_of(SECOND);
        counts_finer.then_some(Nanos(self.changed.0.saturating_add(APART.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(changed: u64) -> Stamp {
        let (device, inode, length, modified) = (1, 2, Bytes(4096), Nanos(5 * SECOND));
        Stamp { device, inode, length, modified, changed: Nanos(changed) }
    }

    #[test]
    fn a_change_is_seen_two_ticks_after_the_last_one() {
        let changed = 7 * SECOND + 1;
        // A clock that ticks every 10 ms shows the beginning of the tick.
        let shown = |at: u64| at / 10_000_000 * 10_000_000 + 1;
        let from = stamp(changed).sees_from().unwrap();
        assert_eq!(from, Nanos(changed + 20_000_000));
        assert!(shown(from.0) > changed);
        assert_eq!(stamp(u64::MAX).sees_from(), Some(Nanos::MAX));
    }

    #[test]
    fn where_seconds_are_counted_nothing_is_seen_for_certain() {
        assert_eq!(stamp(7 * SECOND).sees_from(), None);
    }
}
