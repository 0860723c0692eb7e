//! Shards: one pinned thread with one io_uring that owns datastores whole, and with them their disks' queues,
//! scheduler, window, statistics and ports.

pub mod port;
pub mod request;
