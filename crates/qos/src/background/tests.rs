use super::*;
use headgate_units::{BytesPerSec, Iops};

/// A generator of numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Of an exponential distribution with this mean.
    fn wait(&mut self, mean: Nanos) -> Nanos {
        let part = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        Nanos((-(1.0 - part).ln() * mean.0 as f64) as u64)
    }
}

/// A client that keeps `depth` requests outstanding, each sent `think` after another has ended.
#[derive(Clone, Copy)]
struct Client {
    shares: u64,
    depth: u32,
    think: Nanos,
}

const BUSY: Client = Client { shares: 1000, depth: 4, think: Nanos::ZERO };

/// A device that has a place for everybody: nothing waits in a scheduler. Each request takes a
/// random time of mean 5 ms, and one of the copy's costs as much as four of clients' and takes as
/// long as those.
struct World {
    copy: Background,
    clients: Vec<Client>,
    numbers: Numbers,
    now: Nanos,
    /// Of each request: when it ends, when it was sent, whose it is.
    at_device: Vec<(Nanos, Nanos, Option<usize>)>,
    thinking: Vec<(Nanos, usize)>,
    /// Work done, in reference IOs.
    by_clients: Vec<u64>,
    by_copy: u64,
    /// When the copy's requests were sent.
    sent: Vec<Nanos>,
}

const SERVICE: Nanos = Nanos::from_millis(5);
const STEP: u64 = 4;
const STEP_BYTES: Bytes = Bytes::from_mib(1);
const STEPS: u32 = 4;

impl World {
    fn new(pace: Policy, clients: &[Client]) -> World {
        let mut thinking = Vec::new();
        for (client, found) in clients.iter().enumerate() {
            thinking.extend((0..found.depth).map(|_| (Nanos::ZERO, client)));
        }
        World {
            copy: Background::new(Nanos::ZERO, pace, STEPS),
            clients: clients.to_vec(),
            numbers: Numbers(7),
            now: Nanos::ZERO,
            at_device: Vec::new(),
            thinking,
            by_clients: vec![0; clients.len()],
            by_copy: 0,
            sent: Vec::new(),
        }
    }

    fn of_clients(&self) -> u32 {
        self.at_device.iter().filter(|(.., whose)| whose.is_some()).count() as u32
    }

    /// Begins steps as long as it may; when to look again.
    fn begin(&mut self) -> Nanos {
        loop {
            let clients = self.of_clients();
            let under_way = self.at_device.len() as u32 - clients;
            match self.copy.admit(self.now, under_way, clients) {
                // However often it may: a copy has so many steps.
                Admission::Now if under_way < STEPS => {}
                Admission::Now | Admission::None => return Nanos::MAX,
                Admission::At(at) => {
                    assert!(at > self.now, "it would be asked for ever");
                    return at;
                }
            }
            self.copy.copy_dispatched(self.now, Cost::from_ios(STEP), STEP_BYTES, clients);
            self.sent.push(self.now);
            let took =
                (0..STEP).map(|_| self.numbers.wait(SERVICE)).fold(Nanos::ZERO, |a, b| a + b);
            self.at_device.push((self.now + took, self.now, None));
        }
    }

    fn run(&mut self, time: Nanos) {
        let end = self.now + time;
        loop {
            let again = self.begin();
            let device = self.at_device.iter().map(|(at, ..)| *at).min().unwrap_or(Nanos::MAX);
            let think = self.thinking.iter().map(|(at, _)| *at).min().unwrap_or(Nanos::MAX);
            self.now = again.min(device).min(think);
            if self.now >= end {
                self.now = end;
                return;
            }
            if let Some(at) = self.at_device.iter().position(|(at, ..)| *at == self.now) {
                let (_, sent, whose) = self.at_device.swap_remove(at);
                match whose {
                    Some(client) => {
                        self.by_clients[client] += 1;
                        self.copy.client_completed(self.now, Some(self.now - sent));
                        let think = self.numbers.wait(self.clients[client].think);
                        self.thinking.push((self.now + think, client));
                    }
                    None => {
                        self.by_copy += STEP;
                        self.copy.copy_completed(self.now, self.of_clients());
                    }
                }
            } else if let Some(at) = self.thinking.iter().position(|(at, _)| *at == self.now) {
                let (_, client) = self.thinking.swap_remove(at);
                let shares = Shares::new(self.clients[client].shares).unwrap();
                self.copy.client_dispatched(self.now, client as u32, shares, Cost::ONE);
                let took = self.numbers.wait(SERVICE);
                self.at_device.push((self.now + took, self.now, Some(client)));
            }
        }
    }

    /// The copy's part of all work.
    fn part(&self) -> f64 {
        let clients: u64 = self.by_clients.iter().sum();
        self.by_copy as f64 / (self.by_copy + clients) as f64
    }
}

fn pace(shares: u64) -> Policy {
    Policy::shared(Shares::new(shares).unwrap())
}

const LONG: Nanos = Nanos::from_secs(120);

#[test]
fn beside_clients_that_never_wait_in_a_queue_it_gets_its_shares() {
    let slow = Client { think: SERVICE, ..BUSY };
    let single = Client { depth: 1, ..BUSY };
    for (shares, clients) in [
        (100, vec![BUSY]),
        (100, vec![BUSY; 2]),
        (10, vec![BUSY; 3]),
        (300, vec![BUSY, Client { shares: 5000, ..BUSY }]),
        (100, vec![slow; 3]),
        (100, vec![single]),
        (1000, vec![Client { depth: 2, ..BUSY }; 8]),
    ] {
        let mut world = World::new(pace(shares), &clients);
        world.run(LONG);
        let all: u64 = clients.iter().map(|client| client.shares).sum();
        let due = shares as f64 / (shares + all) as f64;
        let (got, near) = (world.part(), 0.1 * due);
        assert!((got - due).abs() < near, "{shares} beside {all}: {got:.4} where {due:.4} is due");
    }
}

#[test]
fn a_client_that_thinks_for_less_than_it_waits_is_not_gone() {
    let thinker = Client { depth: 1, think: Nanos::from_millis(2), ..BUSY };
    let mut world = World::new(pace(100), &[thinker]);
    world.run(LONG);
    // Its thoughts are random, and some are long. A copy that takes it for gone each time has a
    // third of all work and more.
    assert!(world.part() < 0.18, "{:.4}", world.part());
}

#[test]
fn alone_it_has_all_steps_under_way_and_is_not_slower_than_the_storage() {
    let mut world = World::new(pace(100), &[]);
    world.run(LONG);
    let most = u64::from(STEPS) * LONG.0 / SERVICE.0;
    assert!(world.by_copy * 100 > most * 95, "{} of {most}", world.by_copy);
    // A client that comes ten times in a second takes little of that away.
    let rare = Client { depth: 1, think: Nanos::from_millis(100), ..BUSY };
    let mut world = World::new(pace(100), &[rare]);
    world.run(LONG);
    assert!(world.by_copy * 100 > most * 50, "{} of {most}", world.by_copy);
}

#[test]
fn what_it_owed_beside_clients_is_forgiven_when_they_are_gone() {
    let mut world = World::new(pace(1), &[BUSY; 2]);
    world.run(Nanos::from_secs(10));
    // It begins with nothing owed, and four IOs take five seconds to pay.
    assert!(world.by_copy <= 3 * STEP, "{}", world.by_copy);
    world.clients.iter_mut().for_each(|client| client.think = LONG);
    world.run(Nanos::from_secs(10));
    let most = u64::from(STEPS) * 10_000 / 5;
    assert!(world.by_copy * 100 > most * 80, "{} of {most}", world.by_copy);
}

#[test]
fn what_it_did_alone_it_does_not_owe_to_who_comes() {
    let mut world = World::new(pace(100), &[BUSY; 2]);
    world.thinking.iter_mut().for_each(|(at, _)| *at = Nanos::from_secs(10));
    world.run(Nanos::from_secs(10));
    assert!(world.by_copy > 1000, "{}", world.by_copy);
    world.by_copy = 0;
    world.run(LONG);
    let due = 100.0 / 2100.0;
    assert!((world.part() - due).abs() < 0.1 * due, "{:.4}", world.part());
}

#[test]
fn what_it_did_not_use_beside_clients_it_does_not_take_at_once() {
    let mut copy = Background::new(Nanos::ZERO, pace(100), STEPS);
    // They pay a hundred IOs while it rests.
    (0..1000).for_each(|_| copy.client_dispatched(Nanos::ZERO, 0, Shares::default(), Cost::ONE));
    assert_eq!(copy.admit(Nanos::ZERO, 0, 1), Admission::Now);
    copy.copy_dispatched(Nanos::ZERO, Cost::from_ios(STEP), STEP_BYTES, 1);
    assert_eq!(copy.admit(Nanos::ZERO, 0, 1), Admission::None, "one was saved up");
}

#[test]
fn who_comes_back_finds_one_step_in_its_way_and_not_all() {
    let mut copy = Background::new(Nanos::ZERO, pace(100), STEPS);
    let shares = Shares::default();
    copy.client_dispatched(Nanos::ZERO, 0, shares, Cost::ONE);
    // It has paid for a tenth of an IO: it owes after one step.
    assert_eq!(copy.admit(Nanos::ZERO, 0, 1), Admission::Now);
    copy.copy_dispatched(Nanos::ZERO, Cost::from_ios(STEP), STEP_BYTES, 1);
    assert_eq!(copy.admit(Nanos::ZERO, 0, 1), Admission::None, "the client is there");
    let done = Nanos::from_millis(4);
    copy.client_completed(done, Some(done));
    let gone = Nanos::from_millis(12);
    assert_eq!(copy.admit(done, 0, 0), Admission::At(gone));
    assert_eq!(copy.admit(gone, 0, 0), Admission::Now);
    assert_eq!(copy.admit(gone, 1, 0), Admission::None, "one at first");
    copy.copy_dispatched(gone, Cost::from_ios(STEP), STEP_BYTES, 0);
    copy.copy_completed(gone, 0);
    assert_eq!(copy.admit(gone, 1, 0), Admission::Now);
    (0..9).for_each(|_| copy.copy_completed(gone, 0));
    assert_eq!(copy.admit(gone, STEPS, 0), Admission::None);
    copy.client_dispatched(gone, 0, shares, Cost::ONE);
    copy.client_completed(gone, Some(done));
    let later = gone + Nanos::from_millis(8);
    assert_eq!(copy.admit(later, 1, 0), Admission::None, "one at first, again");
}

#[test]
fn its_limits_bind_alone_and_beside_clients() {
    let iops = pace(10_000).with_limit(Some(Iops::new(40).unwrap())).unwrap();
    let bytes = BytesPerSec::new(STEP_BYTES.0 * 10).unwrap();
    let bandwidth = pace(10_000).with_limit_bandwidth(Some(bytes));
    for pace in [iops, bandwidth] {
        for clients in [vec![], vec![BUSY]] {
            let mut world = World::new(pace, &clients);
            world.run(LONG);
            // Ten steps in a second, in each second, and one.
            let most = |from: usize| {
                let until = world.sent[from] + Nanos::from_secs(1);
                world.sent[from..].iter().take_while(|sent| **sent < until).count()
            };
            assert!((0..world.sent.len()).all(|from| most(from) <= 11));
            assert!(world.sent.len() > 1150, "{} of 1200", world.sent.len());
        }
    }
    // A new pace does not wait for the old one's debts.
    let slow = pace(100).with_limit(Some(Iops::MIN)).unwrap();
    let mut copy = Background::new(Nanos::ZERO, slow, STEPS);
    copy.copy_dispatched(Nanos::ZERO, Cost::from_ios(STEP), STEP_BYTES, 0);
    let now = Nanos::from_secs(1);
    assert_eq!(copy.admit(now, 0, 0), Admission::At(Nanos::from_secs(4)));
    copy.set_pace(now, pace(100));
    assert_eq!(copy.admit(now, 0, 0), Admission::Now);
    assert_eq!(copy.policy(), pace(100), "the scheduler knows of no limit");
}

#[test]
fn steps_are_short_until_clients_are_gone() {
    let pace = Policy::shared(Shares::new(100).unwrap());
    let mut copy = Background::new(Nanos::ZERO, pace, STEPS);
    let at = Nanos::from_millis;
    assert_eq!(copy.longest_step(at(1), 0), None, "nobody has come yet");
    copy.client_dispatched(at(2), 0, Shares::default(), Cost::ONE);
    assert_eq!(copy.longest_step(at(2), 1), Some(SHORT_STEP));
    copy.client_completed(at(7), Some(SERVICE));
    assert_eq!(copy.longest_step(at(7), 0), Some(SHORT_STEP), "it may think");
    assert_eq!(copy.longest_step(at(16), 0), Some(SHORT_STEP));
    assert_eq!(copy.longest_step(at(17), 0), None, "it is gone");
    assert_eq!(copy.longest_step(at(17), 3), Some(SHORT_STEP), "others are there");
    copy.set_pace(at(18), Policy::shared(Shares::default()));
    assert_eq!(copy.longest_step(at(18), 3), None, "it is in a hurry");
}
