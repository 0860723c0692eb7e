pub(crate) mod flash;
pub(crate) mod pool;
pub(crate) mod sweep;

pub use flash::{FlashTotals, MovedPages};

use headgate_stats::HistogramSnapshot;
use headgate_units::Nanos;
use pool::PoolOutcome;
use serde::Serialize;
use sweep::SweepOutcome;

/// What a run measured. Equal runs give equal outcomes, to the byte when written out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Outcome {
    /// The scenario's name.
    pub scenario: String,
    /// The variant's name.
    pub variant: String,
    /// The seed.
    pub seed: u64,
    /// How long was simulated, in nanoseconds.
    pub duration: Nanos,
    /// Length of one point of the series; the last one may be shorter.
    pub interval: Nanos,
    /// Events that were simulated: requests issued, dispatched and completed, messages, timers.
    pub events: u64,
    /// VMs, then datastores, in the order of the file; disks and workloads follow their VM where it
    /// has several, nodes their datastore where it has several or schedules there; then hosts where
    /// there are several.
    pub subjects: Vec<Subject>,
    /// Workloads that count transactions.
    pub applications: Vec<Application>,
    /// Hosts' windows at datastores where they are of interest, in the order in which the VMs use
    /// them.
    pub issue_windows: Vec<HostWindow>,
    /// Pages that flash drives moved, by writer and owner, over the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_pages: Option<MovedPages>,
    /// The outcome of the pool, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolOutcome>,
    /// What write-back caches answered, of datastores that have any, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<Cached>,
    /// Points of sweeps, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sweeps: Vec<SweepOutcome>,
}

impl Outcome {
    /// The subject of that name.
    pub fn subject(&self, name: &str) -> Option<&Subject> {
        self.subjects.iter().find(|subject| subject.name == name)
    }

    /// The application of that name: `VM/WORKLOAD`, or just the VM's where it has one.
    pub fn application(&self, name: &str) -> Option<&Application> {
        self.applications.iter().find(|application| application.name == name)
    }

    /// The window of that name: `HOST`, or `HOST/DATASTORE` where hosts have several.
    pub fn issue_window(&self, name: &str) -> Option<&HostWindow> {
        self.issue_windows.iter().find(|window| window.name == name)
    }

    /// When the point `index` of a series begins and ends.
    pub fn point(&self, index: usize) -> (Nanos, Nanos) {
        let edge = |n: usize| Nanos(self.interval.0.saturating_mul(n as u64)).min(self.duration);
        (edge(index), edge(index + 1))
    }
}

/// What the write-back cache of a datastore did over the whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Cached {
    /// The datastore.
    pub datastore: String,
    /// Reads and writes that it answered without waiting for a disk.
    pub requests: u64,
}

/// The kind of a [`Subject`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubjectKind {
    /// All disks of a VM.
    Vm,
    /// One of several disks of a VM: `VM/DISK`.
    Disk,
    /// One of several workloads of a VM: `VM/WORKLOAD`.
    Workload,
    /// All requests to a datastore, as hosts see them.
    Datastore,
    /// One node of a datastore, as its requests see it from their arrival there: `DATASTORE/NODE`.
    Node,
    /// All disks of a host's VMs.
    Host,
}

/// One thing that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Subject {
    /// What it is.
    pub kind: SubjectKind,
    /// Its name, unique in an outcome.
    pub name: String,
    /// One entry for each interval.
    pub series: Vec<Counters>,
    /// The whole run.
    pub whole: Stretch,
    /// The scenario's spans, in its order.
    #[serde(rename = "windows")]
    pub spans: Vec<Stretch>,
}

/// Counters over some time: sums, so that intervals can be added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Counters {
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that were not issued because too many waited.
    pub dropped: u64,
    /// Requests that completed.
    pub completed: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Their times from arrival to completion, in nanoseconds.
    pub latency: u64,
    /// The part of it from arrival to dispatch by the host.
    pub queue: u64,
    /// Requests outstanding, integrated over time, in request-nanoseconds.
    pub outstanding: u64,
    /// Requests dispatched by reservation.
    pub by_reservation: u64,
    /// Requests dispatched by shares.
    pub by_weight: u64,
    /// Cost of dispatched requests, in millionths of normalised IOs.
    pub cost: u64,
    /// Comparisons of tags by the hosts' schedulers for what was dispatched.
    pub comparisons: u64,
    /// Requests to one of several nodes with schedulers, but for the first to each.
    pub told: u64,
    /// Error of the service elsewhere that they reported to the node, in millionths of IOs.
    pub told_error: u64,
    /// Those of them that were off by more than one IO for each other node.
    pub told_wrong: u64,
    /// Counters of flash drives, if there are any.
    #[serde(skip_serializing_if = "FlashTotals::is_nothing")]
    pub flash: FlashTotals,
}

impl Counters {
    fn each(self, other: &Counters, f: impl Copy + Fn(u64, u64) -> u64) -> Counters {
        Counters {
            arrived: f(self.arrived, other.arrived),
            dropped: f(self.dropped, other.dropped),
            completed: f(self.completed, other.completed),
            bytes: f(self.bytes, other.bytes),
            latency: f(self.latency, other.latency),
            queue: f(self.queue, other.queue),
            outstanding: f(self.outstanding, other.outstanding),
            by_reservation: f(self.by_reservation, other.by_reservation),
            by_weight: f(self.by_weight, other.by_weight),
            cost: f(self.cost, other.cost),
            comparisons: f(self.comparisons, other.comparisons),
            told: f(self.told, other.told),
            told_error: f(self.told_error, other.told_error),
            told_wrong: f(self.told_wrong, other.told_wrong),
            flash: self.flash.each(&other.flash, f),
        }
    }

    /// The difference from `earlier`.
    pub fn since(self, earlier: &Counters) -> Counters {
        self.each(earlier, u64::saturating_sub)
    }

    /// Both together.
    pub fn plus(self, other: &Counters) -> Counters {
        self.each(other, u64::saturating_add)
    }

    /// Mean time from arrival to completion; `None` when nothing completed.
    pub fn mean_latency(&self) -> Option<Nanos> {
        self.latency.checked_div(self.completed).map(Nanos)
    }

    /// Mean time in the host's queue, of what completed.
    pub fn mean_queue(&self) -> Option<Nanos> {
        self.queue.checked_div(self.completed).map(Nanos)
    }

    /// Mean time from dispatch to completion.
    pub fn mean_device(&self) -> Option<Nanos> {
        (self.latency - self.queue.min(self.latency)).checked_div(self.completed).map(Nanos)
    }

    /// Completions per second, over a time of `length`.
    pub fn iops(&self, length: Nanos) -> f64 {
        per_second(self.completed as f64, length)
    }

    /// Bytes completed per second.
    pub fn bytes_per_sec(&self, length: Nanos) -> f64 {
        per_second(self.bytes as f64, length)
    }

    /// Normalised IOs dispatched per second.
    pub fn normalised_iops(&self, length: Nanos) -> f64 {
        per_second(self.cost as f64 / 1e6, length)
    }

    /// Mean number outstanding.
    pub fn mean_outstanding(&self, length: Nanos) -> f64 {
        per_second(self.outstanding as f64 / 1e9, length)
    }

    /// Dispatches by reservation per second.
    pub fn reservation_iops(&self, length: Nanos) -> f64 {
        per_second(self.by_reservation as f64, length)
    }

    /// Comparisons of tags for each dispatch; `None` when nothing was dispatched.
    pub fn comparisons_each(&self) -> Option<f64> {
        let dispatched = self.by_reservation + self.by_weight;
        (dispatched > 0).then(|| self.comparisons as f64 / dispatched as f64)
    }

    /// Mean error, in IOs, of the service elsewhere that was reported to a node; `None` without
    /// reports.
    pub fn mean_told_error(&self) -> Option<f64> {
        (self.told > 0).then(|| self.told_error as f64 / 1e6 / self.told as f64)
    }

    /// Dispatches by shares per second.
    pub fn weight_iops(&self, length: Nanos) -> f64 {
        per_second(self.by_weight as f64, length)
    }
}

pub(crate) fn per_second(amount: f64, length: Nanos) -> f64 {
    if length == Nanos::ZERO { 0.0 } else { amount / length.as_secs_f64() }
}

/// A stretch of time in full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Stretch {
    /// The span's name; empty for the whole run.
    pub name: String,
    /// Its beginning.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
    /// Sums.
    pub counters: Counters,
    /// Times from arrival to completion.
    pub latency: HistogramSnapshot,
    /// Times from arrival to dispatch.
    pub queue: HistogramSnapshot,
    /// Times from dispatch to completion.
    pub device: HistogramSnapshot,
}

impl Stretch {
    /// How long it is.
    pub fn length(&self) -> Nanos {
        self.to - self.from
    }

    /// Completions per second.
    pub fn iops(&self) -> f64 {
        self.counters.iops(self.length())
    }
}

/// Transactions of one workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Application {
    /// `VM/WORKLOAD`, or just the VM's name where it has one workload.
    pub name: String,
    /// One entry for each interval.
    pub series: Vec<Transactions>,
    /// The whole run.
    pub whole: TransactionStretch,
    /// The scenario's spans.
    #[serde(rename = "windows")]
    pub spans: Vec<TransactionStretch>,
}

/// Transactions over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Transactions {
    /// How many ended.
    pub completed: u64,
    /// Their response times, in nanoseconds.
    pub response: u64,
}

/// Transactions of a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct TransactionStretch {
    /// The span's name; empty for the whole run.
    pub name: String,
    /// Its beginning.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
    /// Sums.
    pub counters: Transactions,
    /// Response times.
    pub response: HistogramSnapshot,
}

/// How many requests a host might have outstanding at a datastore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct HostWindow {
    /// `HOST`, or `HOST/DATASTORE` where hosts have several.
    pub name: String,
    /// One entry for each interval.
    pub series: Vec<WindowCounters>,
    /// The whole run.
    pub whole: WindowStretch,
    /// The scenario's spans.
    #[serde(rename = "windows")]
    pub spans: Vec<WindowStretch>,
}

/// A window and the inputs of its controller, integrated over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct WindowCounters {
    /// Its size, in request-nanoseconds.
    pub window: u64,
    /// β, in slot-nanoseconds; 0 where windows are fixed.
    pub beta: u64,
    /// The latency that the controller followed, in thousands of square nanoseconds.
    pub latency: u64,
    /// The time for which it followed one, in nanoseconds.
    pub known: u64,
    /// The threshold that the controller acted by meanwhile, in thousands of square nanoseconds.
    pub threshold: u64,
    /// For how long it said that something loads the storage which no window controls, in
    /// nanoseconds.
    pub unmanaged: u64,
}

impl WindowCounters {
    fn each(self, other: &WindowCounters, f: impl Fn(u64, u64) -> u64) -> WindowCounters {
        WindowCounters {
            window: f(self.window, other.window),
            beta: f(self.beta, other.beta),
            latency: f(self.latency, other.latency),
            known: f(self.known, other.known),
            threshold: f(self.threshold, other.threshold),
            unmanaged: f(self.unmanaged, other.unmanaged),
        }
    }

    /// The difference from `earlier`.
    pub fn since(self, earlier: &WindowCounters) -> WindowCounters {
        self.each(earlier, u64::saturating_sub)
    }

    /// Both together.
    pub fn plus(self, other: &WindowCounters) -> WindowCounters {
        self.each(other, u64::saturating_add)
    }

    /// The mean size, over a time of `length`.
    pub fn mean_window(&self, length: Nanos) -> f64 {
        per_second(self.window as f64 / 1e9, length)
    }

    /// The mean of β.
    pub fn mean_beta(&self, length: Nanos) -> f64 {
        per_second(self.beta as f64 / 1e9, length)
    }

    /// The mean threshold that the controller acted by; `None` if it followed no latency.
    pub fn mean_threshold(&self) -> Option<Nanos> {
        let mean = u128::from(self.threshold) * 1_000 / u128::from(self.known.max(1));
        (self.known > 0).then(|| Nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// The mean latency that the controller followed; `None` if it followed none.
    pub fn mean_latency(&self) -> Option<Nanos> {
        let mean = (u128::from(self.latency) * 1_000).checked_div(u128::from(self.known))?;
        Some(Nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// The part of the time in which it said that something uncontrolled loads the storage.
    pub fn unmanaged_part(&self, length: Nanos) -> f64 {
        per_second(self.unmanaged as f64 / 1e9, length)
    }
}

/// A window over a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct WindowStretch {
    /// The stretch's name; empty for the whole run.
    pub name: String,
    /// Its beginning.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
    /// Sums.
    pub counters: WindowCounters,
}
