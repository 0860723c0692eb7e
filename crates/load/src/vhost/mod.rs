//! The driver's side of vhost-user-blk (the vhost-user protocol document of QEMU; VIRTIO 1.2,
//! section 5.2).

mod frontend;
mod link;
mod memory;

#[cfg(test)]
mod device_tests;

pub(crate) use frontend::{Features, Indirect, Inflight, Ring, Session};
pub(crate) use link::VhostLink;
pub(crate) use memory::SharedMemory;
