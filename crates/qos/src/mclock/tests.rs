//! Decision for decision against the oracle, with the structures checked after every step.

use super::claims::Claims;
use super::lanes::LaneState;
use super::oracle::{Oracle, OracleDecision};
use super::pace::Pace;
use super::served_elsewhere::REMEMBERED;
use super::share_order::Class;
use super::{DiskTags, MANY, MClock, State};
use crate::batch::Batch;
use crate::config::{Config, Floor};
use crate::cost::{Cost, CostModel, Io, IoKind};
use crate::direction::DirectionLimits;
use crate::dmclock::ServedElsewhere;
use crate::narrow::Narrow;
use crate::policy::{Burst, LimitMode, PeakTime, Policy};
use crate::priority::{PriorityPolicy, PriorityScope};
use crate::rate::before;
use crate::scheduler::{Decision, DiskId, Scheduler};
use headgate_units::{Bytes, BytesPerSec, Iops, Nanos, Priority, Shares};
use proptest::prelude::*;
use std::collections::BTreeSet;

impl<R> MClock<R> {
    /// Every disk is in the tournaments that its state says, with its own tags, and the counts
    /// agree.
    fn self_check(&self) {
        self.shares.self_check();
        self.reservations.self_check();
        self.blocked.self_check();
        self.left_over.self_check();
        let (mut queued, mut several, mut claims) = (0, 0, Claims::default());
        let mut taken = BTreeSet::new();
        for (slot, disk) in self.disks.iter().enumerate() {
            let ready = disk.state == State::Ready;
            let pending = disk.state == State::Pending;
            let tag = |on: bool, tag: u128| on.then_some((tag, slot as u32));
            if !disk.queue.is_empty() {
                assert!(taken.insert(disk.seat), "a seat for each");
                let reservation = disk.reservation.as_ref().map(|r| r.at);
                assert_eq!(
                    self.shares.at(disk.seat),
                    tag(ready, self.virtual_time.full(disk.share.at))
                        .map(|tag| (disk.class(), tag))
                );
                assert_eq!(
                    self.reservations.at(disk.seat),
                    reservation.and_then(|r| tag(ready || pending, u128::from(r)))
                );
                let until = if ready { self.held_lane(slot) } else { Some(disk.blocked_until()) };
                let wakes = until.and_then(|until| tag(true, u128::from(until)));
                assert_eq!(self.blocked.at(disk.seat), wakes);
                let held = disk.state == State::Blocked || pending;
                let stands_by = held && disk.limit_mode == LimitMode::Soft && !self.is_spread(slot);
                assert_eq!(self.left_over.at(disk.seat).is_some(), stands_by);
            }
            assert_eq!(
                disk.queue.is_empty(),
                matches!(disk.state, State::Empty | State::ServedElsewhere | State::Free)
            );
            let lowest = self.lowest_share(disk, self.competes_across(slot));
            // Those with a reservation catch up with the floor when that is next due.
            let bound = ready && disk.class() == Class::Unreserved;
            assert!(!bound || !before(disk.share.at, lowest), "credit beyond the burst");
            several += usize::from(disk.label == MANY);
            let waits = !disk.queue.is_empty() || disk.in_flight > 0;
            if waits && disk.state != State::Free {
                claims.add(Claims::of(disk));
            }
            queued += self.queued_by(slot);
        }
        taken.extend(&self.seats.vacated);
        assert_eq!(taken.len(), self.seats.end as usize, "every seat is taken or vacated");
        assert_eq!(queued, self.requests.len());
        assert_eq!(claims, self.claims);
        assert_eq!(several, self.blocks.len() - self.vacant_blocks.len(), "no block is lost");
    }

    /// Streams are in pairs, and the counts of lanes are true. When the held lane of a ready disk
    /// opens.
    fn held_lane(&self, slot: usize) -> Option<u64> {
        let disk = &self.disks[slot];
        let lanes = disk.lanes.as_ref()?;
        let streams = &self.blocks[self.priorities[slot].block as usize];
        let mut queued = [0, 0];
        for (place, stream) in streams.list.iter().enumerate() {
            let front = place == streams.front;
            let queue = if front { &disk.queue } else { &stream.queue };
            queued[place % 2] += queue.len();
            assert_eq!(stream.priority, streams.list[place ^ 1].priority);
            let is_front = place | 1 == streams.front | 1;
            let across = self.competes_across(slot);
            assert!(is_front && across || stream.tag.at == streams.list[place ^ 1].tag.at);
            assert!(!disk.queue.is_empty() || queue.is_empty(), "the front has requests");
        }
        assert_eq!(queued, lanes.queued());
        let states = streams.lanes.expect("a disk with lanes has them in its streams too");
        let held = (0..2).filter(|&n| states[n] == LaneState::Held && queued[n] > 0);
        held.map(|n| lanes.open_of(n)).min()
    }

    fn lowest_share(&self, disk: &DiskTags, across: bool) -> u64 {
        // In share units one IO at weight 1 is 2^20 millionths; tags are rounded down.
        let ios = disk.burst.get().max(u64::from(self.config.lead));
        let credit = match across {
            true => ((ios * 1_000_000) << 20) / 10,
            false => ((ios * 1_000_000) << 20) / disk.share.rate(),
        };
        self.virtual_time.at().wrapping_sub(credit)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Register(Policy),
    SetPolicy(prop::sample::Index, Policy),
    Unregister(prop::sample::Index),
    Extract(prop::sample::Index),
    SetPriorities(prop::sample::Index, PriorityPolicy),
    Enqueue(prop::sample::Index, Io, u8),
    ServedElsewhere(prop::sample::Index, ServedElsewhere),
    Dispatch(u8),
    Complete(prop::sample::Index),
    Forward(u64),
    Back(u64),
}

fn policies() -> impl Strategy<Value = Policy> {
    let rate = || {
        prop_oneof![Just(1u64), Just(7), Just(100), Just(1_000), 1u64..5_000, Just(1_000_000_000)]
    };
    let shares = prop_oneof![3 => 1u64..5, 1 => Just(1_000), 1 => 1u64..=1_000_000];
    let bandwidth = prop_oneof![Just(1u64), Just(1 << 20), Just(100 << 20), Just(1u64 << 63)];
    let burst = prop_oneof![Just(0u64), Just(1), Just(64), Just(256)];
    let direction = || {
        let bandwidth = prop_oneof![Just(1u64), Just(1 << 20), Just(100 << 20)];
        let limits = (prop::option::of(rate()), prop::option::weighted(0.3, bandwidth));
        prop::option::weighted(0.4, limits)
    };
    (
        shares,
        prop::option::of(rate()),
        prop::option::of(rate()),
        prop::option::weighted(0.2, bandwidth),
        burst,
        prop::sample::select(vec![LimitMode::Strict, LimitMode::Soft]),
        peaks(),
        [direction(), direction()],
        prop::sample::select(vec![None, "p99=5ms".parse().ok(), "p50=10us".parse().ok()]),
    )
        .prop_map(|(shares, a, b, bandwidth, burst, mode, peaks, directions, target)| {
            let (reservation, limit) = match (a, b) {
                (Some(a), Some(b)) => (Some(a.min(b)), Some(a.max(b))),
                other => other,
            };
            Policy::new(
                reservation.map(|r| Iops::new(r).unwrap()),
                limit.map(|l| Iops::new(l).unwrap()),
                bandwidth.map(|b| BytesPerSec::new(b).unwrap()),
                Shares::new(shares).unwrap(),
                Burst::new(burst).unwrap(),
            )
            .unwrap()
            .with_limit_mode(mode)
            .with_some_peaks(peaks)
            .with_some_directions(directions)
            .with_latency_target(target.filter(|_| a.is_some()))
            .unwrap()
        })
}

/// Peaks as multiples of the limits in tenths, 10 for none, and for how many seconds.
type Peaks = (u64, u64, u64);

fn peaks() -> impl Strategy<Value = Peaks> {
    let tenths = || prop_oneof![2 => Just(10u64), 1 => 11u64..=5_000, 1 => 11u64..40];
    (tenths(), tenths(), prop_oneof![Just(1u64), 1u64..=3_600])
}

impl Policy {
    /// Without those that a reservation does not allow.
    fn with_some_directions(self, directions: [Option<(Option<u64>, Option<u64>)>; 2]) -> Policy {
        let [read, write] = directions.map(|limits| {
            let (iops, bandwidth) = limits.unwrap_or_default();
            DirectionLimits {
                iops: iops.and_then(|n| Iops::new(n).ok()),
                bandwidth: bandwidth.and_then(|n| BytesPerSec::new(n).ok()),
            }
        });
        self.with_direction_limits(read, write).unwrap_or(self)
    }

    fn with_some_peaks(self, (iops, bytes, seconds): Peaks) -> Policy {
        let times = |limit: u64, tenths: u64| {
            let peak = (u128::from(limit) * u128::from(tenths) / 10).min(1 << 63) as u64;
            if peak > limit { peak } else { 0 }
        };
        let peak = self.limit().and_then(|l| Iops::new(times(l.get(), iops)).ok());
        let bandwidth = self.limit_bandwidth();
        let bandwidth = bandwidth.and_then(|b| BytesPerSec::new(times(b.get(), bytes)).ok());
        self.with_peaks(peak, bandwidth, PeakTime::from_secs(seconds).unwrap()).unwrap()
    }
}

fn priorities() -> impl Strategy<Value = Priority> {
    let value = prop_oneof![1u64..=254, Just(1), Just(100), Just(120), Just(254)];
    value.prop_map(|n| Priority::new(n).unwrap())
}

fn priority_policies() -> impl Strategy<Value = PriorityPolicy> {
    let scope = prop::sample::select(vec![PriorityScope::WithinVm, PriorityScope::AcrossVms]);
    (priorities(), priorities(), scope).prop_map(|(max, default, scope)| PriorityPolicy {
        max,
        default,
        scope,
    })
}

fn elsewhere() -> impl Strategy<Value = ServedElsewhere> {
    let ios = prop_oneof![
        4 => 0u64..8_000_000,
        1 => Just(0u64),
        1 => 0u64..2_000_000_000,
        1 => 0u64..10_000_000_000_000,
        1 => Just(u64::MAX),
    ];
    let bytes = prop_oneof![3 => 0u64..1 << 22, 1 => 0u64..1 << 36, 1 => Just(u64::MAX)];
    (ios, 0u64..=4, bytes).prop_map(|(delta, quarters, bytes)| {
        let rho = delta / 4 * quarters;
        ServedElsewhere::new(Cost::from_millionths(delta), Cost::from_millionths(rho), Bytes(bytes))
            .unwrap()
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let disk = any::<prop::sample::Index>;
    let size = prop_oneof![4 => Just(4_096u64), 2 => 0u64..1 << 21, 1 => Just(u64::MAX)];
    let kind = prop::sample::select(vec![
        IoKind::Read,
        IoKind::Write,
        IoKind::Journal,
        IoKind::Flush,
        IoKind::Discard,
    ]);
    let given = prop_oneof![4 => Just(None), 6 => priorities().prop_map(Some)];
    let ios = (size, 0u64..1 << 16, given, kind).prop_map(|(bytes, place, priority, kind)| Io {
        bytes: Bytes(bytes),
        position: place << 8,
        priority,
        kind,
    });
    let time = prop_oneof![
        0u64..2_000_000,
        Just(0),
        Just(1_000_000),
        0u64..2_000_000_000,
        Just(86_400_000_000_000)
    ];
    prop_oneof![
        1 => policies().prop_map(Step::Register),
        2 => (disk(), policies()).prop_map(|(d, p)| Step::SetPolicy(d, p)),
        1 => disk().prop_map(Step::Unregister),
        1 => disk().prop_map(Step::Extract),
        2 => (disk(), priority_policies()).prop_map(|(d, p)| Step::SetPriorities(d, p)),
        18 => (disk(), ios, 1u8..8).prop_map(|(d, io, n)| Step::Enqueue(d, io, n)),
        4 => (disk(), elsewhere()).prop_map(|(d, e)| Step::ServedElsewhere(d, e)),
        16 => (1u8..12).prop_map(Step::Dispatch),
        2 => disk().prop_map(Step::Complete),
        8 => time.clone().prop_map(Step::Forward),
        1 => time.prop_map(Step::Back),
    ]
}

fn configs() -> impl Strategy<Value = Config> {
    let cost_model = prop_oneof![
        Just(CostModel::Unit),
        Just(CostModel::default()),
        Just(CostModel::Chunks { reference: Bytes(512) }),
    ];
    let batch =
        prop::option::of((2u8..=8).prop_map(|requests| Batch { requests, ..Batch::default() }));
    let floor = prop_oneof![Just(Floor::Nothing), Just(Floor::OneIn(100)), Just(Floor::OneIn(3))];
    let millis = |ms: &[u64]| {
        prop::sample::select(ms.iter().map(|n| Nanos::from_millis(*n)).collect::<Vec<_>>())
    };
    let debts = (millis(&[10, 250, 10_000]), millis(&[0, 100, 5_000]));
    let times = (debts, millis(&[0, 2, 5]), millis(&[0, 1, 100]));
    (cost_model, batch, floor, times, prop_oneof![Just(2u16), Just(16)]).prop_map(
        |(
            cost_model,
            batch,
            floor,
            ((debt_bound, debt_horizon), anticipation, limit_slack),
            lead,
        )| Config {
            cost_model,
            batch,
            floor,
            debt_bound,
            debt_horizon,
            lead,
            anticipation,
            limit_slack,
            plug: Nanos::ZERO,
            narrow: Narrow::Never,
        },
    )
}

/// Both schedulers, and the ids that are alive or were.
struct Pair {
    real: MClock<u64>,
    oracle: Oracle,
    alive: Vec<DiskId>,
    gone: Vec<DiskId>,
    now: Nanos,
    requests: u64,
}

impl Pair {
    fn pick(&self, index: prop::sample::Index) -> Option<DiskId> {
        if self.alive.is_empty() { None } else { Some(self.alive[index.index(self.alive.len())]) }
    }

    fn apply(&mut self, step: Step) -> Result<(), TestCaseError> {
        let now = self.now;
        match step {
            Step::Forward(by) => self.now += Nanos(by),
            Step::Back(by) => self.now = self.now - Nanos(by),
            Step::Register(policy) => {
                if self.alive.len() < 12 {
                    let id = self.real.register(now, policy);
                    self.oracle.at(now);
                    self.oracle.register(id.slot as usize, policy);
                    prop_assert!(!self.gone.contains(&id), "an id came back");
                    prop_assert_eq!(self.real.policy(id), Ok(policy));
                    self.alive.push(id);
                }
            }
            Step::SetPolicy(index, policy) => {
                if let Some(id) = self.pick(index) {
                    self.real.set_policy(now, id, policy).unwrap();
                    self.oracle.at(now);
                    self.oracle.set_policy(id.slot as usize, policy);
                    prop_assert_eq!(self.real.policy(id), Ok(policy));
                }
            }
            Step::Unregister(index) => {
                if let Some(id) = self.pick(index) {
                    let queued = self.real.unregister(now, id).unwrap();
                    self.oracle.at(now);
                    prop_assert_eq!(queued, self.oracle.unregister(id.slot as usize));
                    self.alive.retain(|other| *other != id);
                    self.gone.push(id);
                }
            }
            Step::Extract(index) => {
                if let Some(id) = self.pick(index) {
                    let taken =
                        self.real.extract(now, id, &mut |request| request % 3 != 0).unwrap();
                    self.oracle.at(now);
                    prop_assert_eq!(
                        taken,
                        self.oracle.extract(id.slot as usize, |request| request % 3 != 0)
                    );
                }
            }
            Step::SetPriorities(index, policy) => {
                if let Some(id) = self.pick(index) {
                    self.real.set_priorities(now, id, policy).unwrap();
                    self.oracle.at(now);
                    self.oracle.set_priorities(id.slot as usize, policy);
                    prop_assert_eq!(self.real.priorities(id), Ok(policy));
                }
            }
            Step::Enqueue(index, io, times) => {
                let Some(id) = self.pick(index) else { return Ok(()) };
                self.oracle.at(now);
                for _ in 0..times {
                    self.requests += 1;
                    self.real.enqueue(now, id, io, self.requests).unwrap();
                    self.oracle.enqueue(id.slot as usize, io, self.requests);
                }
            }
            Step::ServedElsewhere(index, elsewhere) => {
                if let Some(id) = self.pick(index) {
                    self.real.served_elsewhere(now, id, elsewhere).unwrap();
                    self.oracle.at(now);
                    self.oracle.served_elsewhere(id.slot as usize, elsewhere);
                }
            }
            Step::Dispatch(times) => {
                for _ in 0..times {
                    self.decide()?;
                }
            }
            Step::Complete(index) => {
                if let Some(id) = self.pick(index) {
                    self.real.complete(now, id);
                    self.oracle.at(now);
                    self.oracle.complete(id.slot as usize);
                }
            }
        }
        self.real.self_check();
        prop_assert_eq!(self.real.reservation_debt().forgiven, self.oracle.forgiven());
        prop_assert_eq!(self.real.reservation_debt().behind, self.oracle.behind());
        for id in &self.gone {
            prop_assert!(self.real.enqueue(now, *id, Io::default(), 0).is_err());
            prop_assert!(self.real.counters(*id).is_err());
        }
        Ok(())
    }

    fn decide(&mut self) -> Result<(), TestCaseError> {
        let got = match self.real.dispatch(self.now) {
            Decision::Dispatch(d) => {
                prop_assert!(self.alive.contains(&d.disk));
                OracleDecision::Dispatch(
                    d.disk.slot as usize,
                    d.request,
                    d.phase,
                    d.cost,
                    d.priority,
                )
            }
            Decision::WaitUntil(at) => {
                prop_assert!(at > self.now);
                OracleDecision::WaitUntil(at)
            }
            Decision::Idle => {
                prop_assert_eq!(self.real.queued(), 0);
                OracleDecision::Idle
            }
        };
        self.oracle.at(self.now);
        prop_assert_eq!(got, self.oracle.dispatch());
        Ok(())
    }
}

proptest! {
    #[test]
    fn decides_as_the_rules_say(
        config in configs(),
        first in prop::collection::vec((policies(), prop::option::of(priority_policies())), 1..6),
        origin in any::<u64>(),
        steps in prop::collection::vec(steps(), 1..120),
    ) {
        let mut real = MClock::new(config).unwrap();
        // Anywhere on the circle: no outcome depends on where V stands.
        real.virtual_time.0 += u128::from(origin);
        real.pace = Pace::new(REMEMBERED, real.virtual_time.0);
        let mut pair = Pair {
            real,
            oracle: Oracle::new(config),
            alive: Vec::new(),
            gone: Vec::new(),
            now: Nanos::from_secs(1_000_000),
            requests: 0,
        };
        for (policy, priorities) in first {
            pair.apply(Step::Register(policy))?;
            if let Some(priorities) = priorities {
                let id = *pair.alive.last().unwrap();
                pair.real.set_priorities(pair.now, id, priorities).unwrap();
                pair.oracle.set_priorities(id.slot as usize, priorities);
            }
        }
        for step in steps {
            pair.apply(step)?;
        }
    }
}

#[test]
fn a_disk_left_behind_by_any_way_round_the_circle_is_served_next_and_once() {
    // The dearest request at the lightest weight advances V by 2^56: 256 of them go round the
    // circle.
    let cost_model = CostModel::Chunks { reference: Bytes(512) };
    let mut scheduler = MClock::new(Config { cost_model, ..Config::default() }).unwrap();
    let now = Nanos::from_secs(1);
    let one = Policy::shared(Shares::MIN).with_burst(Burst::NONE);
    let busy = scheduler.register(now, one);
    let idle: Vec<DiskId> = (0..700).map(|_| scheduler.register(now, one)).collect();
    let dear = Io { bytes: Bytes(u64::MAX), ..Io::default() };
    for _ in 0..3 {
        scheduler.enqueue(now, busy, dear, 0).unwrap();
    }
    let next = |scheduler: &mut MClock<u32>| match scheduler.dispatch(now) {
        Decision::Dispatch(d) => d.disk,
        other => panic!("{other:?}"),
    };
    assert_eq!(next(&mut scheduler), busy);
    for back in idle {
        scheduler.enqueue(now, busy, dear, 0).unwrap();
        for _ in 0..2 {
            scheduler.enqueue(now, back, dear, 0).unwrap();
        }
        assert_eq!(next(&mut scheduler), back);
        assert_eq!(next(&mut scheduler), busy, "the other's turn");
        scheduler.extract(now, back, &mut |_| true).unwrap();
    }
}

#[test]
fn memory_is_flat_under_guests_that_cycle_through_every_priority() {
    for scope in [PriorityScope::WithinVm, PriorityScope::AcrossVms] {
        let mut scheduler = MClock::new(Config::default()).unwrap();
        let now = Nanos::from_secs(1);
        let disks: Vec<DiskId> =
            (0..20).map(|_| scheduler.register(now, Policy::default())).collect();
        for disk in &disks {
            scheduler
                .set_priorities(now, *disk, PriorityPolicy { scope, ..PriorityPolicy::default() })
                .unwrap();
        }
        let ask = |scheduler: &mut MClock<u32>, disk: DiskId, priority: u64| {
            let io = Io { priority: Priority::new(priority).ok(), ..Io::default() };
            scheduler.enqueue(now, disk, io, 0).unwrap();
        };
        for round in 0..50u64 {
            for disk in &disks {
                for priority in 0..=254 {
                    ask(&mut scheduler, *disk, (priority * 7 + round) % 255);
                }
            }
            while let Decision::Dispatch(d) = scheduler.dispatch(now) {
                scheduler.complete(now, d.disk);
            }
            assert!(scheduler.blocks.len() <= disks.len(), "a block for each disk at most");
            assert!(scheduler.blocks.iter().all(|block| block.streams() <= 254));
        }
        // Others go on, of two priorities so that they come by the blocks of those at rest.
        for _ in 0..2_000 {
            for priority in [254, 1] {
                ask(&mut scheduler, disks[0], priority);
            }
            while let Decision::Dispatch(d) = scheduler.dispatch(now) {
                scheduler.complete(now, d.disk);
            }
        }
        let kept = scheduler.blocks.len() - scheduler.vacant_blocks.len();
        assert!(kept <= 1, "{kept} disks at rest hold streams in {scope:?}");
        scheduler.self_check();
    }
}
