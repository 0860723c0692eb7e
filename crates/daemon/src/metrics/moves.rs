//! Live moves of disks.

use super::{Labels, Scrape, Writer};
use headgate_api::moves::{Move, MoveState};
use headgate_placement::State;
use std::fmt;

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
        let ended: Vec<_> = self
            .moves_ended
            .iter()
            .map(|(outcome, count)| {
                let labels: Labels = vec![("outcome", outcome.as_str().to_owned())];
                (labels, *count as f64)
            })
            .collect();
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
