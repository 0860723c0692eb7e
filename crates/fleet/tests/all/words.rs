//! Parts come back as they were; what is none is refused.

use headgate_fleet::*;
use headgate_units::{Bytes, Nanos};
use proptest::prelude::*;

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}"
}

fn note() -> impl Strategy<Value = String> {
    "[ -~]{0,160}"
}

/// Neither the largest number, which cannot be told from the one below where there may be none.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..100, 0u64..u64::MAX]
}

fn latency() -> impl Strategy<Value = Option<Nanos>> {
    prop::option::of((0u64..1 << 50).prop_map(Nanos::from_micros))
}

fn service() -> impl Strategy<Value = Service> {
    prop_oneof![
        Just(Service::Serving),
        Just(Service::Starting),
        Just(Service::Hung),
        Just(Service::Failed),
        Just(Service::Evicted)
    ]
}

fn thousandths() -> impl Strategy<Value = Thousandths> {
    (0u64..=1_000).prop_map(Thousandths)
}

fn host() -> impl Strategy<Value = HostWord> {
    let texts = ("[ -~]{1,64}", "[ -~]{0,64}", prop::option::of("[ -~]{1,160}"));
    let numbers = (1_000u64..=120_000, 0u16..=16, 0u16..=64, any::<bool>());
    (texts, numbers, prop::collection::vec(number(), 6)).prop_map(|(texts, numbers, n)| {
        let ((name, version, api), (period, datastore_chunks, disk_chunks, stopped)) =
            (texts, numbers);
        HostWord {
            name,
            version,
            api,
            running: if stopped { Running::Stopped } else { Running::Yes },
            period: Nanos::from_millis(period),
            datastore_chunks,
            disk_chunks,
            disks: n[0],
            failed: n[1],
            missed: n[2],
            received: Rate(n[3]),
            bandwidth: Rate(n[4]),
            queued: n[5],
        }
    })
}

fn model() -> impl Strategy<Value = Model> {
    let evidence = prop_oneof![
        Just(Evidence::Rise),
        Just(Evidence::Flat),
        Just(Evidence::Steady),
        Just(Evidence::Unclear)
    ];
    let signed = -(1i64 << 59)..1 << 59;
    let numbers = prop::collection::vec(0u64..=1 << 40, 5);
    (evidence, signed, numbers, thousandths(), thousandths(), 0u64..=u32::MAX.into()).prop_map(
        |(evidence, base_ns, n, explained, random, points)| Model {
            slope_ps: n[0],
            low_ps: n[1],
            high_ps: n[2],
            base_ns,
            floor: Nanos(n[3]),
            explained,
            points,
            evidence,
            size: Bytes(n[4]),
            random,
        },
    )
}

pub(crate) fn datastore() -> impl Strategy<Value = DatastoreWord> {
    let pair = || prop::option::of((number(), number()));
    let known = (name(), service(), prop::option::of("[ -~]{1,160}"), latency());
    (
        known,
        prop::collection::vec(number(), 7),
        0u64..1 << 32,
        prop::option::of(number()),
        pair(),
        prop::option::of(model()),
    )
        .prop_map(|((name, service, storage, latency), n, window, capacity, space, model)| {
            DatastoreWord {
                name,
                service,
                storage,
                received: Rate(n[0]),
                bandwidth: Rate(n[1]),
                latency,
                window: Thousandths(window),
                in_flight: n[2],
                queued: n[3],
                capacity: capacity.map(Rate),
                reserved: Rate(n[4]),
                overbooked: Rate(n[5]),
                disks: n[6],
                space: space.map(|(size, free)| Space { size: Bytes(size), free: Bytes(free) }),
                model,
            }
        })
}

fn waits() -> impl Strategy<Value = Waits> {
    let cause = prop_oneof![
        Just(Cause::Device),
        Just(Cause::Limit),
        Just(Cause::Own),
        Just(Cause::Neighbours),
        Just(Cause::Window),
        Just(Cause::Held)
    ];
    let behind = (name(), thousandths()).prop_map(|(disk, part)| Behind { disk, part });
    (cause, thousandths(), prop::option::of(behind)).prop_map(|(cause, part, behind)| Waits {
        cause,
        part,
        behind,
    })
}

fn workload() -> impl Strategy<Value = Workload> {
    (0u64..=u32::MAX.into(), 0u64..=1 << 40, thousandths(), thousandths()).prop_map(
        |(outstanding, size, read, random)| Workload {
            outstanding: Thousandths(outstanding),
            size: Bytes(size),
            read,
            random,
        },
    )
}

pub(crate) fn disk() -> impl Strategy<Value = DiskWord> {
    let names = (name(), prop::option::of(name()), name(), service(), any::<bool>());
    let maybe = (prop::option::of(number()), prop::option::of(number()), latency());
    let numbers = (number(), 0u64..=1_000_000, number(), number(), number());
    (names, maybe, numbers, prop::option::of(waits()), prop::option::of(workload())).prop_map(
        |(names, (reservation, limit, latency), n, waits, workload)| {
            let (name, vm, datastore, service, missed) = names;
            DiskWord {
                name,
                vm,
                datastore,
                service,
                size: Bytes(n.0),
                reservation: reservation.map(Rate),
                limit: limit.map(Rate),
                shares: n.1,
                received: Rate(n.2),
                bandwidth: Rate(n.3),
                promise: if missed { Promise::Missed } else { Promise::Kept },
                queued: n.4,
                latency,
                waits,
                workload,
            }
        },
    )
}

fn advice() -> impl Strategy<Value = AdviceWord> {
    (name(), name(), note(), note()).prop_map(|(disk, from, to, why)| AdviceWord {
        disk,
        from,
        to,
        why,
    })
}

fn part() -> impl Strategy<Value = (PartKind, Part)> {
    let list = |most: usize| 0..=most;
    prop_oneof![
        host().prop_map(|host| (PartKind::Host, Part::Host(host))),
        prop::collection::vec(datastore(), list(DATASTORES_EACH))
            .prop_map(|list| (PartKind::Datastores(3), Part::Datastores(list))),
        prop::collection::vec(disk(), list(DISKS_EACH))
            .prop_map(|list| (PartKind::Disks(3), Part::Disks(list))),
        prop::collection::vec(advice(), list(ADVICE_MAX))
            .prop_map(|list| (PartKind::Advice, Part::Advice(list))),
    ]
}

pub(crate) fn header() -> Header {
    Header { instance: [7; 16], epoch: 3, at: UnixSeconds(1_800_000_000) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_part_comes_back_and_is_bounded((kind, part) in part()) {
        let bytes = part.encode(header());
        prop_assert!(bytes.len() <= PART_MAX);
        prop_assert_eq!(Part::decode(kind, &bytes), Ok((header(), part)));
    }

    #[test]
    fn a_part_that_is_cut_or_longer_is_none((kind, part) in part(), cut in any::<prop::sample::Index>()) {
        let bytes = part.encode(header());
        let cut = cut.index(bytes.len());
        prop_assert!(Part::decode(kind, &bytes[..cut]).is_err());
        let mut longer = bytes;
        longer.push(0);
        prop_assert_eq!(Part::decode(kind, &longer), Err(PartError::Trailing));
    }

    #[test]
    fn no_bytes_panic((kind, part) in part(), at in any::<prop::sample::Index>(), by in 1u8..) {
        let mut bytes = part.encode(header());
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        if let Ok((header, part)) = Part::decode(kind, &bytes) {
            // What it was read as is what it says.
            prop_assert_eq!(Part::decode(kind, &part.encode(header)), Ok((header, part)));
        }
    }
}

#[test]
fn what_is_no_part_is_named() {
    let good = Part::Disks(Vec::new()).encode(header());
    let decode = |bytes: &[u8]| Part::decode(PartKind::Disks(0), bytes).unwrap_err();
    assert_eq!(decode(b""), PartError::Foreign);
    assert_eq!(decode(&[0xff; 64]), PartError::Foreign);
    assert_eq!(decode(&vec![0; PART_MAX + 1]), PartError::TooLong(PART_MAX + 1));
    let mut newer = good.clone();
    newer[7] = b'2';
    assert_eq!(decode(&newer), PartError::Version(2));
    assert!(decode(&newer).to_string().contains("version 2, and this daemon reads version 1"));
    // More disks than a chunk has, without their bytes.
    let mut many = good;
    *many.last_mut().unwrap() = 127;
    assert_eq!(decode(&many), PartError::Value("number"));
}

/// A record of a later daemon has more fields, and is read by this one.
#[test]
fn fields_of_a_later_time_are_skipped() {
    let word = AdviceWord { disk: "d".into(), from: "a".into(), to: "b".into(), why: "w".into() };
    let bytes = Part::Advice(vec![word.clone()]).encode(header());
    // The record is the end: its length, and four texts of one byte.
    let at = bytes.len() - 9;
    assert_eq!(bytes[at], 8);
    let mut later = bytes.clone();
    later[at] += 3;
    later.extend(b"\x02hi");
    assert_eq!(Part::decode(PartKind::Advice, &later), Ok((header(), Part::Advice(vec![word]))));
}
