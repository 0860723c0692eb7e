//! Earliest deadline first, without preemption: what a reservation is worth where nothing else
//! counts.

use headgate_units::{Iops, Nanos};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The clock of a disk that has a reservation: Zhang, *VirtualClock*, SIGCOMM 1990.
#[derive(Clone, Copy, Debug)]
pub struct VirtualClock {
    /// Between two deadlines of a disk with requests waiting.
    step: Nanos,
    /// The deadline of the last request.
    last: Nanos,
}

impl VirtualClock {
    /// The clock of a reservation.
    pub fn new(reservation: Iops) -> VirtualClock {
        VirtualClock { step: Nanos(1_000_000_000 / reservation.get()), last: Nanos::ZERO }
    }

    /// Start and deadline of a request that arrives now: those that a server has that serves
    /// nobody else at the reservation's rate. O(1).
    pub fn arrival(&mut self, now: Nanos) -> (Nanos, Nanos) {
        let start = self.last.max(now);
        self.last = start + self.step;
        (start, self.last)
    }
}

/// From when on a request of a reserved disk competes by its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eligible {
    /// From its arrival: reserved disks go before all others always, whatever the shares. No
    /// scheduler that keeps all deadlines is faster for them together.
    AtOnce,
    /// From its start on a server of its own: a disk gets its reservation and no more while others
    /// want the storage, which is what shares of next to nothing leave to it.
    AtStart,
}

/// The scheduler. Requests of disks without a reservation go in order of arrival when no other may
/// be sent.
#[derive(Clone, Debug)]
pub struct Deadlines<R> {
    eligible: Eligible,
    clocks: Vec<Option<VirtualClock>>,
    /// By start, deadline and number.
    early: BinaryHeap<Reverse<(Nanos, Nanos, u64)>>,
    /// By deadline and number.
    ready: BinaryHeap<Reverse<(Nanos, u64)>>,
    /// Those without a deadline, by number.
    rest: VecDeque<u64>,
    /// What was queued, from number `first` on; `None` where it was sent.
    requests: VecDeque<Option<R>>,
    first: u64,
}

impl<R> Deadlines<R> {
    /// A scheduler of disks with these reservations.
    pub fn new(eligible: Eligible, reservations: &[Option<Iops>]) -> Deadlines<R> {
        Deadlines {
            eligible,
            clocks: reservations.iter().map(|rate| rate.map(VirtualClock::new)).collect(),
            early: BinaryHeap::new(),
            ready: BinaryHeap::new(),
            rest: VecDeque::new(),
            requests: VecDeque::new(),
            first: 0,
        }
    }

    /// Queues a request; of an unknown disk as one without a reservation. O(log n).
    pub fn enqueue(&mut self, now: Nanos, disk: usize, request: R) {
        let number = self.first + self.requests.len() as u64;
        self.requests.push_back(Some(request));
        let Some(Some(clock)) = self.clocks.get_mut(disk) else {
            self.rest.push_back(number);
            return;
        };
        let (start, deadline) = clock.arrival(now);
        match self.eligible {
            Eligible::AtOnce => self.ready.push(Reverse((deadline, number))),
            Eligible::AtStart => self.early.push(Reverse((start, deadline, number))),
        }
    }

    /// The request to send now. O(log n).
    pub fn next(&mut self, now: Nanos) -> Option<R> {
        while let Some(&Reverse((start, deadline, number))) = self.early.peek()
            && start <= now
        {
            self.early.pop();
            self.ready.push(Reverse((deadline, number)));
        }
        let number = match self.ready.pop() {
            Some(Reverse((_, number))) => number,
            None => self.rest.pop_front()?,
        };
        let request = self.requests.get_mut((number - self.first) as usize)?.take();
        while let Some(None) = self.requests.front() {
            self.requests.pop_front();
            self.first += 1;
        }
        request
    }

    /// When [`next`](Deadlines::next) has something although nothing happens. O(1).
    pub fn next_wake(&self) -> Option<Nanos> {
        self.early.peek().map(|&Reverse((start, _, _))| start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn ms(time: u64) -> Nanos {
        Nanos(time * MS)
    }

    fn scheduler(eligible: Eligible) -> Deadlines<&'static str> {
        let rate = |rate| Iops::new(rate).ok();
        Deadlines::new(eligible, &[rate(100), rate(200), None])
    }

    #[test]
    fn a_clock_runs_as_a_server_of_its_own_would() {
        let mut clock = VirtualClock::new(Iops::new(100).unwrap());
        assert_eq!(clock.arrival(ms(3)), (ms(3), ms(13)));
        assert_eq!(clock.arrival(ms(4)), (ms(13), ms(23)));
        assert_eq!(clock.arrival(ms(40)), (ms(40), ms(50)), "idleness leaves no credit");
    }

    #[test]
    fn the_earliest_deadline_goes_first_and_the_unreserved_last() {
        let mut scheduler = scheduler(Eligible::AtOnce);
        scheduler.enqueue(ms(0), 2, "unreserved");
        scheduler.enqueue(ms(0), 0, "due at 10 ms");
        scheduler.enqueue(ms(1), 1, "due at 6 ms");
        scheduler.enqueue(ms(1), 1, "due at 11 ms");
        let sent: Vec<_> = std::iter::from_fn(|| scheduler.next(ms(1))).collect();
        assert_eq!(sent, ["due at 6 ms", "due at 10 ms", "due at 11 ms", "unreserved"]);
        assert!(scheduler.requests.is_empty(), "what was sent is forgotten");
    }

    #[test]
    fn before_its_start_a_request_lets_others_go_first() {
        let mut scheduler = scheduler(Eligible::AtStart);
        scheduler.enqueue(ms(0), 0, "first");
        scheduler.enqueue(ms(0), 0, "second");
        scheduler.enqueue(ms(0), 2, "unreserved");
        assert_eq!(scheduler.next(ms(0)), Some("first"));
        assert_eq!(scheduler.next(ms(9)), Some("unreserved"));
        assert_eq!((scheduler.next(ms(9)), scheduler.next_wake()), (None, Some(ms(10))));
        assert_eq!(scheduler.next(ms(10)), Some("second"));
    }
}
