//! What a change of policy would have done, foretold from what history keeps of a simulation, held
//! against the simulation with that change.
//!
//! The truth is a scenario: closed loops with and without pauses and random arrivals, requests of
//! one size or several, on devices of random service times and on spindles. The record has of it
//! what history has: a minute's counts and waiting, and how many requests were outstanding every
//! five seconds. `HEADGATE_WHAT_IF_CASES` says how many cases there are.

use headgate_placement::{
    DeviceInterval, DeviceModel, DevicePoint, LeftOut, Outstanding, Permille,
};
use headgate_qos::Policy;
use headgate_qos::window::Slots;
use headgate_sim::what_if::{
    Bounds, Curve, DeviceRecord, DiskRecord, LoadRecord, NoAnswer, PeriodRecord, Spread, Waited,
    what_if,
};
use headgate_sim::{Outcome, Quiet, Scenario, run};
use headgate_units::{Bytes, Nanos};
use std::fmt::Write as _;

/// Points of a series in a minute.
const INTERVALS: usize = 12;
const MINUTES: usize = 2;

/// A random sequence that never changes: SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Evenly by its logarithm.
    fn scale(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    fn one_of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len() as u64) as usize]
    }
}

#[derive(Clone)]
struct Disk {
    workload: String,
    reservation: Option<u64>,
    limit: Option<u64>,
    shares: u64,
}

#[derive(Clone)]
struct Case {
    device: String,
    /// About what it can do.
    rate: f64,
    window: u64,
    /// What the first disk keeps outstanding.
    fills: u64,
    disks: Vec<Disk>,
}

fn device(dice: &mut Dice) -> (String, f64) {
    match dice.below(4) {
        0 | 1 => {
            let rate = dice.scale(150.0, 1_500.0).round();
            let service = dice.one_of(&["exponential", "exponential", "pareto"]);
            let latency = dice.scale(200.0, 8_000.0).round();
            (format!("rate={rate},latency={latency}us,service={service}"), rate)
        }
        2 => {
            // As many units as a latency of that length needs.
            let (rate, depth) = (dice.scale(300.0, 1_500.0).round(), 4 + dice.below(28));
            let latency = (depth as f64 / rate * 1e6).round();
            let fast = rate * dice.between(1.2, 3.0);
            let text =
                format!("rate={fast:.0},latency={latency}us,depth={depth},service=exponential");
            (text, rate)
        }
        _ => {
            let spindles = 1 + dice.below(6);
            (format!("array={spindles}"), 180.0 * spindles as f64)
        }
    }
}

impl Case {
    fn random(dice: &mut Dice) -> Case {
        let (device, rate) = device(dice);
        let count = 2 + dice.below(4);
        let mut disks: Vec<Disk> = (0..count)
            .map(|_| {
                let sizes = dice.one_of(&["4K", "4K", "8K", "16K", "64K"]);
                let read = 10 * dice.below(11);
                let how = match dice.below(4) {
                    0 | 1 => {
                        format!("kind = 'closed', outstanding = {}", dice.scale(1.0, 64.0).round())
                    }
                    2 => format!(
                        "kind = 'closed', outstanding = {}, think = '{}us', times = 'exponential'",
                        dice.scale(1.0, 32.0).round(),
                        dice.scale(500.0, 50_000.0).round()
                    ),
                    _ => {
                        let rate = rate * dice.between(0.02, 0.4);
                        format!("kind = 'open', rate = {}", rate.round().max(1.0))
                    }
                };
                Disk {
                    workload: format!("{how}, size = '{sizes}', read = '{read}%'"),
                    reservation: None,
                    limit: None,
                    shares: [250, 500, 1_000, 1_000, 2_000, 4_000][dice.below(6) as usize],
                }
            })
            .collect();
        // Somebody fills the datastore, or nobody waits for anything.
        let fills = 16 + dice.below(80);
        disks[0].workload = format!("kind = 'closed', outstanding = {fills}, size = '4K'");
        if dice.below(3) == 0 {
            let one = dice.below(count) as usize;
            disks[one].reservation = Some((rate * dice.between(0.1, 0.4)) as u64);
        }
        if dice.below(4) == 0 {
            let one = &mut disks[dice.below(count) as usize];
            if one.reservation.is_none() {
                one.limit = Some((rate * dice.between(0.1, 0.5)) as u64 + 1);
            }
        }
        Case { device, rate, fills, window: [4, 8, 16, 32, 64][dice.below(5) as usize], disks }
    }

    /// The same with less of the load that fills it.
    fn lighter(&self, part: u64) -> Scenario {
        let mut lighter = self.clone();
        lighter.disks[0].workload =
            format!("kind = 'closed', outstanding = {}, size = '4K'", (self.fills / part).max(1));
        lighter.scenario()
    }

    /// What somebody may ask for, and of which disk.
    fn change(&self, dice: &mut Dice) -> (Case, usize) {
        let mut changed = self.clone();
        let victim = 1 + dice.below(self.disks.len() as u64 - 1) as usize;
        match dice.below(4) {
            0 | 1 => {
                let one = &mut changed.disks[victim];
                let reservation = (self.rate * dice.between(0.2, 0.7)) as u64 + 1;
                (one.reservation, one.limit) = (Some(reservation), None);
                (changed, victim)
            }
            2 => {
                let one = &mut changed.disks[0];
                let limit = (self.rate * dice.between(0.1, 0.6)) as u64 + 1;
                (one.limit, one.reservation) = (Some(limit), None);
                (changed, 0)
            }
            _ => {
                changed.disks[victim].shares = [100, 4_000, 16_000][dice.below(3) as usize];
                (changed, victim)
            }
        }
    }

    fn scenario(&self) -> Scenario {
        let mut text = format!(
            "name = 'case'\ntitle = 'A case'\nduration = '{}s'\ninterval = '5s'\n\
             windows = {{ kept = '5s..{}s' }}\n\
             datastore = [{{ name = 'lun', device = '{}', queue-depth = {} }}]\n",
            5 + 60 * MINUTES,
            5 + 60 * MINUTES,
            self.device,
            self.window
        );
        for (n, disk) in self.disks.iter().enumerate() {
            let maybe = |name: &str, value: Option<u64>| {
                value.map_or_else(String::new, |value| format!("{name} = {value}, "))
            };
            writeln!(
                text,
                "[[vm]]\nname = 'd{n}'\ndisk = [{{ {}{}shares = {} }}]\nworkload = [{{ {} }}]",
                maybe("reservation", disk.reservation),
                maybe("limit", disk.limit),
                disk.shares,
                disk.workload
            )
            .unwrap();
        }
        Scenario::parse("case.toml", &text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }
}

fn policies(scenario: &Scenario) -> Vec<Policy> {
    scenario.variants[0].setup.vms.iter().map(|vm| vm.disks[0].policy).collect()
}

const LENGTH: Nanos = Nanos::from_secs(5);

/// Points of a datastore's model.
fn points(outcome: &Outcome) -> Vec<DeviceInterval> {
    let point = |point: &headgate_sim::Counters| {
        let device = point.latency - point.queue;
        let point = DevicePoint {
            outstanding: Outstanding::of(device as f64 / LENGTH.0 as f64),
            latency: Nanos(device.checked_div(point.completed).unwrap_or(0)),
            size: Bytes(point.bytes.checked_div(point.completed).unwrap_or(0)),
            random: Permille::WHOLE,
        };
        DeviceInterval::Doubtful(point, LeftOut::Windowed)
    };
    outcome.subject("lun").unwrap().series[1..].iter().map(point).collect()
}

/// What history keeps of a run: the model of the datastore, minutes and intervals.
fn recorded(
    scenario: &Scenario,
    after: &Scenario,
    truth: &Outcome,
    points: &[DeviceInterval],
) -> LoadRecord {
    let store = &scenario.variants[0].setup.datastores[0];
    let length = LENGTH;
    let whole = truth.subject("lun").unwrap();
    let curve = DeviceModel::learn_from(points).map_or(Curve::Recorded, Curve::Learnt);
    let device = &whole.spans[0].device;
    let disks = policies(scenario).into_iter().zip(policies(after)).enumerate().map(
        |(n, (before, after))| {
            let subject = truth.subject(&format!("d{n}")).unwrap();
            let minute = |points: &[headgate_sim::Counters]| {
                let sum = points
                    .iter()
                    .fold(Default::default(), |sum: headgate_sim::Counters, p| sum.plus(p));
                PeriodRecord {
                    reads: sum.completed / 2,
                    writes: sum.completed - sum.completed / 2,
                    bytes: Bytes(sum.bytes),
                    waited: Waited {
                        device: (sum.latency - sum.queue) / 1_000,
                        limit: 0,
                        queue: (sum.outstanding.saturating_sub(sum.latency - sum.queue)) / 1_000,
                    },
                    outstanding: points
                        .iter()
                        .map(|point| point.mean_outstanding(length) as f32)
                        .collect(),
                }
            };
            let latency = &subject.spans[0].latency;
            DiskRecord {
                name: format!("d{n}"),
                before,
                after,
                periods: subject.series[1..].chunks(INTERVALS).map(minute).collect(),
                latency: latency.at_permille(500).zip(latency.at_permille(990)),
            }
        },
    );
    LoadRecord {
        periods: vec![Nanos::from_secs(60); MINUTES],
        disks: disks.collect(),
        device: DeviceRecord {
            curve,
            spread: Spread::by(|permille| device.at_permille(permille)).unwrap(),
        },
        scheduler: store.scheduler,
        config: store.config,
        window: Slots::whole(store.queue_depth),
        groups: Vec::new(),
        members: Vec::new(),
    }
}

/// Errors of one way to foretell rates, relative, or of latencies.
#[derive(Default)]
struct Errors(Vec<f64>);

impl Errors {
    fn add(&mut self, foretold: f64, true_one: f64, least: f64) {
        self.0.push((foretold - true_one).abs() / true_one.max(least));
    }

    fn at(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
    }
}

#[derive(Default)]
struct Scores {
    rates: Errors,
    changed: Errors,
    p50: Errors,
    p99: Errors,
    unchanged: Errors,
    shares: Errors,
    baseline: Errors,
    /// Cases in which the record does not tell the load.
    unknown: u64,
}

fn score(seed: u64, scores: &mut Scores) {
    let mut dice = Dice(seed);
    let case = Case::random(&mut dice);
    let (changed, which) = case.change(&mut dice);
    let (now, then) = (case.scenario(), changed.scenario());
    let truth = run(&now, "default", seed, &mut Quiet).unwrap();
    let mut known = points(&truth);
    if seed.is_multiple_of(2) {
        for part in [16, 8, 4, 2] {
            let lighter = run(&case.lighter(part), "default", seed, &mut Quiet).unwrap();
            known.extend(points(&lighter));
        }
    }
    let record = recorded(&now, &then, &truth, &known);
    // Who asks for more than it gets is seen to wait, and not how much it asks for.
    for n in 0..case.disks.len() {
        let sum = truth.subject(&format!("d{n}")).unwrap().spans[0].counters;
        let outstanding = sum.mean_outstanding(Nanos::from_secs(60 * MINUTES as u64));
        if (sum.completed as f64) < 0.97 * sum.arrived as f64 || outstanding > 256.0 {
            scores.unknown += 1;
            return;
        }
    }
    let answer = match what_if(&record, Bounds { requests: 60_000 }, 1, &mut || false) {
        Ok(answer) => answer,
        Err(NoAnswer::TooFew { .. }) => return,
        Err(e) => panic!("case {seed}: {e}"),
    };
    let later = run(&then, "default", seed + 1_000_000, &mut Quiet).unwrap();
    let rate =
        |outcome: &Outcome, n: usize| outcome.subject(&format!("d{n}")).unwrap().spans[0].iops();
    let total: f64 = (0..case.disks.len()).map(|n| rate(&truth, n)).sum();
    let weights: u64 = changed.disks.iter().map(|disk| disk.shares).sum();
    let mut worst: (f64, String) = Default::default();
    for (n, disk) in answer.disks.iter().enumerate() {
        let (was, is) = (rate(&truth, n), rate(&later, n));
        let least = total / 50.0;
        scores.rates.add(disk.after.rate(), is, least);
        scores.baseline.add(disk.before.rate(), was, least);
        scores.unchanged.add(was, is, least);
        let share = total * changed.disks[n].shares as f64 / weights as f64;
        scores.shares.add(share, is, least);
        if n == which {
            scores.changed.add(disk.after.rate(), is, least);
        }
        let measured = &later.subject(&format!("d{n}")).unwrap().spans[0].latency;
        for (permille, errors) in [(500, &mut scores.p50), (990, &mut scores.p99)] {
            if let (Some(a), Some(b)) =
                (disk.after.latency.at_permille(permille), measured.at_permille(permille))
            {
                errors.add(a.0 as f64, b.0 as f64, 0.0);
            }
        }
        let error = *scores.rates.0.last().unwrap();
        if error > worst.0 {
            worst = (
                error,
                format!(
                    "d{n}{} was {was:.0}, before {:.0}, after {:.0}, is {is:.0}: {} {:?}",
                    if n == which { " (changed)" } else { "" },
                    disk.before.rate(),
                    disk.after.rate(),
                    case.disks[n].workload,
                    disk.load
                ),
            );
        }
    }
    if worst.0 > 0.25 {
        println!(
            "{seed}: {:.0} % {} window {}: {}",
            worst.0 * 100.0,
            case.device,
            case.window,
            worst.1
        );
    }
}

#[test]
fn what_is_foretold_of_a_change_comes_true_and_simpler_ways_fail() {
    let cases = std::env::var("HEADGATE_WHAT_IF_CASES").ok();
    let cases: u64 = cases.map_or(120, |text| text.parse().expect("a number of cases"));
    let [mut steady, mut varied] = [Scores::default(), Scores::default()];
    (1..=cases).step_by(2).for_each(|seed| score(seed, &mut steady));
    (2..=cases).step_by(2).for_each(|seed| score(seed, &mut varied));
    for (when, scores) in [("the load never varied", steady), ("the load varied before", varied)] {
        scores.print(when);
        let (rates, unchanged, shares) = (&scores.rates, &scores.unchanged, &scores.shares);
        let is_close = |errors: &Errors| errors.at(50) <= 0.025 && errors.at(90) <= 0.25;
        assert!(is_close(rates), "{when}: what is foretold is wrong");
        assert!(!is_close(unchanged) && !is_close(shares), "{when}: simpler ways do as well");
        assert!(is_close(&scores.baseline) && scores.baseline.at(95) <= 0.06, "{when}");
    }
}

impl Scores {
    fn print(&self, when: &str) {
        let scores = self;
        println!("{when}; {} cases more in which the record does not tell the load", self.unknown);
        for (what, errors) in [
            ("rates, before the change", &scores.baseline),
            ("rates", &scores.rates),
            ("rates of the changed disk", &scores.changed),
            ("medians", &scores.p50),
            ("99th percentiles", &scores.p99),
            ("rates, if nothing changed", &scores.unchanged),
            ("rates, by shares alone", &scores.shares),
        ] {
            println!(
                "{what}: {} figures, median {:.1} %, p90 {:.1} %, p95 {:.1} %",
                errors.0.len(),
                errors.at(50) * 100.0,
                errors.at(90) * 100.0,
                errors.at(95) * 100.0
            );
        }
    }
}
