//! Sizes of disks.

use headgate_units::Bytes;
use serde::{Deserialize, Serialize};

/// Whether a disk may get smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Shrink {
    /// It does not.
    #[default]
    Never,
    /// It does if there is no data in what is cut off.
    UnlessData,
    /// It does, and data in what is cut off goes.
    DiscardData,
}

/// Another size for a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DiskResize {
    /// Its size in bytes, a multiple of 4,096. On a block device: absent, or the device's. Of a
    /// disk that does not serve because its image has another size: absent, or the image's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub size: Option<Bytes>,
    /// Whether it may get smaller.
    #[serde(default)]
    pub shrink: Shrink,
}
