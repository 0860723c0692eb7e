use crate::equations::{CellTimes, Utilisation};
use headgate_units::Iops;

/// How a translation layer works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whether owners share blocks and over-provisioning space.
    pub isolation: Isolation,
    /// Which block is collected. Default: greedy.
    pub victims: Victims,
    /// When collection runs.
    pub thresholds: Thresholds,
    /// The most open blocks that writes of one stream go round, so that dies work at once. At most
    /// one for each plane; owners with little over-provisioning space get fewer, since open blocks
    /// come out of it. Default: one for each plane.
    pub stripe: u32,
    /// Whether moved pages go to blocks of their own. Default: together.
    pub streams: Streams,
    /// Whether pages are moved within their plane without a transfer. Default: where there is an
    /// open block in it.
    pub copy_back: CopyBack,
    /// How far apart the wear of blocks may be.
    pub levelling: Levelling,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            isolation: Isolation::Shared,
            victims: Victims::Greedy,
            thresholds: Thresholds { foreground: 1, background: 4 },
            stripe: u32::MAX,
            streams: Streams::Together,
            copy_back: CopyBack::InPlane,
            levelling: Levelling::Spread(32),
        }
    }
}

/// Whether owners share blocks and over-provisioning space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// The conventional layer: whoever writes next gets the next page, whoever needs space moves
    /// others' pages.
    Shared,
    /// Blocks are an owner's alone; over-provisioning space is divided by weight once, and again
    /// when owners come and go.
    Static,
    /// As `Static` at first, then each owner's space follows its target.
    Dynamic(Control),
}

/// How space follows targets ([`Isolation::Dynamic`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Page writes per second of the whole device, if given. Owners without a target of their own
    /// get their part of it by weight.
    pub rated: Iops,
    /// Whether it is given or sought.
    pub rating: Rating,
    /// What writes are taken to cost.
    pub targets: Targets,
    /// Times of the chip in equation 1; `read` and `erase` do not count. Where costs are measured,
    /// these hold until they are.
    pub times: CellTimes,
    /// How far from its target an owner's utilisation may be before its space changes. A twentieth
    /// of the target's rate counts where that is less.
    pub hysteresis: Utilisation,
    /// Victims over which utilisation is averaged (exponentially), 1 or more.
    pub window: u32,
}

impl Control {
    /// Control for a device of so many page writes per second by measured costs, with a hysteresis
    /// of 0.01 and a window of 64 victims.
    pub fn new(rated: Iops, times: CellTimes) -> Control {
        Control {
            rated,
            rating: Rating::Given,
            targets: Targets::Measured,
            times,
            hysteresis: Utilisation::from_millionths(10_000),
            window: 64,
        }
    }
}

/// Where the rate of the whole device comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rating {
    /// It is known.
    Given,
    /// It is what owners achieve together with the over-provisioning space there is, and follows
    /// that: nobody has to know it, and [`Control::rated`] does not count. Owners that do not write
    /// take no part in it, and those that have the least space only where nobody has more.
    Sought,
}

/// What an owner's writes are taken to cost where rates become utilisations and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Targets {
    /// What the chip takes, by equation 1: one write after the other, no reads. For every owner the
    /// same, whatever it does.
    Published,
    /// What each owner's do take, as [`Ftl::spent`](crate::Ftl::spent) is told: so an owner's rate
    /// is that at which it writes while it wants something, and it is this that is to be on
    /// target.
    Measured,
}

/// Which block is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victims {
    /// The one with the fewest valid pages; of these the one longest unchanged.
    Greedy,
    /// The one with the greatest age·(1 - u)/(2u), age being the page programs since a page in it
    /// was last overwritten.
    CostBenefit,
    /// The one opened first.
    Fifo,
}

/// When collection runs, in free blocks: of the medium when owners share it, else of each owner's
/// part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// A write that would leave fewer waits for collection. 1 or more: collection needs a block to
    /// move pages to. With as many as there are planes, most moved pages find an open block in
    /// their own.
    pub foreground: u32,
    /// With fewer, [`Ftl::work`](crate::Ftl::work) has something to do. At most a quarter of the
    /// over-provisioning space counts, or background collection would undo it.
    pub background: u32,
}

/// Whether moved pages go to blocks of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// Into the same blocks as what hosts write.
    Together,
    /// Into others: what lives longer stays together.
    Apart,
}

/// Whether pages are moved within their plane without a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyBack {
    /// Where an open block is in the same plane.
    InPlane,
    /// Never: moved pages are read and programmed.
    Never,
}

/// How far apart the wear of blocks may be.
///
/// The least worn free block is always used first. That does not reach blocks with data that nobody
/// overwrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Levelling {
    /// Whatever comes of it.
    Off,
    /// The erases that the most worn block may have had more than the least worn one, roughly. From
    /// half of it on, the pages of the least worn block with data, whosever it is, move to the most
    /// worn free one, for every sixteenth block that is collected; beyond it for every fourth.
    Spread(u32),
}
