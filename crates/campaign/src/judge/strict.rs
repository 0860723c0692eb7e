//! What a limit leaves to a disk that is served before all others.
//!
//! A limit of l per second is met if no stretch of time holds more than l of it and one request.
//! So what storage that stands still keeps a disk from, its limit keeps it from later as well. The
//! most that it can have is found out by an order of its own, on the times at which the run could
//! send something: its reservation goes first where it is due, then those of the others, then the
//! disk again, each time as soon as its limit lets it. No order gives it more without passing its
//! limit, or a reservation. A limit of one direction is judged alike, as if all that the disk's
//! reservation brings were in that direction.
//!
//! Waits of up to [`PAUSE`] are made good for: a scheduler is to make good for those. It may for
//! longer ones, as far as no second holds more than the limit. What it gives so it takes back: the
//! disk has to wait a second later. So what a disk is ahead of the strict limit is due of it no
//! more.

use crate::oracle::{MADE_GOOD, PAUSE};
use crate::record::{Chance, DiskSecond, Record};
use crate::setup::{Load, Most, Phase, Setup};
use std::ops::Range;

/// What a disk may still be due of each second by its limit, and what it got beyond that before.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Strict {
    /// The most of this second, in reference IOs.
    most: f64,
    /// By how much the disk is ahead at its beginning, in reference IOs.
    ahead: f64,
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    /// Reads and writes.
    All,
    Reads,
    Writes,
}

impl Counts {
    const EACH: [Counts; 3] = [Counts::All, Counts::Reads, Counts::Writes];

    /// Of what a disk's limits leave.
    fn limit(self, most: Most) -> f64 {
        match self {
            Counts::All => most.both,
            Counts::Reads => most.each[0],
            Counts::Writes => most.each[1],
        }
    }

    /// Of what a disk got.
    fn got(self, disk: &DiskSecond) -> f64 {
        match self {
            Counts::All => disk.cost,
            Counts::Reads => disk.lanes[0],
            Counts::Writes => disk.lanes[1],
        }
    }
}

/// What each limit of a disk leaves, second by second.
pub(super) struct Left {
    /// Of reads and writes together, of reads, of writes.
    of: [Vec<Option<Strict>>; 3],
}

impl Left {
    pub(super) fn new(setup: &Setup, record: &Record, disk: usize) -> Left {
        Left { of: Counts::EACH.map(|counts| seconds(setup, record, disk, counts)) }
    }

    /// In a span of seconds, as [`Most`] says it; infinite without a limit.
    pub(super) fn most(&self, span: Range<usize>) -> Most {
        let of = |counts: Counts| {
            let seconds = self.of[counts as usize].get(span.clone()).unwrap_or_default();
            let of = || seconds.iter().flatten();
            let Some(first) = of().next() else { return f64::INFINITY };
            (of().map(|second| second.most).sum::<f64>() - first.ahead).max(0.0)
        };
        let [both, reads, writes] = Counts::EACH.map(of);
        Most { both, each: [reads, writes] }
    }
}

/// For each second; `None` without such a limit.
fn seconds(setup: &Setup, record: &Record, disk: usize, counts: Counts) -> Vec<Option<Strict>> {
    let mut ahead = 0.0_f64;
    let most = by_second(setup, record, disk, counts);
    let strict = record.seconds.iter().zip(most).map(|(second, most)| {
        ahead = if second.into == 0 { 0.0 } else { ahead };
        let strict = most.map(|most| Strict { most, ahead });
        let got = second.disks.get(disk).map_or(0.0, |disk| counts.got(disk));
        ahead = most.map_or(0.0, |most| (ahead + got - most).max(0.0));
        strict
    });
    strict.collect()
}

fn by_second(setup: &Setup, record: &Record, disk: usize, counts: Counts) -> Vec<Option<f64>> {
    let mut most = vec![None; record.seconds.len()];
    let (mut begin, mut chances) = (0, record.chances.as_slice());
    for phase in &setup.phases {
        let end = begin + phase.seconds;
        let within = chances.partition_point(|chance| chance.at < end as f64);
        let (of_phase, later) = chances.split_at(within);
        chances = later;
        if let Some(mut order) = Order::new(setup, phase, (disk, counts), begin as f64) {
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
    /// The reservations of the others: without limits, with limits that leave them no more, and
    /// with limits that let them make good for a pause.
    others: [Reserved; 3],
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
    /// What their limits let them have at once and in a second; infinite without.
    room: f64,
    limit: f64,
    burst: f64,
}

impl Reserved {
    fn pass(&mut self, seconds: f64) {
        self.due = (self.due + seconds * self.rate).min(self.most);
        if self.limit.is_finite() {
            self.room = (self.room + seconds * self.limit).min(self.burst);
        }
    }

    /// What can be sent to them.
    fn wanted(&self) -> f64 {
        self.due.min(self.room)
    }

    fn serve(&mut self, cost: f64) -> f64 {
        let served = self.wanted().min(cost);
        self.due -= served;
        self.room -= served;
        served
    }
}

impl Order {
    fn new(
        setup: &Setup,
        phase: &Phase,
        (disk, counts): (usize, Counts),
        begin: f64,
    ) -> Option<Order> {
        let (policy, _) = phase.disks.get(disk)?;
        let limit = counts.limit(setup.most(disk, policy));
        if limit.is_infinite() {
            return None;
        }
        let mut others = [Reserved::default(); 3];
        for (other, (policy, load)) in phase.disks.iter().enumerate() {
            let Some(rate) = policy.reservation().map(|rate| rate.get() as f64) else { continue };
            if other == disk || *load == Load::Idle {
                continue;
            }
            let Most { both, each } = setup.most(other, policy);
            let limit = both.min(each[0] + each[1]);
            let largest = setup.cost(setup.disks[other].sizes.largest());
            let has_room = limit.is_finite() && each.iter().all(|each| each.is_infinite());
            let kind = match [both, each[0], each[1]].into_iter().all(f64::is_infinite) {
                true => 0,
                false => 1 + usize::from(has_room && limit > rate),
            };
            let of = &mut others[kind];
            let made_good = if kind == 1 { PAUSE } else { MADE_GOOD };
            of.rate += rate.min(limit);
            of.most += (rate * made_good).max(largest);
            of.limit += limit;
            of.burst += (limit * PAUSE).max(largest);
            of.room = of.burst;
        }
        let cost = setup.cost(setup.disks[disk].sizes.largest());
        let own = policy.reservation().map(|rate| rate.get() as f64);
        Some(Order {
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
        self.others.iter_mut().for_each(|others| others.pass(passed));
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
            let due: f64 = self.others.iter().map(Reserved::wanted).sum();
            if self.own > chance.at && due >= room {
                break;
            }
            self.send(chance.at);
            sent(chance.at, self.cost);
            room -= self.cost;
        }
        let mut left = room.max(0.0);
        for others in self.others.iter_mut().rev() {
            left -= others.serve(left);
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
    use crate::record::Second;
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
        by_second(&setup, &record, 0, Counts::All)
            .into_iter()
            .map(|most| most.unwrap().round())
            .collect()
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
    fn others_whose_limits_have_room_come_first_until_a_pause_is_made_good_for() {
        // They are owed 400, and take 950 in a second until then.
        let paused = |ms: u64| (1_000..1_500).contains(&ms);
        let most = most((0, 100), (800, 950), paused, 4);
        assert!(most[1] < 30.0, "{most:?}");
        assert!((45.0..55.0).contains(&most[2]), "{most:?}");
    }

    #[test]
    fn where_there_is_room_the_limit_alone_says() {
        let mut setup = draw(Class::Constant, 0);
        setup.phases[0].disks[0].0 = policy(0, 40, 1);
        let mut record = Record::default();
        record.seconds.resize_with(2, Second::default);
        record.chances = vec![Chance { at: 0.0, until: 1.5, cost: 0.0 }];
        let most: Vec<f64> =
            by_second(&setup, &record, 0, Counts::All).into_iter().flatten().collect();
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
        let of = seconds(&setup, &record, 0, Counts::All);
        let ahead = of.into_iter().filter_map(|of| Some(of?.ahead));
        are(&ahead.collect::<Vec<_>>(), &[0.0, 10.0, 15.0, 0.0]);
    }
}
