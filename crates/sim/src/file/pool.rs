//! Pools, tides and sweeps, as a file says them.

use super::values::{At, MaybeBandwidth, Names, Percent, Size, Sizes, Stretch, Time, Weight};
use schemars::JsonSchema;
use serde::Deserialize;

/// Datastores among which disks are placed and moved, by models that are learnt in the run.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PoolFile {
    /// Which datastores; all unless given.
    pub(super) datastores: Option<At<Names>>,
    /// Length of an interval of statistics; 2s unless given.
    pub(super) sample: Option<At<Time>>,
    /// When advice is taken: every so long, or at these times. Never unless given.
    pub(super) advice: Option<At<Names>>,
    /// Whose advice; load unless given.
    pub(super) balance: Option<BalanceFile>,
    /// How disks on one device are taken to change each other; streams unless given.
    pub(super) interference: Option<InterferenceFile>,
    /// How disks move; instant unless given.
    pub(super) moves: Option<MovesFile>,
    /// moves = 'copy': pieces under way at once for each disk, 1 to 64; 2 unless given.
    pub(super) copy_outstanding: Option<At<u32>>,
    /// moves = 'copy': size of a piece, 4K to 8M; 256K unless given.
    pub(super) copy_piece: Option<At<Size>>,
    /// moves = 'copy': disks that are copied at once; 1 unless given.
    pub(super) copies: Option<At<u32>>,
    /// moves = 'copy': the most that all copies get of a datastore, bytes per second; 50M unless given. Costs of moves are judged by it.
    pub(super) copy_bandwidth: Option<At<MaybeBandwidth>>,
    /// moves = 'copy': their shares at a datastore; 1000 unless given, as a disk.
    pub(super) copy_shares: Option<At<Weight>>,
    /// Nothing moves for load while the imbalance is not above this; 10% unless given.
    pub(super) start: Option<At<Percent>>,
    /// Disks move until it is not above this; 5% unless given.
    pub(super) goal: Option<At<Percent>>,
    /// What moves between two datastores may miss the ideal load by all but this; 30% unless given.
    pub(super) gain: Option<At<Percent>>,
    /// A datastore is not relieved below this predicted latency; 1ms unless given.
    pub(super) latency: Option<At<Time>>,
    /// A move must pay within this; 24h unless given.
    pub(super) payback: Option<At<Time>>,
    /// A disk that has moved stays for so long; 24h unless given.
    pub(super) hold: Option<At<Time>>,
    /// And does not go back for so long; 7d unless given.
    pub(super) no_return: Option<At<Time>>,
    /// Moves after which requests take longer by more than this are taken back when advice is taken next, and nothing else moves until that is known;
    /// never unless given.
    pub(super) take_back: Option<At<Percent>>,
    /// So many disks move within 8h at most; 10 unless given.
    pub(super) most: Option<At<u32>>,
    /// Nothing is placed or moved where it would be fuller; 90% unless given.
    pub(super) full: Option<At<Percent>>,
    /// A fuller datastore is relieved; 80% unless given.
    pub(super) relieve: Option<At<Percent>>,
    /// Disks that must be on one datastore.
    #[serde(default)]
    pub(super) together: Vec<At<Names>>,
    /// Disks of which no two may be on one device.
    #[serde(default)]
    pub(super) apart: Vec<At<Names>>,
}

/// Whose advice is followed.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum BalanceFile {
    /// Nobody's.
    Off,
    /// As the daemon's: by models of workloads and datastores.
    Load,
    /// As many disks everywhere.
    Count,
    /// As full everywhere.
    Space,
}

/// How disks on one device are taken to change each other.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum InterferenceFile {
    /// Not at all, as the daemon has it unless told: the paper's models as printed.
    None,
    /// Other requests break sequential streams.
    Streams,
}

/// How disks move.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MovesFile {
    /// At once.
    Instant,
    /// By copying what is allocated.
    Copy,
}

/// Who chooses the datastore of a disk.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ChooserFile {
    /// As the daemon: the datastore with the least load for its ability.
    Load,
    /// Chance, by the seed.
    Random,
    /// The one with the fewest disks.
    Count,
    /// The one with most space.
    Space,
}

/// A kind of workload.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TypeFile {
    /// Its name.
    pub(super) name: At<String>,
    /// Size of its requests; 4K unless given.
    pub(super) size: Option<At<Sizes>>,
    /// Reads among its requests; 100% unless given.
    pub(super) read: Option<At<Percent>>,
    /// Requests that go anywhere; 100% unless given.
    pub(super) random: Option<At<Percent>>,
}

/// Hours in which closed loops have less outstanding: all together and each by itself up to a fifth, by chance.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TideFile {
    /// The least part of what they have: '1%' to '99%'.
    pub(super) low: At<Percent>,
    /// How often it changes.
    pub(super) every: At<Time>,
    /// When; at other times they have what they say.
    pub(super) during: Vec<At<Stretch>>,
}

/// A VM whose workload is every combination of these values, one after the other, each on a device that is as new.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SweepFile {
    /// What measures call it.
    pub(super) name: At<String>,
    /// The VM: with one disk and one workload, kind = 'closed', alone on its datastore.
    pub(super) vm: At<String>,
    /// Requests outstanding.
    pub(super) outstanding: At<Vec<u32>>,
    /// Their sizes.
    pub(super) size: At<Vec<Size>>,
    /// Reads among them.
    pub(super) read: At<Vec<Percent>>,
    /// Those that go anywhere.
    pub(super) random: At<Vec<Percent>>,
    /// How long each runs before it is measured.
    pub(super) settle: At<Time>,
    /// How long it is measured.
    pub(super) measure: At<Time>,
    /// A sweep whose constants are tried on these points, in place of their own.
    pub(super) constants_of: Option<At<String>>,
    /// With it: K5 as part of that sweep's, '200%' for twice the disks; 100% unless given.
    pub(super) k5: Option<At<Percent>>,
}

/// Points of a sweep: those with one of these values. Of what is not given, any.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SelectionFile {
    /// Requests outstanding.
    #[serde(default)]
    pub(super) outstanding: Vec<u32>,
    /// Their sizes.
    #[serde(default)]
    pub(super) size: Vec<Size>,
    /// Reads among them.
    #[serde(default)]
    pub(super) read: Vec<Percent>,
    /// Those that go anywhere.
    #[serde(default)]
    pub(super) random: Vec<Percent>,
}
