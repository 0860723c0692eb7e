//! A drive that was used before.

use super::spec::SsdAge;
use crate::rng::SplitMix64;
use alloc::vec::Vec;
use headgate_flash::{Ftl, FtlError, Ignore, Medium, OwnerId};

/// The largest piece in pages: the paper's 4 to 32 KiB.
const MOST_PAGES: u64 = 8;
/// How often the capacity is overwritten: "exceeding capacity".
const TIMES: u64 = 2;

/// A disk to be aged, and its pages.
pub(super) type Young = (OwnerId, u32);

/// What a step left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More steps.
    Going,
    /// Nothing.
    Done,
}

/// Disks that are being given a past, in steps: first all pages of each are written, one disk after
/// the other, then pieces of 1 to 8 pages anywhere on all of them until it was twice their size
/// (FAST 2015, figure 1: an aged drive).
#[derive(Debug)]
pub(super) struct Ageing {
    pub(super) disks: Vec<Young>,
    /// The page to fill next: of which disk, and which.
    filling: (usize, u32),
    /// Pages to overwrite after that.
    left: u64,
}

impl Ageing {
    pub(super) fn new(disks: Vec<Young>, aged: SsdAge) -> Ageing {
        let times = match aged {
            SsdAge::New | SsdAge::Full => 0,
            SsdAge::Aged => TIMES,
        };
        let left = pages(&disks) * times;
        Ageing { disks, filling: (0, 0), left }
    }

    /// One of the disks is no more.
    pub(super) fn forget(&mut self, gone: OwnerId) {
        let Some(at) = self.disks.iter().position(|&(owner, _)| owner == gone) else { return };
        self.disks.remove(at);
        let (filling, _) = self.filling;
        if at < filling {
            self.filling.0 -= 1;
        } else if at == filling {
            self.filling.1 = 0;
        }
        self.left = self.left.min(pages(&self.disks) * TIMES);
    }

    /// Writes `most` pages or a few more.
    pub(super) fn step<M: Medium>(
        &mut self,
        ftl: &mut Ftl<M>,
        random: &mut SplitMix64,
        most: u32,
    ) -> Result<Progress, FtlError> {
        let mut written = 0;
        while let Some(&(owner, pages)) = self.disks.get(self.filling.0) {
            if written >= most {
                return Ok(Progress::Going);
            }
            if self.filling.1 == pages {
                self.filling = (self.filling.0 + 1, 0);
                continue;
            }
            ftl.write(owner, self.filling.1, &mut Ignore)?;
            self.filling.1 += 1;
            written += 1;
        }
        let all = pages(&self.disks);
        while self.left > 0 {
            if written >= most {
                return Ok(Progress::Going);
            }
            written += self.overwrite(ftl, random, all)?;
        }
        Ok(Progress::Done)
    }

    /// Writes one piece. Returns its pages.
    fn overwrite<M: Medium>(
        &mut self,
        ftl: &mut Ftl<M>,
        random: &mut SplitMix64,
        all: u64,
    ) -> Result<u32, FtlError> {
        let mut at = random.below(all);
        let wanted = 1 + random.below(MOST_PAGES);
        for &(owner, pages) in &self.disks {
            if at >= u64::from(pages) {
                at -= u64::from(pages);
                continue;
            }
            let count = wanted.min(u64::from(pages) - at).min(self.left);
            for page in at..at + count {
                ftl.write(owner, page as u32, &mut Ignore)?;
            }
            self.left -= count;
            return Ok(count as u32);
        }
        Ok(0)
    }
}

fn pages(disks: &[Young]) -> u64 {
    disks.iter().map(|&(_, pages)| u64::from(pages)).sum()
}
