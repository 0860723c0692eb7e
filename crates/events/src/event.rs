use crate::secrets::{hide_in_text, hide_in_value};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// The longest text of a value, in bytes of JSON.
const VALUE_MAX: usize = 2_048;

/// The longest reason, in bytes.
const WHY_MAX: usize = 1_024;

/// The longest name or operation, in bytes.
const NAME_MAX: usize = 256;

/// The most disks that an event names.
const DISKS_MAX: usize = 16;

/// Who did something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Who {
    /// The daemon by itself.
    Daemon,
    /// A process of this host, as the kernel knows it.
    Process {
        /// Its effective user.
        user: u32,
        /// Its effective group.
        group: u32,
        /// Its number; absent for one of another namespace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<i32>,
    },
    /// Somebody with a certificate.
    Certificate {
        /// The name in it.
        name: String,
        /// Where they came from.
        address: String,
    },
    /// Somebody with a token.
    Token {
        /// The token's name.
        name: String,
        /// Where they came from.
        address: String,
    },
    /// Nobody knows.
    Unknown {
        /// Where they came from, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
    },
}

impl Who {
    /// The same without what a peer can change at will: its process, its port.
    pub fn without_instance(&self) -> Who {
        let host =
            |address: &str| address.rsplit_once(':').map_or(address, |(host, _)| host).into();
        match self {
            Who::Daemon => Who::Daemon,
            Who::Process { user, .. } => Who::Process { user: *user, group: 0, process: None },
            Who::Certificate { name, .. } => {
                Who::Certificate { name: name.clone(), address: String::new() }
            }
            Who::Token { name, .. } => Who::Token { name: name.clone(), address: String::new() },
            Who::Unknown { address } => Who::Unknown { address: address.as_deref().map(host) },
        }
    }
}

/// Prints as `user 0, process 4711` or `certificate ops at 10.0.0.7:40312`.
impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Daemon => f.write_str("daemon"),
            Who::Process { user, process: Some(process), .. } => {
                write!(f, "user {user}, process {process}")
            }
            Who::Process { user, process: None, .. } => write!(f, "user {user}, process unknown"),
            Who::Certificate { name, address } => write!(f, "certificate {name} at {address}"),
            Who::Token { name, address } => write!(f, "token {name} at {address}"),
            Who::Unknown { address: Some(address) } => write!(f, "unknown at {address}"),
            Who::Unknown { address: None } => f.write_str("unknown"),
        }
    }
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Subject {
    /// `disk`, `datastore`, `vm`, `export`, `shard` and so on.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl Subject {
    /// By kind and name.
    pub fn new(kind: impl Into<String>, name: impl Into<String>) -> Subject {
        Subject { kind: kind.into(), name: name.into() }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It is in force, or has begun.
    Taken,
    /// It was refused, and nothing is changed.
    Refused,
    /// It was tried, and failed.
    Failed,
    /// Nobody asked for it: the daemon noticed it.
    Noticed,
}

impl Outcome {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Taken => "taken",
            Outcome::Refused => "refused",
            Outcome::Failed => "failed",
            Outcome::Noticed => "noticed",
        }
    }
}

/// Whose space an event takes: none of them is displaced by another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Changes of those who may change everything.
    Changes,
    /// Changes of those who may change what is theirs.
    Tenants,
    /// What was refused or failed.
    Refused,
    /// What the daemon did or noticed.
    Daemon,
}

impl Stream {
    /// All of them.
    pub const ALL: [Stream; 4] =
        [Stream::Changes, Stream::Tenants, Stream::Refused, Stream::Daemon];

    /// The word for it, with which its files' names begin.
    pub fn as_str(self) -> &'static str {
        match self {
            Stream::Changes => "changes",
            Stream::Tenants => "tenants",
            Stream::Refused => "refused",
            Stream::Daemon => "daemon",
        }
    }
}

/// What there is to tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Entry {
    /// Who did it.
    pub by: Who,
    /// What was done, in the command line's words where it has some: `disk set`.
    pub operation: String,
    /// To what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Subject>,
    /// The disks that it concerns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<String>,
    /// The virtual machines that these disks belonged to, before and after; none where one of them
    /// belonged to none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<String>,
    /// What came of it.
    pub result: Outcome,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What was before, of what is different now, by names such as `policy.limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub old: Option<Value>,
    /// What is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub new: Option<Value>,
    /// What was asked for, as it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub asked: Option<Value>,
    /// How many like it were not written down since the last one that was.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unwritten: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Entry {
    /// With nothing but who, what, and what came of it.
    pub fn new(by: Who, operation: impl Into<String>, result: Outcome) -> Entry {
        Entry {
            by,
            operation: operation.into(),
            object: None,
            disks: Vec::new(),
            machines: Vec::new(),
            result,
            why: None,
            old: None,
            new: None,
            asked: None,
            unwritten: 0,
        }
    }

    /// What the daemon did by itself.
    pub fn done(operation: impl Into<String>) -> Entry {
        Entry::new(Who::Daemon, operation, Outcome::Taken)
    }

    /// What the daemon noticed.
    pub fn noticed(operation: impl Into<String>) -> Entry {
        Entry::new(Who::Daemon, operation, Outcome::Noticed)
    }

    /// About a disk.
    pub fn of_disk(mut self, disk: impl fmt::Display) -> Entry {
        let name = disk.to_string();
        self.disks.push(name.clone());
        self.object = Some(Subject::new("disk", name));
        self
    }

    /// About a datastore.
    pub fn of_datastore(mut self, datastore: impl fmt::Display) -> Entry {
        self.object = Some(Subject::new("datastore", datastore.to_string()));
        self
    }

    /// For this reason.
    pub fn because(mut self, why: impl fmt::Display) -> Entry {
        self.why = Some(why.to_string());
        self
    }

    /// With what is now.
    pub fn with_new(mut self, new: Value) -> Entry {
        self.new = Some(new);
        self
    }

    /// The same without secrets, and no longer than a line may be.
    #[must_use]
    pub fn fit(mut self) -> Entry {
        self.by = self.by.fit();
        shorten(&mut self.operation, NAME_MAX);
        if let Some(object) = &mut self.object {
            shorten(&mut object.kind, NAME_MAX);
            shorten(&mut object.name, NAME_MAX);
        }
        self.disks.truncate(DISKS_MAX);
        self.disks.iter_mut().for_each(|disk| shorten(disk, NAME_MAX));
        if let Some(why) = &mut self.why {
            *why = hide_in_text(why);
            shorten(why, WHY_MAX);
        }
        for value in [&mut self.old, &mut self.new, &mut self.asked].into_iter().flatten() {
            hide_in_value(value);
            let mut text = value.to_string();
            if text.len() > VALUE_MAX {
                shorten(&mut text, VALUE_MAX / 2);
                *value = serde_json::json!({ "shortened": text });
            }
        }
        self
    }
}

impl Who {
    fn fit(mut self) -> Who {
        match &mut self {
            Who::Certificate { name, address } | Who::Token { name, address } => {
                shorten(name, NAME_MAX);
                shorten(address, NAME_MAX);
            }
            Who::Unknown { address: Some(address) } => shorten(address, NAME_MAX),
            Who::Unknown { address: None } | Who::Daemon | Who::Process { .. } => {}
        }
        self
    }
}

/// Cuts a text at a letter's end.
fn shorten(text: &mut String, most: usize) {
    if text.len() > most {
        let end = (0..=most).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// Its number: larger than those of all events before it. Numbers may be left out.
    pub id: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// What.
    #[serde(flatten)]
    pub entry: Entry,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The longest that can be, however long what is asked is.
    #[test]
    fn whatever_is_told_fits_a_line() {
        let long = "\u{1}\u{e9}".repeat(50_000);
        let mut entry = Entry::new(
            Who::Certificate { name: long.clone(), address: long.clone() },
            long.clone(),
            Outcome::Refused,
        );
        entry.object = Some(Subject::new(long.clone(), long.clone()));
        entry.disks = vec![long.clone(); 100];
        entry.why = Some(long.clone());
        let value = Some(json!({ "x": long }));
        (entry.old, entry.new, entry.asked) = (value.clone(), value.clone(), value);
        let event = Event { id: u64::MAX, at_ms: u64::MAX, entry: entry.fit() };
        let line = crate::encode(&event).unwrap();
        assert!(line.len() < crate::shelf::LINE_MAX, "{} bytes", line.len());
        assert_eq!(crate::decode(&line[..line.len() - 1]).unwrap(), event);
    }

    #[test]
    fn a_peer_is_the_same_whatever_process_or_port_it_uses() {
        let process = |process| Who::Process { user: 7, group: process, process: Some(3) };
        assert_eq!(process(1).without_instance(), process(2).without_instance());
        let at = |port: u16| Who::Unknown { address: Some(format!("[::1]:{port}")) };
        assert_eq!(at(1).without_instance(), at(2).without_instance());
        assert_ne!(at(1).without_instance(), Who::Unknown { address: None });
    }
}
