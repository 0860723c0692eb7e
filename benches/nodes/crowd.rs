//! Many gateways on one node, each a daemon with a disk and a client of its own.

use crate::Options;
use crate::measure::{cpu, range};
use headgate_lab::sample::{Interval, Sample};
use headgate_lab::stripes::{ARRAY, Gateway, Node};
use headgate_lab::{Lab, Server};
use std::thread::sleep;
use std::time::Duration;

/// Requests outstanding of each client.
const DEPTH: u32 = 4;

/// Measures, and prints a table.
pub fn run(lab: &Lab, options: &Options) -> anyhow::Result<()> {
    println!("\n**gateways on one node of {} IOPS, {DEPTH} outstanding each**\n", options.rate);
    println!(
        "| gateways | IOPS of the node | least and most of a disk, of an equal part | \
         node s/M IO | node MiB |"
    );
    println!("|---|---|---|---|---|");
    let counts = [1, 10, options.gateways];
    for (at, count) in counts.into_iter().enumerate().filter(|(_, n)| *n <= options.gateways) {
        let model = format!("rate={},depth=16", options.rate);
        let mut node = Node::start(lab, &format!("node{at}"), &[], &["--emulated", &model])?;
        let server = [format!("nbd://{}", node.address)];
        let mut gateways = Vec::new();
        for n in 0..count {
            let disk = format!("d{at}-{n}");
            node.disk(&disk, &["--size=9M"])?;
            gateways.push(Gateway::start(lab, &disk, &server)?);
        }
        for gateway in &mut gateways {
            gateway.load(DEPTH)?;
        }
        sleep(Duration::from_secs(5));
        let mut all = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..options.rounds {
            let (from, before) = (Sample::read(&node.daemon)?, cpu(&node.daemon)?);
            sleep(Duration::from_secs(u64::from(options.seconds)));
            let to = Sample::read(&node.daemon)?;
            let used = cpu(&node.daemon)? - before;
            let interval = Interval { from, to };
            let each = gateways
                .iter()
                .map(|gateway| interval.completions(&gateway.disk))
                .collect::<anyhow::Result<Vec<f64>>>()?;
            let sum = interval.throughput(ARRAY)?;
            let part = each.iter().sum::<f64>() / count as f64;
            let least = each.iter().copied().fold(f64::INFINITY, f64::min);
            let most = each.iter().copied().fold(0.0, f64::max);
            let millions = sum * interval.seconds() / 1e6;
            for (all, value) in
                all.iter_mut().zip([sum, least / part, most / part, used / millions])
            {
                all.push(value);
            }
        }
        println!(
            "| {count} | {} | {}; {} | {} | {} |",
            range(&all[0], 0),
            range(&all[1], 2),
            range(&all[2], 2),
            range(&all[3], 1),
            node.daemon.memory_kib()? / 1024,
        );
        for mut gateway in gateways {
            gateway.idle()?;
            gateway.daemon.stop()?;
        }
        node.daemon.stop()?;
    }
    Ok(())
}
