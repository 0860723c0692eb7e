//! What hosts tell each other of themselves, and the view of all of them.
//!
//! A host's summary is cut into *parts*: the host itself, its datastores, its disks, its advice.
//! Each part is a value of bounded size under a key of its own ([`PartKey`]).
//!
//! | what | where |
//! |---|---|
//! | a host's summary | [`Summary`] |
//! | parts as bytes, and back | [`Part::encode`], [`Part::decode`] |
//! | which parts are to be told now, and how often | [`Publisher`] |
//! | what all hosts have told, how old it is, who is down | [`View`] |
//!
//! Nothing here has a clock, a socket or etcd: `headgate-daemon` drives it, and
//! `docs/decisions/0116-fleet.md` says why it is so.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod codec;
mod datastore;
mod disk;
mod host;
mod key;
mod part;
mod publisher;
mod steady;
mod text;
mod view;

pub use codec::PartError;
pub use datastore::{DatastoreWord, Evidence, Model, Service, Space};
pub use disk::{AdviceWord, Cause, DiskWord, Promise, Waits, Workload};
pub use host::{HostWord, Running};
pub use key::{HostKey, KeyError, PREFIX, PartKey, PartKind};
pub use part::{
    ADVICE_MAX, DATASTORES_EACH, DATASTORES_MAX, DISKS_EACH, DISKS_MAX, Header, PART_MAX, Part,
    Summary, VERSION,
};
pub use publisher::{Publisher, Write, period};
pub use text::{HOST_NAME_MAX, NAME_MAX, NOTE_MAX, clipped};
pub use view::{
    Age, BYTES_MAX, Found, HOSTS_MAX, HostState, HostView, UNREADABLE_MAX, Unreadable, View,
};

use headgate_units::Nanos;

/// How long a host that is down is shown: as long as its parts are kept after its last word.
pub const KEPT: Nanos = Nanos::from_secs(24 * 60 * 60);

/// How many of its periods a host may be silent before it counts as down.
pub const SILENT_PERIODS: u64 = 3;

/// A rate in events or bytes per second. Unlike a promise it may be 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

/// A part of a whole, in thousandths: 0 to 1,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thousandths(pub u64);

/// Seconds since 1970 by the clock of the host that says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);
