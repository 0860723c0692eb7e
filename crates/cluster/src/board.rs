use crate::record::Record;
use crate::sightings::PeerHost;
use headgate_qos::window::{HostReport, Peer};
use headgate_units::Nanos;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Where the hosts of one datastore tell each other of it.
///
/// Blocks, possibly for long: storage that hangs hangs the board with it. So a board lives on a
/// thread of its own ([`Courier`](crate::Courier)); nothing that serves disks ever waits for it.
pub trait Board: Send {
    /// Tells the others `report` and reads what they say. `now` is the caller's monotonic clock.
    /// Once a period.
    ///
    /// # Errors
    /// When the board could not be read or written. The next call tries everything anew; nothing
    /// has to be done in between.
    fn exchange(&mut self, now: Nanos, report: &HostReport) -> Result<View, BoardError>;

    /// Reads what the others say, in periods of `period`, and tells them nothing.
    ///
    /// # Errors
    /// When the board could not be read.
    fn read(&mut self, now: Nanos, period: Nanos) -> Result<View, BoardError>;

    /// Takes the own report back, so that the others need not wait until it is old.
    ///
    /// # Errors
    /// When the board could not be written: then it grows old.
    fn leave(&mut self) -> Result<(), BoardError>;
}

/// What stands on the board.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The other hosts that were seen to live, however old their word is.
    pub peers: Vec<PeerHost>,
    /// Whether the board has been read for so long that no living host can be missing: two periods
    /// for a file, two readings for etcd.
    pub settled: bool,
    /// Another living host with this host's identity: a clone of this machine.
    pub duplicate: Option<Record>,
    /// Places with something other than a good record: damaged, half written, copied, of another
    /// version.
    pub unreadable: u32,
}

impl View {
    /// What the window controller needs. `None` until the view is settled: it is to be told then
    /// that the board cannot be read.
    pub fn peers(&self) -> Option<Vec<Peer>> {
        self.settled.then(|| self.peers.iter().map(PeerHost::peer).collect())
    }
}

/// Why a board could not be used.
#[derive(Debug, Error)]
pub enum BoardError {
    /// A system call on the board's file failed.
    #[error("cannot {doing} the board {path}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Something else has the board's name.
    #[error("the board {path} is no regular file: move away what is there")]
    NoFile {
        /// The file.
        path: PathBuf,
    },
    /// As many hosts as there may be have been seen within a short time.
    #[error("the board {path} has no free block: {hosts} hosts use it")]
    Full {
        /// The file.
        path: PathBuf,
        /// How many there may be.
        hosts: usize,
    },
    /// No etcd server answered as it should.
    #[error(transparent)]
    Etcd(#[from] crate::etcd::EtcdError),
}
