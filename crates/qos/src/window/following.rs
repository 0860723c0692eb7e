//! A latency threshold that follows the storage.
//!
//! What storage can do changes: disks are added, an array rebuilds, a cache fills. The threshold
//! is to stay where [`threshold`](super::threshold) puts it, at the latency at which 90 % of the
//! highest rate is reached. [`Following`] measures that while the storage is used, once a period,
//! from what hosts report anyway.
//!
//! # Trials
//! In a trial the hosts act by the threshold, by four thirds of it and by four thirds of that in
//! turn, each for thirteen periods or more. The first five are for the windows to settle, and the
//! work done in eight others counts. A round of three goes up, the next one down, so that a load
//! that grows does not look like a gain. Eight rounds say how the gains shrink, and so what part
//! of the highest rate the threshold does. A trial never goes below the threshold: nobody is held
//! back for it, and no reservation falls short. Latency is up to 1.8 times the threshold for a
//! third of it.
//!
//! # Which periods count
//! Those in which windows were full: hosts whose windows were full held half of all requests in
//! flight. What a small load gets done does not depend on the threshold. A stretch waits for
//! eight such periods, past sixteen others at most; then the round does not count, and after
//! three of those in a row the trial is given up. None begins before eight such periods in a row.
//!
//! # Steps
//! Below 87 % of the highest rate the threshold rises by a tenth, above 93 % it falls by a
//! twentieth, if both halves of the rounds say so as well; in between it stays. So it changes by
//! a tenth in [`PERIODS_OF_A_TRIAL`] periods and a rest at most. After each step it rests as
//! [configured](super::Follow); each time that it stays, twice as long, up to 16 times, unless
//! the halves disagreed. Where windows cannot be any smaller while latency is above the
//! threshold, rates say nothing, and it rises. It never goes above four times the threshold that
//! was given or calibrated, so that load of others that windows do not control cannot drive it up
//! without end; and it does not fall below one and a half times the latency of a nearly idle
//! datastore, where that was seen within a day.
//!
//! # Who decides
//! Of all living hosts whose threshold follows, the first makes the trials; the others take its
//! threshold from the board. Who starts, or could not read the board, begins with what the others
//! have. While a host has a threshold that is set by hand, nobody tries anything: all act by the
//! smallest.

use super::board::{BoardView, Fill, Load, Peer, Rank};
use super::config::Follow;
use super::controller::Update;
use super::curve::{Estimate, LEVELS, ROUNDS, Rounds, levels};
use super::slots::ratio;
use headgate_units::Nanos;

/// Periods after a change of the threshold that do not count: two for other hosts to read it, three
/// for the windows.
const SETTLE: u8 = 5;

/// Periods of a stretch that count: those with full windows.
const MEASURE: u8 = 8;

/// So many others are passed over.
const PASSED: u8 = 16;

/// A trial without a hitch takes so many periods.
pub const PERIODS_OF_A_TRIAL: u32 =
    (SETTLE as u32 + MEASURE as u32) * LEVELS as u32 * ROUNDS as u32;

/// So many rounds in a row of a load that is too small end a trial.
const VOID: u8 = 3;

/// Below this the threshold rises, above that it falls; and what both halves of the rounds have to
/// say as well. In millionths of the highest rate.
const LOW: u64 = 870_000;
const HIGH: u64 = 930_000;
const SOUGHT: u64 = 900_000;

/// How often a rest is doubled while nothing changes.
const DOUBLINGS: u8 = 4;

/// How far above the threshold that was given it may go.
const CEILING: u64 = 4;

/// The latency of a nearly idle datastore counts for so many periods: a day of 4 s.
const REMEMBERED: u32 = 21_600;

/// What counts as nearly idle: requests in flight, in millionths, and IOs in a period.
const IDLE: (u64, u64) = (2_000_000, 16);

/// No threshold is outside of these: see [`Config::threshold`](super::Config::threshold).
const BOUNDS: (Nanos, Nanos) = (Nanos::from_micros(10), Nanos::from_secs(10));

/// Why a threshold is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A trial: so many millionths of the highest rate were done at the old one.
    Rate(u32),
    /// Windows could not be any smaller, and latency was above it.
    Pressed,
    /// The host that makes the trials has it.
    Adopted,
}

/// A threshold that became another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// What it was.
    pub from: Nanos,
    /// What it is.
    pub to: Nanos,
    /// Why.
    pub reason: Reason,
}

/// What a threshold that follows is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// The board has not been read yet, or cannot be: it stays as it is.
    Joining,
    /// Another host makes the trials.
    Adopting,
    /// Another host has a threshold that is set by hand: it stays as it is.
    Hindered,
    /// Until the next trial.
    Resting,
    /// In a trial; so many rounds are done.
    Trying(u8),
}

/// A latency threshold that follows the storage.
#[derive(Clone, Debug)]
pub struct Following {
    rest: u16,
    ceiling: Nanos,
    base: Nanos,
    activity: Activity,
    stage: Stage,
    trial: Trial,
    /// How often the rest is to be doubled.
    doublings: u8,
    /// The latency of a nearly idle datastore, and how many periods ago that was seen.
    idle: Option<(Nanos, u32)>,
    changes: u64,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// So many periods more.
    Rest(u32),
    /// It has rested, and waits for full windows: so many periods in a row had them.
    Ready(u8),
    Trial,
}

#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    rounds: Rounds,
    /// Rounds that ended, good or not.
    ended: u8,
    /// Bad ones in a row.
    void: u8,
    /// The stretch of this round.
    stretch: u8,
    /// Its periods so far, those that count aside.
    periods: u8,
    tally: Tally,
    /// The stretches of this round that ended.
    rates: [Option<Tally>; LEVELS],
    /// Good stretches at the highest level in which windows could be no smaller.
    pressed: u8,
    /// The same at the base.
    pressed_at_base: u8,
}

/// The periods that count.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    work: u64,
    full: u8,
    pressed: u8,
}

/// What a period of a trial led to.
enum Progress {
    Goes(Trial),
    Tells(Trial),
    Void,
}

impl Tally {
    fn count(&mut self, load: &Load) {
        // A rate is below 2^61: see the bounds of reports.
        self.work = self.work.saturating_add(load.work);
        self.full += 1;
        self.pressed += u8::from(load.fill == Fill::Pressed);
    }

    fn rate(&self) -> u64 {
        self.work / u64::from(self.full.max(1))
    }

    fn is_pressed(&self) -> bool {
        2 * self.pressed > self.full
    }
}

impl Trial {
    /// Which latency the present stretch tries.
    fn level(&self) -> usize {
        let stretch = usize::from(self.stretch);
        if self.ended.is_multiple_of(2) { stretch } else { LEVELS - 1 - stretch }
    }

    fn period(mut self, load: &Load) -> Progress {
        if self.periods < SETTLE || load.fill == Fill::Spare {
            self.periods += 1;
        } else {
            self.tally.count(load);
        }
        let is_measured = self.tally.full >= MEASURE;
        if !is_measured && self.periods <= SETTLE + PASSED {
            return Progress::Goes(self);
        }
        let tally = core::mem::take(&mut self.tally);
        self.rates[self.level()] = is_measured.then_some(tally);
        (self.stretch, self.periods) = (self.stretch + 1, 0);
        if usize::from(self.stretch) < LEVELS {
            return Progress::Goes(self);
        }
        self.end_round()
    }

    fn end_round(mut self) -> Progress {
        match self.rates {
            [Some(base), Some(up), Some(top)] => {
                self.rounds.push([base.rate(), up.rate(), top.rate()]);
                self.void = 0;
                self.pressed += u8::from(top.is_pressed());
                self.pressed_at_base += u8::from(base.is_pressed());
            }
            _ => self.void += 1,
        }
        (self.rates, self.stretch, self.ended) = ([None; LEVELS], 0, self.ended + 1);
        match () {
            () if self.rounds.is_full() => Progress::Tells(self),
            () if self.void >= VOID || usize::from(self.ended) >= 2 * ROUNDS => Progress::Void,
            () => Progress::Goes(self),
        }
    }
}

impl Following {
    /// A threshold that begins at `base`; `given` is what was configured or calibrated.
    pub fn new(given: Nanos, base: Nanos, rest: u16) -> Following {
        let ceiling = Nanos(given.0.saturating_mul(CEILING)).clamp(BOUNDS.0, BOUNDS.1);
        Following {
            rest,
            ceiling,
            base: base.clamp(BOUNDS.0, ceiling),
            activity: Activity::Joining,
            stage: Stage::Rest(rest.into()),
            trial: Trial::default(),
            doublings: 0,
            idle: None,
            changes: 0,
        }
    }

    /// What a configuration asks for; `None` where the threshold does not follow.
    pub(super) fn of(follow: Follow, given: Nanos, base: Nanos) -> Option<Following> {
        match follow {
            Follow::Never => None,
            Follow::Trials { rest } => Some(Following::new(given, base, rest)),
        }
    }

    /// The threshold, without what a trial adds.
    pub fn base(&self) -> Nanos {
        self.base
    }

    /// What it is about.
    pub fn activity(&self) -> Activity {
        self.activity
    }

    /// How often it became another.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The threshold to act by now.
    pub fn threshold(&self) -> Nanos {
        match (self.activity, self.stage) {
            (Activity::Trying(_), Stage::Trial) => {
                levels(self.base)[self.trial.level()].min(BOUNDS.1)
            }
            _ => self.base,
        }
    }

    /// A period ended so; `board` is what it ended with. O(hosts).
    pub fn period(&mut self, update: &Update, board: BoardView<'_>) -> Option<Change> {
        self.see_idle(update);
        let peers = match board {
            BoardView::Alone => &[][..],
            BoardView::Shared(peers) => peers,
            BoardView::Unreachable => {
                self.stand(Activity::Joining);
                return None;
            }
        };
        let fresh = || peers.iter().filter(|peer| peer.is_fresh(update.report.period));
        let following = |peer: &&Peer| peer.report.follows.is_some();
        if let Some(first) = fresh().find(following)
            && (self.activity == Activity::Joining || first.rank == Rank::Before)
        {
            self.stand(Activity::Adopting);
            return self.become_that(first.report.follows.unwrap_or(self.base), Reason::Adopted);
        }
        if fresh().any(|peer| peer.report.follows.is_none()) {
            self.stand(Activity::Hindered);
            return None;
        }
        self.lead(&update.load)
    }

    /// Goes by the first host's present threshold; see [`Following::threshold`].
    pub(super) fn adopted(&self, board: BoardView<'_>, period: Nanos) -> Option<Nanos> {
        let BoardView::Shared(peers) = board else { return None };
        let is_first = |peer: &&Peer| peer.report.follows.is_some() && peer.is_fresh(period);
        let first = peers.iter().find(is_first)?;
        let most = levels(self.ceiling)[LEVELS - 1].min(BOUNDS.1);
        (self.activity == Activity::Adopting).then(|| first.report.threshold.clamp(BOUNDS.0, most))
    }

    fn stand(&mut self, activity: Activity) {
        (self.activity, self.stage) = (activity, Stage::Rest(self.rest.into()));
    }

    fn lead(&mut self, load: &Load) -> Option<Change> {
        match self.stage {
            Stage::Rest(left) if left > 1 => {
                (self.activity, self.stage) = (Activity::Resting, Stage::Rest(left - 1));
                None
            }
            Stage::Rest(_) => {
                (self.activity, self.stage) = (Activity::Resting, Stage::Ready(0));
                None
            }
            Stage::Ready(full) if full < MEASURE => {
                let full = if load.fill == Fill::Spare { 0 } else { full + 1 };
                self.stage = Stage::Ready(full);
                None
            }
            Stage::Ready(_) => {
                self.trial = Trial::default();
                (self.activity, self.stage) = (Activity::Trying(0), Stage::Trial);
                None
            }
            Stage::Trial => match self.trial.period(load) {
                Progress::Goes(trial) => {
                    (self.activity, self.trial) = (Activity::Trying(trial.ended), trial);
                    None
                }
                Progress::Void => {
                    self.stand(Activity::Resting);
                    None
                }
                Progress::Tells(trial) => self.conclude(&trial),
            },
        }
    }

    fn conclude(&mut self, trial: &Trial) -> Option<Change> {
        let Estimate { all, halves } = trial.rounds.estimate();
        let most = |count: u8| 2 * usize::from(count) > ROUNDS;
        let raised = Nanos(ratio(self.base.0, 11, 10)).min(self.ceiling);
        let lowered = Nanos(ratio(self.base.0, 19, 20)).max(self.floor()).min(self.base);
        let by_rate = Reason::Rate(u32::try_from(all).unwrap_or(u32::MAX));
        let (to, reason) = match () {
            () if most(trial.pressed) => (raised, Reason::Pressed),
            () if all < LOW && halves.iter().all(|half| *half < SOUGHT) => (raised, by_rate),
            () if most(trial.pressed_at_base) => (self.base, by_rate),
            () if all > HIGH && halves.iter().all(|half| *half > SOUGHT) => (lowered, by_rate),
            () => (self.base, by_rate),
        };
        let change = self.become_that(to, reason);
        // Halves that disagree are noise, and no sign that all is well.
        let agree = halves.iter().all(|h| *h < SOUGHT) || halves.iter().all(|h| *h > SOUGHT);
        self.doublings = match change {
            None if agree || (LOW..=HIGH).contains(&all) => (self.doublings + 1).min(DOUBLINGS),
            None | Some(_) => 0,
        };
        self.stand(Activity::Resting);
        self.stage = Stage::Rest(u32::from(self.rest) << self.doublings);
        change
    }

    fn become_that(&mut self, to: Nanos, reason: Reason) -> Option<Change> {
        let (from, to) = (self.base, to.clamp(BOUNDS.0, self.ceiling));
        self.base = to;
        (from != to).then(|| {
            self.changes += 1;
            Change { from, to, reason }
        })
    }

    fn see_idle(&mut self, update: &Update) {
        let load = &update.load;
        let is_idle = load.in_use.as_millionths() <= IDLE.0 && load.ios >= IDLE.1;
        self.idle = match (update.latency.filter(|_| is_idle), self.idle) {
            (Some(now), Some((before, _))) => Some((Nanos(before.0 - before.0 / 4 + now.0 / 4), 0)),
            (Some(now), None) => Some((now, 0)),
            (None, Some((before, age))) if age < REMEMBERED => Some((before, age + 1)),
            (None, _) => None,
        };
    }

    /// Below this it is not lowered.
    fn floor(&self) -> Nanos {
        self.idle.map_or(BOUNDS.0, |(idle, _)| Nanos(idle.0.saturating_add(idle.0 / 2)))
    }
}

#[cfg(test)]
mod tests;
