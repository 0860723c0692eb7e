//! Disks with few requests outstanding beside others that fill the window, on storage that serves
//! one after another and on storage that serves side by side.

mod latencies;
mod work;

use super::PERIOD;
use crate::any::{AnyScheduler, SchedulerKind};
use crate::config::Config;
use crate::cost::{Cost, CostModel, Io};
use crate::dmclock::ServedElsewhere;
use crate::gate::{Gate, Took};
use crate::narrow::Narrow;
use crate::policy::Policy;
use crate::scheduler::{Decision, DiskId};
use crate::window::Slots;
use core::cmp::Reverse;
use headgate_units::{Bytes, Iops, Nanos, Shares};
use proptest::prelude::*;
use std::collections::BinaryHeap;

/// What is behind the gate.
#[derive(Clone, Copy, Debug)]
enum Storage {
    /// Serves one request after another, so many reference IOs per second.
    Serial { rate: u64, service: Service },
    /// Serves all at once, each in this time or up to a tenth more or less.
    Parallel { latency: Nanos },
    /// Serves one after another, and answers so much later: it needs many in flight.
    Far { rate: u64, latency: Nanos },
}

#[derive(Clone, Copy, Debug)]
enum Service {
    Constant,
    Exponential,
    /// Constant, but nothing is served in the first so many of each second.
    Stalling(Nanos),
}

/// The mean time between two requests of a client of depth 0.
const ARRIVALS: Nanos = Nanos::from_millis(12);

/// A client that keeps `depth` requests outstanding, each sent `think` after a completion. Those of
/// depth 0 send at random times.
#[derive(Clone, Copy)]
struct Client {
    policy: Policy,
    depth: u32,
    think: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Send(usize),
    /// A request that waits for no other.
    Arrive(usize),
    Done(Sent),
}

/// A request at the storage: whose it is, when it was queued and when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    client: usize,
    queued: Nanos,
    sent: Nanos,
    cost: Cost,
}

struct Bench {
    gate: Gate<(usize, Nanos)>,
    now: Nanos,
    storage: Storage,
    free: Nanos,
    clients: Vec<(Client, DiskId)>,
    /// Of each client's requests.
    sizes: Vec<Bytes>,
    active: Vec<bool>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    served: Vec<u64>,
    /// What the first client's requests took.
    took: Vec<Nanos>,
    dice: u64,
    /// Requests in flight over time, up to when that is true, and since when it is taken.
    flight: (u128, Nanos, Nanos),
    narrowest: Slots,
    /// What the first client's requests say of other servers.
    elsewhere: ServedElsewhere,
}

fn policy(shares: u64, reservation: u64, limit: u64) -> Policy {
    Policy::shared(Shares::new(shares).unwrap())
        .with_limit(Iops::new(limit).ok())
        .unwrap()
        .with_reservation(Iops::new(reservation).ok())
        .unwrap()
}

fn client(policy: Policy, depth: u32) -> Client {
    Client { policy, depth, think: Nanos::ZERO }
}

fn serial(rate: u64) -> Storage {
    Storage::Serial { rate, service: Service::Constant }
}

fn exponential(rate: u64) -> Storage {
    Storage::Serial { rate, service: Service::Exponential }
}

impl Bench {
    fn new(storage: Storage, window: u32, narrow: Narrow, clients: &[Client]) -> Bench {
        let sizes = vec![Bytes(4_096); clients.len()];
        Bench::with_sizes(storage, window, narrow, clients, CostModel::Unit, sizes)
    }

    fn with_sizes(
        storage: Storage,
        window: u32,
        narrow: Narrow,
        clients: &[Client],
        cost_model: CostModel,
        sizes: Vec<Bytes>,
    ) -> Bench {
        let config = Config { cost_model, ..Config::default() };
        let scheduler = AnyScheduler::new(SchedulerKind::MClock, config).unwrap();
        let mut gate = Gate::new(Nanos::ZERO, scheduler, Slots::whole(window));
        gate.set_narrow(Nanos::ZERO, narrow);
        let clients: Vec<_> =
            clients.iter().map(|&c| (c, gate.register(Nanos::ZERO, c.policy))).collect();
        let mut bench = Bench {
            gate,
            now: Nanos::ZERO,
            storage,
            free: Nanos::ZERO,
            active: vec![true; clients.len()],
            served: vec![0; clients.len()],
            took: Vec::new(),
            clients,
            sizes,
            events: BinaryHeap::new(),
            sequence: 0,
            dice: 1,
            flight: (0, Nanos::ZERO, Nanos::ZERO),
            narrowest: Slots::WINDOW_MAX,
            elsewhere: ServedElsewhere::NONE,
        };
        for index in 0..bench.clients.len() {
            bench.start(index);
        }
        bench
    }

    fn start(&mut self, index: usize) {
        let depth = self.clients[index].0.depth;
        for _ in 0..depth {
            self.plan(self.now, Event::Send(index));
        }
        if depth == 0 {
            self.plan(self.now, Event::Arrive(index));
        }
    }

    fn plan(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    /// 0 to 1, not 0.
    fn uniform(&mut self) -> f64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.dice >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn served_at(&mut self, cost: Cost) -> Nanos {
        match self.storage {
            Storage::Parallel { latency } => {
                self.now + Nanos((latency.0 as f64 * (0.9 + self.uniform() / 5.0)) as u64)
            }
            Storage::Far { rate, latency } => {
                let time = cost.as_millionths() as f64 * 1e3 / rate as f64;
                self.free = self.free.max(self.now) + Nanos(time as u64);
                self.free + latency
            }
            Storage::Serial { rate, service } => {
                let mean = cost.as_millionths() as f64 * 1e3 / rate as f64;
                let time = match service {
                    Service::Constant | Service::Stalling(_) => mean,
                    Service::Exponential => -self.uniform().ln() * mean,
                };
                self.free = self.free.max(self.now) + Nanos(time as u64);
                if let Service::Stalling(stall) = service {
                    self.free = self.free + stall.since(Nanos(self.free.0 % 1_000_000_000));
                }
                self.free
            }
        }
    }

    fn dispatch(&mut self) {
        while let Decision::Dispatch(sent) = self.gate.next(self.now) {
            let at = self.served_at(sent.cost);
            let ((client, queued), cost) = (sent.request, sent.cost);
            self.plan(at, Event::Done(Sent { client, queued, sent: self.now, cost }));
        }
    }

    /// What each client got per second in the seconds that follow.
    fn run(&mut self, length: Nanos) -> Vec<u64> {
        self.served.fill(0);
        self.took.clear();
        let end = self.now + length;
        while let Some(&Reverse((at, _, event))) = self.events.peek() {
            let wake = self.gate.next_wake().filter(|wake| *wake < at);
            if wake.unwrap_or(at) > end {
                break;
            }
            let passed = wake.unwrap_or(at).since(self.flight.1).0;
            self.flight.0 += u128::from(passed) * u128::from(self.gate.in_flight());
            self.flight.1 = wake.unwrap_or(at);
            self.now = self.flight.1;
            if wake.is_none() {
                self.events.pop();
                self.happen(event);
            }
            self.narrowest = self.narrowest.min(self.gate.window());
            self.dispatch();
        }
        self.now = end;
        let seconds = length.0 as f64 / 1e9;
        self.served.iter().map(|&n| (n as f64 / seconds).round() as u64).collect()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Send(index) => {
                let (_, disk) = self.clients[index];
                let io = Io { bytes: self.sizes[index], ..Io::default() };
                if self.active[index] {
                    let elsewhere = match index {
                        0 => self.elsewhere,
                        _ => ServedElsewhere::NONE,
                    };
                    let request = (index, self.now);
                    self.gate.enqueue_dmclock(self.now, disk, io, elsewhere, request).unwrap();
                }
            }
            Event::Arrive(index) => {
                self.plan(self.now, Event::Send(index));
                let gap = Nanos((-self.uniform().ln() * ARRIVALS.0 as f64) as u64);
                self.plan(self.now + gap, Event::Arrive(index));
            }
            Event::Done(Sent { client: index, queued, sent, cost }) => {
                let (client, disk) = self.clients[index];
                let took = Took { queued: sent - queued, device: self.now - sent };
                if index == 0 {
                    self.took.push(took.queued + took.device);
                }
                self.gate.measure(self.now, disk, took, self.sizes[index]);
                self.gate.complete(self.now, disk, cost);
                self.served[index] += 1;
                if client.depth > 0 {
                    self.plan(self.now + client.think, Event::Send(index));
                }
            }
        }
    }

    fn stop(&mut self, index: usize) {
        self.active[index] = false;
    }

    /// Mean requests in flight since the last call.
    fn in_flight(&mut self) -> f64 {
        let (time, until, since) = self.flight;
        self.flight = (0, until, until);
        time as f64 / until.since(since).0.max(1) as f64
    }
}

const SECOND: Nanos = Nanos::from_secs(1);

fn secs(n: u64) -> Nanos {
    Nanos(SECOND.0 * n)
}

#[test]
fn a_disk_costs_what_is_said() {
    let of = [size_of::<super::Tally>(), size_of::<super::latencies::Latencies>()];
    assert_eq!(of, [288, 784]);
}

/// The set-ups of the review: 1,000 per second, a window of 32, a reservation of 100.
#[test]
fn a_disk_with_few_requests_outstanding_gets_its_reservation() {
    for storage in [serial(1_000), exponential(1_000)] {
        for (depth, without) in [(1, 31), (2, 62)] {
            let clients = [client(policy(1, 100, 0), depth), client(policy(10, 0, 0), 64)];
            let got = Bench::new(storage, 32, Narrow::Never, &clients).run(secs(60));
            assert!(got[0].abs_diff(without) <= 2, "{storage:?}, depth {depth}: {got:?}");

            let mut bench = Bench::new(storage, 32, Narrow::ForReservations, &clients);
            bench.run(secs(5));
            for _ in 0..12 {
                let got = bench.run(secs(5));
                assert!((99..=114).contains(&got[0]), "{storage:?}, depth {depth}: {got:?}");
                assert!(got[0] + got[1] >= 950, "{storage:?}: {got:?}");
            }
        }
    }
}

/// Nobody's window is narrowed without need: with four outstanding, 125 per second fit.
#[test]
fn a_window_is_as_wide_as_the_reservations_allow() {
    let clients = [client(policy(1, 100, 0), 4), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    bench.run(secs(30));
    assert_eq!(bench.narrowest, Slots::whole(32));
    // With two, 16 requests in flight are as many as may be.
    let clients = [client(policy(1, 100, 0), 2), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    bench.run(secs(10));
    bench.in_flight();
    bench.run(secs(30));
    let mean = bench.in_flight();
    assert!((16.0..20.0).contains(&mean), "{mean}");
}

#[test]
fn it_grows_again_when_nobody_needs_it_narrow() {
    let clients = [client(policy(1, 100, 0), 1), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    bench.run(secs(5));
    let narrowed = bench.gate.narrowed().unwrap();
    assert_eq!(narrowed.disk, bench.clients[0].1);
    assert!(narrowed.window < Slots::whole(11), "{narrowed:?}");
    assert!(narrowed.before.as_millionths().abs_diff(1_000_000_000) < 20_000_000, "{narrowed:?}");
    bench.stop(0);
    bench.run(secs(5));
    assert_eq!((bench.gate.narrowed(), bench.gate.window()), (None, Slots::whole(32)));
}

/// Storage that serves side by side takes as long for one as for many: a narrow window would only
/// cost throughput, and it is not kept.
#[test]
fn storage_that_is_no_faster_for_it_keeps_its_window() {
    let storage = Storage::Parallel { latency: Nanos::from_millis(10) };
    let clients = [client(policy(1, 150, 0), 1), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(storage, 32, Narrow::ForReservations, &clients);
    let mut open = Bench::new(storage, 32, Narrow::Never, &clients);
    let (got, most) = (bench.run(secs(60)), open.run(secs(60)));
    assert!((90..=101).contains(&got[0]), "{got:?}");
    assert!(got[1] * 100 >= most[1] * 93, "{got:?} of {most:?}");
    // A reservation of 150 with 10 ms each needs two at a time.
    assert_eq!(bench.gate.needed_depth(bench.now, bench.clients[0].1), Some(2));
    let (got, most) = (bench.run(secs(3_600)), open.run(secs(3_600)));
    assert!(got[1] * 1_000 >= most[1] * 994, "{got:?} of {most:?}");
}

/// A tenth of the time is the client's, but that is more than the reservation leaves: one request
/// at a time is too slow in any window.
#[test]
fn what_no_window_reaches_is_given_up() {
    let slow = Client { think: Nanos::from_micros(300), ..client(policy(1, 600, 0), 1) };
    let clients = [slow, client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    bench.run(secs(30));
    assert!(bench.narrowest < Slots::whole(2), "it was tried: {}", bench.narrowest);
    assert_eq!(bench.gate.window(), Slots::whole(32));
    // At one in flight it got less than 450: two would do.
    assert_eq!(bench.gate.needed_depth(bench.now, bench.clients[0].1), Some(2));
}

/// A disk of few shares gets no more than its reservation, however fast the storage is. The window
/// finds out by itself that it may be wider.
#[test]
fn a_window_widens_under_a_disk_that_has_what_it_needs() {
    let clients = [client(policy(1, 100, 0), 1), client(policy(1_000, 0, 0), 256)];
    let mut bench = Bench::new(serial(1_000), 64, Narrow::ForReservations, &clients);
    bench.run(secs(10));
    assert!(bench.gate.window() < Slots::whole(11), "{}", bench.gate.window());
    bench.storage = serial(4_000);
    bench.run(secs(60));
    bench.in_flight();
    let got = bench.run(secs(20));
    let mean = bench.in_flight();
    assert!((28.0..42.0).contains(&mean), "{mean}");
    assert!(got[0] >= 98, "{got:?}");
}

/// Many reserved disks that wait for each other: no window has room for them.
#[test]
fn who_waits_in_the_queue_needs_capacity_and_no_narrow_window() {
    let mut clients = vec![client(policy(1, 75, 0), 8); 20];
    clients.push(client(policy(1, 0, 0), 64));
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    bench.run(secs(30));
    assert_eq!(bench.narrowest, Slots::whole(32));
    // Nor for one that would need it, while others are short of capacity.
    clients.push(client(policy(1, 100, 0), 1));
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    bench.run(secs(30));
    assert_eq!(bench.narrowest, Slots::whole(32));
}

/// A disk that is alone on storage that is too slow for it waits for nobody.
#[test]
fn nobody_is_narrowed_for_who_is_alone() {
    let clients = [client(policy(1, 900, 0), 8)];
    let mut bench = Bench::new(serial(500), 32, Narrow::ForReservations, &clients);
    bench.run(secs(30));
    assert_eq!(bench.narrowest, Slots::whole(32));
}

/// A narrower window than its depth would keep a disk's own requests out.
#[test]
fn a_window_holds_all_requests_of_the_disk_that_it_is_narrowed_for() {
    let clients = [client(policy(1, 960, 0), 8), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    bench.run(secs(30));
    assert!(bench.narrowest >= Slots::whole(8), "{}", bench.narrowest);
    assert!(bench.narrowest < Slots::whole(12), "{}", bench.narrowest);
}

/// Half of its reservation is served here, and as much elsewhere.
#[test]
fn a_disk_that_is_spread_over_servers_is_not_judged() {
    let one = ServedElsewhere::new(Cost::ONE, Cost::ONE, Bytes(4096)).unwrap();
    for (elsewhere, narrows) in [(ServedElsewhere::NONE, true), (one, false)] {
        let clients = [client(policy(1, 60, 0), 1), client(policy(1, 0, 0), 64)];
        let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
        bench.elsewhere = elsewhere;
        bench.run(secs(10));
        assert_eq!(bench.narrowest < Slots::whole(32), narrows, "{elsewhere:?}");
    }
}

/// A reservation that is set under load finds the disk with requests outstanding, which never
/// drain.
#[test]
fn a_reservation_set_under_load_sees_all_that_is_outstanding() {
    let clients = [client(policy(1, 0, 0), 6), client(policy(20, 0, 0), 64)];
    let mut bench = Bench::new(serial(1_000), 64, Narrow::ForReservations, &clients);
    bench.run(secs(5));
    let disk = bench.clients[0].1;
    bench.gate.set_policy(bench.now, disk, policy(1, 200, 0)).unwrap();
    bench.run(secs(10));
    let got = bench.run(secs(20));
    assert!((198..=214).contains(&got[0]), "{got:?}");
    bench.in_flight();
    bench.run(secs(20));
    // Six at a time need a window of 29 for 200 per second.
    let mean = bench.in_flight();
    assert!((27.0..31.0).contains(&mean), "{mean}");
}

/// A disk that asks for 83 per second is below a reservation of 100 because it asks for less.
#[test]
fn requests_that_wait_for_no_other_are_no_reason_to_narrow() {
    let clients = [client(policy(1, 100, 0), 0), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    let got = bench.run(secs(60));
    assert!((80..=87).contains(&got[0]), "{got:?}");
    assert_eq!(bench.narrowest, Slots::whole(32));
}

#[test]
fn a_shortage_is_no_reason_to_narrow() {
    let deep = client(policy(1, 900, 0), 64);
    for shallow in [client(policy(1, 600, 0), 64), client(policy(1, 600, 0), 32)] {
        let mut bench =
            Bench::new(serial(1_000), 32, Narrow::ForReservations, &[deep, shallow, deep]);
        bench.run(secs(30));
        assert_eq!(bench.narrowest, Slots::whole(32));
    }
}

/// A disk at a limit that is its reservation can have no more than that.
#[test]
fn a_limit_at_the_reservation_is_no_shortage() {
    let clients = [client(policy(1, 100, 100), 8), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    bench.run(secs(60));
    assert_eq!(bench.narrowest, Slots::whole(32));
}

#[test]
fn a_window_that_is_set_holds_also_while_it_is_narrowed() {
    let clients = [client(policy(1, 100, 0), 1), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    bench.run(secs(5));
    let narrow = bench.gate.window();
    bench.gate.set_window(bench.now, Slots::whole(64));
    assert_eq!(bench.gate.window(), narrow);
    bench.gate.set_window(bench.now, Slots::whole(2));
    assert_eq!((bench.gate.window(), bench.gate.narrowed()), (Slots::whole(2), None));
    bench.gate.set_window(bench.now, Slots::whole(64));
    bench.gate.set_narrow(bench.now, Narrow::Never);
    assert_eq!(bench.gate.window(), Slots::whole(64));
    assert_eq!(bench.run(secs(10))[0], 15);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// On storage that serves one after another, a disk gets its reservation wherever some window
    /// gives it: beside the wait for one slot, a window of one request takes as long as a request.
    #[test]
    fn reservations_are_kept_wherever_a_window_keeps_them(
        rate in 200u64..5_000,
        window in 1u32..128,
        depth in 1u32..6,
        part in 2u64..60,
        shares in 1u64..1_000,
        random in any::<bool>(),
    ) {
        let reservation = (rate * part / 100).max(1);
        // In a window of one a request waits for one and is served: 2/T. A window of two is enough.
        prop_assume!(u64::from(depth) * rate >= 3 * reservation);
        prop_assume!(reservation >= 20);
        let storage = if random { exponential(rate) } else { serial(rate) };
        let clients =
            [client(policy(1, reservation, 0), depth), client(policy(shares, 0, 0), 256)];
        let mut bench = Bench::new(storage, window, Narrow::ForReservations, &clients);
        bench.run(secs(10));
        // By chance a guest of one request gets its root more or less, as it cannot catch up.
        let time = if random { 60 } else { 20 };
        let by_chance = if random { 3.0 / ((time * reservation) as f64).sqrt() } else { 0.0 };
        let got = bench.run(secs(time));
        let least = reservation as f64 * (0.97 - by_chance) - 1.0;
        prop_assert!(got[0] as f64 >= least, "{:?} of {}", got, reservation);
        prop_assert!((got[0] + got[1]) * 100 >= rate * 94, "{:?}", got);
    }

    /// Whatever the clock does and whoever comes and goes, the window is never wider than it was
    /// set, and never less than one request or what was set.
    #[test]
    fn no_events_hurt(steps in prop::collection::vec((0u8..8, any::<u64>(), 0usize..4), 0..200)) {
        let config = Config { cost_model: CostModel::Unit, ..Config::default() };
        let scheduler = AnyScheduler::new(SchedulerKind::MClock, config).unwrap();
        let mut gate: Gate<usize> = Gate::new(Nanos::ZERO, scheduler, Slots::whole(8));
        gate.set_narrow(Nanos::ZERO, Narrow::ForReservations);
        let mut disks: Vec<DiskId> =
            (0..4).map(|n| gate.register(Nanos::ZERO, policy(1, 50 * n, 0))).collect();
        let mut flying = Vec::new();
        let mut now = Nanos::ZERO;
        for (what, time, index) in steps {
            now = if time % 7 == 0 { Nanos(time) } else { now + Nanos(time % PERIOD.0) };
            let disk = disks[index];
            match what {
                0 => {
                    gate.unregister(now, disk).unwrap();
                    disks[index] = gate.register(now, policy(1, time % 300, 0));
                }
                1 => {
                    let target = ["p99=10ms", "p50=10us", "p99.9=60s", ""][index].parse().ok();
                    let target = target.filter(|_| time % 1_000 > 0);
                    let policy = policy(1, time % 1_000, 0).with_latency_target(target).unwrap();
                    gate.set_policy(now, disk, policy).unwrap();
                }
                2 => drop(gate.extract(now, disk, &mut |_| time % 2 == 0).unwrap()),
                3 | 4 => {
                    if let Some(disk) = flying.pop() {
                        let took = Took { queued: Nanos(time), device: Nanos(time.rotate_left(9)) };
                        gate.measure(now, disk, took, Bytes(4096));
                        gate.complete(now, disk, Cost::ONE);
                    }
                }
                _ => gate.enqueue(now, disk, Io::default(), index).unwrap(),
            }
            while let Decision::Dispatch(sent) = gate.next(now) {
                flying.push(sent.disk);
            }
            prop_assert!(gate.window() <= Slots::whole(8) && gate.window() >= Slots::ONE);
        }
    }
}
