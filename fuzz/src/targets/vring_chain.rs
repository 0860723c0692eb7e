//! Descriptor chains of a driver that keeps the rules mostly, against the device side with its
//! in-flight region.
//!
//! Whatever comes: no panic, every buffer handed out lies in guest memory (the address sanitiser
//! watches), lengths add up, and a restart finds the region in order.

use arbitrary::{Result, Unstructured};
use headgate_vring::blk::{RequestHeader, Status};
use headgate_vring::{
    Buffer, Completion, DeviceQueue, DriverQueue, Fetched, GuestAddress, GuestMemory, HeapMapping,
    InflightRegion, Operation, Placement, QueueFeatures, QueueLayout, Region, Scratch, Segment,
};
use std::sync::Arc;

const PART: u64 = 1 << 17;
const HIGH: u64 = 1 << 30;
const SIZE: u16 = 16;

pub(super) fn run(data: &[u8]) {
    // Running out of input ends the run like any other step.
    let _ = steps(&mut Unstructured::new(data));
}

fn steps(u: &mut Unstructured<'_>) -> Result<()> {
    let region = |start| {
        Region::new(GuestAddress(start), Arc::new(HeapMapping::new(PART as usize))).unwrap()
    };
    // Two regions that touch, a hole, and a third.
    let memory = Arc::new(GuestMemory::new(vec![region(0), region(PART), region(HIGH)]).unwrap());
    let (layout, _) = QueueLayout::contiguous(GuestAddress(0), SIZE).unwrap();
    let features = QueueFeatures::from_bits(if u.ratio(7, 8)? { u64::MAX } else { u.arbitrary()? });
    let inflight = Arc::new(HeapMapping::new(InflightRegion::bytes(SIZE)));
    let start = || {
        let region = InflightRegion::new(inflight.clone(), 0, SIZE).unwrap();
        DeviceQueue::start(memory.clone(), &layout, features, 0, Some(region)).unwrap()
    };
    let mut driver = DriverQueue::new(memory.clone(), &layout, features).unwrap();
    let mut device = start();
    let mut scratch = Scratch::default();
    let mut taken = Vec::new();
    while !u.is_empty() {
        match u.int_in_range(0..=15)? {
            0..=5 => offer(u, &memory, &mut driver)?,
            6 => driver.raw().offer(u.int_in_range(0..=SIZE)?),
            7 if u.ratio(1, 8)? => driver.raw().set_available_index(u.arbitrary()?),
            8 => {
                let at = GuestAddress(u.int_in_range(0..=0x1000)?);
                memory.write(at, &u.arbitrary::<[u8; 4]>()?).unwrap();
            }
            9..=11 => {
                if let Ok(Some(fetched)) = device.next_request(&mut scratch) {
                    answer_or_keep(fetched, &mut device, &mut taken);
                }
            }
            12 if !taken.is_empty() => {
                let completion = taken.swap_remove(u.choose_index(taken.len())?);
                device.complete(completion, Status::Ok, u.arbitrary()?);
            }
            13 if !taken.is_empty() => {
                let completion = taken.swap_remove(u.choose_index(taken.len())?);
                if let Err(kept) = device.put_back(completion) {
                    taken.push(kept);
                }
            }
            14 => {
                device.publish();
                device.needs_call();
                device.enable_kicks();
                while driver.raw().take_used().is_some() {}
            }
            _ if u.ratio(1, 4)? => {
                // The process dies; another one goes on.
                taken.clear();
                device = start();
                while let Ok(Some(fetched)) = device.next_replay(&mut scratch) {
                    answer_or_keep(fetched, &mut device, &mut taken);
                }
            }
            _ => {}
        }
        assert_eq!(device.in_flight(), taken.len());
    }
    Ok(())
}

/// Lays down a chain that is right but, now and then, for one thing.
fn offer(u: &mut Unstructured<'_>, memory: &GuestMemory, driver: &mut DriverQueue) -> Result<()> {
    let slot = 0x8000 + 0x100 * u64::from(u.int_in_range(0..=63u8)?);
    let kind = if u.ratio(15, 16)? { *u.choose(&[0, 1, 4, 8, 11, 13])? } else { u.arbitrary()? };
    let sector = if u.ratio(7, 8)? { u64::from(u.arbitrary::<u16>()?) } else { u.arbitrary()? };
    memory
        .write(GuestAddress(slot), &RequestHeader { kind, ioprio: 0, sector }.to_bytes())
        .unwrap();
    let cut = u.int_in_range(1..=16u32)?;
    let mut chain = vec![Buffer::Readable { at: GuestAddress(slot), len: cut }];
    if cut < 16 {
        chain.push(Buffer::Readable { at: GuestAddress(slot + u64::from(cut)), len: 16 - cut });
    }
    let pieces = match kind {
        0 | 1 => u.int_in_range(1..=4)?,
        4 => 0,
        _ => 1,
    };
    for _ in 0..pieces {
        let at =
            GuestAddress(*u.choose(&[0x10000, PART - 512, PART - 1, HIGH, HIGH + PART - 4096])?);
        let len = match kind {
            8 => 20,
            11 | 13 => 16,
            _ => 512 * u.int_in_range(1..=8u32)?,
        };
        chain.push(match kind {
            0 | 8 => Buffer::Writable { at, len },
            _ => Buffer::Readable { at, len },
        });
    }
    chain.push(Buffer::Writable { at: GuestAddress(slot + 0x20), len: 1 });
    if u.ratio(1, 8)? {
        let which = u.choose_index(chain.len())?;
        let at = GuestAddress(if u.arbitrary()? { u.arbitrary()? } else { 2 * PART - 1 });
        let len = match u.int_in_range(0..=3)? {
            0 => 0,
            1 => u.arbitrary()?,
            _ => u.int_in_range(1..=64)?,
        };
        chain[which] = if u.arbitrary()? {
            Buffer::Readable { at, len }
        } else {
            Buffer::Writable { at, len }
        };
    }
    let table = Placement::Indirect(GuestAddress(slot + 0x40));
    let placement = if u.arbitrary()? { Placement::Direct } else { table };
    // A full ring or a refused feature is no chain.
    if driver.add(&chain, placement).is_ok() {
        driver.publish();
    }
    Ok(())
}

fn answer_or_keep(fetched: Fetched<'_>, device: &mut DeviceQueue, taken: &mut Vec<Completion>) {
    match fetched {
        Fetched::Rejected(rejected) => {
            device.complete(rejected.completion, rejected.error.status(), 0);
        }
        Fetched::Request(request) => {
            let bytes: usize = request.data().iter().map(Segment::size).sum();
            let expected = match request.operation {
                Operation::Read { len, .. } | Operation::Write { len, .. } => len.0,
                _ => 0,
            };
            assert_eq!(bytes as u64, expected);
            for segment in Segment::as_iovecs(request.data()) {
                let base = segment.iov_base.cast::<u8>();
                // SAFETY: this is what is tested: both ends lie in guest memory, which lives.
                unsafe {
                    base.read_volatile();
                    base.add(segment.iov_len - 1).read_volatile();
                }
            }
            if request.operation == Operation::GetId {
                assert_eq!(request.write_id("fuzz"), 20);
            }
            taken.push(request.completion);
        }
    }
}
