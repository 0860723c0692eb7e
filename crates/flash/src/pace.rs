//! What an owner's page writes take, as measured by who has the clock.

use crate::equations::{Utilisation, WriteCosts};
use headgate_units::Nanos;

/// Time of an owner between two reports ([`Ftl::spent`](crate::Ftl::spent)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// In which something that it asked for, a read or a write, was not done yet.
    pub busy: Nanos,
    /// Of that, in which its pages were moved so that it may write.
    pub moving: Nanos,
    /// Of that, in which its blocks were erased.
    pub erasing: Nanos,
}

/// Pages are counted in parts of this, so that a sum that loses a part of itself again and again
/// does not stick at a few pages.
const PAGE: u64 = 1 << 16;
/// Victims after which what is measured counts: an eighth of the window. Before, one request that
/// waited long would be a rate.
const BEFORE_IT_COUNTS: u64 = 8;

/// Sums over an owner's latest victims, of which each counts for less the longer ago it was, as in
/// the mean of their utilisations.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    window: u64,
    victims: u64,
    written: u64,
    moved: u64,
    busy: u64,
    moving: u64,
    erasing: u64,
    /// Reported since the last victim.
    spent: Spent,
    /// The owner's counters at the last victim: pages written, pages moved.
    before: (u64, u64),
}

/// What the sums say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measured {
    pub costs: WriteCosts,
    /// Pages moved of all that were programmed: the utilisation of victims, over the same time as
    /// the costs.
    pub utilisation: Utilisation,
}

impl Pace {
    pub fn new(window: u32) -> Pace {
        Pace {
            window: window.max(1).into(),
            victims: 0,
            written: 0,
            moved: 0,
            busy: 0,
            moving: 0,
            erasing: 0,
            spent: Spent::default(),
            before: (0, 0),
        }
    }

    pub fn spend(&mut self, spent: Spent) {
        let add = |sum: &mut Nanos, more: Nanos| sum.0 = sum.0.saturating_add(more.0);
        add(&mut self.spent.busy, spent.busy);
        add(&mut self.spent.moving, spent.moving);
        add(&mut self.spent.erasing, spent.erasing);
    }

    /// A block is collected, after so many pages written and moved since the owner came. What
    /// happened before there was a time, as where a drive is given a past, is left out. Of several
    /// blocks that one write has collected, the first stands for all.
    pub fn on_victim(&mut self, written: u64, moved: u64) {
        if self.spent.busy == Nanos::ZERO {
            if self.victims == 0 {
                self.before = (written, moved);
            }
            return;
        }
        let before = core::mem::replace(&mut self.before, (written, moved));
        let spent = core::mem::take(&mut self.spent);
        self.victims += 1;
        let full = self.victims > self.window;
        let window = self.window;
        let add = |sum: &mut u64, more: u64| {
            let kept = if full { *sum - *sum / window } else { *sum };
            *sum = kept.saturating_add(more);
        };
        add(&mut self.written, (written - before.0).saturating_mul(PAGE));
        add(&mut self.moved, (moved - before.1).saturating_mul(PAGE));
        add(&mut self.busy, spent.busy.0);
        add(&mut self.moving, spent.moving.0);
        add(&mut self.erasing, spent.erasing.0);
    }

    /// `None`: too little has been seen. `chip` says what moving a page takes where hardly any was.
    ///
    /// A block is erased for as many pages as it has, written ones and moved ones, and so they bear
    /// the time of that together. What is neither moving nor erasing, the written ones bear.
    pub fn measured(&self, chip: WriteCosts) -> Option<Measured> {
        if self.victims < BEFORE_IT_COUNTS.min(self.window) || self.written == 0 {
            return None;
        }
        let each = |time: u64, pages: u64| {
            let nanos = u128::from(time) * u128::from(PAGE) / u128::from(pages);
            u64::try_from(nanos).unwrap_or(u64::MAX)
        };
        let erase = each(self.erasing, self.written.saturating_add(self.moved));
        let rest = self.busy.saturating_sub(self.moving).saturating_sub(self.erasing);
        let own = each(rest, self.written).saturating_add(erase);
        // Less than a page for each victim is not enough to tell, and does not matter.
        let has_moved = self.moved >= self.victims.min(self.window) * PAGE;
        let moved = if has_moved { each(self.moving, self.moved) } else { chip.moved.0 };
        let costs = WriteCosts { own: Nanos(own), moved: Nanos(moved.saturating_add(erase)) };
        let utilisation = match self.moved {
            0 => Utilisation::EMPTY,
            moved => Utilisation::of(moved, moved.saturating_add(self.written)),
        };
        Some(Measured { costs, utilisation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHIP: WriteCosts = WriteCosts { own: Nanos(300), moved: Nanos(200) };

    fn spent(busy: u64, moving: u64, erasing: u64) -> Spent {
        Spent { busy: Nanos(busy), moving: Nanos(moving), erasing: Nanos(erasing) }
    }

    #[test]
    fn what_was_spent_is_divided_by_the_pages_it_was_spent_on() {
        let mut pace = Pace::new(64);
        for victim in 1..=1_000 {
            assert_eq!(pace.measured(CHIP).is_some(), victim > 8, "{victim}");
            pace.spend(spent(5_000, 1_000, 0));
            pace.spend(spent(11_600, 8_000, 1_600));
            pace.on_victim(victim * 20, victim * 60);
        }
        let measured = pace.measured(CHIP).unwrap();
        assert_eq!(measured.costs, WriteCosts { own: Nanos(320), moved: Nanos(170) });
        assert_eq!(measured.utilisation.millionths(), 750_000);
        // Which is what a page that is written took.
        assert_eq!(16_600 / 20, 320 + 3 * 170);
    }

    #[test]
    fn a_window_later_most_of_it_is_new() {
        let mut pace = Pace::new(64);
        for victim in 1..=500 {
            pace.spend(spent(8_000, 2_000, 0));
            pace.on_victim(victim * 20, victim * 20);
        }
        for victim in 501..=564 {
            pace.spend(spent(16_000, 4_000, 0));
            pace.on_victim(victim * 20, victim * 20);
        }
        // 1 - 1/e of the way from 300 to 600.
        let own = pace.measured(CHIP).unwrap().costs.own.0;
        assert!((485..=495).contains(&own), "{own}");
    }

    #[test]
    fn nothing_counts_that_took_no_time_and_nothing_moved_costs_what_the_chip_says() {
        let mut pace = Pace::new(64);
        (1..=100).for_each(|victim| pace.on_victim(victim * 9_999, victim));
        assert_eq!(pace.measured(CHIP), None);
        for victim in 1..=100 {
            pace.spend(spent(6_400, 0, 640));
            pace.on_victim(999_900 + victim * 64, 100);
        }
        let measured = pace.measured(CHIP).unwrap();
        assert_eq!(measured.costs, WriteCosts { own: Nanos(100), moved: Nanos(210) });
        assert_eq!(measured.utilisation, Utilisation::EMPTY);
    }

    #[test]
    fn times_without_end_do_not_overflow() {
        let mut pace = Pace::new(1);
        for victim in 1..20 {
            pace.spend(spent(u64::MAX, u64::MAX, 0));
            pace.spend(spent(u64::MAX, 0, u64::MAX));
            pace.on_victim(victim, victim);
        }
        assert!(pace.measured(CHIP).is_some());
    }
}
