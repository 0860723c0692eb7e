//! Tables.

use crate::bars::BARS;
use crate::class::Class;
use crate::judge::{Measure, Sample, Score};
use crate::record::Record;
use crate::setup::{Mix, Setup};
use crate::targets;
use headgate_qos::Policy;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Percent, or nothing where nothing was measured.
fn percent(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{:.2}", value * 100.0))
}

/// The columns of [`classes`]: header, measure, part of the samples.
const COLUMNS: [(&str, Measure, f64); 15] = [
    ("r 5s", Measure::Reservation5, 1.0),
    ("p99", Measure::Reservation5, 0.99),
    ("r 1s", Measure::Reservation1, 1.0),
    ("p99.99", Measure::Reservation1, 0.9999),
    ("short 5s", Measure::Shortage5, 1.0),
    ("p99", Measure::Shortage5, 0.99),
    ("over 5s", Measure::Over5, 1.0),
    ("over 1s", Measure::Over1, 1.0),
    ("limited", Measure::Limited5, 1.0),
    ("p99", Measure::Limited5, 0.99),
    ("share 5s", Measure::Share5, 1.0),
    ("p99", Measure::Share5, 0.99),
    ("share 1s p99", Measure::Share1, 0.99),
    ("floor", Measure::Floor5, 1.0),
    ("late", Measure::Late, 1.0),
];

/// The samples of all classes.
fn together(scores: &BTreeMap<Class, Score>) -> Score {
    let mut all = Score::default();
    scores.values().for_each(|score| all.merge(score.clone()));
    all
}

/// One row for each class, and one for all of them, in Markdown. All figures are percentages but
/// `late`.
pub fn classes(scores: &BTreeMap<Class, Score>) -> String {
    let mut text = String::from("| class |");
    for (name, _, _) in COLUMNS {
        let _ = write!(text, " {name} |");
    }
    text.push_str(" misses |\n|---|");
    text.push_str(&"---|".repeat(COLUMNS.len() + 1));
    text.push('\n');
    let all = (scores.len() > 1).then(|| ("all".to_owned(), together(scores)));
    let each = scores.iter().map(|(class, score)| (class.to_string(), score));
    for (name, score) in each.chain(all.iter().map(|(name, score)| (name.clone(), score))) {
        let _ = write!(text, "| {name} |");
        for (_, measure, part) in COLUMNS {
            let value = score.of(measure).quantile(part);
            match measure {
                Measure::Late => {
                    let late = value.map_or("-".to_owned(), |late| format!("{late:.2}"));
                    let _ = write!(text, " {late} |");
                }
                _ => {
                    let _ = write!(text, " {} |", percent(value));
                }
            }
        }
        let missed: Vec<&str> =
            BARS.iter().filter(|bar| !bar.is_met(score)).map(|bar| bar.name).collect();
        let _ = writeln!(text, " {} |", missed.join(", "));
    }
    text
}

/// Measures of single classes: bar, measure.
const SPECIAL: [(&str, Measure); 3] =
    [("turns", Measure::Turns5), ("target", Measure::Target), ("target-loss", Measure::TargetLoss)];

/// One row for each class and measure that no other class has, in Markdown. `none off` is the part
/// of the samples without any error.
pub fn special(scores: &BTreeMap<Class, Score>) -> String {
    let mut text = String::from(
        "| class | measure | samples | none off | median | p90 | p99 | worst | seed |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    let rows = scores.iter().flat_map(|(class, score)| SPECIAL.map(|row| (class, score, row)));
    for (class, score, (name, measure)) in rows {
        let tally = score.of(measure);
        let (Some(part), Some(seed)) = (tally.part_within(0.0), score.worst_seed(measure)) else {
            continue;
        };
        let quantiles = [0.5, 0.9, 0.99, 1.0].map(|part| percent(tally.quantile(part)));
        let _ = writeln!(
            text,
            "| {class} | {name} | {} | {:.2} | {} | {seed} |",
            tally.count(),
            part * 100.0,
            quantiles.join(" | "),
        );
    }
    text
}

/// Every bar with the classes that miss it.
pub fn verdicts(scores: &BTreeMap<Class, Score>) -> String {
    let mut text = String::new();
    for bar in BARS {
        let missed: Vec<String> = scores
            .iter()
            .filter(|(_, score)| !bar.is_met(score))
            .map(|(class, score)| {
                let seed = score.worst_seed(bar.measure).unwrap_or(0);
                let value = bar.value(score).unwrap_or(0.0) * 100.0;
                format!("{class} {value:.2} (seed {seed})")
            })
            .collect();
        let all = if bar.part < 1.0 {
            format!("{} % of the samples", bar.part * 100.0)
        } else {
            "all samples".to_owned()
        };
        let result = if missed.is_empty() { "PASS".to_owned() } else { missed.join(", ") };
        let verdict = if missed.is_empty() { "" } else { "MISS: " };
        let most = bar.most * 100.0;
        let _ = writeln!(text, "{:<15} {all} at most {most:.0} %: {verdict}{result}", bar.name);
    }
    text
}

/// One row for each latency target of a run: in parts of it, what an ideal order gives and what the
/// run reached.
fn aims(setup: &Setup, record: &Record) -> String {
    let mut text = String::new();
    for aim in targets::aims(setup) {
        let targets::Aim { disk, target, first, due, feasibility } = aim;
        let reached = targets::reached(setup, record, &aim).unwrap_or(f64::NAN);
        let _ = writeln!(
            text,
            "\ndisk {disk}: {target}, {feasibility:?}: always first {first:.2}, when due {due:.2}, \
             reached {reached:.2}"
        );
    }
    text
}

/// What writes, and the limits of reads and of writes in reference IOs per second.
fn mixed(setup: &Setup, disk: usize, policy: &Policy) -> String {
    let mix = match setup.disks.get(disk).map(|disk| disk.mix) {
        None | Some(Mix::Reads) => return String::new(),
        Some(mix) => mix,
    };
    let [reads, writes] = setup.most(disk, policy).each;
    format!(", {mix:.2?}, reads {reads:.0}, writes {writes:.0}")
}

/// One row for each disk of a run.
pub fn disks(setup: &Setup, record: &Record, samples: &[Sample]) -> String {
    let mut text = format!(
        "{} seed {}: window {}, {} disks, {} s, rate {}, latency {}, service {}, {}\n\n",
        setup.class,
        setup.seed,
        setup.window,
        setup.disks.len(),
        setup.seconds(),
        setup.phases.iter().map(|p| p.rate.to_string()).collect::<Vec<_>>().join(", "),
        setup.latency,
        setup.service,
        setup.stall.map_or("no stalls".to_owned(), |stall| format!("stall {stall}")),
    );
    text.push_str(
        "| disk | reservation | limit | shares | load | got/s | r 5s | over 5s | limited | share 5s |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    let Some(phase) = setup.phases.first() else { return text };
    for (disk, (policy, load)) in phase.disks.iter().enumerate() {
        let worst = |measure| {
            let of = samples.iter().filter(|s| s.disk == disk && s.measure == measure);
            percent(of.map(|sample| sample.error).reduce(f64::max))
        };
        let or_none =
            |rate: Option<headgate_units::Iops>| rate.map_or("-".to_owned(), |r| r.to_string());
        let conduct = setup.disks.get(disk).map(|disk| disk.conduct);
        let conduct = conduct.map_or(String::new(), |conduct| format!("{conduct:?}, "));
        let mixed = mixed(setup, disk, policy);
        let _ = writeln!(
            text,
            "| {disk} | {} | {} | {} | {conduct}{load:?}{mixed} | {:.1} | {} | {} | {} | {} |",
            or_none(policy.reservation()),
            or_none(policy.limit()),
            policy.shares(),
            record.rate(disk, setup.settle, record.seconds.len()),
            worst(Measure::Reservation5),
            worst(Measure::Over5),
            worst(Measure::Limited5),
            worst(Measure::Share5),
        );
    }
    text.push_str(&aims(setup, record));
    let mut worst: Vec<&Sample> = samples.iter().filter(|sample| sample.error > 0.01).collect();
    worst.sort_by(|a, b| b.error.total_cmp(&a.error));
    for sample in worst.iter().take(10) {
        let Sample { measure, disk, from, got, due, error } = sample;
        let _ = writeln!(
            text,
            "\ndisk {disk} from {from} s: {measure:?} off by {:.2} %, got {got:.1}, due {due:.1}",
            error * 100.0
        );
    }
    text
}
