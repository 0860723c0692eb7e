//! Expectations, as a file says them.

use super::read::{Fault, hint, position};
use super::values::{At, Percent};
use super::{ExpectFile, Measure, Quantity, Time};
use crate::judge::{Expectation, Per, Target, Test, Unit};
use crate::scenario::{Scenario, WorkloadKind};
use headgate_units::{BytesPerSec, Nanos};
use std::ops::Range;

pub(super) fn expectations(
    text: &str,
    files: &[At<ExpectFile>],
    scenario: &Scenario,
) -> Result<Vec<Expectation>, Fault> {
    let names = Names::of(scenario);
    files.iter().map(|file| expectation(text, file, scenario, &names)).collect()
}

/// What may be measured.
struct Names {
    subjects: Vec<String>,
    applications: Vec<String>,
    issue_windows: Vec<String>,
    windows: Vec<String>,
    variants: Vec<String>,
}

impl Names {
    fn of(scenario: &Scenario) -> Names {
        let (mut subjects, mut applications, mut issue_windows) = (Vec::new(), Vec::new(), Vec::new());
        for setup in scenario.variants.iter().map(|variant| &variant.setup) {
            issue_windows.extend(setup.issue_window_names());
            for vm in &setup.vms {
                subjects.push(vm.name.clone());
                if vm.disks.len() > 1 {
                    subjects.extend(vm.disks.iter().map(|disk| format!("{}/{}", vm.name, disk.name)));
                }
                if vm.workloads.len() > 1 {
                    subjects.extend(vm.workloads.iter().map(|w| format!("{}/{}", vm.name, w.name)));
                }
                for workload in vm.workloads.iter().filter(|w| matches!(w.kind, WorkloadKind::Oltp(_))) {
                    applications.push(match vm.workloads.len() {
                        1 => vm.name.clone(),
                        _ => format!("{}/{}", vm.name, workload.name),
                    });
                }
            }
            for store in &setup.datastores {
                subjects.push(store.name.clone());
                if store.nodes.len() > 1 || store.nodes.iter().any(|node| node.front.is_some()) {
                    subjects.extend(store.nodes.iter().map(|node| format!("{}/{}", store.name, node.name)));
                }
            }
            if setup.hosts.len() > 1 {
                subjects.extend(setup.hosts.iter().map(|host| host.name.clone()));
            }
        }
        for list in [&mut subjects, &mut applications, &mut issue_windows] {
            list.sort_unstable();
            list.dedup();
        }
        Names {
            subjects,
            applications,
            issue_windows,
            windows: scenario.windows.iter().map(|window| window.name.clone()).collect(),
            variants: scenario.variants.iter().map(|variant| variant.name.clone()).collect(),
        }
    }

    fn check(given: &str, span: &Range<usize>, what: &str, known: &[String]) -> Result<(), Fault> {
        if known.iter().any(|name| name == given) {
            return Ok(());
        }
        Err(Fault::new(span, format!("there is no {what} '{given}'; {}", hint(given, known))))
    }

    fn check_group(&self, group: &At<super::Names>, measure: Measure) -> Result<Vec<String>, Fault> {
        let (what, known) = match measure {
            measure if measure.of_applications() => ("oltp workload", &self.applications),
            measure if measure.of_windows() => {
                ("host with VMs at a datastore that has an issue-window", &self.issue_windows)
            }
            _ => ("VM, disk, workload, datastore, node or host", &self.subjects),
        };
        for name in &group.value.0 {
            Names::check(name, &group.span, what, known)?;
        }
        Ok(group.value.0.clone())
    }
}

fn expectation(
    text: &str,
    file: &At<ExpectFile>,
    scenario: &Scenario,
    names: &Names,
) -> Result<Expectation, Fault> {
    let (span, e) = (&file.span, &file.value);
    let measure = e.measure.value;
    let groups = match (&e.of, &e.each) {
        (Some(of), None) => vec![names.check_group(of, measure)?],
        (None, Some(each)) => names.check_group(each, measure)?.into_iter().map(|name| vec![name]).collect(),
        (Some(_), Some(each)) => {
            return Err(Fault::new(&each.span, "'of' and 'each' exclude each other; keep one"));
        }
        (None, None) => return Err(Fault::new(span, "it is not said of what; add of = 'VM1'")),
    };
    let variants = match &e.variant {
        Some(variants) => {
            for name in &variants.value.0 {
                Names::check(name, &variants.span, "variant", &names.variants)?;
            }
            variants.value.0.clone()
        }
        None => names.variants.clone(),
    };
    let window = window(e.window.as_ref(), names)?;
    let per = match &e.per {
        Some(per) => {
            let other = per.value.measure.as_ref().map_or(measure, |measure| measure.value);
            if let Some(variant) = &per.value.variant {
                Names::check(&variant.value, &variant.span, "variant", &names.variants)?;
            }
            if other.of_applications() != measure.of_applications() && per.value.of.is_none() {
                return Err(Fault::new(
                    &per.span,
                    "requests and transactions have different subjects; add 'of'",
                ));
            }
            let of = per.value.of.as_ref().map(|of| names.check_group(of, other)).transpose()?;
            let own_window = window_or(per.value.window.as_ref(), &window, names)?;
            let variant = per.value.variant.as_ref().map(|variant| variant.value.clone());
            Some(Per { measure: other, of, window: own_window, variant })
        }
        None => None,
    };
    let settles_within = match &e.settles_within {
        Some(key) => Some(check_settling(key, e)?),
        None => None,
    };
    let unit = match (&per, settles_within) {
        (_, Some(_)) => Unit::Seconds,
        (Some(_), None) => Unit::Ratio,
        (None, None) => measure.unit(),
    };
    let test = test(span, e, unit)?;
    let every = match &e.every {
        Some(every) => Some(check_every(every, e, &test, window.as_deref(), scenario)?),
        None => None,
    };
    let paper = e.paper.as_ref().map(|paper| quantity(paper, unit)).transpose()?;
    let (line, _) = position(text, span.start);
    let about = e.about.trim().to_owned();
    Ok(Expectation {
        line,
        about,
        variants,
        groups,
        measure,
        window,
        every,
        settles_within,
        per,
        test,
        paper,
        differs: e.differs.clone(),
    })
}

fn window(key: Option<&At<String>>, names: &Names) -> Result<Option<String>, Fault> {
    window_or(key, &None, names)
}

fn window_or(
    key: Option<&At<String>>,
    other: &Option<String>,
    names: &Names,
) -> Result<Option<String>, Fault> {
    let Some(key) = key else { return Ok(other.clone()) };
    Names::check(&key.value, &key.span, "window", &names.windows)?;
    Ok(Some(key.value.clone()))
}

fn test(span: &Range<usize>, e: &ExpectFile, unit: Unit) -> Result<Test, Fault> {
    let fills = e.water_fill.as_ref().is_some_and(|fill| fill.value);
    let target = match (&e.equals, fills) {
        (Some(equals), true) => {
            return Err(Fault::new(&equals.span, "'equals' and 'water-fill' exclude each other; keep one"));
        }
        (Some(equals), false) => Some(Target::Value(quantity(equals, unit)?)),
        (None, true)
            if !matches!(e.measure.value, Measure::Iops | Measure::NormalisedIops) || e.per.is_some() =>
        {
            return Err(Fault::new(
                span,
                "water-filling divides IOs; set measure = 'iops' or 'normalised-iops', without 'per'",
            ));
        }
        (None, true) => {
            Some(Target::WaterFill { capacity: e.capacity.as_ref().map(|capacity| capacity.value.0) })
        }
        (None, false) => None,
    };
    if let (Some(capacity), false) = (&e.capacity, fills) {
        return Err(Fault::new(
            &capacity.span,
            "'capacity' means nothing without water-fill; add water-fill = true",
        ));
    }
    let within = e.within.as_ref().map_or(0.0, |within| within.value.0 / 100.0);
    let slack = e.slack.as_ref().map(|slack| quantity(slack, unit)).transpose()?.unwrap_or(0.0);
    if target.is_some() && e.within.is_none() && e.slack.is_none() {
        return Err(Fault::new(span, "no measure is ever exactly equal; add within = '5%' or slack = 10"));
    }
    if let (None, Some(key)) =
        (target, e.within.as_ref().map(|w| &w.span).or(e.slack.as_ref().map(|s| &s.span)))
    {
        return Err(Fault::new(key, "a tolerance means nothing without a target; add equals or water-fill"));
    }
    let at_least = e.at_least.as_ref().map(|least| quantity(least, unit)).transpose()?;
    let at_most = e.at_most.as_ref().map(|most| quantity(most, unit)).transpose()?;
    if target.is_none() && at_least.is_none() && at_most.is_none() {
        return Err(Fault::new(
            span,
            "nothing is expected here; add equals, water-fill, at-least or at-most",
        ));
    }
    if let (Some(least), Some(most), Some(key)) = (at_least, at_most, &e.at_most)
        && least > most
    {
        return Err(Fault::new(
            &key.span,
            "at-most is below at-least, so nothing can hold; raise the one or lower the other",
        ));
    }
    Ok(Test { target, within, slack, at_least, at_most })
}

fn check_settling(key: &At<Percent>, e: &ExpectFile) -> Result<f64, Fault> {
    if !e.measure.value.in_series() || e.per.is_some() || e.every.is_some() {
        let message = "'settles-within' works for sums and means only, without 'per' and 'every'; remove it";
        return Err(Fault::new(&key.span, message));
    }
    if e.water_fill.is_some() {
        let message = "water-filling says nothing of how long something takes; use equals or at-most";
        return Err(Fault::new(&key.span, message));
    }
    if key.value.0 == 0.0 || key.value.0 > 100.0 {
        return Err(Fault::new(&key.span, "how near is above 0% and 100% at most; write such a percentage"));
    }
    Ok(key.value.0 / 100.0)
}

fn check_every(
    every: &At<Time>,
    e: &ExpectFile,
    test: &Test,
    window: Option<&str>,
    scenario: &Scenario,
) -> Result<Nanos, Fault> {
    let fault = |message: String| Err(Fault::new(&every.span, message));
    let length = every.value.0;
    if !e.measure.value.in_series() || e.per.is_some() {
        return fault("'every' works for sums and means only, without 'per'; remove it".to_owned());
    }
    if test.target.is_some() || (test.at_least.is_some() == test.at_most.is_some()) {
        return fault("'every' needs one bound; write either at-least or at-most, and no other".to_owned());
    }
    for setup in scenario.variants.iter().map(|variant| &variant.setup) {
        if length == Nanos::ZERO || !length.0.is_multiple_of(setup.interval.0) {
            let interval = setup.interval;
            return fault(format!(
                "{length} is not a multiple of the recorded interval, {interval}; change one of them"
            ));
        }
        let windows = scenario.windows.iter().find(|w| Some(w.name.as_str()) == window);
        let room = windows.map_or(setup.duration, |w| w.to - w.from);
        if length > room {
            return fault(format!("{length} is longer than the window, {room}; shorten it"));
        }
    }
    Ok(length)
}

/// A quantity in the unit: seconds, bytes per second, or a plain number.
fn quantity(key: &At<Quantity>, unit: Unit) -> Result<f64, Fault> {
    let wrong = |expected: &str| {
        Err(Fault::new(&key.span, format!("this does not fit what is measured; write {expected}")))
    };
    match (unit, &key.value) {
        (Unit::Seconds, Quantity::Text(text)) => match Time::parse(text) {
            Ok(time) => Ok(time.0.as_secs_f64()),
            Err(message) => Err(Fault::new(&key.span, message)),
        },
        (Unit::Seconds, Quantity::Number(_)) => wrong("a time with a unit, such as '30ms'"),
        (Unit::BytesPerSecond, Quantity::Text(text)) => match text.parse::<BytesPerSec>() {
            Ok(bandwidth) => Ok(bandwidth.get() as f64),
            Err(_) => wrong("bytes per second, such as '50M'"),
        },
        (Unit::BytesPerSecond | Unit::PerSecond | Unit::Number | Unit::Ratio, Quantity::Number(number)) => {
            Ok(*number)
        }
        (Unit::PerSecond | Unit::Number | Unit::Ratio, Quantity::Text(_)) => wrong("a number"),
    }
}
