//! A front-end that sends what it likes: messages of any type, length and content, with
//! descriptors of any kind, over guest memory that it fills, shortens and takes away. The server is
//! the daemon's own, with a shard behind it.
//!
//! Whatever comes: no thread panics, the other disk of the shard answers, and when the front-end is
//! gone nothing of what it handed over is kept.

mod front_end;
mod messages;

use arbitrary::{Result, Unstructured};
use front_end::FrontEnd;
use headgate_access::Access;
use headgate_engine::{BackendSpec, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig, Image};
use headgate_frontends::vhost::reactor::Reactor;
use headgate_frontends::vhost::server::VhostServer;
use headgate_qos::{Policy, SchedulerKind};
use headgate_units::Bytes;
use messages::{Message, anything, good, negotiation};
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// For what the server does when a front-end has gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two disks of one shard, each with a server.
struct Bench {
    fuzzed: PathBuf,
    other: PathBuf,
    inputs: u64,
    _servers: [VhostServer; 2],
    _engine: Engine,
    _dir: tempfile::TempDir,
}

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

impl Bench {
    fn new() -> Bench {
        let dir = super::scratch();
        let config = EngineConfig { shards: 1, ..EngineConfig::default() };
        let engine = Engine::start(config).expect("a shard");
        let datastore = DatastoreSpec {
            name: "memory".into(),
            backend: BackendSpec::Memory,
            layers: Vec::new(),
            scheduler: SchedulerKind::MClock,
            queue_depth: 32,
            qos: Default::default(),
        };
        let store = engine.add_datastore(datastore).expect("a datastore");
        let open = |name: &str| -> DiskId {
            let image = Image::memory(Bytes(1 << 20)).expect("memory");
            let spec = DiskSpec { name: name.into(), image, policy: Policy::default() };
            engine.open_disk(store, spec).expect("a disk")
        };
        let sockets = ["fuzzed", "other"].map(|name| dir.path().join(name));
        let reactor = Reactor::start().expect("a thread");
        let servers = [0, 1].map(|at: usize| {
            let disk = open(["fuzzed", "other"][at]);
            VhostServer::start(
                &sockets[at],
                &Access::default(),
                engine.clone(),
                disk,
                Default::default(),
                &reactor,
            )
            .expect("a socket")
        });
        let [fuzzed, other] = sockets;
        Bench { fuzzed, other, inputs: 0, _servers: servers, _engine: engine, _dir: dir }
    }

    /// The shard takes a front-end of the other disk and answers it.
    fn other_is_served(&self) {
        let front_end = FrontEnd::connect(&self.other);
        front_end.send(&Message::of(messages::GET_FEATURES, &[]));
        front_end.wait_for_reply(PATIENCE);
    }
}

/// Descriptors that this process has open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("there is /proc").count()
}

fn wait_until_gone(before: usize) {
    let until = Instant::now() + PATIENCE;
    while descriptors() > before {
        assert!(Instant::now() < until, "descriptors of a front-end are kept after it has gone");
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn step(u: &mut Unstructured<'_>, front_end: &FrontEnd) -> Result<()> {
    match u.int_in_range(0..=15u8)? {
        0..=4 => {
            let message = good(u)?;
            front_end.send(&message);
        }
        5..=7 => {
            let mut message = good(u)?;
            message.spoil(u)?;
            front_end.send(&message);
        }
        8 => front_end.send(&anything(u)?),
        9..=11 => front_end.offer(u)?,
        12 => {
            let at = u.int_in_range(0..=front_end::MEMORY)?;
            let len = u.int_in_range(1..=16usize)?;
            front_end.write(at, u.bytes(len)?);
        }
        13 => front_end.drain(),
        14 if u.ratio(1, 8)? => front_end.shorten(u.int_in_range(0..=front_end::MEMORY)?),
        14 => front_end.meddle(u)?,
        _ => front_end.kick(u.arbitrary()?),
    }
    Ok(())
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    // Any bytes lead somewhere; every other one begins with a ring that runs.
    let bytes = |n: u8| (0..160u8).map(move |at| at.wrapping_mul(n | 1).wrapping_add(n / 2));
    (0..40u8).map(|n| std::iter::once(n).chain(bytes(n)).collect()).collect()
}

pub(super) fn run(input: &[u8]) {
    let Some((&how, rest)) = input.split_first() else { return };
    BENCH.with_borrow_mut(|bench| {
        let bench = bench.get_or_insert_with(Bench::new);
        let before = descriptors();
        let front_end = FrontEnd::connect(&bench.fuzzed);
        if how % 2 == 0 {
            negotiation().iter().for_each(|message| front_end.send(message));
        }
        let mut u = Unstructured::new(rest);
        // Running out of input ends it like any other step.
        while !u.is_empty() && step(&mut u, &front_end).is_ok() {}
        drop(front_end);
        wait_until_gone(before);
        bench.inputs += 1;
        if bench.inputs % 16 == 0 {
            bench.other_is_served();
            wait_until_gone(before);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise nothing behind the first messages would be reached.
    #[test]
    fn good_messages_lead_to_a_ring_that_serves() {
        let bench = Bench::new();
        let front_end = FrontEnd::connect(&bench.fuzzed);
        negotiation().iter().for_each(|message| front_end.send(message));
        front_end.offer_read();
        front_end.kick(0);
        let until = Instant::now() + PATIENCE;
        while front_end.used_index(0) == 0 {
            assert!(Instant::now() < until, "the request never came back");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
