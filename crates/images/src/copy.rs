//! The copy: some threads, each with one chunk.

use crate::chunks::parts;
use crate::content::{Content, Sink, Source};
use crate::error::ImageError;
use crate::walk::{Next, Walk};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The longest piece that is read and written at once, in bytes.
pub const CHUNK: usize = 1 << 20;
/// How many pieces are under way at once. A copy has so many chunks in memory.
pub const JOBS: usize = 8;
/// The least unit of pieces, in bytes: what a disk's requests are multiples of.
const GRANULE: u64 = 4096;

/// A copy as others see it while it runs.
#[derive(Debug, Default)]
pub struct Control {
    cancelled: AtomicBool,
    done: AtomicU64,
}

impl Control {
    /// Has the copy end with [`ImageError::Cancelled`]. A request that is under way is waited for:
    /// see [`Link::hang_up`](crate::Link::hang_up).
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Bytes of the target that are done, of its size.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// What a copy came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes that were written, without zeroes.
    pub written: u64,
    /// Bytes of zeroes.
    pub zeroes: u64,
}

/// What the threads share.
struct Shared<'a> {
    source: &'a dyn Source,
    sink: &'a dyn Sink,
    control: &'a Control,
    walk: Mutex<Walk>,
    /// The first error.
    failed: Mutex<Option<ImageError>>,
    stop: AtomicBool,
    written: AtomicU64,
    zeroes: AtomicU64,
}

/// Copies the whole source to the beginning of the target, has the rest of the target read as
/// zeroes, and flushes. [`JOBS`] pieces of at most [`CHUNK`] bytes are under way at once.
///
/// # Errors
/// The first error of either side, [`ImageError::Cancelled`], or [`ImageError::TooSmall`]. The
/// target then holds something of both.
pub fn copy(source: &dyn Source, sink: &dyn Sink, control: &Control) -> Result<Copied, ImageError> {
    let (from, to) = (source.size().0, sink.size().0);
    if to < from {
        return Err(ImageError::TooSmall { needed: from, size: to });
    }
    let granule = source.granule().max(GRANULE);
    if granule > CHUNK as u64 || !granule.is_power_of_two() {
        let why = format!("its requests have to be multiples of {granule} bytes");
        return Err(ImageError::Nbd { server: "the source".into(), why });
    }
    let shared = Shared {
        source,
        sink,
        control,
        walk: Mutex::new(Walk::new(from, to, granule, CHUNK as u64)),
        failed: Mutex::default(),
        stop: AtomicBool::new(false),
        written: AtomicU64::new(0),
        zeroes: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| shared.work());
        }
    });
    if control.is_cancelled() {
        return Err(ImageError::Cancelled);
    }
    let failed = shared.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = failed {
        return Err(error);
    }
    let flushed = sink.flush();
    if control.is_cancelled() {
        return Err(ImageError::Cancelled);
    }
    flushed?;
    Ok(Copied { written: shared.written.into_inner(), zeroes: shared.zeroes.into_inner() })
}

impl Shared<'_> {
    /// Does pieces until none is left, or the copy fails.
    fn work(&self) {
        let mut buffer = Vec::new();
        while !self.stop.load(Ordering::Relaxed) && !self.control.is_cancelled() {
            match self.piece().and_then(|next| self.do_piece(next, &mut buffer)) {
                Ok(Some(len)) => {
                    self.control.done.fetch_add(len, Ordering::Relaxed);
                }
                Ok(None) => return,
                Err(error) => {
                    self.stop.store(true, Ordering::Relaxed);
                    let mut first = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                    first.get_or_insert(error);
                }
            }
        }
    }

    /// The next piece. The others wait meanwhile: they need to know the same.
    fn piece(&self) -> Result<Next, ImageError> {
        let mut walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match walk.next() {
                Next::Ask { offset, len } => {
                    let runs = self.source.status(offset, len)?;
                    walk.learn(&runs).map_err(|bad| ImageError::BadRun(bad.0))?;
                }
                next => return Ok(next),
            }
            if self.stop.load(Ordering::Relaxed) || self.control.is_cancelled() {
                return Ok(Next::End);
            }
        }
    }

    /// The length of the piece, or `None` at the end.
    fn do_piece(&self, next: Next, buffer: &mut Vec<u8>) -> Result<Option<u64>, ImageError> {
        match next {
            Next::Data { offset, read, len } => {
                buffer.clear();
                buffer.resize(len as usize, 0);
                self.source.read(offset, &mut buffer[..read as usize])?;
                self.put(offset, buffer)?;
                Ok(Some(len))
            }
            Next::Zero { offset, len } => {
                self.zero(offset, len)?;
                Ok(Some(len))
            }
            Next::Ask { .. } | Next::End => Ok(None),
        }
    }

    fn put(&self, offset: u64, bytes: &[u8]) -> Result<(), ImageError> {
        for (part, content) in parts(offset, bytes) {
            let at = offset + part.start as u64;
            match content {
                Content::Data => {
                    self.sink.write(at, &bytes[part.clone()])?;
                    self.written.fetch_add(part.len() as u64, Ordering::Relaxed);
                }
                Content::Zeroes => self.zero(at, part.len() as u64)?,
            }
        }
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), ImageError> {
        self.sink.zero(offset, len)?;
        self.zeroes.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
#[path = "copy_tests.rs"]
mod tests;
