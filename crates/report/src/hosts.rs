//! Figures of hosts that share storage, over time: windows, latency and throughput.

use super::levels::levels;
use super::marks::marks;
use super::series::series;
use crate::plot::{Figure, Level, Line, MOST_LINES, Panel};
use headgate_sim::{Counters, HostWindow, Outcome, Scenario, Setup, WindowCounters};
use headgate_units::Nanos;

/// A figure with a line for each window that was recorded; none where none was.
pub fn hosts(scenario: &Scenario, outcome: &Outcome) -> Option<Figure> {
    let setup = &scenario.variant(&outcome.variant)?.setup;
    let shown = &outcome.issue_windows[..outcome.issue_windows.len().min(MOST_LINES)];
    if shown.is_empty() {
        return None;
    }
    let window = |counters: &WindowCounters, length: Nanos| {
        (length > Nanos::ZERO).then(|| counters.mean_window(length))
    };
    let windows =
        shown.iter().map(|w| series(outcome, &w.series, |sum, next| sum.plus(next), &window));
    let requests: Vec<Vec<Counters>> =
        shown.iter().map(|window| behind(setup, outcome, &window.name)).collect();
    let lines = |value: &dyn Fn(&Counters, Nanos) -> Option<f64>| -> Vec<Line> {
        requests
            .iter()
            .map(|points| series(outcome, points, |sum, next| sum.plus(next), value))
            .collect()
    };
    let latency =
        lines(&|counters, _| counters.mean_device().map(|latency| latency.as_secs_f64() * 1e3));
    let throughput = lines(&|counters, length| Some(counters.iops(length)));
    let variant = match scenario.variants.len() {
        0 | 1 => String::new(),
        _ => format!(": {}", outcome.variant),
    };
    let more = outcome.issue_windows.len() - shown.len();
    let line_of = |name: &str| {
        let is_it = |window: &HostWindow| {
            window.name == name || subjects_behind(setup, &window.name) == [name]
        };
        shown.iter().position(is_it)
    };
    let published = |measure: &str, scale| levels(scenario, outcome, measure, scale, &line_of);
    let mut by_latency = published("device-time", 1e3);
    by_latency.extend(latency_of_all(scenario, outcome, setup));
    Some(Figure {
        title: format!("{}{variant}, by host", scenario.name),
        axis: "time (s)".into(),
        end: outcome.duration.as_secs_f64(),
        panels: vec![
            Panel::of_lines("window (requests)", windows.collect())
                .with_levels(published("issue-window", 1.0)),
            Panel::of_lines("latency after dispatch (ms)", latency).with_levels(by_latency),
            Panel::of_lines("throughput (IOPS)", throughput).with_levels(published("iops", 1.0)),
        ],
        legend: shown.iter().map(|window| window.name.clone()).collect(),
        note: (more > 0).then(|| format!("and {more} hosts more")),
        marks: marks(setup),
    })
}

/// Published latencies of the only datastore behind windows: those of no host alone.
fn latency_of_all(scenario: &Scenario, outcome: &Outcome, setup: &Setup) -> Vec<Level> {
    let mut stores = setup.datastores.iter().filter(|store| store.issue_window.is_some());
    let (Some(store), None) = (stores.next(), stores.next()) else { return Vec::new() };
    let is_store = |name: &str| (name == store.name).then_some(0);
    let levels = levels(scenario, outcome, "device-time", 1e3, &is_store);
    levels.into_iter().map(|level| Level { colour: None, ..level }).collect()
}

/// Whether a figure by VM would show the same lines: one VM on each host, one disk each, and
/// nothing that counts transactions.
pub fn hosts_say_all(scenario: &Scenario, outcome: &Outcome) -> bool {
    let Some(variant) = scenario.variant(&outcome.variant) else { return false };
    let Setup { vms, hosts, .. } = &variant.setup;
    let alone = |host: usize| vms.iter().filter(|vm| vm.host == host).count() <= 1;
    !outcome.issue_windows.is_empty()
        && outcome.applications.is_empty()
        && (0..hosts.len()).all(alone)
        && vms.iter().all(|vm| vm.disks.len() == 1)
}

/// Whose requests go through a window, named as outcomes name it.
fn subjects_behind(setup: &Setup, name: &str) -> Vec<String> {
    let (host, store) = match name.split_once('/') {
        Some((host, store)) => (host, Some(store)),
        None => (name, None),
    };
    let on_host = |host_of: usize| setup.hosts.get(host_of).is_some_and(|one| one.name == host);
    let goes_there = |datastore: usize| {
        setup.datastores.get(datastore).is_some_and(|one| {
            one.issue_window.is_some() && store.is_none_or(|store| store == one.name)
        })
    };
    let mut subjects = Vec::new();
    for vm in setup.vms.iter().filter(|vm| on_host(vm.host)) {
        for disk in vm.disks.iter().filter(|disk| goes_there(disk.datastore)) {
            subjects.push(match vm.disks.len() {
                1 => vm.name.clone(),
                _ => format!("{}/{}", vm.name, disk.name),
            });
        }
    }
    subjects
}

/// All requests that went through a window, named as outcomes name it.
fn behind(setup: &Setup, outcome: &Outcome, name: &str) -> Vec<Counters> {
    let mut sum: Vec<Counters> = Vec::new();
    for subject in subjects_behind(setup, name) {
        let Some(subject) = outcome.subject(&subject) else { continue };
        sum.resize(sum.len().max(subject.series.len()), Counters::default());
        for (sum, point) in sum.iter_mut().zip(&subject.series) {
            *sum = sum.plus(point);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use crate::figures;
    use headgate_sim::{Outcome, Quiet, Scenario, run};

    const SHARED: &str = r#"
        name = "x"
        title = "Two hosts, one with a log elsewhere"
        duration = "40s"
        host = [{ name = "a" }, { name = "b" }]
        [[datastore]]
        name = "data"
        device = "rate=1000,latency=1ms"
        issue-window = { threshold = "10ms", period = "1s", min = 1 }
        [[datastore]]
        name = "log"
        device = "rate=500,latency=1ms"
        [[vm]]
        name = "v"
        host = "a"
        disk = [{ datastore = "data" }]
        workload = [{ kind = "closed", outstanding = 32 }]
        [[vm]]
        name = "w"
        host = "b"
        disk = [{ name = "data", datastore = "data", shares = 3000 }, { name = "log", datastore = "log" }]
        workload = [{ name = "x", kind = "closed", disk = "data", outstanding = 32 }, { name = "y", kind = "closed", disk = "log" }]
    "#;

    #[test]
    fn published_values_are_of_hosts_of_who_is_alone_there_and_of_the_storage() {
        let expect = |measure: &str, of: &str, paper: &str| {
            format!(
                "[[expect]]\nmeasure = \"{measure}\"\nof = \"{of}\"\nwindow = \"end\"\nwater-fill = false\n\
                 at-least = {paper}\npaper = {paper}\n"
            )
        };
        let text = [
            &SHARED.replace("duration", "windows = { end = \"30s..40s\" }\nduration"),
            expect("issue-window", "b", "7.5").as_str(),
            &expect("device-time", "data", "\"10ms\""),
            &expect("device-time", "v", "\"11ms\""),
            &expect("iops", "w/data", "750"),
            &expect("iops", "data", "1000"),
            &expect("iops", "w/log", "500"),
        ]
        .concat();
        let scenario = Scenario::parse("x.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        let outcome = run(&scenario, "default", 1, &mut Quiet).unwrap_or_else(|e| panic!("{e}"));
        let figures = figures(&scenario, &[&outcome]);
        let shown: Vec<Vec<(f64, Option<usize>)>> = figures[0]
            .panels
            .iter()
            .map(|panel| panel.levels.iter().map(|level| (level.value, level.colour)).collect())
            .collect();
        let expected =
            [vec![(7.5, Some(1))], vec![(11.0, Some(0)), (10.0, None)], vec![(750.0, Some(1))]];
        assert_eq!(shown, expected);
    }

    #[test]
    fn windows_are_drawn_by_host_with_the_requests_that_went_through_them() {
        let scenario = Scenario::parse("x.toml", SHARED).unwrap_or_else(|e| panic!("{e}"));
        let outcome: Outcome =
            run(&scenario, "default", 1, &mut Quiet).unwrap_or_else(|e| panic!("{e}"));
        let figures = figures(&scenario, &[&outcome]);
        let titles: Vec<&str> = figures.iter().map(|figure| figure.title.as_str()).collect();
        assert_eq!(titles, ["x, by host", "x"], "w has two disks, so VMs are drawn as well");
        let last = |panel: usize, line: usize| figures[0].panels[panel].lines[line][39].unwrap().1;
        assert_eq!(figures[0].legend, ["a", "b"]);
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.05;
        assert!(near(last(0, 0), 2.5) && near(last(0, 1), 7.5), "{} {}", last(0, 0), last(0, 1));
        assert!(near(last(1, 1), 10.0), "{}", last(1, 1));
        assert!(near(last(2, 1), 750.0), "without the log: {}", last(2, 1));
    }
}
