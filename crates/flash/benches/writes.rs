//! Page writes per second of one core, memory, wear: `cargo bench -p headgate-flash`.

use headgate_flash::{
    CellTimes, Config, Control, Ftl, Geometry, Ignore, Image, Isolation, OwnerId, OwnerSpec,
    Thresholds, Victims,
};
use headgate_units::{Bytes, Iops};
use std::time::Instant;

struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(mixed ^ (mixed >> 31)) * u128::from(end)) >> 64) as u32
    }
}

/// Resident memory of this process in bytes.
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    pages * 4096.0
}

struct Case {
    name: &'static str,
    gib: u32,
    owners: u16,
    spare_percent: u32,
    isolation: Isolation,
    victims: Victims,
    /// Nine of ten writes go to a tenth of the pages.
    skewed: bool,
}

fn run(case: Case) {
    // `cargo bench -p headgate-flash -- static` runs only what has that in its name.
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    if wanted.is_some_and(|wanted| !case.name.contains(&wanted)) {
        return;
    }
    let geometry = Geometry::new(8, 4, case.gib * 32, 256, Bytes::from_kib(4)).unwrap();
    let config = Config {
        isolation: case.isolation,
        victims: case.victims,
        thresholds: Thresholds { foreground: 1, background: 4 },
        ..Config::default()
    };
    let mut ftl = Ftl::format(Image::new(geometry), config).unwrap();
    let logical =
        (f64::from(geometry.pages()) * 100.0 / f64::from(100 + case.spare_percent)) as u32;
    let pages = logical / u32::from(case.owners);
    for owner in 0..case.owners {
        ftl.add_owner(OwnerId(owner), OwnerSpec::pages(pages)).unwrap();
    }
    for page in 0..pages {
        for owner in 0..case.owners {
            ftl.write(OwnerId(owner), page, &mut Ignore).unwrap();
        }
    }
    let mut rng = Rng(1);
    let mut one = |ftl: &mut Ftl<Image>| {
        let owner = OwnerId(rng.below(case.owners.into()) as u16);
        let hot = case.skewed && rng.below(10) != 0;
        let page = rng.below(if hot { pages / 10 } else { pages });
        ftl.write(owner, page, &mut Ignore).unwrap();
    };
    // Aged before it is measured.
    for _ in 0..2 * u64::from(logical) {
        one(&mut ftl);
    }
    let mut rates = Vec::new();
    let before = ftl.stats();
    let writes = logical / 2;
    for _ in 0..5 {
        #[allow(clippy::disallowed_methods, reason = "a benchmark measures time")]
        let start = Instant::now();
        for _ in 0..writes {
            one(&mut ftl);
        }
        rates.push(f64::from(writes) / start.elapsed().as_secs_f64() / 1e6);
    }
    rates.sort_by(f64::total_cmp);
    let after = ftl.stats();
    let host = (after.host_writes - before.host_writes) as f64;
    let extra = (after.moved + after.levelled - before.moved - before.levelled) as f64 / host;
    let wear = ftl.wear();
    println!(
        "{:<34} {:>6.2} M/s ({:.2} to {:.2}) {:>6.2} M programs/s  {extra:>6.3} extra writes  wear {} to {}, mean {:.1}",
        case.name,
        rates[2],
        rates[0],
        rates[4],
        rates[2] * (1.0 + extra),
        wear.least,
        wear.most,
        wear.total as f64 / f64::from(geometry.blocks()),
    );
}

/// Resident memory of a layer whose owner has written every page, without the medium's image.
fn memory() {
    let geometry = Geometry::new(8, 4, 16 * 32, 256, Bytes::from_kib(4)).unwrap();
    let image = Image::new(geometry);
    let start = resident();
    let mut ftl = Ftl::format(image, Config::default()).unwrap();
    let pages = (f64::from(geometry.pages()) / 1.15) as u32;
    ftl.add_owner(OwnerId(0), OwnerSpec::pages(pages)).unwrap();
    for page in 0..pages {
        ftl.write(OwnerId(0), page, &mut Ignore).unwrap();
    }
    let used = resident() - start;
    println!(
        "memory of the layer for a TiB of written 4 KiB pages: {:.2} GiB ({:.2} bytes a page)",
        used / f64::from(pages) / 4.0,
        used / f64::from(pages)
    );
}

fn main() {
    memory();
    let case = |name, spare_percent| Case {
        name,
        gib: 16,
        owners: 1,
        spare_percent,
        isolation: Isolation::Shared,
        victims: Victims::Greedy,
        skewed: false,
    };
    run(case("16 GiB, 28 % spare, greedy", 28));
    run(case("16 GiB, 15 % spare, greedy", 15));
    run(case("16 GiB, 7 % spare, greedy", 7));
    run(Case { victims: Victims::Fifo, ..case("16 GiB, 28 % spare, FIFO", 28) });
    run(Case { victims: Victims::CostBenefit, ..case("16 GiB, 28 % spare, cost-benefit", 28) });
    run(Case { skewed: true, ..case("16 GiB, 28 % spare, 90/10 skew", 28) });
    run(Case {
        owners: 16,
        isolation: Isolation::Static,
        ..case("16 GiB, 28 %, 16 owners, static", 28)
    });
    // 1,650 page writes per second for each: what 28 % give.
    let control = Control::new(Iops::new(16 * 1_650).unwrap(), CellTimes::DISKSIM);
    let isolation = Isolation::Dynamic(control);
    run(Case { owners: 16, isolation, ..case("16 GiB, 28 %, 16 owners, dynamic", 28) });
    run(Case { gib: 64, ..case("64 GiB, 28 % spare, greedy", 28) });
}
