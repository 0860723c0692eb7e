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

mod bounds;
mod codec;
mod datastore;
mod disk;
mod host;
mod key;
mod part;
mod publisher;
mod quantity;
mod steady;
mod text;
mod view;

pub use bounds::{
    ADVICE_MAX, DATASTORES_EACH, DATASTORES_MAX, DISKS_EACH, DISKS_MAX, PART_MAX, VERSION,
};
pub use codec::PartError;
pub use datastore::{DatastoreWord, Evidence, Model, Service, Space};
pub use disk::{AdviceWord, Behind, Cause, DiskWord, Promise, Waits, Workload};
pub use host::{HostWord, Running};
pub use key::{HostKey, KeyError, PREFIX, PartKey, PartKind};
pub use part::{Header, Part, Summary};
pub use publisher::{Publisher, Write, period};
pub use quantity::{KEPT, Rate, SILENT_PERIODS, Thousandths, UnixSeconds};
pub use text::{HOST_NAME_MAX, NAME_MAX, NOTE_MAX, clipped};
pub use view::{
    Age, BYTES_MAX, Found, HOSTS_MAX, HostState, HostView, UNREADABLE_MAX, Unreadable, View,
};
