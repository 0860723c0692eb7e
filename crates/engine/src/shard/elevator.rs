//! What the host's own elevator is told of priorities.

use super::Core;
use super::disk::Backend;
use super::ring::Ring;
use headgate_qos::ioprio::{Ceiling, Class, Ioprio, for_host};
use headgate_qos::{PriorityScope, SchedulerKind};
use io_uring::{opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Asks the kernel once whether this thread's requests may be real-time ones: refused, a guest's IO would fail.
pub(super) fn probe(ring: &mut Ring) -> Ceiling {
    let asked = try_real_time(ring);
    match asked {
        Ok(()) => Ceiling::RealTime,
        Err(e) => {
            tracing::info!(error = %e,
                "the kernel takes no real-time requests from this process: such priorities go to the host's elevator as the \
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

impl Core {
    /// The field that goes to the kernel with a request's transfers; 0 says nothing.
    ///
    /// Real-time passes everybody's requests in the elevator, so it is for disks that may pass other virtual machines' here.
    pub(super) fn host_ioprio(&self, key: u32) -> u16 {
        let slot = &self.slots[key];
        let disk = &self.disks[slot.disk as usize];
        let datastore = &self.datastores[disk.datastore];
        if !matches!(datastore.backend, Backend::Files) || datastore.scheduler.kind() != SchedulerKind::MClock
        {
            return 0;
        }
        let ceiling = match disk.priorities.policy.scope {
            PriorityScope::WithinVm => Ceiling::BestEffort,
            PriorityScope::AcrossVms => self.elevator,
        };
        for_host(slot.priority, ceiling).0
    }
}
