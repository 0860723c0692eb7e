//! The chooser on machines that it does not know, in simulated time: what it brings beside each
//! mode alone.

mod model;

use headgate_polling::{Chooser, Mode, Rule, State};
use headgate_units::Nanos;
use model::{Client, Load, MACHINES, Machine, World};

/// How long a run takes, on the clock of the load.
const SECONDS: u64 = 60;

/// What a run came to.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    served: f64,
    /// Processor time per request in ns.
    cpu: f64,
    /// Of the time in which there was a load, how much the incumbent was not in force.
    tried: f64,
}

impl Outcome {
    /// As the crate's documentation defines it.
    fn gain_over(self, other: Outcome) -> f64 {
        (self.served / other.served).ln() - (self.cpu / other.cpu).ln() / 2.0
    }
}

fn run(machine: &Machine, load: Load, rule: Rule, seconds: u64, seed: u64) -> Outcome {
    let mut world = World::new(machine, load, seed);
    let outcome = run_on(&mut world, &mut Chooser::new(rule, seed), Nanos::from_secs(seconds));
    assert!(outcome.served > 0.0);
    outcome
}

/// Serves until `end` on the clock of the load.
fn run_on(world: &mut World, chooser: &mut Chooser, end: Nanos) -> Outcome {
    let (begun, loaded) = (world.totals(), world.totals().loaded());
    let mut tried = Nanos::ZERO;
    while world.totals().loaded() < end {
        let before = world.totals().loaded();
        let mode = chooser.mode();
        let is_trial = matches!(chooser.state(), State::Trial(_)) && mode != chooser.incumbent();
        world.round(mode);
        if is_trial {
            tried += world.totals().loaded() - before;
        }
        if chooser.is_due(world.totals().now) {
            chooser.look(world.totals());
        }
    }
    let totals = world.totals();
    let served = (totals.served - begun.served) as f64;
    Outcome {
        served,
        cpu: (totals.cpu - begun.cpu).0 as f64 / served.max(1.0),
        tried: tried.as_secs_f64() / (world.totals().loaded() - loaded).as_secs_f64(),
    }
}

fn fixed(machine: &Machine, load: Load, mode: Mode, seed: u64) -> Outcome {
    run(machine, load, Rule::Fixed(mode), SECONDS, seed)
}

const CLIENTS: [Client; 6] = [
    Client::closed(1),
    Client::closed(8),
    Client::closed(32),
    Client::open(5_000),
    Client::open(20_000),
    Client::Driver { depth: 32, polls: true },
];

/// Each machine under each load.
fn cases() -> impl Iterator<Item = (&'static Machine, Load)> {
    let bursts = [(7, 90), (500, 300)].map(|(on, off)| Load {
        client: Client::closed(8),
        on: Nanos::from_millis(on),
        off: Nanos::from_millis(off),
    });
    let loads = move || CLIENTS.into_iter().map(Load::steady).chain(bursts);
    MACHINES.iter().flat_map(move |machine| loads().map(move |load| (machine, load)))
}

#[test]
fn models_differ_in_what_is_best() {
    // Otherwise a constant would do.
    let mut best = [0; Mode::ALL.len()];
    for (machine, load) in cases() {
        let plain = fixed(machine, load, Mode::Sleep, 1);
        let gains = Mode::ALL.map(|mode| fixed(machine, load, mode, 1).gain_over(plain));
        let most = gains.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let first = gains.iter().position(|&gain| gain > most - 0.02);
        best[first.unwrap()] += 1;
    }
    assert!(best.iter().all(|&cases| cases >= 3), "{best:?}");
}

/// Beside each mode alone, seen by one client.
fn judge(machine: &Machine, load: Load, seed: u64) {
    let alone = Mode::ALL.map(|mode| fixed(machine, load, mode, seed));
    let plain = alone[Mode::Sleep as usize];
    let chosen = run(machine, load, Rule::Measured, SECONDS, seed);
    let lost = 1.0 - chosen.served / plain.served;
    assert!(
        lost < 0.03,
        "{}, {load:?}, seed {seed}: {:.1} % fewer requests than asleep",
        machine.name,
        lost * 100.0
    );
    let best =
        alone.map(|mode| mode.gain_over(plain)).into_iter().fold(f64::NEG_INFINITY, f64::max);
    let gain = chosen.gain_over(plain);
    // What a margin hides, and the price of trying.
    assert!(
        gain > best - 0.10,
        "{}, {load:?}, seed {seed}: gain {gain:.3}, of the best mode {best:.3}",
        machine.name
    );
}

#[test]
fn never_below_the_plain_way_and_as_good_as_the_best_but_for_the_price_of_trying() {
    for (machine, load) in cases() {
        (1..=2).for_each(|seed| judge(machine, load, seed));
    }
}

#[test]
fn trying_takes_little_of_the_time() {
    for (machine, load) in cases() {
        for seed in 1..=2 {
            let tried = run(machine, load, Rule::Measured, 120, seed).tried;
            assert!(
                tried < 0.05,
                "{}, {load:?}, seed {seed}: {:.1} % of the time",
                machine.name,
                tried * 100.0
            );
        }
    }
}

#[test]
fn a_machine_that_becomes_another_is_noticed() {
    let load = Load::steady(Client::closed(1));
    let named = |name: &str| MACHINES.iter().find(|machine| machine.name == name).unwrap();
    let (quiet, taken) = (named("virtual"), named("neighbours"));
    for seed in 1..=4 {
        let mut world = World::new(quiet, load, seed);
        let mut chooser = Chooser::new(Rule::Measured, seed);
        let mut until = |world: &mut World, seconds| {
            run_on(world, &mut chooser, Nanos::from_secs(seconds));
            chooser.incumbent()
        };
        assert_ne!(until(&mut world, 200), Mode::Sleep, "seed {seed}");
        world.becomes(taken);
        assert_eq!(until(&mut world, 203), Mode::Sleep, "seed {seed}: polling is a loss here");
        world.becomes(quiet);
        assert_ne!(until(&mut world, 245), Mode::Sleep, "seed {seed}");
    }
}

#[test]
fn an_idle_shard_sleeps() {
    let rates = [20, 200, 700];
    for (machine, rate) in MACHINES.iter().flat_map(|machine| rates.map(|rate| (machine, rate))) {
        let load = Load::steady(Client::open(rate));
        let used = |rule| {
            let mut world = World::new(machine, load, 1);
            let mut chooser = Chooser::new(rule, 1);
            while world.totals().now < Nanos::from_secs(600) {
                let next = world.totals().loaded() + Nanos(1);
                run_on(&mut world, &mut chooser, next);
            }
            world.totals().cpu.as_secs_f64() / world.totals().now.as_secs_f64()
        };
        let more = used(Rule::Measured) - used(Rule::Fixed(Mode::Sleep));
        assert!(more < 0.005, "{}, {rate} per second: {more:.5} of a processor more", machine.name);
    }
}
