//! Several servers in simulated time: clients that keep requests outstanding and route each to one
//! of the servers, a network with a delay, and a scheduler, a window and a device of known rate at
//! every server.

use super::*;
use headgate_qos::dmclock::{Served, Ticket, Tracker};
use headgate_qos::{Cost, ServedElsewhere};

/// Where a client's next request goes.
#[derive(Clone, Debug)]
pub enum Route {
    /// To server i in proportion to the i-th number.
    Random(Vec<u64>),
    /// To these servers in turn.
    InTurn(Vec<usize>),
}

impl Route {
    pub fn uniform(servers: usize) -> Route {
        Route::Random(vec![1; servers])
    }
}

/// What requests say of other servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tell {
    DmClock,
    /// Every server is alone: mClock.
    Nothing,
    /// A tenth of what was served elsewhere.
    Tenth,
}

impl Tell {
    fn of(self, elsewhere: ServedElsewhere) -> ServedElsewhere {
        let tenth = |cost: Cost| Cost::from_millionths(cost.as_millionths() / 10);
        match self {
            Tell::DmClock => elsewhere,
            Tell::Nothing => ServedElsewhere::NONE,
            Tell::Tenth => {
                let (delta, rho) = (tenth(elsewhere.delta()), tenth(elsewhere.rho()));
                ServedElsewhere::new(delta, rho, elsewhere.bytes()).unwrap()
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(usize),
    Complete(usize),
    Answer(usize),
    Wake(usize),
}

struct Flight {
    client: usize,
    server: usize,
    ticket: Option<Ticket<usize>>,
    elsewhere: ServedElsewhere,
    served: Option<Served>,
}

pub struct Server {
    pub scheduler: AnyScheduler<usize>,
    disks: Vec<DiskId>,
    rate: u64,
    in_flight: usize,
    free: Nanos,
    rest: u64,
    wake: Nanos,
    skew: Nanos,
    alive: bool,
}

struct Host {
    tracker: Tracker<usize>,
    route: Route,
    turn: usize,
    outstanding: usize,
    bytes: u64,
    asked: usize,
    running: bool,
    /// Completed and by reservation, per server.
    served: Vec<[u64; 2]>,
    dispatches: Vec<Nanos>,
    disk: usize,
}

pub struct Cluster {
    pub now: Nanos,
    pub servers: Vec<Server>,
    hosts: Vec<Host>,
    flights: Vec<Flight>,
    free: Vec<usize>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    dice: Dice,
    window: usize,
    delay: Nanos,
    tell: Tell,
    jitter: u64,
    exponential: bool,
    latency: Nanos,
    /// Every dispatch: when, where, whose, by which right.
    pub log: Vec<(Nanos, usize, usize, Phase)>,
}

impl Cluster {
    pub fn new(config: Config, rates: &[u64], seed: u64) -> Cluster {
        let server = |rate: &u64| Server {
            scheduler: AnyScheduler::new(SchedulerKind::MClock, config).unwrap(),
            disks: Vec::new(),
            rate: *rate,
            in_flight: 0,
            free: Nanos::ZERO,
            rest: 0,
            wake: Nanos::MAX,
            skew: Nanos::ZERO,
            alive: true,
        };
        Cluster {
            now: secs(1_000),
            servers: rates.iter().map(server).collect(),
            hosts: Vec::new(),
            flights: Vec::new(),
            free: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            dice: Dice::new(seed),
            window: 16,
            delay: Nanos::from_micros(100),
            tell: Tell::DmClock,
            jitter: 100,
            exponential: false,
            latency: Nanos::ZERO,
            log: Vec::new(),
        }
    }

    pub fn tell(mut self, tell: Tell) -> Cluster {
        self.tell = tell;
        self
    }

    /// By how many percent of the mean service times vary, 100 at first.
    pub fn jitter(mut self, percent: u64) -> Cluster {
        self.jitter = percent;
        self
    }

    /// Service times are exponential.
    pub fn exponential(mut self) -> Cluster {
        self.exponential = true;
        self
    }

    /// No request takes less than this at a server.
    pub fn latency(mut self, least: Nanos) -> Cluster {
        self.latency = least;
        self
    }

    /// The clock of a server shows this much more than that of others.
    pub fn skew(mut self, server: usize, skew: Nanos) -> Cluster {
        self.servers[server].skew = skew;
        self
    }

    /// A client that runs from now on.
    pub fn busy(&mut self, policy: Policy, route: Route, outstanding: usize) -> usize {
        let disk = self.servers[0].disks.len();
        for server in &mut self.servers {
            server.disks.push(server.scheduler.register(self.now + server.skew, policy));
        }
        self.client(disk, route, outstanding)
    }

    /// Another client of the same disk, on another host.
    pub fn beside(&mut self, other: usize, route: Route, outstanding: usize) -> usize {
        self.client(self.hosts[other].disk, route, outstanding)
    }

    fn client(&mut self, disk: usize, route: Route, outstanding: usize) -> usize {
        self.hosts.push(Host {
            tracker: Tracker::new(),
            route,
            turn: 0,
            outstanding,
            bytes: 0,
            asked: 0,
            running: true,
            served: vec![[0; 2]; self.servers.len()],
            dispatches: Vec::new(),
            disk,
        });
        self.hosts.len() - 1
    }

    pub fn size(&mut self, host: usize, bytes: u64) {
        self.hosts[host].bytes = bytes;
    }

    pub fn stop(&mut self, host: usize) {
        self.hosts[host].running = false;
    }

    pub fn resume(&mut self, host: usize) {
        self.hosts[host].running = true;
    }

    pub fn route(&mut self, host: usize, route: Route) {
        self.hosts[host].route = route;
    }

    pub fn set(&mut self, host: usize, policy: Policy) {
        for server in &mut self.servers {
            server
                .scheduler
                .set_policy(self.now + server.skew, server.disks[self.hosts[host].disk], policy)
                .unwrap();
        }
    }

    /// From now on nothing is answered by the server, and what is queued there is gone.
    pub fn kill(&mut self, server: usize) {
        self.servers[server].alive = false;
    }

    /// Gives up what the client has in flight at a server: it never hears of it.
    pub fn abandon(&mut self, host: usize, server: usize) {
        for flight in &mut self.flights {
            if flight.client == host && flight.server == server && flight.ticket.take().is_some() {
                self.hosts[host].asked -= 1;
            }
        }
    }

    fn push(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    fn ask(&mut self, client: usize) {
        let host = &mut self.hosts[client];
        host.asked += 1;
        let server = match &host.route {
            Route::InTurn(servers) => {
                host.turn += 1;
                servers[host.turn % servers.len()]
            }
            Route::Random(weights) => {
                let mut ball = self.dice.below(weights.iter().sum());
                let mut server = 0;
                while ball >= weights[server] {
                    ball -= weights[server];
                    server += 1;
                }
                server
            }
        };
        let (ticket, elsewhere) = host.tracker.send(self.now, server);
        let flight = Flight { client, server, ticket: Some(ticket), elsewhere, served: None };
        let id = match self.free.pop() {
            Some(id) => {
                self.flights[id] = flight;
                id
            }
            None => {
                self.flights.push(flight);
                self.flights.len() - 1
            }
        };
        self.push(self.now + self.delay, Event::Arrive(id));
    }

    /// Runs for `time` and returns requests completed per client.
    pub fn run(&mut self, time: Nanos) -> Vec<u64> {
        let before: Vec<u64> = (0..self.hosts.len()).map(|h| self.total(h)).collect();
        let end = self.now + time;
        for client in 0..self.hosts.len() {
            while self.hosts[client].running
                && self.hosts[client].asked < self.hosts[client].outstanding
            {
                self.ask(client);
            }
        }
        while let Some(Reverse((at, _, event))) = self.events.peek().copied() {
            if at > end {
                break;
            }
            self.now = at;
            self.events.pop();
            self.handle(event);
        }
        self.now = end;
        before.iter().enumerate().map(|(h, b)| self.total(h) - b).collect()
    }

    /// Runs for `seconds` and returns requests per second and client, rounded.
    pub fn rates(&mut self, seconds: u64) -> Vec<u64> {
        self.run(secs(seconds)).into_iter().map(|n| (n + seconds / 2) / seconds).collect()
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake(server) => self.dispatch(server),
            Event::Arrive(id) => {
                let flight = &self.flights[id];
                let (client, server) = (flight.client, flight.server);
                let at = &mut self.servers[server];
                if !at.alive {
                    return;
                }
                let io = Io { bytes: Bytes(self.hosts[client].bytes), ..Io::default() };
                let elsewhere = self.tell.of(flight.elsewhere);
                let disk = at.disks[self.hosts[client].disk];
                at.scheduler.enqueue_dmclock(self.now + at.skew, disk, io, elsewhere, id).unwrap();
                self.dispatch(server);
            }
            Event::Complete(id) => {
                let server = self.flights[id].server;
                let at = &mut self.servers[server];
                at.in_flight -= 1;
                let disk = at.disks[self.hosts[self.flights[id].client].disk];
                at.scheduler.complete(self.now + at.skew, disk);
                if at.alive {
                    self.push(self.now + self.delay, Event::Answer(id));
                    self.dispatch(server);
                }
            }
            Event::Answer(id) => {
                let flight = &mut self.flights[id];
                let (client, server) = (flight.client, flight.server);
                // Given up: what comes back too late is heard by nobody.
                let Some(ticket) = flight.ticket.take() else { return };
                let served = flight.served.expect("an answer comes after the dispatch");
                self.free.push(id);
                let host = &mut self.hosts[client];
                host.tracker.complete(ticket, served);
                host.served[server][0] += 1;
                host.served[server][1] += u64::from(served.by_reservation > Cost::default());
                host.asked -= 1;
                if host.running {
                    self.ask(client);
                }
            }
        }
    }

    fn dispatch(&mut self, server: usize) {
        while self.servers[server].in_flight < self.window {
            let at = &mut self.servers[server];
            match at.scheduler.dispatch(self.now + at.skew) {
                Decision::Idle => break,
                Decision::WaitUntil(until) => {
                    let until = until - at.skew;
                    assert!(until > self.now, "a wake-up in the past would spin");
                    if until != at.wake {
                        at.wake = until;
                        self.push(until, Event::Wake(server));
                    }
                    break;
                }
                Decision::Dispatch(d) => {
                    let flight = &mut self.flights[d.request];
                    let host = &mut self.hosts[flight.client];
                    flight.served = Some(Served::one(d.phase, d.cost, Bytes(host.bytes)));
                    host.dispatches.push(self.now);
                    self.log.push((self.now, server, flight.client, d.phase));
                    at.in_flight += 1;
                    let done = self.serve(server);
                    self.push(done, Event::Complete(d.request));
                }
            }
        }
    }

    fn serve(&mut self, server: usize) -> Nanos {
        let time = if self.exponential {
            let uniform = (self.dice.below(1 << 32) + 1) as f64 / (1u64 << 32) as f64;
            (-uniform.ln() * 1e9) as u64
        } else {
            let varied = self.jitter * 10_000_000;
            1_000_000_000 - varied + self.dice.below(2 * varied + 1)
        };
        let at = &mut self.servers[server];
        if at.free < self.now {
            at.free = self.now;
            at.rest = 0;
        }
        let numerator = time + at.rest;
        at.free += Nanos(numerator / at.rate);
        at.rest = numerator % at.rate;
        at.free.max(self.now + self.latency)
    }

    /// Requests of the client completed so far.
    pub fn total(&self, host: usize) -> u64 {
        self.hosts[host].served.iter().map(|s| s[0]).sum()
    }

    /// Those of them that were served by reservation.
    pub fn by_reservation(&self, host: usize) -> u64 {
        self.hosts[host].served.iter().map(|s| s[1]).sum()
    }

    /// Requests completed at a server so far, all clients.
    pub fn served_at(&self, server: usize) -> u64 {
        self.hosts.iter().map(|h| h.served[server][0]).sum()
    }

    /// Times of the client's dispatches, at all servers, since the last call.
    pub fn take_dispatches(&mut self, host: usize) -> Vec<Nanos> {
        std::mem::take(&mut self.hosts[host].dispatches)
    }
}
