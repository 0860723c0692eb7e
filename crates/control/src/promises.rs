//! Changes of what many disks are promised: checked together before anything is changed, written
//! down in one step, and in force at all of them or at none.

use super::classes::some;
use super::disks::{check_policy, policy_warnings};
use super::{Control, ControlError, Model, Service, crash};
use crate::tenants::check_group_policy;
use headgate_api::apply::PromisesOn;
use headgate_api::terms::DryRun;
use headgate_api::types::Force;
use headgate_catalog::{Catalog, PolicyChange};
use headgate_model::{DatastoreRecord, DiskRecord, Name, PlannedRecord, Policy};
use headgate_units::Iops;
use std::collections::BTreeSet;
use tracing::error;

/// What a change comes to that may be made.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) warnings: Vec<String>,
    /// Datastores of which more or less is promised.
    pub(super) promises: Vec<PromisesOn>,
}

impl Judged {
    /// A dry run, with what would be promised.
    pub(super) fn as_dry_run(&self, run: DryRun) -> DryRun {
        DryRun { promises: self.promises.clone(), ..run }
    }
}

impl Model {
    /// What is known once a change is made, as far as promises go.
    pub(super) fn after(&self, change: &PolicyChange) -> Model {
        let mut after = Model {
            datastores: self.datastores.clone(),
            disks: self.disks.clone(),
            moves: self.moves.clone(),
            classes: self.classes.clone(),
            planned: self.planned.clone(),
            vms: self.vms.clone(),
            tenants: self.tenants.clone(),
            ..Model::default()
        };
        after.take(change);
        after
    }

    /// Knows of a change.
    fn take(&mut self, change: &PolicyChange) {
        self.classes.retain(|name, _| !change.gone_classes.contains(name));
        self.classes.extend(change.classes.iter().map(|one| (one.name.clone(), one.clone())));
        let gone: BTreeSet<&Name> = change.gone_planned.iter().collect();
        self.planned.retain(|name, _| !gone.contains(name));
        self.planned.extend(change.planned.iter().map(|one| (one.name.clone(), one.clone())));
        self.tenants.retain(|name, _| !change.gone_tenants.contains(name));
        self.tenants.extend(change.tenants.iter().map(|one| (one.name.clone(), one.clone())));
        self.vms.retain(|name, _| !change.gone_vms.contains(name));
        self.vms.extend(change.vms.iter().map(|one| (one.name.clone(), one.clone())));
        change.disks.iter().for_each(|record| self.set_record(record.clone()));
        for record in &change.datastores {
            if let Some(entry) = self.datastores.get_mut(&record.name) {
                entry.record = record.clone();
            }
        }
    }

    /// The change that takes another one back.
    fn undo_of(&self, change: &PolicyChange) -> PolicyChange {
        let disk = |record: &DiskRecord| Some(self.disks.get(&record.name)?.record.clone());
        let store = |one: &DatastoreRecord| Some(self.datastores.get(&one.name)?.record.clone());
        let changed = change.classes.iter().map(|one| &one.name).chain(&change.gone_classes);
        let planned = change.planned.iter().map(|one| &one.name).chain(&change.gone_planned);
        let is_new = |name: &&Name| !self.classes.contains_key(*name);
        let is_new_plan = |name: &&Name| !self.planned.contains_key(*name);
        PolicyChange {
            gone_classes: changed.clone().filter(is_new).cloned().collect(),
            classes: changed.filter_map(|name| self.classes.get(name)).cloned().collect(),
            disks: change.disks.iter().filter_map(disk).collect(),
            datastores: change.datastores.iter().filter_map(store).collect(),
            gone_planned: planned.clone().filter(is_new_plan).cloned().collect(),
            planned: planned.filter_map(|name| self.planned.get(name)).cloned().collect(),
            ..self.undo_of_groups(change)
        }
    }

    /// Of tenants and virtual machines alone.
    fn undo_of_groups(&self, change: &PolicyChange) -> PolicyChange {
        let tenants = change.tenants.iter().map(|one| &one.name).chain(&change.gone_tenants);
        let vms = change.vms.iter().map(|one| &one.name).chain(&change.gone_vms);
        let is_new_tenant = |name: &&Name| !self.tenants.contains_key(*name);
        let is_new_vm = |name: &&Name| !self.vms.contains_key(*name);
        PolicyChange {
            gone_tenants: tenants.clone().filter(is_new_tenant).cloned().collect(),
            tenants: tenants.filter_map(|name| self.tenants.get(name)).cloned().collect(),
            gone_vms: vms.clone().filter(is_new_vm).cloned().collect(),
            vms: vms.filter_map(|name| self.vms.get(name)).cloned().collect(),
            ..PolicyChange::default()
        }
    }

    /// Disks that a change makes a datastore promise more to, as `name (+IOPS)`.
    fn risen_on(&self, after: &Model, datastore: &Name) -> Vec<String> {
        let made = after.promised_on(datastore).map(|entry| &entry.record);
        let made = made.map(|record| {
            let before = self.disks.get(&record.name).and_then(|entry| entry.record.promised());
            (&record.name, record.promised(), before)
        });
        let planned = after.planned.values().filter(|one| one.datastore == *datastore);
        let planned = planned.map(|one| {
            let before = self.planned.get(&one.name).filter(|old| old.datastore == *datastore);
            let before = before.and_then(|old| self.policy_planned(old).reservation);
            (&one.name, after.policy_planned(one).reservation, before)
        });
        let risen = made.chain(planned).filter_map(|(name, now, before)| {
            let of = |rate: Option<Iops>| rate.map_or(0, Iops::get);
            let more = of(now).checked_sub(of(before)).filter(|more| *more > 0)?;
            Some(format!("'{name}' (+{more})"))
        });
        risen.collect()
    }
}

impl Control {
    /// Whether what disks are promised after a change contradicts nothing, and fits.
    pub(super) fn judge_promises(
        &self,
        model: &Model,
        change: &PolicyChange,
        force: Force,
    ) -> Result<Judged, ControlError> {
        let after = model.after(change);
        check_policies(model, &after, change)?;
        for tenant in &change.tenants {
            check_group_policy(&format!("tenant '{}'", tenant.name), &tenant.policy)?;
        }
        change.vms.iter().try_for_each(|vm| after.check_promise(vm))?;
        model.check_groups_after(&after)?;
        model.check_quotas_after(&after)?;
        let mut warnings = BTreeSet::new();
        let (promises, unfit) = self.judge_rates(model, &after, change);
        match force {
            Force::Yes => warnings.extend(unfit.iter().map(|what| format!("overbooked: {what}"))),
            Force::No if unfit.is_empty() => {}
            Force::No => return Err(ControlError::Unfit { what: unfit.join("; ") }),
        }
        self.judge_targets(model, &after, change, force, &mut warnings)?;
        Ok(Judged { warnings: warnings.into_iter().collect(), promises })
    }

    /// What datastores promise before and after, and which of them could not keep it.
    fn judge_rates(
        &self,
        model: &Model,
        after: &Model,
        change: &PolicyChange,
    ) -> (Vec<PromisesOn>, Vec<String>) {
        let (mut promises, mut unfit) = (Vec::new(), Vec::new());
        let regrouped = !model.undo_of_groups(change).is_empty();
        let all = model.datastores.keys().filter(|_| regrouped);
        let touched: BTreeSet<&Name> = change
            .disks
            .iter()
            .flat_map(|disk| {
                let moving = model.moves.get(&disk.name);
                let target = moving.and_then(|moving| moving.arrives_at());
                std::iter::once(&disk.datastore).chain(target)
            })
            .chain(change.planned.iter().map(|one| &one.datastore))
            .chain(change.datastores.iter().map(|one| &one.name))
            .chain(
                change
                    .gone_planned
                    .iter()
                    .filter_map(|gone| Some(&model.planned.get(gone)?.datastore)),
            )
            .chain(change.classes.iter().flat_map(|class| {
                let of_it = |one: &&PlannedRecord| one.class.as_ref() == Some(&class.name);
                model.planned.values().filter(of_it).map(|one| &one.datastore)
            }))
            .chain(all)
            .collect();
        for name in touched {
            let (Some(old), Some(new)) = (model.datastores.get(name), after.datastores.get(name))
            else {
                continue;
            };
            let before = self.reservable_rate(model, old);
            let rate = self.reservable_rate(after, new);
            if (before.reserved, before.bound()) != (rate.reserved, rate.bound()) {
                promises.push(PromisesOn {
                    datastore: name.clone(),
                    before: before.reserved,
                    after: rate.reserved,
                    reservable: rate.bound(),
                });
            }
            if rate.overbooked() > 0 && rate.reserved > before.reserved {
                let risen = model.risen_on(after, name);
                let more = risen.len().saturating_sub(5);
                let named = risen.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let named = if named.is_empty() { "its groups".to_owned() } else { named };
                unfit.push(format!(
                    "datastore '{name}' can promise {} IOPS, has promised {}, and would have \
                     promised {}: {} too many, for {named}{more}",
                    rate.bound().unwrap_or(0),
                    before.reserved,
                    rate.reserved,
                    rate.overbooked()
                ));
            }
        }
        (promises, unfit)
    }

    /// Whether latency targets can be kept beside each other, and what else is to be said.
    fn judge_targets(
        &self,
        model: &Model,
        after: &Model,
        change: &PolicyChange,
        force: Force,
        warnings: &mut BTreeSet<String>,
    ) -> Result<(), ControlError> {
        for record in &change.disks {
            let before = model.disk(&record.name)?.record.policy;
            if record.policy == before {
                continue;
            }
            let moving = model.moves.get(&record.name).and_then(|moving| moving.arrives_at());
            for on in std::iter::once(&record.datastore).chain(moving) {
                let store = after.datastore(on)?;
                let disk = Some((&record.name, &before));
                let said = self.check_latency(after, store, &record.policy, disk, force);
                let of = format!("disk '{}'", record.name);
                warnings.extend(said.map_err(|e| e.of(&of))?);
                warnings.extend(policy_warnings(&record.policy, store));
            }
        }
        for planned in &change.planned {
            let (store, policy) =
                (after.datastore(&planned.datastore)?, after.policy_planned(planned));
            let said = self.check_latency(after, store, &policy, None, force);
            warnings.extend(said.map_err(|e| e.of(&format!("disk '{}'", planned.name)))?);
            warnings.extend(policy_warnings(&policy, store));
        }
        Ok(())
    }

    /// Makes a change that was judged. Its caller holds the catalog from before that on.
    ///
    /// # Errors
    /// When the catalog or a shard fails: everything is as it was then.
    pub(super) fn put_policies(
        &self,
        catalog: &mut dyn Catalog,
        change: &PolicyChange,
    ) -> Result<(), ControlError> {
        let undo = self.model().undo_of(change);
        catalog.change_policies(change)?;
        crash::point("policies written down");
        let after = self.model().after(change);
        let in_force = self.put_stores_in_force(&undo, change).and_then(|()| {
            self.put_disks_and_groups_in_force(&undo, change, &after).inspect_err(|_| {
                if let Err(error) = self.put_stores_in_force(change, &undo) {
                    error!(%error, "datastores are not what they were before a change that failed");
                }
            })
        });
        if let Err(e) = in_force {
            catalog.change_policies(&undo)?;
            return Err(e);
        }
        self.model_mut().take(change);
        // A disk that was opened meanwhile went by what was known then.
        if let Err(error) = self.put_groups_now() {
            error!(%error, "groups of disks are not what is known");
        }
        Ok(())
    }

    fn put_disks_and_groups_in_force(
        &self,
        undo: &PolicyChange,
        change: &PolicyChange,
        after: &Model,
    ) -> Result<(), ControlError> {
        self.put_all_in_force(&undo.disks, &change.disks)?;
        self.put_groups(after).inspect_err(|_| {
            if let Err(error) = self.put_all_in_force(&change.disks, &undo.disks) {
                error!(%error, "policies are not what they were before a change that failed");
            }
        })
    }

    /// Hands what is new of datastores to their shards. Where one does not confirm, those before it
    /// have again what they had.
    fn put_stores_in_force(
        &self,
        before: &PolicyChange,
        now: &PolicyChange,
    ) -> Result<(), ControlError> {
        let serves = |store: &DatastoreRecord| {
            let model = self.model();
            let entry = model.datastores.get(&store.name);
            entry.is_some_and(|entry| entry.service == Service::Serving)
        };
        let pairs = before.datastores.iter().zip(&now.datastores);
        let pairs: Vec<_> = pairs.filter(|(old, _)| serves(old)).collect();
        for (at, (old, new)) in pairs.iter().enumerate() {
            let Err(e) = self.bring_into_force(old, new) else { continue };
            // What it took of it goes, too.
            for (old, new) in pairs[..=at].iter().rev() {
                if let Err(error) = self.bring_into_force(new, old) {
                    error!(datastore = %old.name, %error, "its settings are not what they were");
                }
            }
            return Err(e.into());
        }
        Ok(())
    }

    /// Hands what is new of disks to their shards. Where one does not confirm, those before it have
    /// again what they had.
    fn put_all_in_force(
        &self,
        before: &[DiskRecord],
        now: &[DiskRecord],
    ) -> Result<(), ControlError> {
        let serves = |disk: &DiskRecord| {
            let model = self.model();
            model.disks.get(&disk.name).is_some_and(|entry| entry.service == Service::Serving)
        };
        let pairs: Vec<_> = before.iter().zip(now).filter(|(old, _)| serves(old)).collect();
        for (at, (old, new)) in pairs.iter().enumerate() {
            let Err(e) = self.put_disk_in_force(old, new) else { continue };
            for (old, new) in pairs[..at].iter().rev() {
                if let Err(error) = self.put_disk_in_force(new, old) {
                    error!(disk = %old.name, %error, "its policy is not what it was");
                }
            }
            return Err(e);
        }
        Ok(())
    }

    /// Tells servers of striped disks what these are promised. Answers who does not keep it.
    pub(super) fn announce_all(&self, change: &PolicyChange) -> Vec<String> {
        let striped =
            |disk: &&DiskRecord| disk.remote.as_ref().is_some_and(|remote| remote.stripe.is_some());
        change.disks.iter().filter(striped).flat_map(|disk| self.announce(disk)).collect()
    }
}

/// That no disk would have a policy that contradicts itself.
fn check_policies(model: &Model, after: &Model, change: &PolicyChange) -> Result<(), ControlError> {
    let made = change.disks.iter().map(|record| (&record.name, record.policy));
    let of_changed_class =
        |class: Option<&Name>| change.classes.iter().any(|changed| class == Some(&changed.name));
    let planned = after
        .planned
        .values()
        .filter(|one| change.planned.contains(one) || of_changed_class(one.class.as_ref()));
    let planned = planned.map(|one| (&one.name, after.policy_planned(one)));
    let is_new = |(name, policy): &(&Name, Policy)| {
        model.disks.get(*name).is_none_or(|entry| entry.record.policy != *policy)
    };
    let mut first = None;
    let mut names = Vec::new();
    for (name, policy) in made.chain(planned).filter(is_new) {
        if let Err(e) = check_policy(&policy) {
            names.push(name);
            first.get_or_insert(e);
        }
    }
    match first {
        None => Ok(()),
        Some(e) => {
            let kind = if names.len() == 1 { "disk" } else { "disks" };
            Err(e.of(&format!("{kind} {}", some(names.into_iter()))))
        }
    }
}
