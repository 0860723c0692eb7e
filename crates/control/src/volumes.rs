//! The space of file systems under datastores: watched, and what may be promised of it.
//!
//! Datastores on one file system have its space together (`docs/decisions/0040-space.md`). Each
//! datastore is looked at by its own worker: one that hangs delays nobody.

pub use crate::volume_watch::WARN_PERCENT;

use crate::limits::SIZE_STEP;
use crate::volume_watch::{Watched, look};
use crate::workers::Ticket;
use crate::{Control, ControlError, DatastoreEntry, DiskEntry, Model, Service};
use headgate_api::space::FileSystem;
use headgate_model::{Backend, DiskRecord, Name, WriteErrors};
use headgate_units::Bytes;
use std::path::PathBuf;
use std::time::Duration;

/// How often each file system is looked at.
pub const LOOK: Duration = Duration::from_secs(10);

/// What is promised of a file system, and the room for it.
struct Promised {
    sizes: u64,
    room: u64,
}

fn size(disk: &DiskEntry) -> u64 {
    disk.record.size.0
}

impl Control {
    /// The directory of a datastore whose space is watched, and its disks.
    fn watched(&self, entry: &DatastoreEntry, model: &Model) -> Option<(PathBuf, Vec<Name>)> {
        let Backend::Dir { path } = &entry.record.backend else { return None };
        let disks = model.disks_on(&entry.record.name).map(|disk| disk.record.name.clone());
        Some((self.dir.resolve(path), disks.collect()))
    }

    /// Begins to look at the space of every datastore in service that keeps files. Waits for none.
    pub fn watch_space(&self) {
        let jobs: Vec<(Name, PathBuf, Vec<Name>)> = {
            let model = self.model();
            let serving = model.datastores.values().filter(|e| e.service == Service::Serving);
            serving
                .filter_map(|entry| {
                    let (directory, disks) = self.watched(entry, &model)?;
                    Some((entry.record.name.clone(), directory, disks))
                })
                .collect()
        };
        for (datastore, directory, disks) in jobs {
            if !self.volumes.begin(&datastore) {
                continue;
            }
            let (volumes, name) = (self.volumes.clone(), datastore.clone());
            let work = move |_: &Ticket| volumes.end(&name, look(&directory, &disks));
            if self.workers.start(&datastore, "looking at its space", work).is_err() {
                self.volumes.end(&datastore, Err("there is no thread to look at it".into()));
            }
        }
    }

    /// Looks at the space of a datastore now, if it keeps files. May block.
    pub(super) fn look_at_space(&self, datastore: &Name) {
        let found = {
            let model = self.model();
            model.datastores.get(datastore).and_then(|entry| self.watched(entry, &model))
        };
        let Some((directory, disks)) = found else { return };
        self.volumes.known().entry(datastore.clone()).or_default();
        self.volumes.end(datastore, look(&directory, &disks));
    }

    /// What is promised of the file system under a datastore to disks but one, and the room for
    /// that; `None` where nobody has looked at it yet.
    fn promised(&self, model: &Model, datastore: &Name, but: Option<&Name>) -> Option<Promised> {
        let here = self.volumes.volume(datastore)?;
        let mut promised = Promised { sizes: 0, room: here.free.0 };
        for other in model.datastores.keys() {
            let Some(volume) = self.volumes.volume(other) else { continue };
            if volume.device == here.device {
                let disks = model.copies_on(other).filter(|d| but != Some(&d.record.name));
                promised.sizes = disks.map(size).fold(promised.sizes, u64::saturating_add);
                promised.room = promised.room.saturating_add(volume.allocated.0);
            }
        }
        Some(promised)
    }

    /// Whether a disk, which is in the model already or moves here, keeps within what may be
    /// promised of its file system, and what its operator should know if it does.
    pub(super) fn check_overcommit(
        &self,
        disk: &DiskRecord,
    ) -> Result<Option<String>, ControlError> {
        let (name, asked, model) = (&disk.datastore, disk.size, self.model());
        let bound = model.datastore(name)?.record.placement.overcommit.unwrap_or_default();
        // One that moves here has its size promised where it is as well.
        let is_here = |entry: &&DiskEntry| entry.record.datastore == *name;
        let here = model.disks.get(&disk.name).filter(is_here);
        let promised = self.promised(&model, name, here.map(|entry| &entry.record.name));
        let Some(Promised { sizes, room }) = promised else { return Ok(None) };
        let most = bound.most(room);
        if most.is_some_and(|most| sizes.saturating_add(asked.0) > most) {
            return Err(ControlError::Overcommitted {
                datastore: name.clone(),
                asked,
                promised: Bytes(sizes),
                room: Bytes(room),
                bound,
                left: Bytes(most.unwrap_or(0).saturating_sub(sizes) / SIZE_STEP * SIZE_STEP),
            });
        }
        let free = self.volumes.volume(name).map_or(0, |volume| volume.free.0);
        let then = match disk.policy.werror {
            WriteErrors::Report => "its writes fail when there is no space",
            WriteErrors::Enospc | WriteErrors::Stop => {
                "it holds its requests while there is no space"
            }
        };
        Ok((asked.0 > free).then(|| {
            format!(
                "the disk may grow to {asked}, and {} are free on datastore '{name}': {then} (see \
                 --werror)",
                Bytes(free)
            )
        }))
    }

    /// The file system under a datastore, as far as it is known.
    pub(super) fn file_system(&self, model: &Model, entry: &DatastoreEntry) -> Option<FileSystem> {
        let name = &entry.record.name;
        let Promised { sizes, room } = self.promised(model, name, None)?;
        let known = self.volumes.known();
        let watched = known.get(name)?;
        let (at, volume) = watched.last?;
        Some(FileSystem {
            size: volume.size,
            free: volume.free,
            used_percent: volume.used_percent(),
            allocated: volume.allocated,
            provisioned: Bytes(model.disks_on(name).map(size).fold(0, u64::saturating_add)),
            overcommit: (room > 0).then(|| sizes as f64 / room as f64),
            overcommit_max: entry.record.placement.overcommit.unwrap_or_default(),
            age_seconds: at.elapsed().as_secs(),
            reason: watched.reason.clone(),
        })
    }

    /// What health says of file systems that fill up.
    pub(super) fn space_warnings(&self) -> Vec<String> {
        let known = self.volumes.known();
        let full = |(name, watched): (&Name, &Watched)| {
            let (_, volume) = watched.last.filter(|_| watched.told > 0)?;
            Some(format!(
                "datastore '{name}': its file system is {} % full, {} of {} are free",
                volume.used_percent(),
                volume.free,
                volume.size
            ))
        };
        known.iter().filter_map(full).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;
    use crate::{ErrorKind, images};
    use headgate_units::Bytes;
    use serde_json::json;

    #[test]
    fn what_is_promised_beyond_the_bound_is_refused_with_figures() {
        let bench = Bench::new();
        let files = bench.temp.path().join("files");
        std::fs::create_dir(&files).unwrap();
        let store = json!({"name": "files", "backend": {"dir": files}});
        bench.control.add_datastore(serde_json::from_value(store).unwrap()).unwrap();
        let create = |name: &str, size: u64| {
            let disk = json!({"name": name, "size": size, "datastore": "files"});
            bench.control.create_disk(serde_json::from_value(disk).unwrap())
        };
        let free = images::space(&files).unwrap().free.0;
        let too_large = (free * 11) & !4095;
        let error = create("a", too_large).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let text = error.to_string();
        assert!(text.contains("10 times") && text.contains("datastore 'files'"), "{text}");
        assert!(error.hint().unwrap().contains("--overcommit"));
        // As large as that, but allowed; it cannot be written whole, which is told.
        let patch = |value: &str| {
            let patch = json!({"placement": {"overcommit": value}});
            let name = "files".parse().unwrap();
            bench.control.set_datastore(&name, serde_json::from_value(patch).unwrap()).unwrap().now
        };
        assert_eq!(patch("none").placement.overcommit, Some(headgate_model::Overcommit::Unbounded));
        let created = create("a", too_large).unwrap();
        let told = created.warnings.join("\n");
        assert!(told.contains("are free") && told.contains("it holds its requests"), "{told}");
        bench.control.look_at_space(&"files".parse().unwrap());
        let shown = patch("20").file_system.unwrap();
        assert!(shown.overcommit.unwrap() > 9.0, "{shown:?}");
        assert_eq!(shown.provisioned, Bytes(too_large));
        // The bound is of the file system, whichever datastore has the disks.
        create("b", (free * 10) & !4095).unwrap_err();
        create("c", 1 << 20).unwrap();
        let policy = json!({"werror": "report"});
        let report =
            json!({"name": "r", "size": too_large, "datastore": "files", "policy": policy});
        patch("none");
        let told = bench.control.create_disk(serde_json::from_value(report).unwrap()).unwrap();
        assert!(told.warnings[0].contains("its writes fail"), "{:?}", told.warnings);
        patch("20");
        // Sizes that no number holds together are refused as any other.
        let (last, name) = (u64::MAX - 4095, "c".parse().unwrap());
        bench.control.model_mut().disks.get_mut(&name).unwrap().record.size = Bytes(last);
        assert_eq!(create("d", 1 << 20).unwrap_err().kind(), ErrorKind::Conflict);
        patch("1000");
        let shown = bench.control.datastore(&"files".parse().unwrap()).unwrap();
        assert_eq!(shown.file_system.unwrap().provisioned, Bytes(u64::MAX));
    }

    #[test]
    fn a_disk_that_may_be_anywhere_goes_where_it_may_still_be_promised() {
        let bench = Bench::new();
        let files = bench.temp.path().join("files");
        std::fs::create_dir(&files).unwrap();
        let store = json!({"name": "files", "backend": {"dir": files}});
        bench.control.add_datastore(serde_json::from_value(store).unwrap()).unwrap();
        let create = |disk: serde_json::Value| {
            bench.control.create_disk(serde_json::from_value(disk).unwrap())
        };
        let set = |datastore: &str, placement: serde_json::Value| {
            let patch = serde_json::from_value(json!({"placement": placement}));
            bench.control.set_datastore(&datastore.parse().unwrap(), patch.unwrap()).unwrap();
        };
        let bound = |datastore, value: &str| set(datastore, json!({"overcommit": value}));
        let size = (images::space(&files).unwrap().free.0 / 5) & !4095;
        create(json!({"name": "a", "size": size, "datastore": "default"})).unwrap();
        set("array", json!({"state": "closed"}));
        bound("files", "0.1");
        bound("default", "0.1");
        let error = create(json!({"name": "b", "size": 1 << 20})).unwrap_err().to_string();
        assert!(error.contains("on 'files', disks on its volume would be promised"), "{error}");
        assert!(error.contains("on 'default', disks on its volume would be promised"), "{error}");
        for (allowed, other) in [("default", "files"), ("files", "default")] {
            bound(other, "0.1");
            bound(allowed, "1");
            let disk = create(json!({"name": format!("on-{allowed}"), "size": 1 << 20})).unwrap();
            assert_eq!(disk.now.datastore.as_str(), allowed);
        }
    }
}
