//! How far the arrivals of a disk run ahead of a rate.

use super::work::Work;
use alloc::vec;
use alloc::vec::Vec;
use headgate_units::{Iops, Nanos};

/// Buckets in each doubling, as a power of two.
const SPLIT: u32 = 3;
/// Below 2¹⁰ millionths, a thousandth of a reference IO, everything is one bucket.
const LOWEST: u32 = 10;
const BUCKETS: usize = ((64 - LOWEST) << SPLIT) as usize + 1;
/// One step of the clock counts for no more than this.
const STEP_MAX: u64 = 3_600_000_000_000;

/// How much work each request of a disk found ahead of it in a queue that is served at the disk's
/// reservation: what of its arrival curve goes beyond `r·t`, for each request by itself.
///
/// A disk whose arrivals conform to a token bucket of rate r and depth β finds no more than β less
/// its own cost there. Random arrivals conform to no bucket, so the whole distribution is kept: in
/// buckets of an eighth of a doubling, and never too low. O(1) for each request, 3.5 KB.
///
/// It may be fed with whole intervals too ([`BurstMeter::interval`]); then it says the most that
/// such arrivals may have been.
#[derive(Clone, Debug)]
pub struct BurstMeter {
    rate: Iops,
    /// Work queued at `seen`, in millionths of a reference IO and of `1e9`.
    ahead: u128,
    seen: Nanos,
    counts: Vec<u64>,
    total: u64,
}

impl BurstMeter {
    /// Nothing has arrived yet.
    pub fn new(now: Nanos, rate: Iops) -> BurstMeter {
        BurstMeter { rate, ahead: 0, seen: now, counts: vec![0; BUCKETS], total: 0 }
    }

    /// A request of this cost arrived. A clock that steps back stands still.
    pub fn arrived(&mut self, now: Nanos, cost: Work) {
        self.advance(now);
        self.count((self.ahead / SCALE) as u64, 1);
        self.add(cost);
    }

    /// So many requests arrived in the time up to `now`, nobody knows when. All of them may have
    /// come at its beginning, before anything of what was queued was served: each counts as the
    /// last of them. All may have come at its end: the next interval begins with them still queued.
    pub fn interval(&mut self, now: Nanos, requests: u64, cost: Work) {
        if let Some(each) = cost.as_millionths().checked_div(requests) {
            let others = u128::from(cost.as_millionths() - each);
            let last = (self.ahead / SCALE).saturating_add(others);
            self.count(u64::try_from(last).unwrap_or(u64::MAX), requests);
        }
        self.advance(now);
        self.add(cost);
    }

    /// Requests counted.
    pub fn requests(&self) -> u64 {
        self.total
    }

    /// The reservation it was made for.
    pub fn rate(&self) -> Iops {
        self.rate
    }

    /// What no more than this part of the requests, 0 to 1, found more than ahead of them. `None`
    /// where too few were counted to say so.
    pub(super) fn ahead(&self, part: f64) -> Option<Work> {
        let mut over = 0u64;
        let mut answer = None;
        for (bucket, &count) in self.counts.iter().enumerate().rev() {
            if super::record::upper(over, self.total) > part {
                return answer;
            }
            answer = Some(Work::from_millionths(highest_of(bucket)));
            over = over.saturating_add(count);
        }
        answer
    }

    fn advance(&mut self, now: Nanos) {
        let passed = now.since(self.seen).0.min(STEP_MAX);
        let served = u128::from(passed) * u128::from(self.rate.get()) * 1_000_000;
        self.ahead = self.ahead.saturating_sub(served);
        self.seen = self.seen.max(now);
    }

    fn add(&mut self, cost: Work) {
        let most = u128::from(u64::MAX) * SCALE;
        let cost = u128::from(cost.as_millionths()) * SCALE;
        self.ahead = self.ahead.saturating_add(cost).min(most);
    }

    fn count(&mut self, ahead: u64, requests: u64) {
        let count = &mut self.counts[bucket_of(ahead)];
        *count = count.saturating_add(requests);
        self.total = self.total.saturating_add(requests);
    }
}

/// Nanoseconds in a second: the part of a millionth that a rate serves in a nanosecond.
const SCALE: u128 = 1_000_000_000;

fn bucket_of(millionths: u64) -> usize {
    let octave = (millionths | 1).ilog2();
    if octave < LOWEST {
        return 0;
    }
    let within = (millionths >> (octave - SPLIT)) as usize & ((1 << SPLIT) - 1);
    1 + (((octave - LOWEST) as usize) << SPLIT) + within
}

/// The most that falls into the bucket; nothing for the first one.
fn highest_of(bucket: usize) -> u64 {
    let Some(index) = (bucket as u64).checked_sub(1) else { return 0 };
    let octave = LOWEST + (index >> SPLIT) as u32;
    let within = index & ((1 << SPLIT) - 1);
    let next = u128::from((1 << SPLIT) + within + 1) << (octave - SPLIT);
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_tile_the_range_in_order() {
        for bucket in 1..BUCKETS {
            let last = highest_of(bucket);
            assert_eq!(bucket_of(last), bucket);
            assert_eq!(bucket_of(last.saturating_add(1)), (bucket + 1).min(BUCKETS - 1));
        }
    }

    /// By the definition of a token bucket, written for a whole sequence at once: the most that
    /// arrived in any time up to this request, less what the rate serves in it.
    fn found(arrivals: &[(u64, u64)], index: usize, rate: u64) -> u64 {
        let (at, own) = arrivals[index];
        let ahead = |from: usize| {
            let work: u128 = arrivals[from..=index].iter().map(|&(_, cost)| u128::from(cost)).sum();
            let served = u128::from(at - arrivals[from].0) * u128::from(rate) / 1_000;
            (work - u128::from(own)).saturating_sub(served)
        };
        (0..=index).map(ahead).max().unwrap_or(0) as u64
    }

    proptest! {
        #[test]
        fn what_a_request_finds_is_what_the_definition_says(
            steps in prop::collection::vec((0u64..20_000_000, 1_000_000u64..9_000_000), 1..60),
            rate in 1u64..5_000,
        ) {
            let mut meter = BurstMeter::new(Nanos::ZERO, Iops::new(rate).unwrap());
            let (mut arrivals, mut now) = (Vec::new(), 0);
            for (passed, cost) in steps {
                now += passed;
                arrivals.push((now, cost));
                let before = meter.counts.clone();
                meter.arrived(Nanos(now), Work::from_millionths(cost));
                let bucket = (0..BUCKETS).find(|&b| meter.counts[b] > before[b]).unwrap();
                let due = found(&arrivals, arrivals.len() - 1, rate);
                let most = highest_of(bucket).max(1_023);
                prop_assert!(most + 2 >= due && most <= due + due / 7 + 1_100, "{most} for {due}");
            }
        }

        /// Nobody knows when requests came within an interval; no order of them found more.
        #[test]
        fn an_interval_is_no_less_than_its_requests(
            intervals in prop::collection::vec(prop::collection::vec(0u64..10_000_000, 0..20), 1..20),
            rate in 1u64..5_000,
        ) {
            let rate = Iops::new(rate).unwrap();
            let (mut fine, mut coarse) =
                (BurstMeter::new(Nanos::ZERO, rate), BurstMeter::new(Nanos::ZERO, rate));
            for (number, arrivals) in intervals.iter().enumerate() {
                let begin = number as u64 * 10_000_000;
                let mut sorted = arrivals.clone();
                sorted.sort_unstable();
                for at in sorted {
                    fine.arrived(Nanos(begin + at), Work::ONE);
                }
                let work = Work::from_ios(arrivals.len() as u64);
                coarse.interval(Nanos(begin + 10_000_000), arrivals.len() as u64, work);
            }
            let (mut finer, mut coarser) = (0, 0);
            for bucket in (0..BUCKETS).rev() {
                finer += fine.counts[bucket];
                coarser += coarse.counts[bucket];
                prop_assert!(coarser >= finer, "bucket {bucket}");
            }
        }
    }

    /// Requests at the end of an interval are still queued at the beginning of the next one, where
    /// the next request finds them.
    #[test]
    fn requests_at_the_end_of_an_interval_are_found_in_the_next() {
        let mut meter = BurstMeter::new(Nanos::ZERO, Iops::new(1_000).unwrap());
        meter.interval(Nanos::from_millis(10), 4, Work::from_ios(4));
        meter.interval(Nanos::from_millis(20), 1, Work::ONE);
        let counted = |ios: u64| meter.counts[bucket_of(ios * 1_000_000)];
        assert_eq!((counted(3), counted(4), meter.requests()), (4, 1, 5));
    }

    #[test]
    fn few_requests_say_nothing_of_rare_bursts() {
        let mut meter = BurstMeter::new(Nanos::ZERO, Iops::new(1_000).unwrap());
        for n in 0..1_000 {
            meter.arrived(Nanos::from_millis(n), Work::ONE);
        }
        assert_eq!((meter.ahead(0.001), meter.ahead(0.02)), (None, Some(Work::ZERO)));
        assert_eq!(BurstMeter::new(Nanos::ZERO, Iops::MIN).ahead(0.5), None);
    }

    #[test]
    fn the_largest_values_saturate() {
        let mut meter = BurstMeter::new(Nanos::ZERO, Iops::MAX);
        for at in [u64::MAX, 0, u64::MAX] {
            meter.arrived(Nanos(at), Work::from_millionths(u64::MAX));
            meter.interval(Nanos(at), u64::MAX, Work::from_millionths(u64::MAX));
        }
        assert!(meter.requests() == u64::MAX);
    }
}
