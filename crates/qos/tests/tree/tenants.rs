//! Three tenants of four machines of three disks, some with applications: all that is promised,
//! in one run with changes while it goes on.

use crate::oracle::{Spec, due, members};
use crate::world::{Client, Device, Dice, Flat, Product, SECOND, Service, Subject, World};

/// Names are tenants' letters, machines and disks by number, applications by number.
pub struct Site {
    pub specs: Vec<Spec>,
}

const TENANTS: usize = 3;
const MACHINES: usize = 4;
const DISKS: usize = 3;

fn spec(parent: Option<usize>, reservation: f64, limit: f64, shares: f64) -> Spec {
    let limit = if limit == 0.0 { f64::INFINITY } else { limit };
    Spec { parent, reservation, limit, shares, demand: f64::INFINITY }
}

impl Site {
    /// Tenant 0 is promised much and has few shares, tenant 1 is limited, tenant 2 has some of
    /// each. In each machine the first disk has two applications, and one disk a reservation.
    pub fn new() -> Site {
        let mut specs = Vec::new();
        for tenant in 0..TENANTS {
            let (reservation, limit, shares) =
                [(3_000.0, 0.0, 1.0), (0.0, 1_500.0, 6.0), (500.0, 4_000.0, 2.0)][tenant];
            let tenant_at = specs.len();
            specs.push(spec(None, reservation, limit, shares));
            for machine in 0..MACHINES {
                let limit = if machine == 3 { 240.0 } else { 0.0 };
                let machine_at = specs.len();
                specs.push(spec(Some(tenant_at), 0.0, limit, 1.0 + machine as f64));
                for disk in 0..DISKS {
                    let reservation = if disk == 1 { 60.0 } else { 0.0 };
                    let disk_at = specs.len();
                    specs.push(spec(Some(machine_at), reservation, 0.0, 100.0 * (disk + 1) as f64));
                    if disk == 0 {
                        specs.push(spec(Some(disk_at), 20.0, 0.0, 10.0));
                        specs.push(spec(Some(disk_at), 0.0, 0.0, 30.0));
                    }
                }
            }
        }
        Site { specs }
    }

    pub fn tenant(&self, tenant: usize) -> usize {
        members(&self.specs, None)[tenant]
    }

    pub fn machine(&self, tenant: usize, machine: usize) -> usize {
        members(&self.specs, Some(self.tenant(tenant)))[machine]
    }

    pub fn leaves_in(&self, node: usize) -> Vec<usize> {
        let inside = members(&self.specs, Some(node));
        if inside.is_empty() {
            return vec![node];
        }
        inside.into_iter().flat_map(|member| self.leaves_in(member)).collect()
    }
}

/// A run, judged in spans of twenty seconds, two after each change.
struct Run<S> {
    site: Site,
    world: World<S>,
    end: u64,
    judged: usize,
    worst: f64,
}

impl<S: Subject> Run<S> {
    fn new(service: Service, subject: impl FnOnce(&[Spec]) -> S) -> Run<S> {
        let site = Site::new();
        let device = Device { rate: 8_000.0, service, window: 16, stalls: Vec::new() };
        let mut world = World::new(subject(&site.specs), &site.specs, device, 7);
        for tenant in 0..TENANTS {
            for leaf in site.leaves_in(site.tenant(tenant)) {
                world.client(leaf, Client::Closed { outstanding: 24, cost: 1 });
            }
        }
        Run { site, world, end: 0, judged: 0, worst: 0.0 }
    }

    fn set(&mut self, node: usize, change: impl FnOnce(&mut Spec)) {
        change(&mut self.site.specs[node]);
        self.world.set(node, &self.site.specs[node]);
    }

    fn asks(&mut self, node: usize, client: Client) {
        for leaf in self.site.leaves_in(node) {
            let is_idle = client == Client::Idle;
            self.site.specs[leaf].demand = if is_idle { 0.0 } else { f64::INFINITY };
            self.world.client(leaf, client);
        }
    }

    /// All nodes are within 2 % of what they are due, and five IOs in twenty seconds.
    fn judge(&mut self, what: &str) -> Result<(), String> {
        let from = self.end + 2 * SECOND;
        self.end += 22 * SECOND;
        self.world.run_until(self.end);
        let got = self.world.got(from, self.end);
        let d = due(&self.site.specs, self.world.pace(from, self.end));
        for (node, got) in got.iter().enumerate() {
            let due = d.due[node] * 20.0;
            let off = (got - due).abs();
            self.judged += 1;
            if due > 400.0 {
                self.worst = self.worst.max(off / due);
            }
            if off > 0.02 * due + 5.0 {
                return Err(format!("{what}: node {node}: {got} of {due:.1}"));
            }
        }
        Ok(())
    }
}

fn live<S: Subject>(
    service: Service,
    subject: impl FnOnce(&[Spec]) -> S,
) -> Result<(usize, f64), String> {
    let mut run = Run::new(service, subject);
    let closed = Client::Closed { outstanding: 24, cost: 1 };
    run.judge("as it begins")?;
    let [first, second, third] = [0, 1, 2].map(|tenant| run.site.tenant(tenant));
    run.set(second, |spec| spec.limit = 2_500.0);
    run.judge("the second tenant's limit raised")?;
    run.set(first, |spec| spec.reservation = 1_200.0);
    run.judge("the first tenant's reservation lowered")?;
    let machine = run.site.machine(2, 1);
    run.set(machine, |spec| spec.reservation = 2_000.0);
    run.judge("a machine's reservation set")?;
    let idle = run.site.machine(0, 2);
    run.asks(idle, Client::Idle);
    run.asks(second, Client::Idle);
    run.judge("a machine and a tenant idle")?;
    run.set(third, |spec| (spec.limit, spec.shares) = (f64::INFINITY, 5.0));
    run.judge("the third tenant's limit lifted")?;
    run.asks(second, closed);
    run.asks(idle, closed);
    run.judge("all are back")?;
    let disk = members(&run.site.specs, Some(run.site.machine(1, 0)))[2];
    run.set(disk, |spec| (spec.reservation, spec.limit) = (700.0, 900.0));
    run.judge("a disk's reservation and limit set")?;
    run.world.device.rate = 5_200.0;
    run.judge("the storage slower")?;
    Ok((run.judged, run.worst))
}

#[test]
fn tenants_machines_disks_and_applications_get_what_they_are_due() {
    for service in [Service::Constant, Service::Uniform] {
        let (judged, worst) = live(service, Product::new).unwrap_or_else(|wrong| panic!("{wrong}"));
        println!("{service:?}: {judged} judged, {:.2} % off at worst", 100.0 * worst);
        assert!(judged > 400);
    }
}

#[test]
fn schedulers_that_know_leaves_alone_do_not() {
    let flat = live(Service::Constant, |specs| Flat::new(specs, |node| specs[node].shares));
    assert!(flat.is_err());
}

/// Less than is promised: everybody who is promised something gets the same part of it.
#[test]
fn a_shortage_is_divided_by_promises() {
    let mut run = Run::new(Service::Constant, Product::new);
    run.world.device.rate = 1_500.0;
    run.world.run_until(4 * SECOND);
    let from = run.world.now;
    run.world.run_until(from + 10 * SECOND);
    let got = run.world.got(from, from + 10 * SECOND);
    let d = due(&run.site.specs, 1_500.0);
    assert!(d.part < 0.5, "{}", d.part);
    for (node, got) in got.iter().enumerate() {
        // The floor is one IO in 101 of all.
        let (due, floor) = (d.due[node] * 10.0, 15_000.0 / 101.0);
        assert!((got - due).abs() <= 0.02 * due + floor, "node {node}: {got} of {due:.1}");
    }
    // Who is promised nothing has the floor, and nobody else has it.
    let leaves = (0..got.len()).filter(|node| members(&run.site.specs, Some(*node)).is_empty());
    let rest: f64 = leaves.filter(|leaf| d.due[*leaf] == 0.0).map(|leaf| got[leaf]).sum();
    assert!((rest - 15_000.0 / 101.0).abs() < 8.0, "{rest}");
    // As soon as it is over, all is as before.
    run.world.device.rate = 8_000.0;
    run.end = run.world.now;
    run.judge("after a shortage").unwrap();
}

/// A tenant, a machine and a disk that slept for a minute get what they are due in their first
/// second, and nothing for the time that they slept.
#[test]
fn who_slept_earned_nothing_and_starves_nowhere() {
    let mut run = Run::new(Service::Constant, Product::new);
    let closed = Client::Closed { outstanding: 24, cost: 1 };
    let sleepers = [run.site.tenant(2), run.site.machine(0, 1), run.site.machine(0, 0) + 5];
    for sleeper in sleepers {
        run.asks(sleeper, Client::Idle);
    }
    run.world.run_until(60 * SECOND);
    for sleeper in sleepers {
        run.asks(sleeper, closed);
    }
    run.world.run_until(61 * SECOND);
    let got = run.world.got(60 * SECOND, 61 * SECOND);
    let d = due(&run.site.specs, 8_000.0);
    for (node, got) in got.iter().enumerate() {
        let due = d.due[node];
        assert!((got - due).abs() <= 0.1 * due + 16.0, "node {node}: {got} of {due:.1}");
    }
}

/// The same dice roll the same run: nothing depends on addresses or time.
#[test]
fn runs_repeat() {
    let run = |seed: u64| {
        let mut run = Run::new(Service::Exponential, Product::new);
        let mut dice = Dice::new(seed);
        let leaf = run.site.leaves_in(run.site.tenant(dice.below(3) as usize))[0];
        run.asks(leaf, Client::Idle);
        run.world.run_until(SECOND);
        run.world.sent.iter().map(|sent| (sent.at, sent.leaf)).collect::<Vec<_>>()
    };
    assert_eq!(run(3), run(3));
}
