//! The view of all hosts in the words of the API.

use super::Fleet;
use super::foreign::counts;
use super::shared::{Meeting, State, now, wall};
use headgate_api::fleet::{
    CarriedOut, DatastoreAtHost, FleetAdvice, FleetAdvices, FleetDatastore, FleetDatastores,
    FleetDisk, FleetDisks, FleetView, FleetWaits, Host, HostState, Hosts, Told, UnreadableKey,
    ViewSource,
};
use headgate_api::state::ServiceState;
use headgate_fleet::{
    Age, Cause, DatastoreWord, DiskWord, HostKey, HostView, Promise, Service, Thousandths, View,
    Waits,
};
use headgate_tls::ApiRights;
use headgate_units::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// Which disks of all hosts are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskFilter {
    /// Of this host: its label, its name, or the beginning of its identity.
    pub host: Option<String>,
    /// Of this virtual machine.
    pub vm: Option<String>,
    /// Of these virtual machines only, whatever else is asked for.
    pub machines: Machines,
    /// So many at most.
    pub limit: Option<usize>,
}

/// Whose disks somebody may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Machines {
    /// Everybody's.
    #[default]
    All,
    /// Those of the machines that these rights name, on any host.
    By(ApiRights),
    /// Those of these machines of this host.
    Here(BTreeSet<String>),
}

fn seconds(age: Age) -> f64 {
    (age.0.0 / 1_000_000) as f64 / 1e3
}

fn state(state: headgate_fleet::HostState) -> HostState {
    match state {
        headgate_fleet::HostState::Running => HostState::Running,
        headgate_fleet::HostState::Stopped => HostState::Stopped,
        headgate_fleet::HostState::Silent => HostState::Silent,
        headgate_fleet::HostState::Unknown => HostState::Unknown,
    }
}

fn service(service: Service) -> ServiceState {
    match service {
        Service::Serving => ServiceState::Serving,
        Service::Starting => ServiceState::Starting,
        Service::Hung => ServiceState::Hung,
        Service::Failed => ServiceState::Failed,
        Service::Evicted => ServiceState::Evicted,
    }
}

fn waits(waits: &Waits) -> FleetWaits {
    let cause = match waits.cause {
        Cause::Device => "device",
        Cause::Limit => "limit",
        Cause::Own => "own",
        Cause::Neighbours => "neighbours",
        Cause::Window => "window",
        Cause::Held => "held",
    };
    let part = |part: Thousandths| part.0 as f64 / 1e3;
    let behind = waits.behind.as_ref();
    FleetWaits {
        cause: cause.to_owned(),
        part: part(waits.part),
        behind: behind.map(|behind| behind.disk.clone()),
        behind_part: behind.map(|behind| part(behind.part)),
    }
}

/// A host with its label.
struct Labelled<'a> {
    label: &'a str,
    host: HostView<'a>,
}

impl Labelled<'_> {
    fn told(&self, age: Age) -> Told {
        Told {
            host: self.label.to_owned(),
            host_id: self.host.host.to_string(),
            host_state: state(self.host.state),
            age_seconds: seconds(age),
        }
    }

    fn is_called(&self, text: &str) -> bool {
        let id = self.host.host.to_string();
        self.label == text || self.host.word.name == text || text.len() >= 4 && id.starts_with(text)
    }

    /// What the wire takes for a name it has checked by the same rule as the catalog.
    fn disk(&self, disk: &DiskWord, age: Age) -> Option<FleetDisk> {
        Some(FleetDisk {
            told: self.told(age),
            name: disk.name.parse().ok()?,
            vm: disk.vm.as_ref().and_then(|vm| vm.parse().ok()),
            datastore: disk.datastore.parse().ok()?,
            state: service(disk.service),
            size: disk.size,
            reservation: disk.reservation.map(|rate| rate.0),
            limit: disk.limit.map(|rate| rate.0),
            shares: disk.shares,
            iops: disk.received.0,
            bytes_per_sec: disk.bandwidth.0,
            reservation_missed: disk.promise == Promise::Missed,
            queued: disk.queued,
            latency_micros: disk.latency.map(|latency| latency.0 / 1_000),
            waits: disk.waits.as_ref().map(waits),
        })
    }

    fn datastore(&self, store: &DatastoreWord, age: Age) -> Option<DatastoreAtHost> {
        Some(DatastoreAtHost {
            told: self.told(age),
            name: store.name.parse().ok()?,
            state: service(store.service),
            iops: store.received.0,
            bytes_per_sec: store.bandwidth.0,
            latency_micros: store.latency.map(|latency| latency.0 / 1_000),
            window: store.window.0 as f64 / 1e3,
            in_flight: store.in_flight,
            queued: store.queued,
            capacity_iops: store.capacity.map(|rate| rate.0),
            reserved_iops: store.reserved.0,
            disks: store.disks,
            size: store.space.map(|space| space.size.0),
            free: store.space.map(|space| space.free.0),
            ability: store.model.map(|model| 1e12 / model.slope_ps.max(1) as f64),
        })
    }
}

/// All hosts, by label.
fn labelled<'a>(
    view: &'a View,
    labels: &'a BTreeMap<HostKey, String>,
    now: Nanos,
) -> Vec<Labelled<'a>> {
    let of = |host: HostView<'a>| Some(Labelled { label: labels.get(&host.host)?, host });
    let mut all: Vec<Labelled<'a>> = view.hosts(now).filter_map(of).collect();
    all.sort_by(|a, b| a.label.cmp(b.label));
    all
}

impl Fleet {
    fn view_of(&self, state: &State, now: Nanos) -> FleetView {
        let (unreadable, keys) = state.view.unreadable();
        let keys = keys.into_iter().map(|one| UnreadableKey { key: one.key, why: one.why });
        FleetView {
            source: match self.shared.meeting {
                Meeting::Etcd => ViewSource::Etcd,
                Meeting::Nowhere => ViewSource::Alone,
            },
            age_seconds: state.view.age(now).map(seconds),
            error: state.error.clone(),
            unreadable,
            unreadable_keys: keys.collect(),
            left_out: state.view.left_out(),
        }
    }

    /// All hosts. Waits for nobody. O(n log n) for n hosts.
    pub fn hosts(&self) -> Hosts {
        let (state, now, wall) = (self.state(), now(), wall());
        let labels = state.view.labels();
        let host = |one: &Labelled<'_>| {
            let (host, word) = (&one.host, one.host.word);
            let is_this = host.host == self.shared.own;
            let duplicate = state.duplicate.as_ref().filter(|_| is_this);
            Host {
                label: one.label.to_owned(),
                name: word.name.clone(),
                id: host.host.to_string(),
                is_this,
                state: self::state(host.state),
                last_seen: wall.saturating_sub(host.age.0.0 / 1_000_000_000),
                age_seconds: seconds(host.age),
                period_seconds: seconds(Age(word.period)),
                version: word.version.clone(),
                api: word.api.clone(),
                starts: host.header.epoch,
                datastores: host.datastores().count() as u64,
                disks: word.disks,
                disks_untold: word.disks.saturating_sub(host.disks().count() as u64),
                failed: word.failed,
                missed: word.missed,
                iops: word.received.0,
                bytes_per_sec: word.bandwidth.0,
                queued: word.queued,
                duplicate: duplicate.map(|(instance, _)| instance.clone()),
            }
        };
        let hosts = labelled(&state.view, &labels, now).iter().map(host).collect();
        Hosts { view: self.view_of(&state, now), hosts }
    }

    /// Disks of all hosts, those first that do not get what they were promised. Waits for nobody.
    /// O(n log n) for n disks.
    pub fn disks(&self, filter: &DiskFilter) -> FleetDisks {
        let (state, now) = (self.state(), now());
        let labels = state.view.labels();
        let mut disks = Vec::new();
        for one in labelled(&state.view, &labels, now) {
            if filter.host.as_ref().is_some_and(|host| !one.is_called(host)) {
                continue;
            }
            let is_this = one.host.host == self.shared.own;
            let is_asked = |disk: &DiskWord| {
                let vm = disk.vm.as_deref();
                let is_theirs = match &filter.machines {
                    Machines::All => true,
                    Machines::By(rights) => vm.is_some_and(|vm| rights.has_machine(vm)),
                    Machines::Here(machines) => {
                        is_this && vm.is_some_and(|vm| machines.contains(vm))
                    }
                };
                is_theirs && filter.vm.as_deref().is_none_or(|wanted| vm == Some(wanted))
            };
            let asked = one.host.disks().filter(|(disk, _)| is_asked(disk));
            disks.extend(asked.filter_map(|(disk, age)| one.disk(disk, age)));
        }
        let view = self.view_of(&state, now);
        drop(state);
        let total = disks.len();
        disks.sort_by_cached_key(|disk| {
            let is_fine = (!disk.reservation_missed, disk.state == ServiceState::Serving);
            let name = (disk.told.host.clone(), disk.name.clone());
            (is_fine, std::cmp::Reverse(disk.iops), name)
        });
        disks.truncate(filter.limit.unwrap_or(usize::MAX));
        FleetDisks { view, total, disks }
    }

    /// Datastores of all hosts; those that several hosts have are one. Waits for nobody.
    /// O(n log n) for n datastores.
    pub fn datastores(&self) -> FleetDatastores {
        let (state, now) = (self.state(), now());
        let labels = state.view.labels();
        let mut all: BTreeMap<Which, Vec<(DatastoreAtHost, Counted)>> = BTreeMap::new();
        for one in labelled(&state.view, &labels, now) {
            let counted = if counts(&one.host) { Counted::Yes } else { Counted::No };
            for (store, age) in one.host.datastores() {
                let Some(told) = one.datastore(store, age) else { continue };
                // What nobody else has is by itself.
                let alone = match &store.storage {
                    Some(_) => String::new(),
                    None => format!("{}/{}", one.label, store.name),
                };
                all.entry((store.storage.clone(), alone)).or_default().push((told, counted));
            }
        }
        let view = self.view_of(&state, now);
        let mut datastores: Vec<FleetDatastore> =
            all.into_iter().map(|((storage, _), hosts)| together(storage, hosts)).collect();
        let first = |store: &FleetDatastore| {
            store.hosts.first().map(|one| (one.told.host.clone(), one.name.clone()))
        };
        datastores.sort_by_cached_key(first);
        FleetDatastores { view, datastores }
    }

    /// What all hosts advise. Waits for nobody. O(n log n) for n moves.
    pub fn advice(&self) -> FleetAdvices {
        let (state, now) = (self.state(), now());
        let labels = state.view.labels();
        let mut moves = Vec::new();
        for one in labelled(&state.view, &labels, now) {
            for (word, age) in one.host.advice() {
                let Ok(disk) = word.disk.parse() else { continue };
                // Names of datastores have no slash.
                let other = word.to.split_once('/').map(|(host, _)| host);
                moves.push(FleetAdvice {
                    told: one.told(age),
                    disk,
                    from: word.from.clone(),
                    to: word.to.clone(),
                    why: word.why.clone(),
                    carried_out: match other {
                        None => CarriedOut::Host,
                        Some(_) => CarriedOut::Nobody,
                    },
                    obstacle: other.map(|host| {
                        format!(
                            "{} does not have that storage: add it there with 'headgate datastore \
                             add', or copy the disk by hand, with 'headgate disk export' there and \
                             'headgate disk import' at {host}",
                            one.label
                        )
                    }),
                });
            }
        }
        FleetAdvices { view: self.view_of(&state, now), moves }
    }
}

/// The storage that a datastore is; or, where nobody else has it, its host and its name.
type Which = (Option<String>, String);

/// Whether a host's word counts in sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Yes,
    No,
}

/// One storage, as its hosts see it.
fn together(storage: Option<String>, hosts: Vec<(DatastoreAtHost, Counted)>) -> FleetDatastore {
    let total = |of: fn(&DatastoreAtHost) -> u64| {
        let counted = hosts.iter().filter(|(_, counted)| *counted == Counted::Yes);
        counted.fold(0u64, |sum, (one, _)| sum.saturating_add(of(one)))
    };
    FleetDatastore {
        storage,
        capacity_iops: hosts.iter().filter_map(|(one, _)| one.capacity_iops).min(),
        reserved_iops: total(|one| one.reserved_iops),
        iops: total(|one| one.iops),
        bytes_per_sec: total(|one| one.bytes_per_sec),
        disks: total(|one| one.disks),
        hosts: hosts.into_iter().map(|(one, _)| one).collect(),
    }
}
