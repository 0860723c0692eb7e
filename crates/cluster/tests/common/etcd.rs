//! A real etcd server, of which the tests know the process.
#![allow(dead_code)] // Every test binary uses its own part.

use headgate_cluster::{Client, Endpoint};
use std::env;
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub struct Etcd {
    program: PathBuf,
    dir: TempDir,
    ports: [u16; 2],
    server: Option<Child>,
}

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
    let mut etcd = Etcd { program, dir, ports: [free_port(), free_port()], server: None };
    etcd.start();
    Some(etcd)
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Etcd {
    pub fn start(&mut self) {
        let [client, peer] = self.ports.map(|port| format!("http://127.0.0.1:{port}"));
        let log =
            File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        let server = Command::new(&self.program)
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .arg("--data-dir")
            .arg(self.data())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.server = Some(server);
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", self.ports[0])).is_err() {
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "etcd does not listen:\n{log}");
            thread::sleep(Duration::from_millis(20));
        }
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
        format!("http://127.0.0.1:{}", self.ports[0]).parse().unwrap()
    }

    pub fn client(&self) -> Client {
        Client::new(vec![self.endpoint()], Duration::from_secs(10)).unwrap()
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
