//! TCP with TLS: nothing outside of it, inside what a certificate allows, and hostile handshakes.

use super::*;
use headgate_tls::{
    ALLOW, Authority, CA_CRL, ClientCredentials, HandshakeError, Role, Secured, connect,
};
use std::fs;
use std::time::Instant;

const LIST: u32 = 3;
const STARTTLS: u32 = 5;
const GO: u32 = 7;
const ACK: u32 = 1;
const SERVER: u32 = 2;
const ERR_TLS_REQD: u32 = (1 << 31) + 5;
const ERR_UNKNOWN: u32 = (1 << 31) + 6;
const EPERM: u32 = 1;
const DAY: Duration = Duration::from_secs(86_400);

/// A house with TLS at its TCP address, an authority, and clients with certificates.
struct Secure {
    house: House,
    certificates: TempDir,
}

fn options(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Whether a connection is over. One on which nothing comes is not.
fn is_ended(inside: &mut Secured) -> bool {
    match inside.read(&mut [0]) {
        Ok(len) => len == 0,
        Err(e) => !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

fn go(export: &str) -> Vec<u8> {
    let name = export.as_bytes();
    options(GO, &[&(name.len() as u32).to_be_bytes()[..], name, &[0, 0]].concat())
}

impl Secure {
    fn new(config: ServerConfig) -> Secure {
        let certificates = tempfile::tempdir().unwrap();
        let dir = |name: &str| certificates.path().join(name);
        let authority = Authority::create(&dir("authority")).unwrap();
        let issue = |role, name: &str, out: &str| {
            authority.issue(role, &[name.into()], DAY, &dir(out)).unwrap();
        };
        issue(Role::Server, "127.0.0.1", "server");
        issue(Role::Client, "gw1.example", "gw1");
        issue(Role::Client, "gw2.example", "gw2");
        let house = House::with(ServerConfig {
            tcp: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            tls: Some(dir("server")),
            ..config
        });
        Secure { house, certificates }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.certificates.path().join(name)
    }

    /// Puts a file into the server's directory as a whole.
    fn put(&self, name: &str, text: &str) {
        let next = self.path("next");
        fs::write(&next, text).unwrap();
        fs::rename(next, self.path("server").join(name)).unwrap();
    }

    /// A TCP connection that was greeted, and has sent its flags.
    fn outside(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.house.server.tcp_address().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(&3u32.to_be_bytes()).unwrap();
        stream
    }

    fn inside(&self, who: &str) -> Result<Secured, HandshakeError> {
        let mut stream = self.outside();
        stream.write_all(&options(STARTTLS, &[])).unwrap();
        assert_eq!(option_reply(&mut stream).0, ACK);
        let client = ClientCredentials::read(&self.path(who)).unwrap();
        let secured = connect(&client, "127.0.0.1", stream, Instant::now() + PATIENCE)?;
        secured.set_timeouts(Some(PATIENCE)).unwrap();
        Ok(secured)
    }

    /// Chooses an export; `Err` has the type of the refusal.
    fn choose(&self, who: &str, export: &str) -> Result<Secured, u32> {
        let mut inside = self.inside(who).unwrap();
        inside.write_all(&go(export)).unwrap();
        loop {
            match option_reply(&mut inside).0 {
                ACK => return Ok(inside),
                refusal if refusal >> 31 == 1 => return Err(refusal),
                _ => {}
            }
        }
    }

    /// The exports that a client is told of.
    fn list(&self, who: &str) -> Vec<String> {
        let mut inside = self.inside(who).unwrap();
        inside.write_all(&options(LIST, &[])).unwrap();
        let mut names = Vec::new();
        loop {
            match option_reply(&mut inside) {
                (SERVER, data) => names.push(String::from_utf8(data[4..].to_vec()).unwrap()),
                (kind, _) => {
                    assert_eq!(kind, ACK);
                    return names;
                }
            }
        }
    }

    /// Waits until the server has done something. It looks at its files every second.
    fn until(&self, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < end, "it never comes to it");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn outside_of_tls_nothing_is_told_and_inside_all_is_served() {
    let secure = Secure::new(ServerConfig::default());
    for option in [options(LIST, &[]), go("a"), options(8, &[]), options(10, &[0; 8])] {
        let mut outside = secure.outside();
        outside.write_all(&option).unwrap();
        let (kind, text) = option_reply(&mut outside);
        assert_eq!(kind, ERR_TLS_REQD);
        assert!(String::from_utf8_lossy(&text).contains("TLS"));
    }
    let mut outside = secure.outside();
    outside.write_all(&export_name("a")[4..]).unwrap();
    assert!(is_closed(&mut outside));
    assert_eq!(secure.list("gw1"), ["a", "b"]);
    let mut inside = secure.choose("gw1", "a").unwrap();
    for (fill, len) in [(1, 512), (2, 64 << 10), (3, 4 << 20), (4, 32 << 20)] {
        round_trip(&mut inside, fill, len);
    }
    inside.write_all(&request(DISC, 9, 0, 0)).unwrap();
    assert!(matches!(inside.read(&mut [0]), Ok(0)), "it ends properly");
    // The unix socket is as it was.
    round_trip(&mut secure.house.connect("b"), 5, 4096);
}

#[test]
fn what_comes_between_the_start_of_tls_and_its_handshake_is_not_believed() {
    let secure = Secure::new(ServerConfig::default());
    let mut outside = secure.outside();
    // Somebody in between would have this asked inside of TLS, in the client's name.
    outside.write_all(&[options(STARTTLS, &[]), go("a")].concat()).unwrap();
    assert_eq!(option_reply(&mut outside).0, ACK);
    assert!(is_closed(&mut outside));
    round_trip(&mut secure.choose("gw1", "a").unwrap(), 1, 4096);
}

#[test]
fn rules_decide_what_is_listed_opened_and_written_and_hold_for_who_is_in() {
    let secure = Secure::new(ServerConfig::default());
    let mut both = [secure.choose("gw1", "a").unwrap(), secure.choose("gw1", "b").unwrap()];
    both.iter_mut().for_each(|inside| round_trip(inside, 1, 4096));
    let rules = "[[allow]]\npeer = \"gw1.example\"\ndisks = [\"a\"]\n\
                 [[allow]]\npeer = \"gw2.example\"\ndisks = [\"*\"]\naccess = \"read\"\n";
    secure.put(ALLOW, rules);
    let [a, b] = &mut both;
    assert!(is_ended(b), "its right is gone");
    round_trip(a, 2, 4096);
    assert_eq!(secure.list("gw1"), ["a"]);
    assert_eq!(secure.choose("gw1", "b").err(), Some(ERR_UNKNOWN));
    assert_eq!(secure.list("gw2"), ["a", "b"]);
    let mut reader = secure.choose("gw2", "a").unwrap();
    reader.write_all(&request(READ, 1, 8192, 512)).unwrap();
    assert_eq!(answer(&mut reader), (1, 0));
    let mut data = [0; 512];
    reader.read_exact(&mut data).unwrap();
    assert_eq!(data, [2; 512]);
    reader.write_all(&[request(WRITE, 2, 0, 512), vec![9; 512]].concat()).unwrap();
    assert_eq!(answer(&mut reader), (2, EPERM));
    // A file that is no use changes nothing; the next one does.
    secure.put(ALLOW, "nonsense");
    secure.put(ALLOW, "[[allow]]\npeer = \"gw2.example\"\ndisks = [\"a\"]\n");
    assert!(is_ended(a), "its right is gone");
    // Who may more than before stays as it is.
    reader.write_all(&request(READ, 3, 8192, 512)).unwrap();
    assert_eq!(answer(&mut reader), (3, 0));
    reader.read_exact(&mut data).unwrap();
    secure.until(|| secure.list("gw2") == ["a"]);
    let mut writer = secure.choose("gw2", "a").unwrap();
    round_trip(&mut writer, 3, 4096);
}

#[test]
fn a_certificate_that_is_revoked_ends_its_connections_and_no_others() {
    let secure = Secure::new(ServerConfig::default());
    let [mut revoked, mut stays] = ["gw1", "gw2"].map(|who| secure.choose(who, "a").unwrap());
    let authority = secure.path("authority");
    Authority::open(&authority).unwrap().revoke("gw1.example").unwrap();
    secure.put(CA_CRL, &fs::read_to_string(authority.join(CA_CRL)).unwrap());
    assert!(is_ended(&mut revoked), "it is not believed any more");
    round_trip(&mut stays, 1, 4096);
    // TLS 1.3: the client hears of it when it reads.
    assert!(secure.inside("gw1").map_or(true, |mut inside| is_ended(&mut inside)), "it is back");
    round_trip(&mut secure.choose("gw2", "a").unwrap(), 2, 4096);
}

#[test]
fn half_open_handshakes_and_garbage_keep_nobody_out() {
    let limits = ServerConfig { max_negotiating: 4, max_silent: 8, ..ServerConfig::default() };
    let secure = Secure::new(limits);
    let mut neighbour = secure.choose("gw2", "b").unwrap();
    let mut half_open = Vec::new();
    for turn in 0..200u8 {
        let mut stream = secure.outside();
        stream.write_all(&options(STARTTLS, &[])).unwrap();
        // It may have had to leave already.
        let mut head = [0; 20];
        if stream.read_exact(&mut head).is_ok() {
            let _ = match turn % 3 {
                0 => stream.write_all(&[]),
                1 => stream.write_all(&[0x16, 3, 1, 0x20, 0]),
                _ => stream.write_all(&[turn; 600]),
            };
        }
        half_open.push(stream);
        if turn % 20 == 0 {
            round_trip(&mut neighbour, turn, 4096);
            round_trip(&mut secure.choose("gw1", "a").unwrap(), turn, 4096);
        }
    }
    round_trip(&mut secure.choose("gw1", "a").unwrap(), 7, 4096);
    // All but the newest were sent away.
    for stream in &mut half_open[..190] {
        stream.set_nonblocking(true).unwrap();
        let mut byte = [0; 64];
        secure.until(|| match stream.read(&mut byte) {
            Ok(len) => len == 0,
            Err(e) => e.kind() != ErrorKind::WouldBlock,
        });
    }
}

#[test]
fn a_directory_that_is_no_use_is_an_error_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::start(EngineConfig { shards: 1, ..EngineConfig::default() }).unwrap();
    let exports = Arc::new(Disks { engine, disks: Vec::new() });
    let config = ServerConfig { tls: Some(dir.path().into()), ..ServerConfig::default() };
    let error = NbdServer::start(config, exports).expect_err("there is nothing in it");
    assert!(matches!(error, ListenError::Tls(_)), "{error}");
    assert!(error.to_string().contains("ca-cert.pem"), "{error}");
}
