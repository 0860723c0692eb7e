//! How late reservations are in the order that gives them most.
//!
//! Nobody else is served until no reservation is due. Of those that are due the one goes that is
//! due earliest, as soon as its limit lets it: an order by deadlines, of which no other has fewer
//! that are late in all. It is made on the times at which the run could send something. So storage
//! that took long for one request makes reservations late, and so does a limit that has room only a
//! second later: what a disk whose reservation is its limit is sent then, others wait for. What is
//! late at the end of a span and was not at its beginning is due in the next one.
//!
//! It knows nothing of what comes, as no scheduler does. A disk counts that has requests queued
//! all the time; others make nobody late.

use crate::oracle::{MADE_GOOD, PAUSE};
use crate::record::{Chance, Record};
use crate::setup::{Load, Phase, Setup};

/// For each second and disk, by how much its reservation is late at the end, in seconds; 0 for
/// disks without.
pub(super) fn late(setup: &Setup, record: &Record) -> Vec<Vec<f64>> {
    let mut late = Vec::with_capacity(record.seconds.len());
    let (mut begin, mut chances) = (0, record.chances.as_slice());
    for phase in &setup.phases {
        let mut order = Order::new(setup, phase, begin as f64);
        for second in begin..begin + phase.seconds {
            let end = (second + 1) as f64;
            let within = chances.partition_point(|chance| chance.at < end);
            let (now, later) = chances.split_at(within);
            now.iter().for_each(|chance| order.take(chance));
            chances = later;
            late.push(order.late(end));
        }
        begin += phase.seconds;
    }
    late
}

struct Order {
    /// Of each disk of the set-up; `None` of those that do not count.
    disks: Vec<Option<Reserved>>,
}

struct Reserved {
    /// Of its largest request, in reference IOs.
    cost: f64,
    /// Between two requests by its reservation, in seconds, and when the next is due.
    spacing: f64,
    due: f64,
    /// Between two that its limit lets go, and when the next may.
    limit: f64,
    open: f64,
}

impl Reserved {
    fn send(&mut self, at: f64) {
        self.due = self.due.max(at - MADE_GOOD) + self.spacing;
        self.open = self.open.max(at - PAUSE) + self.limit;
    }

    fn may_go(&self, at: f64) -> bool {
        self.due <= at && self.open <= at
    }
}

impl Order {
    fn new(setup: &Setup, phase: &Phase, begin: f64) -> Order {
        let disks = phase.disks.iter().enumerate().map(|(disk, (policy, load))| {
            let rate = policy.reservation()?.get() as f64;
            let (Load::Queued(_), true) = (load, setup.disks[disk].conduct.is_steady()) else {
                return None;
            };
            let most = setup.most(disk, policy);
            let cost = setup.cost(setup.disks[disk].sizes.largest());
            let limit = cost / most.both.min(most.each[0] + most.each[1]);
            Some(Reserved { cost, spacing: cost / rate, due: begin, limit, open: begin })
        });
        Order { disks: disks.collect() }
    }

    /// Sends what goes at a chance.
    fn take(&mut self, chance: &Chance) {
        if chance.until > chance.at {
            for disk in self.disks.iter_mut().flatten() {
                while disk.due.max(disk.open) < chance.until {
                    disk.send(disk.due.max(disk.open).max(chance.at));
                }
            }
            return;
        }
        let mut room = chance.cost;
        while room > 0.0 {
            let may_go = self.disks.iter_mut().flatten().filter(|disk| disk.may_go(chance.at));
            let Some(first) = may_go.min_by(|a, b| a.due.total_cmp(&b.due)) else { break };
            first.send(chance.at);
            room -= first.cost;
        }
    }

    fn late(&self, end: f64) -> Vec<f64> {
        let late = |disk: &Option<Reserved>| disk.as_ref().map_or(0.0, |disk| end - disk.due);
        self.disks.iter().map(|disk| late(disk).max(0.0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;
    use crate::draw::draw;
    use crate::record::Second;
    use crate::setup::policy;

    /// By how many milliseconds each disk is late at the end of each second. A chance each
    /// millisecond, but for those in pauses; each is for one request.
    fn late(policies: [(u64, u64); 2], pause: impl Fn(u64) -> bool, seconds: u64) -> Vec<[f64; 2]> {
        let mut setup = draw(Class::Constant, 0);
        setup.phases.truncate(1);
        setup.phases[0].seconds = seconds as usize;
        let policies = policies.map(|(reservation, limit)| policy(reservation, limit, 1));
        setup.phases[0].disks = policies.map(|policy| (policy, Load::Queued(4))).to_vec();
        setup.disks.truncate(2);
        let mut record = Record::default();
        record.seconds.resize_with(seconds as usize, Second::default);
        let times = (0..seconds * 1_000).filter(|&ms| !pause(ms)).map(|ms| ms as f64 / 1e3);
        record.chances = times.map(|at| Chance { at, until: at, cost: 1.0 }).collect();
        let late = super::late(&setup, &record);
        late.into_iter().map(|of| [of[0], of[1]].map(|time| (time * 1e3).round())).collect()
    }

    /// Within what falls due between two requests.
    #[track_caller]
    fn are(found: &[[f64; 2]], expected: &[[f64; 2]]) {
        let near = |(a, b): (&[f64; 2], &[f64; 2])| (0..2).all(|i| (a[i] - b[i]).abs() <= 10.0);
        let all = found.len() == expected.len() && found.iter().zip(expected).all(near);
        assert!(all, "{found:?}, expected {expected:?}");
    }

    #[test]
    fn nobody_is_late_where_the_storage_is_never_slow() {
        are(&late([(400, 0), (500, 500)], |_| false, 3), &[[0.0; 2]; 3]);
    }

    #[test]
    fn a_pause_is_caught_up_by_what_reservations_leave() {
        // 800 of 1,000 are reserved, so 200 ms take a second. Both are late alike.
        let paused = |ms: u64| (1_800..2_000).contains(&ms);
        let late = late([(400, 0), (400, 0)], paused, 4);
        are(&late, &[[0.0; 2], [200.0; 2], [0.0; 2], [0.0; 2]]);
    }

    #[test]
    fn what_a_limit_has_no_room_for_stays_late_and_others_do_not_wait_for_it() {
        let paused = |ms: u64| (1_800..2_000).contains(&ms);
        let late = late([(400, 0), (400, 400)], paused, 4);
        assert!(late[2][0] < 5.0 && late[3][0] < 5.0, "{late:?}");
        // Its limit makes good for 20 ms of it.
        are(&late, &[[0.0; 2], [200.0; 2], [0.0, 180.0], [0.0, 180.0]]);
    }

    #[test]
    fn where_there_is_room_all_are_in_time() {
        let mut setup = draw(Class::Constant, 0);
        setup.phases[0].disks[0] = (policy(40, 0, 1), Load::Queued(4));
        let mut record = Record::default();
        record.seconds.resize_with(2, Second::default);
        record.chances = vec![Chance { at: 0.0, until: 2.0, cost: 0.0 }];
        assert!(super::late(&setup, &record)[1][0] < 0.03);
    }
}
