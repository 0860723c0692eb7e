//! Our own: `at_ns,disk,op,offset,bytes,latency_ns` with that header in the first line.

use super::line::{Line, Raw};
use crate::disks::Disks;
use crate::error::Problem;
use crate::fields::{commas, letter, whole, wrong_shape};
use crate::write::CSV_HEADER;
use headgate_units::Nanos;

/// Wants the header first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Csv {
    state: Header,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Header {
    #[default]
    Expected,
    Seen,
}

impl Csv {
    pub(crate) fn line(&mut self, line: &[u8], disks: &mut Disks) -> Result<Line, Problem> {
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'#' {
            return Ok(Line::Other);
        }
        if self.state == Header::Expected {
            self.state = Header::Seen;
            if line == CSV_HEADER.as_bytes() {
                return Ok(Line::Other);
            }
            return Err(wrong_shape(line, "the header at_ns,disk,op,offset,bytes,latency_ns"));
        }
        let Some([at, disk, op, offset, bytes, latency]) = commas(line) else {
            return Err(wrong_shape(line, "at_ns,disk,op,offset,bytes,latency_ns"));
        };
        let latency = match latency {
            b"" => None,
            latency => Some(Nanos(whole("latency_ns", latency)?)),
        };
        let raw = Raw {
            at: whole("at_ns", at)?,
            kind: letter(op, "R, W, F or D")?,
            offset: whole("offset", offset)?,
            bytes: whole("bytes", bytes)?,
            disk: disks.intern(disk)?,
            latency,
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
    fn all_kinds_with_and_without_latency() {
        let text = "# made by hand\nat_ns,disk,op,offset,bytes,latency_ns\n0,vda,R,4096,512,250\n7,vdb,W,0,1,\n\
                    8,vda,F,0,0,\n9,vda,D,0,1048576,3\n";
        let (all, disks) = parse(Format::Csv, text).unwrap();
        assert_eq!(disks, ["vda", "vdb"]);
        assert_eq!(all.iter().map(|raw| raw.at).collect::<Vec<_>>(), [0, 7, 8, 9]);
        assert_eq!(all[0].latency, Some(Nanos(250)));
        assert_eq!(all[1].latency, None);
        assert_eq!((all[2].kind, all[3].kind), (Kind::Flush, Kind::Discard));
    }

    #[test]
    fn mistakes_are_named() {
        let header = "at_ns,disk,op,offset,bytes,latency_ns";
        assert!(
            mistake(Format::Csv, "0,vda,R,4096,512,").contains("expected the header at_ns,disk")
        );
        for (line, what) in [
            ("0,vda,R,4096,512", "the line is '0,vda,R,4096,512', expected at_ns"),
            ("-1,vda,R,4096,512,", "at_ns is '-1', expected a whole number"),
            ("0,vda,X,4096,512,", "the operation is 'X', expected R, W, F or D"),
            ("0,vda,R,4096,0,", "the length is '0', expected at least one byte"),
            ("0,vda,R,18446744073709551615,1,", "offset + length is '18446744073709551615 + 1'"),
            ("0,,R,0,1,", "disk is '', expected 1 to 64 printable characters"),
        ] {
            let said = mistake(Format::Csv, &format!("{header}\n{line}"));
            assert!(said.contains(what), "{said}");
        }
    }
}
