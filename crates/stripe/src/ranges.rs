use core::cmp::Ordering;
use core::iter::FusedIterator;
use core::ops::Range;
use headgate_units::Bytes;

/// Where a member's data begins in its export: behind the label, and at a multiple of any alignment
/// that storage asks for.
pub const DATA_AT: Bytes = Bytes::from_mib(1);

/// What one member has of a range of the disk: never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The index of the member, from 0.
    pub member: u16,
    /// Where it begins in the export, in bytes.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
}

/// Bytes that follow each other on the disk and in one export: never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The index of the member, from 0.
    pub member: u16,
    /// How many bytes behind the beginning of the range it begins.
    pub at: u64,
    /// Its bytes: a unit at most.
    pub len: u64,
}

/// An offset of the disk.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Which of its member's units it is in.
    row: u64,
    member: u16,
    /// Bytes behind the beginning of the unit.
    within: u64,
}

impl Place {
    fn of(offset: u64, unit: Bytes, members: u16) -> Place {
        let (strip, members) = (offset / unit.0, u64::from(members));
        Place { row: strip / members, member: (strip % members) as u16, within: offset % unit.0 }
    }

    /// How many of the bytes before it are on a member.
    fn before(self, member: u16, unit: Bytes) -> u64 {
        let of_row = match member.cmp(&self.member) {
            Ordering::Less => unit.0,
            Ordering::Equal => self.within,
            Ordering::Greater => 0,
        };
        self.row * unit.0 + of_row
    }
}

/// The parts of a range by member ([`Layout::parts`](crate::Layout::parts)).
#[derive(Clone, Debug)]
pub struct Parts {
    unit: Bytes,
    begin: Place,
    end: Place,
    members: Range<u16>,
}

impl Parts {
    pub(crate) fn new(unit: Bytes, members: u16, range: Range<u64>) -> Parts {
        let begin = Place::of(range.start, unit, members);
        let end = Place::of(range.end, unit, members);
        // Most requests are short, and only these members have any of one.
        let touched = if begin.row == end.row { begin.member..end.member + 1 } else { 0..members };
        Parts { unit, begin, end, members: touched }
    }
}

impl Iterator for Parts {
    type Item = Part;
    fn next(&mut self) -> Option<Part> {
        self.members.find_map(|member| {
            let from = self.begin.before(member, self.unit);
            let len = self.end.before(member, self.unit) - from;
            (len > 0).then_some(Part { member, offset: DATA_AT.0 + from, len })
        })
    }
}

impl FusedIterator for Parts {}

/// The runs of a range in the order of the disk ([`Layout::runs`](crate::Layout::runs)).
#[derive(Clone, Debug)]
pub struct Runs {
    unit: Bytes,
    members: u16,
    /// The member of the next run.
    member: u16,
    /// What is left of its unit.
    room: u64,
    /// Where it begins in the range, and where that ends.
    at: u64,
    len: u64,
}

impl Runs {
    pub(crate) fn new(unit: Bytes, members: u16, range: Range<u64>) -> Runs {
        let begin = Place::of(range.start, unit, members);
        let (room, len) = (unit.0 - begin.within, range.end - range.start);
        Runs { unit, members, member: begin.member, room, at: 0, len }
    }
}

impl Iterator for Runs {
    type Item = Run;
    fn next(&mut self) -> Option<Run> {
        let len = self.room.min(self.len - self.at);
        if len == 0 {
            return None;
        }
        let run = Run { member: self.member, at: self.at, len };
        self.at += len;
        self.room = self.unit.0;
        self.member = if self.member + 1 == self.members { 0 } else { self.member + 1 };
        Some(run)
    }
}

impl FusedIterator for Runs {}
