//! Write amplification and rates against analysis (experiment OP-10): uniform random writes of one
//! owner. `cargo test -p headgate-flash --test all analytic:: -- --nocapture` prints the table.

use crate::common::{Rng, geometry};
use headgate_flash::{
    CellTimes, Config, CopyBack, Ftl, Image, Isolation, Levelling, Op, OwnerId, OwnerSpec, Sink,
    Streams, Thresholds, Utilisation, Victims, theory,
};

const DISK: OwnerId = OwnerId(0);

/// Adds up how long one chip takes when it does one thing after the other.
#[derive(Default)]
struct Clock {
    nanos: u64,
    programs: u64,
}

impl Sink for Clock {
    fn op(&mut self, op: Op) {
        let times = CellTimes::DISKSIM;
        match op {
            Op::Program { .. } => {
                self.nanos += times.program.0 + times.transfer.0;
                self.programs += 1;
            }
            // Equation 1 counts a copy as one program.
            Op::CopyBack { .. } => {
                self.nanos += times.program.0;
                self.programs += 1;
            }
            Op::Read { .. } | Op::Erase { .. } => {}
        }
    }
}

struct Measured {
    /// Valid part of victims.
    u: f64,
    /// Extra programs for each page written.
    extra: f64,
    rate: f64,
    /// Part of the blocks in circulation that data would fill.
    load: f64,
}

fn measure(victims: Victims, pages_per_block: u32, blocks: u32, spare_percent: u32) -> Measured {
    let geometry = geometry(1, 1, blocks, pages_per_block);
    let config = Config {
        isolation: Isolation::Shared,
        victims,
        thresholds: Thresholds { foreground: 1, background: 0 },
        stripe: 1,
        streams: Streams::Together,
        copy_back: CopyBack::InPlane,
        levelling: Levelling::Off,
    };
    let mut ftl = Ftl::format(Image::new(geometry), config).unwrap();
    let pages = (f64::from(geometry.pages()) / (1.0 + f64::from(spare_percent) / 100.0)) as u32;
    ftl.add_owner(DISK, OwnerSpec::pages(pages)).unwrap();
    let mut rng = Rng(u64::from(spare_percent) ^ 0xF1A5);
    for page in 0..pages {
        ftl.write(DISK, page, &mut Clock::default()).unwrap();
    }
    let mut clock = Clock::default();
    let mut before = ftl.stats();
    let mut writes = 0;
    for round in 0..10 {
        if round == 5 {
            (clock, before, writes) = (Clock::default(), ftl.stats(), 0);
        }
        for _ in 0..pages {
            ftl.write(DISK, rng.below(pages), &mut clock).unwrap();
            writes += 1;
        }
    }
    let after = ftl.stats();
    let valid = (after.victim_valid - before.victim_valid) as f64;
    let victims = (after.victims - before.victims) as f64;
    Measured {
        u: valid / victims / f64::from(pages_per_block),
        extra: clock.programs as f64 / writes as f64 - 1.0,
        rate: writes as f64 * 1e9 / clock.nanos as f64,
        // One block is kept free, and one is half full on average.
        load: f64::from(pages) / (f64::from(geometry.pages()) - 1.5 * f64::from(pages_per_block)),
    }
}

fn off(measured: f64, expected: f64) -> f64 {
    measured / expected - 1.0
}

#[test]
fn write_amplification_is_what_analysis_says() {
    println!(
        "spare  pages  victims   u      analysis  extra writes  analysis      off    IOPS  equation 1"
    );
    for (victims, pages_per_block, blocks) in
        [(Victims::Greedy, 64, 1024), (Victims::Greedy, 256, 512), (Victims::Fifo, 64, 1024)]
    {
        for spare in [5, 7, 10, 15, 20, 28, 40, 50] {
            let Measured { u, extra, rate, load } =
                measure(victims, pages_per_block, blocks, spare);
            let expected = match victims {
                Victims::Fifo => theory::first_in_first_out(load),
                Victims::Greedy | Victims::CostBenefit => theory::greedy(load, pages_per_block),
            };
            let amplification = expected / (1.0 - expected);
            let by_equation =
                CellTimes::DISKSIM.rate(Utilisation::from_millionths((u * 1e6) as u32)) as f64;
            println!(
                "{spare:>4}% {pages_per_block:>6}  {:<7} {u:.4}  {expected:.4} {extra:>12.3} {amplification:>12.3} {:>+7.2}% {rate:>7.0} {by_equation:>7.0}",
                format!("{victims:?}"),
                off(extra, amplification) * 100.0,
            );
            let case = format!("{victims:?}, {pages_per_block} pages, {spare} %");
            // The published curves.
            assert!(off(extra, amplification).abs() < 0.01, "{case}: {extra} for {amplification}");
            assert!((u - expected).abs() < 0.01, "{case}: u {u} for {expected}");
            // Equations 2 and 1.
            assert!(off(extra, u / (1.0 - u)).abs() < 0.01, "{case}: {extra} at u {u}");
            assert!(off(rate, by_equation).abs() < 0.01, "{case}: {rate} IOPS for {by_equation}");
        }
    }
}

#[test]
fn the_papers_points_of_the_fifo_curve() {
    // Spare space as part of the logical: 7 % gives u of about 0.87, 15 % 0.75, 28 % 0.60, 50 %
    // 0.42.
    for (spare, u) in [(7.0, 0.87), (15.0, 0.75), (28.0, 0.60), (50.0, 0.42)] {
        let found = theory::first_in_first_out(1.0 / (1.0 + spare / 100.0));
        assert!((found - u).abs() < 0.01, "{spare} %: {found}");
        let greedy = theory::greedy(1.0 / (1.0 + spare / 100.0), 64);
        assert!(greedy < found && greedy > found - 0.1, "{spare} %: greedy {greedy}");
    }
}
