//! Exports as sources and sinks.

use crate::content::{Content, Run, Sink, Source};
use crate::error::ImageError;
use crate::link::Link;
use headgate_nbd::wire::export;
use headgate_units::Bytes;

/// What an export holds.
#[derive(Debug)]
pub struct NbdSource<'a>(&'a Link);

impl<'a> NbdSource<'a> {
    /// The export of a connection.
    pub fn new(link: &'a Link) -> NbdSource<'a> {
        NbdSource(link)
    }
}

impl Source for NbdSource<'_> {
    fn size(&self) -> Bytes {
        Bytes(self.0.info().size)
    }

    fn granule(&self) -> u64 {
        self.0.info().min_block.unwrap_or(1).max(1).into()
    }

    fn status(&self, offset: u64, len: u64) -> Result<Vec<Run>, ImageError> {
        self.0.status(offset, len)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        self.0.read(offset, into)
    }
}

/// What an export is to hold. Nobody else writes it meanwhile.
#[derive(Debug)]
pub struct NbdSink<'a> {
    link: &'a Link,
    before: Before,
}

/// What an export held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Zeroes: what shall be zero is so.
    Zeroes,
    /// Something.
    Data,
}

impl<'a> NbdSink<'a> {
    /// The export of a connection. Asks the server whether it holds anything: if not, zeroes cost
    /// no request.
    ///
    /// # Errors
    /// The export cannot be written or flushed, or the server fails.
    pub fn new(link: &'a Link) -> Result<NbdSink<'a>, ImageError> {
        let needs = [
            (export::SEND_FLUSH, "flushes"),
            (export::SEND_WRITE_ZEROES, "zeroes that are not written out"),
        ];
        let info = link.info();
        let lacks = if info.is_read_only() { Some("writes") } else { info.missing(&needs) };
        if let Some(lacks) = lacks {
            let why = format!("the export takes no {lacks}");
            return Err(ImageError::Nbd { server: "the disk".into(), why });
        }
        let mut at = 0;
        while at < info.size {
            let runs = link.status(at, info.size - at)?;
            if runs.is_empty() || runs.iter().any(|run| run.content == Content::Data) {
                return Ok(NbdSink { link, before: Before::Data });
            }
            for run in runs {
                if run.len == 0 {
                    return Err(ImageError::BadRun(0));
                }
                at += run.len;
            }
        }
        Ok(NbdSink { link, before: Before::Zeroes })
    }
}

impl Sink for NbdSink<'_> {
    fn size(&self) -> Bytes {
        Bytes(self.link.info().size)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), ImageError> {
        self.link.write(offset, bytes)
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), ImageError> {
        match self.before {
            Before::Zeroes => Ok(()),
            Before::Data => self.link.zero(offset, u32::try_from(len).unwrap_or(u32::MAX)),
        }
    }

    fn flush(&self) -> Result<(), ImageError> {
        self.link.flush()
    }
}
