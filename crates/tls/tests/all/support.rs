//! An authority, a server's and clients' directories, and connections between them.

use headgate_tls::{
    Authority, ClientCredentials, HandshakeError, Peer, Role, Secured, ServerCredentials, accept,
    connect,
};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const DAY: Duration = Duration::from_secs(86_400);

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// A directory with an authority, and what it issues.
pub struct House {
    dir: TempDir,
}

impl House {
    /// With a server called `node1.example`, at 127.0.0.1 too, and a client `gw1.example`.
    pub fn new() -> House {
        let house = House { dir: tempfile::tempdir().unwrap() };
        Authority::create(&house.authority()).unwrap();
        house.issue(Role::Server, &["node1.example", "127.0.0.1"], DAY, "server");
        house.issue(Role::Client, &["gw1.example"], DAY, "gw1");
        house
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn authority(&self) -> PathBuf {
        self.path("authority")
    }

    pub fn issue(&self, role: Role, names: &[&str], valid: Duration, out: &str) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let authority = Authority::open(&self.authority()).unwrap();
        authority.issue(role, &names, valid, &self.path(out)).unwrap();
    }

    pub fn server(&self) -> ServerCredentials {
        ServerCredentials::read(&self.path("server")).unwrap()
    }

    pub fn client(&self, name: &str) -> ClientCredentials {
        ClientCredentials::read(&self.path(name)).unwrap()
    }
}

/// Two ends of a TCP connection.
pub fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().unwrap().0, client)
}

/// What both sides have of a handshake.
pub type Both = (Result<(Secured, Peer), HandshakeError>, Result<Secured, HandshakeError>);

/// Lets a client and a server meet. The client asks for the host of this name.
pub fn meet(server: &ServerCredentials, client: &ClientCredentials, host: &str) -> Both {
    let (ours, theirs) = pair();
    let client = client.clone();
    let host = host.to_owned();
    let connecting = thread::spawn(move || connect(&client, &host, theirs, soon()));
    let accepted = accept(server, ours, soon());
    (accepted, connecting.join().unwrap())
}

/// The same, where both sides agree.
pub fn met(house: &House) -> ((Secured, Peer), Secured) {
    let (accepted, connected) = meet(&house.server(), &house.client("gw1"), "node1.example");
    (accepted.unwrap(), connected.unwrap())
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).unwrap();
}
