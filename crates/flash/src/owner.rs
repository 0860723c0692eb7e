use core::fmt;
use headgate_units::{Iops, Shares};

/// Who a page belongs to: a disk, by a number that its caller chose.
///
/// Small numbers make small tables. A number may be given to another disk after its first one was
/// removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u16);

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What an owner is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerSpec {
    /// Its logical pages, 1 or more.
    pub pages: u32,
    /// Its weight: by it over-provisioning space and target rates are divided.
    pub shares: Shares,
    /// Page writes per second that it is to reach. `None`: its part of the device's rated rate, by
    /// weight.
    pub target: Option<Iops>,
}

impl OwnerSpec {
    /// An owner of so many pages with the default shares.
    pub fn pages(pages: u32) -> OwnerSpec {
        OwnerSpec { pages, shares: Shares::default(), target: None }
    }
}

/// An owner as its caller has to remember it, to find its pages again after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownOwner {
    /// Its number.
    pub id: OwnerId,
    /// What it was given.
    pub spec: OwnerSpec,
    /// The sequence number at which it came: what bears its number and is older was another
    /// owner's.
    pub since: u64,
}

/// What happened to an owner's pages since it came (or since the layer was rebuilt).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerStats {
    /// Pages that it wrote.
    pub host_writes: u64,
    /// Pages that it read and that had data.
    pub host_reads: u64,
    /// Its pages that collection moved, whoever caused it.
    pub moved: u64,
    /// Its pages that wear levelling moved.
    pub levelled: u64,
    /// Blocks that were collected because it wrote.
    pub victims: u64,
    /// Pages of those blocks that were valid.
    pub victim_valid: u64,
    /// Those blocks that held valid pages of more than one owner.
    pub victims_mixed: u64,
    /// Pages moved because it wrote, its own and others'.
    pub moved_for: u64,
    /// Of these, its own.
    pub moved_own_for: u64,
}
