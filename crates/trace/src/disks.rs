use crate::error::Problem;
use std::collections::BTreeMap;

/// A disk of a trace: a small number that stands for its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(u16);

impl DiskId {
    /// The first disk of a trace.
    pub const FIRST: DiskId = DiskId(0);

    /// 0 for the first disk that the trace names, 1 for the second, and so on.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Longer names are errors.
const LONGEST_NAME: usize = 64;
/// More disks than any host has; a bound on memory when a damaged file makes every line a disk of
/// its own.
const MOST_DISKS: usize = 1 << 16;

/// The disks of a trace and their names, in the order in which the trace names them.
#[derive(Clone, Debug, Default)]
pub struct Disks {
    names: Vec<String>,
    ids: BTreeMap<Box<[u8]>, DiskId>,
    /// Most traces name the same disk again.
    last: Option<DiskId>,
}

impl Disks {
    /// A disk's name: 1 to 64 printable characters without commas.
    pub fn name(&self, disk: DiskId) -> &str {
        self.names.get(disk.index()).map_or("?", String::as_str)
    }

    /// How many disks were named so far.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// No disk was named so far.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All names, in the order of their ids.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The id of `name`, a new one if it was not seen before. O(1) for
    /// the disk of the record before, else O(log n) in the number of disks.
    pub(crate) fn intern(&mut self, name: &[u8]) -> Result<DiskId, Problem> {
        if let Some(last) = self.last
            && self.names[last.index()].as_bytes() == name
        {
            return Ok(last);
        }
        let id = match self.ids.get(name) {
            Some(&id) => id,
            None => self.add(name)?,
        };
        self.last = Some(id);
        Ok(id)
    }

    #[cold]
    fn add(&mut self, name: &[u8]) -> Result<DiskId, Problem> {
        let wrong = || Problem::new("disk", name, "1 to 64 printable characters without commas");
        let text = std::str::from_utf8(name).map_err(|_| wrong())?;
        // Names are printed: nothing in them may speak to the terminal.
        let printable = text.chars().all(|c| !c.is_control() && c != ',');
        if text.is_empty() || text.len() > LONGEST_NAME || !printable {
            return Err(wrong());
        }
        let id = u16::try_from(self.names.len()).map_err(|_| {
            Problem::new("disk", name, format!("at most {MOST_DISKS} disks in a trace"))
        })?;
        self.names.push(text.to_owned());
        self.ids.insert(name.into(), DiskId(id));
        Ok(DiskId(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_ids() {
        let mut disks = Disks::default();
        let ids =
            ["a", "b", "a", "a", "b"].map(|name| disks.intern(name.as_bytes()).unwrap().index());
        assert_eq!(ids, [0, 1, 0, 0, 1]);
        assert_eq!(disks.names().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn names_that_cannot_be_printed_and_too_many_of_them_are_refused() {
        let mut disks = Disks::default();
        for name in [&b""[..], b"\x1b[2J", b"a,b", b"\xff\xfe", &[b'x'; 65]] {
            assert!(disks.intern(name).is_err(), "{name:?}");
        }
        for i in 0..MOST_DISKS {
            disks.intern(i.to_string().as_bytes()).unwrap();
        }
        assert!(disks.intern(b"one more").is_err());
        assert!(disks.intern(b"17").is_ok());
    }
}
