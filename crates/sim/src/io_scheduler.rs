//! Models of Linux's IO schedulers, which order requests inside a guest before its virtual disk.
//!
//! Only the rules that decide the order are modelled: no merging, no limits of queue memory, no
//! priorities. A workload is one process. A process waits for its reads and not for its writes.
//!
//! | scheduler | rule |
//! |---|---|
//! | noop | by arrival |
//! | deadline | ascending by position in batches of 16 of one kind, reads first, writes after two batches of reads; a new batch begins with the oldest once that has waited 500 ms (a write: 5 s) |
//! | anticipatory | as deadline, but after a read nothing is sent until its process has sent the next, unless that takes longer than 6 ms, or usually does, or the oldest request has waited its time |
//! | cfq | processes take turns of 100 ms, the writes of all one of 40 ms, each ascending by position; idle for up to 8 ms within a process's turn, if that has been coming back so soon |
//!
//! All but noop take time linear in the waiting requests for each that they send.

use crate::scenario::IoSchedulerKind;
use headgate_devices::IoKind;
use headgate_units::Nanos;
use std::collections::{BTreeMap, VecDeque};

const BATCH: u32 = 16;
const READ_EXPIRES: Nanos = Nanos::from_millis(500);
const WRITE_EXPIRES: Nanos = Nanos::from_secs(5);
/// So many batches of reads may pass waiting writes.
const WRITES_PASSED: u32 = 2;
const ANTICIPATION: Nanos = Nanos::from_millis(6);
const TURN: Nanos = Nanos::from_millis(100);
const WRITERS_TURN: Nanos = Nanos::from_millis(40);
const IDLING: Nanos = Nanos::from_millis(8);

/// A request that waits in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) key: u32,
    pub(crate) process: u32,
    pub(crate) kind: IoKind,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) since: Nanos,
}

impl Waiting {
    fn is_read(&self) -> bool {
        self.kind == IoKind::Read
    }

    fn has_expired(&self, now: Nanos) -> bool {
        now.since(self.since) >= if self.is_read() { READ_EXPIRES } else { WRITE_EXPIRES }
    }
}

/// The next step of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Send(Waiting),
    WaitUntil(Nanos),
    Idle,
}

/// The party whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Party {
    Process(u32),
    Writers,
}

/// The observed behaviour of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Habit {
    reads_inside: u32,
    completed: Option<Nanos>,
    /// From a completion to the read that follows, smoothed.
    think: u64,
}

impl Habit {
    fn notes(&mut self, pause: Nanos) {
        self.think = self.think - self.think / 8 + pause.0 / 8;
    }

    fn returns_within(&self, time: Nanos) -> bool {
        self.think <= time.0
    }
}

/// The IO scheduler of one virtual disk.
#[derive(Clone)]
pub(crate) struct IoScheduler {
    kind: IoSchedulerKind,
    depth: u32,
    inside: u32,
    /// By arrival.
    waiting: VecDeque<Waiting>,
    /// Past the last byte sent.
    head: u64,
    habits: BTreeMap<u32, Habit>,
    /// Kind and length of what is left of a batch.
    batch: (IoKind, u32),
    batches_of_reads: u32,
    /// The process whose next read the others wait for, and since when it has nothing inside.
    hold: Option<(u32, Option<Nanos>)>,
    turn: Option<(Party, Nanos)>,
}

impl IoScheduler {
    /// `depth`: requests that the virtual disk takes at once.
    pub(crate) fn new(kind: IoSchedulerKind, depth: u32) -> IoScheduler {
        IoScheduler {
            kind,
            depth,
            inside: 0,
            waiting: VecDeque::new(),
            head: 0,
            habits: BTreeMap::new(),
            batch: (IoKind::Read, 0),
            batches_of_reads: 0,
            hold: None,
            turn: None,
        }
    }

    pub(crate) fn add(&mut self, now: Nanos, request: Waiting) {
        if request.is_read() {
            let others = self.waiting.iter().any(|w| w.process == request.process && w.is_read());
            let habit = self.habits.entry(request.process).or_default();
            if let (Some(completed), 0, false) =
                (habit.completed.take(), habit.reads_inside, others)
            {
                habit.notes(now.since(completed));
            }
        }
        self.waiting.push_back(request);
    }

    pub(crate) fn completed(&mut self, now: Nanos, process: u32, kind: IoKind) {
        self.inside -= 1;
        if kind != IoKind::Read {
            return;
        }
        let habit = self.habits.entry(process).or_default();
        habit.reads_inside -= 1;
        habit.completed = Some(now);
        if let Some((held, since @ None)) = &mut self.hold
            && *held == process
            && habit.reads_inside == 0
        {
            *since = Some(now);
        }
    }

    /// What to send at `now`. To be asked until it has nothing more.
    pub(crate) fn next(&mut self, now: Nanos) -> Next {
        if self.inside >= self.depth || self.waiting.is_empty() {
            return Next::Idle;
        }
        let chosen = match self.kind {
            IoSchedulerKind::Noop => Ok(0),
            IoSchedulerKind::Deadline => Ok(self.by_deadline(now)),
            IoSchedulerKind::Anticipatory => self.by_anticipation(now),
            IoSchedulerKind::Cfq => self.by_turns(now),
        };
        let index = match chosen {
            Ok(index) => index,
            Err(Some(until)) => return Next::WaitUntil(until),
            Err(None) => return Next::Idle,
        };
        let Some(request) = self.waiting.remove(index) else { return Next::Idle };
        self.head = request.offset + request.bytes;
        self.inside += 1;
        self.hold = None;
        if request.is_read() {
            let habit = self.habits.entry(request.process).or_default();
            habit.reads_inside += 1;
            if self.kind == IoSchedulerKind::Anticipatory && habit.returns_within(ANTICIPATION) {
                self.hold = Some((request.process, None));
            }
        }
        Next::Send(request)
    }

    /// The next upwards from the head, or the lowest.
    fn upwards(&self, wanted: impl Fn(&Waiting) -> bool) -> Option<usize> {
        let fits = self.waiting.iter().enumerate().filter(|(_, w)| wanted(w));
        fits.min_by_key(|(_, w)| (w.offset < self.head, w.offset)).map(|(index, _)| index)
    }

    fn by_deadline(&mut self, now: Nanos) -> usize {
        let of = |kind: IoKind| move |w: &Waiting| w.is_read() == (kind == IoKind::Read);
        let (kind, left) = self.batch;
        if left > 0
            && let Some(index) = self.upwards(|w| of(kind)(w) && w.offset >= self.head)
        {
            self.batch.1 -= 1;
            return index;
        }
        let (reads, writes) =
            (self.waiting.iter().any(of(IoKind::Read)), self.waiting.iter().any(of(IoKind::Write)));
        let kind = match (reads, writes) {
            (true, true) if self.batches_of_reads < WRITES_PASSED => IoKind::Read,
            (true, false) => IoKind::Read,
            _ => IoKind::Write,
        };
        self.batches_of_reads = if kind == IoKind::Read { self.batches_of_reads + 1 } else { 0 };
        self.batch = (kind, BATCH - 1);
        // Arrivals are in order: the first of a kind is its oldest.
        let oldest = self.waiting.iter().position(of(kind)).unwrap_or(0);
        if self.waiting[oldest].has_expired(now) {
            return oldest;
        }
        self.upwards(of(kind)).unwrap_or(oldest)
    }

    fn by_anticipation(&mut self, now: Nanos) -> Result<usize, Option<Nanos>> {
        if let Some((process, since)) = self.hold
            && !self.waiting.iter().any(|w| w.has_expired(now))
        {
            if let Some(index) = self.upwards(|w| w.process == process && w.is_read()) {
                return Ok(index);
            }
            let Some(until) = since.map(|since| since + ANTICIPATION) else { return Err(None) };
            if now < until {
                return Err(Some(until));
            }
            // It comes back later than this, or never: as if twice as late.
            self.habits.entry(process).or_default().notes(Nanos(2 * ANTICIPATION.0));
        }
        self.hold = None;
        Ok(self.by_deadline(now))
    }

    fn by_turns(&mut self, now: Nanos) -> Result<usize, Option<Nanos>> {
        let of = |party: Party| {
            move |w: &Waiting| match party {
                Party::Process(process) => w.is_read() && w.process == process,
                Party::Writers => !w.is_read(),
            }
        };
        if let Some((party, ends)) = self.turn
            && now < ends
        {
            if let Some(index) = self.upwards(of(party)) {
                return Ok(index);
            }
            if let Party::Process(process) = party {
                let habit = self.habits.entry(process).or_default();
                let idle_until = habit.completed.map_or(now, |at| (at + IDLING).min(ends));
                if habit.reads_inside > 0 {
                    return Err(Some(ends));
                }
                if now < idle_until && habit.returns_within(IDLING) {
                    return Err(Some(idle_until));
                }
                if now >= idle_until {
                    habit.notes(Nanos(2 * IDLING.0));
                }
            }
        }
        let party = self.after(self.turn.map(|(party, _)| party));
        let length = if party == Party::Writers { WRITERS_TURN } else { TURN };
        self.turn = Some((party, now + length));
        Ok(self.upwards(of(party)).unwrap_or(0))
    }

    /// The party whose turn is next among those that wait: processes by number, then the writers.
    fn after(&self, last: Option<Party>) -> Party {
        let rank = |party: Party| match party {
            Party::Process(process) => u64::from(process),
            Party::Writers => u64::MAX,
        };
        let party =
            |w: &Waiting| if w.is_read() { Party::Process(w.process) } else { Party::Writers };
        let waiting = || self.waiting.iter().map(party);
        let later = waiting().filter(|p| last.is_some_and(|last| rank(*p) > rank(last)));
        let next = later.min_by_key(|p| rank(*p)).or_else(|| waiting().min_by_key(|p| rank(*p)));
        next.unwrap_or(Party::Writers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: u32, process: u32, kind: IoKind, offset: u64) -> Waiting {
        Waiting { key, process, kind, offset, bytes: 4096, since: Nanos::ZERO }
    }

    fn with(kind: IoSchedulerKind, requests: &[(u32, u32, IoKind, u64)]) -> IoScheduler {
        let mut io_scheduler = IoScheduler::new(kind, 1);
        for &(key, process, kind, offset) in requests {
            io_scheduler.add(Nanos::ZERO, request(key, process, kind, offset));
        }
        io_scheduler
    }

    /// The order in which all that waits is sent, each request taking a millisecond.
    fn order(io_scheduler: &mut IoScheduler, mut now: Nanos) -> Vec<u32> {
        let mut order = Vec::new();
        loop {
            match io_scheduler.next(now) {
                Next::Idle => return order,
                Next::WaitUntil(until) => now = until,
                Next::Send(sent) => {
                    order.push(sent.key);
                    now += Nanos::from_millis(1);
                    io_scheduler.completed(now, sent.process, sent.kind);
                }
            }
        }
    }

    fn sent(io_scheduler: &mut IoScheduler, now: Nanos) -> Option<u32> {
        match io_scheduler.next(now) {
            Next::Send(request) => Some(request.key),
            Next::WaitUntil(_) | Next::Idle => None,
        }
    }

    const MIXED: [(u32, u32, IoKind, u64); 5] = [
        (0, 1, IoKind::Write, 50 << 20),
        (1, 1, IoKind::Read, 90 << 20),
        (2, 2, IoKind::Read, 10 << 20),
        (3, 1, IoKind::Read, 20 << 20),
        (4, 2, IoKind::Read, 95 << 20),
    ];

    #[test]
    fn each_has_its_order() {
        let all = |kind| order(&mut with(kind, &MIXED), Nanos::ZERO);
        assert_eq!(all(IoSchedulerKind::Noop), [0, 1, 2, 3, 4]);
        assert_eq!(all(IoSchedulerKind::Deadline), [2, 3, 1, 4, 0], "ascending, reads first");
        assert_eq!(
            all(IoSchedulerKind::Anticipatory),
            [2, 4, 3, 1, 0],
            "one process as long as it has more"
        );
        assert_eq!(all(IoSchedulerKind::Cfq), [3, 1, 4, 2, 0], "process by process");
    }

    #[test]
    fn the_oldest_goes_first_once_its_time_is_over() {
        let mut io_scheduler = with(IoSchedulerKind::Deadline, &MIXED);
        assert_eq!(sent(&mut io_scheduler, Nanos::from_secs(1)), Some(1));
    }

    #[test]
    fn writes_pass_after_two_batches_of_reads() {
        let mut io_scheduler = with(IoSchedulerKind::Deadline, &[(1_000, 9, IoKind::Write, 0)]);
        for key in 0..100 {
            io_scheduler.add(Nanos::ZERO, request(key, key, IoKind::Read, u64::from(key) << 20));
        }
        let order = order(&mut io_scheduler, Nanos::ZERO);
        assert_eq!(order.iter().position(|key| *key == 1_000), Some(2 * BATCH as usize));
    }

    #[test]
    fn waits_for_whom_it_pays_and_no_longer_than_it_may() {
        for (kind, most) in
            [(IoSchedulerKind::Anticipatory, ANTICIPATION), (IoSchedulerKind::Cfq, IDLING)]
        {
            let mut now = Nanos::ZERO;
            let mut io_scheduler =
                with(kind, &[(0, 1, IoKind::Read, 0), (1, 2, IoKind::Read, 50 << 20)]);
            assert_eq!(sent(&mut io_scheduler, now), Some(0));
            now = Nanos::from_millis(2);
            io_scheduler.completed(now, 1, IoKind::Read);
            assert_eq!(io_scheduler.next(now), Next::WaitUntil(now + most), "{kind:?}");
            // It comes back.
            io_scheduler.add(now + Nanos(500_000), request(2, 1, IoKind::Read, 4096));
            assert_eq!(sent(&mut io_scheduler, now + Nanos(500_000)), Some(2));
            // And does not.
            now = Nanos::from_millis(5);
            io_scheduler.completed(now, 1, IoKind::Read);
            assert_eq!(sent(&mut io_scheduler, now + most), Some(1), "{kind:?}");
        }
    }

    #[test]
    fn who_never_comes_back_in_time_is_not_waited_for() {
        for kind in [IoSchedulerKind::Anticipatory, IoSchedulerKind::Cfq] {
            let (mut io_scheduler, mut now, mut waits) =
                (IoScheduler::new(kind, 1), Nanos::ZERO, 0);
            for round in 0..100 {
                io_scheduler.add(now, request(2 * round, 1, IoKind::Read, 0));
                io_scheduler.add(now, request(2 * round + 1, 2, IoKind::Read, 50 << 20));
                for _ in 0..2 {
                    let sent = loop {
                        match io_scheduler.next(now) {
                            Next::Send(sent) => break sent,
                            Next::WaitUntil(until) => (now, waits) = (until, waits + 1),
                            Next::Idle => unreachable!("two wait"),
                        }
                    };
                    now += Nanos::from_millis(1);
                    io_scheduler.completed(now, sent.process, sent.kind);
                }
                now += Nanos::from_millis(50);
            }
            assert!(waits < 20, "{kind:?} waited {waits} times in vain");
        }
    }
}
