//! Inside a guest: writes blocks to an export, all at the same time, and says what became of them.

use anyhow::ensure;
use clap::Parser;
use headgate_lab::nbd::{CMD_FLUSH, CMD_WRITE, Client};
use std::path::PathBuf;

const BLOCK: usize = 4096;

#[derive(Parser)]
#[command(about = "Writes blocks to an export, and says how many were acknowledged")]
struct Args {
    /// The server's socket
    socket: PathBuf,
    /// The export
    export: String,
    /// What every byte is to be
    byte: u8,
    /// How many blocks, from the first
    blocks: u64,
}

fn main() -> anyhow::Result<()> {
    let Args { socket, export, byte, blocks } = Args::parse();
    let mut client = Client::connect(&socket, &export)?;
    let data = [byte; BLOCK];
    for block in 0..blocks {
        client.send((CMD_WRITE, 0), block, block * BLOCK as u64, BLOCK as u32, &data)?;
    }
    println!("sent {blocks}");
    let (mut acknowledged, mut failed) = (0, 0);
    while acknowledged + failed < blocks {
        match client.reply()? {
            Some((0, _)) => acknowledged += 1,
            Some(_) => failed += 1,
            None => break,
        }
    }
    let lost = blocks - acknowledged - failed;
    println!("acknowledged {acknowledged} failed {failed} unanswered {lost}");
    if lost + failed == 0 {
        let flushed = client.ask((CMD_FLUSH, 0), 0, 0, &[])?;
        ensure!(flushed == Some(0), "the flush: {flushed:?}");
        println!("flushed");
    }
    Ok(())
}
