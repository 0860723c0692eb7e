//! `headgate disk show`: a disk, what it waits for, and what it did.

use super::common::Print;
use super::error::CliError;
use super::output::{Align, Table, date, print_value};
use super::period::{At, now};
use clap::Args;
use headgate_api::blame::Blame;
use headgate_api::client::Client;
use headgate_api::report::DiskPeriod;
use headgate_api::types;
use headgate_model::Name;
use headgate_units::{Bytes, Nanos};
use std::io::Write;

/// Arguments of `disk show`.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// Name of the disk
    name: Name,
    /// Show what it did and waited for instead: by the minute for up to 6 h of the last day, else
    /// by the hour
    #[arg(long)]
    history: bool,
    /// Begin there: 2026-11-28, 2026-11-28T03:00 (UTC), or so long ago, such as 2h
    #[arg(long, value_name = "TIME", requires = "history", default_value = "1h")]
    since: At,
    /// End there; now when absent
    #[arg(long, value_name = "TIME", requires = "history")]
    until: Option<At>,
    #[command(flatten)]
    pub(super) print: Print,
}

impl Show {
    pub(super) fn run(
        &self,
        client: &Client,
        describe: impl Fn(&types::Disk) -> String,
        out: &mut dyn Write,
    ) -> Result<(), CliError> {
        let name = &self.name;
        if !self.history {
            let disk: types::Disk = client.get(&format!("/v1/disks/{name}"))?;
            let text = |disk: &types::Disk| describe(disk) + &waits_for(client, disk);
            return print_value(out, self.print, &disk, text);
        }
        let (since, until) = (self.since.0, self.until.map_or_else(|| now() + 1, |at| at.0));
        let path = format!("/v1/disks/{name}/history?since={since}&until={until}");
        let periods: Vec<DiskPeriod> = client.get(&path)?;
        print_value(out, self.print, &periods, |periods| table(periods).render())
    }
}

/// A line on what the disk's requests waited for lately. Whoever may not ask for it sees none.
fn waits_for(client: &Client, disk: &types::Disk) -> String {
    let blame: Result<Option<Blame>, _> = client.get(&format!("/v1/disks/{}/blame", disk.name));
    match blame {
        Ok(Some(blame)) => format!(
            "waits for: {} (of {:.1} requests under way, over {:.0} s)\n",
            blame.words(),
            blame.waiting,
            blame.seconds
        ),
        Ok(None) | Err(_) => String::new(),
    }
}

fn table(periods: &[DiskPeriod]) -> Table {
    let mut table = Table::new(&[
        ("FROM", Align::Left),
        ("SEEN", Align::Right),
        ("IOPS", Align::Right),
        ("PER SECOND", Align::Right),
        ("TOTAL P50", Align::Right),
        ("P99", Align::Right),
        ("RESERVED", Align::Right),
        ("RECEIVED", Align::Right),
        ("DEMANDED", Align::Right),
        ("SHORT", Align::Right),
        ("WAITING", Align::Right),
        ("WAITS FOR", Align::Left),
    ]);
    for period in periods {
        let promise = &period.promise;
        let rate = |ios: f64| format!("{:.0}", ios / period.seen_seconds.max(1e-9));
        let latency = |of: fn(&headgate_api::top::LatencyMicros) -> u64| {
            let micros = period.total_micros.as_ref().map(of);
            micros.map_or_else(|| "-".into(), |micros| Nanos::from_micros(micros).to_string())
        };
        let reserved = promise.reserved_ios > 0.0;
        table.row(vec![
            date(period.begin.max(0).cast_unsigned()),
            format!("{:.0} s", period.seen_seconds),
            format!("{:.0}", period.iops),
            Bytes(period.bytes_per_sec as u64).to_string(),
            latency(|l| l.p50),
            latency(|l| l.p99),
            if reserved { rate(promise.reserved_ios) } else { "-".into() },
            rate(promise.received_ios),
            format!("{:.0} s", promise.demanded_seconds),
            format!("{:.0} s", promise.short_seconds),
            period.blame.as_ref().map_or_else(|| "-".into(), |b| format!("{:.1}", b.waiting)),
            period.blame.as_ref().map_or_else(|| "-".into(), Blame::words),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_api::report::Promise;

    #[test]
    fn a_period_is_a_line() {
        let promise = Promise {
            reserved_ios: 6_000.0,
            received_ios: 5_400.0,
            demanded_seconds: 60.0,
            short_seconds: 12.0,
            ..Promise::default()
        };
        let period = DiskPeriod {
            begin: 1_790_000_040,
            seen_seconds: 60.0,
            iops: 90.0,
            promise,
            ..DiskPeriod::default()
        };
        let text = table(&[period]).render();
        let line = text.lines().nth(1).unwrap();
        for part in ["2026-09-21 14:14 UTC", " 100 ", " 90 ", " 60 s ", " 12 s "] {
            assert!(line.contains(part), "{part}: {text}");
        }
    }
}
