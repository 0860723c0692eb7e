//! What kind of request one is, to whom its cost is learned for.

use crate::cost::{Io, IoKind};
use alloc::vec::Vec;

/// The kinds of requests whose costs are learned apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoClass {
    /// A read that does not go on where one of the disk's last requests ended.
    ReadRandom,
    /// A read that does.
    ReadSequential,
    /// A write that does not.
    WriteRandom,
    /// A write that does.
    WriteSequential,
    /// A request that moves no data: flush, discard, write-zeroes.
    NoData,
}

impl IoClass {
    /// How many there are.
    pub const COUNT: usize = 5;

    /// All, in the order of [`IoClass::index`].
    pub const ALL: [IoClass; IoClass::COUNT] = [
        IoClass::ReadRandom,
        IoClass::ReadSequential,
        IoClass::WriteRandom,
        IoClass::WriteSequential,
        IoClass::NoData,
    ];

    /// Its place in [`IoClass::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name in documents and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            IoClass::ReadRandom => "random read",
            IoClass::ReadSequential => "sequential read",
            IoClass::WriteRandom => "random write",
            IoClass::WriteSequential => "sequential write",
            IoClass::NoData => "no data",
        }
    }

    /// The least that a request of the class costs beside its bytes, in reference IOs.
    pub(super) const fn least(self) -> f64 {
        match self {
            IoClass::ReadRandom | IoClass::WriteRandom => 0.25,
            IoClass::ReadSequential | IoClass::WriteSequential | IoClass::NoData => 1.0 / 16.0,
        }
    }
}

/// A request goes on where another ended if it starts at most so many bytes further on: a client
/// with several queues leaves small gaps.
const GAP: u64 = 64 << 10;

/// Streams of one disk that are told apart.
const STREAMS: usize = 4;

/// Where the last requests of a disk ended.
#[derive(Clone, Copy, Debug)]
struct Ends {
    ends: [u64; STREAMS],
    /// The next to be forgotten.
    oldest: u8,
}

impl Ends {
    const NONE: Ends = Ends { ends: [u64::MAX; STREAMS], oldest: 0 };

    /// Whether a range goes on where another ended.
    #[inline]
    fn continues(&mut self, start: u64, bytes: u64) -> bool {
        let end = start.saturating_add(bytes);
        let mut ends = self.ends.iter_mut();
        if let Some(known) = ends.find(|known| start.checked_sub(**known).is_some_and(|g| g <= GAP))
        {
            *known = end;
            return true;
        }
        self.ends[usize::from(self.oldest) % STREAMS] = end;
        self.oldest = (self.oldest + 1) % STREAMS as u8;
        false
    }
}

/// Tells the classes of all disks' requests, in the order in which they arrive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classifier {
    /// By the disk's slot.
    disks: Vec<Ends>,
}

impl Classifier {
    /// A disk has that slot from now on.
    pub(crate) fn register(&mut self, slot: usize) {
        if slot >= self.disks.len() {
            self.disks.resize(slot + 1, Ends::NONE);
        }
        self.disks[slot] = Ends::NONE;
    }

    /// The class of the disk's next request. O(1).
    #[inline]
    pub(crate) fn class(&mut self, slot: usize, io: &Io) -> IoClass {
        if io.bytes.0 == 0 {
            return IoClass::NoData;
        }
        let continues =
            self.disks.get_mut(slot).is_some_and(|ends| ends.continues(io.position, io.bytes.0));
        let is_write = matches!(io.kind, IoKind::Write | IoKind::Journal);
        match (is_write, continues) {
            (false, false) => IoClass::ReadRandom,
            (false, true) => IoClass::ReadSequential,
            (true, false) => IoClass::WriteRandom,
            (true, true) => IoClass::WriteSequential,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_units::Bytes;

    fn io(kind: IoKind, position: u64, bytes: u64) -> Io {
        Io { bytes: Bytes(bytes), position, kind, ..Io::default() }
    }

    #[test]
    fn a_stream_is_sequential_from_its_second_request_on_beside_others() {
        let mut classifier = Classifier::default();
        classifier.register(0);
        classifier.register(1);
        for step in 0..10u64 {
            for stream in 0..4u64 {
                let position = (stream << 30) + step * 65_536;
                let expected =
                    if step == 0 { IoClass::ReadRandom } else { IoClass::ReadSequential };
                let read = io(IoKind::Read, position, 65_536);
                assert_eq!(classifier.class(0, &read), expected, "{stream} {step}");
            }
            let far = io(IoKind::Write, step << 40, 4_096);
            assert_eq!(classifier.class(1, &far), IoClass::WriteRandom, "another disk");
        }
    }

    #[test]
    fn gaps_and_ends_of_the_range_are_told() {
        let mut classifier = Classifier::default();
        classifier.register(0);
        let mut class = |position, bytes| classifier.class(0, &io(IoKind::Write, position, bytes));
        assert_eq!(class(1 << 20, 4_096), IoClass::WriteRandom);
        let end = (1 << 20) + 4_096 + GAP + 4_096;
        assert_eq!(class(end - 4_096, 4_096), IoClass::WriteSequential);
        assert_eq!(class(end + GAP + 1, 4_096), IoClass::WriteRandom, "too far");
        assert_eq!(class(0, 4_096), IoClass::WriteRandom, "backwards");
        assert_eq!(class(u64::MAX - 1, u64::MAX), IoClass::WriteRandom);
        assert_eq!(class(5, 0), IoClass::NoData);
    }

    #[test]
    fn a_slot_forgets_the_disk_before() {
        let mut classifier = Classifier::default();
        classifier.register(3);
        assert_eq!(classifier.class(3, &io(IoKind::Read, 0, 512)), IoClass::ReadRandom);
        classifier.register(3);
        assert_eq!(classifier.class(3, &io(IoKind::Read, 512, 512)), IoClass::ReadRandom);
        let stray = classifier.class(9, &io(IoKind::Read, 512, 512));
        assert_eq!(stray, IoClass::ReadRandom, "a slot that nobody registered");
    }
}
