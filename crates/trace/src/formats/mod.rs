//! One module for each format: from a line, or a record, to a request.

pub(crate) mod blkparse;
pub(crate) mod csv;
pub(crate) mod csv_us;
pub(crate) mod disksim;
pub(crate) mod fiu;
mod line;
pub(crate) mod msr;
pub(crate) mod systor;
pub(crate) mod tencent;
pub(crate) mod vscsi;

pub(crate) use line::{Line, Raw};

use crate::Format;
use crate::disks::Disks;
use crate::error::Problem;

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
            if let Line::Request(raw) =
                parser.line(line.as_bytes(), &mut disks).map_err(|e| e.to_string())?
            {
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
