//! Split virtqueues (VIRTIO 1.2, section 2.7) that carry virtio-blk requests (section 5.2.6), as
//! seen from both ends.
//!
//! | module | what |
//! |---|---|
//! | [`memory`] | guest memory that another process writes at any time; the only place with `unsafe` |
//! | [`layout`] | where the three areas of a queue lie, and which features it uses |
//! | [`device`] | the device side: [`DeviceQueue`] turns descriptor chains into checked [`Request`]s |
//! | [`inflight`] | the region that outlives a daemon and says which requests it had taken (vhost-user, "Inflight I/O tracking") |
//! | [`driver`] | the driver side: [`DriverQueue`], for load generators and tests |
//! | [`blk`] | what virtio-blk puts into a chain |
//!
//! The crate is `no_std`: it has no clock, does no IO and makes no system call. The caller maps
//! memory, waits for kicks and sends calls.
//!
//! # The border
//! Guest memory is hostile: every access is bounds-checked, every descriptor, header and index is
//! read **once** and judged by that copy. A [`Request`] that comes out of
//! [`DeviceQueue::next_request`] has a known type, whole sectors, a range that does not overflow,
//! at most [`blk::MAX_DATA`] bytes, and buffers that lie in guest memory. Whether the range lies
//! inside the disk is for the caller to check: a queue does not know its disk.
//!
//! What is wrong with one chain fails that request ([`ChainError`]) as long as the byte for its
//! status can be found; what makes the ring itself meaningless breaks that queue ([`QueueError`])
//! until it is set up again.
//!
//! # Order of calls on the device side
//! 1. [`DeviceQueue::start`], once per enabled ring; then, after a restart,
//!    [`DeviceQueue::next_replay`] until it is empty, and every replayed request completed before
//!    any new one is taken.
//! 2. [`DeviceQueue::next_request`] until it answers `None`; [`DeviceQueue::complete`] in any
//!    order.
//! 3. [`DeviceQueue::publish`] once per batch; [`DeviceQueue::needs_call`] then says whether to
//!    signal the driver.
//! 4. [`DeviceQueue::enable_kicks`] before sleeping: when it answers [`Kicks::MissedSome`], go on
//!    with 2.
//! 5. To stop: [`DeviceQueue::put_back`] for chains that nobody has begun to serve, newest first;
//!    then, once nothing is in flight, [`DeviceQueue::next_available`] is where a successor goes
//!    on.

#![cfg_attr(not(test), no_std)]

extern crate alloc;
#[cfg(feature = "loom")]
extern crate std;

pub mod blk;
mod chain;
pub mod device;
pub mod driver;
pub mod inflight;
pub mod layout;
pub mod memory;

#[cfg(test)]
mod tests;

pub use chain::{ChainError, Operation, Request, Scratch, Unmap};
pub use device::{Completion, DeviceQueue, Fetched, Kicks, QueueError, Rejected, StartError};
pub use driver::{Buffer, DriverError, DriverQueue, Placement, Used};
pub use inflight::{InflightError, InflightRegion};
pub use layout::{EventIndex, IndirectTables, LayoutError, QueueFeatures, QueueLayout};
pub use memory::{
    GuestAddress, GuestMemory, HeapMapping, HostMapping, MemoryError, Region, Segment,
};
