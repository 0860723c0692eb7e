//! Clients that think before they ask again.

use crate::rng::Rng;
use headgate_units::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// So many clients of one disk. Each sends a request, waits for it, and thinks for a random time
/// (exponential) before the next. So never more requests are outstanding than there are clients,
/// and fewer are sent than they would send if all were answered at once.
#[derive(Clone, Debug)]
pub struct Thinkers {
    /// When clients that think will send.
    wakes: BinaryHeap<Reverse<Nanos>>,
    /// How long they think, in seconds.
    mean: f64,
    rng: Rng,
}

impl Thinkers {
    /// Clients that all begin to think now, and would send `rate` requests per second together if
    /// each were answered at once.
    pub fn new(now: Nanos, clients: u32, rate: f64, rng: Rng) -> Thinkers {
        let mean = f64::from(clients) / rate;
        let mut thinkers = Thinkers { wakes: BinaryHeap::new(), mean, rng };
        (0..clients).for_each(|_| thinkers.answered(now));
        thinkers
    }

    /// When the next of them sends; `None` while all wait.
    pub fn next(&self) -> Option<Nanos> {
        self.wakes.peek().map(|&Reverse(at)| at)
    }

    /// Takes one that sends now or should have before.
    pub fn take(&mut self, now: Nanos) -> Option<Nanos> {
        let at = self.next().filter(|&at| at <= now)?;
        self.wakes.pop();
        Some(at)
    }

    /// One has its answer.
    pub fn answered(&mut self, now: Nanos) {
        let thinks = Nanos((self.rng.exponential(self.mean) * 1e9) as u64);
        self.wakes.push(Reverse(now + thinks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_are_answered_at_once_send_at_the_rate() {
        let mut thinkers = Thinkers::new(Nanos::ZERO, 8, 100.0, Rng::new("test", 1));
        let mut sent = 0;
        while let Some(at) = thinkers.next().filter(|at| at.as_secs_f64() < 400.0) {
            assert_eq!(thinkers.take(Nanos(at.0 - 1)), None);
            assert_eq!(thinkers.take(at), Some(at));
            thinkers.answered(at);
            sent += 1;
        }
        // Poisson: five standard errors.
        assert!((f64::from(sent) - 40_000.0).abs() < 5.0 * 200.0, "{sent}");
    }

    #[test]
    fn no_more_are_outstanding_than_there_are_clients() {
        let mut thinkers = Thinkers::new(Nanos::ZERO, 3, 1e6, Rng::new("test", 1));
        let sent = std::iter::from_fn(|| thinkers.take(Nanos::from_secs(60))).count();
        assert_eq!((sent, thinkers.next()), (3, None));
    }
}
