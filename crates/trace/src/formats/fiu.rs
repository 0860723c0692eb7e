//! FIU (R. Koller, R. Rangaswami: "I/O Deduplication", FAST 2010; SNIA IOTTA):
//! `ns pid process sector sectors R|W major minor md5`. A process name may have blanks in it.

use super::line::{Line, Raw};
use crate::disks::Disks;
use crate::error::Problem;
use crate::fields::{SECTOR, letter, scaled, whole, words, wrong_shape};

const SHAPE: &str = "ns pid process sector sectors R|W major minor md5";

/// Keeps the memory for names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fiu {
    name: Vec<u8>,
}

impl Fiu {
    pub(crate) fn line(&mut self, line: &[u8], disks: &mut Disks) -> Result<Line, Problem> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(Line::Other);
        }
        // From both ends, for the name in the middle may be any number of words.
        let at = words(line).next().unwrap_or_default();
        let mut last: [&[u8]; 6] = [b""; 6];
        let mut backwards = line.rsplit(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        for slot in last.iter_mut().rev() {
            *slot = backwards.next().ok_or_else(|| wrong_shape(line, SHAPE))?;
        }
        if backwards.nth(2).is_none() {
            return Err(wrong_shape(line, SHAPE));
        }
        let [sector, sectors, kind, major, minor, _hash] = last;
        self.name.clear();
        self.name.extend_from_slice(major);
        self.name.push(b':');
        self.name.extend_from_slice(minor);
        let raw = Raw {
            at: whole("the time", at)?,
            kind: letter(kind, "R or W")?,
            offset: scaled("the sector", sector, SECTOR)?,
            bytes: scaled("the number of sectors", sectors, SECTOR)?,
            disk: disks.intern(&self.name)?,
            latency: None,
        };
        raw.checked().map(Line::Request)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{mistake, parse};
    use crate::{Format, Kind};

    #[test]
    fn process_names_may_have_blanks() {
        let text = "1000 42 nfsd 8 8 W 6 0 0123456789abcdef0123456789abcdef\n\
                    2000 43 a b c 16 1 R 8 16 0123456789abcdef0123456789abcdef\n";
        let (all, disks) = parse(Format::Fiu, text).unwrap();
        assert_eq!(disks, ["6:0", "8:16"]);
        assert_eq!(
            (all[1].at, all[1].kind, all[1].offset, all[1].bytes),
            (2_000, Kind::Read, 8_192, 512)
        );
        assert!(mistake(Format::Fiu, "1000 42 8 8 W 6 0 0123").contains("expected ns pid process"));
    }
}
