//! Conversion between Linux's IO priority (ioprio) and Headgate's priority.
//!
//! Linux gives every request a 16-bit field, and its virtio-blk driver copies it into the request's
//! header:
//!
//! | bits | what | values |
//! |---|---|---|
//! | 13-15 | class | 0 none, 1 real-time, 2 best-effort, 3 idle; 4 to 7 do not exist |
//! | 3-12 | hint | 0 none, 1 to 7 command duration limits, 8 to 1023 not assigned |
//! | 0-2 | level | 0 (highest) to 7 |
//!
//! [`IoprioMap::given`] makes an application's [`Priority`](headgate_units::Priority) of it,
//! [`for_host`] makes a field of a final priority that the host's own kernel takes. Source: Linux,
//! `include/uapi/linux/ioprio.h`; the measured behaviour of guests is in `docs/priorities.md`.

mod field;
mod host;
mod map;
mod parse;

pub use field::{Class, FINE_HINT, Ioprio};
pub use host::{Ceiling, for_host};
pub use map::{IoprioMap, Nice};
pub use parse::IoprioMapError;

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_units::Priority;

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
        let spelled: Vec<u16> = (0..1024)
            .filter(|&hint| Ioprio::new(Class::BestEffort, 4, hint).fine().is_some())
            .collect();
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
