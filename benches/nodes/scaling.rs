//! One disk over more and more nodes of the same speed.

use crate::Options;
use crate::measure::{cpu, load, range};
use headgate_lab::stripes::{Gateway, Node};
use headgate_lab::{Lab, Server};

const MOST: usize = 6;
/// Of each node, at least: enough to keep it busy where requests fall by chance.
const DEPTH: u32 = 64;

/// Measures, and prints a table.
pub fn run(lab: &Lab, options: &Options) -> anyhow::Result<()> {
    let model = format!("rate={},depth=16", options.rate);
    let mut nodes = (0..MOST)
        .map(|n| Node::start(lab, &format!("node{n}"), &[], &["--emulated", &model]))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut gateways = Vec::new();
    for count in 1..=MOST {
        let disk = format!("over{count}");
        for node in &nodes[..count] {
            node.disk(&disk, &["--size=65M"])?;
        }
        let servers: Vec<String> =
            nodes[..count].iter().map(|node| format!("nbd://{}", node.address)).collect();
        gateways.push(Gateway::start(lab, &disk, &servers)?);
    }
    let mut samples: Vec<Vec<[f64; 4]>> = vec![Vec::new(); MOST];
    for round in 0..options.rounds {
        for turn in 0..MOST {
            let which = (round + turn) % MOST;
            let gateway = &gateways[which];
            let uri = gateway.daemon.nbd_uri(&gateway.disk);
            let depth = DEPTH * (which as u32 + 1);
            load(&uri, "8K", depth, 1)?;
            let before = cpu(&gateway.daemon)?;
            let seen = load(&uri, "8K", depth, options.seconds)?;
            let used = cpu(&gateway.daemon)? - before;
            let millions = seen.iops * f64::from(options.seconds) / 1e6;
            let due = f64::from(options.rate) * (which as f64 + 1.0);
            samples[which].push([seen.iops, seen.iops / due, seen.p99_us, used / millions]);
        }
    }
    println!("\n**one disk over nodes of {} IOPS each**\n", options.rate);
    println!("| nodes | IOPS | of what they give | p99 us | gateway s/M IO |");
    println!("|---|---|---|---|---|");
    for (count, own) in (1..).zip(&samples) {
        let all = |n: usize| own.iter().map(|sample| sample[n]).collect::<Vec<_>>();
        println!(
            "| {count} | {} | {} | {} | {} |",
            range(&all(0), 0),
            range(&all(1), 3),
            range(&all(2), 0),
            range(&all(3), 1),
        );
    }
    for gateway in &mut gateways {
        gateway.daemon.stop()?;
    }
    nodes.iter_mut().try_for_each(|node| node.daemon.stop())
}
