use super::admission::{self, ReservableRate};
use super::window_views::window_view;
use super::{
    Control, ControlError, DatastoreEntry, DiskEntry, Hang, Model, Service, capacity, flash, vms,
};
use crate::tenants::groups::WhatIf;
use headgate_api::costs::LearnedCosts;
use headgate_api::health::{Health, HealthStatus};
use headgate_api::trouble::{LastError, Moment, Trouble, TroubleState};
use headgate_api::types::{
    BackendSpec, CapacityView, Datastore, Disk, DiskMoved, Host, ServiceState,
};
use headgate_history::wall_clock;
use headgate_model::ConnectionState;
use headgate_model::Name;
use headgate_model::Writes;
use headgate_model::{Backend, Policy, Scheduler};
use headgate_model::{DatastoreSample, DiskSample, LiveDisk, NbdSample, ShardWaits, Stall};
use headgate_qos::CostModel;
use headgate_units::Shares;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

impl Service {
    fn state(&self) -> ServiceState {
        match self {
            Service::Serving => ServiceState::Serving,
            Service::Starting | Service::Creating => ServiceState::Starting,
            Service::Failed(_) | Service::Stopped(_) => ServiceState::Failed,
            Service::Evicted(_) => ServiceState::Evicted,
        }
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn backend(backend: &Backend, control: &Control) -> BackendSpec {
    match backend {
        Backend::Dir { path } => {
            BackendSpec { dir: Some(text(&control.dir.resolve(path))), ..Default::default() }
        }
        Backend::Block { device, .. } => {
            BackendSpec { block: Some(text(device)), ..Default::default() }
        }
        Backend::Emulated { model, .. } => {
            BackendSpec { emulated: Some(model.clone()), ..Default::default() }
        }
        Backend::Nbd { server, connections } => BackendSpec {
            nbd: Some(server.clone()),
            connections: Some(connections.get()),
            ..Default::default()
        },
        Backend::Stripe { servers, unit, connections } => BackendSpec {
            stripe: Some(servers.clone()),
            stripe_unit: Some(*unit),
            connections: Some(connections.get()),
            ..Default::default()
        },
        Backend::Memory { size } => BackendSpec { memory: Some(*size), ..Default::default() },
    }
}

fn live_in(sample: &[DatastoreSample]) -> BTreeMap<Name, LiveDisk> {
    let disks = sample.iter().flat_map(|store| &store.disks);
    disks.map(|d| (d.name.clone(), live_disk(d))).collect()
}

fn live_disk(d: &DiskSample) -> LiveDisk {
    LiveDisk {
        policy: d.policy,
        priorities: d.priorities,
        block_sizes: d.block_sizes,
        latency: d.latency,
        clients: d.clients,
        remote: d.remote.clone(),
        trouble: d.trouble.clone(),
        at: d.at(),
    }
}

/// When a disk was looked at, which was a moment ago.
fn moment(live: &LiveDisk) -> Moment {
    Moment { monotonic: live.at, wall: wall_clock().0 / 1_000_000_000 }
}

fn told_of_stall(view: Datastore, stalled: &BTreeMap<Name, String>) -> Datastore {
    match stalled.get(&view.name) {
        Some(reason) => {
            Datastore { state: ServiceState::Failed, reason: Some(reason.clone()), ..view }
        }
        None => view,
    }
}

fn disk_told_of_stall(view: Disk, stalled: &BTreeMap<Name, String>) -> Disk {
    match stalled.get(&view.datastore) {
        Some(reason) => Disk { state: ServiceState::Failed, reason: Some(reason.clone()), ..view },
        None => view,
    }
}

/// The part of a policy that a datastore's scheduler, or the device under it, enforces.
pub(super) fn effective(policy: Policy, datastore: &DatastoreEntry) -> Policy {
    let Policy { werror, rerror, .. } = policy;
    let scheduled = match datastore.record.scheduler {
        Scheduler::Mclock => policy,
        Scheduler::Sfq => Policy::of_shares(policy.shares),
        Scheduler::Fifo if flash::keeps_shares(datastore) => Policy::of_shares(policy.shares),
        Scheduler::Fifo => Policy::of_shares(Shares::default()),
    };
    // What becomes of errors is no matter of the scheduler.
    Policy { werror, rerror, ..scheduled }
}

/// What health says of a disk whose storage is in trouble.
fn troubled(disk: &DiskSample) -> Option<String> {
    let wall = wall_clock().0 / 1_000_000_000;
    let trouble = Trouble::of(&disk.trouble, Moment { monotonic: disk.at(), wall })?;
    let hint = match trouble.state {
        TroubleState::Held => {
            format!(": repair the storage; 'headgate disk resume {}' has it tried now", disk.name)
        }
        TroubleState::Failing => String::new(),
    };
    Some(format!("disk '{}': {}: {trouble}{hint}", disk.name, trouble.state.as_str()))
}

impl Control {
    pub(super) fn reservable_rate(&self, model: &Model, entry: &DatastoreEntry) -> ReservableRate {
        self.reservable_rate_if(model, entry, WhatIf::default())
    }

    /// The same where something were different.
    pub(super) fn reservable_rate_if(
        &self,
        model: &Model,
        entry: &DatastoreEntry,
        what_if: WhatIf<'_>,
    ) -> ReservableRate {
        let record = &entry.record;
        let most = capacity::most(record);
        ReservableRate {
            name: record.name.clone(),
            reserved: model.promised_in(record, what_if).all,
            reservable: admission::reservable(
                record.capacity.as_ref(),
                most,
                self.options.reservable_percent,
            ),
            most,
            scheduler: record.scheduler,
        }
    }

    /// Datastores that have promised more than they can keep. O(disks), so it is asked once for all
    /// disks.
    fn overbooked<'a>(&self, model: &'a Model) -> BTreeSet<&'a Name> {
        let over = |entry: &&DatastoreEntry| self.reservable_rate(model, entry).overbooked() > 0;
        model.datastores.values().filter(over).map(|entry| &entry.record.name).collect()
    }

    pub(super) fn view_datastore(&self, model: &Model, entry: &DatastoreEntry) -> Datastore {
        let rate = self.reservable_rate(model, entry);
        let record = &entry.record;
        let hang = self.hang(&record.name);
        let (state, reason) = match &hang {
            Some(hang) => (ServiceState::Hung, Some(hang.to_string())),
            None => {
                // A device is its disk.
                let disk = self.sole_disk(model, &record.name, &record.backend);
                let evicted = disk.filter(|disk| matches!(disk.service, Service::Evicted(_)));
                let service = evicted.map_or(&entry.service, |disk| &disk.service);
                (service.state(), service.reason().map(str::to_owned))
            }
        };
        Datastore {
            name: record.name.clone(),
            state,
            reason,
            hung_since: hang.map(|hang| hang.since),
            backend: backend(&record.backend, self),
            scheduler: record.scheduler,
            queue_depth: record.queue_depth,
            cost_model: record.cost_model.to_string(),
            plug_ns: record.plug.0,
            batch: record.batch.map(|batch| batch.to_string()),
            window: window_view(
                &record.window,
                record.queue_depth,
                self.windows.status(&record.name),
            ),
            capacity: record
                .capacity
                .clone()
                .map(|capacity| CapacityView { iops: capacity.iops, source: capacity.source }),
            reservable_iops: rate.reservable,
            reserved_iops: rate.reserved,
            overbooked_iops: rate.overbooked(),
            disks: model.disks_on(&record.name).count(),
            placement: record.placement.clone(),
            layers: record.layers.iter().map(ToString::to_string).collect(),
            persistent_reservations: self.view_reservation(model, &record.name, &record.backend),
            model: None,
            space: flash::space(model, entry),
            file_system: self.file_system(model, entry),
            removed: model.removed_space(&record.name),
            flash: None,
            costs: None,
        }
    }

    fn view_disk(
        &self,
        model: &Model,
        entry: &DiskEntry,
        live: Option<&LiveDisk>,
        overbooked: &BTreeSet<&Name>,
    ) -> Disk {
        let record = &entry.record;
        let datastore = model.datastores.get(&record.datastore);
        let scheduler = datastore.map_or(Scheduler::default(), |d| d.record.scheduler);
        let socket = self.dir.vhost_socket(&record.name);
        let waits = !matches!(
            entry.service,
            Service::Failed(_) | Service::Stopped(_) | Service::Evicted(_)
        );
        let hang = waits.then(|| self.hang(&record.datastore)).flatten();
        let (state, reason) = match hang {
            Some(hang) => {
                let reason = format!("its datastore '{}' hangs: {hang}", record.datastore);
                (ServiceState::Hung, Some(reason))
            }
            None => (entry.service.state(), entry.service.reason().map(str::to_owned)),
        };
        Disk {
            name: record.name.clone(),
            state,
            reason,
            datastore: record.datastore.clone(),
            vm: record.vm.clone(),
            size: record.size,
            read_only: record.writes == Writes::Refused,
            block_sizes: live.and_then(|live| live.block_sizes),
            export: record.remote.as_ref().map(|remote| remote.export.clone()),
            connection: live.and_then(|live| live.remote.clone()),
            trouble: live.and_then(|live| Trouble::of(&live.trouble, moment(live))),
            last_error: live.and_then(|live| {
                live.trouble.last.as_ref().map(|last| LastError::of(last, moment(live)))
            }),
            policy: record.policy,
            class: record.set.class.clone(),
            own_policy: record.set.policy,
            policy_sources: BTreeMap::new(),
            applied_by: record.set.applied_by.clone(),
            effective_policy: live.zip(datastore).map(|(live, on)| effective(live.policy, on)),
            latency: live.and_then(|live| live.latency).map(Into::into),
            effective_priorities: live.and_then(|live| vms::effective(live.priorities, scheduler)),
            exports: self.exports_of(model, &record.name),
            placement: record.placement.clone(),
            moved: None,
            origin: record.origin.clone(),
            filling: self.filling(model, record),
            set_by: record.set_by.clone(),
            changes_since: model.bases_of(&record.name).iter().map(Name::to_string).collect(),
            moving: model.moves.get(&record.name).map(|moving| self.view_move(moving, record.size)),
            lease: datastore
                .and_then(|d| self.view_lease(&record.name, &d.record.backend))
                .or_else(|| self.view_label_lease(record, &entry.service)),
            overbooked: overbooked.contains(&record.datastore),
            clients: live.map_or(0, |live| live.clients),
            nbd_uri: crate::attach::nbd_unix_uri(
                &record.name,
                &self.dir.nbd_socket_of(record.vm.as_ref()),
            ),
            vhost_socket: text(&socket),
        }
    }

    /// Everything in service, as the shards have it now.
    ///
    /// # Errors
    /// When a shard does not answer.
    pub fn sample(&self) -> Result<Vec<DatastoreSample>, ControlError> {
        Ok(self.plane.sample()?)
    }

    /// Takes a sample of the data path into account, of every second or so.
    pub fn see_progress(&self, sample: &[DatastoreSample]) {
        self.hangs().see(Instant::now(), sample);
    }

    /// Whether a datastore hangs: an operation on its storage, or the requests of its disks.
    pub fn hang(&self, datastore: &Name) -> Option<Hang> {
        let operation = self.workers.hang(datastore);
        operation.or_else(|| self.hangs().hang(Instant::now(), datastore))
    }

    /// What NBD clients hold.
    pub fn nbd(&self) -> Option<NbdSample> {
        self.plane.nbd()
    }

    pub(super) fn live(&self) -> Result<BTreeMap<Name, LiveDisk>, ControlError> {
        Ok(live_in(&self.sample()?))
    }

    /// Datastores that stand still, with what is known of it.
    fn stalled(&self) -> BTreeMap<Name, String> {
        let stalls = self.plane.stalls();
        let reasons = |stall: &Stall| {
            let (stores, reason) = (stall.datastores.clone(), stall.reason.clone());
            stores.into_iter().map(move |name| (name, reason.clone())).collect::<Vec<_>>()
        };
        stalls.iter().flat_map(reasons).collect()
    }

    /// All datastores, by name. Linear in datastores times disks.
    pub fn datastores(&self) -> Vec<Datastore> {
        let (model, stalled) = (self.model(), self.stalled());
        let view = |entry| told_of_stall(self.view_datastore(&model, entry), &stalled);
        model.datastores.values().map(view).collect()
    }

    /// One datastore.
    ///
    /// # Errors
    /// [`ControlError::Missing`].
    pub fn datastore(&self, name: &Name) -> Result<Datastore, ControlError> {
        let model = self.model();
        let view = self.view_datastore(&model, model.datastore(name)?);
        Ok(told_of_stall(view, &self.stalled()))
    }

    /// What requests cost on a datastore; `None` where that is declared.
    ///
    /// # Errors
    /// When there is no datastore of this name, or a shard does not answer.
    pub fn costs_of(&self, name: &Name) -> Result<Option<LearnedCosts>, ControlError> {
        let CostModel::Learned { .. } = self.model().datastore(name)?.record.cost_model else {
            return Ok(None);
        };
        Ok(self.sample()?.iter().find(|sample| sample.name == *name).and_then(LearnedCosts::of))
    }

    /// All disks, by name.
    ///
    /// # Errors
    /// When a shard does not answer.
    pub fn disks(&self) -> Result<Vec<Disk>, ControlError> {
        Ok(self.disks_at(&self.sample()?))
    }

    /// All disks, by name, with policies and clients as they were in this sample.
    pub fn disks_at(&self, sample: &[DatastoreSample]) -> Vec<Disk> {
        let (live, stalled) = (live_in(sample), self.stalled());
        let model = self.model();
        let overbooked = self.overbooked(&model);
        let view = |entry: &DiskEntry| {
            let live = live.get(&entry.record.name);
            let view = self.view_disk(&model, entry, live, &overbooked);
            disk_told_of_stall(view, &stalled)
        };
        model.disks.values().map(view).collect()
    }

    /// One disk.
    ///
    /// # Errors
    /// [`ControlError::Missing`], or a shard that does not answer.
    pub fn disk(&self, name: &Name) -> Result<Disk, ControlError> {
        let live = self.plane.sample_disk(name)?.as_ref().map(live_disk);
        let known = self.samples.known();
        let last = known.moves.iter().rev().find(|moved| moved.disk.as_str() == name.as_str());
        let moved = last.map(|moved| DiskMoved {
            from: moved.from.to_string(),
            at: moved.at.0 / 1_000_000_000,
        });
        let model = self.model();
        let entry = model.disk(name)?;
        let on = model.datastores.get(&entry.record.datastore);
        let over = |on: &&DatastoreEntry| self.reservable_rate(&model, on).overbooked() > 0;
        let overbooked = on.filter(over).map(|on| &on.record.name).into_iter().collect();
        let view = self.view_disk(&model, entry, live.as_ref(), &overbooked);
        let view = Disk { policy_sources: model.sources(&entry.record), ..view };
        let moving = view.moving.clone().or_else(|| self.moved().last_of(name));
        Ok(disk_told_of_stall(Disk { moved, moving, ..view }, &self.stalled()))
    }

    /// This host as others see it.
    pub fn host(&self) -> Host {
        Host { name: self.identity.name.to_string(), id: self.identity.host.to_string() }
    }

    /// The parts of the data path that stand still.
    pub fn stalls(&self) -> Vec<Stall> {
        self.plane.stalls()
    }

    /// How the data path's threads wait for work.
    pub fn waits(&self) -> Vec<ShardWaits> {
        self.plane.waits()
    }

    /// Health: whether everything is in service and every shard answers.
    pub fn health(&self) -> Health {
        let (shards, stalls) = (self.sample(), self.stalls());
        let model = self.model();
        let reasons = |kind: &str, name: &Name, service: &Service| {
            service.reason().map(|reason| format!("{kind} '{name}': {reason}"))
        };
        let mut failed: Vec<String> = model
            .datastores
            .iter()
            .filter_map(|(name, e)| reasons("datastore", name, &e.service))
            .collect();
        failed.extend(model.disks.iter().filter_map(|(name, e)| reasons("disk", name, &e.service)));
        let hung = |name: &Name| Some(format!("datastore '{name}' hangs: {}", self.hang(name)?));
        failed.extend(model.datastores.keys().filter_map(hung));
        let unconnected = |d: &DiskSample| {
            let remote =
                d.remote.as_ref().filter(|remote| remote.state != ConnectionState::Connected)?;
            let reason = remote.reason.as_deref().unwrap_or("not yet");
            Some(format!("disk '{}': no connection to its server: {reason}", d.name))
        };
        let sampled = || shards.iter().flatten().flat_map(|store| &store.disks);
        failed.extend(sampled().filter_map(unconnected));
        failed.extend(sampled().filter_map(troubled));
        let status = match (&shards, failed.is_empty()) {
            (Err(_), _) => HealthStatus::Failed,
            _ if !stalls.is_empty() => HealthStatus::Failed,
            (Ok(_), false) => HealthStatus::Degraded,
            (Ok(_), true) => HealthStatus::Ok,
        };
        failed.extend(shards.err().map(|e| format!("the data path: {e}")));
        failed.extend(stalls.into_iter().map(|stall| format!("the data path: {}", stall.reason)));
        let (version, mut warnings) = (env!("CARGO_PKG_VERSION").into(), self.space_warnings());
        drop(model);
        warnings.extend(self.automatic_warnings());
        warnings.extend(self.events.trouble());
        Health { status, version, host: self.host(), failed, warnings, confinement: None }
    }
}
