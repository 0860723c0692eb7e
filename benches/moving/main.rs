//! What a move costs the disk that moves and the disk beside it, and what QEMU's mirror costs them
//! on the same storage at the same rate. And how long moves take, beside what the storage can do.
//!
//! Two emulated arrays of six spindles, each with a window of 32. On one of them a disk that moves
//! to the other, and a disk with a reservation beside it, both read and written at random over NBD.
//! The mirror runs in a qemu-storage-daemon whose storage are the exports of the same two disks:
//! its clients are one hop further from the storage, so it is measured without a mirror, too.

mod clients;
mod mirror;
mod setting;
mod table;

use clap::Parser;
use headgate_lab::with_lab;
use setting::{Case, Setting};

/// Arguments.
#[derive(Clone, Parser)]
pub struct Args {
    /// Rounds; each measures every case once
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long a case is measured, in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How long clients run before that
    #[arg(long, default_value_t = 3)]
    warmup: u64,
    /// The rate at which both copy where they are given one, in MiB a second
    #[arg(long, default_value_t = 8)]
    rate_mib: u64,
    /// Size of the disk that moves, in MiB
    #[arg(long, default_value_t = 6_144)]
    size_mib: u64,
    /// How much of it is data, in MiB: copies begin there
    #[arg(long, default_value_t = 1_024)]
    data_mib: u64,
    /// Size of the disk whose whole moves are timed, all of it data, in MiB; 0: none is
    #[arg(long, default_value_t = 512)]
    timed_mib: u64,
}

fn main() {
    let args = Args::parse();
    with_lab(&["qemu-storage-daemon"], |lab| {
        let mut setting = Setting::prepare(lab, &args)?;
        let mut samples = Case::ALL.map(|_| Vec::new());
        for round in 0..args.rounds {
            for (case, samples) in Case::ALL.into_iter().zip(&mut samples) {
                eprintln!("round {} of {}: {}", round + 1, args.rounds, case.name(&args));
                samples.push(setting.measure(case)?);
            }
        }
        table::print_machine();
        table::print(&args, &samples);
        if args.timed_mib > 0 {
            table::print_times(&args, &setting.time_moves()?);
        }
        setting.end()
    });
}
