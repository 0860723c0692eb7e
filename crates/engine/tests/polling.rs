//! A shard that goes back and forth between looking at its only client and sleeping loses nothing:
//! rounds of clients that pause for nothing, for a little, and for longer than any shard stays
//! awake, beside others that come and go. A lost wake-up is a round that never ends.

#[allow(dead_code, reason = "the other program uses the rest")]
#[path = "all/support/mod.rs"]
mod support;

use headgate_engine::port::{
    Detach, PollMode, PollResult, Port, PortCommand, PortEvent, PortIo, Rest, Until,
};
use headgate_engine::request::{Completion, DiskInfo, Op, Request};
use headgate_engine::{
    BackendSpec, Caching, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig, Image, Mode,
    PortRef, Waiting,
};
use headgate_qos::{Policy, SchedulerKind};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{Client, PATIENCE};

/// How shards wait, and how many rounds each serves. One that chooses goes from mode to mode.
const WAYS: [(Waiting, u64); 5] = [
    (Waiting::Adaptive, 30_000),
    (Waiting::Plain, 3_000),
    (Waiting::Poll, 6_000),
    (Waiting::Only(Mode::PollClient), 12_000),
    (Waiting::Only(Mode::HoldAnswers), 12_000),
];
const BLOCK: u64 = 4096;

fn engine(disks: usize, waiting: Waiting) -> (Engine, Vec<DiskId>, tempfile::TempDir) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let engine =
        Engine::start(EngineConfig { shards: 1, waiting, ..EngineConfig::default() }).unwrap();
    let datastore = engine
        .add_datastore(DatastoreSpec {
            name: "null".into(),
            backend: BackendSpec::Null,
            layers: Vec::new(),
            scheduler: SchedulerKind::MClock,
            queue_depth: 256,
            qos: headgate_qos::Config::default(),
        })
        .unwrap();
    let open = |n| {
        let path = dir.path().join(format!("disk-{n}.img"));
        Image::create(&path, headgate_units::Bytes(1 << 20)).unwrap();
        let image = Image::open(&path, Caching::Buffered, PATIENCE).unwrap();
        engine.open_disk(
            datastore,
            DiskSpec { name: format!("disk-{n}"), image, policy: Policy::default() },
        )
    };
    let disks = (0..disks).map(|n| open(n).unwrap()).collect();
    (engine, disks, dir)
}

/// One test at a time: a shard waits awake only where its client answers soon.
static ALONE: Mutex<()> = Mutex::new(());

/// Between two rounds: nothing for long, then for as long mostly nothing, sometimes a little,
/// rarely so much that the shard sleeps.
fn pause(round: u64) {
    if (round / 512).is_multiple_of(2) {
        return;
    }
    match round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 1023 {
        0..8 => std::thread::sleep(Duration::from_micros(300)),
        micros @ 8..200 => {
            let until = Instant::now() + Duration::from_micros(micros);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
        _ => {}
    }
}

/// What a driver and its device share, with the rules of a virtqueue: who wants a kick says so,
/// then looks once more.
struct Shared {
    offered: AtomicU64,
    answered: AtomicU64,
    /// The count of offers at which a kick is wanted.
    kick_at: AtomicU64,
    kick: OwnedFd,
    by_looks: AtomicU64,
}

struct RingPort {
    shared: Arc<Shared>,
    taken: u64,
    polled: bool,
}

const KICK: u32 = 0;

impl RingPort {
    fn take(&mut self, io: &mut dyn PortIo) {
        loop {
            while self.taken < self.shared.offered.load(Ordering::Acquire) && io.room() > 0 {
                let request =
                    Request { op: Op::Flush, offset: 0, len: 0, cookie: self.taken, ioprio: 0 };
                self.taken += 1;
                // SAFETY: no buffers.
                unsafe { io.submit(request, &[]) };
            }
            self.polled = io.poll_mode() != PollMode::Events;
            if self.polled || self.arm() == PollResult::Idle {
                return;
            }
        }
    }

    fn arm(&mut self) -> PollResult {
        self.shared.kick_at.store(self.taken, Ordering::SeqCst);
        self.state()
    }

    fn state(&self) -> PollResult {
        if self.shared.offered.load(Ordering::SeqCst) > self.taken {
            PollResult::Ready
        } else {
            PollResult::Idle
        }
    }
}

impl Port for RingPort {
    fn on_start(&mut self, io: &mut dyn PortIo) {
        io.poll_readable(self.shared.kick.as_raw_fd(), KICK);
        self.take(io);
    }
    fn on_event(&mut self, io: &mut dyn PortIo, event: PortEvent) {
        if !event.more {
            io.poll_readable(self.shared.kick.as_raw_fd(), KICK);
        }
        self.take(io);
    }
    fn poll(&self) -> PollResult {
        if self.polled { self.state() } else { PollResult::Idle }
    }
    fn on_poll(&mut self, io: &mut dyn PortIo) {
        self.shared.by_looks.fetch_add(1, Ordering::Relaxed);
        self.take(io);
    }
    fn disarm_poll(&mut self) -> PollResult {
        self.polled = false;
        self.arm()
    }
    fn on_command(&mut self, _: &mut dyn PortIo, _: PortCommand) {}
    fn on_room(&mut self, io: &mut dyn PortIo) {
        self.take(io);
    }
    fn on_complete(&mut self, _: &mut dyn PortIo, _: Completion) {
        self.shared.answered.fetch_add(1, Ordering::Release);
    }
    fn on_turn_end(&mut self, _: &mut dyn PortIo) {}
    fn on_resize(&mut self, _: &mut dyn PortIo, _: &DiskInfo) {}
    fn come_to_rest(&mut self, _io: &mut dyn PortIo) -> Rest {
        Rest::Busy
    }
    fn on_arrive(&mut self, _io: &mut dyn PortIo) {}
    fn on_detach(&mut self, io: &mut dyn PortIo, _: Detach) {
        io.close();
    }
}

/// Offers in rounds and waits for the answers to each, while `beside` happens every 1,000 rounds.
fn drive(shared: &Shared, rounds: u64, mut beside: impl FnMut(u64)) {
    let mut offered = 0;
    for round in 0..rounds {
        let batch = 1 + round % 7;
        let before = offered;
        offered += batch;
        shared.offered.store(offered, Ordering::SeqCst);
        let wanted = shared.kick_at.load(Ordering::SeqCst);
        if (before..offered).contains(&wanted) {
            let one = 1u64.to_ne_bytes();
            // SAFETY: an open eventfd and eight bytes.
            assert_eq!(unsafe { libc::write(shared.kick.as_raw_fd(), one.as_ptr().cast(), 8) }, 8);
        }
        let deadline = Instant::now() + PATIENCE;
        while shared.answered.load(Ordering::Acquire) < offered {
            assert!(
                Instant::now() < deadline,
                "round {round} was never served: a wake-up was lost"
            );
            if round % 3 == 0 {
                std::thread::yield_now();
            }
        }
        if round % 1000 == 999 {
            beside(round);
        }
        pause(round);
    }
    println!(
        "{} of {rounds} rounds were found by looking",
        shared.by_looks.load(Ordering::Relaxed)
    );
}

fn ring(engine: &Engine, disk: DiskId) -> (Arc<Shared>, PortRef) {
    // SAFETY: a plain system call; the descriptor is new.
    let kick =
        unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)) };
    let zero = || AtomicU64::new(0);
    let shared = Arc::new(Shared {
        offered: zero(),
        answered: zero(),
        kick_at: zero(),
        kick,
        by_looks: zero(),
    });
    let port = RingPort { shared: shared.clone(), taken: 0, polled: false };
    let port = engine.attach(disk, move |_| Box::new(port)).unwrap();
    (shared, port)
}

#[test]
fn a_ring_that_is_looked_at_and_kicked_in_turns_misses_no_request() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    for (waiting, rounds) in WAYS {
        println!("{waiting:?}");
        looked_at_and_kicked(waiting, rounds);
    }
}

fn looked_at_and_kicked(waiting: Waiting, rounds: u64) {
    let (engine, disks, _dir) = engine(2, waiting);
    let (shared, port) = ring(&engine, disks[0]);
    drive(&shared, rounds, |round| {
        // Another client's work ends the looking; that client leaves again.
        let other = Client::new(&engine, disks[1]);
        assert_eq!(other.run(Op::Read, 0, BLOCK).0, Ok(()));
        if round % 2000 == 999 {
            other.0.detach(Detach::Drain);
            assert!(other.0.wait_gone(PATIENCE));
        }
    });
    port.detach(Detach::Now);
    assert!(port.wait_gone(PATIENCE));
    engine.shutdown(PATIENCE).unwrap();
}

const RECEIVE: u32 = 0;
const SEND: u32 = 1;

/// Reads a length in four bytes, and answers with so many, made of it.
struct EchoPort {
    socket: UnixStream,
    head: Box<[u8; 4]>,
    got: usize,
    body: Vec<u8>,
    vectors: Vec<libc::iovec>,
    message: Box<libc::msghdr>,
    next: Next,
}

#[derive(PartialEq)]
enum Next {
    Receive,
    Send,
    Wait,
}

// SAFETY: the pointers lead to what the port owns.
unsafe impl Send for EchoPort {}

fn body(len: u32) -> impl Iterator<Item = u8> {
    (0..len).map(move |at| (at ^ len) as u8)
}

impl Port for EchoPort {
    fn on_start(&mut self, _: &mut dyn PortIo) {}
    fn on_event(&mut self, io: &mut dyn PortIo, event: PortEvent) {
        match (event.key, event.result) {
            (RECEIVE, got @ 1..) => {
                self.got += got as usize;
                self.next = Next::Receive;
                if self.got == 4 {
                    self.got = 0;
                    let request =
                        Request { op: Op::Flush, offset: 0, len: 0, cookie: 0, ioprio: 0 };
                    self.next = Next::Wait;
                    // SAFETY: no buffers.
                    unsafe { io.submit(request, &[]) };
                }
            }
            (SEND, sent) if sent as usize == self.body.len() => self.next = Next::Receive,
            _ => io.close(),
        }
    }
    fn on_command(&mut self, _: &mut dyn PortIo, _: PortCommand) {}
    fn on_room(&mut self, _: &mut dyn PortIo) {}
    fn on_complete(&mut self, _: &mut dyn PortIo, _: Completion) {
        self.body = body(u32::from_le_bytes(*self.head)).collect();
        self.next = Next::Send;
    }
    fn on_turn_end(&mut self, io: &mut dyn PortIo) {
        let fd = self.socket.as_raw_fd();
        match std::mem::replace(&mut self.next, Next::Wait) {
            Next::Wait => {}
            Next::Receive => {
                let to = self.head[self.got..].as_mut_ptr();
                // SAFETY: the head stays where it is, and nothing else touches it before the event.
                unsafe { io.recv(fd, to, 4 - self.got, Until::Some, RECEIVE) }
            }
            Next::Send => {
                let third = self.body.len() / 3;
                let (start, end) = self.body.split_at_mut(third);
                let vector = |part: &mut [u8]| libc::iovec {
                    iov_base: part.as_mut_ptr().cast(),
                    iov_len: part.len(),
                };
                self.vectors = vec![vector(start), vector(end)];
                self.message.msg_iov = self.vectors.as_mut_ptr();
                self.message.msg_iovlen = self.vectors.len();
                // SAFETY: the message and what it names stay until the event.
                unsafe { io.send(fd, &raw const *self.message, SEND) }
            }
        }
    }
    fn on_resize(&mut self, _: &mut dyn PortIo, _: &DiskInfo) {}
    fn come_to_rest(&mut self, _io: &mut dyn PortIo) -> Rest {
        Rest::Busy
    }
    fn on_arrive(&mut self, _io: &mut dyn PortIo) {}
    fn on_detach(&mut self, io: &mut dyn PortIo, _: Detach) {
        io.close();
    }
}

#[test]
fn a_socket_that_is_tried_and_polled_in_turns_loses_no_byte() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    for (waiting, rounds) in WAYS {
        println!("{waiting:?}");
        tried_and_polled(waiting, rounds / 3);
    }
}

fn tried_and_polled(waiting: Waiting, rounds: u64) {
    let (engine, disks, _dir) = engine(2, waiting);
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    // SAFETY: a `msghdr` is numbers and pointers, for which zero is a value.
    let message = Box::new(unsafe { std::mem::zeroed() });
    let (head, vectors) = (Box::new([0; 4]), vec![]);
    let port = EchoPort {
        socket: theirs,
        head,
        got: 0,
        body: vec![],
        vectors,
        message,
        next: Next::Receive,
    };
    // A turn begins the first receive; a message to the port makes one.
    let port = engine.attach(disks[0], move |_| Box::new(port)).unwrap();
    let mut answer = Vec::new();
    for round in 0..rounds {
        // Now and then more than a socket holds.
        let len: u32 = if round % 97 == 0 { 3 << 20 } else { 1 + (round % 5000) as u32 };
        ours.write_all(&len.to_le_bytes()).unwrap();
        if round % 97 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
        answer.resize(len as usize, 0);
        ours.read_exact(&mut answer).unwrap_or_else(|e| panic!("round {round}: {e}"));
        assert!(answer.iter().copied().eq(body(len)), "round {round}");
        if round % 1000 == 999 {
            let other = Client::new(&engine, disks[1]);
            assert_eq!(other.run(Op::Read, 0, BLOCK).0, Ok(()));
        }
        pause(round);
    }
    // It ends while a receive is under way.
    port.detach(Detach::Now);
    assert!(port.wait_gone(PATIENCE));
    engine.shutdown(PATIENCE).unwrap();
}
