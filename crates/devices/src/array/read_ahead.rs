use alloc::collections::VecDeque;
use alloc::vec::Vec;
use slab::Slab;

/// Streams followed at once.
const STREAMS: usize = 16;
/// Ends of reads remembered, where a stream may turn out to go on.
const RECENT: usize = 32;

/// Finds sequential streams among the reads, and says what to fetch for them before it is asked
/// for.
///
/// A read that begins where one of the last [`RECENT`] others ended begins a stream. From then on
/// whole stripe units are fetched until the size lies ahead of the stream. A read that begins
/// within what was fetched, or is on its way, belongs to the stream and waits for what it covers;
/// it may leave something out. What is a stripe unit behind is dropped. When there are too many
/// streams, the one idle for longest ends.
///
/// Holds at most [`STREAMS`] times the size, the largest read and three stripe units. A read costs
/// [`RECENT`] + [`STREAMS`] comparisons, and O(1) for each stripe unit that it covers or lets be
/// fetched.
#[derive(Clone, Debug)]
pub(super) struct ReadAhead {
    /// Bytes kept ahead of a stream; 0 is off.
    size: u64,
    unit: u64,
    capacity: u64,
    recent: VecDeque<u64>,
    /// The one idle for longest first.
    streams: VecDeque<Stream>,
    fetches: Slab<Fetch>,
}

#[derive(Clone, Debug)]
struct Stream {
    /// Past the farthest byte read.
    next: u64,
    /// What was fetched or is on its way, without gaps: one fetch for each stripe unit touched.
    start: u64,
    end: u64,
    fetches: VecDeque<usize>,
}

#[derive(Clone, Debug)]
struct Fetch {
    state: State,
    /// Reads to be told when it is here.
    waiting: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Arriving,
    Here,
    /// Arriving, but no stream has it any more: only those who wait already get it.
    Forgotten,
}

/// A read that belongs to a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StreamRead {
    /// For so many fetches it waits: [`ReadAhead::on_fetched`] names it once for each.
    pub waits: u32,
    /// To be read from the disks now: the fetch's name, first and past-the-end byte, within one
    /// stripe unit.
    pub fetches: Vec<(usize, u64, u64)>,
}

impl ReadAhead {
    pub(super) fn new(size: u64, unit: u64, capacity: u64) -> ReadAhead {
        let (recent, streams) = (VecDeque::new(), VecDeque::new());
        ReadAhead { size, unit, capacity, recent, streams, fetches: Slab::new() }
    }

    /// A client reads this range, not empty and within the capacity. `None`: it belongs to no
    /// stream, or is larger than what would be kept ahead and so makes the disks work together
    /// without help. It is to be read by itself.
    pub(super) fn on_read(&mut self, request: usize, start: u64, end: u64) -> Option<StreamRead> {
        if end - start > self.size {
            return None;
        }
        let Some(mut stream) = self.continued(start).or_else(|| self.begun(start)) else {
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(end);
            return None;
        };
        stream.next = stream.next.max(end);
        let fetches = self.extend(&mut stream);
        let first = start / self.unit - stream.start / self.unit;
        let covered = (end - 1) / self.unit - start / self.unit + 1;
        let mut waits = 0;
        for &fetch in stream.fetches.iter().skip(first as usize).take(covered as usize) {
            let fetch = &mut self.fetches[fetch];
            if fetch.state == State::Arriving {
                fetch.waiting.push(request);
                waits += 1;
            }
        }
        self.drop_passed(&mut stream);
        self.streams.push_back(stream);
        Some(StreamRead { waits, fetches })
    }

    fn continued(&mut self, start: u64) -> Option<Stream> {
        let at =
            self.streams.iter().rposition(|stream| (stream.start..stream.end).contains(&start))?;
        self.streams.remove(at)
    }

    fn begun(&mut self, start: u64) -> Option<Stream> {
        let at = self.recent.iter().rposition(|&end| end == start)?;
        self.recent.remove(at);
        if self.streams.len() == STREAMS
            && let Some(idle) = self.streams.pop_front()
        {
            self.forget(idle.fetches);
        }
        Some(Stream { next: start, start, end: start, fetches: VecDeque::new() })
    }

    fn extend(&mut self, stream: &mut Stream) -> Vec<(usize, u64, u64)> {
        let wanted = stream.next.saturating_add(self.size).min(self.capacity);
        let mut fetches = Vec::new();
        while stream.end < wanted {
            let from = stream.end;
            stream.end = self.unit_end(from);
            let fetch = self.fetches.insert(Fetch { state: State::Arriving, waiting: Vec::new() });
            stream.fetches.push_back(fetch);
            fetches.push((fetch, from, stream.end));
        }
        fetches
    }

    fn unit_end(&self, at: u64) -> u64 {
        ((at / self.unit + 1) * self.unit).min(self.capacity)
    }

    fn drop_passed(&mut self, stream: &mut Stream) {
        while self.unit_end(stream.start) + self.unit <= stream.next {
            let Some(passed) = stream.fetches.pop_front() else { break };
            stream.start = self.unit_end(stream.start);
            self.forget([passed]);
        }
    }

    fn forget(&mut self, fetches: impl IntoIterator<Item = usize>) {
        for fetch in fetches {
            match self.fetches[fetch].state {
                State::Here => _ = self.fetches.remove(fetch),
                State::Arriving | State::Forgotten => self.fetches[fetch].state = State::Forgotten,
            }
        }
    }

    /// A fetch has come from the disks: who waited for it.
    pub(super) fn on_fetched(&mut self, fetch: usize) -> Vec<usize> {
        match self.fetches[fetch].state {
            State::Forgotten => self.fetches.remove(fetch).waiting,
            State::Arriving | State::Here => {
                self.fetches[fetch].state = State::Here;
                core::mem::take(&mut self.fetches[fetch].waiting)
            }
        }
    }

    /// A write of this range is about to be acknowledged: what was read ahead there is of the past,
    /// its stream ends.
    pub(super) fn on_written(&mut self, start: u64, end: u64) {
        let meets = |stream: &Stream| start < stream.end && stream.start < end;
        while let Some(at) = self.streams.iter().position(meets) {
            if let Some(stream) = self.streams.remove(at) {
                self.forget(stream.fetches);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

    const UNIT: u64 = 64;
    const CAPACITY: u64 = 10_000;

    fn read_ahead(size: u64) -> ReadAhead {
        ReadAhead::new(size, UNIT, CAPACITY)
    }

    fn ranges(read: &StreamRead) -> Vec<(u64, u64)> {
        read.fetches.iter().map(|&(_, from, to)| (from, to)).collect()
    }

    #[test]
    fn the_second_read_in_a_row_begins_a_stream_and_the_next_ones_keep_it_ahead() {
        let mut ahead = read_ahead(128);
        assert_eq!(ahead.on_read(0, 32, 48), None);
        let second = ahead.on_read(1, 48, 64).unwrap();
        assert_eq!((second.waits, ranges(&second)), (1, vec![(48, 64), (64, 128), (128, 192)]));
        let third = ahead.on_read(2, 64, 80).unwrap();
        assert_eq!((third.waits, ranges(&third)), (1, vec![(192, 256)]));
        let fourth = ahead.on_read(3, 80, 96).unwrap();
        assert_eq!((fourth.waits, ranges(&fourth)), (1, vec![]));
        assert_eq!(ahead.on_fetched(second.fetches[1].0), [2, 3]);
        assert_eq!(ahead.on_read(4, 96, 112), Some(StreamRead::default()), "it is here");
    }

    #[test]
    fn a_read_across_units_waits_for_each() {
        let mut ahead = read_ahead(128);
        ahead.on_read(0, 0, 10);
        let read = ahead.on_read(1, 10, 138).unwrap();
        assert_eq!(read.waits, 3);
        let named: Vec<usize> =
            read.fetches.iter().flat_map(|&(name, ..)| ahead.on_fetched(name)).collect();
        assert_eq!(named, [1, 1, 1]);
    }

    #[test]
    fn random_reads_large_reads_and_no_size_are_left_alone() {
        let mut ahead = read_ahead(128);
        for i in 0..1_000 {
            assert_eq!(
                ahead.on_read(i, i as u64 * 7_919 % 9_900, i as u64 * 7_919 % 9_900 + 8),
                None
            );
        }
        assert_eq!(ahead.on_read(0, 0, 129), None);
        assert_eq!(ahead.on_read(1, 129, 258), None);
        let mut off = read_ahead(0);
        assert!((0..100).all(|i| off.on_read(i, i as u64 * 8, i as u64 * 8 + 8).is_none()));
    }

    #[test]
    fn a_write_ends_the_stream_that_it_meets_and_no_other() {
        let mut ahead = read_ahead(128);
        for start in [0, 5_000] {
            ahead.on_read(0, start, start + 8);
            ahead.on_read(1, start + 8, start + 16);
        }
        ahead.on_written(4_000, 5_000);
        ahead.on_written(191, 192);
        assert_eq!(ahead.on_read(2, 16, 24), None, "read anew");
        assert!(ahead.on_read(3, 5_016, 5_024).is_some());
    }

    #[test]
    fn too_many_streams_end_the_one_idle_for_longest() {
        let mut ahead = read_ahead(64);
        for i in 0..=STREAMS as u64 {
            ahead.on_read(0, i * 500, i * 500 + 8);
            ahead.on_read(1, i * 500 + 8, i * 500 + 16);
            if i > 0 {
                assert!(ahead.on_read(2, 500 + 8, 500 + 16).is_some(), "kept alive");
            }
        }
        assert_eq!(ahead.streams.len(), STREAMS);
        assert!(ahead.on_read(3, 500 + 16, 500 + 24).is_some());
        assert_eq!(ahead.on_read(3, 16, 24), None);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Read(u64, u64),
        GoOn(u64),
        Written(u64, u64),
        Fetched(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => (0..CAPACITY, 1..300u64).prop_map(|(start, len)| Step::Read(start, len)),
            8 => (1..300u64).prop_map(Step::GoOn),
            1 => (0..CAPACITY, 1..300u64).prop_map(|(start, len)| Step::Written(start, len)),
            8 => any::<usize>().prop_map(Step::Fetched),
        ]
    }

    proptest! {
        /// Against a version for each byte: a fetch brings the versions of the time at which it
        /// began.
        #[test]
        fn every_read_gets_each_byte_once_it_was_fetched_and_never_one_from_before_a_write(
            size in 1..700u64,
            steps in prop::collection::vec(step(), 1..400),
        ) {
            let mut ahead = read_ahead(size);
            let mut versions = vec![0u32; CAPACITY as usize];
            let mut on_the_way: Vec<(usize, u64, Vec<u32>)> = Vec::new();
            let mut waits: HashMap<usize, u32> = HashMap::new();
            // What was fetched last of each byte.
            let mut held = vec![None; CAPACITY as usize];
            let mut last = 0;
            for (request, step) in steps.into_iter().enumerate() {
                let (start, len) = match step {
                    Step::Read(start, len) => (start, len),
                    Step::GoOn(len) => (last, len),
                    Step::Written(start, len) => {
                        let end = (start + len).min(CAPACITY);
                        versions[start as usize..end as usize].iter_mut().for_each(|version| *version += 1);
                        ahead.on_written(start, end);
                        continue;
                    }
                    Step::Fetched(which) => {
                        if !on_the_way.is_empty() {
                            let (name, from, brought) = on_the_way.swap_remove(which % on_the_way.len());
                            for (at, version) in (from as usize..).zip(brought) {
                                held[at] = held[at].max(Some(version));
                            }
                            for request in ahead.on_fetched(name) {
                                *waits.get_mut(&request).unwrap() -= 1;
                            }
                        }
                        continue;
                    }
                };
                let end = (start + len).min(CAPACITY);
                last = if end == CAPACITY { 0 } else { end };
                let Some(read) = ahead.on_read(request, start, end) else { continue };
                for &(name, from, to) in &read.fetches {
                    prop_assert!(from < to && to <= CAPACITY && from / UNIT == (to - 1) / UNIT);
                    on_the_way.push((name, from, versions[from as usize..to as usize].to_vec()));
                }
                if read.waits == 0 {
                    for at in start as usize..end as usize {
                        prop_assert_eq!(held[at], Some(versions[at]), "byte {}", at);
                    }
                }
                waits.insert(request, read.waits);
                let covers: u64 = ahead.streams.iter().map(|stream| stream.end - stream.start).sum();
                prop_assert!(covers <= STREAMS as u64 * (size + 300 + 3 * UNIT));
            }
            for (name, ..) in on_the_way.drain(..) {
                ahead.on_fetched(name).iter().for_each(|request| *waits.get_mut(request).unwrap() -= 1);
            }
            prop_assert!(waits.values().all(|&left| left == 0));
            let kept: HashSet<usize> = ahead.streams.iter().flat_map(|stream| stream.fetches.iter().copied()).collect();
            prop_assert_eq!(kept.len(), ahead.fetches.len(), "nothing leaks");
        }
    }
}
