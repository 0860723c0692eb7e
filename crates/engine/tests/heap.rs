//! A request takes nothing from the heap on its way through a shard, once the shard has had as many
//! requests as at any time.

use headgate_engine::port::{Detach, Port, PortCommand, PortEvent, PortIo, Rest};
use headgate_engine::request::{Completion, DiskInfo, Durability, Op, Request};
use headgate_engine::{BackendSpec, Caching, DatastoreSpec, DiskSpec, Engine, EngineConfig, Image};
use headgate_qos::{Policy, SchedulerKind};
use headgate_units::{Bytes, Iops};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const SIZE: u64 = 8 << 20;
const BLOCK: u64 = 4096;
const DEPTH: usize = 32;
/// Tables and queues have grown by then.
const WARM: u64 = 5_000;
const COUNTED: u64 = 20_000;

thread_local! {
    /// How often this thread asked the heap for something.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

impl Counting {
    fn count() {
        ASKED.with(|asked| asked.set(asked.get() + 1));
    }
}

// SAFETY: every call goes to the system's allocator unchanged. The counter has no destructor and
// takes no memory from the heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::count();
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Counting::count();
        // SAFETY: so are those about `pointer` and `size`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise that `pointer` came from here with `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A closed loop on the shard's own thread: reads and writes, and now and then a flush.
struct Loop {
    buffer: Vec<u8>,
    missing: usize,
    seed: u64,
    done: u64,
    asked: u64,
    ending: bool,
    result: Sender<u64>,
}

impl Loop {
    fn feed(&mut self, io: &mut dyn PortIo) {
        while !self.ending && self.missing > 0 && io.room() > 0 {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = (self.seed >> 33) % (SIZE / BLOCK) * BLOCK;
            let op = match self.seed >> 57 {
                0..60 => Op::Read,
                60..126 => Op::Write(Durability::Cached),
                _ => Op::Flush,
            };
            let len = if op.moves_data() { BLOCK } else { 0 };
            let offset = if op.moves_data() { offset } else { 0 };
            let request = Request { op, offset, len, cookie: 0, ioprio: 0 };
            let start = self.buffer.as_mut_ptr().cast();
            let buffer = [libc::iovec { iov_base: start, iov_len: len as usize }];
            // SAFETY: the buffer lives as long as the port; that requests share it is intended.
            unsafe { io.submit(request, if len == 0 { &[] } else { &buffer }) };
            self.missing -= 1;
        }
    }
}

impl Port for Loop {
    fn on_start(&mut self, io: &mut dyn PortIo) {
        self.feed(io);
    }
    fn on_event(&mut self, _: &mut dyn PortIo, _: PortEvent) {}
    fn on_command(&mut self, _: &mut dyn PortIo, _: PortCommand) {}
    fn on_room(&mut self, io: &mut dyn PortIo) {
        self.feed(io);
    }
    fn on_complete(&mut self, io: &mut dyn PortIo, completion: Completion) {
        completion.result.unwrap();
        (self.missing, self.done) = (self.missing + 1, self.done + 1);
        match self.done {
            WARM => self.asked = ASKED.get(),
            n if n == WARM + COUNTED => {
                self.ending = true;
                let _ = self.result.send(ASKED.get() - self.asked);
            }
            _ => {}
        }
        self.feed(io);
    }
    fn on_turn_end(&mut self, _: &mut dyn PortIo) {}
    fn on_resize(&mut self, _: &mut dyn PortIo, _: &DiskInfo) {}
    fn come_to_rest(&mut self, _: &mut dyn PortIo) -> Rest {
        Rest::Busy
    }
    fn on_arrive(&mut self, _: &mut dyn PortIo) {}
    fn on_detach(&mut self, io: &mut dyn PortIo, _: Detach) {
        self.ending = true;
        io.close();
    }
}

/// How often a shard asks the heap for something in [`COUNTED`] requests.
fn asked(backend: BackendSpec, image: Image, scheduler: SchedulerKind) -> u64 {
    let engine = Engine::start(EngineConfig { shards: 1, ..EngineConfig::default() }).unwrap();
    let datastore = DatastoreSpec {
        name: "datastore".into(),
        backend,
        layers: Vec::new(),
        scheduler,
        queue_depth: 16,
        qos: headgate_qos::Config::default(),
    };
    let datastore = engine.add_datastore(datastore).unwrap();
    let policy = Policy::default().with_reservation(Iops::new(100).ok()).unwrap();
    let disk = DiskSpec { name: "disk".into(), image, policy };
    let disk = engine.open_disk(datastore, disk).unwrap();
    let (result, asked) = channel();
    let port = Loop {
        buffer: vec![0; BLOCK as usize],
        missing: DEPTH,
        seed: 1,
        done: 0,
        asked: 0,
        ending: false,
        result,
    };
    engine.attach(disk, move |_| Box::new(port)).unwrap();
    let asked = asked.recv_timeout(Duration::from_secs(120)).unwrap();
    engine.shutdown(Duration::from_secs(10)).unwrap();
    asked
}

#[test]
fn requests_take_nothing_from_the_heap() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk.img");
    Image::create(&path, Bytes(SIZE)).unwrap();
    let file = |caching| Image::open(&path, caching, Duration::from_secs(5)).unwrap();
    let emulated = "rate=200000,service=exponential,depth=8".parse().unwrap();
    for scheduler in [SchedulerKind::MClock, SchedulerKind::Sfq, SchedulerKind::Fifo] {
        let memory = Image::memory(Bytes(SIZE)).unwrap();
        let asked = [
            ("memory", asked(BackendSpec::Memory, memory, scheduler)),
            ("file", asked(BackendSpec::Files, file(Caching::PreferDirect), scheduler)),
            ("page cache", asked(BackendSpec::Files, file(Caching::Buffered), scheduler)),
            (
                "emulated",
                asked(
                    BackendSpec::Emulated(Clone::clone(&emulated), Bytes(SIZE)),
                    file(Caching::Buffered),
                    scheduler,
                ),
            ),
        ];
        println!("{scheduler:?}, how often in {COUNTED} requests: {asked:?}");
        // What happens once in a second is not on a request's way.
        assert!(asked.iter().all(|(_, asked)| *asked < COUNTED / 2_000), "{asked:?}");
    }
}
