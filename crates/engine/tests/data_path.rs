//! Requests through a running engine, on real files.

use headgate_devices::ModelSpec;
use headgate_engine::port::{Detach, Port, PortCommand, PortEvent, PortIo};
use headgate_engine::request::{
    Completion, DiskInfo, Durability, Extent, ExtentKind, IoError, Op, Request, Unmap, ZeroSpeed,
};
use headgate_engine::{
    BackendSpec, Caching, DatastoreId, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig, EngineError,
    Image, PortRef,
};
use headgate_qos::{Policy, SchedulerKind};
use headgate_units::Bytes;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// What comes back for a request: its result, its data, its extents.
type Answer = (Result<(), IoError>, Vec<u8>, Vec<Extent>);

/// A request as the test sends it to its port. `skew` bytes before the data make the buffer odd.
struct Ask {
    op: Op,
    offset: u64,
    len: u64,
    data: Vec<u8>,
    skew: usize,
    answer: Sender<Answer>,
}

enum Message {
    Ask(Ask),
    Expedite,
}

/// A client in this process: submits what it is told, as room allows.
#[derive(Default)]
struct TestPort {
    waiting: VecDeque<Ask>,
    running: HashMap<u64, Ask>,
    next: u64,
    draining: bool,
}

impl TestPort {
    fn feed(&mut self, io: &mut dyn PortIo) {
        while io.room() > 0 {
            let Some(mut ask) = self.waiting.pop_front() else { break };
            let cookie = self.next;
            self.next += 1;
            let request = Request { op: ask.op, offset: ask.offset, len: ask.len, cookie, ioprio: 0 };
            let half = (ask.data.len() - ask.skew) / 2;
            let start = ask.data[ask.skew..].as_mut_ptr();
            let buffers = match (ask.op.moves_data(), half) {
                (false, _) => vec![],
                (true, 0..4096) => {
                    vec![libc::iovec { iov_base: start.cast(), iov_len: ask.data.len() - ask.skew }]
                }
                (true, _) => vec![
                    libc::iovec { iov_base: start.cast(), iov_len: half },
                    libc::iovec {
                        iov_base: start.wrapping_add(half).cast(),
                        iov_len: ask.data.len() - ask.skew - half,
                    },
                ],
            };
            // SAFETY: `running` keeps the data, which does not move, until the completion.
            unsafe { io.submit(request, &buffers) };
            self.running.insert(cookie, ask);
        }
    }
}

impl Port for TestPort {
    fn on_start(&mut self, _io: &mut dyn PortIo) {}
    fn on_event(&mut self, _io: &mut dyn PortIo, _event: PortEvent) {}
    fn on_command(&mut self, io: &mut dyn PortIo, command: PortCommand) {
        match *command.downcast::<Message>().unwrap() {
            Message::Ask(ask) => self.waiting.push_back(ask),
            Message::Expedite => io.expedite(),
        }
        self.feed(io);
    }
    fn on_room(&mut self, io: &mut dyn PortIo) {
        self.feed(io);
    }
    fn on_complete(&mut self, io: &mut dyn PortIo, completion: Completion) {
        let mut ask = self.running.remove(&completion.cookie).unwrap();
        let data = ask.data.split_off(ask.skew);
        let _ = ask.answer.send((completion.result, data, completion.extents));
        self.feed(io);
    }
    fn on_turn_end(&mut self, io: &mut dyn PortIo) {
        if self.draining && self.running.is_empty() {
            io.close();
        }
    }
    fn on_resize(&mut self, _io: &mut dyn PortIo, _info: &DiskInfo) {}
    fn on_detach(&mut self, _io: &mut dyn PortIo, how: Detach) {
        self.draining |= how == Detach::Drain;
        self.waiting.clear();
    }
}

struct Client(PortRef);

impl Client {
    fn new(engine: &Engine, disk: DiskId) -> Client {
        Client(engine.attach(disk, |_| Box::new(TestPort::default())).unwrap())
    }

    fn start(&self, op: Op, offset: u64, len: u64, data: Vec<u8>, skew: usize) -> Receiver<Answer> {
        let (answer, wait) = channel();
        let mut padded = vec![0; skew];
        padded.extend(data);
        self.0.command(Box::new(Message::Ask(Ask { op, offset, len, data: padded, skew, answer }))).unwrap();
        wait
    }

    fn run(&self, op: Op, offset: u64, len: u64) -> Answer {
        let data = if op.moves_data() { vec![0xee; len as usize] } else { vec![] };
        self.start(op, offset, len, data, 0).recv_timeout(PATIENCE).unwrap()
    }

    fn write(&self, offset: u64, data: &[u8], skew: usize) -> Result<(), IoError> {
        let op = Op::Write(Durability::Cached);
        self.start(op, offset, data.len() as u64, data.to_vec(), skew).recv_timeout(PATIENCE).unwrap().0
    }

    fn read(&self, offset: u64, len: usize, skew: usize) -> Vec<u8> {
        let answer = self.start(Op::Read, offset, len as u64, vec![0xee; len], skew);
        let (result, data, _) = answer.recv_timeout(PATIENCE).unwrap();
        result.unwrap();
        data
    }
}

fn engine() -> Engine {
    Engine::start(EngineConfig { shards: 1, ..EngineConfig::default() }).unwrap()
}

fn datastore(engine: &Engine, backend: BackendSpec, queue_depth: u32) -> DatastoreId {
    let spec = DatastoreSpec {
        name: "ds".into(),
        backend,
        scheduler: SchedulerKind::MClock,
        queue_depth,
        qos: headgate_qos::Config::default(),
    };
    engine.add_datastore(spec).unwrap()
}

const SIZE: u64 = 8 << 20;

fn disk(engine: &Engine, ds: DatastoreId, dir: &Path, caching: Caching) -> DiskId {
    let path = dir.join("d.raw");
    if !path.exists() {
        Image::create(&path, Bytes(SIZE)).unwrap();
    }
    let image = Image::open(&path, caching, PATIENCE).unwrap();
    engine.open_disk(ds, DiskSpec { name: "d".into(), image, policy: Policy::default() }).unwrap()
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 7 + i % 251) as u8 ^ seed).collect()
}

#[test]
fn what_was_written_is_read_back_with_any_buffers() {
    for caching in [Caching::PreferDirect, Caching::Buffered] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let engine = engine();
        let ds = datastore(&engine, BackendSpec::Files, 32);
        let disk = disk(&engine, ds, dir.path(), caching);
        let client = Client::new(&engine, disk);
        for (n, (offset, len, skew)) in
            [(0, 4096, 0), (8192, 65536, 0), (1 << 20, 4096, 13), (2 << 20, 3 << 20, 1)]
                .into_iter()
                .enumerate()
        {
            let data = pattern(n as u8, len);
            client.write(offset, &data, skew).unwrap();
            assert!(client.read(offset, len, 0) == data, "{caching:?}: {len} at {offset}, aligned read");
            assert!(client.read(offset, len, 5) == data, "{caching:?}: {len} at {offset}, odd read");
        }
        assert_eq!(client.run(Op::Flush, 0, 0).0, Ok(()));
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_request_outside_the_disk_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let ds = datastore(&engine, BackendSpec::Files, 32);
    let disk = disk(&engine, ds, dir.path(), Caching::Buffered);
    let client = Client::new(&engine, disk);
    for (offset, len) in [(SIZE, 512), (SIZE - 512, 1024), (u64::MAX - 511, 512), (1, 512), (0, 513), (0, 0)]
    {
        assert_eq!(client.run(Op::Read, offset, len).0, Err(IoError::Invalid), "{len} at {offset}");
    }
    assert_eq!(client.run(Op::Discard, SIZE, 512).0, Err(IoError::Invalid));
    assert_eq!(client.run(Op::Read, SIZE - 512, 512).0, Ok(()));
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn zeroes_holes_and_their_status() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let engine = engine();
    let ds = datastore(&engine, BackendSpec::Files, 32);
    let disk = disk(&engine, ds, dir.path(), Caching::Buffered);
    let client = Client::new(&engine, disk);
    client.write(0, &pattern(1, 1 << 20), 0).unwrap();
    assert_eq!(client.run(Op::Discard, 65536, 65536).0, Ok(()));
    let zero = |unmap| Op::WriteZeroes { unmap, speed: ZeroSpeed::Any, durability: Durability::Fua };
    assert_eq!(client.run(zero(Unmap::May), 262144, 65536).0, Ok(()));
    assert_eq!(client.run(zero(Unmap::MustNot), 524288, 65536).0, Ok(()));
    assert_eq!(client.run(Op::Cache, 0, 65536).0, Ok(()));
    let mut expected = pattern(1, 1 << 20);
    for hole in [65536, 262144, 524288] {
        expected[hole..hole + 65536].fill(0);
    }
    assert!(client.read(0, 1 << 20, 0) == expected);
    let (result, _, extents) = client.run(Op::BlockStatus, 0, SIZE);
    result.unwrap();
    assert_eq!(extents.iter().map(|e| e.len).sum::<u64>(), SIZE);
    let at = |want: u64| {
        let mut end = 0;
        extents
            .iter()
            .find(|e| {
                (end..{
                    end += e.len;
                    end
                })
                    .contains(&want)
            })
            .unwrap()
            .kind
    };
    assert_eq!(
        [at(0), at(65536), at(262144), at(4 << 20)],
        [ExtentKind::Data, ExtentKind::Hole, ExtentKind::Hole, ExtentKind::Hole]
    );
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn more_requests_than_the_queue_holds_all_end() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let ds = datastore(&engine, BackendSpec::Files, 4);
    let disk = disk(&engine, ds, dir.path(), Caching::Buffered);
    let client = Client::new(&engine, disk);
    let answers: Vec<_> =
        (0..1000).map(|n| client.start(Op::Read, n % 64 * 4096, 4096, vec![1; 4096], 0)).collect();
    for answer in answers {
        assert_eq!(answer.recv_timeout(PATIENCE).unwrap().0, Ok(()));
    }
    let (_, snapshot) = engine.snapshot().unwrap().remove(0);
    assert_eq!((snapshot.queued, snapshot.in_flight, snapshot.disks[0].ports), (0, 0, 1));
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn an_emulated_array_keeps_the_data_and_its_pace() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let model: ModelSpec = "rate=1000".parse().unwrap();
    let ds = datastore(&engine, BackendSpec::Emulated(model, Bytes(SIZE)), 32);
    let disk = disk(&engine, ds, dir.path(), Caching::Buffered);
    let client = Client::new(&engine, disk);
    client.write(4096, &pattern(9, 4096), 0).unwrap();
    let begin = std::time::Instant::now();
    let answers: Vec<_> = (0..300).map(|_| client.start(Op::Read, 4096, 4096, vec![1; 4096], 0)).collect();
    for answer in answers {
        assert!(answer.recv_timeout(PATIENCE).unwrap().1 == pattern(9, 4096));
    }
    // A lower bound only: a device of 1,000 IOPS cannot be faster; how much slower is the machine's affair.
    assert!(begin.elapsed() > Duration::from_millis(230), "{:?}", begin.elapsed());
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_null_disk_reads_zeroes() {
    let engine = engine();
    let ds = datastore(&engine, BackendSpec::Null, 32);
    let image = Image::null(Bytes(SIZE)).unwrap();
    let disk = engine.open_disk(ds, DiskSpec { name: "n".into(), image, policy: Policy::default() }).unwrap();
    let client = Client::new(&engine, disk);
    client.write(0, &pattern(1, 4096), 0).unwrap();
    assert!(client.read(0, 4096, 0).iter().all(|&b| b == 0));
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn closing_a_disk_finishes_what_was_taken() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let model: ModelSpec = "rate=200".parse().unwrap();
    let ds = datastore(&engine, BackendSpec::Emulated(model, Bytes(SIZE)), 4);
    let disk = disk(&engine, ds, dir.path(), Caching::Buffered);
    let client = Client::new(&engine, disk);
    let answers: Vec<_> = (0..40).map(|_| client.start(Op::Read, 0, 4096, vec![1; 4096], 0)).collect();
    engine.close_disk(disk, PATIENCE).unwrap();
    assert!(client.0.is_gone());
    assert!(answers.iter().all(|a| a.try_recv().is_ok_and(|(result, ..)| result.is_ok())));
    assert!(matches!(engine.disk_info(disk), Err(EngineError::NoDisk)));
    engine.remove_datastore(ds).unwrap();
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_client_that_is_cut_off_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let model: ModelSpec = "rate=100".parse().unwrap();
    let ds = datastore(&engine, BackendSpec::Emulated(model, Bytes(SIZE)), 2);
    let disk = disk(&engine, ds, dir.path(), Caching::Buffered);
    let (cut, stays) = (Client::new(&engine, disk), Client::new(&engine, disk));
    let lost: Vec<_> = (0..500).map(|_| cut.start(Op::Read, 0, 4096, vec![1; 4096], 0)).collect();
    cut.0.detach(Detach::Now);
    assert!(cut.0.wait_gone(PATIENCE));
    assert!(cut.0.command(Box::new(Message::Expedite)).is_err());
    assert!(lost.iter().filter(|a| a.try_recv().is_ok()).count() < 100);
    assert_eq!(stays.run(Op::Read, 0, 4096).0, Ok(()));
    let (_, snapshot) = engine.snapshot().unwrap().remove(0);
    assert_eq!((snapshot.queued, snapshot.in_flight, snapshot.disks[0].ports), (0, 0, 1));
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn expedited_requests_pass_the_window() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let model: ModelSpec = "rate=1000000,latency=1s,depth=64".parse().unwrap();
    let ds = datastore(&engine, BackendSpec::Emulated(model, Bytes(SIZE)), 1);
    let disk = disk(&engine, ds, dir.path(), Caching::Buffered);
    let client = Client::new(&engine, disk);
    let answers: Vec<_> = (0..20).map(|_| client.start(Op::Read, 0, 4096, vec![1; 4096], 0)).collect();
    let begin = std::time::Instant::now();
    client.0.command(Box::new(Message::Expedite)).unwrap();
    answers.iter().for_each(|a| a.recv_timeout(PATIENCE).unwrap().0.unwrap());
    // One at a time they would take 20 s.
    assert!(begin.elapsed() < Duration::from_secs(15));
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_full_file_system_fails_the_write_and_nothing_else() {
    // A tmpfs of 1 MiB needs root; where it cannot be mounted this says so.
    let dir = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1M", "tmpfs"])
        .arg(dir.path())
        .stderr(std::process::Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    if !mounted {
        eprintln!("SKIPPED: cannot mount a small tmpfs here (needs root)");
        return;
    }
    let engine = engine();
    let ds = datastore(&engine, BackendSpec::Files, 32);
    let id = disk(&engine, ds, dir.path(), Caching::Buffered);
    let client = Client::new(&engine, id);
    let results: Vec<_> = (0..8).map(|n| client.write(n << 18, &pattern(n as u8, 1 << 18), 0)).collect();
    assert_eq!(results[0], Ok(()));
    assert_eq!(results[7], Err(IoError::NoSpace));
    assert!(client.read(0, 1 << 18, 0) == pattern(0, 1 << 18));
    engine.shutdown(PATIENCE).unwrap();
    std::process::Command::new("umount").arg(dir.path()).status().unwrap();
}
