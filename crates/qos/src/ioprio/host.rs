use super::field::{Class, Ioprio};
use super::map::IoprioMap;
use headgate_units::Priority;

/// The highest class that may be asked of the host's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ceiling {
    /// Any: the process has the privilege, and the virtual machine may pass others.
    RealTime,
    /// Real-time becomes best-effort 0.
    BestEffort,
}

/// The ioprio that the host's kernel gets with a request of this effective priority, so that its IO
/// scheduler agrees with ours.
///
/// It is the default map read backwards: 198 and above real-time, if the ceiling allows, below that
/// the best-effort level whose priority is nearest. Always a field that Linux accepts: never a
/// class that does not exist, nor a level without a class, either of which would fail the guest's
/// request. Never idle: an IO scheduler holds idle requests back while there are any others, and
/// they would fill the window while they wait.
pub fn for_host(priority: Priority, ceiling: Ceiling) -> Ioprio {
    let table = match ceiling {
        Ceiling::RealTime => &ANY,
        Ceiling::BestEffort => &NOT_REAL_TIME,
    };
    table[priority.get() as usize]
}

/// Indexed by the eight bits of a priority: one load, because every transfer needs it.
static ANY: [Ioprio; 256] = table(Ceiling::RealTime);
static NOT_REAL_TIME: [Ioprio; 256] = table(Ceiling::BestEffort);

const fn table(ceiling: Ceiling) -> [Ioprio; 256] {
    let map = IoprioMap::DEFAULT;
    let mut table = [Ioprio(0); 256];
    let mut priority = 0;
    while priority < table.len() {
        let real_time =
            matches!(ceiling, Ceiling::RealTime) && priority >= map.real_time[7].get() as usize;
        table[priority] = if real_time {
            Ioprio::new(Class::RealTime, nearest(&map.real_time, priority as u8), 0)
        } else {
            Ioprio::new(Class::BestEffort, nearest(&map.best_effort, priority as u8), 0)
        };
        priority += 1;
    }
    table
}

/// The level whose priority is nearest, the lower one of two.
const fn nearest(levels: &[Priority; 8], priority: u8) -> u8 {
    let (mut best, mut distance) = (0, u8::MAX);
    let mut level = 0;
    while level < levels.len() {
        let here = levels[level].get().abs_diff(priority);
        if here <= distance {
            (best, distance) = (level as u8, here);
        }
        level += 1;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_priorities_become_fields_that_the_kernel_takes() {
        for (priority, any, capped) in [
            (254, 0x2000, 0x4000),
            (250, 0x2001, 0x4000),
            (198, 0x2007, 0x4000),
            (197, 0x4000, 0x4000),
            (180, 0x4000, 0x4000),
            (101, 0x4004, 0x4004),
            (100, 0x4004, 0x4004),
            (90, 0x4005, 0x4005),
            (40, 0x4007, 0x4007),
            (10, 0x4007, 0x4007),
            (1, 0x4007, 0x4007),
        ] {
            let priority = Priority::new(priority).unwrap();
            assert_eq!(for_host(priority, Ceiling::RealTime), Ioprio(any), "{priority}");
            assert_eq!(for_host(priority, Ceiling::BestEffort), Ioprio(capped), "{priority}");
        }
    }

    #[test]
    fn more_priority_is_never_less_on_the_host_and_always_valid() {
        for ceiling in [Ceiling::RealTime, Ceiling::BestEffort] {
            let mut before = Ioprio(u16::MAX);
            for priority in 1..=254 {
                let field = for_host(Priority::new(priority).unwrap(), ceiling);
                assert!(field.0 <= before.0, "{priority}: {field:?} after {before:?}");
                assert!(matches!(field.class(), Some(Class::RealTime | Class::BestEffort)));
                assert_eq!(field.hint(), 0);
                before = field;
            }
        }
    }

    #[test]
    fn what_a_guest_gives_by_class_and_level_comes_out_the_same() {
        let map = IoprioMap::default();
        for raw in (0x2000..=0x2007).chain(0x4000..=0x4003).chain(0x4005..=0x4007) {
            let given = map.given(Ioprio(raw)).unwrap();
            assert_eq!(for_host(given, Ceiling::RealTime), Ioprio(raw));
        }
    }
}
