//! The window of a host at a datastore, and what controls it.

use crate::record::WindowRecorder;
use crate::scenario::Knowledge;
use headgate_qos::window::{HostReport, Periods, Sightings};

/// The window of one host at one datastore.
pub(super) struct HostWindow {
    pub(super) gate: u32,
    pub(super) host: usize,
    pub(super) datastore: usize,
    pub(super) recorder: WindowRecorder,
    /// None where it is fixed.
    pub(super) control: Option<Box<Control>>,
}

/// What the daemon's window thread holds of a datastore.
pub(super) struct Control {
    pub(super) periods: Periods<u32>,
    pub(super) has_begun: bool,
    pub(super) knowledge: Knowledge,
    /// Its number on the datastore's board.
    pub(super) number: usize,
    pub(super) sightings: Sightings<usize, HostReport>,
    /// The host's disks there.
    pub(super) disks: Vec<u32>,
}
