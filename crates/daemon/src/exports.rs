//! Disks by the names that NBD clients ask for.

use headgate_engine::{DiskId, Engine};
use headgate_frontends::nbd::Tag;
use headgate_frontends::nbd::server::{Attach, attach_to, opened};
use headgate_frontends::nbd::{Bitmap, Bitmaps};
use headgate_model::{self as model, ChangesSince, ExportRecord, Name};
use headgate_nbd::server::Writes;
use headgate_nbd::server::negotiation::{Catalog, ExportName, OpenError, Opened};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// One more name of a disk.
struct Alias {
    disk: Name,
    tag: Tag,
    writes: Writes,
}

/// Disks by export name, for the NBD server's threads: those of all machines.
pub(crate) struct Exports {
    engine: Engine,
    disks: RwLock<BTreeMap<Name, DiskId>>,
    /// The machines of those that have one.
    machines: RwLock<BTreeMap<Name, Name>>,
    aliases: RwLock<BTreeMap<Name, Alias>>,
    /// What changed of snapshots, for those that know it.
    bitmaps: RwLock<BTreeMap<Name, Bitmaps>>,
}

impl Exports {
    /// None yet.
    pub(crate) fn new(engine: Engine) -> Exports {
        Exports {
            engine,
            disks: RwLock::default(),
            machines: RwLock::default(),
            aliases: RwLock::default(),
            bitmaps: RwLock::default(),
        }
    }

    pub(crate) fn disks(&self) -> RwLockReadGuard<'_, BTreeMap<Name, DiskId>> {
        self.disks.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn disks_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<Name, DiskId>> {
        self.disks.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn aliases(&self) -> RwLockReadGuard<'_, BTreeMap<Name, Alias>> {
        self.aliases.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn aliases_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<Name, Alias>> {
        self.aliases.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine of a disk.
    pub(crate) fn machine(&self, disk: &Name) -> Option<Name> {
        self.machines.read().unwrap_or_else(PoisonError::into_inner).get(disk).cloned()
    }

    /// The disks of a machine.
    pub(crate) fn disks_of(&self, machine: &Name) -> Vec<Name> {
        let machines = self.machines.read().unwrap_or_else(PoisonError::into_inner);
        machines.iter().filter(|(_, of)| *of == machine).map(|(disk, _)| disk.clone()).collect()
    }

    pub(crate) fn set_machine(&self, disk: &Name, machine: Option<Name>) {
        let mut machines = self.machines.write().unwrap_or_else(PoisonError::into_inner);
        match machine {
            Some(machine) => machines.insert(disk.clone(), machine),
            None => machines.remove(disk),
        };
    }

    /// Clients of a snapshot can ask for this from now on. A base is known by its name.
    pub(crate) fn set_changes_since(&self, snapshot: &Name, changes: Vec<ChangesSince>) {
        let bitmaps = changes.into_iter().filter_map(|since| {
            // A disk's name is shorter than a bitmap's may be.
            Some(Bitmap::new(since.base.as_str().parse().ok()?, since.blocks))
        });
        let bitmaps: Vec<Bitmap> = bitmaps.collect();
        let mut known = self.bitmaps.write().unwrap_or_else(PoisonError::into_inner);
        if bitmaps.is_empty() {
            known.remove(snapshot);
        } else {
            known.entry(snapshot.clone()).or_default().set(bitmaps);
        }
    }

    /// The dirty bitmaps of a disk.
    fn bitmaps_of(&self, disk: &Name) -> Bitmaps {
        let known = self.bitmaps.read().unwrap_or_else(PoisonError::into_inner);
        known.get(disk).cloned().unwrap_or_default()
    }

    /// Adds a further name of a disk, or changes its priority.
    pub(crate) fn put(&self, export: &ExportRecord) {
        match self.aliases_mut().entry(export.name.clone()) {
            // Those who came by it hold its tag.
            Entry::Occupied(known) => known.get().tag.set(export.priority),
            Entry::Vacant(new) => {
                let writes = match export.writes {
                    model::Writes::Allowed => Writes::Allowed,
                    model::Writes::Refused => Writes::Refused,
                };
                let (disk, tag) = (export.disk.clone(), Tag::of(export.priority));
                new.insert(Alias { disk, tag, writes });
            }
        }
    }

    /// Forgets a further name.
    pub(crate) fn remove(&self, name: &Name) {
        self.aliases_mut().remove(name);
    }

    /// The disk's own name behind one that clients may ask for.
    fn disk_of(&self, name: &Name) -> Option<Name> {
        if self.disks().contains_key(name) {
            return Some(name.clone());
        }
        self.aliases().get(name).map(|alias| alias.disk.clone())
    }

    /// The disk behind a name that clients may ask for, what its requests are given, and whether
    /// they may write.
    fn find(&self, name: &Name) -> Option<(DiskId, Tag, Writes)> {
        if let Some(disk) = self.disks().get(name) {
            return Some((*disk, Tag::none(), Writes::Allowed));
        }
        let (disk, tag, writes) = {
            let aliases = self.aliases();
            let alias = aliases.get(name)?;
            (alias.disk.clone(), alias.tag.clone(), alias.writes)
        };
        self.disks().get(&disk).map(|disk| (*disk, tag, writes))
    }
}

impl Catalog for Exports {
    type Handle = Attach;

    fn list(&self) -> Vec<ExportName> {
        let plain = |name: &Name| ExportName { name: name.to_string(), description: String::new() };
        let mut names: Vec<ExportName> = self.disks().keys().map(plain).collect();
        for (name, alias) in self.aliases().iter() {
            if self.disks().contains_key(&alias.disk) {
                names.push(ExportName {
                    name: name.to_string(),
                    description: match alias.writes {
                        Writes::Allowed => {
                            format!("disk {} with a priority of its own", alias.disk)
                        }
                        Writes::Refused => format!("disk {}, read-only", alias.disk),
                    },
                });
            }
        }
        names
    }

    fn open(&self, name: &str) -> Result<Opened<Attach>, OpenError> {
        let name: Name = name.parse().map_err(|_| OpenError::Unknown)?;
        let (disk, tag, writes) = self.find(&name).ok_or(OpenError::Unknown)?;
        let info = self.engine.disk_info(disk).map_err(|_| OpenError::Unknown)?;
        let own: Option<Name> = info.name.parse().ok();
        let machine = own.as_ref().and_then(|disk| self.machine(disk)).map(|name| name.to_string());
        let bitmaps = own.map_or_else(Bitmaps::none, |disk| self.bitmaps_of(&disk));
        let attach = attach_to(&self.engine, disk, tag, writes);
        Ok(opened(info, attach.of_machine(machine).with_bitmaps(&bitmaps)))
    }
}

/// The exports that one machine's NBD socket has: its own disks and their further names.
pub(crate) struct OfMachine {
    pub(crate) all: Arc<Exports>,
    pub(crate) machine: Name,
}

impl OfMachine {
    fn has(&self, name: &str) -> bool {
        let disk = name.parse().ok().and_then(|name: Name| self.all.disk_of(&name));
        disk.and_then(|disk| self.all.machine(&disk)).is_some_and(|of| of == self.machine)
    }
}

impl Catalog for OfMachine {
    type Handle = Attach;

    fn list(&self) -> Vec<ExportName> {
        let mut names = self.all.list();
        names.retain(|export| self.has(&export.name));
        names
    }

    fn open(&self, name: &str) -> Result<Opened<Attach>, OpenError> {
        // What is another machine's is not even asked about.
        if !self.has(name) {
            return Err(OpenError::Unknown);
        }
        let opened = self.all.open(name)?;
        // It may have changed hands in between.
        match opened.handle.machine() == Some(self.machine.as_str()) {
            true => Ok(opened),
            false => Err(OpenError::Unknown),
        }
    }
}
