//! Leases by files, between processes as far as the kernel is concerned: locks belong to open
//! files.

mod common;

use common::host;
use headgate_cluster::lease::{FileLease, Grant, LeaseError, Standing};
use headgate_units::Nanos;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const GRACE: Nanos = Nanos::from_secs(2);

fn acquire(path: &Path, n: u8) -> Result<Grant, LeaseError> {
    FileLease::acquire(path, "db", &host(n, n), GRACE)
}

#[test]
fn the_second_is_refused_with_the_holders_name_and_succeeds_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = FileLease::path_of(&dir.path().join("db.raw"));
    assert_eq!(path, dir.path().join("db.raw.lease"));
    assert_eq!(FileLease::holder(&path).unwrap(), None);
    let first = acquire(&path, 1).unwrap();
    assert_eq!((first.former.is_none(), first.wait), (true, Nanos::ZERO));
    for n in [1, 2] {
        let error = acquire(&path, n).unwrap_err();
        let expected = format!(
            "disk 'db' is served by host 'host1' (headgate process {})",
            std::process::id()
        );
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    let token = first.lease.token();
    first.lease.release().unwrap();
    let second = acquire(&path, 2).unwrap();
    assert!(second.lease.token() > token);
    assert_eq!((second.former, second.wait), (None, Nanos::ZERO));
    // Not given back: another host has to wait, the same one need not.
    drop(second.lease);
    let third = acquire(&path, 2).unwrap();
    assert_eq!((third.former.unwrap().name.as_str(), third.wait), ("host2", Nanos::ZERO));
    drop(third.lease);
    let fourth = acquire(&path, 3).unwrap();
    assert_eq!((fourth.former.unwrap().name.as_str(), fourth.wait), ("host2", GRACE));
}

/// The lock itself goes with a killed process, whatever it did before.
#[test]
fn a_killed_process_leaves_its_disk_to_others() {
    const CHILD: &str = "HEADGATE_TEST_LEASE";
    if let Some(path) = std::env::var_os(CHILD) {
        let grant = acquire(Path::new(&path), 7).unwrap();
        println!("\nheld");
        std::io::stdout().flush().unwrap();
        std::thread::sleep(std::time::Duration::from_secs(600));
        drop(grant);
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db.lease");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_process_leaves_its_disk_to_others", "--nocapture"])
        .env(CHILD, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "held"));
    let error = acquire(&path, 8).unwrap_err();
    assert!(
        error.to_string().contains(&format!("host 'host7' (headgate process {})", child.id())),
        "{error}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let grant = acquire(&path, 8).unwrap();
    assert_eq!(grant.former.unwrap().pid, child.id());
}

/// A lock that a network file system lost: the next holder writes its name, and the former one sees
/// it.
#[test]
fn a_holder_notices_that_it_was_succeeded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db.lease");
    let mut holder = acquire(&path, 1).unwrap().lease;
    assert_eq!(holder.standing().unwrap(), Standing::Held);
    // As another host would leave it.
    let elsewhere = tempfile::tempdir().unwrap();
    let other = acquire(&elsewhere.path().join("db.lease"), 2).unwrap();
    fs::write(&path, fs::read(elsewhere.path().join("db.lease")).unwrap()).unwrap();
    let Standing::Lost { to: Some(to) } = holder.standing().unwrap() else { panic!("still held") };
    assert_eq!(to.name, "host2");
    // It no longer says that it gives the disk back.
    holder.release().unwrap();
    assert_eq!(FileLease::holder(&path).unwrap().unwrap().name, "host2");
    drop(other);
}

#[test]
fn a_file_that_is_removed_or_damaged_is_made_good_by_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db.lease");
    let mut holder = acquire(&path, 1).unwrap().lease;
    for spoil in ["", "noise", "{\"token\":1}"] {
        fs::write(&path, spoil).unwrap();
        let error = acquire(&path, 2).unwrap_err();
        assert!(matches!(error, LeaseError::HeldByUnknown { .. }), "{error}");
        assert_eq!(holder.standing().unwrap(), Standing::Held);
        assert!(matches!(acquire(&path, 2).unwrap_err(), LeaseError::Held { .. }));
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(holder.standing().unwrap(), Standing::Held);
    assert!(matches!(acquire(&path, 2).unwrap_err(), LeaseError::Held { .. }));
    // Removed, and taken by another before the holder looked.
    fs::remove_file(&path).unwrap();
    let other = acquire(&path, 2).unwrap();
    let Standing::Lost { to: Some(to) } = holder.standing().unwrap() else { panic!("still held") };
    assert_eq!(to.name, "host2");
    drop(other);
}

#[test]
fn a_hostile_file_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db.lease");
    std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
    assert!(matches!(acquire(&path, 1).unwrap_err(), LeaseError::Io { doing: "open", .. }));
    fs::remove_file(&path).unwrap();
    let name = r#"{"token":18446744073709551615,"released":false,"holder":{"name":"\u001b[2J\n","host":"","instance":"","pid":1}}"#;
    fs::write(&path, name).unwrap();
    let grant = acquire(&path, 1).unwrap();
    assert_eq!(grant.former.unwrap().to_string(), "host '[2J' (headgate process 1)");
}
