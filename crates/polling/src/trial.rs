//! Two modes, compared in pairs of stretches.

use crate::mode::Mode;
use headgate_units::Nanos;

/// A gain below this is not told from noise.
const MARGIN_SHORT: f64 = 0.05;
/// Long stretches have less noise.
const MARGIN_LONG: f64 = 0.02;
/// A challenger that does so much worse in one pair is not tried on.
const HOPELESS: f64 = -0.3;
/// Pairs of a trial, at least and at most.
const PAIRS_SHORT: (u8, u8) = (4, 8);
const PAIRS_LONG: (u8, u8) = (2, 4);
/// A mean gain counts from so many of its standard errors on.
const ERRORS: f64 = 2.0;

/// How long the stretches of a trial are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// 4 to 8 ms.
    Short,
    /// 200 to 300 ms.
    Long,
}

impl Scale {
    /// The shortest stretch. Those of a trial are up to twice (short) or one and a half times
    /// (long) as long.
    pub(crate) fn shortest(self) -> Nanos {
        match self {
            Scale::Short => Nanos::from_millis(4),
            Scale::Long => Nanos::from_millis(200),
        }
    }

    /// By how much stretches differ in length.
    pub(crate) fn spread(self) -> Nanos {
        match self {
            Scale::Short => Nanos::from_millis(4),
            Scale::Long => Nanos::from_millis(100),
        }
    }

    /// What is left out at the beginning of a stretch, while the other mode's effects end.
    pub(crate) fn settling(self) -> Nanos {
        match self {
            Scale::Short => Nanos::from_millis(1),
            Scale::Long => Nanos::from_millis(10),
        }
    }

    fn pairs(self) -> (u8, u8) {
        match self {
            Scale::Short => PAIRS_SHORT,
            Scale::Long => PAIRS_LONG,
        }
    }

    fn margin(self) -> f64 {
        match self {
            Scale::Short => MARGIN_SHORT,
            Scale::Long => MARGIN_LONG,
        }
    }
}

/// What a stretch came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests per second; more than 0.
    pub served: f64,
    /// Processor time for each of them in nanoseconds; more than 0.
    pub cpu: f64,
}

/// What is gained by going from `old` to `new`; above 0 it is worth it. See the crate's
/// documentation.
pub fn gain(old: Rate, new: Rate) -> f64 {
    libm::log(new.served / old.served) - libm::log(new.cpu / old.cpu) / 2.0
}

/// How a trial stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Open,
    Won,
    Lost,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Incumbent,
    Challenger,
}

/// A trial under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    pub incumbent: Mode,
    pub challenger: Mode,
    pub scale: Scale,
    /// Pairs that are complete.
    pairs: u8,
    losses: u8,
    /// Of the gains, and of their squares.
    sum: f64,
    squares: f64,
    /// The first half of a pair.
    first: Option<Rate>,
}

impl Trial {
    pub(crate) fn new(incumbent: Mode, challenger: Mode, scale: Scale) -> Trial {
        Trial {
            incumbent,
            challenger,
            scale,
            pairs: 0,
            losses: 0,
            sum: 0.0,
            squares: 0.0,
            first: None,
        }
    }

    /// Incumbent, challenger, challenger, incumbent, and so on.
    fn side(&self) -> Side {
        match (self.pairs.is_multiple_of(2), self.first) {
            (true, None) | (false, Some(_)) => Side::Incumbent,
            (true, Some(_)) | (false, None) => Side::Challenger,
        }
    }

    /// The mode of the stretch under way.
    pub(crate) fn mode(&self) -> Mode {
        match self.side() {
            Side::Incumbent => self.incumbent,
            Side::Challenger => self.challenger,
        }
    }

    /// A stretch has ended.
    pub(crate) fn observe(&mut self, rate: Rate) -> Verdict {
        let side = self.side();
        let Some(first) = self.first.take() else {
            self.first = Some(rate);
            return Verdict::Open;
        };
        let gain = match side {
            Side::Challenger => gain(first, rate),
            Side::Incumbent => gain(rate, first),
        };
        self.pairs += 1;
        self.sum += gain;
        self.squares += gain * gain;
        self.losses += u8::from(gain < 0.0);
        self.judge(gain)
    }

    fn judge(&self, last: f64) -> Verdict {
        let lost_both_first = self.pairs == 2 && self.losses == 2;
        if last < HOPELESS || lost_both_first {
            return Verdict::Lost;
        }
        let (fewest, most) = self.scale.pairs();
        if self.pairs < fewest {
            return Verdict::Open;
        }
        let n = f64::from(self.pairs);
        let mean = self.sum / n;
        let variance = (self.squares / n - mean * mean).max(0.0) * n / (n - 1.0);
        let error = ERRORS * libm::sqrt(variance / n);
        if mean - error > 0.0 && mean > self.scale.margin() {
            return Verdict::Won;
        }
        match self.pairs == most || mean + error < self.scale.margin() {
            true => Verdict::Lost,
            false => Verdict::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(served: f64, cpu: f64) -> Rate {
        Rate { served, cpu }
    }

    fn trial() -> Trial {
        Trial::new(Mode::Sleep, Mode::PollEvents, Scale::Short)
    }

    /// Gives each side its rates in turn, as the trial asks for them.
    fn run(mut trial: Trial, mut of: impl FnMut(Mode) -> Rate) -> (Verdict, usize) {
        for stretch in 1.. {
            let rate = of(trial.mode());
            match trial.observe(rate) {
                Verdict::Open => {}
                verdict => return (verdict, stretch),
            }
        }
        unreachable!("a trial ends")
    }

    #[test]
    fn more_served_is_worth_half_as_much_more_processor_time() {
        let old = rate(1000.0, 10_000.0);
        assert!(gain(old, rate(1100.0, 12_000.0)) > 0.0);
        assert!(gain(old, rate(1100.0, 12_200.0)) < 0.0);
        assert!(gain(old, rate(1000.0, 9_000.0)) > 0.0, "at one rate the cheaper one");
        let there = gain(old, rate(1300.0, 15_000.0));
        let back = gain(rate(1300.0, 15_000.0), old);
        assert!((there + back).abs() < 1e-12, "what is gained is lost on the way back");
    }

    #[test]
    fn sides_alternate_within_pairs() {
        let mut trial = trial();
        let modes: Vec<Mode> = (0..8)
            .map(|_| {
                let mode = trial.mode();
                trial.observe(rate(if mode == Mode::Sleep { 100.0 } else { 110.0 }, 1.0));
                mode
            })
            .collect();
        let (i, c) = (Mode::Sleep, Mode::PollEvents);
        assert_eq!(modes, [i, c, c, i, i, c, c, i]);
    }

    #[test]
    fn a_better_challenger_wins_and_one_within_the_noise_does_not() {
        let by = |more: f64| run(trial(), |m| rate(if m == Mode::Sleep { 1.0 } else { more }, 1.0));
        assert_eq!(by(1.06), (Verdict::Won, 8));
        assert_eq!(by(1.04), (Verdict::Lost, 8));
        assert_eq!(by(0.99), (Verdict::Lost, 4), "two pairs lost are enough");
        assert_eq!(by(0.5), (Verdict::Lost, 2), "and one that is lost clearly");
    }

    #[test]
    fn a_load_that_rises_favours_nobody() {
        let mut load = 1.0;
        let verdict = run(trial(), |_| {
            load *= 1.3;
            rate(load, 1.0)
        });
        assert_eq!(verdict.0, Verdict::Lost);
    }

    #[test]
    fn noise_takes_more_pairs_and_decides_nothing() {
        // By how much the challenger is better in each pair, in turn.
        let by = |gains: &[f64]| {
            let mut pair = 0;
            run(trial(), |mode| match mode {
                Mode::Sleep => rate(1.0, 1.0),
                _ => {
                    pair += 1;
                    rate(gains[(pair - 1) % gains.len()].exp(), 1.0)
                }
            })
        };
        assert_eq!(by(&[0.2, 0.3, 0.25]), (Verdict::Won, 8));
        assert_eq!(by(&[0.3, -0.1]), (Verdict::Lost, 16), "a mean of 0.1 that is not certain");
        assert_eq!(by(&[0.3, 0.3, -0.1]).0, Verdict::Won, "more pairs show it");
        assert_eq!(by(&[0.1, -0.1]).0, Verdict::Lost);
    }
}
