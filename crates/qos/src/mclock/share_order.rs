//! The order of shares: ready disks by share tag.

use crate::tournament::Tournament;

/// Whether a disk has a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// It has one.
    Reserved,
    /// It has none: it may get the floor.
    Unreserved,
}

/// Ready disks by share tag, those without a reservation apart, because the floor is theirs alone.
///
/// A disk is in one of the two tournaments, so a change costs as much as in a single one. Ties go
/// to the lower slot, as in each of them.
#[derive(Clone)]
pub(super) struct ShareOrder {
    reserved: Tournament,
    unreserved: Tournament,
}

impl ShareOrder {
    pub(super) fn new() -> ShareOrder {
        ShareOrder { reserved: Tournament::new(), unreserved: Tournament::new() }
    }

    #[inline]
    fn of(&mut self, class: Class) -> &mut Tournament {
        match class {
            Class::Reserved => &mut self.reserved,
            Class::Unreserved => &mut self.unreserved,
        }
    }

    /// The disk with the least share tag.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        match (self.reserved.first(), self.unreserved.first()) {
            (Some(reserved), Some(unreserved)) => Some(reserved.min(unreserved).1),
            (one, other) => one.or(other).map(|(_, slot)| slot),
        }
    }

    /// The disk with the least share tag among those without a reservation.
    #[inline]
    pub(super) fn first_unreserved(&self) -> Option<u32> {
        self.unreserved.first().map(|(_, slot)| slot)
    }

    /// Gives the disk in a seat this tag: see [`Tournament::enter`].
    #[inline]
    pub(super) fn enter(&mut self, class: Class, seat: u32, tag: u128, slot: u32) {
        self.of(class).enter(seat, tag, slot);
    }

    /// Removes the disk in a seat, of the class as which it entered.
    #[inline]
    pub(super) fn leave(&mut self, class: Class, seat: u32) {
        self.of(class).leave(seat);
    }

    /// Shrinks both to their initial size. They must be empty.
    pub(super) fn reset(&mut self) {
        self.reserved.reset();
        self.unreserved.reset();
    }

    pub(super) fn comparisons(&self) -> u64 {
        self.reserved.comparisons() + self.unreserved.comparisons()
    }
}

#[cfg(test)]
impl ShareOrder {
    pub(super) fn self_check(&self) {
        self.reserved.self_check();
        self.unreserved.self_check();
    }

    /// What stands at a seat, and as which class.
    pub(super) fn at(&self, seat: u32) -> Option<(Class, (u128, u32))> {
        let (reserved, unreserved) = (self.reserved.at(seat), self.unreserved.at(seat));
        assert!(reserved.is_none() || unreserved.is_none(), "a disk is in one of the two");
        let reserved = reserved.map(|tag| (Class::Reserved, tag));
        reserved.or(unreserved.map(|tag| (Class::Unreserved, tag)))
    }
}
