//! The observer: samples the shards' counters once a second and computes the rates between samples.

mod span;

use crate::shares::{Sharer, due_by_shares};
use crate::trouble_log::TroubleLog;
use headgate_api::blame::Blame;
use headgate_api::moves::MoveState;
use headgate_api::top::{LatencyMicros, Load, Top, TopDatastore, TopDisk, TopStream};
use headgate_api::types::{Datastore, Disk};
use headgate_control::{Control, DiskConditions, GroupsOfMachines};
use headgate_events::{Condition, ConditionKind, Conditions, Subject};
use headgate_model::Name;
use headgate_model::{DatastoreSample, DiskSample, Scheduler, StreamSample};
use headgate_stats::{DirectionSnapshot, DiskSnapshot, HistogramSnapshot, Rates};
use headgate_units::Nanos;
use span::{Span, disk};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// Distance of two samples.
const PERIOD: Duration = Duration::from_secs(1);

/// Samples that are kept: promises are judged from the oldest to the newest, five periods.
const KEPT: usize = 6;

/// Loads are shown over this many periods.
const SHOWN: usize = 2;

/// Priorities that are shown of a disk: a guest can have 254.
const STREAMS: usize = 16;

/// A reservation counts as missed below this part of it, in per cent.
const HELD_PERCENT: u64 = 97;

type Sample = Vec<DatastoreSample>;

#[derive(Default)]
struct History(VecDeque<Arc<Sample>>);

impl History {
    fn push(&mut self, sample: Arc<Sample>) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }
}

/// What is configured, and what it does.
pub struct Seen {
    /// The datastores.
    pub datastores: Vec<Datastore>,
    /// The disks.
    pub disks: Vec<Disk>,
    /// What they do, without moves and copies.
    pub top: Top,
}

/// Takes samples on a thread of its own until dropped.
pub struct Observer {
    control: Arc<Control>,
    history: Arc<RwLock<History>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Observer {
    /// Starts sampling.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(control: Arc<Control>) -> std::io::Result<Observer> {
        let history = Arc::new(RwLock::new(History::default()));
        let (stop, stopped) = channel();
        let thread = {
            let (control, history) = (control.clone(), history.clone());
            std::thread::Builder::new().name("headgate-observe".into()).spawn(move || {
                let mut troubles = TroubleLog::default();
                let mut conditions = Conditions::default();
                let mut of_disks = DiskConditions::default();
                loop {
                    match control.sample() {
                        Ok(sample) => {
                            let sample = Arc::new(sample);
                            control.samples().record(&sample);
                            control.record_service(&sample);
                            control.see_progress(&sample);
                            troubles.see(&sample);
                            history.write().unwrap_or_else(PoisonError::into_inner).push(sample);
                        }
                        Err(e) => tracing::warn!(error = %e, "no statistics"),
                    }
                    tell_conditions(&control, &history, &mut of_disks, &mut conditions);
                    if stopped.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            })?
        };
        Ok(Observer { control, history, stop: Some(stop), thread: Some(thread) })
    }

    /// What is configured, and what it does, as of the last sample.
    pub fn seen(&self) -> Seen {
        let history: Vec<Arc<Sample>> =
            self.history.read().unwrap_or_else(PoisonError::into_inner).0.iter().cloned().collect();
        let disks = self.control.disks_at(history.last().map_or(&[], |sample| sample));
        let datastores = self.control.datastores();
        let top = view(&datastores, &disks, &self.control.groups_of_machines(), &history);
        Seen { datastores, disks, top }
    }

    /// The live view, as of the last sample: at most a second old.
    pub fn top(&self) -> Top {
        let Seen { mut top, .. } = self.seen();
        top.moves = self.control.moves();
        top.moves.retain(|one| one.state != MoveState::Ended);
        top.tenants = self.control.machines_of_tenants();
        top.copies = self.control.copies();
        top.copies.retain(|one| !one.state.is_over());
        top.imports = self.control.imports();
        top
    }

    /// What a disk's requests waited for, and behind whom, over the last five seconds.
    pub fn blame(&self, name: &Name) -> Option<Blame> {
        let history = self.history.read().unwrap_or_else(PoisonError::into_inner);
        let of_disk = |sample: &Arc<Sample>| {
            let store = sample.iter().find(|store| disk(store, name).is_some())?;
            Some((store.name.clone(), disk(store, name)?.clone()))
        };
        let seen: Vec<(Name, DiskSample)> = history.0.iter().filter_map(of_disk).collect();
        let (datastore, now) = seen.last()?;
        let (_, oldest) = seen.iter().find(|(on, _)| on == datastore)?;
        blame(oldest, now)
    }
}

/// Tells what begins to be wrong, and what is over.
fn tell_conditions(
    control: &Control,
    history: &RwLock<History>,
    of_disks: &mut DiskConditions,
    known: &mut Conditions,
) {
    let kept: Vec<Arc<Sample>> =
        history.read().unwrap_or_else(PoisonError::into_inner).0.iter().cloned().collect();
    let Some(last) = kept.last() else { return };
    let mut standing = control.conditions();
    standing.extend_from_slice(of_disks.see(last));
    standing.extend(missed(&kept));
    standing.extend(control.stalls().into_iter().map(|stall| Condition {
        kind: ConditionKind::Stalled,
        object: Subject::new("shard", stall.shard.to_string()),
        disks: Vec::new(),
        why: Some(stall.reason),
    }));
    let now = last.iter().map(|store| store.stats.at).max().unwrap_or(Nanos::ZERO);
    for entry in known.see(now, standing, |subject| control.has(subject)) {
        control.note(entry);
    }
}

/// Reservations that are missed.
fn missed(history: &[Arc<Sample>]) -> Vec<Condition> {
    let mut found = Vec::new();
    let Some(last) = history.last() else { return found };
    for store in last.iter() {
        // Most have nothing queued.
        if store.queued == 0 {
            continue;
        }
        let Some(span) = Span::of(history, &store.name) else { continue };
        for disk in span.disks().filter(|disk| disk.now.queued > 0) {
            let Some(reservation) = disk.now.policy.reservation else { continue };
            if let Some(iops) = disk.missed(reservation) {
                let why = format!("{iops:.0} of {reservation} normalised IOs per second");
                let kind = ConditionKind::Missed;
                found.push(Condition::of_disk(kind, disk.now.name.as_str(), Some(why)));
            }
        }
    }
    found
}

impl Drop for Observer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Queue times of reads and writes together between two samples; or device times.
fn both(
    before: &DiskSnapshot,
    after: &DiskSnapshot,
    part: impl Fn(&DirectionSnapshot) -> &HistogramSnapshot,
) -> Option<LatencyMicros> {
    let mut all = part(&after.reads).since(part(&before.reads));
    all.merge(&part(&after.writes).since(part(&before.writes)));
    let micros = |permille| all.at_permille(permille).map(|nanos: Nanos| nanos.0.div_ceil(1_000));
    Some(LatencyMicros { p50: micros(500)?, p99: micros(990)? })
}

fn load(rates: Rates, before: &DiskSnapshot, after: &DiskSnapshot) -> Load {
    Load {
        iops: rates.iops,
        normalised_iops: rates.normalised_iops,
        bytes_per_sec: rates.bytes_per_sec,
        read_fraction: rates.read_fraction,
        outstanding: rates.outstanding,
        errors: rates.errors,
        queue_micros: both(before, after, |d| &d.queue),
        device_micros: both(before, after, |d| &d.device),
    }
}

/// What each priority did between two samples: those with the most, at most [`STREAMS`], the
/// highest priority first.
fn streams(before: &DiskSample, now: &DiskSample) -> Vec<TopStream> {
    let seconds = now.at().since(before.at()).0 as f64 / 1e9;
    let moved = |now: &StreamSample| {
        let old = before.streams.iter().find(|old| old.priority == now.priority);
        let ios = now.ios.saturating_sub(old.map_or(0, |old| old.ios));
        (now.priority, ios, now.cost.saturating_sub(old.map_or(0, |old| old.cost)))
    };
    let mut moved: Vec<_> = now.streams.iter().map(moved).filter(|(_, ios, _)| *ios > 0).collect();
    let whole: u64 = moved.iter().map(|(.., cost)| cost).sum();
    if seconds <= 0.0 || whole == 0 {
        return Vec::new();
    }
    moved.sort_by_key(|(.., cost)| std::cmp::Reverse(*cost));
    moved.truncate(STREAMS);
    moved.sort_by_key(|(priority, ..)| std::cmp::Reverse(*priority));
    let stream = |(priority, ios, cost)| TopStream {
        priority,
        iops: ios as f64 / seconds,
        part: cost as f64 / whole as f64,
    };
    moved.into_iter().map(stream).collect()
}

/// What a disk waited for between two samples.
fn blame(before: &DiskSample, now: &DiskSample) -> Option<Blame> {
    let seconds = now.at().since(before.at()).as_secs_f64();
    Blame::of(seconds, &now.waits.since(&before.waits))
}

fn view_disk<'a>(info: &Disk, span: Option<&'a Span<'a>>, due: &BTreeMap<&Name, f64>) -> TopDisk {
    let policy = info.effective_policy.unwrap_or(info.policy);
    let mut view = TopDisk {
        name: info.name.clone(),
        vm: info.vm.clone(),
        state: info.state,
        policy,
        clients: info.clients,
        queued: 0,
        in_flight: 0,
        trouble: info.trouble.clone(),
        load: Load::default(),
        streams: Vec::new(),
        reservation_achieved: None,
        reservation_missed: false,
        needed_depth: None,
        latency: None,
        share_achieved: None,
        blame: None,
    };
    let Some((span, disk)) = span.and_then(|span| Some((span, span.disk(&info.name)?))) else {
        return view;
    };
    let now = disk.now;
    view.needed_depth = now.needed_depth;
    view.latency = now.latency.map(Into::into);
    (view.queued, view.in_flight) = (u64::from(now.queued), u64::from(now.in_flight));
    if let Some(before) = disk.before() {
        view.load = load(now.rates_since(before), &before.counted, &now.counted);
        view.streams = streams(before, now);
    }
    let Some(oldest) = disk.oldest() else { return view };
    view.blame = blame(oldest, now);
    let rates = now.rates_since(oldest);
    if let Some(reservation) = policy.reservation {
        view.reservation_achieved = Some(rates.achieved_reservation(reservation));
        view.reservation_missed = disk.missed(reservation).is_some();
    }
    if let Some(due) = due.get(&info.name) {
        let datastore = span.now.stats.rates_since(&span.oldest.stats);
        view.share_achieved = rates.achieved_share(*due, &datastore);
    }
    view
}

/// What part of a datastore's service shares give each disk that had requests. One that is in
/// groups has its part of them, and they have theirs.
fn due<'a>(
    info: &Datastore,
    disks: &'a [Disk],
    span: &'a Span<'a>,
    groups: &'a GroupsOfMachines,
) -> BTreeMap<&'a Name, f64> {
    let vms: HashMap<&Name, &Name> =
        disks.iter().filter_map(|disk| Some((&disk.name, disk.vm.as_ref()?))).collect();
    let in_groups = |disk: &Name| match info.scheduler {
        Scheduler::Mclock => vms.get(disk).and_then(|vm| groups.get(*vm)),
        Scheduler::Sfq | Scheduler::Fifo => None,
    };
    let busy = span.disks().filter(|disk| disk.is_busy()).map(|disk| disk.now);
    due_by_shares(busy.map(|disk| Sharer {
        name: &disk.name,
        shares: disk.policy.shares,
        groups: in_groups(&disk.name).map_or(&[], Vec::as_slice),
    }))
}

/// The live view out of what is configured and of the samples, oldest first.
fn view(
    datastores: &[Datastore],
    disks: &[Disk],
    groups: &GroupsOfMachines,
    history: &[Arc<Sample>],
) -> Top {
    let mut top = Top::default();
    for info in datastores {
        let span = Span::of(history, &info.name);
        let due = span.as_ref().map_or_else(BTreeMap::new, |span| due(info, disks, span, groups));
        if let Some(span) = &span {
            let millis = span.now.stats.at.since(span.before.stats.at).0 / 1_000_000;
            top.interval_millis = top.interval_millis.max(millis);
        }
        let on_it = disks.iter().filter(|disk| disk.datastore == info.name);
        top.datastores.push(TopDatastore {
            name: info.name.clone(),
            state: info.state,
            placement: info.placement.state,
            scheduler: info.scheduler,
            window: span.as_ref().map_or(f64::from(info.queue_depth), |s| s.now.window.as_f64()),
            narrowed: span.as_ref().and_then(Span::narrowed),
            control: info.window.now.clone(),
            in_flight: span.as_ref().map_or(0, |span| u64::from(span.now.in_flight)),
            queued: span.as_ref().map_or(0, |span| span.now.queued),
            capacity_iops: info.capacity.as_ref().map(|capacity| capacity.iops.get()),
            reserved_iops: info.reserved_iops,
            overbooked_iops: info.overbooked_iops,
            load: span
                .as_ref()
                .map(|span| {
                    let (before, now) = (&span.before.stats, &span.now.stats);
                    load(now.rates_since(before), before, now)
                })
                .unwrap_or_default(),
            disks: on_it.map(|disk| view_disk(disk, span.as_ref(), &due)).collect(),
        });
    }
    top
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_stats::{COST_OF_ONE_IO, DiskStats, Latency, Op, Outcome, Phase};
    use headgate_units::{Bytes, Priority};

    /// A disk that does `iops` per second from second 0 on, its requests waiting half the time.
    fn sample(second: u64, iops: u64, queued: u32) -> Sample {
        let mut stats = DiskStats::new(Nanos::ZERO);
        let gap = 1_000_000_000 / iops;
        for n in 0..second * iops {
            let at = Nanos(n * gap);
            stats.on_arrival(at, Op::Read, 0, Bytes(4096));
            stats.on_dispatch(at, Op::Read, Nanos(gap / 2), Phase::Reservation, COST_OF_ONE_IO);
            let latency = Latency { device: Nanos(gap / 2), total: Nanos(gap) };
            stats.on_complete(at + Nanos(gap), Op::Read, Bytes(4096), latency, Outcome::Done);
        }
        let stats = stats.snapshot(Nanos::from_secs(second));
        let mut disk = DiskSample::new("d".parse().unwrap(), policy(), stats.clone());
        disk.streams = (1..=20).map(|priority| stream(priority, second)).collect();
        (disk.in_flight, disk.queued) = (1, queued);
        let name = "ds".parse().unwrap();
        vec![DatastoreSample {
            window: headgate_qos::window::Slots::whole(32),
            in_flight: 1,
            queued: u64::from(queued),
            stats,
            ..DatastoreSample::fresh(name, vec![disk])
        }]
    }

    /// A stream that gets as many requests per second as its priority says, of two IOs each.
    fn stream(priority: u64, second: u64) -> StreamSample {
        let ios = priority * second;
        StreamSample {
            priority: Priority::new(priority).unwrap(),
            ios,
            cost: 2 * ios * COST_OF_ONE_IO,
        }
    }

    fn policy() -> headgate_model::Policy {
        serde_json::from_str(r#"{"reservation": 100}"#).unwrap()
    }

    fn top(history: Vec<Sample>) -> Top {
        let datastore = serde_json::from_str(
            r#"{"name": "ds", "state": "serving", "reason": null, "backend": {}, "scheduler": "mclock",
                "queue_depth": 32, "cost_model": "unit", "plug_ns": 0, "window": {"latency_threshold": "none", "found": null, "min": 4, "max": 32, "period_ns": null,
                "board": "auto", "now": null}, "capacity": null, "reservable_iops": null, "reserved_iops": 100,
                "overbooked_iops": 0, "disks": 1}"#,
        );
        let disk = serde_json::from_str(
            r#"{"name": "d", "state": "serving", "reason": null, "datastore": "ds", "vm": null, "size": 4096,
                "policy": {"reservation": 100}, "effective_policy": {"reservation": 100}, "overbooked": false,
                "clients": 1, "nbd_uri": "", "vhost_socket": ""}"#,
        );
        let history: Vec<_> = history.into_iter().map(Arc::new).collect();
        view(&[datastore.unwrap()], &[disk.unwrap()], &BTreeMap::new(), &history)
    }

    fn history(iops: u64, queued: u32) -> Vec<Sample> {
        (1..=KEPT as u64).map(|second| sample(second, iops, queued)).collect()
    }

    #[test]
    fn a_reservation_is_missed_only_while_requests_wait() {
        let missed =
            |iops, queued| top(history(iops, queued)).datastores[0].disks[0].reservation_missed;
        assert!(missed(90, 5));
        assert!(!missed(90, 0), "it did not ask for more");
        assert!(!missed(98, 5), "within 3 %");
        assert!(!missed(100, 5));
    }

    #[test]
    fn rates_and_latencies_are_those_of_the_interval() {
        let top = top(history(200, 1));
        assert_eq!(top.interval_millis, 2_000);
        let disk = &top.datastores[0].disks[0];
        assert!((disk.load.iops - 200.0).abs() < 1.0, "{:?}", disk.load);
        assert!((disk.load.normalised_iops - 200.0).abs() < 1.0, "{:?}", disk.load);
        let queue = disk.load.queue_micros.unwrap();
        assert!((2_500..2_600).contains(&queue.p50), "{queue:?}");
        assert!((disk.share_achieved.unwrap() - 1.0).abs() < 0.01);
        assert!((disk.reservation_achieved.unwrap() - 2.0).abs() < 0.01);
    }

    #[test]
    fn the_busiest_priorities_are_shown_with_their_parts() {
        let top = top(history(200, 1));
        let streams = &top.datastores[0].disks[0].streams;
        let priorities: Vec<u8> = streams.iter().map(|stream| stream.priority.get()).collect();
        assert_eq!(priorities, (5..=20).rev().collect::<Vec<u8>>());
        assert!((streams[0].iops - 20.0).abs() < 0.01, "{:?}", streams[0]);
        assert!((streams[0].part - 20.0 / 210.0).abs() < 1e-6, "{:?}", streams[0]);
    }

    #[test]
    fn a_disk_without_history_is_shown_without_rates() {
        let top = top(vec![]);
        assert_eq!(top.interval_millis, 0);
        assert_eq!(top.datastores[0].disks[0].load, Load::default());
    }
}
