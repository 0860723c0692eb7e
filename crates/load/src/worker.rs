//! The thread that loads one target: keeps the slots of its links filled, times what comes back,
//! and survives the server's death where asked to.

use crate::control::{Batch, Control};
use crate::demand::Demand;
use crate::error::Failure;
use crate::ledger::Block;
use crate::link::{
    Completion, Durability, Kind, Link, LinkError, Op, Outcome, Recovered, TICK, Wait,
};
use crate::measure::Meter;
use crate::verify::{Claim, Verifier};
use crate::workload::{Priority, Streams};
use headgate_units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often a dead server is called again.
const RECONNECT_EVERY: Duration = Duration::from_millis(20);
/// How often another place is drawn when the one drawn is in use.
const DRAWS: usize = 64;

/// The bounds of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// When the first request is due.
    pub start: Nanos,
    /// How long requests are sent before they count.
    pub warmup: Nanos,
    /// How long requests count.
    pub seconds: Nanos,
    /// Do not start more requests than this.
    pub ios: u64,
    /// Time without an answer after which a request failed.
    pub patience: Nanos,
    /// How long a dead server is waited for; zero: its death ends the load.
    pub reconnect: Nanos,
    /// Busy polling or waiting for events.
    pub waiting: Waiting,
    /// Bytes of the reads of a check.
    pub check_len: u32,
}

/// How a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Sleeps until something happens.
    Sleep,
    /// Looks again and again: lower latency, one CPU spent.
    Spin,
}

/// Whether a request counts in the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Yes,
    No,
}

struct Flight {
    op: Op,
    intended: Nanos,
    /// When it left; the patience with the server counts from here.
    sent: Nanos,
    counted: Counted,
    claim: Claim,
}

struct Lane {
    link: Box<dyn Link>,
    free: Vec<usize>,
    flights: Vec<Option<Flight>>,
}

/// Did the servers live through a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Quiet,
    /// The server died and is back.
    Recovered,
}

/// The task of a worker.
pub(crate) struct Job {
    pub demand: Demand,
    pub verifier: Option<Verifier>,
    pub limits: Limits,
    pub streams: Option<Streams>,
}

pub(crate) struct Worker<'a> {
    lanes: Vec<Lane>,
    pub(crate) demand: Demand,
    pub(crate) verifier: Option<Verifier>,
    pub(crate) meter: Meter,
    limits: Limits,
    streams: Option<Streams>,
    /// Do not start requests after this.
    end: Nanos,
    control: &'a Control,
    clock: Instant,
    outstanding: usize,
    issued: u64,
    /// A request that is due but had no place to go.
    owed: Option<Nanos>,
    next_lane: usize,
    next_look: Nanos,
    turn_began: Nanos,
    pub(crate) reconnects: u64,
}

impl<'a> Worker<'a> {
    /// `clock` is the origin of all times.
    pub(crate) fn new(
        links: Vec<(Box<dyn Link>, usize)>,
        job: Job,
        control: &'a Control,
        clock: Instant,
    ) -> Worker<'a> {
        let Job { mut demand, verifier, limits, streams } = job;
        demand.start(limits.start);
        let from = limits.start + limits.warmup;
        let lanes = links.into_iter().map(|(link, slots)| Lane {
            link,
            free: (0..slots).rev().collect(),
            flights: (0..slots).map(|_| None).collect(),
        });
        Worker {
            lanes: lanes.collect(),
            demand,
            verifier,
            meter: Meter::new(from, streams.as_ref()),
            streams,
            end: from + limits.seconds,
            limits,
            control,
            clock,
            outstanding: 0,
            issued: 0,
            owed: None,
            next_lane: 0,
            next_look: Nanos::ZERO,
            turn_began: Nanos::ZERO,
            reconnects: 0,
        }
    }

    fn now(&self) -> Nanos {
        self.clock.elapsed().into()
    }

    /// The whole run: a check of what a journal knows, the load, a check of what it wrote.
    pub(crate) fn run(&mut self) -> Result<(), Failure> {
        if self.verifier.as_ref().is_some_and(Verifier::has_history) {
            self.settle()?;
            // The load starts behind the check, and so does the counting.
            let start = self.now().max(self.limits.start);
            let from = start + self.limits.warmup;
            self.demand.start(start);
            self.meter = Meter::new(from, self.streams.as_ref());
            self.end = from + self.limits.seconds;
        }
        let loaded = self.load();
        let now = self.now();
        self.meter.close(now);
        self.control.ended.fetch_add(1, Ordering::Relaxed);
        loaded?;
        if self.verifier.is_some() && !self.control.is_interrupted() {
            self.settle()?;
        }
        Ok(())
    }

    fn load(&mut self) -> Result<(), Failure> {
        loop {
            let now = self.now();
            if now >= self.end || self.issued >= self.limits.ios || self.control.is_stopped() {
                return self.drain();
            }
            if self.owed.is_none()
                && let Some(end) = self.demand.end()
            {
                self.drain()?;
                return end.map_err(Failure::Recording);
            }
            self.fill(now)?;
            let until = match self.owed {
                // Only a completion makes room.
                Some(_) => None,
                None if self.has_room() => self.demand.next_at(),
                None => None,
            };
            let until = until.unwrap_or(Nanos::MAX).min(self.end);
            if self.turn(until)? == Turn::Recovered && self.verifier.is_some() {
                self.settle()?;
            }
        }
    }

    fn has_room(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.free.is_empty())
    }

    /// Starts every request that is due and has a free slot.
    fn fill(&mut self, now: Nanos) -> Result<(), Failure> {
        self.turn_began = now;
        while self.issued < self.limits.ios {
            let Some(lane) = self.lane_with_room() else { return Ok(()) };
            let due = self.owed.take().or_else(|| self.demand.poll(now, self.outstanding));
            let Some(intended) = due else { return Ok(()) };
            let Some((op, claim)) = self.draw() else {
                self.owed = Some(intended);
                return Ok(());
            };
            self.start(lane, op, claim, intended, Counted::Yes)?;
            self.issued += 1;
        }
        Ok(())
    }

    fn lane_with_room(&mut self) -> Option<usize> {
        let count = self.lanes.len();
        let found = (self.next_lane..self.next_lane + count)
            .map(|i| i % count)
            .find(|i| !self.lanes[*i].free.is_empty())?;
        self.next_lane = (found + 1) % count;
        Some(found)
    }

    /// A request that touches nothing in use.
    fn draw(&mut self) -> Option<(Op, Claim)> {
        let Some(verifier) = &mut self.verifier else {
            return self.demand.next_op().map(|op| (op, Claim::Nothing));
        };
        (0..DRAWS).find_map(|_| {
            let op = self.demand.next_op()?;
            verifier.claim(&op).map(|claim| (op, claim))
        })
    }

    fn start(
        &mut self,
        lane: usize,
        mut op: Op,
        claim: Claim,
        intended: Nanos,
        counted: Counted,
    ) -> Result<(), Failure> {
        let now = if counted == Counted::Yes { self.turn_began } else { intended };
        let lane = &mut self.lanes[lane];
        let Some(slot) = lane.free.pop() else { return Ok(()) };
        if let Some(streams) = &self.streams {
            op.priority = streams.of(slot);
        }
        let payload = self.verifier.as_mut().map_or(&[][..], |v| v.payload(&op));
        lane.link.submit(slot, &op, payload)?;
        lane.flights[slot] = Some(Flight { op, intended, sent: now, counted, claim });
        self.outstanding += 1;
        Ok(())
    }

    /// Sends, waits until `until` or something happens, and takes what completed.
    fn turn(&mut self, until: Nanos) -> Result<Turn, Failure> {
        match self.exchange(until) {
            Ok(()) => {
                self.look_for_the_hung()?;
                Ok(Turn::Quiet)
            }
            Err(Failure::Link(LinkError::Down(why))) if self.limits.reconnect > Nanos::ZERO => {
                self.reconnect(why)?;
                Ok(Turn::Recovered)
            }
            Err(e) => Err(e),
        }
    }

    fn exchange(&mut self, until: Nanos) -> Result<(), Failure> {
        if let Some(verifier) = &mut self.verifier {
            verifier.before_send()?;
        }
        for lane in &mut self.lanes {
            lane.link.send()?;
        }
        let mut wait = Wait::No;
        if self.limits.waiting == Waiting::Sleep {
            let left = until.since(self.now());
            if left > Nanos::ZERO {
                if self.lanes.len() == 1 && left >= TICK.into() {
                    wait = Wait::Tick;
                } else {
                    self.sleep(left.min(TICK.into()))?;
                }
            }
        }
        for i in 0..self.lanes.len() {
            self.take_completions(i, wait)?;
        }
        Ok(())
    }

    fn sleep(&mut self, at_most: Nanos) -> Result<(), Failure> {
        for lane in &mut self.lanes {
            if lane.link.has_completions() {
                return Ok(());
            }
        }
        let mut fds = Vec::with_capacity(self.lanes.len() + 2);
        for lane in &self.lanes {
            let ready = lane.link.readiness();
            fds.push(PollFd::from_borrowed_fd(ready.readable, PollFlags::IN));
            if let Some(fd) = ready.writable {
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::OUT));
            }
            if let Some(fd) = ready.hang_up {
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::RDHUP));
            }
        }
        let timeout = Timespec {
            tv_sec: (at_most.0 / 1_000_000_000) as i64,
            tv_nsec: (at_most.0 % 1_000_000_000) as i64,
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(LinkError::Unsupported(format!("poll: {e}")).into()),
        }
    }

    fn take_completions(&mut self, index: usize, wait: Wait) -> Result<(), Failure> {
        let clock = self.clock;
        let lane = &mut self.lanes[index];
        let (free, flights) = (&mut lane.free, &mut lane.flights);
        let (meter, verifier, outstanding) =
            (&mut self.meter, &mut self.verifier, &mut self.outstanding);
        let mut now = None;
        let mut batch = Batch::default();
        let received = lane.link.receive(wait, &mut |done: Completion<'_>| {
            // One look at the clock per batch: what arrives together completed together.
            let now: Nanos = *now.get_or_insert_with(|| clock.elapsed().into());
            let Some(flight) = flights.get_mut(done.slot).and_then(Option::take) else { return };
            *outstanding -= 1;
            free.push(done.slot);
            if let Some(verifier) = verifier {
                verifier.complete(flight.claim, &flight.op, done.outcome, done.data);
            }
            match done.outcome {
                Outcome::Failed(code) => {
                    batch.errors += 1;
                    meter.on_error(code);
                }
                Outcome::Done if flight.counted == Counted::Yes => {
                    batch.ios += 1;
                    batch.bytes += u64::from(flight.op.len);
                    if flight.op.kind == Kind::Flush {
                        batch.flushes += 1;
                    }
                    meter.on_done(&flight.op, flight.intended, now);
                }
                Outcome::Done => {}
            }
        });
        self.control.add(&batch);
        received.map_err(Failure::Link)
    }

    /// A server that neither answers nor hangs up is found out.
    fn look_for_the_hung(&mut self) -> Result<(), Failure> {
        // Twice per patience is enough, and keeps the scan off the hot path.
        let now = self.now();
        if now < self.next_look {
            return Ok(());
        }
        self.next_look = now + Nanos(self.limits.patience.0 / 2);
        let flights = self.lanes.iter().flat_map(|lane| lane.flights.iter().flatten());
        let hung =
            flights.filter(|f| now.since(f.sent) > self.limits.patience).min_by_key(|f| f.sent);
        match hung {
            None => Ok(()),
            Some(f) => Err(Failure::Hung { op: f.op, waited: now.since(f.sent) }),
        }
    }

    fn reconnect(&mut self, why: String) -> Result<(), Failure> {
        let deadline = self.now() + self.limits.reconnect;
        if let Some(verifier) = &mut self.verifier {
            verifier.on_crash();
        }
        for i in 0..self.lanes.len() {
            loop {
                match self.lanes[i].link.recover() {
                    Ok(Recovered::StillInFlight) => break,
                    Ok(Recovered::Lost) => {
                        self.forget_flights(i);
                        break;
                    }
                    Err(LinkError::Down(_))
                        if self.now() < deadline && !self.control.is_interrupted() =>
                    {
                        std::thread::sleep(RECONNECT_EVERY);
                    }
                    Err(LinkError::Down(last)) => {
                        return Err(
                            LinkError::Down(format!("{why}; not back in time: {last}")).into()
                        );
                    }
                    Err(e) => return Err(e.into()),
                }
            }
        }
        self.reconnects += 1;
        self.control.reconnects.fetch_add(1, Ordering::Relaxed);
        // The time without a server is not the server's to answer for: patience starts anew.
        let now = self.now();
        for flight in self.lanes.iter_mut().flat_map(|lane| lane.flights.iter_mut().flatten()) {
            flight.sent = now;
        }
        Ok(())
    }

    fn forget_flights(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        for (slot, flight) in lane.flights.iter_mut().enumerate() {
            if let Some(flight) = flight.take() {
                self.outstanding -= 1;
                lane.free.push(slot);
                if let Some(verifier) = &mut self.verifier {
                    verifier.lose(flight.claim);
                }
            }
        }
    }

    fn drain(&mut self) -> Result<(), Failure> {
        while self.outstanding > 0 {
            self.turn(Nanos::MAX)?;
        }
        Ok(())
    }

    /// Lets everything in flight finish and reads back every block ever written, until that goes
    /// through without the server dying again.
    fn settle(&mut self) -> Result<(), Failure> {
        loop {
            self.drain()?;
            if self.check()? == Turn::Quiet {
                return Ok(());
            }
        }
    }

    fn check(&mut self) -> Result<Turn, Failure> {
        let mut from = Some(Block(0));
        while from.is_some() || self.outstanding > 0 {
            while let Some(block) = from.filter(|_| self.has_room()) {
                let Some(verifier) = &mut self.verifier else { return Ok(Turn::Quiet) };
                let Some((offset, len)) = verifier.next_written(block, self.limits.check_len)
                else {
                    from = None;
                    break;
                };
                let durability = Durability::AtFlush;
                let op = Op { kind: Kind::Read, offset, len, durability, priority: Priority(0) };
                // Nothing writes during a check, so nothing is in use.
                let Some(claim) = verifier.claim(&op) else { break };
                from = Some(verifier.block_after(offset, len));
                let now = self.now();
                if let Some(lane) = self.lane_with_room() {
                    self.start(lane, op, claim, now, Counted::No)?;
                }
            }
            if self.turn(Nanos::MAX)? == Turn::Recovered {
                return Ok(Turn::Recovered);
            }
            if self.control.is_interrupted() {
                self.drain()?;
                return Ok(Turn::Quiet);
            }
        }
        Ok(Turn::Quiet)
    }
}
