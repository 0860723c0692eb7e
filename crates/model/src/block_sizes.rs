//! The sizes of requests that a disk's storage serves best.

use headgate_units::Bytes;
use serde::{Deserialize, Serialize};

/// The sizes of requests that a disk's storage serves best, as guests and NBD clients are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BlockSizes {
    /// The unit of requests in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub logical: Bytes,
    /// What the storage writes without reading first, in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub physical: Bytes,
    /// Where the first physical block begins, in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub alignment_offset: Bytes,
    /// The smallest request that is not slow, in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub minimum_io: Bytes,
    /// The best size of long requests in bytes; 0: none is better than another.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub optimal_io: Bytes,
}
