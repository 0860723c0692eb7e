use headgate_units::Nanos;
use slab::Slab;

/// What has to be written, from the oldest to the youngest: a list that forgets any of its entries
/// in O(1).
#[derive(Clone, Debug, Default)]
pub(super) struct Ages {
    entries: Slab<Entry>,
    oldest: Option<usize>,
    youngest: Option<usize>,
    /// The oldest that may be written: all before it are busy.
    possible: Option<usize>,
    last_stamp: u64,
}

/// An entry's name until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age(usize);

/// May a row be written now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It is dirty, and nothing of it is on its way.
    Possible,
    /// It is on its way to the disks, or waits for what is.
    Busy,
}

/// A row as it became dirty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aged {
    pub row: u64,
    /// Counts what became dirty, from 1.
    pub stamp: u64,
    pub since: Nanos,
}

#[derive(Clone, Debug)]
struct Entry {
    aged: Aged,
    written: Written,
    older: Option<usize>,
    younger: Option<usize>,
}

impl Ages {
    /// A row became dirty: younger than all others.
    pub(super) fn push(&mut self, now: Nanos, row: u64, written: Written) -> Age {
        self.last_stamp += 1;
        let aged = Aged { row, stamp: self.last_stamp, since: now };
        let entry =
            self.entries.insert(Entry { aged, written, older: self.youngest, younger: None });
        match self.youngest {
            Some(last) => self.entries[last].younger = Some(entry),
            None => self.oldest = Some(entry),
        }
        self.youngest = Some(entry);
        if written == Written::Possible && self.possible.is_none() {
            self.possible = Some(entry);
        }
        Age(entry)
    }

    pub(super) fn mark(&mut self, age: Age, written: Written) {
        self.entries[age.0].written = written;
        match written {
            Written::Busy => self.pass_over(age),
            Written::Possible => {
                let stamp = |entry: usize| self.entries[entry].aged.stamp;
                if self.possible.is_none_or(|first| stamp(age.0) < stamp(first)) {
                    self.possible = Some(age.0);
                }
            }
        }
    }

    /// If the entry was the oldest that may be written, another is. Passes over what is busy: what
    /// is written at once, and what became dirty again meanwhile.
    fn pass_over(&mut self, age: Age) {
        if self.possible != Some(age.0) {
            return;
        }
        let mut next = self.entries[age.0].younger;
        while let Some(entry) = next.filter(|&at| self.entries[at].written == Written::Busy) {
            next = self.entries[entry].younger;
        }
        self.possible = next;
    }

    pub(super) fn remove(&mut self, age: Age) {
        self.pass_over(age);
        let Entry { older, younger, .. } = self.entries.remove(age.0);
        match older {
            Some(older) => self.entries[older].younger = younger,
            None => self.oldest = younger,
        }
        match younger {
            Some(younger) => self.entries[younger].older = older,
            None => self.youngest = older,
        }
    }

    pub(super) fn last_stamp(&self) -> u64 {
        self.last_stamp
    }

    pub(super) fn oldest(&self) -> Option<Aged> {
        self.oldest.map(|entry| self.entries[entry].aged)
    }

    /// The oldest that may be written. O(1).
    pub(super) fn oldest_possible(&self) -> Option<Aged> {
        self.possible.map(|entry| self.entries[entry].aged)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.oldest.is_none() && self.youngest.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_list_in_the_order_of_age(steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 0..300)) {
            let mut ages = Ages::default();
            let mut plain: Vec<(Age, Aged, Written)> = Vec::new();
            for (row, (step, which)) in steps.into_iter().enumerate() {
                let written = if step % 2 == 0 { Written::Possible } else { Written::Busy };
                let (row, now) = (row as u64, Nanos(row as u64 * 7));
                if step < 2 || plain.is_empty() {
                    let age = ages.push(now, row, written);
                    plain.push((age, Aged { row, stamp: ages.last_stamp(), since: now }, written));
                } else {
                    let at = which.index(plain.len());
                    ages.mark(plain[at].0, written);
                    plain[at].2 = written;
                    if written == Written::Busy {
                        ages.remove(plain.remove(at).0);
                    }
                }
                prop_assert!(plain.windows(2).all(|pair| pair[0].1.stamp < pair[1].1.stamp));
                prop_assert_eq!(ages.oldest(), plain.first().map(|entry| entry.1));
                let possible = plain.iter().find(|entry| entry.2 == Written::Possible);
                prop_assert_eq!(ages.oldest_possible(), possible.map(|entry| entry.1));
            }
            plain.iter().for_each(|entry| ages.remove(entry.0));
            prop_assert!(ages.is_empty());
        }
    }
}
