//! Wire types of leases: which host serves a disk.

use super::change::Force;
use headgate_model::Name;
use headgate_model::{PersistentReservations, Policy};
use serde::{Deserialize, Serialize};

/// A disk that another host made or served, to be served here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DiskTakeover {
    /// Where its image is; `default` when absent. Absent for a disk that is known here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub datastore: Option<Name>,
    /// The virtual machine it belongs to. Absent for a disk that is known here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub vm: Option<Name>,
    /// What it is promised: policies do not travel with images. Absent for a disk that is known
    /// here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// Overbook the datastore if need be. With `evict`, also where the servers of a striped disk
    /// cannot end the connections of the host that holds it.
    #[serde(default)]
    pub force: Force,
    /// Take it from the host that holds it in etcd or by its labels, or that has its device
    /// reserved, dead or alive, and wait until that one has certainly stopped.
    #[serde(default)]
    pub evict: Force,
    /// How the bytes of an image are read that was not known here. Of no use for one that is.
    #[serde(default)]
    pub format: ImageFormat,
}

/// How the bytes of an image are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ImageFormat {
    /// As those of a disk, unless they look like an image in another format, such as qcow2.
    #[default]
    Probe,
    /// As those of a disk, whatever they look like.
    Raw,
}

/// Where a lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum LeasePlace {
    /// In a file beside the image.
    File,
    /// In etcd.
    Etcd,
    /// On the labels of a striped disk's exports.
    Labels,
}

/// The lease of a disk that several hosts can reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lease {
    /// Where the lease is.
    pub place: LeasePlace,
    /// This daemon's number among the disk's holders; `null` when it is not the holder.
    pub number: Option<u64>,
    /// The holder, if it is known.
    pub holder: Option<LeaseHolder>,
}

/// A daemon that holds a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseHolder {
    /// Its host's name.
    pub name: String,
    /// Its host's number.
    pub id: String,
    /// Its process there.
    pub pid: u32,
}

/// Whether a block device is reserved for this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ReservationState {
    /// It is: it refuses the writes of other hosts.
    Held,
    /// It can be, and will be with its disk.
    Free,
    /// It cannot be; `reason` says why.
    Unsupported,
    /// It is reserved for others, or others use reservations on it; `reason` says who.
    Refused,
    /// It was, and another host has taken it.
    Evicted,
    /// It is not to be.
    Off,
    /// It has not said yet.
    Unknown,
}

impl ReservationState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            ReservationState::Held => "held",
            ReservationState::Free => "free",
            ReservationState::Unsupported => "unsupported",
            ReservationState::Refused => "refused",
            ReservationState::Evicted => "evicted",
            ReservationState::Off => "off",
            ReservationState::Unknown => "unknown",
        }
    }
}

/// The persistent reservation of a block device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PersistentReservation {
    /// Whether it is to be reserved.
    pub mode: PersistentReservations,
    /// Whether it is.
    pub state: ReservationState,
    /// This host's key, while it is: `0x` and 16 hexadecimal digits.
    pub key: Option<String>,
    /// Why it is not.
    pub reason: Option<String>,
}
