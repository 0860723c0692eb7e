use crate::Sparse;
use crate::buckets::Buckets;

/// Ends of earlier requests that a request is compared with: as many sequential streams are told
/// apart on one disk.
pub const STREAMS: usize = 8;
/// A request that begins at most so many bytes after the end of one of the last [`STREAMS`] is
/// sequential. Requests of one stream overtake each other by that much on their way through several
/// queues.
pub const NEAR: u64 = 64 << 10;

const SECTOR: u64 = 512;
/// Distances of 2^LARGEST sectors and more are one bucket.
const LARGEST: i8 = 40;
const BUCKETS: usize = 2 * LARGEST as usize + 1;
const WORDS: usize = BUCKETS.div_ceil(64);

/// Distances between requests, and how many belong to a sequential stream.
#[derive(Clone, Debug)]
pub(crate) struct Seeks {
    ends: [u64; STREAMS],
    next: u8,
    known: u8,
    sequential: u64,
    buckets: Buckets<BUCKETS, WORDS>,
}

impl Seeks {
    pub(crate) const fn new() -> Seeks {
        Seeks { ends: [0; STREAMS], next: 0, known: 0, sequential: 0, buckets: Buckets::new() }
    }

    /// Counts the distance to the nearest of the last ends. The first request of all has none.
    #[inline]
    pub(crate) fn record(&mut self, offset: u64, end: u64) {
        let known = &self.ends[..usize::from(self.known)];
        if let Some(nearest) = known.iter().copied().min_by_key(|&end| offset.abs_diff(end)) {
            let distance = offset.abs_diff(nearest);
            let forward = offset >= nearest;
            if forward && distance <= NEAR {
                self.sequential += 1;
            }
            self.buckets.add(index_of(distance, forward));
        }
        self.ends[usize::from(self.next)] = end;
        self.next = (self.next + 1) % STREAMS as u8;
        self.known = (self.known + 1).min(STREAMS as u8);
    }

    pub(crate) fn sequential(&self) -> u64 {
        self.sequential
    }

    /// Bucket 0: no distance. Bucket b > 0: forward by 2^(b-1) to 2^b sectors, b < 0: backward.
    pub(crate) fn snapshot(&self) -> Sparse<i8> {
        self.buckets.snapshot(|index| index as i8 - LARGEST)
    }
}

#[inline]
fn index_of(distance: u64, forward: bool) -> usize {
    // Parts of a sector count as one.
    let sectors = distance.div_ceil(SECTOR);
    let magnitude = ((u64::BITS - sectors.leading_zeros()) as usize).min(LARGEST as usize);
    if forward { LARGEST as usize + magnitude } else { LARGEST as usize - magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeks(requests: impl IntoIterator<Item = (u64, u64)>) -> Seeks {
        let mut seeks = Seeks::new();
        requests.into_iter().for_each(|(offset, size)| seeks.record(offset, offset + size));
        seeks
    }

    #[test]
    fn interleaved_streams_are_sequential() {
        let streams = (0..1_000u64).map(|i| (((i % 8) << 40) + (i / 8) * 4_096, 4_096));
        assert_eq!(seeks(streams).sequential(), 1_000 - 8);
    }

    #[test]
    fn distances_are_signed_and_in_powers_of_two_sectors() {
        let apart = |from: u64, to: u64| {
            let all = seeks([(from, 0), (to, 0)]).snapshot();
            all.iter().map(|(bucket, _)| bucket).collect::<Vec<_>>()
        };
        assert_eq!(apart(1 << 30, 1 << 30), [0]);
        assert_eq!(apart(0, 512), [1]);
        assert_eq!(apart(512, 0), [-1]);
        assert_eq!(apart(0, 1_024), [2]);
        assert_eq!(apart(1 << 30, 0), [-22]);
        assert_eq!(apart(0, u64::MAX), [40]);
        assert_eq!(apart(0, 1), [1]);
    }

    #[test]
    fn jumping_back_is_not_sequential() {
        let backwards = (0..100u64).rev().map(|i| (i << 20, 4_096));
        assert_eq!(seeks(backwards).sequential(), 0);
    }
}
