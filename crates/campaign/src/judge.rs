//! What each disk got beside what it was due, over settled spans.
//!
//! A span is some seconds of one phase, after those in which things settle. What the storage
//! delivered in it is what the gate dispatched, and what the storage would have served in the time
//! in which it had nothing. A disk is judged where its queue was never empty; what the others got
//! counts as all that they asked for.
//!
//! Who does not know when storage will pause cannot give in advance what the pause will cost. So a
//! span that ends before reservations can have caught up is not due all of it: by how much they are
//! late if nobody else is served ([`Second::late`](crate::record::Second)), and, where the window
//! is full at the end because one request takes long, what falls due meanwhile. It is due in the
//! next span. A limit holds meanwhile, so what a pause cost is due as far as the disk's limit lets
//! it be made good for (`MADE_GOOD`). And what is due second by second (`judge/by_second.rs`) is
//! right as well as what is due of the span as a whole.
//!
//! A scheduler cannot cut requests, so some are allowed for, each as large as the disk's largest:
//! - reservation: one, and what falls due while the largest request of another is served;
//! - limit, on both sides, and floor: one;
//! - shares: two of the largest of all.

mod by_second;
mod deadlines;
mod lanes;
mod strict;
mod turns;

use self::by_second::Dues;
use self::strict::Left;
use crate::oracle::{Claim, ClaimClass, Due, MADE_GOOD, PAUSE, Regime, due_beside};
use crate::record::{Record, Second};
use crate::setup::{Conduct, Load, Most, Phase, Setup};
use crate::tally::Tally;
use headgate_qos::Policy;
use headgate_units::{Iops, Shares};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measure {
    /// Short of the reservation over 5 s in which all reservations fit, as a part of it.
    Reservation5,
    /// The same over 1 s.
    Reservation1,
    /// Short over 5 s of what a reservation is due where they do not all fit, as a part of it.
    Shortage5,
    /// The same over 1 s.
    Shortage1,
    /// Over the limit in 5 s, as a part of it.
    Over5,
    /// The same in 1 s.
    Over1,
    /// Short of the limit over 5 s, where the limit is what is due.
    Limited5,
    /// Distance from what is due by shares over 5 s, as a part of it.
    Share5,
    /// The same over 1 s.
    Share1,
    /// Disks without reservation short of their floor over 5 s of shortage, together.
    Floor5,
    /// 99th percentile of the time past the deadline, in times that the storage takes for a window
    /// and one request. The deadlines are those of a server that has the reservation's rate and
    /// serves nobody else.
    Late,
    /// Of a disk with limits of reads or of writes that do not bind: distance of its reads from
    /// half of what it got over 5 s, as a part of that half.
    Turns5,
    /// Beyond a [latency target](crate::targets) that could be kept, as a part of it.
    Target,
    /// What other disks lose beside latency targets that nobody can keep, as a part of what they
    /// have without these.
    TargetLoss,
}

impl Measure {
    /// All of them.
    pub const ALL: [Measure; 14] = [
        Measure::Reservation5,
        Measure::Reservation1,
        Measure::Shortage5,
        Measure::Shortage1,
        Measure::Over5,
        Measure::Over1,
        Measure::Limited5,
        Measure::Share5,
        Measure::Share1,
        Measure::Floor5,
        Measure::Late,
        Measure::Turns5,
        Measure::Target,
        Measure::TargetLoss,
    ];
}

/// One comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// What is measured.
    pub measure: Measure,
    /// Of which disk; of several for the floor, then the first.
    pub disk: usize,
    /// The first second of the span.
    pub from: usize,
    /// What it got, in reference IOs.
    pub got: f64,
    /// What it was due, in reference IOs.
    pub due: f64,
    /// The difference as the measure says; 0 where there is none.
    pub error: f64,
}

/// All comparisons of a run, or of several, by measure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    tallies: [Tally; Measure::ALL.len()],
    /// The seed of the worst, and how bad it is.
    worst: [Option<(f64, u64)>; Measure::ALL.len()],
}

impl Score {
    /// The samples of a measure.
    pub fn of(&self, measure: Measure) -> &Tally {
        &self.tallies[measure as usize]
    }

    /// The seed of the worst sample of a measure; `None` of none.
    pub fn worst_seed(&self, measure: Measure) -> Option<u64> {
        self.worst[measure as usize].map(|(_, seed)| seed)
    }

    /// Adds one, of the run with this seed.
    pub fn add(&mut self, seed: u64, sample: &Sample) {
        self.tallies[sample.measure as usize].add(sample.error);
        self.see(sample.measure as usize, (sample.error, seed));
    }

    /// Adds those of another.
    pub fn merge(&mut self, other: Score) {
        for (mine, theirs) in self.tallies.iter_mut().zip(other.tallies) {
            mine.merge(theirs);
        }
        for (measure, worst) in other.worst.into_iter().enumerate() {
            worst.into_iter().for_each(|worst| self.see(measure, worst));
        }
    }

    /// Keeps the worse of two, and of equals that with the lower seed.
    fn see(&mut self, measure: usize, (error, seed): (f64, u64)) {
        let is_worse = self.worst[measure]
            .is_none_or(|(worst, of)| error > worst || error == worst && seed < of);
        if is_worse {
            self.worst[measure] = Some((error, seed));
        }
    }
}

/// Compares a run with what was due.
pub fn judge(setup: &Setup, record: &Record, floor: Option<u16>, found: &mut dyn FnMut(Sample)) {
    let period = setup.stall.map_or(0.0, |stall| stall.period().as_secs_f64());
    let long = (period.ceil() as usize).max(5);
    // A second that holds only a part of a period of stalls says nothing of what is due.
    let short = period == 0.0 || (1.0 / period).fract() == 0.0;
    let by_second = by_second::dues(setup, record, floor);
    let left: Vec<Left> =
        (0..setup.disks.len()).map(|disk| Left::new(setup, record, disk)).collect();
    let in_order = deadlines::late(setup, record);
    let turns: Vec<_> =
        (0..setup.disks.len()).map(|disk| turns::seconds(setup, record, disk)).collect();
    for from in 0..record.seconds.len() {
        for length in [1, long] {
            let Some(span) = record.seconds.get(from..from + length) else { continue };
            let before = from.checked_sub(1).and_then(|before| record.seconds.get(before));
            let Some(span) = Span::new(setup, before, span, from) else { continue };
            if !span.is_settled {
                continue;
            }
            span.limits(found);
            if length > 1 || short {
                let seconds = by_second.get(from..from + length).unwrap_or_default();
                let sum = |of: &dyn Fn(&Dues) -> f64| seconds.iter().map(of).sum::<f64>();
                let disks = 0..setup.disks.len();
                let by_second = disks.clone().map(|disk| sum(&|dues| dues.amounts[disk]));
                let lanes = disks.map(|disk| {
                    let turns = turns[disk].as_ref().and_then(|of| of.get(from..from + length));
                    [0, 1].map(|lane| {
                        let turns = turns.map(|of| of.iter().map(|second| second[lane]).sum());
                        sum(&|dues| dues.lanes[disk][lane]).min(turns.unwrap_or(f64::INFINITY))
                    })
                });
                let left: Vec<Most> =
                    left.iter().map(|left| left.most(from..from + length)).collect();
                let strict = left.iter().enumerate().map(|(disk, &left)| span.within(disk, left));
                let at = |second: Option<usize>, disk: usize| {
                    second
                        .and_then(|second| in_order.get(second)?.get(disk).copied())
                        .unwrap_or(0.0)
                };
                let later =
                    |disk| at(Some(from + length - 1), disk) - at(from.checked_sub(1), disk);
                let other = Other {
                    late: (0..setup.disks.len()).map(later).collect(),
                    by_second: by_second.collect(),
                    lanes: lanes.collect(),
                    strict: strict.collect(),
                    left: &left,
                };
                span.shares(floor, &other, found);
            }
        }
    }
    late(setup, record, found);
}

/// A part that is the whole but for rounding.
const ALWAYS: f64 = 0.999_999;

/// A stretch of one phase.
struct Span<'a> {
    setup: &'a Setup,
    phase: &'a Phase,
    from: usize,
    is_settled: bool,
    seconds: f64,
    /// Time in which the storage stood still.
    stalled: f64,
    /// By how much longer the window has been full at the end than it had at the beginning. Nobody
    /// can serve what falls due in it.
    blocked: f64,
    /// The same of how late reservations are at the least.
    late: f64,
    /// Pauses of the storage in which reservations became late.
    paused: f64,
    /// What each disk got.
    got: Vec<f64>,
    /// What it got of reads, and of writes.
    lanes: Vec<[f64; 2]>,
    /// What each client got of the first requests of disks that it registered, in reference IOs.
    /// A new disk is owed its first request, whatever was there before it.
    newcomers: Vec<f64>,
    /// Whether each disk always had requests queued.
    backlogged: Vec<bool>,
    /// The parts of the span in which it had reads alone queued, writes alone, both.
    asking: Vec<[f64; 3]>,
    /// What the storage delivered or could have delivered.
    delivered: f64,
    /// The largest cost of a request of each disk.
    grains: Vec<f64>,
}

impl<'a> Span<'a> {
    fn new(
        setup: &'a Setup,
        before: Option<&Second>,
        seconds: &[Second],
        from: usize,
    ) -> Option<Span<'a>> {
        let (first, last) = (seconds.first()?, seconds.last()?);
        if first.phase != last.phase {
            return None;
        }
        let phase = setup.phases.get(first.phase)?;
        let count = setup.disks.len();
        let of = |disk: usize| seconds.iter().filter_map(move |second| second.disks.get(disk));
        let got: Vec<f64> =
            (0..count).map(|disk| of(disk).map(|second| second.cost).sum()).collect();
        let steady = |disk: usize| {
            let asks = phase.disks.get(disk).is_some_and(|&(_, load)| load != Load::Idle);
            asks && setup.disks.get(disk).is_some_and(|disk| disk.conduct.is_steady())
        };
        let idle: f64 = seconds.iter().map(|second| second.idle).sum();
        Some(Span {
            setup,
            phase,
            from,
            is_settled: first.into >= setup.settle,
            seconds: seconds.len() as f64,
            stalled: seconds.iter().map(|second| second.stalled).sum(),
            blocked: (last.blocked - before.map_or(0.0, |before| before.blocked)).max(0.0),
            paused: before
                .into_iter()
                .chain(seconds)
                .zip(seconds)
                .map(|(before, second)| second.latest - before.late)
                .filter(|&pause| pause > PAUSE)
                .sum(),
            late: (last.late - before.map_or(0.0, |before| before.late)).max(0.0),
            backlogged: (0..count)
                .map(|disk| steady(disk) && of(disk).all(|second| !second.emptied))
                .collect(),
            asking: (0..count)
                .map(|disk| {
                    let time = |state: usize| of(disk).map(|d| d.asking[state]).sum::<f64>();
                    [0, 1, 2].map(|state| time(state) / seconds.len() as f64)
                })
                .collect(),
            lanes: (0..count)
                .map(|disk| [0, 1].map(|lane| of(disk).map(|second| second.lanes[lane]).sum()))
                .collect(),
            newcomers: (0..count)
                .map(|disk| {
                    let new: u32 = of(disk).map(|second| second.registered).sum();
                    let first = f64::from(new) * setup.cost(setup.disks[disk].sizes.largest());
                    first.min(got[disk])
                })
                .collect(),
            delivered: got.iter().sum::<f64>() + idle * phase.rate.get() as f64,
            got,
            grains: setup.grains(),
        })
    }

    fn is_long(&self) -> bool {
        self.seconds > 1.0
    }

    /// No disk is above its limit, whatever else happens.
    fn limits(&self, found: &mut dyn FnMut(Sample)) {
        let measure = if self.is_long() { Measure::Over5 } else { Measure::Over1 };
        for (disk, (policy, _)) in self.phase.disks.iter().enumerate() {
            // A disk that registers again is another disk, with limits of its own.
            if self.setup.disks[disk].conduct == Conduct::Registers {
                continue;
            }
            let Most { both, each } = self.setup.most(disk, policy);
            let [reads, writes] = self.lanes[disk];
            for (limit, got) in [(both, self.got[disk]), (each[0], reads), (each[1], writes)] {
                if limit.is_finite() {
                    let due = limit * self.seconds;
                    let error = (got - due - self.grains[disk]).max(0.0) / due;
                    found(Sample { measure, disk, from: self.from, got, due, error });
                }
            }
        }
    }

    /// The most that a disk may have of the span, if its limits count for so many seconds of it.
    fn most(&self, disk: usize, policy: &Policy, open: f64) -> Most {
        let over = |rate: f64| if rate.is_finite() { rate * open } else { f64::INFINITY };
        let Most { both, each } = self.setup.most(disk, policy);
        Most { both: over(both), each: each.map(over) }
    }

    /// The most that a disk with limits of one direction may have with reads alone queued, with
    /// writes alone, with both, each for all of the span.
    fn by_queue(most: Most) -> [f64; 3] {
        let [reads, writes] = most.each;
        [reads, writes, reads + writes].map(|lanes| lanes.min(most.both))
    }

    /// The most that a disk may have where it asked for all of it all the time; `None` where it
    /// did not, or had requests of a held direction alone queued now and then. What that one got
    /// counts as all that it asked for, as what a disk got whose queue was empty.
    fn always_asked(&self, disk: usize, policy: &Policy, open: f64) -> Option<f64> {
        let most = self.most(disk, policy, open);
        if !policy.limits_directions() {
            return self.backlogged[disk].then_some(most.both);
        }
        let parts = self.asking[disk].into_iter().zip(Span::by_queue(most));
        parts.into_iter().find(|&(part, _)| part >= ALWAYS).map(|(_, most)| most)
    }

    /// The most that a disk may have by what its limits leave, of the directions that it had
    /// queued.
    fn within(&self, disk: usize, left: Most) -> f64 {
        let parts = self.asking[disk].into_iter().zip(Span::by_queue(left));
        let always = parts.into_iter().find(|&(part, _)| part >= ALWAYS);
        always.map_or(left.both, |(_, most)| most)
    }

    /// What the disks may claim, if a limit counts for so many seconds, and reservations for so
    /// many.
    fn claims(&self, open: f64, promised: f64) -> Vec<Claim> {
        let claim = |(disk, (policy, _)): (usize, &(Policy, Load))| {
            let limit = self.always_asked(disk, policy, open);
            let rest = self.got[disk] - self.newcomers[disk];
            Claim {
                reservation: policy.reservation().map_or(0.0, |r| r.get() as f64) * promised,
                most: limit.unwrap_or_else(|| rest.min(self.most(disk, policy, open).both)),
                shares: Shares::get(policy.shares()) as f64,
                class: match policy.reservation() {
                    Some(_) => ClaimClass::Reserved,
                    None => ClaimClass::Unreserved,
                },
            }
        };
        self.phase.disks.iter().enumerate().map(claim).collect()
    }

    /// For how many seconds of the span reservations can be due at its end.
    fn promised(&self) -> f64 {
        (self.seconds - self.blocked.max(self.late)).max(0.0)
    }

    /// What a disk's reservation is due. What a stall costs is owed for [`MADE_GOOD`] after it, and
    /// the disk's limit says how much of it can be paid in that time.
    fn reserved(&self, disk: usize, policy: &Policy) -> f64 {
        let Some(reservation) = policy.reservation() else { return 0.0 };
        let reservation = reservation.get() as f64;
        let stalls = self
            .setup
            .stall
            .map_or(0.0, |stall| (self.seconds / stall.period().as_secs_f64()).max(1.0));
        let lost = self.stalled.max(self.paused);
        let open = (self.seconds - lost).max(0.0);
        let room = self.setup.most(disk, policy).both - reservation;
        let made_good = (reservation * lost).min(room * open.min(MADE_GOOD * stalls));
        let by_order = reservation * self.promised();
        by_order.min(reservation * open + made_good)
    }

    /// What is due beside the first requests of new disks. The floor is a part of these as well.
    /// New disks without a reservation come first of all that have none, and have it before others.
    fn divide(&self, claims: &[Claim], floor: Option<u16>) -> Due {
        let first = |class| {
            let of = claims.iter().zip(&self.newcomers).filter(move |of| of.0.class == class);
            of.map(|of| of.1).sum::<f64>()
        };
        let [reserved, unreserved] = [ClaimClass::Reserved, ClaimClass::Unreserved].map(first);
        let floor = floor.filter(|_| unreserved == 0.0);
        let kept = floor.map_or(0.0, |n| self.delivered / (f64::from(n) + 1.0));
        due_beside(claims, self.delivered - reserved - unreserved, kept)
    }

    /// What is due, if a limit is made good for after a stall or not.
    fn due(&self, open: f64, floor: Option<u16>) -> Due {
        self.divide(&self.claims(open, self.promised()), floor)
    }

    /// What is due if no limit gives more than what it [leaves](strict), and reservations count for
    /// so many seconds.
    fn due_within(&self, strict: &[f64], promised: f64, floor: Option<u16>) -> Due {
        let mut claims = self.claims(self.seconds, promised);
        for (claim, strict) in claims.iter_mut().zip(strict) {
            claim.most = claim.most.min(*strict);
        }
        self.divide(&claims, floor)
    }

    /// What is due by reservations in proportion, where all of them, as far as limits leave them,
    /// do not fit into what was delivered; infinite where they do. And whether they fit.
    fn proportional(&self, strict: &[f64], floor: Option<u16>) -> (Vec<f64>, Regime) {
        let due = self.due_within(strict, self.seconds, floor);
        let amounts = match due.regime {
            Regime::Plenty => vec![f64::INFINITY; due.amounts.len()],
            Regime::Brim | Regime::Shortage => due.amounts,
        };
        (amounts, due.regime)
    }

    /// Reservations, limits from below, shares and the floor.
    fn shares(&self, floor: Option<u16>, other: &Other<'_>, found: &mut dyn FnMut(Sample)) {
        let loose = self.due(self.seconds, floor);
        let strict = match self.stalled + self.blocked {
            0.0 => loose.clone(),
            lost => self.due((self.seconds - lost).max(0.0), floor),
        };
        let within = self.due_within(&other.strict, self.promised(), floor);
        let (proportional, whole) = self.proportional(&other.strict, floor);
        let largest = self.grains.iter().copied().fold(0.0, f64::max);
        if loose.regime == Regime::Plenty && self.is_long() {
            for disk in 0..self.got.len() {
                let (left, seconds) = (other.left[disk].each, other.lanes[disk]);
                let least = [0, 1].map(|lane| left[lane].min(seconds[lane]));
                self.directions(disk, [&loose, &strict], least, found);
            }
        }
        for disk in (0..self.got.len()).filter(|&disk| self.backlogged[disk]) {
            if self.always_asked(disk, &self.phase.disks[disk].0, self.seconds).is_none() {
                self.held(disk, largest, loose.regime, found);
                continue;
            }
            let (a, b) = (loose.amounts[disk], strict.amounts[disk]);
            let others = [other.by_second[disk], within.amounts[disk]];
            let reserved = a.min(b).min(proportional[disk]);
            let low = others.into_iter().fold(a.min(b), f64::min);
            let high = others.into_iter().fold(a.max(b), f64::max);
            let (strict, late) = (other.strict[disk], other.late[disk]);
            let fair = Fair { reserved, late, whole, low, high, strict, largest };
            self.disk(disk, &fair, loose.regime, found);
        }
        if loose.regime == Regime::Shortage && self.is_long() {
            self.floor(&loose, found);
        }
    }

    fn disk(&self, disk: usize, fair: &Fair, regime: Regime, found: &mut dyn FnMut(Sample)) {
        let (policy, _) = self.phase.disks[disk];
        let (got, grain) = (self.got[disk], self.grains[disk]);
        let rate = |rate: Option<Iops>| rate.map(|rate| rate.get() as f64);
        let mut tell = |measure, due: f64, wrong: f64| {
            let error = if due > 0.0 { wrong.max(0.0) / due } else { 0.0 };
            found(Sample { measure, disk, from: self.from, got, due, error });
        };
        let reserved = rate(policy.reservation()).map(|reservation| {
            let late = reservation * fair.late;
            let due = fair.reserved.min(self.reserved(disk, &policy)).min(fair.strict);
            let due = due.min(reservation * self.seconds - late);
            let wait = reservation * fair.largest / self.phase.rate.get() as f64;
            let measure = match (fair.whole, self.is_long()) {
                (Regime::Shortage, true) => Measure::Shortage5,
                (Regime::Shortage, false) => Measure::Shortage1,
                (_, true) => Measure::Reservation5,
                (_, false) => Measure::Reservation1,
            };
            tell(measure, due, due - got - grain - wait);
            reservation * self.seconds
        });
        if regime != Regime::Plenty || reserved.is_some_and(|due| fair.high <= due * 1.000_001) {
            return;
        }
        let limit = self.always_asked(disk, &policy, self.seconds).unwrap_or(f64::INFINITY);
        if fair.high >= limit * 0.999_999 {
            if self.is_long() {
                let due = fair.low.min(fair.strict);
                tell(Measure::Limited5, due, due - got - grain);
            }
            return;
        }
        let measure = if self.is_long() { Measure::Share5 } else { Measure::Share1 };
        let wrong = (fair.low - got).max(got - fair.high) - 2.0 * fair.largest;
        tell(measure, fair.high, wrong);
    }

    /// The reservation of a disk that had requests of a held direction alone queued now and then:
    /// it is due as far as what was queued could have it.
    fn held(&self, disk: usize, largest: f64, regime: Regime, found: &mut dyn FnMut(Sample)) {
        let (policy, _) = self.phase.disks[disk];
        let (Some(reservation), Regime::Plenty) = (policy.reservation(), regime) else { return };
        let reservation = reservation.get() as f64;
        let open = (self.seconds - self.stalled - self.blocked).max(0.0);
        let parts = self.asking[disk].iter().zip(Span::by_queue(self.most(disk, &policy, open)));
        let due: f64 = parts.map(|(part, most)| part * most.min(reservation * open)).sum();
        let (got, from) = (self.got[disk], self.from);
        let wait = reservation * largest / self.phase.rate.get() as f64;
        let error = (due - got - self.grains[disk] - wait).max(0.0) / due.max(f64::MIN_POSITIVE);
        let measure = if self.is_long() { Measure::Reservation5 } else { Measure::Reservation1 };
        found(Sample { measure, disk, from, got, due, error });
    }

    fn floor(&self, due: &Due, found: &mut dyn FnMut(Sample)) {
        let counts = |disk: &usize| {
            self.backlogged[*disk] && self.phase.disks[*disk].0.reservation().is_none()
        };
        let disks: Vec<usize> = (0..self.got.len()).filter(counts).collect();
        let Some(&first) = disks.first() else { return };
        let sum = |amounts: &[f64]| disks.iter().map(|&disk| amounts[disk]).sum::<f64>();
        let (got, due) = (sum(&self.got), sum(&due.amounts));
        let error = (due - got - self.grains[first]).max(0.0) / due.max(f64::MIN_POSITIVE);
        let from = self.from;
        found(Sample { measure: Measure::Floor5, disk: first, from, got, due, error });
    }
}

/// What is due of a span otherwise, to each disk.
struct Other<'a> {
    /// By how much later its reservation is at the end than at the beginning in the
    /// [order by deadlines](deadlines), in seconds.
    late: Vec<f64>,
    /// [By the second](by_second).
    by_second: Vec<f64>,
    /// The same, of reads and of writes, and no more than [turns] leave.
    lanes: Vec<[f64; 2]>,
    /// At most, by [strict limits](strict).
    strict: Vec<f64>,
    /// The same, by each limit.
    left: &'a [Most],
}

/// What one disk is due, between a limit that is made good for after stalls and one that is not,
/// and [by the second](by_second).
struct Fair {
    /// Of the span as a whole, the least.
    reserved: f64,
    /// By how much later its reservation is in the order by deadlines, in seconds.
    late: f64,
    /// Whether the reservations, for all of the span, fit into it.
    whole: Regime,
    low: f64,
    high: f64,
    /// What its [limit leaves](strict).
    strict: f64,
    /// The largest cost of a request of all disks.
    largest: f64,
}

fn late(setup: &Setup, record: &Record, found: &mut dyn FnMut(Sample)) {
    let Some(phase) = setup.phases.first() else { return };
    let window = f64::from(setup.window + 1) / phase.rate.get() as f64;
    for (disk, late) in record.late.iter().enumerate() {
        let mut tally = Tally::default();
        late.iter().for_each(|&time| tally.add(time));
        let Some(got) = tally.quantile(0.99) else { continue };
        let error = got / window;
        found(Sample { measure: Measure::Late, disk, from: 0, got, due: window, error });
    }
}
