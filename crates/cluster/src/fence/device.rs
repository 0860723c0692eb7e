use super::claim::{Answer, Claim, Next, Refusal, Right, Standing, Step, standing};
use super::key::FenceKey;
use super::nvme::Namespace;
use super::parse::{Kind, Registrants, Reservation, scsi_keys, scsi_reservation};
use super::sys;
use std::ffi::c_int;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use thiserror::Error;

/// Most keys of a device that are read. A host has one for each of its paths.
pub(super) const KEYS_MAX: usize = 1024;

/// RESERVATION CONFLICT: the status of SCSI, which is Linux's own since 6.3.
const CONFLICT: c_int = 0x18;
/// The same as NVMe has it, without the bits that say whether to try again. Drivers before Linux
/// 6.3 pass it on.
const NVME_CONFLICT: c_int = 0x83;
const NVME_STATUS: c_int = 0x7ff;

/// CHECK CONDITION, which the kernel says nothing more of.
const CHECK_CONDITION: c_int = 0x02;
/// How often a command is given again that ended so. What happened to a device since, such as that
/// a registration was preempted, is told once on each of its paths, in the place of an answer.
const CHECKS: u32 = 16;

/// Why a device cannot be reserved by anybody here. What it holds, and who uses it, does not
/// matter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unsupported {
    /// A reservation is of a device as a whole: on a partition or a logical volume it would keep
    /// others from the neighbours too.
    #[error("it is a part of a device, and only whole devices can be reserved")]
    Part,
    /// It has none, or its driver passes them on to nobody.
    #[error("the device or its driver has no persistent reservations")]
    None,
    /// If it has them, who has it reserved is not to be learnt, and nobody can be evicted.
    #[error(
        "it has no persistent reservations, or this kernel does not tell who holds them (it does for \
         SCSI and NVMe devices, and from Linux 6.19 on for others)"
    )]
    Unreadable,
    /// The kernel does not let this user.
    #[error(
        "the daemon may not: Linux before 6.6 wants CAP_SYS_ADMIN for it (of NVMe devices before 6.2), \
         and CAP_SYS_RAWIO before 6.19"
    )]
    Denied,
}

/// A command that did not do what it is for.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// None will.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The kernel failed it.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The device or its driver failed it.
    #[error("cannot {doing}: status {status:#x}")]
    Status {
        /// What was being done.
        doing: &'static str,
        /// As the driver gave it.
        status: c_int,
    },
    /// The device's answer makes no sense.
    #[error("cannot {doing}: the answer makes no sense")]
    Nonsense {
        /// What was being done.
        doing: &'static str,
    },
    /// It is not to be had.
    #[error(transparent)]
    Refused(Refusal),
}

/// Whether a command was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Conflict,
}

fn outcome(doing: &'static str, result: io::Result<c_int>) -> Result<Outcome, DeviceError> {
    match result {
        Ok(0) => Ok(Outcome::Done),
        // Some drivers add what the transport says above the device's status.
        Ok(status) if status & 0xff == CONFLICT || status & NVME_STATUS == NVME_CONFLICT => {
            Ok(Outcome::Conflict)
        }
        Ok(status) => Err(DeviceError::Status { doing, status }),
        Err(source) => match source.raw_os_error() {
            Some(libc::EBADE) => Ok(Outcome::Conflict),
            Some(libc::EOPNOTSUPP | libc::ENOTTY) => Err(Unsupported::None.into()),
            Some(libc::EPERM | libc::EACCES) => Err(Unsupported::Denied.into()),
            _ => Err(DeviceError::Io { doing, source }),
        },
    }
}

/// Gives a command again where its answer may be what had happened before.
fn again_where_told(
    mut give: impl FnMut() -> (&'static str, io::Result<c_int>),
) -> Result<Outcome, DeviceError> {
    for _ in 1..CHECKS {
        match give() {
            (_, Ok(CHECK_CONDITION)) => {}
            (doing, result) => return outcome(doing, result),
        }
    }
    let (doing, result) = give();
    outcome(doing, result)
}

/// An open block device, and the commands of persistent reservations. All of them block for as
/// long as the device does.
#[derive(Debug)]
pub struct Device {
    file: File,
}

impl Device {
    /// A device at a path, to be looked at.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Device> {
        Ok(Device { file: File::options().read(true).write(true).open(path)? })
    }

    /// The device that is open as `file`, by an open file of its own: locks of `file` do not last
    /// for as long as this does.
    ///
    /// # Errors
    /// When it cannot be opened again.
    pub fn again(file: impl AsFd) -> io::Result<Device> {
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        Device::open(Path::new(&path))
    }

    /// Who is registered, and who has it reserved. Changes nothing: so this is also how to learn
    /// whether a device has persistent reservations.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] when it has none, or they are of no use.
    pub fn read(&self) -> Result<Registrants, DeviceError> {
        self.check_whole()?;
        if let Some(namespace) = self.namespace()? {
            return namespace.read();
        }
        match self.read_by_kernel() {
            Err(DeviceError::Unsupported(Unsupported::None)) => self.read_by_scsi(),
            read => read,
        }
    }

    /// Which commands a device takes.
    fn namespace(&self) -> Result<Option<Namespace<'_>>, DeviceError> {
        let failed = |source| DeviceError::Io { doing: "look at the device", source };
        Namespace::of(&self.file).map_err(failed)
    }

    /// Older kernels reserve the whole device for one of its partitions without a word, and all do
    /// for a logical volume.
    fn check_whole(&self) -> Result<(), DeviceError> {
        let doing = "look at the device";
        let failed = |source| DeviceError::Io { doing, source };
        let number = self.file.metadata().map_err(failed)?.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let device = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
        let mapped = match fs::read_to_string(device.join("dm/uuid")) {
            Ok(uuid) => Some(uuid),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(failed(e)),
        };
        let is_partition = fs::exists(device.join("partition")).map_err(failed)?;
        if is_partition || mapped.is_some_and(|uuid| !is_multipath(&uuid)) {
            return Err(Unsupported::Part.into());
        }
        Ok(())
    }

    fn read_by_kernel(&self) -> Result<Registrants, DeviceError> {
        let (keys_of, held_by) = ("read the registered keys", "read the reservation");
        let mut keys = vec![0; KEYS_MAX];
        let (result, count) = match sys::read_keys(&self.file, &mut keys) {
            Ok(read) => read,
            Err(e) => return Err(refusal_of(keys_of, e)),
        };
        let read = outcome(keys_of, Ok(result))?;
        if read == Outcome::Conflict || count > KEYS_MAX {
            return Err(DeviceError::Nonsense { doing: keys_of });
        }
        keys.truncate(count);
        let (result, key, kind) = match sys::read_reservation(&self.file) {
            Ok(read) => read,
            Err(e) => return Err(refusal_of(held_by, e)),
        };
        if outcome(held_by, Ok(result))? == Outcome::Conflict {
            return Err(DeviceError::Nonsense { doing: held_by });
        }
        let reservation = (kind != 0).then_some(Reservation { key, kind: Kind(kind) });
        Ok(Registrants { keys, reservation })
    }

    fn read_by_scsi(&self) -> Result<Registrants, DeviceError> {
        const READ_KEYS: u8 = 0;
        const READ_RESERVATION: u8 = 1;
        let mut answer = vec![0; 8 + 8 * KEYS_MAX];
        let doing = "read the registered keys";
        self.scsi(doing, READ_KEYS, &mut answer)?;
        let keys = scsi_keys(&answer).ok_or(DeviceError::Nonsense { doing })?;
        let doing = "read the reservation";
        answer.fill(0);
        self.scsi(doing, READ_RESERVATION, &mut answer[..24])?;
        let reservation = scsi_reservation(&answer).ok_or(DeviceError::Nonsense { doing })?;
        Ok(Registrants { keys, reservation })
    }

    fn scsi(&self, doing: &'static str, action: u8, into: &mut [u8]) -> Result<(), DeviceError> {
        const CHECK_CONDITION: u8 = super::device::CHECK_CONDITION as u8;
        const ILLEGAL_REQUEST: u8 = 5;
        const UNIT_ATTENTION: u8 = 6;
        // What happened to the device since is told once, to whatever is asked first.
        for _ in 0..4 {
            let said =
                sys::persistent_reserve_in(&self.file, action, into).map_err(
                    |source| match source.raw_os_error() {
                        Some(libc::ENOTTY | libc::EINVAL | libc::EOPNOTSUPP) => {
                            Unsupported::Unreadable.into()
                        }
                        Some(libc::EPERM | libc::EACCES) => Unsupported::Denied.into(),
                        _ => DeviceError::Io { doing, source },
                    },
                )?;
            match (said.status, said.sense_key) {
                (0, _) if said.host_status == 0 => return Ok(()),
                (CHECK_CONDITION, ILLEGAL_REQUEST) => return Err(Unsupported::None.into()),
                (CHECK_CONDITION, UNIT_ATTENTION) => {}
                (status, _) => {
                    let status = c_int::from(said.host_status) << 16 | c_int::from(status);
                    return Err(DeviceError::Status { doing, status });
                }
            }
        }
        Err(DeviceError::Status { doing, status: c_int::from(CHECK_CONDITION) })
    }

    /// Becomes the only host that may write, or says who is; see [`Claim`]. Nothing of an earlier
    /// claim of this host may be in the kernel any more.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] when it is not to be had. No key of this claim is left there then,
    /// unless the device does not answer.
    pub fn claim(&self, own: FenceKey, right: Right) -> Result<(), DeviceError> {
        let (mut claim, mut step) = Claim::begin(own, right);
        let mut failure = None;
        loop {
            let answer = self.take(own, step).unwrap_or_else(|e| {
                failure.get_or_insert(e);
                Answer::Failed
            });
            step = match claim.on(&answer) {
                Next::Do(step) => step,
                Next::Reserved => return Ok(()),
                Next::Refused(refusal) => {
                    let failed = failure.filter(|_| refusal == Refusal::Failed);
                    return Err(failed.unwrap_or(DeviceError::Refused(refusal)));
                }
            };
        }
    }

    fn take(&self, own: FenceKey, step: Step) -> Result<Answer, DeviceError> {
        if step == Step::Read {
            return self.read().map(Answer::Seen);
        }
        let outcome = match self.namespace()? {
            Some(namespace) => namespace.change(own, step),
            None => self.change(own, step),
        };
        outcome.map(|outcome| match outcome {
            Outcome::Done => Answer::Done,
            Outcome::Conflict => Answer::Conflict,
        })
    }

    fn change(&self, own: FenceKey, step: Step) -> Result<Outcome, DeviceError> {
        let (own, kind) = (own.number(), Kind::WRITE_EXCLUSIVE_REGISTRANTS.0);
        let file = &self.file;
        let give = || match step {
            Step::Read => ("read", Ok(0)),
            Step::Register => ("register", sys::register(file, 0, own, sys::IGNORE_KEY)),
            Step::Reserve => ("reserve", sys::reserve(file, own, kind)),
            Step::Preempt(former) => {
                ("take the reservation", sys::preempt_abort(file, own, former, kind))
            }
            Step::Unregister => ("unregister", sys::register(file, own, 0, 0)),
        };
        again_where_told(give)
    }

    /// Whether it is still reserved with this key.
    ///
    /// # Errors
    /// When the device does not say.
    pub fn standing(&self, own: FenceKey) -> Result<Standing, DeviceError> {
        Ok(standing(own, &self.read()?))
    }

    /// Gives the device back: no request may be in flight any more. One that is another's by now
    /// stays so.
    ///
    /// # Errors
    /// When the device does not confirm.
    pub fn release(&self, own: FenceKey) -> Result<(), DeviceError> {
        let namespace = self.namespace()?;
        let released = match &namespace {
            Some(namespace) => namespace.release(own),
            None => {
                let kind = Kind::WRITE_EXCLUSIVE_REGISTRANTS.0;
                again_where_told(|| ("release", sys::release(&self.file, own.number(), kind)))
            }
        };
        // This releases too; the first is for devices on which it is not so.
        match &namespace {
            Some(namespace) => namespace.change(own, Step::Unregister),
            None => self.change(own, Step::Unregister),
        }?;
        released.map(drop)
    }
}

/// Of the device mapper's devices only those of multipath are devices as a whole.
fn is_multipath(uuid: &str) -> bool {
    uuid.starts_with("mpath-")
}

/// Of a question that newer kernels answer: older ones know it not.
fn refusal_of(doing: &'static str, source: io::Error) -> DeviceError {
    match source.raw_os_error() {
        Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::EINVAL) => Unsupported::None.into(),
        Some(libc::EPERM | libc::EACCES) => Unsupported::Denied.into(),
        _ => DeviceError::Io { doing, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_is_told_as_each_kernel_and_each_kind_of_device_tells_it() {
        let of = |result| outcome("test", Ok(result)).ok();
        assert_eq!(of(0), Some(Outcome::Done));
        // Linux 6.3 and later; SCSI before, with what its midlayer adds; NVMe before, final or not.
        for conflict in [0x18, 0x0118, 0x83, 0x4083] {
            assert_eq!(of(conflict), Some(Outcome::Conflict), "{conflict:#x}");
        }
        // CHECK CONDITION, a path that is gone, NVMe's "invalid field".
        for failure in [0x02, 0x1_0000, 0x4002] {
            assert_eq!(of(failure), None, "{failure:#x}");
        }
        let failed = |errno| outcome("test", Err(io::Error::from_raw_os_error(errno)));
        assert_eq!(failed(libc::EBADE).ok(), Some(Outcome::Conflict));
        assert!(matches!(failed(libc::ENOTTY), Err(DeviceError::Unsupported(Unsupported::None))));
        assert!(matches!(failed(libc::EPERM), Err(DeviceError::Unsupported(Unsupported::Denied))));
        assert!(matches!(failed(libc::EIO), Err(DeviceError::Io { .. })));
    }

    #[test]
    fn what_had_happened_before_on_each_path_is_no_answer() {
        let answers = |told: u32, last: c_int| {
            let mut given = 0;
            let outcome = again_where_told(|| {
                given += 1;
                ("test", Ok(if given <= told { CHECK_CONDITION } else { last }))
            });
            (outcome.ok(), given)
        };
        assert_eq!(answers(0, 0), (Some(Outcome::Done), 1));
        assert_eq!(answers(2, 0), (Some(Outcome::Done), 3));
        assert_eq!(answers(8, CONFLICT), (Some(Outcome::Conflict), 9));
        // A device that says nothing else has failed, and is not asked for ever.
        assert_eq!(answers(u32::MAX, 0), (None, CHECKS));
    }

    #[test]
    fn of_mapped_devices_multipath_alone_is_whole() {
        assert!(is_multipath("mpath-3600140500000000"));
        for part in ["LVM-abcdef", "CRYPT-LUKS2-00", "part1-mpath-3600140500000000", ""] {
            assert!(!is_multipath(part), "{part}");
        }
    }

    #[test]
    fn what_has_no_persistent_reservations_says_so_and_is_left_as_it_is() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let device = Device::open(file.path()).unwrap();
        let key = FenceKey::new(crate::HostId([1; 16]), 1, super::super::Cover::Nothing);
        for error in [device.read().unwrap_err(), device.claim(key, Right::Evict).unwrap_err()] {
            assert!(matches!(error, DeviceError::Unsupported(_)), "{error}");
        }
    }
}
