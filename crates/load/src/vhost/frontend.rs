//! The messages that attach a device: features, memory, rings.

use crate::link::{Access, DiskInfo, LinkError};
use crate::vhost::SharedMemory;
use headgate_vring::QueueLayout;
use headgate_vring::blk::{SECTOR, feature};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Error as VhostUserError, Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

/// How long the device may take to answer a message.
const PATIENCE: Duration = Duration::from_secs(10);
/// `VHOST_USER_F_PROTOCOL_FEATURES`.
const PROTOCOL_FEATURES: u64 = 1 << 30;
/// `VIRTIO_BLK_F_RO`.
const READ_ONLY: u64 = 1 << 5;
/// The configuration space up to `blk_size`.
const CONFIG_BYTES: usize = 24;

/// Whether requests may use indirect descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Indirect {
    Wanted,
    Unwanted,
}

/// The negotiated parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    pub(crate) bits: u64,
    protocol: VhostUserProtocolFeatures,
}

impl Features {
    pub(crate) fn has(self, bit: u64) -> bool {
        self.bits & bit != 0
    }
}

/// A connected device, rings not started.
pub(crate) struct Session {
    frontend: Frontend,
    /// The same socket, to notice that the device is gone.
    socket: UnixStream,
    pub(crate) features: Features,
    pub(crate) disk: DiskInfo,
}

/// Memory that says which requests the device had taken, and outlives the device.
pub(crate) struct Inflight {
    shape: VhostUserInflight,
    file: File,
}

/// A part of guest memory, as the device hears of it: a file, where it begins there, and its
/// addresses for the guest and in the front-end.
pub(crate) struct Part<'a> {
    pub file: BorrowedFd<'a>,
    pub offset: u64,
    pub len: u64,
    pub guest: u64,
    pub user: u64,
}

impl Part<'_> {
    fn info(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: self.guest,
            memory_size: self.len,
            userspace_addr: self.user,
            mmap_offset: self.offset,
            mmap_handle: self.file.as_raw_fd(),
        }
    }
}

impl SharedMemory {
    /// All of it, from the guest's address 0 on.
    pub(crate) fn part(&self) -> Part<'_> {
        use headgate_vring::HostMapping;
        Part {
            file: self.as_fd(),
            offset: 0,
            len: self.len() as u64,
            guest: 0,
            user: self.base().as_ptr().addr() as u64,
        }
    }
}

/// What an event descriptor of a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Kick,
    Call,
    Error,
}

/// The device's part of one queue.
pub(crate) struct Ring<'a> {
    pub layout: QueueLayout,
    pub base: u16,
    pub kick: &'a EventFd,
    pub call: &'a EventFd,
}

fn error(e: vhost::Error) -> LinkError {
    match e {
        vhost::Error::VhostUserProtocol(e) => user_error(e),
        e => LinkError::Protocol(e.to_string()),
    }
}

fn user_error(e: VhostUserError) -> LinkError {
    match e {
        VhostUserError::Disconnected
        | VhostUserError::PartialMessage
        | VhostUserError::SocketError(_)
        | VhostUserError::SocketBroken(_)
        | VhostUserError::SocketConnect(_) => LinkError::Down("the device hung up".into()),
        VhostUserError::SocketRetry(_) => LinkError::Protocol(format!(
            "a message was not answered within {} s",
            PATIENCE.as_secs()
        )),
        e => LinkError::Protocol(e.to_string()),
    }
}

impl Session {
    /// Connects and agrees on features.
    pub(crate) fn open(path: &Path, queues: u64, indirect: Indirect) -> Result<Session, LinkError> {
        let down = |e: std::io::Error| LinkError::Down(format!("cannot connect: {e}"));
        let socket = UnixStream::connect(path).map_err(down)?;
        socket
            .set_read_timeout(Some(PATIENCE))
            .and(socket.set_write_timeout(Some(PATIENCE)))
            .map_err(down)?;
        let mut frontend = Frontend::from_stream(socket.try_clone().map_err(down)?, queues);
        frontend.set_owner().map_err(error)?;
        let offered = frontend.get_features().map_err(error)?;
        for (bit, name) in
            [(feature::VERSION_1, "VIRTIO_F_VERSION_1"), (PROTOCOL_FEATURES, "protocol features")]
        {
            if offered & bit == 0 {
                return Err(LinkError::Unsupported(format!("the device does not offer {name}")));
            }
        }
        let known = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD;
        let protocol = frontend.get_protocol_features().map_err(error)? & known;
        if !protocol.contains(VhostUserProtocolFeatures::CONFIG) {
            return Err(LinkError::Unsupported(
                "the device does not offer its configuration (CONFIG)".into(),
            ));
        }
        frontend.set_protocol_features(protocol).map_err(error)?;
        if protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
            frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        let available = if protocol.contains(VhostUserProtocolFeatures::MQ) {
            frontend.get_queue_num().map_err(error)?
        } else {
            1
        };
        if available < queues {
            return Err(LinkError::Unsupported(format!(
                "the device has {available} queues, --queues asks for {queues}"
            )));
        }
        let mut wanted = feature::VERSION_1
            | PROTOCOL_FEATURES
            | READ_ONLY
            | feature::SEG_MAX
            | feature::BLK_SIZE
            | feature::FLUSH
            | feature::MQ
            | feature::DISCARD
            | feature::WRITE_ZEROES
            | feature::RING_EVENT_IDX;
        if indirect == Indirect::Wanted {
            wanted |= feature::RING_INDIRECT_DESC;
        }
        let bits = offered & wanted;
        frontend.set_features(bits).map_err(error)?;
        let (_, config) = frontend
            .get_config(0, CONFIG_BYTES as u32, VhostUserConfigFlags::empty(), &[0; CONFIG_BYTES])
            .map_err(error)?;
        let sectors = config.get(..8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        let access = if bits & READ_ONLY != 0 { Access::ReadOnly } else { Access::ReadWrite };
        let disk = DiskInfo { size: sectors.saturating_mul(SECTOR), access };
        Ok(Session { frontend, socket, features: Features { bits, protocol }, disk })
    }

    /// Gives the device the memory; `inflight` is what an earlier session of the same device left,
    /// if there was one. Answers what a later session needs, where the device has such a thing.
    pub(crate) fn share(
        &mut self,
        memory: &SharedMemory,
        inflight: Option<Inflight>,
        queues: u16,
        queue_size: u16,
    ) -> Result<Option<Inflight>, LinkError> {
        let inflight = match inflight {
            None if self.features.protocol.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD) => {
                let shape = VhostUserInflight {
                    mmap_size: 0,
                    mmap_offset: 0,
                    num_queues: queues,
                    queue_size,
                };
                let (shape, file) = self.frontend.get_inflight_fd(&shape).map_err(error)?;
                Some(Inflight { shape, file })
            }
            kept => kept,
        };
        if let Some(inflight) = &inflight {
            self.frontend
                .set_inflight_fd(&inflight.shape, inflight.file.as_raw_fd())
                .map_err(error)?;
        }
        self.set_table(&[memory.part()])?;
        Ok(inflight)
    }

    /// Gives the device these parts of memory and no others.
    pub(crate) fn set_table(&mut self, parts: &[Part<'_>]) -> Result<(), LinkError> {
        let regions: Vec<_> = parts.iter().map(Part::info).collect();
        self.frontend.set_mem_table(&regions).map(drop).map_err(error)
    }

    /// Gives the device one more part of memory.
    pub(crate) fn add_part(&mut self, part: &Part<'_>) -> Result<(), LinkError> {
        let slots = VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        if !self.features.protocol.contains(slots) {
            self.features.protocol |= slots;
            self.frontend.set_protocol_features(self.features.protocol).map_err(error)?;
        }
        self.frontend.add_mem_region(&part.info()).map(drop).map_err(error)
    }

    /// Gives the device a file for the requests in flight of one queue.
    pub(crate) fn set_inflight(
        &mut self,
        file: BorrowedFd<'_>,
        len: u64,
        queue_size: u16,
    ) -> Result<(), LinkError> {
        let shape = VhostUserInflight::new(len, 0, 1, queue_size);
        self.frontend.set_inflight_fd(&shape, file.as_raw_fd()).map_err(error)
    }

    /// Gives the device an event descriptor of the first queue.
    pub(crate) fn set_event(&mut self, event: Event, fd: &EventFd) -> Result<(), LinkError> {
        match event {
            Event::Kick => self.frontend.set_vring_kick(0, fd),
            Event::Call => self.frontend.set_vring_call(0, fd),
            Event::Error => self.frontend.set_vring_err(0, fd),
        }
        .map_err(error)
    }

    /// Starts one queue.
    pub(crate) fn start(
        &mut self,
        index: usize,
        memory: &SharedMemory,
        ring: &Ring<'_>,
    ) -> Result<(), LinkError> {
        use headgate_vring::HostMapping;
        // Wrapping: hostile tests name rings anywhere.
        let host = |address: u64| (memory.base().as_ptr().addr() as u64).wrapping_add(address);
        let config = VringConfigData {
            queue_max_size: ring.layout.size,
            queue_size: ring.layout.size,
            flags: 0,
            desc_table_addr: host(ring.layout.descriptors.0),
            used_ring_addr: host(ring.layout.used.0),
            avail_ring_addr: host(ring.layout.available.0),
            log_addr: None,
        };
        let f = &mut self.frontend;
        f.set_vring_num(index, ring.layout.size).map_err(error)?;
        f.set_vring_base(index, ring.base).map_err(error)?;
        f.set_vring_addr(index, &config).map_err(error)?;
        f.set_vring_kick(index, ring.kick).map_err(error)?;
        f.set_vring_call(index, ring.call).map_err(error)?;
        f.set_vring_enable(index, true).map_err(error)
    }

    /// How long the device may take for further messages.
    pub(crate) fn set_patience(&self, patience: Duration) {
        // A socket that refuses is one that is gone, which the next message finds out.
        let _ = self.socket.set_read_timeout(Some(patience));
        let _ = self.socket.set_write_timeout(Some(patience));
    }

    /// The socket, which hangs up when the device dies.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the device hung up.
    pub(crate) fn is_gone(&self) -> bool {
        match recv(&self.socket, &mut [0; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, n)) => n == 0,
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => true,
        }
    }

    /// Stops one queue: the device gives everything back first.
    pub(crate) fn stop(&mut self, index: usize) -> Result<u32, LinkError> {
        self.frontend.get_vring_base(index).map_err(error)
    }
}
