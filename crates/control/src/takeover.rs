//! Leases of disks: acquires, loses, releases and takes them over, so that two hosts never serve
//! one disk.

use super::disks::DEFAULT_DATASTORE;
use super::{Control, ControlError, DatastoreEntry, DiskEntry, Model, Service, images};
use crate::leases::{Before, Eviction, LeaseLocation, Leases};
use headgate_api::leases::{DiskTakeover, ImageFormat, Lease, LeaseHolder, LeasePlace};
use headgate_api::types::{Changed, Disk, Force};
use headgate_cluster::lease::{FileLease, Holder, LeaseError};
use headgate_model::Name;
use headgate_model::{Backend, DiskRecord, DiskState};
use headgate_units::Bytes;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tracing::{error, info, warn};

/// What is known of a block device wherever it is attached, of the kinds that say.
const WORLD_WIDE: [&str; 4] = ["wwid", "device/wwid", "dm/uuid", "device/serial"];

/// A block device's name in etcd: the same on all hosts that share it. Devices that have no name of
/// their own (loop devices, say) go by the path that the operator gave.
fn name_of_device(device: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let of_its_own = fs::metadata(device).ok().and_then(|meta| {
        let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        let device = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
        let said = WORLD_WIDE.iter().find_map(|file| fs::read_to_string(device.join(file)).ok());
        said.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    });
    let name = of_its_own.unwrap_or_else(|| device.display().to_string());
    let fit = |c: char| if c.is_ascii_alphanumeric() || "-_.:".contains(c) { c } else { '_' };
    name.chars().map(fit).take(200).collect()
}

fn holder_view(holder: Holder) -> LeaseHolder {
    let printable = |text: &str| text.chars().filter(|c| !c.is_control()).take(64).collect();
    LeaseHolder { name: printable(&holder.name), id: printable(&holder.host), pid: holder.pid }
}

impl Control {
    /// Where a disk's lease is; `None` for one that no other host can reach.
    pub(super) fn lease_location(&self, disk: &Name, backend: &Backend) -> Option<LeaseLocation> {
        match backend {
            Backend::Dir { .. } => {
                let directory = self.directory(backend)?;
                Some(LeaseLocation::File(FileLease::path_of(&images::image_path(&directory, disk))))
            }
            Backend::Block { device } if self.leases.has_etcd() => {
                Some(LeaseLocation::Etcd(name_of_device(device)))
            }
            _ => None,
        }
    }

    /// The leases that this daemon holds.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Becomes the disk's holder, if it has a lease and is not held yet, and waits until it may be
    /// served.
    pub(super) fn hold(
        &self,
        disk: &Name,
        backend: &Backend,
        before: Before,
        eviction: Eviction,
    ) -> Result<(), ControlError> {
        let Some(location) = self.lease_location(disk, backend) else { return Ok(()) };
        self.leases.acquire(disk, &location, before, eviction)?;
        self.leases.wait(disk);
        Ok(())
    }

    /// Acquires what disks need that will be served soon, so that they wait together.
    pub(super) fn hold_all<'a>(&self, disks: impl Iterator<Item = (&'a DiskRecord, &'a Backend)>) {
        for (record, backend) in disks {
            if record.state == DiskState::Ready
                && let Some(location) = self.lease_location(&record.name, backend)
            {
                // Whoever serves the disk asks again, and tells.
                let _ =
                    self.leases.acquire(&record.name, &location, Before::Existing, Eviction::Never);
            }
        }
    }

    /// Whether a disk that is held may be served at this moment.
    pub(super) fn check_hold(&self, disk: &Name, backend: &Backend) -> Result<(), ControlError> {
        match self.lease_location(disk, backend) {
            Some(location) if !self.leases.may_serve(disk, &location) => Err(ControlError::Busy {
                error: format!(
                    "the lease on disk '{disk}' is in doubt: it is served again as soon as etcd answers"
                ),
                hint: "see that etcd is reachable".into(),
            }),
            _ => Ok(()),
        }
    }

    /// Before an image is removed.
    pub(super) fn hold_to_remove(
        &self,
        disk: &Name,
        backend: &Backend,
        force: Force,
    ) -> Result<(), ControlError> {
        match self.hold(disk, backend, Before::Existing, Eviction::Never) {
            // Storage that is not there: the operator said that this is no reason.
            Err(ControlError::Lease(LeaseError::Io { .. })) if force == Force::Yes => Ok(()),
            held => held,
        }
    }

    /// After a creation that came to nothing: of a disk without an image no lease is left either.
    pub(super) fn let_go(&self, disk: &Name, backend: &Backend) {
        let image = self.directory(backend).map(|directory| images::image_path(&directory, disk));
        match (image, self.lease_location(disk, backend)) {
            (Some(image), Some(location)) if !image.exists() => {
                if let Err(e) = self.leases.remove(disk, Some(&location)) {
                    warn!(%disk, error = %e, "the lease of a disk that is none is left");
                }
            }
            _ => self.leases.release(disk),
        }
    }

    pub(super) fn view_lease(&self, disk: &Name, backend: &Backend) -> Option<Lease> {
        let location = self.lease_location(disk, backend)?;
        let state = self.leases.state(disk, &location);
        Some(Lease {
            place: match location {
                LeaseLocation::File(_) => LeasePlace::File,
                LeaseLocation::Etcd(_) => LeasePlace::Etcd,
            },
            number: state.own.map(|token| token.0),
            holder: state.other.map(holder_view),
        })
    }

    /// Checks the leases in files. Disks whose lease was lost stop before the new holder starts.
    pub fn look_at_leases(&self) {
        let lost = self.leases.look();
        let reason = |to: &Option<Holder>| match to {
            Some(to) => format!("another has taken it over: {to}"),
            None => "another has taken it over, and left no name".to_owned(),
        };
        self.stop_at_once(lost.iter().map(|(disk, to, _)| (disk.clone(), reason(to))).collect());
    }

    /// Stops disks whose leases in etcd are in doubt. Returns when to call it again.
    pub fn keep_terms(&self) -> Duration {
        let reason = "its lease in etcd could not be renewed in time, or is another's".to_owned();
        let stop = self.leases.in_doubt();
        self.stop_at_once(stop.into_iter().map(|disk| (disk, reason.clone())).collect());
        self.leases.next_doubt()
    }

    /// Brings disks back into service that stopped because etcd could not be reached.
    pub fn resume(&self) {
        for disk in self.leases.wanted() {
            // Etcd may take its time; changes need not wait for that.
            let held = self.stopped(&disk).map(|(_, backend)| {
                let location = self.lease_location(&disk, &backend);
                location.map_or(Ok(()), |location| {
                    self.leases.acquire(&disk, &location, Before::Existing, Eviction::Never)
                })
            });
            if let Some(Err(LeaseError::Etcd(_))) = held {
                return;
            }
            let _one_change_at_a_time = self.catalog();
            let Some((record, backend)) = self.stopped(&disk) else {
                // Served again or removed by somebody else meanwhile.
                self.leases.no_longer_wanted(&disk);
                if !self.model().disks.contains_key(&disk) {
                    self.leases.release(&disk);
                }
                continue;
            };
            match self.serve_disk(&record, &backend, None) {
                Ok(()) => {
                    info!(%disk, "serving again");
                    self.leases.no_longer_wanted(&disk);
                    self.set_service(&disk, Service::Serving);
                }
                Err(e @ ControlError::Lease(LeaseError::Held { .. })) => {
                    warn!(%disk, error = %e, "not served here any more");
                    self.leases.no_longer_wanted(&disk);
                    self.set_service(&disk, Service::Failed(e.to_string()));
                }
                // Not yet; the others would fare no better.
                Err(ControlError::Lease(LeaseError::Etcd(_))) => return,
                Err(e) => self.set_service(&disk, Service::Failed(e.to_string())),
            }
        }
    }

    /// A disk that is known and not served.
    fn stopped(&self, disk: &Name) -> Option<(DiskRecord, Backend)> {
        let model = self.model();
        let entry = model.disks.get(disk).filter(|entry| entry.service != Service::Serving)?;
        if entry.record.state != DiskState::Ready {
            return None;
        }
        let datastore = model.datastores.get(&entry.record.datastore)?;
        Some((entry.record.clone(), datastore.record.backend.clone()))
    }

    fn set_service(&self, disk: &Name, service: Service) {
        if let Some(entry) = self.model_mut().disks.get_mut(disk) {
            entry.service = service;
        }
    }

    /// Takes disks out of service, all at the same time. It waits for requests at the storage only,
    /// and not for a change of a disk under way.
    fn stop_at_once(&self, disks: Vec<(Name, String)>) {
        let serving = |disk: &Name| {
            self.model().disks.get(disk).is_some_and(|entry| entry.service == Service::Serving)
        };
        let disks: Vec<_> = disks.into_iter().filter(|(disk, _)| serving(disk)).collect();
        let stop = |disk: &Name, reason: &str| {
            error!(%disk, reason, "stopped at once");
            if let Err(e) = self.plane.abandon_disk(disk) {
                error!(%disk, error = %e, "requests are left at the storage");
            }
            self.set_service(disk, Service::Failed(reason.to_owned()));
        };
        std::thread::scope(|scope| {
            for (disk, reason) in &disks {
                let spawned =
                    std::thread::Builder::new().spawn_scoped(scope, || stop(disk, reason));
                if spawned.is_err() {
                    stop(disk, reason);
                }
            }
        });
    }

    /// Serves a disk that another daemon created or served: a disk that is known here and not in
    /// service, or one whose image is on the datastore.
    ///
    /// # Errors
    /// [`ControlError::Lease`] while another serves it. Nothing is changed then.
    pub fn take_over(
        &self,
        name: &Name,
        request: DiskTakeover,
    ) -> Result<Changed<Disk>, ControlError> {
        let mut catalog = self.catalog();
        let eviction = if request.evict == Force::Yes { Eviction::IfHeld } else { Eviction::Never };
        let known = self.model().disks.get(name).cloned();
        let warnings = match known {
            Some(entry) => {
                self.check_known(&entry, &request)?;
                let backend =
                    self.model().datastore(&entry.record.datastore)?.record.backend.clone();
                self.hold(name, &backend, Before::Existing, eviction)?;
                self.serve_disk(&entry.record, &backend, None)?;
                self.leases.no_longer_wanted(name);
                self.set_service(name, Service::Serving);
                Vec::new()
            }
            None => {
                let format = request.format;
                let (record, backend, warnings) =
                    self.plan_takeover(&self.model(), name, request)?;
                self.hold(name, &backend, Before::Existing, eviction)?;
                let served = self.size_of(&record, &backend, format).and_then(|size| {
                    let record = DiskRecord { size, ..record };
                    catalog.insert_disk(&record)?;
                    if let Err(e) = self.serve_disk(&record, &backend, None) {
                        catalog.delete_disk(name)?;
                        return Err(e);
                    }
                    Ok(record)
                });
                let record = served.inspect_err(|_| self.leases.release(name))?;
                let entry = DiskEntry { record, service: Service::Serving };
                self.model_mut().disks.insert(name.clone(), entry);
                warnings
            }
        };
        drop(catalog);
        Ok(Changed { now: self.disk(name)?, warnings })
    }

    fn check_known(&self, entry: &DiskEntry, request: &DiskTakeover) -> Result<(), ControlError> {
        let DiskRecord { name, datastore, state, .. } = &entry.record;
        if entry.service == Service::Serving {
            return Err(ControlError::Busy {
                error: format!("disk '{name}' is served here already"),
                hint: format!("see 'headgate disk show {name}'"),
            });
        }
        if *state != DiskState::Ready {
            let reason = entry.service.reason().unwrap_or("it is being removed").to_owned();
            return Err(ControlError::DiskFailed { name: name.clone(), reason });
        }
        if request.datastore.as_ref().is_some_and(|given| given != datastore) {
            return Err(ControlError::invalid(
                format!("disk '{name}' is known here, on datastore '{datastore}'"),
                format!("no datastore, or '{datastore}'"),
            ));
        }
        if request.vm.is_some() || request.policy.is_some() {
            return Err(ControlError::invalid(
                format!("disk '{name}' is known here and keeps its policy and its virtual machine"),
                format!("neither policy nor machine; change them with 'headgate disk set {name}'"),
            ));
        }
        Ok(())
    }

    fn plan_takeover(
        &self,
        model: &Model,
        name: &Name,
        request: DiskTakeover,
    ) -> Result<(DiskRecord, Backend, Vec<String>), ControlError> {
        let DiskTakeover { datastore, vm, policy, force, .. } = request;
        let target = match datastore {
            Some(name) => name,
            None => DEFAULT_DATASTORE
                .parse()
                .map_err(|e| ControlError::invalid(format!("{e}"), "a datastore"))?,
        };
        let policy = policy.unwrap_or_default();
        let datastore: &DatastoreEntry = model.datastore(&target)?;
        let backend = datastore.record.backend.clone();
        if !matches!(backend, Backend::Dir { .. } | Backend::Block { .. }) {
            return Err(ControlError::invalid(
                format!("no image can be taken over on datastore '{target}'"),
                "a datastore on a directory or a block device",
            ));
        }
        let warnings = self.check_new(model, name, &target, &policy, force)?;
        if let Backend::Block { .. } = backend {
            self.check_vacant(model, &target)?;
        }
        let state = DiskState::Ready;
        Ok((
            DiskRecord {
                name: name.clone(),
                datastore: target,
                vm,
                size: Bytes(0),
                policy,
                state,
                remote: None,
                placement: Default::default(),
            },
            backend,
            warnings,
        ))
    }

    /// Of an image or a device that is there.
    fn size_of(
        &self,
        record: &DiskRecord,
        backend: &Backend,
        format: ImageFormat,
    ) -> Result<Bytes, ControlError> {
        let directory = match backend {
            Backend::Block { device } => return Ok(self.plane.device_size(device)?),
            _ => self.directory(backend).unwrap_or_default(),
        };
        let (path, name) = (images::image_path(&directory, &record.name), &record.name);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_file() && format == ImageFormat::Raw => Ok(Bytes(meta.len())),
            Ok(meta) => images::check_raw(&path).map(|()| Bytes(meta.len())),
            Err(_) => Err(ControlError::invalid(
                format!("there is no image {}", path.display()),
                format!(
                    "the name of a disk whose image is on datastore '{}'; '{name}' would be a new one",
                    record.datastore
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::testing::Bench;
    use headgate_api::placement::Created;
    use headgate_api::types::{ImageFate, ServiceState};
    use serde_json::json;
    use std::path::PathBuf;

    /// Two hosts and a directory that both have as datastore `shared`; the first has made disk `db`
    /// there.
    struct Two {
        hosts: [Bench; 2],
        dir: tempfile::TempDir,
    }

    fn two() -> Two {
        let (hosts, dir) = ([(); 2].map(|()| Bench::new()), tempfile::tempdir().unwrap());
        for host in &hosts {
            let shared = json!({"name": "shared", "backend": {"dir": dir.path()}});
            host.control.add_datastore(serde_json::from_value(shared).unwrap()).unwrap();
        }
        let two = Two { hosts, dir };
        two.create(0).unwrap();
        two
    }

    fn db() -> Name {
        "db".parse().unwrap()
    }

    impl Two {
        fn create(&self, host: usize) -> Result<Created<Disk>, ControlError> {
            let create = json!({"name": "db", "datastore": "shared", "size": 1 << 20});
            self.hosts[host].control.create_disk(serde_json::from_value(create).unwrap())
        }

        fn take_over(
            &self,
            host: usize,
            with: serde_json::Value,
        ) -> Result<Changed<Disk>, ControlError> {
            self.hosts[host].control.take_over(&db(), serde_json::from_value(with).unwrap())
        }

        fn disk(&self, host: usize) -> Disk {
            self.hosts[host].control.disk(&db()).unwrap()
        }

        fn image(&self) -> PathBuf {
            self.dir.path().join("db.img")
        }

        fn lease(&self) -> PathBuf {
            self.dir.path().join("db.img.lease")
        }
    }

    fn refused<T: std::fmt::Debug>(outcome: Result<T, ControlError>) {
        let error = outcome.unwrap_err();
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let expected = format!(
            "disk 'db' is served by host '{}' (headgate process {})",
            name.trim(),
            std::process::id()
        );
        assert_eq!((error.to_string(), error.kind()), (expected, ErrorKind::Conflict));
        assert!(error.hint().unwrap().contains("disk takeover db"), "{error:?}");
    }

    #[test]
    fn the_second_host_is_refused_with_the_holders_name_and_hands_over_in_order() {
        let two = two();
        assert_eq!(two.disk(0).lease.unwrap().number, Some(1));
        refused(two.take_over(1, json!({"datastore": "shared"})));
        refused(two.create(1));
        assert!(two.hosts[1].control.disk(&db()).is_err(), "nothing is left of it");
        two.hosts[0].control.remove_disk(&db(), Force::No, ImageFate::Keep).unwrap();
        assert!(two.image().exists());
        let error = two.create(1).unwrap_err();
        assert!(error.hint().unwrap().contains("disk takeover db"), "{error:?}");
        let policy = json!({"datastore": "shared", "vm": "web", "policy": {"reservation": 100}});
        let taken = two.take_over(1, policy).unwrap().now;
        assert_eq!((taken.state, taken.size.0), (ServiceState::Serving, 1 << 20));
        assert_eq!(
            (taken.vm.unwrap().as_str(), taken.policy.reservation.unwrap().get()),
            ("web", 100)
        );
        assert_eq!(taken.lease.unwrap().number, Some(3), "after the creation that found an image");
        refused(two.take_over(0, json!({"datastore": "shared"})));
        // Gone with the disk.
        two.hosts[1].control.remove_disk(&db(), Force::No, ImageFate::Remove).unwrap();
        assert_eq!((two.image().exists(), two.lease().exists()), (false, false));
    }

    #[test]
    fn a_host_that_comes_back_leaves_its_disk_to_who_has_it_and_may_not_remove_the_image() {
        let Two { hosts: [first, second], dir } = two();
        let begun = std::time::Instant::now();
        // It dies, and the other is told to go on.
        let Bench { temp, plane, control } = first;
        drop((plane, control));
        let take = json!({"datastore": "shared"});
        second.control.take_over(&db(), serde_json::from_value(take).unwrap()).unwrap();
        assert!(begun.elapsed() >= Duration::from_secs(2), "its former holder has time to notice");
        let first = Bench::start_again(temp);
        let two = Two { hosts: [first, second], dir };
        let disk = two.disk(0);
        assert_eq!(disk.state, ServiceState::Failed);
        assert!(disk.reason.unwrap().starts_with("disk 'db' is served by host"));
        assert_eq!(disk.lease.unwrap().holder.unwrap().pid, std::process::id());
        let error =
            two.hosts[0].control.remove_disk(&db(), Force::Yes, ImageFate::Remove).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(two.image().exists());
        refused(two.take_over(0, json!({})));
        two.hosts[1].control.shutdown();
        let back = two.take_over(0, json!({})).unwrap().now;
        assert_eq!(back.state, ServiceState::Serving);
        assert!(
            two.take_over(0, json!({})).unwrap_err().to_string().contains("is served here already")
        );
    }

    #[test]
    fn a_lease_that_names_another_stops_the_disk() {
        let two = two();
        two.hosts[0].control.look_at_leases();
        fs::remove_file(two.lease()).unwrap();
        two.hosts[0].control.look_at_leases();
        assert!(two.lease().exists(), "made good");
        assert_eq!(two.disk(0).state, ServiceState::Serving);
        let text = fs::read_to_string(two.lease()).unwrap();
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        fs::write(two.lease(), text.replace(name.trim(), "thief")).unwrap();
        two.hosts[0].control.look_at_leases();
        let disk = two.disk(0);
        assert_eq!(disk.state, ServiceState::Failed);
        assert!(disk.reason.unwrap().contains("host 'thief'"));
        assert_eq!(disk.lease.unwrap().holder.unwrap().name, "thief");
        assert_eq!(two.hosts[0].control.leases().lost(), 1);
        assert_eq!(two.take_over(0, json!({})).unwrap().now.state, ServiceState::Serving);
    }

    #[test]
    fn an_image_in_another_format_is_taken_over_as_raw_only_when_told_so() {
        let two = two();
        let (old, image) = ("old".parse().unwrap(), two.dir.path().join("old.img"));
        fs::write(&image, [&b"QFI\xfb"[..], &[0; 4092]].concat()).unwrap();
        let create = json!({"name": "old", "datastore": "shared", "size": 1 << 20});
        let control = &two.hosts[1].control;
        let hint = control.create_disk(serde_json::from_value(create).unwrap()).unwrap_err().hint();
        let take = |body| control.take_over(&old, serde_json::from_value(body).unwrap());
        let error = take(json!({"datastore": "shared"})).unwrap_err();
        assert!(error.to_string().contains("old.img is a qcow2 image"), "{error}");
        for advice in [error.expected().unwrap(), hint.unwrap()] {
            assert!(advice.contains("qemu-img convert -f qcow2 -O raw"), "{advice}");
        }
        assert!(control.disk(&old).is_err(), "nothing is left of it");
        let taken = take(json!({"datastore": "shared", "format": "raw"})).unwrap().now;
        assert_eq!(taken.size.0, 4096);
    }

    #[test]
    fn a_planted_link_is_not_taken_over() {
        let two = two();
        let secret = two.dir.path().join("secret");
        fs::write(&secret, [7; 4096]).unwrap();
        std::os::unix::fs::symlink(&secret, two.dir.path().join("planted.img")).unwrap();
        let shared = serde_json::from_value(json!({"datastore": "shared"})).unwrap();
        let error = two.hosts[1].control.take_over(&"planted".parse().unwrap(), shared);
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("planted.img is a symbolic link"), "{error}");
        let raw = serde_json::from_value(json!({"datastore": "shared", "format": "raw"})).unwrap();
        let error = two.hosts[1].control.take_over(&"planted".parse().unwrap(), raw);
        assert!(error.unwrap_err().to_string().contains("planted.img is a symbolic link"));
    }

    #[test]
    fn a_disk_that_is_not_there_is_not_taken_over() {
        let two = two();
        let shared = serde_json::from_value(json!({"datastore": "shared"})).unwrap();
        let other = "other".parse().unwrap();
        let error = two.hosts[1].control.take_over(&other, shared).unwrap_err();
        assert!(error.to_string().contains("there is no image"), "{error}");
        let known = two.hosts[1].control.disks().unwrap();
        assert!(known.is_empty(), "{known:?}");
        let error = two.take_over(1, json!({"datastore": "array"})).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}
