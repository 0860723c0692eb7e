//! Metrics of storage trouble.

use super::{Labels, Scrape, Writer};
use headgate_api::space::FileSystem;
use headgate_api::types::Datastore;
use headgate_control::volumes::WARN_PERCENT;
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
            Some(d.at().since(since).as_secs_f64())
        };
        let seconds = all(&|d| since(d).unwrap_or(0.0));
        let help = "For how long the disk has held requests; 0 while it holds none";
        out.gauges("disk_held_seconds", help, &seconds)?;
        let holds = all(&|d| d.trouble.holds as f64);
        out.counters("disk_holds", "How often the disk began to hold requests", &holds)?;
        let failing = all(&|d| f64::from(u8::from(d.trouble.failing(d.at()).is_some())));
        let help = "1 when the storage failed a request within the last 10 s";
        out.gauges("disk_storage_failing", help, &failing)
    }

    /// Of file systems under datastores, as they were a few seconds ago.
    pub(super) fn encode_space(&self, out: &mut Writer<'_>) -> fmt::Result {
        let gauge = |read: &dyn Fn(&FileSystem) -> Option<f64>| -> Vec<(Labels, f64)> {
            let one = |d: &Datastore| {
                let value = read(d.file_system.as_ref()?)?;
                Some((vec![("datastore", d.name.to_string())], value))
            };
            self.datastores.iter().filter_map(one).collect()
        };
        let size = gauge(&|f| Some(f.size.0 as f64));
        out.gauges("datastore_size_bytes", "Size of the file system", &size)?;
        let free = gauge(&|f| Some(f.free.0 as f64));
        out.gauges("datastore_free_bytes", "What is free of the file system", &free)?;
        let allocated = gauge(&|f| Some(f.allocated.0 as f64));
        let help = "What disks of the datastore have allocated";
        out.gauges("datastore_allocated_bytes", help, &allocated)?;
        let provisioned = gauge(&|f| Some(f.provisioned.0 as f64));
        let help = "Sizes of the disks of the datastore";
        out.gauges("datastore_provisioned_bytes", help, &provisioned)?;
        let help = "Sizes of all disks on the file system over the room for them";
        out.gauges("datastore_overcommit_ratio", help, &gauge(&|f| f.overcommit))?;
        let help = "Which of 80, 90 and 95 per cent of the file system are used; 0: none";
        let reached = |f: &FileSystem| {
            let bounds = WARN_PERCENT.iter().filter(|bound| f.used_percent >= **bound);
            f64::from(bounds.max().copied().unwrap_or(0))
        };
        out.gauges("datastore_space_warning_percent", help, &gauge(&|f| Some(reached(f))))
    }

    pub(super) fn sampled(&self) -> impl Iterator<Item = (Labels, &DiskSample)> {
        self.samples.iter().flat_map(|store| {
            store.disks.iter().map(|disk| {
                let labels =
                    vec![("datastore", store.name.to_string()), ("disk", disk.name.to_string())];
                (labels, disk)
            })
        })
    }
}
