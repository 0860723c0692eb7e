//! Tencent cloud block storage (Y. Zhang and others: "OSCA", USENIX ATC 2020; SNIA IOTTA):
//! `timestamp,offset,size,type,volume`: whole seconds, sectors of 512 bytes, 0 for reads and 1 for
//! writes.

use super::line::{Line, Raw};
use crate::disks::Disks;
use crate::error::Problem;
use crate::fields::{SECTOR, commas, scaled, wrong_shape};
use crate::record::Kind;

const SECOND: u64 = 1_000_000_000;

pub(crate) fn line(line: &[u8], disks: &mut Disks) -> Result<Line, Problem> {
    let line = line.trim_ascii();
    if line.is_empty() || line.eq_ignore_ascii_case(b"timestamp,offset,size,iotype,volumeid") {
        return Ok(Line::Other);
    }
    let Some([at, offset, size, kind, volume]) = commas(line) else {
        return Err(wrong_shape(line, "timestamp,offset,size,type,volume"));
    };
    let kind = match kind {
        b"0" => Kind::Read,
        b"1" => Kind::Write,
        kind => return Err(Problem::new("the type", kind, "0 for a read or 1 for a write")),
    };
    let raw = Raw {
        at: scaled("the timestamp", at, SECOND)?,
        kind,
        offset: scaled("the offset", offset, SECTOR)?,
        bytes: scaled("the size", size, SECTOR)?,
        disk: disks.intern(volume)?,
        latency: None,
    };
    raw.checked().map(Line::Request)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{mistake, parse};
    use crate::{Format, Kind};

    #[test]
    fn sectors_become_bytes() {
        let (all, disks) =
            parse(Format::Tencent, "1530000000,8,128,1,77\n1529999999,0,1,0,78\n").unwrap();
        assert_eq!(disks, ["77", "78"]);
        assert_eq!((all[0].kind, all[0].offset, all[0].bytes), (Kind::Write, 4_096, 65_536));
        assert!(mistake(Format::Tencent, "1,8,1,2,77").contains("the type is '2'"));
        assert!(
            mistake(Format::Tencent, "1,18446744073709551615,1,0,77")
                .contains("from 0 to 36028797018963967")
        );
    }
}
