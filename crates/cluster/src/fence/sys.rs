//! The system calls behind persistent reservations: Linux's `IOC_PR_*` (`linux/pr.h`), and
//! `SG_IO` (`scsi/sg.h`) for what kernels before 6.19 do not tell otherwise; and commands that are
//! handed through to NVMe devices (`linux/nvme_ioctl.h`).

use rustix::ioctl::{Opcode, opcode};
use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `PR_FL_IGNORE_KEY`.
pub(super) const IGNORE_KEY: u32 = 1;

#[repr(C)]
struct Registration {
    old_key: u64,
    new_key: u64,
    flags: u32,
    pad: u32,
}

#[repr(C)]
struct Reserve {
    key: u64,
    kind: u32,
    flags: u32,
}

#[repr(C)]
struct Preempt {
    old_key: u64,
    new_key: u64,
    kind: u32,
    flags: u32,
}

#[repr(C)]
struct ReadKeys {
    generation: u32,
    num_keys: u32,
    keys_ptr: u64,
}

#[repr(C)]
struct ReadReservation {
    key: u64,
    generation: u32,
    kind: u32,
}

const GROUP: u8 = b'p';
const REGISTER: Opcode = opcode::write::<Registration>(GROUP, 200);
const RESERVE: Opcode = opcode::write::<Reserve>(GROUP, 201);
const RELEASE: Opcode = opcode::write::<Reserve>(GROUP, 202);
const PREEMPT_ABORT: Opcode = opcode::write::<Preempt>(GROUP, 204);
const READ_KEYS: Opcode = opcode::read_write::<ReadKeys>(GROUP, 206);
const READ_RESERVATION: Opcode = opcode::read::<ReadReservation>(GROUP, 207);
const SG_IO: Opcode = 0x2285;

/// Result 0, or what the driver says of the device, or the kernel's own error.
fn call<T>(device: &File, code: Opcode, argument: &mut T) -> io::Result<c_int> {
    // SAFETY: each caller's argument is the structure that the code stands for, valid and ours
    // alone for the duration of the call; what it points to is so too.
    let result =
        unsafe { libc::ioctl(device.as_raw_fd(), code as _, std::ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(super) fn register(device: &File, old: u64, new: u64, flags: u32) -> io::Result<c_int> {
    let mut argument = Registration { old_key: old, new_key: new, flags, pad: 0 };
    call(device, REGISTER, &mut argument)
}

pub(super) fn reserve(device: &File, key: u64, kind: u32) -> io::Result<c_int> {
    call(device, RESERVE, &mut Reserve { key, kind, flags: 0 })
}

pub(super) fn release(device: &File, key: u64, kind: u32) -> io::Result<c_int> {
    call(device, RELEASE, &mut Reserve { key, kind, flags: 0 })
}

/// With the registered key `own`, of the registration `former`. The kernel's names for them say the
/// opposite: its drivers pass `old_key` on as the key of who asks (SCSI: RESERVATION KEY, NVMe:
/// CRKEY), and `new_key` as the one that is preempted.
pub(super) fn preempt_abort(device: &File, own: u64, former: u64, kind: u32) -> io::Result<c_int> {
    let mut argument = Preempt { old_key: own, new_key: former, kind, flags: 0 };
    call(device, PREEMPT_ABORT, &mut argument)
}

/// The registered keys, of which there may be more than fit: the second number is how many.
pub(super) fn read_keys(device: &File, keys: &mut [u64]) -> io::Result<(c_int, usize)> {
    let room = u32::try_from(keys.len()).unwrap_or(u32::MAX);
    let keys_ptr = keys.as_mut_ptr().expose_provenance() as u64;
    let mut argument = ReadKeys { generation: 0, num_keys: room, keys_ptr };
    let result = call(device, READ_KEYS, &mut argument)?;
    Ok((result, argument.num_keys as usize))
}

/// The holder's key and the type of the reservation; the type is 0 where there is none.
pub(super) fn read_reservation(device: &File) -> io::Result<(c_int, u64, u32)> {
    let mut argument = ReadReservation { key: 0, generation: 0, kind: 0 };
    let result = call(device, READ_RESERVATION, &mut argument)?;
    Ok((result, argument.key, argument.kind))
}

/// `struct sg_io_hdr`.
#[repr(C)]
struct SgIo {
    interface_id: c_int,
    dxfer_direction: c_int,
    cmd_len: u8,
    mx_sb_len: u8,
    iovec_count: u16,
    dxfer_len: c_uint,
    dxferp: *mut c_void,
    cmdp: *const u8,
    sbp: *mut u8,
    timeout: c_uint,
    flags: c_uint,
    pack_id: c_int,
    usr_ptr: *mut c_void,
    status: u8,
    masked_status: u8,
    msg_status: u8,
    sb_len_wr: u8,
    host_status: u16,
    driver_status: u16,
    resid: c_int,
    duration: c_uint,
    info: c_uint,
}

/// `SG_DXFER_FROM_DEV`.
const FROM_DEVICE: c_int = -3;

/// How long a command may take, in milliseconds.
const TIMEOUT: c_uint = 30_000;

/// What a device answered to a SCSI command.
pub(super) struct ScsiAnswer {
    /// The status byte, 0 for GOOD.
    pub status: u8,
    /// What the transport says, 0 for nothing.
    pub host_status: u16,
    /// Of CHECK CONDITION: the sense key.
    pub sense_key: u8,
}

/// PERSISTENT RESERVE IN with this service action, into `answer`.
pub(super) fn persistent_reserve_in(
    device: &File,
    action: u8,
    answer: &mut [u8],
) -> io::Result<ScsiAnswer> {
    const PERSISTENT_RESERVE_IN: u8 = 0x5e;
    let room = u16::try_from(answer.len()).unwrap_or(u16::MAX);
    let [high, low] = room.to_be_bytes();
    let command = [PERSISTENT_RESERVE_IN, action, 0, 0, 0, 0, 0, high, low, 0];
    let mut sense = [0_u8; 32];
    let mut argument = SgIo {
        interface_id: c_int::from(b'S'),
        dxfer_direction: FROM_DEVICE,
        cmd_len: command.len() as u8,
        mx_sb_len: sense.len() as u8,
        iovec_count: 0,
        dxfer_len: c_uint::from(room),
        dxferp: answer.as_mut_ptr().cast(),
        cmdp: command.as_ptr(),
        sbp: sense.as_mut_ptr(),
        timeout: TIMEOUT,
        flags: 0,
        pack_id: 0,
        usr_ptr: std::ptr::null_mut(),
        status: 0,
        masked_status: 0,
        msg_status: 0,
        sb_len_wr: 0,
        host_status: 0,
        driver_status: 0,
        resid: 0,
        duration: 0,
        info: 0,
    };
    call(device, SG_IO, &mut argument)?;
    // Descriptor format has the sense key in its second byte, fixed format in its third.
    let sense_key = match sense[0] & 0x7f {
        0x72 | 0x73 => sense[1] & 0x0f,
        _ => sense[2] & 0x0f,
    };
    let SgIo { status, host_status, .. } = argument;
    Ok(ScsiAnswer { status, host_status, sense_key })
}

/// `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct NvmeCommand {
    opcode: u8,
    flags: u8,
    rsvd1: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

const NVME_ID: Opcode = opcode::none(b'N', 0x40);
const NVME_IO_CMD: Opcode = opcode::read_write::<NvmeCommand>(b'N', 0x43);

/// The number of the namespace that a device of NVMe is.
pub(super) fn nvme_namespace(device: &File) -> io::Result<u32> {
    let id = call(device, NVME_ID, &mut ())?;
    u32::try_from(id).map_err(|_| io::Error::from_raw_os_error(libc::ENOTTY))
}

/// A command to a namespace, with these dwords 10 and 11, and its data, to or from the device as
/// the opcode says. Result 0, or the device's status.
pub(super) fn nvme_command(
    device: &File,
    nsid: u32,
    opcode: u8,
    [cdw10, cdw11]: [u32; 2],
    data: &mut [u8],
) -> io::Result<c_int> {
    let data_len = u32::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let addr = data.as_mut_ptr().expose_provenance() as u64;
    let timeout_ms = TIMEOUT;
    let mut argument = NvmeCommand {
        opcode,
        nsid,
        addr,
        data_len,
        cdw10,
        cdw11,
        timeout_ms,
        ..Default::default()
    };
    call(device, NVME_IO_CMD, &mut argument)
}
