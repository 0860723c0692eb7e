//! `headgate what-if`: what a change of policy would have done, on the load that was recorded.

use super::common::{DaemonArgs, Print};
use super::error::CliError;
use super::output::{Align, Table, date, print_value};
use super::period::{At, now};
use super::policy::PolicyArgs;
use super::values::OrNone;
use clap::Args;
use headgate_api::top::LatencyMicros;
use headgate_api::types::DiskPatch;
use headgate_api::what_if::{Received, WhatIf, WhatIfAnswer, WhatIfDisk};
use headgate_model::Name;
use headgate_units::Nanos;
use hyper::Method;
use std::fmt::Write as _;
use std::io::Write;

/// Arguments of `what-if`.
#[derive(Debug, Args)]
pub(super) struct WhatIfArgs {
    /// Name of the disk that would have another policy
    name: Name,
    /// Class of policies that it would have, or 'none'
    #[arg(long, value_name = "CLASS")]
    class: Option<OrNone<Name>>,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Begin there: 2026-11-28T03:00 (UTC), or so long ago, such as 2h; at most 24h before the end
    /// [default: 10min before the end]
    #[arg(long, value_name = "TIME")]
    since: Option<At>,
    /// End there; now when absent
    #[arg(long, value_name = "TIME")]
    until: Option<At>,
    #[command(flatten)]
    pub(super) print: Print,
}

impl WhatIfArgs {
    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let change = DiskPatch { class: OrNone::change(self.class), ..self.policy.patch() };
        if change == DiskPatch::default() {
            let message = "nothing to change: say what the disk would have, such as --reservation \
                           800, --limit 500, --shares 4000 or --class gold";
            return Err(CliError::Usage(message.into()));
        }
        let until = self.until.map_or_else(|| now() + 1, |at| at.0);
        let since = self.since.map_or(until - 600, |at| at.0);
        let asked = WhatIf { disk: self.name, change, since: Some(since), until: Some(until) };
        let answer: WhatIfAnswer = daemon.client()?.send(Method::POST, "/v1/what-if", &asked)?;
        print_value(out, self.print, &answer, text)
    }
}

fn text(answer: &WhatIfAnswer) -> String {
    let said = |at: i64| date(at.max(0).cast_unsigned());
    let deviation = &answer.deviation;
    let mut text = format!(
        "datastore {}, {} to {}: {:.0} s recorded, {:.0} s simulated with each policy\n",
        answer.datastore,
        said(answer.since),
        said(answer.until),
        answer.recorded_seconds,
        answer.simulated_seconds
    );
    let late = deviation.p99_percent;
    let late = late.map_or_else(String::new, |late| format!(", 99th percentiles by {late:.0} %"));
    let _ = write!(
        text,
        "trust in rates: {}; simulated as it was, they differ from the record by {:.1} %{late}\n\
         \n{}",
        deviation.trust,
        deviation.iops_percent,
        table(&answer.disks).render()
    );
    text.push_str(
        "\nIOPS, P99, SHORT: as recorded; simulated as it was; simulated with the change.",
    );
    text.push_str(" SHORT of DEMANDED seconds.\n");
    for note in &answer.notes {
        let _ = writeln!(text, "- {note}");
    }
    text
}

fn table(disks: &[WhatIfDisk]) -> Table {
    let mut table = Table::new(&[
        ("DISK", Align::Left),
        ("IOPS", Align::Right),
        ("SIMULATED", Align::Right),
        ("CHANGED", Align::Right),
        ("P99", Align::Right),
        ("SIMULATED", Align::Right),
        ("CHANGED", Align::Right),
        ("SHORT", Align::Right),
        ("SIMULATED", Align::Right),
        ("CHANGED", Align::Right),
        ("TAKEN FOR ONE THAT", Align::Left),
    ]);
    for disk in disks {
        let each = [&disk.recorded, &disk.before, &disk.after];
        let mut row = vec![disk.disk.to_string()];
        row.extend(each.map(|one| format!("{:.0}", one.iops)));
        row.extend(each.map(p99));
        row.extend(each.map(short));
        row.push(disk.load.clone());
        table.row(row);
    }
    table
}

fn p99(one: &Received) -> String {
    let micros = |latency: &LatencyMicros| Nanos::from_micros(latency.p99).to_string();
    one.total_micros.as_ref().map_or_else(|| "-".into(), micros)
}

fn short(one: &Received) -> String {
    if one.demanded_seconds <= 0.0 {
        return "-".into();
    }
    let missed = if one.is_missed() { " MISSED" } else { "" };
    format!("{:.0}/{:.0} s{missed}", one.short_seconds, one.demanded_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_api::what_if::{Deviation, Trust};
    use headgate_model::Policy;

    #[test]
    fn an_answer_has_its_trust_three_figures_of_each_disk_and_its_notes() {
        let received = |iops, short_seconds| Received {
            iops,
            normalised_iops: iops,
            total_micros: Some(LatencyMicros { p50: 1_000, p99: 25_000 }),
            demanded_seconds: 600.0,
            short_seconds,
        };
        let disk = WhatIfDisk {
            disk: "db0".parse().unwrap(),
            load: "keeps 8.0 outstanding".into(),
            policy_before: Policy::default(),
            policy_after: Policy::default(),
            recorded: received(211.0, 600.0),
            before: received(208.0, 590.0),
            after: Received { demanded_seconds: 0.0, ..received(512.0, 0.0) },
        };
        let answer = WhatIfAnswer {
            disk: "db0".parse().unwrap(),
            datastore: "array".parse().unwrap(),
            since: 1_790_000_040,
            until: 1_790_000_640,
            recorded_seconds: 600.0,
            simulated_seconds: 60.0,
            deviation: Deviation { trust: Trust::Good, iops_percent: 1.25, p99_percent: Some(9.0) },
            disks: vec![disk],
            notes: vec!["a note".into()],
        };
        let text = text(&answer);
        for words in [
            "datastore array, 2026-09-21 14:14 UTC to 2026-09-21 14:24 UTC: 600 s recorded",
            "trust in rates: good; simulated as it was, they differ from the record by 1.2 %",
            "99th percentiles by 9 %",
            "- a note",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let line = text.lines().find(|line| line.starts_with("db0")).unwrap();
        let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        assert_eq!(cells[1..4], ["211", "208", "512"], "{line}");
        assert_eq!(cells[7..10], ["600/600 s MISSED", "590/600 s MISSED", "-"], "{line}");
    }
}
