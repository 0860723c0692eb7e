//! What a catalog holds, and what every catalog does.

use crate::error::CatalogError;
use headgate_model::{
    ClassRecord, DatastoreRecord, DiskRecord, ExportRecord, MoveRecord, Name, PlannedRecord,
    RemovedId, RemovedRecord, TenantRecord, VmRecord,
};
use headgate_placement::Rules;

/// Everything the catalog holds, each list in order of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The datastores.
    pub datastores: Vec<DatastoreRecord>,
    /// The disks, in whatever state.
    pub disks: Vec<DiskRecord>,
    /// The virtual machines that something was set for.
    pub vms: Vec<VmRecord>,
    /// The further exports of disks.
    pub exports: Vec<ExportRecord>,
    /// The rules of placement.
    pub rules: Rules,
    /// Removed disks whose content is kept, by name and time.
    pub removed: Vec<RemovedRecord>,
    /// Moves of disks that have two copies, by disk.
    pub moves: Vec<MoveRecord>,
    /// The classes of disks.
    pub classes: Vec<ClassRecord>,
    /// Disks that are to be made.
    pub planned: Vec<PlannedRecord>,
    /// The tenants.
    pub tenants: Vec<TenantRecord>,
}

/// What changes at once of what disks are promised: all of it is durable, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyChange {
    /// Classes that are new, or different.
    pub classes: Vec<ClassRecord>,
    /// Classes that go. No disk has one of them afterwards.
    pub gone_classes: Vec<Name>,
    /// Disks whose rows change. They are there.
    pub disks: Vec<DiskRecord>,
    /// Datastores whose rows change. They are there.
    pub datastores: Vec<DatastoreRecord>,
    /// Disks that are to be made.
    pub planned: Vec<PlannedRecord>,
    /// Disks that are not to be made any more.
    pub gone_planned: Vec<Name>,
    /// Tenants that are new, or different.
    pub tenants: Vec<TenantRecord>,
    /// Tenants that go.
    pub gone_tenants: Vec<Name>,
    /// Virtual machines that something else is set for.
    pub vms: Vec<VmRecord>,
    /// Virtual machines that nothing is set for any more.
    pub gone_vms: Vec<Name>,
}

impl PolicyChange {
    /// That of one disk's row.
    pub fn of_disk(record: &DiskRecord) -> PolicyChange {
        PolicyChange { disks: vec![record.clone()], ..PolicyChange::default() }
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        *self == PolicyChange::default()
    }
}

/// What happens to a disk's row when the disk goes to the trash or comes back.
#[derive(Clone, Copy, Debug)]
pub enum DiskChange<'a> {
    /// It has none, before and after.
    None,
    /// It gets one.
    Insert(&'a DiskRecord),
    /// It gets another content.
    Update(&'a DiskRecord),
    /// It goes, and the disk's further exports with it.
    Delete(&'a Name),
}

/// What happens to a removed disk at the same time.
#[derive(Clone, Copy, Debug)]
pub enum RemovedChange<'a> {
    /// It is remembered, in place of what was.
    Put(&'a RemovedRecord),
    /// It is forgotten. One that is not there is fine.
    Delete(&'a RemovedId),
}

/// Where the records are kept. A change is durable when the call returns.
pub trait Catalog: Send {
    /// Reads everything.
    ///
    /// # Errors
    /// When the store cannot be read or holds what no version of Headgate wrote.
    fn load(&mut self) -> Result<Contents, CatalogError>;

    /// Adds a datastore.
    ///
    /// # Errors
    /// [`CatalogError::Exists`] when the name is taken.
    fn insert_datastore(&mut self, record: &DatastoreRecord) -> Result<(), CatalogError>;

    /// Replaces a datastore's record.
    ///
    /// # Errors
    /// [`CatalogError::Missing`] when there is none of this name.
    fn update_datastore(&mut self, record: &DatastoreRecord) -> Result<(), CatalogError>;

    /// Forgets a datastore.
    ///
    /// # Errors
    /// [`CatalogError::InUse`] while disks refer to it.
    fn delete_datastore(&mut self, name: &Name) -> Result<(), CatalogError>;

    /// Changes what disks are promised, in one step.
    ///
    /// # Errors
    /// [`CatalogError::Missing`] when a disk or datastore is not there,
    /// [`CatalogError::ClassInUse`] when a disk has a class that goes, or one that is not there.
    /// Nothing is changed then.
    fn change_policies(&mut self, change: &PolicyChange) -> Result<(), CatalogError>;

    /// Adds a disk with its policy. One that has its content is planned no more, here as in
    /// [`update_disk`](Catalog::update_disk).
    ///
    /// # Errors
    /// [`CatalogError::Exists`] when the name is taken, [`CatalogError::Missing`] when its
    /// datastore is not there.
    fn insert_disk(&mut self, record: &DiskRecord) -> Result<(), CatalogError>;

    /// Replaces a disk's record and policy.
    ///
    /// # Errors
    /// [`CatalogError::Missing`] when there is none of this name.
    fn update_disk(&mut self, record: &DiskRecord) -> Result<(), CatalogError>;

    /// Forgets a disk, its policy and its further exports. A disk that is not there is fine.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn delete_disk(&mut self, name: &Name) -> Result<(), CatalogError>;

    /// Remembers what was set for a virtual machine, in place of what was.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn put_vm(&mut self, record: &VmRecord) -> Result<(), CatalogError>;

    /// Forgets what was set for a virtual machine. One that nothing was set for is fine.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn delete_vm(&mut self, name: &Name) -> Result<(), CatalogError>;

    /// Remembers the rules of placement, in place of those that were.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn put_rules(&mut self, rules: &Rules) -> Result<(), CatalogError>;

    /// Adds an export.
    ///
    /// # Errors
    /// [`CatalogError::Exists`] when the name is taken, [`CatalogError::Missing`] when its disk is
    /// not there.
    fn insert_export(&mut self, record: &ExportRecord) -> Result<(), CatalogError>;

    /// Replaces an export's record.
    ///
    /// # Errors
    /// [`CatalogError::Missing`] when there is none of this name.
    fn update_export(&mut self, record: &ExportRecord) -> Result<(), CatalogError>;

    /// Forgets an export. One that is not there is fine.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn delete_export(&mut self, name: &Name) -> Result<(), CatalogError>;

    /// Changes a disk's row and a removed disk in one step.
    ///
    /// # Errors
    /// [`CatalogError::Exists`] when the disk that gets a row has one, [`CatalogError::Missing`]
    /// when its row or its datastore is not there.
    fn change_removed(
        &mut self,
        disk: DiskChange<'_>,
        removed: RemovedChange<'_>,
    ) -> Result<(), CatalogError>;

    /// Remembers how far a move is, in place of what was, and in the same step what its disk is
    /// now, if that changes.
    ///
    /// # Errors
    /// [`CatalogError::Missing`] when the disk has no row or a datastore is not there. After
    /// another error nobody knows what is remembered until a change was made.
    fn put_move(
        &mut self,
        record: &MoveRecord,
        disk: Option<&DiskRecord>,
    ) -> Result<(), CatalogError>;

    /// What is remembered of a disk's move. It may be lost yet when the change that wrote it
    /// failed, and no other was made since.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn find_move(&mut self, disk: &Name) -> Result<Option<MoveRecord>, CatalogError>;

    /// Forgets a move. One that is not there is fine.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn delete_move(&mut self, disk: &Name) -> Result<(), CatalogError>;
}
