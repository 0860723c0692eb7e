//! Who is let in, and who is not.

use crate::support::{DAY, House, copy, meet, met, pair, soon};
use headgate_tls::{
    ALLOW, Authority, AuthorityError, CA_CRL, ClientCredentials, CredentialsError, HandshakeError,
    Right, Role, ServerCredentials, accept,
};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn both_sides_know_each_other_and_what_is_said_arrives() {
    let house = House::new();
    let ((mut server, peer), mut client) = met(&house);
    assert_eq!(peer.names(), ["gw1.example"]);
    assert_eq!(house.server().right(&peer, "any"), Right::Write);
    client.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    server.read_exact(&mut heard).unwrap();
    server.write_all(&heard).unwrap();
    client.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    // By its address, too.
    assert!(meet(&house.server(), &house.client("gw1"), "127.0.0.1").1.is_ok());
}

/// Ends of a handshake that the server refuses. With TLS 1.3 the client learns of it when it reads.
fn is_refused(server: &ServerCredentials, client: &ClientCredentials) -> String {
    let (accepted, connected) = meet(server, client, "node1.example");
    let why = accepted.unwrap_err();
    assert!(matches!(why, HandshakeError::Tls(_)), "{why}");
    if let Ok(mut connected) = connected {
        let heard = connected.read(&mut [0; 16]);
        assert!(heard.is_err(), "{heard:?}");
    }
    why.to_string()
}

#[test]
fn a_client_of_another_authority_is_refused() {
    let (house, other) = (House::new(), House::new());
    // It believes in the server's authority, and has a certificate of another one.
    copy(&house.path("gw1/ca-cert.pem"), &other.path("gw1/ca-cert.pem"));
    let why = is_refused(&house.server(), &other.client("gw1"));
    assert!(why.contains("UnknownIssuer") || why.contains("BadSignature"), "{why}");
}

#[test]
fn a_servers_certificate_makes_no_client() {
    let house = House::new();
    house.issue(Role::Server, &["gw2.example"], DAY, "gw2");
    for (from, to) in [("server-cert.pem", "client-cert.pem"), ("server-key.pem", "client-key.pem")]
    {
        copy(&house.path("gw2").join(from), &house.path("gw2").join(to));
    }
    let why = is_refused(&house.server(), &house.client("gw2"));
    assert!(why.contains("certificate"), "{why}");
}

#[test]
fn a_certificate_that_has_expired_is_refused() {
    let house = House::new();
    house.issue(Role::Client, &["old.example"], Duration::ZERO, "old");
    // It holds to the second.
    thread::sleep(Duration::from_millis(1100));
    let why = is_refused(&house.server(), &house.client("old"));
    assert!(why.contains("Expired") || why.contains("expired"), "{why}");
}

#[test]
fn a_certificate_that_was_revoked_is_refused_and_others_are_not() {
    let house = House::new();
    house.issue(Role::Client, &["gw2.example"], DAY, "gw2");
    let authority = Authority::open(&house.authority()).unwrap();
    assert_eq!(authority.revoke("gw2.example").unwrap(), 1);
    assert_eq!(authority.revoke("nobody.example").unwrap(), 0);
    let before = house.server();
    assert!(meet(&before, &house.client("gw2"), "node1.example").0.is_ok(), "it has no list yet");
    copy(&house.authority().join(CA_CRL), &house.path("server").join(CA_CRL));
    let why = is_refused(&house.server(), &house.client("gw2"));
    assert!(why.contains("Revoked") || why.contains("revoked"), "{why}");
    let (accepted, connected) = meet(&house.server(), &house.client("gw1"), "node1.example");
    assert!(accepted.is_ok() && connected.is_ok());
    // Who is in already has no right any more.
    let (_, peer) = meet(&before, &house.client("gw2"), "node1.example").0.unwrap();
    assert_eq!(house.server().right(&peer, "db"), Right::None);
    // A second revocation keeps the first.
    assert_eq!(authority.revoke("gw1.example").unwrap(), 1);
    copy(&house.authority().join(CA_CRL), &house.path("server").join(CA_CRL));
    is_refused(&house.server(), &house.client("gw1"));
    is_refused(&house.server(), &house.client("gw2"));
}

#[test]
fn a_client_refuses_a_server_of_another_name_or_authority() {
    let (house, other) = (House::new(), House::new());
    let (_, connected) = meet(&house.server(), &house.client("gw1"), "node2.example");
    let why = connected.unwrap_err().to_string();
    assert!(why.contains("node2.example"), "{why}");
    let (_, connected) = meet(&house.server(), &other.client("gw1"), "node1.example");
    assert!(matches!(connected, Err(HandshakeError::Tls(_))));
    let (_, connected) = meet(&house.server(), &house.client("gw1"), "no name");
    assert!(matches!(connected, Err(HandshakeError::Name(_))));
}

#[test]
fn rules_say_what_a_peer_may_open() {
    let house = House::new();
    let rules = "[[allow]]\npeer = \"gw1.example\"\ndisks = [\"db*\"]\naccess = \"read\"\n";
    fs::write(house.path("server").join(ALLOW), rules).unwrap();
    let (_, peer) = met(&house).0;
    let server = house.server();
    assert_eq!(
        [server.right(&peer, "db7"), server.right(&peer, "web")],
        [Right::Read, Right::None]
    );
}

#[test]
fn who_says_nothing_or_drips_is_given_up_at_the_deadline() {
    let house = House::new();
    let server = house.server();
    let (ours, _silent) = pair();
    let shortly = || Instant::now() + Duration::from_millis(200);
    assert!(matches!(accept(&server, ours, shortly()), Err(HandshakeError::TooSlow)));
    let (ours, mut drips) = pair();
    let dripping = thread::spawn(move || {
        // The head of a record that announces 16 KiB, and a byte now and then.
        let head = [0x16, 3, 1, 0x3f, 0xff];
        let mut sent = drips.write_all(&head);
        while sent.is_ok() {
            thread::sleep(Duration::from_millis(20));
            sent = drips.write_all(&[1]);
        }
    });
    let error = accept(&server, ours, shortly()).unwrap_err();
    assert!(matches!(error, HandshakeError::TooSlow | HandshakeError::Tls(_)), "{error}");
    dripping.join().unwrap();
    let (ours, gone) = pair();
    drop(gone);
    assert!(matches!(accept(&server, ours, soon()), Err(HandshakeError::HungUp)));
    let (ours, mut garbage) = pair();
    garbage.write_all(&[0xee; 4096]).unwrap();
    assert!(matches!(accept(&server, ours, soon()), Err(HandshakeError::Tls(_))));
}

#[test]
fn what_is_wrong_with_a_directory_is_told() {
    let house = House::new();
    let dir = house.path("server");
    let error = |dir: &Path| ServerCredentials::read(dir).unwrap_err().to_string();
    let nothing = error(&house.path("nothing"));
    assert!(nothing.contains("nothing/ca-cert.pem") && nothing.contains("expected"), "{nothing}");
    fs::write(dir.join(ALLOW), "[[allow]]\npeer = 7").unwrap();
    let rules = error(&dir);
    assert!(rules.contains("allow.toml") && rules.contains("line 2"), "{rules}");
    fs::remove_file(dir.join(ALLOW)).unwrap();
    fs::write(dir.join(CA_CRL), "nothing").unwrap();
    let list = error(&dir);
    assert!(list.contains(CA_CRL) && list.contains("revoked"), "{list}");
    fs::remove_file(dir.join(CA_CRL)).unwrap();
    // The key of another certificate.
    house.issue(Role::Server, &["node2.example"], DAY, "node2");
    copy(&house.path("node2/server-key.pem"), &dir.join("server-key.pem"));
    let mixed = ServerCredentials::read(&dir).unwrap_err();
    assert!(matches!(mixed, CredentialsError::Unusable { .. }), "{mixed}");
    fs::write(dir.join("server-key.pem"), "").unwrap();
    let empty = error(&dir);
    assert!(empty.contains("server-key.pem") && empty.contains("private key"), "{empty}");
    // A line of the authority's list is one certificate.
    for name in ["a b", "", "x\ny", "*"] {
        let authority = Authority::open(&house.authority()).unwrap();
        let out = house.path("odd");
        let odd = authority.issue(Role::Client, &[name.into()], DAY, &out).unwrap_err();
        assert!(matches!(odd, AuthorityError::Name(_)) && !out.exists(), "{odd}");
    }
    // Nothing of an authority, or of a certificate, is overwritten.
    let again = Authority::create(&house.authority()).err().expect("it is there");
    assert!(matches!(again, AuthorityError::Exists(_)), "{again}");
    let authority = Authority::open(&house.authority()).unwrap();
    let again = authority.issue(Role::Client, &["x".into()], DAY, &house.path("gw1")).unwrap_err();
    assert!(matches!(again, AuthorityError::Exists(_)), "{again}");
    let mode = fs::metadata(house.authority().join("ca-key.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "others may read the authority's key");
}
