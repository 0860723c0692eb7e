//! Where a new disk goes that names no datastore.

use super::admission::{Admission, admit};
use super::pools::{contradiction, name};
use super::{Control, ControlError, Service};
use crate::api::types::{DiskCreate, Force};
use crate::name::Name;
use crate::samples::Window;
use headgate_placement::{NewDisk, NoPlace, Placement, State};

impl Control {
    /// Finds a datastore for a disk: of those that have room for its size and its reservation, the one that will have the least load for
    /// its ability.
    ///
    /// # Errors
    /// When none takes it; the error says why, datastore by datastore.
    pub(super) fn place(&self, request: &DiskCreate) -> Result<(Name, Placement), ControlError> {
        let size = request.size.ok_or_else(|| {
            ControlError::invalid("the disk has no size", "a size in bytes, such as --size 10G")
        })?;
        if request.export.is_some() {
            return Err(ControlError::invalid(
                "an export is on one server, and no datastore is given",
                "--datastore with the server that has the export",
            ));
        }
        let mut whole = self.pool(Window::default(), Some(&request.name))?;
        let full = self.without_room(request);
        whole.pool.datastores.iter_mut().for_each(|datastore| {
            // For this disk: it is not placed there, whatever else speaks for it.
            if full.iter().any(|(full, _)| full.as_str() == datastore.name.as_str()) {
                datastore.state = State::Closed;
            }
        });
        let disk = NewDisk {
            name: name(&request.name),
            vm: request.vm.as_ref().map(name),
            size,
            expected: None,
            workload: None,
            class: request.placement.class.as_ref().map(name),
            company: request.placement.company,
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
            Err(NoPlace::Exists(_)) => Err(ControlError::Exists { kind: "disk", name: request.name.clone() }),
            Err(NoPlace::Pool(e)) => Err(contradiction(&e)),
            Err(NoPlace::Nowhere(refused)) => {
                let mut why: Vec<String> = refused
                    .iter()
                    .map(|(datastore, because)| {
                        let missing = full.iter().find(|(full, _)| full.as_str() == datastore.as_str());
                        match missing {
                            Some((_, shortfall)) => {
                                format!("on '{datastore}' {shortfall} IOPS are missing for its reservation")
                            }
                            None => format!("on '{datastore}', {because}"),
                        }
                    })
                    .collect();
                why.extend(whole.outside.iter().map(|out| format!("'{}': {}", out.datastore, out.reason)));
                Err(ControlError::NoPlace { reasons: why.join("; ") })
            }
            Err(e) => Err(ControlError::NoPlace { reasons: e.to_string() }),
        }
    }

    /// Datastores that cannot promise the disk's reservation, and how many IOPS are missing.
    fn without_room(&self, request: &DiskCreate) -> Vec<(Name, u64)> {
        let (Some(asked), Force::No) = (request.policy.reservation, request.force) else { return Vec::new() };
        let model = self.model();
        let serving = model.datastores.values().filter(|entry| entry.service == Service::Serving);
        serving
            .filter_map(|entry| match admit(&self.room(&model, entry), asked, []) {
                Admission::Refused { shortfall, .. } => Some((entry.record.name.clone(), shortfall)),
                Admission::Fits | Admission::Unchecked => None,
            })
            .collect()
    }
}
