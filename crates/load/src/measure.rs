//! Counting and timing of completed requests.

use crate::link::{Kind, Op};
use crate::workload::{Priority, Streams};
use hdrhistogram::Histogram;
use headgate_units::Nanos;
use serde::Serialize;
use std::collections::BTreeMap;

/// Latencies above an hour count as an hour.
const LONGEST: u64 = 3_600_000_000_000;

/// A histogram of latencies in nanoseconds.
pub(crate) fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, digits)
        .expect("the bounds and digits are constants in range")
}

/// Latencies, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

impl Latency {
    pub(crate) fn of(h: &Histogram<u64>) -> Latency {
        Latency {
            mean_ns: h.mean() as u64,
            p50_ns: h.value_at_quantile(0.5),
            p99_ns: h.value_at_quantile(0.99),
            p999_ns: h.value_at_quantile(0.999),
            max_ns: h.max(),
        }
    }
}

/// Requests of one sort.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub ios: u64,
    pub bytes: u64,
    pub latency: Histogram<u64>,
}

impl Tally {
    fn new(digits: u8) -> Tally {
        Tally { ios: 0, bytes: 0, latency: histogram(digits) }
    }

    fn record(&mut self, bytes: u32, latency: Nanos) {
        self.ios += 1;
        self.bytes += u64::from(bytes);
        self.latency.saturating_record(latency.0);
    }

    pub(crate) fn add(&mut self, other: &Tally) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.latency.add(&other.latency).expect("all histograms have the same bounds");
    }
}

/// One second of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Second {
    /// Which one: 0 is the first after the warm-up.
    pub second: u64,
    /// Requests completed.
    pub ios: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Median latency, to two digits.
    pub p50_ns: u64,
    /// 99th percentile, to two digits.
    pub p99_ns: u64,
}

/// The measurements of one target.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    from: Nanos,
    until: Nanos,
    pub reads: Tally,
    pub writes: Tally,
    pub flushes: Tally,
    current: Tally,
    second: u64,
    pub series: Vec<Second>,
    pub errors: BTreeMap<u32, u64>,
    /// By priority, where they are kept apart.
    pub streams: Vec<(Priority, Tally)>,
}

impl Meter {
    /// Counts what completes at `from` and later.
    pub(crate) fn new(from: Nanos, streams: Option<&Streams>) -> Meter {
        let streams = streams.map(Streams::priorities).unwrap_or_default();
        Meter {
            from,
            until: from,
            reads: Tally::new(3),
            writes: Tally::new(3),
            flushes: Tally::new(3),
            current: Tally::new(2),
            second: 0,
            series: Vec::new(),
            errors: BTreeMap::new(),
            streams: streams.into_iter().map(|priority| (priority, Tally::new(3))).collect(),
        }
    }

    /// A request that was to start at `intended` completed well.
    pub(crate) fn on_done(&mut self, op: &Op, intended: Nanos, now: Nanos) {
        if now < self.from {
            return;
        }
        self.close_seconds(now);
        let latency = now.since(intended);
        let tally = match op.kind {
            Kind::Read => &mut self.reads,
            Kind::Write | Kind::WriteZeroes => &mut self.writes,
            Kind::Flush => &mut self.flushes,
        };
        tally.record(op.len, latency);
        self.current.record(op.len, latency);
        if let Some((_, stream)) =
            self.streams.iter_mut().find(|(priority, _)| *priority == op.priority)
        {
            stream.record(op.len, latency);
        }
    }

    /// A request failed, whenever: errors count even in the warm-up.
    pub(crate) fn on_error(&mut self, code: u32) {
        *self.errors.entry(code).or_default() += 1;
    }

    fn close_seconds(&mut self, now: Nanos) {
        let second = now.since(self.from).0 / 1_000_000_000;
        while self.second < second {
            self.close_second();
        }
    }

    fn close_second(&mut self) {
        self.series.push(Second {
            second: self.second,
            ios: self.current.ios,
            bytes: self.current.bytes,
            p50_ns: self.current.latency.value_at_quantile(0.5),
            p99_ns: self.current.latency.value_at_quantile(0.99),
        });
        (self.current.ios, self.current.bytes) = (0, 0);
        self.current.latency.reset();
        self.second += 1;
    }

    /// The load ended.
    pub(crate) fn close(&mut self, now: Nanos) {
        self.until = now;
        self.close_seconds(now);
        if self.current.ios > 0 {
            self.close_second();
        }
    }

    /// How long was counted.
    pub(crate) fn measured(&self) -> Nanos {
        self.until.since(self.from)
    }

    pub(crate) fn all(&self) -> Tally {
        let mut all = self.reads.clone();
        all.add(&self.writes);
        all.add(&self.flushes);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Durability;

    #[test]
    fn the_warm_up_is_not_counted_and_seconds_without_answers_are_shown() {
        let op = Op {
            kind: Kind::Read,
            offset: 0,
            len: 4096,
            durability: Durability::AtFlush,
            priority: Priority(0),
        };
        let mut meter = Meter::new(Nanos::from_secs(10), None);
        meter.on_done(&op, Nanos::from_secs(9), Nanos::from_millis(9_999));
        meter.on_done(&op, Nanos::from_millis(10_400), Nanos::from_millis(10_500));
        meter.on_done(&op, Nanos::from_millis(10_900), Nanos::from_millis(13_900));
        meter.on_error(5);
        meter.close(Nanos::from_secs(14));
        assert_eq!(meter.reads.ios, 2);
        assert_eq!(meter.measured(), Nanos::from_secs(4));
        let ios: Vec<u64> = meter.series.iter().map(|s| s.ios).collect();
        assert_eq!(ios, [1, 0, 0, 1]);
        assert_eq!(Latency::of(&meter.all().latency).max_ns / 1_000_000_000, 3);
        assert_eq!(meter.errors[&5], 1);
    }
}
