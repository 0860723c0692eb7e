//! The copy of a disk's content, as a command watches it.

use super::error::CliError;
use super::values::Word;
use headgate_daemon::serve::signals::Signals;
use headgate_images::{Control, Copied, Format, ImageError, Link, Sink, Source, copy};
use headgate_nbd::uri::Uri;
use headgate_units::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How often one looks how far the copy is.
const WATCH: Duration = Duration::from_millis(200);

pub(super) const FORMATS: &[Word<Format>] =
    &[Word("raw", Format::Raw, "Byte by byte"), Word("qcow2", Format::Qcow2, "QEMU's format")];

/// Connects to an export that the daemon names.
pub(super) fn open_disk(uri: &str) -> Result<Link, CliError> {
    let uri: Uri = uri.parse().map_err(|e| CliError::Stopped(format!("the daemon: {e}")))?;
    Ok(Link::open(&uri, "the daemon")?)
}

/// How often somebody is told how far a copy is.
const TELL: Duration = Duration::from_secs(1);

/// Whether the copy is to go on, says whoever is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    GoOn,
    /// Nobody wants it any more.
    Cancelled,
}

/// Whoever is told how far a copy is, in bytes, now and then.
pub(super) type Listener<'a> = &'a (dyn Fn(u64) -> Heard + Sync);

/// Copies, with a bar where somebody sees it. A signal ends the copy, also while an export of
/// `links` does not answer, and so does a listener that wants it no more.
pub(super) fn transfer(
    source: &dyn Source,
    sink: &dyn Sink,
    links: &[&Link],
    signals: &Signals,
    listener: Listener<'_>,
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
    let unwanted = AtomicBool::new(false);
    let end = thread::scope(|scope| {
        let copying = scope.spawn(|| copy(source, sink, &control));
        // Whoever is told may not answer for a while: the copy and signals do not wait for it.
        let (tell, told) = mpsc::sync_channel::<u64>(1);
        scope.spawn(|| {
            for done in told {
                if listener(done) == Heard::Cancelled {
                    unwanted.store(true, Ordering::Relaxed);
                    control.cancel();
                    links.iter().for_each(|link| link.hang_up());
                }
            }
        });
        let mut last: Option<Instant> = None;
        while !copying.is_finished() {
            if last.is_none_or(|last| last.elapsed() >= TELL) {
                last = Some(Instant::now());
                let _ = tell.try_send(control.done());
            }
            bar.set_message(format!("{} of {size}", Bytes(control.done())));
            bar.set_position(control.done());
            if let Some(signal) = signals.wait_for(WATCH) {
                caught.get_or_insert(signal);
                control.cancel();
                links.iter().for_each(|link| link.hang_up());
            }
        }
        drop(tell);
        copying.join()
    });
    bar.finish_and_clear();
    if unwanted.load(Ordering::Relaxed) {
        return Err(CliError::Stopped("it was cancelled".into()));
    }
    match (end, caught) {
        (Ok(Ok(copied)), _) => Ok(copied),
        (Ok(Err(ImageError::Cancelled)), Some(signal)) => Err(CliError::CopyInterrupted(signal)),
        (Ok(Err(error)), _) => Err(error.into()),
        (Err(_), _) => Err(CliError::Stopped("a thread of the copy failed".into())),
    }
}
