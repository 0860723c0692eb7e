//! Inside a guest whose power may go: does the operations of a plan over NBD, and says what it may
//! rely on, a line each, where the host listens.

use anyhow::{Context, ensure};
use clap::Parser;
use headgate_lab::nbd::{CMD_FLUSH, CMD_TRIM, CMD_WRITE, CMD_WRITE_ZEROES, Client, FLAG_FUA};
use headgate_lab::power::{BLOCK, Kind, Operation, Plan, Promise, RoundEnd};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Long enough for the host to hear what was promised while nothing else happens.
const QUIET: Duration = Duration::from_millis(200);

#[derive(Parser)]
#[command(about = "Does the operations of a plan over NBD, and says what it may rely on")]
struct Args {
    /// The server's socket
    socket: PathBuf,
    /// The export
    export: String,
    /// Where promises are written to
    port: PathBuf,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    blocks: u64,
    #[arg(long)]
    round: u64,
    /// The first operation without a flush behind it
    #[arg(long)]
    quiet_from: u64,
    /// The first operation
    #[arg(long)]
    from: u64,
    /// The last operation
    #[arg(long)]
    operations: u64,
}

fn send(client: &mut Client, plan: &Plan, operation: Operation) -> anyhow::Result<()> {
    let (offset, length) = (operation.block * BLOCK as u64, BLOCK as u32);
    let bytes = plan.content(operation);
    let (command, data): (_, &[u8]) = match operation.kind {
        Kind::Write => ((CMD_WRITE, 0), &bytes),
        Kind::Forced => ((CMD_WRITE, FLAG_FUA), &bytes),
        Kind::Zero => ((CMD_WRITE_ZEROES, 0), &[]),
        Kind::ForcedZero => ((CMD_WRITE_ZEROES, FLAG_FUA), &[]),
        Kind::Trim => ((CMD_TRIM, 0), &[]),
    };
    client.send(command, operation.number, offset, length, data)
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let Args { seed, blocks, round, quiet_from, .. } = args;
    let plan = Plan { seed, blocks, round, quiet_from };
    let mut client = Client::connect(&args.socket, &args.export)?;
    let mut port = File::options().write(true).open(&args.port)?;
    let mut number = args.from;
    while number <= args.operations {
        let end = ((number / plan.round + 1) * plan.round).min(args.operations + 1);
        for number in number..end {
            send(&mut client, &plan, plan.operation(number))?;
        }
        for _ in number..end {
            let (error, handle) = client.reply()?.context("the server hung up")?;
            ensure!(error == 0, "operation {handle}: error {error}");
            if plan.operation(handle).kind.is_forced() {
                port.write_all(Promise::Forced(handle).line().as_bytes())?;
            }
        }
        match plan.round_end(number) {
            RoundEnd::Quiet => std::thread::sleep(QUIET),
            RoundEnd::Flush => {
                let flushed = client.ask((CMD_FLUSH, 0), 0, 0, &[])?;
                ensure!(flushed == Some(0), "the flush before operation {end}: {flushed:?}");
                port.write_all(Promise::Flushed(end - 1).line().as_bytes())?;
            }
        }
        number = end;
    }
    Ok(())
}
