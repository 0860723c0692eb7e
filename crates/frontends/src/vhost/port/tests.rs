//! The data path against a shard made of lists.

mod polling;
mod rest;
mod signals;
mod trouble;

use super::intake::KEPT_EACH;
use super::*;
use headgate_engine::port::{PollMode, Until};
use headgate_engine::request::{Durability, IoError};
use headgate_units::Nanos;
use headgate_vring::blk::{RequestHeader, RequestType};
use headgate_vring::{
    Buffer, DeviceQueue, DriverQueue, GuestAddress, HeapMapping, InflightRegion, Placement,
    QueueFeatures, QueueLayout, Region,
};
use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::io::Read;
use std::os::fd::RawFd;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

const QUEUES: usize = 2;
const SIZE: u16 = 1024;
/// Where the guest keeps its requests, behind its rings.
const REQUESTS: u64 = 0x40000;

fn event_file() -> File {
    File::from(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap())
}

/// How often the eventfd was signalled since the last look.
fn signals(mut file: &File) -> u64 {
    let mut count = [0; 8];
    file.read_exact(&mut count).map_or(0, |()| u64::from_ne_bytes(count))
}

struct FakeShard {
    info: DiskInfo,
    room: usize,
    submitted: Vec<engine::Request>,
    polled: Vec<u32>,
    cancelled: Vec<u32>,
    closed: bool,
    /// Sectors of requests that the storage works on.
    dispatched: Vec<u64>,
    /// Sectors of requests that the disk holds, and of those that the port gave up.
    held: Vec<u64>,
    given_up: Vec<u64>,
    poll_mode: PollMode,
}

impl PortIo for FakeShard {
    fn lock_block(&mut self, _: u64, _: u32) {
        panic!("a guest's requests are of whole blocks")
    }

    fn unlock_block(&mut self) {}

    fn served_elsewhere(&mut self, _: headgate_qos::ServedElsewhere) {
        panic!("a guest has one server")
    }

    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
    fn disk(&self) -> &DiskInfo {
        &self.info
    }
    fn room(&mut self) -> usize {
        self.room
    }
    unsafe fn submit(&mut self, request: engine::Request, buffers: &[libc::iovec]) {
        self.room = self.room.checked_sub(1).expect("a request beyond the room");
        if request.op.moves_data() {
            assert_eq!(buffers.iter().map(|b| b.iov_len as u64).sum::<u64>(), request.len);
        } else {
            assert!(buffers.is_empty());
        }
        self.submitted.push(request);
    }
    fn poll_readable(&mut self, _fd: RawFd, key: u32) {
        self.polled.push(key);
    }
    unsafe fn recv(&mut self, _: RawFd, _: *mut u8, _: usize, _: Until, _: u32) {
        panic!("no sockets here")
    }
    unsafe fn send(&mut self, _: RawFd, _: *const libc::msghdr, _: u32) {
        panic!("no sockets here")
    }
    fn poll_writable(&mut self, _: RawFd, _: u32) {
        panic!("no sockets here")
    }
    fn can_splice(&self) -> bool {
        false
    }
    fn can_place(&self) -> bool {
        false
    }
    fn map_for_recv(&mut self, _: u64, _: u32) -> Option<*mut u8> {
        None
    }
    fn write_placed(&mut self, _: u64, _: &[u8]) -> std::io::Result<()> {
        panic!("no places here")
    }
    fn splice_out(&mut self, _: u64, _: u32, _: RawFd) -> std::io::Result<u32> {
        panic!("no pipes here")
    }
    fn cancel(&mut self, key: u32) {
        self.cancelled.push(key);
    }
    fn poll_mode(&mut self) -> PollMode {
        self.poll_mode
    }
    fn close(&mut self) {
        self.closed = true;
    }
    fn take_back(&mut self, newest_first: &[u64]) -> usize {
        let FakeShard { submitted, dispatched, .. } = self;
        let is_queued = |cookie: &&u64| {
            let found = submitted.iter().find(|r| r.cookie == **cookie).expect("at the engine");
            !dispatched.contains(&(found.offset / 512))
        };
        let count = newest_first.iter().take_while(is_queued).count();
        submitted.retain(|r| !newest_first[..count].contains(&r.cookie));
        self.room += count;
        count
    }
    fn held(&self) -> usize {
        self.submitted.iter().filter(|r| self.held.contains(&(r.offset / 512))).count()
    }
    fn give_up(&mut self, cookies: &[u64]) {
        let FakeShard { submitted, held, given_up, .. } = self;
        let wanted = submitted.iter().filter(|r| cookies.contains(&r.cookie));
        given_up.extend(wanted.map(|r| r.offset / 512).filter(|sector| held.contains(sector)));
    }
}

struct Guest {
    driver: DriverQueue,
    layout: QueueLayout,
    kick: File,
    call: File,
    error: File,
    key: u32,
}

struct Rig {
    memory: Arc<GuestMemory>,
    inflight: Arc<HeapMapping>,
    guests: Vec<Guest>,
    port: BlkPort,
    io: FakeShard,
    offered: u64,
    _peer: UnixStream,
}

impl Rig {
    fn new() -> Rig {
        let region = Region::new(GuestAddress(0), Arc::new(HeapMapping::new(1 << 20))).unwrap();
        let memory = Arc::new(GuestMemory::new(vec![region]).unwrap());
        let features = QueueFeatures::from_bits(u64::MAX);
        let guests = (0..QUEUES as u64)
            .map(|q| {
                let (layout, _) = QueueLayout::contiguous(GuestAddress(q << 16), SIZE).unwrap();
                let driver = DriverQueue::new(memory.clone(), &layout, features).unwrap();
                Guest {
                    driver,
                    layout,
                    kick: event_file(),
                    call: event_file(),
                    error: event_file(),
                    key: 0,
                }
            })
            .collect();
        let info = DiskInfo::plain("disk", 1 << 30, 512);
        let (peer, port) = BlkPort::with_peer(&info);
        let io = FakeShard {
            info,
            room: 100,
            submitted: vec![],
            polled: vec![],
            cancelled: vec![],
            closed: false,
            dispatched: vec![],
            held: vec![],
            given_up: vec![],
            poll_mode: PollMode::Events,
        };
        let inflight = Arc::new(HeapMapping::new(QUEUES * InflightRegion::bytes(SIZE)));
        Rig { memory, inflight, guests, port, io, offered: 0, _peer: peer }
    }

    fn started() -> Rig {
        let mut rig = Rig::new();
        (0..QUEUES).for_each(|q| rig.start(q));
        rig
    }

    fn tell(&mut self, command: Command) {
        self.port.on_command(&mut self.io, Box::new(command));
    }

    fn start(&mut self, q: usize) {
        let guest = &self.guests[q];
        let at = q * InflightRegion::bytes(SIZE);
        let region = InflightRegion::new(self.inflight.clone(), at, SIZE).unwrap();
        let features = QueueFeatures::from_bits(u64::MAX);
        let queue =
            DeviceQueue::start(self.memory.clone(), &guest.layout, features, 0, Some(region))
                .unwrap();
        let signal = |file: &File| Signal::new(file.try_clone().unwrap(), Arc::default()).unwrap();
        let new = NewRing {
            index: q as u16,
            queue,
            enabled: Enabled::Yes,
            durability: Durability::Cached,
            kick: Kick::new(guest.kick.try_clone().unwrap()).unwrap(),
            call: Some(signal(&guest.call)),
            error: Some(signal(&guest.error)),
        };
        self.tell(Command::Start(Box::new(new)));
        self.guests[q].key = *self.io.polled.last().unwrap();
        self.turn();
    }

    /// The process dies; its successor's port starts with nothing but shared memory.
    fn crash(&mut self) {
        let (peer, port) = BlkPort::with_peer(&self.io.info);
        self.port = port;
        self._peer = peer;
        self.io.submitted.clear();
    }

    /// Offers a read of one sector, whose number is how many were offered before.
    fn offer(&mut self, q: usize) {
        self.add(q);
        self.guests[q].driver.publish();
    }

    /// The same, without the driver's looking whether a kick is wanted.
    fn add(&mut self, q: usize) {
        let at = REQUESTS + (self.offered % 256) * 0x800;
        let header =
            RequestHeader { kind: RequestType::In as u32, ioprio: 0x2003, sector: self.offered };
        self.offered += 1;
        self.memory.write(GuestAddress(at), &header.to_bytes()).unwrap();
        let chain = [
            Buffer::Readable { at: GuestAddress(at), len: 16 },
            Buffer::Writable { at: GuestAddress(at + 0x200), len: 513 },
        ];
        self.guests[q].driver.add(&chain, Placement::Direct).unwrap();
    }

    fn kick(&mut self, q: usize) {
        let event = PortEvent { key: self.guests[q].key, result: 1, more: true };
        self.port.on_event(&mut self.io, event);
        self.turn();
    }

    fn turn(&mut self) {
        self.port.on_turn_end(&mut self.io);
    }

    /// The sectors that were submitted since the last look.
    fn submitted(&mut self) -> Vec<u64> {
        self.io.submitted.iter().map(|r| r.offset / 512).collect()
    }

    fn complete_as(&mut self, sector: u64, result: Result<(), IoError>) {
        let at =
            self.io.submitted.iter().position(|r| r.offset == sector * 512).expect("at the engine");
        let cookie = self.io.submitted.remove(at).cookie;
        self.port.on_complete(
            &mut self.io,
            engine::Completion { cookie, result, extents: vec![], charge: engine::Charge::NONE },
        );
    }

    fn complete(&mut self, sector: u64) {
        self.complete_as(sector, Ok(()));
        self.turn();
    }

    fn back(&mut self, q: usize) -> usize {
        let mut back = 0;
        while self.guests[q].driver.poll_used().unwrap().is_some() {
            back += 1;
        }
        back
    }

    fn stop(&mut self, q: usize) -> Receiver<u16> {
        let (answer, wait) = sync_channel(1);
        self.tell(Command::Stop(q as u16, answer));
        self.turn();
        wait
    }
}

impl BlkPort {
    fn with_peer(info: &DiskInfo) -> (UnixStream, BlkPort) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let recall = Recall::new().unwrap();
        (theirs, BlkPort::new(info, Arc::new(View::new(info.clone())), recall, ours))
    }
}

#[test]
fn requests_beyond_the_disks_room_stay_in_the_ring() {
    let mut rig = Rig::started();
    rig.io.room = 3;
    (0..5).for_each(|_| rig.offer(0));
    rig.kick(0);
    assert_eq!(rig.submitted(), [0, 1, 2]);
    rig.complete(0);
    rig.kick(1);
    assert_eq!(rig.submitted(), [1, 2], "waits to be told");
    rig.io.room = 1;
    rig.port.on_room(&mut rig.io);
    rig.turn();
    assert_eq!(rig.submitted(), [1, 2, 3]);
    rig.io.room = 9;
    rig.port.on_room(&mut rig.io);
    assert_eq!(rig.submitted(), [1, 2, 3, 4]);
    assert_eq!(
        rig.io.submitted[0].ioprio, 0x2003,
        "the guest's priority goes down with the request"
    );
}

#[test]
fn a_busy_queue_does_not_shut_the_others_out() {
    let mut rig = Rig::started();
    rig.io.room = 0;
    (0..8).for_each(|_| rig.offer(0));
    (0..2).for_each(|_| rig.offer(1));
    rig.kick(0);
    rig.kick(1);
    rig.io.room = 100;
    rig.port.on_room(&mut rig.io);
    assert_eq!(rig.submitted().len(), 10);
}

#[test]
fn a_queue_finds_room_whatever_the_others_have_taken() {
    let mut rig = Rig::started();
    (0..300).for_each(|_| rig.offer(0));
    rig.kick(0);
    assert_eq!(rig.submitted().len(), 100 - KEPT_EACH);
    for n in 0..KEPT_EACH + 3 {
        rig.offer(1);
        rig.kick(1);
        let of_queue_1 = rig.submitted().iter().filter(|sector| **sector >= 300).count();
        assert_eq!(of_queue_1, (n + 1).min(KEPT_EACH));
    }
    // Each that is answered makes place for the next of its own queue.
    rig.io.room = 1;
    rig.complete(300);
    rig.port.on_room(&mut rig.io);
    rig.turn();
    assert!(rig.submitted().contains(&(300 + KEPT_EACH as u64)));
    // The busy queue goes on when it is told of room.
    rig.io.room = 50;
    rig.port.on_room(&mut rig.io);
    assert_eq!(rig.io.room, 0, "both have more than their places");
}

#[test]
fn a_guest_that_asks_for_nothing_over_and_over_does_not_hold_up_the_shard() {
    let mut rig = Rig::started();
    let at = REQUESTS;
    let header = RequestHeader { kind: 0xbad, ioprio: 0, sector: 0 };
    rig.memory.write(GuestAddress(at), &header.to_bytes()).unwrap();
    let chain = [
        Buffer::Readable { at: GuestAddress(at), len: 16 },
        Buffer::Writable { at: GuestAddress(at + 0x200), len: 1 },
    ];
    for _ in 0..512 {
        rig.guests[1].driver.add(&chain, Placement::Direct).unwrap();
    }
    rig.guests[1].driver.publish();
    let key = rig.guests[1].key;
    rig.port.on_event(&mut rig.io, PortEvent { key, result: 1, more: true });
    assert_eq!(signals(&rig.guests[1].kick), 0, "the front-end's descriptor is not written");
    assert!(rig.port.recall.is_signalled(), "comes back by itself");
    rig.port.settle(&mut rig.io);
    let first = rig.back(1);
    assert!((256..400).contains(&first), "{first}");
    rig.port.on_event(&mut rig.io, PortEvent { key: RECALL_KEY, result: 1, more: true });
    rig.turn();
    rig.kick(1);
    assert_eq!(first + rig.back(1), 512);
}

#[test]
fn a_batch_of_completions_is_one_call() {
    let mut rig = Rig::started();
    rig.offer(0);
    rig.offer(0);
    rig.kick(0);
    signals(&rig.guests[0].call);
    rig.guests[0].driver.enable_calls();
    rig.complete_as(1, Ok(()));
    rig.complete_as(0, Ok(()));
    assert_eq!(rig.back(0), 0, "published at the end of the turn");
    rig.turn();
    assert_eq!((rig.back(0), signals(&rig.guests[0].call)), (2, 1));
}

#[test]
fn nothing_new_is_taken_before_every_replay_of_the_device_is_complete() {
    let mut rig = Rig::started();
    for q in [0, 1, 1, 0] {
        rig.offer(q);
    }
    rig.kick(0);
    rig.kick(1);
    rig.complete(3);
    rig.crash();
    // Out of order: 3 is back, 0 to 2 are not. Two new requests wait in the rings.
    rig.offer(0);
    rig.offer(1);
    rig.tell(Command::ExpectReplays(vec![0, 1]));
    rig.start(0);
    assert_eq!(rig.submitted(), [0]);
    rig.complete(0);
    assert_eq!(rig.submitted(), [0u64; 0], "queue 1 has not been started yet");
    rig.start(1);
    assert_eq!(rig.submitted(), [1, 2]);
    rig.complete(2);
    rig.kick(0);
    assert_eq!(rig.submitted(), [1], "a kick changes nothing");
    rig.complete(1);
    let mut new = rig.submitted();
    new.sort_unstable();
    assert_eq!(new, [4, 5]);
    rig.complete(4);
    rig.complete(5);
    assert_eq!((rig.back(0), rig.back(1)), (3, 3));
}

#[test]
fn a_queue_that_was_expected_to_replay_and_is_stopped_instead_holds_nobody_up() {
    let mut rig = Rig::new();
    rig.tell(Command::ExpectReplays(vec![1]));
    rig.start(0);
    rig.offer(0);
    rig.kick(0);
    assert!(rig.submitted().is_empty());
    let wait = rig.stop(1);
    assert_eq!(wait.try_recv(), Err(TryRecvError::Disconnected), "it did not run");
    assert_eq!(rig.submitted(), [0]);
}

#[test]
fn a_stopping_queue_answers_when_its_last_request_is_back() {
    let mut rig = Rig::started();
    (0..3).for_each(|_| rig.offer(0));
    rig.kick(0);
    rig.io.dispatched = vec![0, 1, 2];
    let wait = rig.stop(0);
    rig.offer(0);
    rig.kick(0);
    for sector in [1, 0] {
        rig.complete(sector);
        assert_eq!(wait.try_recv(), Err(TryRecvError::Empty));
    }
    rig.complete(2);
    assert_eq!(wait.try_recv(), Ok(3), "the fourth was not taken");
    assert_eq!(rig.back(0), 3, "published before the answer");
    let old = rig.guests[0].key;
    assert!(rig.io.cancelled.contains(&old));
    // The poll's last event may come after a new ring was started at the same index.
    rig.start(0);
    assert_ne!(rig.guests[0].key, old);
    let polls = rig.io.polled.len();
    rig.port.on_event(&mut rig.io, PortEvent { key: old, result: -libc::ECANCELED, more: false });
    assert_eq!(rig.io.polled.len(), polls, "not polled again");
    assert_eq!(rig.submitted(), [3]);
}

#[test]
fn what_nobody_has_begun_to_serve_is_put_back_into_a_stopping_queue() {
    let mut rig = Rig::started();
    (0..6).for_each(|_| rig.offer(0));
    rig.offer(1);
    rig.kick(0);
    rig.kick(1);
    // The second is served before the first, as by priority.
    rig.io.dispatched = vec![1];
    let wait = rig.stop(0);
    assert_eq!(rig.submitted(), [0, 1, 6], "what came before one that is served stays, in turn");
    assert_eq!(wait.try_recv(), Err(TryRecvError::Empty));
    rig.complete(1);
    assert_eq!(wait.try_recv(), Err(TryRecvError::Empty));
    rig.complete(0);
    assert_eq!(wait.try_recv(), Ok(2));
    // A front-end that goes on there has nothing to replay, and all that was put back to take.
    rig.start(0);
    assert_eq!(rig.submitted(), [6, 2, 3, 4, 5], "without a kick");
    for sector in [5, 6, 3, 2, 4] {
        rig.complete(sector);
    }
    assert_eq!((rig.back(0), rig.back(1)), (6, 1));
}

#[test]
fn a_queue_that_is_reset_before_anything_was_served_answers_at_once() {
    let mut rig = Rig::started();
    (0..90).for_each(|_| rig.offer(0));
    rig.kick(0);
    assert_eq!(rig.stop(0).try_recv(), Ok(0));
    assert!(rig.submitted().is_empty());
    assert_eq!(rig.back(0), 0, "a driver that forgets them gets no answer");
    rig.crash();
    rig.start(0);
    assert_eq!(rig.submitted(), (0..90).collect::<Vec<_>>(), "and nothing is left in flight");
}

#[test]
fn what_was_answered_or_is_replayed_is_not_put_back() {
    let mut rig = Rig::started();
    (0..2).for_each(|_| rig.offer(0));
    rig.kick(0);
    rig.crash();
    rig.start(0);
    let wait = rig.stop(0);
    assert_eq!(rig.submitted(), [0, 1], "nobody knows where a replay was in its ring");
    rig.complete(0);
    rig.complete(1);
    assert_eq!(wait.try_recv(), Ok(2));
    rig.start(0);
    (0..3).for_each(|_| rig.offer(0));
    rig.kick(0);
    // The driver has not been told of it yet, but will be.
    rig.complete_as(3, Ok(()));
    let wait = rig.stop(0);
    assert_eq!(rig.submitted(), [2]);
    rig.complete(2);
    assert_eq!(wait.try_recv(), Ok(4));
    rig.start(0);
    assert_eq!(rig.submitted(), [4]);
}

#[test]
fn draining_takes_nothing_new_and_closes_after_the_last_completion() {
    let mut rig = Rig::started();
    rig.offer(0);
    rig.kick(0);
    rig.port.on_detach(&mut rig.io, Detach::Drain);
    rig.offer(0);
    rig.kick(0);
    assert_eq!((rig.submitted(), rig.io.closed), (vec![0], false));
    rig.complete(0);
    assert!(rig.io.closed);
    assert_eq!(rig.back(0), 1);
}

#[test]
fn a_queue_that_breaks_hurts_no_other() {
    let mut rig = Rig::started();
    rig.offer(0);
    rig.kick(0);
    rig.guests[0].driver.raw().offer(SIZE);
    rig.kick(0);
    assert_eq!((signals(&rig.guests[0].error), signals(&rig.guests[1].error)), (1, 0));
    rig.offer(1);
    rig.kick(1);
    assert_eq!(rig.submitted(), [0, 1]);
    // What was taken before is still answered, and the queue can be stopped and started again.
    rig.complete(0);
    assert_eq!(rig.stop(0).try_recv(), Ok(1));
}

#[test]
fn a_request_that_was_not_served_is_not_answered_but_replayed() {
    let mut rig = Rig::started();
    rig.offer(0);
    rig.kick(0);
    rig.complete_as(0, Err(IoError::Cancelled));
    rig.turn();
    assert_eq!(rig.back(0), 0);
    rig.crash();
    rig.start(0);
    assert_eq!(rig.submitted(), [0]);
    rig.complete_as(0, Err(IoError::NoSpace));
    rig.turn();
    assert_eq!(rig.back(0), 1);
}

#[test]
fn a_poll_that_ended_is_started_again() {
    let mut rig = Rig::started();
    let (key, polls) = (rig.guests[0].key, rig.io.polled.len());
    rig.port.on_event(&mut rig.io, PortEvent { key, result: 1, more: false });
    assert_eq!(rig.io.polled[polls..], [key]);
}
