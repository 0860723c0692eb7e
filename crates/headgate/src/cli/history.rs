//! Prints the hourly history of a datastore as a table.

use super::output::{Align, Table, date};
use headgate_api::history::DatastoreHour;
use headgate_api::top::LatencyMicros;
use headgate_units::{Bytes, Nanos};

/// One line for each hour of which something was seen.
pub(super) fn table(hours: &[DatastoreHour]) -> Table {
    let mut table = Table::new(&[
        ("HOUR FROM", Align::Left),
        ("SEEN", Align::Right),
        ("IOPS", Align::Right),
        ("READS", Align::Right),
        ("PER SECOND", Align::Right),
        ("OUTSTANDING", Align::Right),
        ("PEAK", Align::Right),
        ("DEVICE P50", Align::Right),
        ("P99", Align::Right),
        ("TOTAL P50", Align::Right),
        ("P99", Align::Right),
        ("ERRORS", Align::Right),
        ("LEARNT FROM", Align::Right),
    ]);
    for hour in hours {
        let done = hour.reads.saturating_add(hour.writes);
        let part = |part: f64, whole: f64| format!("{:.0} %", part * 100.0 / whole);
        let time = |latency: Option<&LatencyMicros>, of: fn(&LatencyMicros) -> u64| {
            latency
                .map_or_else(|| "-".into(), |latency| Nanos::from_micros(of(latency)).to_string())
        };
        let (device, total) = (hour.device_micros.as_ref(), hour.total_micros.as_ref());
        table.row(vec![
            date(u64::try_from(hour.begin).unwrap_or(0)),
            part(hour.seen_seconds, 3_600.0),
            format!("{:.0}", hour.iops),
            if done > 0 { part(hour.reads as f64, done as f64) } else { "-".into() },
            Bytes(hour.bytes_per_sec as u64).to_string(),
            format!("{:.1}", hour.outstanding),
            format!("{:.1}", hour.outstanding_peak),
            time(device, |latency| latency.p50),
            time(device, |latency| latency.p99),
            time(total, |latency| latency.p50),
            time(total, |latency| latency.p99),
            hour.errors.to_string(),
            hour.intervals.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_lines() {
        let hour = |begin, reads| DatastoreHour {
            begin,
            seen_seconds: 1_800.0,
            reads,
            writes: 0,
            errors: 0,
            iops: 10.4,
            bytes_per_sec: 81_920.0,
            outstanding: 0.25,
            outstanding_peak: 3.0,
            device_micros: (reads > 0).then_some(LatencyMicros { p50: 2_100, p99: 9_000 }),
            total_micros: None,
            intervals: 360,
            left_out: Default::default(),
            points: 12,
        };
        let text = table(&[hour(1_789_999_200, 18_720), hour(1_790_002_800, 0)]).render();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        for part in [
            "2026-09-21 14:00 UTC",
            " 50 %",
            " 10 ",
            "100 %",
            "80 KiB",
            " 3.0 ",
            "2.10 ms",
            "9.00 ms",
            " 360",
        ] {
            assert!(lines[1].contains(part), "'{part}' in {text}");
        }
        assert!(lines[2].contains(" - "), "{text}");
    }
}
