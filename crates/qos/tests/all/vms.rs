//! What virtual machines are promised, whatever the priorities of their applications, and what a
//! plug may do.

use crate::common::*;
use headgate_qos::{
    Config, Decision, DiskId, Io, MClock, Policy, PriorityPolicy, PriorityScope, Scheduler,
    SchedulerKind,
};
use headgate_units::{Nanos, Priority};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A virtual machine: what it is promised, its priorities, and its applications.
#[derive(Clone, Debug)]
struct Vm {
    policy: Policy,
    priorities: PriorityPolicy,
    /// Each with its priority and its requests outstanding.
    applications: Vec<(u64, usize)>,
}

fn priority(n: u64) -> Priority {
    Priority::new(n).unwrap()
}

fn priorities() -> impl Strategy<Value = PriorityPolicy> {
    let scopes = prop::sample::select(vec![PriorityScope::WithinVm, PriorityScope::AcrossVms]);
    (1u64..=254, 1u64..=254, scopes).prop_map(|(max, default, scope)| PriorityPolicy {
        max: priority(max),
        default: priority(default),
        scope,
    })
}

fn vm() -> impl Strategy<Value = Vm> {
    let promise = (
        1u64..=2_000,
        prop_oneof![1 => Just(0u64), 1 => 1u64..300],
        prop_oneof![1 => Just(0u64), 1 => 1u64..600],
    );
    // Deeper than the window in all, so that something always waits.
    let applications = prop::collection::vec((1u64..=254, 9usize..24), 4..8);
    (promise, priorities(), applications).prop_map(
        |((shares, reservation, limit), priorities, applications)| {
            // A limit forgives little lateness, so one that is the reservation can keep it from
            // being met.
            let reservation = if limit > 0 { reservation.min(limit * 9 / 10) } else { reservation };
            Vm { policy: policy(shares, reservation, limit), priorities, applications }
        },
    )
}

/// Storage that carries the reservations, and the VMs on it: the clients of each.
fn bench(vms: &[Vm], spare: u64, plug: Nanos) -> (Bench, Vec<Vec<usize>>) {
    let reserved: u64 = vms.iter().filter_map(|vm| vm.policy.reservation()).map(|r| r.get()).sum();
    let rate = (reserved + reserved / 50 + spare).max(10);
    let mut bench = Bench::new(SchedulerKind::MClock, Config { plug, ..unit() }, rate).window(32);
    let clients = vms
        .iter()
        .map(|vm| {
            let disk = bench.add(vm.policy, Client::Closed { outstanding: 0 });
            bench.scheduler.set_priorities(bench.now, bench.disk(disk), vm.priorities).unwrap();
            let each =
                |(priority, depth): &(u64, usize)| bench.application(disk, *priority, *depth);
            vm.applications.iter().map(each).collect()
        })
        .collect();
    (bench, clients)
}

fn plug() -> impl Strategy<Value = Nanos> {
    prop_oneof![1 => Just(Nanos::ZERO), 1 => (1u64..=1_000_000).prop_map(Nanos)]
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn no_vm_gets_more_than_its_limit_in_any_window(
        vms in prop::collection::vec(vm(), 1..6),
        spare in 0u64..2_000,
        plug in plug(),
    ) {
        let (mut bench, clients) = bench(&vms, spare, plug);
        bench.run(secs(8));
        for (vm, clients) in vms.iter().zip(clients) {
            let Some(limit) = vm.policy.limit() else { continue };
            let mut times: Vec<Nanos> = clients.into_iter().flat_map(|c| bench.take_dispatches(c)).collect();
            times.sort_unstable();
            for window in [1, 2, 5] {
                let held = most_within(&times, secs(window));
                prop_assert!(held <= limit.get() * window + 1, "{} in {} s at {}", held, window, limit);
            }
        }
    }

    #[test]
    fn every_vm_gets_its_reservation_in_every_second(
        vms in prop::collection::vec(vm(), 1..6),
        spare in 100u64..500,
        plug in plug(),
    ) {
        let (mut bench, clients) = bench(&vms, spare, plug);
        bench.run(secs(1));
        let mut got = vec![0; vms.len()];
        for second in 1..=5 {
            let served = bench.run(secs(1));
            for (total, clients) in got.iter_mut().zip(&clients) {
                *total += clients.iter().map(|c| served[*c]).sum::<u64>();
            }
            for (n, vm) in got.iter().zip(&vms) {
                let due = vm.policy.reservation().map_or(0, |r| r.get()) * second;
                prop_assert!(n + 2 >= due, "{} of {} in {} s", n, due, second);
            }
        }
    }

    /// By arrivals, completions and questions in any order, without limits.
    #[test]
    fn a_plug_waits_only_for_others_and_no_longer_than_it_may(
        vms in prop::collection::vec((priorities(), 0u64..300), 1..5),
        steps in prop::collection::vec((0u8..3, any::<prop::sample::Index>(), prop::sample::select(vec![0u64, 5, 90, 200]), 0u64..200_000), 1..600),
        most in prop_oneof![1 => Just(0u64), 4 => 1u64..=1_000_000],
    ) {
        let mut plugged = Plugged::new(Nanos(most), &vms);
        for (what, which, given, wait) in steps {
            match what {
                0 => plugged.arrive(which.index(vms.len()), given),
                1 => plugged.complete(which),
                _ => plugged.dispatch()?,
            }
            plugged.pass(Nanos(wait))?;
        }
    }
}

/// A scheduler with a plug, and what a bystander knows of it.
struct Plugged {
    scheduler: MClock<(usize, Priority)>,
    disks: Vec<(DiskId, PriorityPolicy)>,
    most: Nanos,
    now: Nanos,
    /// When it asked to be asked again.
    wake: Option<Nanos>,
    /// The first of its answers that it waits, since the last request went.
    since: Option<Nanos>,
    in_flight: Vec<(usize, Priority)>,
    queued: Vec<usize>,
    /// Streams of each disk since it last had no requests.
    streams_seen: Vec<BTreeSet<Priority>>,
}

impl Plugged {
    fn new(most: Nanos, vms: &[(PriorityPolicy, u64)]) -> Plugged {
        let mut scheduler = MClock::new(Config { plug: most, ..unit() }).unwrap();
        let now = secs(1);
        let disks: Vec<_> = vms
            .iter()
            .map(|(priorities, reservation)| {
                let disk = scheduler.register(now, policy(1_000, *reservation, 0));
                scheduler.set_priorities(now, disk, *priorities).unwrap();
                (disk, *priorities)
            })
            .collect();
        let (queued, streams_seen) = (vec![0; disks.len()], vec![BTreeSet::new(); disks.len()]);
        Plugged {
            scheduler,
            disks,
            most,
            now,
            wake: None,
            since: None,
            in_flight: Vec::new(),
            queued,
            streams_seen,
        }
    }

    fn arrive(&mut self, disk: usize, given: u64) {
        let (id, policy) = self.disks[disk];
        let given = Priority::new(given).ok();
        let stream = policy.resolve(given);
        self.scheduler
            .enqueue(self.now, id, Io { priority: given, ..Io::default() }, (disk, stream))
            .unwrap();
        self.queued[disk] += 1;
        self.streams_seen[disk].insert(stream);
    }

    fn complete(&mut self, which: prop::sample::Index) {
        if self.in_flight.is_empty() {
            return;
        }
        let (disk, _) = self.in_flight.swap_remove(which.index(self.in_flight.len()));
        self.scheduler.complete(self.now, self.disks[disk].0);
        if self.queued[disk] == 0 && self.in_flight.iter().all(|(other, _)| *other != disk) {
            self.streams_seen[disk].clear();
        }
    }

    /// Time goes by; the scheduler is asked when it wanted to be.
    fn pass(&mut self, time: Nanos) -> Result<(), TestCaseError> {
        let then = self.now + time;
        while let Some(at) = self.wake.filter(|at| *at <= then) {
            self.now = self.now.max(at);
            self.dispatch()?;
        }
        self.now = then;
        Ok(())
    }

    fn dispatch(&mut self) -> Result<(), TestCaseError> {
        self.wake = None;
        match self.scheduler.dispatch(self.now) {
            Decision::Idle => {
                prop_assert_eq!(self.queued.iter().sum::<usize>(), 0, "idle while requests wait")
            }
            Decision::Dispatch(choice) => {
                let since = self.since.take().unwrap_or(self.now);
                prop_assert!(self.now - since <= self.most, "held for {}", self.now - since);
                self.in_flight.push(choice.request);
                self.queued[choice.request.0] -= 1;
            }
            Decision::WaitUntil(at) => {
                let since = *self.since.get_or_insert(self.now);
                prop_assert!(self.most > Nanos::ZERO, "waits without a plug");
                prop_assert!(at > self.now && at - since <= self.most, "{} after {}", at, since);
                let busy: Vec<usize> =
                    (0..self.disks.len()).filter(|d| !self.streams_seen[*d].is_empty()).collect();
                prop_assert!(!self.in_flight.is_empty(), "idle storage waits");
                let alone = busy.len() == 1 && self.streams_seen[busy[0]].len() == 1;
                prop_assert!(!alone, "waits for somebody better than the only one");
                self.wake = Some(at);
            }
        }
        Ok(())
    }
}
