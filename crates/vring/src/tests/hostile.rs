//! Each rule a guest can break, alone: the right error, for that request or that queue.

use super::*;
use crate::blk::{MAX_DATA, RangeHeader};
use crate::layout::{FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE};
use proptest::prelude::*;

const IN: u32 = RequestType::In as u32;
const OUT: u32 = RequestType::Out as u32;
const STATUS: u64 = 0x7000;

fn status() -> Buffer {
    writable(STATUS, 1)
}

/// Offers `buffers` behind a header; expects that request to fail alone, with the guest told.
#[track_caller]
fn rejects(kind: u32, sector: u64, rest: &[Buffer], expected: ChainError) {
    let mut rig = Rig::new(32, ALL);
    let header = rig.header(0x8000, kind, sector);
    rig.offer(&[&[header], rest].concat());
    let Some(Fetched::Rejected(Rejected { completion, error })) = rig.take().unwrap() else {
        panic!("not rejected")
    };
    assert_eq!(error, expected);
    rig.device.complete(completion, error.status(), 0);
    rig.device.publish();
    assert_eq!(rig.driver.poll_used().unwrap().unwrap().written, 1);
    assert_eq!(rig.byte(STATUS), error.status() as u8);
    rig.offer_read(1, 0x9000);
    assert!(matches!(rig.take(), Ok(Some(Fetched::Request(_)))), "the next request is served");
}

#[test]
fn a_bad_request_fails_alone_and_the_guest_is_told() {
    let out_of_range =
        |address, len| ChainError::BufferOutOfRange(MemoryError::OutOfRange { address, len });
    let length = |bytes, expected| ChainError::DataLength { bytes, expected };
    const SECTORS: &str = "a positive multiple of 512";

    rejects(IN, 0, &[writable(HOLE, 512), status()], out_of_range(HOLE, 512));
    rejects(IN, 0, &[writable(u64::MAX - 100, 512), status()], out_of_range(u64::MAX - 100, 512));
    rejects(IN, 0, &[writable(HOLE - 512, 1024), status()], out_of_range(HOLE - 512, 1024));
    rejects(IN, 0, &[writable(0x9000, 0), status()], ChainError::ZeroLength);
    rejects(IN, 0, &[status()], length(0, SECTORS));
    rejects(OUT, 0, &[status()], length(0, SECTORS));
    rejects(IN, 0, &[writable(0x9000, 511), status()], length(511, SECTORS));
    rejects(OUT, 0, &[readable(0x9000, 513), status()], length(513, SECTORS));
    rejects(OUT, 0, &[writable(0x9000, 512), status()], ChainError::UnexpectedData);
    rejects(IN, 0, &[readable(0x9000, 512), status()], ChainError::UnexpectedData);
    rejects(4, 0, &[writable(0x9000, 512), status()], ChainError::UnexpectedData);
    rejects(
        IN,
        0,
        &[writable(0x9000, 512), readable(0xa000, 512), status()],
        ChainError::ReadableAfterWritable,
    );
    rejects(99, 0, &[writable(0x9000, 512), status()], ChainError::UnknownType(99));
    rejects(
        IN,
        u64::MAX / 512 + 1,
        &[writable(0x9000, 512), status()],
        ChainError::SectorOverflow(u64::MAX / 512 + 1),
    );
    rejects(
        IN,
        u64::MAX / 512,
        &[writable(0x9000, 512), status()],
        ChainError::SectorOverflow(u64::MAX / 512),
    );
    let mib = writable(JOINT, 1 << 20);
    let too_large: Vec<_> = std::iter::repeat_n(mib, 16)
        .chain(std::iter::repeat_n(writable(0, 2 << 20), 9))
        .chain([status()])
        .collect();
    const { assert!(16 + 2 * 9 > MAX_DATA >> 20) };
    rejects(IN, 0, &too_large, ChainError::TooLarge);
    rejects(8, 0, &[writable(0x9000, 19), status()], length(19, "20"));
    rejects(11, 0, &[readable(0x9000, 32), status()], length(32, "16: one range"));
    rejects(11, 0, &[readable(0x9000, 15), status()], length(15, "16: one range"));
    rejects(11, 0, &[readable(0x9000, 16), status()], length(0, SECTORS));
}

#[test]
fn a_header_in_pieces_is_accepted_and_a_short_one_is_not() {
    let mut rig = Rig::new(32, ALL);
    rig.header(0x8000, IN, 7);
    rig.offer(&[
        readable(0x8000, 3),
        readable(0x8003, 12),
        readable(0x800f, 1),
        writable(0x9000, 513),
    ]);
    let Some(Fetched::Request(request)) = rig.take().unwrap() else { panic!() };
    assert_eq!(
        request.operation,
        Operation::Read { offset: headgate_units::Bytes(7 * 512), len: headgate_units::Bytes(512) }
    );
    assert_eq!(
        request.data().iter().map(Segment::size).sum::<usize>(),
        512,
        "the status is not data"
    );
    drop(request);

    rig.offer(&[readable(0x8000, 15), writable(0x9000, 512), status()]);
    let Some(Fetched::Rejected(rejected)) = rig.take().unwrap() else { panic!() };
    assert_eq!(rejected.error, ChainError::ShortHeader(15));
}

#[test]
fn flags_of_discard_and_write_zeroes_are_judged() {
    for (kind, flags, fine) in [
        (11, 0, true),
        (11, 1, false),
        (11, 2, false),
        (13, 0, true),
        (13, 1, true),
        (13, 3, false),
    ] {
        let mut rig = Rig::new(32, ALL);
        let header = rig.header(0x8000, kind, 0);
        let range = RangeHeader { sector: 8, sectors: 16, flags };
        rig.memory.write(GuestAddress(0x9001), &range.to_bytes()).unwrap();
        rig.offer(&[header, readable(0x9001, 5), readable(0x9006, 11), status()]);
        match rig.take().unwrap() {
            Some(Fetched::Request(request)) => {
                assert!(fine, "{kind} {flags}");
                let (offset, len) = (headgate_units::Bytes(4096), headgate_units::Bytes(8192));
                let unmap = if flags == 1 { Unmap::May } else { Unmap::MustNot };
                let expected = match kind {
                    11 => Operation::Discard { offset, len },
                    _ => Operation::WriteZeroes { offset, len, unmap },
                };
                assert_eq!(request.operation, expected);
            }
            Some(Fetched::Rejected(rejected)) => {
                assert!(!fine, "{kind} {flags}");
                assert_eq!(rejected.error, ChainError::RangeFlags(flags));
                assert_eq!(rejected.error.status(), Status::Unsupported);
            }
            None => panic!(),
        }
    }
}

#[test]
fn the_name_reaches_the_guest_across_buffers() {
    let mut rig = Rig::new(32, ALL);
    let header = rig.header(0x8000, 8, 0);
    rig.offer(&[header, writable(JOINT - 5, 12), writable(0x9000, 8), status()]);
    let Some(Fetched::Request(request)) = rig.take().unwrap() else { panic!() };
    assert_eq!(request.operation, Operation::GetId);
    assert_eq!(request.write_id("a-name-longer-than-twenty-bytes"), 20);
    drop(request);
    let mut name = [0; 20];
    rig.memory.read(GuestAddress(JOINT - 5), &mut name[..12], &mut Default::default()).unwrap();
    rig.memory.read(GuestAddress(0x9000), &mut name[12..], &mut Default::default()).unwrap();
    assert_eq!(&name, b"a-name-longer-than-t");
}

/// Writes raw descriptors from index 0 and offers head 0; expects the queue to break, and to stay
/// so.
#[track_caller]
fn breaks(features: QueueFeatures, descriptors: &[(u64, u32, u16, u16)], error: ChainError) {
    let mut rig = Rig::new(4, features);
    rig.header(0x8000, IN, 0);
    for (i, (addr, len, flags, next)) in descriptors.iter().enumerate() {
        rig.driver.raw().set_descriptor(i as u16, GuestAddress(*addr), *len, *flags, *next);
    }
    rig.driver.raw().offer(0);
    let expected = Some(QueueError::Chain { head: 0, error });
    assert_eq!(rig.take().err(), expected);
    assert_eq!(rig.take().err(), expected, "it stays broken");
    assert_eq!(rig.device.in_flight(), 0, "a drain does not wait for it");
}

#[test]
fn a_chain_without_a_findable_status_breaks_its_queue() {
    const N: u16 = FLAG_NEXT;
    const W: u16 = FLAG_WRITE;
    const I: u16 = FLAG_INDIRECT;
    let no_indirect = QueueFeatures { indirect: IndirectTables::Refused, ..ALL };
    breaks(ALL, &[(0x8000, 16, N, 0)], ChainError::Loop);
    breaks(ALL, &[(0x8000, 16, N, 1), (0x9000, 512, N | W, 0)], ChainError::Loop);
    breaks(ALL, &[(0x8000, 16, N, 4)], ChainError::NextOutOfRange { next: 4, entries: 4 });
    breaks(ALL, &[(0x8000, 16, 0, 0)], ChainError::NoStatus);
    breaks(ALL, &[(0x8000, 16, N, 1), (0x9000, 0, W, 0)], ChainError::ZeroLength);
    breaks(ALL, &[(0x8000, 16, N, 1), (HOLE, 1, W, 0)], ChainError::NoStatus);
    breaks(no_indirect, &[(0x8000, 16, I, 0)], ChainError::IndirectNotNegotiated);
    breaks(ALL, &[(0x9000, 64, I | N, 1)], ChainError::IndirectWithNext);
    breaks(ALL, &[(0x9000, 0, I, 0)], ChainError::IndirectLength(0));
    breaks(ALL, &[(0x9000, 17, I, 0)], ChainError::IndirectLength(17));
    let outside = MemoryError::OutOfRange { address: HOLE, len: 16 };
    breaks(ALL, &[(HOLE, 32, I, 0)], ChainError::IndirectOutOfRange(outside));
    breaks(ALL, &[(0x8000, 16, N, 1), (HOLE, 32, I, 0)], ChainError::IndirectOutOfRange(outside));
}

#[test]
fn a_table_in_a_table_breaks_the_queue_and_one_behind_direct_descriptors_is_fine() {
    let mut rig = Rig::new(4, ALL);
    let header = rig.header(0x8000, IN, 0);
    let table = Placement::Indirect(GuestAddress(0xa000));
    rig.driver.add(&[header, writable(0x9000, 512), status()], table).unwrap();
    // The same table again, behind one more descriptor that carries the header's first byte.
    rig.driver.raw().set_descriptor(2, GuestAddress(0x8000), 16, FLAG_NEXT, 3);
    rig.driver.raw().set_descriptor(3, GuestAddress(0xa010), 32, FLAG_INDIRECT, 0);
    rig.driver.publish();
    rig.driver.raw().offer(2);
    let Some(Fetched::Request(one)) = rig.take().unwrap() else { panic!() };
    drop(one);
    // Within the shifted table `next` counts from its own start.
    let next = rig.take();
    assert_eq!(
        next.err(),
        Some(QueueError::Chain {
            head: 2,
            error: ChainError::NextOutOfRange { next: 2, entries: 2 }
        })
    );

    let mut rig = Rig::new(4, ALL);
    rig.header(0x8000, IN, 0);
    rig.driver.raw().set_descriptor(0, GuestAddress(0x8000), 16, FLAG_NEXT, 1);
    rig.driver.raw().set_descriptor(1, GuestAddress(0xa000), 16, FLAG_INDIRECT, 0);
    // One writable entry of 513 bytes: data and status.
    let entry = crate::layout::Descriptor {
        addr: GuestAddress(0x9000),
        len: 513,
        flags: FLAG_WRITE,
        next: 0,
    };
    let write_entry = |rig: &Rig, entry: crate::layout::Descriptor| {
        for (i, word) in entry.to_words().into_iter().enumerate() {
            rig.memory.write(GuestAddress(0xa000 + 8 * i as u64), &word.to_ne_bytes()).unwrap();
        }
    };
    write_entry(&rig, entry);
    rig.driver.raw().offer(0);
    assert!(matches!(rig.take(), Ok(Some(Fetched::Request(_)))));
    write_entry(&rig, crate::layout::Descriptor { flags: FLAG_INDIRECT, len: 16, ..entry });
    rig.driver.raw().set_descriptor(2, GuestAddress(0xa000), 16, FLAG_INDIRECT, 0);
    rig.driver.raw().offer(2);
    assert_eq!(
        rig.take().err(),
        Some(QueueError::Chain { head: 2, error: ChainError::NestedIndirect })
    );
}

#[test]
fn a_meaningless_available_ring_breaks_the_queue() {
    let mut rig = Rig::new(4, ALL);
    rig.driver.raw().set_available_index(5);
    assert_eq!(rig.take().err(), Some(QueueError::AvailableIndex { from: 0, to: 5, size: 4 }));

    let mut rig = Rig::new(4, ALL);
    rig.driver.raw().offer(4);
    assert_eq!(rig.take().err(), Some(QueueError::Head { head: 4, size: 4 }));

    let mut rig = Rig::new(4, ALL);
    let head = rig.offer_read(0, 0x8000);
    rig.driver.raw().offer(head);
    let Some(Fetched::Request(request)) = rig.device.next_request(&mut rig.scratch).unwrap() else {
        panic!()
    };
    let completion = request.completion;
    assert_eq!(rig.take().err(), Some(QueueError::HeadInFlight(head)));
    rig.device.complete(completion, Status::Ok, 512);
    rig.device.publish();
    assert_eq!(
        rig.driver.poll_used().unwrap(),
        Some(Used { head, written: 513 }),
        "what was taken is still answered"
    );
}

#[test]
fn rings_must_lie_aligned_inside_one_region() {
    let memory = memory();
    let (good, _) = QueueLayout::contiguous(GuestAddress(0), 16).unwrap();
    let start = |layout: QueueLayout| {
        DeviceQueue::start(Arc::clone(&memory), &layout, ALL, 0, None).err().map(|e| e.to_string())
    };
    assert_eq!(start(good), None);
    for size in [0, 3, 2048, 65535] {
        assert!(start(QueueLayout { size, ..good }).unwrap().contains("power of two"));
        assert_eq!(QueueLayout::contiguous(GuestAddress(0), size), Err(LayoutError::Size(size)));
    }
    for layout in [
        QueueLayout { descriptors: GuestAddress(8), ..good },
        QueueLayout { available: GuestAddress(0x1001), ..good },
        QueueLayout { used: GuestAddress(0x1002), ..good },
    ] {
        assert!(start(layout).unwrap().contains("not aligned"), "{layout:?}");
    }
    for at in [HOLE, HOLE - 16, JOINT - 32, u64::MAX - 15] {
        let text = start(QueueLayout { descriptors: GuestAddress(at), ..good }).unwrap();
        assert!(text.contains("not inside one region"), "{text}");
    }
}

#[test]
fn overlapping_empty_and_wrapping_regions_are_refused() {
    let mapping = || Arc::new(HeapMapping::new(8192));
    let region = |at| Region::new(GuestAddress(at), mapping());
    assert!(matches!(region(u64::MAX - 4096), Err(MemoryError::BadRegion(_))));
    let overlap = GuestMemory::new(vec![region(0).unwrap(), region(4096).unwrap()]);
    assert_eq!(overlap.err(), Some(MemoryError::Overlap(4096)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 200 }))]

    /// Any bits in the descriptor table, the available ring and the buffers: every buffer that
    /// comes out lies in guest memory, every length adds up, and nothing panics.
    #[test]
    fn any_ring_content_is_survived(
        descriptors in prop::collection::vec(
            (
                prop_oneof![0u64..HOLE, Just(HIGH), Just(JOINT - 700), any::<u64>()],
                prop_oneof![Just(16u32), Just(1), Just(32), 0u32..5000, any::<u32>()],
                prop_oneof![4 => 0u16..8, 1 => any::<u16>()],
                prop_oneof![8 => 0u16..16, 1 => any::<u16>()],
            ),
            16,
        ),
        table in prop::collection::vec(any::<u8>(), 256),
        heads in prop::collection::vec(prop_oneof![8 => 0u16..16, 1 => any::<u16>()], 1..20),
        kinds in prop::collection::vec(prop_oneof![Just(0u32), Just(1), Just(4), Just(8), Just(11), Just(13), any::<u32>()], 64),
    ) {
        let mut rig = Rig::new(16, ALL);
        for (i, kind) in kinds.iter().enumerate() {
            rig.header(0x8000 + 16 * i as u64, *kind, i as u64);
        }
        rig.memory.write(GuestAddress(0x10000), &table).unwrap();
        for (i, (addr, len, flags, next)) in descriptors.iter().enumerate() {
            // Often a header, often the table.
            let addr = match i % 4 { 0 => 0x8000 + 16 * (*addr % 64), 1 => 0x10000, _ => *addr };
            rig.driver.raw().set_descriptor(i as u16, GuestAddress(addr), *len, *flags, *next);
        }
        for head in heads {
            rig.driver.raw().offer(head);
        }
        let memory = Arc::clone(&rig.memory);
        while let Ok(Some(fetched)) = rig.device.next_request(&mut rig.scratch) {
            let (completion, status) = match fetched {
                Fetched::Request(request) => {
                    let bytes: usize = request.data().iter().map(Segment::size).sum();
                    match request.operation {
                        Operation::Read { len, .. } | Operation::Write { len, .. } => {
                            prop_assert_eq!(bytes as u64, len.0)
                        }
                        _ => prop_assert_eq!(bytes, 0),
                    }
                    for segment in Segment::as_iovecs(request.data()) {
                        let (base, len) = (segment.iov_base as usize, segment.iov_len);
                        prop_assert!(memory.host_range_is_guest_memory(base, len));
                    }
                    (request.completion, Status::Ok)
                }
                Fetched::Rejected(rejected) => (rejected.completion, rejected.error.status()),
            };
            rig.device.complete(completion, status, 0);
            rig.device.publish();
        }
        prop_assert!(rig.device.in_flight() == 0);
    }
}
