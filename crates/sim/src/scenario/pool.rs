//! Pools: where disks go, which move, and what workloads do meanwhile.

use headgate_devices::ModelSpec;
use headgate_placement::{Affinity, Mobility, Name, Permille, Rules};
use headgate_qos::Policy;
use headgate_units::{Bytes, Nanos};
use serde::Deserialize;

/// Datastores among which disks are placed and moved. Their models and what disks ask for are
/// learnt in the run, from the statistics that the daemon keeps.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pool {
    /// Which datastores.
    pub datastores: Vec<usize>,
    /// Length of an interval of statistics.
    pub sample: Nanos,
    /// When advice is taken, ascending.
    pub advice: Vec<Nanos>,
    /// The source of advice.
    pub balancing: Balancing,
    /// How it is followed.
    pub moves: Moves,
    /// Rules of placement.
    pub rules: Rules,
    /// Moves after which requests take longer by more than this are taken back when advice is taken
    /// next; none where there is none.
    pub take_back: Option<Permille>,
}

/// The source of the advice on moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Balancing {
    /// No advice: disks do not move.
    Off,
    /// The daemon's, by models of workloads and datastores: `headgate_placement::advise`.
    Load,
    /// From where most disks are to where fewest are, until they differ by one at most.
    Count,
    /// From the fullest datastore to the emptiest, the smallest disk first, while that makes them
    /// more alike.
    Space,
    /// All disks go anywhere with space by chance, by the seed, when advice is first taken; then
    /// they stay.
    Random,
    /// As [`Balancing::Random`], but whenever advice is taken: what no scenario asks for, and a
    /// wrong policy may do.
    #[serde(skip)]
    Restless,
}

/// Who chooses the datastore of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Chooser {
    /// The daemon's: the datastore with the least load for its ability
    /// (`headgate_placement::place`).
    Load,
    /// Chance, by the seed, among those with space.
    Random,
    /// The one with the fewest disks, of those with space.
    Count,
    /// The one with most space.
    Space,
}

/// How disks move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// At once, as if copies lay everywhere.
    Instant,
    /// By copying all that is allocated, while the guest works on.
    Copy(Copying),
}

/// A copy under a running guest, as the daemon makes it: the machine of `headgate_mirror`, held to
/// its part by `headgate_qos::Background`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copying {
    /// Steps under way at once.
    pub steps: u32,
    /// The data of a step, at most.
    pub step: Bytes,
    /// Disks that are copied at once; others wait.
    pub at_once: u32,
    /// The shares of each copy at a datastore, and its limits.
    pub pace: Policy,
}

/// A disk's place in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Membership {
    /// Whether it belongs to the pool. If not, it loads its datastore as a disk of another system
    /// would.
    pub listed: bool,
    /// Bytes that are allocated.
    pub used: Bytes,
    /// Whether it may move.
    pub mobility: Mobility,
    /// The disks that it moves with.
    pub affinity: Affinity,
    /// The class of datastore that it must be on.
    pub class: Option<Name>,
}

/// Hours in which all closed loops have less outstanding, by chance, together and each by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tide {
    /// The least part of what they have at most, in per cent.
    pub low: u8,
    /// How often it changes.
    pub every: Nanos,
    /// When; at other times all have what they say.
    pub during: Stretches,
}

/// Stretches of time, each with its end excluded.
pub type Stretches = Vec<(Nanos, Nanos)>;

/// A VM whose workload is, one after the other, every combination of some values; each time on a
/// device that is as new.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sweep {
    /// What the points are called in measures.
    pub name: String,
    /// The VM whose first workload it is.
    pub vm: usize,
    /// The device that is made new.
    pub device: ModelSpec,
    /// Requests outstanding.
    pub outstanding: Vec<u32>,
    /// Their size.
    pub sizes: Vec<Bytes>,
    /// Reads among them, in per cent.
    pub read: Vec<u8>,
    /// Those that go anywhere, in per cent.
    pub random: Vec<u8>,
    /// How long each runs before it is measured.
    pub settle: Nanos,
    /// How long it is measured.
    pub measure: Nanos,
    /// Another sweep whose constants are tried on these points, with so many per cent of its K5;
    /// its own where none is named.
    pub constants_of: Option<(String, u32)>,
}

impl Sweep {
    /// How many combinations there are.
    pub fn points(&self) -> usize {
        self.outstanding.len() * self.sizes.len() * self.read.len() * self.random.len()
    }

    /// One of them: outstanding, size, reads and randomness in per cent.
    pub(crate) fn combination(&self, index: usize) -> (u32, Bytes, u8, u8) {
        let (rest, random) = (index / self.random.len(), index % self.random.len());
        let (rest, read) = (rest / self.read.len(), rest % self.read.len());
        let (rest, size) = (rest / self.sizes.len(), rest % self.sizes.len());
        let outstanding = self.outstanding[rest % self.outstanding.len()];
        (outstanding, self.sizes[size], self.read[read], self.random[random])
    }
}
