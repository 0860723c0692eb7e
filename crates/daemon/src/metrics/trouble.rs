//! Metrics of storage trouble.

use super::{Labels, Scrape, Writer};
use headgate_model::DiskSample;
use std::fmt;

impl Scrape {
    pub(super) fn encode_trouble(&self, out: &mut Writer<'_>) -> fmt::Result {
        let mut errors: Vec<(Labels, f64)> = Vec::new();
        for (labels, disk) in self.sampled() {
            for (op, kind, count) in disk.trouble.counts.iter().filter(|(.., count)| *count > 0) {
                let mut labels = labels.clone();
                labels.extend([("op", op.as_str().to_owned()), ("kind", kind.as_str().to_owned())]);
                errors.push((labels, count as f64));
            }
        }
        let help = "Requests that the storage failed, reported or held, by what failed and how";
        out.counters("disk_storage_errors", help, &errors)?;
        let all = |read: &dyn Fn(&DiskSample) -> f64| -> Vec<(Labels, f64)> {
            self.sampled().map(|(labels, disk)| (labels, read(disk))).collect()
        };
        let held = all(&|d| d.trouble.hold.as_ref().map_or(0.0, |hold| hold.requests as f64));
        out.gauges("disk_held_requests", "Requests held until the storage takes them", &held)?;
        let since = |d: &DiskSample| {
            let since = d.trouble.hold.as_ref()?.since;
            Some(d.stats.at.since(since).as_secs_f64())
        };
        let seconds = all(&|d| since(d).unwrap_or(0.0));
        let help = "For how long the disk has held requests; 0 while it holds none";
        out.gauges("disk_held_seconds", help, &seconds)?;
        let holds = all(&|d| d.trouble.holds as f64);
        out.counters("disk_holds", "How often the disk began to hold requests", &holds)?;
        let failing = all(&|d| f64::from(u8::from(d.trouble.failing(d.stats.at).is_some())));
        let help = "1 when the storage failed a request within the last 10 s";
        out.gauges("disk_storage_failing", help, &failing)
    }

    fn sampled(&self) -> impl Iterator<Item = (Labels, &DiskSample)> {
        self.samples.iter().flat_map(|store| {
            store.disks.iter().map(|disk| {
                let labels =
                    vec![("datastore", store.name.to_string()), ("disk", disk.name.to_string())];
                (labels, disk)
            })
        })
    }
}
