//! Flash: what collection costs over how much space there is for it, beside what the formula says.

use super::figure::{marks, panel, series};
use crate::plot::{Figure, Line, MOST_LINES};
use headgate_devices::ModelSpec;
use headgate_sim::{Counters, Outcome, Scenario, Subject, SubjectKind};
use headgate_units::Nanos;
use std::collections::BTreeMap;

/// Fewer points than this make no curve.
const FEWEST_POINTS: usize = 3;
const FORMULA: &str = "first in, first out, by formula";

/// Write amplification and utilisation over over-provisioning space, a line for each family of variants (by their names up to the first
/// digit), if a family has drives of several.
pub(crate) fn over_provisioning(scenario: &Scenario, outcomes: &[&Outcome]) -> Option<Figure> {
    let mut families: BTreeMap<&str, Vec<(f64, &Counters)>> = BTreeMap::new();
    for outcome in outcomes {
        let setup = &scenario.variant(&outcome.variant)?.setup;
        let [store] = &setup.datastores[..] else { return None };
        let ModelSpec::Ssd(drive) = &store.nodes.first()?.device else { continue };
        let family =
            outcome.variant.find(|c: char| c.is_ascii_digit()).map_or("", |end| &outcome.variant[..end]);
        let counters = &outcome.subject(&store.name)?.whole.counters;
        let points = families.entry(family).or_default();
        points.push((f64::from(drive.over_provisioning()) / 1e4, counters));
    }
    for points in families.values_mut() {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by_key(|point| point.0);
    }
    families.retain(|_, points| points.len() >= FEWEST_POINTS);
    let most = families.values().flatten().map(|point| point.0).fold(0.0, f64::max);
    let least = families.values().flatten().map(|point| point.0).fold(most, f64::min);
    if families.is_empty() || families.len() >= MOST_LINES {
        return None;
    }
    let steps = (0..=60).map(|step| least + (most - least) * f64::from(step) / 60.0);
    let formula: Vec<(f64, f64)> = steps.map(|over| (over, fifo_utilisation(over / 100.0))).collect();
    let lines = |value: fn(&Counters) -> Option<f64>, by_formula: fn(f64) -> f64| -> Vec<Line> {
        let of = |points: &Vec<(f64, &Counters)>| -> Line {
            points.iter().map(|(over, counters)| value(counters).map(|value| (*over, value))).collect()
        };
        let formula = formula.iter().map(|&(over, u)| Some((over, by_formula(u)))).collect();
        families.values().map(of).chain([formula]).collect()
    };
    let amplification =
        lines(|counters| counters.flash.extra_writes().map(|extra| 1.0 + extra), |u| 1.0 / (1.0 - u));
    let utilisation = lines(|counters| counters.flash.utilisation(), |u| u);
    let named = families.keys().map(|family| family.trim_end_matches(['-', '_', '.', '=']).to_owned());
    Some(Figure {
        title: format!("{}: over over-provisioning space", scenario.name),
        axis: "over-provisioning space (% of the size)".into(),
        end: most,
        panels: vec![
            panel("write amplification", amplification),
            panel("utilisation of victims", utilisation),
        ],
        legend: named.chain([FORMULA.to_owned()]).collect(),
        note: None,
        marks: Vec::new(),
    })
}

/// u of (u - 1)/ln u = data/space, by bisection.
fn fifo_utilisation(over: f64) -> f64 {
    let data = 1.0 / (1.0 + over);
    let (mut low, mut high) = (1e-9, 1.0 - 1e-9);
    for _ in 0..100 {
        let u: f64 = (low + high) / 2.0;
        if (u - 1.0) / u.ln() < data { low = u } else { high = u }
    }
    low
}

/// What flash did for each VM over time; none where there is none.
pub(crate) fn over_time(scenario: &Scenario, outcome: &Outcome) -> Option<Figure> {
    let on_flash =
        |subject: &&Subject| subject.kind == SubjectKind::Vm && subject.whole.counters.flash.writes > 0;
    let vms: Vec<&Subject> = outcome.subjects.iter().filter(on_flash).collect();
    if vms.is_empty() {
        return None;
    }
    let shown = &vms[..vms.len().min(MOST_LINES)];
    let lines = |value: &dyn Fn(&Counters, Nanos) -> Option<f64>| -> Vec<Line> {
        shown.iter().map(|vm| series(outcome, &vm.series, |sum, next| sum.plus(next), value)).collect()
    };
    let rate =
        |pages: u64, length: Nanos| (length > Nanos::ZERO).then(|| pages as f64 / length.as_secs_f64());
    let utilisation = lines(&|counters, _| counters.flash.utilisation());
    let moved = lines(&|counters, length| rate(counters.flash.moved_for, length));
    let others =
        lines(&|counters, length| rate(counters.flash.moved_for - counters.flash.moved_own_for, length));
    let spare = lines(&|counters, length| (length > Nanos::ZERO).then(|| counters.flash.mean_spare(length)));
    let setup = &scenario.variant(&outcome.variant)?.setup;
    let variant = match scenario.variants.len() {
        0 | 1 => String::new(),
        _ => format!(": {}", outcome.variant),
    };
    Some(Figure {
        title: format!("{}{variant}, flash", scenario.name),
        axis: "time (s)".into(),
        end: outcome.duration.as_secs_f64(),
        panels: vec![
            panel("utilisation of victims", utilisation),
            panel("pages moved for it (1/s)", moved),
            panel("of these not its own (1/s)", others),
            panel("over-provisioning (blocks)", spare),
        ],
        legend: shown.iter().map(|vm| vm.name.clone()).collect(),
        note: (vms.len() > shown.len()).then(|| format!("and {} VMs more", vms.len() - shown.len())),
        marks: marks(setup),
    })
}

#[cfg(test)]
mod tests {
    use crate::sim::figures;
    use headgate_sim::{Outcome, Quiet, Scenario, run};

    const SWEEP: &str = r#"
        name = "x"
        title = "Three drives"
        duration = "20s"
        [[datastore]]
        name = "ssd"
        device = "ssd=32M"
        [[vm]]
        name = "v"
        disk = [{ size = "32M" }]
        workload = [{ kind = "closed", outstanding = 1, read = "0%" }]
        [[variant]]
        name = "op-{}"
        each = [20, 35, 50]
        set = { "datastore.ssd.device" = "ssd=32M,dies=1,planes=1,aged=yes,victims=fifo,op={}%" }
    "#;

    #[test]
    fn write_amplification_is_drawn_beside_the_formula() {
        let scenario = Scenario::parse("x.toml", SWEEP).unwrap_or_else(|e| panic!("{e}"));
        let outcomes: Vec<Outcome> = ["op-20", "op-35", "op-50"]
            .map(|variant| run(&scenario, variant, 1, &mut Quiet).unwrap_or_else(|e| panic!("{e}")))
            .into();
        let figures = figures(&scenario, &outcomes.iter().collect::<Vec<_>>());
        let titles: Vec<&str> = figures.iter().map(|figure| figure.title.as_str()).collect();
        assert!(titles.contains(&"x: over over-provisioning space"), "{titles:?}");
        assert_eq!(titles.iter().filter(|title| title.ends_with(", flash")).count(), 3);
        let figure = figures.iter().find(|figure| figure.title.ends_with("space")).unwrap();
        assert_eq!(figure.legend, ["op", super::FORMULA]);
        for panel in &figure.panels {
            let (measured, formula) = (&panel.lines[0], &panel.lines[1]);
            for (ours, theirs) in [(measured[0], formula[0]), (measured[2], formula[60])] {
                let ((at, ours), (place, theirs)) = (ours.unwrap(), theirs.unwrap());
                assert!((at - place).abs() < 1e-9 && (ours / theirs - 1.0).abs() < 0.1, "{ours} {theirs}");
            }
        }
    }
}
