//! New disks with the content of an image.

use super::common::Print;
use super::create::Create;
use super::error::CliError;
use super::incomplete::{INCOMPLETE, is_incomplete};
use super::transfer::{FORMATS, open_disk, transfer};
use super::values::one_of;
use clap::Args;
use headgate_api::client::{Client, ClientError};
use headgate_api::placement::Created;
use headgate_api::types::{Change, Changed, Datastore, Disk, DiskPatch};
use headgate_daemon::serve::signals::Signals;
use headgate_images::{Backing, Format, ImageSource, Link, NbdSink, NbdSource, Source};
use headgate_model::Name;
use headgate_nbd::uri::{FORMS, Uri, is_nbd};
use headgate_units::Bytes;
use hyper::{Method, StatusCode};
use serde::Serialize;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// The help of `--size`, which is that of `disk create` else.
pub(super) const SIZE: &str =
    "Size in bytes, such as 10G; a multiple of 4096 [default: the image's size]";
/// The help of `--export`.
pub(super) const EXPORT: &str = "Export of the NBD server that becomes the disk; for datastores \
                                 made with --nbd. What it holds is overwritten";

/// Disks have sizes that are multiples of this, in bytes.
const SIZE_STEP: u64 = 4096;
/// How long the daemon may take to notice that this command has disconnected.
const PATIENCE: Duration = Duration::from_secs(10);

/// Arguments of `disk import`.
#[derive(Debug, Args)]
pub(super) struct DiskImport {
    #[command(flatten)]
    create: Create,
    /// An image file or a block device, or the URI of an NBD server's export:
    /// nbd://HOST[:PORT]/NAME, nbd+unix:///NAME?socket=PATH, or, over TLS,
    /// nbds://HOST[:PORT]/NAME?tls-certificates=DIR[&tls-hostname=NAME]
    source: String,
    /// Format of the image [default: by its first bytes]
    #[arg(long, value_name = "FORMAT", value_parser = one_of(FORMATS))]
    format: Option<Format>,
    /// Read the files that the image names as its backing files; only for images that you trust:
    /// they may name any file that you may read
    #[arg(long)]
    allow_backing: bool,
}

/// Where the content comes from.
enum Origin {
    Image(ImageSource),
    Export(Link),
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Imported {
    #[serde(flatten)]
    pub(super) created: Created<Disk>,
    import: Report,
}

/// What was copied.
#[derive(Debug, Serialize)]
struct Report {
    /// The image's format; `null` for an export.
    format: Option<&'static str>,
    /// Size of the source in bytes.
    source_size: Bytes,
    /// Bytes that were written.
    written: Bytes,
}

impl DiskImport {
    pub(super) fn print(&self) -> Print {
        self.create.print
    }

    fn origin(&self) -> Result<Origin, CliError> {
        let usage = |text: String| Err(CliError::Usage(text));
        match self.source.split_once("://") {
            None => {
                let backing = if self.allow_backing { Backing::Allowed } else { Backing::Refused };
                let path = PathBuf::from(&self.source);
                Ok(Origin::Image(ImageSource::open(&path, self.format, backing)?))
            }
            Some(_) if is_nbd(&self.source) && (self.format.is_some() || self.allow_backing) => {
                usage("an export has no format and no backing file: they are its server's".into())
            }
            Some(_) if is_nbd(&self.source) => {
                let uri: Uri =
                    self.source.parse().map_err(|e| CliError::Usage(format!("{e}: {FORMS}")))?;
                Ok(Origin::Export(Link::open(&uri, &self.source)?))
            }
            Some(_) => usage(format!("'{}' is no file and no NBD URI: {FORMS}", self.source)),
        }
    }

    /// The size to ask for. On a block device or at an NBD server it is the storage's own.
    fn size(&self, client: &Client, needed: Bytes) -> Result<Option<Bytes>, CliError> {
        let rounded = needed.0.checked_next_multiple_of(SIZE_STEP).map(Bytes);
        let Some(least) = rounded else {
            return Err(CliError::Usage(format!("no disk has a size of {} bytes", needed.0)));
        };
        if let Some(given) = self.create.size {
            if given < least {
                return Err(CliError::Usage(format!(
                    "--size is {given}, and the image has {needed}: it takes {} bytes",
                    least.0
                )));
            }
            return Ok(Some(given));
        }
        if let Some(name) = &self.create.datastore {
            let datastore: Datastore = client.get(&format!("/v1/datastores/{name}"))?;
            if datastore.backend.block.is_some() || datastore.backend.nbd.is_some() {
                return Ok(None);
            }
        }
        Ok(Some(least))
    }

    /// Makes the disk.
    pub(super) fn run(mut self, client: &Client) -> Result<Imported, CliError> {
        let from = self.origin()?;
        let source: &dyn Source = match &from {
            Origin::Image(image) => image,
            Origin::Export(link) => &NbdSource::new(link),
        };
        self.create.size = self.size(client, source.size())?;
        // Caught before there is a disk: what ends this command must not leave it there.
        let signals = Signals::catch().map_err(CliError::Print)?;
        let name = self.create.name.clone();
        let mut request = self.create.request();
        let whole = DiskPatch {
            vm: request.vm.take().map_or(Change::Remove, Change::Set),
            read_only: request.read_only.then_some(true),
            ..DiskPatch::default()
        };
        request.read_only = false;
        request.vm = INCOMPLETE.parse().ok();
        let created: Created<Disk> = client
            .send(Method::POST, "/v1/disks", &request)
            .map_err(|e| explain(client, &name, e))?;
        let copied = match fill(client, &created.now, source, &from, &signals, &whole) {
            Ok(copied) => copied,
            Err(error) => return Err(undo(client, &created.now, error)),
        };
        let now: Disk = client.get(&format!("/v1/disks/{name}"))?;
        let format = match &from {
            Origin::Image(image) => Some(image.format().as_str()),
            Origin::Export(_) => None,
        };
        let created = Created { now, ..created };
        let import = Report { format, source_size: source.size(), written: copied };
        Ok(Imported { created, import })
    }
}

/// Copies, and marks the disk as whole. Returns how much was written.
fn fill(
    client: &Client,
    disk: &Disk,
    source: &dyn Source,
    from: &Origin,
    signals: &Signals,
    whole: &DiskPatch,
) -> Result<Bytes, CliError> {
    let link = open_disk(&disk.nbd_uri)?;
    let sink = NbdSink::new(&link)?;
    let mut links = vec![&link];
    if let Origin::Export(other) = from {
        links.push(other);
    }
    let copied = transfer(source, &sink, &links, signals)?;
    drop(link);
    let path = format!("/v1/disks/{}", disk.name);
    let until = Instant::now() + PATIENCE;
    loop {
        match client.send::<_, Changed<Disk>>(Method::PATCH, &path, whole) {
            Ok(_) => return Ok(Bytes(copied.written)),
            // Whether clients may write is changed when none is connected, and this command has
            // just been one.
            Err(ClientError::Refused { status: StatusCode::CONFLICT, .. })
                if whole.read_only.is_some() && Instant::now() < until =>
            {
                thread::sleep(Duration::from_millis(50));
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// Removes the disk that is not whole.
fn undo(client: &Client, disk: &Disk, error: CliError) -> CliError {
    let name = &disk.name;
    let (after, hint) = match client.delete(&format!("/v1/disks/{name}?force=yes&image=purge")) {
        Ok(()) => (format!("; disk '{name}' is removed again"), None),
        Err(e) => (
            format!("; disk '{name}' is there, incomplete, and cannot be removed now: {e}"),
            Some(format!(
                "remove it with 'headgate disk remove {name} --purge --force' when the daemon \
                 answers"
            )),
        ),
    };
    let what = format!("the content of disk '{name}' is not imported");
    CliError::Transfer { what, error: Box::new(error), after, hint }
}

/// A disk that is there already may be what a killed import has left.
fn explain(client: &Client, name: &Name, error: ClientError) -> CliError {
    let there = client.get::<Disk>(&format!("/v1/disks/{name}"));
    if matches!(error, ClientError::Refused { .. }) && there.is_ok_and(|disk| is_incomplete(&disk))
    {
        return CliError::Transfer {
            what: format!("disk '{name}' is not created"),
            error: Box::new(error.into()),
            after: "; it is of an import that runs, or was killed".into(),
            hint: Some(format!(
                "if none runs, 'headgate disk remove {name} --purge' removes what is there"
            )),
        };
    }
    error.into()
}
