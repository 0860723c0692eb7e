use crate::equations::Utilisation;
use headgate_units::Iops;

/// What the layer did to its medium since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FtlStats {
    /// Pages that owners wrote.
    pub host_writes: u64,
    /// Pages programmed to keep word of trims.
    pub trim_writes: u64,
    /// Pages that collection moved.
    pub moved: u64,
    /// Pages that wear levelling moved.
    pub levelled: u64,
    /// Of the moved pages, those copied within their plane.
    pub copy_backs: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Blocks collected.
    pub victims: u64,
    /// Pages that were valid in them.
    pub victim_valid: u64,
}

impl FtlStats {
    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &FtlStats) -> FtlStats {
        self.with(other, |a, b| a + b)
    }

    /// What came after an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &FtlStats) -> FtlStats {
        self.with(earlier, u64::saturating_sub)
    }

    fn with(&self, other: &FtlStats, f: impl Fn(u64, u64) -> u64) -> FtlStats {
        FtlStats {
            host_writes: f(self.host_writes, other.host_writes),
            trim_writes: f(self.trim_writes, other.trim_writes),
            moved: f(self.moved, other.moved),
            levelled: f(self.levelled, other.levelled),
            copy_backs: f(self.copy_backs, other.copy_backs),
            erases: f(self.erases, other.erases),
            victims: f(self.victims, other.victims),
            victim_valid: f(self.victim_valid, other.victim_valid),
        }
    }
}

/// How worn the blocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wear {
    /// Erases of the block with the fewest.
    pub least: u32,
    /// Erases of the block with the most.
    pub most: u32,
    /// Erases of all blocks.
    pub total: u64,
}

/// What an owner has and what it is to have. In the shared mode blocks and utilisation are those of
/// all owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Blocks that it holds.
    pub held: u32,
    /// Blocks that it may hold.
    pub quota: u32,
    /// Of these, over-provisioning space: what its pages do not fill when all are written.
    pub spare: u32,
    /// The least over-provisioning space.
    pub least_spare: u32,
    /// Mean utilisation of its latest victims; `None` before the first.
    pub utilisation: Option<Utilisation>,
    /// What it is to reach in page writes per second, under dynamic isolation.
    pub target: Option<Iops>,
    /// The utilisation at which it does; `None` also where none is low enough.
    pub target_utilisation: Option<Utilisation>,
    /// How far from that its utilisation may be before its space changes.
    pub tolerance: Option<Utilisation>,
    /// Whether it can.
    pub reach: Reach,
}

/// Whether a target can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// There is no target, or nothing speaks against it.
    Open,
    /// The chip, or the owner by what its writes do take, is slower than the target even when
    /// nothing has to be moved.
    TooFast,
    /// The owner would need more over-provisioning space, and nobody has any to give.
    NoSpace,
    /// The owner is at its least over-provisioning space and still faster than its target.
    AtLeast,
}
