//! The NBD server as clients see it: real sockets, a real engine, and real clients where they are
//! installed.

use headgate_access::Access;
use headgate_engine::{
    BackendSpec, Caching, DatastoreId, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig, Image,
};
use headgate_frontends::nbd::Tag;
use headgate_frontends::nbd::server::{
    Attach, Caller, ListenError, NbdServer, Right, Rule, ServerConfig, attach_to, opened,
};
use headgate_nbd::server::Writes;
use headgate_nbd::server::negotiation::{Catalog, ExportName, OpenError, Opened};
use headgate_qos::{Policy, SchedulerKind};
use headgate_units::{Bytes, Iops};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);
const SIZE: u64 = 64 << 20;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISC: u16 = 2;
const FLUSH: u16 = 3;

struct Disks {
    engine: Engine,
    disks: Vec<(String, DiskId)>,
}

impl Catalog for Disks {
    type Handle = Attach;

    fn list(&self) -> Vec<ExportName> {
        let entry =
            |(name, _): &(String, _)| ExportName { name: name.clone(), description: String::new() };
        self.disks.iter().map(entry).collect()
    }

    fn open(&self, name: &str) -> Result<Opened<Attach>, OpenError> {
        let &(_, id) = self.disks.iter().find(|(n, _)| n == name).ok_or(OpenError::Unknown)?;
        let disk = self.engine.disk_info(id).map_err(|e| OpenError::Refused(e.to_string()))?;
        Ok(opened(disk, attach_to(&self.engine, id, Tag::none(), Writes::Allowed)))
    }
}

/// An engine with the disks `a` and `b`, and a server in front.
struct House {
    server: NbdServer,
    engine: Engine,
    disks: Vec<DiskId>,
    dir: TempDir,
}

impl House {
    fn new() -> House {
        House::with(ServerConfig::default())
    }

    fn with(config: ServerConfig) -> House {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::start(EngineConfig { shards: 1, ..EngineConfig::default() }).unwrap();
        let store = add_datastore(&engine);
        let disks: Vec<_> =
            ["a", "b"].map(|name| open_disk(&engine, store, dir.path(), name)).into();
        let named = ["a".to_string(), "b".to_string()].into_iter().zip(disks.clone()).collect();
        let exports = Arc::new(Disks { engine: engine.clone(), disks: named });
        let config = ServerConfig { unix: Some(dir.path().join("nbd.sock")), ..config };
        House { server: NbdServer::start(config, exports).unwrap(), engine, disks, dir }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("nbd.sock")
    }

    fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket().display())
    }

    fn connect(&self, export: &str) -> UnixStream {
        let mut stream = self.connect_raw();
        choose(&mut stream, export);
        stream
    }

    fn connect_raw(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

fn add_datastore(engine: &Engine) -> DatastoreId {
    let spec = DatastoreSpec {
        name: "store".into(),
        backend: BackendSpec::Files,
        layers: Vec::new(),
        scheduler: SchedulerKind::MClock,
        queue_depth: 32,
        qos: headgate_qos::Config::default(),
    };
    engine.add_datastore(spec).unwrap()
}

fn open_disk(engine: &Engine, store: DatastoreId, dir: &Path, name: &str) -> DiskId {
    let path = dir.join(name);
    Image::create(&path, Bytes(SIZE)).unwrap();
    let image = Image::open(&path, Caching::PreferDirect, PATIENCE).unwrap();
    engine
        .open_disk(store, DiskSpec { name: name.into(), image, policy: Policy::default() })
        .unwrap()
}

/// A client's flags and `NBD_OPT_EXPORT_NAME`.
fn export_name(export: &str) -> Vec<u8> {
    let mut hello = 3u32.to_be_bytes().to_vec();
    hello.extend(b"IHAVEOPT");
    hello.extend(1u32.to_be_bytes());
    hello.extend((export.len() as u32).to_be_bytes());
    hello.extend(export.as_bytes());
    hello
}

/// A reply to an option: its type and data.
fn option_reply(stream: &mut impl Read) -> (u32, Vec<u8>) {
    let mut head = [0; 20];
    stream.read_exact(&mut head).unwrap();
    let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    let mut data = vec![0; word(16) as usize];
    stream.read_exact(&mut data).unwrap();
    (word(12), data)
}

/// Negotiates with `NBD_OPT_EXPORT_NAME` and simple replies.
fn choose(stream: &mut (impl Read + Write), export: &str) {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    stream.write_all(&export_name(export)).unwrap();
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..8], SIZE.to_be_bytes());
}

fn request(kind: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// Reads a simple answer: its cookie and error.
fn answer(stream: &mut impl Read) -> (u64, u32) {
    let mut bytes = [0; 16];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes[..4], 0x6744_6698u32.to_be_bytes());
    let error = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
    (u64::from_be_bytes(bytes[8..].try_into().unwrap()), error)
}

/// Writes, flushes and reads back, on a connection in transmission.
fn round_trip(stream: &mut (impl Read + Write), fill: u8, len: u32) {
    stream.write_all(&request(WRITE, 1, 8192, len)).unwrap();
    stream.write_all(&vec![fill; len as usize]).unwrap();
    assert_eq!(answer(stream), (1, 0));
    stream.write_all(&request(FLUSH, 2, 0, 0)).unwrap();
    assert_eq!(answer(stream), (2, 0));
    stream.write_all(&request(READ, 3, 8192, len)).unwrap();
    assert_eq!(answer(stream), (3, 0));
    let mut data = vec![0; len as usize];
    stream.read_exact(&mut data).unwrap();
    assert!(data.iter().all(|&byte| byte == fill));
}

/// The server hung up.
fn is_closed(stream: &mut impl Read) -> bool {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(len) => len == 0,
        Err(e) => e.kind() == ErrorKind::ConnectionReset,
    }
}

/// Runs a client, or says that it is not installed.
fn client(program: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(output),
        Err(e) => {
            eprintln!("SKIPPED, cannot run {program}: {e}");
            None
        }
    }
}

fn succeeds(program: &str, arguments: &[&str]) -> Option<String> {
    let output = client(program, arguments)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {text}{errors}");
    Some(text)
}

#[test]
fn what_is_written_comes_back_over_unix_and_tcp() {
    let house = House::with(ServerConfig {
        tcp: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        ..ServerConfig::default()
    });
    let mut unix = house.connect("a");
    for (fill, len) in [(1, 4096), (2, 1 << 20), (3, 32 << 20)] {
        round_trip(&mut unix, fill, len);
    }
    let mut tcp = TcpStream::connect(house.server.tcp_address().unwrap()).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    choose(&mut tcp, "b");
    round_trip(&mut tcp, 4, 100 << 10);
    assert_eq!(house.server.connections(), 2);
}

/// A server in front of one RAM disk, under layers.
fn ram_disk(layers: &[&str]) -> (NbdServer, Engine, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::start(EngineConfig { shards: 1, ..EngineConfig::default() }).unwrap();
    let spec = DatastoreSpec {
        name: "ram".into(),
        backend: BackendSpec::Memory,
        layers: layers.iter().map(|text| text.parse().unwrap()).collect(),
        scheduler: SchedulerKind::MClock,
        queue_depth: 32,
        qos: headgate_qos::Config::default(),
    };
    let store = engine.add_datastore(spec).unwrap();
    let image = Image::memory(Bytes(SIZE)).unwrap();
    let disk = DiskSpec { name: "a".into(), image, policy: Policy::default() };
    let disk = engine.open_disk(store, disk).unwrap();
    let exports = Arc::new(Disks { engine: engine.clone(), disks: vec![("a".into(), disk)] });
    let unix = Some(dir.path().join("nbd.sock"));
    let server = NbdServer::start(ServerConfig { unix, ..ServerConfig::default() }, exports);
    (server.unwrap(), engine, dir)
}

#[test]
fn a_ram_disk_serves_clients_and_its_layers_fail_what_they_say() {
    let (server, engine, dir) = ram_disk(&["error=100%,on=flush,after=2,count=1"]);
    let mut stream = UnixStream::connect(dir.path().join("nbd.sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    choose(&mut stream, "a");
    // Short and long requests take different ways: copied, and spliced or received in place.
    round_trip(&mut stream, 0x5a, 4096);
    round_trip(&mut stream, 0xa5, 1 << 20);
    stream.write_all(&request(FLUSH, 7, 0, 0)).unwrap();
    const EIO: u32 = 5;
    assert_eq!(answer(&mut stream), (7, EIO));
    round_trip(&mut stream, 0x3c, 64 << 10);
    drop(stream);
    drop(server);
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn two_connections_see_each_others_flushed_writes() {
    let house = House::new();
    let (mut one, mut two) = (house.connect("a"), house.connect("a"));
    round_trip(&mut one, 9, 65536);
    two.write_all(&request(READ, 5, 8192, 65536)).unwrap();
    assert_eq!(answer(&mut two), (5, 0));
    let mut data = vec![0; 65536];
    two.read_exact(&mut data).unwrap();
    assert!(data.iter().all(|&byte| byte == 9));
}

#[test]
fn standard_clients_understand_the_server() {
    let house = House::new();
    let uri = house.uri("a");
    if let Some(list) = succeeds("nbdinfo", &["--list", "--json", &house.uri("")]) {
        assert!(
            list.contains("\"export-name\": \"a\"") && list.contains("\"export-name\": \"b\""),
            "{list}"
        );
        assert!(
            list.contains("\"can_multi_conn\": true") && list.contains("base:allocation"),
            "{list}"
        );
        assert!(list.contains("\"block_size_maximum\": 33554432"), "{list}");
    }
    if let Some(refused) = client("nbdinfo", &[&house.uri("nobody")]) {
        assert!(!refused.status.success());
    }
    let source = house.dir.path().join("source");
    let mut content = vec![0; SIZE as usize];
    for (i, byte) in content[3 << 20..5 << 20].iter_mut().enumerate() {
        *byte = (i / 7) as u8;
    }
    std::fs::write(&source, &content).unwrap();
    let source = source.to_str().unwrap();
    if succeeds("nbdcopy", &["--flush", source, &uri]).is_some() {
        succeeds("qemu-img", &["compare", "-f", "raw", "-F", "raw", source, &uri]);
        if let Some(map) = succeeds("nbdinfo", &["--map", &uri]) {
            assert!(map.contains("data") && map.contains("hole,zero"), "{map}");
        }
    }
    let to_b = house.uri("b");
    if succeeds("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", source, &to_b]).is_some() {
        succeeds("qemu-img", &["compare", "-f", "raw", "-F", "raw", source, &to_b]);
    }
    let script = ["write -f -P 7 64k 64k", "write -z -u 72k 4k", "discard 96k 8k", "flush"];
    let check = ["read -P 7 64k 8k", "read -P 0 72k 4k", "read -P 7 76k 20k"];
    let mut arguments = vec!["-f", "raw"];
    script.iter().chain(&check).for_each(|command| arguments.extend(["-c", command]));
    arguments.push(&uri);
    if let Some(said) = succeeds("qemu-io", &arguments) {
        assert!(!said.contains("failed"), "{said}");
    }
}

#[test]
fn fio_verifies_what_it_wrote_with_four_connections() {
    let house = House::new();
    let uri = format!("--uri={}", house.uri("a"));
    let arguments = [
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        "--rw=randrw",
        "--bsrange=512-128k",
        "--blockalign=512",
        "--iodepth=16",
        "--numjobs=4",
        "--size=8M",
        "--offset_increment=8M",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--do_verify=1",
        "--verify_state_save=0",
        "--randrepeat=0",
    ];
    succeeds("fio", &arguments);
}

#[test]
fn hostile_clients_hurt_only_themselves() {
    let house = House::new();
    let mut good = house.connect("a");
    // Asks for much, reads nothing.
    let mut deaf = house.connect("a");
    deaf.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let flood: Vec<u8> = (0..4000).flat_map(|i| request(READ, i, 0, 1 << 20)).collect();
    let sent = (0..100).take_while(|_| deaf.write_all(&flood).is_ok()).count();
    assert!(sent < 100, "a client that reads nothing can send without end");
    // Out of step, half a request, an announced payload that never comes, one that is too long.
    let mut wild = house.connect("a");
    wild.write_all(&[0xee; 1000]).unwrap();
    assert!(is_closed(&mut wild));
    let mut half = house.connect("a");
    half.write_all(&request(WRITE, 1, 0, 4096)[..20]).unwrap();
    let mut silent = house.connect("b");
    silent.write_all(&request(WRITE, 1, 0, 32 << 20)).unwrap();
    let mut huge = house.connect("b");
    huge.write_all(&request(WRITE, 1, 0, u32::MAX)).unwrap();
    assert!(is_closed(&mut huge));
    // Nothing and out of range are errors, and the connection goes on.
    let mut clumsy = house.connect("b");
    for (kind, offset, len, error) in [
        (READ, 1, 0, 22),
        (READ, SIZE - 511, 512, 22),
        (READ, SIZE, 512, 22),
        (READ, 0, 1 << 30, 22),
        (99, 0, 0, 22),
    ] {
        clumsy.write_all(&request(kind, 7, offset, len)).unwrap();
        assert_eq!(answer(&mut clumsy), (7, error), "{kind} {offset} {len}");
    }
    clumsy.write_all(&[request(WRITE, 8, SIZE - 512, 1024), vec![1; 1024]].concat()).unwrap();
    assert_eq!(answer(&mut clumsy), (8, 28));
    round_trip(&mut clumsy, 5, 4096);
    round_trip(&mut good, 6, 1 << 20);
    drop((deaf, half, silent));
    round_trip(&mut good, 7, 1 << 20);
}

/// Two clients that write single bytes into one block, over and over: none is lost.
#[test]
fn bytes_of_two_clients_in_one_block_are_both_kept() {
    let house = House::new();
    let clients: Vec<UnixStream> = (0..2).map(|_| house.connect("a")).collect();
    std::thread::scope(|scope| {
        for (number, mut client) in (0u64..).zip(clients) {
            scope.spawn(move || {
                for round in 0..300u64 {
                    let (at, byte) = (2 * (round % 100) + number, (round + number) as u8);
                    let write = [request(WRITE, round, at, 1), vec![byte]].concat();
                    client.write_all(&write).unwrap();
                    assert_eq!(answer(&mut client), (round, 0));
                    client.write_all(&request(READ, round, at, 1)).unwrap();
                    assert_eq!(answer(&mut client), (round, 0));
                    let mut read = [0];
                    client.read_exact(&mut read).unwrap();
                    assert_eq!(read, [byte], "client {number}, round {round}");
                }
            });
        }
    });
}

#[test]
fn closing_a_disk_answers_what_was_taken_and_hangs_up() {
    let house = House::new();
    let mut client = house.connect("a");
    round_trip(&mut client, 1, 4096);
    house.engine.close_disk(house.disks[0], PATIENCE).unwrap();
    assert!(is_closed(&mut client));
    // The export is gone, and the other one is not.
    let mut late = house.connect_raw();
    late.read_exact(&mut [0; 18]).unwrap();
    late.write_all(
        &[&3u32.to_be_bytes()[..], b"IHAVEOPT", &[0, 0, 0, 1, 0, 0, 0, 1], b"a"].concat(),
    )
    .unwrap();
    assert!(is_closed(&mut late));
    round_trip(&mut house.connect("b"), 2, 4096);
}

#[test]
fn writes_of_a_dead_client_never_land_on_those_of_its_successor() {
    let house = House::new();
    // One IO in 100 ms: a client that cannot send for 50 ms has filled everything on the way.
    let slow = Policy::default().with_limit(Some(Iops::new(10).unwrap())).unwrap();
    for round in 0..2 {
        house.engine.set_policy(house.disks[0], slow).unwrap();
        let mut client = house.connect("a");
        client.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        // More than the disk's queue, the port and the socket hold: the client dies with all of
        // them full.
        let burst: Vec<u8> = (0..1000)
            .flat_map(|i| [request(WRITE, i, 8192, 4096), vec![1; 4096]].concat())
            .collect();
        assert_eq!(client.write_all(&burst).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(client);
        let mut successor = house.connect("a");
        round_trip(&mut successor, 2 + round, 4096);
        // Whatever were left of the dead client would be written now.
        house.engine.set_policy(house.disks[0], Policy::default()).unwrap();
        for cookie in 0..200 {
            successor.write_all(&request(READ, cookie, 8192, 4096)).unwrap();
            assert_eq!(answer(&mut successor), (cookie, 0));
            let mut data = [0; 4096];
            successor.read_exact(&mut data).unwrap();
            assert_eq!(data, [2 + round; 4096]);
        }
    }
    house.engine.close_disk(house.disks[0], PATIENCE).unwrap();
}

#[test]
fn a_second_server_does_not_take_the_socket_and_a_dead_ones_is_replaced() {
    let house = House::new();
    let exports = Arc::new(Disks { engine: house.engine.clone(), disks: Vec::new() });
    let config = ServerConfig { unix: Some(house.socket()), ..ServerConfig::default() };
    let refused = NbdServer::start(config, exports.clone());
    assert!(matches!(refused, Err(ListenError::InUse { .. })), "{refused:?}");
    let stale = house.dir.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    let config = ServerConfig { unix: Some(stale.clone()), ..ServerConfig::default() };
    let server = NbdServer::start(config, exports).unwrap();
    UnixStream::connect(&stale).unwrap();
    drop(server);
    assert!(!stale.exists());
}

#[path = "nbd/contexts.rs"]
mod contexts;
#[path = "nbd/limits.rs"]
mod limits;
#[path = "nbd/tls.rs"]
mod tls;

/// Whether a client gets this export at a socket.
fn has(socket: &Path, export: &str) -> bool {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    stream.write_all(&export_name(export)).unwrap();
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).is_ok()
}

/// Whoever comes by the socket may use all of its exports.
fn anybody() -> Arc<Rule> {
    Arc::new(|_, _| Right::Write)
}

#[test]
fn a_client_whose_right_is_taken_away_is_disconnected() {
    let house = House::new();
    let path = house.dir.path().join("further.sock");
    let disks = vec![("a".to_owned(), house.disks[0]), ("b".to_owned(), house.disks[1])];
    let exports = Arc::new(Disks { engine: house.engine.clone(), disks });
    let forbidden = Arc::new(Mutex::new(String::new()));
    let rule: Arc<Rule> = {
        let forbidden = forbidden.clone();
        let me = std::process::id().cast_signed();
        Arc::new(move |disk, caller| match caller {
            Caller::Process(peer)
                if peer.process == Some(me) && *forbidden.lock().unwrap() != disk =>
            {
                Right::Write
            }
            _ => Right::None,
        })
    };
    house.server.open(&path, &Access::default(), exports, rule).unwrap();
    let [mut a, mut b] = ["a", "b"].map(|export| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        choose(&mut stream, export);
        stream
    });
    let mut elsewhere = house.connect("a");
    house.server.review();
    for stream in [&mut a, &mut b, &mut elsewhere] {
        round_trip(stream, 1, 4096);
    }
    *forbidden.lock().unwrap() = "a".into();
    house.server.review();
    assert!(is_closed(&mut a));
    for stream in [&mut b, &mut elsewhere] {
        round_trip(stream, 2, 4096);
    }
    assert!(has(&path, "b") && !has(&path, "a"), "nor does it come in again");
}

#[test]
fn a_further_socket_has_exports_of_its_own_and_can_be_closed() {
    let house = House::new();
    let path = house.dir.path().join("further.sock");
    let one = |disk: usize, name: &str| {
        let disks = vec![(name.to_owned(), house.disks[disk])];
        Arc::new(Disks { engine: house.engine.clone(), disks })
    };
    house.server.open(&path, &Access::default(), one(1, "b"), anybody()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(has(&path, "b") && !has(&path, "a"));
    assert!(has(&house.socket(), "a") && has(&house.socket(), "b"));
    house.server.close(&path);
    assert!(!path.exists());
    assert!(has(&house.socket(), "b"), "the others go on");
    house.server.open(&path, &Access::default(), one(0, "a"), anybody()).unwrap();
    assert!(has(&path, "a") && !has(&path, "b"));
}
