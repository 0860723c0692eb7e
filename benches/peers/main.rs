//! Headgate beside its peers over NBD (on a unix socket, TCP, or TLS) and vhost-user-blk:
//! throughput, latency and the server's CPU per IO.
//!
//! All serve the same file with O_DIRECT, or a null backend, one at a time: a server is started,
//! warmed up, measured and stopped before the next one. Rounds are interleaved and each begins with
//! another server, so that a machine that slows down slows all. What counts is the median over the
//! rounds of the ratio to Headgate in the same round. Headgate schedules: reservation, limit and
//! shares are set.

mod client;
mod servers;
mod states;
mod table;

use anyhow::{Context, ensure};
use clap::Parser;
use client::{Sample, Tool};
use servers::{Backend, Contender, Storage, Way};
use states::State;
use std::path::{Path, PathBuf};

/// Compares Headgate with qemu-nbd, qemu-storage-daemon and nbdkit on the same file, or on none.
///
/// With HEADGATE_OTHER_BIN set, another build of Headgate is measured beside them: `--server other`
/// compares the two builds alone. HEADGATE_BIN names the build itself.
#[derive(Parser)]
struct Options {
    /// Rounds; each measures every server once per workload.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of a measurement in seconds.
    #[arg(long, default_value_t = 2)]
    seconds: u32,
    /// Size of the file in MiB.
    #[arg(long, default_value_t = 1024)]
    size_mib: u64,
    /// Where the file goes: a directory on the disk to be measured, or on tmpfs to see the servers'
    /// own cost.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// What is behind the servers.
    #[arg(long, value_enum, default_value_t = Backend::File)]
    backend: Backend,
    /// Only workloads whose name contains this.
    #[arg(long, default_value = "")]
    workload: String,
    /// Only servers whose name contains this, and Headgate.
    #[arg(long, default_value = "")]
    server: String,
    /// Only these ways to the servers; may be repeated.
    #[arg(long, value_enum, default_values_t = [Way::Nbd, Way::VhostUser])]
    way: Vec<Way>,
    /// Only these states of the machine; may be repeated.
    #[arg(long, value_enum, default_values_t = [State::Quiet])]
    state: Vec<State>,
    /// Only these numbers of requests under way per client; may be repeated.
    #[arg(long)]
    depth: Vec<u32>,
    /// The client. fio speaks NBD only, and has no TLS of which it can be told the certificates.
    #[arg(long, value_enum, default_value_t = Tool::Load)]
    client: Tool,
}

/// What the clients do.
pub struct Workload {
    /// As in the tables.
    pub name: &'static str,
    /// Random or sequential.
    pub order: Order,
    /// Reads or writes.
    pub direction: Direction,
    /// Size of a request in KiB.
    pub block_kib: u32,
    /// Requests under way per client.
    pub depth: u32,
    /// Clients, each with a connection or queue of its own.
    pub clients: u32,
}

/// The order of the requests' offsets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Anywhere.
    Random,
    /// One after the other.
    Sequential,
}

/// Which way the data goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the client.
    Read,
    /// From the client.
    Write,
}

const fn random(name: &'static str, direction: Direction, depth: u32, clients: u32) -> Workload {
    Workload { name, order: Order::Random, direction, block_kib: 4, depth, clients }
}

const fn sequential(name: &'static str, direction: Direction, clients: u32) -> Workload {
    Workload { name, order: Order::Sequential, direction, block_kib: 64, depth: 8, clients }
}

const WORKLOADS: [Workload; 14] = [
    random("rr4k-1", Direction::Read, 1, 1),
    random("rw4k-1", Direction::Write, 1, 1),
    random("rr4k-2", Direction::Read, 2, 1),
    random("rr4k-4", Direction::Read, 4, 1),
    random("rr4k-8", Direction::Read, 8, 1),
    random("rr4k-32", Direction::Read, 32, 1),
    random("rr4k-128", Direction::Read, 128, 1),
    random("rw4k-32", Direction::Write, 32, 1),
    sequential("sr64k-8", Direction::Read, 1),
    sequential("sw64k-8", Direction::Write, 1),
    random("rr4k-32x4", Direction::Read, 32, 4),
    random("rw4k-32x4", Direction::Write, 32, 4),
    sequential("sr64k-8x4", Direction::Read, 4),
    sequential("sw64k-8x4", Direction::Write, 4),
];

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    ensure!(
        options.rounds > 0 && options.seconds > 0 && options.size_mib >= 64,
        "rounds and seconds of at least 1, 64 MiB"
    );
    let wanted = |workload: &&Workload| {
        workload.name.contains(&options.workload)
            && (options.depth.is_empty() || options.depth.contains(&workload.depth))
    };
    let workloads: Vec<&Workload> = WORKLOADS.iter().filter(wanted).collect();
    ensure!(
        !workloads.is_empty(),
        "no workload has '{}' in its name and such a depth",
        options.workload
    );
    let dir = tempfile::Builder::new().prefix("headgate-peers-").tempdir_in(&options.dir)?;
    let storage = Storage::prepare(dir.path(), options.size_mib << 20, options.backend)
        .context("preparing what is served")?;
    let contenders: Vec<Contender> = Contender::ALL
        .into_iter()
        .filter(|c| c.installed() && options.client.speaks(*c))
        .filter(|c| options.way.contains(&c.way()))
        .filter(|c| c.is_headgate() || c.name().contains(&options.server))
        .collect();
    println!("{}", states::machine());
    let before = states::stolen();
    let cells = options.state.iter().flat_map(|&state| workloads.iter().map(move |&w| (state, w)));
    let mut cells: Vec<Cell> = cells
        .map(|(state, workload)| Cell { state, workload, samples: vec![vec![]; contenders.len()] })
        .collect();
    let end = measure(&options, &contenders, dir.path(), &storage, &mut cells);
    cells.retain(|cell| cell.samples.iter().any(|own| !own.is_empty()));
    for cell in &cells {
        table::print(cell, &contenders);
    }
    table::print_matrix(&cells, &contenders);
    if let (Some((stolen, all)), Some((later, all_later))) = (before, states::stolen()) {
        let part = (later - stolen) / (all_later - all).max(1.0);
        println!(
            "\nStolen by the hypervisor meanwhile: {:.1} % of the processors' time.",
            part * 100.0
        );
    }
    end?;
    println!("\nCommand lines:");
    for contender in &contenders {
        let lines = contender.command_line(dir.path(), &storage).join("; ");
        println!("- {}: `{lines}`", contender.name());
    }
    for workload in &workloads {
        let line = options.client.command_line(workload, options.seconds, "TARGET");
        println!("- client, {}: `{line}`", workload.name);
    }
    Ok(())
}

/// A workload in a state.
pub struct Cell {
    /// The state.
    pub state: State,
    /// The workload.
    pub workload: &'static Workload,
    /// By contender and round.
    pub samples: Vec<Vec<Sample>>,
}

/// Measures all cells, round by round. Whoever interrupts a long run has what was measured so far:
/// a line for each cell and round, with IOPS and CPU seconds per million.
fn measure(
    options: &Options,
    contenders: &[Contender],
    dir: &Path,
    storage: &Storage,
    cells: &mut [Cell],
) -> anyhow::Result<()> {
    for round in 0..options.rounds {
        for Cell { state, workload, samples } in &mut *cells {
            let mut line = format!(
                "round {} of {}, {} {}:",
                round + 1,
                options.rounds,
                state.name(),
                workload.name
            );
            for turn in 0..contenders.len() {
                let c = (round + turn) % contenders.len();
                let mut server = contenders[c].start(dir, storage, *state)?;
                let ongoing = state.begin(server.id(), dir)?;
                let sample =
                    client::measure(options.client, &mut server, workload, *state, options.seconds)
                        .with_context(|| {
                            format!("{} under {}", contenders[c].name(), workload.name)
                        })?;
                drop(ongoing);
                server.stop()?;
                line += &format!(
                    " {} {:.0}/{:.2}",
                    contenders[c].name(),
                    sample.iops,
                    sample.cpu_per_million
                );
                samples[c].push(sample);
            }
            eprintln!("{line}");
        }
    }
    Ok(())
}
