//! Files that change under a server.

use crate::support::{DAY, House, copy, meet};
use headgate_tls::{ALLOW, Authority, CA_CRL, Look, Right, Role, ServerDirectory};
use std::fs;

#[test]
fn what_changes_is_read_again_and_what_is_no_use_changes_nothing() {
    let house = House::new();
    let dir = house.path("server");
    let mut directory = ServerDirectory::open(&dir).unwrap();
    assert!(matches!(directory.look(), Look::Same));
    let (_, peer) = meet(&directory.now(), &house.client("gw1"), "node1.example").0.unwrap();
    let right = |directory: &ServerDirectory| directory.now().right(&peer, "db");
    assert_eq!(right(&directory), Right::Write);

    fs::write(dir.join(ALLOW), "").unwrap();
    assert!(matches!(directory.look(), Look::Changed));
    assert_eq!(right(&directory), Right::None);

    fs::write(dir.join(ALLOW), "[[allow]]\npeer = \"gw1.example\"\ndisks = [\"db\"").unwrap();
    let Look::Unusable(error) = directory.look() else { panic!("it is malformed") };
    assert!(error.to_string().contains(ALLOW), "{error}");
    assert_eq!(right(&directory), Right::None, "what held before still holds");
    assert!(matches!(directory.look(), Look::Same), "it is told once");

    fs::write(dir.join(ALLOW), "[[allow]]\npeer = \"gw1.example\"\ndisks = [\"db\"]\n").unwrap();
    assert!(matches!(directory.look(), Look::Changed));
    assert_eq!(right(&directory), Right::Write);

    Authority::open(&house.authority()).unwrap().revoke("gw1.example").unwrap();
    copy(&house.authority().join(CA_CRL), &dir.join(CA_CRL));
    assert!(matches!(directory.look(), Look::Changed));
    assert_eq!(right(&directory), Right::None);
}

#[test]
fn a_certificate_that_is_renewed_is_shown_from_then_on() {
    let house = House::new();
    let dir = house.path("server");
    let mut directory = ServerDirectory::open(&dir).unwrap();
    house.issue(Role::Server, &["node9.example"], DAY, "renewed");
    for file in Role::Server.files() {
        let next = dir.join("next");
        copy(&house.path("renewed").join(file), &next);
        fs::rename(&next, dir.join(file)).unwrap();
    }
    let connects = |directory: &ServerDirectory, host| {
        meet(&directory.now(), &house.client("gw1"), host).1.is_ok()
    };
    assert!(connects(&directory, "node1.example") && !connects(&directory, "node9.example"));
    assert!(matches!(directory.look(), Look::Changed));
    assert!(!connects(&directory, "node1.example") && connects(&directory, "node9.example"));
}
