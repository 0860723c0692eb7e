//! The commands of reservations to an NVMe namespace (NVM Express Base 2.0, 7.5 to 7.8), handed
//! through to it. Linux's `IOC_PR_*` are no way there: until 6.19 they do not tell who is
//! registered, and they translate REGISTER AND IGNORE EXISTING KEY into a command that a host
//! which is registered already is refused, and REGISTER of no key into one that leaves the host
//! registered with the key 0.

use super::claim::Step;
use super::device::{DeviceError, KEYS_MAX, Outcome, Unsupported};
use super::key::FenceKey;
use super::parse::{Kind, NvmeFormat, Registrants, nvme_count, nvme_registrants};
use super::sys;
use std::ffi::c_int;
use std::fs::File;
use std::io;

/// A namespace of an NVMe subsystem.
#[derive(Debug)]
pub(super) struct Namespace<'a> {
    file: &'a File,
    id: u32,
}

/// The opcode of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opcode {
    Register = 0x0d,
    Report = 0x0e,
    Acquire = 0x11,
    Release = 0x15,
}

/// A command that changes something: what its first dword says, and its two keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    opcode: Opcode,
    dword: u32,
    current: u64,
    other: u64,
}

/// Status codes, without the bits that say whether to try again.
const STATUS: c_int = 0x7ff;
const INVALID_OPCODE: c_int = 0x01;
const INVALID_FIELD: c_int = 0x02;
const HOST_ID_INCONSISTENT: c_int = 0x18;
const CONFLICT: c_int = 0x83;

/// Of Reservation Register: what becomes of the host's registration.
const REGISTER: u32 = 0;
const UNREGISTER: u32 = 1;
const REPLACE: u32 = 2;
/// Whatever key the host is registered with.
const IGNORE_EXISTING_KEY: u32 = 1 << 3;
/// Registrations and the reservation outlast a loss of power, as Linux has it for its own.
const PERSIST: u32 = 3 << 30;
/// Of Reservation Acquire.
const PREEMPT_AND_ABORT: u32 = 2;

/// How much of a report is asked for first: 63 registrants in the longer format. Any device
/// transfers as much at once.
const FIRST: usize = 4096;

impl Namespace<'_> {
    /// `None`: the device is none of NVMe.
    pub(super) fn of(file: &File) -> io::Result<Option<Namespace<'_>>> {
        match sys::nvme_namespace(file) {
            Ok(id) => Ok(Some(Namespace { file, id })),
            Err(e) => match e.raw_os_error() {
                Some(libc::ENOTTY | libc::EINVAL | libc::EOPNOTSUPP) => Ok(None),
                _ => Err(e),
            },
        }
    }

    /// Reservation Report.
    pub(super) fn read(&self) -> Result<Registrants, DeviceError> {
        let doing = "read the registrants";
        let nonsense = || DeviceError::Nonsense { doing };
        let mut room = FIRST;
        loop {
            let mut answer = vec![0; room];
            let format = self.report(doing, &mut answer)?;
            let count = nvme_count(&answer).ok_or_else(nonsense)?;
            let needed = format.length(count);
            if needed <= room {
                return nvme_registrants(&answer, format).ok_or_else(nonsense);
            }
            if count > KEYS_MAX {
                return Err(nonsense());
            }
            room = needed;
        }
    }

    /// Which of two formats a device has depends on the length of the hosts' identifiers, which it
    /// knows and nobody else.
    fn report(&self, doing: &'static str, answer: &mut [u8]) -> Result<NvmeFormat, DeviceError> {
        for format in [NvmeFormat::Extended, NvmeFormat::Short] {
            answer.fill(0);
            let dwords = u32::try_from(answer.len() / 4 - 1).unwrap_or(u32::MAX);
            let extended = u32::from(format == NvmeFormat::Extended);
            let arguments = [dwords, extended];
            match self.status(
                doing,
                sys::nvme_command(self.file, self.id, Opcode::Report as u8, arguments, answer),
            )? {
                0 => return Ok(format),
                HOST_ID_INCONSISTENT => {}
                INVALID_OPCODE | INVALID_FIELD => return Err(Unsupported::None.into()),
                status => return Err(DeviceError::Status { doing, status }),
            }
        }
        Err(DeviceError::Status { doing, status: HOST_ID_INCONSISTENT })
    }

    /// A step of a claim that changes something.
    pub(super) fn change(&self, own: FenceKey, step: Step) -> Result<Outcome, DeviceError> {
        let doing = doing(step);
        let mut outcome = Outcome::Done;
        // A host that is registered with another key is refused the first and not the second, and
        // one that is not registered the other way round.
        for change in changes(own, step) {
            outcome = self.outcome(doing, change)?;
            if outcome == Outcome::Done {
                break;
            }
        }
        Ok(outcome)
    }

    /// Reservation Release.
    pub(super) fn release(&self, own: FenceKey) -> Result<Outcome, DeviceError> {
        let dword = Kind::WRITE_EXCLUSIVE_REGISTRANTS.0 << 8;
        let current = own.number();
        self.outcome("release", Change { opcode: Opcode::Release, dword, current, other: 0 })
    }

    fn outcome(&self, doing: &'static str, change: Change) -> Result<Outcome, DeviceError> {
        let Change { opcode, dword, current, other } = change;
        let mut keys = [0; 16];
        keys[..8].copy_from_slice(&current.to_le_bytes());
        keys[8..].copy_from_slice(&other.to_le_bytes());
        let length = if opcode == Opcode::Release { 8 } else { 16 };
        let data = &mut keys[..length];
        let result = sys::nvme_command(self.file, self.id, opcode as u8, [dword, 0], data);
        match self.status(doing, result)? {
            0 => Ok(Outcome::Done),
            CONFLICT => Ok(Outcome::Conflict),
            INVALID_OPCODE => Err(Unsupported::None.into()),
            status => Err(DeviceError::Status { doing, status }),
        }
    }

    fn status(&self, doing: &'static str, result: io::Result<c_int>) -> Result<c_int, DeviceError> {
        match result {
            Ok(status) => Ok(status & STATUS),
            Err(source) => Err(match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => Unsupported::Denied.into(),
                _ => DeviceError::Io { doing, source },
            }),
        }
    }
}

fn doing(step: Step) -> &'static str {
    match step {
        Step::Read => "read the registrants",
        Step::Register => "register",
        Step::Reserve => "reserve",
        Step::Preempt(_) => "take the reservation",
        Step::Unregister => "unregister",
    }
}

/// The commands of a step, of which the first that is not refused is enough.
fn changes(own: FenceKey, step: Step) -> Vec<Change> {
    let own = own.number();
    let kind = Kind::WRITE_EXCLUSIVE_REGISTRANTS.0 << 8;
    let register =
        |dword, current, other| Change { opcode: Opcode::Register, dword, current, other };
    let acquire = |dword, other| Change { opcode: Opcode::Acquire, dword, current: own, other };
    match step {
        Step::Read => Vec::new(),
        Step::Register => vec![
            register(REGISTER | PERSIST, 0, own),
            register(REPLACE | IGNORE_EXISTING_KEY | PERSIST, 0, own),
        ],
        Step::Reserve => vec![acquire(kind, 0)],
        Step::Preempt(former) => vec![acquire(kind | PREEMPT_AND_ABORT, former)],
        Step::Unregister => vec![register(UNREGISTER, own, 0)],
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cover, FenceKey};
    use super::*;
    use crate::HostId;

    #[test]
    fn steps_are_the_commands_of_the_standard() {
        let own = FenceKey::new(HostId([0xa1; 16]), 7, Cover::Nothing);
        let words = |step| -> Vec<(u8, u32, u64, u64)> {
            let changes = changes(own, step).into_iter();
            changes.map(|c| (c.opcode as u8, c.dword, c.current, c.other)).collect()
        };
        let key = own.number();
        assert_eq!(
            words(Step::Register),
            [(0x0d, 0xc000_0000, 0, key), (0x0d, 0xc000_000a, 0, key)]
        );
        assert_eq!(words(Step::Unregister), [(0x0d, 1, key, 0)]);
        assert_eq!(words(Step::Reserve), [(0x11, 0x300, key, 0)]);
        assert_eq!(words(Step::Preempt(5)), [(0x11, 0x302, key, 5)]);
    }

    #[test]
    fn a_file_is_no_namespace() {
        let file = tempfile::tempfile().unwrap();
        assert!(Namespace::of(&file).unwrap().is_none());
    }
}
