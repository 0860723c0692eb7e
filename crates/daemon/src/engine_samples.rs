//! What one disk does, without asking for all of them.

use crate::engine_parts::failed;
use crate::engine_plane::EnginePlane;
use crate::translate;
use headgate_model::{DataPlane, DiskSample, Name, PlaneError};

impl EnginePlane {
    pub(crate) fn sample_one(&self, disk: &Name) -> Result<Option<DiskSample>, PlaneError> {
        let Ok(id) = self.disk(disk) else { return Ok(None) };
        let Some(found) = self.engine.snapshot_disk(id).map_err(failed)? else {
            // It moves: what counts is found among all.
            let disks = self.sample()?.into_iter().flat_map(|store| store.disks);
            return Ok(disks.into_iter().find(|one| one.name == *disk));
        };
        let mut sample = translate::disk_sample(found, disk.clone());
        if let Some(connection) = &mut sample.remote {
            self.announced.complete(&sample.name, connection);
        }
        Ok(Some(sample))
    }
}
