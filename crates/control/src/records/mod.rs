//! The catalog that leaves records elsewhere: what each image is, in a file beside it, and the rest
//! in a file of the state directory.
//!
//! The catalog is what counts. A record is written after the change is in the catalog, and nobody
//! waits for it: it may be behind for as long as its storage takes, and the next start makes it
//! good. Nothing but `headgate catalog rebuild` ever reads one
//! (`docs/decisions/0064-catalog-copies.md`).

mod file;
mod scribe;

use file::{Note, Part, datastore_record_name};
pub(crate) use file::{datastore_records, read_record, record_path, write_atomically};
use scribe::{Author, Scribes};

use crate::leases::Bell;
use crate::{Roots, StateDir};
use headgate_catalog::{
    Catalog, CatalogError, Contents, DiskChange, PolicyChange, RecordFile, RemovedChange,
};
use headgate_model::{
    Backend, ClassRecord, DatastoreRecord, DiskRecord, ExportRecord, MoveRecord, Name,
    PlannedRecord, RemovedId, RemovedRecord, RemovedStep, TenantRecord, VmRecord,
};
use headgate_placement::Rules;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tracing::warn;

/// The longest that the end of a daemon waits for records.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the catalog was changed since the daemon began.
#[derive(Clone, Debug, Default)]
pub struct CatalogChanges {
    count: Arc<AtomicU64>,
    bell: Bell,
}

impl CatalogChanges {
    /// The number of changes.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Rung at each of them.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    fn add_one(&self) {
        self.count.fetch_add(1, Ordering::Release);
        self.bell.ring();
    }
}

/// The records of a catalog, which outlive it.
#[derive(Clone)]
pub struct Records(Arc<Scribes>);

impl Records {
    /// Waits until all records are written, for `patience` at most.
    #[cfg(test)]
    pub(crate) fn wait(&self, patience: Duration) {
        self.0.wait(patience);
    }

    /// Waits until what was noted of disks on these backends is written, for 2 s at most. To be
    /// called by who holds no lock.
    pub(crate) fn settle_on(&self, backends: [&Backend; 2]) {
        let until = Instant::now() + PATIENCE;
        for backend in backends {
            let directory = directory_of(backend).map_or_else(state_directory, Path::to_owned);
            self.0.wait_for(&directory, until);
        }
    }

    /// Waits until all records are written, for 2 s at most. To be called by who holds no lock.
    pub fn settle(&self) {
        let left = self.0.wait(PATIENCE);
        if left > 0 {
            warn!(
                records = left,
                "records wait for their storage: the catalog has the changes, and the next start \
                 writes them"
            );
        }
    }
}

/// A catalog whose changes are noted in records too.
pub struct Recorded<C> {
    inner: C,
    held: Held,
    /// One for each directory with images, and one for the state directory.
    scribes: Arc<Scribes>,
    changes: CatalogChanges,
    /// Disks that were made since what is to be made was written down.
    made: usize,
}

/// What the catalog holds.
#[derive(Default)]
struct Held {
    datastores: BTreeMap<Name, DatastoreRecord>,
    disks: BTreeMap<Name, DiskRecord>,
    vms: BTreeMap<Name, VmRecord>,
    exports: BTreeMap<Name, ExportRecord>,
    rules: Rules,
    removed: BTreeMap<RemovedId, RemovedRecord>,
    moves: BTreeMap<Name, MoveRecord>,
    classes: BTreeMap<Name, ClassRecord>,
    planned: BTreeMap<Name, PlannedRecord>,
    tenants: BTreeMap<Name, TenantRecord>,
}

/// The directory of a datastore's images as the catalog has it, if it has one.
fn directory_of(backend: &Backend) -> Option<&Path> {
    match backend {
        Backend::Dir { path } | Backend::Emulated { path, .. } => Some(path),
        Backend::Block { .. }
        | Backend::Nbd { .. }
        | Backend::Stripe { .. }
        | Backend::Memory { .. } => None,
    }
}

/// The path of the directory of a datastore's images, if it has one.
pub(crate) fn image_directory(dir: &StateDir, backend: &Backend) -> Option<PathBuf> {
    directory_of(backend).map(|path| dir.resolve(path))
}

/// The two places of a disk that moves.
fn copies(record: &MoveRecord) -> [(&Name, &Name); 2] {
    [(&record.disk, &record.source), (&record.disk, &record.target)]
}

/// The state directory, as a directory of the catalog.
fn state_directory() -> PathBuf {
    PathBuf::new()
}

impl<C: Catalog> Recorded<C> {
    /// A catalog of this host, whose records may be in `roots`.
    pub fn new(inner: C, dir: StateDir, host: String, roots: Roots) -> Recorded<C> {
        let scribes = Arc::new(Scribes::new(Author { host, dir, roots }));
        let (held, changes) = Default::default();
        Recorded { inner, held, scribes, changes, made: 0 }
    }

    /// Its records, which outlive the catalog.
    pub fn records(&self) -> Records {
        Records(self.scribes.clone())
    }

    /// The count of changes, which outlives the catalog.
    pub fn changes(&self) -> CatalogChanges {
        self.changes.clone()
    }

    fn file(&self, contents: Contents) -> Box<RecordFile> {
        Box::new(RecordFile { host: self.scribes.author().host.clone(), contents })
    }

    fn directory(&self, datastore: &Name) -> Option<PathBuf> {
        directory_of(&self.held.datastores.get(datastore)?.backend).map(Path::to_owned)
    }

    /// What is noted of a disk's image on a datastore: that it is the disk, if it is and the disk
    /// is ready, and that it is the target of a move.
    fn disk_note(&self, name: &Name, datastore: &Name) -> Note {
        let is_it = |disk: &&DiskRecord| disk.state.has_image() && disk.datastore == *datastore;
        let disk = self.held.disks.get(name).filter(is_it);
        let mark = self.held.moves.get(name).filter(|one| one.target == *datastore);
        let says = (disk.is_some() || mark.is_some()).then(|| {
            let of_it = |export: &&ExportRecord| disk.is_some() && export.disk == *name;
            self.file(Contents {
                disks: disk.cloned().into_iter().collect(),
                exports: self.held.exports.values().filter(of_it).cloned().collect(),
                moves: mark.cloned().into_iter().collect(),
                ..Contents::default()
            })
        });
        Note::of_image(Part::Itself, format!("{name}.img"), says)
    }

    fn removed_note(&self, removed: &RemovedId) -> Note {
        let kept = self.held.removed.get(removed).filter(|r| r.step == RemovedStep::Kept);
        let says = kept.map(|record| {
            self.file(Contents { removed: vec![record.clone()], ..Contents::default() })
        });
        Note::of_image(Part::Removed, format!("{removed}.img"), says)
    }

    /// What belongs to no image: datastores, disks without one, virtual machines, rules.
    fn state_note(&self) -> Note {
        let Held { datastores, disks, vms, exports, rules, classes, planned, .. } = &self.held;
        let tenants = &self.held.tenants;
        let bare = |name: &Name| self.directory(name).is_none();
        let disks: Vec<DiskRecord> = disks
            .values()
            .filter(|disk| disk.state.has_image() && bare(&disk.datastore))
            .cloned()
            .collect();
        let names: BTreeSet<&Name> = disks.iter().map(|disk| &disk.name).collect();
        let exports = exports.values().filter(|e| names.contains(&e.disk)).cloned().collect();
        let says = self.file(Contents {
            datastores: datastores.values().cloned().collect(),
            exports,
            vms: vms.values().cloned().collect(),
            rules: rules.clone(),
            removed: Vec::new(),
            moves: Vec::new(),
            classes: classes.values().cloned().collect(),
            planned: planned.values().cloned().collect(),
            tenants: tenants.values().cloned().collect(),
            disks,
        });
        let name = crate::state_dir::RECORDS.to_owned();
        Note { part: Part::Itself, name, image: None, says: Some(says) }
    }

    /// A directory of the operator's says which datastore it is: the state directory may be lost.
    fn datastore_note(&self, name: &Name) -> Option<(PathBuf, Note)> {
        let record = self.held.datastores.get(name)?;
        let Backend::Dir { path } = &record.backend else { return None };
        if path.is_relative() {
            return None;
        }
        let says = self.file(Contents { datastores: vec![record.clone()], ..Contents::default() });
        let name = datastore_record_name(&self.scribes.author().host);
        let note = Note { part: Part::Itself, name, image: None, says: Some(says) };
        Some((path.clone(), note))
    }

    /// Has notes written. Waits for nothing: the catalog is locked.
    fn note(&mut self, notes: Vec<(PathBuf, Note)>) {
        self.changes.add_one();
        for (directory, note) in notes {
            self.scribes.with(directory, |scribe| scribe.add(note));
        }
    }

    fn note_disk(&mut self, name: &Name, datastore: &Name) {
        let note = match self.directory(datastore) {
            Some(directory) => (directory, self.disk_note(name, datastore)),
            None => (state_directory(), self.state_note()),
        };
        self.note(vec![note]);
    }

    fn note_made(&mut self, record: &DiskRecord) {
        self.note_disk(&record.name, &record.datastore);
        if record.state.has_image() && self.held.planned.remove(&record.name).is_some() {
            // A disk that has a record of its own is to be made no more, whatever this one says.
            // It is written again when as many were made as are left, and not for each of them.
            self.made += 1;
            if self.made >= self.held.planned.len() {
                self.note_state();
            }
        }
    }

    fn note_move(&mut self, record: &MoveRecord) {
        for (disk, datastore) in copies(record) {
            self.note_disk(disk, datastore);
        }
    }

    fn note_disk_of(&mut self, disk: &Name) {
        if let Some(datastore) = self.held.disks.get(disk).map(|disk| disk.datastore.clone()) {
            self.note_disk(disk, &datastore);
        }
    }

    fn note_state(&mut self) {
        self.made = 0;
        let note = (state_directory(), self.state_note());
        self.note(vec![note]);
    }

    fn note_datastore(&mut self, name: &Name) {
        let mut notes = vec![(state_directory(), self.state_note())];
        notes.extend(self.datastore_note(name));
        self.note(notes);
    }

    fn forget_disk(&mut self, name: &Name) {
        self.held.exports.retain(|_, export| export.disk != *name);
        if self.made > 0 {
            // It would say that this one is to be made.
            self.note_state();
        }
        if let Some(disk) = self.held.disks.remove(name) {
            self.note_disk(name, &disk.datastore);
        }
    }

    /// Brings all records up to date, while the daemon goes on: one that was killed may have left
    /// some behind.
    fn note_everything(&mut self) {
        let mut notes = vec![(state_directory(), self.state_note())];
        let names: Vec<Name> = self.held.datastores.keys().cloned().collect();
        notes.extend(names.iter().filter_map(|name| self.datastore_note(name)));
        for disk in self.held.disks.values() {
            if let Some(directory) = self.directory(&disk.datastore) {
                notes.push((directory, self.disk_note(&disk.name, &disk.datastore)));
            }
        }
        for (disk, datastore) in self.held.moves.values().flat_map(copies) {
            if let Some(directory) = self.directory(datastore) {
                notes.push((directory, self.disk_note(disk, datastore)));
            }
        }
        for removed in self.held.removed.values() {
            if let Some(directory) = self.directory(&removed.disk.datastore) {
                notes.push((directory, self.removed_note(&removed.id)));
            }
        }
        for (directory, note) in notes {
            self.scribes.with(directory, |scribe| scribe.add(note));
        }
        let directories: BTreeSet<PathBuf> =
            names.iter().filter_map(|name| self.directory(name)).collect();
        for directory in directories {
            self.scribes.with(directory, |scribe| scribe.sweep());
        }
    }
}

impl<C: Catalog> Catalog for Recorded<C> {
    fn load(&mut self) -> Result<Contents, CatalogError> {
        let contents = self.inner.load()?;
        let all = contents.clone();
        let Contents { datastores, disks, vms, exports, rules, removed, moves, .. } = all;
        self.held = Held {
            datastores: datastores.into_iter().map(|one| (one.name.clone(), one)).collect(),
            disks: disks.into_iter().map(|one| (one.name.clone(), one)).collect(),
            vms: vms.into_iter().map(|one| (one.name.clone(), one)).collect(),
            exports: exports.into_iter().map(|one| (one.name.clone(), one)).collect(),
            removed: removed.into_iter().map(|one| (one.id.clone(), one)).collect(),
            moves: moves.into_iter().map(|one| (one.disk.clone(), one)).collect(),
            classes: all.classes.into_iter().map(|one| (one.name.clone(), one)).collect(),
            planned: all.planned.into_iter().map(|one| (one.name.clone(), one)).collect(),
            tenants: all.tenants.into_iter().map(|one| (one.name.clone(), one)).collect(),
            rules,
        };
        self.note_everything();
        Ok(contents)
    }

    fn insert_datastore(&mut self, record: &DatastoreRecord) -> Result<(), CatalogError> {
        self.inner.insert_datastore(record)?;
        self.held.datastores.insert(record.name.clone(), record.clone());
        self.note_datastore(&record.name);
        Ok(())
    }

    fn update_datastore(&mut self, record: &DatastoreRecord) -> Result<(), CatalogError> {
        self.inner.update_datastore(record)?;
        self.held.datastores.insert(record.name.clone(), record.clone());
        self.note_datastore(&record.name);
        Ok(())
    }

    fn delete_datastore(&mut self, name: &Name) -> Result<(), CatalogError> {
        self.inner.delete_datastore(name)?;
        let own = self.datastore_note(name);
        self.held.datastores.remove(name);
        let mut notes = vec![(state_directory(), self.state_note())];
        notes.extend(own.map(|(directory, note)| (directory, Note { says: None, ..note })));
        self.note(notes);
        Ok(())
    }

    fn insert_disk(&mut self, record: &DiskRecord) -> Result<(), CatalogError> {
        self.inner.insert_disk(record)?;
        self.held.disks.insert(record.name.clone(), record.clone());
        self.note_made(record);
        Ok(())
    }

    fn change_policies(&mut self, change: &PolicyChange) -> Result<(), CatalogError> {
        self.inner.change_policies(change)?;
        let held = &mut self.held;
        held.classes.retain(|name, _| !change.gone_classes.contains(name));
        held.classes.extend(change.classes.iter().map(|one| (one.name.clone(), one.clone())));
        held.planned.retain(|name, _| !change.gone_planned.contains(name));
        held.planned.extend(change.planned.iter().map(|one| (one.name.clone(), one.clone())));
        held.tenants.retain(|name, _| !change.gone_tenants.contains(name));
        held.tenants.extend(change.tenants.iter().map(|one| (one.name.clone(), one.clone())));
        held.vms.retain(|name, _| !change.gone_vms.contains(name));
        held.vms.extend(change.vms.iter().map(|one| (one.name.clone(), one.clone())));
        held.disks.extend(change.disks.iter().map(|one| (one.name.clone(), one.clone())));
        let datastores = change.datastores.iter().map(|one| (one.name.clone(), one.clone()));
        held.datastores.extend(datastores);
        let bare = change.disks.iter().any(|disk| self.directory(&disk.datastore).is_none());
        let with_image = |disk: &&DiskRecord| self.directory(&disk.datastore).is_some();
        for disk in change.disks.iter().filter(with_image).cloned().collect::<Vec<_>>() {
            self.note_disk(&disk.name, &disk.datastore);
        }
        for datastore in &change.datastores {
            self.note_datastore(&datastore.name);
        }
        let has_state = PolicyChange { disks: Vec::new(), ..change.clone() };
        if bare || !has_state.is_empty() {
            self.note_state();
        }
        Ok(())
    }

    fn update_disk(&mut self, record: &DiskRecord) -> Result<(), CatalogError> {
        self.inner.update_disk(record)?;
        self.held.disks.insert(record.name.clone(), record.clone());
        self.note_made(record);
        Ok(())
    }

    fn delete_disk(&mut self, name: &Name) -> Result<(), CatalogError> {
        self.inner.delete_disk(name)?;
        self.forget_disk(name);
        Ok(())
    }

    fn put_vm(&mut self, record: &VmRecord) -> Result<(), CatalogError> {
        self.inner.put_vm(record)?;
        self.held.vms.insert(record.name.clone(), record.clone());
        self.note_state();
        Ok(())
    }

    fn delete_vm(&mut self, name: &Name) -> Result<(), CatalogError> {
        self.inner.delete_vm(name)?;
        self.held.vms.remove(name);
        self.note_state();
        Ok(())
    }

    fn put_rules(&mut self, rules: &Rules) -> Result<(), CatalogError> {
        self.inner.put_rules(rules)?;
        self.held.rules = rules.clone();
        self.note_state();
        Ok(())
    }

    fn insert_export(&mut self, record: &ExportRecord) -> Result<(), CatalogError> {
        self.inner.insert_export(record)?;
        self.held.exports.insert(record.name.clone(), record.clone());
        self.note_disk_of(&record.disk);
        Ok(())
    }

    fn update_export(&mut self, record: &ExportRecord) -> Result<(), CatalogError> {
        self.inner.update_export(record)?;
        self.held.exports.insert(record.name.clone(), record.clone());
        self.note_disk_of(&record.disk);
        Ok(())
    }

    fn delete_export(&mut self, name: &Name) -> Result<(), CatalogError> {
        self.inner.delete_export(name)?;
        if let Some(export) = self.held.exports.remove(name) {
            self.note_disk_of(&export.disk);
        }
        Ok(())
    }

    fn change_removed(
        &mut self,
        disk: DiskChange<'_>,
        removed: RemovedChange<'_>,
    ) -> Result<(), CatalogError> {
        self.inner.change_removed(disk, removed)?;
        match disk {
            DiskChange::None => {}
            DiskChange::Insert(record) | DiskChange::Update(record) => {
                self.held.disks.insert(record.name.clone(), record.clone());
                self.note_disk(&record.name, &record.datastore);
            }
            DiskChange::Delete(name) => self.forget_disk(name),
        }
        let (id, datastore) = match removed {
            RemovedChange::Put(record) => {
                self.held.removed.insert(record.id.clone(), record.clone());
                (record.id.clone(), Some(record.disk.datastore.clone()))
            }
            RemovedChange::Delete(id) => {
                let gone = self.held.removed.remove(id);
                (id.clone(), gone.map(|record| record.disk.datastore))
            }
        };
        if let Some(directory) = datastore.and_then(|datastore| self.directory(&datastore)) {
            let note = self.removed_note(&id);
            self.note(vec![(directory, note)]);
        }
        Ok(())
    }

    fn put_move(
        &mut self,
        record: &MoveRecord,
        disk: Option<&DiskRecord>,
    ) -> Result<(), CatalogError> {
        self.inner.put_move(record, disk)?;
        self.held.moves.insert(record.disk.clone(), record.clone());
        if let Some(disk) = disk {
            self.held.disks.insert(disk.name.clone(), disk.clone());
        }
        self.note_move(record);
        Ok(())
    }

    fn find_move(&mut self, disk: &Name) -> Result<Option<MoveRecord>, CatalogError> {
        self.inner.find_move(disk)
    }

    fn delete_move(&mut self, disk: &Name) -> Result<(), CatalogError> {
        self.inner.delete_move(disk)?;
        if let Some(record) = self.held.moves.remove(disk) {
            self.note_move(&record);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
