//! A shard's ways to the kernel and to other threads. Nothing here knows of disks and requests.

pub(crate) mod buffers;
pub(crate) mod mailbox;
pub(crate) mod page_buffer;
pub(crate) mod ring;
pub(crate) mod send;
pub(crate) mod worker;
