//! The control of hosts' windows.

use super::names::some_time;
use crate::scenario::{Control, IssueWindow, Knowledge};
use crate::values::{At, Fault, Share, SharesPerSlot, Time, WindowSize};
use headgate_qos::window::{Config, Division, Follow, Gain, Smoothing};
use headgate_units::Nanos;
use serde::Deserialize;
use std::num::NonZeroU32;
use std::ops::Range;

/// The number of requests that each host may have outstanding at a datastore.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct IssueWindowFile {
    /// The control law; product by default.
    law: Option<LawFile>,
    /// The latency threshold, 10us to 10s; 30ms by default.
    threshold: Option<At<Time>>,
    /// Whether the threshold follows the storage; never by default.
    follow: Option<FollowFile>,
    /// follow = 'trials': the periods from one trial to the next at least; 225 by default.
    trial_rest: Option<At<u16>>,
    /// The time between two changes of a window, 10ms to 60s; 4s by default, 2s with law =
    /// 'published'.
    period: Option<At<Time>>,
    /// Gamma: the part of the way to its new value that a window goes in one period, above 0%; 80%
    /// by default.
    step: Option<At<Share>>,
    /// law = 'published': the number of shares for one slot per period; 1000 by default.
    shares_per_slot: Option<SharesPerSlot>,
    /// law = 'product' or 'slots': the part of all slots in use that is divided by shares, 1% to
    /// 50%; 20% by default.
    excess: Option<At<Share>>,
    /// The requests that the mean latency covers; per-period by default.
    smoothing: Option<SmoothingFile>,
    /// The least window; 4 by default, 1 with law = 'published'.
    min: Option<At<WindowSize>>,
    /// The largest window; 64 by default.
    max: Option<At<WindowSize>>,
    /// The window at the beginning; 32 by default.
    initial: Option<WindowSize>,
    /// The latency that hosts react to; cluster by default.
    latency: Option<Knowledge>,
    /// The time from a host's report until other hosts can read it, besides the period in which
    /// they read; none by default.
    report_delay: Option<At<Time>>,
}

/// How a window follows latency.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum LawFile {
    /// The daemon's law: hosts get work by their shares.
    Product,
    /// The daemon's law but for what is divided: hosts get slots by their shares, as published.
    Slots,
    /// The law as printed in the PARDA paper.
    Published,
    /// No control: the window is the queue-depth, and the other keys of this table do not count.
    Fixed,
}

/// Whether the threshold follows the storage.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum FollowFile {
    /// It stays as it is.
    Never,
    /// It begins as it is, and is moved by trials.
    Trials,
}

/// The requests that the mean latency covers.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum SmoothingFile {
    /// The IOs of a period, with 0.2% of the mean before.
    PerPeriod,
    /// Some 500 IOs.
    PerIo,
}

impl IssueWindowFile {
    pub(super) fn window(&self) -> Result<IssueWindow, Fault> {
        let config = match self.law {
            Some(LawFile::Fixed) => return Ok(IssueWindow::Fixed),
            Some(LawFile::Published) => {
                let shares = self.shares_per_slot.map_or(1_000, |shares| shares.0);
                let shares = NonZeroU32::new(shares).unwrap_or(NonZeroU32::MIN);
                Config::published(Config::default().threshold, shares)
            }
            Some(LawFile::Slots) => Config { division: Division::Slots, ..Config::default() },
            Some(LawFile::Product) | None => Config::default(),
        };
        let config = self.config(config)?;
        let delay = match &self.report_delay {
            Some(key) => {
                let short = key.0 <= Nanos::from_secs(3_600);
                key.check(short, "a report takes an hour at most; write such a time")?;
                key.0
            }
            None => Nanos::ZERO,
        };
        let knowledge = self.latency.unwrap_or(Knowledge::Cluster);
        Ok(IssueWindow::Controlled(Control { config, knowledge, delay }))
    }

    /// Each key is checked by itself, so that an error points at it.
    fn config(&self, mut config: Config) -> Result<Config, Fault> {
        let checked = |config: &Config, span: &Range<usize>| {
            config.validate().map_err(|e| Fault::new(span, format!("{e}; write such a value")))
        };
        let product = !matches!(self.law, Some(LawFile::Published));
        if let Some(excess) = self.excess.as_ref().filter(|_| product) {
            config.gain = Gain::Excess(excess.0);
            checked(&config, &excess.span)?;
        }
        if let Some(threshold) = &self.threshold {
            config.threshold = threshold.0;
            checked(&config, &threshold.span)?;
        }
        if self.follow == Some(FollowFile::Trials) {
            config.follow = match &self.trial_rest {
                Some(rest) => Follow::Trials { rest: rest.value },
                None => Follow::DEFAULT,
            };
            checked(&config, self.trial_rest.as_ref().map_or(&(0..0), |rest| &rest.span))?;
        }
        if let Some(period) = &self.period {
            config.period = some_time(period, "the period of a window")?;
            checked(&config, &period.span)?;
        }
        if let Some(step) = &self.step {
            config.step = step.0;
            checked(&config, &step.span)?;
        }
        config.smoothing = match self.smoothing {
            Some(SmoothingFile::PerIo) => Smoothing::PER_IO,
            Some(SmoothingFile::PerPeriod) | None => Smoothing::PUBLISHED,
        };
        // The bounds depend on each other, so they are checked together.
        let span = self.min.as_ref().or(self.max.as_ref()).map_or(&(0..0), |key| &key.span);
        config.min = self.min.as_ref().map_or(config.min, |min| min.0);
        config.max = self.max.as_ref().map_or(config.max, |max| max.0);
        checked(&config, span)?;
        config.initial = self.initial.map_or(config.initial, |initial| initial.0);
        Ok(config)
    }
}
