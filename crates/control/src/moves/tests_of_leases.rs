//! Disks whose leases are lost while they move.

use super::tests::{begin, bench, hear, image, name, settle};
use super::watch::Next;
use headgate_cluster::Identity;
use headgate_cluster::lease::FileLease;
use headgate_mirror::{Outcome, Record, Side, Word};
use headgate_model::MoveEvent;
use headgate_units::Nanos;
use std::path::Path;

const SWITCH: MoveEvent = MoveEvent::Record(Record::Switched);

/// Another host takes a lease whose lock this one has lost without a word, as on a network file
/// system.
fn take(lease: &Path) -> (tempfile::TempDir, FileLease) {
    std::fs::remove_file(lease).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let (other, _) = Identity::load(elsewhere.path()).unwrap();
    let taken = FileLease::acquire(lease, "a", &other, Nanos::ZERO).unwrap().lease;
    (elsewhere, taken)
}

/// This host may have stood still since it looked at its leases last. Whichever of the two is lost,
/// what it knows is no word for the switch.
#[test]
fn a_disk_does_not_go_over_whose_lease_or_whose_copys_was_lost_since_it_was_looked_at() {
    for lost in ["old", "new"] {
        let bench = bench();
        let mut watch = begin(&bench, "new");
        let taken = take(&FileLease::path_of(&image(bench.temp.path(), lost)));
        assert_eq!(hear(&bench, &mut watch, SWITCH), Next::Event);
        assert_eq!(bench.plane.words("a"), [Word::Made, Word::NotMade], "{lost}");
        assert_eq!(bench.control.disk(&name("a")).unwrap().datastore, name("old"), "{lost}");
        drop(taken);
    }
}

/// The look comes between the question for the switch and the answer.
#[test]
fn a_disk_that_was_found_to_be_lost_does_not_go_over() {
    let bench = bench();
    let mut watch = begin(&bench, "new");
    let taken = take(&FileLease::path_of(&image(bench.temp.path(), "old")));
    let lost = bench.control.leases().look(&bench.temp.path().join("old"));
    assert_eq!(lost.len(), 1);
    assert_eq!(bench.control.write_switch(&name("a")), Word::NotMade);
    assert_eq!(bench.control.disk(&name("a")).unwrap().datastore, name("old"));
    hear(&bench, &mut watch, MoveEvent::Ended(Outcome::Cancelled));
    hear(&bench, &mut watch, MoveEvent::Reclaim(Side::Target));
    settle(&bench);
    assert!(!image(bench.temp.path(), "new").exists());
    drop(taken);
}
