//! What the engine's disks do, in the words of the model.

use crate::engine_parts::failed;
use crate::engine_plane::EnginePlane;
use crate::translate;
use headgate_engine::snapshot::{DatastoreSnapshot, DiskSnapshot};
use headgate_model::{DataPlane, DatastoreSample, DiskSample, DiskTold, Name, PlaneError};
use std::sync::{Arc, PoisonError};

impl EnginePlane {
    pub(crate) fn sample_all(&self) -> Result<Vec<DatastoreSample>, PlaneError> {
        let stores = self.engine.snapshot().map_err(failed)?;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut told.0);
        let mut samples = Vec::new();
        for (id, store) in stores {
            let mut known = before.remove(&id).unwrap_or_default();
            known.update(store.disks.iter().map(|one| &one.told), |disk| self.tell(disk));
            let sampled = store.disks.iter().zip(known.all());
            let sampled = sampled
                .filter_map(|(reading, told)| Some(DiskSample::told(reading.at, told?.clone())));
            let disks = sampled.collect();
            told.0.insert(id, known);
            samples.push(datastore(store, disks)?);
        }
        Ok(samples)
    }

    fn tell(&self, disk: &DiskSnapshot) -> Option<DiskTold> {
        let mut told = translate::disk_told(disk, disk.name.parse().ok()?);
        if let Some(connection) = &mut told.remote {
            self.announced.complete(&told.name, connection);
        }
        Some(told)
    }

    /// What one disk does, without asking for all of them.
    pub(crate) fn sample_one(&self, disk: &Name) -> Result<Option<DiskSample>, PlaneError> {
        let Ok(id) = self.disk(disk) else { return Ok(None) };
        let Some(found) = self.engine.snapshot_disk(id).map_err(failed)? else {
            // It moves: what counts is found among all.
            let disks = self.sample()?.into_iter().flat_map(|store| store.disks);
            return Ok(disks.into_iter().find(|one| one.name == *disk));
        };
        let at = found.stats.at;
        Ok(self.tell(&found).map(|told| DiskSample::told(at, Arc::new(told))))
    }
}

fn datastore(
    store: DatastoreSnapshot,
    disks: Vec<DiskSample>,
) -> Result<DatastoreSample, PlaneError> {
    Ok(DatastoreSample {
        name: store.name.parse().map_err(failed)?,
        window: store.window,
        narrowed: store.narrowed.and_then(translate::narrowed),
        in_flight: store.in_flight,
        queued: store.queued as u64,
        stats: store.stats,
        disks,
        flash: store.flash,
        costs: store.costs,
    })
}
