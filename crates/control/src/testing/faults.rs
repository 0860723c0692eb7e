//! A catalog that fails where a test asks for that.

use headgate_catalog::{
    Catalog, CatalogError, Contents, DiskChange, PolicyChange, RemovedChange, SqliteCatalog,
};
use headgate_model::{DatastoreRecord, DiskRecord, ExportRecord, MoveRecord, Name, VmRecord};
use headgate_placement::Rules;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

/// How a change of a move's row goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing is written.
    Unwritten,
    /// It is written, and nobody is told.
    Untold,
}

#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The next changes of rows of moves: `None` goes well.
    pub(crate) puts: VecDeque<Option<Fault>>,
    /// So many questions for a row are not answered.
    pub(crate) unanswered: usize,
    /// How often rows of disks were changed.
    pub(crate) disk_updates: usize,
}

pub(crate) type Faults = Arc<Mutex<Plan>>;

pub(crate) struct FaultyCatalog {
    pub(crate) inner: SqliteCatalog,
    pub(crate) faults: Faults,
}

fn failed() -> CatalogError {
    CatalogError::File { path: "/catalog".into(), source: io::Error::other("on purpose") }
}

type Done = Result<(), CatalogError>;

impl Catalog for FaultyCatalog {
    fn put_move(&mut self, record: &MoveRecord, disk: Option<&DiskRecord>) -> Done {
        let fault = self.faults.lock().unwrap().puts.pop_front().flatten();
        match fault {
            None => self.inner.put_move(record, disk),
            Some(Fault::Unwritten) => Err(failed()),
            Some(Fault::Untold) => {
                self.inner.put_move(record, disk)?;
                Err(failed())
            }
        }
    }

    fn find_move(&mut self, disk: &Name) -> Result<Option<MoveRecord>, CatalogError> {
        let mut faults = self.faults.lock().unwrap();
        if faults.unanswered > 0 {
            faults.unanswered -= 1;
            return Err(failed());
        }
        self.inner.find_move(disk)
    }

    fn load(&mut self) -> Result<Contents, CatalogError> {
        self.inner.load()
    }

    fn insert_datastore(&mut self, record: &DatastoreRecord) -> Done {
        self.inner.insert_datastore(record)
    }

    fn update_datastore(&mut self, record: &DatastoreRecord) -> Done {
        self.inner.update_datastore(record)
    }

    fn delete_datastore(&mut self, name: &Name) -> Done {
        self.inner.delete_datastore(name)
    }

    fn change_policies(&mut self, change: &PolicyChange) -> Done {
        self.inner.change_policies(change)
    }

    fn insert_disk(&mut self, record: &DiskRecord) -> Done {
        self.inner.insert_disk(record)
    }

    fn update_disk(&mut self, record: &DiskRecord) -> Done {
        self.faults.lock().unwrap().disk_updates += 1;
        self.inner.update_disk(record)
    }

    fn delete_disk(&mut self, name: &Name) -> Done {
        self.inner.delete_disk(name)
    }

    fn put_vm(&mut self, record: &VmRecord) -> Done {
        self.inner.put_vm(record)
    }

    fn delete_vm(&mut self, name: &Name) -> Done {
        self.inner.delete_vm(name)
    }

    fn put_rules(&mut self, rules: &Rules) -> Done {
        self.inner.put_rules(rules)
    }

    fn insert_export(&mut self, record: &ExportRecord) -> Done {
        self.inner.insert_export(record)
    }

    fn update_export(&mut self, record: &ExportRecord) -> Done {
        self.inner.update_export(record)
    }

    fn delete_export(&mut self, name: &Name) -> Done {
        self.inner.delete_export(name)
    }

    fn change_removed(&mut self, disk: DiskChange<'_>, removed: RemovedChange<'_>) -> Done {
        self.inner.change_removed(disk, removed)
    }

    fn delete_move(&mut self, disk: &Name) -> Done {
        self.inner.delete_move(disk)
    }
}
