//! Bytes of a trace, decompressed, by line or by record.

use flate2::read::MultiGzDecoder;
use std::io::{self, Chain, Cursor, Read};

/// Read at a time.
const BLOCK: usize = 256 << 10;
/// Longer lines are cut: the rest of such a line is thrown away.
pub(crate) const LONGEST_LINE: usize = 64 << 10;

type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

enum Input<R: Read> {
    Plain(Whole<R>),
    // Boxed, for the window of the decompressor lies in it.
    Gzip(Box<MultiGzDecoder<Whole<R>>>),
}

/// What a file begins with when something else than gzip packed it, and how to unpack it.
const PACKED: [(&[u8], &str, &str); 4] = [
    (b"\xfd7zXZ\0", "compressed with xz", "xz -dc FILE | headgate trace stat -"),
    (b"BZh", "compressed with bzip2", "bzip2 -dc FILE | headgate trace stat -"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "zstd -dc FILE | headgate trace stat -"),
    (b"PK\x03\x04", "a zip archive", "unzip -p FILE | headgate trace stat -"),
];
const GZIP: &[u8] = b"\x1f\x8b";
/// A tar archive says so here.
const TAR_AT: usize = 257;
const TAR: &[u8] = b"ustar";

/// Why there are no more bytes.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Compressed data make no sense.
    Damaged(String),
    /// The system refuses.
    Read(io::Error),
}

/// Something packed that is not unpacked here.
pub(crate) struct Packed {
    pub what: &'static str,
    pub unpack: &'static str,
}

pub(crate) struct Source<R: Read> {
    input: Input<R>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    ended: bool,
    /// Shows after the bytes that are waiting.
    damage: Option<String>,
}

impl<R: Read> Source<R> {
    /// Looks at the first bytes and sets up decompression.
    pub(crate) fn new(mut input: R) -> io::Result<Result<Source<R>, Packed>> {
        let mut magic = Vec::with_capacity(8);
        (&mut input).take(6).read_to_end(&mut magic)?;
        for (start, what, unpack) in PACKED {
            if magic.starts_with(start) {
                return Ok(Err(Packed { what, unpack }));
            }
        }
        let gzip = magic.starts_with(GZIP);
        let whole = Cursor::new(magic).chain(input);
        let input = if gzip {
            Input::Gzip(Box::new(MultiGzDecoder::new(whole)))
        } else {
            Input::Plain(whole)
        };
        Ok(Ok(Source {
            input,
            buffer: vec![0; BLOCK],
            start: 0,
            end: 0,
            ended: false,
            damage: None,
        }))
    }

    /// The first bytes that were not taken yet: a whole block unless the trace is shorter.
    pub(crate) fn head(&mut self) -> Result<&[u8], Failure> {
        self.fill(BLOCK)?;
        Ok(&self.buffer[self.start..self.end])
    }

    /// Damage that was met while looking ahead: reported again once all before it has been taken.
    pub(crate) fn remember(&mut self, damage: Option<String>) {
        self.damage = damage;
    }

    /// Does the trace begin as a tar archive does?
    pub(crate) fn is_tar(head: &[u8]) -> bool {
        head.get(TAR_AT..).is_some_and(|rest| rest.starts_with(TAR))
    }

    /// The next line without its end, `None` after the last.
    pub(crate) fn line(&mut self) -> Result<Option<&[u8]>, Failure> {
        let mut searched = 0;
        loop {
            let waiting = &self.buffer[self.start..self.end];
            if let Some(length) =
                memchr::memchr(b'\n', &waiting[searched..]).map(|at| at + searched)
            {
                let from = self.start;
                self.start += length + 1;
                return Ok(Some(&self.buffer[from..from + length.min(LONGEST_LINE)]));
            }
            searched = waiting.len();
            if self.ended {
                if let Some(why) = self.damage.take() {
                    // Without its end a line may be cut in the middle of a number.
                    self.start = self.end;
                    return Err(Failure::Damaged(why));
                }
                let from = self.start;
                self.start = self.end;
                return Ok(
                    (searched > 0).then(|| &self.buffer[from..from + searched.min(LONGEST_LINE)])
                );
            }
            if searched > LONGEST_LINE {
                // Keep the beginning, which is longer than any line may be, and drop what follows.
                self.end = self.start + LONGEST_LINE + 1;
                searched = LONGEST_LINE + 1;
            }
            self.fill(searched + 1)?;
        }
    }

    /// The next `length` bytes; fewer, and at last none, at the end.
    pub(crate) fn record(&mut self, length: usize) -> Result<&[u8], Failure> {
        self.fill(length)?;
        if self.end - self.start < length
            && let Some(why) = self.damage.take()
        {
            self.start = self.end;
            return Err(Failure::Damaged(why));
        }
        let from = self.start;
        self.start = (from + length).min(self.end);
        Ok(&self.buffer[from..self.start])
    }

    /// Has at least `wanted` bytes waiting, unless the trace ends before.
    fn fill(&mut self, wanted: usize) -> Result<(), Failure> {
        if self.end - self.start >= wanted || self.ended {
            return Ok(());
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        while self.end < wanted {
            let free = &mut self.buffer[self.end..];
            let (read, compressed) = match &mut self.input {
                Input::Plain(input) => (input.read(free), false),
                Input::Gzip(input) => (input.read(free), true),
            };
            match read {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(count) => self.end += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    // What came before the damage is still there.
                    self.ended = true;
                    return Err(Self::failure(e, compressed));
                }
            }
        }
        Ok(())
    }

    fn failure(error: io::Error, compressed: bool) -> Failure {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        match error.kind() {
            UnexpectedEof if compressed => {
                Failure::Damaged("the gzip stream ends in the middle".into())
            }
            InvalidData | InvalidInput if compressed => Failure::Damaged(format!("gzip: {error}")),
            _ => Failure::Read(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives a few bytes at a time, as a pipe may.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(into.len()).min(self.0.len());
            into[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn source<R: Read>(input: R) -> Source<R> {
        Source::new(input).unwrap().unwrap_or_else(|packed| panic!("{}", packed.what))
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_text_however_it_is_cut(
            lines in prop::collection::vec("[a-z\\r]{0,9}", 0..9),
            piece in 1usize..7,
        ) {
            let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let mut source = source(Trickle(text.as_bytes(), piece));
            let mut found = Vec::new();
            while let Some(line) = source.line().unwrap() {
                found.push(String::from_utf8(line.to_vec()).unwrap());
            }
            prop_assert_eq!(found, lines);
        }
    }

    #[test]
    fn a_line_without_end_is_cut_and_the_next_one_is_whole() {
        let mut text = vec![b'x'; 3 * BLOCK];
        text.extend_from_slice(b"\nnext\nlast");
        let mut source = source(Trickle(&text, 100_000));
        assert_eq!(source.line().unwrap().unwrap().len(), LONGEST_LINE);
        assert_eq!(source.line().unwrap(), Some(&b"next"[..]));
        assert_eq!(source.line().unwrap(), Some(&b"last"[..]));
        assert_eq!(source.line().unwrap(), None);
    }

    #[test]
    fn what_is_packed_otherwise_is_named() {
        let packed = Source::new(&b"\xfd7zXZ\0rest"[..]).unwrap().err().unwrap();
        assert_eq!(packed.what, "compressed with xz");
    }
}
