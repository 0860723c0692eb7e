//! DiskSim's ASCII (J. Bucy and others: "The DiskSim Simulation Environment", CMU-PDL-08-101,
//! 2008): `milliseconds device block blocks flags`, blocks of 512 bytes, flags in hexadecimal, bit
//! 0 set for reads.

use super::line::{Line, Raw};
use crate::disks::Disks;
use crate::error::Problem;
use crate::fields::{SECTOR, decimal, exact_words, scaled, wrong_shape};
use crate::record::Kind;

const READ: u64 = 1;

pub(crate) fn line(line: &[u8], disks: &mut Disks) -> Result<Line, Problem> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(Line::Other);
    }
    let Some([at, device, block, blocks, flags]) = exact_words(line) else {
        return Err(wrong_shape(line, "time device block blocks flags"));
    };
    let hex = flags.strip_prefix(b"0x").unwrap_or(flags);
    let parsed = std::str::from_utf8(hex).ok().filter(|text| !text.starts_with('+'));
    let bits = parsed
        .and_then(|text| u64::from_str_radix(text, 16).ok())
        .ok_or_else(|| Problem::new("flags", flags, "a hexadecimal number"))?;
    let raw = Raw {
        at: decimal("the time", at, 6)?,
        kind: if bits & READ != 0 { Kind::Read } else { Kind::Write },
        offset: scaled("the block", block, SECTOR)?,
        bytes: scaled("the number of blocks", blocks, SECTOR)?,
        disk: disks.intern(device)?,
        latency: None,
    };
    raw.checked().map(Line::Request)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{mistake, parse};
    use crate::{Format, Kind};

    #[test]
    fn bit_0_of_the_flags_says_read() {
        let (all, _) =
            parse(Format::Disksim, "0.000000 0 100 8 1\n12.5\t0  200 16 0\n13 1 0 1 8b\n").unwrap();
        assert_eq!(
            all.iter().map(|raw| raw.kind).collect::<Vec<_>>(),
            [Kind::Read, Kind::Write, Kind::Read]
        );
        assert_eq!((all[1].at, all[1].offset, all[1].bytes), (12_500_000, 102_400, 8_192));
        assert!(mistake(Format::Disksim, "0.0 0 100 8").contains("expected time device block"));
        assert!(mistake(Format::Disksim, "0.0 0 100 8 read").contains("flags is 'read'"));
        assert!(mistake(Format::Disksim, "0.0 0 -100 8 0").contains("the block is '-100'"));
    }
}
