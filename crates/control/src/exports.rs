//! Additional NBD exports of disks, each with a priority.

use super::{Control, ControlError, Model};
use headgate_api::priorities::{Export, ExportCreate, ExportPatch};
use headgate_model::Name;
use headgate_model::{ExportRecord, Writes};

impl Model {
    fn export(&self, name: &Name) -> Result<&ExportRecord, ControlError> {
        self.exports.get(name).ok_or_else(|| ControlError::Missing {
            kind: "export",
            name: name.clone(),
            known: self.exports.keys().cloned().collect(),
        })
    }

    /// Fails when NBD clients find something under this name already.
    pub(super) fn check_export_name(&self, name: &Name) -> Result<(), ControlError> {
        let kind = match (self.disks.contains_key(name), self.exports.contains_key(name)) {
            (true, _) => "disk",
            (_, true) => "export",
            _ => return Ok(()),
        };
        Err(ControlError::Exists { kind, name: name.clone() })
    }
}

impl Control {
    fn view_export(&self, model: &Model, record: &ExportRecord) -> Export {
        let vm = model.disks.get(&record.disk).and_then(|disk| disk.record.vm.as_ref());
        let socket = self.dir.nbd_socket_of(vm);
        Export {
            name: record.name.clone(),
            disk: record.disk.clone(),
            priority: record.priority,
            read_only: record.writes == Writes::Refused,
            nbd_uri: crate::attach::nbd_unix_uri(&record.name, &socket),
        }
    }

    /// All further exports, by name.
    pub fn exports(&self) -> Vec<Export> {
        let model = self.model();
        model.exports.values().map(|record| self.view_export(&model, record)).collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// [`ControlError::Missing`].
    pub fn export(&self, name: &Name) -> Result<Export, ControlError> {
        let model = self.model();
        Ok(self.view_export(&model, model.export(name)?))
    }

    /// Exports a disk under one more name.
    ///
    /// # Errors
    /// When a disk or an export has the name already, or the disk is not there.
    pub fn add_export(&self, request: ExportCreate) -> Result<Export, ControlError> {
        let mut catalog = self.catalog();
        let ExportCreate { name, disk, priority, read_only } = request;
        let writes = if read_only { Writes::Refused } else { Writes::Allowed };
        {
            let model = self.model();
            model.check_export_name(&name)?;
            model.disk(&disk)?;
        }
        let record = ExportRecord { name, disk, priority, writes };
        catalog.insert_export(&record)?;
        self.plane.put_export(&record);
        let view = self.view_export(&self.model(), &record);
        self.model_mut().exports.insert(record.name.clone(), record);
        Ok(view)
    }

    /// Changes an export's priority, for clients that are connected too.
    ///
    /// # Errors
    /// [`ControlError::Missing`].
    pub fn set_export(&self, name: &Name, patch: ExportPatch) -> Result<Export, ControlError> {
        let mut catalog = self.catalog();
        let record =
            ExportRecord { priority: patch.priority, ..self.model().export(name)?.clone() };
        catalog.update_export(&record)?;
        self.plane.put_export(&record);
        let view = self.view_export(&self.model(), &record);
        self.model_mut().exports.insert(record.name.clone(), record);
        Ok(view)
    }

    /// Forgets an export. Clients that came by it stay connected; no more come.
    ///
    /// # Errors
    /// [`ControlError::Missing`].
    pub fn remove_export(&self, name: &Name) -> Result<(), ControlError> {
        let mut catalog = self.catalog();
        self.model().export(name)?;
        catalog.delete_export(name)?;
        self.plane.remove_export(name);
        self.model_mut().exports.remove(name);
        Ok(())
    }

    /// A disk that is no more has no exports; the catalog forgot them with it.
    pub(super) fn forget_exports_of(&self, disk: &Name) {
        let mut model = self.model_mut();
        let gone: Vec<Name> =
            model.exports.values().filter(|e| e.disk == *disk).map(|e| e.name.clone()).collect();
        for name in gone {
            self.plane.remove_export(&name);
            model.exports.remove(&name);
        }
    }

    /// At start: exports whose disks were found.
    pub(super) fn serve_exports(&self, records: Vec<ExportRecord>) {
        let mut model = self.model_mut();
        for record in records {
            if !model.disks.contains_key(&record.disk) {
                continue;
            }
            self.plane.put_export(&record);
            model.exports.insert(record.name.clone(), record);
        }
    }

    /// The exports of a disk beside that of its own name.
    pub(super) fn exports_of(&self, model: &Model, disk: &Name) -> Vec<Export> {
        model
            .exports
            .values()
            .filter(|e| e.disk == *disk)
            .map(|e| self.view_export(model, e))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use headgate_api::types::Force;
    use serde_json::json;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn disk(bench: &Bench, name: &str) -> Result<(), ControlError> {
        let request = json!({"name": name, "size": 1 << 20, "datastore": "array"});
        bench.control.create_disk(serde_json::from_value(request).unwrap()).map(drop)
    }

    fn add(bench: &Bench, export: &str, disk: &str, priority: u8) -> Result<Export, ControlError> {
        let request = json!({"name": export, "disk": disk, "priority": priority});
        bench.control.add_export(serde_json::from_value(request).unwrap())
    }

    #[test]
    fn an_export_lives_as_long_as_its_disk_also_through_a_restart() {
        let bench = Bench::new();
        disk(&bench, "a").unwrap();
        let export = add(&bench, "a-backup", "a", 10).unwrap();
        assert!(export.nbd_uri.starts_with("nbd+unix:///a-backup?socket="), "{}", export.nbd_uri);
        assert_eq!(bench.control.disk(&name("a")).unwrap().exports, [export]);
        bench
            .control
            .set_export(&name("a-backup"), ExportPatch { priority: "11".parse().unwrap() })
            .unwrap();
        let bench = bench.restart();
        assert_eq!(bench.plane.exports(), [("a-backup".into(), "a".into(), 11)]);
        assert_eq!(bench.control.export(&name("a-backup")).unwrap().priority.get(), 11);
        bench
            .control
            .remove_disk(&name("a"), Force::No, headgate_api::types::ImageFate::Remove)
            .unwrap();
        assert_eq!(bench.control.exports(), []);
        assert_eq!(bench.plane.exports(), []);
        assert_eq!(bench.restart().control.exports(), []);
    }

    #[test]
    fn disks_and_exports_share_their_names() {
        let bench = Bench::new();
        disk(&bench, "a").unwrap();
        add(&bench, "x", "a", 1).unwrap();
        for (wrong, says) in [
            (add(&bench, "a", "a", 1).map(drop), "disk 'a' exists already"),
            (add(&bench, "x", "a", 2).map(drop), "export 'x' exists already"),
            (add(&bench, "y", "b", 1).map(drop), "there is no disk 'b'"),
            (disk(&bench, "x"), "export 'x' exists already"),
            (bench.control.remove_export(&name("a")), "there is no export 'a'"),
        ] {
            assert_eq!(wrong.unwrap_err().to_string(), says);
        }
        bench.control.remove_export(&name("x")).unwrap();
        disk(&bench, "x").unwrap();
    }
}
