//! The target of another shard's move, on its own shard.
//!
//! The move sends to it by two ports without a client behind them, one for what clients ask and
//! one for the copy, as it does to a target on its own shard. So both are in this datastore's
//! scheduler and window.

use super::far::Returned;
use crate::backend::nbd::loss::LossEpoch;
use crate::error::EngineError;
use crate::kernel::mailbox::Mailbox;
use crate::request::{Completion, DiskInfo, Request};
use crate::shard::Shard;
use crate::shard::core::Core;
use crate::shard::place::Hosted;
use crate::tables::crossing::{Landing, Late, Wanted};
use crate::tables::lane::Lane;
use crate::tables::lateness::Lateness;
use crate::tables::port::Sender;
use crate::trouble::TroublePolicy;
use headgate_mirror::changes::Changes;
use headgate_qos::Policy;
use headgate_qos::window::Admission;
use headgate_units::{Bytes, Nanos};
use std::sync::Arc;

/// A request from another shard, with its buffers there.
pub(super) struct Parcel {
    request: Request,
    lane: Lane,
    buffers: Vec<libc::iovec>,
}

// SAFETY: the buffers are addresses. Who may use the memory behind them is said by the request's
// owner, whose shard keeps it until the request comes back, whatever thread uses it.
unsafe impl Send for Parcel {}

impl Parcel {
    /// `request` has the cookie that it comes back with.
    pub(super) fn new(request: Request, lane: Lane, buffers: Vec<libc::iovec>) -> Parcel {
        Parcel { request, lane, buffers }
    }
}

/// What a move hears of its target on another shard.
pub(crate) struct Landed {
    pub landing: u32,
    pub info: DiskInfo,
}

/// What the target of a move has of the source once it is the disk.
pub(super) struct HandedOver {
    pub name: String,
    /// What it does about trouble.
    pub policy: TroublePolicy,
    /// Where is noted what clients change.
    pub changes: Option<Arc<Changes>>,
}

impl Shard {
    /// Makes a disk the target of a move that begins on another shard.
    pub(crate) fn open_landing(
        &mut self,
        disk: usize,
        (pace, steps): (Policy, u32),
        patience: Nanos,
        shard: Mailbox<Shard>,
    ) -> Result<Landed, EngineError> {
        let core = &mut self.core;
        let found = core.ctx.tables.disks.get(disk).ok_or(EngineError::NoDisk)?;
        found.check_as_target()?;
        let (info, disk) = (found.info.clone(), disk as u32);
        core.add_copy(disk, pace, steps);
        let landing = core.landings.vacant_key() as u32;
        let [clients, copy] = [(); 2].map(|()| core.add_sender(disk, Sender::Landing(landing)));
        core.ctx.tables.disks[disk as usize].landing = Some(landing);
        let (of, late, wanted) = (None, Late::NotTold, Wanted::Yes);
        let (asks, wake) = (None, None);
        let lateness = Lateness::new(core.ctx.now, patience);
        core.landings.insert(Landing {
            disk,
            clients,
            copy,
            of,
            lateness,
            late,
            wanted,
            asks,
            wake,
        });
        self.move_shards.insert(landing, shard);
        Ok(Landed { landing, info })
    }

    /// The move has begun.
    pub(super) fn landing_begins(&mut self, landing: u32, of: (u32, u64), size: Bytes) {
        let Core { ctx, landings, .. } = &mut self.core;
        let Some(landing) = landings.get_mut(landing as usize) else { return };
        landing.of = Some(of);
        // A larger target is as large as the disk, as its clients know it.
        ctx.tables.disks[landing.disk as usize].info.size = size.0;
    }

    /// Queues a request of the move's.
    pub(super) fn land(&mut self, landing: u32, parcel: Parcel) {
        let Some(found) = self.core.landings.get(landing as usize) else { return };
        let port = match parcel.lane {
            Lane::Client => found.clients,
            Lane::Copy | Lane::CopyBeforeWrite => found.copy,
        };
        // SAFETY: the move's shard keeps the buffers until the request has come back.
        unsafe { self.core.submit(port, parcel.request, &parcel.buffers, parcel.lane) };
    }

    pub(super) fn set_landing_pace(&mut self, landing: u32, pace: Policy) {
        let Some(found) = self.core.landings.get(landing as usize) else { return };
        self.core.set_copy_pace(found.disk, pace);
    }

    /// The target is the disk.
    pub(super) fn hand_over_landing(&mut self, landing: u32, of_source: HandedOver) {
        let Core { ctx, landings, .. } = &mut self.core;
        let Some(landing) = landings.get(landing as usize) else { return };
        let disk = &mut ctx.tables.disks[landing.disk as usize];
        let HandedOver { name, policy, changes } = of_source;
        (disk.info.name, disk.trouble.policy, disk.changes) = (name, policy, changes);
    }

    /// A client's port comes from the move's shard.
    pub(super) fn land_port(&mut self, landing: u32, hosted: Hosted) {
        let Some(disk) = self.core.landings.get(landing as usize).map(|found| found.disk) else {
            return hosted.end();
        };
        let epoch = self.core.renew_epoch(landing);
        if let Err(error) = self.take_in(disk, hosted, epoch) {
            tracing::error!(%error, "a client's connection ends that moves with its disk");
        }
    }

    /// The move is over: it has nothing under way.
    pub(crate) fn close_landing(&mut self, landing: u32) {
        let Some(found) = self.core.landings.try_remove(landing as usize) else { return };
        self.move_shards.remove(&landing);
        for port in [found.clients, found.copy] {
            self.core.remove_sender(port);
        }
        self.core.remove_copy(found.disk);
        self.core.ctx.tables.disks[found.disk as usize].landing = None;
    }

    /// A request that another shard's move has sent has ended.
    pub(super) fn end_for_landing(&mut self, landing: u32, completion: Completion) {
        let Some(shard) = self.move_shards.get(&landing) else { return };
        let Completion { cookie, result, extents, .. } = completion;
        // It is the number of a slot there.
        let returned = Returned { key: cookie as u32, result, extents };
        // A shard that has ended waits for nothing.
        let _ = shard.send(Box::new(move |shard| shard.far_ended(returned)));
    }

    /// The copy asks whether it may begin a step.
    pub(super) fn ask_for_step(&mut self, landing: u32, under_way: u32) {
        if let Some(found) = self.core.landings.get_mut(landing as usize) {
            found.asks = Some(under_way);
        }
    }

    /// Tells moves of other shards what their copies may begin, and whose targets' storage does not
    /// answer.
    pub(super) fn drive_landings(&mut self) {
        for index in 0..self.core.landings.capacity() {
            let Some(landing) = self.core.landings.get(index) else { continue };
            let (disk, mut lateness) = (landing.disk, landing.lateness);
            let is_late = landing.late == Late::NotTold && lateness.look(&self.core, disk);
            let admission = landing.admission(&self.core);
            let Some(landing) = self.core.landings.get_mut(index) else { continue };
            landing.lateness = lateness;
            let shard = self.move_shards.get(&(index as u32));
            let (Some((of, serial)), Some(shard)) = (landing.of, shard) else { continue };
            // A shard that has ended has no move.
            match admission {
                Some(Admission::Now) => {
                    (landing.asks, landing.wake) = (None, None);
                    let _ = shard.send(Box::new(move |s| s.far_permits(of, serial)));
                }
                Some(Admission::At(at)) => landing.wake = Some(at),
                Some(Admission::None) | None => landing.wake = None,
            }
            if is_late {
                landing.late = Late::Told;
                let _ = shard.send(Box::new(move |s| s.far_is_late(of, serial)));
            }
        }
    }
}

impl Landing {
    /// What the move is to be told that asks for a step.
    fn admission(&self, core: &Core) -> Option<Admission> {
        self.asks.map(|under_way| core.admit_step(self.disk, under_way))
    }

    /// When there is something to do without an event.
    pub(super) fn next(&self) -> Option<Nanos> {
        let look = (self.late == Late::NotTold).then(|| self.lateness.next());
        [look, self.wake].into_iter().flatten().min()
    }
}

impl Core {
    /// What a port that comes knows of what a server may have lost: what the move was not told of
    /// is told to who comes.
    fn renew_epoch(&mut self, landing: u32) -> LossEpoch {
        let Some(found) = self.landings.get(landing as usize) else { return LossEpoch::default() };
        let (disk, port) = (found.disk, found.clients);
        let epoch = self.ctx.tables.ports[port as usize].epoch;
        self.ctx.client_gone(disk, epoch);
        let epoch = self.epoch_of_client(disk);
        self.ctx.tables.ports[port as usize].epoch = epoch;
        epoch
    }
}
