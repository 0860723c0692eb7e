//! Figures of pools: models of datastores with the points that they were learnt from, and the
//! distribution of a number over seeds.

use crate::plot::{Figure, Line, MOST_LINES, Panel};
use headgate_sim::{Finding, Outcome, PooledDatastore, Scenario, Summary};

/// Read latency over outstanding reads of each datastore of a pool, and the lines through them.
pub(super) fn models(scenario: &Scenario, outcome: &Outcome) -> Option<Figure> {
    let stores = &outcome.pool.as_ref()?.datastores;
    let shown = &stores[..stores.len().min(MOST_LINES)];
    let points: Vec<Vec<(f64, f64)>> = shown
        .iter()
        .map(|store| {
            store.points.iter().map(|(x, y)| (x.as_f64(), y.as_secs_f64() * 1e3)).collect()
        })
        .collect();
    let end = points.iter().flatten().map(|point: &(f64, f64)| point.0).fold(0.0, f64::max);
    if end == 0.0 {
        return None;
    }
    let lines = shown.iter().zip(&points).map(|(store, points)| line(store, points)).collect();
    let mut latency = Panel::of_lines("mean latency of reads (ms)", lines);
    latency.points = points;
    latency.top = latency.largest();
    let title = match scenario.variants.len() {
        0 | 1 => format!("{}: models", scenario.name),
        _ => format!("{}: models, {}", scenario.name, outcome.variant),
    };
    Some(Figure {
        title,
        axis: "reads outstanding".into(),
        end,
        panels: vec![latency],
        legend: shown.iter().map(|store| store.name.clone()).collect(),
        note: None,
        marks: Vec::new(),
    })
}

/// The model's line over the loads that were seen.
fn line(store: &PooledDatastore, points: &[(f64, f64)]) -> Line {
    let Some(model) = store.model else { return Line::new() };
    let (first, last) =
        points.iter().fold((f64::INFINITY, 0.0), |(first, last), &(x, _): &(f64, f64)| {
            (x.min(first), x.max(last))
        });
    let at = |x: f64| {
        let y = model.base as f64 / 1e6 + model.slope.as_millis_f64() * x;
        Some((x, y.max(model.floor.as_secs_f64() * 1e3)))
    };
    // Where it meets the floor it bends.
    (0..=40).map(|step| at(first + (last - first) * f64::from(step) / 40.0)).collect()
}

/// Fewer seeds than this are no distribution.
const FEWEST_SEEDS: usize = 10;

/// The part of the seeds that do not exceed each value, for what is expected of a part of them;
/// each number once.
pub fn distributions(scenario: &Scenario, findings: &[Finding]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    let counted =
        findings.iter().filter(|v| v.summary != Summary::Each && v.readings.len() >= FEWEST_SEEDS);
    for finding in counted {
        let mut values: Vec<f64> =
            finding.readings.iter().filter_map(|reading| reading.value).collect();
        values.sort_by(f64::total_cmp);
        let number = subject(&finding.what);
        let title = format!("{}: {number}", scenario.name);
        let (Some(&least), Some(&most)) = (values.first(), values.last()) else { continue };
        // The axis begins at zero.
        if least < 0.0 || most <= 0.0 || figures.iter().any(|figure| figure.title == title) {
            continue;
        }
        let count = values.len() as f64;
        let steps = values
            .iter()
            .enumerate()
            .map(|(index, &value)| Some((value, (index + 1) as f64 / count)));
        let mut part = Panel::of_lines("part of the seeds", vec![steps.collect()]);
        part.top = 1.0;
        figures.push(Figure {
            title,
            axis: number.to_owned(),
            end: most,
            panels: vec![part],
            legend: vec![finding.variant.clone()],
            note: None,
            marks: Vec::new(),
        });
    }
    figures
}

/// The subject of a finding over many seeds, without the summary over them.
fn subject(what: &str) -> &str {
    let counted = ["median of ", "seeds with "];
    if let Some(rest) = counted.iter().find_map(|prefix| what.strip_prefix(prefix)) {
        return rest;
    }
    what.split_once(" quantile of ").map_or(what, |(_, rest)| rest)
}
