//! What the tests of this crate share: arguments, peers, and a small NBD server that can be told to
//! lie.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod liar;

use clap::Parser;
use headgate_load::LoadArgs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    load: LoadArgs,
}

/// The arguments of a command line.
pub fn args(words: &[&str]) -> LoadArgs {
    Cli::try_parse_from(std::iter::once("load").chain(words.iter().copied())).unwrap().load
}

/// A directory in memory where there is one: flushes cost nothing there.
pub fn tempdir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The URI of an export behind a unix socket.
pub fn uri(socket: &Path, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", socket.display())
}

/// A server of another project, killed when dropped.
pub struct Peer(pub Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a peer and waits until `socket` is there. `None`, said aloud, when the peer is not
/// installed.
pub fn start(command: &mut Command, socket: &Path) -> Option<Peer> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = match child {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            eprintln!("SKIPPED: {} is not installed", command.get_program().to_string_lossy());
            return None;
        }
        child => child.unwrap(),
    };
    let mut peer = Peer(child);
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        assert!(peer.0.try_wait().unwrap().is_none(), "{command:?} ended");
        assert!(Instant::now() < deadline, "{command:?} does not listen on {}", socket.display());
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(peer)
}
