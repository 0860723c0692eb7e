//! What the driver offers is what the device serves, and every request comes back once.

use super::*;
use headgate_units::Bytes;
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Clone, Debug)]
struct Plan {
    kind: RequestType,
    sector: u64,
    /// Buffers of data: guest address and sectors.
    data: Vec<(u64, u32)>,
    /// Where the header is cut.
    cut: Option<u32>,
    /// The status shares a descriptor with the last buffer.
    joined: bool,
    indirect: bool,
}

fn plan() -> impl Strategy<Value = Plan> {
    let place = prop_oneof![0x20000u64..JOINT - 0x4000, JOINT - 2048..JOINT, HIGH..HIGH + 0x80000];
    (
        prop_oneof![
            Just(RequestType::In),
            Just(RequestType::Out),
            Just(RequestType::Flush),
            Just(RequestType::GetId)
        ],
        0u64..1 << 40,
        prop::collection::vec((place, 1u32..8), 1..6),
        prop::option::of(1u32..16),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(kind, sector, data, cut, joined, indirect)| Plan {
            kind,
            sector,
            data,
            cut,
            joined,
            indirect,
        })
}

impl Plan {
    fn buffers(&self, slot: u64) -> (Vec<Buffer>, Vec<(u64, u32)>) {
        let at = 0x8000 + slot * 64;
        let mut buffers = match self.cut {
            Some(cut) => vec![readable(at, cut), readable(at + u64::from(cut), 16 - cut)],
            None => vec![readable(at, 16)],
        };
        let mut data: Vec<(u64, u32)> = match self.kind {
            RequestType::In | RequestType::Out => {
                self.data.iter().map(|(a, n)| (*a, n * 512)).collect()
            }
            RequestType::GetId => vec![(at + 16, 20)],
            _ => vec![],
        };
        let writes = matches!(self.kind, RequestType::In | RequestType::GetId);
        for (a, len) in &data {
            buffers.push(if writes { writable(*a, *len) } else { readable(*a, *len) });
        }
        match buffers.last_mut() {
            // The status is the byte behind the last buffer of data.
            Some(Buffer::Writable { len, .. }) if self.joined => *len += 1,
            _ => buffers.push(writable(at + 40, 1)),
        }
        if self.kind == RequestType::GetId {
            data.clear();
        }
        (buffers, data)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Offer(Plan),
    Take,
    Complete(prop::sample::Index),
    Publish,
    Poll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => plan().prop_map(Step::Offer),
        3 => Just(Step::Take),
        3 => any::<prop::sample::Index>().prop_map(Step::Complete),
        1 => Just(Step::Publish),
        2 => Just(Step::Poll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 100 }))]

    #[test]
    fn every_request_arrives_as_it_was_offered_and_comes_back_once(
        steps in prop::collection::vec(step(), 1..200),
        size in prop_oneof![Just(8u16), Just(64), Just(256)],
    ) {
        let mut rig = Rig::new(size, ALL);
        // By head: what was offered, and which slot of headers it uses.
        let mut offered: HashMap<u16, (Plan, u64)> = HashMap::new();
        let mut queue = std::collections::VecDeque::new();
        let mut taken = Vec::new();
        let mut completed: HashMap<u16, u32> = HashMap::new();
        for step in steps {
            match step {
                Step::Offer(plan) => {
                    let slot = (0..u64::from(size)).find(|s| offered.values().all(|(_, used)| used != s));
                    let Some(slot) = slot else { continue };
                    rig.header(0x8000 + slot * 64, plan.kind as u32, plan.sector);
                    let (buffers, _) = plan.buffers(slot);
                    let placement = if plan.indirect {
                        Placement::Indirect(GuestAddress(0x80000 + HIGH + slot * 256))
                    } else {
                        Placement::Direct
                    };
                    let Ok(head) = rig.driver.add(&buffers, placement) else { continue };
                    rig.driver.publish();
                    prop_assert!(offered.insert(head, (plan, slot)).is_none());
                    queue.push_back(head);
                }
                Step::Take => {
                    let memory = Arc::clone(&rig.memory);
                    match rig.device.next_request(&mut rig.scratch).unwrap() {
                        None => prop_assert!(queue.is_empty()),
                        Some(Fetched::Rejected(r)) => prop_assert!(false, "{:?}", r.error),
                        Some(Fetched::Request(request)) => {
                            let head = request.completion.head();
                            prop_assert_eq!(Some(head), queue.pop_front(), "in the order offered");
                            let (plan, _) = &offered[&head];
                            let (_, data) = plan.buffers(0);
                            let bytes: u64 = data.iter().map(|(_, n)| u64::from(*n)).sum();
                            let (offset, len) = (Bytes(plan.sector * 512), Bytes(bytes));
                            let expected = match plan.kind {
                                RequestType::In => Operation::Read { offset, len },
                                RequestType::Out => Operation::Write { offset, len },
                                RequestType::GetId => Operation::GetId,
                                _ => Operation::Flush,
                            };
                            prop_assert_eq!(request.operation, expected);
                            prop_assert_eq!(request.ioprio, 0x4004);
                            let mut segments = Vec::new();
                            for (at, len) in data {
                                memory.segments(GuestAddress(at), len as usize, &mut segments, &mut Default::default()).unwrap();
                            }
                            prop_assert_eq!(format!("{:?}", request.data()), format!("{segments:?}"));
                            taken.push(request.completion);
                        }
                    }
                }
                Step::Complete(which) if !taken.is_empty() => {
                    let completion = taken.swap_remove(which.index(taken.len()));
                    let head = completion.head();
                    completed.insert(head, u32::from(head) * 3);
                    rig.device.complete(completion, Status::Ok, u32::from(head) * 3);
                }
                Step::Complete(_) => {}
                Step::Publish => rig.device.publish(),
                Step::Poll => {
                    while let Some(used) = rig.driver.poll_used().unwrap() {
                        prop_assert_eq!(completed.remove(&used.head), Some(used.written - 1));
                        prop_assert!(offered.remove(&used.head).is_some());
                    }
                }
            }
            prop_assert_eq!(rig.device.in_flight(), taken.len());
        }
        while let Some(Fetched::Request(request)) = rig.device.next_request(&mut rig.scratch).unwrap() {
            taken.push(request.completion);
        }
        for completion in taken {
            rig.device.complete(completion, Status::Ok, 0);
        }
        rig.device.publish();
        while rig.driver.poll_used().unwrap().is_some() {}
        prop_assert_eq!(rig.driver.in_flight(), 0);
        prop_assert_eq!(rig.driver.free(), usize::from(size), "no descriptor leaks");
    }
}

#[test]
fn a_changed_memory_table_leaves_requests_in_flight_their_own() {
    let mut rig = Rig::new(8, ALL);
    rig.offer_read(3, 0x8000);
    let Some(Fetched::Request(request)) = rig.device.next_request(&mut rig.scratch).unwrap() else {
        panic!()
    };
    let completion = request.completion;
    let old = Arc::downgrade(&rig.memory);
    // The regions are shared, the table is new: as when memory is plugged in.
    let mut regions = rig.memory.regions().to_vec();
    regions.push(Region::new(GuestAddress(2 * HIGH), Arc::new(HeapMapping::new(4096))).unwrap());
    let new = Arc::new(GuestMemory::new(regions).unwrap());
    rig.device.set_memory(Arc::clone(&new), &rig.layout).unwrap();
    rig.driver = DriverQueue::new(Arc::clone(&new), &rig.layout, ALL).unwrap();
    rig.memory = new;
    assert!(old.upgrade().is_some(), "the request keeps it");
    rig.device.complete(completion, Status::IoError, 0);
    assert!(old.upgrade().is_none());
    assert_eq!(rig.byte(0x8000 + 1024), Status::IoError as u8);
}
