//! Wire types of emulated flash drives.

use headgate_devices::{
    FlashCounters, FlashDrive, FlashStanding, Reach, SsdIsolation, SsdRating, Utilisation,
};
use headgate_model::FlashSample;
use headgate_model::Name;
use headgate_model::{DatastoreSample, DiskSample};
use headgate_units::Bytes;
use serde::{Deserialize, Serialize};

/// Space for disks on a datastore with a fixed capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Space {
    /// All of it, in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub size: Bytes,
    /// What no disk has, in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub left: Bytes,
}

/// Whether a flash drive's disks share its erase blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FlashIsolation {
    /// All disks write into the same blocks.
    None,
    /// Each has blocks and over-provisioning space of its own, by shares.
    Static,
    /// As `static` at first, then its space follows its target.
    Dynamic,
}

/// Where a flash drive's rate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FlashRating {
    /// It is what the disks that write achieve together.
    Sought,
    /// The operator gave it.
    Given,
}

/// Whether a disk's target can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FlashReach {
    /// There is no target, or nothing speaks against it.
    Open,
    /// The chips are slower even when nothing has to be moved.
    TooFast,
    /// It would take more over-provisioning space, and no other disk can give any.
    NoSpace,
    /// The disk has the least over-provisioning space and is still faster than its target.
    AtLeast,
}

/// What an emulated flash drive is, and what it did for all its disks since it was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Flash {
    /// Whether disks share erase blocks.
    pub isolation: FlashIsolation,
    /// Page writes per second that dynamic isolation divides by shares; `null` without it, and
    /// while it is not known.
    pub rated_page_writes_per_sec: Option<u64>,
    /// Where that rate comes from; `null` without dynamic isolation.
    pub rating: Option<FlashRating>,
    /// Size of a page in bytes.
    pub page_bytes: u64,
    /// Size of an erase block in bytes.
    pub block_bytes: u64,
    /// Over-provisioning space in blocks.
    pub spare_blocks: u32,
    /// Blocks of it that no disk owns.
    pub unassigned_blocks: u32,
    /// Pages that disks wrote.
    pub page_writes: u64,
    /// Pages that were moved by collection and by wear levelling.
    pub pages_moved: u64,
    /// Blocks erased.
    pub blocks_erased: u64,
    /// Pages programmed for each page that disks wrote; `null` before the first.
    pub write_amplification: Option<f64>,
    /// Its disks.
    pub disks: Vec<FlashDisk>,
}

/// What a flash drive did for a disk since that was opened, and what it has of the drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlashDisk {
    /// The disk.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Name,
    /// Pages that it wrote.
    pub page_writes: u64,
    /// Pages that were moved because it wrote.
    pub pages_moved_for: u64,
    /// Which part of them were its own, 0 to 1; `null` when none were moved.
    pub own_part: Option<f64>,
    /// Its pages that were moved, for any writer.
    pub pages_moved: u64,
    /// Blocks that were collected because it wrote.
    pub blocks_collected: u64,
    /// Pages programmed for each page that it wrote; `null` before the first.
    pub write_amplification: Option<f64>,
    /// Over-provisioning space in blocks; `null` if all disks share it.
    pub spare_blocks: Option<u32>,
    /// The least that it can have.
    pub least_spare_blocks: Option<u32>,
    /// u: the valid part of the latest collected blocks, 0 to 1, or of the shared ones if blocks
    /// are shared; `null` before the first.
    pub utilisation: Option<f64>,
    /// u*: what that has to be for its target; `null` without a target, or where none is low
    /// enough.
    pub target_utilisation: Option<f64>,
    /// How far from u* u may be before space moves.
    pub tolerance: Option<f64>,
    /// What it is to write by its shares, in pages per second, one after the other; `null` without
    /// dynamic isolation, and while not known.
    pub target_page_writes_per_sec: Option<u64>,
    /// Whether it can.
    pub reach: FlashReach,
}

fn part(u: Utilisation) -> f64 {
    f64::from(u.millionths()) / 1e6
}

fn amplification(writes: u64, more: u64) -> Option<f64> {
    (writes > 0).then(|| (writes + more) as f64 / writes as f64)
}

impl Flash {
    /// What of a sample is about flash; `None` where there is none under the datastore.
    pub fn of(sample: &DatastoreSample) -> Option<Flash> {
        let drive = sample.flash?;
        let FlashDrive { isolation, rating, rated, page, block, spare, unassigned, .. } = drive;
        let moved = drive.moved + drive.levelled;
        let isolation = match isolation {
            SsdIsolation::None => FlashIsolation::None,
            SsdIsolation::Static => FlashIsolation::Static,
            SsdIsolation::Dynamic => FlashIsolation::Dynamic,
        };
        let rating = match rating {
            SsdRating::Sought => FlashRating::Sought,
            SsdRating::Given(_) => FlashRating::Given,
        };
        Some(Flash {
            isolation,
            rated_page_writes_per_sec: rated.map(|rated| rated.get()),
            rating: (isolation == FlashIsolation::Dynamic).then_some(rating),
            page_bytes: page.0,
            block_bytes: block.0,
            spare_blocks: spare,
            unassigned_blocks: unassigned,
            page_writes: drive.writes,
            pages_moved: moved,
            blocks_erased: drive.erases,
            write_amplification: amplification(drive.writes, moved + drive.trims),
            disks: sample.disks.iter().filter_map(|disk| FlashDisk::of(disk, isolation)).collect(),
        })
    }
}

impl FlashDisk {
    fn of(sample: &DiskSample, isolation: FlashIsolation) -> Option<FlashDisk> {
        let FlashSample { counters, standing } = sample.flash?;
        let FlashCounters { writes, moved_for, moved_own_for, moved, victims, .. } = counters;
        let FlashStanding { spare, least_spare, .. } = standing;
        let own = isolation != FlashIsolation::None;
        Some(FlashDisk {
            name: sample.name.clone(),
            page_writes: writes,
            pages_moved_for: moved_for,
            own_part: (moved_for > 0).then(|| moved_own_for as f64 / moved_for as f64),
            pages_moved: moved,
            blocks_collected: victims,
            write_amplification: amplification(writes, moved_for),
            spare_blocks: own.then_some(spare),
            least_spare_blocks: own.then_some(least_spare),
            utilisation: standing.utilisation.map(part),
            target_utilisation: standing.target_utilisation.map(part),
            tolerance: standing.tolerance.map(part),
            target_page_writes_per_sec: standing.target.map(|target| target.get()),
            reach: match standing.reach {
                Reach::Open => FlashReach::Open,
                Reach::TooFast => FlashReach::TooFast,
                Reach::NoSpace => FlashReach::NoSpace,
                Reach::AtLeast => FlashReach::AtLeast,
            },
        })
    }
}
