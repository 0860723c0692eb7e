use super::ages::{Age, Ages, Written};
use super::ranges::Ranges;
use alloc::collections::BTreeSet;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use headgate_units::Nanos;

/// Dirty data this old is written even if there is room for more.
const MAX_AGE: Nanos = Nanos::from_secs(1);

#[derive(Clone, Debug, Default)]
struct Row {
    /// What must be written back.
    dirty: Option<(Age, Ranges)>,
    /// On its way to the disks: still occupies the cache, and still answers reads.
    leaving: Option<(Age, Ranges)>,
}

/// A write-back cache: rows of the array with what is dirty in them, in the array's order and in
/// the order of age.
///
/// Neighbouring and overlapping writes become one. Taking a row in or out is O(log rows + ranges of
/// the row), looking one up O(log ranges of the row).
#[derive(Clone, Debug)]
pub(super) struct Cache {
    size: u64,
    row_bytes: u64,
    used: u64,
    /// Looked up, and walked through only to be sorted: the order in here means nothing.
    rows: HashMap<u64, Row, FixedState>,
    /// Everything dirty or leaving.
    ages: Ages,
    /// Rows that may be written, dirty and not leaving, once a sweep has asked for them: a cache
    /// with room for all need not sort them.
    staying: Option<BTreeSet<u64>>,
    /// Rows dirty from end to end: nothing is gained by waiting.
    whole: BTreeSet<u64>,
    /// Where the sweep over the rows goes on.
    sweep: u64,
}

/// What a caller wants written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// What is ripe: whole rows, and what is old.
    Ripe,
    /// Anything, to make room: in a sweep over the array.
    Room,
    /// All that is dirty up to a stamp.
    UpTo(u64),
}

impl Cache {
    pub(super) fn new(size: u64, row_bytes: u64) -> Cache {
        Cache {
            size,
            row_bytes,
            used: 0,
            rows: HashMap::with_hasher(FixedState::with_seed(0)),
            ages: Ages::default(),
            staying: None,
            whole: BTreeSet::new(),
            sweep: 0,
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// More than half full: room has to be made.
    pub(super) fn is_filling(&self) -> bool {
        self.used > self.size / 2
    }

    /// More than three quarters full: making room may cost the clients something.
    pub(super) fn is_pressing(&self) -> bool {
        self.used > self.size / 4 * 3
    }

    /// The last stamp given: all that is dirty now has it or a smaller one.
    pub(super) fn last_stamp(&self) -> u64 {
        self.ages.last_stamp()
    }

    /// Is everything up to the stamp on the disks.
    pub(super) fn is_clean_up_to(&self, stamp: u64) -> bool {
        self.ages.oldest().is_none_or(|oldest| oldest.stamp > stamp)
    }

    /// Takes a write in, given as ranges of rows, if there is room for all of it.
    pub(super) fn insert(
        &mut self,
        now: Nanos,
        pieces: impl Iterator<Item = (u64, u64, u64)> + Clone,
    ) -> bool {
        let needed: u64 =
            pieces.clone().map(|(row, from, to)| to - from - self.dirty_in(row, from, to)).sum();
        if self.used + needed > self.size {
            return false;
        }
        self.used += needed;
        for (row, from, to) in pieces {
            self.insert_in_row(now, row, from, to);
        }
        true
    }

    fn dirty_in(&self, row: u64, from: u64, to: u64) -> u64 {
        let dirty = self.rows.get(&row).and_then(|row| row.dirty.as_ref());
        dirty.map_or(0, |(_, ranges)| ranges.overlap(from, to))
    }

    fn insert_in_row(&mut self, now: Nanos, row: u64, from: u64, to: u64) {
        let Row { dirty, leaving } = self.rows.entry(row).or_default();
        let (_, ranges) = match dirty {
            Some(dirty) => {
                dirty.1.add(from, to);
                dirty
            }
            None => {
                let written = match leaving {
                    None => {
                        if let Some(staying) = &mut self.staying {
                            staying.insert(row);
                        }
                        Written::Possible
                    }
                    Some(_) => Written::Busy,
                };
                dirty.insert((self.ages.push(now, row, written), Ranges::of(from, to)))
            }
        };
        if ranges.as_slice() == [(0, self.row_bytes)] {
            self.whole.insert(row);
        }
    }

    /// Can a read of these ranges of rows be answered from here.
    pub(super) fn holds(&self, mut pieces: impl Iterator<Item = (u64, u64, u64)>) -> bool {
        let covers = |part: &Option<(Age, Ranges)>, from, to| {
            part.as_ref().is_some_and(|(_, ranges)| ranges.cover(from, to))
        };
        pieces.all(|(row, from, to)| {
            self.rows
                .get(&row)
                .is_some_and(|row| covers(&row.dirty, from, to) || covers(&row.leaving, from, to))
        })
    }

    /// A row to write back now: it is leaving until [`Cache::left`]. A row whose last state is
    /// still leaving waits.
    pub(super) fn next_to_write(&mut self, now: Nanos, want: Want) -> Option<(u64, &[(u64, u64)])> {
        let row = match want {
            Want::Room => self.next_in_sweep()?,
            Want::UpTo(stamp) => {
                self.ages.oldest_possible().filter(|aged| aged.stamp <= stamp)?.row
            }
            Want::Ripe => match self.next_whole() {
                Some(row) => row,
                None => {
                    self.ages.oldest_possible().filter(|aged| now.since(aged.since) >= MAX_AGE)?.row
                }
            },
        };
        let Row { dirty, leaving } = self.rows.get_mut(&row)?;
        let (age, ranges) = dirty.take()?;
        self.ages.mark(age, Written::Busy);
        if let Some(staying) = &mut self.staying {
            staying.remove(&row);
        }
        self.whole.remove(&row);
        self.sweep = row + 1;
        let (_, ranges) = leaving.insert((age, ranges));
        Some((row, ranges.as_slice()))
    }

    fn next_in_sweep(&mut self) -> Option<u64> {
        let staying = self.staying.get_or_insert_with(|| {
            let stays = |row: &Row| row.dirty.is_some() && row.leaving.is_none();
            self.rows.iter().filter(|(_, row)| stays(row)).map(|(&number, _)| number).collect()
        });
        staying.range(self.sweep..).next().or_else(|| staying.first()).copied()
    }

    fn next_whole(&self) -> Option<u64> {
        if self.whole.is_empty() {
            return None;
        }
        let staying = |row: &&u64| self.rows.get(*row).is_some_and(|row| row.leaving.is_none());
        let ahead = self.whole.range(self.sweep..).find(staying);
        ahead.or_else(|| self.whole.range(..self.sweep).find(staying)).copied()
    }

    /// When the oldest row that stays becomes ripe by age.
    pub(super) fn next_ripe(&self) -> Option<Nanos> {
        self.ages.oldest_possible().map(|aged| aged.since + MAX_AGE)
    }

    /// A row handed out is on the disks: its room is free.
    pub(super) fn left(&mut self, row: u64) {
        let Some(Row { dirty, leaving }) = self.rows.get_mut(&row) else { return };
        if let Some((age, ranges)) = leaving.take() {
            self.ages.remove(age);
            self.used -= ranges.bytes();
        }
        match dirty {
            Some((age, _)) => {
                self.ages.mark(*age, Written::Possible);
                if let Some(staying) = &mut self.staying {
                    staying.insert(row);
                }
            }
            None => _ = self.rows.remove(&row),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    const ROW: u64 = 1_000;

    fn put(cache: &mut Cache, row: u64, from: u64, to: u64) -> bool {
        cache.insert(Nanos::ZERO, [(row, from, to)].into_iter())
    }

    #[test]
    fn overwriting_takes_no_room_and_neighbours_become_one() {
        let mut cache = Cache::new(300, ROW);
        assert!(
            put(&mut cache, 5, 100, 200)
                && put(&mut cache, 5, 200, 300)
                && put(&mut cache, 5, 150, 300)
        );
        assert!(put(&mut cache, 5, 0, 100));
        assert!(!put(&mut cache, 6, 0, 1), "it is full");
        assert_eq!(cache.next_to_write(Nanos::ZERO, Want::Room), Some((5, &[(0, 300)][..])));
        assert!(!put(&mut cache, 6, 0, 1), "what is leaving still takes room");
        cache.left(5);
        assert!(put(&mut cache, 6, 0, 300));
    }

    #[test]
    fn a_row_written_again_while_leaving_leaves_twice() {
        let mut cache = Cache::new(1_000, ROW);
        put(&mut cache, 1, 0, 10);
        let flushed = cache.last_stamp();
        assert!(cache.next_to_write(Nanos::ZERO, Want::UpTo(flushed)).is_some());
        put(&mut cache, 1, 0, 10);
        assert_eq!(cache.next_to_write(Nanos::ZERO, Want::Room), None, "one at a time");
        assert!(!cache.is_clean_up_to(flushed));
        cache.left(1);
        assert!(cache.is_clean_up_to(flushed) && !cache.is_clean_up_to(cache.last_stamp()));
        assert_eq!(cache.next_to_write(Nanos::ZERO, Want::Room), Some((1, &[(0, 10)][..])));
    }

    #[test]
    fn ripe_is_what_is_whole_or_old() {
        let mut cache = Cache::new(10_000, ROW);
        put(&mut cache, 1, 0, 10);
        put(&mut cache, 2, 0, 999);
        assert_eq!(cache.next_to_write(Nanos::ZERO, Want::Ripe), None);
        put(&mut cache, 2, 999, 1_000);
        assert_eq!(cache.next_to_write(Nanos::ZERO, Want::Ripe).map(|(row, _)| row), Some(2));
        assert_eq!(cache.next_ripe(), Some(MAX_AGE));
        assert_eq!(cache.next_to_write(MAX_AGE, Want::Ripe).map(|(row, _)| row), Some(1));
        assert_eq!(cache.next_ripe(), None);
    }

    #[test]
    fn room_is_made_in_one_sweep_over_the_array() {
        let mut cache = Cache::new(10_000, ROW);
        [7, 3, 9, 5].into_iter().for_each(|row| assert!(put(&mut cache, row, 0, 10)));
        let mut order = Vec::new();
        while let Some((row, _)) = cache.next_to_write(Nanos::ZERO, Want::Room) {
            order.push(row);
            if row == 5 {
                put(&mut cache, 4, 0, 10);
                put(&mut cache, 8, 0, 10);
            }
        }
        assert_eq!(order, [3, 5, 7, 8, 9, 4]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u64, u64, u64),
        Write(u8),
        Left,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..5u64, 0..ROW, 1..=ROW).prop_map(|(row, from, len)| Step::Put(row, from, (from + len).min(ROW))),
            2 => (0..3u8).prop_map(Step::Write),
            2 => Just(Step::Left),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// Against a bit for each byte.
        #[test]
        fn room_and_contents_are_those_of_a_map_of_bytes(steps in steps()) {
            let mut cache = Cache::new(2_500, ROW);
            let mut dirty = vec![[false; ROW as usize]; 5];
            let mut leaving: VecDeque<(u64, u64)> = VecDeque::new();
            for step in steps {
                let used: u64 = dirty.iter().flatten().filter(|&&byte| byte).count() as u64
                    + leaving.iter().map(|&(_, bytes)| bytes).sum::<u64>();
                prop_assert_eq!(cache.used, used);
                match step {
                    Step::Put(row, from, to) => {
                        let bytes = &mut dirty[row as usize][from as usize..to as usize];
                        let needed = bytes.iter().filter(|&&byte| !byte).count() as u64;
                        prop_assert_eq!(put(&mut cache, row, from, to), used + needed <= 2_500);
                        if used + needed <= 2_500 {
                            bytes.fill(true);
                            prop_assert!(cache.holds([(row, from, to)].into_iter()));
                        }
                    }
                    Step::Write(want) => {
                        let want = [Want::Ripe, Want::Room, Want::UpTo(cache.last_stamp())][usize::from(want)];
                        let Some((row, ranges)) = cache.next_to_write(Nanos::ZERO, want) else {
                            let staying = (0..5).any(|row| {
                                dirty[row as usize].contains(&true) && leaving.iter().all(|&(other, _)| other != row)
                            });
                            prop_assert!(want == Want::Ripe || !staying);
                            continue;
                        };
                        let mut expected = [false; ROW as usize];
                        ranges.iter().for_each(|&(from, to)| expected[from as usize..to as usize].fill(true));
                        prop_assert_eq!(dirty[row as usize], expected);
                        prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
                        leaving.push_back((row, expected.iter().filter(|&&byte| byte).count() as u64));
                        dirty[row as usize].fill(false);
                    }
                    Step::Left => {
                        if let Some((row, _)) = leaving.pop_front() {
                            cache.left(row);
                        }
                    }
                }
            }
            while let Some((row, _)) = leaving.pop_front() {
                cache.left(row);
            }
            while let Some((row, _)) = cache.next_to_write(Nanos::ZERO, Want::Room) {
                cache.left(row);
            }
            prop_assert!(cache.used == 0 && cache.rows.is_empty() && cache.ages.is_empty());
            prop_assert!(cache.staying.is_none_or(|staying| staying.is_empty()));
        }
    }
}
