//! What collection costs, by the papers' equations, and back from rates to utilisations.
//!
//! A victim block of which the part u is valid gives (1 - u)·N_p free pages for u·N_p copies. So
//! each page that a host writes costs WAF(u) = u/(1 - u) further writes (equation 2: extra writes,
//! not counting the host's own), and an owner that writes as fast as it can does IOPS(u) =
//! 1/(WAF(u)·t_PRG + t_PRG + t_XFER) (equation 1; reads of copied pages and erases are neglected).
//! As WAF(u) + 1 = 1/(1 - u), that is (1 - u)/(t_PRG + (1 - u)·t_XFER), and u = (1/IOPS - t_PRG -
//! t_XFER)/(1/IOPS - t_XFER).

use core::fmt;
use headgate_units::{Iops, Nanos};

const WHOLE: u32 = 1_000_000;
const SECOND: u128 = 1_000_000_000;

/// Which part of a block's pages is valid, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Utilisation(u32);

impl Utilisation {
    /// No page is valid.
    pub const EMPTY: Utilisation = Utilisation(0);
    /// All pages are valid: there is nothing to gain.
    pub const FULL: Utilisation = Utilisation(WHOLE);

    /// So many millionths; more than a million are a million.
    pub const fn from_millionths(millionths: u32) -> Utilisation {
        if millionths > WHOLE { Utilisation::FULL } else { Utilisation(millionths) }
    }

    /// `valid` of `pages`, rounded to the nearest millionth. No pages are full.
    pub fn of(valid: u64, pages: u64) -> Utilisation {
        if pages == 0 || valid >= pages {
            return Utilisation::FULL;
        }
        let whole = u128::from(WHOLE);
        let (valid, pages) = (u128::from(valid), u128::from(pages));
        Utilisation(u32::try_from((valid * whole + pages / 2) / pages).unwrap_or(WHOLE))
    }

    /// In millionths.
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// Equation 2: extra page writes for each page that a host writes, in millionths. `None` when
    /// all pages are valid.
    pub fn extra_writes(self) -> Option<u64> {
        let free = u64::from(WHOLE - self.0);
        (free > 0).then(|| (u64::from(self.0) * u64::from(WHOLE) + free / 2) / free)
    }
}

impl fmt::Display for Utilisation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / WHOLE, self.0 % WHOLE / 1000)
    }
}

/// How long the steps of a chip take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellTimes {
    /// Reads a page from the cells: t_READ.
    pub read: Nanos,
    /// Programs a page: t_PRG.
    pub program: Nanos,
    /// Erases a block: t_ERASE.
    pub erase: Nanos,
    /// Moves a page between chip and controller: t_XFER.
    pub transfer: Nanos,
}

impl CellTimes {
    /// The stock values of DiskSim's SSD extension: 25 µs, 200 µs, 1.5 ms, and 25 ns for each byte
    /// of 4 KiB.
    pub const DISKSIM: CellTimes = CellTimes {
        read: Nanos(25_000),
        program: Nanos(200_000),
        erase: Nanos(1_500_000),
        transfer: Nanos(102_400),
    };

    /// What equation 1 says that writes take: t_PRG + t_XFER for a page of one's own, t_PRG for one
    /// that is moved.
    pub fn costs(&self) -> WriteCosts {
        WriteCosts {
            own: Nanos(self.program.0.saturating_add(self.transfer.0)),
            moved: self.program,
        }
    }

    /// Equation 1: page writes per second of an owner whose victims are so full, one chip, one
    /// write after the other. 0 when nothing can be gained from victims.
    pub fn rate(&self, u: Utilisation) -> u64 {
        self.costs().rate(u)
    }

    /// The inverse of equation 1: how full victims may be at most where an owner writes so many
    /// pages per second. `None`: no utilisation is low enough, the chip itself is slower.
    pub fn utilisation_for(&self, rate: Iops) -> Option<Utilisation> {
        self.costs().utilisation_for(MilliIops::of(rate))
    }
}

/// Thousandths of a page per second: a small share of a slow drive is a few pages per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MilliIops(pub u64);

impl MilliIops {
    pub fn of(rate: Iops) -> MilliIops {
        MilliIops(rate.get().saturating_mul(1_000))
    }

    /// To the nearest whole one.
    pub fn rounded(self) -> u64 {
        self.0 / 1_000 + u64::from(self.0 % 1_000 >= 500)
    }
}

/// What an owner's page writes take: equation 1 with the two times that it has, whether they are
/// the chip's or measured. A page that an owner writes costs `own` + WAF(u)·`moved`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteCosts {
    /// For each page that it writes, without collection.
    pub own: Nanos,
    /// For each page that is moved.
    pub moved: Nanos,
}

impl WriteCosts {
    /// Page writes per second where victims are so full; 0 when nothing can be gained from them.
    pub fn rate(&self, u: Utilisation) -> u64 {
        self.fine_rate(u, 1)
    }

    pub(crate) fn milli_rate(&self, u: Utilisation) -> MilliIops {
        MilliIops(self.fine_rate(u, 1_000))
    }

    fn fine_rate(&self, u: Utilisation, parts: u128) -> u64 {
        let free = u128::from(WHOLE - u.millionths());
        let time = self.time(u);
        if time == 0 {
            return u64::MAX;
        }
        u64::try_from((SECOND * parts * free + time / 2) / time).unwrap_or(u64::MAX)
    }

    /// Nanoseconds for a million pages that are programmed, of which u are moved ones.
    fn time(&self, u: Utilisation) -> u128 {
        let full = u128::from(u.millionths());
        u128::from(self.own.0) * (u128::from(WHOLE) - full) + u128::from(self.moved.0) * full
    }

    /// How full victims may be at most at such a rate. `None`: no utilisation is low enough.
    pub(crate) fn utilisation_for(&self, rate: MilliIops) -> Option<Utilisation> {
        // Both sides of the fraction times IOPS, so that 1/IOPS need not be rounded.
        let rate = u128::from(rate.0);
        let busy = u128::from(self.own.0) * rate;
        let above = (SECOND * 1_000).checked_sub(busy).filter(|&above| above > 0)?;
        let below = above + u128::from(self.moved.0) * rate;
        let millionths = (above * u128::from(WHOLE) + below / 2) / below;
        Some(Utilisation::from_millionths(u32::try_from(millionths).unwrap_or(WHOLE)))
    }

    /// From which rate on an owner would be faster by less than a seventh if nothing had to be
    /// moved any more.
    pub(crate) fn most(&self) -> MilliIops {
        let most = SECOND * 1_000 * 7 / (8 * u128::from(self.own.0.max(1)));
        MilliIops(u64::try_from(most).unwrap_or(u64::MAX))
    }

    /// By how much u has to differ for the rate to differ by one part of so many: the derivative of
    /// the rate by u is -`moved`·rate/((1 - u)·(`own`·(1 - u) + `moved`·u)). In millionths.
    pub(crate) fn step(&self, u: Utilisation, part: u32) -> u32 {
        let whole = u128::from(WHOLE);
        let below = u128::from(self.moved.0.max(1)) * whole * u128::from(part.max(1));
        let step = (whole - u128::from(u.millionths())) * self.time(u) / below;
        u32::try_from(step).unwrap_or(WHOLE).min(WHOLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u(millionths: u32) -> Utilisation {
        Utilisation::from_millionths(millionths)
    }

    const PAPER: CellTimes = CellTimes {
        read: Nanos(25_000),
        program: Nanos(200_000),
        erase: Nanos(0),
        transfer: Nanos(100_000),
    };

    #[test]
    fn equation_2_at_the_papers_points() {
        let points = [
            (100, 111),
            (300, 429),
            (500, 1_000),
            (600, 1_500),
            (700, 2_333),
            (800, 4_000),
            (900, 9_000),
            (950, 19_000),
        ];
        for (permille, extra) in points {
            let millionths = u(permille * 1_000).extra_writes().unwrap();
            assert_eq!((millionths + 500) / 1_000, extra, "u {permille}");
        }
        assert_eq!(Utilisation::FULL.extra_writes(), None);
        assert_eq!(Utilisation::EMPTY.extra_writes(), Some(0));
    }

    #[test]
    fn targets_of_weights_1_3_6_at_1000_iops() {
        let targets: Vec<u32> = [100, 300, 600]
            .map(|rate| PAPER.utilisation_for(Iops::new(rate).unwrap()).unwrap().millionths())
            .to_vec();
        assert_eq!(targets, [979_798, 938_144, 872_340]);
    }

    #[test]
    fn rate_and_utilisation_are_inverse() {
        for rate in (1..3_333).step_by(7) {
            let rate = Iops::new(rate).unwrap();
            let back = PAPER.rate(PAPER.utilisation_for(rate).unwrap());
            assert!(back.abs_diff(rate.get()) <= 1, "{rate}: {back}");
        }
        assert_eq!(PAPER.rate(Utilisation::EMPTY), 3_333);
        assert_eq!(PAPER.rate(Utilisation::FULL), 0);
    }

    #[test]
    fn a_target_beyond_the_chip_has_no_utilisation() {
        assert!(PAPER.utilisation_for(Iops::new(3_333).unwrap()).is_some());
        assert_eq!(PAPER.utilisation_for(Iops::new(3_334).unwrap()), None);
        assert_eq!(PAPER.utilisation_for(Iops::MAX), None);
    }

    #[test]
    fn measured_costs_are_equation_1_with_other_times() {
        let deep = WriteCosts { own: Nanos(30_000), moved: Nanos(220_000) };
        for (millionths, rate) in [(0, 33_333), (500_000, 4_000), (900_000, 498), (1_000_000, 0)] {
            assert_eq!(deep.rate(u(millionths)), rate);
        }
        for millis in (50..29_000_000).step_by(9_973) {
            let goal = deep.utilisation_for(MilliIops(millis)).unwrap();
            let back = deep.milli_rate(goal).0;
            // A millionth of u is what it is exact to, and the least rate.
            let exact = u64::from(1_000_000 / deep.step(goal, 1).max(1));
            let most = millis * (exact + 10) / 1_000_000 + 1;
            assert!(back.abs_diff(millis) <= most, "{millis}: {back}");
        }
        assert_eq!(deep.utilisation_for(MilliIops(33_333_334)), None);
        assert_eq!(deep.most(), MilliIops(29_166_666));
    }

    #[test]
    fn a_step_of_utilisation_is_the_part_of_the_rate_that_it_says() {
        for costs in [PAPER.costs(), WriteCosts { own: Nanos(9_000), moved: Nanos(220_000) }] {
            for millionths in [100_000, 400_000, 700_000, 950_000] {
                let (here, step) = (u(millionths), costs.step(u(millionths), 100));
                let there = u(millionths - step);
                let (here, there) = (costs.milli_rate(here).0, costs.milli_rate(there).0);
                let part = there as f64 / here as f64 - 1.0;
                assert!((part - 0.01).abs() < 0.001, "{costs:?} at {millionths}: {part}");
            }
        }
    }

    #[test]
    fn parts_are_rounded_and_bounded() {
        assert_eq!(Utilisation::of(1, 3), u(333_333));
        assert_eq!(Utilisation::of(2, 3), u(666_667));
        assert_eq!(Utilisation::of(4, 3), Utilisation::FULL);
        assert_eq!(Utilisation::of(0, 0), Utilisation::FULL);
        assert_eq!(u(871_999).to_string(), "0.871");
        assert_eq!(Utilisation::FULL.to_string(), "1.000");
    }
}
