//! Arguments that many commands take.

use super::error::CliError;
use clap::Args;
use headgate_api::client::Client;
use headgate_control::StateDir;
use std::path::PathBuf;

/// The daemon that a command talks to.
#[derive(Clone, Debug, Args)]
pub(super) struct DaemonArgs {
    /// State directory of the daemon [default: /var/lib/headgate for root, otherwise
    /// $XDG_STATE_HOME/headgate or ~/.local/state/headgate]
    #[arg(long, value_name = "DIR", env = "HEADGATE_STATE_DIR", global = true)]
    pub(super) state_dir: Option<PathBuf>,
}

/// Output format.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Print {
    /// Print JSON instead of text, in the form of the HTTP API
    #[arg(long)]
    pub(super) json: bool,
}

impl DaemonArgs {
    pub(super) fn state_dir(&self) -> Result<StateDir, CliError> {
        let root = match &self.state_dir {
            Some(given) => given.clone(),
            None => StateDir::default_root().ok_or(CliError::NoStateDir)?,
        };
        Ok(StateDir::new(&root)?)
    }

    pub(super) fn client(&self) -> Result<Client, CliError> {
        Ok(Client::new(&self.state_dir()?.api_socket()))
    }
}
