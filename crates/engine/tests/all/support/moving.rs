//! Live moves, and a client at work that knows what the disk holds.

use super::server::Server;
use super::{Answer, Client, PATIENCE};
use headgate_engine::backend::nbd::Connection;
use headgate_engine::request::{Durability, Op, Unmap, ZeroSpeed};
use headgate_engine::{
    BackendSpec, Caching, DatastoreId, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig,
    EngineError, Image, Listening, MoveError, MoveEvent, MoveGauge, MoveId, MoveSpec, MoveTerms,
};
use headgate_mirror::{Limits, Outcome, Record, Side, TargetContent, Word};
use headgate_nbd_io::ClientTls;
use headgate_qos::{Policy, SchedulerKind};
use headgate_units::{Bytes, Nanos};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

pub const SIZE: u64 = 32 << 20;
pub const BLOCK: u64 = 4096;

/// Whether the two datastores of a test are on one shard. The second one is on the other shard
/// where there are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shards {
    One,
    Two,
}

pub const BOTH: [Shards; 2] = [Shards::One, Shards::Two];

pub fn engine(shards: Shards) -> Engine {
    let shards = match shards {
        Shards::One => 1,
        Shards::Two => 2,
    };
    Engine::start(EngineConfig { shards, ..EngineConfig::default() }).unwrap()
}

pub fn datastore(
    engine: &Engine,
    name: &str,
    backend: BackendSpec,
    layers: &[&str],
) -> DatastoreId {
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

pub fn open(engine: &Engine, datastore: DatastoreId, image: Image) -> DiskId {
    let spec = DiskSpec { name: "disk".into(), image, policy: Policy::default() };
    engine.open_disk(datastore, spec).unwrap()
}

pub fn file(path: &Path) -> Image {
    Image::create(path, Bytes(SIZE)).unwrap();
    Image::open(path, Caching::PreferDirect, Duration::from_secs(5)).unwrap()
}

pub fn ram() -> Image {
    Image::memory(Bytes(SIZE)).unwrap()
}

/// A move, and what was told of it.
pub struct Mover<'a> {
    pub engine: &'a Engine,
    pub id: MoveId,
    pub events: Receiver<MoveEvent>,
}

impl Mover<'_> {
    pub fn spec(
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
        let gauge = MoveGauge::default();
        let terms = MoveTerms { content, pace, limits, patience, gauge, listener };
        (MoveSpec { source, target, terms }, events)
    }

    pub fn begin(engine: &Engine, source: DiskId, target: DiskId) -> Mover<'_> {
        let mover = Mover::begin_unrecorded(engine, source, target, TargetContent::Zeroes);
        mover.record(Record::Started, Word::Made);
        mover
    }

    pub fn begin_unrecorded(
        engine: &Engine,
        source: DiskId,
        target: DiskId,
        content: TargetContent,
    ) -> Mover<'_> {
        let (spec, events) = Mover::spec(source, target, content);
        Mover { engine, id: engine.begin_move(spec).unwrap(), events }
    }

    pub fn next(&self) -> MoveEvent {
        self.events.recv_timeout(PATIENCE).unwrap()
    }

    pub fn record(&self, record: Record, word: Word) {
        assert_eq!(self.next(), MoveEvent::Record(record));
        self.engine.move_recorded(self.id, word).unwrap();
    }

    /// Follows the move from its beginning to its end.
    pub fn all(&self) {
        self.record(Record::Started, Word::Made);
        self.finish();
    }

    /// Follows the move to its end.
    pub fn finish(&self) {
        self.record(Record::Switched, Word::Made);
        assert_eq!(self.next(), MoveEvent::Ended(Outcome::Switched));
        assert_eq!(self.next(), MoveEvent::Reclaim(Side::Source));
    }

    pub fn fails(&self, outcome: Outcome) {
        assert_eq!(self.next(), MoveEvent::Ended(outcome));
        assert_eq!(self.next(), MoveEvent::Reclaim(Side::Target));
        assert!(matches!(
            self.engine.move_progress(self.id),
            Err(EngineError::Move(MoveError::Over))
        ));
    }
}

/// A generator of numbers (SplitMix64).
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// What a client has asked for and not heard of.
pub struct Asked {
    pub op: Op,
    pub offset: u64,
    pub len: u64,
    pub fill: u8,
    pub answer: Receiver<Answer>,
}

/// A client that knows what the disk holds: requests that are under way together do not overlap.
pub struct Worker<'a> {
    pub client: &'a Client,
    pub numbers: Numbers,
    pub content: Vec<u8>,
    pub under_way: VecDeque<Asked>,
    pub done: u64,
}

impl<'a> Worker<'a> {
    pub fn new(client: &'a Client, seed: u64) -> Worker<'a> {
        let (content, under_way) = (vec![0; SIZE as usize], VecDeque::new());
        Worker { client, numbers: Numbers(seed), content, under_way, done: 0 }
    }

    pub fn choose(&mut self) -> Option<(Op, u64, u64)> {
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
    pub fn step(&mut self, depth: usize) {
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

    pub fn hear(&mut self) {
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

    pub fn settle(&mut self) {
        while !self.under_way.is_empty() {
            self.hear();
        }
    }

    pub fn check(&mut self) {
        self.settle();
        for offset in (0..SIZE).step_by(1 << 20) {
            let held = self.client.read(offset, 1 << 20, 0);
            let wanted = &self.content[offset as usize..offset as usize + (1 << 20)];
            assert!(held == wanted, "the megabyte at {offset}");
        }
    }
}

/// A place for images on a file system that is on a device.
pub fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Kinds of storage, each with an image that holds zeroes.
pub fn kinds(dir: &Path) -> Vec<(&'static str, BackendSpec, Image, Option<PathBuf>)> {
    let (plain, emulated) = (dir.join("plain.img"), dir.join("emulated.img"));
    let model = "rate=20000,service=exponential".parse().unwrap();
    vec![
        ("file", BackendSpec::Files, file(&plain), Some(plain)),
        ("memory", BackendSpec::Memory, ram(), None),
        ("emulated", BackendSpec::Emulated(model, Bytes(SIZE)), file(&emulated), Some(emulated)),
    ]
}

/// A disk of 32 MiB in memory, and a target behind these layers.
pub fn pair(engine: &Engine, layers: &[&str]) -> (DiskId, DiskId) {
    let source = open(engine, datastore(engine, "a", BackendSpec::Memory, &[]), ram());
    let target = open(engine, datastore(engine, "b", BackendSpec::Memory, layers), ram());
    (source, target)
}

/// An open disk on an export of a server in this process.
pub fn remote(engine: &Engine, name: &str, server: &Server) -> DiskId {
    let connection = Connection::open(&server.uri("disk"), PATIENCE, &ClientTls::by_uri()).unwrap();
    let image = Image::remote(server.uri("disk"), Bytes(SIZE), 512, Some(connection)).unwrap();
    open(engine, datastore(engine, name, BackendSpec::Remote, &[]), image)
}
