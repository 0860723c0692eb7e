use super::slots::{Fraction, Slots};
use core::num::NonZeroU32;
use headgate_units::Nanos;
use thiserror::Error;

/// How a window is controlled. All hosts of a datastore should have the same
/// [`period`](Config::period), [`step`](Config::step) and [`gain`](Config::gain).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The latency threshold 𝓛: what the mean latency of a reference IO shall be under load, 10 us
    /// to 10 s. Hosts that differ act by the smallest. Default: 30 ms. See
    /// [`threshold`](super::threshold) for how to find it.
    pub threshold: Nanos,
    /// How often [`update`](super::Controller::update) is called, 10 ms to 60 s. Default: 4 s; a
    /// fraction of a second suits storage that answers in microseconds. A period should see a
    /// hundred IOs.
    pub period: Nanos,
    /// γ: what part of the way to its new value the window goes in one period, above 0. Default: 80
    /// %.
    pub step: Fraction,
    /// α: what of earlier latencies remains. Default: [`Smoothing::PUBLISHED`].
    pub smoothing: Smoothing,
    /// How shares become β. Default: an excess of 20 %.
    pub gain: Gain,
    /// What of the storage is divided by shares under [`Gain::Excess`]. Default:
    /// [`Division::Service`].
    pub division: Division,
    /// Which window a latency is held against. Default: [`Feedback::Matched`].
    pub feedback: Feedback,
    /// Below this no window goes, one hundredth of a slot to [`Config::max`]. Default: 4.
    pub min: Slots,
    /// How the lower bound is divided among hosts. Default: [`LowerBound::ByShares`].
    pub lower_bound: LowerBound,
    /// Above this no window goes, unless reservations need it; at most [`Slots::WINDOW_MAX`]. It
    /// bounds the shock when an idle host comes back. Default: 64.
    pub max: Slots,
    /// The window until the first period has ended, held to the bounds. Default: 32.
    pub initial: Slots,
    /// When to say that throttling does not help.
    pub alarm: Alarm,
    /// Whether the threshold above is only where it begins. [`Periods`](super::Periods) sees to it.
    /// Default: [`Follow::Never`].
    pub follow: Follow,
}

/// Whether the threshold follows the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// It stays as it is.
    Never,
    /// By [trials](super::Following).
    Trials {
        /// Periods from one trial to the next at least, 1 to 65,535.
        rest: u16,
    },
}

impl Follow {
    /// Trials with rests of 225 periods: with the usual period, 15 minutes to 4 hours.
    pub const DEFAULT: Follow = Follow::Trials { rest: 225 };
}

/// Equation 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Smoothing {
    /// Once a period: `L ← (1 - past) · mean of the period + past · L`.
    PerPeriod {
        /// α as printed, the weight of what was.
        past: Fraction,
    },
    /// With every IO: `L ← (1 - new) · L + new · its latency`; the other reading of α. A horizon of
    /// `1/new` IOs, which on slow storage is many periods: the loop then rings.
    PerIo {
        /// The weight of one IO, above 0.
        new: Fraction,
    },
}

impl Smoothing {
    /// α = 0.002 once a period, equation 1 to the letter.
    pub const PUBLISHED: Smoothing = Smoothing::PerPeriod { past: Fraction::percent(1).fifth() };
    /// α = 0.002 for every IO.
    pub const PER_IO: Smoothing = Smoothing::PerIo { new: Fraction::percent(1).fifth() };
}

/// How the active shares of a host become β, in slots per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    /// As published: β is the shares divided by this number (K is its inverse), at least one share.
    /// The latency settles at 𝓛 + Σβ/X, so the number has to suit the storage's throughput X and
    /// the number of VMs.
    SharesPerSlot(NonZeroU32),
    /// β is this part of all slots in use, times the host's part of all shares; 1 to 50 %. The
    /// latency settles at 𝓛 whatever shares and storage are, and a change of shares has gone `1 -
    /// 1/e` of its way after `1/(γ·part)` periods.
    Excess(Fraction),
}

/// What hosts get in proportion to their shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// Slots in the storage's queue, as in the paper. What is done with a slot is as the storage
    /// likes: more where requests lie near each other or near those of others, or are written to a
    /// cache.
    Slots,
    /// Work that is done, as the datastore's cost model counts it: slots by shares times what a
    /// host's slots took for their work in the last periods. They count as taking at most
    /// [`Division::LEASH`] times what the others' take, so that a host whose slots do little for a
    /// reason of its own does not fill the storage's queue.
    Service,
}

impl Division {
    /// How much more than others' the slots of a host may count: see [`Division::Service`].
    pub const LEASH: u32 = 3;
}

/// Which window the factor 𝓛/L multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// The present one, as published. Swings when latencies are old (`γ` near 1, two periods of
    /// delay).
    Present,
    /// The one that was in force when the latency was measured: stable for every γ and every delay.
    Matched,
}

/// How [`Config::min`] is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LowerBound {
    /// For every host alike. Under foreign load all hosts end there, and shares no longer count.
    Alike,
    /// For the mean of the active hosts; each has its part by shares, one slot at least (or `min`
    /// if that is less). Shares then count under foreign load too. A host that is idle keeps `min`,
    /// to come back with.
    ByShares,
}

/// When high latency in spite of small windows is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The latency is high above `𝓛 · (1 + margin)`. Default: 25 %.
    pub margin: Fraction,
    /// For so many periods in a row, 1 to 255. Default: 5.
    pub patience: u8,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            threshold: Nanos::from_millis(30),
            period: Nanos::from_secs(4),
            step: Fraction::percent(80),
            smoothing: Smoothing::PUBLISHED,
            gain: Gain::Excess(Fraction::percent(20)),
            division: Division::Service,
            feedback: Feedback::Matched,
            min: Slots::whole(4),
            lower_bound: LowerBound::ByShares,
            max: Slots::whole(64),
            initial: Slots::whole(32),
            alarm: Alarm::DEFAULT,
            follow: Follow::Never,
        }
    }
}

/// A configuration out of range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// No part of a whole.
    #[error("a fraction must be 0 to 1000000 millionths, not {0}")]
    Fraction(u32),
    /// The latency threshold.
    #[error("the latency threshold must be 10 us to 10 s, not {0}")]
    Threshold(Nanos),
    /// The period.
    #[error("the period of a window must be 10 ms to 60 s, not {0}")]
    Period(Nanos),
    /// γ.
    #[error("the step of a window (gamma) must be above 0")]
    Step,
    /// α.
    #[error("the weight of one IO in the mean latency must be above 0")]
    Smoothing,
    /// The excess.
    #[error("the gain of a window must be an excess of 1 to 50 per cent, not {} millionths", .0.as_millionths())]
    Excess(Fraction),
    /// The bounds.
    #[error("a window's bounds must be 0.01 <= min <= max <= 65536, not {min} and {max}")]
    Bounds {
        /// The lower one.
        min: Slots,
        /// The upper one.
        max: Slots,
    },
    /// The patience of the alarm.
    #[error("unmanaged load is reported after 1 to 255 periods, not 0")]
    Patience,
    /// The rest between trials.
    #[error("a threshold that follows rests 1 to 65535 periods between trials, not 0")]
    Rest,
}

impl Config {
    /// The constants of the paper's experiments (section 5): γ = 0.8, α = 0.002, a period of 2 s,
    /// windows of 1 to 64, and a slot per `shares_per_slot` shares.
    pub fn published(threshold: Nanos, shares_per_slot: NonZeroU32) -> Config {
        Config {
            threshold,
            period: Nanos::from_secs(2),
            gain: Gain::SharesPerSlot(shares_per_slot),
            division: Division::Slots,
            feedback: Feedback::Present,
            min: Slots::ONE,
            lower_bound: LowerBound::Alike,
            ..Config::default()
        }
    }

    /// Checks every range.
    ///
    /// # Errors
    /// The first value out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.threshold < Nanos::from_micros(10) || self.threshold > Nanos::from_secs(10) {
            return Err(ConfigError::Threshold(self.threshold));
        }
        if self.period < Nanos::from_millis(10) || self.period > Nanos::from_secs(60) {
            return Err(ConfigError::Period(self.period));
        }
        if self.step == Fraction::ZERO {
            return Err(ConfigError::Step);
        }
        if self.smoothing == (Smoothing::PerIo { new: Fraction::ZERO }) {
            return Err(ConfigError::Smoothing);
        }
        if let Gain::Excess(part) = self.gain
            && !(Fraction::percent(1)..=Fraction::percent(50)).contains(&part)
        {
            return Err(ConfigError::Excess(part));
        }
        let (min, max) = (self.min, self.max);
        if min < Slots::from_millionths(10_000) || min > max || max > Slots::WINDOW_MAX {
            return Err(ConfigError::Bounds { min, max });
        }
        if self.alarm.patience == 0 {
            return Err(ConfigError::Patience);
        }
        if self.follow == (Follow::Trials { rest: 0 }) {
            return Err(ConfigError::Rest);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_values_out_of_range_are_named() {
        let good = Config::default();
        assert_eq!(good.validate(), Ok(()));
        assert_eq!(
            Config::published(Nanos::from_millis(25), NonZeroU32::new(5).unwrap()).validate(),
            Ok(())
        );
        let wrong = [
            (
                Config { threshold: Nanos::from_micros(9), ..good },
                "the latency threshold must be 10 us to 10 s, not 9.00 us",
            ),
            (
                Config { period: Nanos::from_secs(61), ..good },
                "the period of a window must be 10 ms to 60 s, not 61.00 s",
            ),
            (
                Config { step: Fraction::ZERO, ..good },
                "the step of a window (gamma) must be above 0",
            ),
            (
                Config { gain: Gain::Excess(Fraction::percent(51)), ..good },
                "the gain of a window must be an excess of 1 to 50 per cent, not 510000 millionths",
            ),
            (
                Config { min: Slots::whole(65), ..good },
                "a window's bounds must be 0.01 <= min <= max <= 65536, not 65.00 and 64.00",
            ),
            (
                Config { alarm: Alarm { patience: 0, ..good.alarm }, ..good },
                "unmanaged load is reported after 1 to 255 periods, not 0",
            ),
            (
                Config { follow: Follow::Trials { rest: 0 }, ..good },
                "a threshold that follows rests 1 to 65535 periods between trials, not 0",
            ),
        ];
        for (config, message) in wrong {
            assert_eq!(config.validate().unwrap_err().to_string(), message);
        }
        let smoothing = Smoothing::PerIo { new: Fraction::ZERO };
        assert_eq!(Config { smoothing, ..good }.validate(), Err(ConfigError::Smoothing));
    }
}
