//! Copies of disks as of one instant.

use super::moves::by_outcome;
use super::{Labels, Scrape, Writer};
use headgate_api::copies::Copy;
use std::fmt;

impl Scrape {
    pub(super) fn encode_copies(&self, out: &mut Writer<'_>) -> fmt::Result {
        let under_way = || self.copies.iter().filter(|one| !one.state.is_over());
        let of = |one: &Copy, value: f64| -> (Labels, f64) {
            let labels = vec![("copy", one.disk.to_string()), ("disk", one.source.to_string())];
            (labels, value)
        };
        let copied: Vec<_> = under_way().map(|one| of(one, one.copied.0 as f64)).collect();
        let help = "Of a copy under way: what need not be copied any more";
        out.gauges("copy_copied_bytes", help, &copied)?;
        let sizes: Vec<_> = under_way().map(|one| of(one, one.size.0 as f64)).collect();
        out.gauges("copy_size_bytes", "Size of a copy under way", &sizes)?;
        let waiting: Vec<_> = under_way().map(|one| of(one, one.waiting as f64)).collect();
        let help = "Changes of a disk's clients that wait for a copy of it";
        out.gauges("copy_waiting_changes", help, &waiting)?;
        let ended = self.copies_ended.iter().map(|(state, count)| (state.as_str(), *count));
        let ended = by_outcome(ended);
        out.counters("copies_ended", "Copies of disks that are over, by how they ended", &ended)
    }
}
