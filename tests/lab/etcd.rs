//! A real etcd server for hosts to meet in.

use crate::process::Process;
use crate::{Lab, cache_dir, tools, wait_for};
use anyhow::Context;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// One server: alone, or a member of a cluster.
pub struct Etcd {
    program: PathBuf,
    dir: PathBuf,
    ports: [u16; 3],
    scheme: &'static str,
    /// Its name in its cluster, and the cluster: `NAME=URL` of each member.
    member: (String, String),
    arguments: Vec<String>,
    process: Process,
}

/// The program: of the system, or where `tests/install` put it.
fn program() -> anyhow::Result<PathBuf> {
    let unpacked = cache_dir().join("etcd/usr/bin/etcd");
    let found = tools::find("etcd").or_else(|| unpacked.is_file().then_some(unpacked));
    found.context("there is no etcd: run tests/install")
}

/// A port that nobody listens on, below those that the kernel gives to whoever connects: one of
/// these may be somebody's while the server is not running.
fn free_port() -> anyhow::Result<u16> {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() as u16;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let next = || first.wrapping_mul(31).wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
    std::iter::repeat_with(|| 10_000 + next() % 20_000).find(is_free).context("a port is free")
}

fn url(scheme: &str, port: u16) -> String {
    format!("{scheme}://127.0.0.1:{port}")
}

impl Etcd {
    /// Starts a server and waits until it listens.
    pub fn start(lab: &Lab) -> anyhow::Result<Etcd> {
        let ports = [free_port()?, free_port()?, free_port()?];
        let cluster = format!("default={}", url("http", ports[1]));
        Etcd::launched(lab.subdir("etcd")?, ports, ("default".to_owned(), cluster))
    }

    /// Starts the members of a cluster, and waits until they have a leader.
    pub fn cluster<const N: usize>(lab: &Lab) -> anyhow::Result<[Etcd; N]> {
        let ports = (0..N).map(|_| Ok([free_port()?, free_port()?, free_port()?]));
        let ports: Vec<[u16; 3]> = ports.collect::<anyhow::Result<_>>()?;
        let named = ports.iter().enumerate();
        let named = named.map(|(n, ports)| format!("etcd{n}={}", url("http", ports[1])));
        let cluster = named.collect::<Vec<_>>().join(",");
        let members = ports.into_iter().enumerate().map(|(n, ports)| {
            let name = format!("etcd{n}");
            Etcd::launched(lab.subdir(&name)?, ports, (name, cluster.clone()))
        });
        let members: Vec<Etcd> = members.collect::<anyhow::Result<_>>()?;
        members.iter().try_for_each(Etcd::await_health)?;
        members.try_into().ok().context("as many as were started")
    }

    fn launched(dir: PathBuf, ports: [u16; 3], member: (String, String)) -> anyhow::Result<Etcd> {
        let (program, scheme, arguments) = (program()?, "http", Vec::new());
        let process = launch(&program, &dir, ports, scheme, &member, &arguments)?;
        Ok(Etcd { program, dir, ports, scheme, member, arguments, process })
    }

    fn await_health(&self) -> anyhow::Result<()> {
        wait_for("etcd should be healthy", Duration::from_secs(60), || {
            Ok(is_healthy(self.ports[2]).then_some(()))
        })
    }

    /// From now on it asks everybody who he is, and lets one in that has this password, to what is
    /// Headgate's.
    pub fn enable_users(&self, user: &str, password: &str) -> anyhow::Result<()> {
        // In base64: /headgate/ and /headgate0, which is the first behind all that begin so.
        let keys = r#""key":"L2hlYWRnYXRlLw==","range_end":"L2hlYWRnYXRlMA==""#;
        for (path, body) in [
            ("user/add", r#"{"name":"root","password":"root"}"#.to_owned()),
            ("role/add", r#"{"name":"root"}"#.to_owned()),
            ("user/grant", r#"{"user":"root","role":"root"}"#.to_owned()),
            ("user/add", format!(r#"{{"name":"{user}","password":"{password}"}}"#)),
            ("role/add", r#"{"name":"headgate"}"#.to_owned()),
            (
                "role/grant",
                format!(r#"{{"name":"headgate","perm":{{"permType":"READWRITE",{keys}}}}}"#),
            ),
            ("user/grant", format!(r#"{{"user":"{user}","role":"headgate"}}"#)),
            ("enable", "{}".to_owned()),
        ] {
            let length = body.len();
            let head = format!("POST /v3/auth/{path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n");
            // An election may be under way.
            wait_for(path, Duration::from_secs(60), || {
                let answer = ask(self.ports[0], &(head.clone() + &body))?;
                Ok(answer.starts_with("HTTP/1.0 200").then_some(()))
            })?;
        }
        Ok(())
    }

    /// Starts it again on what it stored: over TLS, with the certificate and key of `dir`, for
    /// clients with a certificate of this authority.
    pub fn secure(&mut self, dir: &Path, authority: &Path) -> anyhow::Result<()> {
        let path = |dir: &Path, name: &str| dir.join(name).display().to_string();
        self.scheme = "https";
        self.arguments = vec![
            "--client-cert-auth".into(),
            format!("--cert-file={}", path(dir, "server-cert.pem")),
            format!("--key-file={}", path(dir, "server-key.pem")),
            format!("--trusted-ca-file={}", path(authority, "ca-cert.pem")),
        ];
        self.kill()?;
        self.start_again()
    }

    /// Writes a value, as anybody may who may write there.
    pub fn put(&self, key: &str, value: &[u8]) -> anyhow::Result<()> {
        let [key, value] = [key.as_bytes(), value].map(in_base64);
        let body = format!(r#"{{"key":"{key}","value":"{value}"}}"#);
        let head = format!("POST /v3/kv/put HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
        let answer = ask(self.ports[0], &(head + &body))?;
        anyhow::ensure!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        Ok(())
    }

    /// Where clients find it.
    pub fn url(&self) -> String {
        url(self.scheme, self.ports[0])
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills it; what it stored stays.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill()
    }

    /// Starts it again on what it stored, and waits until there is a leader and it answers.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        let Etcd { program, dir, ports, scheme, member, arguments, .. } = self;
        self.process = launch(program, dir, *ports, scheme, member, arguments)?;
        self.await_health()
    }
}

fn in_base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let four = |three: &[u8]| {
        let number = three.iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte));
        let number = number << (8 * (3 - three.len()));
        let digit = move |n: usize| match n <= three.len() {
            true => char::from(DIGITS[(number >> (18 - 6 * n) & 63) as usize]),
            false => '=',
        };
        [digit(0), digit(1), digit(2), digit(3)]
    };
    bytes.chunks(3).flat_map(four).collect()
}

fn ask(port: u16, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn is_healthy(port: u16) -> bool {
    let answer = ask(port, "GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n");
    answer.is_ok_and(|answer| answer.contains("\"health\":\"true\""))
}

fn launch(
    program: &Path,
    dir: &Path,
    ports: [u16; 3],
    scheme: &str,
    (name, cluster): &(String, String),
    arguments: &[String],
) -> anyhow::Result<Process> {
    // Its health is told without TLS.
    let [client, peer, health] =
        [url(scheme, ports[0]), url("http", ports[1]), url("http", ports[2])];
    let mut command = Command::new(program);
    command
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--name", name, "--initial-cluster", cluster, "--data-dir"])
        .arg(dir.join("data"))
        .args(["--listen-metrics-urls", &health])
        .args(arguments);
    let mut process = Process::spawn("etcd", command, &dir.join("log"))?;
    wait_for("etcd should listen", Duration::from_secs(60), || {
        process.ensure_running()?;
        Ok(TcpStream::connect(("127.0.0.1", ports[0])).is_ok().then_some(()))
    })?;
    Ok(process)
}
