//! What it costs to serve on machines of several kinds: rounds of a client and a shard.
//!
//! The figures are of the orders that were measured (`docs/decisions/0010-waiting-awake.md`), and
//! chosen so that machines disagree about what is best.

use headgate_polling::{AWAY_AFTER, Mode, Totals};
use headgate_units::Nanos;

/// A machine, as a shard meets it. Times in ns.
#[derive(Debug)]
pub struct Machine {
    pub name: &'static str,
    /// From the signal until the sleeper runs.
    wakes_in: f64,
    /// Processor time of going to sleep and of waking up.
    sleep: f64,
    /// Processor time of the one who signals.
    signal: f64,
    /// Processor time of one request.
    serve: f64,
    /// The client's time for one request.
    think: f64,
    /// What a look at a client's ring adds to each request.
    look: f64,
    processors: Processors,
    /// Of a period, the part that the group may use.
    quota: Option<(Nanos, f64)>,
    /// Standard deviation of a round, relative to it.
    noise: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Processors {
    /// Client and shard have one each.
    Own,
    /// Client and shard have one together.
    Shared,
    /// Others want them, too. Who has slept runs at once; who never sleeps waits for a slice of
    /// this length after each that it had.
    Taken(f64),
    /// Siblings: a poller slows the client down to this part of its speed.
    Siblings(f64),
}

const VIRTUAL: Machine = Machine {
    name: "virtual",
    wakes_in: 14_000.0,
    sleep: 6_000.0,
    signal: 5_000.0,
    serve: 500.0,
    think: 500.0,
    look: 20.0,
    processors: Processors::Own,
    quota: None,
    noise: 0.15,
};

/// The machines.
pub const MACHINES: &[Machine] = &[
    VIRTUAL,
    // Wake-ups cost next to nothing.
    Machine {
        name: "bare metal",
        wakes_in: 1_200.0,
        sleep: 600.0,
        signal: 300.0,
        serve: 400.0,
        think: 400.0,
        ..VIRTUAL
    },
    Machine {
        name: "deep idle states",
        wakes_in: 90_000.0,
        sleep: 8_000.0,
        signal: 1_000.0,
        ..VIRTUAL
    },
    Machine {
        name: "one processor",
        wakes_in: 2_000.0,
        sleep: 1_500.0,
        processors: Processors::Shared,
        ..VIRTUAL
    },
    Machine { name: "neighbours", processors: Processors::Taken(3e6), ..VIRTUAL },
    Machine { name: "siblings", processors: Processors::Siblings(0.4), look: 150.0, ..VIRTUAL },
    Machine { name: "quota", quota: Some((Nanos::from_millis(100), 0.5)), ..VIRTUAL },
    Machine { name: "noisy", noise: 0.6, ..VIRTUAL },
    Machine { name: "slow storage", serve: 30_000.0, ..VIRTUAL },
    // What is found by looking is found one by one.
    Machine { name: "costly looks", look: 600.0, wakes_in: 6_000.0, ..VIRTUAL },
];

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub enum Client {
    /// A driver with so many requests under way; one that polls need not be woken.
    Driver { depth: u32, polls: bool },
    /// So many requests per second, whatever the answers do.
    Open { rate: u32 },
}

impl Client {
    pub const fn closed(depth: u32) -> Client {
        Client::Driver { depth, polls: false }
    }

    pub const fn open(rate: u32) -> Client {
        Client::Open { rate }
    }
}

/// A client that asks for `on`, and is silent for `off`.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub client: Client,
    pub on: Nanos,
    pub off: Nanos,
}

impl Load {
    pub fn steady(client: Client) -> Load {
        Load { client, on: Nanos::MAX, off: Nanos::ZERO }
    }
}

/// How long a shard polls before it sleeps after all.
const PATIENCE: f64 = 50_000.0;

/// A round: how long it takes, the shard's processor time, the requests.
struct Round {
    time: f64,
    cpu: f64,
    served: u32,
}

/// A machine under a load, as it goes on.
pub struct World {
    machine: &'static Machine,
    load: Load,
    totals: Totals,
    /// Until when the client asks.
    on_until: Nanos,
    /// Processor time that the group had in the period under way, and its end.
    spent: f64,
    period_ends: Nanos,
    /// Processor time since the last sleep or slice of others.
    slice: f64,
    noise: u64,
}

impl World {
    pub fn new(machine: &Machine, load: Load, seed: u64) -> World {
        let machine = MACHINES.iter().find(|known| known.name == machine.name).unwrap();
        World {
            machine,
            load,
            totals: Totals::default(),
            on_until: load.on,
            spent: 0.0,
            period_ends: Nanos::ZERO,
            slice: 0.0,
            noise: seed,
        }
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    pub fn becomes(&mut self, machine: &'static Machine) {
        self.machine = machine;
    }

    /// One round in this mode.
    pub fn round(&mut self, mode: Mode) {
        let mut round = match self.load.client {
            Client::Driver { depth, polls } => self.driver(mode, depth, polls),
            Client::Open { rate } => self.open(mode, rate),
        };
        // Whoever sleeps in this round: its processor is given back.
        let sleeps = round.cpu < round.time * 0.98;
        let factor = self.factor();
        (round.time, round.cpu) = (round.time * factor, round.cpu * factor);
        if let Processors::Taken(slice) = self.machine.processors {
            self.slice = if sleeps { 0.0 } else { self.slice + round.cpu };
            if self.slice > slice {
                self.slice = 0.0;
                round.time += slice;
            }
        }
        let sleep = Nanos((round.time - round.cpu).max(0.0) as u64);
        if sleep > AWAY_AFTER {
            self.totals.away += sleep;
        }
        self.totals.now += Nanos(round.time as u64);
        self.totals.cpu += Nanos(round.cpu as u64);
        self.totals.served += u64::from(round.served);
        self.pay(round.cpu);
        if self.totals.now > self.on_until {
            self.totals.now += self.load.off;
            self.totals.away += self.load.off;
            self.on_until = self.totals.now + self.load.on;
        }
    }

    fn driver(&self, mode: Mode, depth: u32, polls: bool) -> Round {
        let m = self.machine;
        let n = f64::from(depth);
        let is_polling = mode != Mode::Sleep;
        let looks = matches!(mode, Mode::PollClient | Mode::HoldAnswers);
        let serve = n * (m.serve + if looks { m.look } else { 0.0 });
        let slowed = match m.processors {
            Processors::Siblings(part) if is_polling => 1.0 / part,
            _ => 1.0,
        };
        let (woken, signal) = if polls { (0.0, 0.0) } else { (m.wakes_in, m.signal) };
        // The client's kick costs the client.
        let kick = if looks || polls { 0.0 } else { m.signal / 2.0 };
        let client = woken + (n * m.think + kick) * slowed;
        if m.processors == Processors::Shared && is_polling && !polls {
            // The client runs when the shard has given up.
            let time = serve + signal + PATIENCE + m.sleep + client;
            return Round { time, cpu: serve + signal + PATIENCE + m.sleep, served: depth };
        }
        if !is_polling || client > PATIENCE {
            let polled = if is_polling { PATIENCE } else { 0.0 };
            let cpu = serve + signal + m.sleep + polled;
            // A client that polls works while the shard wakes up.
            let time = serve + signal + client + m.wakes_in + m.sleep / 2.0;
            return Round { time: time.max(cpu), cpu, served: depth };
        }
        let time = match mode == Mode::HoldAnswers && depth >= 4 && !polls {
            true => (serve + signal).max(client) + serve / 2.0,
            false => serve + signal + client,
        };
        Round { time, cpu: time, served: depth }
    }

    /// The client sends at its own pace, one at a time.
    fn open(&self, mode: Mode, rate: u32) -> Round {
        let m = self.machine;
        let gap = 1e9 / f64::from(rate);
        let work = m.serve + m.signal;
        let cpu = match mode {
            Mode::Sleep => work + m.sleep,
            _ if gap < PATIENCE => gap,
            _ => work + PATIENCE + m.sleep,
        };
        Round { time: gap.max(cpu), cpu, served: 1 }
    }

    /// Takes processor time out of the quota; waits for the next period when it is used up.
    fn pay(&mut self, cpu: f64) {
        let Some((period, part)) = self.machine.quota else { return };
        if self.totals.now >= self.period_ends {
            self.period_ends = self.totals.now + period;
            self.spent = 0.0;
        }
        self.spent += cpu;
        if self.spent > period.0 as f64 * part {
            self.totals.now = self.period_ends;
        }
    }

    /// About 1; a few times as much once in a while, as schedulers and hypervisors do.
    fn factor(&mut self) -> f64 {
        let sum: f64 = (0..4).map(|_| self.uniform() - 0.5).sum();
        let hiccup = if self.uniform() < 0.001 { 20.0 } else { 1.0 };
        (1.0 + sum * self.machine.noise * 1.73).max(0.2) * hiccup
    }

    fn uniform(&mut self) -> f64 {
        self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.noise >> 11) as f64 / (1u64 << 53) as f64
    }
}
