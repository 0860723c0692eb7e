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
//! | remove and keep | row `removing` and a removed disk `moving`, image renamed into the trash, row deleted and `kept` | finished |
//! | restore | removed disk `returning` and a row `creating`, image renamed back, row `ready` and the removed disk deleted | image back: becomes ready; else: undone |
//! | move | row of a move `preparing`, image at the target made, row `started`, all copied, disk and row `switched`, image at the source unlinked, row deleted | before `switched`: undone; after it: finished |
//! | resize | row `resizing`, image lengthened or cut, row `ready` with its size | the size of the image counts |
//! | apply | classes, policies and what is to be created in one step, then each disk as by create; its row takes the place of what was planned | what is planned stays so |
//! | purge | removed disk `purging`, image unlinked, removed disk deleted | finished |
//!
//! Every step is durable before the next begins.
//!
//! # Copies
//! [`Copies`] of the catalog are made while it is in use. [`RecordFile`]s say the same of one disk
//! or one datastore, in files that are elsewhere.

mod contents;
mod copies;
mod error;
mod record_file;
mod sqlite;

pub use contents::{Catalog, Contents, DiskChange, PolicyChange, RemovedChange};
pub use copies::{CatalogCopy, Copies, Inspected};
pub use error::CatalogError;
pub use record_file::{RecordFile, RecordFileError};
pub use sqlite::{Inspection, SqliteCatalog, Which, inspect};
