//! Makes figures of outcomes: throughput and latency over time, and over the parameter that a
//! family of variants varies.

use super::flash::{by_shares, moved_pages, over_provisioning, over_time};
use super::hosts::{hosts, hosts_say_all};
use super::levels::levels;
use super::marks::marks;
use super::models::models;
use super::series::series;
use crate::plot::{Figure, Line, MOST_LINES, Panel};
use headgate_sim::{Counters, Outcome, Scenario, Subject, SubjectKind, Transactions};
use headgate_units::Nanos;

/// Figures have the same scale, for comparison, if their largest values differ by at most this
/// factor.
const SAME_SCALE: f64 = 4.0;
/// Fewer variants than this make no curve.
const FEWEST_POINTS: usize = 3;

/// A figure for each outcome, by host where windows were recorded and by VM, after one over what
/// the variants vary, if that is a number.
pub fn figures(scenario: &Scenario, outcomes: &[&Outcome]) -> Vec<Figure> {
    let mut by_host: Vec<Figure> =
        outcomes.iter().filter_map(|outcome| hosts(scenario, outcome)).collect();
    let by_vm = outcomes.iter().filter(|outcome| !hosts_say_all(scenario, outcome));
    let mut by_vm: Vec<Figure> = by_vm.map(|outcome| figure(scenario, outcome)).collect();
    same_scale(&mut by_host);
    same_scale(&mut by_vm);
    let models = outcomes.iter().filter_map(|outcome| models(scenario, outcome));
    let mut flash: Vec<Figure> =
        outcomes.iter().filter_map(|outcome| over_time(scenario, outcome)).collect();
    same_scale(&mut flash);
    let over = sweep(scenario, outcomes).into_iter().chain(over_provisioning(scenario, outcomes));
    let moved = outcomes.iter().filter_map(|outcome| moved_pages(scenario, outcome));
    let over = over.chain(by_shares(scenario, outcomes)).chain(moved);
    over.chain(models).chain(by_host).chain(by_vm).chain(flash).collect()
}

fn same_scale(figures: &mut [Figure]) {
    let panels = figures.iter().map(|figure| figure.panels.len()).max().unwrap_or(0);
    for panel in 0..panels {
        let tops =
            || figures.iter().filter_map(|figure| figure.panels.get(panel)).map(|panel| panel.top);
        let (least, most) = (tops().fold(f64::INFINITY, f64::min), tops().fold(0.0, f64::max));
        if most <= least * SAME_SCALE {
            figures
                .iter_mut()
                .filter_map(|figure| figure.panels.get_mut(panel))
                .for_each(|panel| panel.top = most);
        }
    }
}

/// What each line of a family of variants got over the whole run, beside the number in the
/// variants' names: `plug-50us`.
fn sweep(scenario: &Scenario, outcomes: &[&Outcome]) -> Option<Figure> {
    let family = scenario.variants.iter().find_map(|variant| family(&variant.name))?;
    let mut points: Vec<(f64, &Outcome)> = outcomes
        .iter()
        .filter_map(|outcome| {
            let number = outcome.variant.strip_prefix(family.prefix)?.strip_suffix(family.unit)?;
            Some((number.parse().ok()?, *outcome))
        })
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    if points.len() < FEWEST_POINTS || points.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return None;
    }
    let legend: Vec<String> =
        lines_of(scenario, points[0].1).iter().map(|line| line.name.clone()).collect();
    let legend = &legend[..legend.len().min(MOST_LINES)];
    let lines = |value: &dyn Fn(&Counters, Nanos) -> Option<f64>| -> Vec<Line> {
        let of = |name: &String| {
            let point = |(at, outcome): &(f64, &Outcome)| {
                let subject = lines_of(scenario, outcome)
                    .into_iter()
                    .find(|subject| subject.name == *name)?;
                Some((*at, value(&subject.whole.counters, outcome.duration)?))
            };
            points.iter().map(point).collect()
        };
        legend.iter().map(of).collect()
    };
    let throughput = lines(&|counters, length| Some(counters.iops(length)));
    let latency =
        lines(&|counters, _| counters.mean_latency().map(|latency| latency.as_secs_f64() * 1e3));
    let what = family.prefix.trim_end_matches(['-', '_', '.', '=']);
    Some(Figure {
        title: format!("{}: over {what}", scenario.name),
        axis: if family.unit.is_empty() {
            what.into()
        } else {
            format!("{what} ({})", family.unit)
        },
        end: points.last().map_or(0.0, |(at, _)| *at),
        panels: vec![
            Panel::of_lines("throughput (IOPS)", throughput),
            Panel::of_lines("mean latency (ms)", latency),
        ],
        legend: legend.to_vec(),
        note: None,
        marks: Vec::new(),
    })
}

/// A variant's name around its number.
struct Family<'a> {
    prefix: &'a str,
    unit: &'a str,
}

fn family(name: &str) -> Option<Family<'_>> {
    let start = name.find(|c: char| c.is_ascii_digit()).filter(|start| *start > 0)?;
    let (prefix, rest) = name.split_at(start);
    let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    unit.chars().all(char::is_alphabetic).then_some(Family { prefix, unit })
}

fn figure(scenario: &Scenario, outcome: &Outcome) -> Figure {
    let vms = lines_of(scenario, outcome);
    // The busiest are shown, in the order of the file.
    let mut shown: Vec<usize> = (0..vms.len()).collect();
    shown.sort_by_key(|&vm| std::cmp::Reverse(vms[vm].whole.counters.completed));
    shown.truncate(MOST_LINES);
    shown.sort_unstable();
    let lines = |value: &dyn Fn(&Counters, Nanos) -> Option<f64>| -> Vec<Line> {
        shown
            .iter()
            .map(|&vm| series(outcome, &vms[vm].series, |sum, next| sum.plus(next), value))
            .collect()
    };
    let throughput = lines(&|counters, length| {
        let active = counters.arrived > 0 || counters.completed > 0 || counters.outstanding > 0;
        active.then(|| counters.iops(length))
    });
    let latency =
        lines(&|counters, _| counters.mean_latency().map(|latency| latency.as_secs_f64() * 1e3));
    let applications: Option<Vec<Line>> = (!outcome.applications.is_empty()).then(|| {
        let of_vm = |(&vm, active): (&usize, &Line)| {
            let mut line = transactions(outcome, &vms[vm].name);
            // None end while nothing runs: that is no zero.
            line.iter_mut()
                .zip(active)
                .filter(|(_, active)| active.is_none())
                .for_each(|(point, _)| *point = None);
            line
        };
        shown.iter().zip(&throughput).map(of_vm).collect()
    });
    let line_of = |name: &str| shown.iter().position(|&vm| vms[vm].name == name);
    let published = |measure: &str, scale| levels(scenario, outcome, measure, scale, &line_of);
    let mut panels = vec![
        Panel::of_lines("throughput (IOPS)", throughput).with_levels(published("iops", 1.0)),
        Panel::of_lines("mean latency (ms)", latency).with_levels(published("latency", 1e3)),
    ];
    let transactions = |lines| Panel::of_lines("transactions (1/s)", lines);
    panels.extend(
        applications.map(|lines| transactions(lines).with_levels(published("transactions", 1.0))),
    );
    let title = match scenario.variants.len() {
        0 | 1 => scenario.name.clone(),
        _ => format!("{}: {}", scenario.name, outcome.variant),
    };
    Figure {
        title,
        axis: "time (s)".into(),
        end: outcome.duration.as_secs_f64(),
        panels,
        legend: shown.iter().map(|&vm| vms[vm].name.clone()).collect(),
        note: (vms.len() > shown.len())
            .then(|| format!("and {} VMs that did less", vms.len() - shown.len())),
        marks: scenario
            .variant(&outcome.variant)
            .map(|variant| marks(&variant.setup))
            .unwrap_or_default(),
    }
}

/// The subjects with a line: VMs, or their workloads if these have priorities.
fn lines_of<'a>(scenario: &Scenario, outcome: &'a Outcome) -> Vec<&'a Subject> {
    let vms = scenario.variant(&outcome.variant).map_or(&[][..], |variant| &variant.setup.vms);
    let is_divided = |name: &str| {
        vms.iter().any(|vm| {
            vm.name == name
                && vm.workloads.len() > 1
                && vm.workloads.iter().any(|w| w.priority.is_some())
        })
    };
    let shown = |subject: &&Subject| match subject.kind {
        SubjectKind::Vm => !is_divided(&subject.name),
        SubjectKind::Workload => subject.name.split_once('/').is_some_and(|(vm, _)| is_divided(vm)),
        _ => false,
    };
    outcome.subjects.iter().filter(shown).collect()
}

fn transactions(outcome: &Outcome, vm: &str) -> Line {
    let of_vm =
        |name: &str| name == vm || name.strip_prefix(vm).is_some_and(|rest| rest.starts_with('/'));
    let mut all: Vec<Transactions> = Vec::new();
    for application in outcome.applications.iter().filter(|application| of_vm(&application.name)) {
        all.resize(all.len().max(application.series.len()), Transactions::default());
        for (sum, point) in all.iter_mut().zip(&application.series) {
            sum.completed += point.completed;
        }
    }
    let plus = |mut sum: Transactions, next: &Transactions| {
        sum.completed += next.completed;
        sum
    };
    series(outcome, &all, plus, &|sum, length| {
        (length > Nanos::ZERO).then(|| sum.completed as f64 / length.as_secs_f64())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Level;
    use headgate_sim::{Quiet, run};

    fn figure_of(text: &str) -> Figure {
        let scenario = Scenario::parse("x.toml", text).unwrap_or_else(|e| panic!("{e}"));
        let outcome = run(&scenario, "default", 1, &mut Quiet).unwrap_or_else(|e| panic!("{e}"));
        figures(&scenario, &[&outcome]).remove(0)
    }

    const SCENARIO: &str = r#"
        name = "x"
        title = "A late VM with an application"
        duration = "40s"
        datastore = [{ name = "lun", device = "rate=500,latency=1ms", cost-model = "unit" }]
        vm = [
            { name = "a", disk = [{}], workload = [{ kind = "closed", outstanding = 4 }] },
            { name = "b", start = "20s", stop = "30s", disk = [{}],
              workload = [{ kind = "oltp", terminals = 4, reads = 2, writes = 1 }] },
        ]
        event = [
            { at = "10s", do = "rate", rate = 300 },
            { at = "30s", do = "policy", vm = "a", limit = 100 },
        ]
    "#;

    #[test]
    fn lines_are_where_vms_run_and_events_are_marked() {
        let figure = figure_of(SCENARIO);
        let axes: Vec<&str> = figure.panels.iter().map(|panel| panel.axis).collect();
        assert_eq!(axes, ["throughput (IOPS)", "mean latency (ms)", "transactions (1/s)"]);
        assert_eq!(figure.legend, ["a", "b"]);
        for panel in [&figure.panels[0], &figure.panels[2]] {
            let running: Vec<usize> = (0..40).filter(|&i| panel.lines[1][i].is_some()).collect();
            assert!(
                running.iter().all(|i| (20..=30).contains(i)) && running.len() >= 10,
                "{running:?}"
            );
        }
        assert!(figure.panels.iter().all(|panel| panel.levels.is_empty()), "nothing was published");
        let (middle, iops) = figure.panels[0].lines[0][5].unwrap();
        assert!((middle - 5.5).abs() < 1e-9 && (iops - 500.0).abs() < 10.0, "{middle} {iops}");
        let marks: Vec<(f64, &str)> =
            figure.marks.iter().map(|mark| (mark.at, mark.label.as_str())).collect();
        assert_eq!(
            marks,
            [(10.0, "rate 300"), (20.0, "b starts"), (30.0, "b stops; a: max 100 shares 1000")]
        );
    }

    #[test]
    fn published_values_are_levels_over_their_windows() {
        let expect = |keys: &str| format!("[[expect]]\nof = \"b\"\nwindow = \"late\"\n{keys}\n");
        let text = [
            &SCENARIO.replace("duration", "windows = { late = \"25s..30s\" }\nduration"),
            expect("measure = \"latency\"\nat-least = \"1us\"\npaper = \"70ms\"").as_str(),
            &expect("measure = \"iops\"\nat-least = 1\npaper = 4000"),
            &expect("measure = \"transactions\"\nat-least = 1\npaper = 40"),
            &expect("measure = \"bandwidth\"\nat-least = 1\npaper = \"5M\""),
        ]
        .concat();
        let figure = figure_of(&text);
        let level = |value| vec![Level { from: 25.0, to: 30.0, value, colour: Some(1) }];
        let levels: Vec<Vec<Level>> =
            figure.panels.iter().map(|panel| panel.levels.clone()).collect();
        assert_eq!(levels, [level(4000.0), level(70.0), level(40.0)]);
        assert_eq!(figure.panels[0].top, 4000.0, "it has room");
    }

    #[test]
    fn variants_that_differ_by_a_number_make_a_curve() {
        let text = r#"
            name = "x"
            title = "Deeper"
            duration = "10s"
            datastore = [{ name = "lun", device = "rate=500,latency=1ms", cost-model = "unit" }]
            vm = [{ name = "a", disk = [{}], workload = [{ name = "w", kind = "closed", outstanding = 1, think = "4ms" }] }]
            [[variant]]
            name = "depth-{}"
            each = [4, 1, 2]
            set = { "vm.a.workload.w.outstanding" = "{}" }
        "#;
        let scenario = Scenario::parse("x.toml", text).unwrap_or_else(|e| panic!("{e}"));
        let outcomes: Vec<Outcome> = ["depth-4", "depth-1", "depth-2"]
            .map(|variant| run(&scenario, variant, 1, &mut Quiet).unwrap_or_else(|e| panic!("{e}")))
            .into();
        let figures = figures(&scenario, &outcomes.iter().collect::<Vec<_>>());
        assert_eq!(figures.len(), 4);
        assert_eq!((figures[0].axis.as_str(), figures[0].end), ("depth", 4.0));
        let curve: Vec<(f64, f64)> =
            figures[0].panels[0].lines[0].iter().map(|point| point.unwrap()).collect();
        let places: Vec<f64> = curve.iter().map(|(at, _)| *at).collect();
        assert_eq!(places, [1.0, 2.0, 4.0]);
        assert!(curve.windows(2).all(|pair| pair[0].1 < pair[1].1), "{curve:?}");
    }

    #[test]
    fn long_series_are_thinned_without_losing_requests() {
        let figure = figure_of(&SCENARIO.replace("\"40s\"", "\"700s\""));
        let line = &figure.panels[0].lines[0];
        assert_eq!(line.len(), 234);
        // After the limit.
        let (_, iops) = line[200].unwrap();
        assert!((iops - 100.0).abs() < 1.0, "{iops}");
    }

    #[test]
    fn many_vms_are_shown_by_what_they_did() {
        let figure = figure_of(
            r#"
            name = "x"
            title = "Many"
            duration = "2s"
            datastore = [{ name = "lun", device = "rate=500,latency=1ms" }]
            vm = [{ name = "v", count = 30, disk = [{}], workload = [{ kind = "closed", outstanding = 1 }] }]
            "#,
        );
        assert_eq!(figure.legend.len(), MOST_LINES);
        assert_eq!(figure.note.as_deref(), Some("and 18 VMs that did less"));
    }
}
