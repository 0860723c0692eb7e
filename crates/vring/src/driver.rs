//! The driver side of a split virtqueue: what a guest's kernel does, for load generators and tests.
//!
//! The device is not trusted either: an element in the used ring that names a chain which was never
//! offered is an error. [`DriverQueue::raw`] gives access below the rules, to play a guest that
//! breaks them.

use crate::layout::{
    Areas, DESCRIPTOR_BYTES, Descriptor, EventIndex, FLAG_INDIRECT, FLAG_NEXT, FLAG_NO_SIGNAL,
    FLAG_WRITE, IndirectTables, LayoutError, QueueFeatures, QueueLayout, passed,
};
use crate::memory::{GuestAddress, GuestMemory, MemoryError, full_fence};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use thiserror::Error;

/// A buffer of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// The device reads it.
    Readable {
        /// Where it lies.
        at: GuestAddress,
        /// Its length in bytes.
        len: u32,
    },
    /// The device writes it.
    Writable {
        /// Where it lies.
        at: GuestAddress,
        /// Its length in bytes.
        len: u32,
    },
}

impl Buffer {
    fn descriptor(self) -> Descriptor {
        match self {
            Buffer::Readable { at, len } => Descriptor { addr: at, len, flags: 0, next: 0 },
            Buffer::Writable { at, len } => {
                Descriptor { addr: at, len, flags: FLAG_WRITE, next: 0 }
            }
        }
    }
}

/// How a chain is laid down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One descriptor of the ring per buffer.
    Direct,
    /// One descriptor of the ring, which names a table at this address: 16 bytes per buffer, not
    /// reused before the chain is back.
    Indirect(GuestAddress),
}

/// Why the driver side cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DriverError {
    /// Fewer free descriptors than the chain needs: poll the used ring first.
    #[error("the chain needs {needed} descriptors, {free} are free")]
    Full {
        /// Descriptors the chain takes.
        needed: usize,
        /// Descriptors left.
        free: usize,
    },
    /// A chain of no buffers, or an indirect one without the feature.
    #[error("a chain needs at least one buffer, and an indirect one needs VIRTIO_F_INDIRECT_DESC")]
    BadChain,
    /// The indirect table is not in guest memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The device gave back what it never had, or more than it had.
    #[error("the device gave back chain {0}, which is not in flight")]
    BadUsed(u32),
}

/// A chain that the device gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The head that [`DriverQueue::add`] answered.
    pub head: u16,
    /// Bytes that the device says it wrote.
    pub written: u32,
}

/// The driver side of one split virtqueue.
pub struct DriverQueue {
    memory: Arc<GuestMemory>,
    areas: Areas,
    features: QueueFeatures,
    free: Vec<u16>,
    /// Per head: the descriptors of its chain in flight, none when it is not a head in flight.
    chains: Vec<Vec<u16>>,
    next_avail: u16,
    published: u16,
    next_used: u16,
    in_flight: usize,
}

impl DriverQueue {
    /// Sets up empty rings at `layout`.
    ///
    /// # Errors
    /// The rings do not lie in memory, or not aligned.
    pub fn new(
        memory: Arc<GuestMemory>,
        layout: &QueueLayout,
        features: QueueFeatures,
    ) -> Result<DriverQueue, LayoutError> {
        let areas = Areas::new(&memory, layout)?;
        areas.set_avail_flags(0);
        areas.set_avail_idx(0);
        areas.set_used_flags(0);
        areas.set_used_idx(0);
        areas.set_used_event(0);
        areas.set_avail_event(0);
        Ok(DriverQueue {
            memory,
            areas,
            features,
            free: (0..layout.size).rev().collect(),
            chains: vec![Vec::new(); usize::from(layout.size)],
            next_avail: 0,
            published: 0,
            next_used: 0,
            in_flight: 0,
        })
    }

    /// Free descriptors.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Chains offered and not given back.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Lays a chain down and puts it into the available ring; the device sees it at the next
    /// [`publish`](Self::publish). Answers the chain's head, its name until it comes back.
    ///
    /// # Errors
    /// [`DriverError::Full`], [`DriverError::BadChain`] and [`DriverError::Memory`].
    pub fn add(&mut self, buffers: &[Buffer], placement: Placement) -> Result<u16, DriverError> {
        let needed = match placement {
            Placement::Direct => buffers.len(),
            Placement::Indirect(_) => 1,
        };
        if buffers.is_empty()
            || (placement != Placement::Direct && self.features.indirect == IndirectTables::Refused)
        {
            return Err(DriverError::BadChain);
        }
        if needed > self.free.len() {
            return Err(DriverError::Full { needed, free: self.free.len() });
        }
        if let Placement::Indirect(table) = placement {
            self.write_table(table, buffers)?;
        }
        let first = self.free.len() - needed;
        let head = self.free[self.free.len() - 1];
        let mut chain = core::mem::take(&mut self.chains[usize::from(head)]);
        chain.extend(self.free.drain(first..).rev());
        match placement {
            Placement::Direct => {
                for (i, buffer) in buffers.iter().enumerate() {
                    let mut descriptor = buffer.descriptor();
                    if let Some(next) = chain.get(i + 1) {
                        descriptor.flags |= FLAG_NEXT;
                        descriptor.next = *next;
                    }
                    self.areas.set_descriptor(chain[i], descriptor);
                }
            }
            Placement::Indirect(addr) => {
                let len = (buffers.len() * DESCRIPTOR_BYTES) as u32;
                self.areas
                    .set_descriptor(head, Descriptor { addr, len, flags: FLAG_INDIRECT, next: 0 });
            }
        }
        self.chains[usize::from(head)] = chain;
        self.areas.set_avail_entry(self.next_avail, head);
        self.next_avail = self.next_avail.wrapping_add(1);
        self.in_flight += 1;
        Ok(head)
    }

    fn write_table(&self, table: GuestAddress, buffers: &[Buffer]) -> Result<(), MemoryError> {
        for (i, buffer) in buffers.iter().enumerate() {
            let mut descriptor = buffer.descriptor();
            if i + 1 < buffers.len() {
                descriptor.flags |= FLAG_NEXT;
                descriptor.next = (i + 1) as u16;
            }
            let mut bytes = [0; DESCRIPTOR_BYTES];
            let [low, high] = descriptor.to_words();
            bytes[..8].copy_from_slice(&low.to_ne_bytes());
            bytes[8..].copy_from_slice(&high.to_ne_bytes());
            self.memory
                .write(GuestAddress(table.0.wrapping_add((i * DESCRIPTOR_BYTES) as u64)), &bytes)?;
        }
        Ok(())
    }

    /// Shows the device every chain added so far. Answers whether it wants a kick for that.
    pub fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.next_avail);
        if old == new {
            return false;
        }
        self.areas.set_avail_idx(new);
        self.published = new;
        // See `DeviceQueue::needs_call`.
        full_fence();
        match self.features.event_index {
            EventIndex::On => passed(self.areas.avail_event(), new, old),
            EventIndex::Off => self.areas.used_flags() & FLAG_NO_SIGNAL == 0,
        }
    }

    /// Takes the next chain that the device gave back.
    ///
    /// # Errors
    /// [`DriverError::BadUsed`].
    pub fn poll_used(&mut self) -> Result<Option<Used>, DriverError> {
        if self.areas.used_idx() == self.next_used {
            return Ok(None);
        }
        let (id, written) = self.areas.used_element(self.next_used);
        let chain = usize::try_from(id).ok().and_then(|i| self.chains.get_mut(i));
        let chain = chain.filter(|c| !c.is_empty()).ok_or(DriverError::BadUsed(id))?;
        self.free.extend(chain.drain(..).rev());
        self.next_used = self.next_used.wrapping_add(1);
        self.in_flight -= 1;
        Ok(Some(Used { head: id as u16, written }))
    }

    /// Asks for a call at the next chain given back. Answers whether one is there already.
    pub fn enable_calls(&mut self) -> bool {
        match self.features.event_index {
            EventIndex::On => self.areas.set_used_event(self.next_used),
            EventIndex::Off => self.areas.set_avail_flags(0),
        }
        full_fence();
        self.areas.used_idx() != self.next_used
    }

    /// Asks for no calls: for a driver that polls.
    pub fn disable_calls(&mut self) {
        match self.features.event_index {
            // The farthest position from here: passed only when the index wraps.
            EventIndex::On => self.areas.set_used_event(self.next_used.wrapping_sub(1)),
            EventIndex::Off => self.areas.set_avail_flags(FLAG_NO_SIGNAL),
        }
    }

    /// The rings, without rules.
    pub fn raw(&mut self) -> RawRings<'_> {
        RawRings(self)
    }
}

/// Writes anything anywhere in the rings, as a broken or hostile driver would.
pub struct RawRings<'a>(&'a mut DriverQueue);

impl RawRings<'_> {
    /// Writes one descriptor of the ring's table. `index` is taken modulo the queue's size.
    pub fn set_descriptor(
        &mut self,
        index: u16,
        addr: GuestAddress,
        len: u32,
        flags: u16,
        next: u16,
    ) {
        self.0.areas.set_descriptor(index, Descriptor { addr, len, flags, next });
    }

    /// Puts any number into the available ring and shows it to the device.
    pub fn offer(&mut self, head: u16) {
        self.0.areas.set_avail_entry(self.0.next_avail, head);
        self.0.next_avail = self.0.next_avail.wrapping_add(1);
        self.set_available_index(self.0.next_avail);
    }

    /// Shows the device any available index.
    pub fn set_available_index(&mut self, index: u16) {
        self.0.areas.set_avail_idx(index);
        self.0.published = index;
    }

    /// Takes the next used element, whatever it names.
    pub fn take_used(&mut self) -> Option<(u32, u32)> {
        if self.0.areas.used_idx() == self.0.next_used {
            return None;
        }
        let element = self.0.areas.used_element(self.0.next_used);
        self.0.next_used = self.0.next_used.wrapping_add(1);
        Some(element)
    }
}
