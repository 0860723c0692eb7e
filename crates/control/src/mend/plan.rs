//! Makes a catalog's contents of what was found. Pure: what is on storage is not looked at here.

use super::gather::{Claim, Gathered, Image, Owner, Removed};
use headgate_catalog::Contents;
use headgate_model::{
    DatastoreRecord, DiskRecord, DiskState, ExportRecord, Name, Policy, RemovedRecord, RemovedStep,
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
        if let Some(why) = image.unfit {
            return self.notes.push(format!("{path} is passed over: {why}"));
        }
        if let Some(other) = self.disks.get(&name) {
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
        self.exports.extend(exports);
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
    let Contents { mut datastores, disks, mut vms, exports, rules, removed: known_removed } = base;
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
    for directory in directories {
        for image in directory.images {
            planner.take(image, &directory.datastore);
        }
        for found in directory.removed {
            kept.extend(removed(found, &directory.datastore, &known_removed, &mut planner.notes));
        }
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
    let disks = planner.disks.into_values().collect();
    let contents = Contents { datastores, disks, vms, exports, rules, removed: kept };
    Plan { contents, notes: planner.notes }
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
            None if disk.state == DiskState::Ready => {
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
