//! Which format the first lines are in.

use crate::Format;
use crate::disks::Disks;
use crate::formats::vscsi::Version;
use crate::formats::{Line, LineParser, csv_us};
use crate::write::CSV_HEADER;

/// Lines that are looked at.
const LOOKED_AT: usize = 64;

/// The format of a trace that begins with `head`, `None` if it is none known.
///
/// A header that says so decides. Otherwise every format is tried on the first lines, and the one
/// that finds most requests among them wins, provided that it understands most of the lines.
pub(crate) fn detect(head: &[u8]) -> Option<Format> {
    // A last line that is cut by the end of the block says nothing.
    let whole_lines = head.iter().rposition(|&byte| byte == b'\n').map_or(head, |end| &head[..end]);
    let lines = || {
        whole_lines
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.trim_ascii().is_empty())
            .take(LOOKED_AT)
    };
    let first = lines().map(<[u8]>::trim_ascii).find(|line| !line.starts_with(b"#"))?;
    if first == CSV_HEADER.as_bytes() {
        return Some(Format::Csv);
    }
    if first == csv_us::HEADER {
        return Some(Format::CsvUs);
    }
    if Version::detect(head).is_some() {
        return Some(Format::Vscsi);
    }
    let mut best = None;
    for format in Format::ALL {
        // Without its header ours cannot be told from others.
        if format == Format::Csv {
            continue;
        }
        let Some(mut parser) = LineParser::new(format, head) else { continue };
        let mut disks = Disks::default();
        let (mut requests, mut mistakes) = (0, 0);
        for line in lines() {
            match parser.line(line, &mut disks) {
                Ok(Line::Request(_)) => requests += 1,
                Ok(Line::Other) => {}
                Err(_) => mistakes += 1,
            }
        }
        if requests > mistakes && best.is_none_or(|(most, _)| requests > most) {
            best = Some((requests, format));
        }
    }
    best.map(|(_, format)| format)
}
