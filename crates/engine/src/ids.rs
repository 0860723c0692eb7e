//! Names of what an engine has.

/// Names a datastore in its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatastoreId {
    pub(crate) shard: usize,
    pub(crate) key: usize,
}

/// Names a disk in its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DiskId {
    pub(crate) shard: usize,
    pub(crate) key: usize,
}
