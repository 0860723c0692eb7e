use headgate_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

const SECOND: u64 = 1_000_000_000;
/// The last minute and the second under way.
const SLOTS: usize = 61;

/// A rate as a live view shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Requests per second.
    pub iops: u64,
    /// Bytes per second.
    pub bytes_per_sec: u64,
}

impl Rate {
    fn plus(self, other: Rate) -> Rate {
        Rate {
            iops: self.iops.saturating_add(other.iops),
            bytes_per_sec: self.bytes_per_sec.saturating_add(other.bytes_per_sec),
        }
    }
}

/// Rates of the recent past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent {
    /// Of the last second.
    pub second: Rate,
    /// Of the last 10 seconds.
    pub ten_seconds: Rate,
    /// Of the last minute.
    pub minute: Rate,
}

impl Recent {
    /// Adds the rates of another disk.
    pub fn merge(&mut self, other: &Recent) {
        self.second = self.second.plus(other.second);
        self.ten_seconds = self.ten_seconds.plus(other.ten_seconds);
        self.minute = self.minute.plus(other.minute);
    }
}

/// Counts completions in slots of one second and tells the rates of the last 1, 10 and 60 seconds.
/// 740 bytes.
///
/// A window ends now and begins inside a slot, which counts for the part that lies in the window: a
/// rate that changed within that second shows up smeared over it. A clock that steps back adds to
/// the current slot.
#[derive(Clone, Debug)]
pub struct Meter {
    ios: [u32; SLOTS],
    bytes: [u64; SLOTS],
    /// The second that is under way, counted from the clock's origin.
    second: u64,
}

impl Meter {
    /// A meter that saw nothing yet.
    pub fn new(now: Nanos) -> Meter {
        Meter { ios: [0; SLOTS], bytes: [0; SLOTS], second: now.0 / SECOND }
    }

    /// Counts one request. O(1), amortised over the seconds that passed.
    #[inline]
    pub fn record(&mut self, now: Nanos, bytes: Bytes) {
        let second = now.0 / SECOND;
        if second > self.second {
            self.turn_to(second);
        }
        let slot = slot_of(self.second);
        self.ios[slot] = self.ios[slot].saturating_add(1);
        self.bytes[slot] = self.bytes[slot].saturating_add(bytes.0);
    }

    #[cold]
    fn turn_to(&mut self, second: u64) {
        for passed in 0..(second - self.second).min(SLOTS as u64) {
            let slot = slot_of(second - passed);
            self.ios[slot] = 0;
            self.bytes[slot] = 0;
        }
        self.second = second;
    }

    /// The rates now. O(1).
    pub fn recent(&self, now: Nanos) -> Recent {
        let now = now.max(Nanos(self.second.saturating_mul(SECOND)));
        let (current, into) = (now.0 / SECOND, now.0 % SECOND);
        let [mut second, mut ten_seconds, mut minute] = [Rate::default(); 3];
        // Of the slots that lie in the window as a whole.
        let (mut ios, mut bytes) = (0u128, 0u128);
        for age in 0..SLOTS as u64 {
            let (slot_ios, slot_bytes) = self.slot(current, age);
            let rate = || {
                let of = |whole: u128, slot: u64| {
                    let part = u128::from(slot) * u128::from(SECOND - into);
                    let (sum, length) = (whole * u128::from(SECOND) + part, age * SECOND);
                    let rounded = (sum + u128::from(length / 2)) / u128::from(length);
                    u64::try_from(rounded).unwrap_or(u64::MAX)
                };
                Rate { iops: of(ios, slot_ios), bytes_per_sec: of(bytes, slot_bytes) }
            };
            match age {
                1 => second = rate(),
                10 => ten_seconds = rate(),
                60 => minute = rate(),
                _ => {}
            }
            ios += u128::from(slot_ios);
            bytes += u128::from(slot_bytes);
        }
        Recent { second, ten_seconds, minute }
    }

    /// What was counted in a second, so long before the current one.
    fn slot(&self, current: u64, age: u64) -> (u64, u64) {
        // Seconds after the last record are empty; those a whole ring before it are forgotten.
        match current.checked_sub(age) {
            Some(second) if second <= self.second && second + SLOTS as u64 > self.second => {
                (self.ios[slot_of(second)].into(), self.bytes[slot_of(second)])
            }
            _ => (0, 0),
        }
    }
}

fn slot_of(second: u64) -> usize {
    (second % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(from: u64, to: u64, every_micros: u64) -> Meter {
        let mut meter = Meter::new(Nanos::from_secs(from));
        let mut at = Nanos::from_secs(from);
        while at < Nanos::from_secs(to) {
            meter.record(at, Bytes::from_kib(4));
            at += Nanos::from_micros(every_micros);
        }
        meter
    }

    #[test]
    fn a_steady_rate_shows_in_all_windows_at_any_instant() {
        let mut meter = fed(1_000, 1_065, 1_000);
        for millis in 0..2_500 {
            let now = Nanos::from_secs(1_065) + Nanos::from_millis(millis);
            meter.record(now, Bytes::from_kib(4));
            let Recent { second, ten_seconds, minute } = meter.recent(now);
            assert!(
                [second, ten_seconds, minute].iter().all(|rate| rate.iops.abs_diff(1_000) <= 1)
            );
            assert!(minute.bytes_per_sec.abs_diff(4_096_000) <= 4_096);
        }
    }

    #[test]
    fn silence_shows_at_once_and_is_complete_after_the_window() {
        let meter = fed(1_000, 1_060, 1_000);
        let later = |millis| meter.recent(Nanos::from_secs(1_060) + Nanos::from_millis(millis));
        assert_eq!(later(500).second.iops, 500);
        assert_eq!(later(1_000).second.iops, 0);
        assert_eq!(later(5_000).ten_seconds.iops, 500);
        assert_eq!(later(30_000).minute.iops, 500);
        assert_eq!(later(60_000), Recent::default());
        assert_eq!(meter.recent(Nanos::MAX), Recent::default());
    }

    #[test]
    fn a_pause_longer_than_the_ring_leaves_nothing_behind() {
        let mut meter = fed(1_000, 1_060, 1_000);
        let now = Nanos::from_secs(100_000);
        meter.record(now, Bytes(60));
        assert_eq!(meter.recent(now).minute, Rate { iops: 0, bytes_per_sec: 1 });
        assert_eq!(meter.recent(now).second, Rate { iops: 1, bytes_per_sec: 60 });
    }

    #[test]
    fn a_clock_that_steps_back_counts_in_the_current_second() {
        let mut meter = fed(1_000, 1_002, 1_000);
        meter.record(Nanos::from_secs(3), Bytes(0));
        assert_eq!(meter.recent(Nanos::from_secs(1_002) - Nanos(1)).second.iops, 1_001);
    }
}
