//! What turns leave to a direction.
//!
//! A disk with limits of its reads or of its writes sends them in turns where both are queued and
//! neither limit is reached. When the disk may send is for its reservation and its shares to say.
//! Where these give it less than twice a limit for a while, turns keep a direction from its limit,
//! and the limit keeps it from that later: no second may hold more. So what a direction can have
//! is found out by an order of its own, at the times at which the run sent something of the disk,
//! of what was queued then: in turns, and each direction as soon as its limit lets it go. A limit
//! makes good for 250 ms (theorem 3 of `docs/theorems.md`), as far as no second holds more than
//! 2 % and one request beyond it.

use crate::record::Record;
use crate::setup::Setup;
use std::collections::VecDeque;

/// What a limit makes good for, in seconds.
const LATENESS: f64 = 0.25;

/// How much more than its limit a second may hold, and one request.
const MORE: f64 = 1.02;

/// One direction.
struct Lane {
    /// In requests per second.
    limit: f64,
    /// When its limit is used up, in seconds.
    open: f64,
    /// What went in the last second.
    sent: VecDeque<f64>,
}

impl Lane {
    fn may_go(&mut self, at: f64) -> bool {
        while self.sent.front().is_some_and(|&before| before <= at - 1.0) {
            self.sent.pop_front();
        }
        self.open <= at && self.sent.len() as f64 <= self.limit * MORE
    }

    fn send(&mut self, at: f64) {
        self.open = self.open.max(at - LATENESS) + 1.0 / self.limit;
        self.sent.push_back(at);
    }
}

/// Of each second, what a disk can have of reads and of writes, in reference IOs. The policy does
/// not change.
pub(super) fn seconds(setup: &Setup, record: &Record, disk: usize) -> Option<Vec<[f64; 2]>> {
    let [phase] = setup.phases.as_slice() else { return None };
    let (policy, _) = phase.disks.get(disk)?;
    if !policy.limits_directions() {
        return None;
    }
    let cost = setup.cost(setup.disks[disk].sizes.largest());
    let mut lanes = setup.most(disk, policy).each.map(|limit| Lane {
        limit: limit / cost,
        open: 0.0,
        sent: VecDeque::new(),
    });
    let mut all = vec![[0.0; 2]; record.seconds.len()];
    let mut first = 0;
    for sent in record.sent.get(disk)? {
        let goes = [first, 1 - first]
            .into_iter()
            .find(|&lane| sent.queued[lane] > 0 && lanes[lane].may_go(sent.at));
        let Some(lane) = goes else { continue };
        lanes[lane].send(sent.at);
        first = 1 - lane;
        if let Some(second) = all.get_mut(sent.at as usize) {
            second[lane] += cost;
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;
    use crate::draw::draw;
    use crate::record::{Second, Sent};
    use crate::setup::policy;
    use headgate_qos::DirectionLimits;
    use headgate_units::Iops;

    /// What reads and writes can have of a disk with a limit of its writes that is sent something
    /// at these times, in milliseconds, with so many queued.
    fn left(limit: u64, queued: [u32; 2], times: impl Iterator<Item = u64>) -> Vec<[f64; 2]> {
        let mut setup = draw(Class::Directions, 0);
        let limits = DirectionLimits { iops: Iops::new(limit).ok(), ..DirectionLimits::NONE };
        setup.phases[0].disks[0].0 =
            policy(0, 0, 1).with_direction_limits(DirectionLimits::NONE, limits).unwrap();
        let mut record = Record::default();
        record.seconds.resize_with(3, Second::default);
        record.sent = vec![times.map(|ms| Sent { at: ms as f64 / 1e3, queued }).collect()];
        seconds(&setup, &record, 0).unwrap()
    }

    #[test]
    fn turns_divide_up_to_the_limit() {
        let every = |ms: u64| (0..3_000).step_by(ms as usize);
        // 100 in a second: half, or the limit and one request in the first second.
        assert_eq!(left(80, [1, 1], every(10)), [[50.0, 50.0]; 3]);
        assert_eq!(left(25, [1, 1], every(10))[1..], [[75.0, 25.0]; 2]);
        assert_eq!(left(25, [1, 0], every(10)), [[100.0, 0.0]; 3]);
        assert_eq!(left(80, [0, 1], every(10))[1..], [[0.0, 80.0]; 2]);
    }

    #[test]
    fn what_a_second_without_turns_lost_no_later_one_gives_back() {
        // 20 in the second second, 200 in the others.
        let times = (0..3_000).filter(|ms| ms % if ms / 1_000 == 1 { 50 } else { 5 } == 0);
        let [_, slow, after] = left(40, [1, 1], times)[..] else { panic!("three seconds") };
        assert_eq!(slow, [10.0, 10.0]);
        assert!((40.0..=46.0).contains(&after[1]), "{after:?}");
    }
}
