mod window;

pub(crate) use window::{Seen, WindowRecorder};

use crate::outcome::{
    Application, Counters, Stretch, Subject, SubjectKind, TransactionStretch, Transactions,
};
use crate::scenario::{Record, Span};
use headgate_devices::{FlashCounters, Utilisation};
use headgate_stats::{HistogramSnapshot, LatencyHistogram};
use headgate_units::{Bytes, Nanos};

/// Counts what one disk or node does.
#[derive(Clone)]
pub(crate) struct Recorder {
    seen: Nanos,
    waiting: u64,
    flash_seen: Nanos,
    counters: Counters,
    /// None where sums are all that is wanted.
    histograms: Option<Box<Histograms>>,
    at_tick: Counters,
    series: Vec<Counters>,
    marks: Vec<Mark>,
}

#[derive(Clone, Default)]
struct Histograms {
    latency: LatencyHistogram,
    queue: LatencyHistogram,
    device: LatencyHistogram,
}

/// All counters at the beginning or end of a span.
#[derive(Clone, Default)]
struct Mark {
    counters: Counters,
    latency: HistogramSnapshot,
    queue: HistogramSnapshot,
    device: HistogramSnapshot,
}

impl Recorder {
    pub(crate) fn new(record: Record) -> Recorder {
        Recorder {
            seen: Nanos::ZERO,
            waiting: 0,
            flash_seen: Nanos::ZERO,
            counters: Counters::default(),
            histograms: (record == Record::Histograms).then(Box::default),
            at_tick: Counters::default(),
            series: Vec::new(),
            marks: Vec::new(),
        }
    }

    #[inline]
    fn integrate(&mut self, now: Nanos) {
        let passed = self.waiting.saturating_mul((now - self.seen).0);
        self.counters.outstanding = self.counters.outstanding.saturating_add(passed);
        self.seen = now;
    }

    #[inline]
    pub(crate) fn on_arrival(&mut self, now: Nanos) {
        self.integrate(now);
        self.waiting += 1;
        self.counters.arrived += 1;
    }

    pub(crate) fn on_drop(&mut self) {
        self.counters.dropped += 1;
    }

    #[inline]
    pub(crate) fn on_dispatch(&mut self, queue: Nanos, phase: headgate_qos::Phase, cost: u64) {
        self.on_phase(phase);
        self.counters.cost = self.counters.cost.saturating_add(cost);
        if let Some(histograms) = &mut self.histograms {
            histograms.queue.record(queue);
        }
    }

    /// Comparisons of the decision for a dispatch.
    #[inline]
    pub(crate) fn on_comparisons(&mut self, comparisons: u64) {
        self.counters.comparisons += comparisons;
    }

    /// A request reported service elsewhere to a node.
    pub(crate) fn on_told(&mut self, error: u64, beyond_bound: bool) {
        self.counters.told += 1;
        self.counters.told_error = self.counters.told_error.saturating_add(error);
        if beyond_bound {
            self.counters.told_wrong += 1;
        }
    }

    /// Counts a dispatch by what paid for it.
    #[inline]
    pub(crate) fn on_phase(&mut self, phase: headgate_qos::Phase) {
        match phase {
            headgate_qos::Phase::Reservation => self.counters.by_reservation += 1,
            headgate_qos::Phase::Weight => self.counters.by_weight += 1,
        }
    }

    /// A dispatch was counted at the host by one phase, and what pays for it at the node is
    /// another.
    pub(crate) fn correct_phase(
        &mut self,
        at_host: headgate_qos::Phase,
        at_node: headgate_qos::Phase,
    ) {
        match at_host {
            headgate_qos::Phase::Reservation => self.counters.by_reservation -= 1,
            headgate_qos::Phase::Weight => self.counters.by_weight -= 1,
        }
        self.on_phase(at_node);
    }

    #[inline]
    pub(crate) fn on_complete(&mut self, now: Nanos, bytes: Bytes, queue: Nanos, device: Nanos) {
        self.integrate(now);
        self.waiting -= 1;
        self.counters.completed += 1;
        self.counters.bytes = self.counters.bytes.saturating_add(bytes.0);
        self.counters.latency = self.counters.latency.saturating_add((queue + device).0);
        self.counters.queue = self.counters.queue.saturating_add(queue.0);
        if let Some(histograms) = &mut self.histograms {
            histograms.latency.record(queue + device);
            histograms.device.record(device);
        }
    }

    /// Counters of the flash below a disk, from the beginning.
    pub(crate) fn on_flash(
        &mut self,
        now: Nanos,
        counted: &FlashCounters,
        target: Option<Utilisation>,
    ) {
        self.counters.flash.take(counted, target, now - self.flash_seen);
        self.flash_seen = now;
    }

    /// The counters up to now.
    pub(crate) fn so_far(&mut self, now: Nanos) -> Counters {
        self.integrate(now);
        self.counters
    }

    /// An interval ends.
    pub(crate) fn tick(&mut self, now: Nanos) {
        self.integrate(now);
        self.series.push(self.counters.since(&self.at_tick));
        self.at_tick = self.counters;
    }

    fn state(&self) -> Mark {
        let Some(histograms) = &self.histograms else {
            return Mark { counters: self.counters, ..Mark::default() };
        };
        Mark {
            counters: self.counters,
            latency: histograms.latency.snapshot(),
            queue: histograms.queue.snapshot(),
            device: histograms.device.snapshot(),
        }
    }

    /// A span begins or ends.
    pub(crate) fn mark(&mut self, now: Nanos) {
        self.integrate(now);
        self.marks.push(self.state());
    }

    /// The result, at the end of the run.
    pub(crate) fn finish(mut self, kind: SubjectKind, name: String, plan: &Plan) -> Subject {
        self.mark(plan.duration);
        let whole = stretch("", Nanos::ZERO, plan.duration, &Mark::default(), self.marks.last());
        let spans = plan.stretches(&self.marks, stretch);
        Subject { kind, name, series: self.series, whole, spans }
    }
}

/// When spans begin and end.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) duration: Nanos,
    /// Times at which marks are made, ascending; one more is made at the end.
    pub(crate) marks: Vec<Nanos>,
    spans: Vec<Span>,
}

impl Plan {
    pub(crate) fn new(duration: Nanos, spans: &[Span]) -> Plan {
        let mut marks: Vec<Nanos> = spans.iter().flat_map(|span| [span.from, span.to]).collect();
        marks.sort_unstable();
        marks.dedup();
        Plan { duration, marks, spans: spans.to_vec() }
    }

    pub(crate) fn stretches<M, S>(
        &self,
        marks: &[M],
        make: impl Fn(&str, Nanos, Nanos, &M, Option<&M>) -> S,
    ) -> Vec<S> {
        let index = |at: Nanos| {
            self.marks.binary_search(&at).unwrap_or_else(|next| next).min(marks.len() - 1)
        };
        self.spans
            .iter()
            .map(|w| make(&w.name, w.from, w.to, &marks[index(w.from)], marks.get(index(w.to))))
            .collect()
    }
}

fn stretch(name: &str, from: Nanos, to: Nanos, before: &Mark, after: Option<&Mark>) -> Stretch {
    let after = after.unwrap_or(before);
    Stretch {
        name: name.to_owned(),
        from,
        to,
        counters: after.counters.since(&before.counters),
        latency: after.latency.since(&before.latency),
        queue: after.queue.since(&before.queue),
        device: after.device.since(&before.device),
    }
}

/// Several subjects as one: the disks of a VM or of a datastore.
pub(crate) fn merge(kind: SubjectKind, name: String, parts: &[&Subject], plan: &Plan) -> Subject {
    let points = parts.iter().map(|part| part.series.len()).max().unwrap_or(0);
    let mut series = vec![Counters::default(); points];
    let mut whole = Stretch { to: plan.duration, ..Stretch::default() };
    let mut spans: Vec<Stretch> = plan
        .spans
        .iter()
        .map(|w| Stretch { name: w.name.clone(), from: w.from, to: w.to, ..Stretch::default() })
        .collect();
    for part in parts {
        for (sum, point) in series.iter_mut().zip(&part.series) {
            *sum = sum.plus(point);
        }
        add(&mut whole, &part.whole);
        for (sum, span) in spans.iter_mut().zip(&part.spans) {
            add(sum, span);
        }
    }
    Subject { kind, name, series, whole, spans }
}

fn add(sum: &mut Stretch, part: &Stretch) {
    sum.counters = sum.counters.plus(&part.counters);
    sum.latency.merge(&part.latency);
    sum.queue.merge(&part.queue);
    sum.device.merge(&part.device);
}

/// Counts the transactions of one workload.
#[derive(Clone, Default)]
pub(crate) struct TransactionRecorder {
    counters: Transactions,
    response: Box<LatencyHistogram>,
    at_tick: Transactions,
    series: Vec<Transactions>,
    marks: Vec<(Transactions, HistogramSnapshot)>,
}

impl TransactionRecorder {
    pub(crate) fn record(&mut self, response: Nanos) {
        self.counters.completed += 1;
        self.counters.response += response.0;
        self.response.record(response);
    }

    pub(crate) fn tick(&mut self) {
        self.series.push(since(self.counters, self.at_tick));
        self.at_tick = self.counters;
    }

    pub(crate) fn mark(&mut self) {
        self.marks.push((self.counters, self.response.snapshot()));
    }

    pub(crate) fn finish(mut self, name: String, plan: &Plan) -> Application {
        self.mark();
        let nothing = (Transactions::default(), HistogramSnapshot::default());
        let whole = transactions("", Nanos::ZERO, plan.duration, &nothing, self.marks.last());
        let spans = plan.stretches(&self.marks, transactions);
        Application { name, series: self.series, whole, spans }
    }
}

fn since(now: Transactions, earlier: Transactions) -> Transactions {
    Transactions {
        completed: now.completed - earlier.completed,
        response: now.response - earlier.response,
    }
}

type TransactionMark = (Transactions, HistogramSnapshot);

fn transactions(
    name: &str,
    from: Nanos,
    to: Nanos,
    before: &TransactionMark,
    after: Option<&TransactionMark>,
) -> TransactionStretch {
    let after = after.unwrap_or(before);
    TransactionStretch {
        name: name.to_owned(),
        from,
        to,
        counters: since(after.0, before.0),
        response: after.1.since(&before.1),
    }
}
