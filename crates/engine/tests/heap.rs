//! A request takes nothing from the heap on its way through a shard, once the shard has had as many
//! requests as at any time.

#[path = "all/support/closed.rs"]
mod closed;

use closed::{Closed, Then};
use headgate_engine::request::{Durability, Op};
use headgate_engine::{BackendSpec, Caching, DatastoreSpec, DiskSpec, Engine, EngineConfig, Image};
use headgate_qos::{Policy, SchedulerKind};
use headgate_units::{Bytes, Iops};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::mpsc::channel;
use std::time::Duration;

const SIZE: u64 = 8 << 20;
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

/// Reads and writes, and now and then a flush.
fn mixed(random: u64) -> Op {
    match random {
        0..60 => Op::Read,
        60..126 => Op::Write(Durability::Cached),
        _ => Op::Flush,
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
    let (mut done, mut before) = (0, 0);
    let port = Closed::new(DEPTH, SIZE, 1, mixed).after_each(move || {
        done += 1;
        if done == WARM {
            before = ASKED.get();
        }
        if done < WARM + COUNTED {
            return Then::GoOn;
        }
        let _ = result.send(ASKED.get() - before);
        Then::Stop
    });
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
