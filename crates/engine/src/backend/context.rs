//! What a backend works with.

use super::file::bounce::Bounce;
use super::file::fence::Fenced;
use super::nbd::link::state::Links;
use crate::kernel::mailbox::Outlet;
use crate::kernel::ring::Ring;
use crate::kernel::worker::Worker;
use crate::request::IoError;
use crate::tables::Tables;
use headgate_qos::ioprio::Ceiling;
use headgate_units::Nanos;

/// What a backend executes requests with: the shard's tables, and the shard's ways to the kernel.
pub(crate) struct Context {
    /// The time of this turn.
    pub now: Nanos,
    pub tables: Tables,
    pub ring: Ring,
    /// For threads that answer a backend.
    pub outlet: Outlet<Context>,
    pub worker: Worker,
    /// The highest IO priority that the kernel takes from this process.
    pub ceiling: Ceiling,
    pub spare_bounces: Vec<Bounce>,
    pub links: Links,
    pub fenced: Fenced,
    /// What moving disks' fronts have dispatched.
    pub relayed: Vec<u32>,
    /// Bytes that this thread may still move itself before the turn ends.
    pub turn_bytes: i64,
    /// The shard polls its port itself, which therefore gathers nothing.
    pub polled: bool,
}

impl Context {
    /// One of the parties that work on a request has done its part. After the last, the request has
    /// ended.
    pub(crate) fn end_party(&mut self, key: u32, result: Result<(), IoError>) {
        let slot = &mut self.tables.slots[key];
        slot.result = slot.result.and(result);
        slot.parties = slot.parties.saturating_sub(1);
        if slot.parties == 0 {
            if let Some(part) = slot.part {
                return self.end_part(key, part);
            }
            self.spare_bounces.extend(slot.bounce.take());
            self.tables.completed.push(key);
        }
    }

    /// A part of this turn's bytes was moved.
    pub(crate) fn moved(&mut self, bytes: u64, weight: i64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.turn_bytes = self.turn_bytes.saturating_sub(bytes / weight);
    }
}
