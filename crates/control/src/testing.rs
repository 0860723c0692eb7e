//! A data plane in memory, to test the control plane alone.

mod copies;
pub(crate) mod faults;
mod groups;
mod moves;

use self::faults::{Faults, FaultyCatalog};
use super::{Control, Options, Parts, Roots, StateDir};
use crate::event_log::{self, EventLog};
use crate::leases::Leases;
use crate::records::{Recorded, Records};
use crate::windows::{Myself, Windows};
use headgate_access::Access;
use headgate_catalog::SqliteCatalog;
use headgate_cluster::Identity;
use headgate_devices::LayerSpec;
use headgate_devices::layer::TracePart;
use headgate_history::Samples;
use headgate_mirror::changes::Changes;
use headgate_model::{
    ChangesSince, CutOff, DataPlane, DatastoreSample, DiskSample, Ended, LiveDisk, Machine,
    NotResized, OpenDisk, PlaneError, Probe, SizeRule, Stall, Writes,
};
use headgate_model::{
    Connection, MemberContent, MemberProbe, PolicyAnswers, ServerLeases, ServerPolicy,
};
use headgate_model::{DatastoreRecord, ExportRecord, Policy, PriorityRecord};
use headgate_model::{DiskGroups, Name};
use headgate_model::{HoldSample, Period, ShardWaits};
use headgate_nbd::uri::Uri;
use headgate_qos::window::{LatencyMeter, Slots};
use headgate_qos::{Adjustment, Narrow};
use headgate_stats::DiskSnapshot;
use headgate_stripe::Label;
use headgate_units::{Bytes, Nanos};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
struct State {
    datastores: BTreeSet<Name>,
    disks: BTreeMap<Name, LiveDisk>,
    exports: BTreeMap<Name, ExportRecord>,
    moves: BTreeMap<Name, moves::FakeMove>,
    copies: BTreeMap<Name, copies::FakeCopy>,
    /// What exports hold that is not nothing, by their URIs.
    contents: BTreeMap<String, MemberContent>,
    server_leases: Option<ServerLeases>,
    announced: Vec<(Name, ServerPolicy)>,
    answers: PolicyAnswers,
    /// Where changes of disks are noted.
    noted: BTreeMap<Name, Arc<Changes>>,
    /// What clients of snapshots can ask for.
    since: BTreeMap<Name, Vec<ChangesSince>>,
    /// Whether copies have their instant when a test says so, and not at once.
    late_instants: bool,
    /// The machine of each disk, and who may connect.
    sockets: BTreeMap<Name, (Option<Name>, Access)>,
    /// The image file of each disk, where it has one, and the size that it is served with.
    images: BTreeMap<Name, (PathBuf, Bytes)>,
    /// Whether each disk's clients may write.
    writes: BTreeMap<Name, Writes>,
    windows: BTreeMap<Name, Slots>,
    narrow: BTreeMap<Name, Narrow>,
    pub(super) groups: BTreeMap<Name, DiskGroups>,
    /// Datastores whose latency is measured.
    measured: BTreeSet<Name>,
    /// What the next periods saw.
    periods: VecDeque<Period>,
    /// Operations of which the next says that it began, and waits here for its end.
    held: BTreeMap<&'static str, (Sender<()>, Receiver<()>)>,
    stalls: Vec<Stall>,
    /// Operations that fail, by the word that their error contains.
    broken: BTreeSet<&'static str>,
    /// One that fails once, after so many that do not.
    fails_after: Option<(&'static str, usize)>,
}

/// Records its calls, and fails where a test asks for that.
#[derive(Default)]
pub(crate) struct MemoryPlane(Mutex<State>);

impl MemoryPlane {
    pub(crate) fn break_down(&self, operation: &'static str) {
        self.0.lock().unwrap().broken.insert(operation);
    }

    /// An operation fails once, after so many that do not.
    pub(crate) fn break_down_after(&self, operation: &'static str, times: usize) {
        self.0.lock().unwrap().fails_after = Some((operation, times));
    }

    /// A datastore stands still from now on.
    pub(crate) fn stall(&self, datastore: &str) {
        self.0.lock().unwrap().stalls.push(Stall {
            shard: 0,
            waited: Nanos::from_secs(4),
            thread: 1,
            datastores: vec![datastore.parse().unwrap()],
            reason: "shard 0 has not answered for 4 s".into(),
        });
    }

    pub(crate) fn repair(&self) {
        self.0.lock().unwrap().broken.clear();
    }

    /// A disk holds requests from now on.
    pub(crate) fn hold(&self, disk: &str) {
        let hold =
            HoldSample { since: Nanos::ZERO, error: "no space left".into(), requests: 3, tries: 0 };
        let (mut state, name) = (self.0.lock().unwrap(), disk.parse::<Name>().unwrap());
        state.disks.get_mut(&name).unwrap().trouble.hold = Some(hold);
    }

    pub(crate) fn connect(&self, disk: &str, clients: usize) {
        self.0.lock().unwrap().disks.get_mut(&disk.parse::<Name>().unwrap()).unwrap().clients =
            clients;
    }

    /// The next "connect", "close" or "resize" does not answer: it sends to the first channel when
    /// it began, and returns when the second is sent to.
    pub(crate) fn hold_next(&self, operation: &'static str) -> (Receiver<()>, Sender<()>) {
        let (entered, began) = channel();
        let (end, release) = channel();
        self.0.lock().unwrap().held.insert(operation, (entered, release));
        (began, end)
    }

    fn wait_if_held(&self, operation: &'static str) {
        let held = self.0.lock().unwrap().held.remove(operation);
        if let Some((entered, release)) = held {
            entered.send(()).unwrap();
            release.recv().unwrap();
        }
    }

    /// A datastore that was never added.
    pub(crate) fn put_connection(&self, disk: &str, connection: Connection) {
        let mut state = self.0.lock().unwrap();
        state.disks.get_mut(&disk.parse().unwrap()).unwrap().remote = Some(connection);
    }

    pub(crate) fn put_content(&self, uri: &str, content: MemberContent) {
        self.0.lock().unwrap().contents.insert(uri.to_owned(), content);
    }

    /// What servers say to policies.
    pub(crate) fn put_answers(&self, answers: PolicyAnswers) {
        self.0.lock().unwrap().answers = answers;
    }

    /// What a disk in service is promised.
    pub(crate) fn policy(&self, disk: &str) -> Policy {
        self.0.lock().unwrap().disks[&disk.parse::<Name>().unwrap()].policy
    }

    /// What servers were told.
    pub(crate) fn announced(&self) -> Vec<(Name, ServerPolicy)> {
        self.0.lock().unwrap().announced.clone()
    }

    /// What all servers make of leases.
    pub(crate) fn put_server_leases(&self, leases: ServerLeases) {
        self.0.lock().unwrap().server_leases = Some(leases);
    }

    /// Labels of exports, by their URIs.
    pub(crate) fn labels(&self) -> BTreeMap<String, Label> {
        let contents = self.0.lock().unwrap().contents.clone();
        let label = |(uri, content)| match content {
            MemberContent::Labelled(label) => Some((uri, label)),
            MemberContent::Nothing | MemberContent::Other(_) => None,
        };
        contents.into_iter().filter_map(label).collect()
    }

    pub(crate) fn put_datastore(&self, name: &str) {
        self.0.lock().unwrap().datastores.insert(name.parse().unwrap());
    }

    /// What the next period that is ended will have seen.
    pub(crate) fn put_period(&self, period: Period) {
        self.0.lock().unwrap().periods.push_back(period);
    }

    /// The window that a datastore was given, and whether its latency is measured.
    pub(crate) fn window(&self, datastore: &str) -> (Option<Slots>, bool) {
        let (state, name) = (self.0.lock().unwrap(), datastore.parse().unwrap());
        (state.windows.get(&name).copied(), state.measured.contains(&name))
    }

    /// Name, disk and priority of every further export.
    pub(crate) fn exports(&self) -> Vec<(String, String, u8)> {
        let state = self.0.lock().unwrap();
        let one = |e: &ExportRecord| (e.name.to_string(), e.disk.to_string(), e.priority.get());
        state.exports.values().map(one).collect()
    }

    /// Whether a disk's clients may write.
    pub(crate) fn writes(&self, disk: &str) -> Writes {
        self.0.lock().unwrap().writes[&disk.parse::<Name>().unwrap()]
    }

    /// Who may connect to a disk.
    pub(crate) fn access(&self, disk: &str) -> Access {
        self.0.lock().unwrap().sockets[&disk.parse::<Name>().unwrap()].1.clone()
    }

    fn run<T>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&mut State) -> T,
    ) -> Result<T, PlaneError> {
        let mut state = self.0.lock().unwrap();
        let turn = state.fails_after.as_mut().filter(|(of, _)| *of == operation);
        let left = turn.map(|(_, left)| std::mem::replace(left, left.saturating_sub(1)));
        let fails_once = left == Some(0) && state.fails_after.take().is_some();
        if fails_once || state.broken.contains(operation) {
            return Err(PlaneError::new(format!("{operation} is broken")));
        }
        Ok(work(&mut state))
    }
}

impl DataPlane for MemoryPlane {
    fn stalls(&self) -> Vec<Stall> {
        self.0.lock().unwrap().stalls.clone()
    }

    fn waits(&self) -> Vec<ShardWaits> {
        Vec::new()
    }

    fn add_datastore(
        &self,
        record: &DatastoreRecord,
        _directory: Option<&Path>,
    ) -> Result<(), PlaneError> {
        self.run("add_datastore", |s| assert!(s.datastores.insert(record.name.clone())))
    }

    fn set_window(&self, datastore: &Name, window: Slots) -> Result<(), PlaneError> {
        self.run("set_window", |s| {
            assert!(s.datastores.contains(datastore));
            s.windows.insert(datastore.clone(), window);
        })
    }

    fn set_narrow(&self, datastore: &Name, narrow: Narrow) -> Result<(), PlaneError> {
        self.run("set_narrow", |s| {
            s.narrow.insert(datastore.clone(), narrow);
        })
    }

    fn measure_latency(
        &self,
        datastore: &Name,
        meter: Option<LatencyMeter>,
    ) -> Result<(), PlaneError> {
        let keep = |s: &mut State| match meter {
            Some(_) => s.measured.insert(datastore.clone()),
            None => s.measured.remove(datastore),
        };
        self.run("measure_latency", keep).map(drop)
    }

    fn end_period(&self, _datastore: &Name) -> Result<Period, PlaneError> {
        let none = Period { latency: None, disks: Vec::new() };
        self.run("end_period", |s| s.periods.pop_front().unwrap_or(none))
    }

    fn adjust(&self, datastore: &Name, _adjustment: Adjustment) -> Result<(), PlaneError> {
        self.run("adjust", |s| assert!(s.datastores.contains(datastore)))
    }

    fn set_groups(&self, datastore: &Name, groups: &DiskGroups) -> Result<(), PlaneError> {
        self.run("set_groups", |s| {
            s.groups.insert(datastore.clone(), groups.clone());
        })
    }

    fn set_layers(&self, datastore: &Name, _layers: &[LayerSpec]) -> Result<(), PlaneError> {
        self.run("set_layers", |s| assert!(s.datastores.contains(datastore)))
    }

    fn trace(&self, _datastore: &Name, _from: u64) -> Result<Option<TracePart>, PlaneError> {
        self.run("trace", |_| None)
    }

    fn remove_datastore(&self, datastore: &Name) -> Result<(), PlaneError> {
        self.run("remove_datastore", |s| assert!(s.datastores.remove(datastore)))
    }

    fn create_image(&self, path: &Path, size: Bytes) -> Result<(), PlaneError> {
        self.run("create_image", |_| fs::File::create_new(path).unwrap().set_len(size.0).unwrap())
    }

    fn device_size(&self, _path: &Path) -> Result<Bytes, PlaneError> {
        self.run("device_size", |_| Bytes::from_gib(1))
    }

    fn connect(&self, _uri: &Uri) -> Result<Probe, PlaneError> {
        self.wait_if_held("connect");
        self.run("connect", |_| Probe { size: Bytes::from_gib(1), block_size: 4096, session: None })
    }

    fn look_at_member(&self, uri: &Uri) -> Result<MemberProbe, PlaneError> {
        self.run("look_at_member", |s| {
            let content = s.contents.get(&uri.to_string()).cloned();
            let content = content.unwrap_or(MemberContent::Nothing);
            let leases = s.server_leases.unwrap_or(ServerLeases::Known);
            MemberProbe { size: Bytes::from_gib(1), block_size: 4096, content, leases }
        })
    }

    fn label_member(&self, uri: &Uri, label: &Label) -> Result<(), PlaneError> {
        self.run("label_member", |s| {
            s.contents.insert(uri.to_string(), MemberContent::Labelled(*label));
        })
    }

    fn announce(&self, disk: &Name, policy: ServerPolicy) -> Result<PolicyAnswers, PlaneError> {
        self.run("announce", |s| {
            s.announced.push((disk.clone(), policy));
            s.answers.clone()
        })
    }

    fn open_disk(&self, disk: OpenDisk) -> Result<Bytes, PlaneError> {
        self.wait_if_held("open");
        let mut size = disk.size;
        if !disk.image.as_os_str().is_empty() {
            let Ok(found) = disk.image.metadata() else {
                return Err(PlaneError::new(format!("{} does not exist", disk.image.display())));
            };
            if found.is_file() && Bytes(found.len()) != size {
                if disk.size_rule == SizeRule::Exactly {
                    return Err(PlaneError::new(format!("the image has {} bytes", found.len())));
                }
                size = Bytes(found.len());
            }
        }
        self.run("open_disk", |s| {
            s.copies.remove(&disk.name);
            let live = LiveDisk {
                policy: disk.policy,
                priorities: disk.priorities,
                block_sizes: None,
                latency: None,
                clients: 0,
                remote: None,
                trouble: Default::default(),
                at: Nanos::ZERO,
            };
            s.note_on(&disk);
            let machine = disk.machine.map(|machine| machine.name);
            s.sockets.insert(disk.name.clone(), (machine, disk.access));
            s.images.insert(disk.name.clone(), (disk.image, size));
            s.writes.insert(disk.name.clone(), disk.writes);
            assert!(s.disks.insert(disk.name.clone(), live).is_none());
            size
        })
    }

    fn resize_disk(&self, disk: &Name, size: Bytes, cut_off: CutOff) -> Result<(), NotResized> {
        self.wait_if_held("resize");
        let clients = self.run("resize_disk", |s| s.disks[disk].clients)?;
        let (image, before) = self.0.lock().unwrap().images[disk].clone();
        if size < before {
            if clients > 0 {
                return Err(NotResized::Clients(clients));
            }
            if cut_off == CutOff::Keep && self.0.lock().unwrap().broken.contains("data") {
                return Err(NotResized::Data(size));
            }
        }
        if image.is_file() {
            fs::File::options().write(true).open(&image).unwrap().set_len(size.0).unwrap();
        }
        self.run("resized", |s| s.images.insert(disk.clone(), (image, size)))?;
        Ok(())
    }

    fn set_writes(&self, disk: &Name, writes: Writes) -> Result<Option<usize>, PlaneError> {
        self.run("set_writes", |s| {
            let clients = s.disks[disk].clients;
            if clients == 0 {
                s.writes.insert(disk.clone(), writes);
            }
            (clients > 0).then_some(clients)
        })
    }

    fn set_policy(&self, disk: &Name, policy: &Policy) -> Result<(), PlaneError> {
        self.wait_if_held("set_policy");
        self.run("set_policy", |s| s.disks.get_mut(disk).unwrap().policy = *policy)
    }

    fn resume_disk(&self, disk: &Name) -> Result<bool, PlaneError> {
        self.run("resume_disk", |s| {
            let takes = !s.broken.contains("storage");
            let trouble = &mut s.disks.get_mut(disk).unwrap().trouble;
            let held = trouble.hold.is_some();
            trouble.hold = trouble.hold.take().filter(|_| !takes);
            trouble.hold.iter_mut().for_each(|hold| hold.tries += 1);
            held
        })
    }

    fn set_priorities(&self, disk: &Name, priorities: &PriorityRecord) -> Result<(), PlaneError> {
        self.run("set_priorities", |s| s.disks.get_mut(disk).unwrap().priorities = *priorities)
    }

    fn put_export(&self, export: &ExportRecord) {
        self.0.lock().unwrap().exports.insert(export.name.clone(), export.clone());
    }

    fn remove_export(&self, name: &Name) {
        self.0.lock().unwrap().exports.remove(name);
    }

    fn set_machine(
        &self,
        disk: &Name,
        machine: Option<&Machine>,
        access: &Access,
    ) -> Result<(), PlaneError> {
        self.run("set_machine", |s| {
            s.sockets.insert(disk.clone(), (machine.map(|m| m.name.clone()), access.clone()));
        })
    }

    fn set_access(&self, machine: &Name, access: &Access) -> Result<(), PlaneError> {
        self.run("set_access", |s| {
            for (of, who) in s.sockets.values_mut() {
                if of.as_ref() == Some(machine) {
                    *who = access.clone();
                }
            }
        })
    }

    fn close_disk(&self, disk: &Name, _patience: Duration) -> Result<(), PlaneError> {
        self.wait_if_held("close");
        self.run("close_disk", |s| assert!(s.disks.remove(disk).is_some()))
    }

    fn abandon_disk(&self, disk: &Name) -> Result<(), PlaneError> {
        self.run("abandon_disk", |s| assert!(s.disks.remove(disk).is_some()))
    }

    fn sample(&self) -> Result<Vec<DatastoreSample>, PlaneError> {
        self.run("sample", |s| {
            let disks = s.disks.iter().map(|(name, live)| {
                let none = DiskSnapshot::default();
                let mut sample = DiskSample::new(name.clone(), live.policy, none);
                (sample.priorities, sample.clients) = (live.priorities, live.clients);
                (sample.remote, sample.trouble) = (live.remote.clone(), live.trouble.clone());
                sample
            });
            let disks = disks.collect();
            vec![DatastoreSample::fresh("all".parse().unwrap(), disks)]
        })
    }

    fn shutdown(&self, _patience: Duration) -> Ended {
        let mut state = self.0.lock().unwrap();
        let settled = state.settled();
        state.disks.clear();
        Ended { left: Vec::new(), settled }
    }
}

/// A control side over a fresh state directory, with a 1,600-IOPS datastore `array` and an unknown
/// one `default`.
pub(crate) struct Bench {
    pub temp: tempfile::TempDir,
    pub plane: Arc<MemoryPlane>,
    pub control: Arc<Control>,
    pub records: Records,
    pub faults: Faults,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with_roots(Roots::Anywhere)
    }

    /// Its datastores may be there only.
    pub(crate) fn with_roots(roots: Roots) -> Bench {
        let bench = Bench::start_again_with(tempfile::tempdir().unwrap(), roots);
        let array =
            serde_json::from_str(r#"{"name": "array", "backend": {"emulated": "rate=1600"}}"#)
                .unwrap();
        bench.control.add_datastore(array).unwrap();
        bench
    }

    /// A daemon on what one left that was killed.
    pub(crate) fn start_again(temp: tempfile::TempDir) -> Bench {
        Bench::start_again_with(temp, Roots::Anywhere)
    }

    /// The same, where an operation of the plane fails from the first one on.
    pub(crate) fn start_again_broken(temp: tempfile::TempDir, operation: &'static str) -> Bench {
        let plane = MemoryPlane::default();
        plane.break_down(operation);
        Bench::start_again_on(temp, Roots::Anywhere, plane)
    }

    fn start_again_with(temp: tempfile::TempDir, roots: Roots) -> Bench {
        Bench::start_again_on(temp, roots, MemoryPlane::default())
    }

    fn start_again_on(temp: tempfile::TempDir, roots: Roots, plane: MemoryPlane) -> Bench {
        let Parted { plane, control, records, faults } = start(temp.path(), roots, plane);
        Bench { temp, plane, control, records, faults }
    }

    /// As [`restart`](Self::restart), with other roots.
    pub(crate) fn restart_with(self, roots: Roots) -> Bench {
        Bench::start_again_with(self.killed(), roots)
    }

    /// The process is killed, and only its state is left.
    pub(crate) fn killed(self) -> tempfile::TempDir {
        let Bench { temp, plane, control, records, faults: _ } = self;
        drop((plane, control));
        // Whoever looks at the records next is not to be told of a machine that was busy.
        records.wait(Duration::from_secs(60));
        drop(records);
        temp
    }

    /// The daemon ends in order.
    pub(crate) fn stopped(self) -> tempfile::TempDir {
        assert_eq!(self.control.shutdown(), 0);
        self.killed()
    }

    /// The process is killed, and started again.
    pub(crate) fn restart(self) -> Bench {
        Bench::start_again(self.killed())
    }
}

struct Parted {
    plane: Arc<MemoryPlane>,
    control: Arc<Control>,
    records: Records,
    faults: Faults,
}

fn start(root: &Path, roots: Roots, plane: MemoryPlane) -> Parted {
    let dir = StateDir::new(root).unwrap();
    let (identity, _) = Identity::load(root).unwrap();
    let sqlite = SqliteCatalog::open(&dir.catalog()).unwrap();
    let host = identity.host.to_string();
    let faults = Faults::default();
    let sqlite = FaultyCatalog { inner: sqlite, faults: faults.clone() };
    let catalog = Box::new(Recorded::new(sqlite, dir.clone(), host, roots.clone()));
    let records = catalog.records();
    let plane = Arc::new(plane);
    let myself = Myself { identity: identity.clone(), etcd: None };
    let windows = Windows::start(plane.clone(), myself).unwrap();
    let control = {
        let leases = Leases::new(identity.clone(), None);
        let samples = Arc::new(Samples::open(&dir.samples(), Duration::from_secs(5)).unwrap());
        let options = Options { roots, ..Options::default() };
        let records = Some(records.clone());
        let events = EventLog::open(&dir.events(), event_log::SIZE).unwrap();
        let plane = plane.clone();
        let parts = Parts { plane, windows, leases, samples, catalog, records, events };
        Control::start(dir, identity, options, parts).unwrap()
    };
    Parted { plane, control, records, faults }
}
