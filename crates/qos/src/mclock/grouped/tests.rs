//! Random events, beside lists of what is queued and in flight.

use super::{Group, GroupId, Groups};
use crate::any::{AnyScheduler, SchedulerKind};
use crate::config::Config;
use crate::cost::{CostModel, Io};
use crate::policy::Policy;
use crate::priority::{PriorityPolicy, PriorityScope};
use crate::scheduler::{Decision, DiskId, Scheduler};
use headgate_units::{Iops, Nanos, Priority, Shares};
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum Step {
    Register(Policy),
    Unregister(usize),
    Policy(usize, Policy),
    Highest(usize, u64),
    /// The groups of a parent each, and for each disk a group.
    Groups(Vec<(Option<u8>, Policy)>, Vec<u8>),
    Enqueue(usize, u64),
    Extract(usize),
    Dispatch(u8),
    Complete(u8),
    Wait(u64),
}

fn any_policy() -> impl Strategy<Value = Policy> {
    (1u64..5, 0u64..300, 0u64..400).prop_map(|(shares, reservation, limit)| {
        let limit = if limit < 100 { 0 } else { limit.max(reservation) };
        Policy::shared(Shares::new(shares).unwrap())
            .with_limit(Iops::new(limit).ok())
            .unwrap()
            .with_reservation(Iops::new(reservation.saturating_sub(100)).ok())
            .unwrap()
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let groups = prop::collection::vec((prop::option::of(0u8..4), any_policy()), 0..5);
    prop_oneof![
        1 => any_policy().prop_map(Step::Register),
        1 => (0usize..40).prop_map(Step::Unregister),
        2 => (0usize..40, any_policy()).prop_map(|(at, policy)| Step::Policy(at, policy)),
        1 => (0usize..40, 1u64..5).prop_map(|(at, most)| Step::Highest(at, most)),
        3 => (groups, prop::collection::vec(0u8..6, 8))
            .prop_map(|(groups, members)| Step::Groups(groups, members)),
        10 => (0usize..40, 0u64..5).prop_map(|(at, priority)| Step::Enqueue(at, priority)),
        1 => (0usize..40).prop_map(Step::Extract),
        8 => (1u8..4).prop_map(Step::Dispatch),
        6 => (1u8..4).prop_map(Step::Complete),
        6 => prop_oneof![0u64..1_000_000, 0u64..50_000_000, 0u64..3_000_000_000]
            .prop_map(Step::Wait),
    ]
}

/// Requests by what they were given; those of one final priority are a stream.
#[derive(Default)]
struct Disk {
    queued: VecDeque<(u64, u64)>,
    highest: u64,
    in_flight: usize,
    sent: u64,
}

struct Model {
    scheduler: AnyScheduler<u64>,
    now: Nanos,
    disks: Vec<(DiskId, Disk)>,
    flying: VecDeque<DiskId>,
    next: u64,
}

fn counts_for(given: u64, highest: u64) -> u64 {
    let given = if given == 0 { 100 } else { given };
    if highest == 0 { given } else { given.min(highest) }
}

impl Model {
    fn new() -> Model {
        let config = Config { cost_model: CostModel::Unit, ..Config::default() };
        let scheduler = AnyScheduler::new(SchedulerKind::MClock, config).unwrap();
        let (disks, flying) = (Vec::new(), VecDeque::new());
        let mut model = Model { scheduler, now: Nanos::from_secs(1), disks, flying, next: 0 };
        (0..3).for_each(|_| model.step(&Step::Register(Policy::default())));
        model
    }

    fn step(&mut self, step: &Step) {
        let (now, disks) = (self.now, self.disks.len());
        match step {
            Step::Register(policy) => {
                let id = self.scheduler.register(now, *policy);
                assert!(self.disks.iter().all(|(known, _)| *known != id));
                self.disks.push((id, Disk::default()));
            }
            Step::Unregister(at) if disks > 1 => {
                let (id, disk) = self.disks.swap_remove(at % disks);
                let mut back = self.scheduler.unregister(now, id).unwrap();
                back.sort_unstable();
                let queued: Vec<u64> = disk.queued.iter().map(|(request, _)| *request).collect();
                assert_eq!(back, queued, "requests are numbered as they come");
                assert!(self.scheduler.policy(id).is_err());
            }
            Step::Policy(at, policy) => {
                let id = self.disks[at % disks].0;
                self.scheduler.set_policy(now, id, *policy).unwrap();
                assert_eq!(self.scheduler.policy(id), Ok(*policy));
            }
            Step::Highest(at, most) => {
                let (id, disk) = &mut self.disks[at % disks];
                disk.highest = *most;
                let max = Priority::new(*most).unwrap();
                let scope = PriorityScope::WithinVm;
                let policy = PriorityPolicy { max, scope, ..PriorityPolicy::default() };
                self.scheduler.set_priorities(now, *id, policy).unwrap();
            }
            Step::Groups(groups, members) => self.group(groups, members),
            Step::Enqueue(at, given) => {
                let (id, disk) = &mut self.disks[at % disks];
                let io = Io { priority: Priority::new(*given).ok(), ..Io::default() };
                self.scheduler.enqueue(now, *id, io, self.next).unwrap();
                disk.queued.push_back((self.next, *given));
                self.next += 1;
            }
            Step::Extract(at) => {
                let (id, disk) = &mut self.disks[at % disks];
                let mut taken = self.scheduler.extract(now, *id, &mut |n| n % 3 > 0).unwrap();
                taken.sort_unstable();
                let (out, kept) = disk.queued.drain(..).partition::<Vec<_>, _>(|(n, _)| n % 3 > 0);
                assert_eq!(taken, out.iter().map(|(n, _)| *n).collect::<Vec<_>>());
                disk.queued.extend(kept);
            }
            Step::Unregister(_) => {}
            Step::Dispatch(most) => (0..*most).for_each(|_| self.dispatch()),
            Step::Complete(most) => {
                for id in self.flying.drain(..self.flying.len().min(*most as usize)) {
                    self.scheduler.complete(now, id);
                    if let Some((_, disk)) = self.disks.iter_mut().find(|(known, _)| *known == id) {
                        disk.in_flight -= 1;
                    }
                }
            }
            Step::Wait(time) => self.now += Nanos(*time),
        }
    }

    fn group(&mut self, groups: &[(Option<u8>, Policy)], members: &[u8]) {
        let id = |at: usize| GroupId(at as u32);
        let group = |(at, (parent, policy)): (usize, &(Option<u8>, Policy))| {
            let parent = parent.map(usize::from).filter(|parent| *parent < at);
            Group { id: id(at), parent: parent.map(id), policy: *policy }
        };
        let all: Vec<Group> = groups.iter().enumerate().map(group).collect();
        let of = self.disks.iter().zip(members);
        let of = of.filter(|(_, group)| usize::from(**group) < all.len());
        let members = of.map(|((disk, _), group)| (*disk, id(usize::from(*group)))).collect();
        self.scheduler.set_groups(self.now, &Groups { groups: all, members }).unwrap();
    }

    fn dispatch(&mut self) {
        match self.scheduler.dispatch(self.now) {
            Decision::Dispatch(next) => {
                let (id, disk) =
                    self.disks.iter_mut().find(|(known, _)| *known == next.disk).unwrap();
                let at = disk.queued.iter().position(|(request, _)| *request == next.request);
                let (_, given) = disk.queued.remove(at.unwrap()).unwrap();
                let counts = counts_for(given, disk.highest);
                assert_eq!(u64::from(next.priority.get()), counts);
                // Streams that a lower maximum makes one are each in their own order.
                let before = disk.queued.iter().take(at.unwrap());
                assert!(before.clone().all(|(_, other)| *other != given), "in order");
                disk.in_flight += 1;
                disk.sent += 1;
                self.flying.push_back(*id);
            }
            Decision::WaitUntil(at) => {
                assert!(at > self.now);
                assert!(self.scheduler.queued() > 0);
            }
            Decision::Idle => assert_eq!(self.scheduler.queued(), 0),
        }
    }

    fn check(&self) {
        let mut sum = 0;
        for (id, disk) in &self.disks {
            let counters = self.scheduler.counters(*id).unwrap();
            let sent = counters.by_reservation + counters.by_weight;
            let found = (counters.queued, counters.in_flight, sent);
            assert_eq!(found, (disk.queued.len(), disk.in_flight, disk.sent));
            sum += disk.queued.len();
        }
        assert_eq!(self.scheduler.queued(), sum);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn nothing_is_lost_sent_twice_or_out_of_order(steps in prop::collection::vec(any_step(), 1..150)) {
        let mut model = Model::new();
        for step in steps {
            model.step(&step);
            model.check();
        }
        // All that is queued goes, in the end.
        for _ in 0..100_000 {
            if model.scheduler.queued() == 0 {
                break;
            }
            model.now += Nanos::from_millis(20);
            model.dispatch();
        }
        prop_assert_eq!(model.scheduler.queued(), 0);
    }
}
