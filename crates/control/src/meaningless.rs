//! Options that mean something on some kinds of storage only. Elsewhere they are refused: whoever
//! gives one expects something of it.

use super::ControlError;
use headgate_api::leases::{DiskTakeover, ImageFormat};
use headgate_api::types::{DiskCreate, Force};
use headgate_model::{Backend, Name, Overcommit, PersistentReservations, Scheduler};
use headgate_units::Nanos;

/// Whether etcd knows who has a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Etcd {
    Known,
    Unknown,
}

fn what(backend: &Backend) -> &'static str {
    match backend {
        Backend::Dir { .. } => "a directory",
        Backend::Block { .. } => "a block device",
        Backend::Emulated { .. } => "an emulated device",
        Backend::Nbd { .. } => "one NBD server",
        Backend::Stripe { .. } => "several NBD servers",
        Backend::Memory { .. } => "memory",
    }
}

/// The options of a new disk on a datastore.
pub(super) fn check_create(
    request: &DiskCreate,
    datastore: &Name,
    backend: &Backend,
) -> Result<(), ControlError> {
    if let Backend::Stripe { .. } = backend {
        return Ok(());
    }
    let storage = what(backend);
    if request.overwrite == Force::Yes {
        let error = format!(
            "datastore '{datastore}' is {storage}: only a new striped disk overwrites what its \
             exports hold"
        );
        let expected = match backend {
            Backend::Block { .. } | Backend::Nbd { .. } => {
                "no --overwrite: the disk has what its storage holds, and whoever uses it may \
                 overwrite that"
            }
            _ => "no --overwrite: the disk is new, and holds zeroes",
        };
        return Err(ControlError::invalid(error, expected));
    }
    if request.evict == Force::Yes {
        let error = format!(
            "datastore '{datastore}' is {storage}: 'disk create' evicts nobody there, only from \
             striped disks"
        );
        let expected = match backend {
            Backend::Block { .. } => format!(
                "no --evict; 'headgate disk takeover {} --datastore {datastore} --evict' takes a \
                 device that another host has",
                request.name
            ),
            _ => "no --evict".to_owned(),
        };
        return Err(ControlError::invalid(error, expected));
    }
    Ok(())
}

/// The options of a new datastore.
pub(super) fn check_add(force: Force, name: &Name, backend: &Backend) -> Result<(), ControlError> {
    match backend {
        Backend::Block { .. } => Ok(()),
        _ if force == Force::No => Ok(()),
        _ => Err(ControlError::invalid(
            format!(
                "datastore '{name}' is {}: only a block device that holds something is added by \
                 force",
                what(backend)
            ),
            "no --force",
        )),
    }
}

/// What is known of a disk that is to be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Known,
    Unknown,
}

/// The options of a takeover of a disk on a datastore.
pub(super) fn check_takeover(
    request: &DiskTakeover,
    taken: Taken,
    backend: &Backend,
    etcd: Etcd,
) -> Result<(), ControlError> {
    let is_taken_there = matches!(backend, Backend::Dir { .. } | Backend::Block { .. });
    if taken == Taken::Unknown && !is_taken_there {
        // Whoever plans the takeover says that there is nothing to take.
        return Ok(());
    }
    if request.evict == Force::Yes {
        check_eviction(backend, etcd)?;
    }
    if request.format == ImageFormat::Probe {
        return Ok(());
    }
    let why = match (taken, backend) {
        (Taken::Unknown, Backend::Dir { .. }) => return Ok(()),
        (Taken::Known, _) => "the disk is known here, and has been served as it is",
        (Taken::Unknown, _) => "a disk that is no image file has no format",
    };
    Err(ControlError::invalid(why, "no --format"))
}

fn check_eviction(backend: &Backend, etcd: Etcd) -> Result<(), ControlError> {
    use PersistentReservations::Off;
    let (error, expected) = match (backend, etcd) {
        (Backend::Stripe { .. }, _) | (Backend::Block { .. }, Etcd::Known) => return Ok(()),
        (Backend::Block { persistent_reservations: mode, .. }, _) if *mode != Off => return Ok(()),
        (Backend::Block { .. }, Etcd::Unknown) => (
            "this daemon was not told where etcd is, and the device is not to be reserved: it \
             knows of no host to evict",
            "no --evict, a daemon with --etcd, or 'datastore set --persistent-reservations auto'",
        ),
        (Backend::Dir { .. }, _) => (
            "a host cannot be evicted from an image: it holds it by a lock of the file system",
            "no --evict; stop the daemon that has the image, or wait until the file system gives \
             its lock up",
        ),
        (Backend::Emulated { .. } | Backend::Nbd { .. } | Backend::Memory { .. }, _) => {
            ("the disk has no lease: there is no host to evict", "no --evict")
        }
    };
    Err(ControlError::invalid(error, expected))
}

/// Settings that are given for a datastore of this kind and with this scheduler.
pub(super) fn check_settings(
    plug: Option<Nanos>,
    scheduler: Scheduler,
    overcommit: Option<Overcommit>,
    backend: &Backend,
) -> Result<(), ControlError> {
    if plug.is_some_and(|plug| plug > Nanos::ZERO) && scheduler != Scheduler::Mclock {
        return Err(ControlError::invalid(
            format!("scheduler {} holds no request back for another", scheduler.as_str()),
            "mclock: it knows priorities; or no --plug",
        ));
    }
    if overcommit.is_some() && !matches!(backend, Backend::Dir { .. }) {
        return Err(ControlError::invalid(
            format!("a datastore on {} promises no room of a file system", what(backend)),
            "no --overcommit, or a datastore on a directory",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;
    use crate::{ControlError, ErrorKind};
    use serde_json::{Value, json};

    fn bench() -> Bench {
        let bench = Bench::new();
        for (name, backend) in [
            ("far", json!({"nbd": "nbd://a"})),
            ("ram", json!({"memory": 1 << 30})),
            ("wide", json!({"stripe": ["nbd://b", "nbd://c"]})),
        ] {
            add(&bench, json!({"name": name, "backend": backend})).unwrap();
        }
        bench
    }

    fn add(bench: &Bench, request: Value) -> Result<(), ControlError> {
        bench.control.add_datastore(serde_json::from_value(request).unwrap()).map(drop)
    }

    fn refused<T: std::fmt::Debug>(result: Result<T, ControlError>, words: &str) {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let said = format!("{error}: {}", error.expected().unwrap_or_default());
        assert!(said.contains(words), "{said}");
    }

    fn create(bench: &Bench, request: Value) -> Result<(), ControlError> {
        bench.control.create_disk(serde_json::from_value(request).unwrap()).map(drop)
    }

    #[test]
    fn a_disk_that_is_not_striped_overwrites_nothing_and_evicts_nobody() {
        let bench = bench();
        for store in ["default", "array", "ram"] {
            let disk = json!({"name": "d", "size": 1 << 20, "datastore": store});
            refused_both(&bench, &disk);
            create(&bench, disk).unwrap();
            bench.control.remove_disk(&name("d"), Default::default(), Default::default()).unwrap();
        }
        let far = json!({"name": "d", "datastore": "far", "export": "x"});
        refused_both(&bench, &far);
        create(&bench, far).unwrap();
        // One that may be anywhere is nowhere striped.
        refused_both(&bench, &json!({"name": "any", "size": 1 << 20}));
        let both = json!({"overwrite": "yes", "evict": "yes"});
        create(&bench, with(&json!({"name": "w", "datastore": "wide", "export": "x"}), both))
            .unwrap();
        assert_eq!(bench.control.disks().unwrap().len(), 2);
    }

    fn refused_both(bench: &Bench, disk: &Value) {
        let ask = |further| create(bench, with(disk, further));
        refused(ask(json!({"overwrite": "yes"})), "no --overwrite");
        refused(ask(json!({"evict": "yes"})), "no --evict");
    }

    fn with(request: &Value, further: Value) -> Value {
        let mut request = request.clone();
        request.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        request
    }

    fn name(text: &str) -> headgate_model::Name {
        text.parse().unwrap()
    }

    #[test]
    fn a_datastore_is_added_with_what_its_kind_understands() {
        let bench = bench();
        let memory = json!({"name": "m", "backend": {"memory": 1 << 20}});
        for (further, words) in [
            (json!({"force": "yes"}), "no --force"),
            (json!({"placement": {"overcommit": "2"}}), "no --overcommit"),
            (json!({"scheduler": "fifo", "plug_ns": 1000}), "no --plug"),
        ] {
            refused(add(&bench, with(&memory, further)), words);
        }
        add(&bench, with(&memory, json!({"scheduler": "fifo", "plug_ns": 0}))).unwrap();
        let set = |store: &str, patch: Value| {
            bench.control.set_datastore(&name(store), serde_json::from_value(patch).unwrap())
        };
        refused(set("m", json!({"plug_ns": 1000})), "no --plug");
        refused(set("wide", json!({"placement": {"overcommit": "2"}})), "no --overcommit");
        set("default", json!({"placement": {"overcommit": "2"}, "plug_ns": 1000})).unwrap();
        // What has another cause is not refused for what stays.
        set("m", json!({"queue_depth": 8})).unwrap();
    }

    #[test]
    fn a_takeover_evicts_and_reads_formats_where_that_can_be() {
        let bench = bench();
        let take = |disk: &str, request: Value| {
            bench.control.take_over(&name(disk), serde_json::from_value(request).unwrap())
        };
        for (disk, store) in [("d", "default"), ("m", "ram")] {
            let request = json!({"name": disk, "size": 1 << 20, "datastore": store});
            create(&bench, request).unwrap();
            refused(take(disk, json!({"format": "raw"})), "no --format");
        }
        refused(take("d", json!({"evict": "yes"})), "by a lock of the file system");
        refused(take("m", json!({"evict": "yes"})), "has no lease");
        refused(take("other", json!({"evict": "yes"})), "by a lock of the file system");
        // That nothing can be taken there comes first.
        let memory = json!({"datastore": "ram", "evict": "yes", "format": "raw"});
        refused(take("other", memory), "a directory or a block device");
    }

    #[test]
    fn a_host_is_evicted_from_a_device_that_somebody_knows_the_holder_of() {
        use super::{Etcd, check_eviction};
        use headgate_model::{Backend, PersistentReservations::*};
        for (persistent_reservations, etcd, allowed) in [
            (Off, Etcd::Unknown, false),
            (Off, Etcd::Known, true),
            (Auto, Etcd::Unknown, true),
            (Require, Etcd::Unknown, true),
        ] {
            let device = "/dev/none".into();
            let backend = Backend::Block { device, persistent_reservations };
            assert_eq!(check_eviction(&backend, etcd).is_ok(), allowed, "{backend:?} {etcd:?}");
        }
    }
}
