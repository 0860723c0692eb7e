//! What changes have brought to both sides while a step looked or read.

use crate::extent::Extent;

/// How many stretches are known apart. Who changes one more waits for the step.
const STRETCHES: usize = 8;

/// Stretches that changes passing a step have brought to both sides: they are not the step's to
/// write any more. Apart from each other, in order, and the free places behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Passed([Option<Extent>; STRETCHES]);

impl Passed {
    fn iter(&self) -> impl Iterator<Item = Extent> + Clone {
        self.0.iter().copied().flatten()
    }

    /// Whether they touch: they are one stretch then.
    fn joins(one: Extent, other: Extent) -> bool {
        one.start() <= other.end() && other.start() <= one.end()
    }

    /// Whether another change can pass.
    pub(crate) fn has_room(&self, extent: Extent) -> bool {
        self.0.iter().any(Option::is_none) || self.iter().any(|one| Passed::joins(one, extent))
    }

    /// A change passes. There is [room](Passed::has_room) for it.
    pub(crate) fn add(&mut self, extent: Extent) {
        let joined = self.iter().filter(|one| Passed::joins(*one, extent));
        let joined = joined.fold(extent, Extent::hull);
        let mut all = Passed::default();
        let apart = self.iter().filter(|one| !Passed::joins(*one, extent));
        let before = apart.clone().filter(|one| one.end() < joined.start());
        let behind = apart.filter(|one| joined.end() < one.start());
        let ordered = before.chain(core::iter::once(joined)).chain(behind);
        for (place, one) in all.0.iter_mut().zip(ordered) {
            *place = Some(one);
        }
        *self = all;
    }

    /// The first stretch of an extent that no change has passed.
    pub(crate) fn first_left(&self, extent: Extent) -> Option<Extent> {
        let (mut at, end) = (extent.start().0, extent.end().0);
        for one in self.iter() {
            if one.end().0 <= at {
                continue;
            }
            if one.start().0 > at {
                return Extent::between(at, end.min(one.start().0));
            }
            at = one.end().0;
        }
        Extent::between(at, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn extent(start: u64, end: u64) -> Extent {
        Extent::between(start, end).unwrap()
    }

    /// All stretches that are left.
    fn left(passed: &Passed, mut extent: Extent) -> Vec<Extent> {
        let mut all = Vec::new();
        while let Some(one) = passed.first_left(extent) {
            all.push(one);
            match Extent::between(one.end().0, extent.end().0) {
                Some(rest) => extent = rest,
                None => break,
            }
        }
        all
    }

    /// Against a list of bytes.
    #[test]
    fn what_is_left_is_what_nothing_has_passed() {
        let whole = extent(100, 164);
        for seed in 0..500_u64 {
            let (mut passed, mut bytes) = (Passed::default(), [false; 200]);
            let mut random = seed;
            for _ in 0..seed % 20 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let start = 90 + (random >> 33) % 80;
                let one = extent(start, start + 1 + (random >> 50) % 6);
                if !passed.has_room(one) {
                    assert_eq!(passed.iter().count(), STRETCHES);
                    continue;
                }
                passed.add(one);
                bytes[one.start().0 as usize..one.end().0 as usize].fill(true);
            }
            let mut found = [false; 200];
            for one in left(&passed, whole) {
                found[one.start().0 as usize..one.end().0 as usize].fill(true);
            }
            for byte in 100..164 {
                assert_eq!(found[byte], !bytes[byte], "{seed}: byte {byte} of {passed:?}");
            }
        }
    }

    #[test]
    fn who_writes_on_takes_one_place() {
        let mut passed = Passed::default();
        for at in 0..100 {
            assert!(passed.has_room(extent(at, at + 1)));
            passed.add(extent(at, at + 1));
        }
        assert_eq!(left(&passed, extent(0, 101)), [extent(100, 101)]);
        let full = (0..8).fold(Passed::default(), |mut all, at| {
            all.add(extent(10 * at, 10 * at + 1));
            all
        });
        assert!(!full.has_room(extent(85, 86)) && full.has_room(extent(71, 86)));
    }
}
