//! What depends on time: intervals, peaks, outstanding requests, latencies.

use super::placed::Step;
use crate::outstanding::Follower;
use crate::record::{Kind, Record};
use headgate_stats::LatencyHistogram;
use headgate_units::Nanos;

/// The interval over which shares are taken.
pub(crate) const INTERVAL: Nanos = Nanos::from_secs(5);

const SECOND: u64 = 1_000_000_000;

/// A share in whole percent, counted over intervals.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    intervals: [u64; 101],
}

impl Default for Shares {
    fn default() -> Shares {
        Shares { intervals: [0; 101] }
    }
}

impl Shares {
    fn add(&mut self, part: u64, whole: u64) {
        if let Some(percent) =
            (u128::from(part) * 200 + u128::from(whole)).checked_div(2 * u128::from(whole))
        {
            self.intervals[(percent as usize).min(100)] += 1;
        }
    }

    /// The share, in percent, that so many permille of the intervals did not exceed.
    pub(crate) fn at_permille(&self, permille: u64) -> Option<u8> {
        let count: u64 = self.intervals.iter().sum();
        let rank = (u128::from(count) * u128::from(permille)).div_ceil(1_000).max(1);
        let mut below = 0u128;
        let percent = self.intervals.iter().position(|&intervals| {
            below += u128::from(intervals);
            below >= rank
        })?;
        u8::try_from(percent).ok()
    }
}

/// The interval that is under way.
#[derive(Clone, Copy, Debug, Default)]
struct Current {
    index: u64,
    reads: u64,
    writes: u64,
    far: u64,
    steps: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Clocked {
    pub first: Option<Nanos>,
    pub last: Nanos,
    pub requests: u64,
    pub follower: Follower,
    pub read_latency: Option<Box<LatencyHistogram>>,
    pub write_latency: Option<Box<LatencyHistogram>>,
    second: u64,
    in_second: u64,
    peak: u64,
    current: Current,
    read_share: Shares,
    far_share: Shares,
}

impl Clocked {
    pub(crate) fn push(&mut self, record: &Record, step: Step) {
        let at = record.at;
        self.first.get_or_insert(at);
        self.last = at;
        self.requests += 1;
        let second = at.0 / SECOND;
        if second != self.second {
            (self.second, self.in_second) = (second, 0);
        }
        self.in_second += 1;
        self.peak = self.peak.max(self.in_second);
        let index = at.0 / INTERVAL.0;
        if index != self.current.index {
            let done =
                std::mem::replace(&mut self.current, Current { index, ..Current::default() });
            Self::close(&mut self.read_share, &mut self.far_share, done);
        }
        let histogram = match record.kind {
            Kind::Read => {
                self.current.reads += 1;
                &mut self.read_latency
            }
            Kind::Write => {
                self.current.writes += 1;
                &mut self.write_latency
            }
            Kind::Flush | Kind::Discard => return self.follower.push(record),
        };
        if let Some(latency) = record.latency {
            histogram.get_or_insert_default().record(latency);
        }
        if step != Step::None {
            self.current.steps += 1;
        }
        if step == Step::Far {
            self.current.far += 1;
        }
        self.follower.push(record);
    }

    fn close(read_share: &mut Shares, far_share: &mut Shares, done: Current) {
        read_share.add(done.reads, done.reads + done.writes);
        far_share.add(done.far, done.steps);
    }

    /// Most requests in a second of the trace's clock.
    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }

    /// Shares of reads and of random requests, the interval under way included.
    pub(crate) fn shares(&self) -> (Shares, Shares) {
        let (mut reads, mut far) = (self.read_share.clone(), self.far_share.clone());
        Self::close(&mut reads, &mut far, self.current);
        (reads, far)
    }
}
