//! Images that commands import: how far they are, as the commands say, and how they are ended.
//!
//! A command writes the disk as a client (decision 93). That the disk is not whole stands in the
//! catalog, as its machine; how far it is, in memory.

mod told;

use crate::{Control, ControlError, Model};
use headgate_api::copies::{FilledBy, Filling};
use headgate_api::imports::{Import, ImportProgress, ImportState};
use headgate_api::types::{Force, ImageFate};
use headgate_model::{DiskRecord, INCOMPLETE, Name};
use headgate_units::Bytes;
use std::time::Instant;
use told::Fate;

pub(crate) use told::Imports;

/// The longest source and id, in bytes.
const TEXT_MAX: usize = 1_024;

fn is_incomplete(record: &DiskRecord) -> bool {
    record.vm.as_ref().is_some_and(|vm| vm.as_str() == INCOMPLETE)
}

/// Whether a text can stand in a table.
fn check_text(what: &str, text: &str) -> Result<(), ControlError> {
    if (1..=TEXT_MAX).contains(&text.len()) && !text.chars().any(char::is_control) {
        return Ok(());
    }
    let problem = format!("the import's {what} has {} bytes, or characters of control", text.len());
    Err(ControlError::invalid(problem, format!("1 to {TEXT_MAX} bytes of text")))
}

fn not_imported(name: &Name) -> ControlError {
    ControlError::Busy {
        error: format!("disk '{name}' is not being imported"),
        hint: "'headgate disk imports' says which are".into(),
    }
}

impl Model {
    fn check_imported(&self, name: &Name) -> Result<&DiskRecord, ControlError> {
        let record = &self.disk(name)?.record;
        if is_incomplete(record) { Ok(record) } else { Err(not_imported(name)) }
    }
}

impl Control {
    /// The command that imports a disk says how far it is.
    ///
    /// # Errors
    /// When there is no such disk, it is whole, or another command imports it; the import was
    /// cancelled then, and what this command writes is nobody's.
    pub fn hear_of_import(
        &self,
        disk: &Name,
        told: ImportProgress,
    ) -> Result<Import, ControlError> {
        check_text("source", &told.source)?;
        check_text("id", &told.id)?;
        let model = self.model();
        let record = model.check_imported(disk)?;
        let mut imports = self.importing();
        imports.0.retain(|name, _| model.check_imported(name).is_ok());
        if imports.is_cancelled(disk) || imports.is_another(disk, &told.id) {
            return Err(ControlError::Busy {
                error: format!("the import of disk '{disk}' is cancelled"),
                hint: "begin it anew".into(),
            });
        }
        let now = Instant::now();
        imports.hear(disk, told, now);
        Ok(imports.view(record, now))
    }

    /// Disks whose import has not ended, by name.
    pub fn imports(&self) -> Vec<Import> {
        let (model, now) = (self.model(), Instant::now());
        let imports = self.importing();
        let records = model.disks.values().map(|entry| &entry.record);
        records.filter(|r| is_incomplete(r)).map(|record| imports.view(record, now)).collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// When there is no such disk, or it is whole.
    pub fn import(&self, disk: &Name) -> Result<Import, ControlError> {
        let model = self.model();
        let record = model.check_imported(disk)?;
        Ok(self.importing().view(record, Instant::now()))
    }

    /// Ends an import: its disk is removed with what it holds, and its command hears of it. With an
    /// id only that of this command.
    ///
    /// # Errors
    /// When it is no import, is another one's, or the disk cannot be removed: it is there still,
    /// and its import may go on.
    pub fn cancel_import(&self, disk: &Name, id: Option<&str>) -> Result<(), ControlError> {
        {
            // Whoever marks it as whole has this lock, too.
            let _turn = self.catalog();
            let model = self.model();
            let record = model.check_imported(disk)?;
            let mut imports = self.importing();
            if id.is_some_and(|id| imports.is_another(disk, id)) {
                return Err(not_imported(disk));
            }
            if !imports.0.contains_key(disk) {
                let id = id.unwrap_or("-").to_owned();
                let (source, size) = ("-".to_owned(), record.size);
                let told = ImportProgress { id, source, copied: Bytes(0), size };
                imports.hear(disk, told, Instant::now());
            }
            if let Some(one) = imports.0.get_mut(disk) {
                one.fate = Fate::Cancelled;
            }
        }
        let removed = self.remove_disk(disk, Force::Yes, ImageFate::Purge);
        if removed.is_ok() {
            self.importing().0.remove(disk);
        } else if let Some(one) = self.importing().0.get_mut(disk) {
            one.fate = Fate::Open;
        }
        removed
    }

    /// A disk of this name is made: what was told of another one is not about it.
    pub(crate) fn forget_import(&self, disk: &Name) {
        self.importing().0.remove(disk);
    }

    /// A disk is about to get another machine than it has.
    pub(crate) fn check_not_cancelled(&self, disk: &Name) -> Result<(), ControlError> {
        if !self.importing().is_cancelled(disk) {
            return Ok(());
        }
        Err(ControlError::Busy {
            error: format!("the import of disk '{disk}' is being cancelled"),
            hint: "import it anew under another name, or when it is gone".into(),
        })
    }

    /// How far a disk is that is not whole.
    pub(crate) fn filling(&self, model: &Model, record: &DiskRecord) -> Option<Filling> {
        if let Some(copying) = model.copies.get(&record.name) {
            let copy = self.view_copy(&record.name, copying);
            return Some(Filling {
                by: FilledBy::Copy,
                source: Some(copy.source.to_string()),
                copied: copy.copied,
                size: copy.size,
                rate: copy.rate,
                seconds_left: copy.seconds_left,
            });
        }
        let import =
            is_incomplete(record).then(|| self.importing().view(record, Instant::now()))?;
        Some(Filling {
            by: match import.state {
                ImportState::Copying => FilledBy::Import,
                ImportState::Silent | ImportState::Cancelling => FilledBy::Nobody,
            },
            source: import.source,
            copied: import.copied,
            size: import.size,
            rate: import.rate,
            seconds_left: import.seconds_left,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use headgate_api::types::{Change, DiskPatch};
    use serde_json::json;
    use std::time::Duration;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn told(id: &str, copied: u64) -> ImportProgress {
        let source = "debian.qcow2".into();
        ImportProgress { id: id.into(), source, copied: Bytes(copied), size: Bytes(8192) }
    }

    fn with_import() -> Bench {
        let bench = Bench::new();
        let disk = json!({"name": "a", "size": 8192, "datastore": "default", "vm": INCOMPLETE});
        bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
        bench
    }

    fn whole() -> DiskPatch {
        DiskPatch { vm: Change::Remove, ..DiskPatch::default() }
    }

    #[test]
    fn an_import_is_shown_as_its_command_tells_until_the_disk_is_whole() {
        let bench = with_import();
        let a = name("a");
        let silent = bench.control.import(&a).unwrap();
        assert_eq!((silent.state, silent.source, silent.size.0), (ImportState::Silent, None, 8192));
        let filling = bench.control.disk(&a).unwrap().filling.unwrap();
        assert_eq!(filling.by, FilledBy::Nobody);
        let now = bench.control.hear_of_import(&a, told("1", 4096)).unwrap();
        assert_eq!((now.state, now.copied.0), (ImportState::Copying, 4096));
        let filling = bench.control.disk(&a).unwrap().filling.unwrap();
        assert_eq!((filling.by, filling.copied.0), (FilledBy::Import, 4096));
        assert_eq!(filling.source.as_deref(), Some("debian.qcow2"));
        // Another command does not speak for it, and does not end it.
        assert!(bench.control.hear_of_import(&a, told("2", 0)).is_err());
        assert!(bench.control.cancel_import(&a, Some("2")).is_err());
        for text in ["", "a\nb", &"x".repeat(1_025)] {
            let odd = ImportProgress { source: text.into(), ..told("1", 0) };
            assert!(bench.control.hear_of_import(&a, odd).is_err(), "{text:?}");
        }
        bench.control.set_disk(&a, whole()).unwrap();
        assert!(bench.control.imports().is_empty());
        assert!(bench.control.hear_of_import(&a, told("1", 8192)).is_err());
        assert!(bench.control.cancel_import(&a, None).is_err(), "it is a disk like any other");
        assert_eq!(bench.control.disk(&a).unwrap().filling, None);
        // What was told of it is not about the next disk of its name.
        bench.control.remove_disk(&a, Force::No, ImageFate::Purge).unwrap();
        let disk = json!({"name": "a", "size": 8192, "datastore": "default", "vm": INCOMPLETE});
        bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
        bench.control.hear_of_import(&a, told("3", 0)).unwrap();
    }

    #[test]
    fn after_a_while_without_a_word_nobody_fills_the_disk() {
        let bench = with_import();
        let record = bench.control.model().disk(&name("a")).unwrap().record.clone();
        let (mut imports, begin) = (Imports::default(), Instant::now());
        imports.hear(&record.name, told("1", 100), begin);
        let at = |seconds| imports.view(&record, begin + Duration::from_secs(seconds));
        assert_eq!(at(29).state, ImportState::Copying);
        assert_eq!((at(31).state, at(31).copied.0), (ImportState::Silent, 100));
    }

    #[test]
    fn an_import_that_is_cancelled_is_gone_and_can_not_become_whole() {
        let bench = with_import();
        let a = name("a");
        bench.control.hear_of_import(&a, told("1", 4096)).unwrap();
        // It cannot be removed now: it goes on.
        bench.plane.break_down("close_disk");
        if bench.control.cancel_import(&a, None).is_err() {
            bench.control.hear_of_import(&a, told("1", 4097)).unwrap();
        }
        bench.plane.repair();
        let (began, end) = bench.plane.hold_next("close");
        std::thread::scope(|scope| {
            let cancelled = scope.spawn(|| bench.control.cancel_import(&a, None));
            began.recv().unwrap();
            let state = bench.control.import(&a).unwrap().state;
            assert_eq!(state, ImportState::Cancelling);
            let late = bench.control.set_disk(&a, whole()).unwrap_err().to_string();
            assert!(late.contains("being cancelled"), "{late}");
            assert!(bench.control.hear_of_import(&a, told("1", 5000)).is_err());
            end.send(()).unwrap();
            cancelled.join().unwrap().unwrap();
        });
        assert!(bench.control.disk(&a).is_err());
        // The next of the name is another one.
        let disk = json!({"name": "a", "size": 8192, "datastore": "default", "vm": INCOMPLETE});
        bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
        assert!(bench.control.import(&a).unwrap().source.is_none());
        bench.control.hear_of_import(&a, told("2", 0)).unwrap();
        assert!(bench.control.cancel_import(&a, Some("1")).is_err(), "another command's");
        assert!(bench.control.disk(&a).is_ok());
    }
}
