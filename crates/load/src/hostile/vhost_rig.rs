//! A device with one queue, driven by hand.

use super::scenario::ATTENTION;
use crate::link::LinkError;
use crate::reaction::Reaction;
use crate::vhost::{Indirect, Inflight, Ring, Session, SharedMemory};
use headgate_vring::blk::{HEADER_BYTES, RequestHeader};
use headgate_vring::memory::RegionHint;
use headgate_vring::{
    DriverQueue, GuestAddress, GuestMemory, HostMapping, QueueFeatures, QueueLayout, Region,
};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

pub(super) type Attacked = Result<Vec<Reaction>, String>;

/// Bytes of a request that is itself in order: what every disk takes, whatever its block size.
pub(super) const BLOCK: u32 = 4096;
pub(super) const QUEUE: u16 = 128;
pub(super) const MEMORY: usize = 4 << 20;
pub(super) const HEADER: u64 = 1 << 20;
pub(super) const STATUS: u64 = HEADER + 64;
pub(super) const TABLE: u64 = HEADER + 4096;
pub(super) const DATA: u64 = 2 << 20;
pub(super) const NO_STATUS: u8 = 0xff;
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;

/// A descriptor as it lies in a table.
pub(super) type Raw = (u64, u32, u16, u16);

pub(super) const HEAD: Raw = (HEADER, HEADER_BYTES as u32, NEXT, 1);
pub(super) const BODY: Raw = (DATA, BLOCK, NEXT | WRITE, 2);
pub(super) const TAIL: Raw = (STATUS, 1, WRITE, 0);

pub(super) fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// How a device takes what it is given.
pub(super) fn given(answer: Result<(), LinkError>) -> Reaction {
    match answer {
        Ok(()) => Reaction::Served,
        Err(LinkError::Down(_)) => Reaction::Disconnected,
        Err(e) => Reaction::Error(e.to_string()),
    }
}

/// A device with one queue.
pub(super) struct Rig {
    pub(super) session: Session,
    pub(super) ring: DriverQueue,
    pub(super) memory: Arc<GuestMemory>,
    pub(super) kick: EventFd,
    /// The device signals it; nobody looks.
    pub(super) call: EventFd,
    pub(super) shared: Arc<SharedMemory>,
    pub(super) layout: QueueLayout,
    /// What a later session of the same rings needs.
    inflight: Option<Inflight>,
}

impl Rig {
    /// Everything but the queue.
    pub(super) fn attach(path: &Path) -> Result<Rig, String> {
        Rig::attach_with(path, QUEUE)
    }

    /// The same with a queue of this size.
    pub(super) fn attach_with(path: &Path, size: u16) -> Result<Rig, String> {
        let mut session = Rig::open(path)?;
        let shared = Arc::new(SharedMemory::new(MEMORY).map_err(text)?);
        let region = Region::new(GuestAddress(0), Arc::clone(&shared) as Arc<dyn HostMapping>)
            .map_err(text)?;
        let memory = Arc::new(GuestMemory::new(vec![region]).map_err(text)?);
        let (layout, _) = QueueLayout::contiguous(GuestAddress(0), size).map_err(text)?;
        let features = QueueFeatures::from_bits(session.features.bits);
        let ring = DriverQueue::new(Arc::clone(&memory), &layout, features).map_err(text)?;
        let kick = EventFd::new(EFD_NONBLOCK).map_err(text)?;
        let call = EventFd::new(EFD_NONBLOCK).map_err(text)?;
        let inflight = session.share(&shared, None, 1, size).map_err(text)?;
        Ok(Rig { session, ring, memory, kick, call, shared, layout, inflight })
    }

    fn open(path: &Path) -> Result<Session, String> {
        // The device may still be busy with the end of the client before.
        let deadline = Instant::now() + ATTENTION * 5;
        let session = loop {
            match Session::open(path, 1, Indirect::Wanted) {
                Ok(session) => break session,
                Err(LinkError::Down(_)) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(e) => return Err(e.to_string()),
            }
        };
        session.set_patience(ATTENTION);
        Ok(session)
    }

    /// Hangs up and comes back with the same memory, rings and requests in flight.
    pub(super) fn reconnect(self, path: &Path) -> Result<Rig, String> {
        let Rig { session, shared, inflight, .. } = self;
        drop(session);
        let mut session = Rig::open(path)?;
        let inflight = session.share(&shared, inflight, 1, self.layout.size).map_err(text)?;
        Ok(Rig { session, shared, inflight, ..self })
    }

    /// Empties the ring, as a driver does that begins anew.
    pub(super) fn clear_ring(&mut self) -> Result<(), String> {
        let features = QueueFeatures::from_bits(self.session.features.bits);
        let ring = DriverQueue::new(Arc::clone(&self.memory), &self.layout, features);
        self.ring = ring.map_err(text)?;
        Ok(())
    }

    pub(super) fn new(path: &Path) -> Result<Rig, String> {
        let mut rig = Rig::attach(path)?;
        rig.start(rig.layout).map_err(text)?;
        Ok(rig)
    }

    pub(super) fn start(&mut self, layout: QueueLayout) -> Result<(), LinkError> {
        self.start_at(layout, 0)
    }

    /// The same from this position of the available ring.
    pub(super) fn start_at(&mut self, layout: QueueLayout, base: u16) -> Result<(), LinkError> {
        let ring = Ring { layout, base, kick: &self.kick, call: &self.call };
        self.session.start(0, &self.shared, &ring)
    }

    pub(super) fn header(&self, kind: u32, sector: u64) -> Result<(), String> {
        let header = RequestHeader { kind, ioprio: 0, sector };
        self.memory.write(GuestAddress(HEADER), &header.to_bytes()).map_err(text)?;
        self.memory.write(GuestAddress(STATUS), &[NO_STATUS]).map_err(text)
    }

    /// Lays down one chain from descriptor 0 on, and offers it.
    pub(super) fn offer(&mut self, chain: &[Raw]) {
        for (i, (addr, len, flags, next)) in chain.iter().enumerate() {
            self.ring.raw().set_descriptor(i as u16, GuestAddress(*addr), *len, *flags, *next);
        }
        self.ring.raw().offer(0);
    }

    pub(super) fn wait_for_hang_up(&self, at_most: Duration) -> Reaction {
        let deadline = Instant::now() + at_most;
        while Instant::now() < deadline {
            if self.session.is_gone() {
                return Reaction::Disconnected;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Reaction::Silence
    }

    /// Kicks, and waits for the used ring or a hang-up.
    pub(super) fn reaction(&mut self, at_most: Duration) -> Result<Reaction, String> {
        self.kick.write(1).map_err(text)?;
        let deadline = Instant::now() + at_most;
        loop {
            if self.ring.raw().take_used().is_some() {
                return self.status();
            }
            if self.session.is_gone() {
                return Ok(Reaction::Disconnected);
            }
            if Instant::now() > deadline {
                return Ok(Reaction::Silence);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// What the status byte says.
    pub(super) fn status(&self) -> Result<Reaction, String> {
        let mut status = [0];
        let at = GuestAddress(STATUS);
        self.memory.read(at, &mut status, &mut RegionHint::default()).map_err(text)?;
        Ok(match status[0] {
            0 => Reaction::Served,
            NO_STATUS => Reaction::Error("given back without a status".into()),
            code => Reaction::Error(format!("status {code}")),
        })
    }
}
