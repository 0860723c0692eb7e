//! Requests under way: a slab whose slots keep their buffers, so that a request allocates nothing
//! once its slot was used.

use crate::backend::file::bounce::Bounce;
use crate::request::{Extent, IoError, Request, Step};
use crate::tables::lane::Lane;
use headgate_qos::{Cost, Phase};
use headgate_units::{Nanos, Priority};

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The slot is free.
    Free,
    /// In its disk's queue, in the scheduler.
    Queued,
    /// Out of the queue without having been served.
    Withdrawn,
    /// Counted in the datastore's window.
    Dispatched,
    /// Failed by the storage, and held until that is in no trouble any more.
    Held,
    /// A part of a request of a striped disk: it is in no queue, window or account.
    Part,
}

/// Whose part it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The request that it is a part of.
    pub whole: u32,
    /// Whose server it is for, where it is of a range.
    pub member: u16,
}

/// Where a request is among its datastore's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Before them, behind them, or there are none.
    Above,
    /// At the backend, with layers to pass on its way back.
    Below,
}

/// Who makes a range zeroes that is to read so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Zeroing {
    /// The storage, in one operation whatever the length.
    #[default]
    ByStorage,
    /// The backend, which writes them: the request is a write of its length.
    Written,
}

/// One request. `done` counts the bytes that have been moved: the kernel may do less than it was
/// asked.
#[derive(Debug)]
pub(crate) struct Slot {
    pub request: Request,
    pub stage: Stage,
    /// `None`: it is a request of a port.
    pub part: Option<Part>,
    pub step: Step,
    pub disk: u32,
    pub port: u32,
    pub lane: Lane,
    /// What it counts, from its dispatch on.
    pub priority: Priority,
    /// What it was charged then.
    pub cost: Cost,
    /// By which right it was dispatched.
    pub phase: Phase,
    /// What the kernel's IO scheduler is given of that; 0: nothing.
    pub host_ioprio: u16,
    /// Whether it is below its datastore's layers.
    pub depth: Depth,
    pub buffers: Vec<libc::iovec>,
    /// The rest of `buffers` after a short result; kept for its capacity.
    pub rest: Vec<libc::iovec>,
    pub done: u64,
    /// How a write-zeroes was done.
    pub zeroing: Zeroing,
    pub arrived: Nanos,
    /// Requests that came before have lower ones.
    pub serial: u64,
    pub dispatched: Nanos,
    /// It waited for a server that was gone, or for the end of its storage's trouble: what it took
    /// says nothing of the storage.
    pub outage: bool,
    /// Parties that still work on it: the kernel, the device model, a worker.
    pub parties: u8,
    pub result: Result<(), IoError>,
    pub bounce: Option<Bounce>,
    pub extents: Vec<Extent>,
}

impl Slot {
    /// One more piece of memory, behind those that it has.
    pub(crate) fn add_buffer(&mut self, piece: libc::iovec) {
        if let Some(last) = self.buffers.last_mut()
            && last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == piece.iov_base.cast()
        {
            last.iov_len += piece.iov_len;
        } else {
            self.buffers.push(piece);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    next_serial: u64,
}

impl Slots {
    pub(crate) fn take(
        &mut self,
        request: Request,
        disk: u32,
        port: u32,
        buffers: &[libc::iovec],
        now: Nanos,
    ) -> u32 {
        let key = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                request,
                stage: Stage::Free,
                part: None,
                step: Step::Main,
                disk,
                port,
                lane: Lane::Client,
                priority: Priority::MIN,
                cost: Cost::default(),
                phase: Phase::Weight,
                host_ioprio: 0,
                depth: Depth::Above,
                buffers: Vec::new(),
                rest: Vec::new(),
                done: 0,
                zeroing: Zeroing::ByStorage,
                arrived: now,
                serial: 0,
                dispatched: now,
                outage: false,
                parties: 0,
                result: Ok(()),
                bounce: None,
                extents: Vec::new(),
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[key as usize];
        slot.request = request;
        slot.stage = Stage::Queued;
        slot.part = None;
        slot.step = Step::Main;
        slot.disk = disk;
        slot.port = port;
        slot.lane = Lane::Client;
        slot.buffers.clear();
        slot.buffers.extend_from_slice(buffers);
        slot.done = 0;
        slot.zeroing = Zeroing::ByStorage;
        slot.host_ioprio = 0;
        slot.depth = Depth::Above;
        slot.arrived = now;
        slot.serial = self.next_serial;
        self.next_serial += 1;
        slot.outage = false;
        slot.parties = 0;
        slot.result = Ok(());
        slot.extents.clear();
        key
    }

    /// Takes a slot for a part of a request, of this range of a server's export. It has no buffers
    /// yet.
    pub(crate) fn take_part(&mut self, part: Part, offset: u64, len: u64) -> u32 {
        let Part { whole, .. } = part;
        let Slot { request, disk, port, lane, priority, arrived, .. } = self[whole];
        let key = self.take(Request { offset, len, ..request }, disk, port, &[], arrived);
        let slot = &mut self[key];
        slot.stage = Stage::Part;
        slot.part = Some(part);
        slot.lane = lane;
        slot.priority = priority;
        slot.parties = 1;
        key
    }

    /// All requests that are taken, without the parts of some. O(most that ever were).
    pub(crate) fn under_way(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let is_request = |slot: &Slot| !matches!(slot.stage, Stage::Free | Stage::Part);
        (0..).zip(&self.slots).filter(move |(_, slot)| is_request(slot))
    }

    pub(crate) fn free(&mut self, key: u32) {
        let slot = &mut self[key];
        slot.stage = Stage::Free;
        slot.bounce = None;
        self.free.push(key);
    }
}

impl std::ops::Index<u32> for Slots {
    type Output = Slot;
    fn index(&self, key: u32) -> &Slot {
        &self.slots[key as usize]
    }
}

impl std::ops::IndexMut<u32> for Slots {
    fn index_mut(&mut self, key: u32) -> &mut Slot {
        &mut self.slots[key as usize]
    }
}
