//! One run: reserved disks beside a neighbour that keeps the storage busy, in virtual time.

use super::deadlines::VirtualClock;
use super::order::{Order, Rule};
use super::server::{Pause, Server, Service};
use super::times::Times;
use crate::rng::Rng;
use crate::setup::{Suspect, policy};
use anyhow::{Context, Result};
use headgate_qos::{Policy, SchedulerKind};
use headgate_units::{Iops, Nanos};

/// Requests that arrive before are not counted: the neighbour fills its queue first.
const SETTLED: Nanos = Nanos::from_secs(5);

/// Requests that the neighbour keeps queued: as many as a disk's queue holds in the daemon. Arrival
/// order thus makes all others wait for 256 requests.
pub const NEIGHBOUR: u32 = 256;

/// What runs.
#[derive(Clone, Debug)]
pub struct Contest {
    /// Requests per second of the storage, in the mean.
    pub rate: u64,
    /// Requests in flight.
    pub window: u32,
    /// How long it serves a request.
    pub service: Service,
    /// Whether it stands still now and then.
    pub pause: Option<Pause>,
    /// Reservation of each disk that has one. Its shares are 1.
    pub reserved: Vec<u64>,
    /// What they ask for at random, as a part of the reservation.
    pub part: f64,
    /// The neighbour's shares; `None` where there is no neighbour.
    pub neighbour: Option<u64>,
    /// Reserved disks whose requests are counted: from the first on.
    pub counted: usize,
    /// Of virtual time.
    pub seconds: u64,
    /// Of arrivals and service times.
    pub seed: u64,
    /// The number of the first disk: what arrives depends on seed and number only.
    pub first: usize,
}

/// What the counted requests took, those of all counted disks together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// From arrival to completion. What was not served at the end counts with its time so far.
    pub took: Times,
    /// Past the deadline of a server of its own that takes as long for each; 0 for those in time.
    pub late: Times,
}

/// One request on its way.
#[derive(Clone, Copy, Debug)]
struct Request {
    disk: usize,
    arrived: Nanos,
    deadline: Nanos,
}

/// A reserved disk's client.
struct Client {
    next: Nanos,
    mean: f64,
    rng: Rng,
    clock: VirtualClock,
}

impl Client {
    /// Lets the next request arrive later.
    fn space(&mut self) {
        self.next += Nanos((self.rng.exponential(self.mean) * 1e9) as u64);
    }
}

impl Contest {
    /// Policies of the disks, the neighbour's last.
    pub fn policies(&self) -> Vec<Policy> {
        let reserved = self.reserved.iter().map(|&rate| policy(rate, 0, 1));
        reserved.chain(self.neighbour.map(|shares| policy(0, 0, shares))).collect()
    }

    /// The counted disks, each on a device of its own of the same kind, whose rate is the
    /// reservation.
    ///
    /// # Errors
    /// Those of [`Contest::run`].
    pub fn alone(&self) -> Result<Outcome> {
        let fifo = Suspect { kind: SchedulerKind::Fifo, ..Suspect::default() };
        let (mut took, mut late) = (Vec::new(), Vec::new());
        for (number, &rate) in self.reserved.iter().enumerate().take(self.counted) {
            let alone = Contest {
                rate,
                reserved: vec![rate],
                neighbour: None,
                first: self.first + number,
                ..self.clone()
            };
            alone.collect(Rule::Gate(fifo), &mut took, &mut late)?;
        }
        Ok(Outcome { took: Times::new(took), late: Times::new(late) })
    }

    /// Runs it.
    ///
    /// # Errors
    /// A rate of 0, or a scheduler that invents requests.
    pub fn run(&self, rule: Rule) -> Result<Outcome> {
        let (mut took, mut late) = (Vec::new(), Vec::new());
        self.collect(rule, &mut took, &mut late)?;
        Ok(Outcome { took: Times::new(took), late: Times::new(late) })
    }

    fn storage(&self) -> Server {
        let name = format!("service {}", self.first);
        Server::new(self.rate, self.service, self.pause, &name, self.seed)
    }

    fn clients(&self) -> Result<Vec<Client>> {
        let client = |(number, &rate): (usize, &u64)| -> Result<Client> {
            let mut client = Client {
                next: Nanos::ZERO,
                mean: 1.0 / (self.part * rate as f64),
                rng: Rng::new(&format!("arrivals {}", self.first + number), self.seed),
                clock: VirtualClock::new(Iops::new(rate)?),
            };
            client.space();
            Ok(client)
        };
        self.reserved.iter().enumerate().map(client).collect()
    }

    fn collect(&self, rule: Rule, took: &mut Vec<Nanos>, late: &mut Vec<Nanos>) -> Result<()> {
        let mut run = Run {
            order: Order::new(rule, self)?,
            storage: self.storage(),
            requests: Vec::new(),
            free: Vec::new(),
        };
        let mut clients = self.clients()?;
        let end = Nanos::from_secs(self.seconds);
        let neighbour = self.neighbour.map(|_| self.reserved.len());
        let mut count = |request: Request, now: Nanos| {
            if request.disk < self.counted && request.arrived >= SETTLED {
                took.push(now.since(request.arrived));
                late.push(now.since(request.deadline));
            }
        };
        let mut now = Nanos::ZERO;
        let of_neighbour = |disk, now| Request { disk, arrived: now, deadline: Nanos(u64::MAX) };
        if let Some(disk) = neighbour {
            for _ in 0..NEIGHBOUR {
                run.enqueue(now, of_neighbour(disk, now))?;
            }
        }
        loop {
            while let Some(key) = run.storage.poll(now) {
                let request = run.complete(now, key)?;
                count(request, now);
            }
            for (disk, client) in clients.iter_mut().enumerate() {
                while client.next <= now {
                    let (_, deadline) = client.clock.arrival(now);
                    run.enqueue(now, Request { disk, arrived: now, deadline })?;
                    client.space();
                }
            }
            while let Some(disk) = run.dispatch(now)? {
                if neighbour == Some(disk) {
                    run.enqueue(now, of_neighbour(disk, now))?;
                }
            }
            let arrival = clients.iter().map(|client| client.next).min();
            let events = [run.storage.next_event(), run.order.next_wake(), arrival];
            let next = events.into_iter().flatten().min().context("arrivals never end")?;
            if next >= end {
                break;
            }
            now = next.max(now);
        }
        run.requests.into_iter().flatten().for_each(|request| count(request, end));
        Ok(())
    }
}

/// Scheduler, storage, and what is on its way.
struct Run {
    order: Order,
    storage: Server,
    requests: Vec<Option<Request>>,
    free: Vec<usize>,
}

impl Run {
    fn enqueue(&mut self, now: Nanos, request: Request) -> Result<()> {
        let key = self.free.pop().unwrap_or(self.requests.len());
        match self.requests.get_mut(key) {
            Some(place) => *place = Some(request),
            None => self.requests.push(Some(request)),
        }
        self.order.enqueue(now, request.disk, key)
    }

    /// Sends one request to the storage and says whose it was.
    fn dispatch(&mut self, now: Nanos) -> Result<Option<usize>> {
        let Some(key) = self.order.next(now) else { return Ok(None) };
        let request = self.requests.get(key).copied().flatten().context("an invented request")?;
        self.storage.submit(now, key);
        Ok(Some(request.disk))
    }

    fn complete(&mut self, now: Nanos, key: usize) -> Result<Request> {
        let place = self.requests.get_mut(key).context("the storage invented a request")?;
        let request = place.take().context("a request completed twice")?;
        self.free.push(key);
        self.order.complete(now, request.disk);
        Ok(request)
    }
}
