//! Generators of requests.
//!
//! A [`Generator`] is told that it starts, that a time which it asked for has come, and that a
//! request of its completed; it answers with [`Orders`].

mod oltp;
mod orders;
mod pattern;
mod replay;

pub(crate) use orders::{Issue, Orders};
pub(crate) use replay::Player;
pub use replay::{NoTraces, TraceRecord, Traces};

use crate::random::Stream;
use crate::scenario::{Arrivals, Pacing, Pattern, TimeDistribution, WorkloadKind};
use headgate_units::{Iops, Nanos};
use oltp::Terminals;
use orders::part_of;
use pattern::Source;

/// One workload at work.
pub(crate) struct Generator {
    disk: usize,
    source: Source,
    stream: Stream,
    kind: Kind,
}

enum Kind {
    /// `most` is what it has outstanding unless told otherwise, `running` what it has now, thinking
    /// included.
    Closed {
        most: u32,
        outstanding: u32,
        running: u32,
        think: TimeDistribution,
    },
    Burst {
        requests: u32,
        every: Nanos,
        pacing: Pacing,
        left: u32,
    },
    Open {
        rate: Iops,
        arrivals: Arrivals,
        started: Nanos,
        issued: u64,
    },
    OnOff {
        outstanding: u32,
        on: TimeDistribution,
        off: TimeDistribution,
        busy: bool,
        running: u32,
    },
    Oltp(Box<Terminals>),
    Replay(Box<Player>),
}

impl Kind {
    fn closed(outstanding: u32, think: TimeDistribution) -> Kind {
        Kind::Closed { most: outstanding, outstanding, running: 0, think }
    }
}

const BUSY_ENDS: u32 = 0;
const QUIET_ENDS: u32 = 1;

impl Generator {
    /// `player` plays the trace of a replay.
    pub(crate) fn new(
        disk: usize,
        kind: &WorkloadKind,
        pattern: &Pattern,
        stream: Stream,
        player: Option<Player>,
    ) -> Generator {
        let kind = match (kind, player) {
            (_, Some(player)) => Kind::Replay(Box::new(player)),
            (&WorkloadKind::Closed { outstanding, think }, None) => {
                Kind::closed(outstanding, think)
            }
            (&WorkloadKind::Burst { requests, every, pacing }, None) => {
                Kind::Burst { requests, every, pacing, left: 0 }
            }
            (&WorkloadKind::Open { rate, arrivals }, None) => {
                Kind::Open { rate, arrivals, started: Nanos::ZERO, issued: 0 }
            }
            (&WorkloadKind::OnOff { outstanding, on, off }, None) => {
                Kind::OnOff { outstanding, on, off, busy: false, running: 0 }
            }
            (WorkloadKind::Oltp(oltp), None) => {
                Kind::Oltp(Box::new(Terminals::new(disk, oltp.clone())))
            }
            (WorkloadKind::Replay(_), None) => Kind::closed(0, TimeDistribution::ZERO),
        };
        Generator { disk, source: Source::new(pattern), stream, kind }
    }

    /// Another in the same state; `None` where it plays a trace, which is read as it goes.
    pub(crate) fn fork(&self) -> Option<Generator> {
        let kind = match &self.kind {
            &Kind::Closed { most, outstanding, running, think } => {
                Kind::Closed { most, outstanding, running, think }
            }
            &Kind::Burst { requests, every, pacing, left } => {
                Kind::Burst { requests, every, pacing, left }
            }
            &Kind::Open { rate, arrivals, started, issued } => {
                Kind::Open { rate, arrivals, started, issued }
            }
            &Kind::OnOff { outstanding, on, off, busy, running } => {
                Kind::OnOff { outstanding, on, off, busy, running }
            }
            Kind::Oltp(terminals) => Kind::Oltp(terminals.clone()),
            Kind::Replay(_) => return None,
        };
        let (disk, source, stream) = (self.disk, self.source.clone(), self.stream.clone());
        Some(Generator { disk, source, stream, kind })
    }

    fn issue(&mut self, orders: &mut Orders, many: u32) {
        for _ in 0..many {
            orders.issues.push(self.source.next(self.disk, 0, &mut self.stream));
        }
    }

    /// Starts, or starts again after a stop.
    pub(crate) fn start(&mut self, now: Nanos, orders: &mut Orders) {
        match &mut self.kind {
            Kind::Closed { outstanding, running, .. } => {
                *running = *outstanding;
                let many = *outstanding;
                self.issue(orders, many);
            }
            Kind::Burst { left, .. } => {
                *left = 0;
                self.timer(now, 0, orders);
            }
            Kind::Open { started, issued, .. } => {
                (*started, *issued) = (now, 0);
                self.next_arrival(now, orders);
            }
            Kind::OnOff { running, .. } => {
                *running = 0;
                self.timer(now, QUIET_ENDS, orders);
            }
            Kind::Oltp(terminals) => terminals.start(now, &mut self.stream, orders),
            Kind::Replay(player) => player.start(now, orders),
        }
    }

    /// A time that was asked for has come.
    pub(crate) fn timer(&mut self, now: Nanos, token: u32, orders: &mut Orders) {
        match &mut self.kind {
            Kind::Closed { .. } => self.issue(orders, 1),
            &mut Kind::Burst { requests, every, pacing, ref mut left } => {
                *left = requests;
                if pacing == Pacing::Fixed {
                    orders.timers.push((now + every, 0));
                }
                self.issue(orders, requests);
            }
            Kind::Open { .. } => {
                self.issue(orders, 1);
                self.next_arrival(now, orders);
            }
            Kind::OnOff { outstanding, on, off, busy, running } => {
                if token == BUSY_ENDS {
                    *busy = false;
                    orders.timers.push((now + off.draw(&mut self.stream), QUIET_ENDS));
                } else {
                    *busy = true;
                    orders.timers.push((now + on.draw(&mut self.stream), BUSY_ENDS));
                    let more = *outstanding - *running;
                    *running = *outstanding;
                    self.issue(orders, more);
                }
            }
            Kind::Oltp(terminals) => {
                terminals.timer(now, token, &mut self.source, &mut self.stream, orders)
            }
            Kind::Replay(player) => player.timer(now, orders),
        }
    }

    /// A request completed.
    #[inline]
    pub(crate) fn completed(&mut self, now: Nanos, tag: u32, orders: &mut Orders) {
        match &mut self.kind {
            Kind::Closed { outstanding, running, .. } if *running > *outstanding => *running -= 1,
            Kind::Closed { think: TimeDistribution::ZERO, .. } => self.issue(orders, 1),
            Kind::Closed { think, .. } => {
                orders.timers.push((now + think.draw(&mut self.stream), 0))
            }
            Kind::Burst { every, pacing, left, .. } => {
                *left = left.saturating_sub(1);
                if *pacing == Pacing::AfterCompletion && *left == 0 {
                    orders.timers.push((now + *every, 0));
                }
            }
            Kind::Open { .. } => {}
            Kind::OnOff { busy: true, .. } => self.issue(orders, 1),
            Kind::OnOff { running, .. } => *running = running.saturating_sub(1),
            Kind::Oltp(terminals) => {
                terminals.completed(now, tag, &mut self.source, &mut self.stream, orders)
            }
            Kind::Replay(player) => player.completed(now, orders),
        }
    }

    /// A closed loop has so many per cent of what it has at most from now on, at least one: those
    /// beyond end, or more begin.
    pub(crate) fn scale(&mut self, now: Nanos, percent: u64, orders: &mut Orders) {
        match &mut self.kind {
            Kind::Closed { most, outstanding, running, .. } => {
                *outstanding = part_of(*most, percent);
                let more = outstanding.saturating_sub(*running);
                *running += more;
                self.issue(orders, more);
            }
            Kind::Replay(player) => player.scale(now, percent, orders),
            Kind::Burst { .. } | Kind::Open { .. } | Kind::OnOff { .. } | Kind::Oltp(_) => {}
        }
    }

    fn next_arrival(&mut self, now: Nanos, orders: &mut Orders) {
        let Kind::Open { rate, arrivals, started, issued } = &mut self.kind else { return };
        *issued += 1;
        let at = match arrivals {
            // From the start, not from the one before: no rounding adds up.
            Arrivals::Constant => {
                let after = u128::from(*issued) * 1_000_000_000 / u128::from(rate.get());
                *started + Nanos(u64::try_from(after).unwrap_or(u64::MAX))
            }
            Arrivals::Poisson => now + self.stream.exponential(Nanos(1_000_000_000 / rate.get())),
        };
        orders.timers.push((at, 0));
    }
}

impl TimeDistribution {
    /// No time at all.
    pub const ZERO: TimeDistribution = TimeDistribution::Constant(Nanos::ZERO);

    #[inline]
    pub(crate) fn draw(self, stream: &mut Stream) -> Nanos {
        match self {
            TimeDistribution::Constant(time) => time,
            TimeDistribution::Exponential(mean) => stream.exponential(mean),
        }
    }
}
