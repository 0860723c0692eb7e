//! What is known of the file systems under datastores.

use crate::images;
use headgate_model::Name;
use headgate_units::Bytes;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::{info, warn};

/// How full a file system is when that is told, in per cent.
pub const WARN_PERCENT: [u8; 3] = [80, 90, 95];

/// A file system and what disks of one datastore have of it, at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Volume {
    /// The number of its device.
    pub device: u64,
    pub size: Bytes,
    pub free: Bytes,
    pub allocated: Bytes,
}

impl Volume {
    /// What is not free, in per cent, rounded up.
    pub(crate) fn used_percent(&self) -> u8 {
        let used = u128::from(self.size.0.saturating_sub(self.free.0));
        let percent = (used * 100).div_ceil(u128::from(self.size.0.max(1)));
        u8::try_from(percent).unwrap_or(100)
    }
}

/// Whether a file system is looked at now, or its worker is to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Looking {
    #[default]
    No,
    Yes,
}

/// What is known of the file system under a datastore.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub last: Option<(Instant, Volume)>,
    pub looking: Looking,
    /// Why the last look failed.
    pub reason: Option<String>,
    /// The bound that was last told, of [`WARN_PERCENT`]; 0: none.
    pub told: u8,
}

/// What is known of the file systems under all datastores.
#[derive(Clone, Debug, Default)]
pub(crate) struct Volumes(Arc<Mutex<BTreeMap<Name, Watched>>>);

impl Volumes {
    pub(crate) fn known(&self) -> MutexGuard<'_, BTreeMap<Name, Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody looks at it yet: the caller does now.
    pub(crate) fn begin(&self, datastore: &Name) -> bool {
        let mut known = self.known();
        let watched = known.entry(datastore.clone()).or_default();
        std::mem::replace(&mut watched.looking, Looking::Yes) == Looking::No
    }

    pub(crate) fn end(&self, datastore: &Name, found: Result<Volume, String>) {
        let (volume, before, now) = {
            let mut known = self.known();
            // It may have been removed meanwhile.
            let Some(watched) = known.get_mut(datastore) else { return };
            watched.looking = Looking::No;
            match found {
                Ok(volume) => {
                    (watched.last, watched.reason) = (Some((Instant::now(), volume)), None);
                    let told = level(volume.used_percent(), watched.told);
                    (volume, std::mem::replace(&mut watched.told, told), told)
                }
                Err(reason) => return watched.reason = Some(reason),
            }
        };
        // A log that is read slowly keeps nobody from the figures.
        tell(datastore, &volume, before, now);
    }

    pub(crate) fn volume(&self, datastore: &Name) -> Option<Volume> {
        self.known().get(datastore)?.last.map(|(_, volume)| volume)
    }

    pub(crate) fn forget(&self, datastore: &Name) {
        self.known().remove(datastore);
    }
}

/// Which of the bounds is reached. One that was told holds until the file system is a hundredth
/// below it: otherwise a line would come and go.
fn level(percent: u8, told: u8) -> u8 {
    let reached = |bound: &&u8| percent >= **bound || **bound <= told && percent + 1 >= **bound;
    WARN_PERCENT.iter().filter(reached).max().copied().unwrap_or(0)
}

fn tell(datastore: &Name, volume: &Volume, before: u8, now: u8) {
    let (size, free, percent) = (volume.size, volume.free, volume.used_percent());
    if now > before {
        warn!(%datastore, %size, %free, percent, "the file system under the datastore is over {now} % full");
    } else if now < before {
        info!(%datastore, %size, %free, percent, "there is more space on the datastore again");
    }
}

/// Looks at a file system and at the images of a datastore on it. May block.
pub(crate) fn look(directory: &Path, disks: &[Name]) -> Result<Volume, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", directory.display());
    let device = std::fs::metadata(directory).map_err(failed)?.dev();
    let space = images::space(directory).map_err(|e| e.to_string())?;
    let of = |disk: &Name| {
        let image = images::image_path(directory, disk);
        std::fs::symlink_metadata(image).map_or(0, |meta| meta.blocks().saturating_mul(512))
    };
    let allocated = Bytes(disks.iter().map(of).fold(0, u64::saturating_add));
    Ok(Volume { device, size: space.capacity, free: space.free, allocated })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_told_when_it_is_reached_and_until_it_is_left() {
        let mut told = 0;
        let seen: Vec<u8> = [79, 80, 79, 80, 78, 91, 89, 88, 96, 100, 94, 93, 20]
            .map(|percent| {
                told = level(percent, told);
                told
            })
            .to_vec();
        assert_eq!(seen, [0, 80, 80, 80, 0, 90, 90, 80, 95, 95, 95, 90, 0]);
    }

    #[test]
    fn a_full_file_system_is_told_of_once() {
        let volumes = Volumes::default();
        let name: Name = "files".parse().unwrap();
        let volume = Volume { device: 1, size: Bytes(1_000), free: Bytes(45), allocated: Bytes(0) };
        assert!(volumes.begin(&name) && !volumes.begin(&name), "one look at a time");
        volumes.end(&name, Ok(volume));
        assert_eq!((volume.used_percent(), volumes.known()[&name].told), (96, 95));
        assert!(volumes.begin(&name));
        volumes.end(&name, Err("gone".into()));
        assert_eq!(volumes.volume(&name), Some(volume), "the last figures stay");
        volumes.forget(&name);
        volumes.end(&name, Ok(volume));
        assert!(volumes.volume(&name).is_none(), "it was removed while it was looked at");
    }
}
