//! `headgate report`: what was reserved, demanded and received, and why seconds were short.

use super::common::{DaemonArgs, Print};
use super::error::CliError;
use super::output::{Align, Table, date, json};
use super::period::{At, Month, now};
use clap::{Args, ValueEnum};
use headgate_api::report::{Promise, PromiseSample, Report, ReportLine};
use headgate_model::Name;
use std::fmt::Write as _;
use std::io::Write;

/// How a report is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables
    #[default]
    Text,
    /// One page without anything from elsewhere
    Html,
    /// A line for each disk, each machine and each tenant
    Csv,
    /// As the API has it
    Json,
}

/// `headgate report`
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// A month of UTC, such as 2026-11
    #[arg(long, value_name = "YYYY-MM", conflicts_with_all = ["since", "until"])]
    month: Option<Month>,
    /// Begin there: 2026-11-28, 2026-11-28T03:00 (UTC), or so long ago, such as 7d; the hour that
    /// it is in counts whole
    #[arg(long, value_name = "TIME")]
    since: Option<At>,
    /// End there; now when absent
    #[arg(long, value_name = "TIME")]
    until: Option<At>,
    /// Only this disk
    #[arg(long, value_name = "NAME", conflicts_with_all = ["vm", "tenant"])]
    disk: Option<Name>,
    /// Only the disks of this virtual machine
    #[arg(long, value_name = "VM", conflicts_with = "tenant")]
    vm: Option<Name>,
    /// Only the disks of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<Name>,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Print the kept samples that the report is made of, as CSV
    #[arg(long, conflicts_with_all = ["format", "json"])]
    samples: bool,
    #[command(flatten)]
    print: Print,
}

impl ReportArgs {
    pub(super) fn prints_json(&self) -> bool {
        self.print.json || self.format == Format::Json
    }

    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let client = daemon.client()?;
        let (since, until) = match self.month {
            Some(month) => (month.since, month.until),
            None => {
                let until = self.until.map_or_else(|| now() + 1, |at| at.0);
                (self.since.map_or(until - 24 * 3_600, |at| at.0), until)
            }
        };
        let path = format!("/v1/report/samples?since={since}&until={until}");
        let mut samples: Vec<PromiseSample> = client.get(&path)?;
        samples.retain(|sample| {
            self.disk.as_ref().is_none_or(|disk| *disk == sample.disk)
                && self.vm.as_ref().is_none_or(|vm| Some(vm) == sample.vm.as_ref())
                && self.tenant.as_ref().is_none_or(|one| Some(one) == sample.tenant.as_ref())
        });
        let report = Report::of(since.div_euclid(3_600) * 3_600, until, &samples);
        let text = match self.format {
            _ if self.samples => samples_csv(&samples),
            _ if self.prints_json() => return Ok(json(out, &report)?),
            Format::Text | Format::Json => text(&report),
            Format::Html => html(&report),
            Format::Csv => csv(&report),
        };
        Ok(out.write_all(text.as_bytes())?)
    }
}

/// `99.95 %`, and never 100 where a second was short.
fn kept(promise: &Promise) -> String {
    match promise.kept_percent {
        None => "-".into(),
        Some(percent) if promise.short_seconds > 0.0 => {
            format!("{:.3} %", (percent * 1_000.0).floor() / 1_000.0)
        }
        Some(percent) => format!("{percent:.3} %"),
    }
}

fn why(promise: &Promise) -> String {
    promise.why().map_or_else(|| "-".into(), |why| why.words())
}

const HEADS: [&str; 9] = [
    "RESERVED IOS",
    "RECEIVED IOS",
    "DEMANDED s",
    "OF IT RESERVED",
    "RECEIVED",
    "SHORT s",
    "MISSING IOS",
    "KEPT",
    "SHORT FOR",
];

fn cells(promise: &Promise) -> Vec<String> {
    let whole = |amount: f64| format!("{amount:.0}");
    vec![
        whole(promise.reserved_ios),
        whole(promise.received_ios),
        format!("{:.1}", promise.demanded_seconds),
        whole(promise.demanded_ios),
        whole(promise.received_when_demanded_ios),
        format!("{:.1}", promise.short_seconds),
        whole(promise.missing_ios),
        kept(promise),
        why(promise),
    ]
}

fn time(report: &Report) -> String {
    let said = |at: i64| date(at.max(0).cast_unsigned());
    format!("{} to {}", said(report.since), said(report.until))
}

/// The lines of each kind, without kinds that have none.
fn shown(report: &Report) -> impl Iterator<Item = (&'static str, &[ReportLine])> {
    let is_shown = |(kind, lines): &(&str, &[ReportLine])| *kind == "disk" || !lines.is_empty();
    report.each().into_iter().filter(is_shown)
}

fn text(report: &Report) -> String {
    let mut text = format!("Promises kept, {}\n", time(report));
    for (kind, lines) in shown(report) {
        let head = kind.to_uppercase();
        let mut columns = vec![(head.as_str(), Align::Left)];
        columns.extend(HEADS.map(|head| (head, Align::Right)));
        let mut table = Table::new(&columns);
        for line in lines {
            let mut row = vec![line.name.to_string()];
            row.extend(cells(&line.promise));
            table.row(row);
        }
        text.push('\n');
        text.push_str(&table.render());
    }
    let _ = writeln!(
        text,
        "\nall: {} of {:.1} demanded seconds",
        kept(&report.all),
        report.all.demanded_seconds
    );
    text
}

fn csv(report: &Report) -> String {
    let mut text = String::from(
        "of,name,vm,tenant,reserved_ios,received_ios,demanded_seconds,demanded_ios,\
         received_when_demanded_ios,short_seconds,missing_ios,kept_percent\n",
    );
    let lines =
        report.each().into_iter().flat_map(|(of, lines)| lines.iter().map(move |l| (of, l)));
    for (of, line) in lines {
        let p = &line.promise;
        let kept = p.kept_percent.map_or_else(String::new, |kept| format!("{kept:.6}"));
        let (vm, tenant) = (or_empty(line.vm.as_ref()), or_empty(line.tenant.as_ref()));
        let _ = writeln!(
            text,
            "{of},{},{vm},{tenant},{:.3},{:.3},{:.9},{:.3},{:.3},{:.9},{:.3},{kept}",
            line.name,
            p.reserved_ios,
            p.received_ios,
            p.demanded_seconds,
            p.demanded_ios,
            p.received_when_demanded_ios,
            p.short_seconds,
            p.missing_ios,
        );
    }
    text
}

fn or_empty(name: Option<&Name>) -> &str {
    name.map_or("", Name::as_str)
}

/// Names have no comma and no quote, so that nothing needs one.
fn samples_csv(samples: &[PromiseSample]) -> String {
    let mut text = String::from(
        "disk,vm,tenant,begin,seen_seconds,reserved_ios,received_ios,demanded_seconds,demanded_ios,\
         received_when_demanded_ios,short_seconds,missing_ios,short_device,short_limit,short_own,\
         short_neighbours,short_window,short_held\n",
    );
    for sample in samples {
        let (p, w) = (&sample.promise, &sample.promise.short_waits);
        let (vm, tenant) = (or_empty(sample.vm.as_ref()), or_empty(sample.tenant.as_ref()));
        let _ = writeln!(
            text,
            "{},{vm},{tenant},{},{:.9},{:.3},{:.3},{:.9},{:.3},{:.3},{:.9},{:.3},{:.6},{:.6},{:.6},{:.6},{:.6},{:.6}",
            sample.disk,
            sample.begin,
            sample.seen_seconds,
            p.reserved_ios,
            p.received_ios,
            p.demanded_seconds,
            p.demanded_ios,
            p.received_when_demanded_ios,
            p.short_seconds,
            p.missing_ios,
            w.device,
            w.limit,
            w.own,
            w.neighbours,
            w.window,
            w.held,
        );
    }
    text
}

const STYLE: &str = "body{font:15px system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;\
color-scheme:light dark}table{border-collapse:collapse;width:100%;margin:1em 0}\
th,td{padding:.3em .6em;text-align:right;border-bottom:1px solid #8884}\
th:first-child,td:first-child,td:last-child{text-align:left}";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn html(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>Promises kept</title><style>{STYLE}</style>\n\
         <h1>Promises kept</h1><p>{}</p>\n<p>All disks: <strong>{}</strong> of {:.1} demanded seconds. A second is demanded \
         when the disk had requests queued at its beginning and its end; it is short when it got less than 97 % of its \
         reservation.</p>\n",
        time(report),
        kept(&report.all),
        report.all.demanded_seconds
    );
    for (kind, lines) in shown(report) {
        page.push_str(&html_table(kind, lines));
    }
    page
}

fn html_table(head: &str, lines: &[ReportLine]) -> String {
    let mut table = format!("<table><tr><th>{}", head.to_uppercase());
    HEADS.iter().for_each(|head| {
        let _ = write!(table, "<th>{head}");
    });
    for line in lines {
        let _ = write!(table, "\n<tr><td>{}", escaped(line.name.as_str()));
        for cell in cells(&line.promise) {
            let _ = write!(table, "<td>{}", escaped(&cell));
        }
    }
    table.push_str("\n</table>\n");
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_short_second_is_never_a_hundred_per_cent() {
        let promise = |demanded, short| Promise {
            demanded_seconds: demanded,
            short_seconds: short,
            kept_percent: headgate_api::report::kept_percent(demanded, short),
            ..Promise::default()
        };
        assert_eq!(kept(&promise(2_592_000.0, 1.0)), "99.999 %");
        assert_eq!(kept(&promise(2_592_000.0, 0.0)), "100.000 %");
        assert_eq!(kept(&promise(10_000.0, 5.0)), "99.950 %");
        assert_eq!(kept(&promise(0.0, 0.0)), "-");
    }

    #[test]
    fn each_disk_machine_and_tenant_has_a_row() {
        let line = |name: &str| ReportLine {
            name: name.parse().unwrap(),
            vm: None,
            tenant: None,
            promise: Promise::default(),
        };
        let (disks, machines) = (vec![line("a"), line("b")], vec![line("m")]);
        let report = Report { disks, machines, tenants: vec![line("t")], ..Report::default() };
        let page = html(&report);
        assert_eq!(page.matches("<tr><td>").count(), 4, "{page}");
        let csv = csv(&report);
        let named = |line: &str| line.splitn(3, ',').take(2).collect::<Vec<_>>().join(" ");
        let names: Vec<String> = csv.lines().map(named).collect();
        assert_eq!(names, ["of name", "disk a", "disk b", "machine m", "tenant t"]);
        let text = text(&report);
        assert!(text.contains("\nMACHINE") && text.contains("\nTENANT"), "{text}");
    }
}
