//! The IO priority that a guest's kernel writes beside each request, and what Headgate makes of it.
//!
//! Linux gives every request a 16-bit field, and its virtio-blk driver copies it into the request's header:
//!
//! | bits | what | values |
//! |---|---|---|
//! | 13-15 | class | 0 none, 1 real-time, 2 best-effort, 3 idle; 4 to 7 do not exist |
//! | 3-12 | hint | 0 none, 1 to 7 command duration limits, 8 to 1023 not assigned |
//! | 0-2 | level | 0 (highest) to 7 |
//!
//! [`IoprioMap::given`] makes an application's [`Priority`] of it, [`for_host`] makes a field of a final priority that the
//! host's own kernel takes. Source: Linux, `include/uapi/linux/ioprio.h`; the measured behaviour of guests is in
//! `docs/priorities.md`.

mod host;
mod map;
mod parse;

pub use host::{Ceiling, for_host};
pub use map::{IoprioMap, Nice};
pub use parse::IoprioMapError;

use headgate_units::Priority;

/// A priority `P` as a hint is `FINE_HINT + P`: 257 to 510. Linux assigns hints from the bottom, so this is out of the way.
pub const FINE_HINT: u16 = 256;

/// The field as it came, not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ioprio(pub u16);

/// What an application is, as Linux sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Nothing was said.
    None,
    /// Before all others; needs a privilege in the guest.
    RealTime,
    /// Everything else.
    BestEffort,
    /// When nobody else wants anything.
    Idle,
}

impl Ioprio {
    /// What a file system's journal thread writes with unless its mount options say otherwise (ext4's `journal_ioprio=3`): for
    /// whom, it does not say.
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

    /// A field that every [`IoprioMap`] reads as exactly this priority.
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

/// The level that Linux gives to who says none: `nice` 0, and `ionice` without `-n`.
const LEVEL_UNSAID: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_its_parts() {
        for raw in 0..=u16::MAX {
            let field = Ioprio(raw);
            match field.class() {
                Some(class) => assert_eq!(Ioprio::new(class, field.level(), field.hint()), field),
                None => assert!(raw >= 0x8000),
            }
        }
    }

    #[test]
    fn fine_priorities_have_hints_of_their_own() {
        let spelled: Vec<u16> =
            (0..1024).filter(|&hint| Ioprio::new(Class::BestEffort, 4, hint).fine().is_some()).collect();
        assert_eq!(spelled, (257..=510).collect::<Vec<u16>>());
        assert_eq!(Ioprio::new(Class::None, 0, 257).fine(), Some(Priority::MIN));
        assert_eq!(Ioprio::new(Class::None, 0, 510).fine(), Some(Priority::MAX));
    }

    #[test]
    fn any_map_reads_an_exact_priority_as_it_is() {
        let low = "rt0=3,be0=2".parse::<IoprioMap>().unwrap();
        for map in [IoprioMap::default(), low, low.with_nice(Nice::Ignored)] {
            for p in 1..=254 {
                let priority = Priority::new(p).unwrap();
                assert_eq!(map.given(Ioprio::exactly(priority)), Some(priority));
            }
        }
    }
}
