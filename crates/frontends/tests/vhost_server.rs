//! vhost-user-blk from the socket to the file and back, in one process.

mod guest;

use guest::{Answer, Data, Guest};
use headgate_access::Access;
use headgate_devices::{LayerSpec, ModelSpec};
use headgate_engine::port::Detach;
use headgate_engine::request::Writes;
use headgate_engine::{
    BackendSpec, Caching, CutOff, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig,
    HoldWrites, Image, TroublePolicy,
};
use headgate_frontends::vhost::reactor::Reactor;
use headgate_frontends::vhost::server::{ServerError, VhostServer};
use headgate_qos::{Policy, SchedulerKind};
use headgate_units::{Bytes, Iops};
use headgate_vring::blk::{RangeHeader, RequestType};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;
use vhost::VhostBackend;
use vhost::vhost_user::message::VhostUserConfigFlags;
use vhost::vhost_user::{Frontend, VhostUserFrontend};

const PATIENCE: Duration = Duration::from_secs(20);
const DISK: u64 = 16 << 20;

struct Host {
    engine: Engine,
    disk: DiskId,
    socket: PathBuf,
    dir: tempfile::TempDir,
}

impl Host {
    fn new(backend: BackendSpec) -> Host {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.raw");
        Image::create(&path, Bytes(DISK)).unwrap();
        let socket = dir.path().join("disk.sock");
        let (engine, disk) = Host::open(&path, backend);
        Host { engine, disk, socket, dir }
    }

    fn open(path: &std::path::Path, backend: BackendSpec) -> (Engine, DiskId) {
        let engine = Engine::start(EngineConfig::default()).unwrap();
        let store = engine
            .add_datastore(DatastoreSpec {
                name: "ds".into(),
                backend,
                layers: Vec::new(),
                scheduler: SchedulerKind::MClock,
                queue_depth: 32,
                qos: Default::default(),
            })
            .unwrap();
        let image = Image::open(path, Caching::Direct, PATIENCE).unwrap();
        let spec = DiskSpec { name: "vm1-root".into(), image, policy: Policy::default() };
        let disk = engine.open_disk(store, spec).unwrap();
        (engine, disk)
    }

    fn serve(&self) -> VhostServer {
        VhostServer::start(
            &self.socket,
            &Access::default(),
            self.engine.clone(),
            self.disk,
            Default::default(),
            &Reactor::start().unwrap(),
        )
        .unwrap()
    }

    /// Layers of the datastore in words, such as `error=100%`.
    fn set_layers(&self, layers: &[&str]) {
        let layers: Vec<LayerSpec> = layers.iter().map(|text| text.parse().unwrap()).collect();
        let (store, _) = self.engine.snapshot().unwrap().remove(0);
        self.engine.set_layers(store, &layers).unwrap();
    }

    /// How often the disk has held requests that its storage failed.
    fn holds(&self) -> u64 {
        self.engine.snapshot().unwrap().remove(0).1.disks[0].trouble.holds
    }

    fn content(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join("disk.raw")).unwrap()
    }
}

fn ok(data: Vec<u8>) -> Answer {
    Answer { status: 0, data }
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

#[test]
fn what_is_written_is_read_back_and_lies_in_the_file() {
    let host = Host::new(BackendSpec::Files);
    let _server = host.serve();
    let mut guest = Guest::new(4);
    let _frontend = guest.connect(&host.socket);
    for (q, len) in [(0, 512), (1, 4096), (2, 32768), (3, 1536)] {
        let data = pattern(q as u8, len);
        let sector = 100 * q as u64 + 3;
        assert_eq!(guest.run(q, RequestType::Out, sector, Data::Out(data.clone())), ok(vec![]));
        assert_eq!(guest.run(q, RequestType::Flush, 0, Data::None), ok(vec![]));
        assert_eq!(guest.run(q, RequestType::In, sector, Data::In(len as u32)), ok(data.clone()));
        let at = sector as usize * 512;
        assert_eq!(host.content()[at..at + len], data, "queue {q}");
    }
}

#[test]
fn what_the_storage_fails_is_failed_to_the_guest() {
    let host = Host::new(BackendSpec::Files);
    let _server = host.serve();
    let mut guest = Guest::new(1);
    let _frontend = guest.connect(&host.socket);
    for errno in ["EIO", "ENOSPC"] {
        host.set_layers(&[&format!("error=100%,errno={errno}")]);
        for (kind, data) in [
            (RequestType::Out, Data::Out(pattern(1, 4096))),
            (RequestType::In, Data::In(4096)),
            (RequestType::Flush, Data::None),
        ] {
            assert_eq!(guest.run(0, kind, 0, data).status, 1, "{kind:?}, {errno}");
        }
    }
    host.set_layers(&[]);
    assert_eq!(guest.run(0, RequestType::In, 0, Data::In(512)), ok(vec![0; 512]));
}

/// A disk that holds what its storage fails holds no write through, whose error may be that of a
/// flush: so it is seen that a driver that cannot flush has all its writes written through.
#[test]
fn a_driver_that_cannot_flush_has_its_writes_written_through() {
    const VIRTIO_BLK_F_FLUSH: u64 = 1 << 9;
    let host = Host::new(BackendSpec::Files);
    let _server = host.serve();
    let hold = TroublePolicy { writes: HoldWrites::Always, ..TroublePolicy::default() };
    host.engine.set_trouble(host.disk, hold).unwrap();
    for (without, held) in [(VIRTIO_BLK_F_FLUSH, 0), (0, 1)] {
        let mut guest = Guest::new(1);
        let _frontend = guest.connect_without(&host.socket, without);
        host.set_layers(&["error=100%,on=write,count=1"]);
        let before = host.holds();
        let answer = guest.run(0, RequestType::Out, 8, Data::Out(pattern(2, 4096)));
        assert_eq!(
            (u64::from(answer.status), host.holds() - before),
            (1 - held, held),
            "{without:#x}"
        );
    }
}

#[test]
fn discard_and_write_zeroes_leave_zeroes_and_nothing_else() {
    let host = Host::new(BackendSpec::Files);
    let _server = host.serve();
    let mut guest = Guest::new(1);
    let _frontend = guest.connect(&host.socket);
    let range = |sector, sectors, flags| {
        Data::Out(RangeHeader { sector, sectors, flags }.to_bytes().to_vec())
    };
    for (kind, flags) in
        [(RequestType::Discard, 0), (RequestType::WriteZeroes, 0), (RequestType::WriteZeroes, 1)]
    {
        assert_eq!(guest.run(0, RequestType::Out, 0, Data::Out(pattern(1, 32768))), ok(vec![]));
        assert_eq!(guest.run(0, kind, 0, range(8, 16, flags)), ok(vec![]));
        let mut expected = pattern(1, 32768);
        expected[4096..12288].fill(0);
        assert_eq!(guest.run(0, RequestType::In, 0, Data::In(32768)), ok(expected));
    }
    let end = DISK / 512;
    for (kind, range) in [
        (RequestType::Discard, range(end, 1, 0)),
        (RequestType::Discard, range(0, u32::MAX, 0)),
        (RequestType::WriteZeroes, range(end - 8, 9, 0)),
    ] {
        assert_eq!(guest.run(0, kind, 0, range).status, 1);
    }
}

#[test]
fn requests_outside_the_disk_fail_alone() {
    let host = Host::new(BackendSpec::Files);
    let _server = host.serve();
    let mut guest = Guest::new(1);
    let _frontend = guest.connect(&host.socket);
    for sector in [DISK / 512, DISK / 512 - 7, u64::MAX / 512, u64::MAX] {
        assert_eq!(guest.run(0, RequestType::In, sector, Data::In(4096)).status, 1, "{sector}");
        assert_eq!(
            guest.run(0, RequestType::Out, sector, Data::Out(vec![1; 4096])).status,
            1,
            "{sector}"
        );
    }
    assert_eq!(guest.run(0, RequestType::In, DISK / 512 - 8, Data::In(4096)).status, 0);
}

#[test]
fn name_and_configuration_are_the_disks() {
    let host = Host::new(BackendSpec::Files);
    let _server = host.serve();
    let mut guest = Guest::new(1);
    let mut frontend = guest.connect(&host.socket);
    let answer = guest.run(0, RequestType::GetId, 0, Data::In(20));
    assert_eq!(answer.data, b"vm1-root\0\0\0\0\0\0\0\0\0\0\0\0");
    let (_, config) = frontend.get_config(0, 60, VhostUserConfigFlags::empty(), &[0; 60]).unwrap();
    assert_eq!(u64::from_le_bytes(config[..8].try_into().unwrap()), DISK / 512);
    assert!(frontend.set_config(32, VhostUserConfigFlags::WRITABLE, &[0]).is_err());
}

#[test]
fn a_read_only_disk_says_so_and_is_not_written_whoever_asks() {
    const VIRTIO_BLK_F_RO: u64 = 1 << 5;
    let host = Host::new(BackendSpec::Files);
    let _server = host.serve();
    let mut guest = Guest::new(1);
    {
        let frontend = guest.connect(&host.socket);
        assert_eq!(frontend.get_features().unwrap() & VIRTIO_BLK_F_RO, 0);
        assert_eq!(guest.run(0, RequestType::Out, 8, Data::Out(pattern(3, 4096))), ok(vec![]));
        let error = host.engine.set_writes(host.disk, Writes::Refused).unwrap_err();
        assert!(error.to_string().contains("1 clients"), "{error}");
    }
    let refused = |writes| {
        let until = std::time::Instant::now() + PATIENCE;
        while host.engine.set_writes(host.disk, writes).is_err() {
            assert!(std::time::Instant::now() < until, "the client stays");
            std::thread::yield_now();
        }
    };
    refused(Writes::Refused);
    for without in [0, VIRTIO_BLK_F_RO] {
        let mut guest = Guest::new(1);
        let frontend = guest.connect_without(&host.socket, without);
        assert_ne!(frontend.get_features().unwrap() & VIRTIO_BLK_F_RO, 0);
        let before = host.content();
        let range = || {
            let range = RangeHeader { sector: 8, sectors: 8, flags: 0 };
            Data::Out(range.to_bytes().to_vec())
        };
        for (kind, data) in [
            (RequestType::Out, Data::Out(vec![9; 4096])),
            (RequestType::Discard, range()),
            (RequestType::WriteZeroes, range()),
        ] {
            assert_eq!(guest.run(0, kind, 8, data).status, 1, "{kind:?}");
        }
        assert_eq!(guest.run(0, RequestType::Flush, 0, Data::None), ok(vec![]));
        assert_eq!(guest.run(0, RequestType::In, 8, Data::In(4096)), ok(pattern(3, 4096)));
        assert!(host.content() == before, "something was written");
    }
    refused(Writes::Allowed);
    let mut guest = Guest::new(1);
    let _frontend = guest.connect(&host.socket);
    assert_eq!(guest.run(0, RequestType::Out, 8, Data::Out(pattern(4, 4096))), ok(vec![]));
}

fn capacity(frontend: &mut Frontend) -> u64 {
    let asked = frontend.get_config(0, 60, VhostUserConfigFlags::empty(), &[0; 60]);
    u64::from_le_bytes(asked.unwrap().1[..8].try_into().unwrap()) * 512
}

/// Whether a front-end is told that its configuration space has changed, by now.
fn is_told(channel: &mut UnixStream) -> bool {
    let mut message = [0; 12];
    match channel.read(&mut message) {
        Ok(12) => assert_eq!(message, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        Ok(len) => panic!("{len} bytes: {message:?}"),
        Err(e) => {
            assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock);
            return false;
        }
    }
    true
}

#[test]
fn a_front_end_is_told_of_another_size_once() {
    let host = Host::new(BackendSpec::Files);
    let _server = host.serve();
    let grow = |size| host.engine.resize_disk(host.disk, Bytes(size), CutOff::Keep).unwrap();
    let mut guest = Guest::new(1);
    let mut frontend = guest.connect(&host.socket);
    // Without a socket for that there is nothing to be told on, and all goes on.
    grow(DISK + 4096);
    assert_eq!(capacity(&mut frontend), DISK + 4096);
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    frontend.set_backend_request_fd(&theirs).unwrap();
    drop(theirs);
    assert!(!is_told(&mut ours), "nothing has changed");
    let beyond = (DISK + 4096) / 512;
    assert_eq!(guest.run(0, RequestType::Out, beyond, Data::Out(vec![1; 512])).status, 1);
    grow(2 * DISK);
    assert!(is_told(&mut ours));
    assert!(!is_told(&mut ours), "once is enough");
    assert_eq!(capacity(&mut frontend), 2 * DISK);
    assert_eq!(guest.run(0, RequestType::Out, beyond, Data::Out(vec![1; 512])), ok(vec![]));
    // One that did not look is told again when a ring starts: it hears nothing while none runs.
    grow(3 * DISK);
    assert!(is_told(&mut ours));
    let base = frontend.get_vring_base(0).unwrap();
    guest.start(&mut frontend, 0, base as u16);
    assert!(is_told(&mut ours));
    assert_eq!(capacity(&mut frontend), 3 * DISK);
    let base = frontend.get_vring_base(0).unwrap();
    guest.start(&mut frontend, 0, base as u16);
    assert!(!is_told(&mut ours), "it has looked");
}

/// The socket of a front-end, to read and write what the front-end itself would not.
fn socket_of(frontend: &Frontend) -> UnixStream {
    // SAFETY: a descriptor of the test's own, from one that is open.
    unsafe { UnixStream::from_raw_fd(libc::dup(frontend.as_raw_fd())) }
}

#[test]
fn a_socket_for_changes_that_nobody_reads_keeps_nobody() {
    let host = Host::new(BackendSpec::Files);
    let _server = host.serve();
    let mut guest = Guest::new(1);
    let mut frontend = guest.connect(&host.socket);
    let (ours, theirs) = UnixStream::pair().unwrap();
    // What is set on a shared socket counts for both sides of it.
    theirs.set_nonblocking(false).unwrap();
    frontend.set_backend_request_fd(&theirs).unwrap();
    capacity(&mut frontend);
    let mut size = DISK;
    // More than a socket holds.
    for _ in 0..2_000 {
        size += 4096;
        host.engine.resize_disk(host.disk, Bytes(size), CutOff::Keep).unwrap();
    }
    assert_eq!(guest.run(0, RequestType::In, 0, Data::In(512)), ok(vec![0; 512]));
    drop((ours, theirs));
    host.engine.resize_disk(host.disk, Bytes(size + 4096), CutOff::Keep).unwrap();
    assert_eq!(capacity(&mut frontend), size + 4096, "a socket without another side is no harm");
    // What is no socket ends the connection, and no other.
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(frontend.set_backend_request_fd(&file).is_err());
    // The answer comes before the end; a front-end beside one that is connected is refused.
    let mut ending = socket_of(&frontend);
    ending.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(ending.read(&mut [0]).unwrap(), 0, "the connection ends");
    let mut guest = Guest::new(1);
    let mut frontend = guest.connect(&host.socket);
    assert_eq!(capacity(&mut frontend), size + 4096);
}

#[test]
fn a_stopped_ring_is_drained_and_goes_on_where_it_was() {
    let model: ModelSpec = "rate=200".parse().unwrap();
    let host = Host::new(BackendSpec::Emulated(model, Bytes(DISK)));
    let _server = host.serve();
    let mut guest = Guest::new(2);
    let mut frontend = guest.connect(&host.socket);
    for i in 0..8 {
        guest.offer(0, RequestType::Out, 8 * i, Data::Out(pattern(i as u8, 4096)));
    }
    // Every request that was taken is back before the answer.
    let base = frontend.get_vring_base(0).unwrap();
    let mut back = 0;
    while guest.poll(0).is_some() {
        back += 1;
    }
    assert_eq!(back, base);
    guest.start(&mut frontend, 0, base as u16);
    for _ in back..8 {
        guest.wait(0);
    }
    assert_eq!(guest.run(0, RequestType::In, 8, Data::In(4096)), ok(pattern(1, 4096)));
}

#[test]
fn a_killed_connection_loses_nothing_when_the_front_end_returns() {
    let model: ModelSpec = "rate=400".parse().unwrap();
    let host = Host::new(BackendSpec::Emulated(model, Bytes(DISK)));
    let server = host.serve();
    let mut guest = Guest::new(2);
    let mut newest = [0u8; 15];
    for round in 1..=6u8 {
        let frontend = guest.connect(&host.socket);
        for q in 0..2usize {
            for i in 0..7u64 {
                let block = q as u64 * 7 + i;
                newest[block as usize] = round;
                guest.offer(q, RequestType::Out, 8 * block, Data::Out(pattern(round, 4096)));
            }
        }
        // Some come back, the others are in flight or in the ring when the connection dies.
        let (_, answer) = guest.wait(usize::from(round % 2));
        assert_eq!(answer.status, 0);
        drop(frontend);
        let _frontend = guest.connect(&host.socket);
        for q in 0..2 {
            while guest.queues[q].driver.in_flight() > 0 {
                assert_eq!(guest.wait(q).1.status, 0);
            }
        }
    }
    let _frontend = guest.connect(&host.socket);
    for block in 0..14u64 {
        let expected = pattern(newest[block as usize], 4096);
        assert_eq!(
            guest.run(0, RequestType::In, 8 * block, Data::In(4096)),
            ok(expected),
            "block {block}"
        );
    }
    drop(server);
}

#[test]
fn a_second_front_end_is_refused_and_the_first_undisturbed() {
    let host = Host::new(BackendSpec::Files);
    let mut server = host.serve();
    let mut guest = Guest::new(1);
    let frontend = guest.connect(&host.socket);
    for _ in 0..3 {
        let mut second = UnixStream::connect(&host.socket).unwrap();
        second.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(second.read(&mut [0; 1]).unwrap(), 0, "closed at once");
    }
    assert!(server.is_connected());
    assert_eq!(guest.run(0, RequestType::Out, 0, Data::Out(vec![1; 512])), ok(vec![]));
    drop(frontend);
    let _frontend = guest.connect(&host.socket);
    assert_eq!(guest.run(0, RequestType::In, 0, Data::In(512)), ok(vec![1; 512]));
    assert!(matches!(
        VhostServer::start(
            &host.socket,
            &Access::default(),
            host.engine.clone(),
            host.disk,
            Default::default(),
            &Reactor::start().unwrap()
        ),
        Err(ServerError::InUse(_))
    ));
    server.stop_listening();
    assert!(!host.socket.exists());
}

#[test]
fn a_server_stops_listening_whoever_is_coming_in() {
    let host = Host::new(BackendSpec::Files);
    for round in 0..300 {
        let mut server = host.serve();
        let path = host.socket.clone();
        let coming = std::thread::spawn(move || {
            // Until nobody listens any more.
            while UnixStream::connect(&path).is_ok() {}
        });
        let (end, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            server.stop_listening();
            let _ = end.send(server);
        });
        let stopped = ended.recv_timeout(PATIENCE);
        assert!(stopped.is_ok(), "round {round}: it goes on listening");
        coming.join().unwrap();
    }
}

#[test]
fn garbage_and_half_messages_end_their_connection_only() {
    let host = Host::new(BackendSpec::Files);
    let _server = host.serve();
    for bytes in [
        &[0u8; 12][..],
        &[0xff; 64],
        b"GET / HTTP/1.1\r\n\r\n",
        &[1, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255],
    ] {
        let mut stream = UnixStream::connect(&host.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        let mut sink = Vec::new();
        // A reset is as good: it had sent more than was read.
        let _ = stream.read_to_end(&mut sink);
    }
    // Half a message, then silence, then gone.
    let mut half = UnixStream::connect(&host.socket).unwrap();
    half.write_all(&[1, 0, 0, 0, 1]).unwrap();
    drop(half);
    let mut guest = Guest::new(1);
    let _frontend = guest.connect(&host.socket);
    assert_eq!(guest.run(0, RequestType::In, 0, Data::In(512)), ok(vec![0; 512]));
}

#[test]
fn memory_may_come_and_go_under_running_queues() {
    let host = Host::new(BackendSpec::Files);
    let _server = host.serve();
    let mut guest = Guest::new(1);
    let mut frontend = guest.connect(&host.socket);
    assert!(frontend.get_max_mem_slots().unwrap() >= 32);
    let other = Guest::new(0);
    let mut plugged = other.region();
    plugged.guest_phys_addr = 0x8_0000_0000;
    for i in 0..3u8 {
        guest.offer(0, RequestType::Out, 0, Data::Out(vec![i; 4096]));
        frontend.add_mem_region(&plugged).unwrap();
        assert_eq!(guest.wait(0).1.status, 0);
        frontend.remove_mem_region(&plugged).unwrap();
        assert_eq!(guest.run(0, RequestType::In, 0, Data::In(4096)), ok(vec![i; 4096]));
    }
    assert!(frontend.remove_mem_region(&plugged).is_err(), "it is gone already");
}

#[test]
fn stopping_the_server_drains_what_was_taken() {
    let model: ModelSpec = "rate=200".parse().unwrap();
    let host = Host::new(BackendSpec::Emulated(model, Bytes(DISK)));
    let server = host.serve();
    let mut guest = Guest::new(1);
    let _frontend = guest.connect(&host.socket);
    assert_eq!(guest.run(0, RequestType::Flush, 0, Data::None), ok(vec![]));
    for i in 0..8 {
        guest.offer(0, RequestType::Out, 8 * i, Data::Out(pattern(i as u8, 4096)));
    }
    assert!(server.stop(Detach::Drain, PATIENCE));
    host.engine.close_disk(host.disk, PATIENCE).unwrap();
    // A new process, the same front-end: what was not taken, or not answered, is served now.
    let (engine, disk) = Host::open(&host.dir.path().join("disk.raw"), BackendSpec::Files);
    let reactor = Reactor::start().unwrap();
    let _server = VhostServer::start(
        &host.socket,
        &Access::default(),
        engine,
        disk,
        Default::default(),
        &reactor,
    )
    .unwrap();
    let _frontend = guest.connect(&host.socket);
    while guest.queues[0].driver.in_flight() > 0 {
        assert_eq!(guest.wait(0).1.status, 0);
    }
    for i in 0..8u64 {
        assert_eq!(
            guest.run(0, RequestType::In, 8 * i, Data::In(4096)),
            ok(pattern(i as u8, 4096))
        );
    }
}

/// The stop waits for the disk's limit; nobody else does, and the front-end only as long as it is
/// there.
#[test]
fn a_front_end_that_dies_while_its_ring_stops_makes_room_for_the_next() {
    let host = Host::new(BackendSpec::Null);
    let server = host.serve();
    let slow = Policy::default().with_limit(Some(Iops::new(1).unwrap())).unwrap();
    host.engine.set_policy(host.disk, slow).unwrap();
    let mut guest = Guest::new(1);
    let frontend = guest.connect(&host.socket);
    let reads: Vec<_> =
        (0..14).map(|n| guest.offer(0, RequestType::In, n * 8, Data::In(4096))).collect();
    // It is answered at once, so that nothing that was taken before it can be put back.
    let name = guest.offer(0, RequestType::GetId, 0, Data::In(20));
    let mut answered = 0;
    while guest.wait(0).0 != name {
        answered += 1;
    }
    let mut socket = socket_of(&frontend);
    // VHOST_USER_GET_VRING_BASE, version 1, of queue 0: eight bytes. Nobody reads the answer.
    let message = [11u32, 1, 8, 0, 0].map(u32::to_ne_bytes).concat();
    socket.write_all(&message).unwrap();
    drop((frontend, socket));
    let _frontend = guest.connect(&host.socket);
    host.engine.set_policy(host.disk, Policy::default()).unwrap();
    for _ in answered..reads.len() {
        assert_eq!(guest.wait(0).1.status, 0, "replayed");
    }
    assert_eq!(guest.run(0, RequestType::In, 0, Data::In(512)).status, 0);
    drop(server);
}
