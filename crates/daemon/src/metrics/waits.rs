//! Metrics of what requests wait for: by cause, and for disks whose promise is missed by the
//! neighbours that took the most. Never by pair of disks, of which there are n².

use super::{Labels, Scrape, Writer};
use headgate_api::latency::Verdict;
use headgate_api::top::TopDisk;
use headgate_model::Waits;
use std::fmt;

/// Neighbours that are named of a disk whose promise is missed.
const NAMED: usize = 3;

/// Whether a disk does not get what it was promised.
fn is_short(disk: &TopDisk) -> bool {
    let is_late = disk.latency.is_some_and(|now| now.verdict != Verdict::Met);
    disk.reservation_missed || is_late
}

type Read = fn(&Waits) -> u128;

const CAUSES: [(&str, Read); 6] = [
    ("device", |w| w.device),
    ("limit", |w| w.limit),
    ("own", |w| w.own),
    ("neighbours", |w| w.neighbours),
    ("window", |w| w.window),
    ("held", |w| w.held),
];

impl Scrape {
    pub(super) fn encode_waits(&self, out: &mut Writer<'_>) -> fmt::Result {
        let mut all: Vec<(Labels, f64)> = Vec::new();
        for (labels, disk) in self.sampled() {
            for (cause, read) in CAUSES {
                let mut labels = labels.clone();
                labels.push(("cause", cause.to_owned()));
                all.push((labels, read(&disk.waits) as f64 / 1e9));
            }
        }
        let help = "Time of the disk's requests by what they waited for, in request-seconds";
        out.counters("disk_waiting_seconds", help, &all)?;
        self.encode_behind(out)
    }

    /// Behind whom those wait that do not get what they were promised: at most [`NAMED`] series
    /// for each.
    fn encode_behind(&self, out: &mut Writer<'_>) -> fmt::Result {
        let mut all: Vec<(Labels, f64)> = Vec::new();
        for store in &self.top.datastores {
            for disk in store.disks.iter().filter(|disk| is_short(disk)) {
                let blame = disk.blame.as_ref();
                let named = blame.into_iter().flat_map(|blame| &blame.neighbours);
                let clients = named.filter(|one| !one.copy).take(NAMED);
                all.extend(clients.map(|one| {
                    let labels = vec![
                        ("datastore", store.name.to_string()),
                        ("disk", disk.name.to_string()),
                        ("neighbour", one.disk.to_string()),
                    ];
                    (labels, one.part)
                }));
            }
        }
        let help = "Part of the waiting time of the last 5 s that a neighbour took, of disks whose reservation or latency target is missed; the neighbours that took the most";
        out.gauges("disk_missed_behind_ratio", help, &all)
    }
}
