//! What can be told of a window.

use headgate_cluster::PeerHost;
use headgate_qos::window::{
    Activity, Change, Config, Following, HostReport, Observation, Slots, Unmanaged, Update,
};
use headgate_units::Nanos;

/// Whether the other hosts' word is heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoardState {
    /// There is no board.
    Alone,
    /// It has been read for less than two periods.
    Starting,
    /// It is.
    Read,
    /// It cannot be used, for this reason.
    Unreachable(String),
}

/// Another host on the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// What people call it.
    pub name: String,
    /// Its identity.
    pub id: String,
    /// What it said last.
    pub report: HostReport,
    /// How long ago.
    pub age: Nanos,
}

impl Host {
    pub(super) fn of(peer: &PeerHost) -> Host {
        let record = &peer.record;
        Host {
            name: record.name.to_string(),
            id: record.host.to_string(),
            report: record.report,
            age: peer.age,
        }
    }
}

/// A threshold that follows the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// What it is, without what a trial adds.
    pub base: Nanos,
    /// What it is about.
    pub activity: Activity,
    /// How often it became another since the window is controlled.
    pub changes: u64,
    /// The last time.
    pub last: Option<Change>,
}

impl Followed {
    pub(super) fn of(following: &Following, last: Option<Change>) -> Followed {
        Followed {
            base: following.base(),
            activity: following.activity(),
            changes: following.changes(),
            last,
        }
    }
}

/// A controlled window.
#[derive(Clone, Debug)]
pub struct Status {
    /// Whether a measurement has set it aside.
    pub suspended: bool,
    /// How it is controlled.
    pub config: Config,
    /// What it is.
    pub window: Slots,
    /// How the last period ended; `None` before the first.
    pub last: Option<Update>,
    /// Its threshold, where that follows the storage.
    pub following: Option<Followed>,
    /// What this host saw in it.
    pub own: Option<Observation>,
    /// Load that no window controls, while there is any.
    pub unmanaged: Option<Unmanaged>,
    /// Periods that ended.
    pub periods: u64,
    /// Where the hosts meet.
    pub place: Option<String>,
    /// Whether they can.
    pub board: BoardState,
    /// How often the board was written and read.
    pub exchanges: u64,
    /// Places on the board that hold no good report.
    pub unreadable: u32,
    /// The name of another living host with this host's identity: a clone.
    pub duplicate: Option<String>,
    /// The other hosts.
    pub hosts: Vec<Host>,
}
