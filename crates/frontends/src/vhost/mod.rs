//! vhost-user-blk: disks for virtual machines, without copying.
//!
//! | module | runs on | what |
//! |---|---|---|
//! | [`reactor`] | a thread, and workers | waits for all sockets, and has workers handle what comes |
//! | [`server`] | workers | one unix socket per disk: accepts one front-end (QEMU) at a time |
//! | `control` | workers | the vhost-user protocol, over crate `vhost`: memory, rings, features, in-flight region |
//! | `port` | the disk's shard | the data path: rings, kicks, requests, completions, calls |
//! | `memory` | workers | maps what the front-end announces |
//! | `memory_rules` | workers | which memory, and how much |
//! | `config` | - | feature bits and configuration space |
//! | `view` | both | what the front-end has read of it, and how it hears of a change |
//!
//! A connection owns one port in its disk's shard. A worker may block on its peer for ever:
//! nothing but that peer's own negotiation waits for it. The port never waits: it takes
//! requests while the disk has room, and leaves the others in the ring.
//!
//! # Crash and reconnect
//! With the in-flight region negotiated (QEMU does), a front-end that comes back hands over the
//! region of the process that died. Requests in it are replayed, oldest first, and nothing new is
//! taken from any queue of the device until all of them are complete: a replayed write may have
//! reached the disk before, and must not overtake a newer one.
//!
//! # A ring's stop
//! A guest's reset, a pause and a migration stop rings (`GET_VRING_BASE`). What nobody has begun to
//! serve goes back into the ring, and the rest goes at its disk's own pace: the stop waits for it,
//! and with it this front-end alone. See `docs/decisions/0043-ring-stops.md`.
//!
//! # Trust
//! The guest is hostile, and so are all bytes in its memory (see [`headgate_vring`]). The
//! front-end's messages are checked too, and can harm its own disk and connection only. Memory that
//! it shortens while it is mapped becomes empty memory (see `lost_memory`). The event descriptors
//! that it shares cannot make a shard wait, whatever it sets on them (see `port::event`).
//! Its memory has no pages that somebody else may keep back (see `memory_rules`).

mod config;
mod control;
mod lost_memory;
mod memory;
mod memory_rules;
mod port;
pub mod reactor;
pub mod server;
mod view;

pub use memory_rules::GuestMemorySource;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::unix::net::UnixStream;
use thiserror::Error;

/// Why a front-end's message is refused. The connection ends with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Refused {
    /// Memory that cannot be used.
    #[error("memory: {0}")]
    Memory(String),
    /// A queue that cannot be used.
    #[error("queue {queue}: {why}")]
    Queue {
        /// Its index.
        queue: u32,
        /// What is wrong.
        why: String,
    },
    /// Feature bits that were not offered.
    #[error("features {0:#x} were not offered")]
    Features(u64),
    /// A message that makes no sense for this device.
    #[error("{0} is not served")]
    NotServed(&'static str),
    /// The front-end went away while it waited for an answer.
    #[error("the front-end went away")]
    HungUp,
    /// The disk went away under its connection.
    #[error("the disk was detached")]
    Detached,
}

/// Has the other side closed the connection.
fn hung_up(stream: &UnixStream) -> bool {
    let mut looked_at = [PollFd::new(stream, PollFlags::RDHUP)];
    let ready = poll(&mut looked_at, Some(&Timespec::default()));
    ready == Ok(1) && looked_at[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP)
}

/// Is there something to read, or nobody left who could send it.
fn is_readable(stream: &UnixStream) -> bool {
    let mut looked_at = [PollFd::new(stream, PollFlags::IN)];
    poll(&mut looked_at, Some(&Timespec::default())) == Ok(1)
}
