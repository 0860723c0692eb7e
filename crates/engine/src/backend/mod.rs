//! Backends: what executes the requests that a datastore's scheduler lets through.
//!
//! | file | backend |
//! |---|---|
//! | [`file`] | image files and block devices, through io_uring |
//! | `emulated` | image files behind a device model in real time |
//! | `null` | nothing: reads are zeroes, writes vanish |
//! | `memory` | RAM disks |
//! | [`nbd`] | exports of an NBD server |
//! | `moving` | nothing: the machine of a live move has the requests |
//!
//! A backend implements `Execute`. `Backend` chooses one at compile time's cost only: an enum
//! whose arms are named in this file and nowhere else. `execute`, `context` and `storage` are what
//! backends share. What an open disk can do beyond requests is
//! a type that it has or has not: `Pages`. How to add one: `docs/adding-a-backend.md`.

pub(crate) mod context;
pub(crate) mod emulated;
pub(crate) mod execute;
pub(crate) mod file;
mod image;
pub(crate) mod memory;
pub(crate) mod moving;
pub mod nbd;
pub(crate) mod null;
mod size;
pub(crate) mod storage;

use crate::error::EngineError;
use crate::kernel::mailbox::Outlet;
use crate::snapshot::FlashSnapshot;
use crate::topology::Topology;
use context::Context;
use emulated::Emulated;
use execute::{Execute, Opening, Refused};
use file::File;
use headgate_devices::{FlashDrive, ModelSpec, Readiness};
use headgate_qos::SchedulerKind;
use headgate_units::{Bytes, Nanos, Shares};
pub use image::{Image, StripeMember};
use memory::Memory;
use moving::Moving;
use nbd::Nbd;
use nbd::dialer;
use nbd::line::ServerLines;
use null::Null;
pub use size::{SIZE_MAX, SIZE_STEP};
use std::io;
use storage::{Source, Storage};

/// What lies under a datastore.
#[derive(Clone, Debug)]
pub enum BackendSpec {
    /// Image files or block devices, at their own speed.
    Files,
    /// Image files behind a device model in real time, on a device of this capacity. Disks get
    /// places of their own on it, so that they are as far apart as on a real array; more disks than
    /// it holds share places again from its beginning. A model with a capacity of its own has that
    /// one, and refuses disks that it has no room for.
    Emulated(ModelSpec, Bytes),
    /// Nothing; for measuring the path above.
    Null,
    /// RAM disks: images made by [`Image::memory`].
    Memory,
    /// Exports of an NBD server: images made by [`Image::remote`].
    Remote,
}

/// A datastore's backend.
pub(crate) enum Backend {
    File(File),
    Emulated(Emulated),
    Null(Null),
    Memory(Memory),
    Nbd(Nbd),
    Moving(Moving),
}

/// Calls the same method on whichever backend it is.
macro_rules! each {
    ($backend:expr, $it:ident => $call:expr) => {
        match $backend {
            Backend::File($it) => $call,
            Backend::Emulated($it) => $call,
            Backend::Null($it) => $call,
            Backend::Memory($it) => $call,
            Backend::Nbd($it) => $call,
            Backend::Moving($it) => $call,
        }
    };
}

impl Backend {
    /// A backend without disks.
    pub(crate) fn new(spec: BackendSpec, scheduler: SchedulerKind) -> Backend {
        match spec {
            BackendSpec::Files => Backend::File(File::new(scheduler)),
            BackendSpec::Emulated(model, capacity) => {
                Backend::Emulated(Emulated::new(&model, capacity))
            }
            BackendSpec::Null => Backend::Null(Null::new()),
            BackendSpec::Memory => Backend::Memory(Memory::new()),
            BackendSpec::Remote => Backend::Nbd(Nbd),
        }
    }

    /// The sizes of requests that it serves best from storage with these, for a disk with blocks of
    /// so many bytes.
    pub(crate) fn topology(&self, block_size: u32, storage: Topology) -> Topology {
        match self {
            // What the file under a device model likes is nothing to a guest.
            Backend::Emulated(emulated) => emulated.topology(block_size),
            Backend::File(_)
            | Backend::Null(_)
            | Backend::Memory(_)
            | Backend::Nbd(_)
            | Backend::Moving(_) => storage,
        }
    }
}

impl Execute for Backend {
    fn open(&mut self, ctx: &mut Context, disk: Opening) -> Result<Storage, Refused> {
        each!(self, it => it.open(ctx, disk))
    }

    fn resize(&mut self, now: Nanos, disk: u32, size: Bytes) -> Result<(), EngineError> {
        each!(self, it => it.resize(now, disk, size))
    }

    fn close(&mut self, ctx: &mut Context, key: u32, storage: &Storage) {
        each!(self, it => it.close(ctx, key, storage));
    }

    #[inline]
    fn start(&mut self, ctx: &mut Context, key: u32) {
        each!(self, it => it.start(ctx, key));
    }

    #[inline]
    fn on_kernel(&mut self, ctx: &mut Context, key: u32, result: i32) {
        each!(self, it => it.on_kernel(ctx, key, result));
    }

    #[inline]
    fn poll(&mut self, ctx: &mut Context) {
        each!(self, it => it.poll(ctx));
    }

    #[inline]
    fn next_event(&self) -> Option<Nanos> {
        each!(self, it => it.next_event())
    }

    fn prepare(&mut self, now: Nanos) -> Readiness {
        each!(self, it => it.prepare(now))
    }

    fn set_shares(&mut self, now: Nanos, disk: u32, shares: Shares) {
        each!(self, it => it.set_shares(now, disk, shares));
    }

    fn flash_drive(&self) -> Option<FlashDrive> {
        each!(self, it => it.flash_drive())
    }

    fn flash(&self, disk: u32) -> Option<FlashSnapshot> {
        each!(self, it => it.flash(disk))
    }
}

/// Starts the threads that connect exports, one for each; other images need none.
///
/// # Errors
/// No thread.
pub(crate) fn dial(
    source: &mut Source,
    name: &str,
    outlet: &Outlet<Context>,
) -> io::Result<Vec<ServerLines>> {
    let exports = match source {
        Source::Export(export) => std::slice::from_mut(&mut **export),
        Source::Stripe(exports, _) => exports.as_mut_slice(),
        Source::File(_) | Source::Null | Source::Memory(_) => &mut [],
    };
    exports.iter_mut().map(|export| dialer::start(name, export, outlet.clone())).collect()
}
