//! What the daemon tells as events: what it does by itself, and what lasts.

use crate::event_log::EventLog;
use crate::{Control, Model, Service};
use headgate_events::{Condition, ConditionKind, Entry, Stream, Subject};
use headgate_model::Name;
use std::collections::BTreeSet;
use std::sync::PoisonError;

/// Datastores and disks that are not in service. O(disks).
fn of_model(model: &Model) -> Vec<Condition> {
    let mut found = Vec::new();
    for (name, entry) in &model.datastores {
        if let Service::Failed(why) = &entry.service {
            let (kind, why) = (ConditionKind::Failed, Some(why.clone()));
            found.push(Condition::of_datastore(kind, name.as_str(), why));
        }
    }
    for (name, entry) in &model.disks {
        let (kind, why) = match &entry.service {
            Service::Serving | Service::Starting | Service::Creating => continue,
            Service::Failed(why) => (ConditionKind::Failed, why),
            Service::Stopped(why) | Service::Evicted(why) => (ConditionKind::Stopped, why),
        };
        found.push(Condition::of_disk(kind, name.as_str(), Some(why.clone())));
    }
    found
}

impl Control {
    /// The log of events.
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// The virtual machines of these disks, of those that are there; `None`: one belongs to none.
    pub fn owners(&self, disks: &[String]) -> Option<Vec<String>> {
        let model = self.model();
        let there = disks.iter().filter_map(|disk| model.disks.get(&disk.parse::<Name>().ok()?));
        let owners = there.map(|entry| entry.record.vm.as_ref().map(Name::to_string));
        let owners = owners.collect::<Option<BTreeSet<String>>>()?;
        Some(owners.into_iter().collect())
    }

    /// Tells what the daemon did or noticed by itself.
    pub fn note(&self, mut entry: Entry) {
        entry.machines = self.owners(&entry.disks).unwrap_or_default();
        self.events.tell(Stream::Daemon, entry);
    }

    /// What is not as it should be now, but for what [`crate::DiskConditions`] finds in samples.
    pub fn conditions(&self) -> Vec<Condition> {
        let (mut found, datastores): (_, Vec<Name>) = {
            let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
            let model = self.model();
            let found = wrong.at(self.changes(), || of_model(&model)).clone();
            (found, model.datastores.keys().cloned().collect())
        };
        for name in &datastores {
            if let Some(hang) = self.hang(name) {
                let (kind, why) = (ConditionKind::Hangs, Some(hang.to_string()));
                found.push(Condition::of_datastore(kind, name.as_str(), why));
            }
        }
        if self.leases.etcd_answers() == Some(false) {
            found.push(Condition {
                kind: ConditionKind::LeasesInDoubt,
                object: Subject::new("leases", "etcd"),
                disks: Vec::new(),
                why: Some("etcd does not answer".into()),
            });
        }
        found
    }

    /// Whether what a condition is of is there still.
    pub fn has(&self, subject: &Subject) -> bool {
        let Ok(name) = subject.name.parse::<Name>() else { return true };
        match subject.kind.as_str() {
            "disk" => self.model().disks.contains_key(&name),
            "datastore" => self.model().datastores.contains_key(&name),
            _ => true,
        }
    }
}
