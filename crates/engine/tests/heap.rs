//! A request takes nothing from the heap on its way through a shard, once the shard has had as many
//! requests as at any time.

#[allow(dead_code, reason = "requests of one block are long ones, too")]
#[path = "all/support/closed.rs"]
mod closed;
#[allow(dead_code, reason = "of what servers can do, only what they do when all is well")]
#[path = "all/support/server.rs"]
mod server;

use closed::{Closed, Then};
use headgate_engine::backend::nbd::Connection;
use headgate_engine::request::{Durability, Op};
use headgate_engine::{
    BackendSpec, Caching, DatastoreSpec, DiskSpec, Engine, EngineConfig, Image, StripeMember,
};
use headgate_nbd_io::ClientTls;
use headgate_qos::{Policy, SchedulerKind};
use headgate_stripe::{
    DATA_AT, HostName, LABEL_LEN, Label, Layout as Stripes, Lease, Stage, StripeId,
};
use headgate_units::{Bytes, Iops};
use server::Server;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::mpsc::channel;
use std::time::Duration;

const SIZE: u64 = 8 << 20;
const DEPTH: usize = 32;
/// Tables and queues have grown by then.
const WARM: u64 = 5_000;
const COUNTED: u64 = 20_000;
/// How long servers may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Over so many servers a disk is striped.
const MEMBERS: u16 = 3;

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
    asked_by(backend, image, scheduler, closed::BLOCK)
}

/// The same with requests of this length.
fn asked_by(backend: BackendSpec, image: Image, scheduler: SchedulerKind, len: u64) -> u64 {
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
    let port = Closed::long(DEPTH, SIZE, 1, mixed, len).after_each(move || {
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

/// A disk on a server of this process.
fn remote(server: &Server) -> Image {
    let uri = server.uri("disk");
    let connection = Connection::open(&uri, PATIENCE, &ClientTls::by_uri()).unwrap();
    Image::remote(uri, Bytes(SIZE), 512, Some(connection)).unwrap()
}

/// A disk over servers that count, in units of a block.
fn striped() -> (Vec<Server>, Image) {
    let (id, lease) =
        (StripeId([1; 16]), Lease { number: 1, host: [2; 16], name: HostName::new("") });
    let layout = Stripes::new(Bytes(closed::BLOCK), MEMBERS, Bytes(SIZE)).unwrap();
    let mut servers = Vec::new();
    let member = |index| {
        let server = Server::start(layout.member_size().0.max(DATA_AT.0) as usize);
        let label = Label { id, index, layout, lease, stage: Stage::Made };
        server.state().counts = Some([1_000_000, 500_000]);
        server.state().content[..LABEL_LEN].copy_from_slice(&label.to_bytes());
        let uri = server.uri("disk");
        let tls = ClientTls::by_uri();
        let connection = Connection::open_member(&uri, PATIENCE, &tls, &label, None).unwrap();
        servers.push(server);
        StripeMember { uri, connection: Some(connection) }
    };
    let members = (0..MEMBERS).map(member).collect();
    let image = Image::striped(id, layout, lease, 512, members).unwrap();
    (servers, image)
}

#[test]
fn requests_over_the_network_take_nothing_from_the_heap() {
    let server = Server::start(SIZE as usize);
    let (_servers, over_three) = striped();
    let asked = [
        ("a server", asked(BackendSpec::Remote, remote(&server), SchedulerKind::MClock)),
        // Each has parts on two or three of the servers.
        (
            "three",
            asked_by(BackendSpec::Remote, over_three, SchedulerKind::MClock, 3 * closed::BLOCK),
        ),
    ];
    println!("how often in {COUNTED} requests: {asked:?}");
    assert!(asked.iter().all(|(_, asked)| *asked < COUNTED / 2_000), "{asked:?}");
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
