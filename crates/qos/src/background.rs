//! When a copy of Headgate's own may take its next step, beside clients of the same storage.
//!
//! A scheduler divides among those who wait in it. Who has little outstanding waits in the storage
//! and not in the scheduler: a guest with four requests outstanding before a window of 32 finds the
//! queue empty, and so does a copy, whatever its shares are. Shares say nothing then, and a copy of
//! a tenth of a guest's shares took three fifths of six spindles. So the copy asks before each of
//! its steps, and gets its share of what the storage *does*, and not only of the queue:
//!
//! - *Beside clients* it may begin when it owes nothing. It owes what its requests cost, and each
//!   client's request that is dispatched pays `cost · w / Σw_i` of that, over the disks that were
//!   served lately: in all it gets `w / (w + Σw_i)` of the work, as a disk with its shares that
//!   always waits.
//! - *Alone* it pays nothing. It is alone when clients have had nothing at the storage for twice as
//!   long as a request takes there. A client that sends one request after the other is not gone
//!   while it thinks about the next (*anticipation*, as schedulers of disks have had it since
//!   Iyer and Druschel, SOSP 2001). Alone it begins with one step at a time and adds one for each
//!   request that ends, so that a client that comes back finds little in its way.
//! - *Its limits* bind always.
//!
//! The copy waits before it begins a step, not within: who changes what a step writes waits for it.
//!
//! Everything is O(1) but for a period's first request of each disk, which may allocate.
//! `docs/decisions/0089-copies-beside-clients.md` has the figures.

use crate::cost::Cost;
use crate::policy::Policy;
use crate::window::Admission;
use alloc::vec::Vec;
use headgate_units::{Bytes, Nanos, Shares};

/// How long a disk counts as being served after a request of its was dispatched: this long at
/// least, and less than twice as long.
const PERIOD: Nanos = Nanos::from_millis(100);

/// How much longer than a request takes clients have to be gone.
const ANTICIPATION: u64 = 2;

/// The bounds of that.
const GONE: [Nanos; 2] = [Nanos::from_micros(50), Nanos::from_millis(20)];

/// The most that is saved up beside clients.
const SAVED: i64 = Cost::ONE.as_millionths() as i64;

/// The longest step beside clients.
const SHORT_STEP: Bytes = Bytes::from_kib(256);

/// Disks that were served in this period and the last.
#[derive(Debug, Default)]
struct Served {
    /// The end of this period.
    until: Nanos,
    number: u32,
    /// By disk: the last period in which it was served.
    in_period: Vec<u32>,
    now: u64,
    before: u64,
}

impl Served {
    /// A disk is served. The shares of all that are, at least its own.
    fn add(&mut self, now: Nanos, disk: u32, shares: Shares) -> u64 {
        if now >= self.until {
            self.before = if now < self.until + PERIOD { self.now } else { 0 };
            (self.now, self.until) = (0, now + PERIOD);
            self.number = self.number.wrapping_add(1).max(1);
        }
        let disk = disk as usize;
        if self.in_period.len() <= disk {
            self.in_period.resize(disk + 1, 0);
        }
        if self.in_period[disk] != self.number {
            self.in_period[disk] = self.number;
            self.now = self.now.saturating_add(shares.get());
        }
        self.now.max(self.before).max(1)
    }
}

/// One copy's account with one datastore.
#[derive(Debug)]
pub struct Background {
    pace: Policy,
    /// Steps that may be under way, alone.
    most: u32,
    /// What it has paid for and not used, in millionths of a reference IO; below zero: what it
    /// owes.
    credit: i64,
    served: Served,
    /// When the last request of a client ended.
    quiet_since: Nanos,
    /// How long clients' requests take at the storage, as a mean of the last ones.
    device: Nanos,
    /// Steps that may be under way now that it is alone.
    alone: u32,
    /// When its limits let it go on.
    next: Nanos,
}

impl Background {
    /// A copy that begins with the shares and the limits of `pace`, and may have so many steps
    /// under way.
    pub fn new(now: Nanos, pace: Policy, most: u32) -> Background {
        Background {
            pace,
            most: most.max(1),
            credit: 0,
            served: Served::default(),
            quiet_since: now,
            device: Nanos::ZERO,
            alone: 1,
            next: now,
        }
    }

    /// Another pace from now on. What the old limits would have it wait for is forgotten.
    pub fn set_pace(&mut self, now: Nanos, pace: Policy) {
        self.pace = pace;
        self.next = self.next.min(now);
    }

    /// What the scheduler is to hold it to: the shares alone, for its limits are kept here.
    pub fn policy(&self) -> Policy {
        Policy::shared(self.pace.shares())
    }

    /// A client's request goes to the storage.
    pub fn client_dispatched(&mut self, now: Nanos, disk: u32, shares: Shares, cost: Cost) {
        let all = self.served.add(now, disk, shares);
        let paid = u128::from(cost.as_millionths()) * u128::from(self.pace.shares().get());
        let paid = i64::try_from(paid / u128::from(all)).unwrap_or(i64::MAX);
        self.credit = self.credit.saturating_add(paid).min(SAVED);
        self.alone = 1;
    }

    /// A client's request has ended. `device` is how long it was at the storage, where that says
    /// something of the storage.
    pub fn client_completed(&mut self, now: Nanos, device: Option<Nanos>) {
        self.quiet_since = self.quiet_since.max(now);
        let Some(device) = device else { return };
        self.device = match self.device {
            Nanos::ZERO => device,
            mean => Nanos(mean.0 - mean.0 / 8 + device.0 / 8),
        };
    }

    /// A request of the copy goes to the storage. `clients` are clients' requests that are there.
    pub fn copy_dispatched(&mut self, now: Nanos, cost: Cost, bytes: Bytes, clients: u32) {
        if self.is_alone(now, clients) {
            self.credit = self.credit.max(0);
        } else {
            let cost = i64::try_from(cost.as_millionths()).unwrap_or(i64::MAX);
            self.credit = self.credit.saturating_sub(cost);
        }
        let by_ios = self.pace.limit().map_or(Nanos::ZERO, |limit| {
            time(cost.as_millionths(), limit.get().saturating_mul(Cost::ONE.as_millionths()))
        });
        let by_bytes = self.pace.limit_bandwidth();
        let by_bytes = by_bytes.map_or(Nanos::ZERO, |limit| time(bytes.0, limit.get()));
        // Who comes late by less than a request takes makes up for it.
        let takes = by_ios.max(by_bytes);
        self.next = self.next.max(Nanos(now.0.saturating_sub(takes.0))) + takes;
    }

    /// A request of the copy has ended.
    pub fn copy_completed(&mut self, now: Nanos, clients: u32) {
        if self.is_alone(now, clients) {
            self.alone = self.alone.saturating_add(1).min(self.most);
        }
    }

    /// Whether a step may begin, beside so many that are under way and so many requests of clients
    /// at the storage. [`Admission::None`]: ask again when one of those has ended, or another was
    /// dispatched.
    pub fn admit(&self, now: Nanos, under_way: u32, clients: u32) -> Admission {
        if now < self.next {
            return Admission::At(self.next);
        }
        if self.credit >= 0 && under_way < self.beside() {
            return Admission::Now;
        }
        if clients > 0 {
            return Admission::None;
        }
        match self.gone_at() {
            gone if now < gone => Admission::At(gone),
            _ if under_way < self.alone => Admission::Now,
            _ => Admission::None,
        }
    }

    /// How long a step may be that begins now; `None`: as long as it likes. Who writes to what a
    /// step writes waits for that, and a spindle serves nobody else meanwhile, so beside clients
    /// steps are short. A copy with the shares of a disk or more is in a hurry, and short ones cost
    /// more.
    pub fn longest_step(&self, now: Nanos, clients: u32) -> Option<Bytes> {
        let hurries = self.pace.shares() >= Shares::default();
        if hurries || self.is_alone(now, clients) { None } else { Some(SHORT_STEP) }
    }

    /// Steps that may be under way beside clients: all with the shares of a disk, and fewer with
    /// less, for a step is charged only when its request is dispatched.
    fn beside(&self) -> u32 {
        let part = u64::from(self.most).saturating_mul(self.pace.shares().get());
        let steps = part / Shares::default().get();
        u32::try_from(steps).unwrap_or(u32::MAX).clamp(1, self.most)
    }

    /// When clients that send nothing more are gone.
    fn gone_at(&self) -> Nanos {
        let [least, most] = GONE;
        let patience = Nanos(self.device.0.saturating_mul(ANTICIPATION));
        self.quiet_since + patience.clamp(least, most)
    }

    fn is_alone(&self, now: Nanos, clients: u32) -> bool {
        clients == 0 && now >= self.gone_at()
    }
}

/// How long `amount` takes at `rate` a second.
fn time(amount: u64, rate: u64) -> Nanos {
    let nanos = u128::from(amount) * 1_000_000_000 / u128::from(rate.max(1));
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
