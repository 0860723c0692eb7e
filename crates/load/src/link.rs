//! One way into a disk: a connection to an NBD server, or a queue of a vhost-user-blk device.

use crate::priority::Priority;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use thiserror::Error;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Writes zeroes, without sending them.
    WriteZeroes,
    /// Makes completed writes durable.
    Flush,
}

/// Must the request's own data be durable when it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Not before a flush.
    AtFlush,
    /// Yes: forced unit access.
    Fua,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// What it does.
    pub kind: Kind,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// Durability.
    pub durability: Durability,
    /// IO priority; NBD cannot carry it.
    pub priority: Priority,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Well.
    Done,
    /// With the server's error: an NBD error number, or a virtio-blk status.
    Failed(u32),
}

/// An answer.
#[derive(Debug)]
pub struct Completion<'a> {
    /// The slot that [`Link::submit`] was given.
    pub slot: usize,
    /// How the request ended.
    pub outcome: Outcome,
    /// What a successful read got, where [`Shape::data`] asks for it.
    pub data: &'a [u8],
}

/// Whether the data of reads is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataUse {
    /// No: it may stay where it arrived.
    Ignored,
    /// Yes.
    Checked,
}

/// The parameters of a link.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Slots: requests outstanding at once.
    pub depth: usize,
    /// Bytes of the largest request.
    pub max_len: u32,
    /// The use of read data.
    pub data: DataUse,
    /// Seed of what unverified writes write.
    pub seed: u64,
}

/// How long [`Link::receive`] may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until something arrives, or for about [`TICK`].
    Tick,
}

/// How long the longest wait lasts: other duties (the end, Ctrl-C) are looked at so often.
pub const TICK: Duration = Duration::from_millis(100);

/// Why a link cannot go on.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The server is not there, or hung up.
    #[error("{0}")]
    Down(String),
    /// The server broke the protocol: never acceptable.
    #[error("the server broke the protocol: {0}")]
    Protocol(String),
    /// The server cannot do what was asked for.
    #[error("{0}")]
    Unsupported(String),
}

/// The fate of requests in flight when a link was established again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// They will never be answered; each may or may not have been carried out.
    Lost,
    /// They are still in flight: the server finds them in memory that outlived it.
    StillInFlight,
}

/// One way into a disk. A slot belongs to the caller until submitted, and again once its completion
/// was delivered.
pub trait Link: Send {
    /// Queues a request. `payload` is what a write writes; empty: anything. The slot is free, and
    /// the request no longer than [`Shape::max_len`].
    ///
    /// # Errors
    /// The request cannot be expressed on this link.
    fn submit(&mut self, slot: usize, op: &Op, payload: &[u8]) -> Result<(), LinkError>;

    /// Shows the server what was queued, as far as it takes it now.
    ///
    /// # Errors
    /// [`LinkError::Down`].
    fn send(&mut self) -> Result<(), LinkError>;

    /// Delivers what completed.
    ///
    /// # Errors
    /// The server hung up or broke the protocol.
    fn receive(
        &mut self,
        wait: Wait,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> Result<(), LinkError>;

    /// Whether there are completions that [`readiness`](Self::readiness) would not report; called
    /// before waiting on it.
    fn has_completions(&mut self) -> bool {
        false
    }

    /// The readiness to wait for between calls.
    fn readiness(&self) -> Readiness<'_>;

    /// Connects again after [`LinkError::Down`]; tries once.
    ///
    /// # Errors
    /// The server is not there (yet).
    fn recover(&mut self) -> Result<Recovered, LinkError>;
}

/// The file descriptors that wake a link's owner.
pub struct Readiness<'a> {
    /// Readable: [`Link::receive`] has work.
    pub readable: BorrowedFd<'a>,
    /// Also wake when this is writable: [`Link::send`] could not send all.
    pub writable: Option<BorrowedFd<'a>>,
    /// Wake when this hangs up.
    pub hang_up: Option<BorrowedFd<'a>>,
}

/// The properties that a disk reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskInfo {
    /// Size in bytes.
    pub size: u64,
    /// Whether it accepts writes.
    pub access: Access,
}

/// Whether a disk accepts writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Yes.
    ReadWrite,
    /// No.
    ReadOnly,
}
