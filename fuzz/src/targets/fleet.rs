//! What stands in etcd under the keys of hosts: none of it panics, what decodes encodes to itself,
//! and whatever is told the view stays within its bounds, its own host stays, and nothing that is
//! shown can move a terminal's cursor.
//!
//! The input is pieces of 96 bytes. The first byte of each says which host and which part, and how
//! the value is made: the bytes as they are, or a good part with some of its bytes replaced.

use headgate_fleet::{
    AdviceWord, BYTES_MAX, Behind, Cause, DatastoreWord, DiskWord, Evidence, Found, HOSTS_MAX,
    Header, HostKey, HostWord, Model, PREFIX, Part, PartKey, PartKind, Promise, Rate, Running,
    Service, Space, Thousandths, UNREADABLE_MAX, UnixSeconds, View, Waits, Workload,
};
use headgate_units::{Bytes, Nanos};

const PIECE: usize = 96;
const OWN: HostKey = HostKey([9; 16]);

fn header() -> Header {
    Header { instance: [1; 16], epoch: 2, at: UnixSeconds(1_800_000_000) }
}

fn host(name: &str) -> HostWord {
    HostWord {
        name: name.into(),
        version: "0.1.0".into(),
        api: Some("https://h:1".into()),
        running: Running::Yes,
        period: Nanos::from_secs(5),
        datastore_chunks: 1,
        disk_chunks: 1,
        disks: 1,
        failed: 0,
        missed: 0,
        received: Rate(100),
        bandwidth: Rate(100),
        queued: 1,
    }
}

fn good(kind: PartKind) -> Part {
    match kind {
        PartKind::Host => Part::Host(host("h")),
        PartKind::Datastores(_) => Part::Datastores(vec![DatastoreWord {
            name: "ds".into(),
            service: Service::Serving,
            storage: Some("directory 1".into()),
            received: Rate(1),
            bandwidth: Rate(1),
            latency: Some(Nanos::from_micros(9)),
            window: Thousandths(1_000),
            in_flight: 1,
            queued: 1,
            capacity: None,
            reserved: Rate(1),
            overbooked: Rate(0),
            disks: 1,
            space: Some(Space { size: Bytes(9), free: Bytes(3) }),
            model: Some(Model {
                slope_ps: 5,
                low_ps: 4,
                high_ps: 6,
                base_ns: -7,
                floor: Nanos(8),
                explained: Thousandths(900),
                points: 30,
                evidence: Evidence::Rise,
                size: Bytes(8_192),
                random: Thousandths(1_000),
            }),
        }]),
        PartKind::Disks(_) => Part::Disks(vec![DiskWord {
            name: "d".into(),
            vm: Some("v".into()),
            datastore: "ds".into(),
            service: Service::Hung,
            size: Bytes(9),
            reservation: Some(Rate(5)),
            limit: None,
            shares: 7,
            received: Rate(1),
            bandwidth: Rate(1),
            promise: Promise::Missed,
            queued: 1,
            latency: None,
            waits: Some(Waits {
                cause: Cause::Own,
                part: Thousandths(5),
                behind: Some(Behind { disk: "e".into(), part: Thousandths(300) }),
            }),
            workload: Some(Workload {
                outstanding: Thousandths(5),
                size: Bytes(1),
                read: Thousandths(1),
                random: Thousandths(1),
            }),
        }]),
        PartKind::Advice => Part::Advice(vec![AdviceWord {
            disk: "d".into(),
            from: "a".into(),
            to: "b".into(),
            why: "w".into(),
        }]),
    }
}

fn kind(how: u8) -> PartKind {
    match how >> 2 & 3 {
        0 => PartKind::Host,
        1 => PartKind::Datastores(0),
        2 => PartKind::Disks(u16::from(how >> 6)),
        _ => PartKind::Advice,
    }
}

/// A good part of each kind with one byte changed, each of those that there are.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let changed = |kind: u8| {
        (0..PIECE - 1).flat_map(move |at| {
            [1, 0x80].map(|by| {
                let mut piece = vec![0; PIECE];
                piece[0] = kind << 2 | 1;
                piece[1 + at] = by;
                // Behind a host that is known.
                let mut first = vec![0; PIECE];
                first[0] = 1;
                [first, piece].concat()
            })
        })
    };
    (0..4).flat_map(changed).collect()
}

fn value(how: u8, rest: &[u8]) -> Vec<u8> {
    if how & 1 == 0 {
        return rest.to_vec();
    }
    let mut bytes = good(kind(how)).encode(header());
    // The header is as it is, or nothing would be read behind it.
    bytes[8..].iter_mut().zip(rest).for_each(|(byte, new)| *byte ^= new);
    bytes
}

fn check(view: &View, now: Nanos) {
    assert!(view.bytes() <= BYTES_MAX && view.count() <= HOSTS_MAX + 1);
    let (count, named) = view.unreadable();
    assert!(named.len() <= UNREADABLE_MAX && named.len() as u64 <= count);
    let plain = |text: &str| !text.chars().any(char::is_control);
    assert!(named.iter().all(|one| plain(&one.key)), "{named:?}");
    assert!(view.labels().values().all(|label| plain(label)));
    assert!(view.hosts(now).any(|host| host.host == OWN), "the own host is gone");
    for host in view.hosts(now) {
        assert!(plain(&host.word.name));
        for (disk, age) in host.disks() {
            assert!(age >= host.age && plain(&disk.name) && disk.shares <= 1_000_000);
        }
        for (store, age) in host.datastores() {
            assert!(age >= host.age && store.storage.as_deref().is_none_or(plain));
        }
        assert!(host.advice().all(|(one, _)| plain(&one.why)));
    }
}

pub(super) fn run(input: &[u8]) {
    let mut view = View::new(OWN);
    let mut now = Nanos::from_secs(1_000);
    let own = Part::Host(host("own")).encode(header());
    view.put_own(now, PartKind::Host, &own).expect("it is one");
    for piece in input.chunks(PIECE) {
        let [how, rest @ ..] = piece else { break };
        now += Nanos::from_secs(3);
        let value = value(*how, rest);
        if let Ok((header, part)) = Part::decode(kind(*how), &value) {
            assert_eq!(Part::decode(kind(*how), &part.encode(header)), Ok((header, part)));
        }
        let key = PartKey { host: HostKey([how >> 5; 16]), kind: kind(*how) }.to_string();
        match (how >> 1 & 1, rest.first().map_or(0, |byte| byte % 4)) {
            (0, _) => view.put(now, Found::Told, key.as_bytes(), &value),
            (_, 0) => view.remove(key.as_bytes()),
            (_, 1) => {
                view.begin_reading();
                view.put(now, Found::Read(header().at), key.as_bytes(), &value);
                view.end_reading();
            }
            (_, 2) => view.put(now, Found::Told, &[PREFIX.as_bytes(), rest].concat(), &value),
            _ => view.heard(now),
        }
        check(&view, now);
    }
}
