//! What hosts that share a datastore tell each other.
//!
//! # The congestion board
//! Every host that uses a datastore says once a period what it saw there and what it does: its mean
//! latency, its IOs, its window, its active shares
//! ([`HostReport`](headgate_qos::window::HostReport)). The windows follow from what all of them say
//! ([`headgate_qos::window`]). A [`Board`] is where they say it:
//!
//! | board | where | needs |
//! |---|---|---|
//! | [`FileBoard`] | a file on the datastore itself, a block per host, as in the paper | nothing |
//! | [`EtcdBoard`] | a key per host, with a lease | etcd 3.4 or later |
//!
//! Hosts judge each other by one thing: whether their word [changes](sightings). No clock but the
//! reader's own matters. [`Identity`] says who is who; two machines that claim to be one are
//! [noticed](View::duplicate).
//!
//! A board may hang as storage does. A [`Courier`] keeps it on a thread of its own.
//!
//! # Summaries
//! Hosts that meet in etcd tell each other of their disks and datastores. [`EtcdWords`] has the
//! keys that all of them write and watch; what is in them `headgate-fleet` knows.
//!
//! # Leases
//! Two hosts never serve one disk: [`lease`]. Where the device can, it refuses the writes of a host
//! that it was taken from: [`fence`].

mod blocks;
mod board;
mod courier;
mod etcd;
pub mod fence;
mod file;
mod identity;
pub mod lease;
mod record;
pub mod sightings;

pub use board::{Board, BoardError, View};
pub use courier::{Courier, News};
pub use etcd::{
    Client, Endpoint, EndpointError, EtcdBoard, EtcdError, EtcdLeases, EtcdWords, KeyChange,
    LoginError, Reading, Servers, ServersError,
};
pub use file::{BOARD_FILE, FileBoard, HOSTS_MAX};
pub use identity::{HostId, HostName, Identity, IdentityError, InstanceId, NAME_MAX, Origin};
pub use record::{RECORD, Record, RecordError, RecordKey};
pub use sightings::PeerHost;
