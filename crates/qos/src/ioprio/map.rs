use super::field::{Class, Ioprio, LEVEL_UNSAID};
use headgate_units::Priority;

/// Whether what Linux derives from an application's processor priority counts as given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Nice {
    /// It counts, as in Linux itself.
    #[default]
    Honoured,
    /// It does not count. Linux writes a `nice` value as a best-effort level, so `ionice -c2` does
    /// not count either, nor what cannot be distinguished from SCHED_FIFO (`ionice -c1` without a
    /// level) and SCHED_IDLE (`ionice -c3 -n4`).
    Ignored,
}

/// The table by which an [`Ioprio`] becomes a [`Priority`].
///
/// The default:
///
/// | class | level 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
/// |---|---|---|---|---|---|---|---|---|
/// | real-time | 254 | 246 | 238 | 230 | 222 | 214 | 206 | 198 |
/// | best-effort | 180 | 160 | 140 | 120 | not given | 80 | 60 | 40 |
/// | idle | 10 | 10 | 10 | 10 | 10 | 10 | 10 | 10 |
///
/// Best-effort levels relate to each other, and to the default of 100, as the time slices of
/// Linux's CFQ did (180 ms to 40 ms, 100 ms in the middle). Idle is a tenth of the default and not
/// zero: an idle application may hold what others wait for, such as a file system's transaction.
///
/// In text (`FromStr`, `Display`) a map is what differs from that: `rt7=100,be0=150,idle=1`, or
/// `default`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IoprioMap {
    pub(super) real_time: [Priority; 8],
    /// The entry at 4 is never read: Linux writes best-effort 4 if no priority was set.
    pub(super) best_effort: [Priority; 8],
    pub(super) idle: Priority,
    pub(super) nice: Nice,
}

const fn priority(value: u64) -> Priority {
    match Priority::new(value) {
        Ok(priority) => priority,
        Err(_) => panic!("the default map has priorities from 1 to 254"),
    }
}

const fn steps(first: u64, step: u64) -> [Priority; 8] {
    let mut levels = [Priority::MIN; 8];
    let mut level = 0;
    while level < 8 {
        levels[level] = priority(first - step * level as u64);
        level += 1;
    }
    levels
}

impl IoprioMap {
    pub(super) const DEFAULT: IoprioMap = IoprioMap {
        real_time: steps(254, 8),
        best_effort: steps(180, 20),
        idle: priority(10),
        nice: Nice::Honoured,
    };

    /// The same table with another opinion of `nice`.
    pub fn with_nice(self, nice: Nice) -> IoprioMap {
        IoprioMap { nice, ..self }
    }

    /// The opinion of `nice`.
    pub fn nice(&self) -> Nice {
        self.nice
    }

    /// What the application asked for; `None` when it asked for nothing that is understood. Defined
    /// for every field, whatever a guest writes.
    ///
    /// - A fine priority (hints 257 to 510) is taken as it is under the real-time class. Under the
    ///   others it counts at most as much as the highest best-effort level: what needs a privilege
    ///   in the guest needs it here.
    /// - Other hints say nothing of priority (1 to 7 are command duration limits) and are passed
    ///   over.
    /// - No class, best-effort 4 and classes that do not exist are nothing given.
    pub fn given(&self, field: Ioprio) -> Option<Priority> {
        let class = field.class()?;
        if let Some(fine) = field.fine() {
            return Some(if class == Class::RealTime {
                fine
            } else {
                fine.min(self.unprivileged())
            });
        }
        let level = usize::from(field.level());
        let derived = match class {
            Class::None => return None,
            Class::BestEffort => true,
            Class::RealTime | Class::Idle => field.level() == LEVEL_UNSAID,
        };
        if derived && self.nice == Nice::Ignored {
            return None;
        }
        match class {
            Class::BestEffort if field.level() == LEVEL_UNSAID => None,
            Class::BestEffort => Some(self.best_effort[level]),
            Class::RealTime => Some(self.real_time[level]),
            Class::Idle => Some(self.idle),
            Class::None => None,
        }
    }

    /// The most that an application without privileges in its guest can ask for.
    fn unprivileged(&self) -> Priority {
        let levels = (0..).zip(&self.best_effort).filter(|(level, _)| *level != LEVEL_UNSAID);
        levels.map(|(_, priority)| *priority).max().unwrap_or(Priority::MIN)
    }
}

impl Default for IoprioMap {
    fn default() -> IoprioMap {
        IoprioMap::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(map: &IoprioMap, raw: u16) -> Option<u8> {
        map.given(Ioprio(raw)).map(Priority::get)
    }

    /// What guests were seen to send, and what becomes of it.
    #[test]
    fn what_guests_send() {
        let honours = IoprioMap::default();
        let ignores = honours.with_nice(Nice::Ignored);
        for (what, raw, honoured, ignored) in [
            ("flush, boot firmware, kernels before 6.0", 0x0000, None, None),
            ("no ionice; background writeback", 0x4004, None, None),
            ("ionice -c1 -n0", 0x2000, Some(254), Some(254)),
            ("ionice -c1 -n7", 0x2007, Some(198), Some(198)),
            ("ionice -c1, SCHED_FIFO", 0x2004, Some(222), None),
            ("ionice -c2 -n0, nice -20", 0x4000, Some(180), None),
            ("ext4's journal", 0x4003, Some(120), None),
            ("ionice -c2 -n7, nice 19", 0x4007, Some(40), None),
            ("nice 10", 0x4006, Some(60), None),
            ("ionice -c3 of busybox", 0x6000, Some(10), Some(10)),
            ("ionice -c3 of util-linux, SCHED_IDLE with nice 19", 0x6007, Some(10), Some(10)),
            ("SCHED_IDLE", 0x6004, Some(10), None),
            ("best-effort 4 with a command duration limit", 0x400c, None, None),
            ("best-effort 1 with a command duration limit", 0x4009, Some(160), None),
            ("best-effort with an unassigned hint", 0x4040, Some(180), None),
            ("no class, level without class", 0x0003, None, None),
            ("classes that do not exist", 0x8000, None, None),
            ("all bits", 0xffff, None, None),
        ] {
            assert_eq!(given(&honours, raw), honoured, "{what} ({raw:#06x}), nice honoured");
            assert_eq!(given(&ignores, raw), ignored, "{what} ({raw:#06x}), nice ignored");
        }
    }

    #[test]
    fn a_fine_priority_needs_the_privilege_that_its_class_needs() {
        let map = IoprioMap::default();
        let fine = |class, priority: u16| {
            map.given(Ioprio::new(class, 4, super::super::FINE_HINT + priority)).map(Priority::get)
        };
        for (class, most) in [
            (Class::RealTime, 254),
            (Class::BestEffort, 180),
            (Class::Idle, 180),
            (Class::None, 180),
        ] {
            for priority in 1..=254 {
                assert_eq!(
                    fine(class, priority),
                    Some(priority.min(most) as u8),
                    "{class:?} {priority}"
                );
            }
            assert_eq!(
                fine(class, 0),
                given(&map, Ioprio::new(class, 4, 0).0),
                "256 is not assigned"
            );
            assert_eq!(
                fine(class, 255),
                given(&map, Ioprio::new(class, 4, 0).0),
                "511 is not assigned"
            );
        }
    }

    #[test]
    fn every_field_has_an_answer_and_few_different_ones() {
        let map = IoprioMap::default();
        let mut answers: Vec<_> = (0..=u16::MAX).map(|raw| given(&map, raw)).collect();
        assert!((0x8000..=0xffff).all(|raw| given(&map, raw).is_none()));
        answers.sort_unstable();
        answers.dedup();
        assert!(answers.len() <= 255, "{} streams", answers.len());
    }

    #[test]
    fn best_effort_is_to_the_middle_as_the_time_slices_of_cfq_were() {
        let slices = [180, 160, 140, 120, 100, 80, 60, 40];
        assert_eq!(IoprioMap::default().best_effort.map(Priority::get), slices);
    }
}
