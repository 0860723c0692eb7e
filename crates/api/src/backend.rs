//! What datastores are on.

use headgate_units::Bytes;
use serde::{Deserialize, Serialize};

/// What a datastore stores its disks on. Exactly one field is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BackendSpec {
    /// A directory for raw sparse files: an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// A block device that becomes one disk: an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// A device model, such as `rate=1600,latency=5ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// An NBD server, of which each disk is an export: `nbd+unix:///?socket=/PATH`,
    /// `nbd://HOST[:PORT]`, or `nbds://HOST[:PORT][?tls-hostname=NAME]` over TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbd: Option<String>,
    /// NBD servers over which each disk is striped: it is an export of each. URIs as of `nbd`, in
    /// the order of the disks' members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripe: Option<Vec<String>>,
    /// With `stripe`, and only there: of new disks, how many bytes lie on one server before the
    /// next one has its turn; a power of two from 4 KiB to 64 MiB, 256 KiB when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub stripe_unit: Option<Bytes>,
    /// With `nbd` or `stripe`, and only there: how many connections a disk has to each server, 1 to
    /// 16, where the server says that a flush on one covers the writes of all
    /// (`NBD_FLAG_CAN_MULTI_CONN`); elsewhere it has one. 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u8>,
    /// RAM disks: what all of them may have together, in bytes. What they hold is lost when the
    /// daemon ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub memory: Option<Bytes>,
}
