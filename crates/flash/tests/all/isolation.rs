//! What isolation is for, at the level of pages (experiments OP-5, OP-6, OP-8, OP-9, OP-11): three
//! workloads on an aged medium. `cargo test -p headgate-flash --test all isolation:: --
//! --nocapture` prints the tables.
//!
//! Time is equation 1's: each owner has one request outstanding, and waits for the programs that
//! its write causes, whoever's pages they are.

use crate::common::geometry;
use crate::common::workload::{Kind, Workload};
use headgate_flash::{
    CellTimes, Config, Control, Ftl, Image, Isolation, Levelling, Op, OwnerId, OwnerSpec, Rating,
    Reach, Sink, Standing, Thresholds,
};
use headgate_units::{Iops, Nanos, Shares};

const KINDS: [Kind; 3] = [Kind::Financial, Kind::Msn, Kind::Exchange];
const RATED: u64 = 2_600;

/// How long a write keeps its owner waiting, by equation 1: no reads, no erases.
#[derive(Default)]
struct Wait(u64);

impl Sink for Wait {
    fn op(&mut self, op: Op) {
        let times = CellTimes::DISKSIM;
        self.0 += match op {
            Op::Program { cause: headgate_flash::Cause::Host, .. } => {
                times.program.0 + times.transfer.0
            }
            Op::Program { .. } | Op::CopyBack { .. } => times.program.0,
            Op::Read { .. } | Op::Erase { .. } => 0,
        };
    }
}

struct Machine {
    workload: Workload,
    owner: OwnerId,
    /// When its next write begins.
    at: u64,
    writes: u64,
}

struct Bench {
    ftl: Ftl<Image>,
    machines: Vec<Machine>,
}

impl Bench {
    /// Machines of the same size, which together leave 15 % of the medium, and have filled it.
    fn new(isolation: Isolation, machines: &[(Kind, u64)], seed: u64) -> Bench {
        let geometry = geometry(4, 1, 512, 64);
        let config = Config {
            isolation,
            thresholds: Thresholds { foreground: 1, background: 0 },
            stripe: 4,
            levelling: Levelling::Off,
            ..Config::default()
        };
        let mut ftl = Ftl::format(Image::new(geometry), config).unwrap();
        let pages = geometry.pages() / 100 * 85 / machines.len() as u32;
        let machines = machines.iter().enumerate().map(|(i, &(kind, shares))| {
            let owner = OwnerId(i as u16);
            let shares = Shares::new(shares).unwrap();
            ftl.add_owner(owner, OwnerSpec { pages, shares, target: None }).unwrap();
            Machine {
                workload: Workload::new(kind, pages, seed + i as u64),
                owner,
                at: 0,
                writes: 0,
            }
        });
        let machines: Vec<Machine> = machines.collect();
        for page in 0..pages {
            for machine in &machines {
                ftl.write(machine.owner, page, &mut Wait::default()).unwrap();
            }
        }
        Bench { ftl, machines }
    }

    /// The machine whose turn it is writes one page.
    fn write(&mut self) -> usize {
        let next = (0..self.machines.len()).min_by_key(|&i| self.machines[i].at).unwrap();
        let machine = &mut self.machines[next];
        let mut wait = Wait::default();
        self.ftl.write(machine.owner, machine.workload.next(), &mut wait).unwrap();
        machine.at += wait.0;
        machine.writes += 1;
        next
    }

    fn run(&mut self, millis: u64) {
        let until =
            self.machines.iter().map(|machine| machine.at).min().unwrap() + millis * 1_000_000;
        while self.machines.iter().any(|machine| machine.at < until) {
            self.write();
        }
    }

    /// Valid part of the victims of a machine's writes, since the beginning.
    fn utilisation(&self, machine: usize) -> f64 {
        let stats = self.ftl.owner_stats(self.machines[machine].owner).unwrap();
        let pages = f64::from(self.ftl.geometry().pages_per_block());
        stats.victim_valid as f64 / stats.victims as f64 / pages
    }

    /// Pages written by each in so many milliseconds.
    fn rates(&mut self, millis: u64) -> Vec<f64> {
        let before: Vec<(u64, u64)> =
            self.machines.iter().map(|machine| (machine.writes, machine.at)).collect();
        self.run(millis);
        let rate = |(machine, (writes, at)): (&Machine, (u64, u64))| {
            (machine.writes - writes) as f64 * 1e9 / (machine.at - at) as f64
        };
        self.machines.iter().zip(before).map(rate).collect()
    }
}

fn dynamic() -> Isolation {
    Isolation::Dynamic(Control::new(Iops::new(RATED).unwrap(), CellTimes::DISKSIM))
}

/// How far each rate's part of all is from the weight's part of all, relative to that.
fn errors(rates: &[f64], shares: &[u64]) -> Vec<f64> {
    let (all, weights) = (rates.iter().sum::<f64>(), shares.iter().sum::<u64>() as f64);
    let error = |(rate, &shares): (&f64, &u64)| (rate / all) / (shares as f64 / weights) - 1.0;
    rates.iter().zip(shares).map(error).collect()
}

fn greatest(errors: &[f64]) -> f64 {
    errors.iter().fold(0.0, |most, error| error.abs().max(most))
}

#[test]
fn bandwidth_by_weight() {
    println!(
        "weights of F, M, E   isolation   part of all pages written   pages/s            victims' u"
    );
    for shares in [[1, 3, 6], [1, 6, 3], [3, 1, 6], [3, 6, 1], [6, 1, 3], [6, 3, 1]] {
        let machines: Vec<(Kind, u64)> = KINDS.into_iter().zip(shares).collect();
        let mut worst = Vec::new();
        for (name, isolation) in
            [("none", Isolation::Shared), ("static", Isolation::Static), ("dynamic", dynamic())]
        {
            let mut bench = Bench::new(isolation, &machines, 1);
            bench.run(60_000);
            let rates = bench.rates(100_000);
            let total: f64 = rates.iter().sum();
            let parts: String =
                rates.iter().map(|rate| format!("{:>6.1} %", rate / total * 100.0)).collect();
            let absolute: String = rates.iter().map(|rate| format!("{rate:>6.0}")).collect();
            let u: String = (0..3).map(|i| format!("{:>6.2}", bench.utilisation(i))).collect();
            println!("{shares:?}            {name:<9} {parts}   {absolute}   {u}");
            worst.push(greatest(&errors(&rates, &shares)));
        }
        let [none, fixed, dynamic] = worst[..] else { unreachable!() };
        assert!(dynamic < 0.1, "{shares:?}: {dynamic}");
        assert!(fixed >= 2.0 * dynamic, "{shares:?}: static {fixed}, dynamic {dynamic}");
        assert!(none > fixed, "{shares:?}: none {none}, static {fixed}");
    }
}

#[test]
fn a_rate_that_is_sought_is_found_from_above_and_below() {
    let shares = [1, 3, 6];
    let machines: Vec<(Kind, u64)> = KINDS.into_iter().zip(shares).collect();
    for start in [200, 2_600, 20_000] {
        let control = Control::new(Iops::new(start).unwrap(), CellTimes::DISKSIM);
        let mut bench = Bench::new(
            Isolation::Dynamic(Control { rating: Rating::Sought, ..control }),
            &machines,
            1,
        );
        bench.run(300_000);
        let rates = bench.rates(100_000);
        let (spare, unassigned) = bench.ftl.spare_blocks();
        let sought = bench.ftl.rated().unwrap();
        println!(
            "from {start}: {rates:.0?}, {sought} sought, {unassigned} of {spare} blocks are nobody's"
        );
        assert!(greatest(&errors(&rates, &shares)) < 0.1, "{rates:?}");
        assert!(unassigned <= spare / 4, "{unassigned} of {spare}");
        assert!(rates.iter().sum::<f64>() > 2_600.0, "{rates:?}");
    }
}

/// `FLASH_SEEDS` says how many draws, `FLASH_SEED` repeats one.
#[test]
fn what_is_achieved_is_divided_by_any_weights_among_any_writers() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("FLASH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FLASH_SEEDS").unwrap_or(6),
    };
    for seed in seeds {
        let mut rng = crate::common::Rng(seed);
        let machines: Vec<(Kind, u64)> = (0..2 + rng.below(4))
            .map(|_| (KINDS[rng.below(3) as usize], 1 + u64::from(rng.below(6))))
            .collect();
        let control = Control::new(Iops::new(1).unwrap(), CellTimes::DISKSIM);
        let control = Control { rating: Rating::Sought, ..control };
        let mut bench = Bench::new(Isolation::Dynamic(control), &machines, seed);
        bench.run(20_000);
        // Somebody stops, and what it had is divided too.
        let mut shares: Vec<u64> = machines.iter().map(|machine| machine.1).collect();
        let stops = machines.len() > 2 && rng.one_in(3);
        if stops {
            bench.machines.remove(0);
            shares.remove(0);
        }
        bench.run(200_000);
        let rates = bench.rates(100_000);
        let errors = errors(&rates, &shares);
        let standing = |machine: &Machine| bench.ftl.standing(machine.owner).unwrap();
        let reach: Vec<Reach> =
            bench.machines.iter().map(|machine| standing(machine).reach).collect();
        let (spare, unassigned) = bench.ftl.spare_blocks();
        println!(
            "seed {seed}: {machines:?}, the first stops: {stops}: {rates:.0?}, {errors:+.3?}, {unassigned} of {spare} left, {reach:?}"
        );
        assert!(
            unassigned <= spare / 16 + 2,
            "seed {seed}: {unassigned} of {spare} blocks are nobody's"
        );
        // Who cannot be slowed any more, or be any faster, has another part, and so have all
        // others.
        if reach.iter().all(|&reach| reach == Reach::Open) {
            assert!(greatest(&errors) < 0.1, "seed {seed}: {machines:?} {rates:.0?} {errors:+.3?}");
        }
        bench.ftl.check().unwrap();
    }
}

#[test]
fn pages_moved_for_each_by_owner() {
    println!("isolation  machine    moved for it  its own  mixed victims");
    for isolation in [Isolation::Shared, Isolation::Static, dynamic()] {
        let shared = isolation == Isolation::Shared;
        let mut bench = Bench::new(isolation, &[(KINDS[0], 1), (KINDS[1], 3), (KINDS[2], 6)], 2);
        bench.run(60_000);
        for (i, kind) in KINDS.into_iter().enumerate() {
            let stats = bench.ftl.owner_stats(bench.machines[i].owner).unwrap();
            let own = stats.moved_own_for as f64 / stats.moved_for as f64;
            let mixed = stats.victims_mixed as f64 / stats.victims as f64;
            let of = |other: &Machine| {
                bench.ftl.moved_between(bench.machines[i].owner, other.owner).unwrap()
            };
            assert_eq!(bench.machines.iter().map(of).sum::<u64>(), stats.moved_for, "{kind:?}");
            let name = if shared { "none" } else { "own blocks" };
            println!(
                "{name:<10} {:<10} {:>12} {:>6.1} % {:>9.1} %",
                format!("{kind:?}"),
                stats.moved_for,
                own * 100.0,
                mixed * 100.0
            );
            if shared {
                assert!(own < 0.5 && mixed > 0.5, "{kind:?}: {own}, {mixed}");
            } else {
                assert_eq!(
                    (stats.moved_own_for, stats.victims_mixed),
                    (stats.moved_for, 0),
                    "{kind:?}"
                );
            }
        }
        let mixed = bench.ftl.mixed_blocks();
        assert!(if shared { mixed > 0 } else { mixed == 0 }, "{mixed} mixed blocks");
    }
}

#[test]
fn whose_pages_were_moved_is_counted_for_the_first_256_owners_only() {
    let image = Image::new(geometry(1, 1, 64, 64));
    let mut ftl = Ftl::format(image, Config::default()).unwrap();
    let spec = OwnerSpec { pages: 8, shares: Shares::default(), target: None };
    for id in 0..300 {
        ftl.add_owner(OwnerId(id), spec).unwrap();
    }
    let between = |ftl: &Ftl<Image>, a, b| ftl.moved_between(OwnerId(a), OwnerId(b));
    assert_eq!((between(&ftl, 255, 0), between(&ftl, 0, 255)), (Some(0), Some(0)));
    assert_eq!(
        (between(&ftl, 256, 0), between(&ftl, 0, 256), between(&ftl, 299, 299)),
        (None, None, None)
    );
    // A place that became free counts from nothing.
    ftl.remove_owner(OwnerId(3)).unwrap();
    ftl.add_owner(OwnerId(300), spec).unwrap();
    assert_eq!((between(&ftl, 300, 0), between(&ftl, 299, 0)), (Some(0), None));
}

#[test]
fn utilisation_follows_its_target_block_by_block() {
    let mut bench = Bench::new(dynamic(), &[(KINDS[0], 1), (KINDS[1], 3), (KINDS[2], 6)], 3);
    let spare = bench.ftl.spare_blocks().0;
    let quotas = |bench: &Bench| -> Vec<u32> {
        bench
            .machines
            .iter()
            .map(|machine| bench.ftl.standing(machine.owner).unwrap().quota)
            .collect()
    };
    let start = quotas(&bench);
    let mut before = start.clone();
    let mut victims = bench.ftl.stats().victims;
    // Which way each went before it first was near its target.
    let mut ways: Vec<(bool, bool, bool)> = vec![(false, false, false); 3];
    for _ in 0..200_000 {
        bench.write();
        let (now, collected) = (quotas(&bench), bench.ftl.stats().victims - victims);
        victims += collected;
        let changed: u64 =
            now.iter().zip(&before).map(|(now, before)| u64::from(now.abs_diff(*before))).sum();
        // A block that goes from one owner to another changes two quotas.
        assert!(changed <= 2 * collected, "{changed} blocks in {collected} collections");
        assert_eq!(bench.ftl.spare_blocks().0, spare);
        for i in 0..3 {
            let standing = bench.ftl.standing(bench.machines[i].owner).unwrap();
            assert!(standing.spare >= standing.least_spare);
            let (Some(u), Some(goal)) = (standing.utilisation, standing.target_utilisation) else {
                continue;
            };
            if bench.ftl.owner_stats(bench.machines[i].owner).unwrap().victims < 64 {
                continue;
            }
            let (up, down, near) = &mut ways[i];
            *near |= u.millionths().abs_diff(goal.millionths()) < 10_000;
            *up |= !*near && now[i] > before[i];
            *down |= !*near && now[i] < before[i];
        }
        before = now;
    }
    for (i, (up, down, near)) in ways.into_iter().enumerate() {
        assert!(near && !(up && down), "machine {i}: up {up}, down {down}, near {near}");
    }
    // Converged: within 0.03 of the target all the time.
    for _ in 0..100 {
        bench.run(500);
        for i in 0..3 {
            let standing = bench.ftl.standing(bench.machines[i].owner).unwrap();
            let (u, goal) = (standing.utilisation.unwrap(), standing.target_utilisation.unwrap());
            assert!(
                u.millionths().abs_diff(goal.millionths()) < 30_000,
                "machine {i}: {u} for {goal}"
            );
        }
    }
    assert_ne!(quotas(&bench), start);
}

#[test]
fn static_space_leaves_utilisation_where_it_falls() {
    let mut bench =
        Bench::new(Isolation::Static, &[(KINDS[0], 1), (KINDS[1], 3), (KINDS[2], 6)], 3);
    let quotas = |bench: &Bench| -> Vec<u32> {
        bench
            .machines
            .iter()
            .map(|machine| bench.ftl.standing(machine.owner).unwrap().quota)
            .collect()
    };
    let start = quotas(&bench);
    bench.run(30_000);
    assert_eq!(quotas(&bench), start);
    // By weight, and so not by what the workloads need.
    assert!(
        bench.utilisation(0) > bench.utilisation(1) && bench.utilisation(1) > bench.utilisation(2)
    );
    assert_eq!(bench.ftl.standing(OwnerId(0)).unwrap().target, None);
}

#[test]
fn weights_1_3_6_of_1000_iops() {
    let times = CellTimes { transfer: Nanos(100_000), ..CellTimes::DISKSIM };
    let config = Config {
        isolation: Isolation::Dynamic(Control::new(Iops::new(1_000).unwrap(), times)),
        thresholds: Thresholds { foreground: 1, background: 0 },
        levelling: Levelling::Off,
        ..Config::default()
    };
    // 900 blocks of data, 2 that belong to nobody, and 100 to divide.
    let mut ftl = Ftl::format(Image::new(geometry(1, 1, 1_002, 64)), config).unwrap();
    for (id, shares) in [(1, 1), (2, 3), (3, 6)] {
        let spec =
            OwnerSpec { pages: 300 * 64, shares: Shares::new(shares).unwrap(), target: None };
        ftl.add_owner(OwnerId(id), spec).unwrap();
    }
    let standings: Vec<Standing> = (1..=3).map(|id| ftl.standing(OwnerId(id)).unwrap()).collect();
    assert_eq!(standings.iter().map(|s| s.spare).collect::<Vec<_>>(), [10, 30, 60]);
    assert_eq!(
        standings.iter().map(|s| s.target.unwrap().get()).collect::<Vec<_>>(),
        [100, 300, 600]
    );
    let goals: Vec<u32> =
        standings.iter().map(|s| s.target_utilisation.unwrap().millionths()).collect();
    assert_eq!(goals, [979_798, 938_144, 872_340]);
    // One leaves, and the others divide its space; it comes back.
    ftl.remove_owner(OwnerId(3)).unwrap();
    let spare = |ftl: &Ftl<Image>, id| ftl.standing(OwnerId(id)).unwrap().spare;
    assert_eq!((spare(&ftl, 1), spare(&ftl, 2)), (100, 300));
    let spec = OwnerSpec { pages: 300 * 64, shares: Shares::new(6).unwrap(), target: None };
    ftl.add_owner(OwnerId(3), spec).unwrap();
    assert_eq!((spare(&ftl, 1), spare(&ftl, 2), spare(&ftl, 3)), (10, 30, 60));
}

#[test]
fn targets_that_cannot_be_reached_are_said() {
    let mut bench = Bench::new(dynamic(), &[(KINDS[0], 1), (KINDS[1], 1)], 4);
    let geometry = bench.ftl.geometry();
    let left = geometry.pages() / 100 * 10;
    let shares = Shares::new(1).unwrap();
    let fast = OwnerSpec { pages: left, shares, target: Some(Iops::new(4_000).unwrap()) };
    bench.ftl.add_owner(OwnerId(9), fast).unwrap();
    // The chip programs a page in 302.4 µs.
    assert_eq!(bench.ftl.standing(OwnerId(9)).unwrap().reach, Reach::TooFast);
    bench.ftl.remove_owner(OwnerId(9)).unwrap();
    let slow = OwnerSpec { pages: left, shares, target: Some(Iops::new(1).unwrap()) };
    bench.ftl.add_owner(OwnerId(9), slow).unwrap();
    let machine = |owner: u16, kind, pages| Machine {
        workload: Workload::new(kind, pages, 9),
        owner: OwnerId(owner),
        at: 0,
        writes: 0,
    };
    bench.machines.push(machine(9, KINDS[2], left));
    for page in 0..left {
        bench.ftl.write(OwnerId(9), page, &mut Wait::default()).unwrap();
    }
    bench.run(60_000);
    // Nothing makes its writes that slow; and the others' 866 each want more space than there is.
    assert_eq!(bench.ftl.standing(OwnerId(9)).unwrap().reach, Reach::AtLeast);
    let reach: Vec<Reach> =
        (0..2).map(|id| bench.ftl.standing(OwnerId(id)).unwrap().reach).collect();
    assert!(reach.contains(&Reach::NoSpace), "{reach:?}");
}

#[test]
fn space_that_nobody_uses_goes_to_who_needs_it() {
    // M wants more than its half; F does not write.
    let mut bench = Bench::new(dynamic(), &[(KINDS[0], 1), (KINDS[1], 1)], 5);
    let before = bench.ftl.standing(OwnerId(1)).unwrap();
    bench.machines.remove(0);
    bench.run(60_000);
    let (idle, busy) =
        (bench.ftl.standing(OwnerId(0)).unwrap(), bench.ftl.standing(OwnerId(1)).unwrap());
    assert!(busy.spare > before.spare, "{busy:?}");
    assert!(idle.spare >= idle.least_spare && idle.spare < before.spare, "{idle:?}");
}

#[test]
fn who_comes_late_gets_blocks_and_who_leaves_gives_them() {
    for isolation in [Isolation::Static, dynamic()] {
        let mut bench = Bench::new(isolation, &[(KINDS[0], 1), (KINDS[1], 1)], 6);
        bench.run(5_000);
        bench.ftl.remove_owner(OwnerId(0)).unwrap();
        bench.machines.remove(0);
        let pages = bench.ftl.geometry().pages() / 100 * 40;
        assert!(bench.ftl.has_room_for(&OwnerSpec::pages(pages)));
        bench.ftl.add_owner(OwnerId(0), OwnerSpec::pages(pages)).unwrap();
        for page in 0..pages {
            bench.ftl.write(OwnerId(0), page, &mut Wait::default()).unwrap();
        }
        let workload = Workload::new(KINDS[0], pages, 7);
        let at = bench.machines[0].at;
        bench.machines.push(Machine { workload, owner: OwnerId(0), at, writes: 0 });
        bench.run(20_000);
        bench.ftl.check().unwrap();
        for id in [0, 1] {
            let standing = bench.ftl.standing(OwnerId(id)).unwrap();
            assert!(standing.held <= standing.quota, "{standing:?}");
            let stats = bench.ftl.owner_stats(OwnerId(id)).unwrap();
            assert_eq!(stats.moved_own_for, stats.moved_for, "{id}");
        }
    }
}
