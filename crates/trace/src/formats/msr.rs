//! MSR Cambridge (D. Narayanan, A. Donnelly, A. Rowstron: "Write Off-Loading", FAST 2008; SNIA
//! IOTTA): `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, times in steps of 100 ns,
//! the first since 1601.

use super::line::{Line, Raw};
use crate::disks::Disks;
use crate::error::Problem;
use crate::fields::{commas, scaled, whole, wrong_shape};
use crate::record::Kind;
use headgate_units::Nanos;

/// Nanoseconds in a step of Windows' clock.
const STEP: u64 = 100;

/// Keeps the memory for names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Msr {
    name: Vec<u8>,
}

impl Msr {
    pub(crate) fn line(&mut self, line: &[u8], disks: &mut Disks) -> Result<Line, Problem> {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"Timestamp,Hostname") {
            return Ok(Line::Other);
        }
        let Some([at, host, number, kind, offset, bytes, response]) = commas(line) else {
            return Err(wrong_shape(
                line,
                "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
            ));
        };
        let kind = match kind {
            kind if kind.eq_ignore_ascii_case(b"Read") => Kind::Read,
            kind if kind.eq_ignore_ascii_case(b"Write") => Kind::Write,
            kind => return Err(Problem::new("the type", kind, "Read or Write")),
        };
        // The volumes are known as hm_0, prxy_1 and so on.
        self.name.clear();
        self.name.extend_from_slice(host);
        self.name.push(b'_');
        self.name.extend_from_slice(number);
        let raw = Raw {
            at: scaled("the timestamp", at, STEP)?,
            kind,
            offset: whole("the offset", offset)?,
            bytes: whole("the size", bytes)?,
            disk: disks.intern(&self.name)?,
            latency: Some(Nanos(scaled("the response time", response, STEP)?)),
        };
        raw.checked().map(Line::Request)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{mistake, parse};
    use crate::{Format, Kind};
    use headgate_units::Nanos;

    #[test]
    fn hosts_and_disks_make_volumes() {
        let text = "128166372000000000,web,0,Write,4096,2048,2833\n128166372000000005,web,1,Read,0,512,10\n";
        let (all, disks) = parse(Format::Msr, text).unwrap();
        assert_eq!(disks, ["web_0", "web_1"]);
        assert_eq!(all[1].at - all[0].at, 500);
        assert_eq!((all[0].kind, all[0].latency), (Kind::Write, Some(Nanos(283_300))));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, what) in [
            (
                "128166372000000000,web,0,Trim,4096,2048,1",
                "the type is 'Trim', expected Read or Write",
            ),
            ("999999999999999999,web,0,Read,4096,2048,1", "the timestamp is '999999999999999999'"),
            ("1,web,0,Read,4096,2048", "expected Timestamp,Hostname"),
            ("1,web,0,Read,4096,2048,-1", "the response time is '-1'"),
        ] {
            assert!(mistake(Format::Msr, line).contains(what), "{line}");
        }
    }
}
