use crate::ControlError;
use crate::ErrorKind;
use crate::testing::Bench;
use headgate_api::leases::DiskTakeover;
use headgate_api::placement::Created;
use headgate_api::types::{Changed, Disk, Force};
use headgate_api::types::{ImageFate, ServiceState};
use headgate_model::Name;
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

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

/// Has a host look at its leases, and waits for that.
fn look(host: &Bench) {
    let directories = host.control.leases().directories();
    host.control.look_at_leases();
    for directory in directories {
        while host.control.leases().turn(&directory).is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
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
    assert_eq!((taken.vm.unwrap().as_str(), taken.policy.reservation.unwrap().get()), ("web", 100));
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
    let Bench { temp, plane, control, records, .. } = first;
    drop((plane, control, records));
    let take = json!({"datastore": "shared"});
    second.control.take_over(&db(), serde_json::from_value(take).unwrap()).unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(2), "its former holder has time to notice");
    let first = Bench::start_again(temp);
    let two = Two { hosts: [first, second], dir };
    let disk = two.disk(0);
    assert_eq!(disk.state, ServiceState::Failed);
    assert!(disk.reason.unwrap().starts_with("disk 'db' is served by host"));
    assert_eq!(disk.lease.unwrap().holder.unwrap().pid, std::process::id());
    let error = two.hosts[0].control.remove_disk(&db(), Force::Yes, ImageFate::Remove).unwrap_err();
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
    look(&two.hosts[0]);
    fs::remove_file(two.lease()).unwrap();
    look(&two.hosts[0]);
    assert!(two.lease().exists(), "made good");
    assert_eq!(two.disk(0).state, ServiceState::Serving);
    let text = fs::read_to_string(two.lease()).unwrap();
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    fs::write(two.lease(), text.replace(name.trim(), "thief")).unwrap();
    look(&two.hosts[0]);
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

#[test]
fn what_was_changed_while_a_takeover_waits_for_the_lease_is_kept() {
    let Two { hosts: [first, second], dir } = two();
    let first = first.killed();
    let take = json!({"datastore": "shared"});
    second.control.take_over(&db(), serde_json::from_value(take).unwrap()).unwrap();
    let first = Bench::start_again(first);
    assert_eq!(first.control.disk(&db()).unwrap().state, ServiceState::Failed);
    // The other one dies, and leaves its lease.
    drop(second.killed());
    let lease = dir.path().join("db.img.lease");
    let host = first.control.identity().host.to_string();
    std::thread::scope(|scope| {
        let taken = scope.spawn(|| first.control.take_over(&db(), DiskTakeover::default()));
        // From here on the takeover waits for the former holder to notice.
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while !std::fs::read_to_string(&lease).is_ok_and(|text| text.contains(&host)) {
            assert!(std::time::Instant::now() < until);
            std::thread::yield_now();
        }
        let patch = serde_json::from_value(json!({"limit": 321})).unwrap();
        first.control.set_disk(&db(), patch).unwrap();
        taken.join().unwrap().unwrap();
    });
    let limit = |host: &Bench| host.control.disk(&db()).unwrap().policy.limit.map(|l| l.get());
    assert_eq!(limit(&first), Some(321));
    let first = first.restart();
    assert_eq!(limit(&first), Some(321), "the catalog has what was acknowledged");
}

/// While a disk that is taken over is being opened, it counts in the quota that was checked for it.
#[test]
fn a_disk_counts_in_its_tenants_quota_from_when_that_is_checked() {
    let two = two();
    two.hosts[0].control.remove_disk(&db(), Force::No, ImageFate::Keep).unwrap();
    let (host, vm) = (&two.hosts[1], json!({"vm": "web"}));
    let control = &host.control;
    let name = |text: &str| -> Name { text.parse().unwrap() };
    let one = json!({"max_disks": 1});
    control.set_tenant(&name("red"), &serde_json::from_value(one).unwrap()).unwrap();
    let of_red = json!({"tenant": "red"});
    control.set_vm(&name("web"), &serde_json::from_value(of_red).unwrap()).unwrap();
    let other = json!({"name": "other", "datastore": "array", "size": 1 << 20});
    control.create_disk(serde_json::from_value(other).unwrap()).unwrap();
    let give = |to: serde_json::Value| {
        control.set_disk(&name("other"), serde_json::from_value(to).unwrap())
    };
    let taken = json!({"datastore": "shared", "vm": "web"});
    let (began, end) = host.plane.hold_next("open");
    let (meanwhile, taken_over) = std::thread::scope(|scope| {
        let takeover = scope.spawn(|| two.take_over(1, taken.clone()));
        began.recv().unwrap();
        let meanwhile = give(vm.clone());
        end.send(()).unwrap();
        (meanwhile, takeover.join().unwrap())
    });
    let refused = meanwhile.unwrap_err().to_string();
    assert!(refused.contains("2 disks, and may have 1"), "{refused}");
    taken_over.unwrap();
    assert_eq!(control.tenant(&name("red")).unwrap().usage.disks, 1);
    assert_eq!(two.disk(1).state, ServiceState::Serving);
    // One that cannot be opened counts no more, and is not known.
    control.remove_disk(&db(), Force::No, ImageFate::Keep).unwrap();
    host.plane.break_down("open_disk");
    two.take_over(1, taken).unwrap_err();
    host.plane.repair();
    assert_eq!(control.disk(&db()).unwrap_err().kind(), ErrorKind::Missing);
    give(vm).unwrap();
}
