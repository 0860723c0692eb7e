//! Trouble of disks that samples of the data path tell.

use headgate_events::{Condition, ConditionKind};
use headgate_model::{ConnectionState, DatastoreSample, DiskSample};
use std::sync::Arc;

/// Looks for disks that are not as they should be.
#[derive(Debug, Default)]
pub struct DiskConditions {
    last: Arc<Vec<DatastoreSample>>,
    found: Vec<Condition>,
}

impl DiskConditions {
    /// What is wrong with disks now. O(disks): where nothing was wrong, without a look at the
    /// memory of those that have stood still since. Trouble of a disk that stands still can only
    /// end.
    pub fn see(&mut self, sample: &Arc<Vec<DatastoreSample>>) -> &[Condition] {
        let last = std::mem::replace(&mut self.last, sample.clone());
        let before = std::mem::take(&mut self.found);
        for store in sample.iter() {
            let old = last.iter().find(|old| old.name == store.name && before.is_empty());
            for (place, disk) in store.disks.iter().enumerate() {
                let old = old.and_then(|old| old.disks.get(place));
                if !old.is_some_and(|old| disk.stood_still_since(old)) {
                    of_sample(disk, &mut self.found);
                }
            }
        }
        &self.found
    }
}

fn of_sample(disk: &DiskSample, found: &mut Vec<Condition>) {
    let mut add = |kind, why: &str| {
        found.push(Condition::of_disk(kind, disk.name.as_str(), Some(why.to_owned())));
    };
    if let Some(hold) = &disk.trouble.hold {
        add(ConditionKind::Holds, &hold.error);
    } else if let Some(last) = disk.trouble.failing(disk.at()) {
        add(ConditionKind::Fails, &last.error);
    }
    let lost = disk.remote.as_ref().filter(|remote| remote.state != ConnectionState::Connected);
    if let Some(remote) = lost {
        add(ConditionKind::Unconnected, remote.reason.as_deref().unwrap_or("not yet"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_model::{ErrorSample, FAILING, HoldSample, Policy};
    use headgate_stats::{DiskSnapshot, ErrorKind, ErrorOp};
    use headgate_units::{Bytes, Nanos};
    use proptest::prelude::*;

    /// What happens to a disk in a second.
    #[derive(Clone, Copy, Debug)]
    enum Happens {
        Nothing,
        Work,
        Fails,
        Holds,
        GoesOn,
        /// Another disk is there instead.
        Another,
    }

    fn happen(disk: &mut DiskSample, now: Nanos, what: Happens) {
        disk.set_at(now);
        match what {
            Happens::Nothing => {}
            Happens::Work => disk.clients += 1,
            Happens::Fails => {
                let (op, kind, error) = (ErrorOp::Write, ErrorKind::Io, "it broke".to_owned());
                let (offset, len) = (Bytes(0), Bytes(4096));
                disk.trouble.last = Some(ErrorSample { at: now, op, kind, error, offset, len });
                disk.trouble.reported = Some(now);
            }
            Happens::Holds => {
                let error = "no space".to_owned();
                disk.trouble.hold = Some(HoldSample { since: now, error, requests: 1, tries: 0 });
            }
            Happens::GoesOn => disk.trouble.hold = None,
            Happens::Another => {
                let name = format!("at{}", now.0).parse().unwrap();
                *disk = DiskSample::new(name, Policy::default(), DiskSnapshot::default());
                disk.set_at(now);
            }
        }
    }

    proptest! {
        /// Against a look at each disk of each sample.
        #[test]
        fn nothing_wrong_is_passed_over(
            seconds in prop::collection::vec(
                prop::collection::vec(
                    prop_oneof![
                        6 => Just(Happens::Nothing),
                        1 => Just(Happens::Work),
                        1 => Just(Happens::Fails),
                        1 => Just(Happens::Holds),
                        1 => Just(Happens::GoesOn),
                        1 => Just(Happens::Another),
                    ],
                    3,
                ),
                1..40,
            ),
            step in prop_oneof![Just(Nanos::from_secs(1)), Just(FAILING)],
        ) {
            let disk = |name: &str| {
                DiskSample::new(name.parse().unwrap(), Policy::default(), DiskSnapshot::default())
            };
            let mut disks: Vec<DiskSample> = ["a", "b", "c"].map(disk).into();
            let (mut known, mut now) = (DiskConditions::default(), Nanos::ZERO);
            for second in seconds {
                now += step;
                for (disk, what) in disks.iter_mut().zip(second) {
                    happen(disk, now, what);
                }
                let mut due = Vec::new();
                disks.iter().for_each(|disk| of_sample(disk, &mut due));
                let store = DatastoreSample::fresh("ds".parse().unwrap(), disks.clone());
                prop_assert_eq!(known.see(&Arc::new(vec![store])), due);
            }
        }
    }
}
