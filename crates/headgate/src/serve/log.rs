use serde::Deserialize;
use std::io::{self, IsTerminal};
use tracing_subscriber::EnvFilter;

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

/// Writes logs to standard error from now on. `RUST_LOG` says which; without it, information and worse.
pub(super) fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let set = match format {
        LogFormat::Text => logs.with_ansi(io::stderr().is_terminal()).with_target(false).try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
    if let Err(e) = set {
        eprintln!("warning: logs go where they went before: {e}");
    }
}
