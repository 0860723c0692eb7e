//! Disks that are striped over several NBD servers.

use headgate_stripe::{Label, Layout, StripeId};
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
}

fn to_text<S: Serializer>(id: &StripeId, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(id)
}

fn from_text<'de, D: Deserializer<'de>>(from: D) -> Result<StripeId, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// A striped disk for the data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripedDisk {
    /// Its name on the labels.
    pub id: StripeId,
    /// How it is laid out.
    pub layout: Layout,
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
