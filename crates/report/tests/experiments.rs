//! The experiments in `experiments/`: all are run with all their seeds and come out as expected,
//! and the page of what is not as published says what they say.

use headgate_report::{FileTraces, PAPERS, difference_rows, experiments};
use headgate_sim::{Finding, Judgement, Quiet, Scenario, judge, run_with};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/differences.md")
}

/// To write the rows of the page anew: `HEADGATE_WRITE_DIFFERENCES=1 cargo test -p headgate-report
/// --test experiments`. With `HEADGATE_TRACES=DIR` experiments that replay traces run, too, and
/// with `HEADGATE_EXPERIMENTS=mc,pa-06` only those whose names begin so.
#[test]
fn every_experiment_comes_out_as_expected_and_the_page_says_where_not_as_published() {
    let all = experiments().unwrap_or_else(|e| panic!("{e}"));
    let directory = std::env::var_os("HEADGATE_TRACES");
    let traces = FileTraces::within(directory.as_deref().map_or(Path::new("traces"), Path::new));
    let next = AtomicUsize::new(0);
    let judged = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(scenario) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Not in one statement: the lock would be held while the experiment runs.
                    let Some(findings) = findings(scenario, &traces) else { continue };
                    judged.lock().unwrap().insert(scenario.name.as_str(), findings);
                }
            });
        }
    });
    let judged = judged.into_inner().unwrap();
    assert!(!judged.is_empty());
    let mut failures: Vec<String> =
        judged.iter().flat_map(|(name, findings)| failures_of(name, findings)).collect();
    failures.extend(check_page(&all, &judged));
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn findings(scenario: &Scenario, traces: &FileTraces) -> Option<Vec<Finding>> {
    let name = &scenario.name;
    let some = std::env::var("HEADGATE_EXPERIMENTS");
    if some.is_ok_and(|some| !some.split(',').any(|begin| name.starts_with(begin))) {
        return None;
    }
    assert!(scenario.all_seeds.len() >= 3 && !scenario.expectations.is_empty(), "{name}");
    if !traces.missing(&scenario.traces).is_empty() {
        println!("{name}: skipped, it replays traces: HEADGATE_TRACES=DIR says where they are");
        return None;
    }
    let mut outcomes = Vec::new();
    for variant in &scenario.variants {
        for &seed in &scenario.seeds {
            outcomes.push(run_with(scenario, &variant.name, seed, &mut Quiet, traces).unwrap());
        }
    }
    Some(judge(scenario, &outcomes))
}

fn failures_of(name: &str, findings: &[Finding]) -> Vec<String> {
    let mut failures = Vec::new();
    let red =
        findings.iter().filter(|v| matches!(v.judgement, Judgement::Fails | Judgement::NotRun));
    failures.extend(red.map(|finding| format!("{name}.toml:{}: {finding}", finding.line)));
    // A deviation that is said to be known must be one.
    for known in findings.iter().filter(|v| v.differs.is_some() && v.judgement == Judgement::Holds)
    {
        failures.push(format!("{name}.toml:{}: {known}: remove 'differs'", known.line));
    }
    let mut off: BTreeMap<usize, bool> = BTreeMap::new();
    for finding in findings.iter().filter(|finding| finding.differs.is_none()) {
        let Some(published) = &finding.published else { continue };
        if published.reason.is_some() {
            *off.entry(finding.line).or_default() |= !published.as_published();
        }
    }
    let vain = off.into_iter().filter(|(_, off)| !off);
    failures.extend(vain.map(|(line, _)| {
        format!("{name}.toml:{line}: this is as published everywhere: remove 'off-paper'")
    }));
    failures
}

/// Rows of experiments that were not run stay as they are.
fn check_page(all: &[Scenario], judged: &BTreeMap<&str, Vec<Finding>>) -> Vec<String> {
    let text = fs::read_to_string(page()).unwrap_or_default();
    let kept = |name: &str| -> Vec<String> {
        let begins = format!("| {name} |");
        text.lines().filter(|line| line.starts_with(&begins)).map(str::to_owned).collect()
    };
    let mut rows: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for scenario in all.iter().filter(|one| one.traces.is_empty()) {
        let name = scenario.name.as_str();
        let own = judged.get(name).map_or_else(|| kept(name), |found| difference_rows(name, found));
        rows.insert(name, own);
    }
    let current = with_rows(&text, &rows);
    if std::env::var_os("HEADGATE_WRITE_DIFFERENCES").is_some() {
        fs::write(page(), &current).unwrap();
    } else if current != text {
        let old: Vec<&str> = text.lines().collect();
        let wrong = current.lines().find(|line| !old.contains(line)).unwrap_or("a row too many");
        return vec![format!(
            "docs/differences.md is not what the experiments say; write it anew, see the test: {wrong}"
        )];
    }
    Vec::new()
}

/// The page with other rows: a table for each paper, in their order.
fn with_rows(text: &str, rows: &BTreeMap<&str, Vec<String>>) -> String {
    let mut papers = PAPERS.iter();
    let mut page = String::new();
    let is_row =
        |line: &str| PAPERS.iter().any(|(prefix, _)| line.starts_with(&format!("| {prefix}-")));
    for line in text.lines().filter(|line| !is_row(line)) {
        page.push_str(line);
        page.push('\n');
        if line.starts_with("|---|---|---|---|") {
            let (prefix, _) = papers.next().unwrap_or_else(|| panic!("a table too many"));
            let own = rows.iter().filter(|(name, _)| name.starts_with(&format!("{prefix}-")));
            for row in own.flat_map(|(_, rows)| rows) {
                page.push_str(row);
                page.push('\n');
            }
        }
    }
    assert!(papers.next().is_none(), "the page has a table for each paper");
    page
}
