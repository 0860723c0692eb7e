//! The control of hosts' windows.

use super::super::read::Fault;
use super::super::values::{At, Percent};
use super::super::window::{IssueWindowFile, LatencyFile, LawFile, SmoothingFile};
use super::names::some_time;
use crate::scenario::{Control, IssueWindow, Knowledge};
use headgate_qos::window::{Config, Fraction, Gain, Smoothing};
use headgate_units::Nanos;
use std::num::NonZeroU32;
use std::ops::Range;

/// Shares of a disk unless given: it then counts for one slot.
const SHARES_PER_SLOT: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

pub(super) fn issue_window(file: &IssueWindowFile) -> Result<IssueWindow, Fault> {
    let config = match file.law {
        Some(LawFile::Fixed) => return Ok(IssueWindow::Fixed),
        Some(LawFile::Published) => {
            Config::published(Config::default().threshold, shares_per_slot(file.shares_per_slot.as_ref())?)
        }
        Some(LawFile::Product) | None => product(file)?,
    };
    let delay = file.report_delay.as_ref().map_or(Nanos::ZERO, |delay| delay.value.0);
    if let Some(key) = file.report_delay.as_ref().filter(|key| key.value.0 > Nanos::from_secs(3_600)) {
        return Err(Fault::new(&key.span, "a report takes an hour at most; write such a time"));
    }
    let knowledge = match file.latency {
        Some(LatencyFile::Local) => Knowledge::Local,
        Some(LatencyFile::Cluster) | None => Knowledge::Cluster,
    };
    Ok(IssueWindow::Controlled(Control { config: common(file, config)?, knowledge, delay }))
}

fn shares_per_slot(key: Option<&At<u32>>) -> Result<NonZeroU32, Fault> {
    let Some(key) = key else { return Ok(SHARES_PER_SLOT) };
    NonZeroU32::new(key.value)
        .ok_or_else(|| Fault::new(&key.span, "a slot is for 1 share or more; write such a number"))
}

fn product(file: &IssueWindowFile) -> Result<Config, Fault> {
    let mut config = Config::default();
    if let Some(excess) = &file.excess {
        config.gain = Gain::Excess(fraction(excess)?);
        checked(&config, &excess.span)?;
    }
    Ok(config)
}

/// What both laws have. Each key is tried on its own, so that an error points at it.
fn common(file: &IssueWindowFile, mut config: Config) -> Result<Config, Fault> {
    if let Some(threshold) = &file.threshold {
        config.threshold = threshold.value.0;
        checked(&config, &threshold.span)?;
    }
    if let Some(period) = &file.period {
        config.period = some_time(period, "the period of a window")?;
        checked(&config, &period.span)?;
    }
    if let Some(step) = &file.step {
        config.step = fraction(step)?;
        checked(&config, &step.span)?;
    }
    config.smoothing = match file.smoothing {
        Some(SmoothingFile::PerIo) => Smoothing::PER_IO,
        Some(SmoothingFile::PerPeriod) | None => Smoothing::PUBLISHED,
    };
    // Only both together can be checked.
    let span = file.min.as_ref().or(file.max.as_ref()).map_or(&(0..0), |key| &key.span);
    config.min = file.min.as_ref().map_or(config.min, |min| min.value.0);
    config.max = file.max.as_ref().map_or(config.max, |max| max.value.0);
    checked(&config, span)?;
    config.initial = file.initial.as_ref().map_or(config.initial, |initial| initial.value.0);
    Ok(config)
}

fn checked(config: &Config, span: &Range<usize>) -> Result<(), Fault> {
    config.validate().map_err(|error| Fault::new(span, format!("{error}; write such a value")))
}

fn fraction(key: &At<Percent>) -> Result<Fraction, Fault> {
    let millionths = (key.value.0 * 10_000.0).round();
    let wrong = || Fault::new(&key.span, "a part of a whole is 100% at most; write such a percentage");
    if millionths > 1e6 {
        return Err(wrong());
    }
    Fraction::from_millionths(millionths as u32).map_err(|_| wrong())
}
