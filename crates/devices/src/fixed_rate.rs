use crate::service::{MEAN, Sampler, ServiceTime};
use crate::{DeviceIo, DeviceModel};
use alloc::collections::VecDeque;
use core::num::NonZeroU32;
use headgate_units::{Iops, Nanos};

const SECOND: u64 = 1_000_000_000;

/// The most that is owed because of a late driver: longer than the delays of a scheduler, too short
/// to notice in a rate over a second.
const MAX_OWED: Nanos = Nanos::from_millis(20);

/// A device that serves at most `rate` requests per second in total, whatever they are, with up to
/// `depth` at once, none in less than `latency`. More than `depth` queue inside, first come first
/// served.
///
/// With c(i) the completion of the i-th request and s(i) its start:
///
/// - s(i) = max(arrival(i), c(i - depth))
/// - c(i) = max(s(i) + latency, c(i - 1) + 1/rate)
///
/// So an idle device answers after `latency`; N requests kept outstanding give min(rate, min(N,
/// depth) / latency) requests per second and, by Little's law, wait N/rate each once the rate is
/// reached. A device whose rate is out of reach is a fixed-latency device of so many parallel
/// units. The remainder of 1/rate is carried: a busy device serves exactly `rate` requests in every
/// second. Flushes and discards count like any other request.
///
/// # Random service
/// With a [`ServiceTime`] that varies, 1/rate above is a random time with this mean, drawn for each
/// request. The device then serves `rate` requests per second in the mean of many.
///
/// # Late drivers
/// Completions are computed in model time: being polled late moves none of them. A driver that
/// sleeps through the completions of *everything* inside leaves the device with nothing to do,
/// though, and its clients would see less than the rate for a reason that is not the device's: the
/// clients of a real array answer its completions themselves. So the time from the last completion
/// to the poll that fetched it is owed to the clients. It is made good by serving what comes next
/// without the pause of 1/rate. While something is owed, waiting for a latency adds to it, and time
/// in which the device is empty though the driver is not late takes from it. Never more than 20 ms
/// are owed. Over any time T the device serves at most rate * (T + 20 ms) + 1 requests, and at most
/// rate * T + 1 with a punctual driver. In simulated time drivers are punctual and nothing is ever
/// owed.
///
/// Every operation is O(1) amortised: completions are in the order of arrival, so a queue does what
/// a heap would.
#[derive(Clone, Debug)]
pub struct FixedRate {
    pacer: Pacer,
    latency: Nanos,
    depth: usize,
    /// In service, with their starts. At most `depth`.
    started: VecDeque<(Nanos, u64)>,
    /// Waiting for one of the `depth` places.
    waiting: VecDeque<u64>,
    /// Completed by `seen`, not yet polled.
    done: VecDeque<(Nanos, u64)>,
    /// The latest instant that the driver has shown.
    seen: Nanos,
    /// When the driver last took the last completion.
    emptied: Nanos,
}

impl FixedRate {
    /// A device with nothing in it.
    pub fn new(rate: Iops, latency: Nanos, depth: NonZeroU32) -> FixedRate {
        FixedRate {
            pacer: Pacer::new(rate, Sampler::Constant),
            latency,
            depth: depth.get() as usize,
            started: VecDeque::new(),
            waiting: VecDeque::new(),
            done: VecDeque::new(),
            seen: Nanos::ZERO,
            emptied: Nanos::ZERO,
        }
    }

    /// The same device with service times from a distribution.
    #[must_use]
    pub fn with_service(self, service: ServiceTime) -> FixedRate {
        FixedRate { pacer: Pacer::new(self.pacer.rate, Sampler::new(service)), ..self }
    }

    /// The rate in force.
    pub fn rate(&self) -> Iops {
        self.pacer.rate
    }

    /// Changes the rate from `now` on, also for requests inside. The one in service completes at
    /// the earliest `now` and at the latest 1/`rate` later than the one before it (or after its
    /// latency).
    pub fn set_rate(&mut self, now: Nanos, rate: Iops) {
        self.advance(now);
        self.pacer.set_rate(self.seen, rate);
    }

    fn next_completion(&self) -> Option<Nanos> {
        let &(start, _) = self.started.front()?;
        Some(self.pacer.next().max(start + self.latency))
    }

    /// Completes what is due by `now`, in model time.
    fn advance(&mut self, now: Nanos) {
        self.seen = self.seen.max(now);
        while let Some(at) = self.next_completion().filter(|&at| at <= self.seen) {
            let Some((start, id)) = self.started.pop_front() else { return };
            self.pacer.take(at, start);
            self.done.push_back((at, id));
            self.started.extend(self.waiting.pop_front().map(|next| (at, next)));
        }
    }

    /// A request comes to an empty device, which could have served another since `idle`: whose
    /// fault was the pause?
    fn account_pause(&mut self) {
        let Some(idle) = self.pacer.regular() else { return };
        let fetched = if self.done.is_empty() { self.emptied } else { self.seen };
        self.pacer.owe(fetched - idle);
        self.pacer.forget(self.seen - fetched.max(idle));
    }
}

impl DeviceModel for FixedRate {
    fn submit(&mut self, now: Nanos, id: u64, _: DeviceIo) {
        self.advance(now);
        if self.started.is_empty() {
            self.account_pause();
        }
        if self.started.len() < self.depth {
            self.started.push_back((self.seen, id));
        } else {
            self.waiting.push_back(id);
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.done.front().map(|&(at, _)| at).or_else(|| self.next_completion())
    }

    fn poll(&mut self, now: Nanos) -> Option<u64> {
        self.advance(now);
        let (_, id) = self.done.pop_front()?;
        if self.done.is_empty() {
            self.emptied = self.seen;
        }
        Some(id)
    }

    fn in_flight(&self) -> usize {
        self.started.len() + self.waiting.len() + self.done.len()
    }
}

/// Instants 1/rate apart, exact in the long run.
#[derive(Clone, Debug)]
struct Pacer {
    rate: Iops,
    /// The instant last taken; none before the first.
    last: Option<Nanos>,
    /// What `last` is short of, in units of 1/rate nanoseconds, below `rate`.
    carried: u64,
    /// By how much the next instants may come early, in sum.
    owed: Nanos,
    sampler: Sampler,
    /// The time to the next instant, in parts of 1/rate ([`MEAN`]).
    times: u64,
}

impl Pacer {
    fn new(rate: Iops, sampler: Sampler) -> Pacer {
        Pacer { rate, last: None, carried: 0, owed: Nanos::ZERO, sampler, times: MEAN }
    }

    /// 1/rate after `last`, and what is carried then. `carried` is below `rate` <= 10⁹.
    fn step(&self, last: Nanos) -> (Nanos, u64) {
        let rate = self.rate.get();
        // Below 2⁴¹ · 2³⁰ before the shift, and far below 2⁶⁴ after it.
        let gap = ((u128::from(self.times) * u128::from(SECOND)) >> MEAN.trailing_zeros()) as u64;
        let whole = gap + self.carried;
        (last + Nanos(whole / rate), whole % rate)
    }

    /// 1/rate after the last instant.
    fn regular(&self) -> Option<Nanos> {
        self.last.map(|last| self.step(last).0)
    }

    /// The earliest instant that may be taken next.
    fn next(&self) -> Nanos {
        self.last.map_or(Nanos::ZERO, |last| (self.step(last).0 - self.owed).max(last))
    }

    /// Takes the instant `at`, which is `next` or later, for a request in service since `start`.
    fn take(&mut self, at: Nanos, start: Nanos) {
        if let Some(last) = self.last {
            let (regular, carried) = self.step(last);
            self.carried = if at > regular { 0 } else { carried };
            self.owed = self.owed - (regular - at);
            if self.owed > Nanos::ZERO {
                self.owe(at - regular.max(start));
            }
        }
        self.last = Some(at);
        self.times = self.sampler.draw();
    }

    fn owe(&mut self, time: Nanos) {
        self.owed = (self.owed + time).min(MAX_OWED);
    }

    fn forget(&mut self, time: Nanos) {
        self.owed = self.owed - time;
    }

    fn set_rate(&mut self, now: Nanos, rate: Iops) {
        self.rate = rate;
        self.carried = 0;
        let spacing = Nanos(SECOND / rate.get());
        self.last = self.last.map(|last| last.max(now - spacing));
    }
}
