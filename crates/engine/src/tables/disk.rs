//! An open disk, as its shard holds it.

use super::block_locks::BlockLocks;
use super::lane::Queues;
use super::queue_slots::QueueSlots;
use super::range_queue::RangeQueue;
use super::slots::Zeroing;
use super::streams::Streams;
use super::trouble::Trouble;
use crate::backend::storage::Storage;
use crate::error::{EngineError, MoveError};
use crate::ids::DiskId;
use crate::priorities::Priorities;
use crate::request::{Access, DiskInfo, Op, Request, Unmap};
use headgate_mirror::changes::Changes;
use headgate_qos::Io;
use headgate_qos::Policy;
use headgate_stats::DiskStats;
use headgate_units::Bytes;
use std::sync::Arc;

pub(crate) struct ShardDisk {
    pub info: DiskInfo,
    pub datastore: usize,
    /// What its backend made of its image.
    pub storage: Storage,
    pub access: Access,
    pub queues: Queues,
    pub policy: Policy,
    pub priorities: Priorities,
    /// How its storage was seen to zero ranges that may become holes, and those that must not.
    pub zeroing: [Zeroing; 2],
    pub streams: Streams,
    pub queue_slots: QueueSlots,
    /// Those that free or zero ranges.
    pub ranges: RangeQueue,
    /// Blocks that ports change a part of.
    pub locks: BlockLocks,
    pub in_flight: u32,
    /// How many requests failed that were to make something durable.
    pub undurable: u64,
    /// Where is noted what its clients change.
    pub changes: Option<Arc<Changes>>,
    pub ports: Vec<u32>,
    pub stats: DiskStats,
    /// What its storage failed, and what it holds for that.
    pub trouble: Trouble,
    /// The live move that it has a part in, by its number in the shard.
    pub moving: Option<u32>,
    /// The move of another shard whose target it is, by its number here.
    pub landing: Option<u32>,
    /// Whether its storage is being given another size.
    pub resizing: SizeChange,
    /// What its clients' ports hang on, if that is another disk: it moves, or has moved.
    pub successor: Option<Successor>,
    /// The copy of it that takes its blocks, while it is being made.
    pub shares_with: Option<SharesWith>,
}

/// What takes a disk's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharesWith {
    /// The copy, by its number in the shard.
    pub disk: u32,
    /// What is shared is whole chunks of so many bytes.
    pub chunk: Bytes,
}

/// Whether a disk's storage is being given another size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SizeChange {
    /// It is not.
    #[default]
    None,
    /// It is, and the disk cannot begin to move.
    UnderWay,
}

/// The disk that the clients' ports of one hang on that moves, or has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Successor {
    /// One of this shard.
    Here(u32),
    /// One of another shard.
    Elsewhere(DiskId),
}

impl ShardDisk {
    /// Whether it is a side of a move.
    pub(crate) fn is_moving(&self) -> bool {
        self.moving.is_some() || self.landing.is_some()
    }

    /// That nobody is giving it another size.
    pub(crate) fn check_size_stays(&self) -> Result<(), EngineError> {
        match self.resizing {
            SizeChange::None => Ok(()),
            SizeChange::UnderWay => Err(MoveError::Resizing.into()),
        }
    }

    /// A client is about to change this range.
    #[inline]
    pub(crate) fn note_change(&self, offset: u64, len: u64) {
        if let Some(changes) = &self.changes {
            changes.mark(offset, len);
        }
    }

    /// What clients had an answer for may be gone, and older content there again. O(size): 16,384
    /// words for 1 TiB.
    pub(crate) fn note_loss(&self) {
        self.note_change(0, u64::MAX);
    }

    /// Whether it can be the target of a move.
    pub(crate) fn check_as_target(&self) -> Result<(), EngineError> {
        if self.is_moving() {
            return Err(MoveError::Moving.into());
        }
        self.check_size_stays()?;
        if !self.ports.is_empty() {
            return Err(EngineError::DiskBusy { ports: self.ports.len() });
        }
        Ok(())
    }

    /// A request as the scheduler sees it: what it has the storage move is what it is charged for.
    /// Advice to read ahead is a read where there is a cache, and zeroes are a write where they are
    /// written.
    #[inline]
    pub(crate) fn io(&self, request: &Request) -> Io {
        let io = self.priorities.io(request);
        let moves = match request.op {
            Op::Cache => self.access == Access::Cached,
            Op::WriteZeroes { unmap, .. } => self.zeroing[unmap as usize] == Zeroing::Written,
            _ => return io,
        };
        if moves { Io { bytes: Bytes(request.len), ..io } } else { io }
    }

    /// Whether a request has the storage itself free or zero a range.
    pub(crate) fn is_range(&self, op: Op) -> bool {
        match op {
            Op::Discard => true,
            Op::WriteZeroes { unmap, .. } => self.zeroing[unmap as usize] == Zeroing::ByStorage,
            _ => false,
        }
    }

    /// A write-zeroes has ended. Returns whether those like it cost more than was known. What was
    /// seen once stays: a request that fails says nothing, and a guest can send as many of those as
    /// it likes.
    pub(crate) fn learn_zeroing(&mut self, unmap: Unmap, zeroing: Zeroing) -> Learnt {
        let known = &mut self.zeroing[unmap as usize];
        if zeroing == Zeroing::ByStorage || *known == Zeroing::Written {
            return Learnt::Nothing;
        }
        *known = Zeroing::Written;
        Learnt::Cost
    }
}

/// What a request that ended has shown of its disk's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learnt {
    /// Nothing new.
    Nothing,
    /// That requests of its kind are charged too little.
    Cost,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Durability, ZeroSpeed};
    use headgate_qos::{AnyScheduler, Config, Scheduler as _, SchedulerKind};
    use headgate_units::Nanos;

    fn disk(access: Access) -> ShardDisk {
        let mut scheduler =
            AnyScheduler::<u32>::new(SchedulerKind::MClock, Config::default()).unwrap();
        ShardDisk {
            info: DiskInfo::plain("disk", 1 << 30, 512),
            datastore: 0,
            storage: Storage::Null,
            access,
            queues: Queues::new(scheduler.register(Nanos::ZERO, Policy::default())),
            policy: Policy::default(),
            priorities: Priorities::default(),
            zeroing: Default::default(),
            streams: Streams::new(),
            queue_slots: QueueSlots::default(),
            ranges: RangeQueue::default(),
            locks: BlockLocks::default(),
            in_flight: 0,
            undurable: 0,
            changes: None,
            ports: Vec::new(),
            stats: DiskStats::new(Nanos::ZERO),
            trouble: Trouble::default(),
            moving: None,
            landing: None,
            resizing: Default::default(),
            successor: None,
            shares_with: None,
        }
    }

    fn charged(disk: &ShardDisk, op: Op) -> u64 {
        disk.io(&Request { op, offset: 0, len: 1 << 20, cookie: 0, ioprio: 0 }).bytes.0
    }

    fn zeroes(unmap: Unmap) -> Op {
        Op::WriteZeroes { unmap, speed: ZeroSpeed::Any, durability: Durability::Cached }
    }

    #[test]
    fn zeroes_are_charged_as_writes_once_they_were_seen_to_be_written() {
        let mut disk = disk(Access::Direct);
        let [may, must_not] = [Unmap::May, Unmap::MustNot];
        assert_eq!(disk.learn_zeroing(must_not, Zeroing::ByStorage), Learnt::Nothing);
        assert_eq!(charged(&disk, zeroes(must_not)), 0);
        assert_eq!(disk.learn_zeroing(must_not, Zeroing::Written), Learnt::Cost);
        assert_eq!(disk.learn_zeroing(must_not, Zeroing::Written), Learnt::Nothing);
        let both = [may, must_not].map(|unmap| charged(&disk, zeroes(unmap)));
        assert_eq!(both, [0, 1 << 20], "a hole is another operation");
        // As of a request that fails.
        disk.learn_zeroing(must_not, Zeroing::ByStorage);
        assert_eq!(charged(&disk, zeroes(must_not)), 1 << 20);
        assert_eq!(charged(&disk, Op::Discard), 0);
    }

    #[test]
    fn advice_to_read_ahead_is_charged_where_there_is_a_cache() {
        assert_eq!(charged(&disk(Access::Cached), Op::Cache), 1 << 20);
        assert_eq!(charged(&disk(Access::Direct), Op::Cache), 0);
    }
}
