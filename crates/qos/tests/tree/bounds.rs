//! The bounds of `docs/tree.md` for each node: reservations and limits by the second, fairness of
//! siblings, work conservation, and what stalls and large requests cost.

use crate::oracle::{Spec, members};
use crate::tenants::Site;
use crate::world::{Client, Device, Dice, Flat, MS, Product, SECOND, Service, Subject, World};

/// The floor: one in so many.
const N: f64 = 100.0;
/// The bound on debt, in seconds.
const B: f64 = 0.25;
/// The slack of limits, in seconds.
const SLACK: f64 = 0.02;

/// Clients of all leaves, each with requests of one cost: some large.
fn costs(site: &Site, dice: &mut Dice, large: u64) -> Vec<(usize, u64)> {
    let leaves = (0..3).flat_map(|tenant| site.leaves_in(site.tenant(tenant)));
    let cost = |leaf: usize, dice: &mut Dice| {
        let reserved = site.specs[leaf].reservation > 0.0;
        if reserved || dice.below(3) > 0 { 1 } else { large }
    };
    leaves.map(|leaf| (leaf, cost(leaf, dice))).collect()
}

/// The largest request of each node.
fn largest(specs: &[Spec], costs: &[(usize, u64)]) -> Vec<f64> {
    let mut largest = vec![0.0f64; specs.len()];
    for (leaf, cost) in costs {
        for node in std::iter::successors(Some(*leaf), |node: &usize| specs[*node].parent) {
            largest[node] = largest[node].max(*cost as f64);
        }
    }
    largest
}

fn promised(specs: &[Spec], node: Option<usize>) -> f64 {
    let inside: f64 = members(specs, node).iter().map(|m| promised(specs, Some(*m))).sum();
    inside.max(node.map_or(0.0, |node| specs[node].reservation))
}

/// One request of each reservation in a node.
fn round(specs: &[Spec], largest: &[f64], node: Option<usize>) -> f64 {
    let inside = members(specs, node).into_iter();
    let own = node.filter(|node| specs[*node].reservation > 0.0).map_or(0.0, |node| largest[node]);
    own + inside.map(|member| round(specs, largest, Some(member))).sum::<f64>()
}

fn run<S: Subject>(
    site: &Site,
    costs: &[(usize, u64)],
    device: Device,
    seconds: u64,
    subject: S,
) -> World<S> {
    let mut world = World::new(subject, &site.specs, device, 11);
    for (leaf, cost) in costs {
        world.client(*leaf, Client::Closed { outstanding: 24, cost: *cost });
    }
    world.run_until(seconds * SECOND);
    world
}

/// Theorem 2 of the tree: in any second, and in any five.
fn reservations_by_the_second<S: Subject>(
    rate: f64,
    large: u64,
    subject: impl FnOnce(&[Spec]) -> S,
) -> Result<f64, String> {
    let site = Site::new();
    let costs = costs(&site, &mut Dice::new(5), large);
    let largest = largest(&site.specs, &costs);
    let device = Device { rate, service: Service::Constant, window: 8, stalls: Vec::new() };
    let most = largest.iter().copied().fold(0.0, f64::max);
    let sum = promised(&site.specs, None);
    assert!((1.0 + 1.0 / N) * sum <= rate, "{sum} of {rate}");
    let all = round(&site.specs, &largest, None);
    let late =
        (8.0 * most + (1.0 + 1.0 / N) * all + most) / rate + B / 2.0 * (1.0 + 1.0 / N) * sum / rate;
    let world = run(&site, &costs, device, 16, subject(&site.specs));
    let mut nearest = f64::INFINITY;
    for step in 0..90 {
        for length in [1u64, 5] {
            let from = SECOND + step * 100 * MS;
            let got = world.got(from, from + length * SECOND);
            for (node, spec) in site.specs.iter().enumerate() {
                let less = largest[node] + round(&site.specs, &largest, Some(node));
                let least = spec.reservation * (length as f64 - late) - less;
                if spec.reservation == 0.0 || least <= 0.0 {
                    continue;
                }
                nearest = nearest.min(got[node] / least);
                if got[node] < least {
                    return Err(format!("node {node}: {} of {least:.0} in {length} s", got[node]));
                }
            }
        }
    }
    Ok(nearest)
}

#[test]
fn each_reservation_holds_in_any_second() {
    for (rate, large) in [(3_900.0, 1), (4_200.0, 16), (8_000.0, 128)] {
        let nearest = reservations_by_the_second(rate, large, Product::new).unwrap();
        println!("{rate} with requests of {large}: {nearest:.2} of the bound at least");
    }
    let flat = |specs: &[Spec]| Flat::new(specs, |node| specs[node].shares);
    assert!(reservations_by_the_second(3_900.0, 1, flat).is_err());
}

/// Theorem 3: of each node with a limit, in any time that ends with a dispatch.
fn limits_by_the_second<S: Subject>(
    large: u64,
    subject: impl FnOnce(&[Spec]) -> S,
) -> Result<(), String> {
    let site = Site::new();
    let costs = costs(&site, &mut Dice::new(9), large);
    let largest = largest(&site.specs, &costs);
    let device =
        Device { rate: 16_000.0, service: Service::Uniform, window: 8, stalls: Vec::new() };
    let world = run(&site, &costs, device, 12, subject(&site.specs));
    for (node, spec) in site.specs.iter().enumerate().filter(|(_, spec)| spec.limit.is_finite()) {
        let of = |leaf: usize| {
            std::iter::successors(Some(leaf), |node: &usize| site.specs[*node].parent)
                .any(|above| above == node)
        };
        let sent: Vec<(u64, f64)> = world
            .sent
            .iter()
            .filter(|sent| of(sent.leaf))
            .map(|sent| (sent.at, sent.cost as f64))
            .collect();
        for seconds in [1u64, 2, 5] {
            let slack = SLACK.max((largest[node] / spec.limit).min(0.05));
            let time = seconds as f64 + slack + 0.375 * SLACK * (seconds - 1) as f64;
            let most = spec.limit * time + largest[node];
            let (mut from, mut held) = (0, 0.0);
            for (at, cost) in &sent {
                held += cost;
                while sent[from].0 + seconds * SECOND <= *at {
                    held -= sent[from].1;
                    from += 1;
                }
                if held > most + 1e-6 {
                    return Err(format!("node {node}: {held} of {most:.0} in {seconds} s"));
                }
            }
        }
        let total: f64 = sent.iter().map(|sent| sent.1).sum();
        // From below where others let a node go within the slack.
        if large == 1 && total < spec.limit * (12.0 - B) - largest[node] {
            return Err(format!("node {node}: {total} of {:.0} in all", spec.limit * 12.0));
        }
    }
    Ok(())
}

#[test]
fn each_limit_holds_in_any_second_and_is_reached() {
    for large in [1, 16, 128] {
        limits_by_the_second(large, Product::new).unwrap();
    }
    let flat = |specs: &[Spec]| Flat::new(specs, |node| specs[node].shares);
    assert!(limits_by_the_second(1, flat).is_err());
}

/// Theorem 1: any two siblings that always wait, in any time.
fn unfairness<S: Subject>(seed: u64, subject: impl FnOnce(&[Spec]) -> S) -> Result<f64, String> {
    let mut dice = Dice::new(seed);
    let mut specs = Vec::new();
    let mut level: Vec<Option<usize>> = vec![None];
    for _ in 0..3 {
        let mut next = Vec::new();
        for parent in level {
            for _ in 0..2 + dice.below(2) {
                let shares = (1 + dice.below(20)) as f64;
                let (limit, demand) = (f64::INFINITY, f64::INFINITY);
                specs.push(Spec { parent, reservation: 0.0, limit, shares, demand });
                next.push(Some(specs.len() - 1));
            }
        }
        level = next;
    }
    let costs: Vec<(usize, u64)> =
        level.iter().flatten().map(|leaf| (*leaf, dice.one_of(&[1, 1, 4, 16, 64]))).collect();
    let largest = largest(&specs, &costs);
    let site = Site { specs };
    let device = Device { rate: 5_000.0, service: Service::Uniform, window: 1, stalls: Vec::new() };
    let world = run(&site, &costs, device, 20, subject(&site.specs));
    let mut worst: f64 = 0.0;
    for group in (0..site.specs.len()).map(Some).chain([None]) {
        let inside = members(&site.specs, group);
        for (a, b) in inside.iter().flat_map(|a| inside.iter().map(move |b| (*a, *b))) {
            if a >= b {
                continue;
            }
            let shares = |node: usize| site.specs[node].shares;
            let bound = largest[a] / shares(a)
                + largest[b] / shares(b)
                + (1.0 / shares(a)).max(1.0 / shares(b));
            let (mut apart, mut least, mut most) = (0.0f64, 0.0f64, 0.0f64);
            for sent in &world.sent {
                let way = std::iter::successors(Some(sent.leaf), |n: &usize| site.specs[*n].parent);
                for node in way {
                    let cost = sent.cost as f64;
                    apart += if node == a { cost / shares(a) } else { 0.0 };
                    apart -= if node == b { cost / shares(b) } else { 0.0 };
                }
                (least, most) = (least.min(apart), most.max(apart));
            }
            worst = worst.max((most - least) / bound);
            if most - least > bound + 1e-9 {
                return Err(format!("{a} and {b}: {} of {bound}", most - least));
            }
        }
    }
    Ok(worst)
}

#[test]
fn siblings_are_apart_by_one_request_each_at_every_level() {
    let worst = (0..20).map(|seed| unfairness(seed, Product::new).unwrap()).fold(0.0, f64::max);
    println!("{:.0} % of the bound", 100.0 * worst);
    assert!(worst > 0.5, "{worst}: it is tried");
    assert!(unfairness(0, |specs| Flat::new(specs, |node| specs[node].shares)).is_err());
}

/// Two tenants: one promised 400, which its disks divide by shares, one with a disk promised 200.
fn two_tenants(limit: f64) -> Site {
    let node = |parent, reservation, shares| Spec {
        parent,
        reservation,
        limit: f64::INFINITY,
        shares,
        demand: f64::INFINITY,
    };
    let mut specs = vec![
        node(None, 400.0, 1.0),
        node(None, 0.0, 20.0),
        node(Some(0), 0.0, 1.0),
        node(Some(0), 0.0, 3.0),
        node(Some(1), 200.0, 1.0),
        node(Some(1), 0.0, 50.0),
    ];
    specs[1].limit = limit;
    Site { specs }
}

/// Storage that stands still for one second in five gives 800 of 1,000: what is promised is made
/// good for, of groups as of leaves.
#[test]
fn stalls_cost_no_reservation() {
    let site = two_tenants(f64::INFINITY);
    let costs = [(2, 1), (3, 1), (4, 1), (5, 1)];
    let stalls = (0..12).map(|n| ((5 * n + 4) * SECOND, SECOND)).collect();
    let device = Device { rate: 1_000.0, service: Service::Constant, window: 4, stalls };
    let world = run(&site, &costs, device, 60, Product::new(&site.specs));
    for span in 2..11 {
        let got = world.got(5 * span * SECOND, 5 * (span + 1) * SECOND);
        assert!(got[0] >= 1_990.0 && got[4] >= 995.0, "{got:?}");
        assert!((3.0 * got[2] - got[3]).abs() < 12.0, "by shares inside: {got:?}");
    }
}

/// A neighbour whose requests take half a second each, in another group and in the same, whose
/// limit they pass: reservations hold, and nobody else is in debt for them.
#[test]
fn huge_requests_are_paid_for_by_who_sends_them() {
    for limit in [f64::INFINITY, 500.0] {
        let site = two_tenants(limit);
        let costs = [(2, 1), (3, 1), (4, 1), (5, 500)];
        let device =
            Device { rate: 1_000.0, service: Service::Constant, window: 2, stalls: Vec::new() };
        let world = run(&site, &costs, device, 60, Product::new(&site.specs));
        let got = world.got(10 * SECOND, 60 * SECOND);
        assert!(got[0] >= 400.0 * 49.0, "of {limit}: {got:?}");
        assert!(got[4] >= 200.0 * 47.0, "of {limit}: {got:?}");
        assert!(got[1] <= limit * 50.0 * 1.02 + 500.0, "of {limit}: {got:?}");
        assert!(got[0] + got[1] >= 990.0 * 50.0 - 1_500.0 || limit.is_finite(), "{got:?}");
    }
}

/// A group that its limit holds back for five seconds at a time, with a reservation inside that is
/// late by then: nobody outside loses anything for that.
#[test]
fn lateness_behind_a_limit_is_the_groups_own() {
    let node = |parent, reservation, limit, shares| Spec {
        parent,
        reservation,
        limit,
        shares,
        demand: f64::INFINITY,
    };
    let open = f64::INFINITY;
    let specs = vec![
        node(None, 850.0, open, 1.0),
        node(None, 0.0, 20.0, 1_000.0),
        node(None, 0.0, open, 100.0),
        node(Some(1), 10.0, open, 1.0),
        node(Some(1), 0.0, open, 20.0),
    ];
    let site = Site { specs };
    let costs = [(0, 1), (2, 1), (3, 1), (4, 100)];
    let device =
        Device { rate: 1_000.0, service: Service::Constant, window: 2, stalls: Vec::new() };
    let world = run(&site, &costs, device, 60, Product::new(&site.specs));
    for span in 1..11 {
        let got = world.got(5 * span * SECOND, 5 * (span + 1) * SECOND);
        assert!(got[0] >= 850.0 * 5.0 * 0.98, "{got:?}");
    }
    let got = world.got(5 * SECOND, 60 * SECOND);
    assert!(got[4] >= 300.0 && got[1] <= 20.0 * 55.0 * 1.02 + 100.0, "{got:?}");
}

/// In a shortage the floor is not for who has a reservation, however large its shares are, at
/// either level.
#[test]
fn the_floor_is_for_who_is_promised_nothing() {
    let node = |parent, reservation, shares| Spec {
        parent,
        reservation,
        limit: f64::INFINITY,
        shares,
        demand: f64::INFINITY,
    };
    let specs = vec![
        node(None, 200.0, 100_000.0),
        node(None, 0.0, 1.0),
        node(Some(0), 0.0, 1.0),
        node(Some(1), 100.0, 100_000.0),
        node(Some(1), 0.0, 1.0),
    ];
    let site = Site { specs };
    let device = Device { rate: 200.0, service: Service::Constant, window: 2, stalls: Vec::new() };
    let world = run(&site, &[(2, 1), (3, 1), (4, 1)], device, 60, Product::new(&site.specs));
    let got = world.got(10 * SECOND, 60 * SECOND);
    assert!((got[4] - 10_000.0 / 101.0).abs() < 4.0, "{got:?}");
    assert!((got[2] - 2.0 * got[3]).abs() < 100.0, "{got:?}");
}

/// Small trees, all of them: each node with a reservation or none, a limit or none, and each set
/// of leaves that ask.
#[test]
fn all_small_trees_get_what_they_are_due() {
    let mut judged = 0;
    for number in 0..2u32.pow(10) {
        let bit = |n: u32| number >> n & 1 == 1;
        let node = |parent, reservation: bool, limit: bool, most: f64, shares| Spec {
            parent,
            reservation: if reservation { most * 0.6 } else { 0.0 },
            limit: if limit { most } else { f64::INFINITY },
            shares,
            demand: f64::INFINITY,
        };
        let mut site = Site {
            specs: vec![
                node(None, bit(0), bit(1), 500.0, 1.0),
                node(None, bit(2), false, 300.0, 3.0),
                node(Some(0), bit(3), bit(4), 250.0, 2.0),
                node(Some(0), bit(5), false, 200.0, 1.0),
                node(Some(1), bit(6), bit(7), 150.0, 1.0),
            ],
        };
        let asking = [(2, bit(8)), (3, true), (4, bit(9))];
        for (leaf, asks) in asking {
            site.specs[leaf].demand = if asks { f64::INFINITY } else { 0.0 };
        }
        let costs: Vec<(usize, u64)> =
            asking.iter().filter(|leaf| leaf.1).map(|leaf| (leaf.0, 1)).collect();
        let device =
            Device { rate: 1_000.0, service: Service::Constant, window: 2, stalls: Vec::new() };
        let world = run(&site, &costs, device, 5, Product::new(&site.specs));
        let got = world.got(SECOND, 5 * SECOND);
        let d = crate::oracle::due(&site.specs, 1_000.0);
        for (node, got) in got.iter().enumerate() {
            let due = 4.0 * d.due[node];
            judged += 1;
            assert!(
                (got - due).abs() <= 0.01 * due + 12.0,
                "{number}: node {node}: {got} of {due:.1} in {:?}",
                site.specs
            );
        }
    }
    assert_eq!(judged, 5 * 1_024);
}
