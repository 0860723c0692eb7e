//! Chooses the datastore of a new disk, and finds the disk whose history it continues.

use super::pools::{Images, Knowledge, contradiction, name};
use super::{Control, ControlError};
use headgate_api::types::{DiskCreate, Force};
use headgate_model::{DiskSettings, Name, Policy};
use headgate_placement::{Affinity, Group, NewDisk, NoPlace, Placement, WorkloadProfile};
use headgate_units::Bytes;

/// The disk whose history a new one continues, as its operator stated with `--moved-from`.
pub(super) struct Predecessor {
    name: Name,
    datastore: Name,
    workload: Option<WorkloadProfile>,
    presence: Presence,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Here,
    Removed,
}

impl Control {
    /// The disk that a new one is said to continue.
    ///
    /// # Errors
    /// When it is not there, and was not lately.
    pub(super) fn predecessor(
        &self,
        request: &DiskCreate,
    ) -> Result<Option<Predecessor>, ControlError> {
        let Some(old) = &request.moved_from else { return Ok(None) };
        let here = match self.model().disks.get(old) {
            Some(entry) if *old != request.name => Some(entry.record.datastore.clone()),
            _ => None,
        };
        if let Some(datastore) = here {
            let workload = self.samples.usual_workloads().get(old).copied();
            return Ok(Some(Predecessor {
                name: old.clone(),
                datastore,
                workload,
                presence: Presence::Here,
            }));
        }
        match self.samples.predecessor(old) {
            Some(gone) => Ok(Some(Predecessor {
                name: old.clone(),
                datastore: gone.datastore,
                workload: gone.workload,
                presence: Presence::Removed,
            })),
            None => Err(ControlError::invalid(
                format!(
                    "there is no disk '{old}' to continue, and none was removed in the last 7 days"
                ),
                "the name of the disk that this one was before it moved, or no --moved-from for a disk without a past",
            )),
        }
    }

    /// A disk is there that continues another.
    pub(super) fn take_over_history(&self, disk: &Name, on: &Name, old: &Predecessor) {
        let origin = (old.datastore != *on).then_some(&old.datastore);
        match old.presence {
            Presence::Here => self.samples.continue_disk(disk, &old.name, origin),
            Presence::Removed => self.samples.continue_removed(disk, &old.name, origin),
        }
    }

    /// What a new disk is to be promised, and the class of datastores that it must be on.
    fn class_of_new(
        &self,
        request: &DiskCreate,
        size: Bytes,
    ) -> Result<(Policy, Option<Name>), ControlError> {
        let model = self.model();
        let class = request.class.as_ref().map(|class| model.class(class)).transpose()?;
        let set = DiskSettings { policy: request.policy, ..DiskSettings::default() };
        let by_class = class.and_then(|class| class.datastore_class.clone());
        Ok((set.policy(class, size), request.placement.class.clone().or(by_class)))
    }

    /// Finds a datastore for a disk: of those that have room for its size and its reservation, the
    /// one that will have the least load for its ability. One that continues another does what that
    /// did, which does nothing more.
    ///
    /// # Errors
    /// When none takes it; the error says why, datastore by datastore.
    pub(super) fn place(
        &self,
        request: &DiskCreate,
        old: Option<&Predecessor>,
    ) -> Result<(Name, Placement), ControlError> {
        let size = request.size.ok_or_else(|| {
            ControlError::invalid("the disk has no size", "a size in bytes, such as --size 10G")
        })?;
        if request.export.is_some() {
            return Err(ControlError::invalid(
                "an export is on one server, and no datastore is given",
                "--datastore with the server that has the export",
            ));
        }
        let joins =
            |group: &Group| group.disks.iter().any(|disk| disk.as_str() == request.name.as_str());
        let joined = request.placement.affinity == Affinity::Vm
            || self.model().rules.affinity.iter().any(joins);
        let images = if joined { Images::Looked } else { Images::Passed };
        let mut whole = self.pool(&Knowledge::Remembered(images), Some(&request.name))?;
        self.add_foreign(&mut whole.pool);
        if let Some(old) = old {
            let same =
                whole.pool.disks.iter_mut().find(|disk| disk.name.as_str() == old.name.as_str());
            same.into_iter().for_each(|disk| disk.workload = Some(WorkloadProfile::default()));
        }
        let (policy, on_class) = self.class_of_new(request, size)?;
        let disk = NewDisk {
            name: name(&request.name),
            vm: request.vm.as_ref().map(name),
            size,
            expected: None,
            reservation: policy.reservation.filter(|_| request.force == Force::No),
            workload: old.and_then(|old| old.workload),
            class: on_class.as_ref().map(name),
            affinity: request.placement.affinity,
        };
        match headgate_placement::place(&whole.pool, &disk) {
            Ok(found) => {
                let datastore = found
                    .datastore
                    .as_str()
                    .parse()
                    .map_err(|e| ControlError::invalid(format!("{e}"), "a datastore"))?;
                Ok((datastore, found))
            }
            Err(NoPlace::Exists(_)) => {
                Err(ControlError::Exists { kind: "disk", name: request.name.clone() })
            }
            Err(NoPlace::Pool(e)) => Err(contradiction(&e)),
            Err(NoPlace::Nowhere(refused)) => {
                let mut why: Vec<String> = refused
                    .iter()
                    .map(|(datastore, because)| format!("on '{datastore}', {because}"))
                    .collect();
                why.extend(
                    whole.outside.iter().map(|out| format!("'{}': {}", out.datastore, out.reason)),
                );
                Err(ControlError::NoPlace { reasons: why.join("; ") })
            }
            Err(e) => Err(ControlError::NoPlace { reasons: e.to_string() }),
        }
    }
}
