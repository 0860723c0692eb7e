//! What each disk was promised and got, and what it waited for: by the minute and by the hour.

use crate::totals::{Done, Latencies};
use headgate_model::{DiskSample, Name, Waits};
use headgate_stats::COST_OF_ONE_IO;
use headgate_units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What waiting is divided by, in the order of [`Account::waits`].
pub const CAUSES: [&str; 6] = ["device", "limit", "own", "neighbours", "window", "held"];

/// Neighbours that an account names.
const NAMED: usize = 8;

/// A promise counts as kept in a second from this part of it on, in per cent.
const KEPT_PERCENT: u128 = 97;

/// A disk's minute, or its hour, or several.
///
/// A second is *demanded* when the disk has a reservation and had requests queued at its beginning
/// and at its end, none of them held for its storage's trouble. It is *short* when it got less than
/// 97 % of the reservation in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// How much of it was seen.
    pub seen: Nanos,
    /// Reads that completed.
    pub reads: Done,
    /// Writes that completed.
    pub writes: Done,
    /// Requests that failed.
    pub errors: u64,
    /// Reads and writes, from arrival to completion.
    pub latency: Latencies,
    /// What was reserved, in thousandths of a normalised IO: the reservation times the time.
    pub reserved: u64,
    /// What was received, likewise.
    pub received: u64,
    /// Time in which the reservation was demanded.
    pub demanded_time: Nanos,
    /// Of that, time in which it fell short.
    pub short_time: Nanos,
    /// What was reserved in the demanded time.
    pub demanded: u64,
    /// What was received in it.
    pub received_demanded: u64,
    /// What was missing in the short time.
    pub missing: u64,
    /// Waiting by cause ([`CAUSES`]), in request-microseconds.
    pub waits: [u64; 6],
    /// The neighbours that took the most of it.
    pub neighbours: BTreeMap<Name, u64>,
    /// The same of the short time.
    pub short_waits: [u64; 6],
    /// Likewise.
    pub short_neighbours: BTreeMap<Name, u64>,
}

impl Account {
    /// Whether the disk asked for anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.waits == [0; 6]
            && self.reads.count == 0
            && self.writes.count == 0
            && self.reserved == 0
    }

    /// Adds what was at other times.
    pub fn merge(&mut self, other: &Account) {
        self.seen += other.seen;
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.errors = self.errors.saturating_add(other.errors);
        self.latency.merge(&other.latency);
        self.demanded_time += other.demanded_time;
        self.short_time += other.short_time;
        for (mine, more) in [
            (&mut self.reserved, other.reserved),
            (&mut self.received, other.received),
            (&mut self.demanded, other.demanded),
            (&mut self.received_demanded, other.received_demanded),
            (&mut self.missing, other.missing),
        ] {
            *mine = mine.saturating_add(more);
        }
        add(&mut self.waits, &other.waits);
        add(&mut self.short_waits, &other.short_waits);
        add_named(&mut self.neighbours, &other.neighbours);
        add_named(&mut self.short_neighbours, &other.short_neighbours);
    }

    /// Of a disk that stood still for so long.
    pub(crate) fn still(disk: &DiskSample, length: Nanos) -> Account {
        let reserved = reserved(disk, length).map_or(0, milli);
        Account { seen: length, reserved, ..Account::default() }
    }

    /// Of what a disk did between two samples.
    pub(crate) fn between(before: &DiskSample, now: &DiskSample) -> Account {
        let length = now.at().since(before.at());
        let (old, new) = (&before.counted, &now.counted);
        let mut account = Account { seen: length, ..Account::default() };
        for (done, new, old) in [
            (&mut account.reads, &new.reads, &old.reads),
            (&mut account.writes, &new.writes, &old.writes),
        ] {
            done.count = new.counts.done.saturating_sub(old.counts.done);
            done.bytes = headgate_units::Bytes(new.counts.bytes.saturating_sub(old.counts.bytes));
            account.errors += new.counts.errors.saturating_sub(old.counts.errors);
            account.latency.add(&new.total.since(&old.total));
        }
        let cost = |stats: &headgate_stats::DiskSnapshot| {
            stats.served.reservation_cost + stats.served.weight_cost
        };
        let received = cost(new).saturating_sub(cost(old));
        account.received = milli(received);
        let waits = now.waits.since(&before.waits);
        account.waits = by_cause(&waits);
        account.neighbours = named(&waits);
        let Some(reserved) = reserved(now, length) else { return account };
        account.reserved = milli(reserved);
        let is_held = before.trouble.hold.is_some() || now.trouble.hold.is_some();
        if before.queued == 0 || now.queued == 0 || is_held {
            return account;
        }
        account.demanded_time = length;
        (account.demanded, account.received_demanded) = (account.reserved, account.received);
        if received * 100 < reserved * KEPT_PERCENT {
            account.short_time = length;
            account.missing = milli(reserved.saturating_sub(received));
            account.short_waits = account.waits;
            account.short_neighbours = account.neighbours.clone();
        }
        account
    }
}

/// In thousandths of a reference IO, of millionths.
fn milli(cost: u128) -> u64 {
    u64::try_from(cost * 1_000 / u128::from(COST_OF_ONE_IO)).unwrap_or(u64::MAX)
}

/// What is reserved for a disk in so long, in millionths of a reference IO: reference IOs times
/// nanoseconds over a second. `None` without a reservation.
fn reserved(disk: &DiskSample, length: Nanos) -> Option<u128> {
    let reservation = disk.policy.reservation?;
    Some(u128::from(reservation.get()) * u128::from(length.0) / 1_000)
}

fn add(mine: &mut [u64; 6], more: &[u64; 6]) {
    for (mine, more) in mine.iter_mut().zip(more) {
        *mine = mine.saturating_add(*more);
    }
}

fn add_named(mine: &mut BTreeMap<Name, u64>, more: &BTreeMap<Name, u64>) {
    for (name, waited) in more {
        let mine = mine.entry(name.clone()).or_default();
        *mine = mine.saturating_add(*waited);
    }
    while mine.len() > NAMED {
        let least = mine.iter().min_by_key(|(_, waited)| **waited).map(|(name, _)| name.clone());
        least.and_then(|name| mine.remove(&name));
    }
}

fn by_cause(waits: &Waits) -> [u64; 6] {
    [waits.device, waits.limit, waits.own, waits.neighbours, waits.window, waits.held]
        .map(|nanos| u64::try_from(nanos / 1_000).unwrap_or(u64::MAX))
}

fn named(waits: &Waits) -> BTreeMap<Name, u64> {
    let mut named = BTreeMap::new();
    for one in &waits.named {
        let one = BTreeMap::from([(one.disk.clone(), one.waited / 1_000)]);
        add_named(&mut named, &one);
    }
    named
}

/// By the first second of each minute, since 1970.
pub(crate) type Minutes = BTreeMap<i64, Account>;

#[cfg(test)]
mod tests {
    use super::super::testing::sample;
    use super::*;
    use crate::accountant::Accountant;
    use headgate_model::{DatastoreSample, NeighbourWait, Sender};
    use std::sync::Arc;

    /// A disk with a reservation of 100 that got so much until then, and how much it has queued.
    fn disk(second: u64, got: u64, queued: u32) -> Arc<Vec<DatastoreSample>> {
        let mut stores = sample(second, &[("a", got)]).to_vec();
        let disk = &mut stores[0].disks[0];
        disk.policy = serde_json::from_str(r#"{"reservation": 100}"#).unwrap();
        disk.queued = queued;
        disk.waits.neighbours = u128::from(second) * 2_000_000_000;
        disk.waits.named = vec![NeighbourWait {
            disk: "b".parse().unwrap(),
            sender: Sender::Clients,
            entered: 0,
            waited: second * 1_500_000_000,
        }];
        Arc::new(stores)
    }

    fn account(samples: &[Arc<Vec<DatastoreSample>>]) -> Account {
        let (mut accountant, mut accounts) = (Accountant::default(), BTreeMap::new());
        for (second, sample) in (1..).zip(samples) {
            accountant.see(Nanos::from_secs(6_000 + second), sample, &mut accounts);
        }
        let minutes = accounts.remove(&"a".parse().unwrap()).unwrap_or_default();
        assert!(minutes.keys().all(|at| *at == 6_000));
        minutes.into_values().next().unwrap_or_default()
    }

    #[test]
    fn a_second_is_short_when_its_disk_waited_throughout_and_got_too_little() {
        let second = Nanos::from_secs(1);
        let kept = account(&[disk(1, 100, 3), disk(2, 100, 3)]);
        assert_eq!((kept.demanded_time, kept.short_time, kept.missing), (second, Nanos::ZERO, 0));
        let short = account(&[disk(1, 90, 3), disk(2, 90, 3), disk(3, 90, 3)]);
        assert_eq!(
            (short.demanded_time, short.short_time),
            (Nanos(2 * second.0), Nanos(2 * second.0))
        );
        assert_eq!(
            (short.demanded, short.received_demanded, short.missing),
            (200_000, 180_000, 20_000)
        );
        assert_eq!(short.short_waits, [0, 0, 0, 4_000_000, 0, 0]);
        assert_eq!(short.short_neighbours, BTreeMap::from([("b".parse().unwrap(), 3_000_000)]));
        for queued in [(0, 3), (3, 0)] {
            let asked_for_less = account(&[disk(1, 90, queued.0), disk(2, 90, queued.1)]);
            assert_eq!(
                (asked_for_less.demanded_time, asked_for_less.reserved),
                (Nanos::ZERO, 100_000)
            );
        }
    }

    #[test]
    fn accounts_add_up_and_name_the_neighbours_with_the_most() {
        let of = |names: std::ops::Range<u64>| {
            let name = |n: u64| (format!("n{n:02}").parse().unwrap(), 1_000 * n);
            Account { reserved: 7, neighbours: names.map(name).collect(), ..Account::default() }
        };
        let mut sum = of(1..8);
        sum.merge(&of(4..20));
        assert_eq!(sum.reserved, 14);
        let named: Vec<u64> = sum.neighbours.values().copied().collect();
        assert_eq!(
            named,
            [14, 13, 14, 15, 16, 17, 18, 19].map(|n| 1_000 * n),
            "n07 is there twice"
        );
    }
}
