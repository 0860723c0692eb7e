use crate::identity::Identity;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Which holder of a disk this is, counted from the first: a later one has a greater number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub u64);

/// Who serves a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The host's name.
    pub name: String,
    /// The host's [`HostId`](crate::HostId).
    pub host: String,
    /// The [`InstanceId`](crate::InstanceId) of its daemon.
    pub instance: String,
    /// The daemon's process.
    pub pid: u32,
}

impl Holder {
    /// This process, as this host's daemon.
    pub fn of(identity: &Identity) -> Holder {
        Holder {
            name: identity.name.to_string(),
            host: identity.host.to_string(),
            instance: identity.instance.to_string(),
            pid: std::process::id(),
        }
    }
}

/// Prints without what could disturb a terminal: this comes from a file that others write.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name: String = self.name.chars().filter(|c| !c.is_control()).take(64).collect();
        write!(f, "host '{name}' (headgate process {})", self.pid)
    }
}

/// Why a disk may not be served here.
#[derive(Debug, Error)]
pub enum LeaseError {
    /// Another serves it.
    #[error("disk '{disk}' is served by {holder}")]
    Held {
        /// The disk.
        disk: String,
        /// Who.
        holder: Holder,
        /// Its number, which a forced takeover has to name.
        token: Token,
    },
    /// Another serves it and cannot be named.
    #[error(
        "disk '{disk}' is served by another process, which left no name in {path}: stop it first"
    )]
    HeldByUnknown {
        /// The disk.
        disk: String,
        /// The lease's file.
        path: PathBuf,
    },
    /// The file of a lease could not be used.
    #[error("cannot {doing} the lease {path}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// No etcd server answered as it should.
    #[error(transparent)]
    Etcd(#[from] crate::etcd::EtcdError),
}
