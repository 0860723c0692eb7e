//! Computes measures of outcomes.

use super::pool::measure_pool;
use super::shares::measure_shares;
use super::sweep::measure_sweep;
use crate::outcome::{Counters, Outcome, Stretch, TransactionStretch, WindowCounters, per_second};
use crate::scenario::{Measure, Scenario, Selection, Span};
use headgate_units::Nanos;

impl Measure {
    pub(super) fn of_counters(self, counters: &Counters, length: Nanos) -> Option<f64> {
        let seconds = |time: Option<Nanos>| time.map(Nanos::as_secs_f64);
        match self {
            Measure::Iops => Some(counters.iops(length)),
            Measure::NormalisedIops => Some(counters.normalised_iops(length)),
            Measure::Bandwidth => Some(counters.bytes_per_sec(length)),
            Measure::ReservationIops => Some(counters.reservation_iops(length)),
            Measure::WeightIops => Some(counters.weight_iops(length)),
            Measure::Arrivals => Some(per_second(counters.arrived as f64, length)),
            Measure::Dropped => Some(counters.dropped as f64),
            Measure::Outstanding => Some(counters.mean_outstanding(length)),
            Measure::Little => Some(counters.iops(length) * counters.mean_latency()?.as_secs_f64()),
            Measure::Comparisons => counters.comparisons_each(),
            Measure::ToldError => counters.mean_told_error(),
            Measure::ToldWrong => (counters.told > 0).then_some(counters.told_wrong as f64),
            Measure::Latency => seconds(counters.mean_latency()),
            Measure::QueueTime => seconds(counters.mean_queue()),
            Measure::DeviceTime => seconds(counters.mean_device()),
            Measure::PageWrites => Some(counters.flash.page_writes(length)),
            Measure::WriteAmplification => counters.flash.extra_writes().map(|extra| 1.0 + extra),
            Measure::ExtraWrites => counters.flash.extra_writes(),
            Measure::Utilisation => counters.flash.utilisation(),
            Measure::TargetUtilisation => counters.flash.target_utilisation(),
            Measure::MovedFor => Some(counters.flash.moved_for as f64),
            Measure::OwnMoved => counters.flash.own_moved(),
            Measure::Moved => Some(counters.flash.moved as f64),
            Measure::MixedVictims => counters.flash.mixed(),
            Measure::SpareBlocks => Some(counters.flash.mean_spare(length)),
            _ => None,
        }
    }

    fn of_window(self, counters: &WindowCounters, length: Nanos) -> Option<f64> {
        match self {
            Measure::IssueWindow => Some(counters.mean_window(length)),
            Measure::Beta => Some(counters.mean_beta(length)),
            Measure::ClusterLatency => counters.mean_latency().map(Nanos::as_secs_f64),
            Measure::LatencyThreshold => counters.mean_threshold().map(Nanos::as_secs_f64),
            Measure::Unmanaged => Some(counters.unmanaged_part(length)),
            _ => None,
        }
    }
}

/// A measure of several subjects together.
pub(super) fn measure(
    scenario: &Scenario,
    outcome: &Outcome,
    measure: Measure,
    group: &[String],
    span: Option<&Span>,
    selection: &Selection,
) -> Option<f64> {
    if measure.of_pools() {
        return measure_pool(outcome, measure, group, span);
    }
    if measure.of_sweeps() {
        return measure_sweep(outcome, measure, group, selection);
    }
    if measure.of_shares() {
        return measure_shares(scenario, outcome, measure, group, span);
    }
    if measure == Measure::SpaceStep {
        return space_step(outcome, group, span);
    }
    let span = span.map(|span| span.name.as_str());
    if measure.of_applications() {
        return measure_application(outcome, measure, group, span);
    }
    if measure.of_windows() {
        return measure_windows(outcome, measure, group, span);
    }
    let mut sum = Stretch::default();
    let (mut completed, mut bytes, mut latencies) = (Vec::new(), Vec::new(), Vec::new());
    for name in group {
        let subject = outcome.subject(name)?;
        let part = match span {
            Some(span) => subject.spans.iter().find(|stretch| stretch.name == span)?,
            None => &subject.whole,
        };
        (sum.from, sum.to) = (part.from, part.to);
        completed.push(part.counters.completed);
        bytes.push(part.counters.bytes as f64);
        latencies.extend(part.counters.mean_latency().map(Nanos::as_secs_f64));
        sum.counters = sum.counters.plus(&part.counters);
        sum.latency.merge(&part.latency);
    }
    let percentile = |permille| sum.latency.at_permille(permille).map(Nanos::as_secs_f64);
    match measure {
        Measure::Inversions => Some(inversions(&completed)),
        Measure::Jain => jain(&bytes),
        Measure::LatencySpread => spread(&latencies),
        Measure::LatencyP50 => percentile(500),
        Measure::LatencyP90 => percentile(900),
        Measure::LatencyP99 => percentile(990),
        other => other.of_counters(&sum.counters, sum.length()),
    }
}

/// By how many blocks the space of one of them changed from one end of an interval to the next at
/// most, for each block that was collected in between; where none was, for one.
fn space_step(outcome: &Outcome, group: &[String], span: Option<&Span>) -> Option<f64> {
    let (from, to) = span.map_or((Nanos::ZERO, outcome.duration), |span| (span.from, span.to));
    let series: Vec<&[Counters]> =
        group.iter().map(|name| Some(&outcome.subject(name)?.series[..])).collect::<Option<_>>()?;
    let points = series.iter().map(|series| series.len()).min()?;
    let mut most: Option<f64> = None;
    for index in 1..points {
        let (begins, ends) = outcome.point(index);
        if begins < from || ends > to || ends - begins != outcome.interval {
            continue;
        }
        let collected: u64 = series.iter().map(|series| series[index].flash.victims).sum();
        for series in &series {
            // Space is integrated as of the ends of intervals.
            let blocks = |index: usize| series[index].flash.spare / outcome.interval.0.max(1);
            let step = blocks(index).abs_diff(blocks(index - 1)) as f64 / collected.max(1) as f64;
            most = Some(most.map_or(step, |most| most.max(step)));
        }
    }
    most
}

/// (Σx)² / (n Σx²), of values of which one is more than nothing (Jain, Chiu, Hawe 1984).
fn jain(values: &[f64]) -> Option<f64> {
    let (sum, squares) =
        values.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    (squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

/// The standard deviation of some values.
fn spread(values: &[f64]) -> Option<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (!values.is_empty()).then(|| (squares / values.len() as f64).sqrt())
}

/// Pairs of which the later is more.
fn inversions(completed: &[u64]) -> f64 {
    let later = |first: usize| {
        completed[first + 1..].iter().filter(move |other| **other > completed[first])
    };
    (0..completed.len()).map(|first| later(first).count()).sum::<usize>() as f64
}

fn measure_application(
    outcome: &Outcome,
    measure: Measure,
    group: &[String],
    span: Option<&str>,
) -> Option<f64> {
    let mut sum = TransactionStretch::default();
    for name in group {
        let application = outcome.application(name)?;
        let part = match span {
            Some(span) => application.spans.iter().find(|stretch| stretch.name == span)?,
            None => &application.whole,
        };
        (sum.from, sum.to) = (part.from, part.to);
        sum.counters.completed += part.counters.completed;
        sum.counters.response += part.counters.response;
        sum.response.merge(&part.response);
    }
    match measure {
        Measure::Transactions => Some(per_second(sum.counters.completed as f64, sum.to - sum.from)),
        Measure::Response => sum.response.mean().map(Nanos::as_secs_f64),
        Measure::ResponseP90 => sum.response.at_permille(900).map(Nanos::as_secs_f64),
        _ => None,
    }
}

fn measure_windows(
    outcome: &Outcome,
    measure: Measure,
    group: &[String],
    span: Option<&str>,
) -> Option<f64> {
    let (mut sum, mut length) = (WindowCounters::default(), Nanos::ZERO);
    for name in group {
        let recorded = outcome.issue_window(name)?;
        let part = match span {
            Some(span) => recorded.spans.iter().find(|stretch| stretch.name == span)?,
            None => &recorded.whole,
        };
        length = part.to - part.from;
        sum = sum.plus(&part.counters);
    }
    measure
        .of_window(&sum, length)
        .map(|value| if measure == Measure::Unmanaged { value / group.len() as f64 } else { value })
}

/// Values of a measure over time.
pub(super) struct Series {
    /// When the first whole point within the span begins.
    pub(super) from: Nanos,
    /// One for each run of points; `None` where there is nothing to measure.
    pub(super) values: Vec<Option<f64>>,
}

/// The means over every stretch of so many points within a span, each beginning a point after the
/// one before.
pub(super) fn series(
    outcome: &Outcome,
    measure: Measure,
    group: &[String],
    span: Option<&Span>,
    points: usize,
) -> Option<Series> {
    let (from, to) = span.map_or((Nanos::ZERO, outcome.duration), |span| (span.from, span.to));
    let count = outcome.duration.0.div_ceil(outcome.interval.0.max(1)) as usize;
    let inside: Vec<usize> = (0..count)
        .filter(|&index| {
            let (begins, ends) = outcome.point(index);
            begins >= from && ends <= to && ends - begins == outcome.interval
        })
        .collect();
    let length = Nanos(outcome.interval.0.saturating_mul(points.max(1) as u64));
    let (mut parts, mut windows) = (Vec::new(), Vec::new());
    for name in group {
        match measure.of_windows() {
            true => windows.push(&outcome.issue_window(name)?.series),
            false => parts.push(&outcome.subject(name)?.series),
        }
    }
    let value = |stretch: &[usize]| {
        if measure.of_windows() {
            let points =
                windows.iter().flat_map(|series| stretch.iter().filter_map(|&i| series.get(i)));
            let sum = points.fold(WindowCounters::default(), |sum, point| sum.plus(point));
            return measure.of_window(&sum, length);
        }
        let points = parts.iter().flat_map(|series| stretch.iter().filter_map(|&i| series.get(i)));
        let sum = points.fold(Counters::default(), |sum, point| sum.plus(point));
        measure.of_counters(&sum, length)
    };
    let from = inside.first().map_or(from, |&first| outcome.point(first).0);
    Some(Series { from, values: inside.windows(points.max(1)).map(value).collect() })
}
