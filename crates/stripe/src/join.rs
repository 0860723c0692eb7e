use crate::layout::{Layout, MEMBERS_MAX};
use crate::ranges::{Run, Runs};
use core::iter::FusedIterator;

/// Bytes in a row of which one thing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch<K> {
    /// In bytes. Empty ones are passed over.
    pub len: u64,
    /// What is said of them.
    pub kind: K,
}

/// What the members of a disk say of a range of it, in the order of the disk
/// ([`Layout::join`](crate::Layout::join)).
#[derive(Clone, Debug)]
pub struct Joined<K, F> {
    runs: Runs,
    /// What is left of the run that comes next.
    run: Option<Run>,
    /// What is left of each member's stretch.
    held: [Option<Stretch<K>>; MEMBERS_MAX as usize],
    next_of: F,
}

impl Layout {
    /// What the members say of a range of the disk, in the order of the disk. `next_of` gives the
    /// next stretch that a member says of its [part](Layout::parts), from the beginning of that
    /// on; what goes beyond the part is left out. Neighbours of one kind become one.
    ///
    /// It ends with the range, or before the first byte of which its member says nothing. O(1) for
    /// each run and each stretch.
    pub fn join<K, F>(&self, offset: u64, len: u64, next_of: F) -> Joined<K, F>
    where
        K: Copy + Eq,
        F: FnMut(u16) -> Option<Stretch<K>>,
    {
        let mut runs = self.runs(offset, len);
        let run = runs.next();
        Joined { runs, run, held: [None; MEMBERS_MAX as usize], next_of }
    }
}

impl<K: Copy, F: FnMut(u16) -> Option<Stretch<K>>> Joined<K, F> {
    /// What a member says next, if it says anything more.
    fn of(&mut self, member: u16) -> Option<&mut Stretch<K>> {
        let held = self.held.get_mut(usize::from(member))?;
        while held.is_none_or(|stretch| stretch.len == 0) {
            *held = Some((self.next_of)(member)?);
        }
        held.as_mut()
    }
}

impl<K: Copy + Eq, F: FnMut(u16) -> Option<Stretch<K>>> Iterator for Joined<K, F> {
    type Item = Stretch<K>;

    fn next(&mut self) -> Option<Stretch<K>> {
        let mut found: Option<Stretch<K>> = None;
        while let Some(run) = self.run {
            let Some(stretch) = self.of(run.member) else {
                self.run = None;
                break;
            };
            let (here, kind) = (run.len.min(stretch.len), stretch.kind);
            match &mut found {
                None => found = Some(Stretch { len: here, kind }),
                Some(found) if found.kind == kind => found.len += here,
                Some(_) => break,
            }
            stretch.len -= here;
            let left = Run { at: run.at + here, len: run.len - here, ..run };
            self.run = if left.len > 0 { Some(left) } else { self.runs.next() };
        }
        found
    }
}

impl<K: Copy + Eq, F: FnMut(u16) -> Option<Stretch<K>>> FusedIterator for Joined<K, F> {}
