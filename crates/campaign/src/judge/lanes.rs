//! Limits of reads and of writes, and what each direction is due by them.

use super::{ALWAYS, Measure, Sample, Span};
use crate::oracle::{Due, divide};
use crate::setup::Most;
use headgate_units::Shares;

impl Span<'_> {
    /// How a disk divides what it is due between reads and writes, if a limit counts for so many
    /// seconds of the span.
    pub(super) fn by_lane(&self, disk: usize, due: &Due, open: f64) -> [f64; 2] {
        let (policy, _) = self.phase.disks[disk];
        let asking = self.asking[disk];
        let reservation = policy.reservation().map_or(0.0, |rate| rate.get() as f64);
        let Most { both, each } = self.most(disk, &policy, open);
        let amount = match self.always_asked(disk, &policy, self.seconds) {
            Some(_) => due.amounts[disk],
            None => {
                let level = Shares::get(policy.shares()) as f64 * due.level;
                level.max(reservation * self.seconds).min(both)
            }
        };
        let turns = divide(amount.min(each[0] + each[1]), each);
        let part = |part: f64, amount: f64| if part > 0.0 { part * amount } else { 0.0 };
        [0, 1].map(|lane| part(asking[lane], each[lane].min(amount)) + part(asking[2], turns[lane]))
    }

    /// How a disk with limits of its reads or of its writes divides what it has: `of` holds what is
    /// due if limits are made good for after stalls, and if they are not. Each is due no more than
    /// the least of what else may be right.
    pub(super) fn directions(
        &self,
        disk: usize,
        of: [&Due; 2],
        least: [f64; 2],
        found: &mut dyn FnMut(Sample),
    ) {
        let (policy, _) = self.phase.disks[disk];
        if !policy.limits_directions() {
            return;
        }
        let Span { seconds, from, .. } = *self;
        let (asking, got, grain) = (self.asking[disk], self.lanes[disk], self.grains[disk]);
        let limits = self.most(disk, &policy, seconds).each;
        // Nobody is held back by shares, so nothing says what a disk would have of them that asked
        // for less.
        let asked = self.always_asked(disk, &policy, seconds);
        if asked.is_none() && of.iter().any(|due| due.level.is_infinite()) {
            return;
        }
        let open = (seconds - self.stalled - self.blocked).max(0.0);
        let [high, low] =
            [(of[0], seconds), (of[1], open)].map(|of| self.by_lane(disk, of.0, of.1));
        let binds = |lane: usize| high[lane] >= limits[lane] * 0.999_99;
        for lane in (0..2).filter(|&lane| asking[lane] + asking[2] >= ALWAYS && binds(lane)) {
            let (got, due) = (got[lane], low[lane].min(high[lane]).min(least[lane]));
            let error = (due - got - grain).max(0.0) / due.max(f64::MIN_POSITIVE);
            found(Sample { measure: Measure::Limited5, disk, from, got, due, error });
        }
        // A limit that is near binds now and then where service varies.
        let due = self.got[disk] / 2.0;
        if asking[2] >= ALWAYS && due * 1.25 <= limits[0].min(limits[1]) {
            let error = ((got[0] - due).abs() - grain).max(0.0) / due.max(f64::MIN_POSITIVE);
            found(Sample { measure: Measure::Turns5, disk, from, got: got[0], due, error });
        }
    }
}
