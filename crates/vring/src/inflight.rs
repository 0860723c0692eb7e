//! The in-flight region: which requests a device had taken from a split virtqueue and not yet given
//! back, in memory that outlives the device's process (vhost-user specification, "Inflight I/O
//! tracking", split virtqueue).
//!
//! ```text
//!  0 features u64 | 8 version u16 | 10 desc_num u16 | 12 last_batch_head u16 | 14 used_idx u16
//! 16 + 16 i: inflight u8 | padding 5 | next u16 | counter u64
//! ```
//!
//! The order of stores is the point: the process may die between any two of them. A head is marked
//! when it is taken. Heads given back are first chained from `last_batch_head`, then the used index
//! moves, then their marks go, then `used_idx` follows. So `used_idx` differs from the ring's index
//! exactly while the marks of the last batch are in doubt, and its length is the difference, in 16
//! bits.

use crate::layout::MAX_QUEUE_SIZE;
use crate::memory::{HostMapping, MemoryError, SharedArea};
use alloc::sync::Arc;
use alloc::vec::Vec;
use thiserror::Error;

const VERSION: u16 = 1;
const VERSION_AT: usize = 8;
const DESC_NUM_AT: usize = 10;
const LAST_BATCH_HEAD_AT: usize = 12;
const USED_IDX_AT: usize = 14;
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;

/// Why a region cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InflightError {
    /// Too short, or not aligned.
    #[error("the in-flight region does not fit its memory")]
    Memory(#[from] MemoryError),
    /// Written by a program that knows more than this one.
    #[error("the in-flight region has version {0}, only {VERSION} is known")]
    Version(u16),
    /// Made for another number of descriptors, or for fewer than the queue has.
    #[error("the in-flight region is for {region} descriptors, {expected} were expected")]
    Size {
        /// `desc_num` in the region.
        region: u16,
        /// What it had to be, at least.
        expected: u16,
    },
    /// Says that a descriptor is in flight which the queue does not have.
    #[error("the in-flight region names head {head}, the queue has {queue} descriptors")]
    Head {
        /// The head.
        head: u16,
        /// The queue's size.
        queue: u16,
    },
}

/// One queue's part of the in-flight memory.
pub struct InflightRegion {
    area: SharedArea,
    size: u16,
    /// The counter that orders marks: one above the largest in the region.
    counter: u64,
    /// Heads chained since the last publish. Kept here too, so that the shared chain is trusted
    /// only at recovery.
    batch: Vec<u16>,
}

impl InflightRegion {
    /// Bytes that one queue of this size takes, a multiple of 64.
    pub const fn bytes(queue_size: u16) -> usize {
        (HEADER_BYTES + ENTRY_BYTES * queue_size as usize).next_multiple_of(64)
    }

    /// The region at `offset` of `mapping`, for `size` descriptors: at least as many as its queue
    /// has (front-ends allot regions for the largest size, and a driver may choose a smaller one).
    /// Reads nothing yet.
    ///
    /// # Errors
    /// [`InflightError::Memory`].
    pub fn new(
        mapping: Arc<dyn HostMapping>,
        offset: usize,
        size: u16,
    ) -> Result<InflightRegion, InflightError> {
        debug_assert!(size <= MAX_QUEUE_SIZE);
        let area =
            SharedArea::new(mapping, offset, HEADER_BYTES + ENTRY_BYTES * usize::from(size), 8)?;
        Ok(InflightRegion { area, size, counter: 0, batch: Vec::with_capacity(usize::from(size)) })
    }

    /// Does the region, as it stands, hold requests that were taken and perhaps not given back. It
    /// may say yes for a last batch whose marks are in doubt.
    pub fn has_marks(&self) -> bool {
        (0..self.size).any(|head| self.area.load_u8(Self::entry(head)) != 0)
    }

    fn entry(head: u16) -> usize {
        HEADER_BYTES + ENTRY_BYTES * usize::from(head)
    }

    /// Takes the region over, with `used_idx` as it stands in the ring: settles what the last owner
    /// left half done and answers the heads it had taken and not given back, oldest first. A region
    /// never used before (all zero) is set up.
    ///
    /// # Errors
    /// The region was written for something else.
    pub(crate) fn recover(
        &mut self,
        used_idx: u16,
        queue_size: u16,
    ) -> Result<Vec<u16>, InflightError> {
        if self.size < queue_size {
            return Err(InflightError::Size { region: self.size, expected: queue_size });
        }
        let version = u16::from_le(self.area.load_u16(VERSION_AT));
        if version == 0 {
            // The ring may have been in use before the region was: its index is the start, not
            // zero.
            self.area.store_u16(DESC_NUM_AT, self.size.to_le());
            self.area.store_u16(LAST_BATCH_HEAD_AT, 0);
            self.area.store_u16(USED_IDX_AT, used_idx.to_le());
            self.area.store_u16_release(VERSION_AT, VERSION.to_le());
        } else if version != VERSION {
            return Err(InflightError::Version(version));
        }
        let desc_num = u16::from_le(self.area.load_u16(DESC_NUM_AT));
        if desc_num != self.size {
            return Err(InflightError::Size { region: desc_num, expected: self.size });
        }
        self.finish_last_batch(used_idx);
        let mut taken: Vec<(u64, u16)> = (0..self.size)
            .filter(|head| self.area.load_u8(Self::entry(*head)) != 0)
            .map(|head| (u64::from_le(self.area.load_u64(Self::entry(head) + COUNTER_AT)), head))
            .collect();
        if let Some((_, head)) = taken.iter().find(|(_, head)| *head >= queue_size) {
            return Err(InflightError::Head { head: *head, queue: queue_size });
        }
        taken.sort_unstable();
        self.counter = taken.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        Ok(taken.into_iter().map(|(_, head)| head).collect())
    }

    /// Step 1 of reconnecting: the used index moved, but the marks of that batch may still stand.
    fn finish_last_batch(&mut self, used_idx: u16) {
        let settled = u16::from_le(self.area.load_u16(USED_IDX_AT));
        let mut head = u16::from_le(self.area.load_u16(LAST_BATCH_HEAD_AT));
        // A difference above the queue's size is no batch: the ring was reset since, when nothing
        // was in flight.
        let batch = used_idx.wrapping_sub(settled);
        if batch <= self.size {
            for _ in 0..batch {
                if head >= self.size {
                    break;
                }
                self.area.store_u8(Self::entry(head), 0);
                head = u16::from_le(self.area.load_u16(Self::entry(head) + NEXT_AT));
            }
        }
        self.area.store_u16_release(USED_IDX_AT, used_idx.to_le());
    }

    /// The head was taken from the available ring.
    #[inline]
    pub(crate) fn on_taken(&mut self, head: u16) {
        let entry = Self::entry(head);
        self.area.store_u64(entry + COUNTER_AT, self.counter.to_le());
        self.counter = self.counter.wrapping_add(1);
        self.area.store_u8_release(entry, 1);
    }

    /// The head, the one taken last, is in the available ring again.
    pub(crate) fn on_put_back(&mut self, head: u16) {
        self.area.store_u8_release(Self::entry(head), 0);
    }

    /// The head was written to the used ring, whose index has not moved yet.
    #[inline]
    pub(crate) fn on_given_back(&mut self, head: u16) {
        let last = self.area.load_u16(LAST_BATCH_HEAD_AT);
        self.area.store_u16(Self::entry(head) + NEXT_AT, last);
        self.area.store_u16_release(LAST_BATCH_HEAD_AT, head.to_le());
        self.batch.push(head);
    }

    /// The used index moved to `used_idx`, past everything given back.
    #[inline]
    pub(crate) fn on_published(&mut self, used_idx: u16) {
        for head in self.batch.drain(..) {
            self.area.store_u8_release(Self::entry(head), 0);
        }
        self.area.store_u16_release(USED_IDX_AT, used_idx.to_le());
    }
}
