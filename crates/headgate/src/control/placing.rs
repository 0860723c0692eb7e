//! Where a new disk goes that names no datastore.

use super::pools::{contradiction, name};
use super::{Control, ControlError};
use crate::api::types::{DiskCreate, Force};
use crate::name::Name;
use crate::samples::Window;
use headgate_placement::{NewDisk, NoPlace, Placement};

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
        let whole = self.pool(Window::default(), Some(&request.name))?;
        let disk = NewDisk {
            name: name(&request.name),
            vm: request.vm.as_ref().map(name),
            size,
            expected: None,
            reservation: request.policy.reservation.filter(|_| request.force == Force::No),
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
                    .map(|(datastore, because)| format!("on '{datastore}', {because}"))
                    .collect();
                why.extend(whole.outside.iter().map(|out| format!("'{}': {}", out.datastore, out.reason)));
                Err(ControlError::NoPlace { reasons: why.join("; ") })
            }
            Err(e) => Err(ControlError::NoPlace { reasons: e.to_string() }),
        }
    }
}
