//! Arguments that many commands take.

use super::error::CliError;
use clap::Args;
use headgate_api::client::Client;
use headgate_api::remote::{Remote, Shown};
use headgate_control::StateDir;
use headgate_tls::ClientCredentials;
use std::path::{Path, PathBuf};

/// The daemon that a command talks to.
#[derive(Clone, Debug, Args)]
pub(super) struct DaemonArgs {
    /// State directory of the daemon [default: /var/lib/headgate for root, otherwise
    /// $XDG_STATE_HOME/headgate or ~/.local/state/headgate]
    #[arg(long, value_name = "DIR", env = "HEADGATE_STATE_DIR", global = true)]
    pub(super) state_dir: Option<PathBuf>,
    /// API of a daemon elsewhere, as of its 'serve --api-listen': https://HOST:PORT with --tls-dir,
    /// or http://127.0.0.1:PORT with --token-file [default: the socket in the state directory]
    #[arg(long, value_name = "URI", env = "HEADGATE_API", global = true)]
    api: Option<String>,
    /// Directory with ca-cert.pem, client-cert.pem and client-key.pem, to show to --api
    #[arg(long, value_name = "DIR", env = "HEADGATE_TLS_DIR", global = true)]
    tls_dir: Option<PathBuf>,
    /// File with the token to show to --api
    #[arg(long, value_name = "FILE", env = "HEADGATE_TOKEN_FILE", global = true)]
    token_file: Option<PathBuf>,
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
        let Some(address) = &self.api else {
            return Ok(Client::new(&self.state_dir()?.api_socket()));
        };
        // The one that fits the address, where the environment has both.
        let is_tls = address.starts_with("https://");
        let shown = match (&self.tls_dir, &self.token_file) {
            (Some(dir), _) if is_tls => Shown::Certificate(ClientCredentials::read(dir)?),
            (_, Some(file)) if !is_tls => Shown::Token(token(file)?),
            _ => {
                let needed = if is_tls { "--tls-dir DIR" } else { "--token-file FILE" };
                return Err(CliError::Usage(format!("--api {address}: give {needed}, too")));
            }
        };
        Ok(Client::at(Remote::new(address, shown)?))
    }
}

/// The token in a file: its first line.
fn token(file: &Path) -> Result<String, CliError> {
    let failed = |source| CliError::File { file: file.to_owned(), doing: "read", source };
    let text = std::fs::read_to_string(file).map_err(failed)?;
    let token = text.lines().next().unwrap_or("").trim();
    match token.is_empty() || token.chars().any(|c| !c.is_ascii_graphic()) {
        true => {
            Err(CliError::Usage(format!("{}: there is no token in its first line", file.display())))
        }
        false => Ok(token.to_owned()),
    }
}
