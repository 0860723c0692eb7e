//! Block traces replayed on a device model, in virtual time: what the daemon would have seen.

use headgate_devices::{DEFAULT_CAPACITY, DeviceIo, DeviceModel, IoKind, ModelSpec};
use headgate_placement::{DevicePoint, Filters, Held, WorkloadMeter};
use headgate_report::FileTraces;
use headgate_sim::{TraceRecord, Traces};
use headgate_stats::{COST_OF_ONE_IO, DiskSnapshot, DiskStats, Latency, Op, Outcome, Phase};
use headgate_units::{Bytes, Nanos};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The length of an interval: the daemon's.
const INTERVAL: Nanos = Nanos::from_secs(5);

/// A disk with its trace.
pub(crate) struct Traced {
    pub disk: String,
    pub size: Bytes,
    /// `FILE` or `FILE#DISK`.
    pub trace: String,
}

/// What was seen.
pub(crate) struct Replayed {
    pub disks: BTreeMap<String, WorkloadMeter>,
    pub points: Vec<DevicePoint>,
}

struct Client {
    records: std::iter::Peekable<Box<dyn Iterator<Item = Result<TraceRecord, String>>>>,
    /// Where the disk begins on the device.
    base: u64,
    size: u64,
    stats: DiskStats,
    before: DiskSnapshot,
    meter: WorkloadMeter,
}

struct UnderWay {
    client: usize,
    op: Op,
    bytes: Bytes,
    since: Nanos,
}

fn op(kind: IoKind) -> Op {
    match kind {
        IoKind::Read => Op::Read,
        IoKind::Write => Op::Write,
        IoKind::Flush => Op::Flush,
        IoKind::Discard => Op::Discard,
    }
}

/// Replays all traces at once, at their recorded times, until the last request is answered. Disks
/// lie one after the other. O(n log n) in requests, in memory for those under way.
pub(crate) fn run(
    directory: &Path,
    device: &ModelSpec,
    traced: &[Traced],
) -> Result<Replayed, String> {
    let traces = FileTraces::beside(&directory.join(super::error::POOL));
    let mut device = device.build(DEFAULT_CAPACITY);
    let (mut clients, mut base) = (Vec::new(), 0);
    for disk in traced {
        clients.push(Client {
            records: traces.open(&disk.trace)?.peekable(),
            base,
            size: disk.size.0.max(1),
            stats: DiskStats::new(Nanos::ZERO),
            before: DiskSnapshot::default(),
            meter: WorkloadMeter::new(),
        });
        base += disk.size.0;
    }
    let (mut whole, mut before) = (DiskStats::new(Nanos::ZERO), DiskSnapshot::default());
    let mut under_way: HashMap<u64, UnderWay> = HashMap::new();
    let (mut next_id, mut end, mut points) = (0, INTERVAL, Vec::new());
    loop {
        let mut due: Option<(Nanos, usize)> = None;
        for (index, client) in clients.iter_mut().enumerate() {
            match client.records.peek() {
                Some(Ok(record)) if due.is_none_or(|(at, _)| record.at < at) => {
                    due = Some((record.at, index))
                }
                Some(Err(e)) => return Err(e.clone()),
                _ => {}
            }
        }
        let event = device.next_event().filter(|_| device.in_flight() > 0);
        let now = match (due, event) {
            (Some((at, _)), Some(event)) => at.min(event),
            (Some((at, _)), None) => at,
            (None, Some(event)) => event,
            (None, None) => break,
        };
        while end <= now {
            let snapshot = whole.snapshot(end);
            points.extend(DevicePoint::of(&snapshot.since(&before), Held::No, &Filters::default()));
            before = snapshot;
            for client in &mut clients {
                let snapshot = client.stats.snapshot(end);
                client.meter.record(&snapshot.since(&client.before), Held::No);
                client.before = snapshot;
            }
            end += INTERVAL;
        }
        while let Some(id) = device.poll(now) {
            let Some(UnderWay { client, op, bytes, since }) = under_way.remove(&id) else {
                continue;
            };
            let took = now.since(since);
            let latency = Latency { device: took, total: took };
            for stats in [&mut whole, &mut clients[client].stats] {
                stats.on_complete(now, op, bytes, latency, Outcome::Done);
            }
        }
        if let Some((at, index)) = due.filter(|(at, _)| *at <= now)
            && let Some(Ok(record)) = clients[index].records.next()
        {
            let client = &mut clients[index];
            let offset = client.base + record.offset % client.size;
            for stats in [&mut whole, &mut client.stats] {
                stats.on_arrival(at, op(record.kind), offset, record.bytes);
                stats.on_dispatch(at, op(record.kind), Nanos::ZERO, Phase::Weight, COST_OF_ONE_IO);
            }
            device.submit(at, next_id, DeviceIo { kind: record.kind, offset, bytes: record.bytes });
            let of =
                UnderWay { client: index, op: op(record.kind), bytes: record.bytes, since: at };
            under_way.insert(next_id, of);
            next_id += 1;
        }
    }
    let meters = traced.iter().zip(clients).map(|(disk, client)| (disk.disk.clone(), client.meter));
    Ok(Replayed { disks: meters.collect(), points })
}
