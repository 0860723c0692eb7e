//! Exports, as those who own the disks give them and as clients meet them.

use super::bitmaps::{Bitmap, Bitmaps};
use super::leases::Leases;
use super::places::{Place, Places};
use super::policies::{AnnouncedPolicy, Policies};
use super::port::NbdPort;
use super::rights::Guard;
use super::secure::Secure;
use super::tag::Tag;
use super::translate::export;
use headgate_engine::request::DiskInfo;
use headgate_engine::{DiskId, Engine, EngineError, PortRef};
use headgate_nbd::counters::Lease;
use headgate_nbd::policy::Announcement;
use headgate_nbd::server::Writes;
use headgate_nbd::server::contexts::BitmapName;
use headgate_nbd::server::negotiation::{Catalog, ExportName, OpenError, Opened};
use headgate_tls::Right;
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

    /// Whether the client may write.
    pub(super) fn writes(&self) -> Writes {
        self.writes
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
        port.take_writes(self.writes);
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
    pub(super) leases: &'a Leases,
    /// Where certificates say what a client may announce, and who takes it.
    pub(super) secure: Option<&'a Secure>,
    pub(super) policies: Option<&'a dyn Policies>,
    pub(super) places: &'a Arc<Places>,
}

impl Door<'_> {
    /// An export as far as the client may use it.
    fn guarded<T>(&self, mut opened: Opened<T>) -> Result<Opened<T>, OpenError> {
        let right = self.guard.map_or(Right::Write, |guard| guard.right(&opened.name));
        match right {
            // It is not told whether there is one.
            Right::None => return Err(OpenError::Unknown),
            Right::Read => opened.export.writes = Writes::Refused,
            Right::Write => {}
        }
        Ok(opened)
    }
}

/// What an export was opened with.
pub(super) struct Entry {
    pub(super) attach: Attach,
    pub(super) place: Place,
    /// The lease by which its client may write.
    pub(super) lease: Option<Lease>,
}

impl Catalog for Door<'_> {
    type Handle = Entry;

    fn list(&self) -> Vec<ExportName> {
        let mut all = self.exports.list();
        if self.guard.is_some() {
            all.retain(|export| self.describe(&export.name).is_ok());
        }
        all
    }

    fn open(&self, name: &str) -> Result<Opened<Self::Handle>, OpenError> {
        let mut opened = self.guarded(self.exports.open(name)?)?;
        opened.handle.writes = opened.export.writes;
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
        let handle = Entry { attach: handle, place, lease: None };
        Ok(Opened { name, export, description, handle })
    }

    fn announce(&self, said: &Announcement<'_>) -> Result<(), OpenError> {
        let opened = self.describe(said.export)?;
        let disk = opened.name.as_str();
        let bounds = || {
            let peer = self.guard?.peer()?;
            Some((peer, self.secure?.bounds(peer, disk)?, self.policies?))
        };
        let Some((peer, bounds, policies)) =
            bounds().filter(|_| opened.export.writes == Writes::Allowed)
        else {
            if let Some(peer) = self.guard.and_then(Guard::peer) {
                let peer = peer.names().first().map_or("", String::as_str);
                tracing::warn!(
                    disk,
                    peer,
                    "an announced policy is refused: allow.toml gives no right"
                );
            }
            return Err(OpenError::Refused(
                "policies are taken over TLS only, from a peer with 'policy = {...}' in a rule for \
                 the disk in allow.toml"
                    .into(),
            ));
        };
        let held = |held| OpenError::Held(format!("{held}"));
        self.leases.show(disk, said.lease).map_err(held)?;
        let peer = peer.names().first().map_or("", String::as_str);
        policies.take(AnnouncedPolicy { disk, peer, said, bounds }).map_err(OpenError::Refused)
    }

    /// Who may only read takes nothing from others, and needs no lease.
    fn open_by(&self, name: &str, lease: Lease) -> Result<Opened<Self::Handle>, OpenError> {
        let mut opened = self.open(name)?;
        if opened.export.writes == Writes::Allowed {
            let held = |held| OpenError::Held(format!("{held}"));
            self.leases.show(&opened.name, lease).map_err(held)?;
            opened.handle.lease = Some(lease);
        }
        Ok(opened)
    }

    fn describe(&self, name: &str) -> Result<Opened<()>, OpenError> {
        self.guarded(self.exports.describe(name)?)
    }

    fn bitmaps_of(&self, entry: &Self::Handle) -> Vec<BitmapName> {
        entry.attach.bitmap_names()
    }

    fn bitmaps(&self, name: &str) -> Vec<BitmapName> {
        let opened = self.exports.open(name).and_then(|opened| self.guarded(opened));
        opened.map(|opened| opened.handle.bitmap_names()).unwrap_or_default()
    }
}
