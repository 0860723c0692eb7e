//! One disk over one node by one connection, and by several, in the clear and over TLS.

use crate::Options;
use crate::measure::{Seen, cpu, load, range};
use headgate_lab::headgate::Headgate;
use headgate_lab::stripes::Node;
use headgate_lab::{Lab, Server, tls};

/// Connections.
const NUMBERS: [u8; 3] = [1, 2, 4];

/// Size of a request, and how many are outstanding.
const LOADS: [(&str, u32); 3] = [("4K", 1), ("4K", 32), ("64K", 16)];

struct Sample {
    seen: Seen,
    /// Seconds per million requests, of the gateway and the node.
    cpu: f64,
}

fn measure(
    daemons: [&Headgate; 2],
    disk: &str,
    (size, depth): (&str, u32),
    options: &Options,
) -> anyhow::Result<Sample> {
    let uri = daemons[0].nbd_uri(disk);
    load(&uri, size, depth, 1)?;
    let used = || anyhow::Ok(cpu(daemons[0])? + cpu(daemons[1])?);
    let before = used()?;
    let seen = load(&uri, size, depth, options.seconds)?;
    let millions = seen.iops * f64::from(options.seconds) / 1e6;
    Ok(Sample { seen, cpu: (used()? - before) / millions })
}

/// Measures, and prints a table.
pub fn run(lab: &Lab, options: &Options) -> anyhow::Result<()> {
    println!("\n**a gateway and a node: connections of a disk**\n");
    println!("| over | requests | connections | IOPS | p99 us | s/M IO, both | IOPS of one's |");
    println!("|---|---|---|---|---|---|---|");
    for scheme in ["nbd", "nbds"] {
        let dir = tls::both_roles(&lab.subdir(scheme)?)?.display().to_string();
        let words: &[&str] = if scheme == "nbds" { &["--nbd-tls", &dir] } else { &[] };
        let images = lab.subdir(&format!("images-{scheme}"))?.display().to_string();
        let mut node = Node::start(lab, &format!("node-{scheme}"), words, &["--dir", &images])?;
        let mut gateway = Headgate::start_as(lab, &format!("gateway-{scheme}"), &[], words)?;
        let server = format!("{scheme}://{}", node.address);
        let disks = NUMBERS.map(|number| format!("d{number}"));
        for (disk, number) in disks.iter().zip(NUMBERS) {
            node.disk(disk, &["--size=64M"])?;
            let connections = format!("--connections={number}");
            gateway.command(&["datastore", "add", disk, "--nbd", &server, &connections])?;
            gateway.command(&["disk", "create", disk, "--datastore", disk, "--export", disk])?;
        }
        for what in LOADS {
            let mut samples = NUMBERS.map(|_| Vec::new());
            for round in 0..options.rounds {
                for turn in 0..NUMBERS.len() {
                    let which = (round + turn) % NUMBERS.len();
                    let daemons = [&gateway, &node.daemon];
                    samples[which].push(measure(daemons, &disks[which], what, options)?);
                }
            }
            for (number, own) in NUMBERS.iter().zip(&samples) {
                let all = |of: fn(&Sample) -> f64| own.iter().map(of).collect::<Vec<_>>();
                let ratios = own.iter().zip(&samples[0]);
                let ratios: Vec<f64> =
                    ratios.map(|(own, one)| own.seen.iops / one.seen.iops).collect();
                println!(
                    "| {scheme} | {} x {} | {number} | {} | {} | {} | {} |",
                    what.0,
                    what.1,
                    range(&all(|s| s.seen.iops), 0),
                    range(&all(|s| s.seen.p99_us), 0),
                    range(&all(|s| s.cpu), 2),
                    range(&ratios, 2),
                );
            }
        }
        gateway.stop()?;
        node.daemon.stop()?;
    }
    Ok(())
}
