//! How much of the log of events is kept.

use headgate_control::event_log::SIZE;
use headgate_events::SIZE_MIN;
use headgate_units::Bytes;
use serde::Deserialize;
use std::str::FromStr;

/// The space of the log of events: 1 MiB and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct EventsSize(Bytes);

impl FromStr for EventsSize {
    type Err = String;
    fn from_str(text: &str) -> Result<EventsSize, String> {
        let size: Bytes = text.parse().map_err(|e| format!("events-size: {e}"))?;
        match size.0 >= SIZE_MIN {
            true => Ok(EventsSize(size)),
            false => Err(format!("events-size must be 1M or more, not {text}")),
        }
    }
}

impl TryFrom<String> for EventsSize {
    type Error = String;
    fn try_from(text: String) -> Result<EventsSize, String> {
        text.parse()
    }
}

/// The arguments of `headgate serve` for it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct EventArgs {
    /// How much space the log of events may take, such as 64M, at least 1M: a quarter each for
    /// operators' changes, tenants' changes, what was refused, and what the daemon did and noticed.
    /// The oldest are removed [default: 64M]
    #[arg(long, value_name = "SIZE")]
    events_size: Option<EventsSize>,
}

impl EventArgs {
    pub(super) fn size(&self, configured: Option<EventsSize>) -> Bytes {
        self.events_size.or(configured).map_or(SIZE, |size| size.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_space_is_refused_with_what_is_expected() {
        assert_eq!("64M".parse(), Ok(EventsSize(Bytes::from_mib(64))));
        for bad in ["1023K", "0", "much", ""] {
            let error = bad.parse::<EventsSize>().unwrap_err();
            assert!(error.starts_with("events-size"), "{error}");
        }
    }
}
