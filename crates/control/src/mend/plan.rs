//! Makes a catalog's contents of what was found. Pure: what is on storage is not looked at here.

use super::gather::{Claim, Gathered, Image, Owner, Removed};
use headgate_catalog::Contents;
use headgate_model::{
    ClassRecord, DatastoreRecord, DiskRecord, DiskSettings, DiskState, ExportRecord, MoveRecord,
    MoveStep, Name, Policy, RemovedRecord, RemovedStep,
};
use headgate_units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// What the catalog will hold, and what the operator should look at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) contents: Contents,
    pub(super) notes: Vec<String>,
}

struct Planner {
    claim: Claim,
    /// What was known of disks with images before.
    known: BTreeMap<Name, DiskRecord>,
    disks: BTreeMap<Name, DiskRecord>,
    exports: Vec<ExportRecord>,
    notes: Vec<String>,
    /// Moves of which the other copy may be there still.
    moves: Vec<MoveRecord>,
}

/// A disk of which nothing is known but its image.
fn bare(name: Name, datastore: &DatastoreRecord, size: Bytes) -> DiskRecord {
    DiskRecord {
        name,
        datastore: datastore.name.clone(),
        vm: None,
        size,
        policy: Policy::default(),
        state: DiskState::Ready,
        remote: None,
        placement: Default::default(),
        writes: Default::default(),
        origin: None,
        set: Default::default(),
        set_by: None,
    }
}

impl Planner {
    fn take(&mut self, image: Image, datastore: &DatastoreRecord) {
        let path = image.path.display();
        let Some(name) = image.name else {
            return self.notes.push(format!("{path} is passed over: its name is no disk's"));
        };
        if let (Owner::Other(who), Claim::Own) = (&image.owner, self.claim) {
            return self.notes.push(format!(
                "{path} is passed over: {who} had it last; 'headgate disk takeover {name}' serves \
                 it here"
            ));
        }
        let mark = image.mark.filter(|mark| mark.target == datastore.name && mark.disk == name);
        let switched = match mark {
            Some(mark) if mark.step == MoveStep::Switched => Some(mark),
            Some(mark) => {
                self.notes.push(format!(
                    "{path} is passed over: it is the unfinished copy of disk '{name}', which was \
                     being moved here from datastore '{}'",
                    mark.source
                ));
                return self.moves.push(mark);
            }
            None => None,
        };
        if let Some(why) = image.unfit {
            return self.notes.push(format!("{path} is passed over: {why}"));
        }
        let came_from = switched.as_ref().map(|mark| &mark.source);
        if let Some(other) = self.disks.get(&name)
            && came_from != Some(&other.datastore)
        {
            return self.notes.push(format!(
                "{path} is passed over: disk '{name}' is on datastore '{}'",
                other.datastore
            ));
        }
        let known = self.known.remove(&name).filter(|disk| disk.datastore == datastore.name);
        let record = match image.record {
            Ok(record) => record.filter(|(disk, _)| disk.name == name),
            Err(why) => {
                self.notes.push(format!("the record of {path} is passed over: {why}"));
                None
            }
        };
        let (disk, exports) = match (record, known) {
            (Some((disk, exports)), _) => (disk, exports),
            (None, Some(known)) => (known, Vec::new()),
            (None, None) => {
                self.notes.push(format!(
                    "nothing is known of disk '{name}' but its image {path}: it has the default \
                     policy"
                ));
                (bare(name.clone(), datastore, image.size), Vec::new())
            }
        };
        if disk.size != image.size {
            self.notes.push(format!(
                "disk '{name}' was {} large, and its image is {}",
                disk.size, image.size
            ));
        }
        let datastore = datastore.name.clone();
        let disk = DiskRecord {
            size: image.size,
            datastore,
            state: DiskState::Ready,
            remote: None,
            ..disk
        };
        self.disks.insert(name, disk);
        self.moves.extend(switched);
        self.exports.extend(exports);
    }
}

/// Which image of a disk goes first: the target of a move that switched, whose source may say still
/// that it is the disk; then one that says so; then others.
fn standing(image: &Image, datastore: &DatastoreRecord) -> u8 {
    let says = |record: &Option<(DiskRecord, _)>| {
        record.as_ref().is_some_and(|(disk, _)| disk.datastore == datastore.name)
    };
    match (&image.mark, &image.record) {
        (Some(mark), _) if mark.step == MoveStep::Switched => 0,
        (None, Ok(record)) if says(record) => 1,
        _ => 2,
    }
}

fn removed(
    found: Removed,
    datastore: &DatastoreRecord,
    known: &[RemovedRecord],
    notes: &mut Vec<String>,
) -> Option<RemovedRecord> {
    let Some(id) = found.id else {
        notes.push(format!("{} is passed over: its name is none", found.path.display()));
        return None;
    };
    let record = found.record.filter(|record| record.id == id);
    let record = record.or_else(|| known.iter().find(|record| record.id == id).cloned());
    let disk =
        record.map_or_else(|| bare(id.name.clone(), datastore, found.size), |record| record.disk);
    let (datastore, name) = (datastore.name.clone(), id.name.clone());
    let disk = DiskRecord { datastore, name, state: DiskState::Ready, ..disk };
    Some(RemovedRecord { id, step: RemovedStep::Kept, allocated: found.allocated, disk })
}

/// Decides what the catalog will hold.
pub(super) fn plan(gathered: Gathered) -> Plan {
    let Gathered { base, directories, claim, notes } = gathered;
    let unchanged = unchanged(&base);
    let Contents { mut datastores, disks, mut vms, exports, removed: known_removed, .. } = base;
    let with_images: BTreeSet<&Name> =
        directories.iter().map(|directory| &directory.datastore.name).collect();
    let (known, others): (Vec<_>, Vec<_>) =
        disks.into_iter().partition(|disk| with_images.contains(&disk.datastore));
    let mut planner = Planner {
        claim,
        known: known.into_iter().map(|disk| (disk.name.clone(), disk)).collect(),
        disks: BTreeMap::new(),
        exports,
        notes,
        moves: Vec::new(),
    };
    for disk in others {
        if datastores.iter().any(|one| one.name == disk.datastore) {
            planner.disks.insert(disk.name.clone(), DiskRecord { state: DiskState::Ready, ..disk });
        } else {
            planner.notes.push(format!(
                "disk '{}' is passed over: its datastore '{}' is not known",
                disk.name, disk.datastore
            ));
        }
    }
    let mut kept = Vec::new();
    let mut images = Vec::new();
    for directory in directories {
        let of = |image: Image| (image, directory.datastore.clone());
        images.extend(directory.images.into_iter().map(of));
        for found in directory.removed {
            kept.extend(removed(found, &directory.datastore, &known_removed, &mut planner.notes));
        }
    }
    // Of two images of one name, one may say that it is the disk.
    images.sort_by_key(|(image, datastore)| standing(image, datastore));
    for (image, datastore) in images {
        planner.take(image, &datastore);
    }
    for (name, disk) in &planner.known {
        planner.notes.push(format!(
            "disk '{name}' was on datastore '{}', and its image is not there",
            disk.datastore
        ));
    }
    let mut names: BTreeSet<Name> = planner.disks.keys().cloned().collect();
    let mut exports = planner.exports;
    exports.retain(|one| planner.disks.contains_key(&one.disk) && names.insert(one.name.clone()));
    exports.sort_by(|a, b| a.name.cmp(&b.name));
    datastores.sort_by(|a, b| a.name.cmp(&b.name));
    vms.sort_by(|a, b| a.name.cmp(&b.name));
    kept.sort_by_key(|record| record.id.to_string());
    kept.dedup_by(|a, b| a.id == b.id);
    // The next start removes the copy that does not count. Where the one that does was not found,
    // the other is what is left of the disk.
    let mut moves = planner.moves;
    moves.retain(|one| {
        let serves = one.datastore(one.step.recovery().serve);
        let is_known = |name: &Name| datastores.iter().any(|store| store.name == *name);
        planner.disks.get(&one.disk).is_some_and(|disk| disk.datastore == *serves)
            && is_known(&one.source)
            && is_known(&one.target)
    });
    moves.sort_by(|a, b| a.disk.cmp(&b.disk));
    moves.dedup_by(|a, b| a.disk == b.disk);
    let classes = &unchanged.classes;
    let disks = planner.disks.into_values().map(|disk| with_class(disk, classes)).collect();
    let contents = Contents { datastores, disks, vms, exports, removed: kept, moves, ..unchanged };
    Plan { contents, notes: planner.notes }
}

/// What is as it was. What was to be made is made by who has the documents.
fn unchanged(base: &Contents) -> Contents {
    Contents {
        rules: base.rules.clone(),
        classes: base.classes.clone(),
        tenants: base.tenants.clone(),
        ..Contents::default()
    }
}

/// A disk whose class is not known keeps its policy as its own.
fn with_class(disk: DiskRecord, classes: &[ClassRecord]) -> DiskRecord {
    let known = |class: &Name| classes.iter().any(|one| one.name == *class);
    match &disk.set.class {
        Some(class) if !known(class) => {
            let applied_by = disk.set.applied_by.clone();
            let set = DiskSettings { applied_by, ..DiskSettings::of(&disk.policy) };
            DiskRecord { set, ..disk }
        }
        _ => disk,
    }
}

/// How the disks of a catalog differ from those that the records tell of.
pub(super) fn differences(catalog: &Contents, records: &Contents) -> Vec<String> {
    let by_name = |contents: &Contents| -> BTreeMap<Name, DiskRecord> {
        contents.disks.iter().map(|disk| (disk.name.clone(), disk.clone())).collect()
    };
    let (catalog, records) = (by_name(catalog), by_name(records));
    let mut lines = Vec::new();
    for (name, disk) in &catalog {
        match records.get(name) {
            None if disk.state.has_image() => {
                lines.push(format!("disk '{name}' is in the catalog, and its image is not there"));
            }
            Some(other) if disk.state == DiskState::Ready && other != disk => {
                lines.push(format!("the record of disk '{name}' is not what the catalog has"));
            }
            _ => {}
        }
    }
    for (name, disk) in records.iter().filter(|(name, _)| !catalog.contains_key(*name)) {
        lines.push(format!(
            "disk '{name}' is on datastore '{}', and not in the catalog",
            disk.datastore
        ));
    }
    lines
}
