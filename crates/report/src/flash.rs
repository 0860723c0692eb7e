//! Figures of flash: write amplification over over-provisioning space, and the formula's values.

use super::marks::marks;
use super::series::series;
use crate::plot::{Block, Figure, Line, MOST_LINES, Panel};
use headgate_devices::ModelSpec;
use headgate_flash::theory;
use headgate_sim::{Counters, Outcome, Scenario, Span, Subject, SubjectKind, Vm};
use headgate_units::Nanos;
use std::collections::BTreeMap;

/// Fewer points than this make no curve.
const FEWEST_POINTS: usize = 3;
const FIFO: &str = "fifo, theory";
const GREEDY: &str = "greedy, theory";

/// Write amplification and utilisation over over-provisioning space, a line for each family of
/// variants (by their names up to the first digit), if a family has drives of several.
pub fn over_provisioning(scenario: &Scenario, outcomes: &[&Outcome]) -> Option<Figure> {
    let mut families: BTreeMap<&str, Vec<(f64, &Counters)>> = BTreeMap::new();
    let mut pages_per_block = 0;
    for outcome in outcomes {
        let setup = &scenario.variant(&outcome.variant)?.setup;
        let [store] = &setup.datastores[..] else { return None };
        let ModelSpec::Ssd(drive) = &store.nodes.first()?.device else { continue };
        let family = outcome
            .variant
            .find(|c: char| c.is_ascii_digit())
            .map_or("", |end| &outcome.variant[..end]);
        let counters = &outcome.subject(&store.name)?.whole.counters;
        let points = families.entry(family).or_default();
        points.push((f64::from(drive.over_provisioning()) / 1e4, counters));
        pages_per_block = drive.pages_per_block();
    }
    for points in families.values_mut() {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by_key(|point| point.0);
    }
    families.retain(|_, points| points.len() >= FEWEST_POINTS);
    let most = families.values().flatten().map(|point| point.0).fold(0.0, f64::max);
    let least = families.values().flatten().map(|point| point.0).fold(most, f64::min);
    if families.is_empty() || families.len() + 2 > MOST_LINES {
        return None;
    }
    let steps = || (0..=60).map(|step| least + (most - least) * f64::from(step) / 60.0);
    let load = |over: f64| 1.0 / (1.0 + over / 100.0);
    let fifo: Vec<(f64, f64)> =
        steps().map(|over| (over, theory::first_in_first_out(load(over)))).collect();
    let greedy: Vec<(f64, f64)> =
        steps().map(|over| (over, theory::greedy(load(over), pages_per_block))).collect();
    let lines = |value: fn(&Counters) -> Option<f64>, by_formula: fn(f64) -> f64| -> Vec<Line> {
        let of = |points: &Vec<(f64, &Counters)>| -> Line {
            points
                .iter()
                .map(|(over, counters)| value(counters).map(|value| (*over, value)))
                .collect()
        };
        let analysis = |curve: &[(f64, f64)]| {
            curve.iter().map(|&(over, u)| Some((over, by_formula(u)))).collect()
        };
        families.values().map(of).chain([analysis(&fifo), analysis(&greedy)]).collect()
    };
    let amplification = lines(
        |counters| counters.flash.extra_writes().map(|extra| 1.0 + extra),
        |u| 1.0 / (1.0 - u),
    );
    let utilisation = lines(|counters| counters.flash.utilisation(), |u| u);
    let named =
        families.keys().map(|family| family.trim_end_matches(['-', '_', '.', '=']).to_owned());
    Some(Figure {
        title: format!("{}: over over-provisioning space", scenario.name),
        axis: "over-provisioning space (% of the size)".into(),
        end: most,
        panels: vec![
            Panel::of_lines("write amplification", amplification),
            Panel::of_lines("utilisation of victims", utilisation),
        ],
        legend: named.chain([FIFO.to_owned(), GREEDY.to_owned()]).collect(),
        note: None,
        marks: Vec::new(),
    })
}

/// Flash counters of each VM over time; none without flash.
pub fn over_time(scenario: &Scenario, outcome: &Outcome) -> Option<Figure> {
    let on_flash = |subject: &&Subject| {
        subject.kind == SubjectKind::Vm && subject.whole.counters.flash.writes > 0
    };
    let vms: Vec<&Subject> = outcome.subjects.iter().filter(on_flash).collect();
    if vms.is_empty() {
        return None;
    }
    let shown = &vms[..vms.len().min(MOST_LINES)];
    let lines = |value: &dyn Fn(&Counters, Nanos) -> Option<f64>| -> Vec<Line> {
        shown
            .iter()
            .map(|vm| series(outcome, &vm.series, |sum, next| sum.plus(next), value))
            .collect()
    };
    let rate = |pages: u64, length: Nanos| {
        (length > Nanos::ZERO).then(|| pages as f64 / length.as_secs_f64())
    };
    let mut utilisation = Panel::of_lines(
        "utilisation of victims",
        lines(&|counters, _| counters.flash.utilisation()),
    );
    let targets = lines(&|counters, _| counters.flash.target_utilisation());
    utilisation.points =
        targets.into_iter().map(|line| line.into_iter().flatten().collect()).collect();
    let has_targets = utilisation.points.iter().any(|points| !points.is_empty());
    utilisation.top = 1.0;
    let moved = lines(&|counters, length| rate(counters.flash.moved_for, length));
    let others = lines(&|counters, length| {
        rate(counters.flash.moved_for - counters.flash.moved_own_for, length)
    });
    let spare = lines(&|counters, length| {
        (length > Nanos::ZERO).then(|| counters.flash.mean_spare(length))
    });
    let setup = &scenario.variant(&outcome.variant)?.setup;
    let variant = variant_of(scenario, outcome);
    Some(Figure {
        title: format!("{}{variant}, flash", scenario.name),
        axis: "time (s)".into(),
        end: outcome.duration.as_secs_f64(),
        panels: vec![
            utilisation,
            Panel::of_lines("pages moved for it (1/s)", moved),
            Panel::of_lines("of these not its own (1/s)", others),
            Panel::of_lines("over-provisioning (blocks)", spare),
        ],
        legend: shown.iter().map(|vm| vm.name.clone()).collect(),
        note: match vms.len() - shown.len() {
            0 => has_targets.then(|| "dots: what it is to be".into()),
            more => Some(format!("and {more} VMs more")),
        },
        marks: marks(setup),
    })
}

/// Moved pages by owner, a row for each VM that wrote. None with fewer than two writers.
pub fn moved_pages(scenario: &Scenario, outcome: &Outcome) -> Option<Figure> {
    let moved = outcome.moved_pages.as_ref()?;
    let wrote: Vec<usize> =
        (0..moved.vms.len()).filter(|&vm| moved.pages[vm].iter().any(|&pages| pages > 0)).collect();
    if wrote.len() < 2 || moved.vms.len() > MOST_LINES {
        return None;
    }
    let mut blocks = Vec::new();
    for (row, &writer) in wrote.iter().enumerate() {
        let all: u64 = moved.pages[writer].iter().sum();
        for (column, &pages) in moved.pages[writer].iter().enumerate() {
            let (x, y) = (column as f64, (wrote.len() - 1 - row) as f64);
            let part = pages as f64 / all as f64;
            blocks.push(Block {
                from: (x + 0.01, y + 0.02),
                to: (x + 0.99, y + 0.98),
                colour: column,
                shade: 0.06 + 0.6 * part,
                text: format!("{:.0} %: {pages}", part * 100.0),
            });
        }
    }
    let middle = |(vm, name): (usize, &String)| (vm as f64 + 0.5, name.clone());
    Some(Figure {
        title: format!(
            "{}{}, whose pages were moved",
            scenario.name,
            variant_of(scenario, outcome)
        ),
        axis: "whose pages were moved".into(),
        end: moved.vms.len() as f64,
        panels: vec![Panel {
            blocks,
            places: moved.vms.iter().enumerate().map(middle).collect(),
            rows: wrote.iter().map(|&vm| moved.vms[vm].clone()).collect(),
            ..Panel::of_lines("for whose writes", Vec::new())
        }],
        legend: Vec::new(),
        note: None,
        marks: Vec::new(),
    })
}

/// Which part of the bandwidth each VM got in each variant, beside its part of the shares, over the
/// last span; where VMs on flash have different shares.
pub fn by_shares(scenario: &Scenario, outcomes: &[&Outcome]) -> Option<Figure> {
    let span = scenario.spans.iter().max_by_key(|span| (span.from, span.to));
    let first = outcomes.iter().find(|outcome| outcome.moved_pages.is_some())?;
    let setup = &scenario.variant(&first.variant)?.setup;
    let on_flash = &first.moved_pages.as_ref()?.vms;
    let shares =
        |vm: &Vm| vm.disks.iter().map(|disk| disk.policy.shares().get()).sum::<u64>() as f64;
    let vms: Vec<(&str, f64)> = setup
        .vms
        .iter()
        .filter(|vm| on_flash.contains(&vm.name))
        .map(|vm| (vm.name.as_str(), shares(vm)))
        .collect();
    if vms.len() < 2 || vms.len() > MOST_LINES || vms.iter().all(|vm| vm.1 == vms[0].1) {
        return None;
    }
    let all: f64 = vms.iter().map(|vm| vm.1).sum();
    let width = 0.8 / vms.len() as f64;
    let (mut blocks, mut places, mut due) = (Vec::new(), Vec::new(), vec![Line::new(); vms.len()]);
    for (index, outcome) in outcomes.iter().take(MOST_LINES).enumerate() {
        let got: Vec<f64> =
            vms.iter().map(|vm| bandwidth(outcome, vm.0, span)).collect::<Option<_>>()?;
        let together: f64 = got.iter().sum();
        places.push((index as f64 + 0.5, outcome.variant.clone()));
        for (vm, (&got, &(_, shares))) in got.iter().zip(&vms).enumerate() {
            let (part, part_due) = (got / together.max(f64::MIN_POSITIVE), shares / all);
            let from = index as f64 + 0.1 + width * vm as f64;
            let (to, text) = (from + width * 0.92, format!("{:.0} %", part * 100.0));
            blocks.push(Block { from: (from, 0.0), to: (to, part), colour: vm, shade: 0.5, text });
            due[vm].extend([Some((from, part_due)), Some((to, part_due)), None]);
        }
    }
    let mut bars = Panel { blocks, places, ..Panel::of_lines("part of the bandwidth", due) };
    bars.top = bars.largest();
    Some(Figure {
        title: format!("{}: bandwidth by shares", scenario.name),
        axis: span.map_or_else(|| "in the whole run".into(), |span| format!("in '{}'", span.name)),
        end: bars.places.len() as f64,
        panels: vec![bars],
        legend: vms.iter().map(|vm| vm.0.to_owned()).collect(),
        note: Some("lines: part of the shares".into()),
        marks: Vec::new(),
    })
}

/// Bytes per second of a VM.
fn bandwidth(outcome: &Outcome, vm: &str, span: Option<&Span>) -> Option<f64> {
    let subject = outcome.subject(vm)?;
    let stretch = match span {
        Some(span) => subject.spans.iter().find(|stretch| stretch.name == span.name)?,
        None => &subject.whole,
    };
    Some(stretch.counters.bytes_per_sec(stretch.length()))
}

/// For a title: which variant it is, where there are several.
fn variant_of(scenario: &Scenario, outcome: &Outcome) -> String {
    match scenario.variants.len() {
        0 | 1 => String::new(),
        _ => format!(": {}", outcome.variant),
    }
}

#[cfg(test)]
mod tests {
    use crate::figures;
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
        assert_eq!(figure.legend, ["op", super::FIFO, super::GREEDY]);
        for panel in &figure.panels {
            let (measured, formula) = (&panel.lines[0], &panel.lines[1]);
            for (ours, theirs) in [(measured[0], formula[0]), (measured[2], formula[60])] {
                let ((at, ours), (place, theirs)) = (ours.unwrap(), theirs.unwrap());
                assert!(
                    (at - place).abs() < 1e-9 && (ours / theirs - 1.0).abs() < 0.1,
                    "{ours} {theirs}"
                );
            }
        }
    }
}
