use headgate_units::Nanos;

/// Time that only goes forward, made from a caller's clock that may not.
///
/// A step back or none at all counts for nothing; a step forward counts for at most [`MAX_STEP`].
/// So no input brings the inner clock near its end, and after any step tags made before it keep
/// their meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steady {
    now: u64,
    caller: Nanos,
}

/// The inner clock starts here, so that subtracting a bound (an hour at most) stays positive.
const ORIGIN: u64 = 1 << 52;

/// 2^48 ns, a little over three days: longer than any memory of the scheduler.
const MAX_STEP: u64 = 1 << 48;

impl Steady {
    /// A clock that takes its first reading at the first call.
    pub(crate) fn new() -> Steady {
        Steady { now: ORIGIN, caller: Nanos::MAX }
    }

    /// Follows the caller's clock and returns the inner time in nanoseconds.
    #[inline]
    pub(crate) fn advance(&mut self, caller: Nanos) -> u64 {
        self.now = self.now.saturating_add(caller.since(self.caller).0.min(MAX_STEP));
        self.caller = caller;
        self.now
    }

    /// When, on the caller's clock, the inner clock will show `inner`.
    pub(crate) fn caller_time(&self, inner: u64) -> Nanos {
        self.caller + Nanos(inner.saturating_sub(self.now))
    }

    /// The inner time of the last reading.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back_and_never_runs_out() {
        let mut time = Steady::new();
        let start = time.advance(Nanos::from_secs(100));
        assert_eq!(time.advance(Nanos::from_secs(101)), start + 1_000_000_000);
        assert_eq!(time.advance(Nanos::from_secs(1)), start + 1_000_000_000);
        assert_eq!(time.advance(Nanos::from_secs(2)), start + 2_000_000_000);
        assert_eq!(time.caller_time(start + 2_500_000_000), Nanos::from_millis(2_500));
        for _ in 0..1_000 {
            time.advance(Nanos::MAX);
            time.advance(Nanos::ZERO);
        }
        assert!(time.now() < 1 << 59);
    }
}
