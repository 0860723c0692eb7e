//! Live moves of disks.

use super::{Labels, Scrape, Writer};
use headgate_api::moves::{Move, MoveState};
use headgate_placement::State;
use std::fmt;

/// Samples by how something ended.
pub(super) fn by_outcome(ended: impl Iterator<Item = (&'static str, u64)>) -> Vec<(Labels, f64)> {
    ended.map(|(outcome, count)| (vec![("outcome", outcome.to_owned())], count as f64)).collect()
}

impl Scrape {
    pub(super) fn encode_moves(&self, out: &mut Writer<'_>) -> fmt::Result {
        let under_way = || self.moves.iter().filter(|one| one.state != MoveState::Ended);
        let of = |one: &Move, bytes: u64| -> (Labels, f64) {
            (vec![("disk", one.disk.to_string())], bytes as f64)
        };
        let copied: Vec<_> = under_way().map(|one| of(one, one.copied.0)).collect();
        let help = "Of a disk that is being moved: what need not be copied any more";
        out.gauges("move_copied_bytes", help, &copied)?;
        let sizes: Vec<_> = under_way().map(|one| of(one, one.size.0)).collect();
        out.gauges("move_size_bytes", "Size of a disk that is being moved", &sizes)?;
        let ended = self.moves_ended.iter().map(|(outcome, count)| (outcome.as_str(), *count));
        let ended = by_outcome(ended);
        out.counters("moves_ended", "Moves of disks that are over, by how they ended", &ended)?;
        let left: Vec<_> = self
            .datastores
            .iter()
            .filter(|store| store.placement.state == State::Maintenance)
            .map(|store| (vec![("datastore", store.name.to_string())], store.disks as f64))
            .collect();
        let help = "Disks left on a datastore that is in maintenance";
        out.gauges("datastore_maintenance_disks", help, &left)
    }
}
