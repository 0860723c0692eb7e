//! The catalog, the daemon's durable state: datastores, disks and their policies, exports, priority
//! settings of virtual machines, placement rules.
//!
//! The catalog is the control path's alone. The data path never reads it and never waits for it:
//! what a shard needs is handed over when a disk is opened or its policy changes.
//!
//! # Order of work
//! A disk's row and its image cannot change in one step, so the row says how far the work is
//! ([`DiskState`](headgate_model::DiskState)):
//!
//! | change | steps | found at start after a crash |
//! |---|---|---|
//! | create | row `creating`, image under a temporary name, rename, row `ready` | renamed: becomes ready; else: undone |
//! | remove | row `removing`, image unlinked, row deleted | finished |
//!
//! Every step is durable before the next begins.

mod error;
mod sqlite;

pub use error::CatalogError;
pub use sqlite::SqliteCatalog;

use headgate_model::{DatastoreRecord, DiskRecord, ExportRecord, Name, VmRecord};
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

    /// Adds a disk with its policy.
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
}
