//! What `blkparse` prints by default: `major,minor cpu sequence seconds pid action rwbs sector +
//! sectors [process]`.
//!
//! A request shows up several times on its way down. One action stands for it: Q (queued) where the
//! first lines have any, else D (issued to the driver), else C (completed). Messages, plugging and
//! the summary at the end are no requests.

use super::line::{Line, Raw};
use crate::disks::Disks;
use crate::error::Problem;
use crate::fields::{SECTOR, decimal, scaled, words, wrong_shape};
use crate::record::Kind;

const SHAPE: &str = "major,minor cpu sequence seconds pid action rwbs sector + sectors [process]";
/// The actions that may stand for a request, the preferred first.
const STAND_FOR_REQUESTS: [&[u8]; 3] = [b"Q", b"D", b"C"];

/// Which action counts, and whether the summary has begun.
#[derive(Clone, Debug)]
pub(crate) struct Blkparse {
    counts: &'static [u8],
    part: Part,
    name: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Events,
    Summary,
}

impl Blkparse {
    pub(crate) fn new(head: &[u8]) -> Blkparse {
        let has = |action: &[u8]| {
            head.split(|&byte| byte == b'\n')
                .filter(|line| is_event(line))
                .any(|line| words(line).nth(5) == Some(action))
        };
        let counts = STAND_FOR_REQUESTS
            .into_iter()
            .find(|action| has(action))
            .unwrap_or(STAND_FOR_REQUESTS[0]);
        Blkparse { counts, part: Part::Events, name: Vec::new() }
    }

    pub(crate) fn line(&mut self, line: &[u8], disks: &mut Disks) -> Result<Line, Problem> {
        if self.part == Part::Summary {
            return Ok(Line::Other);
        }
        let mut all = words(line);
        let Some(device) = all.next() else { return Ok(Line::Other) };
        let Some((major, minor)) = device_of(device) else {
            if device.starts_with(b"CPU") || device.starts_with(b"Total") {
                self.part = Part::Summary;
                return Ok(Line::Other);
            }
            // `Input file sda.blktrace.0 added`
            let preamble = matches!(device, b"Input" | b"blkparse:" | b"blktrace:");
            return if preamble { Ok(Line::Other) } else { Err(wrong_shape(line, SHAPE)) };
        };
        let mut next = || all.next().ok_or_else(|| wrong_shape(line, SHAPE));
        let (_cpu, _sequence, at, _pid, action) = (next()?, next()?, next()?, next()?, next()?);
        if action != self.counts {
            return Ok(Line::Other);
        }
        let rwbs = next()?;
        let Some(kind) = kind_of(rwbs) else { return Ok(Line::Other) };
        let at = decimal("the time", at, 9)?;
        self.name.clear();
        self.name.extend_from_slice(major);
        self.name.push(b':');
        self.name.extend_from_slice(minor);
        let disk = disks.intern(&self.name)?;
        let (offset, bytes) = match (all.next(), all.next(), all.next()) {
            (Some(sector), Some(b"+"), Some(sectors)) => (
                scaled("the sector", sector, SECTOR)?,
                scaled("the number of sectors", sectors, SECTOR)?,
            ),
            _ if kind == Kind::Flush => (0, 0),
            _ => return Err(wrong_shape(line, SHAPE)),
        };
        // A flush before a write is part of the write; one without data is a flush.
        let kind = if kind == Kind::Flush && bytes > 0 { Kind::Write } else { kind };
        Raw { at, kind, offset, bytes, disk, latency: None }.checked().map(Line::Request)
    }
}

fn is_event(line: &[u8]) -> bool {
    words(line).next().and_then(device_of).is_some()
}

/// `8,16`.
fn device_of(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let comma = word.iter().position(|&byte| byte == b',')?;
    let (major, minor) = (&word[..comma], &word[comma + 1..]);
    let number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    (number(major) && number(minor)).then_some((major, minor))
}

/// What the letters stand for: `F` in front flushes first, `F` behind is forced unit access, `S`
/// synchronous, `A` ahead, `M` metadata.
fn kind_of(rwbs: &[u8]) -> Option<Kind> {
    let (flush, rest) = match rwbs {
        [b'F', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    match rest.first() {
        Some(b'R') => Some(Kind::Read),
        Some(b'D') => Some(Kind::Discard),
        Some(b'W') if !flush => Some(Kind::Write),
        _ if flush => Some(Kind::Flush),
        // `N`: none of these.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{mistake, parse};
    use crate::{Format, Kind};

    const TEXT: &str = "\
  8,0    1        1     0.000000000   697  Q   W 1000 + 8 [kjournald]
  8,0    1        2     0.000001829   697  G   W 1000 + 8 [kjournald]
  8,0    1        3     0.000002000   697  P   N [kjournald]
  8,0    1        4     0.000005000   697  D   W 1000 + 8 [kjournald]
  8,16   0        1     0.000200000   700  Q  RA 2048 + 256 [cat]
  8,0    0        2     0.000250000   701  Q FWS [fsync]
  8,0    0        3     0.000260000   701  Q FWFS 4096 + 8 [fsync]
  8,0    0        4     0.000270000   701  Q  DS 0 + 2048 [fstrim]
  8,0    1        5     0.009000000     0  C   W 1000 + 8 [0]
  8,0    1        0     0.010000000     0  m   N cfq workload slice:100
CPU0 (8,0):
 Reads Queued:           1,      128KiB  Writes Queued:           2,        8KiB
Total (8,0):
 Throughput (R/W): 1KiB/s / 2KiB/s
";

    #[test]
    fn each_request_counts_once() {
        let (all, disks) = parse(Format::Blkparse, TEXT).unwrap();
        assert_eq!(disks, ["8:0", "8:16"]);
        let kinds: Vec<_> = all.iter().map(|raw| raw.kind).collect();
        assert_eq!(kinds, [Kind::Write, Kind::Read, Kind::Flush, Kind::Write, Kind::Discard]);
        assert_eq!((all[1].at, all[1].offset, all[1].bytes), (200_000, 1 << 20, 128 << 10));
    }

    #[test]
    fn issues_stand_for_requests_where_nothing_was_queued() {
        let issued: String = TEXT
            .lines()
            .filter(|line| !line.contains(" Q "))
            .map(|line| format!("{line}\n"))
            .collect();
        let (all, _) = parse(Format::Blkparse, &issued).unwrap();
        assert_eq!(all.iter().map(|raw| raw.at).collect::<Vec<_>>(), [5_000]);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(mistake(Format::Blkparse, "hello world").contains("expected major,minor cpu"));
        assert!(
            mistake(Format::Blkparse, "8,0 1 1 -0.5 697 Q W 1000 + 8 [x]")
                .contains("the time is '-0.5'")
        );
        assert!(
            mistake(Format::Blkparse, "8,0 1 1 0.5 697 Q W 1000 8 [x]")
                .contains("expected major,minor cpu")
        );
    }
}
