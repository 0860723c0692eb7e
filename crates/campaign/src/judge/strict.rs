//! What a limit leaves to a disk that is served before all others.
//!
//! A limit of l per second is met if no stretch of time holds more than l of it and one request.
//! So what storage that stands still keeps a disk from, its limit keeps it from later as well. The
//! most that it can have is found out by an order of its own, on the times at which the run could
//! send something: its reservation goes first where it is due, then those of the others, then the
//! disk again, each time as soon as its limit lets it. No order gives it more without passing its
//! limit, or a reservation.
//!
//! Waits of up to [`PAUSE`] are made good for: a scheduler is to make good for those. It may for
//! longer ones, as far as no second holds more than the limit. What it gives so it takes back: the
//! disk has to wait a second later. So what a disk is ahead of the strict limit is due of it no
//! more.

use crate::oracle::{MADE_GOOD, PAUSE};
use crate::record::{Chance, Record};
use crate::setup::{Load, Most, Phase, Setup};

/// What a disk may still be due of each second by its limit, and what it got beyond that before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Strict {
    /// The most of this second, in reference IOs.
    pub(super) most: f64,
    /// By how much the disk is ahead at its beginning, in reference IOs.
    pub(super) ahead: f64,
}

/// For each second, of each disk; `None` of disks without a limit of reads and writes together.
pub(super) fn seconds(setup: &Setup, record: &Record) -> Vec<Vec<Option<Strict>>> {
    let mut all = vec![vec![None; setup.disks.len()]; record.seconds.len()];
    for disk in 0..setup.disks.len() {
        let most = by_second(setup, record, disk);
        let mut ahead = 0.0_f64;
        for ((second, most), of) in record.seconds.iter().zip(most).zip(&mut all) {
            ahead = if second.into == 0 { 0.0 } else { ahead };
            of[disk] = most.map(|most| Strict { most, ahead });
            let got = second.disks.get(disk).map_or(0.0, |disk| disk.cost);
            ahead = most.map_or(0.0, |most| (ahead + got - most).max(0.0));
        }
    }
    all
}

fn by_second(setup: &Setup, record: &Record, disk: usize) -> Vec<Option<f64>> {
    let mut most = vec![None; record.seconds.len()];
    let (mut begin, mut chances) = (0, record.chances.as_slice());
    for phase in &setup.phases {
        let end = begin + phase.seconds;
        let within = chances.partition_point(|chance| chance.at < end as f64);
        let (of_phase, later) = chances.split_at(within);
        chances = later;
        if let Some(mut order) = Order::new(setup, phase, disk, begin as f64) {
            let span = most.get_mut(begin..end.min(record.seconds.len())).unwrap_or_default();
            span.fill(Some(0.0));
            for chance in of_phase {
                order.take(chance, |at, cost| {
                    let second = (at as usize).saturating_sub(begin);
                    if let Some(Some(sum)) = span.get_mut(second) {
                        *sum += cost;
                    }
                });
            }
        }
        begin = end;
    }
    most
}

/// The order that serves one disk first.
struct Order {
    /// In reference IOs per second.
    limit: f64,
    /// Of its largest request, in reference IOs.
    cost: f64,
    /// When the limit lets the next request go, in seconds.
    open: f64,
    /// Between two requests by its own reservation, in seconds, and when the next is due; infinite
    /// without one.
    spacing: f64,
    own: f64,
    /// The reservations of the others, without limits and with.
    others: [Reserved; 2],
    at: f64,
}

/// Reservations together.
#[derive(Clone, Copy, Default)]
struct Reserved {
    /// In reference IOs per second.
    rate: f64,
    /// What is due by them, and the most that it can be: what is lost to a limit is not.
    due: f64,
    most: f64,
}

impl Order {
    fn new(setup: &Setup, phase: &Phase, disk: usize, begin: f64) -> Option<Order> {
        let (policy, _) = phase.disks.get(disk)?;
        let limit = setup.most(disk, policy).both;
        let mut others = [Reserved::default(); 2];
        for (other, (policy, load)) in phase.disks.iter().enumerate() {
            let Some(rate) = policy.reservation().map(|rate| rate.get() as f64) else { continue };
            if other == disk || *load == Load::Idle {
                continue;
            }
            let Most { both, each } = setup.most(other, policy);
            let is_limited = [both, each[0], each[1]].into_iter().any(f64::is_finite);
            let of = &mut others[usize::from(is_limited)];
            of.rate += rate;
            of.most += match is_limited {
                true => (rate * PAUSE).max(setup.cost(setup.disks[other].sizes.largest())),
                false => rate * MADE_GOOD,
            };
        }
        let cost = setup.cost(setup.disks[disk].sizes.largest());
        let own = policy.reservation().map(|rate| rate.get() as f64);
        limit.is_finite().then(|| Order {
            limit,
            cost,
            open: begin,
            spacing: own.map_or(f64::INFINITY, |rate| cost / rate),
            own: own.map_or(f64::INFINITY, |_| begin),
            others,
            at: begin,
        })
    }

    /// Sends what goes at a chance, and says when and what it costs.
    fn take(&mut self, chance: &Chance, mut sent: impl FnMut(f64, f64)) {
        let passed = (chance.at - self.at).max(0.0);
        for others in &mut self.others {
            others.due = (others.due + passed * others.rate).min(others.most);
        }
        self.at = chance.at;
        if chance.until > chance.at {
            // There is room for all.
            self.others.iter_mut().for_each(|others| others.due = 0.0);
            self.at = chance.until;
            while self.open < chance.until {
                let at = self.open.max(chance.at);
                self.send(at);
                sent(at, self.cost);
            }
            return;
        }
        let mut room = chance.cost;
        while room > 0.0 && self.open <= chance.at {
            let due: f64 = self.others.iter().map(|others| others.due).sum();
            if self.own > chance.at && due >= room {
                break;
            }
            self.send(chance.at);
            sent(chance.at, self.cost);
            room -= self.cost;
        }
        let mut left = room.max(0.0);
        for others in self.others.iter_mut().rev() {
            let served = others.due.min(left);
            others.due -= served;
            left -= served;
        }
    }

    fn send(&mut self, at: f64) {
        self.own = self.own.max(at - MADE_GOOD) + self.spacing;
        self.open = self.open.max(at - PAUSE) + self.cost / self.limit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;
    use crate::draw::draw;
    use crate::record::{DiskSecond, Second};
    use crate::setup::policy;

    /// What a disk with this reservation and limit may have beside another. A chance each
    /// millisecond, but for those in pauses; each is for one request.
    fn most(
        own: (u64, u64),
        other: (u64, u64),
        pause: impl Fn(u64) -> bool,
        seconds: u64,
    ) -> Vec<f64> {
        let mut setup = draw(Class::Constant, 0);
        let load = Load::Queued(4);
        setup.phases.truncate(1);
        setup.phases[0].seconds = seconds as usize;
        let policies = [own, other].map(|(reservation, limit)| policy(reservation, limit, 1));
        setup.phases[0].disks = policies.map(|policy| (policy, load)).to_vec();
        setup.disks.truncate(2);
        let mut record = Record::default();
        record.seconds.resize_with(seconds as usize, Second::default);
        let times = (0..seconds * 1_000).filter(|&ms| !pause(ms)).map(|ms| ms as f64 / 1e3);
        record.chances = times.map(|at| Chance { at, until: at, cost: 1.0 }).collect();
        by_second(&setup, &record, 0).into_iter().map(|most| most.unwrap().round()).collect()
    }

    /// Within a request, as one may fall into either of two seconds.
    #[track_caller]
    fn are(found: &[f64], expected: &[f64]) {
        let near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1.0);
        assert!(near && found.len() == expected.len(), "{found:?}, expected {expected:?}");
    }

    #[test]
    fn a_pause_is_lost_but_for_what_is_made_good_for() {
        are(&most((0, 100), (0, 0), |_| false, 3), &[100.0; 3]);
        // 400 ms, of which 20 are made good for.
        let paused = |ms: u64| (1_200..1_600).contains(&ms);
        are(&most((0, 100), (0, 0), paused, 3), &[100.0, 62.0, 100.0]);
        // 15 ms, four times in a second.
        are(&most((0, 100), (0, 0), |ms| ms % 250 >= 235, 3), &[100.0; 3]);
    }

    #[test]
    fn others_go_first_by_their_reservations_unless_its_own_is_due() {
        // The pause makes 400 due to the others. They leave 200 per second, so they take two.
        let paused = |ms: u64| (1_000..1_500).contains(&ms);
        are(&most((0, 100), (800, 0), paused, 4), &[100.0, 0.0, 0.0, 52.0]);
        are(&most((100, 100), (800, 0), paused, 4), &[100.0, 52.0, 100.0, 100.0]);
        // The other's limit lets it make good for 20 ms of the pause: 16, in 80 ms.
        are(&most((0, 100), (800, 800), paused, 4), &[100.0, 44.0, 100.0, 100.0]);
    }

    #[test]
    fn where_there_is_room_the_limit_alone_says() {
        let mut setup = draw(Class::Constant, 0);
        setup.phases[0].disks[0].0 = policy(0, 40, 1);
        let mut record = Record::default();
        record.seconds.resize_with(2, Second::default);
        record.chances = vec![Chance { at: 0.0, until: 1.5, cost: 0.0 }];
        let most: Vec<f64> = by_second(&setup, &record, 0).into_iter().flatten().collect();
        are(&most, &[40.0, 20.0]);
    }

    #[test]
    fn what_a_disk_is_ahead_counts_until_it_is_behind() {
        let mut setup = draw(Class::Constant, 0);
        setup.phases[0].disks[0].0 = policy(0, 40, 1);
        let mut record = Record::default();
        for (into, cost) in [50.0, 45.0, 20.0, 40.0].into_iter().enumerate() {
            let disks = vec![DiskSecond { cost, ..DiskSecond::default() }; setup.disks.len()];
            record.seconds.push(Second { into, disks, ..Second::default() });
        }
        record.chances = vec![Chance { at: 0.0, until: 4.0, cost: 0.0 }];
        let ahead = seconds(&setup, &record).into_iter().filter_map(|of| Some(of[0]?.ahead));
        are(&ahead.collect::<Vec<_>>(), &[0.0, 10.0, 15.0, 0.0]);
    }
}
