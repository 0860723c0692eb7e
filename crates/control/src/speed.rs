//! How fast a copy is, by what was copied lately.

use headgate_units::Bytes;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Looks that are kept.
const LOOKS: usize = 10;

/// Looks are at least so far apart.
const APART: Duration = Duration::from_millis(900);

/// What a copy had done at each of the last looks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Speed(VecDeque<(Instant, Bytes)>);

impl Speed {
    /// It has copied so much now.
    pub(crate) fn look(&mut self, now: Instant, copied: Bytes) {
        let is_early = |(last, _): &(Instant, Bytes)| now.saturating_duration_since(*last) < APART;
        if self.0.back().is_some_and(is_early) {
            return;
        }
        self.0.push_back((now, copied));
        if self.0.len() > LOOKS {
            self.0.pop_front();
        }
    }

    /// Forgets what was: the copy rested.
    pub(crate) fn rest(&mut self) {
        self.0.clear();
    }

    /// Bytes per second over the looks that are kept; `None` before two of them.
    pub(crate) fn rate(&self) -> Option<u64> {
        let ((first, before), (last, after)) = (self.0.front()?, self.0.back()?);
        let micros = last.saturating_duration_since(*first).as_micros();
        let copied = u128::from(after.0.saturating_sub(before.0)) * 1_000_000;
        u64::try_from(copied.checked_div(micros)?).ok()
    }

    /// Seconds that so much takes at that rate.
    pub(crate) fn time_for(&self, left: Bytes) -> Option<u64> {
        let rate = self.rate().filter(|rate| *rate > 0)?;
        Some(left.0.div_ceil(rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_looks_and_says_how_long_the_rest_takes() {
        let (begin, mut speed) = (Instant::now(), Speed::default());
        speed.look(begin, Bytes(0));
        assert_eq!((speed.rate(), speed.time_for(Bytes(1))), (None, None));
        // Too early to count.
        speed.look(begin + Duration::from_millis(1), Bytes(1 << 40));
        let at = |second: u64| begin + Duration::from_secs(second);
        for second in 1..=20 {
            let copied = if second <= 10 { 1_000 * second } else { 10_000 + 100 * (second - 10) };
            speed.look(at(second), Bytes(copied));
        }
        assert_eq!(speed.rate(), Some(100), "what was fast long ago is forgotten");
        assert_eq!(speed.time_for(Bytes(250)), Some(3));
        speed.look(at(1_000), Bytes(11_000));
        for second in 1_001..1_020 {
            speed.look(at(second), Bytes(11_000));
        }
        assert_eq!((speed.rate(), speed.time_for(Bytes(1))), (Some(0), None));
        speed.rest();
        assert_eq!(speed.rate(), None);
    }
}
