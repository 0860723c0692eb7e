//! Which of many disks has the earliest tag: a tournament of four by four, in which any disk may
//! change its tag, join or leave.
//!
//! Every disk that takes part has a seat, four seats are a family, and a copy of its least takes
//! part in a family of the level above. A change of tag replays the games from the seat to the top.
//! Unlike in a heap, which nodes that touches is known before any is read, and the three rivals of
//! a level are compared with each other off the critical path, so the processor overlaps all
//! levels; there is no guess which child is least and no position to write down for entries that
//! move. Empty seats lose every game, so there are no special cases at the edge.

use alloc::vec;
use alloc::vec::Vec;
use core::hint::select_unpredictable;

/// Tag in the upper 96 bits, disk slot in the lower 32: equal tags go to the lower slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry(u128);

impl Entry {
    /// Loses against every disk.
    const NOBODY: Entry = Entry(u128::MAX);

    /// Tags are below 2^95, so the highest bit tells.
    #[inline]
    fn is_nobody(self) -> bool {
        (self.0 as i128) < 0
    }

    /// Without a branch: who wins is as good as random, and a wrong guess costs more than a game.
    #[inline]
    fn least(self, other: Entry) -> Entry {
        Entry(select_unpredictable(other.0 < self.0, other.0, self.0))
    }
}

/// Four nodes that play for one place in the next level: one cache line. The halves of entries are
/// apart, as a processor scales an index by eight bytes for nothing and by sixteen for a shift.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Family {
    upper: [u64; 4],
    lower: [u64; 4],
}

const EMPTY: Family = Family { upper: [u64::MAX; 4], lower: [u64::MAX; 4] };

impl Family {
    #[inline]
    fn at(&self, lane: usize) -> Entry {
        Entry(u128::from(self.upper[lane]) << 64 | u128::from(self.lower[lane]))
    }

    #[inline]
    fn put(&mut self, lane: usize, entry: Entry) {
        self.upper[lane] = (entry.0 >> 64) as u64;
        self.lower[lane] = entry.0 as u64;
    }

    fn least(&self) -> Entry {
        self.at(0).least(self.at(1)).least(self.at(2).least(self.at(3)))
    }
}

/// See the module documentation. Every operation is O(log n) in the highest seat taken since the
/// last [`Tournament::reset`].
#[derive(Clone)]
pub(crate) struct Tournament {
    /// Families from the final down: those that play for the places of family f are `4f + 1 ..= 4f
    /// + 4`.
    families: Vec<Family>,
    /// The first family of seats.
    seats: usize,
    winner: Entry,
    comparisons: u64,
}

/// How many families are above the seats when `levels` levels are.
const fn above(levels: u32) -> usize {
    ((1 << (2 * levels)) - 1) / 3
}

impl Tournament {
    pub(crate) fn new() -> Tournament {
        Tournament { families: vec![EMPTY], seats: 0, winner: Entry::NOBODY, comparisons: 0 }
    }

    /// How often two tags were compared: what the games have cost.
    pub(crate) fn comparisons(&self) -> u64 {
        self.comparisons
    }

    /// The earliest tag and its disk.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u128, u32)> {
        let winner = self.winner;
        if winner.is_nobody() { None } else { Some((winner.0 >> 32, winner.0 as u32)) }
    }

    /// Gives the disk in a seat this tag, whether it took part before or not. Tags are below 2^95.
    #[inline]
    pub(crate) fn enter(&mut self, seat: u32, tag: u128, slot: u32) {
        let family = self.seats + seat as usize / 4;
        if family >= self.families.len() {
            self.grow(seat as usize);
        }
        self.play(seat as usize, Entry((tag << 32) | u128::from(slot)));
    }

    /// Removes the entry of a seat.
    #[inline]
    pub(crate) fn leave(&mut self, seat: u32) {
        let family = self.seats + seat as usize / 4;
        if family < self.families.len() {
            self.play(seat as usize, Entry::NOBODY);
        }
    }

    /// Shrinks the tournament to its initial size. It must be empty.
    pub(crate) fn reset(&mut self) {
        debug_assert!(self.first().is_none());
        self.seats = 0;
        self.families.truncate(1);
    }

    /// Makes room up to `seat`. Seats are taken densely, so families are added one by one and
    /// levels very seldom.
    #[cold]
    fn grow(&mut self, seat: usize) {
        let mut levels = 0;
        while seat / 4 >= 1 << (2 * levels) {
            levels += 1;
        }
        let old = self.seats;
        self.seats = above(levels).max(old);
        self.families.resize(self.seats + seat / 4 + 1, EMPTY);
        if self.seats == old {
            return;
        }
        // The seats move behind the new level, and all entries are played again.
        for family in (old..self.seats).rev() {
            let to = family - old + self.seats;
            if to < self.families.len() {
                self.families[to] = self.families[family];
            }
            self.families[family] = EMPTY;
        }
        for family in (1..self.families.len()).rev() {
            let least = self.families[family].least();
            self.families[(family - 1) / 4].put((family - 1) % 4, least);
        }
    }

    /// Replays the games of one seat, up to the final, or in its family alone where that has the
    /// same least as before.
    ///
    /// Written out level by level and never inlined: in a loop the compiler turns the choice of a
    /// winner back into a branch, which makes a decision half as fast again.
    #[inline(never)]
    fn play(&mut self, seat: usize, entry: Entry) {
        let (mut family, mut lane, mut winner) = (self.seats + seat / 4, seat % 4, entry);
        macro_rules! levels {
            ($($level:literal)*) => {$(
                let players = &mut self.families[family];
                players.put(lane, winner);
                let rivals = players.at(lane ^ 2).least(players.at(lane ^ 3));
                winner = winner.least(players.at(lane ^ 1).least(rivals));
                if family == 0 {
                    self.winner = winner;
                    self.comparisons += 3 * $level;
                    return;
                }
                (family, lane) = ((family - 1) / 4, (family - 1) % 4);
                // Elsewhere that is less often so, and costs as much as it saves.
                if $level == 1 && self.families[family].at(lane) == winner {
                    self.comparisons += 3;
                    return;
                }
            )*};
        }
        // 4^16 seats are all there can be.
        levels!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
        unreachable!(
            "seat {seat} is below the final by more levels than there can be: now at {family}, {lane}"
        );
    }

    #[cfg(test)]
    pub(crate) fn at(&self, seat: u32) -> Option<(u128, u32)> {
        let entry = self.families.get(self.seats + seat as usize / 4)?.at(seat as usize % 4);
        if entry.is_nobody() { None } else { Some((entry.0 >> 32, entry.0 as u32)) }
    }

    /// Every node is its least child.
    #[cfg(test)]
    pub(crate) fn self_check(&self) {
        for (i, family) in self.families.iter().enumerate() {
            let above = match i {
                0 => self.winner,
                _ => self.families[(i - 1) / 4].at((i - 1) % 4),
            };
            assert_eq!(above, family.least(), "family {i}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn yields_the_earliest_tag_and_the_lowest_slot_of_equals(
            operations in prop::collection::vec((0u8..6, 0u32..100, 0u128..60), 0..300),
        ) {
            let mut tournament = Tournament::new();
            let mut model = BTreeMap::new();
            for (operation, seat, tag) in operations {
                match operation {
                    0..=3 => {
                        // Seats and slots need not agree.
                        let slot = seat ^ 0x55;
                        tournament.enter(seat, tag, slot);
                        model.insert(seat, (tag, slot));
                    }
                    4 => {
                        tournament.leave(seat);
                        model.remove(&seat);
                    }
                    _ => {
                        if let Some((seat, _)) = model.iter().min_by_key(|(_, entry)| **entry).map(|(s, e)| (*s, *e)) {
                            tournament.leave(seat);
                            model.remove(&seat);
                        }
                    }
                }
                if model.is_empty() {
                    tournament.reset();
                }
                tournament.self_check();
                prop_assert_eq!(tournament.first(), model.values().min().copied());
                for seat in 0..100 {
                    prop_assert_eq!(tournament.at(seat), model.get(&seat).copied());
                }
            }
        }
    }
}
