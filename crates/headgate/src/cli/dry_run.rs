//! `--dry-run` of single changes.

use super::common::Print;
use super::difference;
use super::error::CliError;
use super::output::{json, warnings};
use clap::Args;
use headgate_api::client::{Client, ClientError};
use headgate_api::terms::DryRun;
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Write;

/// Whether a change is made.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct DryRunArg {
    /// Show what would change, by all checks of the change itself, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl DryRunArg {
    pub(super) fn is_wanted(self) -> bool {
        self.dry_run
    }

    /// Asks for a change. A dry run is printed here, and answered with `None`.
    pub(super) fn send<B: Serialize, T: DeserializeOwned>(
        self,
        client: &Client,
        (method, path): (Method, &str),
        body: &B,
        print: Print,
        out: &mut dyn Write,
    ) -> Result<Option<T>, CliError> {
        if !self.dry_run {
            return Ok(Some(client.send(method, path, body)?));
        }
        tell(&client.dry_run(method, path, body)?, print, out)?;
        Ok(None)
    }

    /// The same for a removal: whether it is to be made.
    pub(super) fn try_removal(
        self,
        client: &Client,
        path: &str,
        out: &mut dyn Write,
    ) -> Result<bool, CliError> {
        if !self.dry_run {
            return Ok(true);
        }
        let run: Result<DryRun, ClientError> = client.dry_run(Method::DELETE, path, &());
        tell(&run?, Print { json: false }, out)?;
        Ok(false)
    }
}

fn tell(run: &DryRun, print: Print, out: &mut dyn Write) -> Result<(), CliError> {
    if print.json {
        return Ok(json(out, run)?);
    }
    let text = difference::text(&run.changes, &run.promises);
    let text = if text.is_empty() { "nothing would change\n".into() } else { text };
    out.write_all(text.as_bytes())?;
    warnings(&run.warnings);
    Ok(())
}
