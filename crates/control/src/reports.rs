//! What disks were promised and got, out of the accounts that history keeps.

use crate::{Control, ControlError};
use headgate_api::blame::{Blame, Blamed, Causes};
use headgate_api::report::{DiskPeriod, Promise, PromiseSample, Report, kept_percent};
use headgate_api::top::LatencyMicros;
use headgate_history::{Account, Span};
use headgate_model::Name;
use headgate_units::Nanos;
use std::collections::BTreeMap;
use std::ops::Range;

/// The longest time that is told by the minute.
const FINE_MAX: i64 = 6 * 3_600;

impl Control {
    /// What a disk did and waited for in a time, the oldest first: by the minute for up to six
    /// hours of the last day, else by the hour.
    ///
    /// # Errors
    /// When there is no such disk, or samples cannot be read.
    pub fn disk_history(
        &self,
        name: &Name,
        within: Range<i64>,
    ) -> Result<Vec<DiskPeriod>, ControlError> {
        let name = self.disk(name)?.name;
        let now = (headgate_history::wall_clock().0 / 1_000_000_000).cast_signed();
        let is_fine = within.end - within.start <= FINE_MAX && within.start >= now - 24 * 3_600;
        let span = if is_fine { Span::Minute } else { Span::Hour };
        let within = span.begin(within.start)..within.end;
        let mut accounts = self.samples().accounts(Some(&name), within, span)?;
        let of_disk = accounts.remove(&name).unwrap_or_default();
        Ok(of_disk.iter().map(|(&begin, account)| period(begin, account)).collect())
    }

    /// The hours that begin within a time, of all disks, also of removed ones.
    ///
    /// # Errors
    /// When samples cannot be read.
    pub fn promise_samples(&self, within: Range<i64>) -> Result<Vec<PromiseSample>, ControlError> {
        let within = Span::Hour.begin(within.start)..within.end;
        let accounts = self.samples().accounts(None, within, Span::Hour)?;
        let disks = self.disks_at(&[]);
        let model = self.model();
        let whose: BTreeMap<Name, (Option<Name>, Option<Name>)> = disks
            .into_iter()
            .map(|disk| {
                let tenant = model.tenant_of(disk.vm.as_ref()).cloned();
                (disk.name, (disk.vm, tenant))
            })
            .collect();
        drop(model);
        let of_disk = |(disk, hours): (Name, BTreeMap<i64, Account>)| {
            let (vm, tenant) = whose.get(&disk).cloned().unwrap_or_default();
            hours.into_iter().map(move |(begin, account)| PromiseSample {
                disk: disk.clone(),
                vm: vm.clone(),
                tenant: tenant.clone(),
                begin,
                seen_seconds: account.seen.as_secs_f64(),
                promise: promise(&account),
            })
        };
        Ok(accounts.into_iter().flat_map(of_disk).collect())
    }

    /// How promises were kept in a time.
    ///
    /// # Errors
    /// When samples cannot be read.
    pub fn report(&self, within: Range<i64>) -> Result<Report, ControlError> {
        let (since, until) = (Span::Hour.begin(within.start), within.end);
        Ok(Report::of(since, until, &self.promise_samples(within)?))
    }
}

fn period(begin: i64, account: &Account) -> DiskPeriod {
    let seconds = account.seen.as_secs_f64();
    let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let micros = |permille| Some(account.latency.at_permille(permille)?.0.div_ceil(1_000));
    DiskPeriod {
        begin,
        seen_seconds: seconds,
        iops: per_second(account.reads.count + account.writes.count),
        bytes_per_sec: per_second(account.reads.bytes.0.saturating_add(account.writes.bytes.0)),
        total_micros: micros(500).zip(micros(990)).map(|(p50, p99)| LatencyMicros { p50, p99 }),
        errors: account.errors,
        blame: blame(account),
        promise: promise(account),
    }
}

/// Thousandths as wholes.
fn milli(amount: u64) -> f64 {
    amount as f64 / 1e3
}

/// Request-microseconds in seconds, by cause.
fn causes(waits: &[u64; 6], unit: f64) -> Causes {
    let [device, limit, own, neighbours, window, held] = waits.map(|waited| waited as f64 / unit);
    Causes { device, limit, own, neighbours, window, held }
}

fn blame(account: &Account) -> Option<Blame> {
    let total = account.waits.iter().map(|waited| *waited as f64).sum::<f64>();
    if total <= 0.0 || account.seen == Nanos::ZERO {
        return None;
    }
    let part = |(disk, waited): (&Name, &u64)| Blamed {
        disk: disk.clone(),
        copy: false,
        part: *waited as f64 / total,
    };
    let mut neighbours: Vec<Blamed> = account.neighbours.iter().map(part).collect();
    neighbours.sort_by(|a, b| b.part.total_cmp(&a.part));
    let seconds = account.seen.as_secs_f64();
    let waiting = total / 1e6 / seconds;
    Some(Blame { seconds, waiting, causes: causes(&account.waits, total), neighbours })
}

fn promise(account: &Account) -> Promise {
    let (demanded, short) = (account.demanded_time.as_secs_f64(), account.short_time.as_secs_f64());
    let named = account.short_neighbours.iter();
    Promise {
        reserved_ios: milli(account.reserved),
        received_ios: milli(account.received),
        demanded_seconds: demanded,
        short_seconds: short,
        demanded_ios: milli(account.demanded),
        received_when_demanded_ios: milli(account.received_demanded),
        missing_ios: milli(account.missing),
        kept_percent: kept_percent(demanded, short),
        short_waits: causes(&account.short_waits, 1e6),
        short_neighbours: named
            .map(|(name, waited)| (name.to_string(), *waited as f64 / 1e6))
            .collect(),
    }
}
