//! How machines attach to disks: one module per protocol.

pub mod nbd;
pub mod vhost;
