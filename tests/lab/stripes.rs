//! Storage nodes, and gateways whose disks are striped over them: all of them daemons that speak to
//! each other over TCP.

use crate::fleet;
use crate::headgate::Headgate;
use crate::process::Process;
use crate::{Lab, Server};
use anyhow::Context;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::spawn;

/// The datastore's name on each node.
pub const ARRAY: &str = "array";
/// The datastore's name on each gateway.
pub const WIDE: &str = "wide";

/// An address that nobody listens at.
pub fn free_address() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// A daemon that serves its disks over TCP.
pub struct Node {
    /// The daemon.
    pub daemon: Headgate,
    /// Where it listens.
    pub address: String,
}

impl Node {
    /// Starts one, called so, with further words to `serve` and a datastore of this storage.
    pub fn start(
        lab: &Lab,
        name: &str,
        words: &[&str],
        datastore: &[&str],
    ) -> anyhow::Result<Node> {
        let address = free_address()?;
        let listen = [&["--nbd-listen", &address][..], words].concat();
        let daemon = Headgate::start_as(lab, name, &[], &listen)?;
        daemon.command(&[&["datastore", "add", ARRAY][..], datastore].concat())?;
        Ok(Node { daemon, address })
    }

    /// Makes a disk that gateways find by its name.
    pub fn disk(&self, name: &str, words: &[&str]) -> anyhow::Result<()> {
        let create = ["disk", "create", name, "--datastore", ARRAY];
        self.daemon.command(&[&create[..], words].concat()).map(drop)
    }
}

/// A gateway with a disk over several servers.
pub struct Gateway {
    /// The daemon.
    pub daemon: Headgate,
    /// The disk, and the export of each server that it lies on.
    pub disk: String,
    load: Option<Process>,
    lab: std::path::PathBuf,
}

impl Gateway {
    /// Starts one for a disk of this name, over servers with these URIs.
    pub fn start(lab: &Lab, disk: &str, servers: &[String]) -> anyhow::Result<Gateway> {
        let daemon = Headgate::start_as(lab, &format!("gateway-{disk}"), &[], &[])?;
        let servers = servers.join(",");
        let depth = "--queue-depth=4096";
        daemon.command(&["datastore", "add", WIDE, "--stripe", &servers, depth])?;
        daemon.command(&["disk", "create", disk, "--datastore", WIDE, "--export", disk])?;
        let (disk, lab) = (disk.to_owned(), lab.dir().to_owned());
        Ok(Gateway { daemon, disk, load: None, lab })
    }

    /// Reads at random, so many requests outstanding.
    pub fn load(&mut self, depth: u32) -> anyhow::Result<()> {
        let uri = self.daemon.nbd_uri(&self.disk);
        self.load = Some(fleet::load(&self.lab, &self.disk, &uri, depth)?);
        Ok(())
    }

    /// Ends its load, which must have seen no error.
    pub fn idle(&mut self) -> anyhow::Result<()> {
        self.load.take().map_or(Ok(()), fleet::end)
    }

    /// What each server gave the disk, as it was told: IOs, and those by reservation.
    pub fn received(&self) -> anyhow::Result<Vec<Option<[f64; 2]>>> {
        let shown = self.daemon.json(&["disk", "show", &self.disk])?;
        let servers = shown["connection"]["servers"].as_array().context("no servers")?;
        let received = |server: &serde_json::Value| {
            let ios = |key: &str| server["received"][key].as_f64();
            Some([ios("ios")?, ios("by_reservation")?])
        };
        Ok(servers.iter().map(received).collect())
    }
}

/// Stands between gateways and a node, and keeps the counters from them: the node never hears of
/// them, and gateways are told that it does not know them.
///
/// Answers with the address at which gateways find the node. It ends with the process.
pub fn without_counters(node: &str) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let node = node.to_owned();
    spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let node = node.clone();
            // Whoever goes away goes away.
            spawn(move || drop(stand_between(client, &node)));
        }
    });
    Ok(address)
}

/// The options of `docs/nbd-counters.md`, with their magic number in front, but for the last byte.
const OPTIONS: [u8; 11] = *b"IHAVEOPTHG\x00";
/// `NBD_REP_ERR_UNSUP`
const UNSUPPORTED: u32 = 0x8000_0001;

fn stand_between(mut client: TcpStream, node: &str) -> io::Result<()> {
    let mut server = TcpStream::connect(node)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut greeting = [0; 18];
    server.read_exact(&mut greeting)?;
    client.write_all(&greeting)?;
    let mut flags = [0; 4];
    client.read_exact(&mut flags)?;
    server.write_all(&flags)?;
    let mut head = [0; 16];
    loop {
        client.read_exact(&mut head)?;
        if head[..11] != OPTIONS {
            break;
        }
        let len = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
        io::copy(&mut (&mut client).take(u64::from(len)), &mut io::sink())?;
        let mut answer = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
        answer.extend(&head[8..12]);
        answer.extend(UNSUPPORTED.to_be_bytes());
        answer.extend([0; 4]);
        client.write_all(&answer)?;
    }
    server.write_all(&head)?;
    carry(server, client)
}

/// Stands between a gateway and a node, and lets connections through until it is told to stop.
pub struct Turnstile {
    /// Where it listens.
    pub address: String,
    shared: Arc<Shared>,
}

struct Shared {
    /// So many more go through.
    left: AtomicU64,
    held: AtomicU64,
}

impl Turnstile {
    /// In front of the node at this address. It ends with the process.
    pub fn start(node: &str) -> anyhow::Result<Turnstile> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let shared = Arc::new(Shared { left: AtomicU64::new(u64::MAX), held: AtomicU64::new(0) });
        let (node, here) = (node.to_owned(), shared.clone());
        spawn(move || {
            let mut waiting = Vec::new();
            for client in listener.incoming().map_while(Result::ok) {
                let through = here
                    .left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                if through.is_err() {
                    waiting.push(client);
                    here.held.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                let node = node.clone();
                // Whoever goes away goes away.
                spawn(move || {
                    drop(TcpStream::connect(node).and_then(|server| carry(server, client)))
                });
            }
        });
        Ok(Turnstile { address, shared })
    }

    /// So many more connections go through; the others are taken, and hear nothing.
    pub fn admit(&self, connections: u64) {
        self.shared.held.store(0, Ordering::SeqCst);
        self.shared.left.store(connections, Ordering::SeqCst);
    }

    /// Whether it holds a connection since it was told last.
    pub fn holds(&self) -> bool {
        self.shared.held.load(Ordering::SeqCst) > 0
    }
}

/// Carries what both sides say, until one of them ends.
fn carry(mut server: TcpStream, mut client: TcpStream) -> io::Result<()> {
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    let (mut to, mut from) = (server.try_clone()?, client.try_clone()?);
    let up = spawn(move || {
        let copied = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
        copied
    });
    let copied = io::copy(&mut server, &mut client);
    let _ = client.shutdown(Shutdown::Both);
    let _ = up.join();
    copied.map(drop)
}
