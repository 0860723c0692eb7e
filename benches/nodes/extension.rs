//! Plain NBD from a gateway to a node, and a disk that is striped over that node alone: the same
//! way, with counters on each request.

use crate::Options;
use crate::measure::{Seen, cpu, load, range};
use headgate_lab::headgate::Headgate;
use headgate_lab::stripes::{Node, WIDE};
use headgate_lab::{Lab, Server};

/// Requests outstanding.
const DEPTHS: [u32; 3] = [1, 32, 128];

struct Sample {
    seen: Seen,
    /// Seconds per million requests: of the gateway, of the node.
    cpu: [f64; 2],
}

fn measure(
    daemons: [&Headgate; 2],
    disk: &str,
    depth: u32,
    options: &Options,
) -> anyhow::Result<Sample> {
    let uri = daemons[0].nbd_uri(disk);
    load(&uri, "4K", depth, 1)?;
    let before = [cpu(daemons[0])?, cpu(daemons[1])?];
    let seen = load(&uri, "4K", depth, options.seconds)?;
    let millions = seen.iops * f64::from(options.seconds) / 1e6;
    let used = |n: usize| anyhow::Ok((cpu(daemons[n])? - before[n]) / millions);
    Ok(Sample { seen, cpu: [used(0)?, used(1)?] })
}

/// Measures, and prints a table.
pub fn run(lab: &Lab, options: &Options) -> anyhow::Result<()> {
    let images = lab.subdir("images")?.display().to_string();
    let mut node = Node::start(lab, "node", &[], &["--dir", &images])?;
    for disk in ["plain", "counted"] {
        node.disk(disk, &["--size=65M", "--reservation=1000", "--shares=500"])?;
    }
    let mut gateway = Headgate::start_as(lab, "gateway", &[], &[])?;
    let server = format!("nbd://{}", node.address);
    gateway.command(&["datastore", "add", "near", "--nbd", &server])?;
    gateway.command(&["datastore", "add", WIDE, "--stripe", &server])?;
    for (disk, store) in [("plain", "near"), ("counted", WIDE)] {
        gateway.command(&["disk", "create", disk, "--datastore", store, "--export", disk])?;
    }
    println!("\n**a gateway and a node: plain NBD, and the counters**\n");
    println!(
        "| depth | disk | IOPS | p50 us | p99 us | gateway s/M IO | node s/M IO | IOPS of plain | \
         node's CPU of plain |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let disks = ["plain", "counted"];
    for depth in DEPTHS {
        let mut samples = [Vec::new(), Vec::new()];
        for round in 0..options.rounds {
            for turn in 0..2 {
                let which = (round + turn) % 2;
                let daemons = [&gateway, &node.daemon];
                samples[which].push(measure(daemons, disks[which], depth, options)?);
            }
        }
        for (disk, own) in disks.iter().zip(&samples) {
            let all = |of: fn(&Sample) -> f64| own.iter().map(of).collect::<Vec<_>>();
            let ratio = |of: fn(&Sample) -> f64| -> Vec<f64> {
                own.iter().zip(&samples[0]).map(|(one, plain)| of(one) / of(plain)).collect()
            };
            println!(
                "| {depth} | {disk} | {} | {} | {} | {} | {} | {} | {} |",
                range(&all(|s| s.seen.iops), 0),
                range(&all(|s| s.seen.p50_us), 0),
                range(&all(|s| s.seen.p99_us), 0),
                range(&all(|s| s.cpu[0]), 2),
                range(&all(|s| s.cpu[1]), 2),
                range(&ratio(|s| s.seen.iops), 2),
                range(&ratio(|s| s.cpu[1]), 2),
            );
        }
    }
    gateway.stop()?;
    node.daemon.stop()
}
