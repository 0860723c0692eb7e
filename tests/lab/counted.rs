//! A client that says with each request what its disk received at other servers, as a gateway to a
//! striped disk will: a node is to believe it. Written from `docs/nbd-counters.md`.

use crate::ledger::splitmix;
use crate::nbd::{CLIENT_FLAGS, CMD_READ, Client, Handshake, REP_ACK, REQUEST_MAGIC};
use anyhow::{Context, ensure};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, spawn};

/// The option.
pub const OPT_COUNTERS: u32 = 0x4847_0001;
/// Its version.
pub const VERSION: u8 = 2;
const BLOCK: u32 = 4096;

/// What each request says, in millionths of an IO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Says {
    /// What was received elsewhere since the request before.
    pub delta: u64,
    /// What of it by reservation.
    pub rho: u64,
}

/// What a client was told in all, in IOs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// Replies.
    pub replies: u64,
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
    // Bytes moved elsewhere, the priority, and what is zero.
    message.extend([0; 16]);
    message
}

/// A client of one disk that keeps requests outstanding, on a thread.
pub struct Counted {
    over: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Told>>,
}

impl Counted {
    /// Reads at random, so many requests outstanding.
    pub fn start(socket: &Path, disk: &str, depth: u32, says: Says) -> Counted {
        let over = Arc::new(AtomicBool::new(false));
        let (socket, disk, until) = (PathBuf::from(socket), disk.to_owned(), over.clone());
        let thread = spawn(move || {
            let client = connect(&socket, &disk)?;
            run(client, depth, says, &until)
        });
        Counted { over, thread }
    }

    /// Ends it when all that it asked for was answered.
    pub fn stop(self) -> anyhow::Result<Told> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it does not panic")
    }
}

fn run(mut client: Client, depth: u32, says: Says, over: &AtomicBool) -> anyhow::Result<Told> {
    let blocks = client.size / u64::from(BLOCK);
    let (mut told, mut sent, mut millionths) = (Told::default(), 0, [0_u128; 2]);
    let mut send = |client: &mut Client| -> anyhow::Result<()> {
        let offset = splitmix(sent) % blocks * u64::from(BLOCK);
        sent += 1;
        Ok(client.stream.write_all(&request(sent, CMD_READ, offset, BLOCK, says))?)
    };
    (0..depth).try_for_each(|_| send(&mut client))?;
    let mut outstanding = depth;
    let mut data = vec![0; BLOCK as usize];
    while outstanding > 0 {
        let (error, _) = client.reply()?.context("the server hung up")?;
        ensure!(error == 0, "a read failed: {error}");
        for count in &mut millionths {
            let mut bytes = [0; 8];
            client.stream.read_exact(&mut bytes)?;
            *count += u128::from(u64::from_be_bytes(bytes));
        }
        client.stream.read_exact(&mut data)?;
        told.replies += 1;
        outstanding -= 1;
        if !over.load(Ordering::Relaxed) {
            send(&mut client)?;
            outstanding += 1;
        }
    }
    [told.all, told.by_reservation] = millionths.map(|count| count as f64 / 1e6);
    Ok(told)
}
