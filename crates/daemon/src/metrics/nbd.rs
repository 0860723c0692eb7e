//! What NBD clients hold.

use super::{Labels, Scrape, Writer};
use std::fmt;

impl Scrape {
    pub(super) fn encode_nbd(&self, out: &mut Writer<'_>) -> fmt::Result {
        let Some(nbd) = self.nbd else { return Ok(()) };
        let one = |value: f64| -> [(Labels, f64); 1] { [(Vec::new(), value)] };
        let help = "NBD connections in transmission";
        out.gauges("nbd_connections", help, &one(nbd.connections as f64))?;
        let limits: [(Labels, f64); 3] = [
            ("all", nbd.connections_max),
            ("vm", nbd.connections_per_vm_max),
            ("disk", nbd.connections_per_disk_max),
        ]
        .map(|(of, most)| (vec![("of", of.to_owned())], most as f64));
        let help = "The most NBD connections in all, to the disks of one machine, and to one disk";
        out.gauges("nbd_connections_limit", help, &limits)?;
        let help = "NBD clients refused because all connections that they may have were taken";
        out.counters("nbd_refused", help, &one(nbd.refused as f64))?;
        let help = "Memory that NBD clients hold in buffers, besides 64 KiB each";
        out.gauges("nbd_memory_bytes", help, &one(nbd.memory.0 as f64))?;
        let help = "The most of it";
        out.gauges("nbd_memory_limit_bytes", help, &one(nbd.memory_max.0 as f64))?;
        let help = "How often an NBD client got less memory than it asked for";
        out.counters("nbd_memory_denied", help, &one(nbd.memory_denied as f64))
    }
}
