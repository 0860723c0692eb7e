//! What one request costs on the device side: take, parse, complete, publish, decide about the
//! call.
//!
//! `cargo bench -p headgate-vring`
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use headgate_vring::blk::{RequestHeader, RequestType, Status};
use headgate_vring::{
    Buffer, Completion, DeviceQueue, DriverQueue, EventIndex, Fetched, GuestAddress, GuestMemory,
    HeapMapping, IndirectTables, InflightRegion, Placement, QueueFeatures, QueueLayout, Region,
    Scratch,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIZE: u16 = 256;
const BATCH: u64 = 32;
const ROUNDS: u64 = 100_000;

fn main() {
    for (name, indirect, segments, tracked) in [
        ("4 KiB, direct", false, 1, false),
        ("4 KiB, indirect", true, 1, false),
        ("4 KiB, indirect, in-flight region", true, 1, true),
        ("64 KiB in 16 pieces, indirect, in-flight region", true, 16, true),
    ] {
        let mut runs: Vec<u64> = (0..5).map(|_| run(indirect, segments, tracked)).collect();
        runs.sort_unstable();
        println!(
            "{name}: {} ns per request (median of 5; {} to {})",
            runs[2] / 10,
            runs[0] / 10,
            runs[4] / 10
        );
    }
}

/// Tenths of nanoseconds per request.
fn run(indirect: bool, segments: u64, tracked: bool) -> u64 {
    let region = |start, mib: usize| {
        Region::new(GuestAddress(start), Arc::new(HeapMapping::new(mib << 20))).unwrap()
    };
    // As a small PC: low memory, a hole, high memory.
    let memory = Arc::new(GuestMemory::new(vec![region(0, 16), region(4 << 30, 64)]).unwrap());
    let (layout, _) = QueueLayout::contiguous(GuestAddress(4096), SIZE).unwrap();
    let features = QueueFeatures { event_index: EventIndex::On, indirect: IndirectTables::Allowed };
    let mut driver = DriverQueue::new(Arc::clone(&memory), &layout, features).unwrap();
    let region = tracked.then(|| {
        let mapping = Arc::new(HeapMapping::new(InflightRegion::bytes(SIZE)));
        InflightRegion::new(mapping, 0, SIZE).unwrap()
    });
    let mut device = DeviceQueue::start(Arc::clone(&memory), &layout, features, 0, region).unwrap();
    let mut scratch = Scratch::default();
    let mut taken: Vec<Completion> = Vec::new();
    let mut spent = Duration::ZERO;
    for round in 0..ROUNDS / BATCH {
        for i in 0..BATCH {
            let header_at = GuestAddress((4 << 30) + i * 4096);
            let header =
                RequestHeader { kind: RequestType::In as u32, ioprio: 0, sector: round * 8 };
            memory.write(header_at, &header.to_bytes()).unwrap();
            let mut chain = vec![Buffer::Readable { at: header_at, len: 16 }];
            for s in 0..segments {
                // Every other page, so that no two pieces merge.
                let at = GuestAddress((4 << 30) + (1 << 20) + (i * segments + s) * 8192);
                chain.push(Buffer::Writable { at, len: 4096 });
            }
            chain.push(Buffer::Writable { at: GuestAddress(header_at.0 + 16), len: 1 });
            let table = GuestAddress(header_at.0 + 1024);
            let placement = if indirect { Placement::Indirect(table) } else { Placement::Direct };
            driver.add(&chain, placement).unwrap();
        }
        driver.publish();
        let start = Instant::now();
        while let Some(fetched) = device.next_request(&mut scratch).unwrap() {
            let Fetched::Request(request) = fetched else { panic!("a good request was rejected") };
            std::hint::black_box(request.data());
            taken.push(request.completion);
        }
        for completion in taken.drain(..) {
            device.complete(completion, Status::Ok, 4096);
        }
        device.publish();
        std::hint::black_box(device.needs_call());
        std::hint::black_box(device.enable_kicks());
        spent += start.elapsed();
        while driver.poll_used().unwrap().is_some() {}
    }
    (spent.as_nanos() * 10 / u128::from(ROUNDS)) as u64
}
