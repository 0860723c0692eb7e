//! Who has which part of a drive, and what became of it.

use super::spec::{SsdIsolation, SsdRating};
use super::stopwatch::Stopwatch;
use crate::DiskPlace;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use headgate_flash::{OwnerId, OwnerStats, Standing};
use headgate_units::{Bytes, Iops, Nanos, Shares};

/// What a flash drive is and did for all its disks, in pages and blocks, since it was made; what
/// ageing did is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashDrive {
    /// Whether disks share blocks.
    pub isolation: SsdIsolation,
    /// Where the rate comes from that dynamic isolation divides by shares.
    pub rating: SsdRating,
    /// That rate now, in page writes per second; `None` without dynamic isolation.
    pub rated: Option<Iops>,
    /// Size of an erase block.
    pub block: Bytes,
    /// Size of a page.
    pub page: Bytes,
    /// Over-provisioning space in blocks.
    pub spare: u32,
    /// Blocks of it that are nobody's.
    pub unassigned: u32,
    /// Pages that disks wrote.
    pub writes: u64,
    /// Pages that were programmed to keep word of discards.
    pub trims: u64,
    /// Pages that collection moved.
    pub moved: u64,
    /// Pages that wear levelling moved.
    pub levelled: u64,
    /// Blocks erased.
    pub erases: u64,
}

/// What a flash drive did for a disk, in pages and blocks, since the drive began to serve it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashCounters {
    /// Pages that the disk wrote.
    pub writes: u64,
    /// Pages that were moved because it wrote, its own and others'.
    pub moved_for: u64,
    /// Of these, its own.
    pub moved_own_for: u64,
    /// Its pages that were moved, whoever wrote.
    pub moved: u64,
    /// Blocks that were collected because it wrote.
    pub victims: u64,
    /// Pages of those blocks.
    pub victim_pages: u64,
    /// Of these, those that were still of use.
    pub victim_valid: u64,
    /// Those blocks that held pages of several disks.
    pub victims_mixed: u64,
    /// Blocks of its over-provisioning space now; on a shared drive of everybody's.
    pub spare: u64,
}

impl FlashCounters {
    /// Those of several drives together.
    #[must_use]
    pub fn plus(&self, other: &FlashCounters) -> FlashCounters {
        FlashCounters {
            writes: self.writes + other.writes,
            moved_for: self.moved_for + other.moved_for,
            moved_own_for: self.moved_own_for + other.moved_own_for,
            moved: self.moved + other.moved,
            victims: self.victims + other.victims,
            victim_pages: self.victim_pages + other.victim_pages,
            victim_valid: self.victim_valid + other.victim_valid,
            victims_mixed: self.victims_mixed + other.victims_mixed,
            spare: self.spare + other.spare,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct DriveDisk {
    place: DiskPlace,
    pages: u32,
    is_young: bool,
    is_gone: bool,
    /// What had happened before it was served.
    before: OwnerStats,
    /// The same of pages moved because it wrote, by whose they were.
    moved_before: Vec<(OwnerId, u64)>,
    /// Pages that went into the write buffer, and that left it.
    entered: u64,
    left: u64,
    /// Requests with a page that waits for room in the buffer, and when there is: so many must have
    /// left.
    waiting: VecDeque<(u64, u32)>,
    /// Requests, and pages in the write buffer, that are not done.
    inside: u64,
    /// Runs while there are any.
    busy: Stopwatch,
}

impl DriveDisk {
    pub(super) fn new(place: DiskPlace, pages: u32) -> DriveDisk {
        DriveDisk {
            place,
            pages,
            is_young: true,
            is_gone: false,
            before: OwnerStats::default(),
            moved_before: Vec::new(),
            entered: 0,
            left: 0,
            waiting: VecDeque::new(),
            inside: 0,
            busy: Stopwatch::default(),
        }
    }
}

/// All disks of a drive. A disk's number is its owner's at the translation layer.
#[derive(Debug, Default)]
pub(super) struct Disks {
    all: Vec<Option<DriveDisk>>,
    /// First byte and number, ascending.
    places: Vec<(u64, u32)>,
    /// Nobody was told of, and the only disk is the whole drive.
    pub(super) is_nobodys: bool,
}

impl Disks {
    pub(super) fn owner(key: u32) -> OwnerId {
        OwnerId(key as u16)
    }

    fn get(&self, key: u32) -> Option<&DriveDisk> {
        self.all.get(key as usize)?.as_ref()
    }

    fn get_mut(&mut self, key: u32) -> Option<&mut DriveDisk> {
        self.all.get_mut(key as usize)?.as_mut()
    }

    fn vacant_slot(&self) -> usize {
        self.all.iter().position(Option::is_none).unwrap_or(self.all.len())
    }

    /// The number that the next disk gets.
    pub(super) fn vacant(&self) -> Option<OwnerId> {
        u16::try_from(self.vacant_slot()).ok().map(OwnerId)
    }

    pub(super) fn insert(&mut self, disk: DriveDisk) {
        let slot = self.vacant_slot();
        let at = self.places.partition_point(|&(offset, _)| offset < disk.place.offset);
        self.places.insert(at, (disk.place.offset, slot as u32));
        if slot == self.all.len() {
            self.all.push(None);
        }
        self.all[slot] = Some(disk);
    }

    /// Its number is free again when the last of its pages has left the buffer.
    pub(super) fn remove(&mut self, key: u32) {
        self.places.retain(|&(_, other)| other != key);
        if let Some(disk) = self.get_mut(key) {
            disk.is_gone = true;
        }
        self.bury(key);
    }

    fn bury(&mut self, key: u32) {
        if self.get(key).is_some_and(|disk| disk.is_gone && disk.entered == disk.left) {
            self.all[key as usize] = None;
        }
    }

    /// Disks that there are.
    pub(super) fn count(&self) -> u32 {
        self.places.len() as u32
    }

    /// Numbers that are or were in use.
    pub(super) fn slots(&self) -> u32 {
        self.all.len() as u32
    }

    pub(super) fn taken(&self) -> u64 {
        self.places.iter().filter_map(|&(_, key)| self.get(key)).map(|disk| disk.place.size.0).sum()
    }

    /// Where a disk lies.
    pub(super) fn place(&self, key: u32) -> Option<DiskPlace> {
        self.get(key).map(|disk| disk.place)
    }

    /// How many pages it has.
    pub(super) fn pages(&self, key: u32) -> u32 {
        self.get(key).map_or(0, |disk| disk.pages)
    }

    /// A disk lies elsewhere from now on, and has so many pages at least.
    pub(super) fn replace(&mut self, key: u32, place: DiskPlace, pages: u32) {
        let Some(disk) = self.get_mut(key) else { return };
        let shares = disk.place.shares;
        disk.place = DiskPlace { shares, ..place };
        disk.pages = disk.pages.max(pages);
        self.places.retain(|&(_, other)| other != key);
        let at = self.places.partition_point(|&(offset, _)| offset < place.offset);
        self.places.insert(at, (place.offset, key));
    }

    /// Whether a place overlaps that of another disk than this one.
    pub(super) fn meets(&self, place: &DiskPlace, but: Option<u32>) -> bool {
        let overlaps = |disk: &DriveDisk| {
            disk.place.offset < place.offset + place.size.0
                && place.offset < disk.place.offset + disk.place.size.0
        };
        let others = self.places.iter().filter(|&&(_, key)| Some(key) != but);
        others.filter_map(|&(_, key)| self.get(key)).any(overlaps)
    }

    /// The disk that has a byte.
    pub(super) fn at(&self, offset: u64) -> Option<(u32, DiskPlace)> {
        let next = self.places.partition_point(|&(first, _)| first <= offset);
        let &(first, key) = self.places.get(next.checked_sub(1)?)?;
        let place = self.get(key)?.place;
        (offset - first < place.size.0).then_some((key, place))
    }

    pub(super) fn shares(&self, owner: OwnerId) -> Option<Shares> {
        self.get(owner.0.into()).map(|disk| disk.place.shares)
    }

    pub(super) fn set_shares(&mut self, key: u32, shares: Shares) {
        if let Some(disk) = self.get_mut(key) {
            disk.place.shares = shares;
        }
    }

    /// Disks that nobody has used yet, and their pages: they are asked for once.
    pub(super) fn take_young(&mut self) -> Vec<(OwnerId, u32)> {
        let mut young = Vec::new();
        for (key, disk) in self.all.iter_mut().enumerate() {
            let Some(disk) = disk else { continue };
            if disk.is_young && !disk.is_gone {
                young.push((Disks::owner(key as u32), disk.pages));
            }
            disk.is_young = false;
        }
        young
    }

    /// What happened so far does not count.
    pub(super) fn begin(
        &mut self,
        owner: OwnerId,
        before: OwnerStats,
        moved_before: Vec<(OwnerId, u64)>,
    ) {
        if let Some(disk) = self.get_mut(owner.0.into()) {
            (disk.before, disk.moved_before) = (before, moved_before);
        }
    }

    /// Of pages moved because a disk wrote, so many before it was served were another's.
    pub(super) fn moved_before(&self, key: u32, of: OwnerId) -> u64 {
        let Some(disk) = self.get(key) else { return 0 };
        disk.moved_before.iter().find(|&&(owner, _)| owner == of).map_or(0, |&(_, pages)| pages)
    }

    /// A request of a disk, or a page for the write buffer, comes in.
    pub(super) fn come_in(&mut self, key: u32, now: Nanos) {
        if let Some(disk) = self.get_mut(key) {
            disk.inside += 1;
            disk.busy.start(now);
        }
    }

    /// It is done.
    pub(super) fn go_out(&mut self, key: u32, now: Nanos) {
        if let Some(disk) = self.get_mut(key) {
            disk.inside = disk.inside.saturating_sub(1);
            if disk.inside == 0 {
                disk.busy.stop(now);
            }
        }
    }

    /// For how long a disk had anything inside since this was last asked.
    pub(super) fn take_busy(&mut self, key: u32, now: Nanos) -> Nanos {
        self.get_mut(key).map_or(Nanos::ZERO, |disk| disk.busy.take(now))
    }

    /// A page comes into the buffer, of which the disk may have `room` pages. False: its request
    /// has to wait until it may.
    pub(super) fn enter_buffer(&mut self, key: u32, room: u64, request: u32) -> bool {
        let Some(disk) = self.get_mut(key) else { return true };
        disk.entered += 1;
        if disk.entered - disk.left <= room {
            return true;
        }
        let must_have_left = disk.entered - room;
        disk.waiting.push_back((must_have_left, request));
        false
    }

    /// A page has been programmed. The request that the buffer has room for now.
    pub(super) fn leave_buffer(&mut self, key: u32) -> Option<u32> {
        let disk = self.get_mut(key)?;
        disk.left += 1;
        let ready = disk.waiting.front().is_some_and(|&(after, _)| after <= disk.left);
        let admitted = if ready { disk.waiting.pop_front() } else { None };
        self.bury(key);
        admitted.map(|(_, request)| request)
    }

    pub(super) fn counters(
        &self,
        key: u32,
        now: OwnerStats,
        standing: Standing,
        block: u32,
    ) -> FlashCounters {
        let before = self.get(key).map(|disk| disk.before).unwrap_or_default();
        let victims = now.victims - before.victims;
        FlashCounters {
            writes: now.host_writes - before.host_writes,
            moved_for: now.moved_for - before.moved_for,
            moved_own_for: now.moved_own_for - before.moved_own_for,
            moved: now.moved - before.moved,
            victims,
            victim_pages: victims * u64::from(block),
            victim_valid: now.victim_valid - before.victim_valid,
            victims_mixed: now.victims_mixed - before.victims_mixed,
            spare: standing.spare.into(),
        }
    }
}

/// Pages in the buffer by the flush that came after them.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    first: u32,
    open: VecDeque<Epoch>,
}

#[derive(Debug, Default)]
struct Epoch {
    pages: u64,
    /// The flush that ended it.
    flush: Option<u32>,
}

impl Epochs {
    /// A page comes in.
    pub(super) fn enter(&mut self) -> u32 {
        if self.open.back().is_none_or(|epoch| epoch.flush.is_some()) {
            self.open.push_back(Epoch::default());
        }
        let last = self.open.len() - 1;
        self.open[last].pages += 1;
        self.first.wrapping_add(last as u32)
    }

    /// A page has been programmed. Flushes that waited for nothing else.
    pub(super) fn leave(&mut self, epoch: u32) -> Vec<u32> {
        if let Some(epoch) = self.open.get_mut(epoch.wrapping_sub(self.first) as usize) {
            epoch.pages -= 1;
        }
        let mut flushed = Vec::new();
        while self.open.front().is_some_and(|epoch| epoch.pages == 0) {
            flushed.extend(self.open.pop_front().and_then(|epoch| epoch.flush));
            self.first = self.first.wrapping_add(1);
        }
        flushed
    }

    /// Whether a flush has something to wait for.
    pub(super) fn wait(&mut self, request: u32) -> bool {
        if self.open.is_empty() {
            return false;
        }
        if self.open.back().is_some_and(|epoch| epoch.flush.is_some()) {
            self.open.push_back(Epoch::default());
        }
        if let Some(last) = self.open.back_mut() {
            last.flush = Some(request);
        }
        true
    }
}
