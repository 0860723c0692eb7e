//! What limits of one direction promise (`mclock/lanes.rs`), judged by lists of what was
//! dispatched: never more than the limit allows, the other direction undisturbed, and no credit.

use crate::common::*;
use headgate_qos::{
    Config, Cost, CostModel, Decision, DirectionLimits, DiskId, Io, IoKind, LimitMode, MClock,
    Policy, PriorityPolicy, PriorityScope, Scheduler, SchedulerKind, ServedElsewhere,
};
use headgate_units::{Bytes, BytesPerSec, Iops, Nanos, Priority};
use proptest::prelude::*;

fn iops(limit: u64) -> DirectionLimits {
    DirectionLimits { iops: Iops::new(limit).ok(), bandwidth: None }
}

/// Shares, reservation, and limits of reads and writes; 0 for none.
fn directed(shares: u64, reservation: u64, read: u64, write: u64) -> Policy {
    policy(shares, reservation, 0).with_direction_limits(iops(read), iops(write)).unwrap()
}

/// Reads and writes of one disk, so many of each outstanding.
fn both(bench: &mut Bench, policy: Policy, reads: usize, writes: usize) -> [usize; 2] {
    let read = bench.deep(policy, reads);
    let write = bench.companion(read, IoKind::Write, writes);
    [read, write]
}

/// Times and costs of dispatches of which a limit allows less: more than `limit · (W + 250 ms)`
/// before the last one of any time W. A nanosecond for each that is rounded down.
fn excess(sent: &[(Nanos, u64)], limit: u64) -> Option<(Nanos, Nanos, u64)> {
    for (n, &(from, _)) in sent.iter().enumerate() {
        let mut sum = 0;
        for &(to, cost) in &sent[n..] {
            let window = to.since(from).0 + 250_000_000 + (sent.len() - n) as u64;
            if u128::from(sum) * 1_000_000_000 > u128::from(limit) * u128::from(window) {
                return Some((from, to, sum));
            }
            sum += cost;
        }
    }
    None
}

/// Two disks of equal shares. What the writes of one may not have is its reads', not the other's.
#[test]
fn reads_do_not_wait_behind_held_back_writes_nor_writes_behind_reads() {
    for kinds in [[IoKind::Read, IoKind::Write], [IoKind::Write, IoKind::Read]] {
        let limits = [iops(0), iops(100)];
        let [read, write] = if kinds[0] == IoKind::Read { limits } else { [limits[1], limits[0]] };
        let disk = policy(1, 0, 0).with_direction_limits(read, write).unwrap();
        let mut bench = Bench::mclock(1_000);
        // The held direction is asked first, and has far more queued.
        let held = bench.add(disk, Client::Closed { outstanding: 256 });
        bench.kind(held, kinds[1]);
        bench.start(held);
        let free = bench.companion(held, kinds[0], 32);
        let other = bench.busy(policy(1, 0, 0));
        bench.run(secs(10));
        let got = bench.run(secs(20));
        let expected = [(held, 100 * 20), (free, 400 * 20), (other, 500 * 20)];
        for (client, expected) in expected {
            assert!(got[client].abs_diff(expected) <= expected / 100, "{got:?}");
        }
    }
}

/// The reservation of a disk is met by whichever direction may go.
#[test]
fn a_reservation_is_met_by_reads_while_writes_are_held_back() {
    let mut bench = Bench::mclock(1_000).exponential();
    let [read, write] = both(&mut bench, directed(1, 600, 0, 100), 32, 64);
    bench.busy(policy(9, 0, 0));
    bench.run(secs(10));
    let got = bench.run(secs(60));
    let (writes, all) = (got[write], got[read] + got[write]);
    assert!(writes.abs_diff(100 * 60) <= 60, "{writes} writes of 6,000");
    assert!(all.abs_diff(600 * 60) <= 180, "{all} of the 36,000 that are reserved");
}

/// A read that comes now and then goes at once, however many writes of its disk are held back.
#[test]
fn a_lone_read_passes_a_thousand_writes() {
    let mut scheduler = MClock::new(unit()).unwrap();
    let now = secs(1);
    let disk = scheduler.register(now, directed(1, 0, 0, 10));
    let write = Io { kind: IoKind::Write, ..Io::default() };
    for n in 0..1_000 {
        scheduler.enqueue(now, disk, write, n).unwrap();
    }
    let sent = |scheduler: &mut MClock<u32>, now| match scheduler.dispatch(now) {
        Decision::Dispatch(d) => Some(d.request),
        _ => None,
    };
    assert_eq!((sent(&mut scheduler, now), sent(&mut scheduler, now)), (Some(0), None));
    for n in 1..100 {
        let now = now + millis(7 * n);
        let due = (7 * n) % 100 < 7;
        scheduler.enqueue(now, disk, Io::default(), 5_000).unwrap();
        let first = sent(&mut scheduler, now);
        let second = sent(&mut scheduler, now);
        assert!([first, second].contains(&Some(5_000)), "at once, after {} ms", 7 * n);
        assert_eq!(first.is_some() && second.is_some(), due, "after {} ms", 7 * n);
        assert_eq!(sent(&mut scheduler, now), None);
    }
}

/// What does not read is a write: flushes, discards and journals too.
#[test]
fn all_that_does_not_read_is_under_the_limit_of_writes() {
    let kinds = [IoKind::Write, IoKind::Journal, IoKind::Flush, IoKind::Discard];
    let mut bench = Bench::mclock(1_000);
    let read = bench.busy(directed(1, 0, 0, 40));
    for kind in kinds {
        bench.companion(read, kind, 4);
    }
    bench.run(secs(5));
    let got = bench.run(secs(50));
    let writes: u64 = got[1..].iter().sum();
    assert!(writes.abs_diff(40 * 50) <= 20, "{got:?}");
    assert!(got[read] >= 959 * 50, "{got:?}");
}

/// All limits hold at once, and what the one leaves the others may have.
#[test]
fn limits_of_a_disk_and_of_its_directions_hold_at_once() {
    // Total, reads, writes, and what each direction gets.
    for (total, read, write, expected) in [
        (0, 100, 50, [100, 50]),
        (120, 100, 50, [70, 50]),
        (500, 100, 50, [100, 50]),
        (100, 80, 80, [50, 50]),
        (100, 0, 30, [70, 30]),
        (60, 20, 0, [20, 40]),
    ] {
        let disk = policy(1, 0, total).with_direction_limits(iops(read), iops(write)).unwrap();
        let mut bench = Bench::mclock(1_000).jitter();
        let clients = both(&mut bench, disk, 16, 48);
        bench.busy(policy(1, 0, 0));
        bench.run(secs(10));
        let got = bench.run(secs(60));
        for (client, expected) in clients.into_iter().zip(expected) {
            let got = got[client];
            assert!(got.abs_diff(expected * 60) <= 60, "{got} of {} at {total}", expected * 60);
        }
    }
}

/// Writes of 64 KiB at a mebibyte per second, beside reads of any size.
#[test]
fn bandwidth_of_a_direction_is_limited_alone() {
    let write = DirectionLimits { iops: None, bandwidth: BytesPerSec::new(1 << 20).ok() };
    let disk = policy(1, 0, 0).with_direction_limits(DirectionLimits::NONE, write).unwrap();
    let mut bench = Bench::mclock(1_000);
    let [read, written] = both(&mut bench, disk, 8, 8);
    bench.size(read, 1 << 20);
    bench.size(written, 64 << 10);
    bench.run(secs(10));
    let got = bench.run(secs(100));
    assert!(got[written].abs_diff(1_600) <= 3, "{} writes of 1,600", got[written]);
    assert!(got[read].abs_diff(98_400) <= 5, "{} reads", got[read]);
}

/// A direction that slept is not late, whatever the other did meanwhile, and owes nothing for it.
#[test]
fn a_direction_that_was_idle_earns_nothing() {
    for limit in [1, 2, 10, 100, 1_000] {
        let mut bench = Bench::mclock(10_000);
        let [_, write] = both(&mut bench, directed(1, 0, 0, limit), 8, 8);
        let sent = bench.dispatches_after_idling(write);
        for (n, at) in sent.iter().enumerate() {
            // The others' requests of the window are in its way.
            let due = sent[0] + Nanos(n as u64 * 1_000_000_000 / limit);
            assert!(*at >= due, "{n} at {limit}: {at:?} before {due:?}");
        }
        assert!(sent.len() as u64 >= 2 * limit, "{} at {limit}", sent.len());
    }
}

/// While a limit held writes back their disk's reads had all it gets. When it is lifted, both have
/// half of it from the first moment on, and so has the other disk.
#[test]
fn a_direction_that_was_held_back_earns_nothing() {
    for priorities in [None, Some(PriorityPolicy::default())] {
        let mut bench = Bench::mclock(1_000);
        let [read, write] = both(&mut bench, directed(1, 0, 0, 10), 32, 256);
        if let Some(priorities) = priorities {
            bench.scheduler.set_priorities(bench.now, bench.disk(read), priorities).unwrap();
            bench.application(read, 254, 32);
        }
        let other = bench.busy(policy(1, 0, 0));
        bench.run(secs(30));
        let disk = bench.disk(read);
        let raised = directed(1, 0, 0, 100_000);
        bench.scheduler.set_policy(bench.now, disk, raised).unwrap();
        // What is in the window ends first.
        bench.run(millis(40));
        let got = bench.run(secs(1));
        assert!(got[other].abs_diff(500) <= 20, "{got:?}");
        // Beside priority 254 those of 100 have 141 together.
        let each = if priorities.is_some() { 71 } else { 250 };
        assert!(got[write].abs_diff(each) <= 10 && got[read].abs_diff(each) <= 10, "{got:?}");
    }
}

/// A debt outlives what is done to a queue: requests taken back, policies and priorities set.
#[test]
fn debts_of_a_direction_survive_resets_and_policies() {
    let cost_model = CostModel::Chunks { reference: Bytes(4_096) };
    let mut scheduler = MClock::new(Config { cost_model, ..Config::default() }).unwrap();
    let start = secs(1);
    let disk = scheduler.register(start, directed(1, 0, 0, 10));
    let dear = Io { bytes: Bytes(400_000), kind: IoKind::Write, ..Io::default() };
    let read = Io { bytes: Bytes(4_096), ..Io::default() };
    scheduler.enqueue(start, disk, dear, 0).unwrap();
    assert!(matches!(scheduler.dispatch(start), Decision::Dispatch(_)));
    // Some 98 IOs: it is paid for after 9.8 s.
    for n in 1..97 {
        let now = start + millis(100 * n);
        scheduler.enqueue(now, disk, dear, 1).unwrap();
        assert!(matches!(scheduler.dispatch(now), Decision::WaitUntil(_)), "{n}");
        match n % 4 {
            0 => assert_eq!(scheduler.extract(now, disk, &mut |_| true).unwrap().len(), 1),
            1 => {
                let total = Iops::new(5_000 + n).ok();
                let policy = directed(1, 0, 0, 10).with_limit(total).unwrap();
                scheduler.set_policy(now, disk, policy).unwrap();
            }
            2 => scheduler.set_policy(now, disk, directed(1, 0, 700, 10)).unwrap(),
            _ => {
                scheduler.complete(now, disk);
                let changed = PriorityPolicy { max: "200".parse().unwrap(), ..Default::default() };
                let priorities = if n % 8 == 3 { changed } else { PriorityPolicy::default() };
                scheduler.set_priorities(now, disk, priorities).unwrap();
            }
        }
        assert!(!matches!(scheduler.dispatch(now), Decision::Dispatch(_)), "{n}");
        scheduler.extract(now, disk, &mut |_| true).unwrap();
        // Reads are as free as ever.
        scheduler.enqueue(now, disk, read, 2).unwrap();
        assert!(matches!(scheduler.dispatch(now), Decision::Dispatch(_)), "{n}");
    }
    scheduler.enqueue(start + secs(10), disk, dear, 3).unwrap();
    assert!(matches!(scheduler.dispatch(start + secs(10)), Decision::Dispatch(_)));
    // Twice the limit pays in half the time; lifted, nothing is left.
    scheduler.enqueue(start + secs(10), disk, dear, 4).unwrap();
    scheduler.set_policy(start + secs(10), disk, directed(1, 0, 0, 20)).unwrap();
    let Decision::WaitUntil(at) = scheduler.dispatch(start + secs(10)) else { panic!("no wait") };
    assert_eq!(at.since(start + secs(10)).0 / 1_000_000, 4_882);
    scheduler.set_policy(start + secs(10), disk, policy(1, 0, 0)).unwrap();
    assert!(matches!(scheduler.dispatch(start + secs(10)), Decision::Dispatch(_)));
}

/// What a direction waits for its disk's limit earns it no lateness, and the other way round; and
/// when the one is lifted nothing of the wait is left.
#[test]
fn waiting_for_one_limit_owes_nothing_to_another_and_earns_nothing() {
    let limits =
        |total, write| policy(1, 0, total).with_direction_limits(iops(0), iops(write)).unwrap();
    for (first, second, rate) in [
        (limits(10, 1_000), limits(0, 1_000), 1_000),
        (limits(1_000, 10), limits(1_000, 0), 1_000),
        (limits(1, 400), limits(0, 400), 400),
        (limits(400, 1), limits(400, 0), 400),
    ] {
        let mut bench = Bench::mclock(10_000);
        let disk = bench.add(first, Client::Closed { outstanding: 64 });
        bench.kind(disk, IoKind::Write);
        bench.start(disk);
        bench.run(millis(3_950));
        bench.set(disk, second);
        bench.take_dispatches(disk);
        bench.run(millis(50));
        let sent = bench.take_dispatches(disk).len() as u64;
        assert!(sent <= rate * 70 / 1_000 + 1, "{sent} at once of {rate} in a second");
        bench.run(millis(950));
        let got = sent + bench.take_dispatches(disk).len() as u64;
        assert!((rate - 1..=rate + rate / 50 + 1).contains(&got), "{got} of {rate} in a second");
    }
}

/// Applications divide each direction by priority; one that only reads does not wait for writes of
/// another that are held back, whatever their priority.
#[test]
fn priorities_divide_what_a_direction_gets() {
    let mut bench = Bench::mclock(1_000);
    let disk = bench.add(directed(1, 0, 0, 90), Client::Closed { outstanding: 0 });
    let high = bench.application(disk, 200, 64);
    let low = bench.application(disk, 100, 64);
    let reader = bench.application(disk, 1, 64);
    for writer in [high, low] {
        bench.kind(writer, IoKind::Write);
    }
    // Requests that were sent as reads end first.
    bench.run(secs(10));
    let got = bench.run(secs(60));
    assert!(got[high].abs_diff(60 * 60) <= 60, "{got:?}");
    assert!(got[low].abs_diff(30 * 60) <= 60, "{got:?}");
    assert!(got[reader].abs_diff(910 * 60) <= 120, "{got:?}");
}

/// Across machines a disk weighs what its streams weigh, not twice that.
#[test]
fn two_directions_weigh_no_more_than_one_across_machines() {
    let mut bench = Bench::mclock(1_000);
    let limited = bench.across(directed(100, 0, 0, 100_000), 254);
    let plain = bench.across(policy(100, 0, 0), 254);
    let read = bench.application(limited, 100, 32);
    let write = bench.application(limited, 100, 32);
    bench.kind(write, IoKind::Write);
    let other = bench.application(plain, 100, 64);
    bench.run(secs(10));
    let got = bench.run(secs(50));
    assert!(got[other].abs_diff(500 * 50) <= 50, "{got:?}");
    assert!(got[read].abs_diff(250 * 50) <= 50 && got[write].abs_diff(250 * 50) <= 50, "{got:?}");
}

/// A disk across machines, on another server too, and one beside it that has had nothing yet.
struct Spread {
    scheduler: MClock<u32>,
    spread: DiskId,
    other: DiskId,
}

const NOW: Nanos = Nanos::from_secs(1);

impl Spread {
    fn new(limits: Policy) -> Spread {
        let cost_model = CostModel::Chunks { reference: Bytes(512) };
        let mut scheduler = MClock::new(Config { cost_model, ..Config::default() }).unwrap();
        let [spread, other] = [limits, policy(1, 0, 0)].map(|policy| {
            let disk = scheduler.register(NOW, policy);
            let (max, scope) = (Priority::MAX, PriorityScope::AcrossVms);
            let priorities = PriorityPolicy { max, scope, ..PriorityPolicy::default() };
            scheduler.set_priorities(NOW, disk, priorities).unwrap();
            disk
        });
        let none = Cost::from_millionths(0);
        let elsewhere = ServedElsewhere::new(none, none, Bytes(1)).unwrap();
        scheduler.served_elsewhere(NOW, spread, elsewhere).unwrap();
        Spread { scheduler, spread, other }
    }

    fn ask(&mut self, disk: DiskId, kind: IoKind, bytes: u64, priority: u64, requests: u32) {
        let priority = Priority::new(priority).ok();
        let io = Io { bytes: Bytes(bytes), kind, priority, ..Io::default() };
        (0..requests).for_each(|n| self.scheduler.enqueue(NOW, disk, io, n).unwrap());
    }

    fn next(&mut self) -> DiskId {
        match self.scheduler.dispatch(NOW) {
            Decision::Dispatch(d) => d.disk,
            other => panic!("{other:?}"),
        }
    }

    /// A stream of each disk begins, with the same priority: of 100 requests each gets half.
    fn assert_newcomers_are_equal(mut self) {
        for disk in [self.spread, self.other] {
            self.ask(disk, IoKind::Read, 4 << 10, 254, 1_000);
        }
        let got = (0..100).filter(|_| self.next() == self.spread).count();
        assert!((49..=51).contains(&got), "{got} of 100");
    }
}

/// A disk that is on several servers owes for no more service than so much, divided among those of
/// its streams that may go. Were one that a lane holds among them, the disk would be forgiven most
/// of what it got, and its next stream would begin as far behind all others.
#[test]
fn a_held_stream_pays_no_debts_and_a_new_one_gets_no_credit_for_it() {
    let mut disks = Spread::new(directed(1, 0, 0, 1));
    disks.ask(disks.spread, IoKind::Write, 64 << 10, 253, 2);
    disks.ask(disks.spread, IoKind::Read, 64 << 10, 1, 2);
    assert_eq!([disks.next(), disks.next()], [disks.spread; 2]);
    disks.assert_newcomers_are_equal();
}

/// A soft limit of a direction is none while no other disk asks.
#[test]
fn soft_limits_of_a_direction_yield_when_nobody_else_asks() {
    let soft = directed(1, 0, 0, 50).with_limit_mode(LimitMode::Soft);
    let mut bench = Bench::mclock(1_000);
    let write = bench.busy(soft);
    bench.kind(write, IoKind::Write);
    bench.run(secs(5));
    assert!(bench.run(secs(10))[write] >= 9_990);
    let other = bench.busy(policy(1, 0, 0));
    bench.run(secs(2));
    let got = bench.run(secs(20));
    assert!(got[write].abs_diff(1_000) <= 10 && got[other] >= 18_900, "{got:?}");
}

/// Requests stay in order within a direction and a priority, through changes of policy too.
#[test]
fn order_within_a_direction_is_kept_when_lanes_come_and_go() {
    let mut scheduler = MClock::new(unit()).unwrap();
    let now = secs(1);
    let disk = scheduler.register(now, policy(1, 0, 0));
    let kinds = [IoKind::Read, IoKind::Write];
    for n in 0..40u32 {
        let io = Io { kind: kinds[(n / 3 % 2) as usize], ..Io::default() };
        scheduler.enqueue(now, disk, io, n).unwrap();
        match n {
            9 => scheduler.set_policy(now, disk, directed(1, 0, 0, 1_000_000)).unwrap(),
            19 => scheduler.set_policy(now, disk, policy(1, 0, 0)).unwrap(),
            29 => scheduler.set_policy(now, disk, directed(1, 0, 1_000_000, 0)).unwrap(),
            _ => {}
        }
    }
    let mut last = [None, None];
    let (mut now, mut turns) = (now, Vec::new());
    while scheduler.queued() > 0 {
        match scheduler.dispatch(now) {
            Decision::Dispatch(d) => {
                let direction = (d.request / 3 % 2) as usize;
                assert!(last[direction] < Some(d.request), "{} in {direction}", d.request);
                last[direction] = Some(d.request);
                turns.push(direction);
                now += millis(1);
            }
            Decision::WaitUntil(at) => now = at,
            Decision::Idle => panic!("requests are queued"),
        }
    }
    assert_eq!(turns[..10], [0, 1, 0, 1, 0, 1, 0, 1, 0, 1], "in turns");
}

#[derive(Clone, Debug)]
enum Event {
    Rate(u64),
    Stall(u64),
    Start(prop::sample::Index),
    Stop(prop::sample::Index),
    /// Limits of reads and of writes.
    Limits(u64, u64),
}

fn limits() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0u64), 2 => 1u64..20, 3 => 20u64..500]
}

fn events() -> impl Strategy<Value = Event> {
    let client = any::<prop::sample::Index>;
    prop_oneof![
        1 => (20u64..4_000).prop_map(Event::Rate),
        2 => (1u64..1_500).prop_map(Event::Stall),
        3 => client().prop_map(Event::Start),
        3 => client().prop_map(Event::Stop),
        1 => (limits(), limits()).prop_map(|(r, w)| Event::Limits(r, w)),
    ]
}

/// What clients of a disk were sent, each with its cost.
fn collect(bench: &mut Bench, clients: &[(usize, u64)]) -> Vec<(Nanos, u64)> {
    let times = clients.iter().flat_map(|&(client, cost)| {
        bench.take_dispatches(client).into_iter().map(move |at| (at, cost))
    });
    let mut times: Vec<_> = times.collect();
    times.sort();
    times
}

proptest! {
    #![proptest_config(cases(96))]

    /// Whatever the storage and the clients do, with tiny requests and huge ones.
    #[test]
    fn no_direction_has_more_than_its_limit(
        (read, write) in (limits(), limits()),
        total in limits(),
        shares in 1u64..10,
        depths in (1usize..40, 1usize..40, 1usize..40),
        (huge_read, huge_write) in (1u64..3_000, 1u64..3_000),
        rate in 50u64..3_000,
        (service, late) in (0u8..4, prop::sample::select(vec![0u64, 1, 30])),
        events in prop::collection::vec((0u64..2_000, events()), 0..12),
    ) {
        let cost_model = CostModel::Chunks { reference: Bytes(4_096) };
        let config = Config { cost_model, limit_slack: millis(20), ..Config::default() };
        let mut bench = Bench::new(SchedulerKind::MClock, config, rate).late(millis(late));
        bench = bench.varying(service);
        let policy_of = |read, write| {
            policy(shares, 0, total).with_direction_limits(iops(read), iops(write)).unwrap()
        };
        let [small_read, small_write] =
            both(&mut bench, policy_of(read, write), depths.0, depths.1);
        let other = bench.deep(policy(3, 0, 0), depths.2);
        let mut huge = |kind, cost: u64| {
            let client = bench.companion(small_read, kind, 0);
            bench.size(client, cost * 4_096);
            bench.deepen(client, 2);
            client
        };
        let (huge_read, huge_write) =
            ((huge(IoKind::Read, huge_read), huge_read), (huge(IoKind::Write, huge_write), huge_write));
        let sides = [[(small_read, 1), huge_read], [(small_write, 1), huge_write]];
        let all = [small_read, huge_read.0, small_write, huge_write.0, other];
        let (mut limits, mut whole) = ([read, write], vec![]);
        for (after, event) in events.into_iter().chain([(3_000, Event::Limits(1, 1))]) {
            bench.run(millis(after));
            match event {
                Event::Rate(rate) => bench.set_rate(rate),
                Event::Stall(time) => bench.stall(millis(time)),
                Event::Start(client) => bench.start(all[client.index(5)]),
                Event::Stop(client) => bench.stop(all[client.index(5)]),
                Event::Limits(read, write) => {
                    for (side, limit) in sides.iter().zip(limits) {
                        let sent = collect(&mut bench, side);
                        whole.extend(&sent);
                        let found = if limit == 0 { None } else { excess(&sent, limit) };
                        prop_assert_eq!(found, None, "at {}", limit);
                    }
                    bench.set(small_read, policy_of(read, write));
                    limits = [read, write];
                }
            }
        }
        whole.sort();
        let found = if total == 0 { None } else { excess(&whole, total) };
        prop_assert_eq!(found, None, "in all, at {}", total);
    }
}
