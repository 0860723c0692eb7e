//! Priorities for the kernel's own IO scheduler.

use crate::backend::context::Context;
use crate::kernel::ring::Ring;
use headgate_qos::ioprio::{Ceiling, Class, Ioprio, for_host};
use headgate_qos::{PriorityScope, SchedulerKind};
use io_uring::{opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Asks the kernel once whether this thread may send real-time requests. Were they refused later, a
/// guest's IO would fail.
pub(crate) fn probe(ring: &mut Ring) -> Ceiling {
    let asked = try_real_time(ring);
    match asked {
        Ok(()) => Ceiling::RealTime,
        Err(e) => {
            tracing::info!(error = %e,
                "the kernel takes no real-time requests from this process: such priorities go to the host's IO scheduler as the \
                 highest best-effort level (CAP_SYS_NICE allows them)");
            Ceiling::BestEffort
        }
    }
}

fn try_real_time(ring: &mut Ring) -> io::Result<()> {
    let zeroes = File::open("/dev/zero")?;
    let mut byte = 0u8;
    let entry = opcode::Read::new(types::Fd(zeroes.as_raw_fd()), &raw mut byte, 1)
        .ioprio(Ioprio::new(Class::RealTime, 0, 0).0)
        .build();
    // SAFETY: the byte and the file outlive the call, which waits for the operation.
    let result = unsafe { ring.perform(entry) }?;
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

/// The priority that goes to the kernel with a request's transfers; 0 gives none.
///
/// Real-time requests pass everybody's in the IO scheduler. So only disks that may pass other
/// virtual machines' requests here send them.
#[inline]
pub(super) fn ioprio(ctx: &Context, key: u32, scheduler: SchedulerKind) -> u16 {
    if scheduler != SchedulerKind::MClock {
        return 0;
    }
    let slot = &ctx.tables.slots[key];
    let ceiling = match ctx.tables.disks[slot.disk as usize].priorities.policy.scope {
        PriorityScope::WithinVm => Ceiling::BestEffort,
        PriorityScope::AcrossVms => ctx.ceiling,
    };
    for_host(slot.priority, ceiling).0
}
