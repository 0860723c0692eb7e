//! Other sizes for disks.

use super::common::Print;
use super::dry_run::DryRunArg;
use super::error::CliError;
use clap::Args;
use headgate_api::client::Client;
use headgate_api::resize::{DiskResize, Shrink};
use headgate_api::types::{Changed, Disk};
use headgate_model::Name;
use headgate_units::Bytes;
use hyper::Method;
use std::io::Write;

/// Arguments of `disk resize`.
#[derive(Debug, Args)]
pub(super) struct Resize {
    /// Name of the disk
    name: Name,
    /// Size in bytes, such as 200G; a multiple of 4096 [default on a block device, and of a disk
    /// that does not serve because its image has another size: that size]
    #[arg(long, value_name = "BYTES")]
    size: Option<Bytes>,
    /// Allow a smaller size, if there is no data in what is cut off. No client may be connected
    #[arg(long)]
    shrink: bool,
    /// Cut data off
    #[arg(long, requires = "shrink")]
    discard_data: bool,
    #[command(flatten)]
    dry_run: DryRunArg,
    #[command(flatten)]
    pub(super) print: Print,
}

impl Resize {
    fn request(&self) -> DiskResize {
        let shrink = match (self.shrink, self.discard_data) {
            (true, true) => Shrink::DiscardData,
            (true, false) => Shrink::UnlessData,
            (false, _) => Shrink::Never,
        };
        DiskResize { size: self.size, shrink }
    }

    /// `None`: nothing was changed, as wanted.
    pub(super) fn run(
        &self,
        client: &Client,
        out: &mut dyn Write,
    ) -> Result<Option<Changed<Disk>>, CliError> {
        let path = format!("/v1/disks/{}/resize", self.name);
        self.dry_run.send(client, (Method::POST, &path), &self.request(), self.print, out)
    }
}
