//! How many lines of one kind go into the log: a token bucket for each kind, and what was left out
//! is counted. Pure: the time comes with each call.

use headgate_units::Nanos;
use std::collections::HashMap;
use std::hash::Hash;

/// Lines that a kind may write at once.
pub(super) const BURST: u32 = 10;

/// A kind that has written as many may write another one after so long, and what was left out is
/// told as often.
pub(super) const PERIOD: Nanos = Nanos::from_secs(10);

/// Kinds that are told apart. All others together are one more.
const KINDS_MAX: usize = 1024;

/// Whether a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Write,
    LeaveOut,
}

/// Lines that were left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeftOut<K> {
    /// Of which kind; `None` for those that were not told apart.
    pub kind: Option<K>,
    pub lines: u64,
    /// Since the first of them.
    pub within: Nanos,
    /// What the first said.
    pub like: String,
}

#[derive(Debug)]
struct Bucket {
    tokens: u32,
    /// When the last token came.
    filled: Nanos,
    left_out: u64,
    since: Nanos,
    like: String,
}

impl Bucket {
    fn full(now: Nanos) -> Bucket {
        Bucket { tokens: BURST, filled: now, left_out: 0, since: now, like: String::new() }
    }

    fn fill(&mut self, now: Nanos) {
        let periods = now.since(self.filled).0 / PERIOD.0;
        let tokens = u64::from(self.tokens) + periods;
        self.tokens = tokens.min(u64::from(BURST)) as u32;
        self.filled = Nanos(self.filled.0 + periods * PERIOD.0);
    }

    fn admit(&mut self, now: Nanos, text: &str) -> Verdict {
        self.fill(now);
        if self.tokens > 0 {
            self.tokens -= 1;
            return Verdict::Write;
        }
        if self.left_out == 0 {
            (self.since, self.like) = (now, text.to_owned());
        }
        self.left_out += 1;
        Verdict::LeaveOut
    }

    fn tell<K>(&mut self, kind: Option<&K>, now: Nanos) -> Option<LeftOut<K>>
    where
        K: Clone,
    {
        let lines = std::mem::take(&mut self.left_out);
        let (within, like) = (now.since(self.since), std::mem::take(&mut self.like));
        (lines > 0).then(|| LeftOut { kind: kind.cloned(), lines, within, like })
    }
}

/// See the module. `K` says of which kind a line is.
#[derive(Debug)]
pub(super) struct LogRate<K> {
    kinds: HashMap<K, Bucket>,
    others: Bucket,
}

impl<K: Clone + Eq + Hash> LogRate<K> {
    pub(super) fn new(now: Nanos) -> LogRate<K> {
        LogRate { kinds: HashMap::new(), others: Bucket::full(now) }
    }

    /// A line of this kind, which says `text`.
    pub(super) fn admit(&mut self, kind: K, now: Nanos, text: &str) -> Verdict {
        let has_room = self.kinds.len() < KINDS_MAX;
        let bucket = match self.kinds.get_mut(&kind) {
            Some(bucket) => bucket,
            None if has_room => self.kinds.entry(kind).or_insert_with(|| Bucket::full(now)),
            None => &mut self.others,
        };
        bucket.admit(now, text)
    }

    /// What was left out since the last call, and forgets kinds that have been quiet.
    pub(super) fn left_out(&mut self, now: Nanos) -> Vec<LeftOut<K>> {
        let mut told: Vec<_> = self
            .kinds
            .iter_mut()
            .filter_map(|(kind, bucket)| bucket.tell(Some(kind), now))
            .collect();
        told.extend(self.others.tell(None, now));
        self.kinds.retain(|_, bucket| {
            bucket.fill(now);
            bucket.tokens < BURST
        });
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Nanos = Nanos::from_secs(100);

    fn after(millis: u64) -> Nanos {
        START + Nanos::from_millis(millis)
    }

    #[test]
    fn a_flood_is_a_burst_then_a_line_a_period_and_every_line_is_counted() {
        let mut rate = LogRate::new(START);
        let (mut written, mut counted) = (0, 0);
        // A minute of a thousand lines per second.
        for milli in 0..60_000 {
            let now = after(milli);
            written += u64::from(rate.admit("flood", now, "broken") == Verdict::Write);
            if (milli + 1) % 10_000 == 0 {
                let told = rate.left_out(now);
                let [one] = &told[..] else { panic!("{told:?}") };
                assert_eq!((one.kind, &one.like[..]), (Some("flood"), "broken"));
                assert!(one.within <= PERIOD, "{one:?}");
                counted += one.lines;
            }
        }
        assert_eq!(written, u64::from(BURST) + 5);
        assert_eq!(written + counted, 60_000);
    }

    #[test]
    fn kinds_do_not_take_from_each_other_and_quiet_ones_are_forgotten() {
        let mut rate = LogRate::new(START);
        for _ in 0..1000 {
            rate.admit("flood", START, "");
        }
        assert_eq!(rate.admit("other", START, ""), Verdict::Write);
        assert_eq!(rate.admit("flood", START, ""), Verdict::LeaveOut);
        assert_eq!(rate.left_out(START).len(), 1);
        assert_eq!(rate.left_out(after(99_999)), []);
        assert_eq!(rate.kinds.len(), 1, "one token is missing");
        rate.left_out(after(100_000));
        assert_eq!(rate.kinds.len(), 0);
    }

    #[test]
    fn a_source_with_ever_new_names_is_bounded_and_counted() {
        let mut rate = LogRate::new(START);
        let write = |rate: &mut LogRate<usize>, n| rate.admit(n, START, "new") == Verdict::Write;
        let written = (0..100_000).filter(|n| write(&mut rate, *n)).count();
        assert_eq!(written, KINDS_MAX + BURST as usize);
        assert_eq!(rate.kinds.len(), KINDS_MAX);
        let told = rate.left_out(after(1));
        assert_eq!((told.len(), told[0].kind), (1, None));
        assert_eq!(told[0].lines as usize + written, 100_000);
    }

    #[test]
    fn a_clock_that_stands_or_jumps_gives_no_more_than_a_burst() {
        let mut rate = LogRate::new(Nanos::MAX);
        let write = |rate: &mut LogRate<()>, now| rate.admit((), now, "") == Verdict::Write;
        assert_eq!((0..100).filter(|_| write(&mut rate, Nanos::ZERO)).count(), BURST as usize);
        assert_eq!((0..100).filter(|_| write(&mut rate, Nanos::MAX)).count(), BURST as usize);
        assert_eq!((0..100).filter(|_| write(&mut rate, Nanos::ZERO)).count(), 0);
    }
}
