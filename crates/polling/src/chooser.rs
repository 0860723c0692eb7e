//! The chooser: which mode is in force now.

use crate::agenda::Agenda;
use crate::mode::{Mode, Totals};
use crate::trial::{Rate, Scale, Trial, Verdict};
use headgate_units::Nanos;

/// A stretch with fewer requests says nothing.
pub const FEWEST: u64 = 32;
/// A stretch that has not had [`FEWEST`] requests by now is an idle one: the rate is below 800 per
/// second.
pub const IDLE_AFTER: Nanos = Nanos::from_millis(40);
/// Whether an idle shard is busy again is looked at so often, at most.
const GLANCE: Nanos = Nanos::from_millis(1);
/// The incumbent's own rate is looked at so often.
const REST: Nanos = Nanos::from_millis(20);
/// A rate that has changed by more than e to the power of this is another load.
const CHANGED: f64 = 0.4;
/// So many looks in a row show that it has.
const CHANGED_FOR: u8 = 3;

/// Who decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// What is measured.
    #[default]
    Measured,
    /// This mode, always.
    Fixed(Mode),
}

/// What the chooser is doing, for those who look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Too little happens to choose.
    Idle,
    /// The incumbent is in force.
    Settled,
    /// A challenger is being tried, on this scale.
    Trial(Scale),
    /// Nothing is chosen.
    Fixed,
}

/// The stretch under way.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// Where it begins to count; nothing does before.
    from: Option<Totals>,
    length: Nanos,
}

/// Chooses how a shard waits.
///
/// ```
/// use headgate_polling::{Chooser, Mode, Rule, Totals};
/// use headgate_units::Nanos;
///
/// let mut chooser = Chooser::new(Rule::Measured, 1);
/// let mut totals = Totals::default();
/// // Waking costs this client 40 us of its 60: polling serves three times as much.
/// while totals.now < Nanos::from_secs(2) {
///     let (round, cpu) = match chooser.mode() {
///         Mode::Sleep => (60, 15),
///         _ => (20, 20),
///     };
///     totals.now += Nanos::from_micros(round);
///     totals.cpu += Nanos::from_micros(cpu);
///     totals.served += 1;
///     if chooser.is_due(totals.now) {
///         chooser.look(totals);
///     }
/// }
/// assert_ne!(chooser.incumbent(), Mode::Sleep);
/// ```
#[derive(Debug)]
pub struct Chooser {
    rule: Rule,
    incumbent: Mode,
    trial: Option<Trial>,
    is_idle: bool,
    stretch: Stretch,
    /// When [`Chooser::look`] is due.
    alarm: Nanos,
    agenda: Agenda,
    /// The rate that the incumbent had at first.
    reference: Option<f64>,
    changed: u8,
    trials: u64,
    changes: u64,
    noise: u64,
}

impl Chooser {
    /// One that begins asleep. Shards with different seeds try at different times.
    pub fn new(rule: Rule, seed: u64) -> Chooser {
        Chooser {
            rule,
            incumbent: Mode::Sleep,
            trial: None,
            is_idle: true,
            stretch: Stretch { from: None, length: Nanos::ZERO },
            alarm: Nanos::ZERO,
            agenda: Agenda::new(),
            reference: None,
            changed: 0,
            trials: 0,
            changes: 0,
            noise: seed,
        }
    }

    /// The mode in force.
    #[inline]
    pub fn mode(&self) -> Mode {
        match (self.rule, &self.trial) {
            (Rule::Fixed(mode), _) => mode,
            (Rule::Measured, _) if self.is_idle => Mode::Sleep,
            (Rule::Measured, Some(trial)) => trial.mode(),
            (Rule::Measured, None) => self.incumbent,
        }
    }

    /// The mode that has won so far. It is in force but for trials and idleness.
    pub fn incumbent(&self) -> Mode {
        match self.rule {
            Rule::Fixed(mode) => mode,
            Rule::Measured => self.incumbent,
        }
    }

    /// What it is doing.
    pub fn state(&self) -> State {
        match (self.rule, self.trial) {
            (Rule::Fixed(_), _) => State::Fixed,
            (Rule::Measured, _) if self.is_idle => State::Idle,
            (Rule::Measured, Some(trial)) => State::Trial(trial.scale),
            (Rule::Measured, None) => State::Settled,
        }
    }

    /// Trials that ended, and changes of the incumbent.
    pub fn counts(&self) -> (u64, u64) {
        (self.trials, self.changes)
    }

    /// Whether [`Chooser::look`] has something to do. To be asked once in every turn.
    #[inline]
    pub fn is_due(&self, now: Nanos) -> bool {
        now >= self.alarm
    }

    /// Looks at what the shard has come to, and decides how it goes on. Readings grow.
    pub fn look(&mut self, totals: Totals) {
        if let Rule::Fixed(_) = self.rule {
            // Who publishes what is counted does so when it is looked at.
            self.alarm = totals.now + REST;
            return;
        }
        let Some(from) = self.stretch.from else {
            self.stretch.from = Some(totals);
            self.alarm = totals.now + self.stretch.length;
            return;
        };
        let served = totals.served - from.served;
        let loaded = totals.loaded() - from.loaded();
        if served < FEWEST {
            if loaded >= IDLE_AFTER {
                self.is_idle = true;
                return self.begin(totals);
            }
            self.alarm = totals.now + GLANCE;
            return;
        }
        if self.is_idle {
            self.is_idle = false;
            return self.begin(totals);
        }
        if loaded < self.stretch.length {
            self.alarm = totals.now + (self.stretch.length - loaded);
            return;
        }
        let rate = Rate {
            served: served as f64 / loaded.as_secs_f64().max(1e-9),
            cpu: (totals.cpu - from.cpu).0.max(1) as f64 / served as f64,
        };
        self.observe(totals.loaded(), rate);
        self.begin(totals);
    }

    /// A stretch under a load has ended.
    fn observe(&mut self, now: Nanos, rate: Rate) {
        let Some(trial) = &mut self.trial else {
            self.watch(now, rate.served);
            return self.plan(now);
        };
        match trial.observe(rate) {
            Verdict::Open => return,
            Verdict::Won => self.won(now),
            Verdict::Lost => self.lost(now),
        }
        self.trials += 1;
        self.trial = None;
        self.plan(now);
    }

    fn won(&mut self, now: Nanos) {
        let Some(trial) = self.trial else { return };
        if trial.scale == Scale::Long {
            self.agenda.refuted(now);
        }
        self.agenda.won(now, trial.incumbent, trial.challenger);
        self.incumbent = trial.challenger;
        self.changes += 1;
        self.reference = None;
    }

    fn lost(&mut self, now: Nanos) {
        let Some(trial) = self.trial else { return };
        match trial.scale {
            Scale::Short => self.agenda.lost(now, trial.challenger),
            Scale::Long => self.agenda.confirmed(now),
        }
    }

    /// Looks for a load that is another one.
    fn watch(&mut self, now: Nanos, served: f64) {
        let Some(reference) = self.reference else {
            self.reference = Some(served);
            return;
        };
        if libm::log(served / reference).abs() < CHANGED {
            self.changed = 0;
            return;
        }
        self.changed += 1;
        if self.changed >= CHANGED_FOR {
            (self.changed, self.reference) = (0, Some(served));
            self.agenda.recall(now);
        }
    }

    /// Begins the trial whose time has come.
    fn plan(&mut self, now: Nanos) {
        self.trial = if self.incumbent != Mode::Sleep && self.agenda.is_confirmation_due(now) {
            Some(Trial::new(self.incumbent, Mode::Sleep, Scale::Long))
        } else {
            let challenger = self.agenda.challenger(now, self.incumbent);
            challenger.map(|mode| Trial::new(self.incumbent, mode, Scale::Short))
        };
    }

    /// Begins the next stretch.
    fn begin(&mut self, totals: Totals) {
        let Some(trial) = self.trial.filter(|_| !self.is_idle) else {
            self.stretch = Stretch { from: Some(totals), length: REST };
            self.alarm = totals.now + if self.is_idle { GLANCE } else { REST };
            return;
        };
        let spread = self.next_noise() % trial.scale.spread().0;
        self.stretch = Stretch { from: None, length: trial.scale.shortest() + Nanos(spread) };
        self.alarm = totals.now + trial.scale.settling();
    }

    /// Steele, Lea and Flood's SplitMix64.
    fn next_noise(&mut self) -> u64 {
        self.noise = self.noise.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.noise;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
