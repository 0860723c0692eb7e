//! A disk's content in an image file.

use super::common::Print;
use super::error::CliError;
use super::incomplete::is_incomplete;
use super::output::print_value;
use super::transfer::{FORMATS, Heard, open_disk, transfer};
use super::values::one_of;
use clap::Args;
use headgate_api::client::Client;
use headgate_api::types::Disk;
use headgate_daemon::serve::signals::Signals;
use headgate_images::{Format, NbdSource, NewImage, Replace, Source};
use headgate_model::Name;
use headgate_units::Bytes;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Arguments of `disk export`.
#[derive(Debug, Args)]
pub(super) struct DiskExport {
    /// Name of the disk
    name: Name,
    /// The image file to write
    file: PathBuf,
    /// Format of the file
    #[arg(long, value_name = "FORMAT", default_value = "raw", value_parser = one_of(FORMATS))]
    format: Format,
    /// Replace a file that is there
    #[arg(long)]
    overwrite: bool,
    /// Export the disk although others have it open: of what they write meanwhile, the file may
    /// have some and lack what was written before
    #[arg(long)]
    force_share: bool,
    #[command(flatten)]
    pub(super) print: Print,
}

/// What was exported.
#[derive(Debug, Serialize)]
struct Report {
    disk: Name,
    file: PathBuf,
    format: &'static str,
    /// In bytes.
    size: Bytes,
    /// Bytes that are data.
    written: Bytes,
    /// Whether the content is that of one instant: nobody wrote the disk meanwhile.
    consistent: bool,
}

/// The counters of the API that tell whether a disk is written.
#[derive(Debug, Deserialize)]
struct DatastoreCounters {
    disks: Vec<DiskCounters>,
}

#[derive(Debug, Deserialize)]
struct DiskCounters {
    name: Name,
    stats: Counters,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct Counters {
    writes: Count,
    discards: Count,
    write_zeroes: Count,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct Count {
    done: u64,
    errors: u64,
}

/// Whether the disk may be written meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    Refused,
    Forced,
}

impl DiskExport {
    pub(super) fn run(self, client: &Client, out: &mut dyn Write) -> Result<(), CliError> {
        let disk: Disk = client.get(&format!("/v1/disks/{}", self.name))?;
        let sharing = if self.force_share { Sharing::Forced } else { Sharing::Refused };
        check(&disk, sharing)?;
        let signals = Signals::catch().map_err(CliError::Print)?;
        let report =
            self.export(client, &disk, sharing, &signals).map_err(|error| CliError::Transfer {
                what: format!("disk '{}' is not exported", self.name),
                error: Box::new(error),
                after: String::new(),
                hint: None,
            })?;
        print_value(out, self.print, &report, |report| {
            let Report { disk, file, format, size, written, consistent } = report;
            let sharing = match consistent {
                true => "",
                false => "; others wrote it meanwhile, so it is not of one instant",
            };
            let file = file.display();
            format!("disk '{disk}' is in {file}: {format}, {size}, {written} of it data{sharing}\n")
        })
    }

    fn export(
        &self,
        client: &Client,
        disk: &Disk,
        sharing: Sharing,
        signals: &Signals,
    ) -> Result<Report, CliError> {
        let before = counters(client, &self.name)?;
        let link = open_disk(&disk.nbd_uri)?;
        let source = NbdSource::new(&link);
        let image = self.begin(&self.file, &source)?;
        let copied = transfer(&source, image.sink(), &[&link], signals, &|_| Heard::GoOn)?;
        let consistent = disk.read_only || before == counters(client, &self.name)?;
        if !consistent && sharing == Sharing::Refused {
            return Err(CliError::Stopped(
                "somebody wrote it meanwhile, so the file would not be of one instant".into(),
            ));
        }
        image.finish()?;
        Ok(Report {
            disk: self.name.clone(),
            file: self.file.clone(),
            format: self.format.as_str(),
            size: source.size(),
            written: Bytes(copied.written),
            consistent,
        })
    }

    fn begin(&self, file: &Path, source: &NbdSource<'_>) -> Result<NewImage, CliError> {
        let replace = if self.overwrite { Replace::Yes } else { Replace::No };
        Ok(NewImage::begin(file, self.format, source.size(), replace)?)
    }
}

/// Whether there is something to export.
fn check(disk: &Disk, sharing: Sharing) -> Result<(), CliError> {
    let name = &disk.name;
    if is_incomplete(disk) {
        return Err(CliError::Stopped(format!(
            "disk '{name}' is not whole: its import runs, or was killed"
        )));
    }
    if disk.clients > 0 && !disk.read_only && sharing == Sharing::Refused {
        return Err(CliError::Transfer {
            what: format!("disk '{name}' is not exported"),
            error: Box::new(CliError::Stopped(format!(
                "{} client(s) have it open and may write it: the file would not be of one instant",
                disk.clients
            ))),
            after: String::new(),
            hint: Some(format!(
                "'headgate disk snapshot {name} SNAPSHOT' makes a disk as of one instant that can \
                 be exported; --force-share exports this one all the same"
            )),
        });
    }
    Ok(())
}

/// What has been done to a disk so far.
fn counters(client: &Client, name: &Name) -> Result<Option<Counters>, CliError> {
    let all: Vec<DatastoreCounters> = client.get("/v1/stats")?;
    let mut disks = all.into_iter().flat_map(|datastore| datastore.disks);
    Ok(disks.find(|disk| disk.name == *name).map(|disk| disk.stats))
}
