//! Dynamic isolation divides a flash drive by shares at any depth, with reads and without them,
//! whatever disks write and however much space there is. The oracle is the definition: of the pages
//! that all disks write whose rate space can change, each writes its part by shares.
//!
//! `FLASH_SEEDS` says how many draws, `FLASH_SEED` from which on, `FLASH_TARGETS=published` by
//! which law. `-- --nocapture` prints them.

use crate::common::scatter;
use headgate_devices::{
    DeviceIo, DeviceModel, DiskPlace, FlashStanding, IoKind, ModelSpec, Reach, Ssd,
};
use headgate_units::{Bytes, Nanos, Shares};

const PAGE: u64 = 4_096;

/// Numbers that follow from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 += 1;
        ((u128::from(scatter(self.0)) * u128::from(end)) >> 64) as u64
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One page anywhere.
    Random,
    /// One page, four fifths of them in a fifth of the disk.
    Skewed,
    /// Four pages, aligned, anywhere.
    Large,
    /// Runs of eight pages, one page after the other, that begin anywhere.
    Runs,
    /// One page after the other, round and round.
    Sequential,
}

#[derive(Clone, Copy, Debug)]
struct Load {
    kind: Kind,
    shares: u64,
    depth: u64,
    /// Of a hundred requests.
    reads: u64,
}

struct Disk {
    load: Load,
    next: u64,
    written: u64,
    outstanding: u64,
}

/// Disks of equal size, each with its load, in virtual time.
struct Bench {
    ssd: Ssd,
    size: u64,
    disks: Vec<Disk>,
    draw: Draw,
    now: Nanos,
}

impl Bench {
    fn new(model: &str, size: u64, loads: &[Load], seed: u64) -> Bench {
        let ModelSpec::Ssd(spec) = model.parse().unwrap() else {
            panic!("{model} is no flash drive")
        };
        let mut ssd = Ssd::new(&spec);
        for (disk, load) in loads.iter().enumerate() {
            let (offset, shares) = (disk as u64 * size, Shares::new(load.shares).unwrap());
            ssd.add_disk(Nanos::ZERO, DiskPlace { offset, size: Bytes(size), shares }).unwrap();
        }
        let disks =
            loads.iter().map(|&load| Disk { load, next: 0, written: 0, outstanding: 0 }).collect();
        let draw = Draw(seed << 40);
        let mut bench = Bench { ssd, size, disks, draw, now: Nanos::ZERO };
        for (disk, load) in loads.iter().enumerate() {
            (0..load.depth).for_each(|_| bench.submit(disk));
        }
        bench
    }

    fn submit(&mut self, disk: usize) {
        let pages = self.size / PAGE;
        let Disk { load, next, outstanding, .. } = &mut self.disks[disk];
        *outstanding += 1;
        let kind = if self.draw.below(100) < load.reads { IoKind::Read } else { IoKind::Write };
        let count = if load.kind == Kind::Large { 4 } else { 1 };
        let page = match load.kind {
            _ if kind == IoKind::Read => self.draw.below(pages / count) * count,
            Kind::Random | Kind::Large => self.draw.below(pages / count) * count,
            Kind::Skewed if self.draw.below(5) > 0 => self.draw.below(pages / 5),
            Kind::Skewed => pages / 5 + self.draw.below(pages - pages / 5),
            Kind::Runs if *next % 8 == 0 => self.draw.below(pages / 8) * 8,
            Kind::Runs | Kind::Sequential => *next % pages,
        };
        let mut written = 0;
        if kind == IoKind::Write {
            *next = page + 1;
            written = count;
        }
        let offset = disk as u64 * self.size + page * PAGE;
        let id = disk as u64 | (written << 8);
        self.ssd.submit(self.now, id, DeviceIo { kind, offset, bytes: Bytes(count * PAGE) });
    }

    /// Pages that each disk wrote meanwhile.
    fn run(&mut self, seconds: u64) -> Vec<u64> {
        let end = self.now + Nanos::from_secs(seconds);
        let before: Vec<u64> = self.disks.iter().map(|disk| disk.written).collect();
        while let Some(next) = self.ssd.next_event().filter(|&next| next <= end) {
            self.now = next;
            while let Some(id) = self.ssd.poll(self.now) {
                let disk = (id & 0xff) as usize;
                let Disk { load, written, outstanding, .. } = &mut self.disks[disk];
                (*written, *outstanding) = (*written + (id >> 8), *outstanding - 1);
                if *outstanding < load.depth {
                    self.submit(disk);
                }
            }
        }
        self.now = end;
        self.disks.iter().zip(before).map(|(disk, before)| disk.written - before).collect()
    }

    fn standing(&self, disk: usize) -> FlashStanding {
        self.ssd.flash_standing(disk as u64 * self.size).unwrap()
    }
}

/// By how much each disk's part of what all `which` wrote differs from its part of their shares.
fn errors(written: &[u64], loads: &[Load], which: &[bool]) -> Vec<f64> {
    let sum = |of: &dyn Fn(usize) -> u64| -> f64 {
        (0..loads.len()).filter(|&i| which[i]).map(of).sum::<u64>() as f64
    };
    let (all, shares) = (sum(&|i| written[i]), sum(&|i| loads[i].shares));
    let part = |i: usize| (written[i] as f64 / all) / (loads[i].shares as f64 / shares) - 1.0;
    (0..loads.len()).map(part).collect()
}

fn greatest(errors: &[f64]) -> f64 {
    errors.iter().fold(0.0, |most, error| error.abs().max(most))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn law() -> String {
    std::env::var("FLASH_TARGETS").unwrap_or_else(|_| "measured".into())
}

const DRIVE: &str = "ssd=192M,dies=8,planes=2,block=32,aged=yes";

/// Disks with weights 1, 3 and 6 and the same load.
fn one_to_six(isolation: &str, depth: u64, reads: u64) -> (Bench, [Load; 3]) {
    let loads = [1, 3, 6].map(|shares| Load { kind: Kind::Random, shares, depth, reads });
    let model = format!("{DRIVE},op=15%,isolation={isolation}");
    (Bench::new(&model, 64 << 20, &loads, 1), loads)
}

/// `FLASH_TABLE` does more rows, and both laws.
#[test]
fn depth_and_reads_leave_shares_as_they_are() {
    let is_all = std::env::var_os("FLASH_TABLE").is_some();
    let reads: &[u64] = if is_all { &[0, 20, 40, 60] } else { &[0, 40] };
    let error = |isolation: &str, depth, reads| {
        let (mut bench, loads) = one_to_six(isolation, depth, reads);
        bench.run(60);
        greatest(&errors(&bench.run(60), &loads, &[true; 3]))
    };
    println!("outstanding  reads  static  dynamic");
    for depth in [1, 2, 4, 8, 16, 32] {
        for &reads in reads {
            let fixed = error("static", depth, reads);
            if is_all {
                let published = error("dynamic,targets=published", depth, reads);
                print!("(published {:4.1} %) ", published * 100.0);
            }
            let dynamic = error(&format!("dynamic,targets={}", law()), depth, reads);
            println!(
                "{depth:>11}  {reads:>3} %  {:4.1} %  {:5.1} %",
                fixed * 100.0,
                dynamic * 100.0
            );
            assert!(dynamic < 0.05, "{depth} outstanding, {reads} % reads: {dynamic}");
            assert!(dynamic < fixed, "{depth} outstanding, {reads} % reads: static {fixed}");
        }
    }
}

#[test]
fn space_moves_when_depth_changes_and_comes_to_rest() {
    for (first, then) in [(1, 32), (32, 1)] {
        let (mut bench, loads) = one_to_six(&format!("dynamic,targets={}", law()), first, 0);
        bench.run(60);
        bench.disks.iter_mut().for_each(|disk| disk.load.depth = then);
        let mut spaces = Vec::new();
        let mut written = Vec::new();
        for disk in 0..3 {
            (first..then).for_each(|_| bench.submit(disk));
        }
        for _ in 0..60 {
            written.push(bench.run(1));
            spaces.push([0, 1, 2].map(|disk| bench.standing(disk).spare));
        }
        println!("{first} to {then} outstanding: {spaces:?}");
        let late: Vec<u64> =
            (0..3).map(|disk| written[30..].iter().map(|second| second[disk]).sum()).collect();
        let off = greatest(&errors(&late, &loads, &[true; 3]));
        assert!(off < 0.05, "{first} to {then} outstanding: off by {off}");
        for disk in 0..3 {
            let of = |from: usize| spaces[from..].iter().map(move |space| space[disk]);
            let end = of(40).sum::<u32>() / 20;
            // A block or two, or a tenth, is as near as targets are kept.
            let near = 2 + end / 10;
            let (least, most) = (of(30).min().unwrap(), of(30).max().unwrap());
            assert!(most - least <= near, "disk {disk} has {least} to {most} blocks at rest");
            let before = spaces[0][disk];
            let beyond = if end >= before {
                of(0).max().unwrap().saturating_sub(end)
            } else {
                end.saturating_sub(of(0).min().unwrap())
            };
            assert!(beyond <= near, "disk {disk} goes {beyond} blocks beyond {end}");
        }
    }
}

/// Two to four disks, each with a load of its own.
fn drawn(draw: &mut Draw) -> (u64, Vec<Load>) {
    let over = draw.one_of(&[10, 15, 28, 40]);
    let kinds = [Kind::Random, Kind::Skewed, Kind::Large, Kind::Runs, Kind::Sequential];
    let loads = (0..2 + draw.below(3)).map(|_| Load {
        kind: draw.one_of(&kinds),
        shares: 1 + draw.below(6),
        depth: draw.one_of(&[1, 2, 4, 8, 16, 32]),
        reads: draw.one_of(&[0, 20, 40, 60]),
    });
    (over, loads.collect())
}

#[test]
fn shares_hold_whatever_each_disk_does() {
    let first = number("FLASH_SEED").unwrap_or(0);
    for seed in first..first + number("FLASH_SEEDS").unwrap_or(4) {
        let mut draw = Draw(seed << 32);
        let (over, loads) = drawn(&mut draw);
        let model = format!("{DRIVE},op={over}%,isolation=dynamic,targets={}", law());
        let mut bench = Bench::new(&model, (192 << 20) / loads.len() as u64, &loads, seed);
        bench.run(90);
        let mut spaces: Vec<Vec<u32>> = vec![Vec::new(); loads.len()];
        let mut written = vec![0; loads.len()];
        for _ in 0..12 {
            let part = bench.run(5);
            for disk in 0..loads.len() {
                written[disk] += part[disk];
                spaces[disk].push(bench.standing(disk).spare);
            }
        }
        let reach: Vec<Reach> = (0..loads.len()).map(|disk| bench.standing(disk).reach).collect();
        let able: Vec<bool> = reach.iter().map(|&reach| reach == Reach::Open).collect();
        let errors = errors(&written, &loads, &able);
        println!("seed {seed}, op {over} %:");
        for disk in 0..loads.len() {
            println!(
                "  {:?}: {:+.3} {:?}, space {:?}",
                loads[disk], errors[disk], reach[disk], spaces[disk]
            );
        }
        for disk in 0..loads.len() {
            let error = errors[disk];
            let about = format!("seed {seed}: disk {disk} of {loads:?} is off by {error}");
            match reach[disk] {
                Reach::Open => assert!(error.abs() < 0.1, "{about}"),
                // What cannot be reached is missed on the side that was said.
                Reach::AtLeast => assert!(error > 0.0, "{about}"),
                Reach::TooFast => assert!(error < 0.0, "{about}"),
                Reach::NoSpace => panic!("{about}: what is sought is there"),
            }
        }
    }
}
