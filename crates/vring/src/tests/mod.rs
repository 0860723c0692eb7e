//! Both sides of a queue in one process.

mod crash;
mod hostile;
mod requests;
mod signals;

use crate::blk::{RequestHeader, RequestType, Status};
use crate::*;
use std::sync::Arc;

/// Guest memory: two regions that touch at 1 MiB, a hole, and a third at 1 GiB.
pub(crate) const JOINT: u64 = 1 << 20;
pub(crate) const HOLE: u64 = 2 << 20;
pub(crate) const HIGH: u64 = 1 << 30;

pub(crate) fn memory() -> Arc<GuestMemory> {
    let region =
        |start, len| Region::new(GuestAddress(start), Arc::new(HeapMapping::new(len))).unwrap();
    Arc::new(
        GuestMemory::new(vec![region(JOINT, 1 << 20), region(0, 1 << 20), region(HIGH, 1 << 20)])
            .unwrap(),
    )
}

pub(crate) const ALL: QueueFeatures =
    QueueFeatures { event_index: EventIndex::On, indirect: IndirectTables::Allowed };

pub(crate) struct Rig {
    pub memory: Arc<GuestMemory>,
    pub layout: QueueLayout,
    pub features: QueueFeatures,
    pub driver: DriverQueue,
    pub device: DeviceQueue,
    pub scratch: Scratch,
}

impl Rig {
    pub(crate) fn new(size: u16, features: QueueFeatures) -> Rig {
        let memory = memory();
        let (layout, _) = QueueLayout::contiguous(GuestAddress(0), size).unwrap();
        let driver = DriverQueue::new(Arc::clone(&memory), &layout, features).unwrap();
        let device = DeviceQueue::start(Arc::clone(&memory), &layout, features, 0, None).unwrap();
        Rig { memory, layout, features, driver, device, scratch: Scratch::default() }
    }

    /// Writes a header into guest memory and answers its buffer.
    pub(crate) fn header(&self, at: u64, kind: u32, sector: u64) -> Buffer {
        let header = RequestHeader { kind, ioprio: 0x4004, sector };
        self.memory.write(GuestAddress(at), &header.to_bytes()).unwrap();
        Buffer::Readable { at: GuestAddress(at), len: 16 }
    }

    pub(crate) fn offer(&mut self, buffers: &[Buffer]) -> u16 {
        let head = self.driver.add(buffers, Placement::Direct).unwrap();
        self.driver.publish();
        head
    }

    pub(crate) fn take(&mut self) -> Result<Option<Fetched<'_>>, QueueError> {
        self.device.next_request(&mut self.scratch)
    }

    pub(crate) fn byte(&self, at: u64) -> u8 {
        let mut byte = [0];
        self.memory.read(GuestAddress(at), &mut byte, &mut Default::default()).unwrap();
        byte[0]
    }

    /// Offers a one-sector read whose status byte lies at `status`.
    pub(crate) fn offer_read(&mut self, sector: u64, at: u64) -> u16 {
        let header = self.header(at, RequestType::In as u32, sector);
        self.offer(&[header, writable(at + 512, 512), writable(at + 1024, 1)])
    }

    /// Takes and completes everything that is there.
    pub(crate) fn serve_all(&mut self) -> usize {
        let mut served = 0;
        loop {
            let completion = match self.device.next_request(&mut self.scratch).unwrap() {
                None => break,
                Some(Fetched::Request(request)) => request.completion,
                Some(Fetched::Rejected(rejected)) => rejected.completion,
            };
            self.device.complete(completion, Status::Ok, 0);
            served += 1;
        }
        self.device.publish();
        served
    }
}

pub(crate) fn readable(at: u64, len: u32) -> Buffer {
    Buffer::Readable { at: GuestAddress(at), len }
}

pub(crate) fn writable(at: u64, len: u32) -> Buffer {
    Buffer::Writable { at: GuestAddress(at), len }
}
