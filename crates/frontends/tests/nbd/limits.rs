//! What clients may hold, and that a neighbour is served whatever they hold.

use super::*;
use headgate_frontends::nbd::ConnectionLimits;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;
use std::time::Instant;

#[test]
fn a_client_that_stalls_in_negotiation_is_dropped() {
    let house = House::with(ServerConfig {
        negotiation_time: Duration::from_millis(200),
        max_negotiating: 2,
        ..ServerConfig::default()
    });
    let mut stalling: Vec<_> = (0..4).map(|_| house.connect_raw()).collect();
    let mut greeting = [0; 18];
    stalling.iter_mut().for_each(|s| s.read_exact(&mut greeting).unwrap());
    // Two say nothing, two stop in the middle.
    stalling[..2].iter_mut().for_each(|s| s.write_all(&[0, 0]).unwrap());
    assert!(stalling.iter_mut().all(is_closed), "time is up");
    round_trip(&mut house.connect("a"), 1, 4096);
}

#[test]
fn clients_that_stall_keep_nobody_out() {
    let config = ServerConfig { max_negotiating: 2, max_silent: 2, ..ServerConfig::default() };
    let house = House::with(config);
    let mut stalling: Vec<_> = (0..40).map(|_| house.connect_raw()).collect();
    let mut greeting = [0; 18];
    for stalled in &mut stalling[..20] {
        // Sent away, if others have come since.
        let _ = stalled.read_exact(&mut greeting).and_then(|()| stalled.write_all(&[0, 0]));
    }
    round_trip(&mut house.connect("a"), 1, 4096);
    let (last, first) = stalling.split_last_mut().unwrap();
    last.read_exact(&mut greeting).unwrap();
    // All but the two that came last had to leave.
    for old in &mut first[20..38] {
        let _ = old.read_exact(&mut greeting);
        assert!(is_closed(old));
    }
}

/// Disks of which "a" is never found: whoever asks for it waits until the test ends.
struct Stuck(Disks, Mutex<Receiver<()>>);

impl Catalog for Stuck {
    type Handle = Attach;

    fn list(&self) -> Vec<ExportName> {
        self.0.list()
    }

    fn open(&self, name: &str) -> Result<Opened<Attach>, OpenError> {
        if name == "a" {
            let _ = self.1.lock().unwrap().recv();
        }
        self.0.open(name)
    }
}

#[test]
fn handshakes_that_wait_for_a_disk_keep_nobody_out() {
    let house = House::new();
    let (release, wait) = std::sync::mpsc::channel();
    let disks = vec![("a".to_owned(), house.disks[0]), ("b".to_owned(), house.disks[1])];
    let stuck = Stuck(Disks { engine: house.engine.clone(), disks }, Mutex::new(wait));
    let socket = house.dir.path().join("stuck.sock");
    let config =
        ServerConfig { unix: Some(socket.clone()), max_negotiating: 2, ..ServerConfig::default() };
    let server = NbdServer::start(config, Arc::new(stuck)).unwrap();
    let connect = || {
        let stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let mut waiting: Vec<_> = (0..2).map(|_| connect()).collect();
    for stream in &mut waiting {
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(&export_name("a")).unwrap();
    }
    let mut good = connect();
    choose(&mut good, "b");
    round_trip(&mut good, 1, 4096);
    drop((release, waiting, server));
}

#[test]
fn connections_are_bounded_and_places_come_back() {
    let connections = ConnectionLimits { per_disk: 1, ..ConnectionLimits::default() };
    let house = House::with(ServerConfig { connections, ..ServerConfig::default() });
    let mut first = house.connect("a");
    round_trip(&mut first, 1, 4096);
    // The old option has no error: the server hangs up instead of saying yes.
    let mut second = house.connect_raw();
    second.read_exact(&mut [0; 18]).unwrap();
    second.write_all(&export_name("a")).unwrap();
    assert!(is_closed(&mut second));
    assert_eq!((house.server.usage().connections, house.server.usage().refused), (1, 1));
    first.write_all(&request(DISC, 0, 0, 0)).unwrap();
    // The server closes the socket when the port is gone, and its place with it.
    assert!(is_closed(&mut first));
    round_trip(&mut house.connect("a"), 2, 4096);
}

#[test]
fn a_refused_client_is_told_why_before_anything_else_and_may_choose_another_disk() {
    let connections = ConnectionLimits { total: 2, ..ConnectionLimits::default() };
    let house = House::with(ServerConfig { connections, ..ServerConfig::default() });
    let _held = [house.connect("a"), house.connect("a")];
    let mut third = house.connect_raw();
    third.read_exact(&mut [0; 18]).unwrap();
    let go = |name: &str| {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend([0, 0]);
        [&b"IHAVEOPT"[..], &7u32.to_be_bytes(), &(data.len() as u32).to_be_bytes(), &data].concat()
    };
    third.write_all(&[&3u32.to_be_bytes()[..], &go("a")].concat()).unwrap();
    const ERR_POLICY: u32 = (1 << 31) + 2;
    let (kind, text) = option_reply(&mut third);
    assert_eq!(kind, ERR_POLICY);
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("all 2 NBD connections") && text.contains("--nbd-connections"), "{text}");
    // Whatever others hold, a disk's first connection has its place.
    third.write_all(&go("b")).unwrap();
    const ACK: u32 = 1;
    while option_reply(&mut third).0 != ACK {}
    round_trip(&mut third, 3, 4096);
}

#[test]
fn without_descriptors_for_clients_they_are_hung_up_on() {
    let house = House::with(ServerConfig { descriptors: 0, ..ServerConfig::default() });
    assert!(is_closed(&mut house.connect_raw()));
    assert!(is_closed(&mut house.connect_raw()));
}

#[test]
fn clients_that_do_not_collect_their_answers_hold_what_they_may_and_a_neighbour_is_served() {
    const MEMORY: u64 = 8 << 20;
    const CLIENTS: u64 = 20;
    let house = House::with(ServerConfig { memory: Bytes(MEMORY), ..ServerConfig::default() });
    let mut hogs: Vec<_> = (0..CLIENTS).map(|_| house.connect("a")).collect();
    let flood: Vec<u8> = (0..64).flat_map(|n| request(READ, n, 0, 1 << 20)).collect();
    hogs.iter_mut().for_each(|hog| hog.write_all(&flood).unwrap());
    let mut neighbour = house.connect("b");
    for _ in 0..4 {
        round_trip(&mut neighbour, 5, 8 << 20);
    }
    let usage = house.server.usage();
    assert!(usage.memory.0 <= MEMORY && usage.memory_denied > 0, "{usage:?}");
    drop(hogs);
    // The neighbour is connected and idle: it gives back all but its own.
    let end = Instant::now() + PATIENCE;
    while house.server.usage().memory.0 > 0 {
        assert!(Instant::now() < end, "{:?}", house.server.usage());
        std::thread::sleep(Duration::from_millis(50));
    }
    round_trip(&mut neighbour, 6, 8 << 20);
}
