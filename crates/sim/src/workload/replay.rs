use super::orders::{Issue, Orders, part_of};
use crate::scenario::{Replay, ReplayTiming};
use headgate_devices::IoKind;
use headgate_units::{Bytes, Nanos};

/// One request of a recorded trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When it was issued, on the trace's own clock; never earlier than the record before.
    pub at: Nanos,
    /// What it asked for.
    pub kind: IoKind,
    /// First byte on the disk.
    pub offset: u64,
    /// Length of its range.
    pub bytes: Bytes,
}

/// Where the traces that a scenario names come from.
pub trait Traces {
    /// A trace from its beginning. An item that is an error ends the run with it.
    ///
    /// # Errors
    /// Says why there is no such trace.
    #[allow(clippy::type_complexity)]
    fn open(
        &self,
        name: &str,
    ) -> Result<Box<dyn Iterator<Item = Result<TraceRecord, String>>>, String>;
}

/// For scenarios that name none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTraces;

impl Traces for NoTraces {
    fn open(
        &self,
        name: &str,
    ) -> Result<Box<dyn Iterator<Item = Result<TraceRecord, String>>>, String> {
        Err(format!("this run was given no traces, so '{name}' is not there; say where traces are"))
    }
}

/// What is larger in a trace is taken to be this large, as the schedulers do.
const LARGEST: Bytes = Bytes(u32::MAX as u64);

type Records = Box<dyn Iterator<Item = Result<TraceRecord, String>>>;

/// Plays a trace.
pub(crate) struct Player {
    disk: usize,
    timing: ReplayTiming,
    /// In a closed loop: how many it keeps outstanding now, and how many it has.
    wanted: u32,
    running: u32,
    repeat: bool,
    /// Read once, kept to be played again; empty unless it repeats.
    kept: Vec<TraceRecord>,
    replayed: usize,
    records: Option<Records>,
    next: Option<TraceRecord>,
    /// The simulated time of the trace's time zero.
    begins: Nanos,
    /// The trace's first time.
    first: Option<Nanos>,
}

impl Player {
    pub(crate) fn new(disk: usize, replay: &Replay, records: Records) -> Player {
        Player {
            disk,
            timing: replay.timing,
            wanted: match replay.timing {
                ReplayTiming::Closed { outstanding } => outstanding,
                ReplayTiming::Recorded { .. } => 0,
            },
            running: 0,
            repeat: replay.repeat,
            kept: Vec::new(),
            replayed: 0,
            records: Some(records),
            next: None,
            begins: Nanos::ZERO,
            first: None,
        }
    }

    /// Goes on where it stopped.
    pub(crate) fn start(&mut self, now: Nanos, orders: &mut Orders) {
        if self.next.is_none() {
            self.next = self.read(orders);
        }
        let Some(next) = self.next else { return };
        self.first = Some(next.at);
        self.begins = now;
        match self.timing {
            ReplayTiming::Recorded { .. } => self.play(now, orders),
            ReplayTiming::Closed { .. } => {
                self.running = self.wanted;
                for _ in 0..self.wanted {
                    self.take(now, orders);
                }
            }
        }
    }

    /// A closed loop has so many per cent of what it has at most from now on.
    pub(crate) fn scale(&mut self, now: Nanos, percent: u64, orders: &mut Orders) {
        let ReplayTiming::Closed { outstanding } = self.timing else { return };
        self.wanted = part_of(outstanding, percent);
        while self.running < self.wanted {
            self.running += 1;
            self.take(now, orders);
        }
    }

    pub(crate) fn timer(&mut self, now: Nanos, orders: &mut Orders) {
        self.play(now, orders);
    }

    pub(crate) fn completed(&mut self, now: Nanos, orders: &mut Orders) {
        if matches!(self.timing, ReplayTiming::Recorded { .. }) {
            return;
        }
        if self.running > self.wanted {
            self.running -= 1;
        } else {
            self.take(now, orders);
        }
    }

    /// Issues all that is due, and asks to be called for the next.
    fn play(&mut self, now: Nanos, orders: &mut Orders) {
        while let Some(next) = self.next {
            let due = self.due(next);
            if due > now {
                orders.timers.push((due, 0));
                return;
            }
            self.take(now, orders);
        }
    }

    fn due(&self, record: TraceRecord) -> Nanos {
        let ReplayTiming::Recorded { speed_percent } = self.timing else { return Nanos::ZERO };
        let after = u128::from((record.at - self.first.unwrap_or_default()).0) * 100;
        let after = after / u128::from(speed_percent.max(1));
        self.begins + Nanos(u64::try_from(after).unwrap_or(u64::MAX))
    }

    fn take(&mut self, now: Nanos, orders: &mut Orders) {
        let Some(record) = self.next.take() else { return };
        let TraceRecord { kind, offset, bytes, .. } = record;
        let bytes = bytes.min(LARGEST);
        orders.issues.push(Issue { disk: self.disk, kind, offset, bytes, tag: 0 });
        self.next = self.read(orders);
        if self.next.is_none() && self.repeat && !self.kept.is_empty() {
            self.replayed = 0;
            self.next = self.read(orders);
            // A moment after the last of this round: a trace without length would never end
            // otherwise.
            self.begins = now + Nanos(1_000);
            self.first = self.next.map(|next| next.at);
        }
    }

    fn read(&mut self, orders: &mut Orders) -> Option<TraceRecord> {
        if let Some(records) = &mut self.records {
            match records.next() {
                Some(Ok(record)) => {
                    if self.repeat {
                        self.kept.push(record);
                    }
                    return Some(record);
                }
                Some(Err(why)) => orders.failure = Some(why),
                None => {}
            }
            self.records = None;
            self.replayed = self.kept.len();
            return None;
        }
        let record = self.kept.get(self.replayed).copied();
        self.replayed += 1;
        record
    }
}
