//! A guest without a machine: memory in a memfd, rings in it, and the front-end's side of the
//! vhost-user protocol.

use headgate_vring::blk::{RequestHeader, RequestType};
use headgate_vring::{
    Buffer, DriverQueue, GuestAddress, GuestMemory, HostMapping, Placement, QueueFeatures,
    QueueLayout, Region, Used,
};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{
    VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{FileOffset, MmapRegion};
use vmm_sys_util::eventfd::EventFd;

pub const MIB: u64 = 1 << 20;
const MEMORY: u64 = 64 * MIB;
/// Guest physical address of the memory: not zero, so that translation is exercised.
const BASE: u64 = 0x1_0000_0000;
/// Each queue's rings and request slots.
const QUEUE_SPACE: u64 = MIB;
/// Each request's header, data and status.
pub const SLOT: u64 = 0x10000;
pub const QUEUE_SIZE: u16 = 64;
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Mapping {
    base: NonNull<u8>,
    region: MmapRegion,
}
// SAFETY: shared memory, accessed atomically by `headgate_vring`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}
// SAFETY: mapped until dropped.
unsafe impl HostMapping for Mapping {
    fn base(&self) -> NonNull<u8> {
        self.base
    }
    fn len(&self) -> usize {
        self.region.size()
    }
}

pub struct Queue {
    pub driver: DriverQueue,
    pub layout: QueueLayout,
    pub kick: EventFd,
    pub call: EventFd,
    /// Slots not in use.
    free: Vec<u64>,
    /// By head: slot.
    slots: std::collections::HashMap<u16, u64>,
}

/// A request that came back.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u8,
    pub data: Vec<u8>,
}

pub struct Guest {
    file: File,
    mapping: Arc<Mapping>,
    pub memory: Arc<GuestMemory>,
    pub queues: Vec<Queue>,
    pub inflight: Option<(VhostUserInflight, File)>,
    features: u64,
}

impl Guest {
    pub fn new(queues: usize) -> Guest {
        // SAFETY: plain system call.
        let fd = unsafe { libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: a new descriptor.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(MEMORY).unwrap();
        let region: MmapRegion =
            MmapRegion::from_file(FileOffset::new(file.try_clone().unwrap(), 0), MEMORY as usize)
                .unwrap();
        let mapping = Arc::new(Mapping { base: NonNull::new(region.as_ptr()).unwrap(), region });
        let region = Region::new(GuestAddress(BASE), mapping.clone()).unwrap();
        let memory = Arc::new(GuestMemory::new(vec![region]).unwrap());
        let features = QueueFeatures::from_bits(u64::MAX);
        let queues = (0..queues)
            .map(|q| {
                let start = GuestAddress(BASE + q as u64 * QUEUE_SPACE);
                let (layout, _) = QueueLayout::contiguous(start, QUEUE_SIZE).unwrap();
                Queue {
                    driver: DriverQueue::new(memory.clone(), &layout, features).unwrap(),
                    layout,
                    kick: EventFd::new(libc::EFD_NONBLOCK).unwrap(),
                    call: EventFd::new(libc::EFD_NONBLOCK).unwrap(),
                    free: (1..16).map(|s| start.0 + s * SLOT).collect(),
                    slots: Default::default(),
                }
            })
            .collect();
        Guest { file, mapping, memory, queues, inflight: None, features: 0 }
    }

    fn user(&self, at: GuestAddress) -> u64 {
        self.mapping.base.as_ptr() as u64 + (at.0 - BASE)
    }

    pub fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: BASE,
            memory_size: MEMORY,
            userspace_addr: self.mapping.base.as_ptr() as u64,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    /// Negotiates as QEMU does, up to the point where rings are set up.
    pub fn negotiate(&mut self, path: &Path, without: u64) -> Frontend {
        let mut frontend = Frontend::connect(path, 256).unwrap();
        frontend.set_owner().unwrap();
        self.features = frontend.get_features().unwrap() & !without;
        let protocol = frontend.get_protocol_features().unwrap();
        assert!(protocol.contains(
            VhostUserProtocolFeatures::MQ
                | VhostUserProtocolFeatures::CONFIG
                | VhostUserProtocolFeatures::INFLIGHT_SHMFD
                | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
        ));
        frontend.set_protocol_features(protocol).unwrap();
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        assert_eq!(frontend.get_queue_num().unwrap(), 256);
        assert_ne!(self.features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits(), 0);
        frontend.set_features(self.features).unwrap();
        frontend
    }

    /// Negotiates and starts every queue, giving back the in-flight region if there is one.
    pub fn connect(&mut self, path: &Path) -> Frontend {
        self.connect_without(path, 0)
    }

    /// The same, without these features.
    pub fn connect_without(&mut self, path: &Path, without: u64) -> Frontend {
        let mut frontend = self.negotiate(path, without);
        frontend.set_mem_table(&[self.region()]).unwrap();
        if self.inflight.is_none() {
            let ask = VhostUserInflight::new(0, 0, self.queues.len() as u16, QUEUE_SIZE);
            self.inflight = Some(frontend.get_inflight_fd(&ask).unwrap());
        }
        let (announced, file) = self.inflight.as_ref().unwrap();
        frontend.set_inflight_fd(announced, file.as_raw_fd()).unwrap();
        for q in 0..self.queues.len() {
            self.start(&mut frontend, q, 0);
        }
        frontend
    }

    pub fn start(&self, frontend: &mut Frontend, q: usize, base: u16) {
        let queue = &self.queues[q];
        frontend.set_vring_num(q, QUEUE_SIZE).unwrap();
        frontend
            .set_vring_addr(
                q,
                &VringConfigData {
                    queue_max_size: QUEUE_SIZE,
                    queue_size: QUEUE_SIZE,
                    flags: 0,
                    desc_table_addr: self.user(queue.layout.descriptors),
                    used_ring_addr: self.user(queue.layout.used),
                    avail_ring_addr: self.user(queue.layout.available),
                    log_addr: None,
                },
            )
            .unwrap();
        frontend.set_vring_base(q, base).unwrap();
        frontend.set_vring_call(q, &queue.call).unwrap();
        frontend.set_vring_kick(q, &queue.kick).unwrap();
        frontend.set_vring_enable(q, true).unwrap();
    }

    /// Offers a request with up to 32 KiB of data and kicks. Answers its head.
    pub fn offer(&mut self, q: usize, kind: RequestType, sector: u64, data: Data) -> u16 {
        let queue = &mut self.queues[q];
        let slot = queue.free.pop().expect("a free slot");
        let header = RequestHeader { kind: kind as u32, ioprio: 0x4004, sector };
        self.memory.write(GuestAddress(slot), &header.to_bytes()).unwrap();
        let at = GuestAddress(slot + 0x1000);
        let status = GuestAddress(slot + 0x20);
        self.memory.write(status, &[0xff]).unwrap();
        let mut chain = vec![Buffer::Readable { at: GuestAddress(slot), len: 16 }];
        match data {
            Data::None => {}
            Data::Out(bytes) => {
                self.memory.write(at, &bytes).unwrap();
                chain.push(Buffer::Readable { at, len: bytes.len() as u32 });
            }
            Data::In(len) => chain.push(Buffer::Writable { at, len }),
        }
        chain.push(Buffer::Writable { at: status, len: 1 });
        let table = GuestAddress(slot + 0x100);
        let head = queue.driver.add(&chain, Placement::Indirect(table)).unwrap();
        queue.slots.insert(head, slot);
        if queue.driver.publish() {
            queue.kick.write(1).unwrap();
        }
        head
    }

    /// Waits for the next request that comes back on a queue.
    pub fn wait(&mut self, q: usize) -> (u16, Answer) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(done) = self.poll(q) {
                return done;
            }
            if !self.queues[q].driver.enable_calls() {
                let mut poll = libc::pollfd {
                    fd: self.queues[q].call.as_raw_fd(),
                    events: libc::POLLIN,
                    revents: 0,
                };
                // SAFETY: one descriptor, on the stack.
                unsafe { libc::poll(&mut poll, 1, 1000) };
                let _ = self.queues[q].call.read();
            }
            assert!(Instant::now() < until, "the request never came back");
        }
    }

    pub fn poll(&mut self, q: usize) -> Option<(u16, Answer)> {
        let queue = &mut self.queues[q];
        let Used { head, written } = queue.driver.poll_used().unwrap()?;
        let slot = queue.slots.remove(&head).expect("offered once, back once");
        queue.free.insert(0, slot);
        let mut status = [0];
        self.memory.read(GuestAddress(slot + 0x20), &mut status, &mut Default::default()).unwrap();
        let mut data = vec![0; written as usize - 1];
        self.memory.read(GuestAddress(slot + 0x1000), &mut data, &mut Default::default()).unwrap();
        Some((head, Answer { status: status[0], data }))
    }

    pub fn run(&mut self, q: usize, kind: RequestType, sector: u64, data: Data) -> Answer {
        let head = self.offer(q, kind, sector, data);
        let (done, answer) = self.wait(q);
        assert_eq!(done, head);
        answer
    }
}

pub enum Data {
    None,
    Out(Vec<u8>),
    In(u32),
}
