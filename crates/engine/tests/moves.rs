//! Live moves of disks with clients at work: every kind of storage, failures of the target, and the
//! end of the engine in between.

mod support;

use headgate_engine::backend::nbd::Connection;
use headgate_engine::port::Detach;
use headgate_engine::request::{Durability, ExtentKind, IoError, Op, Unmap, ZeroSpeed};
use headgate_engine::{
    BackendSpec, Caching, DatastoreId, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig,
    EngineError, HoldWrites, Image, Listening, MoveError, MoveEvent, MoveId, MoveSpec,
    TroublePolicy,
};
use headgate_mirror::{Limits, Outcome, Reason, Record, Side, State, TargetContent, Word};
use headgate_qos::{Policy, SchedulerKind};
use headgate_units::{Bytes, Nanos};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use support::server::Server;
use support::{Answer, Client, Message, PATIENCE};

const SIZE: u64 = 32 << 20;
const BLOCK: u64 = 4096;

fn engine() -> Engine {
    Engine::start(EngineConfig { shards: 1, ..EngineConfig::default() }).unwrap()
}

fn datastore(engine: &Engine, name: &str, backend: BackendSpec, layers: &[&str]) -> DatastoreId {
    let spec = DatastoreSpec {
        name: name.into(),
        backend,
        layers: layers.iter().map(|text| text.parse().unwrap()).collect(),
        scheduler: SchedulerKind::MClock,
        queue_depth: 32,
        qos: headgate_qos::Config::default(),
    };
    engine.add_datastore(spec).unwrap()
}

fn open(engine: &Engine, datastore: DatastoreId, image: Image) -> DiskId {
    let spec = DiskSpec { name: "disk".into(), image, policy: Policy::default() };
    engine.open_disk(datastore, spec).unwrap()
}

fn file(path: &Path) -> Image {
    Image::create(path, Bytes(SIZE)).unwrap();
    Image::open(path, Caching::PreferDirect, Duration::from_secs(5)).unwrap()
}

fn ram() -> Image {
    Image::memory(Bytes(SIZE)).unwrap()
}

/// A move, and what was told of it.
struct Mover<'a> {
    engine: &'a Engine,
    id: MoveId,
    events: Receiver<MoveEvent>,
}

impl Mover<'_> {
    fn spec(
        source: DiskId,
        target: DiskId,
        content: TargetContent,
    ) -> (MoveSpec, Receiver<MoveEvent>) {
        let (tell, events) = channel();
        let listener = Box::new(move |event| match tell.send(event) {
            Ok(()) => Listening::Yes,
            Err(_) => Listening::Gone,
        });
        let limits = Limits { requests: 128, ..Limits::default() };
        let (pace, patience) = (Policy::default(), Nanos::from_secs(20));
        (MoveSpec { source, target, content, pace, limits, patience, listener }, events)
    }

    fn begin(engine: &Engine, source: DiskId, target: DiskId) -> Mover<'_> {
        let mover = Mover::begin_unrecorded(engine, source, target, TargetContent::Zeroes);
        mover.record(Record::Started, Word::Made);
        mover
    }

    fn begin_unrecorded(
        engine: &Engine,
        source: DiskId,
        target: DiskId,
        content: TargetContent,
    ) -> Mover<'_> {
        let (spec, events) = Mover::spec(source, target, content);
        Mover { engine, id: engine.begin_move(spec).unwrap(), events }
    }

    fn next(&self) -> MoveEvent {
        self.events.recv_timeout(PATIENCE).unwrap()
    }

    fn record(&self, record: Record, word: Word) {
        assert_eq!(self.next(), MoveEvent::Record(record));
        self.engine.move_recorded(self.id, word).unwrap();
    }

    /// Follows the move to its end.
    fn finish(&self) {
        self.record(Record::Switched, Word::Made);
        assert_eq!(self.next(), MoveEvent::Ended(Outcome::Switched));
        assert_eq!(self.next(), MoveEvent::Reclaim(Side::Source));
    }

    fn fails(&self, outcome: Outcome) {
        assert_eq!(self.next(), MoveEvent::Ended(outcome));
        assert_eq!(self.next(), MoveEvent::Reclaim(Side::Target));
        assert!(matches!(
            self.engine.move_progress(self.id),
            Err(EngineError::Move(MoveError::Over))
        ));
    }
}

/// A generator of numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// What a client has asked for and not heard of.
struct Asked {
    op: Op,
    offset: u64,
    len: u64,
    fill: u8,
    answer: Receiver<Answer>,
}

/// A client that knows what the disk holds: requests that are under way together do not overlap.
struct Worker<'a> {
    client: &'a Client,
    numbers: Numbers,
    content: Vec<u8>,
    under_way: VecDeque<Asked>,
    done: u64,
}

impl<'a> Worker<'a> {
    fn new(client: &'a Client, seed: u64) -> Worker<'a> {
        let (content, under_way) = (vec![0; SIZE as usize], VecDeque::new());
        Worker { client, numbers: Numbers(seed), content, under_way, done: 0 }
    }

    fn choose(&mut self) -> Option<(Op, u64, u64)> {
        let blocks = SIZE / BLOCK;
        let len = [1, 1, 1, 2, 16, 64][self.numbers.below(6) as usize];
        let first = self.numbers.below(blocks - len);
        let (offset, len) = (first * BLOCK, len * BLOCK);
        let free =
            |asked: &Asked| asked.offset + asked.len <= offset || offset + len <= asked.offset;
        if !self.under_way.iter().all(free) {
            return None;
        }
        let when = if self.numbers.below(8) == 0 { Durability::Fua } else { Durability::Cached };
        Some(match self.numbers.below(16) {
            0 => (Op::Flush, 0, 0),
            1 => (Op::Discard, offset, len),
            2 | 3 => {
                let unmap = if self.numbers.below(2) == 0 { Unmap::May } else { Unmap::MustNot };
                let speed = ZeroSpeed::Any;
                (Op::WriteZeroes { unmap, speed, durability: when }, offset, len)
            }
            4..=7 => (Op::Read, offset, len),
            _ => (Op::Write(when), offset, len),
        })
    }

    /// Sends one more, and hears of as many as it takes to have `depth` under way.
    fn step(&mut self, depth: usize) {
        if let Some((op, offset, len)) = self.choose() {
            let fill = self.numbers.below(255) as u8 + 1;
            let data = if op.moves_data() { vec![fill; len as usize] } else { vec![] };
            let answer = self.client.start(op, offset, len, data, 0);
            self.under_way.push_back(Asked { op, offset, len, fill, answer });
        }
        while self.under_way.len() > depth {
            self.hear();
        }
    }

    fn hear(&mut self) {
        let Some(asked) = self.under_way.pop_front() else { return };
        let (result, data, _) = asked.answer.recv_timeout(PATIENCE).unwrap();
        result.unwrap_or_else(|e| panic!("{:?} at {}: {e}", asked.op, asked.offset));
        let range = asked.offset as usize..(asked.offset + asked.len) as usize;
        match asked.op {
            Op::Read => assert!(data == self.content[range], "a read at {}", asked.offset),
            Op::Write(_) => self.content[range].fill(asked.fill),
            // Here discarded ranges read as zeroes.
            Op::Discard | Op::WriteZeroes { .. } => self.content[range].fill(0),
            _ => {}
        }
        self.done += 1;
    }

    fn settle(&mut self) {
        while !self.under_way.is_empty() {
            self.hear();
        }
    }

    fn check(&mut self) {
        self.settle();
        for offset in (0..SIZE).step_by(1 << 20) {
            let held = self.client.read(offset, 1 << 20, 0);
            let wanted = &self.content[offset as usize..offset as usize + (1 << 20)];
            assert!(held == wanted, "the megabyte at {offset}");
        }
    }
}

/// A place for images on a file system that is on a device.
fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Kinds of storage, each with an image that holds zeroes.
fn kinds(dir: &Path) -> Vec<(&'static str, BackendSpec, Image, Option<PathBuf>)> {
    let (plain, emulated) = (dir.join("plain.img"), dir.join("emulated.img"));
    let model = "rate=20000,service=exponential".parse().unwrap();
    vec![
        ("file", BackendSpec::Files, file(&plain), Some(plain)),
        ("memory", BackendSpec::Memory, ram(), None),
        ("emulated", BackendSpec::Emulated(model, Bytes(SIZE)), file(&emulated), Some(emulated)),
    ]
}

#[test]
fn a_disk_moves_between_all_kinds_of_storage_with_a_client_at_work() {
    for from in 0..3 {
        for to in 0..3 {
            let (here, there) = (place(), place());
            let engine = engine();
            let (from_kind, backend, image, _) = kinds(here.path()).swap_remove(from);
            let source = open(&engine, datastore(&engine, "a", backend, &[]), image);
            let (to_kind, backend, image, path) = kinds(there.path()).swap_remove(to);
            let target = open(&engine, datastore(&engine, "b", backend, &[]), image);
            eprintln!("from {from_kind} to {to_kind}");
            let client = Client::new(&engine, source);
            let mut worker = Worker::new(&client, (from * 3 + to) as u64);
            (0..400).for_each(|_| worker.step(16));
            let before = worker.done;
            let mover = Mover::begin(&engine, source, target);
            // The record of the switch is asked for while the client works.
            let deadline = Instant::now() + PATIENCE;
            let asked = loop {
                worker.step(16);
                match mover.events.try_recv() {
                    Ok(event) => break event,
                    Err(_) => {
                        assert!(Instant::now() < deadline, "{:?}", engine.move_progress(mover.id))
                    }
                }
            };
            assert_eq!(asked, MoveEvent::Record(Record::Switched));
            (0..200).for_each(|_| worker.step(16));
            let during = worker.done - before;
            assert!(during > 100, "{during} requests during the move");
            engine.move_recorded(mover.id, Word::Made).unwrap();
            (0..200).for_each(|_| worker.step(16));
            worker.settle();
            assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
            assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
            engine.close_disk(source, PATIENCE).unwrap();
            (0..200).for_each(|_| worker.step(16));
            worker.check();
            worker.client.run(Op::Flush, 0, 0).0.unwrap();
            let content = std::mem::take(&mut worker.content);
            engine.shutdown(PATIENCE).unwrap();
            if let Some(path) = path {
                assert!(std::fs::read(path).unwrap() == content, "the image at the target");
            }
        }
    }
}

#[test]
fn a_hole_stays_a_hole_and_what_comes_behind_the_copy_is_copied_too() {
    let (here, there) = (place(), place());
    let engine = engine();
    let source = open(
        &engine,
        datastore(&engine, "a", BackendSpec::Files, &[]),
        file(&here.path().join("d.img")),
    );
    let target = open(
        &engine,
        datastore(&engine, "b", BackendSpec::Files, &[]),
        file(&there.path().join("d.img")),
    );
    let client = Client::new(&engine, source);
    client.write(3 << 20, &[7; 1 << 20], 0).unwrap();
    client.write(SIZE - BLOCK, &[9; BLOCK as usize], 0).unwrap();
    let mover = Mover::begin(&engine, source, target);
    mover.finish();
    assert_eq!(client.read(3 << 20, 1 << 20, 0), [7; 1 << 20]);
    let (result, _, extents) = client.run(Op::BlockStatus, 0, SIZE);
    result.unwrap();
    let found: Vec<_> = extents.iter().map(|e| (e.kind, e.len)).collect();
    let (hole, data) = (ExtentKind::Hole, ExtentKind::Data);
    let rest = SIZE - (4 << 20) - BLOCK;
    assert_eq!(found, [(hole, 3 << 20), (data, 1 << 20), (hole, rest), (data, BLOCK)]);
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_target_that_holds_something_else_is_overwritten_whole() {
    let engine = engine();
    let source = open(&engine, datastore(&engine, "a", BackendSpec::Memory, &[]), ram());
    let target = open(&engine, datastore(&engine, "b", BackendSpec::Memory, &[]), ram());
    let other = Client::new(&engine, target);
    other.write(0, &vec![0xaa; SIZE as usize], 0).unwrap();
    let refused = engine.begin_move(Mover::spec(source, target, TargetContent::Unknown).0);
    assert!(matches!(refused, Err(EngineError::DiskBusy { ports: 1 })), "{refused:?}");
    other.0.detach(Detach::Now);
    assert!(other.0.wait_gone(PATIENCE));
    let client = Client::new(&engine, source);
    let mut worker = Worker::new(&client, 4);
    (0..20).for_each(|_| worker.step(4));
    let mover = Mover::begin_unrecorded(&engine, source, target, TargetContent::Unknown);
    mover.record(Record::Started, Word::Made);
    mover.finish();
    worker.check();
    engine.shutdown(PATIENCE).unwrap();
}

/// A disk of 32 MiB in memory, and a target behind these layers.
fn pair(engine: &Engine, layers: &[&str]) -> (DiskId, DiskId) {
    let source = open(engine, datastore(engine, "a", BackendSpec::Memory, &[]), ram());
    let target = open(engine, datastore(engine, "b", BackendSpec::Memory, layers), ram());
    (source, target)
}

#[test]
fn a_failing_target_ends_the_move_and_no_client_hears_of_it() {
    for on in ["write", "flush", "all"] {
        let engine = engine();
        let (source, target) = pair(&engine, &[&format!("error=100%,on={on}")]);
        let client = Client::new(&engine, source);
        let mut worker = Worker::new(&client, 5);
        (0..300).for_each(|_| worker.step(16));
        let mover = Mover::begin(&engine, source, target);
        for _ in 0..300 {
            worker.step(16);
        }
        worker.settle();
        mover.fails(Outcome::Failed(Reason::TargetFailed));
        engine.close_disk(target, PATIENCE).unwrap();
        (0..300).for_each(|_| worker.step(16));
        worker.check();
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_cancelled_move_leaves_the_disk_where_it_was() {
    let engine = engine();
    let (source, target) = pair(&engine, &[]);
    let client = Client::new(&engine, source);
    let mut worker = Worker::new(&client, 6);
    let mover = Mover::begin_unrecorded(&engine, source, target, TargetContent::Zeroes);
    engine.pause_move(mover.id).unwrap();
    mover.record(Record::Started, Word::Made);
    (0..300).for_each(|_| worker.step(16));
    let progress = engine.move_progress(mover.id).unwrap();
    assert_eq!(progress.state, State::Paused);
    let again = engine.begin_move(Mover::spec(source, target, TargetContent::Zeroes).0);
    assert!(matches!(again, Err(EngineError::Move(MoveError::Moving))), "{again:?}");
    let busy = engine.close_disk(source, Duration::ZERO);
    assert!(matches!(busy, Err(EngineError::Move(MoveError::Moving))), "{busy:?}");
    let late = Client::try_new(&engine, source);
    assert_eq!(late.unwrap().run(Op::Flush, 0, 0).0, Ok(()));
    engine.cancel_move(mover.id).unwrap();
    worker.settle();
    mover.fails(Outcome::Cancelled);
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_client_that_comes_during_or_after_a_move_is_served() {
    let engine = engine();
    let (source, target) = pair(&engine, &[]);
    let first = Client::new(&engine, source);
    first.write(0, &[1; 4096], 0).unwrap();
    let mover = Mover::begin(&engine, source, target);
    assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
    let during = Client::new(&engine, source);
    during.write(4096, &[2; 4096], 0).unwrap();
    engine.move_recorded(mover.id, Word::Made).unwrap();
    assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
    assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
    let after = Client::new(&engine, source);
    engine.close_disk(source, PATIENCE).unwrap();
    assert_eq!(after.read(0, 8192, 0), [[1; 4096], [2; 4096]].concat());
    let new = Client::new(&engine, target);
    assert_eq!(new.read(0, 8192, 0), [[1; 4096], [2; 4096]].concat());
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_switch_that_is_not_recorded_is_tried_again_and_in_doubt_nothing_is_decided() {
    let engine = engine();
    let (source, target) = pair(&engine, &[]);
    let client = Client::new(&engine, source);
    let mut worker = Worker::new(&client, 8);
    (0..100).for_each(|_| worker.step(8));
    let mover = Mover::begin(&engine, source, target);
    mover.record(Record::Switched, Word::NotMade);
    (0..100).for_each(|_| worker.step(8));
    assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
    engine.move_recorded(mover.id, Word::Unknown).unwrap();
    let refused = engine.cancel_move(mover.id);
    assert!(matches!(refused, Err(EngineError::Move(MoveError::NotCancelled(_)))), "{refused:?}");
    (0..100).for_each(|_| worker.step(8));
    worker.settle();
    engine.move_recorded(mover.id, Word::Made).unwrap();
    assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
    assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
    engine.close_disk(source, PATIENCE).unwrap();
    worker.check();
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn an_engine_ends_in_the_middle_of_a_move() {
    for word in [None, Some(Word::Unknown)] {
        let engine = engine();
        let (source, target) = pair(&engine, &["delay=1ms"]);
        let client = Client::new(&engine, source);
        let mut worker = Worker::new(&client, 9);
        let mover = Mover::begin(&engine, source, target);
        if let Some(word) = word {
            mover.record(Record::Switched, word);
        }
        (0..50).for_each(|_| worker.step(8));
        worker.settle();
        let left = engine.clone().shutdown(PATIENCE).unwrap();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_target_that_does_not_answer_is_given_up() {
    let engine = engine();
    let (source, target) = pair(&engine, &["delay=5s"]);
    let client = Client::new(&engine, source);
    client.write(0, &[1; 1 << 20], 0).unwrap();
    let (mut spec, events) = Mover::spec(source, target, TargetContent::Zeroes);
    spec.patience = Nanos::from_millis(200);
    let mover = Mover { engine: &engine, id: engine.begin_move(spec).unwrap(), events };
    mover.record(Record::Started, Word::Made);
    // Behind the step of the copy that hangs.
    let begun = Instant::now();
    let wait = client.start(Op::Write(Durability::Cached), 0, 4096, vec![2; 4096], 0);
    let (result, ..) = wait.recv_timeout(PATIENCE).unwrap();
    result.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4), "it waited for the target");
    mover.fails(Outcome::Failed(Reason::TargetLost));
    assert_eq!(client.read(0, 4096, 0), [2; 4096]);
    engine.shutdown(PATIENCE).unwrap();
}

/// An open disk on an export of a server in this process.
fn remote(engine: &Engine, name: &str, server: &Server) -> DiskId {
    let connection = Connection::open(&server.uri("disk"), PATIENCE).unwrap();
    let image = Image::remote(server.uri("disk"), Bytes(SIZE), 512, Some(connection)).unwrap();
    open(engine, datastore(engine, name, BackendSpec::Remote, &[]), image)
}

#[test]
fn a_disk_moves_to_a_server_and_back_and_the_server_has_it_durably() {
    let server = Server::start(SIZE as usize);
    server.state().content.fill(0x55);
    let engine = engine();
    let near = open(&engine, datastore(&engine, "a", BackendSpec::Memory, &[]), ram());
    let far = remote(&engine, "b", &server);
    let client = Client::new(&engine, near);
    let mut worker = Worker::new(&client, 10);
    (0..50).for_each(|_| worker.step(8));
    let mover = Mover::begin_unrecorded(&engine, near, far, TargetContent::Unknown);
    mover.record(Record::Started, Word::Made);
    let asked = loop {
        worker.step(8);
        if let Ok(event) = mover.events.try_recv() {
            break event;
        }
    };
    assert_eq!(asked, MoveEvent::Record(Record::Switched));
    worker.settle();
    let flush = client.run(Op::Flush, 0, 0);
    flush.0.unwrap();
    assert!(server.state().durable == worker.content, "it is durable before it counts");
    engine.move_recorded(mover.id, Word::Made).unwrap();
    assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
    assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
    engine.close_disk(near, PATIENCE).unwrap();
    (0..50).for_each(|_| worker.step(8));
    let back = open(&engine, datastore(&engine, "c", BackendSpec::Memory, &[]), ram());
    let mover = Mover::begin(&engine, far, back);
    mover.finish();
    engine.close_disk(far, PATIENCE).unwrap();
    worker.check();
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn what_a_server_may_have_lost_before_a_move_is_told_during_it() {
    let mut server = Server::start(SIZE as usize);
    let engine = engine();
    let far = remote(&engine, "a", &server);
    let near = open(&engine, datastore(&engine, "b", BackendSpec::Memory, &[]), ram());
    let client = Client::new(&engine, far);
    client.write(0, &[1; 4096], 0).unwrap();
    server.crash();
    server.listen();
    // Answered by the server that came back.
    assert_eq!(client.read(0, 4096, 0), [0; 4096]);
    let mover = Mover::begin_unrecorded(&engine, far, near, TargetContent::Zeroes);
    engine.pause_move(mover.id).unwrap();
    mover.record(Record::Started, Word::Made);
    client.run(Op::Read, 0, 4096).0.unwrap();
    let lost = client.run(Op::Flush, 0, 0).0;
    assert_eq!(lost, Err(IoError::Backend(libc::EIO)), "the write is lost");
    mover.fails(Outcome::Failed(Reason::SourceNotDurable));
    client.run(Op::Flush, 0, 0).0.unwrap();
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn what_a_side_holds_can_be_given_up() {
    let engine = engine();
    let (source, target) = pair(&engine, &[]);
    let writes = HoldWrites::Always;
    engine.set_trouble(source, TroublePolicy { writes, ..Default::default() }).unwrap();
    let client = Client::new(&engine, source);
    let mover = Mover::begin(&engine, source, target);
    assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
    let store = engine.snapshot().unwrap()[0].0;
    engine.set_layers(store, &["error=100%,on=write".parse().unwrap()]).unwrap();
    let held = client.start(Op::Write(Durability::Cached), 0, 4096, vec![1; 4096], 0);
    assert!(held.recv_timeout(Duration::from_millis(300)).is_err(), "it is held");
    let (answer, count) = channel();
    client.0.command(Box::new(Message::GiveUp(answer))).unwrap();
    assert_eq!(count.recv_timeout(PATIENCE).unwrap(), 1);
    // The journal may say that the target counts, and that has the write.
    assert!(held.recv_timeout(Duration::from_millis(100)).is_err(), "nobody knows yet");
    engine.move_recorded(mover.id, Word::Made).unwrap();
    assert_eq!(held.recv_timeout(PATIENCE).unwrap().0, Ok(()));
    assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
    assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
    assert_eq!(client.read(0, 4096, 0), [1; 4096]);
    // The target does about trouble what the source did.
    let snapshot = &engine.snapshot().unwrap()[1].1;
    assert_eq!(snapshot.disks[0].trouble.policy.writes, writes);
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn sides_that_do_not_fit_are_refused() {
    let engine = engine();
    let a = datastore(&engine, "a", BackendSpec::Memory, &[]);
    let source = open(&engine, a, ram());
    let small = open(&engine, a, Image::memory(Bytes(SIZE / 2)).unwrap());
    let refused = engine.begin_move(Mover::spec(source, small, TargetContent::Zeroes).0);
    let small_is = MoveError::Small { size: Bytes(SIZE), target: Bytes(SIZE / 2) };
    assert!(matches!(refused, Err(EngineError::Move(e)) if e == small_is), "{refused:?}");
    engine.shutdown(PATIENCE).unwrap();
    let engine = Engine::start(EngineConfig { shards: 2, ..EngineConfig::default() }).unwrap();
    let (source, target) = pair(&engine, &[]);
    let refused = engine.begin_move(Mover::spec(source, target, TargetContent::Zeroes).0);
    assert!(matches!(refused, Err(EngineError::Move(MoveError::OtherShard))), "{refused:?}");
    engine.shutdown(PATIENCE).unwrap();
}
