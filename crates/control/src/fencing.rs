//! Block devices that are reserved for the host that serves their disks: reserves them, notices
//! that they were taken, and tells.

use super::{Control, ControlError, DiskEntry, Model, Service};
use crate::leases::{DeviceOf, DiskFence, Eviction, FenceState, Look, Probed};
use crate::moving::Moving;
use headgate_api::leases::{PersistentReservation, ReservationState};
use headgate_cluster::fence::{Cover, Right};
use headgate_model::{Backend, DiskRecord, Name, PersistentReservations, PlaneError};
use std::sync::Arc;
use tracing::{error, warn};

impl Control {
    /// How the device of a disk, or of its copy, is to be reserved; `None`: it is none, or is not
    /// to be.
    pub(super) fn fence(
        &self,
        (disk, part): (&Name, DeviceOf),
        backend: &Backend,
        eviction: Eviction,
    ) -> Option<Arc<DiskFence>> {
        let Backend::Block { device, persistent_reservations: mode } = backend else { return None };
        if *mode == PersistentReservations::Off {
            return None;
        }
        let right = match (eviction, self.leases.has_etcd()) {
            (Eviction::IfHeld, _) => Right::Evict,
            (Eviction::Never, true) => Right::Lease,
            (Eviction::Never, false) => Right::Own,
        };
        self.leases.fences().begin(disk, part);
        let cover = if self.leases.has_etcd() { Cover::Lease } else { Cover::Nothing };
        Some(Arc::new(DiskFence {
            fences: self.leases.fences().clone(),
            disk: disk.clone(),
            part,
            device: device.clone(),
            mode: *mode,
            cover,
            right,
        }))
    }

    /// An error of the data plane, told apart where it is the device that is not to be had.
    pub(super) fn not_opened(
        &self,
        record: &DiskRecord,
        fence: Option<&Arc<DiskFence>>,
        error: PlaneError,
    ) -> ControlError {
        let refusal = fence.and_then(|fence| fence.fences.refusal(&record.name));
        match (fence, refusal) {
            (Some(fence), Some(refusal)) => ControlError::Reserved {
                disk: record.name.clone(),
                datastore: record.datastore.clone(),
                device: fence.device.clone(),
                refusal,
            },
            _ => error.into(),
        }
    }

    /// Asks a datastore's device whether it can be reserved, where it is to be. Blocks.
    ///
    /// # Errors
    /// When it cannot, and that is required.
    pub(super) fn probe_device(
        &self,
        datastore: &Name,
        backend: &Backend,
    ) -> Result<(), ControlError> {
        let Backend::Block { device, persistent_reservations: mode } = backend else {
            return Ok(());
        };
        if *mode == PersistentReservations::Off {
            return Ok(());
        }
        let found = self.leases.fences().probe(datastore, device);
        match (mode, found.without()) {
            (PersistentReservations::Require, Some(why)) => Err(ControlError::Busy {
                error: format!("{} cannot be reserved: {why}", device.display()),
                hint:
                    "choose another device, or '--persistent-reservations auto', which serves its \
                       disk without"
                        .into(),
            }),
            _ => Ok(()),
        }
    }

    /// What an operator must know whose device cannot be reserved, as it was probed last.
    pub(super) fn reservation_warning(
        &self,
        datastore: &Name,
        backend: &Backend,
    ) -> Option<String> {
        let Backend::Block { device, .. } = backend else { return None };
        let why = self.leases.fences().probed(datastore)?.without()?;
        Some(format!(
            "{} cannot be reserved: {why}. A host that loses it is kept from it by its lease alone, if \
             there is etcd",
            device.display()
        ))
    }

    /// Asks the devices whose they are, each on a thread of its own, which nobody waits for.
    pub(super) fn look_at_devices(&self) {
        for look in self.leases.fences().looks() {
            let Some(turn) = self.leases.turn(&look.path) else { continue };
            let me = self.me.clone();
            let look_at = move || {
                if let Some(control) = me.upgrade() {
                    control.look_at_device(&look);
                }
                drop(turn);
            };
            let started = std::thread::Builder::new().name("headgate-fence".into()).spawn(look_at);
            if let Err(e) = started {
                warn!(error = %e, "devices cannot be looked at: no thread");
            }
        }
    }

    fn look_at_device(&self, look: &Look) {
        self.leases.fences().look(look);
        self.stop_evicted();
    }

    /// Stops the disks whose devices are another's by now, and ends the moves of those whose copies
    /// are on such devices.
    pub(super) fn stop_evicted(&self) {
        for (disk, reason) in self.leases.fences().evicted_copies() {
            self.give_up_copy(&disk, &reason);
        }
        let mut stop = Vec::new();
        for (disk, reason) in self.leases.fences().evicted() {
            let service = self.model().disks.get(&disk).map(|entry| entry.service.clone());
            match service {
                Some(Service::Serving) => {
                    self.leases.count_eviction();
                    stop.push((disk, Service::Evicted(reason)));
                }
                // Its lease was found to be lost first.
                Some(Service::Stopped(_)) => {
                    error!(%disk, reason, "evicted");
                    self.set_service(&disk, Service::Evicted(reason));
                }
                _ => {}
            }
        }
        self.stop_at_once(stop);
    }

    /// The disk that a block device is, if it is one.
    pub(super) fn sole_disk<'m>(
        &self,
        model: &'m Model,
        datastore: &'m Name,
        backend: &Backend,
    ) -> Option<&'m DiskEntry> {
        let is_device = matches!(backend, Backend::Block { .. });
        is_device.then(|| model.disks_on(datastore).next()).flatten()
    }

    /// What `datastore show` says of a device's reservation.
    pub(super) fn view_reservation(
        &self,
        model: &Model,
        datastore: &Name,
        backend: &Backend,
    ) -> Option<PersistentReservation> {
        let Backend::Block { persistent_reservations: mode, .. } = backend else { return None };
        let fences = self.leases.fences();
        let disk = self.sole_disk(model, datastore, backend);
        let of_disk = disk.and_then(|disk| fences.state(&disk.record.name));
        // Of a disk that comes, or has gone and leaves a copy still.
        let is_here = |moving: &&Moving| moving.record.datastore(moving.reclaimed()) == datastore;
        let copy = model.moves.values().find(is_here);
        let of_disk = of_disk.or_else(|| fences.state_of_copy(&copy?.record.disk));
        let (state, key, reason) = match (mode, of_disk) {
            // It stays so until the disk is closed.
            (_, Some(FenceState::Held(key))) => (ReservationState::Held, Some(key), None),
            (PersistentReservations::Off, _) => (ReservationState::Off, None, None),
            (_, Some(FenceState::Lost(why))) => (ReservationState::Evicted, None, Some(why)),
            (_, Some(FenceState::Refused(why))) => {
                (ReservationState::Refused, None, Some(why.to_string()))
            }
            (_, Some(FenceState::Without(why))) => {
                (ReservationState::Unsupported, None, Some(why.to_string()))
            }
            (_, None) => match fences.probed(datastore) {
                Some(Probed::Able) => (ReservationState::Free, None, None),
                Some(Probed::Unable(why)) => {
                    (ReservationState::Unsupported, None, Some(why.to_string()))
                }
                Some(Probed::Unknown(why)) => (ReservationState::Unknown, None, Some(why)),
                None => (ReservationState::Unknown, None, None),
            },
        };
        let key = key.map(|key| key.to_string());
        Some(PersistentReservation { mode: *mode, state, key, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::testing::Bench;
    use headgate_api::types::ServiceState;
    use headgate_cluster::HostId;
    use headgate_cluster::fence::{FenceKey, Refusal};
    use serde_json::json;
    use std::sync::atomic::Ordering;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn a_disk_whose_device_refused_a_request_is_evicted_and_stays_so() {
        let bench = Bench::new();
        for disk in ["db", "other"] {
            let disk = json!({"name": disk, "datastore": "array", "size": 1 << 20});
            bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
        }
        let fences = bench.control.leases().fences();
        let key = FenceKey::new(HostId([1; 16]), 1, Cover::Nothing);
        let refused = fences.hold_for_test(&name("db"), key, bench.temp.path());
        bench.control.keep_terms();
        assert_eq!(bench.control.disk(&name("db")).unwrap().state, ServiceState::Serving);

        refused.store(true, Ordering::Release);
        let lost = bench.control.leases().lost();
        for _ in 0..2 {
            bench.control.keep_terms();
            bench.control.tend();
            let disk = bench.control.disk(&name("db")).unwrap();
            assert_eq!(disk.state, ServiceState::Evicted);
            assert!(disk.reason.unwrap().contains("refused a request"));
            let other = bench.control.disk(&name("other")).unwrap();
            assert_eq!(other.state, ServiceState::Serving);
        }
        assert_eq!(bench.control.leases().lost(), lost + 1);
        let failed = bench.control.health().failed;
        assert!(failed.iter().any(|line| line.contains("'db'")), "{failed:?}");
        bench.control.take_over(&name("db"), Default::default()).unwrap();
        assert_eq!(bench.control.disk(&name("db")).unwrap().state, ServiceState::Serving);
    }

    #[test]
    fn only_block_devices_are_reserved() {
        let bench = Bench::new();
        let dir = json!({"name": "files", "backend": {"dir": bench.temp.path()},
                         "persistent_reservations": "off"});
        let error = bench.control.add_datastore(serde_json::from_value(dir).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let patch = serde_json::from_value(json!({"persistent_reservations": "require"})).unwrap();
        let error = bench.control.set_datastore(&name("array"), patch).unwrap_err();
        assert!(error.to_string().contains("only block devices"), "{error}");
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let key = FenceKey::new(HostId([0xab; 16]), 3, Cover::Lease);
        let of = |refusal| ControlError::Reserved {
            disk: name("db"),
            datastore: name("lun"),
            device: "/dev/sdb".into(),
            refusal,
        };
        let held = of(Refusal::Held { key });
        assert_eq!(held.kind(), ErrorKind::Conflict);
        let text = format!("{held}: {}", held.hint().unwrap());
        for words in ["0x4847abababab8003", "begins with abababab", "disk takeover db --evict"] {
            assert!(text.contains(words), "no '{words}' in: {text}");
        }
        let foreign = of(Refusal::Foreign { key: 0x99 });
        let text = format!("{foreign}: {}", foreign.hint().unwrap());
        for words in ["0x0000000000000099", "--param-rk=0x99 /dev/sdb", "datastore set lun"] {
            assert!(text.contains(words), "no '{words}' in: {text}");
        }
    }
}
