//! One module for each format: from a line, or a record, to a request.

pub(crate) mod blkparse;
pub(crate) mod csv;
pub(crate) mod csv_us;
pub(crate) mod disksim;
pub(crate) mod fiu;
pub(crate) mod msr;
pub(crate) mod systor;
pub(crate) mod tencent;
pub(crate) mod vscsi;

use crate::Format;
use crate::disks::{DiskId, Disks};
use crate::error::Problem;
use crate::record::Kind;
use headgate_units::Nanos;

/// A request with the time as the trace has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raw {
    /// Nanoseconds after the format's own origin.
    pub at: u64,
    pub kind: Kind,
    pub offset: u64,
    pub bytes: u64,
    pub disk: DiskId,
    pub latency: Option<Nanos>,
}

impl Raw {
    /// Checks the range.
    fn checked(self) -> Result<Raw, Problem> {
        if self.kind == Kind::Flush {
            return Ok(Raw { offset: 0, bytes: 0, ..self });
        }
        if self.bytes == 0 {
            return Err(Problem::new("the length", b"0", "at least one byte"));
        }
        if self.offset.checked_add(self.bytes).is_none() {
            let range = format!("{} + {}", self.offset, self.bytes);
            return Err(Problem::new("offset + length", range.as_bytes(), "at most 2^64 - 1"));
        }
        Ok(self)
    }
}

/// What a line is, if it is not wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A request.
    Request(Raw),
    /// A header, a comment, an event that is not a request.
    Other,
}

/// Knows one text format. Some remember what came before.
#[derive(Clone, Debug)]
pub(crate) enum LineParser {
    Csv(csv::Csv),
    CsvUs,
    Msr(msr::Msr),
    Systor,
    Blkparse(blkparse::Blkparse),
    Disksim,
    Fiu(fiu::Fiu),
    Tencent,
}

impl LineParser {
    /// For `format`, `None` if it is not a text. `head` are the first bytes of the trace.
    pub(crate) fn new(format: Format, head: &[u8]) -> Option<LineParser> {
        Some(match format {
            Format::Csv => LineParser::Csv(csv::Csv::default()),
            Format::CsvUs => LineParser::CsvUs,
            Format::Msr => LineParser::Msr(msr::Msr::default()),
            Format::Systor => LineParser::Systor,
            Format::Blkparse => LineParser::Blkparse(blkparse::Blkparse::new(head)),
            Format::Disksim => LineParser::Disksim,
            Format::Fiu => LineParser::Fiu(fiu::Fiu::default()),
            Format::Tencent => LineParser::Tencent,
            Format::Vscsi => return None,
        })
    }

    /// Takes the next line, without its end.
    #[inline]
    pub(crate) fn line(&mut self, line: &[u8], disks: &mut Disks) -> Result<Line, Problem> {
        match self {
            LineParser::Csv(csv) => csv.line(line, disks),
            LineParser::CsvUs => csv_us::line(line, disks),
            LineParser::Msr(msr) => msr.line(line, disks),
            LineParser::Systor => systor::line(line, disks),
            LineParser::Blkparse(blkparse) => blkparse.line(line, disks),
            LineParser::Disksim => disksim::line(line, disks),
            LineParser::Fiu(fiu) => fiu.line(line, disks),
            LineParser::Tencent => tencent::line(line, disks),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// The requests of some lines, or the first mistake.
    pub(crate) fn parse(format: Format, text: &str) -> Result<(Vec<Raw>, Vec<String>), String> {
        let mut parser = LineParser::new(format, text.as_bytes()).unwrap();
        let mut disks = Disks::default();
        let mut all = Vec::new();
        for line in text.lines() {
            if let Line::Request(raw) = parser.line(line.as_bytes(), &mut disks).map_err(|e| e.to_string())? {
                all.push(raw);
            }
        }
        Ok((all, disks.names().map(str::to_owned).collect()))
    }

    /// What is wrong with a line.
    pub(crate) fn mistake(format: Format, line: &str) -> String {
        parse(format, line).unwrap_err()
    }
}
