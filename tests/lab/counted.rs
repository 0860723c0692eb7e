//! A client that says with each request what its disk received at other servers, as a gateway to a
//! striped disk will: a node is to believe it. It may say what is not true. Written from
//! `docs/nbd-counters.md`.

use crate::ledger::splitmix;
use crate::nbd::{CLIENT_FLAGS, CMD_READ, Client, EINVAL, Handshake, REP_ACK, REQUEST_MAGIC};
use anyhow::{Context, ensure};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// The option.
pub const OPT_COUNTERS: u32 = 0x4847_0001;
/// Its version.
pub const VERSION: u8 = 2;
/// The highest priority that Linux knows, as a request has it: class 1 (real-time), level 0.
pub const REAL_TIME: u16 = 1 << 13;
/// Size of each request in bytes.
pub const BLOCK: u32 = 4096;
/// How long an answer may take. A limit remembers what was received elsewhere for 30 s, and a
/// client that says more of it with each request waits as long.
const PATIENCE: Duration = Duration::from_secs(180);
/// Marks the cookie of a request that is to be refused.
const BEYOND: u64 = 1 << 63;

/// What each request says, in millionths of an IO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Says {
    /// What was received elsewhere since the request before.
    pub delta: u64,
    /// What of it by reservation.
    pub rho: u64,
    /// What was moved there, in bytes.
    pub bytes: u64,
    /// The request's own priority, as Linux has it.
    pub ioprio: u16,
}

/// Where a request reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Into the disk.
    Inside,
    /// Behind its end: it is refused, and has said its counts all the same.
    Beyond,
}

/// What a client was told in all, in IOs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// Replies to requests that were served.
    pub replies: u64,
    /// Replies to requests that were refused.
    pub refused: u64,
    /// What its disk was charged.
    pub all: f64,
    /// What of it by reservation.
    pub by_reservation: f64,
}

/// Asks for the counters, without a lease, and opens an export.
pub fn connect(socket: &Path, export: &str) -> anyhow::Result<Client> {
    let mut handshake = Handshake::connect(socket)?;
    handshake.flags(CLIENT_FLAGS)?;
    let mut data = [0; 42];
    data[1] = VERSION;
    handshake.option(OPT_COUNTERS, data.len() as u32, &data)?;
    let reply = handshake.reply()?.context("the server hung up")?;
    ensure!(reply.kind == REP_ACK, "the counters are refused: {reply:x?}");
    handshake.go_on(export)
}

/// A request with its counters.
pub fn request(cookie: u64, command: u16, offset: u64, len: u32, says: Says) -> Vec<u8> {
    let mut message = REQUEST_MAGIC.to_be_bytes().to_vec();
    message.extend([0, 0]);
    message.extend(command.to_be_bytes());
    message.extend(cookie.to_be_bytes());
    message.extend(offset.to_be_bytes());
    message.extend(len.to_be_bytes());
    message.extend(says.delta.to_be_bytes());
    message.extend(says.rho.to_be_bytes());
    message.extend(says.bytes.to_be_bytes());
    message.extend(says.ioprio.to_be_bytes());
    message.extend([0; 6]);
    message
}

/// A client of one disk that keeps requests outstanding, on a thread.
pub struct Counted {
    over: Arc<AtomicBool>,
    stream: Arc<OnceLock<UnixStream>>,
    thread: JoinHandle<anyhow::Result<Told>>,
}

impl Counted {
    /// Reads at random, so many requests outstanding, each of which says the same.
    pub fn start(socket: &Path, disk: &str, depth: u32, says: Says) -> Counted {
        Counted::telling(socket, disk, depth, move |_| (says, Reach::Inside))
    }

    /// The same with a tale: what each request says, by its number, and where it reaches.
    pub fn telling(
        socket: &Path,
        disk: &str,
        depth: u32,
        tale: impl FnMut(u64) -> (Says, Reach) + Send + 'static,
    ) -> Counted {
        let (over, stream) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::new()));
        let (socket, disk) = (PathBuf::from(socket), disk.to_owned());
        let (until, own) = (over.clone(), stream.clone());
        let thread = spawn(move || {
            let client = connect(&socket, &disk)?;
            client.stream.set_read_timeout(Some(PATIENCE))?;
            own.get_or_init(|| client.stream.try_clone().expect("a descriptor is free"));
            run(client, depth, tale, &until)
        });
        Counted { over, stream, thread }
    }

    /// Fails when it has ended before it was told to.
    pub fn ensure_running(&self) -> anyhow::Result<()> {
        ensure!(!self.thread.is_finished(), "a client that counts has ended by itself");
        Ok(())
    }

    /// Ends it at once. Nobody answers what it has asked for, which may take long after what it
    /// said.
    ///
    /// # Errors
    /// It had ended by itself.
    pub fn leave(self) -> anyhow::Result<()> {
        self.ensure_running()?;
        if let Some(stream) = self.stream.get() {
            stream.shutdown(Shutdown::Both)?;
        }
        // It finds that the server has hung up.
        let _ = self.stop();
        Ok(())
    }

    /// Ends it when all that it asked for was answered.
    pub fn stop(self) -> anyhow::Result<Told> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it does not panic")
    }
}

/// Reads what a reply says behind its head: what was charged, and what of it by reservation, in
/// millionths of an IO.
pub fn told(client: &mut Client) -> anyhow::Result<[u64; 2]> {
    let mut counts = [[0; 8]; 2];
    client.stream.read_exact(counts.as_flattened_mut())?;
    Ok(counts.map(u64::from_be_bytes))
}

fn run(
    mut client: Client,
    depth: u32,
    mut tale: impl FnMut(u64) -> (Says, Reach),
    over: &AtomicBool,
) -> anyhow::Result<Told> {
    let blocks = client.size / u64::from(BLOCK);
    let (mut all, mut sent, mut millionths) = (Told::default(), 0, [0_u128; 2]);
    let mut send = |client: &mut Client| -> anyhow::Result<()> {
        let (says, reach) = tale(sent);
        let (mark, offset) = match reach {
            Reach::Inside => (0, splitmix(sent) % blocks * u64::from(BLOCK)),
            Reach::Beyond => (BEYOND, client.size),
        };
        sent += 1;
        let message = request(sent | mark, CMD_READ, offset, BLOCK, says);
        Ok(client.stream.write_all(&message)?)
    };
    (0..depth).try_for_each(|_| send(&mut client))?;
    let mut outstanding = depth;
    let mut data = vec![0; BLOCK as usize];
    while outstanding > 0 {
        let (error, cookie) = client.reply()?.context("the server hung up")?;
        let beyond = cookie & BEYOND != 0;
        ensure!(error == if beyond { EINVAL } else { 0 }, "a read: error {error}");
        for (sum, count) in millionths.iter_mut().zip(told(&mut client)?) {
            *sum += u128::from(count);
        }
        if beyond {
            all.refused += 1;
        } else {
            client.stream.read_exact(&mut data)?;
            all.replies += 1;
        }
        outstanding -= 1;
        if !over.load(Ordering::Relaxed) {
            send(&mut client)?;
            outstanding += 1;
        }
    }
    [all.all, all.by_reservation] = millionths.map(|count| count as f64 / 1e6);
    Ok(all)
}
