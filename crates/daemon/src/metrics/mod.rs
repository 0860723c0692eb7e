//! Metrics in the OpenMetrics text format, made out of the shards' counters at every scrape.

mod copies;
mod costs;
mod flash;
mod fleet;
mod format;
mod info;
mod moves;
mod nbd;
mod policy;
mod servers;
mod shards;
mod trouble;
mod waits;

pub use format::Format;

use headgate_api::copies::{Copy, CopyState};
use headgate_api::fleet::Hosts;
use headgate_api::latency::Verdict;
use headgate_api::moves::{Move, MoveOutcome};
use headgate_api::priorities::Priorities;
use headgate_api::top::Top;
use headgate_api::types::{Datastore, Disk, Host, ServiceState, Vm};
use headgate_api::windows::{BoardStatus, FollowingState, WindowNow};
use headgate_control::{Control, ControlError};
use headgate_model::ConnectionState;
use headgate_model::DatastoreSample;
use headgate_model::Name;
use headgate_model::NbdSample;
use headgate_model::ShardWaits;
use headgate_model::StreamSample;
use headgate_placement::DeviceModel;
use headgate_stats::{COST_OF_ONE_IO, DirectionSnapshot, DiskSnapshot, HistogramSnapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;

/// Upper edges of the latency buckets, in microseconds.
const EDGES_MICROS: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000,
];

/// Priorities are counted in these bands, named by their edges: a guest can have 254, and every
/// label costs the reader. The middle one is the default priority's.
const BANDS: [(u8, u8); 9] = [
    (1, 25),
    (26, 50),
    (51, 75),
    (76, 99),
    (100, 100),
    (101, 125),
    (126, 150),
    (151, 197),
    (198, 254),
];

/// A band's label.
fn band(edges: (u8, u8)) -> String {
    match edges {
        (low, high) if low == high => low.to_string(),
        (low, high) => format!("{low}-{high}"),
    }
}

type Labels = Vec<(&'static str, String)>;

/// Everything at one instant.
#[derive(Debug)]
struct Scrape {
    samples: Vec<DatastoreSample>,
    datastores: Vec<Datastore>,
    disks: Vec<Disk>,
    vms: Vec<Vm>,
    moves_waiting: usize,
    has_stopped: bool,
    top: Top,
    host: Host,
    stalled_shards: usize,
    shards: Vec<ShardWaits>,
    leases_lost: u64,
    etcd_answers: Option<bool>,
    models: BTreeMap<Name, DeviceModel>,
    nbd: Option<NbdSample>,
    moves: Vec<Move>,
    moves_ended: Vec<(MoveOutcome, u64)>,
    copies: Vec<Copy>,
    copies_ended: [(CopyState, u64); 3],
    hosts: Hosts,
}

/// The metrics now, as OpenMetrics.
///
/// # Errors
/// When a shard does not answer.
pub fn render(control: &Control, top: Top, hosts: Hosts) -> Result<String, ControlError> {
    let samples = control.sample()?;
    let disks = control.disks_at(&samples);
    let (vms, moves_waiting) = (control.vms_of(&disks), control.moves_waiting());
    let has_stopped = control.rules().automatic.stopped.is_some();
    let (leases_lost, etcd_answers) = (control.leases().lost(), control.leases().etcd_answers());
    let (datastores, host) = (control.datastores(), control.host());
    let models = control.samples().known().models.clone();
    let (nbd, moves, moves_ended) = (control.nbd(), control.moves(), control.moves_ended());
    let (copies, copies_ended) = (control.copies(), control.copies_ended());
    let (stalled_shards, shards) = (control.stalls().len(), control.waits());
    let scrape = Scrape {
        samples,
        datastores,
        disks,
        vms,
        moves_waiting,
        has_stopped,
        top,
        host,
        stalled_shards,
        shards,
        leases_lost,
        etcd_answers,
        models,
        nbd,
        moves,
        moves_ended,
        copies,
        copies_ended,
        hosts,
    };
    Ok(scrape.render())
}

impl Scrape {
    fn render(self) -> String {
        let mut registry = Registry::with_prefix("headgate");
        registry.register_collector(Box::new(self));
        let mut out = String::new();
        text::encode(&mut out, &registry).expect("writing to a string does not fail");
        out
    }

    /// Labels and counters of every datastore or of every disk.
    fn subjects(&self, of: Of) -> Vec<(Labels, &DiskSnapshot)> {
        let mut all = Vec::new();
        for store in &self.samples {
            let datastore = ("datastore", store.name.to_string());
            match of {
                Of::Datastore => all.push((vec![datastore], &store.stats)),
                Of::Disk => {
                    all.extend(store.disks.iter().map(|d| {
                        (vec![datastore.clone(), ("disk", d.name.to_string())], &*d.counted)
                    }))
                }
            }
        }
        all
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Datastore,
    Disk,
}

impl Of {
    fn prefix(self) -> &'static str {
        match self {
            Of::Datastore => "datastore",
            Of::Disk => "disk",
        }
    }
}

struct Writer<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Writer<'_> {
    fn family(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        mut each: impl FnMut(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, kind)?;
        each(&mut metric)
    }

    fn counters(&mut self, name: &str, help: &str, values: &[(Labels, f64)]) -> fmt::Result {
        self.family(name, help, MetricType::Counter, |metric| {
            for (labels, value) in values {
                let exemplar: Option<&Exemplar<Labels, f64>> = None;
                metric.encode_family(labels)?.encode_counter(value, exemplar)?;
            }
            Ok(())
        })
    }

    fn gauges(&mut self, name: &str, help: &str, values: &[(Labels, f64)]) -> fmt::Result {
        if values.is_empty() {
            return Ok(());
        }
        self.family(name, help, MetricType::Gauge, |metric| {
            for (labels, value) in values {
                metric.encode_family(labels)?.encode_gauge(value)?;
            }
            Ok(())
        })
    }

    fn histograms(
        &mut self,
        name: &str,
        help: &str,
        values: &[(Labels, &HistogramSnapshot)],
    ) -> fmt::Result {
        self.family(name, help, MetricType::Histogram, |metric| {
            for (labels, histogram) in values {
                let sum = histogram.sum() as f64 / 1e9;
                metric.encode_family(labels)?.encode_histogram::<Labels>(
                    sum,
                    histogram.count(),
                    &buckets(histogram),
                    None,
                )?;
            }
            Ok(())
        })
    }
}

/// Counts between our edges. A bucket of the histogram counts where its upper edge lies, so that no
/// latency is shown too low; ours are at most 3.2 % off.
fn buckets(histogram: &HistogramSnapshot) -> Vec<(f64, u64)> {
    let edges = EDGES_MICROS.iter().map(|micros| (*micros as f64 / 1e6, micros * 1_000));
    let mut buckets: Vec<(f64, u64, u64)> =
        edges.map(|(seconds, nanos)| (seconds, nanos, 0)).collect();
    buckets.push((f64::INFINITY, u64::MAX, 0));
    for (upper, count) in histogram.buckets() {
        let at = buckets.partition_point(|(_, edge, _)| *edge < upper.0);
        if let Some((.., n)) = buckets.get_mut(at) {
            *n += count;
        }
    }
    buckets.into_iter().map(|(seconds, _, count)| (seconds, count)).collect()
}

/// A counter: its name, its help, and how to read it.
type Counter = (&'static str, &'static str, fn(&DiskSnapshot) -> f64);

const COUNTERS: &[Counter] = &[
    ("read_ops", "Reads completed", |s| s.reads.counts.done as f64),
    ("write_ops", "Writes completed", |s| s.writes.counts.done as f64),
    ("flush_ops", "Flushes completed", |s| s.flushes.done as f64),
    ("discard_ops", "Discards completed", |s| s.discards.done as f64),
    ("write_zeroes_ops", "Write-zeroes completed", |s| s.write_zeroes.done as f64),
    ("read_bytes", "Bytes read", |s| s.reads.counts.bytes as f64),
    ("written_bytes", "Bytes written", |s| s.writes.counts.bytes as f64),
    ("discarded_bytes", "Bytes discarded", |s| s.discards.bytes as f64),
    ("errors", "Requests that failed", |s| {
        let kinds =
            [s.reads.counts, s.writes.counts, s.flushes, s.discards, s.write_zeroes, s.others];
        kinds.iter().map(|counts| counts.errors).sum::<u64>() as f64
    }),
    ("reservation_ios", "Requests dispatched because a reservation was due", |s| {
        s.served.reservation_ios as f64
    }),
    ("weight_ios", "Requests dispatched by shares", |s| s.served.weight_ios as f64),
    ("normalised_ios", "IOs dispatched, by size, as reservations and limits count them", |s| {
        (s.served.reservation_cost + s.served.weight_cost) as f64 / COST_OF_ONE_IO as f64
    }),
    (
        "outstanding_request_seconds",
        "Requests outstanding, those that wait included, integrated over time",
        |s| s.outstanding_time as f64 / 1e9,
    ),
];

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Writer { encoder };
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        out.gauges("build_info", "The daemon's version, in a label", &[(version, 1.0)])?;
        let host = vec![("name", self.host.name.clone()), ("id", self.host.id.clone())];
        out.gauges("host_info", "This host as others see it, in labels", &[(host, 1.0)])?;
        self.encode_info(&mut out)?;
        for of in [Of::Datastore, Of::Disk] {
            let (prefix, subjects) = (of.prefix(), self.subjects(of));
            for (name, help, read) in COUNTERS {
                let values: Vec<_> =
                    subjects.iter().map(|(labels, s)| (labels.clone(), read(s))).collect();
                out.counters(&format!("{prefix}_{name}"), help, &values)?;
            }
            type Part = fn(&DirectionSnapshot) -> &HistogramSnapshot;
            let parts: [(&str, &str, Part); 2] = [
                ("queue_seconds", "From a request's arrival to its dispatch", |d| &d.queue),
                ("device_seconds", "From a request's dispatch to its completion", |d| &d.device),
            ];
            for (name, help, part) in parts {
                let mut values = Vec::new();
                for (labels, stats) in &subjects {
                    for (op, direction) in [("read", &stats.reads), ("write", &stats.writes)] {
                        let mut labels = labels.clone();
                        labels.push(("op", op.to_owned()));
                        values.push((labels, part(direction)));
                    }
                }
                out.histograms(&format!("{prefix}_{name}"), help, &values)?;
            }
        }
        self.encode_priorities(&mut out)?;
        self.encode_datastores(&mut out)?;
        self.encode_shards(&mut out)?;
        self.encode_trouble(&mut out)?;
        self.encode_waits(&mut out)?;
        self.encode_space(&mut out)?;
        self.encode_leases(&mut out)?;
        self.encode_nbd(&mut out)?;
        self.encode_servers(&mut out)?;
        self.encode_moves(&mut out)?;
        self.encode_balance(&mut out)?;
        self.encode_copies(&mut out)?;
        self.encode_flash(&mut out)?;
        self.encode_fleet(&mut out)?;
        self.encode_disks(&mut out)
    }
}

fn up(state: ServiceState) -> Option<f64> {
    Some(if state == ServiceState::Serving { 1.0 } else { 0.0 })
}

impl Scrape {
    /// By bands of final priorities; bands that got nothing yet are left out.
    fn encode_priorities(&self, out: &mut Writer<'_>) -> fmt::Result {
        let counted = |read: fn(&StreamSample) -> f64| -> Vec<(Labels, f64)> {
            let mut values = Vec::new();
            for store in &self.samples {
                for disk in &store.disks {
                    for edges in BANDS {
                        let within =
                            |s: &&StreamSample| (edges.0..=edges.1).contains(&s.priority.get());
                        let sum: f64 = disk.streams.iter().filter(within).map(read).sum();
                        if sum > 0.0 {
                            let labels = vec![
                                ("datastore", store.name.to_string()),
                                ("disk", disk.name.to_string()),
                                ("priority", band(edges)),
                            ];
                            values.push((labels, sum));
                        }
                    }
                }
            }
            values
        };
        let help = "Requests dispatched, by the priority that they counted";
        out.counters("disk_priority_ios", help, &counted(|s| s.ios as f64))?;
        let help = "The same by size, as reservations and limits count them";
        let normalised = counted(|s| s.cost as f64 / COST_OF_ONE_IO as f64);
        out.counters("disk_priority_normalised_ios", help, &normalised)?;
        let gauge = |read: &dyn Fn(&Priorities) -> f64| -> Vec<(Labels, f64)> {
            let labels = |d: &Disk| {
                vec![("datastore", d.datastore.to_string()), ("disk", d.name.to_string())]
            };
            let one = |d: &Disk| Some((labels(d), read(d.effective_priorities.as_ref()?)));
            self.disks.iter().filter_map(one).collect()
        };
        let highest = gauge(&|p| f64::from(p.max_priority.get()));
        out.gauges("disk_max_priority", "The most that a request of the disk counts", &highest)?;
        let default = gauge(&|p| f64::from(p.default_priority.min(p.max_priority).get()));
        out.gauges(
            "disk_default_priority",
            "What a request counts that was given no priority",
            &default,
        )
    }

    fn encode_datastores(&self, out: &mut Writer<'_>) -> fmt::Result {
        let gauge = |read: &dyn Fn(&Datastore) -> Option<f64>| -> Vec<(Labels, f64)> {
            let one = |d: &Datastore| Some((vec![("datastore", d.name.to_string())], read(d)?));
            self.datastores.iter().filter_map(one).collect()
        };
        out.gauges(
            "datastore_up",
            "1 when in service, 0 when it could not be opened",
            &gauge(&|d| up(d.state)),
        )?;
        let capacity = gauge(&|d| d.capacity.as_ref().map(|c| c.iops.get() as f64));
        out.gauges(
            "datastore_capacity_iops",
            "Worst-case random IOs per second; absent while unknown",
            &capacity,
        )?;
        let reserved = gauge(&|d| Some(d.reserved_iops as f64));
        out.gauges(
            "datastore_reserved_iops",
            "Sum of the reservations, in IOs per second",
            &reserved,
        )?;
        let overbooked = gauge(&|d| Some(d.overbooked_iops as f64));
        out.gauges(
            "datastore_overbooked_iops",
            "IOs per second promised beyond what can be kept",
            &overbooked,
        )?;

        let model = |read: &dyn Fn(&DeviceModel) -> f64| -> Vec<(Labels, f64)> {
            let here = self.datastores.iter().filter_map(|d| Some((d, self.models.get(&d.name)?)));
            here.map(|(d, model)| (vec![("datastore", d.name.to_string())], read(model))).collect()
        };
        let help = "How much longer a read takes for each read more at the device, by the last model learnt; absent while there is none";
        out.gauges(
            "datastore_model_slope_seconds",
            help,
            &model(&|m| m.slope.as_picos() as f64 / 1e12),
        )?;
        let help = "Intervals that the last model was learnt from";
        out.gauges("datastore_model_intervals", help, &model(&|m| f64::from(m.points)))?;
        self.encode_windows(out)?;
        let sampled = |read: &dyn Fn(&DatastoreSample) -> f64| -> Vec<(Labels, f64)> {
            self.samples
                .iter()
                .map(|s| (vec![("datastore", s.name.to_string())], read(s)))
                .collect()
        };
        let window = sampled(&|s| s.window.as_f64());
        out.gauges(
            "datastore_window_requests",
            "Requests that may be at the device at once",
            &window,
        )?;
        let smallest = gauge(&|d| Some(f64::from(d.window.min)));
        let help = "The smallest window that latencies may bring about";
        out.gauges("datastore_window_min_requests", help, &smallest)?;
        let narrowed = sampled(&|s| if s.narrowed.is_some() { 1.0 } else { 0.0 });
        let help = "1 while the window is narrowed for a reservation or a latency target";
        out.gauges("datastore_window_narrowed", help, &narrowed)?;
        let in_flight = sampled(&|s| f64::from(s.in_flight));
        out.gauges("datastore_in_flight_requests", "Requests at the device", &in_flight)?;
        let queued = sampled(&|s| s.queued as f64);
        out.gauges("datastore_queued_requests", "Requests waiting in the scheduler", &queued)?;
        self.encode_costs(out)
    }

    fn encode_windows(&self, out: &mut Writer<'_>) -> fmt::Result {
        let gauge = |read: &dyn Fn(&WindowNow) -> Option<f64>| -> Vec<(Labels, f64)> {
            let label = |d: &Datastore| vec![("datastore", d.name.to_string())];
            let of = |d: &Datastore| Some((label(d), read(d.window.now.as_ref()?)?));
            self.datastores.iter().filter_map(of).collect()
        };
        let seconds = |ns: u64| ns as f64 / 1e9;
        let flag = |set: bool| Some(if set { 1.0 } else { 0.0 });
        let beta = gauge(&|w| Some(w.beta));
        let help = "What shares bring the window per period; absent without control";
        out.gauges("datastore_window_beta_requests", help, &beta)?;
        let threshold = gauge(&|w| Some(seconds(w.threshold_ns)));
        out.gauges(
            "datastore_latency_threshold_seconds",
            "The latency that the window is set by",
            &threshold,
        )?;
        let followed = gauge(&|w| w.following.as_ref().map(|f| seconds(f.threshold_ns)));
        let help = "The threshold that follows the storage, without what a trial adds; absent where it was set by hand";
        out.gauges("datastore_followed_threshold_seconds", help, &followed)?;
        let trying = gauge(&|w| flag(w.following.as_ref()?.state == FollowingState::Trying));
        let help = "1 while this host tries whether another threshold would be better";
        out.gauges("datastore_threshold_trial", help, &trying)?;
        let latency = gauge(&|w| w.latency_ns.map(seconds));
        let help =
            "Mean latency of an IO of 8 KiB over all hosts in the last period; absent without IOs";
        out.gauges("datastore_cluster_latency_seconds", help, &latency)?;
        let own = gauge(&|w| w.own_latency_ns.map(seconds));
        out.gauges("datastore_own_latency_seconds", "What this host saw of it", &own)?;
        let held = gauge(&|w| flag(w.held.is_some()));
        let help = "1 while the window stays as it is: no board, no IO, or a calibration";
        out.gauges("datastore_window_held", help, &held)?;
        let hosts = gauge(&|w| Some(f64::from(w.hosts_counted)));
        let help = "Hosts whose word counted in the last period, this one included";
        out.gauges("datastore_hosts", help, &hosts)?;
        let differing = gauge(&|w| Some(f64::from(w.hosts_differing)));
        out.gauges(
            "datastore_hosts_differing",
            "Hosts with another threshold or period",
            &differing,
        )?;
        let readable = gauge(&|w| match w.board {
            BoardStatus::None => None,
            BoardStatus::Starting | BoardStatus::Read => Some(1.0),
            BoardStatus::Unreachable => Some(0.0),
        });
        let help = "1 when the congestion board can be used, 0 when not; absent without one";
        out.gauges("datastore_board_up", help, &readable)?;
        let unreadable =
            gauge(&|w| (w.board != BoardStatus::None).then_some(f64::from(w.board_unreadable)));
        let help = "Places on the board that hold no good report";
        out.gauges("datastore_board_unreadable", help, &unreadable)?;
        let unmanaged = gauge(&|w| flag(w.unmanaged_load.is_some()));
        let help = "1 while the latency stays high although all windows are small: something else loads the storage";
        out.gauges("datastore_unmanaged_load", help, &unmanaged)?;
        let clone = gauge(&|w| flag(w.duplicate_identity.is_some()));
        let help = "1 while another living host claims this host's identity";
        out.gauges("datastore_duplicate_identity", help, &clone)
    }

    fn encode_leases(&self, out: &mut Writer<'_>) -> fmt::Result {
        let held = |d: &Disk| Some(if d.lease.as_ref()?.number.is_some() { 1.0 } else { 0.0 });
        let labels =
            |d: &Disk| vec![("datastore", d.datastore.to_string()), ("disk", d.name.to_string())];
        let values: Vec<_> =
            self.disks.iter().filter_map(|d| Some((labels(d), held(d)?))).collect();
        let help = "1 while this daemon holds the disk's lease, 0 while not; absent where no other host can reach the disk";
        out.gauges("disk_lease_held", help, &values)?;
        let help = "Leases lost to other hosts or to time";
        out.counters("leases_lost", help, &[(Vec::new(), self.leases_lost as f64)])?;
        let answers: Vec<(Labels, f64)> =
            self.etcd_answers.iter().map(|up| (Vec::new(), if *up { 1.0 } else { 0.0 })).collect();
        out.gauges(
            "etcd_up",
            "1 while etcd answers for leases, 0 while not; absent without etcd",
            &answers,
        )
    }

    fn encode_disks(&self, out: &mut Writer<'_>) -> fmt::Result {
        let gauge = |read: &dyn Fn(&Disk) -> Option<f64>| -> Vec<(Labels, f64)> {
            let labels = |d: &Disk| {
                vec![("datastore", d.datastore.to_string()), ("disk", d.name.to_string())]
            };
            self.disks.iter().filter_map(|d| Some((labels(d), read(d)?))).collect()
        };
        let serving = gauge(&|d| up(d.state));
        out.gauges("disk_up", "1 when in service, 0 when it could not be opened", &serving)?;
        let connected = |d: &Disk| {
            Some(if d.connection.as_ref()?.state == ConnectionState::Connected { 1.0 } else { 0.0 })
        };
        let help = "Of a disk on an NBD server: 1 when there is a connection, 0 when requests wait or fail";
        out.gauges("disk_connected", help, &gauge(&connected))?;
        let reconnects = gauge(&|d| Some(d.connection.as_ref()?.reconnects as f64));
        out.counters(
            "disk_reconnects",
            "Connections made after the first one was lost",
            &reconnects,
        )?;
        let losses = gauge(&|d| Some(d.connection.as_ref()?.losses as f64));
        let help =
            "Connections lost while acknowledged writes were not flushed: flushes failed then";
        out.counters("disk_unflushed_losses", help, &losses)?;
        out.gauges("disk_size_bytes", "Size of the disk", &gauge(&|d| Some(d.size.0 as f64)))?;
        out.gauges("disk_clients", "Clients connected", &gauge(&|d| Some(d.clients as f64)))?;
        self.encode_policies(out)?;
        let live =
            |read: &dyn Fn(&headgate_api::top::TopDisk) -> Option<f64>| -> Vec<(Labels, f64)> {
                let disks = self
                    .top
                    .datastores
                    .iter()
                    .flat_map(|store| store.disks.iter().map(move |d| (store, d)));
                let labels = |store: &str, disk: &str| {
                    vec![("datastore", store.to_owned()), ("disk", disk.to_owned())]
                };
                disks
                    .filter_map(|(s, d)| Some((labels(s.name.as_str(), d.name.as_str()), read(d)?)))
                    .collect()
            };
        let in_flight = live(&|d| Some(d.in_flight as f64));
        out.gauges("disk_in_flight_requests", "Requests at the device", &in_flight)?;
        let queued = live(&|d| Some(d.queued as f64));
        out.gauges("disk_queued_requests", "Requests waiting in the scheduler", &queued)?;
        let achieved = live(&|d| d.reservation_achieved);
        let help = "Normalised rate of the last 5 s over the reservation; below 1 also when less was asked for";
        out.gauges("disk_reservation_achieved_ratio", help, &achieved)?;
        let missed =
            live(&|d| d.policy.reservation.map(|_| if d.reservation_missed { 1.0 } else { 0.0 }));
        let help = "1 when requests waited for all of the last 5 s and yet the reservation was missed by over 3 %";
        out.gauges("disk_reservation_missed", help, &missed)?;
        let late = live(&|d| d.latency.map(|now| now.late as f64 / now.requests.max(1) as f64));
        let help = "Part of the reads and writes that took longer than the latency target, of those it was last judged by";
        out.gauges("disk_latency_target_late_ratio", help, &late)?;
        let missed =
            live(&|d| d.latency.map(|now| if now.verdict == Verdict::Met { 0.0 } else { 1.0 }));
        let help = "1 while more of them are late than the latency target allows";
        out.gauges("disk_latency_target_missed", help, &missed)?;
        let depth = live(&|d| d.needed_depth.map(f64::from));
        let help = "Requests that clients have to keep outstanding for the reservation, where they keep fewer and no window helps";
        out.gauges("disk_needed_depth_requests", help, &depth)?;
        let help = "Part of the service of the last 5 s over the part that shares give among busy disks, level by level under tenants and machines";
        out.gauges("disk_share_achieved_ratio", help, &live(&|d| d.share_achieved))
    }
}
