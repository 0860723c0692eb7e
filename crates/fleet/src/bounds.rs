//! How long parts are, and how many there may be.

/// The version that is written, and the only one that is read.
pub const VERSION: u8 = 1;

/// The longest part, in bytes.
pub const PART_MAX: usize = 32 << 10;

/// Datastores in a chunk.
pub const DATASTORES_EACH: usize = 16;

/// Chunks of datastores that a host may have.
pub(crate) const DATASTORE_CHUNKS: usize = 16;

/// Datastores of a host that are told.
pub const DATASTORES_MAX: usize = DATASTORES_EACH * DATASTORE_CHUNKS;

/// Disks in a chunk.
pub const DISKS_EACH: usize = 64;

/// Chunks of disks that a host may have.
pub(crate) const DISK_CHUNKS: usize = 64;

/// Disks of a host that are told.
pub const DISKS_MAX: usize = DISKS_EACH * DISK_CHUNKS;

/// Moves that a host advises at once, as far as they are told.
pub const ADVICE_MAX: usize = 32;
