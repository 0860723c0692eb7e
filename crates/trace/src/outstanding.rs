use crate::record::Record;
use headgate_units::Nanos;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// More requests outstanding than any disk has: the latencies cannot be true, and memory has an
/// end.
const MOST: usize = 1 << 20;

/// Why nobody knows how many requests were outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unknown {
    /// There is no request.
    NoRequests,
    /// The format, or a part of the trace, has no completion times.
    NoLatencies,
    /// The latencies make more than 1,048,576 requests outstanding.
    Incredible,
}

/// How many requests were outstanding, seen by each request when it arrived, itself not included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outstanding {
    /// The mean over time, by Little's law.
    pub mean_over_time: f64,
    /// Half of the requests found no more.
    pub p50: u64,
    /// 90 % of the requests found no more: what BASIL calls OIO.
    pub p90: u64,
    /// 99 % of the requests found no more.
    pub p99: u64,
    /// The most that any request found.
    pub max: u64,
}

/// Follows the requests of one disk, or of all, to their completion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Follower {
    completions: BinaryHeap<Reverse<Nanos>>,
    /// How many requests found so many.
    found: Vec<u64>,
    busy: u128,
    first: Option<Nanos>,
    /// The last completion.
    until: Nanos,
    unknown: Option<Unknown>,
}

impl Follower {
    pub(crate) fn push(&mut self, record: &Record) {
        if self.unknown.is_some() {
            return;
        }
        let Some(latency) = record.latency else { return self.give_up(Unknown::NoLatencies) };
        while self.completions.peek().is_some_and(|Reverse(done)| *done <= record.at) {
            self.completions.pop();
        }
        let outstanding = self.completions.len();
        if outstanding >= MOST {
            return self.give_up(Unknown::Incredible);
        }
        if self.found.len() <= outstanding {
            self.found.resize(outstanding + 1, 0);
        }
        self.found[outstanding] += 1;
        self.completions.push(Reverse(record.at + latency));
        self.first.get_or_insert(record.at);
        self.until = self.until.max(record.at + latency);
        self.busy += u128::from(latency.0);
    }

    #[cold]
    fn give_up(&mut self, why: Unknown) {
        *self = Follower { unknown: Some(why), ..Follower::default() };
    }

    /// What was found from the first request to the last completion.
    pub(crate) fn finish(&self) -> Result<Outstanding, Unknown> {
        if let Some(why) = self.unknown {
            return Err(why);
        }
        let count: u64 = self.found.iter().sum();
        if count == 0 {
            return Err(Unknown::NoRequests);
        }
        let at_permille = |permille: u64| {
            let rank = (u128::from(count) * u128::from(permille)).div_ceil(1_000).max(1);
            let mut below = 0u128;
            let found = self.found.iter().position(|&requests| {
                below += u128::from(requests);
                below >= rank
            });
            found.unwrap_or(0) as u64
        };
        let length = self.until.since(self.first.unwrap_or_default()).0.max(1) as f64;
        Ok(Outstanding {
            mean_over_time: self.busy as f64 / length,
            p50: at_permille(500),
            p90: at_permille(900),
            p99: at_permille(990),
            max: self.found.len() as u64 - 1,
        })
    }
}
