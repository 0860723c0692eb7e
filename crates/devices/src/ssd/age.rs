//! A drive that was used before.

use crate::rng::SplitMix64;
use headgate_flash::{Ftl, FtlError, Ignore, Medium, OwnerId};

/// The largest piece in pages: the paper's 4 to 32 KiB.
const MOST_PAGES: u64 = 8;
/// How often the capacity is overwritten: "exceeding capacity".
const TIMES: u64 = 2;

/// A disk to be aged, and its pages.
pub(super) type Young = (OwnerId, u32);

/// Writes all pages of each disk, one disk after the other.
pub(super) fn fill<M: Medium>(ftl: &mut Ftl<M>, disks: &[Young]) -> Result<(), FtlError> {
    for &(owner, pages) in disks {
        for page in 0..pages {
            ftl.write(owner, page, &mut Ignore)?;
        }
    }
    Ok(())
}

/// Overwrites pieces of 1 to 8 pages anywhere on all the disks until it was twice their size (FAST 2015, figure 1: an aged drive).
pub(super) fn overwrite<M: Medium>(
    ftl: &mut Ftl<M>,
    disks: &[Young],
    random: &mut SplitMix64,
) -> Result<(), FtlError> {
    let all: u64 = disks.iter().map(|&(_, pages)| u64::from(pages)).sum();
    let mut left = all * TIMES;
    while left > 0 {
        let mut at = random.below(all);
        let wanted = 1 + random.below(MOST_PAGES);
        for &(owner, pages) in disks {
            if at >= u64::from(pages) {
                at -= u64::from(pages);
                continue;
            }
            let count = wanted.min(u64::from(pages) - at).min(left);
            for page in at..at + count {
                ftl.write(owner, page as u32, &mut Ignore)?;
            }
            left -= count;
            break;
        }
    }
    Ok(())
}
