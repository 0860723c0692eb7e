//! Who may hold how many blocks: the initial division by weight, and Algorithm 1, which lets space
//! follow targets.

use crate::config::{Rating, Targets};
use crate::equations::{MilliIops, Utilisation, WriteCosts};
use crate::ftl::Ftl;
use crate::medium::Medium;
use crate::owner::{OwnerId, OwnerSpec};
use crate::pool::{Pool, Wanting};
use crate::stats::{Reach, Standing};
use alloc::vec;
use alloc::vec::Vec;
use headgate_units::{Iops, Shares};

/// Blocks outside all quotas in the isolated modes: with them a quota that moved can be used before
/// its blocks have followed.
const IN_TRANSIT: u32 = 2;

/// Victims between two looks at what owners achieve.
const SEEK_EVERY: u64 = 8;

/// Divides `total` by weight, nobody getting less than its least; rounded so that the sum is exact
/// (largest remainders, of equal ones the first). Weights of nothing but least are those whose part
/// would be smaller. O(n² log n) at worst.
///
/// `None`: the least parts are more than there is.
pub(crate) fn apportion(total: u32, parts: &[(u64, u32)]) -> Option<Vec<u32>> {
    let mut given = vec![0; parts.len()];
    let mut left = u64::from(total);
    let mut open: Vec<usize> = (0..parts.len()).collect();
    loop {
        let weights: u128 = open.iter().map(|&i| u128::from(parts[i].0)).sum();
        let share = |i: usize, left: u64| u128::from(left) * u128::from(parts[i].0);
        let (poor, rich): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|&&i| share(i, left) < u128::from(parts[i].1) * weights);
        if poor.is_empty() {
            let mut rest = left;
            for &i in &open {
                given[i] = u32::try_from(share(i, left) / weights).ok()?;
                rest -= u64::from(given[i]);
            }
            let mut by_remainder = open.clone();
            by_remainder.sort_by_key(|&i| core::cmp::Reverse(share(i, left) % weights));
            for &i in by_remainder.iter().take(usize::try_from(rest).ok()?) {
                given[i] += 1;
            }
            return Some(given);
        }
        for i in poor {
            given[i] = parts[i].1;
            left = left.checked_sub(parts[i].1.into())?;
        }
        open = rich;
    }
}

/// What an owner makes of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Writing,
    Idle,
}

/// The part of a rate by which it may differ: one of so many.
const EXACT: u32 = 20;

/// Where an owner is, where it is to be, and how near that is near enough, in millionths of
/// utilisation.
#[derive(Clone, Copy, Debug)]
struct Course {
    now: u32,
    target: u32,
    margin: u32,
    /// Collections from one adjustment to the next, at least.
    wait: u64,
}

impl<M: Medium> Ftl<M> {
    /// Blocks in no quota.
    pub(crate) fn kept_back(&self) -> u32 {
        if self.is_shared() { 0 } else { IN_TRANSIT }
    }

    /// The least over-provisioning space: an open block for each stream, what the foreground
    /// threshold keeps free, and a block for levelled pages. With it and one page overwritten there
    /// is always a block to gain from.
    pub(crate) fn least_spare(&self) -> u32 {
        let levelled = if self.levels() { 1 } else { 0 };
        self.config.thresholds.foreground.saturating_add(self.streams() + levelled)
    }

    fn data_blocks(&self, pages: u64) -> u32 {
        u32::try_from(pages.div_ceil(u64::from(self.geometry.pages_per_block())))
            .unwrap_or(u32::MAX)
    }

    /// Blocks that one more owner of so many pages needs at least, and blocks that there are for
    /// it.
    pub(crate) fn room_for(&self, pages: u32) -> (u32, u32) {
        let own = self.owners.iter().filter(|owner| owner.id.is_some());
        let all = self.geometry.blocks() - self.kept_back();
        if self.is_shared() {
            let present: u64 = own.map(|owner| u64::from(owner.spec.pages)).sum();
            let before = self.data_blocks(present);
            let needed = self.data_blocks(present + u64::from(pages)).saturating_sub(before);
            return (needed, all.saturating_sub(before.saturating_add(self.least_spare())));
        }
        let least = |pages: u32| self.data_blocks(pages.into()).saturating_add(self.least_spare());
        let taken = own.fold(0_u32, |sum, owner| sum.saturating_add(least(owner.spec.pages)));
        (least(pages), all.saturating_sub(taken))
    }

    /// Blocks that an owner needs beside those it has to have so many pages, and blocks that are
    /// left.
    pub(crate) fn room_to_grow(&self, before: u32, pages: u32) -> (u32, u32) {
        let (_, left) = self.room_for(0);
        let own = self.owners.iter().filter(|owner| owner.id.is_some());
        let others: u64 = match self.is_shared() {
            true => own.map(|owner| u64::from(owner.spec.pages)).sum::<u64>() - u64::from(before),
            false => 0,
        };
        let of = |pages: u32| self.data_blocks(others + u64::from(pages));
        (of(pages).saturating_sub(of(before)), left)
    }

    /// Divides the over-provisioning space among all owners by weight, as at the beginning of
    /// Algorithm 1.
    pub(crate) fn divide(&mut self) {
        let all = self.geometry.blocks() - self.kept_back();
        if self.is_shared() {
            let pages = self.owners.iter().map(|owner| u64::from(owner.spec.pages)).sum();
            self.pools[0].data = self.data_blocks(pages);
            self.pools[0].quota = all;
            self.widen(0);
            return;
        }
        let present: Vec<usize> =
            (0..self.owners.len()).filter(|&o| self.owners[o].id.is_some()).collect();
        for o in 0..self.pools.len() {
            let pages = self.owners.get(o).map_or(0, |owner| owner.spec.pages);
            self.pools[o].data = self.data_blocks(pages.into());
            self.pools[o].quota = 0;
        }
        let data: u32 = present.iter().map(|&o| self.pools[o].data).sum();
        let least = self.least_spare();
        let parts: Vec<(u64, u32)> =
            present.iter().map(|&o| (self.owners[o].spec.shares.get(), least)).collect();
        self.shares = parts.iter().map(|part| part.0).sum();
        self.unassigned = all.saturating_sub(data);
        // There is room for everybody's least: `room_for` was asked when each came.
        let Some(spare) = apportion(self.unassigned, &parts) else { return };
        for (&o, spare) in present.iter().zip(spare) {
            self.pools[o].quota = self.pools[o].data + spare;
            self.pools[o].wanting = Wanting::Nothing;
            self.unassigned -= spare;
        }
        for p in 0..self.pools.len() {
            self.widen(p);
        }
    }

    /// Gives an owner another weight: over-provisioning space is divided anew by weight, as when
    /// somebody comes or goes. False: nobody has that number. O(owners).
    pub fn set_shares(&mut self, owner: OwnerId, shares: Shares) -> bool {
        let Some(o) = self.place_of(owner) else { return false };
        self.owners[o].spec.shares = shares;
        self.divide();
        true
    }

    /// Fits the number of open blocks to the space: they come out of it.
    fn widen(&mut self, p: usize) {
        let pool = &self.pools[p];
        let spare = pool.quota.saturating_sub(pool.data);
        let beside = self.least_spare() - self.streams();
        let most = spare.saturating_sub(beside) / self.streams();
        let wanted = (most / 2).clamp(1, self.stripe());
        if wanted > pool.width {
            self.pools[p].width = wanted;
        } else if pool.width > most.max(1) {
            self.pools[p].width = wanted;
            self.seal_above(p, wanted);
        }
    }

    /// Algorithm 1 before a collection: one block more for whoever has to move too many pages for
    /// its target, one less for whoever moves too few. O(owners) when a block has to come from
    /// another owner, else O(1).
    pub(crate) fn adjust(&mut self, p: usize) {
        if self.control().is_none() {
            return;
        }
        self.seek_rate();
        let Some(Course { now, target, margin, wait }) = self.course(p) else { return };
        if !self.pools[p].has_settled(wait) {
            return;
        }
        self.pools[p].wanting = Wanting::Nothing;
        let before = self.pools[p].quota;
        if now > target.saturating_add(margin) {
            if !self.is_one_left() && !self.take_one(p) {
                return;
            }
            self.unassigned -= 1;
            self.pools[p].quota += 1;
        } else if now.saturating_add(margin) < target {
            if self.pools[p].quota <= self.pools[p].data + self.least_spare() {
                return;
            }
            self.pools[p].quota -= 1;
            self.unassigned += 1;
        }
        if self.pools[p].quota != before {
            self.pools[p].adjusted_at = self.pools[p].meter.victims();
        }
        self.widen(p);
    }

    /// Where the rate of the device is sought, it is what owners achieve with the space they have:
    /// for everybody's shares, what those that collect write for theirs. So who is above it gives
    /// space and who is below takes, until all are on it. Who has the least space and can give
    /// none, or is too slow for its part whatever space it gets, counts only where nobody else
    /// writes. A drive with more than a sixteenth of its space in nobody's hands achieves an eighth
    /// more, unless somebody for whom the others slow down cannot use it. O(owners), for every
    /// eighth victim.
    fn seek_rate(&mut self) {
        if self.control().is_none_or(|control| control.rating != Rating::Sought)
            || (self.rated.is_some() && self.stats.victims - self.rated_at < SEEK_EVERY)
        {
            return;
        }
        let (mut able, mut bound) = ((0, 0), (0, 0));
        let mut waits_for_one = false;
        for p in 0..self.pools.len().min(self.owners.len()) {
            let (pool, owner) = (&self.pools[p], &self.owners[p]);
            let Some((costs, u)) = self.achieved(p) else { continue };
            if owner.id.is_none() || owner.spec.target.is_some() || self.is_idle(pool) {
                continue;
            }
            let can_give = pool.quota > pool.data + self.least_spare();
            let counts = can_give && !self.is_sated(p);
            waits_for_one |= counts && self.is_limited(p);
            let sum = if counts { &mut able } else { &mut bound };
            sum.0 += u128::from(costs.milli_rate(u).min(MilliIops::of(Iops::MAX)).0);
            sum.1 += u128::from(owner.spec.shares.get());
        }
        let (rates, shares) = if able.1 > 0 { able } else { bound };
        if shares == 0 {
            return;
        }
        let (spare, unassigned) = self.spare_blocks();
        let achieved = rates * u128::from(self.shares) / shares;
        let is_idle = unassigned > spare / 16 && !waits_for_one;
        let rated = if is_idle { achieved + achieved / 8 } else { achieved };
        let most = MilliIops::of(Iops::MAX).0;
        self.rated = Some(MilliIops(u64::try_from(rated).unwrap_or(most).clamp(1, most)));
        self.rated_at = self.stats.victims;
    }

    /// Whether a pool has not collected while all others did so often as to replace its blocks.
    fn is_idle(&self, pool: &Pool) -> bool {
        self.stats.victims - pool.last_collected > u64::from(pool.quota)
    }

    /// The rate of the whole device of which owners get their parts, as given or as achieved of
    /// late. `None` without dynamic isolation, or when it is sought and nothing has been collected
    /// yet.
    pub fn rated(&self) -> Option<Iops> {
        self.control()?;
        Iops::new(self.rated?.rounded().max(1)).ok()
    }

    /// Whether a block of nobody's quota is one that nobody holds either.
    fn is_one_left(&self) -> bool {
        let excess = self.pools.iter().map(|pool| pool.held.saturating_sub(pool.quota)).sum();
        self.unassigned > excess
    }

    /// Takes a block away from somebody's quota, for a pool. Returns whether it can be had now: who
    /// writes pays for its loss itself, and until it has, nobody has gained anything; where nobody
    /// writes, the taker collects.
    fn take_one(&mut self, p: usize) -> bool {
        if self.unassigned > 0 {
            // One is on its way.
            return false;
        }
        let Some((donor, use_of_it)) = self.donor(p) else {
            self.pools[p].wanting = Wanting::Space;
            return false;
        };
        self.pools[donor].quota -= 1;
        self.unassigned += 1;
        self.widen(donor);
        use_of_it == Use::Idle || self.is_one_left()
    }

    /// What an owner's writes cost, as the targets have it.
    fn costs(&self, p: usize) -> Option<WriteCosts> {
        let control = self.control()?;
        let chip = control.times.costs();
        match control.targets {
            Targets::Published => Some(chip),
            Targets::Measured => {
                Some(self.pools[p].pace.measured(chip).map_or(chip, |measured| measured.costs))
            }
        }
    }

    /// What an owner's writes cost and how full its victims were, both of late. `None`: it has not
    /// collected yet.
    fn achieved(&self, p: usize) -> Option<(WriteCosts, Utilisation)> {
        let control = self.control()?;
        let (pool, chip) = (&self.pools[p], control.times.costs());
        let measured = match control.targets {
            Targets::Published => None,
            Targets::Measured => pool.pace.measured(chip),
        };
        match measured {
            Some(measured) => Some((measured.costs, measured.utilisation)),
            None => pool.meter.value().map(|u| (chip, u)),
        }
    }

    /// `None`: the owner has not collected yet, or has no target.
    fn course(&self, p: usize) -> Option<Course> {
        let control = self.control()?;
        let (costs, now) = self.achieved(p)?;
        let goal = self.target_utilisation(p)?.unwrap_or(Utilisation::EMPTY);
        let (now, target) = (now.millionths(), goal.millionths());
        let margin = self.margin(p, goal)?;
        let (window, off) = (u64::from(control.window), u64::from(now.abs_diff(target).max(1)));
        let wait = match control.targets {
            Targets::Published => window * u64::from(margin) / off,
            Targets::Measured => {
                // Rates are about in proportion to space: that many blocks of it are wrong. Half of
                // them move in a window, since the means follow that late: so it does not swing.
                let spare = self.pools[p].quota.saturating_sub(self.pools[p].data);
                let wrong = off * u64::from(spare.max(1));
                let whole = u64::from(costs.step(goal, EXACT)) * u64::from(EXACT);
                (2 * window * whole / wrong).min(window)
            }
        };
        Some(Course { now, target, margin, wait })
    }

    /// How far from its target a utilisation may be: the hysteresis, but no more than changes the
    /// rate by a twentieth. By equation 1 rates are nearly in proportion to 1 - u, so that at 0.96
    /// a hundredth is a quarter of the rate.
    fn margin(&self, p: usize, target: Utilisation) -> Option<u32> {
        let control = self.control()?;
        let twentieth = match control.targets {
            Targets::Published => (1_000_000 - target.millionths()) / EXACT,
            Targets::Measured => self.costs(p)?.step(target, EXACT),
        };
        Some(control.hysteresis.millionths().min(twentieth))
    }

    /// Who can give a block: of those with more than the least, the one farthest below its target;
    /// one that has not collected while all others did so often as to replace its blocks does not
    /// need them.
    fn donor(&self, taker: usize) -> Option<(usize, Use)> {
        let slack = |p: usize| {
            let pool = &self.pools[p];
            if p == taker || pool.quota <= pool.data + self.least_spare() {
                return None;
            }
            if self.is_idle(pool) {
                return Some(u32::MAX);
            }
            let Course { now, target, margin, .. } = self.course(p)?;
            let slack = target.saturating_sub(now);
            (slack > margin).then_some(slack)
        };
        let able = (0..self.pools.len()).filter_map(|p| slack(p).map(|slack| (slack, p)));
        let (slack, p) = able.max_by_key(|&(slack, p)| (slack, usize::MAX - p))?;
        Some((p, if slack == u32::MAX { Use::Idle } else { Use::Writing }))
    }

    fn target_rate(&self, p: usize) -> Option<MilliIops> {
        self.control()?;
        let owner = self.owners.get(p).filter(|owner| owner.id.is_some())?;
        if let Some(own) = owner.spec.target {
            return Some(MilliIops::of(own));
        }
        let rate = u128::from(self.rated?.0) * u128::from(owner.spec.shares.get());
        let rate = rate / u128::from(self.shares.max(1));
        Some(MilliIops(u64::try_from(rate).ok()?.max(1)))
    }

    /// What an owner may write at most whatever space it gets, and its target, where its costs are
    /// measured.
    fn most_and_target(&self, p: usize) -> Option<(u128, u128)> {
        self.control().filter(|control| control.targets == Targets::Measured)?;
        Some((self.costs(p)?.most().0.into(), self.target_rate(p)?.0.into()))
    }

    /// Whether an owner gets all the space that it can use and is slower than its target.
    fn is_limited(&self, p: usize) -> bool {
        self.most_and_target(p).is_some_and(|(most, target)| most < target)
    }

    /// Whether it is slower by more than a quarter. If it lacks less, the others slow down for it:
    /// they may well be why it is slow.
    fn is_sated(&self, p: usize) -> bool {
        self.most_and_target(p).is_some_and(|(most, target)| most * 4 < target * 3)
    }

    /// The outer `None`: no target. The inner: beyond the chip. Where costs are measured nobody
    /// gets space for a last eighth of its rate: that would be the space of all others.
    fn target_utilisation(&self, p: usize) -> Option<Option<Utilisation>> {
        let (costs, rate) = (self.costs(p)?, self.target_rate(p)?);
        Some(match self.control()?.targets {
            Targets::Published => costs.utilisation_for(rate),
            Targets::Measured => costs.utilisation_for(rate.min(costs.most())),
        })
    }

    /// Whether a pool's target is its part of what all achieve: there is space for that, though it
    /// may come late.
    fn follows_what_is_achieved(&self, p: usize) -> bool {
        let has_its_own = self.owners.get(p).is_some_and(|owner| owner.spec.target.is_some());
        !has_its_own && self.control().is_some_and(|control| control.rating == Rating::Sought)
    }

    /// What an owner has and is to have. `None`: nobody has that number. O(owners).
    pub fn standing(&self, owner: OwnerId) -> Option<Standing> {
        let p = self.pool_of(self.place_of(owner)?);
        let pool = &self.pools[p];
        let spare = pool.quota.saturating_sub(pool.data);
        let goal = if self.is_shared() { None } else { self.target_utilisation(p) };
        let target = if self.is_shared() { None } else { self.target_rate(p) };
        Some(Standing {
            held: pool.held,
            quota: pool.quota,
            spare,
            least_spare: self.least_spare(),
            utilisation: self.achieved(p).map(|(_, u)| u).or(pool.meter.value()),
            target: target.and_then(|rate| Iops::new(rate.rounded().max(1)).ok()),
            target_utilisation: goal.flatten(),
            tolerance: goal
                .flatten()
                .and_then(|goal| self.margin(p, goal))
                .map(Utilisation::from_millionths),
            reach: goal.map_or(Reach::Open, |goal| self.reach(p, goal)),
        })
    }

    fn reach(&self, p: usize, goal: Option<Utilisation>) -> Reach {
        let pool = &self.pools[p];
        let spare = pool.quota.saturating_sub(pool.data);
        let has_shown_nothing = self.achieved(p).is_none() && self.follows_what_is_achieved(p);
        let is_below = self.course(p).is_some_and(|at| at.now + at.margin < at.target);
        match goal {
            // What others achieve is no target for who has not shown anything.
            _ if has_shown_nothing => Reach::Open,
            None => Reach::TooFast,
            Some(_) if self.is_sated(p) => Reach::TooFast,
            Some(_) if pool.wanting == Wanting::Space && !self.follows_what_is_achieved(p) => {
                Reach::NoSpace
            }
            Some(_) if spare <= self.least_spare() && is_below => Reach::AtLeast,
            Some(_) => Reach::Open,
        }
    }

    /// Over-provisioning space of the whole medium, in blocks, and what part of it is nobody's now.
    pub fn spare_blocks(&self) -> (u32, u32) {
        let spare: u32 = self.pools.iter().map(|pool| pool.quota.saturating_sub(pool.data)).sum();
        (spare + self.unassigned, self.unassigned)
    }

    /// Whether another owner of this kind would fit.
    pub fn has_room_for(&self, spec: &OwnerSpec) -> bool {
        let (needed, left) = self.room_for(spec.pages);
        needed <= left
    }
}

#[cfg(test)]
mod tests {
    use super::apportion;

    #[test]
    fn weights_1_3_6_get_10_30_60_percent() {
        assert_eq!(apportion(1000, &[(1, 2), (3, 2), (6, 2)]), Some(vec![100, 300, 600]));
        assert_eq!(apportion(10, &[(1, 1), (3, 1), (6, 1)]), Some(vec![1, 3, 6]));
    }

    #[test]
    fn parts_sum_up_and_nobody_is_below_its_least() {
        assert_eq!(apportion(10, &[(1, 0), (1, 0), (1, 0)]), Some(vec![4, 3, 3]));
        assert_eq!(apportion(10, &[(1, 4), (99, 4)]), Some(vec![4, 6]));
        assert_eq!(apportion(10, &[(1, 4), (1, 4), (1_000_000, 4)]), None);
        assert_eq!(apportion(12, &[(1, 4), (1, 4), (1_000_000, 4)]), Some(vec![4, 4, 4]));
        assert_eq!(apportion(5, &[]), Some(vec![]));
    }
}
