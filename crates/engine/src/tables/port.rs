//! A port, as its shard keeps it beside the port itself.

use crate::backend::nbd::loss::LossEpoch;
use crate::kernel::send::Unsent;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Tells other threads that a port has ended.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    gone: Mutex<bool>,
    changed: Condvar,
}

impl Gone {
    pub(crate) fn set(&self) {
        *self.gone.lock().unwrap_or_else(|e| e.into_inner()) = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.gone.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let gone = self.gone.lock().unwrap_or_else(|e| e.into_inner());
        let (gone, _) = self
            .changed
            .wait_timeout_while(gone, patience, |gone| !*gone)
            .unwrap_or_else(|e| e.into_inner());
        *gone
    }
}

/// Who sends a port's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A client, by its front-end's port.
    Client,
    /// The live move of this number, for one of its parts. There is no front-end.
    Move(u32, MovePart),
    /// Another shard's live move, whose target is of this shard, by its number here.
    Landing(u32),
}

/// For what a move sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MovePart {
    /// What clients ask of the source.
    Source,
    /// What the copy asks of it.
    SourceCopy,
    /// What clients ask of the target.
    Target,
    /// What the copy asks of it.
    TargetCopy,
}

/// What the shard keeps of a port beside the port itself.
pub(crate) struct PortState {
    pub disk: u32,
    pub generation: u32,
    pub sender: Sender,
    /// Keys of ring operations under way.
    pub active: Vec<u32>,
    /// Requests queued or at the backend.
    pub requests: u32,
    /// Those of them that are queued.
    pub queued: u32,
    /// In the list of ports whose turn must be ended.
    pub touched: bool,
    /// Found the disk's queue full and waits for room.
    pub starved: bool,
    pub closing: bool,
    /// What is left of a message that the socket took a part of.
    pub unsent: Option<Box<Unsent>>,
    /// What it knows of writes that a remote server may have lost.
    pub epoch: LossEpoch,
}

impl PortState {
    /// A port that has done nothing yet.
    pub(crate) fn new(disk: u32, generation: u32, sender: Sender, epoch: LossEpoch) -> PortState {
        PortState {
            disk,
            generation,
            sender,
            active: Vec::new(),
            requests: 0,
            queued: 0,
            touched: false,
            starved: false,
            closing: false,
            unsent: None,
            epoch,
        }
    }
}
