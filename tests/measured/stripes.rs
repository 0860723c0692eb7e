//! Disks over several storage nodes have one reservation and one number of shares: figures 9 and 10
//! of dmClock (OSDI 2010, section 4.3), with nodes, gateways and clients that are processes of
//! their own. Nodes that do not hear of each other, and nodes that know shares only, miss them.

use anyhow::ensure;
use headgate_lab::headgate::Headgate;
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::premise::{Premises, measure};
use headgate_lab::sample::{Interval, Sample};
use headgate_lab::stripes::{ARRAY, Gateway, Node, without_counters};
use headgate_lab::{Lab, wait_for};
use std::thread::sleep;
use std::time::Duration;

/// Requests that each gateway's client keeps outstanding, and each node has at its array.
const OUTSTANDING: u32 = 64;
const DEPTH: u32 = 16;
/// What service elsewhere is remembered for, twice.
const SETTLE: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);

/// A client of the paper: its disk, its policy on each node, and how many nodes it is on.
#[derive(Clone, Copy)]
struct Client {
    disk: &'static str,
    shares: u32,
    reservation: u32,
    nodes: usize,
}

const fn on_all(disk: &'static str, shares: u32, reservation: u32) -> Client {
    Client { disk, shares, reservation, nodes: usize::MAX }
}

/// Figure 9 (a) and (b).
const SHARES: [Client; 3] = [on_all("c1", 1, 0), on_all("c2", 4, 0), on_all("c3", 6, 0)];
const RESERVED: [Client; 3] = [on_all("c1", 1, 800), on_all("c2", 4, 1_000), on_all("c3", 6, 100)];
/// Figure 10.
const SKEWED: [Client; 2] = [Client { nodes: 1, ..on_all("c1", 1, 800) }, on_all("c2", 4, 1_000)];

/// Whether nodes hear what a disk received elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hearing {
    Counters,
    Nothing,
}

struct Setup<'a> {
    /// Of each node's array.
    rates: &'a [u32],
    clients: &'a [Client],
    hearing: Hearing,
    scheduler: &'static str,
    /// How many of the nodes, from the first on, serve all that they can.
    busy: usize,
}

impl<'a> Setup<'a> {
    fn new(rates: &'a [u32], clients: &'a [Client]) -> Setup<'a> {
        let scheduler = "--scheduler=mclock";
        Setup { rates, clients, hearing: Hearing::Counters, scheduler, busy: rates.len() }
    }
}

/// What a client got per second at all nodes, and what of that by reservation, at a quick machine's
/// pace.
struct Got {
    all: f64,
    reserved: f64,
}

impl Setup<'_> {
    fn node(&self, lab: &Lab, pace: Pace, n: usize) -> anyhow::Result<Node> {
        let model = format!("rate={},latency=5ms", pace.rate(self.rates[n]));
        let depth = format!("--queue-depth={DEPTH}");
        let store = ["--emulated", &model, &depth, self.scheduler];
        let node = Node::start(lab, &format!("node{n}"), &[], &store)?;
        for client in self.clients.iter().filter(|client| n < client.nodes) {
            let shares = format!("--shares={}", client.shares * 100);
            let reservation = format!("--reservation={}", pace.rate(client.reservation));
            let words = ["--size=33M", &shares, "--force", &reservation];
            let words = if client.reservation == 0 { &words[..3] } else { &words };
            node.disk(client.disk, words)?;
        }
        Ok(node)
    }

    fn run(&self, lab: &Lab, pace: Pace, what: &str) -> anyhow::Result<Vec<Got>> {
        let nodes: Vec<Node> = (0..self.rates.len())
            .map(|n| self.node(lab, pace, n))
            .collect::<anyhow::Result<_>>()?;
        let uri = |node: &Node| match self.hearing {
            Hearing::Counters => Ok(format!("nbd://{}", node.address)),
            Hearing::Nothing => Ok(format!("nbd://{}", without_counters(&node.address)?)),
        };
        let uris: Vec<String> = nodes.iter().map(uri).collect::<anyhow::Result<_>>()?;
        let start = |client: &Client| {
            Gateway::start(lab, client.disk, &uris[..client.nodes.min(uris.len())])
        };
        let mut gateways: Vec<Gateway> =
            self.clients.iter().map(start).collect::<anyhow::Result<_>>()?;
        // Exports were looked at and labelled, which is no client's and was told to nobody.
        let before: Vec<Sample> =
            nodes.iter().map(|node| Sample::read(&node.daemon)).collect::<anyhow::Result<_>>()?;
        for gateway in &mut gateways {
            gateway.load(OUTSTANDING)?;
        }
        sleep(pace.time(SETTLE));
        let busy = |n: usize| match n < self.busy {
            true => Premises::new().busy(ARRAY, pace.rate(self.rates[n]).into()),
            false => Premises::new(),
        };
        let of_nodes: Vec<Premises> = (0..nodes.len()).map(busy).collect();
        let backlog = |gateway: &Gateway| Premises::new().backlog(&gateway.disk, OUTSTANDING);
        let of_gateways: Vec<Premises> = gateways.iter().map(backlog).collect();
        let daemons = nodes.iter().map(|node| &node.daemon);
        let subjects: Vec<(&Headgate, &Premises)> = daemons
            .chain(gateways.iter().map(|gateway| &gateway.daemon))
            .zip(of_nodes.iter().chain(&of_gateways))
            .collect();
        let rest = || {
            sleep(pace.time(MEASURED));
            Ok(())
        };
        let ((), intervals) = measure(&subjects, rest)?;
        let got = self.clients.iter().map(|client| {
            let on = &intervals[..client.nodes.min(nodes.len())];
            got(client.disk, on, pace)
        });
        let got: Vec<Got> = got.collect::<anyhow::Result<_>>()?;
        for (client, Got { all, reserved }) in self.clients.iter().zip(&got) {
            eprintln!("  {what}: {} {all:.0}, by reservation {reserved:.0}", client.disk);
        }
        for gateway in &mut gateways {
            gateway.idle()?;
        }
        // What was under way when the clients left ends at the nodes' pace.
        let check = || self.check_told(&nodes, &gateways, &before);
        let told = "gateways should be told what nodes have counted";
        wait_for(told, MINUTE, || Ok(check().ok())).or_else(|_| check())?;
        Ok(got)
    }

    /// What gateways were told is what nodes have counted.
    fn check_told(
        &self,
        nodes: &[Node],
        gateways: &[Gateway],
        before: &[Sample],
    ) -> anyhow::Result<()> {
        for gateway in gateways {
            for ((node, before), told) in nodes.iter().zip(before).zip(gateway.received()?) {
                let Some([ios, by_reservation]) = told else {
                    ensure!(self.hearing == Hearing::Nothing, "a node tells nothing");
                    continue;
                };
                ensure!(self.hearing == Hearing::Counters, "there is no telling");
                let now = Sample::read(&node.daemon)?.phases(&gateway.disk)?;
                let then = before.phases(&gateway.disk)?;
                let [all, reserved] = [now[0] - then[0], now[1] - then[1]];
                // Whole IOs are told here.
                let near = |told: f64, counted: f64| (told - counted).abs() <= 2.0;
                ensure!(
                    near(ios, all) && near(by_reservation, reserved),
                    "told of {ios} and {by_reservation}, and it was {all} and {reserved}"
                );
            }
        }
        Ok(())
    }
}

fn got(disk: &str, nodes: &[Interval], pace: Pace) -> anyhow::Result<Got> {
    let mut got = Got { all: 0.0, reserved: 0.0 };
    for node in nodes {
        let [all, reserved] = node.phases(disk)?;
        got.all += all * f64::from(pace.factor());
        got.reserved += reserved * f64::from(pace.factor());
    }
    Ok(got)
}

fn near(what: &str, got: f64, due: f64, part: f64) -> anyhow::Result<()> {
    let off = got / due - 1.0;
    ensure!(off.abs() <= part, "{what}: {got:.0}, and {due:.0} are due ({:+.1} %)", off * 100.0);
    Ok(())
}

/// Three nodes of 1,800 IOPS: the sum is the paper's.
const EVEN: [u32; 3] = [1_800; 3];

#[test]
fn shares_are_of_all_nodes_together() {
    with_paced_lab(&[], |lab, pace| {
        let got = Setup::new(&EVEN, &SHARES).run(lab, pace, "figure 9 (a)")?;
        for (client, got) in SHARES.iter().zip(&got) {
            let due = 5_400.0 * f64::from(client.shares) / 11.0;
            near(client.disk, got.all, due, 0.05)?;
        }
        Ok(())
    });
}

#[test]
fn reservations_are_of_all_nodes_together() {
    with_paced_lab(&[], |lab, pace| {
        let got = Setup::new(&EVEN, &RESERVED).run(lab, pace, "figure 9 (b)")?;
        near("c1", got[0].all, 800.0, 0.05)?;
        near("c1 by reservation", got[0].reserved, got[0].all, 0.05)?;
        let left = 5_400.0 - got[0].all;
        near("c2", got[1].all, 0.4 * left, 0.05)?;
        near("c2 by reservation", got[1].reserved, 1_000.0, 0.05)?;
        near("c3", got[2].all, 0.6 * left, 0.05)?;
        near("c3 by reservation", got[2].reserved, 100.0, 0.1)
    });
}

#[test]
fn nodes_that_do_not_hear_of_each_other_give_a_reservation_each() {
    with_paced_lab(&[], |lab, pace| {
        let alone = Setup { hearing: Hearing::Nothing, ..Setup::new(&EVEN, &RESERVED) };
        let got = alone.run(lab, pace, "figure 9 (b) without counters")?;
        ensure!(near("c1", got[0].all, 800.0, 0.05).is_err(), "{:.0} of 800", got[0].all);
        Ok(())
    });
}

#[test]
fn nodes_that_know_shares_only_keep_no_reservation() {
    with_paced_lab(&[], |lab, pace| {
        let sfq = Setup { scheduler: "--scheduler=sfq", ..Setup::new(&EVEN, &RESERVED) };
        let got = sfq.run(lab, pace, "figure 9 (b) with shares only")?;
        ensure!(got[0].all < 0.65 * 800.0, "{:.0} of 800", got[0].all);
        Ok(())
    });
}

#[test]
fn a_disk_on_one_node_keeps_its_reservation_beside_one_on_both() {
    with_paced_lab(&[], |lab, pace| {
        let rates = [1_500, 1_500];
        let skewed = Setup { busy: 1, ..Setup::new(&rates, &SKEWED) };
        let got = skewed.run(lab, pace, "figure 10")?;
        near("c1", got[0].all, 800.0, 0.05)?;
        near("c2", got[1].all, 1_400.0, 0.08)
    });
}

#[test]
fn a_disk_on_one_node_gets_its_shares_only_where_nodes_know_no_reservations() {
    with_paced_lab(&[], |lab, pace| {
        let rates = [1_500, 1_500];
        let sfq = Setup { scheduler: "--scheduler=sfq", busy: 1, ..Setup::new(&rates, &SKEWED) };
        let got = sfq.run(lab, pace, "figure 10 with shares only")?;
        ensure!(got[0].all < 0.65 * 800.0, "{:.0} of 800", got[0].all);
        Ok(())
    });
}

/// What a disk may have beyond its reservation where most nodes have time to spare: 1 to 6 % were
/// seen. Without counters it is 35 %.
const EARLY: f64 = 0.1;

#[test]
fn a_slow_node_does_not_take_more_of_a_reservation_than_it_gives() {
    with_paced_lab(&[], |lab, pace| {
        // All stripes are read alike, so all nodes give what the slow one gives: 2,640 together.
        let rates = [1_650, 1_650, 1_650, 330, 1_650, 1_650, 1_650, 1_650];
        let slow = Setup { busy: 0, ..Setup::new(&rates, &RESERVED) };
        let got = slow.run(lab, pace, "eight nodes, one slow")?;
        near("c1", got[0].all, 800.0, 0.05)?;
        let all: f64 = got.iter().map(|got| got.all).sum();
        let left = all - got[0].all;
        // Its part by shares is less than its reservation. What the seven serve before it is due
        // counts as by shares, so that the slow one gives some percent more by reservation.
        let due = (0.4 * left).max(1_000.0);
        near("c2", got[1].all, due, EARLY)?;
        near("c3", got[2].all, left - due, EARLY * due / (left - due))?;
        ensure!(all >= 0.9 * 8.0 * 330.0, "{all:.0} of 2,640");
        Ok(())
    });
}
