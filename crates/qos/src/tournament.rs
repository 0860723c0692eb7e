//! Which of many disks has the earliest tag: a tournament of four by four, in which any disk may change its tag, join or leave.
//!
//! Every disk that takes part has a seat. Level 0 holds the entries by seat; a node of level k + 1 is a copy of the least of
//! its four children in level k. A change of tag replays the games from the seat to the top. Unlike in a heap, which nodes
//! that touches is known before any is read, and the three rivals of a level are compared with each other off the critical path,
//! so the processor overlaps all levels; there is no guess which child is least and no position to write down for
//! entries that move. Empty seats lose every game, so there are no special cases at the edge.

use std::hint::select_unpredictable;

/// Tag in the upper 96 bits, disk slot in the lower 32: equal tags go to the lower slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry(u128);

impl Entry {
    /// Loses against every disk.
    const NOBODY: Entry = Entry(u128::MAX);

    /// Without a branch: who wins is as good as random, and a wrong guess costs more than a game.
    #[inline]
    fn least(self, other: Entry) -> Entry {
        Entry(select_unpredictable(other.0 < self.0, other.0, self.0))
    }
}

/// Four nodes that play for one place in the next level: one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Family([Entry; 4]);

const EMPTY: Family = Family([Entry::NOBODY; 4]);

/// See the module documentation. Every operation is O(log n) in the highest seat taken since the last [`Tournament::reset`].
pub(crate) struct Tournament {
    /// Levels from the seats up.
    levels: Vec<Vec<Family>>,
    /// The level whose first node is the winner.
    top: usize,
}

impl Tournament {
    pub(crate) fn new() -> Tournament {
        Tournament { levels: vec![vec![EMPTY]], top: 0 }
    }

    /// The earliest tag and its disk.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u128, u32)> {
        let winner = self.levels[self.top][0].0[0];
        if winner == Entry::NOBODY { None } else { Some((winner.0 >> 32, winner.0 as u32)) }
    }

    /// Gives the disk in a seat this tag, whether it took part before or not. Tags are below 2^95.
    #[inline]
    pub(crate) fn enter(&mut self, seat: u32, tag: u128, slot: u32) {
        if seat as usize >= 1 << (2 * self.top) {
            self.grow(seat as usize);
        }
        self.play(seat as usize, Entry((tag << 32) | u128::from(slot)));
    }

    /// Takes whoever is in the seat out.
    #[inline]
    pub(crate) fn leave(&mut self, seat: u32) {
        if (seat as usize) < 1 << (2 * self.top) {
            self.play(seat as usize, Entry::NOBODY);
        }
    }

    /// Lowers the top to where it was at the start. Nobody may take part.
    pub(crate) fn reset(&mut self) {
        debug_assert!(self.first().is_none());
        self.top = 0;
    }

    /// Makes room up to `seat`. Seats are taken densely, so this allocates a logarithmic number of times.
    #[cold]
    fn grow(&mut self, seat: usize) {
        while seat >= 1 << (2 * self.top) {
            self.top += 1;
        }
        let mut families = 1 << (2 * self.top - 2);
        for level in 0..=self.top {
            if level == self.levels.len() {
                self.levels.push(Vec::new());
            }
            if self.levels[level].len() < families {
                self.levels[level].resize(families, EMPTY);
            }
            families = families.div_ceil(4);
        }
        self.rebuild();
    }

    /// Plays all games.
    fn rebuild(&mut self) {
        for level in 0..self.top {
            for parent in 0..1 << (2 * (self.top - level - 1)) {
                let [a, b, c, d] = self.levels[level][parent].0;
                self.levels[level + 1][parent / 4].0[parent % 4] = a.least(b).least(c.least(d));
            }
        }
    }

    /// Replays the games of one seat, up to the top.
    ///
    /// Written out level by level and never inlined: in a loop the compiler turns the choice of a winner back into a branch, which makes a
    /// decision half as fast again.
    #[inline(never)]
    fn play(&mut self, seat: usize, entry: Entry) {
        let (mut node, mut winner) = (seat, entry);
        macro_rules! levels {
            ($($level:literal)*) => {$(
                if self.top == $level {
                    self.levels[$level][0].0[0] = winner;
                    return;
                }
                let family = &mut self.levels[$level][node / 4].0;
                let lane = node % 4;
                family[lane] = winner;
                winner = winner.least(family[lane ^ 1].least(family[lane ^ 2].least(family[lane ^ 3])));
                node /= 4;
            )*};
        }
        // 4^16 seats are all there can be.
        levels!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        debug_assert_eq!(node, 0);
        self.levels[16][0].0[0] = winner;
    }

    #[cfg(test)]
    pub(crate) fn at(&self, seat: u32) -> Option<(u128, u32)> {
        let entry = self.levels[0].get(seat as usize / 4)?.0[seat as usize % 4];
        if entry == Entry::NOBODY { None } else { Some((entry.0 >> 32, entry.0 as u32)) }
    }

    /// Every node is its least child.
    #[cfg(test)]
    pub(crate) fn self_check(&self) {
        for level in 0..self.top {
            for (i, family) in self.levels[level].iter().enumerate() {
                let [a, b, c, d] = family.0;
                let above = self.levels[level + 1][i / 4].0[i % 4];
                assert_eq!(above, a.least(b).least(c).least(d), "node {i} of level {}", level + 1);
            }
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
