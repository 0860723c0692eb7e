//! Wear and its levelling, within an owner and across owners. `-- --nocapture` prints the spread.

use crate::common::{Rng, geometry};
use headgate_flash::{
    CellTimes, Config, Control, Ftl, Ignore, Image, Isolation, Levelling, OwnerId, OwnerSpec,
    Thresholds, Victims,
};
use headgate_units::Iops;

const SPREAD: u32 = 32;

fn layer(isolation: Isolation, levelling: Levelling) -> Ftl<Image> {
    let thresholds = Thresholds { foreground: 1, background: 0 };
    let config =
        Config { isolation, levelling, thresholds, victims: Victims::Greedy, ..Config::default() };
    Ftl::format(Image::new(geometry(2, 1, 128, 16)), config).unwrap()
}

/// One owner writes everywhere, another not at all after it has filled its pages; or one owner
/// writes to a fifth of its pages.
fn wear_out(ftl: &mut Ftl<Image>, owners: u16) -> (u32, u64) {
    let pages = ftl.geometry().pages() * 8 / 10 / u32::from(owners);
    for owner in 0..owners {
        ftl.add_owner(OwnerId(owner), OwnerSpec::pages(pages)).unwrap();
        for page in 0..pages {
            ftl.write(OwnerId(owner), page, &mut Ignore).unwrap();
        }
    }
    let hot = if owners > 1 { pages } else { pages / 5 };
    let mut rng = Rng(1);
    let mut worst = 0;
    for round in 0..400_000 {
        ftl.write(OwnerId(0), rng.below(hot), &mut Ignore).unwrap();
        if round % 1_000 == 0 {
            let wear = ftl.wear();
            worst = worst.max(wear.most - wear.least);
        }
    }
    ftl.check().unwrap();
    (worst, ftl.wear().total)
}

#[test]
fn cold_data_does_not_keep_blocks_young() {
    println!("isolation  owners  levelling  most - least   erases  levelled pages");
    let control = Control::new(Iops::new(3_000).unwrap(), CellTimes::DISKSIM);
    for isolation in [Isolation::Shared, Isolation::Static, Isolation::Dynamic(control)] {
        for owners in [1, 2] {
            let mut spreads = Vec::new();
            for levelling in [Levelling::Off, Levelling::Spread(SPREAD)] {
                let mut ftl = layer(isolation.clone(), levelling);
                let (spread, total) = wear_out(&mut ftl, owners);
                let stats = ftl.stats();
                let name = match isolation {
                    Isolation::Shared => "shared",
                    Isolation::Static => "static",
                    Isolation::Dynamic(_) => "dynamic",
                };
                println!(
                    "{name:<10} {owners:>6}  {levelling:?}  {spread:>12} {total:>8} {:>9}",
                    stats.levelled
                );
                // A quarter of the blocks collected at the most, of 16 pages each.
                assert!(stats.levelled <= stats.erases / 4 * 16, "{stats:?}");
                spreads.push(spread);
            }
            let [without, with] = spreads[..] else { unreachable!() };
            assert!(without > 4 * SPREAD, "{without}");
            assert!(with <= SPREAD * 3 / 2, "{with}");
        }
    }
}
