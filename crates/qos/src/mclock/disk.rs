//! The tags and state of one disk under mClock.

use super::amount::rate;
use super::bucket::{Fill, PeakRate, Rates};
use super::lanes::Lanes;
use super::limit::{Asker, Limit};
use super::pair;
use super::share_order::Class;
use super::virtual_time::LEAD_IN_OWN_COSTS;
use crate::cost::Cost;
use crate::policy::{Burst, LimitMode, PeakTime, Policy};
use crate::queue::Chain;
use crate::rate::Tag;
use alloc::boxed::Box;
use core::num::NonZeroU64;
use headgate_units::{BytesPerSec, Iops, Shares};

/// Share tags count in 2^-20 millionths of a reference IO at weight 1. Two tags that differ as
/// fractions of unit costs over weights up to 1,000,000 differ by 10^-12 IO at least, so they
/// differ here.
const SHARE_SHIFT: u32 = 20;

/// A cost as an amount for a share tag.
#[inline]
pub(super) fn share_amount(cost: Cost) -> u64 {
    cost.as_millionths() << SHARE_SHIFT
}

/// The cost of an amount for a share tag, rounded down; at most what the dearest requests lead by.
#[inline]
pub(super) fn cost_of_share(amount: u128) -> Cost {
    let most = u128::from(Cost::MAX.times(LEAD_IN_OWN_COSTS).as_millionths());
    Cost::from_millionths((amount >> SHARE_SHIFT).min(most) as u64)
}

/// A disk's largest recent cost, in thousandths of an IO rounded up: rises at once, sinks by 1/32
/// per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peak(u32);

impl Peak {
    /// Of a disk that has sent nothing: one IO.
    pub(super) const INITIAL: Peak = Peak(1_000);

    #[inline]
    pub(super) fn note(&mut self, cost: Cost) {
        // 65,536,000 at most.
        let thousandths = cost.as_millionths().div_ceil(1_000) as u32;
        self.0 = thousandths.max(self.0 - self.0 / 32);
    }

    #[inline]
    pub(super) fn cost(self) -> Cost {
        Cost::from_millionths(self.thousandths() * 1_000)
    }

    #[inline]
    pub(super) fn thousandths(self) -> u64 {
        u64::from(self.0)
    }
}

/// Where a slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No disk.
    Free,
    /// Nothing queued.
    Empty,
    /// As `Empty`, but it has reported service elsewhere since.
    ServedElsewhere,
    /// In the tournament of shares and, with a reservation, in that of reservations.
    Ready,
    /// Queued requests wait for a limit: in the tournament of wake-ups and, if the limit is soft,
    /// in that of what is left over.
    Blocked,
    /// As `Blocked`, and in the tournament of reservations too: its reservation is not due before
    /// the limit lets it go.
    Pending,
}

/// Three cache lines: what every decision reads, then what is written once.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct DiskTags {
    /// Start tag of the next request, in share units. Across VMs, that of the stream that is next.
    pub(super) share: Tag,
    /// When the next request is due, in inner nanoseconds; while [`State::Ready`] or
    /// [`State::Pending`] less [`MClock::forgiven`](super::MClock).
    pub(super) reservation: Option<Tag>,
    /// When the next request may go. Apart, as most disks have no limit.
    pub(super) limit: Option<Box<Limit>>,
    /// Of the only stream, or of the one that is next.
    pub(super) queue: Chain,
    pub(super) in_flight: u32,
    pub(super) peak: Peak,
    pub(super) generation: u32,
    /// In the tournaments, while requests are queued.
    pub(super) seat: u32,
    pub(super) state: State,
    /// Of the disk's only stream: the priority that its requests were given, 0 for none;
    /// [`MANY`] while it has several.
    pub(super) label: u8,
    pub(super) burst: Burst,
    /// Turn of the share clock when the disk was last ready.
    pub(super) turn: u32,
    /// Since when it has had nothing queued and nothing in flight, in inner nanoseconds. Of no
    /// meaning while it has.
    pub(super) idle_since: u64,
    /// As `limit`, in bytes.
    pub(super) bandwidth: Option<Box<Limit>>,
    /// Of both.
    pub(super) limit_mode: LimitMode,
    pub(super) peak_time: PeakTime,
    pub(super) by_reservation: u64,
    pub(super) by_weight: u64,
    pub(super) cost: Cost,
    /// Of a disk with limits of one direction, which is labelled [`MANY`] always.
    pub(super) lanes: Option<Box<Lanes>>,
}

const _: () = assert!(size_of::<DiskTags>() == 192, "a disk takes three cache lines");

impl DiskTags {
    pub(super) fn new(
        generation: u32,
        policy: Policy,
        now: u64,
        share: u64,
        turn: u32,
        slack: u64,
    ) -> DiskTags {
        DiskTags {
            share: Tag::new(share, rate(policy.shares().get())),
            reservation: policy.reservation().map(|r| Tag::new(NEVER_SERVED, rate(r.get()))),
            limit: rates(policy).map(|rates| Limit::new(now, rates, Fill::Full, slack)),
            queue: Chain::EMPTY,
            in_flight: 0,
            peak: Peak::INITIAL,
            generation,
            seat: 0,
            state: State::Empty,
            label: 0,
            burst: policy.burst(),
            bandwidth: bandwidths(policy).map(|rates| Limit::new(now, rates, Fill::Full, slack)),
            peak_time: policy.peak_time(),
            limit_mode: policy.limit_mode(),
            by_reservation: 0,
            by_weight: 0,
            cost: Cost::default(),
            turn,
            idle_since: 0,
            lanes: None,
        }
    }

    pub(super) fn policy(&self) -> Policy {
        let iops = |rate: NonZeroU64| Iops::new(rate.get()).ok();
        let bytes = |rate: NonZeroU64| BytesPerSec::new(rate.get()).ok();
        let [limit, bandwidth] =
            [&self.limit, &self.bandwidth].map(|limit| limit.as_deref().map(Limit::rates));
        let peak = |rates: Option<Rates>| rates?.peak.map(|peak| peak.rate);
        Policy::default()
            .with_shares(Shares::new(self.share.rate().get()).unwrap_or_default())
            .with_burst(self.burst)
            .with_limit_mode(self.limit_mode)
            .with_checked_directions(self.lanes.as_deref().map(Lanes::limits).unwrap_or_default())
            .with_limit_bandwidth(bandwidth.and_then(|rates| bytes(rates.limit)))
            .with_rates(
                self.reservation.as_ref().map(Tag::rate).and_then(iops),
                limit.and_then(|rates| iops(rates.limit)),
            )
            .with_checked_peaks(
                peak(limit).and_then(iops),
                peak(bandwidth).and_then(bytes),
                self.peak_time,
            )
    }

    /// Nothing of it is queued or in flight from now on.
    #[inline]
    pub(super) fn begins_idling(&mut self, now: u64) {
        self.idle_since = now;
    }

    /// Whether it has had nothing queued and nothing in flight for longer than this.
    #[inline]
    pub(super) fn idles_longer_than(&self, bound: u64, now: u64) -> bool {
        self.in_flight == 0 && now - self.idle_since > bound
    }

    /// Where it stands in the order of shares.
    #[inline]
    pub(super) fn class(&self) -> Class {
        if self.reservation.is_some() { Class::Reserved } else { Class::Unreserved }
    }

    /// Until when limits forbid every request that is queued; 0 without limits.
    #[inline]
    pub(super) fn blocked_until(&self) -> u64 {
        let own = pair::open(&self.limit, &self.bandwidth);
        match &self.lanes {
            Some(lanes) if self.label == MANY => own.max(lanes.first_open()),
            _ => own,
        }
    }

    /// The same, while they hold it back.
    #[inline]
    pub(super) fn held_until(&self) -> Option<u64> {
        matches!(self.state, State::Blocked | State::Pending).then(|| self.blocked_until())
    }

    /// Whether a limit may hold it back, its own or one of a direction.
    pub(super) fn is_limited(&self) -> bool {
        self.limit.is_some() || self.bandwidth.is_some() || self.lanes.is_some()
    }

    /// Requests that were dispatched.
    pub(super) fn sent(&self) -> u64 {
        self.by_reservation + self.by_weight
    }

    /// Charges the limits for a dispatch.
    #[inline]
    pub(super) fn charge_limits(&mut self, cost: Cost, bytes: u32, now: u64) {
        pair::charge(&mut self.limit, &mut self.bandwidth, cost, bytes, now);
    }

    /// Tells the limits that a request comes to an empty queue.
    #[inline]
    pub(super) fn ask_limits(&mut self, now: u64) {
        let idle = self.in_flight == 0 && self.state == State::Empty;
        let asker = if idle { Asker::Idle } else { Asker::Busy };
        pair::ask(&mut self.limit, &mut self.bandwidth, now, asker);
    }
}

/// The limit in IOs per second.
pub(super) fn rates(policy: Policy) -> Option<Rates> {
    let time = policy.peak_time().as_secs();
    let peak = policy.peak().map(|peak| PeakRate { rate: rate(peak.get()), time });
    Some(Rates { limit: rate(policy.limit()?.get()), peak })
}

/// The limit in bytes per second.
pub(super) fn bandwidths(policy: Policy) -> Option<Rates> {
    let time = policy.peak_time().as_secs();
    let peak = policy.peak_bandwidth().map(|peak| PeakRate { rate: rate(peak.get()), time });
    Some(Rates { limit: rate(policy.limit_bandwidth()?.get()), peak })
}

/// A reservation tag earlier than any: the disk takes its place at its first request.
pub(super) const NEVER_SERVED: u64 = 0;

/// What a disk may be late by, without losing it, when it becomes ready.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    /// It had nothing queued, or no reservation.
    Asked,
    /// It had nothing queued because all of its requests were in flight.
    InFlight,
    /// As `Asked`, while it was served elsewhere.
    BusyElsewhere,
    /// A limit held it back.
    HeldBack,
    /// It never stopped waiting: only its policy changed.
    Unbroken,
}

/// In [`DiskTags::label`]: the disk has several streams.
pub(super) const MANY: u8 = 255;

/// Requests of one disk sent back to back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) slot: u32,
    pub(super) origin: u64,
    pub(super) left: u8,
}
