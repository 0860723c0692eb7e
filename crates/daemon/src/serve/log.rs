use super::log_sieve::Sieve;
use headgate_control::leases::Ticker;
use serde::Deserialize;
use std::env;
use std::io::{self, IsTerminal};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{FilterExt, Targets};
use tracing_subscriber::prelude::*;

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Tells now and then, and at its end, what was left out of the log.
pub(super) struct Logs {
    sieve: Sieve,
    _ticker: Ticker,
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.sieve.tell();
    }
}

/// Writes logs to standard error from now on, as text unless it is said otherwise. `RUST_LOG` sets
/// the level, for all (`debug`) or by module (`info,headgate_engine=debug`). Default: `info`. What
/// clients cause is written at a bounded rate.
///
/// # Errors
/// No thread.
pub(super) fn start(format: Option<LogFormat>) -> io::Result<Logs> {
    let (filter, complaint) = filter(env::var("RUST_LOG").ok().as_deref());
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let logs = match format.unwrap_or_default() {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let sieve = Sieve::new();
    let logs = logs.with_filter(filter.and(sieve.clone()));
    if let Err(e) = tracing_subscriber::registry().with(logs).try_init() {
        eprintln!("warning: logs are already written elsewhere: {e}");
    }
    if let Some(complaint) = complaint {
        tracing::warn!("{complaint}");
    }
    let ticking = sieve.clone();
    let ticker = Ticker::start("headgate-log", move || {
        ticking.tell();
        Sieve::period()
    })?;
    Ok(Logs { sieve, _ticker: ticker })
}

/// What to log, and what is wrong with the wish.
fn filter(wish: Option<&str>) -> (Targets, Option<String>) {
    let usual = Targets::new().with_default(LevelFilter::INFO);
    match wish.map(str::trim).filter(|wish| !wish.is_empty()).map(str::parse::<Targets>) {
        None => (usual, None),
        Some(Ok(targets)) => (targets, None),
        Some(Err(e)) => (
            usual,
            Some(format!(
                "RUST_LOG is ignored, and 'info' used: {e}; expected a level (error, warn, info, \
                 debug, trace) or a list such as 'info,headgate_engine=debug'"
            )),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_level_or_a_list_of_modules_is_understood() {
        let (info, complaint) = filter(None);
        assert!(info.would_enable("headgate", &Level::INFO) && complaint.is_none());
        assert!(!info.would_enable("headgate", &Level::DEBUG));
        let (debug, _) = filter(Some("debug"));
        assert!(debug.would_enable("headgate", &Level::DEBUG));
        let (one, _) = filter(Some("warn,headgate_engine=trace"));
        assert!(one.would_enable("headgate_engine::shard", &Level::TRACE));
        assert!(!one.would_enable("headgate", &Level::INFO));
    }

    #[test]
    fn a_bad_wish_is_reported_and_the_default_holds() {
        let (usual, complaint) = filter(Some("headgate=loud"));
        assert!(usual.would_enable("headgate", &Level::INFO));
        assert!(complaint.unwrap().contains("expected a level"));
    }
}
