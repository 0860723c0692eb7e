//! When to ask: as fast as answers come (closed loop), at a rate, or in bursts (open loop). Pure;
//! the time comes in.
//!
//! An open loop never forgets a request that was due while no slot was free: it starts late, and
//! its latency counts from when it should have started. Otherwise a stalled server would also stall
//! the measuring ("coordinated omission").

use headgate_units::Nanos;
use std::str::FromStr;

/// Whether a burst waits for the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BurstStart {
    /// Every burst starts on its instant, whatever is still outstanding: load does not give way.
    OnTime,
    /// A burst starts on the first of its instants at which nothing is outstanding.
    WhenIdle,
}

/// Bursts of N requests, a period in milliseconds apart: `N/PERIOD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// Requests in a burst, at least 1.
    pub size: u32,
    /// From the start of one to the start of the next.
    pub every: Nanos,
}

impl FromStr for Bursts {
    type Err = String;

    /// `64/10`: 64 requests every 10 ms; the unit `ms` may be written out.
    fn from_str(text: &str) -> Result<Bursts, String> {
        let expected = || {
            format!("'{text}' is not N/MS with both from 1, such as 64/10: 64 requests every 10 ms")
        };
        let (size, every) = text.split_once('/').ok_or_else(expected)?;
        let every = every.strip_suffix("ms").unwrap_or(every);
        let size: u32 = size.parse().map_err(|_| expected())?;
        let every: u32 = every.parse().map_err(|_| expected())?;
        if size == 0 || every == 0 {
            return Err(expected());
        }
        Ok(Bursts { size, every: Nanos::from_millis(every.into()) })
    }
}

/// How requests follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// The next one as soon as a slot is free.
    Closed,
    /// So many per second (at least 1), evenly spaced.
    Rate(u64),
    /// In bursts.
    Bursts(Bursts, BurstStart),
}

/// Decides when the next request starts.
#[derive(Clone, Debug)]
pub struct Pace {
    arrivals: Arrivals,
    start: Nanos,
    started: u64,
    /// Of bursts: which one is being issued, and what is left of it.
    burst: u64,
    left: u32,
}

impl Pace {
    /// The first request is due at `start`.
    pub fn new(arrivals: Arrivals, start: Nanos) -> Pace {
        Pace { arrivals, start, started: 0, burst: 0, left: 0 }
    }

    /// May a request start at `now`, with `outstanding` of them unanswered. Answers when it should
    /// have started. Every answer counts as one request started.
    pub fn poll(&mut self, now: Nanos, outstanding: usize) -> Option<Nanos> {
        match self.arrivals {
            Arrivals::Closed => (now >= self.start).then(|| {
                self.started += 1;
                now
            }),
            Arrivals::Rate(_) => {
                let due = self.next_at()?;
                (due <= now).then(|| {
                    self.started += 1;
                    due
                })
            }
            Arrivals::Bursts(bursts, start) => {
                if self.left == 0 {
                    self.begin_burst(now, outstanding, bursts, start)?;
                }
                self.left -= 1;
                Some(self.burst_at(bursts))
            }
        }
    }

    fn begin_burst(
        &mut self,
        now: Nanos,
        outstanding: usize,
        bursts: Bursts,
        start: BurstStart,
    ) -> Option<()> {
        let next = self.started;
        match start {
            BurstStart::OnTime => {}
            BurstStart::WhenIdle if outstanding > 0 => return None,
            BurstStart::WhenIdle => {
                // Instants that passed while requests were outstanding are skipped: the burst is
                // late on purpose.
                let passed = now.since(self.start).0 / bursts.every.0.max(1);
                if passed > next {
                    self.started = passed;
                }
            }
        }
        self.burst = self.started;
        (self.burst_at(bursts) <= now).then(|| {
            self.started = self.burst + 1;
            self.left = bursts.size;
        })
    }

    fn burst_at(&self, bursts: Bursts) -> Nanos {
        self.start + Nanos(bursts.every.0.saturating_mul(self.burst))
    }

    /// When [`poll`](Self::poll) has to be asked again, if nothing completes before. `None`: only a
    /// completion matters.
    pub fn next_at(&self) -> Option<Nanos> {
        match self.arrivals {
            Arrivals::Closed => (self.started == 0).then_some(self.start),
            Arrivals::Rate(rate) => {
                let offset = u128::from(self.started) * 1_000_000_000 / u128::from(rate.max(1));
                Some(self.start + Nanos(u64::try_from(offset).unwrap_or(u64::MAX)))
            }
            Arrivals::Bursts(bursts, _) => {
                let burst = if self.left > 0 { self.burst } else { self.started };
                Some(self.start + Nanos(bursts.every.0.saturating_mul(burst)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain(pace: &mut Pace, now: Nanos, outstanding: usize) -> Vec<Nanos> {
        std::iter::from_fn(|| pace.poll(now, outstanding)).collect()
    }

    proptest! {
        /// However irregularly it is asked, an open loop starts exactly what was due, and says when
        /// it was due.
        #[test]
        fn a_rate_is_kept_whatever_the_gaps(
            rate in 1u64..2_000_000, gaps in proptest::collection::vec(0u64..500_000, 1..30),
        ) {
            let mut pace = Pace::new(Arrivals::Rate(rate), Nanos(7));
            let mut now = Nanos(7);
            let mut started = 0u64;
            for gap in gaps {
                now += Nanos(gap);
                for due in drain(&mut pace, now, 0) {
                    prop_assert_eq!(u128::from(due.0 - 7), u128::from(started) * 1_000_000_000 / u128::from(rate));
                    started += 1;
                }
                prop_assert!(pace.next_at().unwrap() > now);
                let elapsed = u128::from(now.0 - 7);
                prop_assert_eq!(
                    u128::from(started),
                    // Requests i with i * 10^9 / rate <= elapsed, rounded down.
                    ((elapsed + 1) * u128::from(rate)).div_ceil(1_000_000_000)
                );
            }
        }
    }

    #[test]
    fn bursts_on_time_pile_up_behind_a_stall() {
        let bursts = Bursts { size: 3, every: Nanos(10) };
        let mut pace = Pace::new(Arrivals::Bursts(bursts, BurstStart::OnTime), Nanos(0));
        assert_eq!(drain(&mut pace, Nanos(0), 0), [Nanos(0); 3]);
        assert_eq!(pace.next_at(), Some(Nanos(10)));
        assert_eq!(drain(&mut pace, Nanos(9), 3), []);
        let late = drain(&mut pace, Nanos(25), 3);
        assert_eq!(late, [Nanos(10), Nanos(10), Nanos(10), Nanos(20), Nanos(20), Nanos(20)]);
    }

    #[test]
    fn waiting_bursts_skip_instants_until_idle() {
        let bursts = Bursts { size: 2, every: Nanos(10) };
        let mut pace = Pace::new(Arrivals::Bursts(bursts, BurstStart::WhenIdle), Nanos(0));
        assert_eq!(pace.poll(Nanos(0), 0), Some(Nanos(0)));
        assert_eq!(pace.poll(Nanos(0), 1), Some(Nanos(0)), "a burst begun is finished");
        assert_eq!(drain(&mut pace, Nanos(12), 1), []);
        assert_eq!(pace.poll(Nanos(35), 0), Some(Nanos(30)), "the instants 10 and 20 are gone");
        assert_eq!(pace.poll(Nanos(36), 1), Some(Nanos(30)));
        assert_eq!(pace.poll(Nanos(39), 0), None);
        assert_eq!(pace.next_at(), Some(Nanos(40)));
        assert_eq!(pace.poll(Nanos(40), 0), Some(Nanos(40)));
    }

    #[test]
    fn a_closed_loop_always_goes_on_once_started() {
        let mut pace = Pace::new(Arrivals::Closed, Nanos(3));
        assert_eq!(pace.poll(Nanos(2), 0), None);
        assert_eq!(pace.next_at(), Some(Nanos(3)));
        assert_eq!(pace.poll(Nanos(5), 99), Some(Nanos(5)));
        assert_eq!(pace.next_at(), None);
    }

    #[test]
    fn bursts_parse_or_say_what_was_expected() {
        let ten = Bursts { size: 64, every: Nanos::from_millis(10) };
        assert_eq!("64/10".parse(), Ok(ten));
        assert_eq!("64/10ms".parse(), Ok(ten));
        for text in ["64", "0/1", "1/0", "a/1", "1/1s"] {
            assert!(text.parse::<Bursts>().unwrap_err().contains("64/10"), "{text}");
        }
    }
}
