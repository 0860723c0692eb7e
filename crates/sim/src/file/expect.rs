//! Expectations, as a file says them.

use super::expected::{ExpectFile, PerFile};
use super::pool::SelectionFile;
use super::read::{Fault, hint, position};
use super::values::{At, Percent};
use super::{Measure, Quantity, Time};
use crate::judge::{
    Against, Expectation, POOL, Per, Quantity as Measured, Selection, Summary, Target, Test, Unit,
};
use crate::scenario::{Record, Scenario, WorkloadKind};
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
    /// VMs, and disks of those that have several.
    holders: Vec<String>,
    applications: Vec<String>,
    issue_windows: Vec<String>,
    /// Datastores of a pool, and the pool.
    pooled: Vec<String>,
    pools: Vec<String>,
    sweeps: Vec<String>,
    windows: Vec<String>,
    variants: Vec<String>,
}

impl Names {
    fn of(scenario: &Scenario) -> Names {
        let (mut subjects, mut applications, mut issue_windows) = (Vec::new(), Vec::new(), Vec::new());
        let mut holders = Vec::new();
        let (mut pooled, mut pools, mut sweeps) = (Vec::new(), Vec::new(), Vec::new());
        for setup in scenario.variants.iter().map(|variant| &variant.setup) {
            issue_windows.extend(setup.issue_window_names());
            sweeps.extend(setup.sweeps.iter().map(|sweep| sweep.name.clone()));
            if let Some(pool) = &setup.pool {
                pools.push(POOL.to_owned());
                pooled.extend(pool.datastores.iter().map(|&store| setup.datastores[store].name.clone()));
            }
            for vm in &setup.vms {
                holders.push(vm.name.clone());
                if vm.disks.len() > 1 {
                    holders.extend(vm.disks.iter().map(|disk| format!("{}/{}", vm.name, disk.name)));
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
        subjects.extend_from_slice(&holders);
        let lists = [
            &mut subjects,
            &mut holders,
            &mut applications,
            &mut issue_windows,
            &mut pooled,
            &mut pools,
            &mut sweeps,
        ];
        for list in lists {
            list.sort_unstable();
            list.dedup();
        }
        Names {
            subjects,
            holders,
            applications,
            issue_windows,
            pooled,
            pools,
            sweeps,
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
            measure if measure.of_the_pool() => ("pool", &self.pools),
            measure if measure.of_pooled_datastores() => ("datastore of a pool", &self.pooled),
            measure if measure.of_sweeps() => ("sweep", &self.sweeps),
            measure if measure.of_shares() => ("VM or disk of a VM with several", &self.holders),
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
    let per = against(e.per.as_ref(), e.less.as_ref(), measure, &window, &groups, names)?;
    let rank_with = match &e.rank_with {
        Some(key) if e.each.is_none() || groups.len() < 3 || e.members.is_some() => {
            return Err(Fault::new(
                &key.span,
                "an order needs three at least; name them with 'each', without 'members'",
            ));
        }
        Some(key) => {
            let rival = &key.value;
            for group in &groups {
                let group = At { value: super::Names(group.clone()), span: rival.measure.span.clone() };
                names.check_group(&group, rival.measure.value)?;
            }
            let window = window_or(rival.window.as_ref(), &window, names)?;
            let (per, less) = (rival.per.as_ref(), rival.less.as_ref());
            let per = against(per, less, rival.measure.value, &window, &groups, names)?;
            Some(Measured { measure: rival.measure.value, window, per })
        }
        None => None,
    };
    let reversal = match &e.reversal {
        Some(key) => {
            let alone =
                e.per.is_none() && e.less.is_none() && e.every.is_none() && e.settles_within.is_none();
            if !measure.in_series() || !alone {
                let message = "'reversal' works for sums and means only, without 'per', 'less', 'every' and 'settles-within'; remove it";
                return Err(Fault::new(&key.span, message));
            }
            check_length(key, window.as_deref(), scenario)?;
            Some(key.value.0)
        }
        None => None,
    };
    let settles_within = match &e.settles_within {
        Some(key) => Some(check_settling(key, e)?),
        None => None,
    };
    let unit = match (&per, settles_within) {
        (_, Some(_)) => Unit::Seconds,
        (Some(Per { against: Against::Quotient, .. }), None) => Unit::Ratio,
        (Some(_) | None, None) => measure.unit(),
    };
    let unit = if rank_with.is_some() { Unit::Number } else { unit };
    let rank_among = match &e.rank_among {
        Some(rivals) => {
            for name in &rivals.value.0 {
                Names::check(name, &rivals.span, "variant", &names.variants)?;
            }
            rivals.value.0.clone()
        }
        None => Vec::new(),
    };
    let unit = if rank_among.is_empty() { unit } else { Unit::Number };
    let test = test(span, e, unit)?;
    let summary = summary(e, &test)?;
    if let Some(members) = e.members.as_ref().filter(|m| e.each.is_none() || m.value as usize > groups.len())
    {
        let message = "'members' says how many of 'each' must be as expected; name at least so many there";
        return Err(Fault::new(&members.span, message));
    }
    let selection = match &e.selected {
        Some(key) if !measure.of_sweeps() => {
            return Err(Fault::new(
                &key.span,
                "'where' picks points of a sweep, and this is of none; remove it",
            ));
        }
        Some(key) => selection(key)?,
        None => Selection::default(),
    };
    if let Some(key) = e.window.as_ref().filter(|_| measure.of_sweeps()) {
        return Err(Fault::new(&key.span, "a sweep is measured as a whole; remove the window"));
    }
    let needs_histograms = matches!(measure, Measure::LatencyP50 | Measure::LatencyP90 | Measure::LatencyP99);
    if needs_histograms && scenario.variants.iter().any(|v| v.setup.record == Record::Sums) {
        let message =
            "without histograms there are no percentiles; measure 'latency', or remove histograms = false";
        return Err(Fault::new(&e.measure.span, message));
    }
    let every = match &e.every {
        Some(every) => Some(check_every(every, e, &test, window.as_deref(), scenario)?),
        None => None,
    };
    let paper_unit = match (&e.members, &e.in_seeds) {
        (_, Some(_)) => Unit::Ratio,
        (Some(_), None) => Unit::Number,
        (None, None) => unit,
    };
    let paper = e.paper.as_ref().map(|paper| quantity(paper, paper_unit)).transpose()?;
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
        reversal,
        per,
        rank_with,
        selection,
        rank_among,
        members: e.members.as_ref().map(|members| members.value),
        summary,
        test,
        paper,
        differs: e.differs.clone(),
    })
}

/// What a measure is held against: divided by it, or by how much it is more.
fn against(
    per: Option<&At<PerFile>>,
    less: Option<&At<PerFile>>,
    measure: Measure,
    window: &Option<String>,
    groups: &[Vec<String>],
    names: &Names,
) -> Result<Option<Per>, Fault> {
    let (file, against) = match (per, less) {
        (Some(_), Some(less)) => {
            return Err(Fault::new(&less.span, "'per' and 'less' exclude each other; keep one"));
        }
        (Some(per), None) => (per, Against::Quotient),
        (None, Some(less)) => (less, Against::Difference),
        (None, None) => return Ok(None),
    };
    let other = file.value.measure.as_ref().map_or(measure, |measure| measure.value);
    if let Some(variant) = &file.value.variant {
        for group in groups {
            let name = Per::of_group(&variant.value, group);
            Names::check(&name, &variant.span, "variant", &names.variants)?;
        }
    }
    if against == Against::Difference && other.unit() != measure.unit() {
        return Err(Fault::new(
            &file.span,
            "what is taken from it has another unit; use 'per', or the same measure",
        ));
    }
    if other.of_applications() != measure.of_applications() && file.value.of.is_none() {
        return Err(Fault::new(&file.span, "requests and transactions have different subjects; add 'of'"));
    }
    let of = file.value.of.as_ref().map(|of| names.check_group(of, other)).transpose()?;
    let window = window_or(file.value.window.as_ref(), window, names)?;
    let variant = file.value.variant.as_ref().map(|variant| variant.value.clone());
    Ok(Some(Per { against, measure: other, of, window, variant }))
}

fn summary(e: &ExpectFile, test: &Test) -> Result<Summary, Fault> {
    let part = |key: &At<Percent>| {
        let permille = key.value.0 * 10.0;
        if permille.fract() != 0.0 || !(0.0..=1_000.0).contains(&permille) {
            return Err(Fault::new(
                &key.span,
                "seeds are counted in tenths of a per cent, up to 100%; write such a part",
            ));
        }
        Ok(permille as u32)
    };
    match (&e.quantile, &e.in_seeds) {
        (Some(key), Some(_)) => {
            Err(Fault::new(&key.span, "'quantile' and 'in-seeds' exclude each other; keep one"))
        }
        (Some(key), None) if matches!(test.target, Some(Target::WaterFill { .. })) || e.members.is_some() => {
            Err(Fault::new(
                &key.span,
                "a quantile is of values, held against one value; remove water-fill or members",
            ))
        }
        (Some(key), None) => Ok(Summary::Quantile(part(key)?)),
        (None, Some(key)) => Ok(Summary::Share(part(key)?)),
        (None, None) => Ok(Summary::Each),
    }
}

fn selection(key: &At<SelectionFile>) -> Result<Selection, Fault> {
    let percents = |list: &[Percent]| -> Result<Vec<u8>, Fault> {
        list.iter()
            .map(|percent| match percent.0 {
                whole if whole.fract() == 0.0 && whole <= 100.0 => Ok(whole as u8),
                _ => Err(Fault::new(
                    &key.span,
                    "parts of requests are whole, up to 100%; write such percentages",
                )),
            })
            .collect()
    };
    Ok(Selection {
        outstanding: key.value.outstanding.clone(),
        sizes: key.value.size.iter().map(|size| size.0).collect(),
        read: percents(&key.value.read)?,
        random: percents(&key.value.random)?,
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
            if !matches!(e.measure.value, Measure::Iops | Measure::NormalisedIops)
                || e.per.is_some()
                || e.less.is_some() =>
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
    if !e.measure.value.in_series() || e.per.is_some() || e.less.is_some() || e.every.is_some() {
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
    if !e.measure.value.in_series() || e.per.is_some() || e.less.is_some() {
        return fault("'every' works for sums and means only, without 'per'; remove it".to_owned());
    }
    if test.target.is_some() || (test.at_least.is_some() == test.at_most.is_some()) {
        return fault("'every' needs one bound; write either at-least or at-most, and no other".to_owned());
    }
    check_length(every, window, scenario)?;
    Ok(every.value.0)
}

/// A length over which a series is looked at must fit it.
fn check_length(key: &At<Time>, window: Option<&str>, scenario: &Scenario) -> Result<(), Fault> {
    let fault = |message: String| Err(Fault::new(&key.span, message));
    let length = key.value.0;
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
    Ok(())
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
