/// What dynamic isolation takes a disk's writes to cost.
pub use headgate_flash::Targets as SsdTargets;
use headgate_flash::{
    CellTimes, Config, Control, CopyBack, Ftl, Geometry, Image, Isolation, Rating, Thresholds,
    Utilisation, Victims,
};
use headgate_units::{Bytes, Iops};
use thiserror::Error;

const MILLION: u64 = 1_000_000;
/// Free blocks below which collection runs when nobody waits.
const BACKGROUND: u32 = 4;

/// Whether disks share erase blocks and over-provisioning space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SsdIsolation {
    /// The conventional drive: all write into the same blocks.
    None,
    /// Each has blocks and over-provisioning space of its own, by shares.
    Static,
    /// As `Static` at first, then its space follows its target rate.
    Dynamic,
}

/// Where the rate comes from that dynamic isolation divides by shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SsdRating {
    /// What the disks that write achieve together with the space there is.
    Sought,
    /// Page writes per second of the whole drive.
    Given(Iops),
}

/// Which block is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SsdVictims {
    /// The one with the fewest valid pages.
    Greedy,
    /// By age and valid pages.
    CostBenefit,
    /// The oldest.
    Fifo,
}

/// What a drive was used for before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SsdAge {
    /// As it comes from the factory: no page was ever written.
    New,
    /// All pages of each disk were written once, one disk after the other.
    Full,
    /// Then pieces of 4 to 32 KiB anywhere on all disks, twice the capacity together.
    Aged,
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Switch {
    /// It is.
    Yes,
    /// It is not.
    No,
}

/// A flash drive, as configured. Always valid.
///
/// The times and the shape are those of DiskSim's SSD extension: 8 dies, each with a channel and 8
/// planes, blocks of 64 pages of 4 KiB, 25 us to read, 200 us to program, 1.5 ms to erase, 102.4 us
/// for the transfer of a page, and 15 % of over-provisioning space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsdSpec {
    pub(crate) size: Bytes,
    /// Over-provisioning space in millionths of the size.
    pub(crate) over: u32,
    pub(crate) channels: u32,
    pub(crate) dies: u32,
    pub(crate) planes: u32,
    /// Pages of a block.
    pub(crate) block: u32,
    pub(crate) page: Bytes,
    pub(crate) times: CellTimes,
    pub(crate) buffer: Bytes,
    pub(crate) isolation: SsdIsolation,
    pub(crate) rated: SsdRating,
    pub(crate) targets: SsdTargets,
    pub(crate) hysteresis: Utilisation,
    pub(crate) victims: SsdVictims,
    pub(crate) background: Switch,
    pub(crate) copyback: Switch,
    pub(crate) aged: SsdAge,
    pub(crate) seed: u64,
}

/// A drive that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SsdSpecError {
    /// Size out of range.
    #[error("an ssd has 4 MiB to 64 GiB, not {0}; give a size in that range")]
    Size(Bytes),
    /// A number of parts out of range.
    #[error("an ssd has 1 to {most} {what}, not {given}; give a number in that range")]
    Parts {
        /// Of what.
        what: &'static str,
        /// The most.
        most: u32,
        /// As given.
        given: u32,
    },
    /// Block out of range.
    #[error("a block has 2 to 4096 pages, not {0}; give a number in that range")]
    Block(u32),
    /// Page out of range.
    #[error("a page is 512 bytes to 64 KiB and a power of two, not {0}; give such a size")]
    Page(Bytes),
    /// Over-provisioning space out of range.
    #[error("over-provisioning space is 1% to 400% of the size; give a percentage in that range")]
    Over,
    /// Too few blocks in each plane for anything to be collected.
    #[error(
        "{blocks} blocks hold no more than the {size} of the ssd and the least over-provisioning space; give more op, a larger size, \
         or fewer dies or planes"
    )]
    TooSmall {
        /// Blocks of the whole drive.
        blocks: u32,
        /// Its size.
        size: Bytes,
    },
    /// Buffer out of range.
    #[error("a write buffer is 0 (none) to 1 GiB, not {0}; give a size in that range")]
    Buffer(Bytes),
}

impl SsdSpec {
    /// A drive of so many bytes for disks, all else as by default: shared by its disks, without a
    /// write buffer, new.
    ///
    /// # Errors
    /// [`SsdSpecError`].
    pub fn new(size: Bytes) -> Result<SsdSpec, SsdSpecError> {
        SsdSpec::unchecked(size).checked()
    }

    pub(crate) fn unchecked(size: Bytes) -> SsdSpec {
        SsdSpec {
            size,
            over: 150_000,
            channels: 8,
            dies: 8,
            planes: 8,
            block: 64,
            page: Bytes::from_kib(4),
            times: CellTimes::DISKSIM,
            buffer: Bytes(0),
            isolation: SsdIsolation::None,
            rated: SsdRating::Sought,
            targets: SsdTargets::Measured,
            hysteresis: Utilisation::from_millionths(10_000),
            victims: SsdVictims::Greedy,
            background: Switch::Yes,
            copyback: Switch::Yes,
            aged: SsdAge::New,
            seed: 1,
        }
    }

    /// What disks can be placed on it.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Whether its disks share blocks.
    pub fn isolation(&self) -> SsdIsolation {
        self.isolation
    }

    /// Over-provisioning space in millionths of the size, as asked for; the drive has it to the
    /// nearest block of each plane.
    pub fn over_provisioning(&self) -> u32 {
        self.over
    }

    /// Pages of an erase block: N_p.
    pub fn pages_per_block(&self) -> u32 {
        self.block
    }

    pub(crate) fn checked(self) -> Result<SsdSpec, SsdSpecError> {
        if self.size < Bytes::from_mib(4) || self.size > Bytes::from_gib(64) {
            return Err(SsdSpecError::Size(self.size));
        }
        let parts = [
            ("dies", self.dies, 64),
            ("planes in each die", self.planes, 16),
            ("channels", self.channels, self.dies),
        ];
        for (what, given, most) in parts {
            if !(1..=most).contains(&given) {
                return Err(SsdSpecError::Parts { what, most, given });
            }
        }
        if !(2..=4_096).contains(&self.block) {
            return Err(SsdSpecError::Block(self.block));
        }
        if !(512..=65_536).contains(&self.page.0) || !self.page.0.is_power_of_two() {
            return Err(SsdSpecError::Page(self.page));
        }
        if !(10_000..=4_000_000).contains(&self.over) {
            return Err(SsdSpecError::Over);
        }
        if self.buffer > Bytes::from_gib(1) {
            return Err(SsdSpecError::Buffer(self.buffer));
        }
        let geometry = self.geometry()?;
        let data = self.pages().div_ceil(self.block);
        // What isolation takes for one disk: two blocks in transit, one open, one free, one for
        // levelling.
        if geometry.blocks() < data + 5 {
            return Err(self.too_small(geometry.blocks()));
        }
        Ok(self)
    }

    fn too_small(&self, blocks: u32) -> SsdSpecError {
        SsdSpecError::TooSmall { blocks, size: self.size }
    }

    /// Pages for disks.
    pub(crate) fn pages(&self) -> u32 {
        u32::try_from(self.size.0 / self.page.0).unwrap_or(u32::MAX)
    }

    /// Each plane has the same number of blocks: the nearest that there is.
    pub(crate) fn geometry(&self) -> Result<Geometry, SsdSpecError> {
        let pages = u64::from(self.pages()) * (MILLION + u64::from(self.over)) / MILLION;
        let row = u64::from(self.dies) * u64::from(self.planes) * u64::from(self.block);
        let blocks = u32::try_from((pages + row / 2) / row).unwrap_or(u32::MAX).max(1);
        Geometry::new(self.dies, self.planes, blocks, self.block, self.page)
            .map_err(|_| self.too_small(0))
    }

    /// A translation layer on new chips.
    pub(crate) fn translation(&self) -> Ftl<Image> {
        let geometry = self.geometry().expect("a checked drive has a geometry");
        Ftl::format(Image::new(geometry), self.config()).expect("a checked drive has blocks enough")
    }

    pub(crate) fn config(&self) -> Config {
        let isolation = match self.isolation {
            SsdIsolation::None => Isolation::Shared,
            SsdIsolation::Static => Isolation::Static,
            SsdIsolation::Dynamic => {
                let (rated, rating) = match self.rated {
                    // Where it begins makes no difference.
                    SsdRating::Sought => (Iops::MIN, Rating::Sought),
                    SsdRating::Given(rated) => (rated, Rating::Given),
                };
                Isolation::Dynamic(Control {
                    rating,
                    targets: self.targets,
                    hysteresis: self.hysteresis,
                    ..Control::new(rated, self.times)
                })
            }
        };
        let victims = match self.victims {
            SsdVictims::Greedy => Victims::Greedy,
            SsdVictims::CostBenefit => Victims::CostBenefit,
            SsdVictims::Fifo => Victims::Fifo,
        };
        let background = match self.background {
            Switch::Yes => BACKGROUND,
            Switch::No => 0,
        };
        let copy_back = match self.copyback {
            Switch::Yes => CopyBack::InPlane,
            Switch::No => CopyBack::Never,
        };
        let thresholds = Thresholds { foreground: 1, background };
        Config { isolation, victims, thresholds, copy_back, ..Config::default() }
    }
}
