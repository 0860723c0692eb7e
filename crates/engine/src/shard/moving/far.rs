//! A target on another shard, seen from the shard of its move.
//!
//! A disk of the move's shard stands for it, the *far* disk: on a datastore of its own, whose
//! requests go to the other shard as messages and come back as messages. There they are a client's
//! or the copy's requests of the target like any other: see [`landing`](super::landing).

use super::landing::Parcel;
use crate::kernel::mailbox::Mailbox;
use crate::request::{Extent, IoError, Request};
use crate::shard::Shard;
use crate::shard::core::Core;
use crate::tables::crossing::Far;
use crate::tables::moving::{Moving, Permit, Reach, Stage};

/// The way to a target on another shard.
pub(crate) struct Way {
    pub shard: Mailbox<Shard>,
    pub far: Far,
}

/// The end of a request at another shard.
pub(super) struct Returned {
    pub key: u32,
    pub result: Result<(), IoError>,
    pub extents: Vec<Extent>,
}

impl Shard {
    /// Has something done on the shard of a move's target, if that is another one, after all that
    /// it was asked for before; `what` gets the move's number there. A shard that has ended has
    /// nothing left to do.
    pub(super) fn tell_target(
        &self,
        index: u32,
        what: impl FnOnce(&mut Shard, u32) + Send + 'static,
    ) {
        let (shard, far) = (self.target_shards.get(&index), self.core.fars.get(&index));
        if let (Some(shard), Some(far)) = (shard, far) {
            let landing = far.landing;
            let _ = shard.send(Box::new(move |shard| what(shard, landing)));
        }
    }

    /// Sends a request to another shard that its far disk has dispatched.
    pub(super) fn send_far(&mut self, index: u32, key: u32) {
        let (shard, far) = (self.target_shards.get(&index), self.core.fars.get(&index));
        let slot = &self.core.ctx.tables.slots[key];
        let request = Request { cookie: u64::from(key), ..slot.request };
        let parcel = Parcel::new(request, slot.lane, slot.buffers.clone());
        let sent = shard.zip(far).map(|(shard, far)| {
            let landing = far.landing;
            shard.send(Box::new(move |shard| shard.land(landing, parcel)))
        });
        if !matches!(sent, Some(Ok(()))) {
            self.core.ctx.end_party(key, Err(IoError::Cancelled));
        }
    }

    /// A request that was sent to another shard has ended there.
    pub(super) fn far_ended(&mut self, returned: Returned) {
        let Returned { key, result, extents } = returned;
        self.core.ctx.tables.slots[key].extents = extents;
        self.core.ctx.end_party(key, result);
    }

    /// The shard of the target lets the copy begin a step.
    pub(super) fn far_permits(&mut self, index: u32, serial: u64) {
        let moving = self.core.moves.get_mut(index as usize).and_then(Option::as_deref_mut);
        if let Some(moving) = moving.filter(|moving| moving.serial == serial) {
            moving.permit = Permit::Given;
        }
    }

    /// A request has been at the storage of another shard's target for too long.
    pub(super) fn far_is_late(&mut self, index: u32, serial: u64) {
        let moving = self.core.moves.get_mut(index as usize).and_then(Option::as_deref_mut);
        if let Some(moving) = moving.filter(|moving| moving.serial == serial) {
            moving.lose_target();
        }
    }
}

impl Moving {
    /// Gives the target up, unless it may count.
    pub(super) fn lose_target(&mut self) {
        if self.can_lose_target() {
            self.machine.lose_target(&mut self.out);
        }
    }

    pub(super) fn can_lose_target(&self) -> bool {
        self.machine.can_lose_target() && self.stage != Stage::Preparing
    }

    /// Whether the target's shard does not take its turns: then it does not say either that the
    /// storage is late.
    pub(super) fn is_target_stuck(&self, core: &Core, index: u32) -> bool {
        self.reach == Reach::Elsewhere
            && core.fars.get(&index).is_some_and(|far| {
                far.pulse
                    .stalled_for(core.ctx.now)
                    .is_some_and(|waited| waited >= self.lateness.patience())
            })
    }
}
