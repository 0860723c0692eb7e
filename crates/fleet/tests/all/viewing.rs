//! The view: ages, hosts that are down, hosts of one name, what is no word.

use crate::words::header;
use headgate_fleet::*;
use headgate_units::Nanos;
use proptest::prelude::*;

const OWN: HostKey = HostKey([9; 16]);

fn at(seconds: u64) -> Nanos {
    Nanos::from_secs(seconds)
}

fn word(name: &str) -> HostWord {
    HostWord {
        name: name.into(),
        version: "0.1.0".into(),
        api: None,
        running: Running::Yes,
        period: at(5),
        datastore_chunks: 0,
        disk_chunks: 1,
        disks: 1,
        failed: 0,
        missed: 0,
        received: Rate(0),
        bandwidth: Rate(0),
        queued: 0,
    }
}

fn key(host: HostKey, kind: PartKind) -> Vec<u8> {
    PartKey { host, kind }.to_string().into_bytes()
}

fn tell(view: &mut View, now: Nanos, found: Found, host: HostKey, word: &HostWord) {
    let value = Part::Host(word.clone()).encode(header());
    view.put(now, found, &key(host, PartKind::Host), &value);
    view.heard(now);
}

fn states(view: &View, now: Nanos) -> Vec<(String, HostState, u64)> {
    let of =
        |host: HostView<'_>| (host.word.name.clone(), host.state, host.age.0.0 / 1_000_000_000);
    view.hosts(now).map(of).collect()
}

const A: HostKey = HostKey([1; 16]);
const B: HostKey = HostKey([2; 16]);

#[test]
fn a_host_that_is_silent_while_others_are_heard_is_down_and_stays() {
    let mut view = View::new(OWN);
    tell(&mut view, at(100), Found::Told, A, &word("a"));
    for now in (100..=130).step_by(5) {
        tell(&mut view, at(now), Found::Told, B, &word("b"));
    }
    let b = ("b".to_owned(), HostState::Running, 0);
    assert_eq!(
        states(&view, at(116)),
        [("a".into(), HostState::Running, 16), ("b".into(), HostState::Running, 0)]
    );
    assert_eq!(states(&view, at(130)), [("a".into(), HostState::Silent, 30), b]);
    // It comes back.
    tell(&mut view, at(140), Found::Told, A, &word("a"));
    assert_eq!(states(&view, at(140))[0], ("a".into(), HostState::Running, 0));
}

#[test]
fn when_nobody_is_heard_nobody_is_called_down_who_was_not_before() {
    let mut view = View::new(OWN);
    tell(&mut view, at(50), Found::Told, A, &word("a"));
    tell(&mut view, at(100), Found::Told, B, &word("b"));
    let later = states(&view, at(1_000));
    assert_eq!(later[0], ("a".into(), HostState::Silent, 950));
    assert_eq!(later[1], ("b".into(), HostState::Unknown, 900));
    assert_eq!(view.age(at(1_000)), Some(Age(at(900))));
}

#[test]
fn a_host_that_stopped_says_so() {
    let mut view = View::new(OWN);
    tell(&mut view, at(100), Found::Told, A, &HostWord { running: Running::Stopped, ..word("a") });
    assert_eq!(states(&view, at(101)), [("a".into(), HostState::Stopped, 1)]);
    // The lease of its keys ends.
    view.remove(&key(A, PartKind::Host));
    assert!(states(&view, at(102)).is_empty());
    assert_eq!((view.count(), view.bytes()), (0, 0));
}

/// What is found when all is read is as old as its host's clock says, and no younger than it was.
#[test]
fn what_is_read_later_does_not_become_younger() {
    let mut view = View::new(OWN);
    let wall = UnixSeconds(header().at.0 + 3_600);
    tell(&mut view, at(10_000), Found::Read(wall), A, &word("a"));
    assert_eq!(states(&view, at(10_000)), [("a".into(), HostState::Silent, 3_600)]);
    // A daemon that has just begun knows no time that is so long ago.
    let mut young = View::new(OWN);
    tell(&mut young, at(10), Found::Read(wall), A, &word("a"));
    assert_eq!(states(&young, at(11))[0].2, 3_601);
    tell(&mut view, at(20_000), Found::Told, A, &word("a"));
    view.begin_reading();
    tell(&mut view, at(20_010), Found::Read(wall), A, &word("a"));
    view.end_reading();
    assert_eq!(states(&view, at(20_010)), [("a".into(), HostState::Running, 10)]);
    // A clock that is ahead makes nobody young for longer than until it should have spoken again.
    let mut ahead = View::new(OWN);
    let early = UnixSeconds(header().at.0 - 3_600);
    tell(&mut ahead, at(100), Found::Read(early), A, &word("a"));
    tell(&mut ahead, at(130), Found::Told, B, &word("b"));
    assert_eq!(states(&ahead, at(130))[0].1, HostState::Silent);
}

#[test]
fn what_is_not_read_again_is_gone_except_the_own_word() {
    let mut view = View::new(OWN);
    let own = Part::Host(word("own")).encode(header());
    view.put_own(at(1), PartKind::Host, &own).unwrap();
    for host in [A, B] {
        tell(&mut view, at(1), Found::Told, host, &word("x"));
    }
    view.begin_reading();
    tell(&mut view, at(2), Found::Read(header().at), B, &word("x"));
    view.end_reading();
    let left: Vec<HostKey> = view.hosts(at(2)).map(|host| host.host).collect();
    assert_eq!(left, [B, OWN]);
    // Nobody takes the own word away.
    view.remove(&key(OWN, PartKind::Host));
    assert_eq!(view.count(), 2);
}

#[test]
fn hosts_of_one_name_are_told_apart() {
    let mut view = View::new(OWN);
    let mut close = [3; 16];
    close[3] = 4;
    for (host, name) in
        [(A, "web"), (B, "db"), (HostKey([3; 16]), "web"), (HostKey(close), "db~0303")]
    {
        tell(&mut view, at(1), Found::Told, host, &word(name));
    }
    let labels: Vec<String> = view.labels().into_values().collect();
    assert_eq!(labels, ["web~01010101", "db", "web~03030303", "db~0303~03030304"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever hosts call themselves, no two are called the same here.
    #[test]
    fn labels_are_unique(hosts in prop::collection::btree_map(
        prop::array::uniform16(0u8..3), "[ab~0]{1,3}", 0..40)
    ) {
        let mut view = View::new(OWN);
        for (host, name) in &hosts {
            tell(&mut view, at(1), Found::Told, HostKey(*host), &word(name));
        }
        let labels = view.labels();
        prop_assert_eq!(labels.len(), hosts.len());
        let unique: std::collections::BTreeSet<&String> = labels.values().collect();
        prop_assert_eq!(unique.len(), hosts.len(), "{:?}", labels);
    }
}

#[test]
fn what_is_no_word_is_named_and_the_last_good_one_stays() {
    let mut view = View::new(OWN);
    tell(&mut view, at(1), Found::Told, A, &word("a"));
    view.put(at(2), Found::Told, &key(A, PartKind::Host), b"garbage");
    view.put(at(2), Found::Told, b"/headgate/fleet/\x1b[2J", b"");
    view.put(at(2), Found::Told, &key(B, PartKind::Host), &vec![0; 1 << 20]);
    let (count, named) = view.unreadable();
    assert_eq!((count, named.len()), (3, 3));
    assert!(named.iter().all(|one| !one.key.contains('\u{1b}')), "{named:?}");
    assert!(named.iter().any(|one| one.why.contains("1048576 bytes")), "{named:?}");
    assert_eq!(states(&view, at(2)), [("a".into(), HostState::Running, 1)]);
    // It is made good, or taken away.
    tell(&mut view, at(3), Found::Told, A, &word("a"));
    view.remove(&key(B, PartKind::Host));
    assert_eq!(view.unreadable().0, 1);
    for n in 0..1_000u32 {
        view.put(at(4), Found::Told, format!("/headgate/fleet/{n}").as_bytes(), b"");
    }
    let (count, named) = view.unreadable();
    assert_eq!((count, named.len()), (1_001, UNREADABLE_MAX));
}

#[test]
fn there_is_room_for_so_many_hosts_and_so_many_bytes() {
    let mut view = View::new(OWN);
    let host = |n: usize| {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&(n as u64).to_be_bytes());
        HostKey(key)
    };
    for n in 0..HOSTS_MAX + 10 {
        tell(&mut view, at(1), Found::Told, host(n), &word("x"));
    }
    assert_eq!((view.count(), view.left_out()), (HOSTS_MAX, 10));
    // The own host has its place whatever others do.
    view.put_own(at(1), PartKind::Host, &Part::Host(word("own")).encode(header())).unwrap();
    assert_eq!(view.count(), HOSTS_MAX + 1);
    let long = DiskWord { vm: Some("v".repeat(64)), ..disk(&"n".repeat(64)) };
    let value = Part::Disks(vec![long; DISKS_EACH]).encode(header());
    let before = view.left_out();
    for n in 0..HOSTS_MAX {
        for chunk in 0..6 {
            view.put(at(1), Found::Told, &key(host(n), PartKind::Disks(chunk)), &value);
        }
    }
    assert!(view.left_out() > before, "{} bytes in all", view.bytes());
    assert!(view.bytes() > BYTES_MAX - PART_MAX);
    assert!(view.bytes() <= BYTES_MAX);
}

fn disk(name: &str) -> DiskWord {
    DiskWord {
        name: name.into(),
        vm: None,
        datastore: "ds".into(),
        service: Service::Serving,
        size: headgate_units::Bytes(0),
        reservation: None,
        limit: None,
        shares: 1,
        received: Rate(0),
        bandwidth: Rate(0),
        promise: Promise::Kept,
        queued: 0,
        latency: None,
        waits: None,
        workload: None,
    }
}

#[test]
fn only_chunks_that_count_are_shown_and_only_of_the_daemon_that_runs() {
    let mut view = View::new(OWN);
    tell(&mut view, at(1), Found::Told, A, &word("a"));
    let earlier = Header { instance: [8; 16], ..header() };
    for (chunk, name, header) in [(0, "old", earlier), (1, "beyond", header())] {
        let value = Part::Disks(vec![disk(name)]).encode(header);
        view.put(at(1), Found::Told, &key(A, PartKind::Disks(chunk)), &value);
    }
    let names = |view: &View, now| -> Vec<(String, u64)> {
        let host = view.hosts(now).next().unwrap();
        host.disks().map(|(disk, age)| (disk.name.clone(), age.0.0 / 1_000_000_000)).collect()
    };
    assert!(names(&view, at(1)).is_empty());
    let value = Part::Disks(vec![disk("new")]).encode(header());
    view.put(at(1), Found::Told, &key(A, PartKind::Disks(0)), &value);
    // Unchanged for a minute: its host would have said within three periods.
    tell(&mut view, at(60), Found::Told, A, &word("a"));
    assert_eq!(names(&view, at(62)), [("new".to_owned(), 2 + 15)]);
}
