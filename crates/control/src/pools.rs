//! Builds the pools that placement works on from the daemon's datastores and disks.

use super::hangs::Facts;
use super::history_views::{datastore_model, hour_view};
use super::{Control, ControlError, DatastoreEntry, DiskEntry, flash};
use crate::configuration::{Thing, of_rules, tell};
use crate::preconditions::in_earnest;
use headgate_api::history::DatastoreHour;
use headgate_api::placement::{AdviceReport, DatastoreModel, ModelPoint, Outside, PoolAdvice};
use headgate_api::terms::DryRun;
use headgate_history::{Learnt, wall_clock};
use headgate_model::Backend;
use headgate_model::Lookback;
use headgate_model::{Name, PlaneError};
use headgate_placement as placement;
use headgate_placement::{
    Automatic, Datastore, Group, Pool, PoolDisk, Provisioning, Rules, WorkloadProfile,
};
use headgate_units::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How long file systems may take to say what they have.
const ASK: Duration = Duration::from_secs(2);

/// A name of ours as placement has it.
pub(super) fn name(name: &Name) -> placement::Name {
    placement::Name::from(name.as_str())
}

/// All datastores that disks may be placed on and moved between, in one pool.
pub(super) struct Whole {
    pub pool: Pool,
    pub outside: Vec<Outside>,
    learnt: BTreeMap<Name, Learnt>,
}

/// What is known of a datastore's storage.
struct Known {
    /// The file system, whose space all datastores on it share; `None` where the datastore's device
    /// has a capacity of its own, or the directory cannot be examined.
    volume: Option<placement::Name>,
    facts: Facts,
}

/// Why disks are neither placed on a datastore nor moved to or from it.
fn apart(entry: &DatastoreEntry) -> Option<String> {
    if let Some(reason) = entry.service.reason() {
        return Some(format!("it is not serving: {reason}"));
    }
    match &entry.record.backend {
        Backend::Dir { .. } | Backend::Emulated { .. } => None,
        Backend::Block { .. } => Some("it is a block device, which is one disk".into()),
        Backend::Nbd { .. } | Backend::Stripe { .. } => {
            Some("its disks are exports of servers, which are not made here".into())
        }
        Backend::Memory { .. } => Some("it is memory, which keeps nothing".into()),
    }
}

/// Rules about disks that are there, and one that is to come.
fn known_groups(groups: &[Group], known: impl Fn(&placement::Name) -> bool) -> Vec<Group> {
    let of = |group: &Group| Group {
        name: group.name.clone(),
        disks: group.disks.iter().filter(|disk| known(disk)).cloned().collect(),
    };
    groups.iter().map(of).filter(|group| group.disks.len() > 1).collect()
}

/// The source of a pool's workloads and models.
pub(super) enum Knowledge {
    /// What samples say, back to the beginning of the window, with models learnt anew.
    Learnt(Lookback),
    /// The state when samples were last written, at most five minutes ago. Reads no file of
    /// samples, for callers that hold the catalog's lock.
    Remembered(Images),
}

/// Whether the allocated size of each image is examined. Moves need it, and so do disks that join
/// an affinity group spread over datastores, and a bound on all sizes. Otherwise the fill level of
/// a datastore suffices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Images {
    Looked,
    Passed,
}

impl Control {
    fn workloads_by(
        &self,
        knowledge: &Knowledge,
    ) -> Result<BTreeMap<Name, WorkloadProfile>, ControlError> {
        match knowledge {
            Knowledge::Learnt(window) => {
                let meters = self.samples.workloads(*window)?;
                Ok(meters
                    .into_iter()
                    .filter_map(|(disk, meter)| Some((disk, meter.profile()?)))
                    .collect())
            }
            Knowledge::Remembered(_) => Ok(self.samples.usual_workloads()),
        }
    }

    fn models_by(
        &self,
        knowledge: &Knowledge,
        of: &[Name],
    ) -> Result<BTreeMap<Name, Learnt>, ControlError> {
        match knowledge {
            Knowledge::Learnt(_) => {
                of.iter().map(|name| Ok((name.clone(), self.samples.learnt(name)?))).collect()
            }
            Knowledge::Remembered(_) => Ok(self.samples.usual_models(of)),
        }
    }

    /// The input of placement. Rules may name `newcomer`, a disk that does not exist yet. Linear in
    /// disks and datastores; examines each disk's image where that matters.
    ///
    /// # Errors
    /// When samples or the file system cannot be read.
    pub(super) fn pool(
        &self,
        knowledge: &Knowledge,
        newcomer: Option<&Name>,
    ) -> Result<Whole, ControlError> {
        let workloads = self.workloads_by(knowledge)?;
        let (datastores, disks, rules) = {
            let model = self.model();
            let datastores: Vec<DatastoreEntry> = model.datastores.values().cloned().collect();
            let with_class = |entry: &DiskEntry| {
                let mut entry = entry.clone();
                entry.record.placement.class = model.datastore_class(&entry.record).cloned();
                entry
            };
            let disks: Vec<DiskEntry> = model.disks.values().map(with_class).collect();
            (datastores, disks, model.rules.clone())
        };
        let (mut outside, mut part) = (Vec::new(), BTreeMap::new());
        for entry in &datastores {
            let datastore = entry.record.name.clone();
            let hangs = || self.hang(&datastore).map(|hang| format!("it hangs: {hang}"));
            match apart(entry).or_else(hangs) {
                Some(reason) => outside.push(Outside { datastore, reason }),
                None => {
                    part.insert(datastore, entry);
                }
            }
        }
        let passed = matches!(knowledge, Knowledge::Remembered(Images::Passed));
        let by_image = !passed || rules.space.overcommit.is_some();
        let images = if by_image { disks.as_slice() } else { &[] };
        let grounds = self.known(&part, images);
        for datastore in part.keys().filter(|name| !grounds.contains_key(*name)) {
            let reason = "its file system does not answer".into();
            outside.push(Outside { datastore: datastore.clone(), reason });
        }
        for (datastore, known) in &grounds {
            if let (Some(_), Some(Err(reason))) = (&known.volume, &known.facts.space) {
                let (datastore, reason) = (datastore.clone(), reason.clone());
                outside.push(Outside { datastore, reason });
            }
        }
        part.retain(|name, _| outside.iter().all(|out| out.datastore != *name));
        let names: Vec<Name> = part.keys().cloned().collect();
        let learnt = self.models_by(knowledge, &names)?;
        let mut pool = Pool { now: wall_clock(), ..Pool::default() };
        let mut ours: BTreeMap<&placement::Name, u64> = BTreeMap::new();
        for disk in &disks {
            if !part.contains_key(&disk.record.datastore) {
                continue;
            }
            let Some(ground) = grounds.get(&disk.record.datastore) else { continue };
            let used = ground.facts.allocated.get(&disk.record.name).copied();
            let used = used.filter(|_| by_image).unwrap_or(Bytes(0));
            if let Some(volume) = &ground.volume {
                *ours.entry(volume).or_default() += used.0;
            }
            let workload = workloads.get(&disk.record.name).copied();
            pool.disks.push(pool_disk(disk, used, workload));
        }
        for (datastore, entry) in &part {
            let model = learnt.get(datastore).and_then(|learnt| learnt.model);
            if let Some(known) = grounds.get(datastore) {
                pool.datastores.push(self.pool_datastore(entry, known, &ours, model)?);
            }
        }
        let here: BTreeSet<&placement::Name> = pool.disks.iter().map(|disk| &disk.name).collect();
        let known = |disk: &placement::Name| {
            here.contains(disk)
                || newcomer.is_some_and(|newcomer| newcomer.as_str() == disk.as_str())
        };
        let (affinity, anti_affinity) =
            (known_groups(&rules.affinity, known), known_groups(&rules.anti_affinity, known));
        pool.rules = Rules { affinity, anti_affinity, ..rules };
        pool.history = self.samples.known().moves.clone();
        Ok(Whole { pool, outside, learnt })
    }

    /// Asks the file systems of datastores, all at the same time, and for a bounded time. One that
    /// is busy is as it was when it was asked last; one that never answered is left out.
    fn known(
        &self,
        part: &BTreeMap<Name, &DatastoreEntry>,
        images: &[DiskEntry],
    ) -> BTreeMap<Name, Known> {
        let (answer, answers) = channel();
        let mut awaited = BTreeSet::new();
        for (name, entry) in part {
            let Some(directory) = self.directory(&entry.record.backend) else { continue };
            let on = images.iter().filter(|disk| disk.record.datastore == *name);
            let disks: Vec<Name> = on.map(|disk| disk.record.name.clone()).collect();
            let (me, its, answer) = (self.me.clone(), name.clone(), answer.clone());
            let asked = self.workers.start(name, "asking its file system", move |_| {
                let facts = super::revival::facts(&directory, &disks);
                if let Some(control) = me.upgrade() {
                    control.hangs().put_facts(&its, facts);
                }
                let _ = answer.send(its);
            });
            if asked.is_ok() {
                awaited.insert(name.clone());
            }
        }
        let deadline = Instant::now() + ASK;
        while !awaited.is_empty() {
            match answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(name) => drop(awaited.remove(&name)),
                Err(_) => break,
            }
        }
        let hangs = self.hangs();
        let known = |(name, entry): (&Name, &&DatastoreEntry)| {
            let facts = hangs.facts(name)?.clone();
            let volume = match flash::capacity_for_disks(entry) {
                Some(_) => None,
                None => facts.device.map(|device| format!("device {device}").into()),
            };
            Some((name.clone(), Known { volume, facts }))
        };
        part.iter().filter_map(known).collect()
    }

    /// A datastore. `ours` is what disks of ours have allocated on each file system.
    fn pool_datastore(
        &self,
        entry: &DatastoreEntry,
        ground: &Known,
        ours: &BTreeMap<&placement::Name, u64>,
        model: Option<placement::DeviceModel>,
    ) -> Result<Datastore, ControlError> {
        let record = &entry.record;
        let (capacity, foreign, provisioning) = match flash::capacity_for_disks(entry) {
            Some(capacity) => (capacity, Bytes(0), Provisioning::Thick),
            None => {
                let space = match &ground.facts.space {
                    Some(Ok(space)) => *space,
                    Some(Err(reason)) => return Err(PlaneError::new(reason).into()),
                    None => return Err(PlaneError::new("its space is not known").into()),
                };
                let taken = space.capacity.0.saturating_sub(space.free.0);
                let ours = ground
                    .volume
                    .as_ref()
                    .and_then(|volume| ours.get(volume))
                    .copied()
                    .unwrap_or(0);
                (space.capacity, Bytes(taken.saturating_sub(ours)), Provisioning::Thin)
            }
        };
        // Two directories on one file system share its device without a setting.
        let device = match &record.backend {
            Backend::Dir { .. } => ground.volume.clone(),
            _ => None,
        };
        let spindles = record.placement.spindles.as_ref().map(name);
        Ok(Datastore {
            name: name(&record.name),
            class: record.placement.class.as_ref().map(name),
            spindles: spindles.or(device),
            volume: ground.volume.clone(),
            capacity,
            foreign,
            provisioning,
            reservable: super::admission::reservable(
                record.capacity.as_ref(),
                super::capacity::most(record),
                self.options.reservable_percent,
            ),
            // As a disk's creation has it.
            promisable: match &record.backend {
                Backend::Dir { .. } => {
                    let room = capacity.0.saturating_sub(foreign.0);
                    record.placement.overcommit.unwrap_or_default().most(room).map(Bytes)
                }
                _ => None,
            },
            state: record.placement.state,
            model,
        })
    }

    /// The model of a datastore.
    ///
    /// # Errors
    /// When there is none of this name, or samples cannot be read.
    pub fn model_of(&self, datastore: &Name) -> Result<DatastoreModel, ControlError> {
        self.model().datastore(datastore)?;
        Ok(datastore_model(&self.samples.learnt(datastore)?))
    }

    /// The intervals or hours that a datastore's model is learnt from.
    ///
    /// # Errors
    /// When there is none of this name, or samples cannot be read.
    pub fn model_points(&self, datastore: &Name) -> Result<Vec<ModelPoint>, ControlError> {
        self.model().datastore(datastore)?;
        let points = self.samples.points(datastore)?;
        Ok(points.iter().filter_map(|(at, interval)| ModelPoint::new(*at, interval)).collect())
    }

    /// The hourly history of a datastore within the look-back.
    ///
    /// # Errors
    /// When there is none of this name, or samples cannot be read.
    pub fn datastore_history(
        &self,
        datastore: &Name,
        window: Lookback,
    ) -> Result<Vec<DatastoreHour>, ControlError> {
        self.model().datastore(datastore)?;
        let hours = self.samples.history(datastore, window)?;
        Ok(hours.iter().map(|(&begin, hour)| hour_view(begin, hour)).collect())
    }

    /// The pool that advice is given by.
    pub(super) fn pool_with_foreign(&self) -> Result<Pool, ControlError> {
        let mut whole = self.pool(&Knowledge::Learnt(Lookback::DAY), None)?;
        self.add_foreign(&mut whole.pool);
        Ok(whole.pool)
    }

    /// Which disks to move, and why the others stay.
    ///
    /// # Errors
    /// When samples or file systems cannot be read, or the rules contradict each other.
    pub fn advice(&self, window: Lookback) -> Result<AdviceReport, ControlError> {
        let mut whole = self.pool(&Knowledge::Learnt(window), None)?;
        self.add_foreign(&mut whole.pool);
        let pools = by_class(&whole.pool)
            .into_iter()
            .map(|(class, pool)| {
                let advice = placement::advise(&pool).map_err(|e| contradiction(&e))?;
                Ok(PoolAdvice { class, pool, advice })
            })
            .collect::<Result<_, ControlError>>()?;
        let models = whole
            .learnt
            .iter()
            .map(|(name, learnt)| (name.to_string(), datastore_model(learnt)))
            .collect();
        let reviews = self.reviews(&whole.pool)?;
        Ok(AdviceReport {
            window: Some(window.to_string()),
            pools,
            outside: whole.outside,
            models,
            reviews,
            automatic: Some(whole.pool.rules.automatic),
        })
    }

    /// The rules of placement.
    pub fn rules(&self) -> Rules {
        self.model().rules.clone()
    }

    /// Replaces the rules of placement. Answers what may not be as intended. What has stopped
    /// automatic moves is forgiven only with a change of their mode: rules that are set again and
    /// again are no operator who looks.
    ///
    /// # Errors
    /// When they contradict each other or the disks that are there, or the catalog fails.
    pub fn set_rules(&self, mut rules: Rules) -> Result<Vec<String>, ControlError> {
        let known = self.pool(&Knowledge::Remembered(Images::Passed), None)?.pool;
        let names: BTreeSet<&str> = known.disks.iter().map(|disk| disk.name.as_str()).collect();
        let in_rules =
            rules.affinity.iter().chain(&rules.anti_affinity).flat_map(|group| &group.disks);
        let missing: BTreeSet<&str> =
            in_rules.map(placement::Name::as_str).filter(|disk| !names.contains(disk)).collect();
        let here = |disk: &placement::Name| names.contains(disk.as_str());
        let checked = Rules {
            affinity: known_groups(&rules.affinity, here),
            anti_affinity: known_groups(&rules.anti_affinity, here),
            ..rules.clone()
        };
        placement::advise(&Pool { rules: checked, ..known.clone() })
            .map_err(|e| contradiction(&e))?;
        let warn = |disk| {
            format!("there is no disk '{disk}' yet: the rule counts for it once it is there")
        };
        let warnings: Vec<String> = missing.into_iter().map(warn).collect();
        let mut catalog = self.catalog_for(&Thing::Rules)?;
        let before = self.rules().automatic;
        let asked = rules.automatic;
        rules.automatic = match asked.mode == before.mode {
            true => Automatic { since: before.since, stopped: before.stopped, ..asked },
            false => asked.set(wall_clock()),
        };
        in_earnest(|| self.would_rule(&rules, &warnings))?;
        catalog.put_rules(&rules)?;
        self.model_mut().rules = rules;
        drop(catalog);
        self.forget_what_was_asked();
        Ok(warnings)
    }
}

impl Control {
    /// What these rules would change of those that are.
    pub(crate) fn would_rule(&self, rules: &Rules, warnings: &[String]) -> DryRun {
        let [was, is] = [&self.model().rules, rules].map(of_rules);
        let changes = tell(&Thing::Rules, Some(&was), Some(&is)).into_iter().collect();
        DryRun { changes, warnings: warnings.to_vec(), ..DryRun::default() }
    }
}

fn pool_disk(disk: &DiskEntry, used: Bytes, workload: Option<WorkloadProfile>) -> PoolDisk {
    let record = &disk.record;
    PoolDisk {
        name: name(&record.name),
        vm: record.vm.as_ref().map(name),
        datastore: name(&record.datastore),
        size: record.size,
        used,
        reservation: record.policy.reservation,
        workload,
        mobility: record.placement.mobility,
        class: record.placement.class.as_ref().map(name),
        affinity: record.placement.affinity,
    }
}

pub(super) fn contradiction(error: &placement::PoolError) -> ControlError {
    ControlError::invalid(
        error.to_string(),
        "rules that agree with each other and with the disks: see 'headgate rules show'",
    )
}

/// A pool for each class of datastores. Classes are one pool where a disk is on a datastore of
/// another class than it must be on, so that it can be moved to where it belongs.
pub(super) fn by_class(whole: &Pool) -> Vec<(Option<Name>, Pool)> {
    let classes: BTreeSet<Option<&placement::Name>> =
        whole.datastores.iter().map(|datastore| datastore.class.as_ref()).collect();
    let mut groups: Vec<BTreeSet<Option<&placement::Name>>> =
        classes.into_iter().map(|class| BTreeSet::from([class])).collect();
    for disk in &whole.disks {
        let Some(wanted) = disk.class.as_ref() else { continue };
        let on = whole.datastores.iter().find(|datastore| datastore.name == disk.datastore);
        let is = on.and_then(|datastore| datastore.class.as_ref());
        let of = |class| groups.iter().position(|group| group.contains(&class));
        if let (Some(a), Some(b)) = (of(is), of(Some(wanted)))
            && a != b
        {
            let (first, second) = (a.min(b), a.max(b));
            let joined = groups.remove(second);
            groups[first].extend(joined);
        }
    }
    let volume_of: BTreeMap<&placement::Name, &placement::Name> = whole
        .datastores
        .iter()
        .filter_map(|datastore| Some((&datastore.name, datastore.volume.as_ref()?)))
        .collect();
    let pool = |classes: BTreeSet<Option<&placement::Name>>| {
        let mut datastores: Vec<Datastore> = whole
            .datastores
            .iter()
            .filter(|d| classes.contains(&d.class.as_ref()))
            .cloned()
            .collect();
        let here: BTreeSet<placement::Name> = datastores.iter().map(|d| d.name.clone()).collect();
        let (disks, others): (Vec<&PoolDisk>, Vec<&PoolDisk>) =
            whole.disks.iter().partition(|disk| here.contains(&disk.datastore));
        let disks: Vec<PoolDisk> = disks.into_iter().cloned().collect();
        // Disks of other classes on the same file system.
        let mut theirs: BTreeMap<&placement::Name, (u64, u64)> = BTreeMap::new();
        for disk in others {
            if let Some(&volume) = volume_of.get(&disk.datastore) {
                let (used, sizes) = theirs.entry(volume).or_default();
                (*used, *sizes) = (*used + disk.used.0, sizes.saturating_add(disk.size.0));
            }
        }
        for datastore in &mut datastores {
            let volume = datastore.volume.as_ref();
            let Some((used, sizes)) = volume.and_then(|volume| theirs.get(volume)) else {
                continue;
            };
            datastore.foreign.0 += used;
            let most = datastore.promisable;
            datastore.promisable = most.map(|most| Bytes(most.0.saturating_sub(*sizes)));
        }
        let names: BTreeSet<&placement::Name> = disks.iter().map(|disk| &disk.name).collect();
        let known = |disk: &placement::Name| names.contains(disk);
        let rules = Rules {
            affinity: known_groups(&whole.rules.affinity, known),
            anti_affinity: known_groups(&whole.rules.anti_affinity, known),
            ..whole.rules.clone()
        };
        let class =
            classes.iter().next().copied().flatten().and_then(|class| class.as_str().parse().ok());
        let pool = Pool { datastores, disks, rules, ..whole.clone() };
        (class, pool)
    };
    groups.into_iter().map(pool).collect()
}
