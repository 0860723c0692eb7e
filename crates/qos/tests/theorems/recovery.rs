//! Theorem 5: after a shortage reservations are met again, and who has none gets its part.

use crate::harness::*;
use headgate_qos::{Config, CostModel, Floor, Policy, SchedulerKind};
use headgate_units::Bytes;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// Reserved disks get `r (t - λ (1 + 1/n) Σr_j/T - Λ) - c` in any time t from when reservations
    /// fit, with j over the others.
    Reservation,
    /// Disks without a reservation get one part in n + 1 of what is sent in a shortage, from when
    /// all others are late.
    Floor,
    /// They get `(T - Σr) t` less a constant in any time t after λ is paid off.
    Rest,
}

/// A shortage that lasted for so long is over-commitment, and owed for no longer than
/// [`DEBT_BOUND`] and what the storage may have given beyond the reservations, a part of the floor
/// of the debt horizon: that horizon, and a second for what is still remembered of better times.
const OVER_COMMITTED: u64 = 6 * SECOND;
const DEBT_HORIZON: u64 = 5 * SECOND;
const DEBT_BOUND: u64 = 250 * MS;
/// How late a disk with requests in flight may ask and keep its turn.
const PATIENCE: u64 = 125 * MS;
const LEAD: u64 = 6;

/// Service in billionths of a reference IO.
struct Recovery {
    claim: Claim,
    floor: u64,
    since: u64,
    /// After the last event.
    queued: Vec<u32>,
    reserved: Vec<u64>,
    pace: u64,
    /// Since when those that wait are short, and for how long until all of them are late.
    short_since: Option<(u64, u64)>,
    /// Busy time in which reservations did not fit, since they last did for a busy second, and
    /// since when they fit.
    short: u64,
    fits: Option<u64>,
    /// Busy time in which they fit, since they did not.
    fitted: u64,
    slowest: u64,
    /// For how long requests have waited with nothing sent, and the longest such time beyond
    /// [`PATIENCE`]: a stall.
    waited: u64,
    stall: u64,
    /// How far each disk is behind what it is due, and the least of it; the last is for all without
    /// a reservation together.
    behind: Vec<(i128, i128)>,
    /// The most that was judged, by disk.
    judged: Vec<i128>,
    worst: Verdict,
}

impl Recovery {
    fn new(claim: Claim, setup: &Setup) -> Recovery {
        let Floor::OneIn(n) = setup.config.floor else { panic!("a set-up without a floor") };
        let disks = setup.policies.len();
        Recovery {
            short_since: None,
            claim,
            floor: n.into(),
            since: 0,
            queued: vec![0; disks],
            reserved: vec![0; disks],
            pace: setup.pace,
            short: 0,
            fits: None,
            fitted: 0,
            slowest: setup.pace,
            waited: 0,
            stall: 0,
            behind: vec![(0, 0); disks + 1],
            judged: vec![0; disks + 1],
            worst: Verdict { found: 0, bound: 1 },
        }
    }

    /// Whether a disk without a reservation has requests queued.
    fn free_waits(&self) -> bool {
        (0..self.queued.len()).any(|i| self.reserved[i] == 0 && self.queued[i] > 0)
    }

    /// For how long a shortage of those that wait must last until all of them are late: until what
    /// is reserved beyond the storage's rate comes to a request of each. `None`: it is no shortage.
    fn until_late(&self, view: &View) -> Option<u64> {
        let waiting = (0..self.queued.len()).filter(|i| self.queued[*i] > 0);
        let claimed = waiting.map(|i| self.reserved[i]).sum::<u64>() * self.pace;
        let beyond = claimed.checked_sub(SECOND).filter(|beyond| *beyond > 0)?;
        let each: u64 = view.largest.iter().sum();
        Some(each * self.pace * SECOND / beyond)
    }

    fn all_reserved(&self) -> u64 {
        self.reserved.iter().sum()
    }

    /// Whether the storage gives `(1 + 1/n) Σr`.
    fn feasible(&self) -> bool {
        self.all_reserved() * (self.floor + 1) * self.pace <= self.floor * SECOND
    }

    /// λ: how late reservations may be when they fit again.
    fn late(&self) -> u64 {
        match self.short {
            OVER_COMMITTED.. => DEBT_BOUND + DEBT_HORIZON / self.floor,
            short => short.clamp(DEBT_BOUND, DEBT_HORIZON),
        }
    }

    /// Λ: what the window, one request of each disk and the floor come to, and the last slow one.
    fn latency(&self, view: &View) -> u64 {
        let largest = *view.largest.iter().max().unwrap();
        let each: u64 = view.largest.iter().sum();
        let turns = u64::from(view.window) * largest + each + each.div_ceil(self.floor);
        turns * self.pace + largest * self.slowest
    }

    /// ρ': one request of each reserved disk, at the slowest pace that there was.
    fn round(&self, view: &View) -> u64 {
        let reserved = (0..self.reserved.len()).filter(|i| self.reserved[*i] > 0);
        reserved.map(|i| view.largest[i]).sum::<u64>() * self.slowest
    }

    /// The part of the storage that others' reservations take, with the floor, in billionths.
    fn others(&self, disk: usize) -> i128 {
        let others = i128::from((self.all_reserved() - self.reserved[disk]) * self.pace);
        others + others / i128::from(self.floor) + 1
    }

    /// How long λ takes to be paid off beside the floor.
    fn paid_off(&self, view: &View) -> u64 {
        let owed = (self.late() + self.latency(view) + PATIENCE) * self.all_reserved();
        let spare = SECOND * self.floor / (self.floor + 1) / self.pace - self.all_reserved();
        owed / spare.max(1)
    }

    /// Time passes.
    fn pass(&mut self, view: &View) {
        let time = view.now - self.since;
        self.since = view.now;
        if time == 0 {
            return;
        }
        let busy = self.queued.iter().any(|n| *n > 0);
        self.waited = if busy { self.waited + time } else { 0 };
        if self.waited > PATIENCE {
            self.stall = self.stall.max(self.waited);
        }
        match self.fits {
            None if busy => (self.short, self.fitted) = (self.short + time, 0),
            Some(_) if busy => self.fitted += time,
            _ => {}
        }
        let rest = SECOND / self.pace - self.all_reserved().min(SECOND / self.pace);
        let free = self.free_waits();
        let began = view.now - time;
        let late = self.short_since.is_some_and(|(at, until)| began >= at + until);
        let paid = self.fits.is_some_and(|at| view.now - time >= at + self.paid_off(view));
        for (i, (behind, least)) in self.behind.iter_mut().enumerate() {
            let (applies, rate) = match self.claim {
                Claim::Reservation if i < self.queued.len() => {
                    (self.fits.is_some() && self.queued[i] > 0, self.reserved[i])
                }
                Claim::Rest if i == self.queued.len() => (free && paid, rest),
                Claim::Floor if i == self.queued.len() => (free && late, 0),
                _ => (false, 0),
            };
            match applies {
                true => *behind += i128::from(rate) * i128::from(time),
                false => (*behind, *least) = (0, 0),
            }
        }
        self.judge(view);
    }

    fn judge(&mut self, view: &View) {
        let part = |ios: u64| i128::from(ios) * i128::from(SECOND);
        let of = |reserved: bool| {
            let disks = (0..self.reserved.len()).filter(|i| (self.reserved[*i] > 0) == reserved);
            disks.map(|i| view.largest[i]).max().unwrap_or(0)
        };
        for i in 0..self.behind.len() {
            let (behind, least) = self.behind[i];
            let found = behind - least;
            if found <= self.judged[i] {
                continue;
            }
            self.judged[i] = found;
            let bound = match self.claim {
                Claim::Reservation if i < self.reserved.len() => {
                    let late = i128::from(self.late()) * self.others(i) / i128::from(SECOND) + 1;
                    let time = late + i128::from(self.latency(view));
                    part(view.largest[i]) + i128::from(self.reserved[i]) * time
                }
                Claim::Floor => part(self.floor * of(false) + of(true)),
                Claim::Rest => {
                    let owed = PATIENCE + self.round(view);
                    let leads: u64 = (0..self.reserved.len())
                        .filter(|i| self.reserved[*i] > 0)
                        .map(|i| {
                            let pauses = owed + 2 * self.stall;
                            let paused = self.reserved[i] * pauses / SECOND + 1;
                            LEAD.max(4 * view.largest[i]).max(paused) + view.largest[i]
                        })
                        .sum();
                    let window = u64::from(view.window + 1) * of(true).max(of(false));
                    part(leads + window) + i128::from(self.all_reserved()) * i128::from(owed)
                }
                _ => continue,
            };
            self.worst = self.worst.or(Verdict { found, bound: bound.max(1) });
        }
    }

    fn send(&mut self, disk: usize, cost: u64, view: &View) {
        self.waited = 0;
        let cost = i128::from(cost) * i128::from(SECOND);
        let all = self.behind.len() - 1;
        match (self.claim, self.reserved[disk] > 0) {
            (Claim::Reservation, _) => self.behind[disk].0 -= cost,
            (Claim::Floor, true) if self.free_waits() => self.behind[all].0 += cost,
            (Claim::Floor, false) => self.behind[all].0 -= i128::from(self.floor) * cost,
            (Claim::Rest, false) => self.behind[all].0 -= cost,
            (Claim::Rest | Claim::Floor, true) => {}
        }
        for (behind, least) in &mut self.behind {
            *least = (*least).min(*behind);
        }
        self.judge(view);
    }
}

impl Observer for Recovery {
    fn see(&mut self, event: Event, view: &View) {
        self.pass(view);
        if let Event::Sent { disk, cost } = event {
            self.send(disk, cost, view);
        }
        self.queued.clear();
        self.queued.extend_from_slice(view.queued);
        let reserved = |p: &Policy| p.reservation().map_or(0, |r| r.get());
        self.reserved = view.policies.iter().map(reserved).collect();
        self.pace = view.pace;
        self.slowest = self.slowest.max(view.pace);
        self.short_since = self.until_late(view).map(|until| {
            let (at, longest) = self.short_since.unwrap_or((view.now, 0));
            (at, longest.max(until))
        });
        let changed = matches!(event, Event::Policy { .. } | Event::Pace { .. });
        if changed {
            self.judged.fill(0);
        }
        if changed || self.fits.is_none() {
            if self.feasible() {
                self.fits = Some(view.now);
            } else if self.fits.take().is_some() && self.fitted > 0 {
                // Better times are remembered: what comes is a stall, not over-commitment.
                (self.short, self.fitted) = (0, 0);
            }
        }
    }

    fn verdict(&self) -> Verdict {
        self.worst
    }
}

/// Storage of 200 IOs per second, or 50 in a shortage, beside reservations of 140.
fn case(name: &'static str, claim: Claim, start: Vec<Action>) -> Case {
    let cost_model = CostModel::Chunks { reference: Bytes::from_kib(4) };
    let config = Config { cost_model, floor: Floor::OneIn(10), ..Config::default() };
    let policies = vec![policy(1, 80, 0), policy(1, 60, 0), policy(3, 0, 0), policy(4, 0, 0)];
    let menu = vec![policy(1, 80, 0), policy(1, 60, 0), policy(2, 170, 0)];
    let (pace, order) = (5 * MS, Order::FirstIn);
    let keep = |disk, outstanding, cost| Action::Keep { disk, outstanding, cost };
    Case {
        name,
        setup: Setup { config, window: 4, pace, order, stalls: 0, shape: None, policies, menu },
        start,
        alphabet: vec![
            Action::Pace(20 * MS),
            Action::Pace(5 * MS),
            Action::Wait(900 * MS),
            keep(0, 9, 1),
            keep(1, 2, 3),
            keep(2, 9, 1),
        ],
        depth: 3,
        space: Space {
            disks: 4,
            counts: vec![1, 20],
            costs: vec![1, 2, 5],
            depths: vec![0, 1, 3, 9],
            waits: vec![20 * MS, 150 * MS, 600 * MS, 1_500 * MS, 6_500 * MS],
            policies: vec![(0, 0), (0, 1), (0, 2)],
            paces: vec![5 * MS, 20 * MS, 60 * MS],
            stalls: vec![],
        },
        length: 10,
        steps: 120,
        tail: if claim == Claim::Rest { 4_500 * MS } else { 2_500 * MS },
        observer: Box::new(move |setup| Box::new(Recovery::new(claim, setup))),
    }
}

fn cases() -> Vec<Case> {
    let keep = |disk, outstanding, cost| Action::Keep { disk, outstanding, cost };
    let all = [keep(0, 9, 1), keep(1, 9, 1), keep(2, 9, 1)];
    let shortage = [Action::Pace(20 * MS), Action::Wait(6_500 * MS)];
    let over = vec![Action::Pace(5 * MS)];
    let long = || [&all[..], &shortage, &over].concat();
    let brief = || {
        let pause = [Action::Wait(3 * SECOND), Action::Pace(20 * MS), Action::Wait(900 * MS)];
        [&all[..], &pause, &over].concat()
    };
    let mut shares_of_the_reserved =
        case("floor beside large shares", Claim::Floor, [&all[..], &shortage].concat());
    shares_of_the_reserved.setup.policies[0] = policy(1_000, 80, 0);
    shares_of_the_reserved.setup.policies[1] = policy(1_000, 60, 0);
    // What longer searches found once.
    let found = |name, claim, actions: &[Action]| Case {
        depth: 0,
        steps: 0,
        ..case(name, claim, [&all[..], &shortage, actions].concat())
    };
    let shallow = [keep(0, 1, 2), Action::Wait(6_500 * MS), Action::Wait(600 * MS), keep(1, 9, 5)];
    let alone = [
        Action::Wait(600 * MS),
        keep(1, 1, 5),
        Action::Wait(150 * MS),
        keep(0, 0, 5),
        keep(1, 9, 5),
    ];
    let mut large_shares_alone = found("floor, found beside large shares", Claim::Floor, &alone);
    large_shares_alone.setup.policies = shares_of_the_reserved.setup.policies.clone();
    vec![
        found("floor, found", Claim::Floor, &shallow),
        large_shares_alone,
        case("reservations at any time", Claim::Reservation, vec![]),
        case("reservations after over-commitment", Claim::Reservation, long()),
        case("reservations after a brief shortage", Claim::Reservation, brief()),
        case("floor in any shortage", Claim::Floor, vec![]),
        case("floor in over-commitment", Claim::Floor, [&all[..], &shortage].concat()),
        shares_of_the_reserved,
        case("the rest at any time", Claim::Rest, vec![]),
        case("the rest after over-commitment", Claim::Rest, long()),
        case("the rest after a brief shortage", Claim::Rest, brief()),
    ]
}

#[test]
fn reservations_and_the_rest_recover_from_a_shortage() {
    for worst in worst_of(&cases(), &product(SchedulerKind::MClock)) {
        assert!(!worst.verdict.is_broken(), "{worst}");
    }
}

#[test]
fn wrong_recoveries_are_found() {
    let cases = cases();
    for mistake in [
        Mistake::NoFloor,
        Mistake::EndlessDebt,
        Mistake::SlowStart,
        Mistake::HalfTheReservation,
        Mistake::NoReservations,
    ] {
        assert!(breaks(&cases, &textbook(mistake)), "{mistake:?}");
    }
}
