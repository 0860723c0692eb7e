//! A real etcd server, of which the tests know the process.
#![allow(dead_code)] // Every test binary uses its own part.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headgate_cluster::{Client, Endpoint, Servers};
use std::env;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub struct Etcd {
    program: PathBuf,
    dir: TempDir,
    ports: [u16; 2],
    server: Option<Child>,
    scheme: &'static str,
    arguments: Vec<String>,
}

/// A user of etcd's that may use what is Headgate's, and its password.
pub const USER: [&str; 2] = ["hg", "top:secret"];

/// The program: of the system, or where `tests/install` put it.
fn program() -> Option<PathBuf> {
    let paths = env::var_os("PATH").unwrap_or_default();
    let lab = env::var_os("HEADGATE_LAB_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/lab"),
        PathBuf::from,
    );
    env::split_paths(&paths)
        .map(|dir| dir.join("etcd"))
        .chain([lab.join("etcd/usr/bin/etcd")])
        .find(|path| path.is_file())
}

/// An etcd server, or `None` after having said that there is none to be had.
pub fn etcd() -> Option<Etcd> {
    let Some(program) = program() else {
        let message = "there is no etcd: tests/install gets it";
        if env::var("HEADGATE_LAB").is_ok_and(|v| v == "require") {
            panic!("HEADGATE_LAB=require: {message}");
        }
        println!("SKIPPED: {message}");
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    let (ports, arguments) = ([free_port(), free_port()], Vec::new());
    let mut etcd = Etcd { program, dir, ports, server: None, scheme: "http", arguments };
    // Other tests look for ports, too, and one may have taken these since.
    let started = (0..10).any(|_| {
        let serves = etcd.serves();
        if !serves {
            etcd.ports = [free_port(), free_port()];
            let _ = std::fs::remove_dir_all(etcd.data());
        }
        serves
    });
    assert!(started, "etcd does not serve:\n{}", etcd.log());
    Some(etcd)
}

/// A port that nobody listens on, below those that the kernel gives to whoever connects: one of
/// these may be somebody's while the server is not running.
fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() as u16;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let next = || first.wrapping_mul(31).wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
    std::iter::repeat_with(|| 10_000 + next() % 20_000).find(is_free).unwrap()
}

impl Etcd {
    pub fn start(&mut self) {
        assert!(self.serves(), "etcd does not serve:\n{}", self.log());
    }

    /// Starts the server, and waits until it serves; false when it ends.
    fn serves(&mut self) -> bool {
        let client = format!("{}://127.0.0.1:{}", self.scheme, self.ports[0]);
        let peer = format!("http://127.0.0.1:{}", self.ports[1]);
        let path = self.dir.path().join("log");
        let log = File::options().create(true).append(true).open(path).unwrap();
        let said = self.log().len();
        let mut server = Command::new(&self.program)
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .arg("--data-dir")
            .arg(self.data())
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        // That somebody listens may be another test's server.
        while !self.log()[said..].contains("ready to serve client requests")
            || TcpStream::connect(("127.0.0.1", self.ports[0])).is_err()
        {
            if server.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(Instant::now() < deadline, "etcd does not listen:\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
        self.server = Some(server);
        true
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// Everything that was stored, while the server is not running.
    pub fn forget(&mut self) {
        assert!(self.server.is_none());
        std::fs::remove_dir_all(self.data()).unwrap();
    }

    pub fn endpoint(&self) -> Endpoint {
        format!("{}://127.0.0.1:{}", self.scheme, self.ports[0]).parse().unwrap()
    }

    pub fn client(&self) -> Client {
        self.client_with(None, None)
    }

    /// A client with a directory of certificates and a file with user and password.
    pub fn client_with(&self, certificates: Option<&Path>, login: Option<&Path>) -> Client {
        let [certificates, login] = [certificates, login].map(|path| path.map(Path::to_owned));
        let servers = Servers::new(vec![self.endpoint()], certificates, login).unwrap();
        Client::new(servers, Duration::from_secs(10)).unwrap()
    }

    /// Starts again with these further arguments, for clients of this scheme.
    pub fn restart(&mut self, scheme: &'static str, arguments: &[String]) {
        self.kill();
        (self.scheme, self.arguments) = (scheme, arguments.to_vec());
        self.start();
    }

    /// Asks the gateway, without TLS and as nobody, until there is an answer.
    fn post(&self, path: &str, body: &str) {
        until(path, || {
            let mut stream = TcpStream::connect(("127.0.0.1", self.ports[0])).unwrap();
            let length = body.len();
            let head = format!("POST {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all((head + body).as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer.starts_with("HTTP/1.0 200").then_some(())
        });
    }

    /// Adds [`USER`], and `idle`, who has the same password and may do nothing.
    pub fn add_users(&self) {
        let [user, password] = USER;
        let [key, end] = ["/headgate/", "/headgate0"].map(|key| STANDARD.encode(key));
        for (path, body) in [
            ("user/add", r#"{"name":"root","password":"root"}"#.to_owned()),
            ("role/add", r#"{"name":"root"}"#.to_owned()),
            ("user/grant", r#"{"user":"root","role":"root"}"#.to_owned()),
            ("user/add", format!(r#"{{"name":"{user}","password":"{password}"}}"#)),
            ("user/add", format!(r#"{{"name":"idle","password":"{password}"}}"#)),
            ("role/add", r#"{"name":"headgate"}"#.to_owned()),
            (
                "role/grant",
                format!(
                    r#"{{"name":"headgate","perm":
                        {{"permType":"READWRITE","key":"{key}","range_end":"{end}"}}}}"#
                ),
            ),
            ("user/grant", format!(r#"{{"user":"{user}","role":"headgate"}}"#)),
        ] {
            self.post(&format!("/v3/auth/{path}"), &body);
        }
    }

    /// From now on it asks everybody who he is.
    pub fn enable_users(&self) {
        self.post("/v3/auth/enable", "{}");
    }

    /// Where nothing listens.
    pub fn nowhere() -> Endpoint {
        format!("http://127.0.0.1:{}", free_port()).parse().unwrap()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Tries until it succeeds, for a minute at most.
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(Instant::now() < deadline, "{what} did not happen");
        thread::sleep(Duration::from_millis(50));
    }
}
