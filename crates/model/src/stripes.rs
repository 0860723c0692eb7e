//! Disks that are striped over several NBD servers.

use headgate_stripe::{Label, Layout, Lease, StripeId};
use headgate_units::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Over which servers a disk is striped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StripeRecord {
    /// The disk's name on the labels of its members.
    #[serde(serialize_with = "to_text", deserialize_with = "from_text")]
    pub id: StripeId,
    /// Bytes that lie on one server before the next one has its turn.
    pub unit: Bytes,
    /// The servers' URIs, without an export, by member.
    pub servers: Vec<String>,
    /// The number of the lease by which this host holds the disk, as on the labels.
    pub lease: u64,
    /// Which of its policies is in force: later ones are greater.
    pub epoch: u64,
}

fn to_text<S: Serializer>(id: &StripeId, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(id)
}

fn from_text<'de, D: Deserializer<'de>>(from: D) -> Result<StripeId, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// A striped disk for the data plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripedDisk {
    /// Its name on the labels.
    pub id: StripeId,
    /// How it is laid out.
    pub layout: Layout,
    /// By what right this host serves it.
    pub lease: Lease,
    /// What its servers are told that it is promised.
    pub policy: ServerPolicy,
}

/// A policy as the servers of a striped disk are told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPolicy {
    /// Which one: later ones are greater.
    pub epoch: u64,
    /// The policy, as JSON.
    pub text: String,
}

/// What is known of an export that is to be a member, or is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberProbe {
    /// Its size.
    pub size: Bytes,
    /// Smallest unit of a request in bytes.
    pub block_size: u32,
    /// What it holds.
    pub content: MemberContent,
    /// What its server makes of leases.
    pub leases: ServerLeases,
}

/// What a server makes of leases (`docs/nbd-counters.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerLeases {
    /// It ends the connections of those that have lost a disk, and refuses them.
    Known,
    /// It does not know them.
    Unknown,
}

/// What an export holds that is to be a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberContent {
    /// Zeroes, where a label would be and in front of the data.
    Nothing,
    /// A label.
    Labelled(Label),
    /// Something else, in words.
    Other(String),
}
