//! New disks with the content of an image.

use super::common::Print;
use super::create::Create;
use super::error::CliError;
use super::incomplete::is_incomplete;
use super::migrate::span;
use super::output::{Align, Table, or_dash, print_value};
use super::transfer::{FORMATS, Heard, open_disk, transfer};
use super::values::one_of;
use clap::Args;
use headgate_api::client::{Client, ClientError};
use headgate_api::imports::{Import, ImportProgress};
use headgate_api::placement::Created;
use headgate_api::types::{Change, Changed, Datastore, Disk, DiskPatch};
use headgate_daemon::serve::signals::Signals;
use headgate_images::{Backing, Format, ImageSource, Link, NbdSink, NbdSource, Source};
use headgate_model::{INCOMPLETE, Name};
use headgate_nbd::uri::{FORMS, Uri, is_nbd};
use headgate_units::Bytes;
use hyper::{Method, StatusCode};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
/// The longest name of a source that the daemon is told, in bytes.
const SOURCE_MAX: usize = 1_000;

/// Arguments of `disk import`.
#[derive(Debug, Args)]
pub(super) struct DiskImport {
    #[command(flatten)]
    create: Create,
    /// An image file or a block device, or the URI of an NBD server's export:
    /// nbd://HOST[:PORT]/NAME, nbd+unix:///NAME?socket=PATH, or, over TLS,
    /// nbds://HOST[:PORT]/NAME?tls-certificates=DIR[&tls-hostname=NAME]
    #[arg(required_unless_present = "cancel")]
    source: Option<String>,
    /// Format of the image [default: by its first bytes]
    #[arg(long, value_name = "FORMAT", value_parser = one_of(FORMATS))]
    format: Option<Format>,
    /// Read the files that the image names as its backing files; only for images that you trust:
    /// they may name any file that you may read
    #[arg(long)]
    allow_backing: bool,
    /// End the import of this disk, and remove the disk; its command ends with an error
    #[arg(long, conflicts_with_all = ["source", "size", "datastore", "vm", "class", "format"])]
    cancel: bool,
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

    /// Whether it ends an import.
    pub(super) fn is_cancel(&self) -> bool {
        self.cancel
    }

    /// Ends an import.
    pub(super) fn cancel(self, client: &Client, out: &mut dyn Write) -> Result<(), CliError> {
        let name = &self.create.name;
        client.delete(&format!("/v1/imports/{name}"))?;
        Ok(writeln!(out, "the import of disk '{name}' is ended, and the disk removed")?)
    }

    fn origin(&self, source: &str) -> Result<Origin, CliError> {
        let usage = |text: String| Err(CliError::Usage(text));
        match source.split_once("://") {
            None => {
                let backing = if self.allow_backing { Backing::Allowed } else { Backing::Refused };
                let path = PathBuf::from(source);
                Ok(Origin::Image(ImageSource::open(&path, self.format, backing)?))
            }
            Some(_) if is_nbd(source) && (self.format.is_some() || self.allow_backing) => {
                usage("an export has no format and no backing file: they are its server's".into())
            }
            Some(_) if is_nbd(source) => {
                let uri: Uri =
                    source.parse().map_err(|e| CliError::Usage(format!("{e}: {FORMS}")))?;
                Ok(Origin::Export(Link::open(&uri, source)?))
            }
            Some(_) => usage(format!("'{source}' is no file and no NBD URI: {FORMS}")),
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
        // The command line asks for it unless it ends an import.
        let named = self.source.take().unwrap_or_default();
        let from = self.origin(&named)?;
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
        let teller = Teller::new(client, &created.now, &named);
        let copied = match fill(&teller, &created.now, source, &from, &signals, &whole) {
            Ok(copied) => copied,
            Err(error) => return Err(undo(&teller, &created.now, error)),
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

/// Tells the daemon how far the import is.
struct Teller<'a> {
    client: &'a Client,
    /// Where.
    path: String,
    /// No other import has it.
    id: String,
    /// What is imported, for people.
    source: String,
    size: Bytes,
}

impl Teller<'_> {
    fn new<'a>(client: &'a Client, disk: &Disk, source: &str) -> Teller<'a> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let id = format!("{}-{}", std::process::id(), since.as_nanos());
        let plain: String = source.chars().filter(|c| !c.is_control()).collect();
        let end = (0..=SOURCE_MAX.min(plain.len())).rev().find(|at| plain.is_char_boundary(*at));
        let source = plain[..end.unwrap_or(0)].to_owned();
        let path = format!("/v1/imports/{}", disk.name);
        Teller { client, path, id, source, size: disk.size }
    }

    /// So much is done. A daemon that does not answer is no reason to end; the copy will tell.
    fn tell(&self, copied: u64) -> Heard {
        let (id, source) = (self.id.clone(), self.source.clone());
        let told = ImportProgress { id, source, copied: Bytes(copied), size: self.size };
        match self.client.send::<_, Import>(Method::PUT, &self.path, &told) {
            Err(ClientError::Refused {
                status: StatusCode::CONFLICT | StatusCode::NOT_FOUND,
                ..
            }) => Heard::Cancelled,
            Ok(_) | Err(_) => Heard::GoOn,
        }
    }
}

/// Copies, and marks the disk as whole. Returns how much was written.
fn fill(
    teller: &Teller<'_>,
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
    let copied = transfer(source, &sink, &links, signals, &|done| teller.tell(done))?;
    drop(link);
    let path = format!("/v1/disks/{}", disk.name);
    let until = Instant::now() + PATIENCE;
    loop {
        match teller.client.send::<_, Changed<Disk>>(Method::PATCH, &path, whole) {
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

/// Removes the disk that is not whole, and no other one that has its name by now.
fn undo(teller: &Teller<'_>, disk: &Disk, error: CliError) -> CliError {
    let name = &disk.name;
    let removed = teller.client.delete(&format!("{}?id={}", teller.path, teller.id));
    let (after, hint) = match removed {
        Ok(()) => (format!("; disk '{name}' is removed again"), None),
        Err(ClientError::Refused {
            status: StatusCode::NOT_FOUND | StatusCode::CONFLICT, ..
        }) => (format!("; disk '{name}' of this import is removed"), None),
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
                "'headgate disk imports' says how far it is, 'headgate disk import {name} --cancel' \
                 ends it and removes what is there"
            )),
        };
    }
    error.into()
}

/// All imports under way.
pub(super) fn list(client: &Client, print: Print, out: &mut dyn Write) -> Result<(), CliError> {
    let imports: Vec<Import> = client.get("/v1/imports")?;
    print_value(out, print, &imports, |imports| table(imports))
}

fn table(imports: &[Import]) -> String {
    let mut table = Table::new(&[
        ("DISK", Align::Left),
        ("STATE", Align::Left),
        ("DATASTORE", Align::Left),
        ("COPIED", Align::Right),
        ("SIZE", Align::Right),
        ("RATE", Align::Right),
        ("LEFT", Align::Right),
        ("FROM", Align::Left),
    ]);
    for one in imports {
        table.row(vec![
            one.disk.to_string(),
            one.state.as_str().to_owned(),
            one.datastore.to_string(),
            one.copied.to_string(),
            one.size.to_string(),
            or_dash(one.rate.map(|rate| format!("{}/s", Bytes(rate)))),
            or_dash(one.seconds_left.map(span)),
            or_dash(one.source.clone()),
        ]);
    }
    table.render()
}
