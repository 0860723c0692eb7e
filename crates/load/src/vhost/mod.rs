//! The driver's side of vhost-user-blk (the vhost-user protocol document of QEMU; VIRTIO 1.2,
//! section 5.2).

mod frontend;
mod link;
mod memory;
mod page_faults;

#[cfg(test)]
mod device_tests;

pub(crate) use frontend::{Event, Features, Indirect, Inflight, Part, Ring, Session};
pub(crate) use link::VhostLink;
pub(crate) use memory::{SharedMemory, as_event, event_fd};
pub(crate) use page_faults::Unanswered;
