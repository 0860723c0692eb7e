//! The copy of a disk's content, as a command watches it.

use super::error::CliError;
use super::values::Word;
use headgate_daemon::serve::signals::Signals;
use headgate_images::{Control, Copied, Format, ImageError, Link, Sink, Source, copy};
use headgate_nbd::uri::Uri;
use headgate_units::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use std::thread;
use std::time::Duration;

/// How often one looks how far the copy is.
const WATCH: Duration = Duration::from_millis(200);

pub(super) const FORMATS: &[Word<Format>] =
    &[Word("raw", Format::Raw, "Byte by byte"), Word("qcow2", Format::Qcow2, "QEMU's format")];

/// Connects to an export that the daemon names.
pub(super) fn open_disk(uri: &str) -> Result<Link, CliError> {
    let uri: Uri = uri.parse().map_err(|e| CliError::Stopped(format!("the daemon: {e}")))?;
    Ok(Link::open(&uri, "the daemon")?)
}

/// Copies, with a bar where somebody sees it. A signal ends the copy, also while an export of
/// `links` does not answer.
pub(super) fn transfer(
    source: &dyn Source,
    sink: &dyn Sink,
    links: &[&Link],
    signals: &Signals,
) -> Result<Copied, CliError> {
    let control = Control::default();
    let size = sink.size();
    let bar = ProgressBar::new(size.0.max(1));
    // The template is a constant, and its mistakes would show in every run.
    if let Ok(style) = ProgressStyle::with_template("{msg:>24} {wide_bar} {percent:>3} % {elapsed}")
    {
        bar.set_style(style);
    }
    let mut caught = None;
    let end = thread::scope(|scope| {
        let copying = scope.spawn(|| copy(source, sink, &control));
        while !copying.is_finished() {
            bar.set_message(format!("{} of {size}", Bytes(control.done())));
            bar.set_position(control.done());
            if let Some(signal) = signals.wait_for(WATCH) {
                caught.get_or_insert(signal);
                control.cancel();
                links.iter().for_each(|link| link.hang_up());
            }
        }
        copying.join()
    });
    bar.finish_and_clear();
    match (end, caught) {
        (Ok(Ok(copied)), _) => Ok(copied),
        (Ok(Err(ImageError::Cancelled)), Some(signal)) => Err(CliError::CopyInterrupted(signal)),
        (Ok(Err(error)), _) => Err(error.into()),
        (Err(_), _) => Err(CliError::Stopped("a thread of the copy failed".into())),
    }
}
