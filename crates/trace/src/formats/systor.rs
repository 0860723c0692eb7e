//! SYSTOR '17 (C. Lee and others: "Understanding storage traffic characteristics on enterprise
//! virtual desktop infrastructure", SYSTOR 2017; SNIA IOTTA):
//! `Timestamp,Response,IOType,LUN,Offset,Size`, seconds and bytes.
//!
//! The timestamp is that of the issue, while lines are in the order of completion. The response is
//! missing from some lines.

use super::line::{Line, Raw};
use crate::disks::Disks;
use crate::error::Problem;
use crate::fields::{commas, decimal, letter, whole, wrong_shape};
use headgate_units::Nanos;

pub(crate) fn line(line: &[u8], disks: &mut Disks) -> Result<Line, Problem> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"Timestamp,Response") {
        return Ok(Line::Other);
    }
    let Some([at, response, kind, lun, offset, size]) = commas(line) else {
        return Err(wrong_shape(line, "Timestamp,Response,IOType,LUN,Offset,Size"));
    };
    let latency = match response {
        b"" => None,
        response => Some(Nanos(decimal("the response", response, 9)?)),
    };
    let raw = Raw {
        at: decimal("the timestamp", at, 9)?,
        kind: letter(kind, "R or W")?,
        offset: whole("the offset", offset)?,
        bytes: whole("the size", size)?,
        disk: disks.intern(lun)?,
        latency,
    };
    raw.checked().map(Line::Request)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{mistake, parse};
    use crate::Format;
    use headgate_units::Nanos;

    #[test]
    fn responses_may_be_missing() {
        let text = "Timestamp,Response,IOType,LUN,Offset,Size\n1400000000.500000000,0.000806000,R,3,4096,131072\n\
                    1400000000.250000000,,W,3,0,512\n";
        let (all, disks) = parse(Format::Systor, text).unwrap();
        assert_eq!(disks, ["3"]);
        assert_eq!(all[0].latency, Some(Nanos(806_000)));
        assert_eq!(all[1].latency, None);
        assert_eq!(all[0].at - all[1].at, 250_000_000);
        assert!(mistake(Format::Systor, "1.0,0.1,,3,0,512").contains("the operation is ''"));
    }
}
