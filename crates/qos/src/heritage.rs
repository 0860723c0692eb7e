//! Whose priority a flush has: that of whoever waits for it (`docs/decisions/0012-fsync.md`).

use crate::cost::{Io, IoKind};
use crate::priority::{Given, PriorityPolicy};

/// For how many flushes of its disk a write is remembered: two that end the journal's transaction under way
/// when it was written, and two that end the one that its application waits for.
pub(crate) const FLUSHES: usize = 4;

/// The highest priorities given to a disk's writes since its last flush, and in as many intervals between
/// flushes before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heritage([u8; FLUSHES]);

impl Heritage {
    /// The priority that a request has: its own or, for a flush and for a journal's write, that of a write of
    /// its disk that it may be waited for with, whichever counts for more. O(1).
    pub(crate) fn pass(&mut self, io: Io, policy: &PriorityPolicy) -> Given {
        let own = Given::new(io.priority);
        match io.kind {
            IoKind::Other => own,
            IoKind::Write => {
                self.0[0] = self.0[0].max(own.bits());
                own
            }
            IoKind::Journal => self.inherit(own, policy),
            IoKind::Flush => {
                let inherited = self.inherit(own, policy);
                self.0.copy_within(..FLUSHES - 1, 1);
                self.0[0] = 0;
                inherited
            }
        }
    }

    fn inherit(&self, own: Given, policy: &PriorityPolicy) -> Given {
        let highest = self.0.iter().fold(0, |highest, bits| highest.max(*bits));
        match Given::from_bits(highest) {
            Given::NONE => own,
            writer if policy.resolve(writer.get()) > policy.resolve(own.get()) => writer,
            _ => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_units::Priority;

    fn io(kind: IoKind, priority: u64) -> Io {
        Io { kind, priority: Priority::new(priority).ok(), ..Io::default() }
    }

    fn pass(heritage: &mut Heritage, kind: IoKind, priority: u64) -> u8 {
        heritage.pass(io(kind, priority), &PriorityPolicy::default()).bits()
    }

    #[test]
    fn an_fsync_keeps_its_priority_from_the_data_to_the_last_flush() {
        let mut heritage = Heritage::default();
        assert_eq!(pass(&mut heritage, IoKind::Write, 254), 254);
        // A transaction of others ends first.
        for _ in 0..2 {
            assert_eq!(pass(&mut heritage, IoKind::Journal, 120), 254);
            assert_eq!(pass(&mut heritage, IoKind::Flush, 0), 254);
            assert_eq!(pass(&mut heritage, IoKind::Journal, 120), 254);
            assert_eq!(pass(&mut heritage, IoKind::Flush, 0), 254);
        }
        assert_eq!(pass(&mut heritage, IoKind::Journal, 120), 120, "and no longer");
        assert_eq!(pass(&mut heritage, IoKind::Flush, 0), 0);
    }

    #[test]
    fn what_is_inherited_is_not_passed_on() {
        let mut heritage = Heritage::default();
        pass(&mut heritage, IoKind::Write, 200);
        for flush in 0..100 {
            let expected = if flush < FLUSHES { 200 } else { 120 };
            assert_eq!(pass(&mut heritage, IoKind::Journal, 120), expected);
            pass(&mut heritage, IoKind::Flush, 0);
        }
    }

    #[test]
    fn nobody_is_lowered() {
        let mut heritage = Heritage::default();
        pass(&mut heritage, IoKind::Write, 10);
        assert_eq!(pass(&mut heritage, IoKind::Journal, 120), 120);
        assert_eq!(pass(&mut heritage, IoKind::Flush, 0), 0, "the default counts for more");
        assert_eq!(pass(&mut heritage, IoKind::Other, 7), 7, "reads wait for nobody");
    }
}
