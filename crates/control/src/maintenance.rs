//! Empties datastores, one disk after the other.
//!
//! That a datastore is to be emptied is in the catalog; what comes of it is found out anew by each
//! daemon. Where its disks go is advice's to say, which keeps what must be together together; disks
//! of what takes no part in advice are placed as new ones are.

use crate::balance::{CARRY, request};
use crate::emptied::{Found, Leave};
use crate::leases::Next;
use crate::pools::{Images, Knowledge, Whole, by_class, contradiction, name};
use crate::{Control, ControlError};
use headgate_api::maintenance::{Leaving, Maintenance, MaintenanceState, MaintenanceWish};
use headgate_api::placement::DatastorePlacementPatch;
use headgate_api::types::DatastorePatch;
use headgate_events::Entry;
use headgate_model::{DiskRecord, EmptiedBy, MovePace, Name};
use headgate_placement::{self as placement, Mobility, NewDisk, NoPlace, State};
use serde_json::json;
use std::time::Instant;
use tracing::{info, warn};

fn as_new(record: &DiskRecord, workload: Option<placement::WorkloadProfile>) -> NewDisk {
    NewDisk {
        name: name(&record.name),
        vm: record.vm.as_ref().map(name),
        size: record.size,
        expected: None,
        reservation: record.policy.reservation,
        workload,
        class: record.placement.class.as_ref().map(name),
        affinity: record.placement.affinity,
    }
}

impl Control {
    /// Has a datastore emptied, or takes that back: then no further disk leaves it.
    ///
    /// # Errors
    /// When there is none of this name, or as [`maintenance`](Self::maintenance).
    pub fn set_maintenance(
        &self,
        datastore: &Name,
        wish: MaintenanceWish,
    ) -> Result<Maintenance, ControlError> {
        let (state, emptied_by) = match wish {
            MaintenanceWish::On => (State::Maintenance, EmptiedBy::Daemon),
            MaintenanceWish::Off => (State::Active, EmptiedBy::Operator),
        };
        let placement = DatastorePlacementPatch {
            state: Some(state),
            emptied_by: Some(emptied_by),
            ..DatastorePlacementPatch::default()
        };
        let patch = DatastorePatch { placement, ..DatastorePatch::default() };
        self.set_datastore(datastore, patch)?;
        self.emptied().0.remove(datastore);
        self.maintenance(datastore)
    }

    /// How far a datastore's maintenance is. Of one that nobody has looked at yet it says where its
    /// disks can go now.
    ///
    /// # Errors
    /// When there is none of this name, or file systems or samples cannot be read.
    pub fn maintenance(&self, datastore: &Name) -> Result<Maintenance, ControlError> {
        let (placement, disks, copies, moving) = {
            let model = self.model();
            let placement = model.datastore(datastore)?.record.placement.clone();
            let leaves = |record: &headgate_model::MoveRecord| {
                record.source == *datastore && record.target != *datastore
            };
            let under_way = model.moves.values().filter(|one| !one.is_over());
            let leaving = under_way.map(|one| &one.record).filter(|record| leaves(record));
            let leaving: Vec<Leaving> = leaving
                .map(|record| Leaving { disk: record.disk.clone(), to: record.target.clone() })
                .collect();
            let copies = model.copies_on(datastore).count();
            (placement, model.disks_on(datastore).count(), copies, leaving)
        };
        let nothing = Maintenance {
            datastore: datastore.clone(),
            state: MaintenanceState::Off,
            disks,
            moving,
            waiting: Vec::new(),
            stuck: Vec::new(),
        };
        if placement.state != State::Maintenance {
            return Ok(nothing);
        }
        if copies == 0 {
            return Ok(Maintenance { state: MaintenanceState::Empty, ..nothing });
        }
        let (known, is_due) = {
            let emptied = self.emptied();
            let known = emptied.0.get(datastore);
            (known.and_then(|one| one.found.clone()), known.is_none_or(|one| one.looked.is_none()))
        };
        let found = match known {
            Some(found) => found,
            None => self.ways_out(datastore)?,
        };
        let leaves = |one: &&Leaving| nothing.moving.iter().all(|moving| moving.disk != one.disk);
        let waiting: Vec<Leaving> = found.waiting.iter().filter(leaves).cloned().collect();
        // With no disk a copy is left, which is to be removed.
        let goes_on = !nothing.moving.is_empty() || !waiting.is_empty() || is_due || disks == 0;
        let state = match placement.emptied_by {
            EmptiedBy::Operator => MaintenanceState::Advised,
            EmptiedBy::Daemon if goes_on => MaintenanceState::Emptying,
            EmptiedBy::Daemon => MaintenanceState::Stuck,
        };
        Ok(Maintenance { state, waiting, stuck: found.stuck(), ..nothing })
    }

    /// Has the next disk leave a datastore that is to be emptied, if none is on its way.
    pub(crate) fn empty_datastores(&self) -> Next {
        let (wanted, is_leaving) = {
            let model = self.model();
            let wanted = model.datastores.values().filter(|entry| {
                let placement = &entry.record.placement;
                placement.state == State::Maintenance && placement.emptied_by == EmptiedBy::Daemon
            });
            let wanted: Vec<Name> = wanted.map(|entry| entry.record.name.clone()).collect();
            let leaves = |one: &crate::moving::Moving| {
                wanted.contains(&one.record.source) && !one.is_within()
            };
            let is_leaving = model.moves.values().any(|one| !one.is_over() && leaves(one));
            (wanted, is_leaving)
        };
        self.emptied().0.retain(|datastore, _| wanted.contains(datastore));
        if wanted.is_empty() {
            return Next::WhenRung;
        }
        if !is_leaving {
            // One at a time.
            let _ = wanted.iter().any(|datastore| self.empty(datastore) == Leave::Begun);
        }
        Next::After(CARRY)
    }

    /// Has the next disk leave, if it is time.
    fn empty(&self, datastore: &Name) -> Leave {
        let (disks, copies) = {
            let model = self.model();
            (model.disks_on(datastore).count(), model.copies_on(datastore).count())
        };
        {
            let (mut emptied, changes) = (self.emptied(), self.changes());
            let known = emptied.0.entry(datastore.clone()).or_default();
            if copies == 0 {
                if !std::mem::replace(&mut known.is_told, true) {
                    info!(%datastore, "the datastore is empty");
                    self.note(Entry::noticed("datastore is empty").of_datastore(datastore));
                }
                return Leave::Nobody;
            }
            known.is_told = false;
            if disks == 0 || !known.is_due(Instant::now(), changes) {
                return Leave::Nobody;
            }
        }
        let mut found = match self.ways_out(datastore) {
            Ok(found) => found,
            Err(e) => {
                warn!(%datastore, error = %e, "nobody knows where its disks could go");
                Found::default()
            }
        };
        let begun = self.let_one_leave(datastore, &mut found);
        // What was tried in vain has changed something, too.
        let looked = (begun == Leave::Nobody).then(|| (Instant::now(), self.changes()));
        if let Some(known) = self.emptied().0.get_mut(datastore) {
            tell_stuck(datastore, known.found.as_ref(), &found);
            (known.looked, known.found) = (looked, Some(found));
        }
        begun
    }

    /// Has the first disk leave that can. Those that cannot are stuck.
    fn let_one_leave(&self, datastore: &Name, found: &mut Found) -> Leave {
        while let Some(Leaving { disk, to }) = found.waiting.first().cloned() {
            let wish = request(to.clone(), MovePace::default());
            let begun = self
                .check_still_emptied(datastore)
                .and_then(|()| self.try_move(&disk, &wish))
                .and_then(|_| self.migrate_disk(&disk, wish));
            found.waiting.remove(0);
            match begun {
                Ok(_) => {
                    info!(%disk, from = %datastore, %to, "the disk leaves a datastore in maintenance");
                    let leaves = Entry::done("move out of maintenance begins").of_disk(&disk);
                    self.note(leaves.with_new(json!({"from": datastore, "to": to})));
                    return Leave::Begun;
                }
                Err(e) => _ = found.stuck.insert(disk.to_string(), e.to_string()),
            }
        }
        Leave::Nobody
    }

    fn check_still_emptied(&self, datastore: &Name) -> Result<(), ControlError> {
        let placement = self.model().datastore(datastore)?.record.placement.clone();
        match (placement.state, placement.emptied_by) {
            (State::Maintenance, EmptiedBy::Daemon) => Ok(()),
            _ => Err(ControlError::Busy {
                error: format!("datastore '{datastore}' is to be emptied no more"),
                hint: format!("'headgate datastore maintenance {datastore} on' has it emptied"),
            }),
        }
    }

    /// Where the disks of a datastore can go, and which cannot.
    fn ways_out(&self, datastore: &Name) -> Result<Found, ControlError> {
        let whole = self.pool(&Knowledge::Remembered(Images::Looked), None)?;
        let is_here = |store: &placement::Datastore| store.name.as_str() == datastore.as_str();
        let mut found = match whole.pool.datastores.iter().any(is_here) {
            true => advised_ways(&whole, datastore)?,
            false => self.placed_ways(&whole, datastore),
        };
        let model = self.model();
        let is_on_its_way = |disk: &Name| model.moves.get(disk).is_some_and(|one| !one.is_over());
        found.waiting.retain(|one| !is_on_its_way(&one.disk));
        drop(model);
        Ok(found)
    }

    /// Ways out of what takes no part in advice: each disk is placed as a new one.
    fn placed_ways(&self, whole: &Whole, datastore: &Name) -> Found {
        let model = self.model();
        let disks: Vec<DiskRecord> = model
            .disks_on(datastore)
            .map(|entry| {
                let mut record = entry.record.clone();
                record.placement.class = model.datastore_class(&entry.record).cloned();
                record
            })
            .collect();
        drop(model);
        let mut workloads = self.samples.usual_workloads();
        let mut found = Found::default();
        for record in disks {
            let disk = record.name.clone();
            let placed = match record.placement.mobility {
                Mobility::Pinned => Err("it is pinned".to_owned()),
                Mobility::Free => {
                    let new = as_new(&record, workloads.remove(&disk));
                    placement::place(&whole.pool, &new).map_err(|e: NoPlace| e.to_string())
                }
            };
            match placed.map(|placed| placed.datastore.as_str().parse::<Name>()) {
                Ok(Ok(to)) => found.waiting.push(Leaving { disk, to }),
                Ok(Err(e)) => _ = found.stuck.insert(disk.to_string(), e.to_string()),
                Err(reason) => _ = found.stuck.insert(disk.to_string(), reason),
            }
        }
        found
    }
}

/// Says which disks cannot leave, once for each reason.
fn tell_stuck(datastore: &Name, before: Option<&Found>, now: &Found) {
    for (disk, reason) in &now.stuck {
        if before.and_then(|before| before.stuck.get(disk)) != Some(reason) {
            warn!(%disk, %datastore, %reason, "the disk cannot leave a datastore in maintenance");
        }
    }
}

/// Ways out as advice has them.
fn advised_ways(whole: &Whole, datastore: &Name) -> Result<Found, ControlError> {
    let mut found = Found::default();
    for (_, pool) in by_class(&whole.pool) {
        let is_here = |disk: &placement::PoolDisk| disk.datastore.as_str() == datastore.as_str();
        if !pool.disks.iter().any(is_here) {
            continue;
        }
        let advice = placement::advise(&pool).map_err(|e| contradiction(&e))?;
        for each in advice.moves.iter().filter(|each| each.from.as_str() == datastore.as_str()) {
            let (disk, to) = (each.disk.as_str().parse(), each.to.as_str().parse());
            let (Ok(disk), Ok(to)) = (disk, to) else { continue };
            found.waiting.push(Leaving { disk, to });
        }
        let here = |stay: &&placement::Staying| {
            pool.disks.iter().any(|disk| disk.name == stay.disk && is_here(disk))
        };
        for stay in advice.stays.iter().filter(here) {
            found.stuck.insert(stay.disk.to_string(), stay.why.to_string());
        }
    }
    Ok(found)
}
