//! A flash drive: chips with their times under a translation layer, perhaps one that isolates its
//! disks.

mod age;
mod disks;
mod fabric;
mod lane;
mod spec;
mod stopwatch;
pub(crate) mod text;

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
pub use disks::{FlashCounters, FlashDrive};
pub use spec::{
    SsdAge, SsdIsolation, SsdRating, SsdSpec, SsdSpecError, SsdTargets, SsdVictims, Switch,
};

use crate::rng::SplitMix64;
use crate::{DeviceIo, DeviceModel, DiskPlace, IoKind, PlaceError, Readiness};
use age::{Ageing, Progress};
use alloc::collections::VecDeque;
use disks::{Disks, DriveDisk, Epochs};
use fabric::{Class, Fabric, Task};
use headgate_flash::{
    Cause, Ftl, FtlError, FtlStats, Image, Op, OwnerError, OwnerId, OwnerSpec, Spent, Standing,
};
use headgate_units::{Bytes, Nanos, Shares};
use lane::{Lane, Who};
use slab::Slab;

/// What the controller takes for a request at least, whatever else it does meanwhile.
const CONTROLLER: Nanos = Nanos::from_micros(10);
/// How long nobody may have wanted anything before collection runs in the background.
const IDLE: Nanos = Nanos::from_millis(1);
/// Pages that are moved at once for each disk: while one is programmed, another is read and
/// transferred.
const PAGE_BUFFERS: u32 = 2;

/// A flash drive with a page-mapped translation layer ([`headgate_flash::Ftl`]), which collects
/// garbage as a real one does: its speed depends on what was written before, by whom, and on who
/// owns which blocks.
///
/// - Each plane reads, programs and erases by itself, one operation at a time; each channel moves
///   one page at a time for its dies. Requests of hosts go before collection at both, but interrupt
///   nothing. A page moved within its plane needs no channel.
/// - A write that needs a block first waits for the collection that frees it, and so do later
///   writes into the same blocks: those of everybody on a shared drive, of the same disk under
///   isolation. Two pages are moved at once for each disk, so that a move costs about the time of
///   its program (t_PRG of equation 1).
/// - When nobody has wanted anything for 1 ms, collection goes on in the background until the drive
///   has free blocks again, one page at a time. Requests go first.
/// - A write is done when its pages are programmed; with a write buffer, when they are in the
///   buffer, of which each disk has an equal part. A flush then waits for what was written before
///   it. Without a buffer it waits for nothing.
/// - A read of a page that was never written, or was discarded, needs no chip. Less than a page is
///   written by reading the page and programming another. Discards count for whole pages, and
///   program one page each to say so.
/// - Every request takes 10 us at least.
///
/// Disks are told by [`DeviceModel::add_disk`]; until there is one, the whole drive is one disk.
/// What lies on no disk is answered and kept nowhere. `aged` is done when the first request comes
/// (or before it, by [`DeviceModel::make_ready`]), for all disks that came before it together, and
/// takes about half a second of computing for each GiB.
///
/// An offset that lies on no disk wraps around at the capacity. A range is cut at the end of its
/// disk.
///
/// Everything is a function of the specification, the disks and the submissions (with their
/// instants). A page costs O(log n) for n operations under way, and what its collection moves the
/// same.
pub struct Ssd {
    spec: SsdSpec,
    ftl: Ftl<Image>,
    fabric: Fabric,
    lanes: Vec<Lane>,
    disks: Disks,
    requests: Slab<Request>,
    /// When the controller has done its part of requests, in this order.
    controller: VecDeque<(Nanos, u32)>,
    epochs: Epochs,
    /// Operations that hosts' requests caused and that are not done.
    working: u64,
    /// Operations of background collection that are not done.
    behind: u64,
    /// Since when nobody wants anything; `None` while somebody does, and when nothing is left to
    /// do.
    idle: Option<Nanos>,
    done: VecDeque<(Nanos, u64)>,
    ops: Vec<Op>,
    ageing: Option<Ageing>,
    /// What the layer did to age disks.
    past: FtlStats,
    random: SplitMix64,
    seen: Nanos,
}

/// A request inside, until nothing of it is left to do.
#[derive(Debug)]
struct Request {
    id: u64,
    parts: u64,
    /// On which disk it is, if on any.
    disk: Option<u32>,
}

impl Ssd {
    /// A drive as the specification says, with no disks.
    pub fn new(spec: &SsdSpec) -> Ssd {
        let ftl = spec.translation();
        let geometry = ftl.geometry();
        let mut ssd = Ssd {
            fabric: Fabric::new(geometry, spec.channels, spec.times),
            ftl,
            lanes: Vec::new(),
            disks: Disks::default(),
            requests: Slab::new(),
            controller: VecDeque::new(),
            epochs: Epochs::default(),
            working: 0,
            behind: 0,
            idle: None,
            done: VecDeque::new(),
            ops: Vec::new(),
            ageing: None,
            past: FtlStats::default(),
            random: SplitMix64::new(spec.seed),
            seen: Nanos::ZERO,
            spec: spec.clone(),
        };
        let whole = DiskPlace { offset: 0, size: spec.size, shares: Shares::default() };
        let placed = ssd.place(whole);
        debug_assert!(placed.is_ok());
        ssd.disks.is_nobodys = true;
        ssd
    }

    fn place(&mut self, place: DiskPlace) -> Result<(), PlaceError> {
        let left = Bytes(self.spec.size.0.saturating_sub(self.disks.taken()));
        let is_nowhere = place.offset.checked_add(place.size.0).is_none();
        if is_nowhere || place.size > left || self.disks.meets(&place, None) {
            return Err(PlaceError::NoSpace { size: place.size, capacity: self.spec.size, left });
        }
        let pages = u32::try_from(place.size.0.div_ceil(self.spec.page.0)).unwrap_or(u32::MAX);
        let key = self.disks.vacant().ok_or(PlaceError::TooMany)?;
        let owner = OwnerSpec { pages, shares: place.shares, target: None };
        self.ftl.add_owner(key, owner).map_err(|error| self.refusal(&error))?;
        self.disks.insert(DriveDisk::new(place, pages));
        self.fit_lanes();
        Ok(())
    }

    fn replace(&mut self, key: u32, place: DiskPlace) -> Result<(), PlaceError> {
        let Some(before) = self.disks.place(key) else { return Ok(()) };
        let taken = self.disks.taken().saturating_sub(before.size.0);
        let left = Bytes(self.spec.size.0.saturating_sub(taken));
        let is_nowhere = place.offset.checked_add(place.size.0).is_none();
        if is_nowhere || place.size > left || self.disks.meets(&place, Some(key)) {
            return Err(PlaceError::NoSpace { size: place.size, capacity: self.spec.size, left });
        }
        let pages = u32::try_from(place.size.0.div_ceil(self.spec.page.0)).unwrap_or(u32::MAX);
        // What is beyond a smaller size the layer keeps as data.
        if place.size > before.size {
            let grown = self.ftl.grow_owner(Disks::owner(key), pages.max(self.disks.pages(key)));
            grown.map_err(|error| self.refusal(&error))?;
        }
        self.disks.replace(key, place, pages);
        Ok(())
    }

    fn is_shared(&self) -> bool {
        self.spec.isolation == SsdIsolation::None
    }

    fn lane_of(&self, disk: u32) -> u32 {
        if self.is_shared() { 0 } else { disk }
    }

    /// Each disk has its page buffers, and on a shared drive they are everybody's.
    fn fit_lanes(&mut self) {
        let most = self.disks.slots().max(1) as usize;
        let lanes = if self.is_shared() { 1 } else { most };
        if self.lanes.len() < lanes {
            self.lanes.resize_with(lanes, || Lane::new(PAGE_BUFFERS));
        }
        if self.is_shared() {
            self.lanes[0].depth = PAGE_BUFFERS * self.disks.count().max(1);
        }
    }

    /// Gives disks that are young the past that the specification says, all together, with so many
    /// page writes at most.
    fn grow_old(&mut self, most: u32) -> Readiness {
        let mut ageing = match self.ageing.take() {
            Some(ageing) => ageing,
            None => {
                let young = self.disks.take_young();
                if young.is_empty() || self.spec.aged == SsdAge::New {
                    return Readiness::Ready;
                }
                Ageing::new(young, self.spec.aged)
            }
        };
        let before = self.ftl.stats();
        let outcome = ageing.step(&mut self.ftl, &mut self.random, most);
        let done = self.expect(outcome);
        self.past = self.past.plus(&self.ftl.stats().since(&before));
        if done == Some(Progress::Going) {
            self.ageing = Some(ageing);
            return Readiness::Busy;
        }
        for &(owner, _) in &ageing.disks {
            let stats = self.ftl.owner_stats(owner).unwrap_or_default();
            let of = |&(other, _): &(OwnerId, u32)| {
                self.ftl.moved_between(owner, other).map(|pages| (other, pages))
            };
            let moved = ageing.disks.iter().filter_map(of).collect();
            self.disks.begin(owner, stats, moved);
            if let Some(shares) = self.disks.shares(owner) {
                // Over-provisioning space is as Algorithm 1 begins.
                self.ftl.set_shares(owner, shares);
            }
        }
        // Others may have come meanwhile.
        Readiness::Busy
    }

    /// A layer that has no blocks for a disk of which the drive has the bytes: under isolation each
    /// takes a few beside its data.
    fn refusal(&self, error: &OwnerError) -> PlaceError {
        let block = Bytes(self.spec.page.0 * u64::from(self.spec.block));
        PlaceError::Refused(match error {
            OwnerError::NoSpace { needed, left, .. } => format!(
                "it needs {needed} blocks of {block}, those that collection takes included, and {left} are left; give it another size, remove \
                 others, or give the drive more op"
            ),
            other => other.to_string(),
        })
    }

    /// The image never fails and pages are checked against their disk, so the layer refuses
    /// nothing.
    fn expect<T>(&self, outcome: Result<T, FtlError>) -> Option<T> {
        debug_assert!(outcome.is_ok(), "{:?}", outcome.as_ref().err());
        outcome.ok()
    }

    fn submit_pages(&mut self, request: u32, io: DeviceIo) {
        let offset = match self.disks.at(io.offset) {
            Some(_) => io.offset,
            None => io.offset % self.spec.size.0,
        };
        let Some((key, place)) = self.disks.at(offset).filter(|_| io.bytes.0 > 0) else { return };
        self.requests[request as usize].disk = Some(key);
        self.disks.come_in(key, self.seen);
        let (page, first) = (self.spec.page.0, offset - place.offset);
        let end = first.saturating_add(io.bytes.0).min(place.size.0);
        let owner = Disks::owner(key);
        match io.kind {
            IoKind::Read => {
                for at in first / page..end.div_ceil(page) {
                    self.read(request, key, at as u32);
                }
            }
            IoKind::Write => {
                for at in first / page..end.div_ceil(page) {
                    if at * page < first || end < ((at + 1) * page).min(place.size.0) {
                        self.read(request, key, at as u32);
                    }
                    self.tell_time(key);
                    let mut ops = core::mem::take(&mut self.ops);
                    let outcome = self.ftl.write(owner, at as u32, &mut ops);
                    self.expect(outcome);
                    self.hand_over(request, key, &ops);
                    ops.clear();
                    self.ops = ops;
                }
            }
            IoKind::Discard => {
                let (from, to) = (
                    first.div_ceil(page),
                    if end == place.size.0 { end.div_ceil(page) } else { end / page },
                );
                if from < to {
                    let mut ops = core::mem::take(&mut self.ops);
                    let outcome = self.ftl.trim(owner, from as u32, (to - from) as u32, &mut ops);
                    self.expect(outcome);
                    self.hand_over(request, key, &ops);
                    ops.clear();
                    self.ops = ops;
                }
            }
            IoKind::Flush => {}
        }
    }

    /// What a disk's writes cost is measured here, where the clock is: the layer has none.
    fn tell_time(&mut self, disk: u32) {
        if self.spec.isolation == SsdIsolation::Dynamic {
            let busy = self.disks.take_busy(disk, self.seen);
            let lane = &mut self.lanes[disk as usize];
            let (moving, erasing) = (lane.moves.take(self.seen), lane.erases.take(self.seen));
            self.ftl.spent(Disks::owner(disk), Spent { busy, moving, erasing });
        }
    }

    fn read(&mut self, request: u32, disk: u32, page: u32) {
        let outcome = self.ftl.read(Disks::owner(disk), page, &mut headgate_flash::Ignore);
        if let Some(Some(at)) = self.expect(outcome) {
            let geometry = self.ftl.geometry();
            let plane = geometry.plane_of(geometry.block_of(at));
            self.requests[request as usize].parts += 1;
            self.working += 1;
            self.fabric.begin(self.seen, Task::Read { plane }, Class::Host, Who::Request(request));
        }
    }

    /// What the layer decided for a page that a host writes.
    fn hand_over(&mut self, request: u32, disk: u32, ops: &[Op]) {
        let number = self.lane_of(disk);
        let room = self.spec.buffer.0 / self.spec.page.0 / u64::from(self.disks.count().max(1));
        let mut from = None;
        for &op in ops {
            let Some(task) = self.task(op, &mut from) else { continue };
            self.working += 1;
            if op.cause() != Cause::Host {
                self.lanes[number as usize].push_collection(task);
                continue;
            }
            let who = if room == 0 {
                self.requests[request as usize].parts += 1;
                Who::Request(request)
            } else {
                if !self.disks.enter_buffer(disk, room, request) {
                    self.requests[request as usize].parts += 1;
                }
                self.disks.come_in(disk, self.seen);
                Who::Buffered { disk, epoch: self.epochs.enter() }
            };
            self.lanes[number as usize].push_host(task, who);
        }
        self.lanes[number as usize].feed(self.seen, number, &mut self.fabric);
    }

    /// An operation of the layer as the chips do it; a read of collection is one with the program
    /// that follows.
    fn task(&self, op: Op, from: &mut Option<headgate_flash::PlaneId>) -> Option<Task> {
        let geometry = self.ftl.geometry();
        let plane_of = |page| geometry.plane_of(geometry.block_of(page));
        match op {
            Op::Read { page, cause: Cause::Host } => Some(Task::Read { plane: plane_of(page) }),
            Op::Read { page, .. } => {
                *from = Some(plane_of(page));
                None
            }
            Op::Program { page, .. } => Some(match from.take() {
                Some(from) => Task::Move { from, to: plane_of(page) },
                None => Task::Program { plane: plane_of(page) },
            }),
            Op::CopyBack { from, .. } => Some(Task::Copy { plane: plane_of(from) }),
            Op::Erase { block, .. } => Some(Task::Erase { plane: geometry.plane_of(block) }),
        }
    }

    /// Everything that happens by `now`.
    fn advance(&mut self, now: Nanos) {
        self.seen = self.seen.max(now);
        let until = self.seen;
        loop {
            let chips = self.fabric.next().unwrap_or(Nanos::MAX);
            let controller = self.controller.front().map_or(Nanos::MAX, |&(at, _)| at);
            let idle = self.idle.map_or(Nanos::MAX, |since| since + IDLE);
            let next = chips.min(controller).min(idle);
            if next > until || next == Nanos::MAX {
                return;
            }
            if controller == next {
                if let Some((_, request)) = self.controller.pop_front() {
                    self.part_done(next, request);
                }
            } else if chips == next {
                if let Some(who) = self.fabric.end() {
                    self.on_done(next, who);
                }
            } else {
                self.idle = None;
                self.work_behind(next);
            }
        }
    }

    fn on_done(&mut self, now: Nanos, who: Who) {
        match who {
            Who::Background => {
                self.behind -= 1;
                if self.behind == 0 && self.is_idle() {
                    self.work_behind(now);
                }
                return;
            }
            Who::Request(request) => {
                self.working -= 1;
                self.part_done(now, request);
            }
            Who::Lane(lane) => {
                self.working -= 1;
                self.lanes[lane as usize].on_done();
                self.lanes[lane as usize].feed(now, lane, &mut self.fabric);
            }
            Who::Buffered { disk, epoch } => {
                self.working -= 1;
                self.disks.go_out(disk, now);
                let admitted = self.disks.leave_buffer(disk);
                let flushed = self.epochs.leave(epoch);
                for request in admitted.into_iter().chain(flushed) {
                    self.part_done(now, request);
                }
            }
        }
        self.look_idle(now);
    }

    fn part_done(&mut self, now: Nanos, request: u32) {
        let entry = &mut self.requests[request as usize];
        entry.parts -= 1;
        if entry.parts == 0 {
            let Request { id, disk, .. } = self.requests.remove(request as usize);
            if let Some(disk) = disk {
                self.disks.go_out(disk, now);
            }
            self.done.push_back((now, id));
            self.look_idle(now);
        }
    }

    fn is_idle(&self) -> bool {
        self.working == 0 && self.requests.is_empty()
    }

    fn look_idle(&mut self, now: Nanos) {
        if self.is_idle() && self.behind == 0 && self.spec.background == Switch::Yes {
            self.idle = Some(now);
        }
    }

    /// One step of collection while nobody waits.
    fn work_behind(&mut self, now: Nanos) {
        let mut ops = core::mem::take(&mut self.ops);
        let outcome = self.ftl.step(&mut ops);
        self.expect(outcome);
        let mut from = None;
        for &op in &ops {
            let Some(task) = self.task(op, &mut from) else { continue };
            self.behind += 1;
            self.fabric.begin(now, task, Class::Collection, Who::Background);
        }
        ops.clear();
        self.ops = ops;
    }
}

impl DeviceModel for Ssd {
    fn submit(&mut self, now: Nanos, id: u64, io: DeviceIo) {
        self.advance(now);
        while io.kind != IoKind::Flush && self.grow_old(u32::MAX) == Readiness::Busy {}
        self.idle = None;
        let request = self.requests.insert(Request { id, parts: 1, disk: None }) as u32;
        self.controller.push_back((self.seen + CONTROLLER, request));
        if io.kind != IoKind::Flush {
            self.submit_pages(request, io);
        } else if self.epochs.wait(request) {
            self.requests[request as usize].parts += 1;
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        if let Some(&(at, _)) = self.done.front() {
            return Some(at);
        }
        let controller = self.controller.front().map(|&(at, _)| at);
        let idle = self.idle.map(|since| since + IDLE);
        self.fabric.next().into_iter().chain(controller).chain(idle).min()
    }

    fn poll(&mut self, now: Nanos) -> Option<u64> {
        self.advance(now);
        self.done.pop_front().map(|(_, id)| id)
    }

    fn in_flight(&self) -> usize {
        self.requests.len() + self.done.len()
    }

    fn add_disk(&mut self, now: Nanos, place: DiskPlace) -> Result<(), PlaceError> {
        self.advance(now);
        if self.disks.is_nobodys {
            self.disks.is_nobodys = false;
            self.remove_disk(now, 0);
        }
        self.place(place)
    }

    fn resize_disk(&mut self, now: Nanos, offset: u64, place: DiskPlace) -> Result<(), PlaceError> {
        self.advance(now);
        // Ageing has the pages that it began with.
        while self.ageing.is_some() && self.grow_old(u32::MAX) == Readiness::Busy {}
        match self.disks.at(offset).filter(|(_, found)| found.offset == offset) {
            Some((key, _)) => self.replace(key, place),
            None => Ok(()),
        }
    }

    fn remove_disk(&mut self, now: Nanos, offset: u64) {
        self.advance(now);
        let Some((key, _)) = self.disks.at(offset).filter(|(_, place)| place.offset == offset)
        else {
            return;
        };
        self.disks.remove(key);
        if let Some(ageing) = &mut self.ageing {
            ageing.forget(Disks::owner(key));
        }
        let outcome = self.ftl.remove_owner(Disks::owner(key));
        debug_assert!(outcome.is_ok());
        self.fit_lanes();
        self.look_idle(self.seen);
    }

    fn set_shares(&mut self, now: Nanos, offset: u64, shares: Shares) {
        self.advance(now);
        if let Some((key, place)) = self.disks.at(offset)
            && place.offset == offset
            && place.shares != shares
        {
            self.disks.set_shares(key, shares);
            self.ftl.set_shares(Disks::owner(key), shares);
        }
    }

    fn make_ready(&mut self, now: Nanos, pages: u32) -> Readiness {
        self.advance(now);
        self.grow_old(pages)
    }

    fn flash(&self, offset: u64) -> Option<FlashCounters> {
        let (key, _) = self.disks.at(offset)?;
        let owner = Disks::owner(key);
        let (stats, standing) = (self.ftl.owner_stats(owner)?, self.ftl.standing(owner)?);
        Some(self.disks.counters(key, stats, standing, self.spec.block))
    }

    fn flash_standing(&self, offset: u64) -> Option<Standing> {
        let (key, _) = self.disks.at(offset)?;
        self.ftl.standing(Disks::owner(key))
    }

    fn flash_drive(&self) -> Option<FlashDrive> {
        let (done, (spare, unassigned)) =
            (self.ftl.stats().since(&self.past), self.ftl.spare_blocks());
        Some(FlashDrive {
            isolation: self.spec.isolation,
            rating: self.spec.rated,
            rated: self.ftl.rated(),
            block: Bytes(self.spec.page.0 * u64::from(self.spec.block)),
            page: self.spec.page,
            spare,
            unassigned,
            writes: done.host_writes,
            trims: done.trim_writes,
            moved: done.moved,
            levelled: done.levelled,
            erases: done.erases,
        })
    }

    fn moved_for(&self, offset: u64, other: u64) -> Option<u64> {
        let ((key, _), (of, _)) = (self.disks.at(offset)?, self.disks.at(other)?);
        let of = Disks::owner(of);
        let moved = self.ftl.moved_between(Disks::owner(key), of)?;
        Some(moved.saturating_sub(self.disks.moved_before(key, of)))
    }
}

impl core::fmt::Debug for Ssd {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ssd")
            .field("spec", &self.spec)
            .field("requests", &self.requests.len())
            .finish_non_exhaustive()
    }
}
