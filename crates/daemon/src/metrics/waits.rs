//! Metrics of what requests wait for: by cause, never by pair of disks, of which there are n².

use super::{Labels, Scrape, Writer};
use headgate_model::Waits;
use std::fmt;

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
        out.counters("disk_waiting_seconds", help, &all)
    }
}
