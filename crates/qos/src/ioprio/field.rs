//! The field itself: class, hint and level.

use headgate_units::Priority;

/// A priority `P` as a hint is `FINE_HINT + P`: 257 to 510. Linux assigns hints from the bottom, so
/// this is out of the way.
pub const FINE_HINT: u16 = 256;

/// The field as it came, not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ioprio(pub u16);

/// The class of an ioprio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// No priority was set.
    None,
    /// Before all others; needs a privilege in the guest.
    RealTime,
    /// Everything else.
    BestEffort,
    /// Served when no other class has requests.
    Idle,
}

impl Ioprio {
    /// The ioprio of writes by a file system's journal thread, unless mount options set another
    /// (ext4's `journal_ioprio=3`). It does not show which application waits for them.
    pub const JOURNAL: Ioprio = Ioprio::new(Class::BestEffort, 3, 0);

    /// A field of its parts. `level` and `hint` are cut to 3 and 10 bits.
    pub const fn new(class: Class, level: u8, hint: u16) -> Ioprio {
        let class = match class {
            Class::None => 0,
            Class::RealTime => 1,
            Class::BestEffort => 2,
            Class::Idle => 3,
        };
        Ioprio(class << 13 | (hint & 0x3ff) << 3 | (level & 7) as u16)
    }

    /// A field that every [`IoprioMap`](super::IoprioMap) reads as exactly this priority.
    pub fn exactly(priority: Priority) -> Ioprio {
        Ioprio::new(Class::RealTime, LEVEL_UNSAID, FINE_HINT + u16::from(priority.get()))
    }

    /// The class; `None` when there is no such class.
    pub const fn class(self) -> Option<Class> {
        match self.0 >> 13 {
            0 => Some(Class::None),
            1 => Some(Class::RealTime),
            2 => Some(Class::BestEffort),
            3 => Some(Class::Idle),
            _ => None,
        }
    }

    /// The level, 0 (highest) to 7.
    pub const fn level(self) -> u8 {
        (self.0 & 7) as u8
    }

    /// The hint, 0 to 1023.
    pub const fn hint(self) -> u16 {
        self.0 >> 3 & 0x3ff
    }

    /// The priority that the hint spells, if it spells one.
    pub fn fine(self) -> Option<Priority> {
        Priority::new(u64::from(self.hint().checked_sub(FINE_HINT)?)).ok()
    }
}

/// The level that Linux writes if none was set: `nice` 0, and `ionice` without `-n`.
pub(super) const LEVEL_UNSAID: u8 = 4;
