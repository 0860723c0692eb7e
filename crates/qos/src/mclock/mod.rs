//! mClock: a minimum, a maximum and a share for each disk, on storage of fluctuating speed.
//!
//! # The problem
//! The disks of a host share storage whose speed changes from one second to the next: its cache
//! fills, other hosts come and go, a spindle fails. A maximum for each disk wastes the storage
//! while it is idle, and promises nothing while it is busy. Shares divide whatever there is, so
//! what a disk gets sinks with the storage and with each neighbour. Neither helps a disk that needs
//! 400 requests per second whatever happens.
//!
//! So a disk has three numbers. Its *reservation* is the least rate that it gets while it has
//! requests, before anything is divided. Its *limit* is the most that it gets, however idle the
//! storage is. What reservations leave is divided in proportion to *shares*, up to the limits.
//!
//! # An example
//! Three disks always have requests queued. With shares of 1:2:1 they would get a quarter, a half
//! and a quarter of the storage's rate. In requests per second:
//!
//! | disk | reservation | limit | shares | of 2,000 | of 1,000 | of 600 | of 303 |
//! |---|---|---|---|---|---|---|---|
//! | database | 400 | | 100 | 617 | 400 | 400 | 300 |
//! | web | | | 200 | 1,233 | 450 | 133 | 2 |
//! | backup | | 150 | 100 | 150 | 150 | 67 | 1 |
//!
//! - *2,000.* A quarter would be 500 for the backup, which is held at its limit. The others divide
//!   the 1,850 that remain by 1:2. The database has more than its reservation, which does nothing.
//! - *1,000.* By shares the database would get 283. Its reservation gives it 400. Of the other 600
//!   the backup gets its limit.
//! - *600.* The database keeps its 400. The others divide 200 by 2:1, and the limit does nothing.
//! - *303.* The storage does not deliver what is reserved. The [floor](#the-floor) keeps one
//!   request in 101 for the disks without a reservation.
//!
//! ```
//! use headgate_qos::{Config, CostModel, Decision, Io, IoKind, MClock, Policy, Scheduler as _};
//! use headgate_units::{Bytes, Iops, Nanos, Shares};
//!
//! /// Requests per second of each disk on storage that does so many, one after the other.
//! fn divided(rate: u64) -> [u64; 3] {
//!     let shared = |shares| Policy::shared(Shares::new(shares).unwrap());
//!     let policies = [
//!         shared(100).with_reservation(Some(Iops::new(400).unwrap())).unwrap(),
//!         shared(200),
//!         shared(100).with_limit(Some(Iops::new(150).unwrap())).unwrap(),
//!     ];
//!     let config = Config { cost_model: CostModel::Unit, ..Config::default() };
//!     let mut mclock = MClock::new(config).unwrap();
//!     let disks = policies.map(|policy| mclock.register(Nanos::ZERO, policy));
//!     let (bytes, kind) = (Bytes::from_kib(4), IoKind::Read);
//!     let io = Io { bytes, position: 0, priority: None, kind };
//!     for disk in disks {
//!         (0..2).for_each(|_| mclock.enqueue(Nanos::ZERO, disk, io, ()).unwrap());
//!     }
//!     const SECONDS: u64 = 100;
//!     let mut done = [0; 3];
//!     for n in 0..rate * SECONDS {
//!         let now = Nanos(n * 1_000_000_000 / rate);
//!         let Decision::Dispatch(next) = mclock.dispatch(now) else { continue };
//!         mclock.complete(now, next.disk);
//!         mclock.enqueue(now, next.disk, io, ()).unwrap();
//!         done[disks.iter().position(|disk| *disk == next.disk).unwrap()] += 1;
//!     }
//!     done.map(|count: u64| (count + SECONDS / 2) / SECONDS)
//! }
//!
//! assert_eq!(divided(2_000), [617, 1_233, 150]);
//! assert_eq!(divided(1_000), [400, 450, 150]);
//! assert_eq!(divided(600), [400, 133, 67]);
//! assert_eq!(divided(303), [300, 2, 1]);
//! ```
//!
//! # Rules
//! A request that costs c reference IOs comes from a disk with reservation r, limit l (IOs per
//! second), weight w and burst credit σ (IOs). Every disk has three tags, those of its next
//! request:
//!
//! | tag | scale | advances by | at |
//! |---|---|---|---|
//! | R, when it is due | time | c/r | dispatches of the reservation phase |
//! | L, when it may go | time | c/l; a second one for bytes per second | every dispatch |
//! | P, its place by shares | virtual time | c/w | every dispatch, in either phase |
//!
//! A decision at time t takes, among disks with requests queued and `L <= t`:
//!
//! - **reservation phase**: the smallest R, if that is `<= t`;
//! - **weight phase**: else the smallest P.
//!
//! Equal tags go to the disk whose slot is lower. That is the paper's Algorithm 1, except that L
//! binds in both phases and that R stands still in the weight phase, where the paper subtracts 1/r
//! from what it had added at arrival: the same in fewer steps. What follows replaces the paper's
//! rules for tags on arrival.
//!
//! # The share clock forgets
//! The paper sets P to `max(P + 1/w, now)`. Virtual time is then real time, which it has nothing to
//! do with: weights above the service rate clamp to arrival and shares become arrival order; and
//! while a reservation or a limit, not the share, decides what a disk gets, its P runs away from
//! the others' P and the difference is paid back later, by starving the one or the others for as
//! long as the clamp lasted.
//!
//! Let V be the largest start tag P of a request dispatched in the weight phase. P is held, before
//! it advances, within
//!
//! ```text
//! V - credit/w  <=  P  <=  V + max(lead, 4·peak, largest, r·(b/2 + 2·stall))/w
//! ```
//!
//! where lead is [`Config::lead`], peak is the disk's largest recent cost, largest that of all
//! disks, b and stall are [below](#the-reservation-clock-and-shortage), and the credit is σ for a
//! disk that had nothing queued, max(σ, lead) for one that a limit held back or other servers kept
//! busy.
//!
//! - *No scale.* Multiply all weights by k: every P, V and bound is divided by k, no comparison
//!   changes.
//! - *No memory below* beyond σ of idleness, beyond the lead of time at a limit. The latter is not
//!   σ because a disk whose share is just below its limit is held back for moments at a time, and
//!   would lose its share by them.
//! - *No memory above* beyond the lead: a disk kept at its reservation r above its share is at most
//!   lead/w ahead. When its fair rate rises to x > r, V rises by x/w per second and the disk's P by
//!   r/w, so it is served by share after `lead/(x - r)` seconds.
//! - *Why the lead exceeds one request.* A disk whose reservation is below its share x is served r
//!   times per second by reservation and x - r times by weight. Just after the latter P is c/w
//!   ahead. With a lead of c the next reserved request would be forgotten, and share and
//!   reservation would add up to x + r. From 4·c on, the error is not measurable; 16 is the
//!   default.
//! - *Why 4·peak.* The same, where c is large beside the lead: a mebibyte costs 4.4, the dearest
//!   request 65,536. The lead must count in what the disk itself sends. The peak rises at once and
//!   sinks by 1/32 per request, so a disk of mixed sizes is remembered for its large ones over some
//!   hundred requests and no longer.
//! - *Why largest.* While a neighbour's request of c IOs occupies the storage, a reservation r
//!   falls behind by `r·c/T <= c`, and is made good for at once, ahead of V. What the lead is too
//!   short for is forgotten and given again by share: a reservation of 300 at equal shares beside
//!   requests of 64 MiB, 219 IOs each, made 575:425 of 1,000. The largest recent cost of all disks
//!   is enough. It rises at once and sinks by an eighth of what is served, so it is gone after
//!   eight times as much. Where requests cost no more than the lead it changes nothing.
//! - *Why r·(b/2 + 2·stall).* Storage that pauses gives a reservation at once what it was short of,
//!   ahead of V. Of a disk whose share is above its reservation that is a part of the share. b/2
//!   covers pauses that are no stalls, and stall is the longest that is remembered.
//! - *σ together with the lead.* They bound opposite sides. Credit is earned only while V passes a
//!   disk that is away, and spent while P < V: V stands still then, so a burst of σ IOs goes ahead
//!   of all other shares, but behind reservations, and within its own limit. Requests that the
//!   burst gets by reservation use the credit up as well.
//!
//! Both bounds cost O(1): V never falls, so the upper one, applied where P advances by reservation,
//! stays true; and outside [the floor](#the-floor) V only rises to the least P of all ready disks,
//! so none of them falls below the lower one: it is applied to disks that come back.
//!
//! # The reservation clock and shortage
//! R is raised when a disk's queue was empty, to `min(t - a, D)`, never while the disk waits. D is
//! the smallest R of the ready disks and a the [`Config::anticipation`]. So idleness earns no
//! credit, and a disk that comes in a shortage, where every R is in the past, takes its place
//! beside the others instead of behind them. (A disk whose R is later than its L keeps its place
//! while the limit holds it back.)
//!
//! A disk that a limit held back beyond its R, and one whose requests are all in flight, has not
//! been idle: it waited for others, or for the storage. So a is b/2 for them, for the latter until
//! it has had nothing in flight for an anticipation, and no more than half of B below. A long
//! service is then made good for at the next short one, and a short wait is. The longest stall of
//! late is added to it, up to B - b/2 less that stall: others are forgiven what is beyond B, so the
//! next stall must have room. A disk with a limit may be late by up to B, for it is forgiven alone:
//! as long as a disk with a limit is the first in the order of R and later than B when a stall
//! ends, its own R is raised to t - B. Nothing else is added: a disk with few requests outstanding,
//! or with a limit in bytes, may never get what is reserved, and would be late for ever.
//!
//! Beside a limit l a reservation catches up by l - r per second at most, so within H it makes good
//! for a lateness of H·(l/r - 1). Of a disk that its limit held back more is not kept, but for
//! four times [`Config::limit_slack`] and for what a stall was longer than b: a limit whose disk
//! was late has room for all of it at once, a second later, and again a second later, and each time
//! the reservations of others would wait (`docs/decisions/0117-late-beside-a-limit.md`).
//!
//! In a shortage the others may all be in flight when a disk comes that was idle, and D says
//! nothing: for b/2 after a dispatch by reservation a is as late as that was, at most b/2. One that
//! was just set was never late: for it a is 0 outside a shortage. Otherwise a disk that is
//! registered again and again would have a place kept for it each time, and more than its
//! reservation in all.
//!
//! When D falls behind t by more than a bound B, *all* R are shifted forward together, so that
//! D = t - B. Distances stay, and the smallest R is always served next, so in a shortage all R stay
//! within one request of each other and advance alike: by T·r/Σr requests per second out of T. The
//! shift is one number for all, O(1). When the storage recovers, disk i is owed at most B·r_i. That
//! takes `B·Σr/(T-Σr)` seconds, and by then shares hold again for all.
//!
//! A stall is no shortage: storage that stands still for a second may well give what is reserved in
//! every five. So B follows what the storage gives while it works. Time is busy while a disk that
//! may be served waits, or the window is full. Busy time without a dispatch is a stall where it is
//! longer than b/2, b being [`Config::debt_bound`], and than twice what the storage takes for all
//! that is in flight if every request cost as much as the largest lately. Let C be the service per
//! busy second over the last H = [`Config::debt_horizon`] of busy time, stalls left out, and Σr the
//! reservations of all disks with requests queued or in flight, also of those that a limit holds
//! back. ρ is what the storage takes for one request of each of these, as large as its peak:
//!
//! ```text
//! B  =  max(b/2 + ρ, b, min(2·H, H·(C/Σr - 1)))        where C >= Σr
//! B  =  max(b/2 + ρ, b - H·(1 - C/Σr))                 else
//! ```
//!
//! H·(C/Σr - 1) is the lateness that working storage makes good for within H. So what a stall cost
//! is owed where it can be paid within H of work, and others wait no longer than that for it. Where
//! C < Σr, the reservations do not fit: nothing beyond b/2 + ρ is owed for long, so that shares
//! hold again soon after. Requests that fall due together wait up to ρ for each other, however
//! little is missing; to forgive that would give their reservations away. Before anything is known
//! B is b.
//!
//! # The floor
//! For n reference IOs in a row served by reservation while a disk without one waits
//! ([`Floor::OneIn`](crate::Floor)), the smallest P among disks without one is served. They thus
//! keep `T/(n + 1)` of any throughput T, divided by their shares, and wait for n IOs at most each
//! round, whatever the shares of the others. No rate has to be known or set, none grows with the
//! number of disks, and reservations are met in full wherever `T >= (1+1/n)·Σr`.
//!
//! What a disk with a reservation gets by its share ends the row, as a sign of plenty. It does not
//! while the storage gives less than is reserved: lateness is bounded then, and such a disk may not
//! be late for a moment. A disk without one that is served by its share ends the row too, and what
//! was more than n in it is still due.
//!
//! The floor raises V like any dispatch by share, so V may pass disks that have a reservation and
//! wait. Such a disk is held to the lower bound of P, with the lead as credit, at its next dispatch
//! by reservation. So it is owed the lead and what the floor gave in one of its reservation
//! periods, however long the shortage was.
//!
//! # The limit clock and large requests
//! A request goes when `L <= t`, whatever it costs, and its cost is paid for afterwards. A request
//! of 10,000 IOs at a limit of 10 goes at once and keeps its disk waiting for 1,000 s: the limit
//! holds on average, and no cost keeps a disk from being served.
//!
//! A disk that has requests queued and waits for others is late by t - L. That is kept up to H =
//! 250 ms, so that what it could not send is made good for and not lost; without it every limit
//! would lose that time. But tokens for H beside those of a second are more than a second may hold.
//! So a late disk is let go only as far as its last second has room. With λ =
//! [`Config::limit_slack`], or just under the time of one request if that is longer, and ε = 3/8 of
//! the slack:
//!
//! - *Never more.* In n seconds at most `l·(n + λ + (n - 1)·ε)` and one request are dispatched, in
//!   any time W at most `l·(W + H)` and one.
//! - *Never less.* Whenever the limit holds a backlogged disk back, the disk has had its limit or
//!   more over a time that ends there. So it loses of its limit only what others leave too little
//!   of, and of that only what is longer than H at a time, or does not fit into a second with λ to
//!   spare.
//!
//! A disk that had nothing queued and nothing in flight is not late. A limit that is changed or
//! lifted leaves nothing behind but what the disk has not yet paid for. `limit.rs` has the rule to
//! the letter, the proofs, and how it is kept in constant memory.
//!
//! # Soft limits, peaks, and limits of one direction
//! While no other disk may be served, a disk whose limits are soft is served although they hold it
//! back (`left_over.rs`). A limit with a peak lets its disk go faster for a time (`bucket.rs`).
//! Limits of a disk's reads or of its writes make it a disk with two lanes (`lanes.rs`).
//!
//! # Service at other servers
//! A disk that is spread over several servers tells each of them what it has received at the
//! others. That service is charged to all three tags; [`dmclock`](crate::dmclock) derives how.
//!
//! # Changes of policy
//! What a tag is ahead of t (R, L) or V (P) is service not yet paid for. It is kept as service: at
//! a new rate it takes `old/new` times as long. So a new rate is in force at the next dispatch, for
//! queued requests too, and setting the same rate again changes nothing. A disk whose reservation
//! is lowered keeps a lead of one request.
//!
//! # Streams
//! Requests of one disk and one final priority ([`PriorityPolicy`]) are a stream
//! (`docs/decisions/0011-streams.md`). A disk with several serves the one whose start tag C is
//! smallest, the highest priority of equals; C advances by `c/(10·priority)` at every dispatch. T
//! is the disk's own time, the largest C at which a stream was served. A stream that had nothing
//! queued starts at `max(C, S)`.
//!
//! - *Within the VM* S is T. P and all else above is the disk's and knows nothing of streams. A
//!   stream that is alone has no C, and a disk with nothing queued and nothing in flight forgets
//!   them.
//! - *Across VMs* P is the C of the stream that is next, and its weight `10·priority`. S is `max(T,
//!   V - (V' - T))`, V' being V when T was set: a disk that is not behind V takes newcomers at V,
//!   one that a limit held back takes them beside its other streams. T stands while a limit holds
//!   the disk, and is V or later when it had nothing queued: streams have no idle credit σ. For w
//!   the sum over the streams that wait and may go (over all, where a limit holds them all), the
//!   bounds of P move all C and T together, so that the order inside stays. The upper bound leaves
//!   T at V: behind it newcomers would have credit that nobody earned.
//!
//! Bai, Huang, *Tag Scheduler*, set a newcomer's counter to the least of all; that is S where
//! nothing else binds. With [`Config::plug`] a request waits for a better stream: see `plug.rs`.
//!
//! # Numbers
//! Times are integer nanoseconds on a clock that only goes forward (`Steady`); share tags are units
//! of 2^-20 millionths of an IO at weight 1. What an integer cannot hold is carried to the next
//! step: a limit of 7 is 7·T requests in T seconds for ever. Share tags live on a circle of 2^64,
//! on which live ones are less than 2^60 apart; V is kept in 128 bits.
//!
//! # Cost
//! Ready disks are in a tournament by P, those without a reservation in one of their own, and the
//! others in one by R; disks that wait for a limit are in a fourth, by L, and those with soft
//! limits also in a fifth, by P. A decision replays one to six paths, O(log n) in the disks that
//! have requests queued. Idle disks are in none. Queued requests of all disks share one slab.
//! Nothing is allocated once the most disks and requests that wait at once have been seen.

mod amount;
mod bucket;
mod carried;
mod claims;
mod create;
mod decide;
mod delivered;
mod disk;
pub mod grouped;
mod lanes;
mod left_over;
mod limit;
mod mark;
#[cfg(test)]
mod oracle;
mod pace;
mod pair;
mod paired;
mod parts;
mod place;
mod plug;
mod policies;
mod seats;
mod served_elsewhere;
mod share_order;
mod stream;
mod streams;
#[cfg(test)]
mod tests;
pub mod tree;
mod virtual_time;
mod wait;

use crate::config::{Adjustment, Config};
use crate::cost::{Cost, Io};
use crate::dmclock::ServedElsewhere;
use crate::learned_cost::Charging;
use crate::policy::Policy;
use crate::priority::{Given, PriorityPolicy};
use crate::queue::{Queued, Requests};
use crate::scheduler::{
    Decision, DiskCounters, DiskId, Rejected, ReservationDebt, Scheduler, UnknownDisk,
};
use crate::steady::Steady;
use crate::tournament::Tournament;
use alloc::vec::Vec;
use claims::Claims;
use delivered::Delivered;
use disk::{DiskTags, MANY, Run, State};
use headgate_units::{LatencyTarget, Nanos};
use pace::Pace;
use parts::Parts;
use seats::Seats;
use share_order::ShareOrder;
use stream::{Priorities, Streams, Tagging};
use virtual_time::VirtualTime;

/// The mClock scheduler of one datastore. See the module documentation for its rules.
#[derive(Clone)]
pub struct MClock<R> {
    pub(crate) config: Config,
    charging: Charging,
    time: Steady,
    disks: Vec<DiskTags>,
    free: Vec<u32>,
    requests: Requests<R>,
    /// Disks that may be served now, by share tag.
    shares: ShareOrder,
    /// Those of them that have a reservation, and pending ones, by reservation tag less `forgiven`.
    reservations: Tournament,
    /// Disks that wait for a limit, by the time it lets them go; with soft ones also by share tag.
    blocked: Tournament,
    left_over: Tournament,
    seats: Seats,
    virtual_time: VirtualTime,
    /// By how much all tags in `reservations` have been shifted forward since the start.
    forgiven: u64,
    /// Of all disks that have requests queued or in flight.
    claims: Claims,
    delivered: Delivered,
    /// How late the last dispatch by reservation was, and when that was.
    late: (u64, u64),
    pace: Pace,
    /// The largest recent cost of all disks: sinks by an eighth of what is served.
    largest: Cost,
    /// Millionths of IOs by reservation since a disk was last served by shares while one without
    /// reservation waited.
    floor_debt: i64,
    batch: Option<Run>,
    /// By slot, up to the last disk that reported service elsewhere.
    parts: Vec<Parts>,
    /// The slot in `parts` whose lead was last held to its bound.
    visited: usize,
    plug: plug::Plug,
    /// Requests in flight, all disks.
    in_flight: usize,
    tagging: Tagging,
    /// By slot, up to the last disk with a priority policy or a request with a priority.
    priorities: Vec<Priorities>,
    /// By slot, up to the last disk with a latency target. Nothing here goes by them.
    latency_targets: Vec<Option<LatencyTarget>>,
    /// Of disks that have several streams.
    blocks: Vec<Streams>,
    vacant_blocks: Vec<u32>,
    /// The next block to sweep.
    swept: usize,
}

impl<R> Scheduler<R> for MClock<R> {
    fn register(&mut self, now: Nanos, policy: Policy) -> DiskId {
        let now = self.time.advance(now);
        self.take_in(now, policy)
    }

    fn set_policy(&mut self, now: Nanos, disk: DiskId, policy: Policy) -> Result<(), UnknownDisk> {
        let slot = self.slot(disk)?;
        let now = self.time.advance(now);
        self.change_policy(slot, now, policy);
        Ok(())
    }

    fn policy(&self, disk: DiskId) -> Result<Policy, UnknownDisk> {
        let slot = self.slot(disk)?;
        let target = self.latency_targets.get(slot).copied().flatten();
        let policy = self.disks[slot].policy().with_checked_target(target);
        Ok(if self.competes_across(slot) {
            policy.with_shares(self.priorities[slot].shares)
        } else {
            policy
        })
    }

    fn adjust(&mut self, Adjustment { plug, batch }: Adjustment) {
        let plug = plug.min(Config::PLUG_MAX);
        if self.tagging == Tagging::Honoured && plug != self.config.plug {
            self.config.plug = plug;
            self.plug = plug::Plug::new(plug);
        }
        self.config.batch = batch.and_then(|batch| batch.validate().ok());
        self.batch = None;
    }

    fn set_priorities(
        &mut self,
        now: Nanos,
        disk: DiskId,
        policy: PriorityPolicy,
    ) -> Result<(), UnknownDisk> {
        let slot = self.slot(disk)?;
        let now = self.time.advance(now);
        self.change_priorities(slot, now, policy);
        Ok(())
    }

    fn priorities(&self, disk: DiskId) -> Result<PriorityPolicy, UnknownDisk> {
        Ok(self.priorities_of(self.slot(disk)?))
    }

    fn unregister(&mut self, now: Nanos, disk: DiskId) -> Result<Vec<R>, UnknownDisk> {
        let queued = self.extract(now, disk, &mut |_| true)?;
        let slot = self.slot(disk)?;
        self.batch = None;
        self.forget_priorities(slot);
        self.await_no_more(slot);
        let gone = &mut self.disks[slot];
        gone.state = State::Free;
        self.in_flight -= gone.in_flight as usize;
        // A slot whose generations are used up is not used again: an id never comes to mean another
        // disk.
        if let Some(next) = gone.generation.checked_add(1) {
            gone.generation = next;
            self.free.push(slot as u32);
        }
        Ok(queued)
    }

    fn extract(
        &mut self,
        now: Nanos,
        disk: DiskId,
        wanted: &mut dyn FnMut(&R) -> bool,
    ) -> Result<Vec<R>, UnknownDisk> {
        let slot = self.slot(disk)?;
        let now = self.time.advance(now);
        self.disks[slot].settle(now);
        let taken = self.extract_all(slot, wanted);
        if self.has_lanes(slot) {
            self.taken_from_lanes(slot, now, taken.len());
        }
        if self.disks[slot].queue.is_empty() {
            self.retire(slot);
            self.calm_down(slot);
        }
        Ok(taken)
    }

    #[inline(always)]
    fn enqueue(&mut self, now: Nanos, disk: DiskId, io: Io, request: R) -> Result<(), Rejected<R>> {
        let slot = match self.slot(disk) {
            Ok(slot) => slot,
            Err(reason) => return Err(Rejected { reason, request }),
        };
        let now = self.time.advance(now);
        let size = self.charging.size(slot, &io);
        if self.is_spread(slot) {
            self.parts[slot].ask(now, self.charging.charge(size).0);
        }
        let given = match self.tagging {
            Tagging::Honoured => self.given(slot, &io),
            Tagging::Ignored => Given::new(io.priority),
        };
        let queued = Queued { position: io.position, size, direction: io.kind.direction(), given };
        self.queue(slot, queued, request, now);
        Ok(())
    }

    fn served_elsewhere(
        &mut self,
        now: Nanos,
        disk: DiskId,
        elsewhere: ServedElsewhere,
    ) -> Result<(), UnknownDisk> {
        let slot = self.slot(disk)?;
        let now = self.time.advance(now);
        if !elsewhere.is_none() {
            self.charge_elsewhere(slot, now, elsewhere);
        }
        Ok(())
    }

    fn dispatch(&mut self, now: Nanos) -> Decision<R> {
        let now = self.time.advance(now);
        self.decide(now)
    }

    fn complete(&mut self, now: Nanos, disk: DiskId) {
        let now = self.time.advance(now);
        if let Ok(slot) = self.slot(disk) {
            if self.disks[slot].in_flight == 1 {
                self.await_no_more(slot);
            }
            let disk = &mut self.disks[slot];
            self.in_flight -= disk.in_flight.min(1) as usize;
            disk.in_flight = disk.in_flight.saturating_sub(1);
            if disk.in_flight > 0 {
                return;
            }
            // With lanes what is queued may be held.
            if disk.queue.is_empty() || disk.lanes.is_some() {
                disk.begins_idling(now);
            }
            if disk.queue.is_empty() {
                let many = disk.label == MANY;
                if many {
                    self.calm_down(slot);
                }
                if !self.plug.is_off() {
                    self.forget_mix(slot);
                }
            }
        }
    }

    fn queued(&self) -> usize {
        self.requests.len()
    }

    fn counters(&self, disk: DiskId) -> Result<DiskCounters, UnknownDisk> {
        let slot = self.slot(disk)?;
        let disk = &self.disks[slot];
        Ok(DiskCounters {
            by_reservation: disk.by_reservation,
            by_weight: disk.by_weight,
            cost: disk.cost,
            queued: self.queued_by(slot),
            in_flight: disk.in_flight as usize,
        })
    }

    #[inline]
    fn limited_until(&self, disk: DiskId) -> Option<Nanos> {
        let until = self.disks[self.slot(disk).ok()?].held_until()?;
        Some(self.time.caller_time(until))
    }

    fn reservation_debt(&self) -> ReservationDebt {
        let due = self.reservations.first().map_or(u64::MAX, |(tag, _)| tag as u64 + self.forgiven);
        let behind = self.time.now().saturating_sub(due);
        ReservationDebt { behind: Nanos(behind), forgiven: Nanos(self.forgiven) }
    }

    fn comparisons(&self) -> u64 {
        let all = [&self.reservations, &self.blocked, &self.left_over];
        self.shares.comparisons() + all.map(Tournament::comparisons).iter().sum::<u64>()
    }
}
