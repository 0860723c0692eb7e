//! Priority inheritance: flushes and journal writes get the priority of the writes that wait for
//! them (`docs/decisions/0012-fsync.md`).

use crate::cost::{Io, IoKind};
use crate::priority::{Given, PriorityPolicy};

/// Flushes for which a write is remembered: two that end the journal's transaction in progress when
/// it was written, and two that end the one that its application waits for.
pub(crate) const FLUSHES: usize = 4;

/// The highest priorities given to a disk's writes since its last flush, and in as many intervals
/// between flushes before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inheritance([u8; FLUSHES]);

impl Inheritance {
    /// The effective priority of a request: its own or, for flushes and journal writes, the highest
    /// of its disk's remembered writes if that is higher. O(1).
    pub(crate) fn pass(&mut self, io: Io, policy: &PriorityPolicy) -> Given {
        let own = Given::new(io.priority);
        match io.kind {
            IoKind::Read | IoKind::Discard => own,
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

    fn pass(inheritance: &mut Inheritance, kind: IoKind, priority: u64) -> u8 {
        inheritance.pass(io(kind, priority), &PriorityPolicy::default()).bits()
    }

    #[test]
    fn an_fsync_keeps_its_priority_from_the_data_to_the_last_flush() {
        let mut inheritance = Inheritance::default();
        assert_eq!(pass(&mut inheritance, IoKind::Write, 254), 254);
        // A transaction of others ends first.
        for _ in 0..2 {
            assert_eq!(pass(&mut inheritance, IoKind::Journal, 120), 254);
            assert_eq!(pass(&mut inheritance, IoKind::Flush, 0), 254);
            assert_eq!(pass(&mut inheritance, IoKind::Journal, 120), 254);
            assert_eq!(pass(&mut inheritance, IoKind::Flush, 0), 254);
        }
        assert_eq!(pass(&mut inheritance, IoKind::Journal, 120), 120, "and no longer");
        assert_eq!(pass(&mut inheritance, IoKind::Flush, 0), 0);
    }

    #[test]
    fn what_is_inherited_is_not_passed_on() {
        let mut inheritance = Inheritance::default();
        pass(&mut inheritance, IoKind::Write, 200);
        for flush in 0..100 {
            let expected = if flush < FLUSHES { 200 } else { 120 };
            assert_eq!(pass(&mut inheritance, IoKind::Journal, 120), expected);
            pass(&mut inheritance, IoKind::Flush, 0);
        }
    }

    #[test]
    fn nobody_is_lowered() {
        let mut inheritance = Inheritance::default();
        pass(&mut inheritance, IoKind::Write, 10);
        assert_eq!(pass(&mut inheritance, IoKind::Journal, 120), 120);
        assert_eq!(pass(&mut inheritance, IoKind::Flush, 0), 0, "the default counts for more");
        assert_eq!(pass(&mut inheritance, IoKind::Read, 7), 7, "reads wait for nobody");
    }
}
