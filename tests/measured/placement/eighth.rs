//! The eighth disk: seven are anywhere on three arrays whose ability is known, one more is created
//! without a datastore, and `disk create` chooses. Then its client runs on each of the three, and
//! what all disks together did says how good the choice was: the test against an oracle of the
//! BASIL paper (FAST 2010, section 6.4), with real clients.
//!
//! `HEADGATE_EIGHTH_CASES=20` tries so many cases, of three quarters of a minute each. Of fewer
//! than [`MANY`] no parts can be told: their choices together must beat a place at random.

use super::client::Client;
use super::{Pod, SPINDLES, TYPES, job};
use anyhow::{Context, ensure};
use headgate_lab::ledger::splitmix;
use headgate_lab::pace::with_paced_lab_alone;
use headgate_lab::{Lab, Server, wait_for};
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

const DEFAULT: u64 = 2;
const MANY: usize = 20;

/// How much slower the arrays are than the model of drives has them.
const SLOWER: u32 = 4;

/// What a client keeps outstanding.
const OUTSTANDING: [u32; 4] = [2, 4, 8, 16];

/// Of each spindle, by whoever is there to have the arrays' ability learnt.
const LEARNING: u32 = 8;

/// How long the last of these loads may last until it is.
const LEARNT: Duration = Duration::from_secs(40);

/// How often samples are taken.
const SAMPLED: Duration = Duration::from_secs(2);

/// Until it is known what seven disks do, by some samples.
const KNOWN: Duration = Duration::from_secs(7);

/// Until the eighth has had its effect, and how long that is measured.
const SETTLES: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_secs(8);

/// Places whose latency differs by no more are equally good.
const ALIKE: f64 = 1.01;

/// What a client is like: the number of its type, and what it keeps outstanding.
#[derive(Clone, Copy, Debug)]
struct Load {
    kind: usize,
    outstanding: u32,
}

/// Where the seven are, and what each and the eighth does.
#[derive(Debug)]
struct Case {
    number: u64,
    seven: Vec<(usize, Load)>,
    eighth: Load,
}

/// One disk, and its client.
struct Loaded {
    name: String,
    client: Client,
}

/// What became of a case.
struct Outcome {
    /// Mean latency of all requests by array, in milliseconds, with the eighth there.
    latency: [f64; 3],
    /// Of the arrays, what was chosen, and what has the fewest disks.
    chosen: usize,
    by_count: usize,
}

impl Case {
    fn new(number: u64) -> Case {
        let mut drawn = 0;
        let mut draw = |below: usize| {
            drawn += 1;
            (splitmix(number << 16 | drawn) % below as u64) as usize
        };
        let mut load =
            || Load { kind: draw(TYPES.len()), outstanding: OUTSTANDING[draw(OUTSTANDING.len())] };
        let (loads, eighth): (Vec<Load>, Load) = ((0..7).map(|_| load()).collect(), load());
        let seven = loads.into_iter().map(|load| (draw(SPINDLES.len()), load)).collect();
        Case { number, seven, eighth }
    }

    /// The array with the fewest disks; the larger of two, as who counts would choose.
    fn fewest(&self) -> usize {
        let count = |array: usize| self.seven.iter().filter(|(on, _)| *on == array).count();
        (0..SPINDLES.len()).rev().min_by_key(|array| count(*array)).expect("there are arrays")
    }
}

impl Outcome {
    /// How many places are better than this one.
    fn better(&self, place: usize) -> usize {
        let mine = self.latency[place];
        self.latency.iter().filter(|other| mine > ALIKE * **other).count()
    }

    /// How much longer requests take than at the best place, as a part of it.
    fn regret(&self, place: usize) -> f64 {
        let best = self.latency.into_iter().fold(f64::INFINITY, f64::min);
        self.latency[place] / best - 1.0
    }

    /// The same of a place at random.
    fn regret_at_random(&self) -> f64 {
        (0..3).map(|place| self.regret(place)).sum::<f64>() / 3.0
    }
}

fn array(place: usize) -> String {
    format!("array{}", SPINDLES[place])
}

impl Pod {
    /// A disk on a datastore, or where Headgate would have it; with its client.
    fn create(&self, lab: &Lab, name: &str, on: Option<&str>) -> anyhow::Result<(Loaded, String)> {
        let on: Vec<String> = on.map(|on| format!("--datastore={on}")).into_iter().collect();
        let mut words = vec!["disk", "create", name, "--size=256M", "--datastore-class=pod"];
        words.extend(on.iter().map(String::as_str));
        let at = self.daemon.json(&words)?["datastore"].as_str().context("no place")?.to_owned();
        let (uri, dir) = (self.daemon.nbd_uri(name), lab.subdir(&format!("client-{name}"))?);
        Ok((Loaded { name: name.to_owned(), client: Client::Nbd { fio: None, uri, dir } }, at))
    }

    fn remove(&self, mut disk: Loaded) -> anyhow::Result<()> {
        disk.client.stop()?;
        self.daemon.command(&["disk", "remove", &disk.name, "--purge"]).map(drop)
    }

    /// Has the ability of each array learnt, by somebody else's load.
    fn learn(&mut self, lab: &Lab) -> anyhow::Result<()> {
        for spindles in SPINDLES {
            self.add_array(spindles)?;
        }
        let mut known = Vec::new();
        for (place, spindles) in SPINDLES.into_iter().enumerate() {
            let name = format!("learning{spindles}");
            let (mut disk, _) = self.create(lab, &name, Some(&array(place)))?;
            let steps = super::STEPS.map(|part| part * LEARNING * spindles / 100);
            disk.client.start(&job(
                ("learning", 8, 75, 100),
                &steps,
                self.pace.time(super::STEP),
            ))?;
            known.push(disk);
        }
        sleep(self.pace.time(super::STEP) * (super::STEPS.len() as u32 - 1));
        // Twenty samples at least, and the last of the loads among them.
        for place in 0..SPINDLES.len() {
            wait_for("it should be known how latency rises", self.pace.time(LEARNT), || {
                sleep(SAMPLED);
                let rises = self.model(&array(place))?["model"]["evidence"] == "rise";
                Ok(rises.then_some(()))
            })?;
        }
        known.into_iter().try_for_each(|disk| self.remove(disk))
    }

    fn begin(&self, disk: &mut Loaded, load: Load) -> anyhow::Result<()> {
        disk.client.start(&job(TYPES[load.kind], &[load.outstanding], Duration::ZERO))
    }

    /// Mean latency of all requests of these disks, in milliseconds.
    fn look(&self, disks: &[&str]) -> anyhow::Result<f64> {
        sleep(self.pace.time(SETTLES));
        let before = self.daemon.metrics()?;
        sleep(self.pace.time(LOOK));
        let after = self.daemon.metrics()?;
        let (mut requests, mut waited) = (0.0, 0.0);
        for disk in disks {
            const BUSY: &str = "headgate_disk_outstanding_request_seconds_total";
            requests += after.ops(disk)? - before.ops(disk)?;
            waited += after.of_disk(BUSY, disk)? - before.of_disk(BUSY, disk)?;
        }
        ensure!(requests > 1_000.0, "only {requests} requests");
        Ok(waited / requests * 1e3)
    }

    fn case(&self, lab: &Lab, case: &Case) -> anyhow::Result<Outcome> {
        let mut seven = Vec::new();
        for (n, (on, load)) in case.seven.iter().enumerate() {
            let name = format!("c{}-{n}", case.number);
            let (mut disk, _) = self.create(lab, &name, Some(&array(*on)))?;
            self.begin(&mut disk, *load)?;
            seven.push(disk);
        }
        sleep(self.pace.time(KNOWN));
        // Once chosen, it is tried everywhere.
        let (chosen, mut latency) = (self.eighth(lab, case, None, &seven)?, [0.0; 3]);
        latency[chosen.0] = chosen.1;
        for place in (0..SPINDLES.len()).filter(|place| *place != chosen.0) {
            latency[place] = self.eighth(lab, case, Some(place), &seven)?.1;
        }
        seven.into_iter().try_for_each(|disk| self.remove(disk))?;
        Ok(Outcome { latency, chosen: chosen.0, by_count: case.fewest() })
    }

    /// The eighth disk, somewhere, while seven others are as busy as they are. Where it is, and the
    /// mean latency of all.
    fn eighth(
        &self,
        lab: &Lab,
        case: &Case,
        on: Option<usize>,
        seven: &[Loaded],
    ) -> anyhow::Result<(usize, f64)> {
        let name = format!("c{}-eighth-{}", case.number, on.map_or("chosen".into(), array));
        let (mut disk, at) = self.create(lab, &name, on.map(array).as_deref())?;
        self.begin(&mut disk, case.eighth)?;
        let all: Vec<&str> = seven.iter().chain([&disk]).map(|disk| disk.name.as_str()).collect();
        let latency = self.look(&all)?;
        self.remove(disk)?;
        let place = (0..SPINDLES.len()).find(|place| array(*place) == at);
        Ok((place.with_context(|| format!("the eighth disk is on {at}"))?, latency))
    }
}

/// What the cases came to, in words.
fn words(outcomes: &[Outcome]) -> String {
    let part = |choice: &dyn Fn(&Outcome) -> usize, most: usize| {
        let good = outcomes.iter().filter(|one| one.better(choice(one)) <= most).count();
        100 * good / outcomes.len()
    };
    let mean = |of: &dyn Fn(&Outcome) -> f64| {
        100.0 * outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64
    };
    let line = |name: &str, choice: &dyn Fn(&Outcome) -> usize| {
        format!(
            "  {name:<12} the best in {} %, one of the best two in {} %; {:.1} % longer than best",
            part(choice, 0),
            part(choice, 1),
            mean(&|one| one.regret(choice(one)))
        )
    };
    [
        line("chosen", &|one| one.chosen),
        line("fewest disks", &|one| one.by_count),
        format!("  at random    {:.1} % longer than best", mean(&Outcome::regret_at_random)),
    ]
    .join("\n")
}

fn cases() -> u64 {
    let asked = std::env::var("HEADGATE_EIGHTH_CASES").ok().and_then(|n| n.parse().ok());
    asked.filter(|cases| *cases > 0).unwrap_or(DEFAULT)
}

#[test]
fn the_eighth_disk_is_placed_where_all_do_best() {
    with_paced_lab_alone(&["fio"], |lab, pace| {
        let mut pod = Pod::empty(lab, pace, SLOWER)?;
        pod.learn(lab)?;
        let mut outcomes = Vec::new();
        for number in 0..cases() {
            let case = Case::new(number);
            let outcome = pod.case(lab, &case)?;
            let on: BTreeMap<String, Vec<(&str, u32)>> =
                case.seven.iter().fold(BTreeMap::new(), |mut all, (on, load)| {
                    let one = (TYPES[load.kind].0, load.outstanding);
                    all.entry(array(*on)).or_insert_with(Vec::new).push(one);
                    all
                });
            eprintln!(
                "  case {number}: {on:?}; the eighth {:?}: {:.2?} ms; chosen {}, {} better; by count {}",
                (TYPES[case.eighth.kind].0, case.eighth.outstanding),
                outcome.latency,
                array(outcome.chosen),
                outcome.better(outcome.chosen),
                array(outcome.by_count)
            );
            outcomes.push(outcome);
        }
        let said = words(&outcomes);
        eprintln!("{} cases:\n{said}", outcomes.len());
        let sum = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>();
        let (ours, random) = (sum(|one| one.regret(one.chosen)), sum(Outcome::regret_at_random));
        ensure!(ours < random, "the choices are no better than places at random:\n{said}");
        if outcomes.len() >= MANY {
            let within = |most: usize| {
                let good = outcomes.iter().filter(|one| one.better(one.chosen) <= most).count();
                good as f64 / outcomes.len() as f64
            };
            ensure!(within(0) >= 0.6, "the best place too seldom:\n{said}");
            ensure!(within(1) >= 0.9, "one of the best two too seldom:\n{said}");
        }
        pod.daemon.stop()
    });
}
