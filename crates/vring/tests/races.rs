//! Neither side of a ring sleeps while there is work for it, and neither sees half of what the
//! other published: in every order of their loads and stores that the memory model admits. Loom
//! tries the orders, and calls a lost wake-up a deadlock.
//!
//!     cargo test --release -p headgate-vring --features loom --test races

use headgate_vring::blk::{RequestHeader, RequestType, Status};
use headgate_vring::{
    Buffer, DeviceQueue, DriverQueue, EventIndex, Fetched, GuestAddress, GuestMemory, HeapMapping,
    IndirectTables, Kicks, Operation, Placement, QueueFeatures, QueueLayout, Region, Scratch,
};
use loom::model::Builder;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

/// An eventfd: it counts, and waits.
struct Bell {
    rings: Mutex<u32>,
    rung: Condvar,
}

impl Bell {
    fn new() -> loom::sync::Arc<Bell> {
        loom::sync::Arc::new(Bell { rings: Mutex::new(0), rung: Condvar::new() })
    }

    fn ring(&self) {
        *self.rings.lock().unwrap() += 1;
        self.rung.notify_one();
    }

    fn wait(&self) {
        let mut rings = self.rings.lock().unwrap();
        while *rings == 0 {
            rings = self.rung.wait(rings).unwrap();
        }
        *rings = 0;
    }
}

/// How the driver hands its requests over.
#[derive(Clone, Copy, Debug)]
enum Offers {
    /// Each after the answer to the one before.
    OneByOne,
    /// All, each with a look of its own whether to kick.
    All,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    event_index: EventIndex,
    offers: Offers,
    requests: u16,
}

/// Where the header of a request lies; its status byte is behind it.
fn header_at(request: u16) -> u64 {
    0x1000 + 32 * u64::from(request)
}

struct Driver {
    queue: DriverQueue,
    memory: Arc<GuestMemory>,
    answered: u16,
}

impl Driver {
    /// Answers whether to kick.
    fn offer(&mut self, request: u16) -> bool {
        let at = header_at(request);
        let sector = 7 + u64::from(request);
        let header = RequestHeader { kind: RequestType::Flush as u32, ioprio: 0, sector };
        self.memory.write(GuestAddress(at), &header.to_bytes()).unwrap();
        let chain = [
            Buffer::Readable { at: GuestAddress(at), len: 16 },
            Buffer::Writable { at: GuestAddress(at + 16), len: 1 },
        ];
        self.queue.add(&chain, Placement::Direct).unwrap();
        self.queue.publish()
    }

    fn poll(&mut self) {
        while let Some(used) = self.queue.poll_used().unwrap() {
            assert_eq!(used.written, 1, "the used element is whole");
            self.answered += 1;
        }
    }

    /// As a guest's driver: it takes answers, and sleeps only once it has asked for a call.
    fn wait_until(&mut self, answered: u16, call: &Bell) {
        loop {
            self.poll();
            if self.answered >= answered {
                return;
            }
            if !self.queue.enable_calls() {
                call.wait();
                self.queue.disable_calls();
            }
        }
    }

    fn run(mut self, case: Case, kick: &Bell, call: &Bell) {
        for request in 0..case.requests {
            if self.offer(request) {
                kick.ring();
            }
            if matches!(case.offers, Offers::OneByOne) {
                self.wait_until(request + 1, call);
            }
        }
        self.wait_until(case.requests, call);
        for request in 0..case.requests {
            let mut status = [0xff];
            let at = GuestAddress(header_at(request) + 16);
            self.memory.read(at, &mut status, &mut Default::default()).unwrap();
            assert_eq!(status, [Status::Ok as u8]);
        }
    }
}

/// As the daemon: it takes what is there, answers, and sleeps only once it has asked for a kick.
fn serve(mut queue: DeviceQueue, case: Case, kick: &Bell, call: &Bell) {
    let mut scratch = Scratch::default();
    let mut served = 0;
    loop {
        while let Some(fetched) = queue.next_request(&mut scratch).unwrap() {
            let Fetched::Request(request) = fetched else { panic!("{fetched:?}") };
            assert_eq!(request.operation, Operation::Flush);
            queue.complete(request.completion, Status::Ok, 0);
            served += 1;
        }
        queue.publish();
        if queue.needs_call() {
            call.ring();
        }
        if served == case.requests {
            return;
        }
        if queue.enable_kicks() == Kicks::Armed {
            kick.wait();
            queue.disable_kicks();
        }
    }
}

fn explore(case: Case) {
    let mut model = Builder::new();
    // A race needs few changes of thread at bad moments.
    model.preemption_bound = Some(3);
    model.check(move || {
        let region = Region::new(GuestAddress(0), Arc::new(HeapMapping::new(0x2000))).unwrap();
        let memory = Arc::new(GuestMemory::new(vec![region]).unwrap());
        let (layout, _) = QueueLayout::contiguous(GuestAddress(0), 4).unwrap();
        let features =
            QueueFeatures { event_index: case.event_index, indirect: IndirectTables::Refused };
        let queue = DriverQueue::new(memory.clone(), &layout, features).unwrap();
        let driver = Driver { queue, memory: memory.clone(), answered: 0 };
        let mut device = DeviceQueue::start(memory, &layout, features, 0, None).unwrap();
        assert!(device.needs_call(), "the first answer is for a predecessor");
        let (kick, call) = (Bell::new(), Bell::new());
        let driver = {
            let (kick, call) = (kick.clone(), call.clone());
            thread::spawn(move || driver.run(case, &kick, &call))
        };
        serve(device, case, &kick, &call);
        driver.join().unwrap();
    });
}

#[test]
fn none_sleeps_over_a_request_with_the_event_index() {
    explore(Case { event_index: EventIndex::On, offers: Offers::OneByOne, requests: 2 });
}

#[test]
fn none_sleeps_over_requests_at_once_with_the_event_index() {
    explore(Case { event_index: EventIndex::On, offers: Offers::All, requests: 2 });
}

#[test]
fn none_sleeps_over_a_request_with_flags() {
    explore(Case { event_index: EventIndex::Off, offers: Offers::OneByOne, requests: 2 });
}

#[test]
fn none_sleeps_over_requests_at_once_with_flags() {
    explore(Case { event_index: EventIndex::Off, offers: Offers::All, requests: 2 });
}
