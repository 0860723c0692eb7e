//! What tenants, machines, disks and applications are promised, through the real daemon: three
//! tenants of four machines of three disks, some with applications, whose policies change while
//! all of them read as fast as they are served.
//!
//! What each is due is computed by the definition in `docs/tree.md` (`oracle`), which knows nothing
//! of the scheduler, from what all of them got together.

// The tests of the scheduler alone use more of it.
#[allow(dead_code)]
#[path = "../../crates/qos/tests/tree/oracle.rs"]
mod oracle;

use anyhow::{Context, ensure};
use headgate_lab::headgate::{Headgate, binary};
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::premise::Premises;
use headgate_lab::process::Process;
use headgate_lab::sample::{Interval, Sample};
use headgate_lab::{Lab, Server, wait_for};
use oracle::{Spec, due, members};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Reads per second of the array at full pace.
const RATE: u32 = 2_400;
/// From a change to the measurement, and how long that is.
const SETTLE: Duration = Duration::from_secs(2);
const WHILE: Duration = Duration::from_secs(20);
/// Reads that each client keeps outstanding.
const DEPTH: u32 = 16;
/// The part of its clients' reads that a disk holds on average at least.
const KEPT: f64 = 0.93;
/// How far each may be from what is due: this part of it, and so many reads.
const WITHIN: f64 = 0.02;
const IOS: f64 = 5.0;

/// What a node is in the daemon.
#[derive(Clone, Debug, PartialEq)]
enum Thing {
    Tenant(String),
    Machine(String),
    Disk(String),
    /// Of a disk, by its priority.
    Application(String, u8),
}

struct Site {
    pace: Pace,
    specs: Vec<Spec>,
    things: Vec<Thing>,
    daemon: Headgate,
    clients: Vec<Process>,
    premises: Premises,
}

fn spec(parent: Option<usize>, [reservation, limit, shares]: [u32; 3], pace: Pace) -> Spec {
    let limit = if limit == 0 { f64::INFINITY } else { f64::from(pace.rate(limit)) };
    let (reservation, shares) = (f64::from(pace.rate(reservation)), f64::from(shares));
    Spec { parent, reservation, limit, shares, demand: f64::INFINITY }
}

impl Site {
    /// The first tenant is promised much and has few shares, the second is limited, the third has
    /// some of each. The last machine of each is limited, the second disk of each machine has a
    /// reservation, and the first one two applications. Nobody reads yet.
    fn build(lab: &Lab, pace: Pace) -> anyhow::Result<Site> {
        let daemon = Headgate::start(lab)?;
        let rate = pace.rate(RATE);
        let model = format!("rate={rate},depth=16");
        daemon.command(&["datastore", "add", "array", "--emulated", &model, "--queue-depth=16"])?;
        let premises = Premises::new().busy("array", rate.into());
        let (specs, things, clients) = (Vec::new(), Vec::new(), Vec::new());
        let mut site = Site { pace, specs, things, daemon, clients, premises };
        let tenants = [[900, 0, 1], [0, 450, 6], [150, 1_200, 2]];
        for (tenant, promised) in ["red", "green", "blue"].into_iter().zip(tenants) {
            let group = site.add(None, promised, Thing::Tenant(tenant.to_owned()))?;
            for machine in 0..4_u32 {
                let name = format!("{tenant}-{machine}");
                let limit = if machine == 3 { 72 } else { 0 };
                let thing = Thing::Machine(name.clone());
                let machine = site.add(Some(group), [0, limit, 1 + machine], thing)?;
                for disk in 0..3_u32 {
                    site.add_disk(machine, &format!("{name}-{disk}"), disk)?;
                }
            }
        }
        Ok(site)
    }

    fn add(
        &mut self,
        parent: Option<usize>,
        promised: [u32; 3],
        thing: Thing,
    ) -> anyhow::Result<usize> {
        self.specs.push(spec(parent, promised, self.pace));
        self.things.push(thing);
        let node = self.specs.len() - 1;
        if matches!(self.things[node], Thing::Tenant(_) | Thing::Machine(_)) {
            self.put(node)?;
        }
        Ok(node)
    }

    fn add_disk(&mut self, machine: usize, name: &str, number: u32) -> anyhow::Result<()> {
        let reservation = if number == 1 { 18 } else { 0 };
        let promised = [reservation, 0, 100 * (number + 1)];
        let disk = self.add(Some(machine), promised, Thing::Disk(name.to_owned()))?;
        let Thing::Machine(vm) = &self.things[machine] else { unreachable!("a disk's parent") };
        self.daemon.command(&[
            "disk",
            "create",
            name,
            "--datastore=array",
            "--size=64M",
            "--vm",
            &vm.clone(),
        ])?;
        self.put(disk)?;
        let priorities: &[u8] = if number == 0 { &[20, 60] } else { &[] };
        for priority in priorities {
            let thing = Thing::Application(name.to_owned(), *priority);
            self.add(Some(disk), [0, 0, 10 * u32::from(*priority)], thing)?;
            let export = format!("{name}-at-{priority}");
            let priority = format!("--priority={priority}");
            self.daemon.command(&["export", "add", &export, "--disk", name, &priority])?;
        }
        let clients = priorities.len().max(1) as u32;
        self.premises = self.premises.clone().backlog_of(name, clients * DEPTH, KEPT);
        Ok(())
    }

    /// Has the daemon promise a node what its row says.
    fn put(&self, node: usize) -> anyhow::Result<()> {
        let Spec { reservation, limit, shares, .. } = self.specs[node];
        let number = |rate: f64| match rate {
            0.0 | f64::INFINITY => "none".to_owned(),
            rate => rate.to_string(),
        };
        let (kind, name) = match &self.things[node] {
            Thing::Tenant(name) => ("tenant", name),
            Thing::Machine(name) => ("vm", name),
            Thing::Disk(name) => ("disk", name),
            Thing::Application(..) => return Ok(()),
        };
        let mut arguments = vec![
            kind.to_owned(),
            "set".to_owned(),
            name.clone(),
            format!("--reservation={}", number(reservation)),
            format!("--limit={}", number(limit)),
            format!("--shares={shares}"),
        ];
        if let (Thing::Machine(_), Some(parent)) = (&self.things[node], self.specs[node].parent)
            && let Thing::Tenant(tenant) = &self.things[parent]
        {
            arguments.push(format!("--tenant={tenant}"));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.daemon.command(&arguments).map(drop)
    }

    fn set(&mut self, node: usize, change: impl FnOnce(&mut Spec)) -> anyhow::Result<()> {
        change(&mut self.specs[node]);
        self.put(node)
    }

    fn is_leaf(&self, node: usize) -> bool {
        members(&self.specs, Some(node)).is_empty()
    }

    /// Begins to read: each application by its export, each other disk by its own.
    fn start(&mut self, lab: &Lab) -> anyhow::Result<()> {
        let leaves = (0..self.specs.len()).filter(|node| self.is_leaf(*node));
        let uris: Vec<String> = leaves
            .map(|leaf| match &self.things[leaf] {
                Thing::Application(disk, priority) => {
                    self.daemon.nbd_uri(&format!("{disk}-at-{priority}"))
                }
                Thing::Disk(disk) => self.daemon.nbd_uri(disk),
                Thing::Tenant(_) | Thing::Machine(_) => unreachable!("they have disks"),
            })
            .collect();
        let mut command = Command::new(binary()?);
        command.args(["load", "--json", "--seconds=3600", &format!("--depth={DEPTH}")]);
        command.args(&uris);
        let report = lab.dir().join("load.json");
        self.clients.push(Process::spawn("headgate load", command, &report)?);
        let before = Sample::read(&self.daemon)?;
        wait_for("all clients should be served", Duration::from_secs(60), || {
            let now = Sample::read(&self.daemon)?;
            let served = |node: usize| self.got(node, &before, &now) > 0.0;
            Ok((0..self.specs.len()).filter(|n| self.is_leaf(*n)).all(served).then_some(()))
        })
    }

    /// What a node got between two samples.
    fn got(&self, node: usize, from: &Sample, to: &Sample) -> f64 {
        match &self.things[node] {
            Thing::Application(disk, priority) => {
                (to.of_stream(disk, *priority) - from.of_stream(disk, *priority)) as f64
            }
            Thing::Disk(disk) => (to.of_disk(disk) - from.of_disk(disk)) as f64,
            Thing::Tenant(_) | Thing::Machine(_) => {
                let inside = members(&self.specs, Some(node));
                inside.into_iter().map(|member| self.got(member, from, to)).sum()
            }
        }
    }

    fn measure(&self) -> anyhow::Result<Interval> {
        sleep(self.pace.time(SETTLE));
        self.premises.watch(&self.daemon, self.pace.time(WHILE))
    }

    /// How far who is furthest off is from what it is due by these rows, where that is something;
    /// an error names one that is further off than it may be.
    fn judge(&self, interval: &Interval, specs: &[Spec]) -> anyhow::Result<f64> {
        let seconds = interval.seconds();
        let got = |node: usize| self.got(node, &interval.from, &interval.to);
        let all: f64 = members(&self.specs, None).into_iter().map(got).sum();
        let due = due(specs, all / seconds);
        let mut worst: f64 = 0.0;
        for (node, thing) in self.things.iter().enumerate() {
            // Without groups nothing is due to them.
            if specs[node].demand == 0.0 {
                continue;
            }
            let (got, due) = (got(node), due.due[node] * seconds);
            let off = (got - due).abs();
            if due >= 400.0 {
                worst = worst.max(off / due);
            }
            ensure!(off <= WITHIN * due + IOS, "{thing:?}: {got} reads where {due:.1} are due");
        }
        Ok(worst)
    }

    fn check(&self, what: &str) -> anyhow::Result<()> {
        let interval = self.measure()?;
        let worst = self.judge(&interval, &self.specs).with_context(|| what.to_owned())?;
        eprintln!("{what}: {:.2} % off at worst", 100.0 * worst);
        Ok(())
    }

    fn find(&self, name: &str) -> usize {
        let is_it = |thing: &Thing| match thing {
            Thing::Tenant(known) | Thing::Machine(known) | Thing::Disk(known) => known == name,
            Thing::Application(..) => false,
        };
        self.things.iter().position(is_it).expect("the site has it")
    }

    /// The rows where nobody is in a group.
    fn flat(&self) -> Vec<Spec> {
        let row = |(spec, thing): (&Spec, &Thing)| match thing {
            Thing::Tenant(_) | Thing::Machine(_) => {
                Spec { parent: None, reservation: 0.0, demand: 0.0, ..*spec }
            }
            Thing::Disk(_) => Spec { parent: None, ..*spec },
            Thing::Application(..) => *spec,
        };
        self.specs.iter().zip(&self.things).map(row).collect()
    }

    /// Promises nothing to any tenant or machine.
    fn ungroup(&self) -> anyhow::Result<()> {
        for thing in &self.things {
            let (kind, name) = match thing {
                Thing::Tenant(name) => ("tenant", name),
                Thing::Machine(name) => ("vm", name),
                Thing::Disk(_) | Thing::Application(..) => continue,
            };
            let none = ["--reservation=none", "--limit=none", "--shares=none"];
            self.daemon.command(&[&[kind, "set", name][..], &none].concat())?;
        }
        Ok(())
    }
}

#[test]
fn tenants_machines_disks_and_applications_get_what_they_are_due() {
    with_paced_lab(&[], |lab, pace| {
        let mut site = Site::build(lab, pace)?;
        site.start(lab)?;
        site.check("as it begins")?;
        let rate = |nominal| f64::from(pace.rate(nominal));
        let [red, green, blue] = ["red", "green", "blue"].map(|tenant| site.find(tenant));
        site.set(green, |spec| spec.limit = rate(750))?;
        site.check("green's limit raised")?;
        site.set(red, |spec| spec.reservation = rate(360))?;
        site.check("red's reservation lowered")?;
        let machine = site.find("blue-1");
        site.set(machine, |spec| spec.reservation = rate(600))?;
        site.check("a machine's reservation set")?;
        site.set(blue, |spec| (spec.limit, spec.shares) = (f64::INFINITY, 5.0))?;
        site.check("blue's limit lifted, its shares raised")?;
        // Divided by disks' policies alone, and judged by the same rule.
        site.ungroup()?;
        let interval = site.measure()?;
        let wrong = site.judge(&interval, &site.specs);
        let wrong = wrong.err().context("who divides by disks alone should be judged wrong")?;
        eprintln!("by disks alone: {wrong:#}");
        let worst = site.judge(&interval, &site.flat()).context("by disks alone")?;
        eprintln!("which is what disks are due, {:.2} % off at worst", 100.0 * worst);
        for mut client in std::mem::take(&mut site.clients) {
            client.interrupt()?;
            let status = client.wait(Duration::from_secs(60))?;
            ensure!(status.success(), "headgate load: {status}");
        }
        site.daemon.stop()
    });
}
