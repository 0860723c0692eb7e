//! Which files there are: so many, and none of them longer, that all together stay within a bound.

use crate::Stream;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// The least that all files together may have, in bytes.
pub const SIZE_MIN: u64 = 1 << 20;

/// The longest a file grows, in bytes.
const SEGMENT_MAX: u64 = 4 << 20;

/// Files that a stream has, when it has taken all its space.
const SEGMENTS: u64 = 4;

/// No line is longer, in bytes. A file has room for one.
#[cfg(test)]
pub(crate) const LINE_MAX: usize = 40_000;

/// A file of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// Whose.
    pub stream: Stream,
    /// The number of the first event in it.
    pub first: u64,
}

/// Prints as its file's name: `changes-00000000000000000042.log`.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:020}.log", self.stream.as_str(), self.first)
    }
}

impl Segment {
    /// By its file's name; `None`: that is another's.
    pub fn named(name: &str) -> Option<Segment> {
        let (stream, first) = name.strip_suffix(".log")?.split_once('-')?;
        let stream = Stream::ALL.into_iter().find(|one| one.as_str() == stream)?;
        let segment = Segment { stream, first: first.parse().ok()? };
        (segment.to_string() == name).then_some(segment)
    }
}

/// Where a line goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The file, which is new if the line's number is its first.
    pub segment: Segment,
    /// To be removed before.
    pub remove: Vec<Segment>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    first: u64,
    bytes: u64,
}

/// All files.
#[derive(Clone, Debug)]
pub struct Shelf {
    /// The most that one stream may have.
    share: u64,
    segment: u64,
    held: BTreeMap<Stream, VecDeque<Held>>,
}

impl Shelf {
    /// An empty one for so many bytes, at least [`SIZE_MIN`].
    pub fn new(size: u64) -> Shelf {
        let share = size.max(SIZE_MIN) / Stream::ALL.len() as u64;
        let segment = (share / SEGMENTS).min(SEGMENT_MAX);
        Shelf { share, segment, held: BTreeMap::new() }
    }

    /// A file that is there already. They are told in the order of their numbers.
    pub fn found(&mut self, segment: Segment, bytes: u64) {
        let held = Held { first: segment.first, bytes };
        self.held.entry(segment.stream).or_default().push_back(held);
    }

    /// The files of a stream, the oldest first, with their bytes.
    pub fn of(&self, stream: Stream) -> impl Iterator<Item = (Segment, u64)> {
        let held = self.held.get(&stream).into_iter().flatten();
        held.map(move |one| (Segment { stream, first: one.first }, one.bytes))
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.held.values().flatten().map(|one| one.bytes).sum()
    }

    /// Takes a line of so many bytes in, for an event with this number.
    pub fn place(&mut self, stream: Stream, id: u64, bytes: u64) -> Placement {
        let (share, segment) = (self.share, self.segment);
        let held = self.held.entry(stream).or_default();
        if held.back().is_none_or(|last| last.bytes + bytes > segment) {
            held.push_back(Held { first: id, bytes: 0 });
        }
        let mut remove = Vec::new();
        let mut all: u64 = held.iter().map(|one| one.bytes).sum::<u64>() + bytes;
        while all > share && held.len() > 1 {
            let Some(oldest) = held.pop_front() else { break };
            all -= oldest.bytes;
            remove.push(Segment { stream, first: oldest.first });
        }
        let mut first = id;
        if let Some(last) = held.back_mut() {
            last.bytes += bytes;
            first = last.first;
        }
        Placement { segment: Segment { stream, first }, remove }
    }

    /// Forgets a line that could not be written to the file that was placed last.
    pub fn unplace(&mut self, stream: Stream, bytes: u64) {
        if let Some(last) = self.held.get_mut(&stream).and_then(VecDeque::back_mut) {
            last.bytes = last.bytes.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Allowance, Entry, Event, Outcome, Pace, Verdict, Who, encode};
    use headgate_units::Nanos;
    use proptest::prelude::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let segment = Segment { stream: Stream::Refused, first: 42 };
        assert_eq!(segment.to_string(), "refused-00000000000000000042.log");
        assert_eq!(Segment::named(&segment.to_string()), Some(segment));
        for other in ["refused-42.log", "x-00000000000000000042.log", "refused-1.log~", "a"] {
            assert_eq!(Segment::named(other), None, "{other}");
        }
    }

    #[test]
    fn the_oldest_of_the_stream_leaves_and_no_other_streams() {
        let mut shelf = Shelf::new(SIZE_MIN);
        shelf.place(Stream::Changes, 1, 100);
        let mut removed = Vec::new();
        for id in 2..=2_000 {
            removed.extend(shelf.place(Stream::Refused, id, 1_000).remove);
        }
        assert!(removed.iter().all(|one| one.stream == Stream::Refused), "{removed:?}");
        assert!(removed.is_sorted() && removed[0].first == 2, "{removed:?}");
        assert_eq!(shelf.of(Stream::Changes).count(), 1);
        let kept: u64 = shelf.of(Stream::Refused).map(|(_, bytes)| bytes).sum();
        assert!(kept > SIZE_MIN / 4 * 3 / 4 - 1_000, "three quarters of its space stay: {kept}");
    }

    #[test]
    fn files_of_a_larger_shelf_leave_with_the_first_line() {
        let mut shelf = Shelf::new(SIZE_MIN);
        for first in [1, 100, 200] {
            shelf.found(Segment { stream: Stream::Daemon, first }, SIZE_MIN);
        }
        let placed = shelf.place(Stream::Daemon, 300, 50);
        assert_eq!(placed.remove.len(), 3);
        assert_eq!((placed.segment.first, shelf.bytes()), (300, 50));
    }

    proptest! {
        #[test]
        fn never_more_than_the_bound_and_always_the_newest(
            lines in prop::collection::vec((0_usize..4, 1_u64..LINE_MAX as u64), 1..400),
        ) {
            let mut shelf = Shelf::new(SIZE_MIN);
            for (id, (stream, bytes)) in (1..).zip(lines) {
                let stream = Stream::ALL[stream];
                let placed = shelf.place(stream, id, bytes);
                prop_assert!(shelf.bytes() <= SIZE_MIN);
                let last = shelf.of(stream).last().unwrap();
                prop_assert_eq!(last.0, placed.segment);
                prop_assert!(last.1 >= bytes && !placed.remove.contains(&placed.segment));
            }
        }
    }

    const DAY: u64 = 24 * 60 * 60;

    fn line(id: u64, second: u64, entry: Entry) -> Vec<u8> {
        encode(&Event { id, at_ms: second * 1_000, entry: entry.fit() }).unwrap()
    }

    fn change(second: u64, by: Who) -> Entry {
        let mut entry = Entry::new(by, "disk set", Outcome::Taken).of_disk(format!("d{second}"));
        entry.old = Some(serde_json::json!({"policy.limit": null, "policy.shares": 1_000}));
        entry.new = Some(serde_json::json!({"policy.limit": second, "policy.shares": 500}));
        entry
    }

    fn refused_by(user: u32) -> Who {
        Who::Process { user, group: user, process: Some(9) }.without_instance()
    }

    fn refused(user: u32) -> Entry {
        let by = refused_by(user);
        let mut entry = Entry::new(by, "disk remove", Outcome::Refused).of_disk("x".repeat(300));
        entry.why = Some("y".repeat(2_000));
        entry.asked = Some("z".repeat(3_000).into());
        entry
    }

    /// A day in simulated time: an operator changes a disk every five seconds, a tenant one every
    /// second, and fifty users send a request a second each that is refused, as long as it can be.
    /// The files stay within their bound at every instant, and at the end of the day each of the
    /// operator's changes is there still.
    #[test]
    fn a_day_of_events_stays_in_its_space_and_a_flood_displaces_no_change() {
        let size = 64 << 20;
        let (mut shelf, mut allowance) = (Shelf::new(size), Allowance::new(Pace::REFUSED));
        let (mut id, mut most, mut refusals) = (0, 0, (0_u64, 0_u64));
        let longest = |entry| line(u64::MAX, DAY, entry).len() as u64;
        let of_refused = longest(Entry { unwritten: u64::MAX, ..refused(u32::MAX) });
        let operator = Who::Process { user: 0, group: 0, process: Some(1) };
        let tenant = Who::Process { user: 4_700, group: 1, process: Some(2) };
        let of_change = longest(change(DAY, tenant));
        let mut put = |shelf: &mut Shelf, stream, bytes| {
            id += 1;
            shelf.place(stream, id, bytes);
            most = most.max(shelf.bytes());
        };
        for second in 0..DAY {
            if second % 5 == 0 {
                let bytes = line(second, second, change(second, operator.clone())).len();
                put(&mut shelf, Stream::Changes, bytes as u64);
            }
            put(&mut shelf, Stream::Tenants, of_change);
            for user in (0..50).map(|user| 5_000 + user) {
                let peer = refused_by(user);
                let now = Nanos::from_secs(second);
                if let Verdict::Write { unwritten } = allowance.ask(now, &peer) {
                    put(&mut shelf, Stream::Refused, of_refused);
                    refusals.0 += 1;
                    refusals.1 += unwritten;
                }
            }
        }
        assert!(most <= size, "{most} bytes of {size}");
        let first = shelf.of(Stream::Changes).next().unwrap().0.first;
        assert_eq!(first, 1, "the first change of the day is there");
        let kept: u64 = shelf.of(Stream::Refused).map(|(_, bytes)| bytes).sum();
        assert!(kept <= size / 4);
        // Few are written down, and the others are counted.
        let all = DAY * 50;
        assert!(refusals.0 < 100_000, "{refusals:?}");
        assert!(refusals.0 + refusals.1 > all - all / 100, "{refusals:?} of {all}");
        println!("{most} of {size} bytes at most, {refusals:?} of {all} refusals");
    }
}
