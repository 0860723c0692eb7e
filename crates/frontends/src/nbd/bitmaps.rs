//! Dirty bitmaps of an export: what changed of its disk since earlier instants. Clients ask for
//! them as metadata contexts, `qemu:dirty-bitmap:NAME`.

use headgate_engine::{ChangedBlocks, Difference};
use headgate_nbd::server::contexts::BitmapName;
use headgate_nbd::server::reply::{Change, Extent};
use std::iter;
use std::sync::{Arc, PoisonError, RwLock};

/// How far apart are the offsets whose runs are known beforehand, in bytes.
const STRIDE: u64 = 1 << 30;

/// A run of bytes that are alike.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    end: u64,
    change: Change,
}

/// A dirty bitmap, which never changes.
///
/// A shard looks things up in it while its other requests wait, and a run may be as long as the
/// disk. So the runs that hold the multiples of 1 GiB are found out beforehand; what begins and
/// ends between two of them is short. They take 24 KiB for 1 TiB.
#[derive(Clone, Debug)]
pub struct Bitmap {
    name: BitmapName,
    changes: Arc<ChangedBlocks>,
    marks: Arc<[Run]>,
}

impl Bitmap {
    /// A bitmap that calls dirty what may have changed, and what lies beyond the disk that
    /// `changes` knows. Looks at all of it: not for a thread that serves requests.
    #[must_use]
    pub fn new(name: BitmapName, changes: Arc<ChangedBlocks>) -> Bitmap {
        let mut marks = Vec::new();
        let (mut start, mut mark) = (0, 0);
        while let Some((len, difference)) = changes.run_at(start) {
            let run = Run { start, end: start + len, change: change(difference) };
            while mark < run.end {
                marks.push(run);
                mark += STRIDE;
            }
            start = run.end;
        }
        Bitmap { name, changes, marks: marks.into() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &BitmapName {
        &self.name
    }

    /// How far the disk is alike from `offset` on, and what it is there. Constant time: looks at
    /// no more than [`STRIDE`].
    fn run_at(&self, offset: u64) -> (u64, Change) {
        let next = usize::try_from(offset / STRIDE + 1).ok().and_then(|at| self.marks.get(at));
        if let Some(run) = next
            && run.start <= offset
        {
            return (run.end - offset, run.change);
        }
        match self.changes.run_at(offset) {
            Some((len, difference)) => (len, change(difference)),
            None => (u64::MAX - offset, Change::Dirty),
        }
    }

    /// The runs of a range, in order. The last one may go on behind it.
    pub(super) fn extents(&self, offset: u64, len: u32) -> impl Iterator<Item = Extent<Change>> {
        let end = offset.saturating_add(u64::from(len));
        let mut at = offset;
        iter::from_fn(move || {
            (at < end).then(|| {
                let (len, kind) = self.run_at(at);
                at = at.saturating_add(len);
                Extent { len, kind }
            })
        })
    }
}

fn change(difference: Difference) -> Change {
    match difference {
        Difference::None => Change::Clean,
        Difference::Possible => Change::Dirty,
    }
}

/// The dirty bitmaps that an export has now.
///
/// Clones are the same set: a change reaches the clients that come later. A connection keeps those
/// that its export had when it entered transmission.
#[derive(Clone, Debug, Default)]
pub struct Bitmaps(Arc<RwLock<Arc<[Bitmap]>>>);

impl Bitmaps {
    /// None.
    #[must_use]
    pub fn none() -> Bitmaps {
        Bitmaps::default()
    }

    /// The export has these from now on. Of those with one name, the first counts. Clients are
    /// offered the first [`MAX_BITMAPS`](headgate_nbd::server::contexts::MAX_BITMAPS).
    ///
    /// A client that has selected one that is then at another place of the list, or gone, and has
    /// not entered transmission yet is refused, and may connect again.
    pub fn set(&self, bitmaps: Vec<Bitmap>) {
        let mut kept: Vec<Bitmap> = Vec::with_capacity(bitmaps.len());
        for bitmap in bitmaps {
            if kept.iter().all(|one| one.name != bitmap.name) {
                kept.push(bitmap);
            }
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = kept.into();
    }

    /// Those that there are now.
    pub(super) fn now(&self) -> Arc<[Bitmap]> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
#[path = "bitmaps_tests.rs"]
pub(super) mod tests;
