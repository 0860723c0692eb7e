//! `ts_us,dev,op,offset,len`: decimal microseconds, R or W, bytes. The header is optional.

use super::line::{Line, Raw};
use crate::disks::Disks;
use crate::error::Problem;
use crate::fields::{commas, decimal, letter, whole, wrong_shape};

pub(crate) const HEADER: &[u8] = b"ts_us,dev,op,offset,len";

pub(crate) fn line(line: &[u8], disks: &mut Disks) -> Result<Line, Problem> {
    let line = line.trim_ascii();
    if line.is_empty() || line == HEADER {
        return Ok(Line::Other);
    }
    let Some([at, dev, op, offset, len]) = commas(line) else {
        return Err(wrong_shape(line, "ts_us,dev,op,offset,len"));
    };
    let raw = Raw {
        at: decimal("ts_us", at, 3)?,
        kind: letter(op, "R or W")?,
        offset: whole("offset", offset)?,
        bytes: whole("len", len)?,
        disk: disks.intern(dev)?,
        latency: None,
    };
    raw.checked().map(Line::Request)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{mistake, parse};
    use crate::{Format, Kind};

    #[test]
    fn fractions_of_microseconds_count() {
        let (all, disks) =
            parse(Format::CsvUs, "ts_us,dev,op,offset,len\n0.0,6:0,W,512,512\n46.1,6:0,R,0,4096\n")
                .unwrap();
        assert_eq!(disks, ["6:0"]);
        assert_eq!((all[1].at, all[1].kind, all[1].bytes), (46_100, Kind::Read, 4_096));
        assert!(mistake(Format::CsvUs, "-3.5,0,R,0,512").contains("ts_us is '-3.5'"));
        assert!(mistake(Format::CsvUs, "0.0,0,F,0,0").contains("expected R or W"));
    }
}
