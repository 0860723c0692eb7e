//! How far back history is read, as a flag of routes.

use headgate_control::ControlError;
use headgate_model::{Lookback, UnknownLookback};
use serde::Deserialize;

/// How far back history is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct WindowFlags {
    /// A time of 1 min to 30 d, such as `90min`, `24h` or `7d`; 24 h when absent.
    window: Option<String>,
}

impl WindowFlags {
    pub(super) fn lookback(self) -> Result<Lookback, ControlError> {
        let Some(text) = self.window else { return Ok(Lookback::default()) };
        parse(&text, "1min to 30d")
    }
}

/// Since when measurements are looked at.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub(super) struct SinceFlags {
    /// A time of 1 min to 7 d before now, such as `90min`, `24h` or `7d`; 7 d when absent.
    since: Option<String>,
}

impl SinceFlags {
    pub(super) fn lookback(self) -> Result<Lookback, ControlError> {
        let Some(text) = self.since else { return Ok(Lookback::WEEK) };
        parse(&text, "1min to 7d")
    }
}

fn parse(text: &str, expected: &str) -> Result<Lookback, ControlError> {
    text.parse().map_err(|e: UnknownLookback| ControlError::Invalid {
        error: e.to_string(),
        expected: expected.into(),
    })
}
