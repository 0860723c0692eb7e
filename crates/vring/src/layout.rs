//! Where a split virtqueue lies in guest memory (VIRTIO 1.2, section 2.7) and which ring features
//! were negotiated.

use crate::blk::feature;
use crate::memory::{GuestAddress, GuestMemory, MemoryError, SharedArea};
use thiserror::Error;

/// Largest queue Headgate serves, in descriptors. VIRTIO allows 32,768; QEMU's devices stop at
/// 1,024.
pub const MAX_QUEUE_SIZE: u16 = 1024;

/// Bytes of one descriptor.
pub(crate) const DESCRIPTOR_BYTES: usize = 16;
/// The chain goes on at `next`.
pub(crate) const FLAG_NEXT: u16 = 1;
/// The device writes this buffer; otherwise it reads it.
pub(crate) const FLAG_WRITE: u16 = 2;
/// The buffer holds a table of descriptors.
pub(crate) const FLAG_INDIRECT: u16 = 4;
/// In the available ring's flags: the driver wants no calls. In the used ring's: the device wants
/// no kicks.
pub(crate) const FLAG_NO_SIGNAL: u16 = 1;

/// Are `used_event` and `avail_event` in use (`VIRTIO_F_EVENT_IDX`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventIndex {
    /// Negotiated.
    On,
    /// Not negotiated: the rings' flags rule.
    Off,
}

/// May chains point to tables of descriptors (`VIRTIO_F_INDIRECT_DESC`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndirectTables {
    /// Negotiated.
    Allowed,
    /// Not negotiated: such a chain is an error.
    Refused,
}

/// The negotiated features that change how a ring works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFeatures {
    /// Event index.
    pub event_index: EventIndex,
    /// Indirect descriptors.
    pub indirect: IndirectTables,
}

impl QueueFeatures {
    /// Picks the ring's features out of the device's acknowledged feature bits.
    pub fn from_bits(bits: u64) -> QueueFeatures {
        QueueFeatures {
            event_index: if bits & feature::RING_EVENT_IDX != 0 {
                EventIndex::On
            } else {
                EventIndex::Off
            },
            indirect: if bits & feature::RING_INDIRECT_DESC != 0 {
                IndirectTables::Allowed
            } else {
                IndirectTables::Refused
            },
        }
    }
}

/// The three areas of a queue, by guest physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLayout {
    /// Descriptors in the table: a power of two up to [`MAX_QUEUE_SIZE`].
    pub size: u16,
    /// The descriptor table, aligned to 16 bytes.
    pub descriptors: GuestAddress,
    /// The available ring, aligned to 2 bytes.
    pub available: GuestAddress,
    /// The used ring, aligned to 4 bytes.
    pub used: GuestAddress,
}

/// Why a queue cannot be where it was said to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// Not a power of two, zero, or too large.
    #[error("queue size {0} is not a power of two from 1 to {MAX_QUEUE_SIZE}")]
    Size(u16),
    /// An area is not aligned as VIRTIO 1.2, section 2.7 demands.
    #[error("the {area} at guest address {address:#x} is not aligned to {align} bytes")]
    Misaligned {
        /// Which area.
        area: &'static str,
        /// Where it was to be.
        address: u64,
        /// What its address must be a multiple of.
        align: usize,
    },
    /// An area does not lie inside one region of guest memory.
    #[error(
        "the {area} of {bytes} bytes at guest address {address:#x} is not inside one region of guest memory"
    )]
    OutOfRange {
        /// Which area.
        area: &'static str,
        /// Where it was to be.
        address: u64,
        /// Its length.
        bytes: usize,
    },
}

impl QueueLayout {
    /// Lays the three areas out one after the other from `start`, which is rounded up to 16 bytes.
    /// Answers the layout and the first address behind it.
    ///
    /// # Errors
    /// [`LayoutError::Size`].
    pub fn contiguous(
        start: GuestAddress,
        size: u16,
    ) -> Result<(QueueLayout, GuestAddress), LayoutError> {
        check_size(size)?;
        let descriptors = GuestAddress(start.0.next_multiple_of(16));
        let available = GuestAddress(descriptors.0 + descriptor_bytes(size) as u64);
        let used = GuestAddress((available.0 + available_bytes(size) as u64).next_multiple_of(4));
        let end = GuestAddress(used.0 + used_bytes(size) as u64);
        Ok((QueueLayout { size, descriptors, available, used }, end))
    }
}

fn check_size(size: u16) -> Result<(), LayoutError> {
    if size.is_power_of_two() && size <= MAX_QUEUE_SIZE {
        Ok(())
    } else {
        Err(LayoutError::Size(size))
    }
}

fn descriptor_bytes(size: u16) -> usize {
    DESCRIPTOR_BYTES * usize::from(size)
}

fn available_bytes(size: u16) -> usize {
    6 + 2 * usize::from(size)
}

fn used_bytes(size: u16) -> usize {
    6 + 8 * usize::from(size)
}

/// A descriptor, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub addr: GuestAddress,
    pub len: u32,
    pub flags: u16,
    pub next: u16,
}

impl Descriptor {
    pub(crate) fn from_words(low: u64, high: u64) -> Descriptor {
        let (low, high) = (u64::from_le(low), u64::from_le(high));
        Descriptor {
            addr: GuestAddress(low),
            len: high as u32,
            flags: (high >> 32) as u16,
            next: (high >> 48) as u16,
        }
    }

    pub(crate) fn to_words(self) -> [u64; 2] {
        let high = u64::from(self.len) | u64::from(self.flags) << 32 | u64::from(self.next) << 48;
        [self.addr.0.to_le(), high.to_le()]
    }

    pub(crate) fn from_bytes(bytes: [u8; DESCRIPTOR_BYTES]) -> Descriptor {
        let [a, b, c, d, e, f, g, h, rest @ ..] = bytes;
        Descriptor::from_words(
            u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            u64::from_ne_bytes(rest),
        )
    }
}

/// The areas of one queue, translated and checked once. Both sides work through this.
pub(crate) struct Areas {
    pub size: u16,
    descriptors: SharedArea,
    available: SharedArea,
    used: SharedArea,
}

impl Areas {
    pub(crate) fn new(memory: &GuestMemory, layout: &QueueLayout) -> Result<Areas, LayoutError> {
        check_size(layout.size)?;
        let area = |area, address: GuestAddress, bytes, align| {
            memory.area(address, bytes, align).map_err(|error| match error {
                MemoryError::Misaligned { .. } => {
                    LayoutError::Misaligned { area, address: address.0, align }
                }
                _ => LayoutError::OutOfRange { area, address: address.0, bytes },
            })
        };
        Ok(Areas {
            size: layout.size,
            descriptors: area(
                "descriptor table",
                layout.descriptors,
                descriptor_bytes(layout.size),
                16,
            )?,
            available: area("available ring", layout.available, available_bytes(layout.size), 2)?,
            used: area("used ring", layout.used, used_bytes(layout.size), 4)?,
        })
    }

    fn slot(&self, position: u16) -> usize {
        usize::from(position & (self.size - 1))
    }

    pub(crate) fn descriptor(&self, index: u16) -> Descriptor {
        let at = self.slot(index) * DESCRIPTOR_BYTES;
        Descriptor::from_words(self.descriptors.load_u64(at), self.descriptors.load_u64(at + 8))
    }

    pub(crate) fn set_descriptor(&self, index: u16, descriptor: Descriptor) {
        let at = self.slot(index) * DESCRIPTOR_BYTES;
        let [low, high] = descriptor.to_words();
        self.descriptors.store_u64(at, low);
        self.descriptors.store_u64(at + 8, high);
    }

    pub(crate) fn avail_flags(&self) -> u16 {
        u16::from_le(self.available.load_u16(0))
    }

    pub(crate) fn set_avail_flags(&self, flags: u16) {
        self.available.store_u16(0, flags.to_le());
    }

    /// Acquire: the entries and descriptors behind this index are visible after it.
    pub(crate) fn avail_idx(&self) -> u16 {
        u16::from_le(self.available.load_u16_acquire(2))
    }

    /// Release: publishes the entries and descriptors written before.
    pub(crate) fn set_avail_idx(&self, idx: u16) {
        self.available.store_u16_release(2, idx.to_le());
    }

    pub(crate) fn avail_entry(&self, position: u16) -> u16 {
        u16::from_le(self.available.load_u16(4 + 2 * self.slot(position)))
    }

    pub(crate) fn set_avail_entry(&self, position: u16, head: u16) {
        self.available.store_u16(4 + 2 * self.slot(position), head.to_le());
    }

    /// The driver's wish: call when the used index passes this.
    pub(crate) fn used_event(&self) -> u16 {
        u16::from_le(self.available.load_u16(4 + 2 * usize::from(self.size)))
    }

    pub(crate) fn set_used_event(&self, idx: u16) {
        self.available.store_u16(4 + 2 * usize::from(self.size), idx.to_le());
    }

    pub(crate) fn used_flags(&self) -> u16 {
        u16::from_le(self.used.load_u16(0))
    }

    pub(crate) fn set_used_flags(&self, flags: u16) {
        self.used.store_u16(0, flags.to_le());
    }

    /// Acquire: the used elements behind this index are visible after it.
    pub(crate) fn used_idx(&self) -> u16 {
        u16::from_le(self.used.load_u16_acquire(2))
    }

    /// Release: publishes the used elements, and the data they speak of, written before.
    pub(crate) fn set_used_idx(&self, idx: u16) {
        self.used.store_u16_release(2, idx.to_le());
    }

    pub(crate) fn used_element(&self, position: u16) -> (u32, u32) {
        let at = 4 + 8 * self.slot(position);
        (u32::from_le(self.used.load_u32(at)), u32::from_le(self.used.load_u32(at + 4)))
    }

    pub(crate) fn set_used_element(&self, position: u16, head: u16, len: u32) {
        let at = 4 + 8 * self.slot(position);
        self.used.store_u32(at, u32::from(head).to_le());
        self.used.store_u32(at + 4, len.to_le());
    }

    /// The device's wish: kick when the available index passes this.
    pub(crate) fn avail_event(&self) -> u16 {
        u16::from_le(self.used.load_u16(4 + 8 * usize::from(self.size)))
    }

    pub(crate) fn set_avail_event(&self, idx: u16) {
        self.used.store_u16(4 + 8 * usize::from(self.size), idx.to_le());
    }
}

/// Did the index pass `event` on its way from `old` to `new` (`vring_need_event`, VIRTIO 1.2,
/// section 2.7.7.1).
pub(crate) fn passed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
