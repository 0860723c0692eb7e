//! The copies of a pool: which disks are copied, and how far.

use headgate_qos::DiskId;
use headgate_units::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Copies under way and to come.
#[derive(Default)]
pub(super) struct Copies {
    pub(super) waiting: VecDeque<DiskCopy>,
    pub(super) active: Vec<DiskCopy>,
    /// The disk of the copier at each gate.
    pub(super) copiers: BTreeMap<u32, DiskId>,
    /// Bytes written to targets for copies.
    pub(super) copied: Bytes,
}

/// A disk that is copied.
pub(super) struct DiskCopy {
    pub(super) member: usize,
    pub(super) disk: u32,
    pub(super) from: usize,
    pub(super) to: usize,
    /// The move's number.
    pub(super) number: usize,
    /// Up to here it is copied or under way.
    pub(super) next: u64,
    pub(super) written: u64,
    pub(super) end: u64,
    pub(super) in_flight: u32,
}

impl Copies {
    /// Whether a disk is copied, or is to be.
    pub(super) fn of(&self, disk: u32) -> bool {
        self.active.iter().chain(&self.waiting).any(|copy| copy.disk == disk)
    }

    /// Whether none is under way, or to be.
    pub(super) fn are_done(&self) -> bool {
        self.active.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn ask_for(&mut self, (member, disk): (usize, u32), to: usize, number: usize) {
        let (from, end) = (0, 0);
        self.waiting.push_back(DiskCopy {
            member,
            disk,
            from,
            to,
            number,
            next: 0,
            written: 0,
            end,
            in_flight: 0,
        });
    }
}
