//! Exports, as those who own the disks give them and as clients meet them.

use super::bitmaps::{Bitmap, Bitmaps};
use super::places::{Place, Places};
use super::port::NbdPort;
use super::rights::Guard;
use super::tag::Tag;
use super::translate::export;
use headgate_engine::request::DiskInfo;
use headgate_engine::{DiskId, Engine, EngineError, PortRef};
use headgate_nbd::server::Writes;
use headgate_nbd::server::contexts::BitmapName;
use headgate_nbd::server::negotiation::{Catalog, ExportName, OpenError, Opened};
use std::sync::Arc;

/// Puts a port into the shard of the disk that it was made for.
pub struct Attach {
    way: Box<dyn FnOnce(NbdPort) -> Result<PortRef, EngineError> + Send>,
    machine: Option<String>,
    writes: Writes,
    bitmaps: Arc<[Bitmap]>,
}

impl Attach {
    /// The virtual machine that the disk belongs to, which its connections count for.
    pub fn of_machine(mut self, machine: Option<String>) -> Attach {
        self.machine = machine;
        self
    }

    /// The client may ask for the bitmaps that the export has now.
    pub fn with_bitmaps(mut self, bitmaps: &Bitmaps) -> Attach {
        self.bitmaps = bitmaps.now();
        self
    }

    /// That machine.
    pub fn machine(&self) -> Option<&str> {
        self.machine.as_deref()
    }

    /// Puts the port there.
    ///
    /// # Errors
    /// The disk takes none.
    pub(super) fn enter(self, mut port: NbdPort) -> Result<PortRef, EngineError> {
        port.know_bitmaps(self.bitmaps);
        (self.way)(port)
    }

    fn bitmap_names(&self) -> Vec<BitmapName> {
        self.bitmaps.iter().map(|bitmap| bitmap.name().clone()).collect()
    }
}

/// The way into a disk of an engine; all that comes by it carries `tag`.
pub fn attach_to(engine: &Engine, disk: DiskId, tag: Tag, writes: Writes) -> Attach {
    let engine = engine.clone();
    let way = move |mut port: NbdPort| {
        port.carry(tag);
        port.take_writes(writes);
        engine.attach(disk, move |_| Box::new(port))
    };
    Attach { way: Box::new(way), machine: None, writes, bitmaps: Arc::default() }
}

/// An answer to [`Catalog::open`]: `disk` as it is now, and the way into it.
pub fn opened(disk: DiskInfo, handle: Attach) -> Opened<Attach> {
    let export = export(&disk, handle.writes);
    Opened { name: disk.name, export, description: String::new(), handle }
}

/// The disks to serve. `open` is called for every question about an export, so the size is the one
/// of that moment, and may block.
pub type Exports = dyn Catalog<Handle = Attach> + Send + Sync;

/// The exports as one client meets them: who is to use one needs a place.
pub(super) struct Door<'a> {
    pub(super) exports: &'a Exports,
    pub(super) guard: Option<&'a Guard>,
    pub(super) places: &'a Arc<Places>,
}

impl Catalog for Door<'_> {
    type Handle = (Attach, Place);

    fn list(&self) -> Vec<ExportName> {
        self.exports.list()
    }

    fn open(&self, name: &str) -> Result<Opened<Self::Handle>, OpenError> {
        let opened = self.exports.open(name)?;
        if self.guard.is_some_and(|guard| !guard.allows(&opened.name)) {
            return Err(OpenError::Unknown);
        }
        let machine = opened.handle.machine.as_deref();
        let place = self.places.take(&opened.name, machine).map_err(|refusal| {
            // Said once for every doubling: a client may ask without end.
            let refused = self.places.refused();
            if refused.is_power_of_two() {
                tracing::warn!(refused, "an NBD client is refused: {refusal}");
            }
            OpenError::Refused(refusal.to_string())
        })?;
        let Opened { name, export, description, handle } = opened;
        Ok(Opened { name, export, description, handle: (handle, place) })
    }

    fn describe(&self, name: &str) -> Result<Opened<()>, OpenError> {
        let described = self.exports.describe(name)?;
        if self.guard.is_some_and(|guard| !guard.allows(&described.name)) {
            return Err(OpenError::Unknown);
        }
        Ok(described)
    }

    fn bitmaps_of(&self, (attach, _): &Self::Handle) -> Vec<BitmapName> {
        attach.bitmap_names()
    }

    fn bitmaps(&self, name: &str) -> Vec<BitmapName> {
        match self.exports.open(name) {
            Ok(opened) if self.guard.is_none_or(|guard| guard.allows(&opened.name)) => {
                opened.handle.bitmap_names()
            }
            _ => Vec::new(),
        }
    }
}
