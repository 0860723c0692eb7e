//! Wire types of images that are imported, as the importing command tells of them.

use headgate_model::Name;
use headgate_units::Bytes;
use serde::{Deserialize, Serialize};

/// How far an import is, as its command says about once a second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ImportProgress {
    /// A word that no other import has. Who gives another one than the first is refused.
    pub id: String,
    /// The image or URI, for people: 1,024 bytes at most.
    pub source: String,
    /// Bytes of the source that are done, holes among them.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub copied: Bytes,
    /// Bytes of the disk that there are to do.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub size: Bytes,
}

/// Whether an import goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ImportState {
    /// Its command copies.
    Copying,
    /// Its command has said nothing for 30 s, or nothing since the daemon began: it was killed, or
    /// stands still.
    Silent,
    /// It is cancelled, and the disk is being removed.
    Cancelling,
}

impl ImportState {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            ImportState::Copying => "copying",
            ImportState::Silent => "silent",
            ImportState::Cancelling => "cancelling",
        }
    }
}

/// A disk that an image is imported into. It has the machine `incomplete-import` until it is whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Import {
    /// The disk.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// The datastore that it is on.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub datastore: Name,
    /// Whether it goes on.
    pub state: ImportState,
    /// The image or URI, as the command says; `null` before it has said something.
    pub source: Option<String>,
    /// Bytes that are done, holes among them.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub copied: Bytes,
    /// Bytes that there are to do.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub size: Bytes,
    /// How fast it was lately, in bytes per second; `null` when it does not copy.
    pub rate: Option<u64>,
    /// How long the rest takes at that rate, in seconds.
    pub seconds_left: Option<u64>,
    /// When its command first told of it, in seconds since 1970.
    pub began: Option<u64>,
}
