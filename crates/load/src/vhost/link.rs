//! A vhost-user-blk device with all its queues.

use super::frontend::{Indirect, Inflight, Ring};
use super::memory::event_fd;
use super::{Features, Session, SharedMemory};
use crate::link::{
    Completion, DataUse, DiskInfo, Durability, Kind, Link, LinkError, Op, Outcome, Readiness,
    Recovered, Shape, TICK, Wait,
};
use crate::workload::Rng;
use headgate_vring::blk::{
    HEADER_BYTES, RANGE_BYTES, RangeHeader, RequestHeader, RequestType, SECTOR, feature,
};
use headgate_vring::memory::RegionHint;
use headgate_vring::{
    Buffer, DriverQueue, GuestAddress, GuestMemory, HostMapping, Placement, QueueFeatures,
    QueueLayout, Region,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Smallest ring: what guests use by default.
const MIN_QUEUE: usize = 128;
/// Bytes of a slot's control block: header, range, status, table.
const CONTROL: usize = 128;
const RANGE_AT: u64 = HEADER_BYTES as u64;
const STATUS_AT: u64 = (HEADER_BYTES + RANGE_BYTES) as u64;
const TABLE_AT: u64 = 64;
/// The status byte before the device writes it.
const NO_STATUS: u8 = 0xff;
/// Most memory for the data of all slots.
const MAX_DATA_MEMORY: u64 = 8 << 30;
/// Empty polls of the rings between two polls of the socket, while busy polling.
const LOOKS_PER_HANG_UP_CHECK: u32 = 4096;

struct Queue {
    ring: DriverQueue,
    layout: QueueLayout,
    kick: EventFd,
    /// Which slot a head belongs to.
    slots: Vec<usize>,
    /// Elements taken from the used ring so far: its index.
    used: u16,
    /// Chains were added since the last publish.
    unsent: bool,
}

/// See the module.
pub(crate) struct VhostLink {
    path: PathBuf,
    shape: Shape,
    session: Session,
    features: Features,
    indirect: Indirect,
    shared: Arc<SharedMemory>,
    memory: Arc<GuestMemory>,
    call: EventFd,
    queues: Vec<Queue>,
    inflight: Option<Inflight>,
    /// First control block, and first data buffer.
    controls: u64,
    data: u64,
    /// Lengths of the reads whose data is checked.
    lens: Vec<u32>,
    scratch: Vec<u8>,
    empty_looks: u32,
}

impl VhostLink {
    /// Attaches the device with `queues` queues of [`Shape::depth`] slots each.
    pub(crate) fn connect(
        path: &Path,
        queues: usize,
        shape: Shape,
        indirect: Indirect,
    ) -> Result<VhostLink, LinkError> {
        let session = Session::open(path, queues as u64, indirect)?;
        let features = session.features;
        let indirect = if features.has(feature::RING_INDIRECT_DESC) {
            Indirect::Wanted
        } else {
            Indirect::Unwanted
        };
        let descriptors = if indirect == Indirect::Wanted { 1 } else { 3 };
        let size = (shape.depth * descriptors).next_power_of_two().max(MIN_QUEUE);
        let unsupported = |e: &dyn std::fmt::Display| LinkError::Unsupported(e.to_string());
        let size = u16::try_from(size).map_err(|e| unsupported(&e))?;
        let mut layouts = Vec::new();
        let mut end = GuestAddress(0);
        for _ in 0..queues {
            let (layout, behind) = QueueLayout::contiguous(end, size).map_err(|e| {
                LinkError::Unsupported(format!("--depth {} is too much: {e}", shape.depth))
            })?;
            layouts.push(layout);
            end = GuestAddress(behind.0.next_multiple_of(4096));
        }
        let slots = queues * shape.depth;
        let controls = end.0;
        let data = (controls + (slots * CONTROL) as u64).next_multiple_of(4096);
        let data_bytes = slots as u64 * u64::from(shape.max_len);
        if data_bytes > MAX_DATA_MEMORY {
            return Err(LinkError::Unsupported(format!(
                "{slots} requests of {} bytes take more than 8 GiB: choose a smaller --depth, --queues or --block-size",
                shape.max_len
            )));
        }
        let failed =
            |e: std::io::Error| LinkError::Unsupported(format!("cannot make shared memory: {e}"));
        let shared = Arc::new(SharedMemory::new((data + data_bytes) as usize).map_err(failed)?);
        let mapping = Arc::clone(&shared) as Arc<dyn HostMapping>;
        let region = Region::new(GuestAddress(0), mapping).map_err(|e| unsupported(&e))?;
        let memory = Arc::new(GuestMemory::new(vec![region]).map_err(|e| unsupported(&e))?);
        let queues = layouts
            .into_iter()
            .map(|layout| {
                let bits = QueueFeatures::from_bits(features.bits);
                let ring = DriverQueue::new(Arc::clone(&memory), &layout, bits)
                    .map_err(|e| unsupported(&e))?;
                let kick = EventFd::new(EFD_NONBLOCK).map_err(failed)?;
                Ok(Queue {
                    ring,
                    layout,
                    kick,
                    slots: vec![0; usize::from(size)],
                    used: 0,
                    unsent: false,
                })
            })
            .collect::<Result<Vec<Queue>, LinkError>>()?;
        let mut link = VhostLink {
            path: path.to_owned(),
            shape,
            session,
            features,
            indirect,
            shared,
            memory,
            call: EventFd::new(EFD_NONBLOCK).map_err(failed)?,
            queues,
            inflight: None,
            controls,
            data,
            lens: vec![0; slots],
            scratch: vec![0; shape.max_len as usize],
            empty_looks: 0,
        };
        link.fill_data(slots);
        link.start()?;
        Ok(link)
    }

    pub(crate) fn disk(&self) -> DiskInfo {
        self.session.disk
    }

    pub(crate) fn slots(&self) -> usize {
        self.lens.len()
    }

    /// The first of these features that the device lacks, by name.
    pub(crate) fn missing(&self, needs: &[(u64, &'static str)]) -> Option<&'static str> {
        needs.iter().find(|(bit, _)| !self.features.has(*bit)).map(|(_, name)| *name)
    }

    /// Unverified writes write what is there from the beginning: random bytes.
    fn fill_data(&mut self, slots: usize) {
        let mut rng = Rng::new(self.shape.seed);
        for slot in 0..slots {
            for word in self.scratch.chunks_exact_mut(8) {
                word.copy_from_slice(&rng.next_u64().to_ne_bytes());
            }
            write(&self.memory, self.data_at(slot), &self.scratch);
        }
    }

    fn start(&mut self) -> Result<(), LinkError> {
        let size = self.queues.first().map_or(0, |q| q.layout.size);
        let kept = self.inflight.take();
        self.inflight = self.session.share(&self.shared, kept, self.queues.len() as u16, size)?;
        for (i, queue) in self.queues.iter().enumerate() {
            let ring = Ring {
                layout: queue.layout,
                base: queue.used,
                kick: &queue.kick,
                call: &self.call,
            };
            self.session.start(i, &self.shared, &ring)?;
        }
        Ok(())
    }

    fn control_at(&self, slot: usize) -> GuestAddress {
        GuestAddress(self.controls + (slot * CONTROL) as u64)
    }

    fn data_at(&self, slot: usize) -> GuestAddress {
        GuestAddress(self.data + slot as u64 * u64::from(self.shape.max_len))
    }

    /// Delivers everything in the used rings. Answers how much that was.
    fn take_used(&mut self, deliver: &mut dyn FnMut(Completion<'_>)) -> Result<usize, LinkError> {
        let mut taken = 0;
        for index in 0..self.queues.len() {
            while let Some(used) = self.queues[index]
                .ring
                .poll_used()
                .map_err(|e| LinkError::Protocol(e.to_string()))?
            {
                let queue = &mut self.queues[index];
                queue.used = queue.used.wrapping_add(1);
                let slot = queue.slots[usize::from(used.head)];
                taken += 1;
                let control = self.control_at(slot);
                let mut status = [0];
                read(&self.memory, GuestAddress(control.0 + STATUS_AT), &mut status);
                let outcome = match status[0] {
                    0 => Outcome::Done,
                    NO_STATUS => {
                        return Err(LinkError::Protocol(
                            "a request came back without a status".into(),
                        ));
                    }
                    code => Outcome::Failed(code.into()),
                };
                let len = self.lens[slot] as usize;
                let data = if outcome == Outcome::Done && len > 0 {
                    // Data and status, as the device says it wrote them.
                    if used.written as usize != len + 1 {
                        return Err(LinkError::Protocol(format!(
                            "a read of {len} bytes came back with {} bytes written, {} were expected",
                            used.written,
                            len + 1
                        )));
                    }
                    read(&self.memory, self.data_at(slot), &mut self.scratch[..len]);
                    &self.scratch[..len]
                } else {
                    &[]
                };
                deliver(Completion { slot, outcome, data });
            }
        }
        Ok(taken)
    }

    fn enable_calls(&mut self) -> bool {
        let mut pending = false;
        for queue in &mut self.queues {
            pending |= queue.ring.enable_calls();
        }
        pending
    }

    fn disable_calls(&mut self) {
        // What was counted so far is looked at anyway.
        let _ = self.call.read();
        self.queues.iter_mut().for_each(|q| q.ring.disable_calls());
    }

    fn sleep(&mut self) -> Result<(), LinkError> {
        let mut fds = [
            PollFd::from_borrowed_fd(event_fd(&self.call), PollFlags::IN),
            PollFd::from_borrowed_fd(self.session.socket(), PollFlags::RDHUP),
        ];
        let timeout = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(LinkError::Unsupported(format!("poll: {e}"))),
        }
    }
}

fn read(memory: &GuestMemory, at: GuestAddress, into: &mut [u8]) {
    memory
        .read(at, into, &mut RegionHint::default())
        .expect("slots lie inside the memory made for them");
}

fn write(memory: &GuestMemory, at: GuestAddress, from: &[u8]) {
    memory.write(at, from).expect("slots lie inside the memory made for them");
}

impl Link for VhostLink {
    fn submit(&mut self, slot: usize, op: &Op, payload: &[u8]) -> Result<(), LinkError> {
        if op.durability == Durability::Fua {
            return Err(LinkError::Unsupported("virtio-blk has no FUA".into()));
        }
        let control = self.control_at(slot);
        let kind = match op.kind {
            Kind::Read => RequestType::In,
            Kind::Write => RequestType::Out,
            Kind::WriteZeroes => RequestType::WriteZeroes,
            Kind::Flush => RequestType::Flush,
        };
        let sector = if op.kind == Kind::WriteZeroes { 0 } else { op.offset / SECTOR };
        let header = RequestHeader { kind: kind as u32, ioprio: op.priority.0.into(), sector };
        write(&self.memory, control, &header.to_bytes());
        write(&self.memory, GuestAddress(control.0 + STATUS_AT), &[NO_STATUS]);
        let header = Buffer::Readable { at: control, len: HEADER_BYTES as u32 };
        let status = Buffer::Writable { at: GuestAddress(control.0 + STATUS_AT), len: 1 };
        let at = self.data_at(slot);
        let data = match op.kind {
            Kind::Read => Buffer::Writable { at, len: op.len },
            Kind::Write => {
                if !payload.is_empty() {
                    write(&self.memory, at, payload);
                }
                Buffer::Readable { at, len: op.len }
            }
            Kind::WriteZeroes => {
                let at = GuestAddress(control.0 + RANGE_AT);
                let sectors = (u64::from(op.len) / SECTOR) as u32;
                let range = RangeHeader { sector: op.offset / SECTOR, sectors, flags: 0 };
                write(&self.memory, at, &range.to_bytes());
                Buffer::Readable { at, len: RANGE_BYTES as u32 }
            }
            Kind::Flush => status,
        };
        let looked_at = op.kind == Kind::Read && self.shape.data == DataUse::Checked;
        self.lens[slot] = if looked_at { op.len } else { 0 };
        let placement = match self.indirect {
            Indirect::Wanted => Placement::Indirect(GuestAddress(control.0 + TABLE_AT)),
            Indirect::Unwanted => Placement::Direct,
        };
        let chain = [header, data, status];
        let chain = if op.kind == Kind::Flush { &chain[..2] } else { &chain[..] };
        let queue = &mut self.queues[slot / self.shape.depth];
        let head =
            queue.ring.add(chain, placement).map_err(|e| LinkError::Unsupported(e.to_string()))?;
        queue.slots[usize::from(head)] = slot;
        queue.unsent = true;
        Ok(())
    }

    fn send(&mut self) -> Result<(), LinkError> {
        for queue in &mut self.queues {
            if std::mem::take(&mut queue.unsent) && queue.ring.publish() {
                // Only a counter that is full already cannot be written, and then the device is
                // awake.
                let _ = queue.kick.write(1);
            }
        }
        Ok(())
    }

    fn receive(
        &mut self,
        wait: Wait,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> Result<(), LinkError> {
        if self.take_used(deliver)? > 0 {
            return Ok(());
        }
        if wait == Wait::Tick {
            if !self.enable_calls() {
                self.sleep()?;
            }
            self.disable_calls();
            if self.take_used(deliver)? > 0 {
                return Ok(());
            }
        }
        self.empty_looks += 1;
        if wait == Wait::Tick || self.empty_looks >= LOOKS_PER_HANG_UP_CHECK {
            self.empty_looks = 0;
            if self.session.is_gone() {
                // What it gave back before it died still counts.
                self.take_used(deliver)?;
                return Err(LinkError::Down("the device hung up".into()));
            }
        }
        Ok(())
    }

    fn has_completions(&mut self) -> bool {
        let _ = self.call.read();
        // Look at the socket in the next receive that finds nothing.
        self.empty_looks = LOOKS_PER_HANG_UP_CHECK;
        self.enable_calls()
    }

    fn readiness(&self) -> Readiness<'_> {
        Readiness {
            readable: event_fd(&self.call),
            writable: None,
            hang_up: Some(self.session.socket()),
        }
    }

    fn recover(&mut self) -> Result<Recovered, LinkError> {
        let mut session = Session::open(&self.path, self.queues.len() as u64, self.indirect)?;
        if session.features != self.features || session.disk != self.session.disk {
            return Err(LinkError::Unsupported(format!(
                "the device came back with features {:#x} and {:?}, it had {:#x} and {:?}",
                session.features.bits, session.disk, self.features.bits, self.session.disk
            )));
        }
        std::mem::swap(&mut self.session, &mut session);
        drop(session);
        if self.inflight.is_none() {
            for queue in &mut self.queues {
                let bits = QueueFeatures::from_bits(self.features.bits);
                queue.ring = DriverQueue::new(Arc::clone(&self.memory), &queue.layout, bits)
                    .map_err(|e| LinkError::Unsupported(e.to_string()))?;
                (queue.used, queue.unsent) = (0, false);
            }
            self.start()?;
            return Ok(Recovered::Lost);
        }
        self.start()?;
        for queue in &mut self.queues {
            queue.ring.publish();
            queue.unsent = false;
            let _ = queue.kick.write(1);
        }
        Ok(Recovered::StillInFlight)
    }
}

impl Drop for VhostLink {
    /// Stops the rings, so that the device does not touch memory that is going away.
    fn drop(&mut self) {
        for i in 0..self.queues.len() {
            if self.session.is_gone() || self.session.stop(i).is_err() {
                return;
            }
        }
    }
}
