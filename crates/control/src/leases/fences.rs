//! Block devices that are reserved for this host, by persistent reservations
//! (`docs/decisions/0077-persistent-reservations.md`).

use super::bell::Bell;
use super::lock::locked;
use headgate_cluster::Identity;
use headgate_cluster::fence::{
    Cover, Device, DeviceError, FenceKey, Refusal, Reservation, Right, Standing, Unsupported,
    key_text,
};
use headgate_model::{Fence, Name, PersistentReservations, PlaneError};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tracing::{info, warn};

/// What is known of the reservation of a disk's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FenceState {
    /// It is reserved with this key.
    Held(FenceKey),
    /// It was, and another has it, or nobody.
    Lost(String),
    /// It is not to be had.
    Refused(Refusal),
    /// It cannot be reserved, and the disk is served without.
    Without(Unsupported),
}

/// What is known of the device of a datastore without a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Probed {
    /// It can be reserved.
    Able,
    /// It cannot.
    Unable(Unsupported),
    /// It did not say.
    Unknown(String),
}

impl Probed {
    /// Why a device cannot be reserved, as far as is known.
    pub(crate) fn without(&self) -> Option<String> {
        match self {
            Probed::Able => None,
            Probed::Unable(why) => Some(why.to_string()),
            Probed::Unknown(why) => Some(why.clone()),
        }
    }
}

/// A device that was reserved for this host, and was not given back yet.
#[derive(Clone, Debug)]
struct Hold {
    key: FenceKey,
    device: Arc<Device>,
    path: PathBuf,
    /// Set by the shard when the device refused a request, and here when it is known to be lost.
    refused: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Known {
    state: FenceState,
    hold: Option<Hold>,
}

/// A device to be looked at.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) disk: Name,
    pub(crate) path: PathBuf,
    hold: Hold,
}

/// Which copy of a disk a device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DeviceOf {
    /// The one that counts.
    Disk,
    /// The other one, of a disk that moves.
    Copy,
}

impl DeviceOf {
    fn other(self) -> DeviceOf {
        match self {
            DeviceOf::Disk => DeviceOf::Copy,
            DeviceOf::Copy => DeviceOf::Disk,
        }
    }
}

/// The reservations of one daemon. No lock is held while a device works.
#[derive(Debug)]
pub(crate) struct Fences {
    own: Identity,
    /// By disk and copy.
    known: Mutex<BTreeMap<(Name, DeviceOf), Known>>,
    /// By datastore.
    probed: Mutex<BTreeMap<Name, Probed>>,
    /// Rung when there is another device to look after.
    bell: Bell,
}

/// How a disk's device is to be reserved.
#[derive(Debug)]
pub(crate) struct DiskFence {
    pub(crate) fences: Arc<Fences>,
    pub(crate) disk: Name,
    pub(crate) part: DeviceOf,
    pub(crate) device: PathBuf,
    pub(crate) mode: PersistentReservations,
    pub(crate) cover: Cover,
    pub(crate) right: Right,
}

/// Why a device is not reserved for this host any more, in words.
fn loss(to: Option<Reservation>) -> String {
    let Some(Reservation { key, kind }) = to else {
        return "nobody has its device reserved any more, and this host did not give it back"
            .into();
    };
    match FenceKey::read(key) {
        Some(key) => format!(
            "another host of Headgate's has its device reserved, with the key {key} (its host id \
             begins with {})",
            key.host()
        ),
        None => format!("its device is reserved with the key {}: {}", key_text(key), kind.as_str()),
    }
}

impl Fences {
    pub(crate) fn new(own: Identity, bell: Bell) -> Fences {
        Fences { own, known: Mutex::default(), probed: Mutex::default(), bell }
    }

    /// Whether a device is reserved, or was and is not given back yet.
    pub(super) fn has_holds(&self) -> bool {
        locked(&self.known).values().any(|known| known.hold.is_some())
    }

    /// Asks a device whether it can be reserved. Blocks.
    pub(crate) fn probe(&self, datastore: &Name, device: &Path) -> Probed {
        let found = match Device::open(device) {
            Ok(device) => match device.read() {
                Ok(_) => Probed::Able,
                Err(DeviceError::Unsupported(why)) => Probed::Unable(why),
                Err(e) => Probed::Unknown(e.to_string()),
            },
            Err(e) => Probed::Unknown(format!("cannot open {}: {e}", device.display())),
        };
        locked(&self.probed).insert(datastore.clone(), found.clone());
        found
    }

    pub(crate) fn probed(&self, datastore: &Name) -> Option<Probed> {
        locked(&self.probed).get(datastore).cloned()
    }

    pub(crate) fn state(&self, disk: &Name) -> Option<FenceState> {
        self.state_of(disk, DeviceOf::Disk)
    }

    pub(crate) fn state_of_copy(&self, disk: &Name) -> Option<FenceState> {
        self.state_of(disk, DeviceOf::Copy)
    }

    fn state_of(&self, disk: &Name, part: DeviceOf) -> Option<FenceState> {
        locked(&self.known).get(&(disk.clone(), part)).map(|known| known.state.clone())
    }

    /// The device of a disk, or of its copy, is asked anew.
    pub(crate) fn begin(&self, disk: &Name, part: DeviceOf) {
        let (mut known, key) = (locked(&self.known), (disk.clone(), part));
        if let Some(FenceState::Refused(_)) = known.get(&key).map(|known| &known.state) {
            known.remove(&key);
        }
    }

    /// The copy counts from now on, and what was the disk is the copy.
    pub(super) fn swap(&self, disk: &Name) {
        let mut known = locked(&self.known);
        let parts = [DeviceOf::Disk, DeviceOf::Copy].map(|part| (disk.clone(), part));
        let found = parts.map(|key| known.remove(&key).map(|found| (key, found)));
        for ((disk, part), found) in found.into_iter().flatten() {
            known.insert((disk, part.other()), found);
        }
    }

    /// Why a disk's device is not to be had, if that was so when it was asked last.
    pub(crate) fn refusal(&self, disk: &Name) -> Option<Refusal> {
        match self.state(disk)? {
            FenceState::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Disks that have a device reserved, be it their copy's.
    pub(super) fn disks(&self) -> Vec<Name> {
        let known = locked(&self.known);
        known
            .iter()
            .filter(|(_, known)| known.hold.is_some())
            .map(|((disk, _), _)| disk.clone())
            .collect()
    }

    /// Devices that are reserved as far as is known.
    pub(crate) fn looks(&self) -> Vec<Look> {
        let held = |((disk, _), known): (&(Name, DeviceOf), &Known)| {
            let hold = known.hold.clone().filter(|_| matches!(known.state, FenceState::Held(_)))?;
            Some(Look { disk: disk.clone(), path: hold.path.clone(), hold })
        };
        locked(&self.known).iter().filter_map(held).collect()
    }

    /// Asks a device whose it is. Blocks. A device that is another's has nothing handed over to it
    /// from now on.
    pub(crate) fn look(&self, look: &Look) {
        let Look { disk, hold, .. } = look;
        match hold.device.standing(hold.key) {
            Ok(Standing::Held) => {}
            Ok(Standing::Lost { to }) => {
                self.lost(disk, &hold.device, loss(to));
                hold.refused.store(true, Ordering::Release);
            }
            Err(e) => warn!(%disk, error = %e, "its device does not say whose it is"),
        }
    }

    fn lost(&self, disk: &Name, device: &Arc<Device>, reason: String) {
        let mut known = locked(&self.known);
        // It may have been reserved anew since it was looked at, and may be the other copy's now.
        let its = |(of, known): &(&(Name, DeviceOf), &mut Known)| {
            of.0 == *disk
                && known.hold.as_ref().is_some_and(|hold| Arc::ptr_eq(&hold.device, device))
        };
        if let Some((_, known)) = known.iter_mut().find(its) {
            known.state = FenceState::Lost(reason);
        }
    }

    /// Disks that must not be served, for their devices are another's, with the reason.
    pub(crate) fn evicted(&self) -> Vec<(Name, String)> {
        self.evicted_of(DeviceOf::Disk)
    }

    /// Disks whose copies must not be used, for their devices are another's, with the reason; each
    /// is told once. There is nothing to give back of these.
    pub(crate) fn evicted_copies(&self) -> Vec<(Name, String)> {
        let evicted = self.evicted_of(DeviceOf::Copy);
        let mut known = locked(&self.known);
        for (disk, _) in &evicted {
            known.remove(&(disk.clone(), DeviceOf::Copy));
        }
        evicted
    }

    fn evicted_of(&self, of: DeviceOf) -> Vec<(Name, String)> {
        let mut known = locked(&self.known);
        let mut evicted = Vec::new();
        for ((disk, _), known) in known.iter_mut().filter(|((_, part), _)| *part == of) {
            let Some(hold) = &known.hold else { continue };
            if !hold.refused.load(Ordering::Acquire) {
                continue;
            }
            if let FenceState::Held(_) = known.state {
                let reason = "its device refused a request: it is reserved for another host";
                known.state = FenceState::Lost(reason.into());
            }
            if let FenceState::Lost(reason) = &known.state {
                evicted.push((disk.clone(), reason.clone()));
            }
        }
        evicted
    }

    /// Gives a device back: nothing of its disk is in flight any more. Blocks.
    pub(super) fn release(&self, disk: &Name) {
        self.release_part(disk, DeviceOf::Disk);
    }

    /// Gives the device of a copy back, which nobody has open. Blocks.
    pub(crate) fn release_copy(&self, disk: &Name) {
        self.release_part(disk, DeviceOf::Copy);
    }

    fn release_part(&self, disk: &Name, part: DeviceOf) {
        let hold = {
            let (mut known, key) = (locked(&self.known), (disk.clone(), part));
            match known.get(&key).map(|known| &known.state) {
                // There is nothing to give back, and an operator may want to know.
                Some(FenceState::Refused(_)) if part == DeviceOf::Disk => None,
                _ => known.remove(&key).and_then(|known| known.hold),
            }
        };
        let Some(Hold { key, device, .. }) = hold else { return };
        match device.release(key) {
            Ok(()) => info!(%disk, %key, "its device is reserved no more"),
            Err(e) => warn!(%disk, %key, error = %e, "its device may be reserved still"),
        }
    }

    /// Forgets what was known of a datastore's device.
    pub(crate) fn forget(&self, datastore: &Name) {
        locked(&self.probed).remove(datastore);
    }

    fn note(&self, disk: &Name, part: DeviceOf, state: FenceState, hold: Option<Hold>) {
        locked(&self.known).insert((disk.clone(), part), Known { state, hold });
        self.bell.ring();
    }
}

impl Fence for DiskFence {
    fn raise(&self, device: BorrowedFd<'_>) -> Result<Option<Arc<AtomicBool>>, PlaneError> {
        let DiskFence { fences, disk, part, device: path, mode, cover, right } = self;
        let failed = |e: &dyn std::fmt::Display| PlaneError {
            error: format!("cannot reserve {}: {e}", path.display()),
            hint: Some(
                "repair the device, or serve its disk without: 'headgate datastore set NAME \
                 --persistent-reservations off'"
                    .into(),
            ),
        };
        let device = Arc::new(Device::again(device).map_err(|e| failed(&e))?);
        let key = FenceKey::of(&fences.own, *cover);
        match device.claim(key, *right) {
            Ok(()) => {
                info!(%disk, %key, "its device is reserved: it refuses the writes of other hosts");
                let refused = Arc::new(AtomicBool::new(false));
                let hold = Hold { key, device, path: path.clone(), refused: refused.clone() };
                fences.note(disk, *part, FenceState::Held(key), Some(hold));
                Ok(Some(refused))
            }
            Err(DeviceError::Unsupported(why)) if *mode == PersistentReservations::Auto => {
                if fences.state_of(disk, *part) != Some(FenceState::Without(why.clone())) {
                    warn!(%disk, reason = %why, "its device is not reserved: hosts that lose it may still write");
                }
                fences.note(disk, *part, FenceState::Without(why), None);
                Ok(None)
            }
            Err(DeviceError::Refused(refusal)) => {
                let error = failed(&refusal);
                fences.note(disk, *part, FenceState::Refused(refusal), None);
                Err(error)
            }
            Err(e) => Err(failed(&e)),
        }
    }
}

#[cfg(test)]
impl Fences {
    /// As if a disk's device were reserved: a file in this directory.
    pub(crate) fn hold_for_test(
        &self,
        disk: &Name,
        key: FenceKey,
        directory: &Path,
    ) -> Arc<AtomicBool> {
        let path = directory.join("device");
        std::fs::write(&path, "").unwrap();
        let device = Arc::new(Device::open(&path).unwrap());
        let refused = Arc::new(AtomicBool::new(false));
        let hold = Hold { key, device, path, refused: refused.clone() };
        self.note(disk, DeviceOf::Disk, FenceState::Held(key), Some(hold));
        refused
    }
}
