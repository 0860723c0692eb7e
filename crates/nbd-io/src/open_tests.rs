use super::*;
use crate::{handshake, say_goodbye};
use headgate_nbd::counters::Version;
use headgate_nbd::server::negotiation::{self, Catalog, ExportName, Negotiation, OpenError};
use headgate_nbd::server::{Export, Writes};
use headgate_nbd::wire::{Request, command};
use headgate_tls::{Authority, Role, ServerCredentials};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

struct OneDisk;

impl Catalog for OneDisk {
    type Handle = ();

    fn list(&self) -> Vec<ExportName> {
        Vec::new()
    }

    fn open(&self, name: &str) -> Result<negotiation::Opened<()>, OpenError> {
        let export =
            Export { size: 1 << 20, block_size: 512, preferred: 4096, writes: Writes::Allowed };
        let description = String::new();
        match name {
            "db" => Ok(negotiation::Opened { name: name.into(), export, description, handle: () }),
            _ => Err(OpenError::Unknown),
        }
    }
}

/// Serves a handshake until it is over, TLS begins, or the client has gone.
fn negotiate(
    stream: &mut (impl Read + Write),
    negotiation: &mut Negotiation,
    out: &mut Vec<u8>,
) -> End {
    let mut input = Vec::new();
    loop {
        stream.write_all(out).unwrap();
        out.clear();
        match negotiation.poll(&input, &OneDisk, out).unwrap() {
            (_, negotiation::Step::Transmission(..)) => return End::Transmission,
            (_, negotiation::Step::StartTls) => return End::StartTls,
            (used, negotiation::Step::NeedBytes) => {
                input.drain(..used);
                let mut bytes = [0; 64];
                match stream.read(&mut bytes) {
                    Ok(0) | Err(_) => return End::Gone,
                    Ok(count) => input.extend(&bytes[..count]),
                }
            }
            (used, _) => drop(input.drain(..used)),
        }
    }
}

#[derive(PartialEq)]
enum End {
    Transmission,
    StartTls,
    Gone,
}

/// Sends what the client must leave where it is, and returns what the client sent behind its
/// handshake.
fn go_on(mut stream: impl Read + Write, out: &[u8]) -> Vec<u8> {
    stream.write_all(&[out, b"first reply"].concat()).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    rest
}

/// Serves one client, and returns what it sent behind its handshake.
fn serve(mut stream: impl Read + Write) -> Vec<u8> {
    let (mut negotiation, mut out) = (Negotiation::default(), vec![]);
    negotiation::greeting(&mut out);
    match negotiate(&mut stream, &mut negotiation, &mut out) {
        End::Transmission => go_on(stream, &out),
        _ => Vec::new(),
    }
}

/// The same over TLS, which is required.
fn serve_secured(mut stream: TcpStream, credentials: &ServerCredentials) -> Vec<u8> {
    let mut negotiation = Negotiation::new(negotiation::Security::TlsRequired);
    let mut out = Vec::new();
    negotiation::greeting(&mut out);
    if negotiate(&mut stream, &mut negotiation, &mut out) != End::StartTls {
        return Vec::new();
    }
    stream.write_all(&out).unwrap();
    out.clear();
    let Ok((mut secured, _)) = headgate_tls::accept(credentials, stream, soon()) else {
        return Vec::new();
    };
    negotiation.secure();
    match negotiate(&mut secured, &mut negotiation, &mut out) {
        End::Transmission => go_on(secured, &out),
        _ => Vec::new(),
    }
}

/// A server to whom the version of the counters that is asked for comes as another one.
struct OtherVersion<S> {
    stream: S,
    came: usize,
}

/// Where in a client's stream the version is: behind its flags and the option's head.
const VERSION_AT: usize = 4 + 16;

impl<S: Read> Read for OtherVersion<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(bytes)?;
        if let Some(high) =
            VERSION_AT.checked_sub(self.came).and_then(|at| bytes[..count].get_mut(at))
        {
            *high = 0x7f;
        }
        self.came += count;
        Ok(count)
    }
}

impl<S: Write> Write for OtherVersion<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

const SIMPLE: ReplyStyle = ReplyStyle::Simple;

fn dial(tls: &ClientTls) -> Dial<'_> {
    Dial {
        style: SIMPLE,
        deadline: soon(),
        silence: Some(Duration::from_secs(30)),
        tls,
        policy: None,
    }
}

fn plain(host: &str, port: u16) -> Uri {
    let address = Address::Tcp { host: host.into(), port, security: Security::Plain };
    Uri { address, export: "db".into() }
}

fn unix(path: &Path, export: &str) -> Uri {
    Uri { address: Address::Unix(path.to_str().unwrap().into()), export: export.into() }
}

fn check(opened: Result<Opened, DialError>, server: thread::JoinHandle<Vec<u8>>) {
    check_counted(opened, Form::Simple, server);
}

fn check_counted(
    opened: Result<Opened, DialError>,
    form: Form,
    server: thread::JoinHandle<Vec<u8>>,
) {
    let Opened { mut socket, info, form: agreed, .. } = opened.unwrap();
    assert_eq!((info.size, info.max_block, agreed), (1 << 20, Some(32 << 20), form));
    let mut reply = [0; 11];
    socket.set_timeouts(Some(Duration::from_secs(30))).unwrap();
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"first reply");
    say_goodbye(&socket);
    drop(socket);
    let goodbye = Request { flags: 0, command: command::DISC, cookie: 0, offset: 0, len: 0 };
    assert_eq!(server.join().unwrap(), goodbye.to_bytes());
}

#[test]
fn a_unix_server_is_reached() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nbd.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || serve(listener.accept().unwrap().0));
    check(dial(&ClientTls::by_uri()).open(&unix(&path, "db")), server);
}

#[test]
fn counters_are_there_where_the_server_has_them_and_the_export_is_open_anyhow() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nbd.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let accept = || listener.try_clone().unwrap();
    let tls = ClientTls::by_uri();
    let counted = Dial { style: ReplyStyle::Counted(None), ..dial(&tls) };

    let with = accept();
    let server = thread::spawn(move || serve(with.accept().unwrap().0));
    let newest = Form::Counted { version: Version::NEWEST, allocation: None };
    check_counted(counted.open(&unix(&path, "db")), newest, server);

    let without = accept();
    let server =
        thread::spawn(move || serve(OtherVersion { stream: without.accept().unwrap().0, came: 0 }));
    let two = Form::Counted { version: Version::Two, allocation: None };
    check_counted(counted.open(&unix(&path, "db")), two, server);
}

#[test]
fn tcp_servers_are_reached_by_either_family_and_by_the_first_address_that_answers() {
    for host in ["127.0.0.1", "::1"] {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || serve(listener.accept().unwrap().0));
        let uri = plain(host, port);
        let Endpoint::Tcp(mut addresses) = Endpoint::resolve(&uri.address).unwrap() else {
            panic!("a TCP address");
        };
        // Nobody listens on a port that was just given back.
        let closed = TcpListener::bind((host, 0)).unwrap().local_addr().unwrap();
        addresses.insert(0, closed);
        check(dial(&ClientTls::by_uri()).open_at(&Endpoint::Tcp(addresses), &uri), server);
    }
}

#[test]
fn a_refused_export_is_the_servers_word() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nbd.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || serve(listener.accept().unwrap().0));
    let error = dial(&ClientTls::by_uri()).open(&unix(&path, "none")).unwrap_err();
    assert!(matches!(error, DialError::Handshake(HandshakeError::Refused { .. })), "{error}");
    assert!(server.join().unwrap().is_empty());
}

#[test]
fn a_server_that_says_nothing_and_one_that_accepts_nobody_are_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nbd.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let endpoint = Endpoint::Unix(path.to_str().unwrap().into());
    // A deadline that has passed fails without waiting.
    let past = Instant::now();
    assert_eq!(endpoint.connect(past).unwrap_err().kind(), io::ErrorKind::TimedOut);
    let mut socket = endpoint.connect(soon()).unwrap();
    let shortly = Instant::now() + Duration::from_millis(5);
    match handshake(&mut socket, "db", SIMPLE, shortly).unwrap_err() {
        DialError::Io(e) => assert_eq!(e.kind(), io::ErrorKind::TimedOut),
        other => panic!("{other}"),
    }
    // The queue of clients is full at some time, and connecting would wait.
    let mut held = Vec::new();
    let full = loop {
        match endpoint.connect(Instant::now() + Duration::from_millis(20)) {
            Ok(socket) => held.push(socket),
            Err(e) => break e,
        }
    };
    assert_eq!(full.kind(), io::ErrorKind::TimedOut, "after {}: {full}", held.len());
}

#[test]
fn an_impossible_path_is_named_as_such() {
    for path in ["x".repeat(109), "a\0b".into()] {
        let error = Endpoint::Unix(path).connect(soon()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

/// A private authority, and the certificates of a server by these names and of a client.
fn authority(dir: &Path, names: &[&str]) {
    let authority = Authority::create(dir).unwrap();
    let day = Duration::from_secs(86_400);
    for role in [Role::Server, Role::Client] {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        authority.issue(role, &names, day, dir).unwrap();
    }
}

/// Serves one client over TLS at the port of an address that is returned beside.
fn secured_server(dir: &Path) -> (u16, thread::JoinHandle<Vec<u8>>) {
    let credentials = ServerCredentials::read(dir).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || serve_secured(listener.accept().unwrap().0, &credentials));
    (port, server)
}

fn uri(text: String) -> Uri {
    text.parse().unwrap()
}

#[test]
fn a_server_is_reached_over_tls_and_the_uri_may_name_it_and_the_certificates() {
    let dir = tempfile::tempdir().unwrap();
    authority(dir.path(), &["node7.example"]);
    let tls = ClientTls::new(dir.path().to_owned());
    let (port, server) = secured_server(dir.path());
    let named = format!("nbds://127.0.0.1:{port}/db?tls-hostname=node7.example");
    check(dial(&tls).open(&uri(named.clone())), server);

    let (port, server) = secured_server(dir.path());
    let named = format!(
        "nbds://127.0.0.1:{port}/db?tls-hostname=node7.example&tls-certificates={}",
        dir.path().display()
    );
    check(dial(&ClientTls::by_uri()).open(&uri(named)), server);

    let (port, server) = secured_server(dir.path());
    let named = format!("nbds://127.0.0.1:{port}/db?tls-hostname=node7.example");
    let counted = Dial { style: ReplyStyle::Counted(None), ..dial(&tls) };
    let newest = Form::Counted { version: Version::NEWEST, allocation: None };
    check_counted(counted.open(&uri(named)), newest, server);
}

#[test]
fn whom_a_server_is_not_and_whom_it_does_not_know_is_not_reached() {
    let (ours, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    authority(ours.path(), &["node7.example"]);
    authority(other.path(), &["node7.example"]);
    // What a client of the other authority needs to trust our server: it is refused by that.
    let stranger = tempfile::tempdir().unwrap();
    for (from, file) in [
        (&ours, headgate_tls::CA_CERT),
        (&other, Role::Client.files()[0]),
        (&other, Role::Client.files()[1]),
    ] {
        std::fs::copy(from.path().join(file), stranger.path().join(file)).unwrap();
    }
    let told = |dir: &Path, query: &str| {
        let (port, server) = secured_server(ours.path());
        let tls = ClientTls::new(dir.to_owned());
        let uri = uri(format!("nbds://127.0.0.1:{port}/db{query}"));
        let error = dial(&tls).open(&uri).unwrap_err();
        // Nobody was served.
        assert!(server.join().unwrap().is_empty());
        error
    };
    let named = "?tls-hostname=node7.example";
    let tls = |error: &DialError| matches!(error, DialError::Tls { .. });
    let error = told(ours.path(), "");
    assert!(tls(&error) && error.to_string().contains("not valid for name"), "{error}");
    assert!(error.to_string().ends_with("tls-hostname=NAME says another name"), "{error}");
    let error = told(other.path(), named);
    assert!(tls(&error) && error.to_string().ends_with("UnknownIssuer"), "{error}");
    let error = told(stranger.path(), named);
    assert!(matches!(error, DialError::Secured(_)), "{error}");
    let nowhere = ours.path().join("none");
    assert!(matches!(told(&nowhere, named), DialError::Credentials(_)));
    let (port, _server) = secured_server(ours.path());
    let uri = uri(format!("nbds://127.0.0.1:{port}/db{named}"));
    assert!(matches!(dial(&ClientTls::by_uri()).open(&uri), Err(DialError::NoCertificates)));
}

#[test]
fn nothing_is_done_without_tls_that_was_to_be_done_over_it_and_nothing_the_other_way_round() {
    let dir = tempfile::tempdir().unwrap();
    authority(dir.path(), &["127.0.0.1"]);
    let (port, server) = secured_server(dir.path());
    let error = dial(&ClientTls::by_uri()).open(&plain("127.0.0.1", port)).unwrap_err();
    assert!(matches!(error, DialError::Handshake(HandshakeError::TlsRequired)), "{error}");
    assert!(server.join().unwrap().is_empty());

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || serve(listener.accept().unwrap().0));
    let tls = ClientTls::new(dir.path().to_owned());
    let error = dial(&tls).open(&uri(format!("nbds://127.0.0.1:{port}/db"))).unwrap_err();
    assert!(matches!(error, DialError::Handshake(HandshakeError::NoTls { .. })), "{error}");
    assert!(server.join().unwrap().is_empty());
}
