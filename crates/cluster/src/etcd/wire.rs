//! What the gateway's JSON looks like: bytes in base64, 64-bit numbers as text, what is zero left
//! out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes, in base64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Blob(pub(super) Vec<u8>);

impl From<&str> for Blob {
    fn from(text: &str) -> Blob {
        Blob(text.as_bytes().to_vec())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Blob, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Blob).map_err(serde::de::Error::custom)
    }
}

/// A 64-bit number, as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Int(pub(super) i64);

impl Serialize for Int {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Int, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Text(String),
            Number(i64),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(number) => Ok(Int(number)),
            Either::Text(text) => text.parse().map(Int).map_err(serde::de::Error::custom),
        }
    }
}

/// Printed nowhere.
#[derive(Serialize)]
pub(super) struct Authenticate<'a> {
    pub(super) name: &'a str,
    pub(super) password: &'a str,
}

/// Printed nowhere.
#[derive(Deserialize)]
pub(super) struct Token {
    pub(super) token: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Grant {
    #[serde(rename = "TTL")]
    pub(super) ttl: Int,
}

#[derive(Debug, Serialize)]
pub(super) struct LeaseId {
    #[serde(rename = "ID")]
    pub(super) id: Int,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LeaseState {
    #[serde(rename = "ID")]
    pub(super) id: Int,
    /// 0 when the lease is no more.
    #[serde(rename = "TTL")]
    pub(super) ttl: Int,
    pub(super) error: String,
}

/// An answer of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Streamed {
    pub(super) result: LeaseState,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Put {
    pub(super) key: Blob,
    pub(super) value: Blob,
    pub(super) lease: Int,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Range {
    pub(super) key: Blob,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) range_end: Option<Blob>,
    pub(super) limit: Int,
}

#[derive(Debug, Serialize)]
pub(super) enum Request {
    #[serde(rename = "request_put")]
    Put(Put),
    #[serde(rename = "request_range")]
    Range(Range),
    #[serde(rename = "request_delete_range")]
    Delete(Range),
}

/// "The key was created at this revision"; 0: it does not exist.
#[derive(Debug, Serialize)]
pub(super) struct CreatedAt {
    target: &'static str,
    result: &'static str,
    key: Blob,
    create_revision: Int,
}

impl CreatedAt {
    pub(super) fn new(key: &str, revision: i64) -> CreatedAt {
        CreatedAt {
            target: "CREATE",
            result: "EQUAL",
            key: key.into(),
            create_revision: Int(revision),
        }
    }
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Transaction {
    pub(super) compare: Vec<CreatedAt>,
    pub(super) success: Vec<Request>,
    pub(super) failure: Vec<Request>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Header {
    pub(super) revision: Int,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    pub(super) key: Blob,
    pub(super) value: Blob,
    pub(super) create_revision: Int,
    pub(super) lease: Int,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Found {
    pub(super) header: Header,
    pub(super) kvs: Vec<KeyValue>,
    /// There are more keys than were asked for.
    pub(super) more: bool,
}

/// What a server has of storage, in bytes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    #[serde(rename = "dbSizeInUse")]
    pub(super) in_use: Int,
}

/// All changes of a range of keys from a revision on.
#[derive(Debug, Serialize)]
pub(super) struct Watch {
    pub(super) create_request: WatchFrom,
}

#[derive(Debug, Serialize)]
pub(super) struct WatchFrom {
    pub(super) key: Blob,
    pub(super) range_end: Blob,
    pub(super) start_revision: Int,
    /// Answers that are too long for one message come in several.
    pub(super) fragment: bool,
}

/// One line of a watch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchLine {
    pub(super) result: Watched,
    pub(super) error: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Watched {
    pub(super) canceled: bool,
    pub(super) cancel_reason: String,
    /// What was asked for is forgotten up to here.
    pub(super) compact_revision: Int,
    pub(super) events: Vec<WatchEvent>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchEvent {
    /// `PUT`, also when it is absent, or `DELETE`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) kv: KeyValue,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response {
    pub(super) response_range: Found,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Outcome {
    pub(super) header: Header,
    pub(super) succeeded: bool,
    pub(super) responses: Vec<Response>,
}

impl Outcome {
    /// All that the ranges of the transaction found.
    pub(super) fn found(self) -> Vec<KeyValue> {
        self.responses.into_iter().flat_map(|response| response.response_range.kvs).collect()
    }
}

/// What a server says that refuses. A call that is a stream, as a lease's renewal is, has it one
/// level deeper from etcd 3.6 on (its gateway has version 2 then).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    code: i64,
    message: String,
    error: Within,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Within {
    Text(String),
    Status { code: i64, message: String },
}

impl Default for Within {
    fn default() -> Within {
        Within::Text(String::new())
    }
}

impl Refusal {
    /// The code of gRPC and the words; `None` of what is no refusal of etcd's.
    pub(super) fn into_status(self) -> Option<(i64, String)> {
        let (code, message) = match self.error {
            Within::Status { code, message } if self.code == 0 => (code, message),
            Within::Text(error) if self.message.is_empty() => (self.code, error),
            Within::Text(_) | Within::Status { .. } => (self.code, self.message),
        };
        (code != 0).then_some((code, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_all_versions_refuse_in_words_that_are_understood() {
        let says = |text: &str| serde_json::from_str::<Refusal>(text).unwrap().into_status();
        let invalid = Some((16, "etcdserver: invalid auth token".to_owned()));
        for text in [
            // 3.4 and 3.5.
            r#"{"error":"etcdserver: invalid auth token","code":16,
                "message":"etcdserver: invalid auth token"}"#,
            r#"{"error":"etcdserver: invalid auth token","code":16}"#,
            // 3.6, of a call and of a stream.
            r#"{"code":16,"message":"etcdserver: invalid auth token","details":[]}"#,
            r#"{"error":{"code":16,"message":"etcdserver: invalid auth token"}}"#,
        ] {
            assert_eq!(says(text), invalid, "{text}");
        }
        for text in ["{}", r#"{"error":"not found"}"#, r#"{"error":{"code":0,"message":"fine"}}"#] {
            assert_eq!(says(text), None, "{text}");
        }
    }
}
