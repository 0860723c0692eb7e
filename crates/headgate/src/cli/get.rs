//! Prints what there is as documents that `apply` takes.

use super::common::DaemonArgs;
use super::documents::{Written, as_json, as_yaml};
use super::error::CliError;
use super::output::json;
use clap::{Args, ValueEnum};
use std::io::Write;

/// A kind of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Classes,
    Tenants,
    Vms,
    Datastores,
    Disks,
}

/// How they are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    #[default]
    Yaml,
    Json,
}

/// Arguments of `get`.
#[derive(Debug, Args)]
pub(super) struct Get {
    /// What to print [default: all]
    #[arg(value_enum)]
    kinds: Vec<Kind>,
    /// The form of the documents
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

impl Get {
    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let client = daemon.client()?;
        let is_wanted = |kind| self.kinds.is_empty() || self.kinds.contains(&kind);
        let mut written = Written::default();
        if is_wanted(Kind::Classes) {
            written.classes = Some(client.get("/v1/classes")?);
        }
        if is_wanted(Kind::Tenants) {
            written.tenants = Some(client.get("/v1/tenants")?);
        }
        if is_wanted(Kind::Vms) {
            written.vms = Some(client.get("/v1/vms")?);
        }
        if is_wanted(Kind::Datastores) {
            written.datastores = Some(client.get("/v1/datastores")?);
        }
        if is_wanted(Kind::Disks) {
            written.disks = Some(client.get("/v1/disks")?);
        }
        match self.output {
            Form::Yaml => Ok(out.write_all(as_yaml(&written).as_bytes())?),
            Form::Json => Ok(json(out, &as_json(&written))?),
        }
    }
}
