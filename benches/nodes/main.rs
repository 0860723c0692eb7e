//! What a disk over storage nodes costs, all daemons on this machine, over TCP: the counters beside
//! plain NBD to the same node, several connections beside one, one to six nodes, and many gateways
//! on one node.
//!
//! Contenders are interleaved: a round has each once, and begins with another. What counts are
//! medians and ranges over the rounds, and ratios within a round.

mod connections;
mod crowd;
mod extension;
mod measure;
mod scaling;

use clap::{Parser, ValueEnum};
use headgate_lab::with_lab;

/// Measures disks over storage nodes.
#[derive(Parser)]
pub struct Options {
    /// What is measured; may be repeated.
    #[arg(long, value_enum, default_values_t = [What::Extension, What::Scaling, What::Crowd])]
    what: Vec<What>,
    /// Rounds; each measures every contender once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of a measurement in seconds.
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// IOPS of each node's emulated array, for `scaling` and `crowd`.
    #[arg(long, default_value_t = 1_500)]
    rate: u32,
    /// The most gateways of `crowd`.
    #[arg(long, default_value_t = 100)]
    gateways: usize,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// A disk on one node by plain NBD, and striped over the same node: with counters.
    Extension,
    /// A disk on one node over 1, 2 and 4 connections, in the clear and over TLS.
    Connections,
    /// A disk over 1 to 6 nodes of the same speed.
    Scaling,
    /// 1, 10 and 100 gateways on one node.
    Crowd,
}

fn main() {
    let options = Options::parse();
    for what in &options.what {
        with_lab(&[], |lab| match what {
            What::Extension => extension::run(lab, &options),
            What::Connections => connections::run(lab, &options),
            What::Scaling => scaling::run(lab, &options),
            What::Crowd => crowd::run(lab, &options),
        });
    }
}
