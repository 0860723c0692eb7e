//! Storage of one server, as queueing theory has it.

use crate::rng::Rng;
use headgate_units::Nanos;
use std::collections::VecDeque;

/// How long a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// 1/rate each.
    Constant,
    /// Exponential of the mean 1/rate.
    Exponential,
}

/// Time in which nothing is served: at the end of each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// How long it is, less than the period.
    pub time: Nanos,
    /// From the end of one to the end of the next.
    pub period: Nanos,
}

/// A server that takes requests in the order in which they are handed in, one after the other.
#[derive(Clone, Debug)]
pub struct Server {
    service: Service,
    pause: Option<Pause>,
    mean: f64,
    free: Nanos,
    inside: VecDeque<(Nanos, usize)>,
    rng: Rng,
}

impl Server {
    /// An idle server of so many requests per second. The seed decides on service times.
    pub fn new(rate: u64, service: Service, pause: Option<Pause>, name: &str, seed: u64) -> Server {
        Server {
            service,
            pause,
            mean: 1e9 / rate as f64,
            free: Nanos::ZERO,
            inside: VecDeque::new(),
            rng: Rng::new(name, seed),
        }
    }

    /// Hands in a request. O(1) where service takes less than a period.
    pub fn submit(&mut self, now: Nanos, key: usize) {
        let nanos = match self.service {
            Service::Constant => self.mean,
            Service::Exponential => self.rng.exponential(self.mean),
        };
        self.free = self.end(self.free.max(now), Nanos(nanos.round() as u64));
        self.inside.push_back((self.free, key));
    }

    /// When service of this length ends that begins at `from`: it stands still in pauses.
    fn end(&self, from: Nanos, mut left: Nanos) -> Nanos {
        let Some(Pause { time, period }) = self.pause else { return from + left };
        let mut at = from;
        loop {
            let into = at.0 % period.0;
            let works = (period.0 - time.0).saturating_sub(into);
            if left.0 < works {
                return at + left;
            }
            left = Nanos(left.0 - works);
            at = Nanos(at.0 - into + period.0);
        }
    }

    /// When to poll.
    pub fn next_event(&self) -> Option<Nanos> {
        self.inside.front().map(|&(at, _)| at)
    }

    /// A request that is done.
    pub fn poll(&mut self, now: Nanos) -> Option<usize> {
        self.next_event().filter(|&at| at <= now)?;
        self.inside.pop_front().map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(time: u64) -> Nanos {
        Nanos::from_millis(time)
    }

    #[test]
    fn requests_are_served_one_after_the_other() {
        let mut server = Server::new(100, Service::Constant, None, "test", 0);
        server.submit(ms(5), 1);
        server.submit(ms(6), 2);
        assert_eq!((server.poll(ms(14)), server.next_event()), (None, Some(ms(15))));
        assert_eq!((server.poll(ms(15)), server.poll(ms(24))), (Some(1), None));
        assert_eq!(server.poll(ms(25)), Some(2));
    }

    #[test]
    fn service_stands_still_in_pauses() {
        let pause = Some(Pause { time: ms(200), period: ms(1_000) });
        for (from, expected) in [(0, 10), (789, 799), (795, 1_005), (800, 1_010), (900, 1_010)] {
            let mut server = Server::new(100, Service::Constant, pause, "test", 0);
            server.submit(ms(from), 1);
            assert_eq!(server.next_event(), Some(ms(expected)), "from {from} ms");
        }
    }

    #[test]
    fn random_times_have_the_mean_of_the_rate() {
        let mut server = Server::new(1_000, Service::Exponential, None, "test", 3);
        (0..40_000).for_each(|key| server.submit(Nanos::ZERO, key));
        let (end, _) = *server.inside.back().unwrap();
        // Five standard errors.
        assert!((end.as_secs_f64() / 40.0 - 1.0).abs() < 5.0 / 200.0, "{end:?}");
    }
}
