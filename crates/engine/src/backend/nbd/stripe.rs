//! Disks that are striped over several servers: requests are split into a part for each, and end
//! with the last of their parts.
//!
//! A part is a slot of its own, so that it has its own progress, buffers and result; it is charged
//! and counted with its whole request only. Servers that speak the extension hear with each part
//! what the disk received at the others (`headgate_qos::dmclock`, `docs/nbd-counters.md`).

use super::loss::FlushDecision;
use super::status::{self, Statuses};
use crate::backend::context::Context;
use crate::request::{IoError, Op, Request};
use crate::tables::slots::{Part, Zeroing};
use headgate_stripe::Layout;

/// The party that is over when all parts of a request have been begun: a part may end before the
/// next one has begun.
const AND_ITS_BEGINNING: u8 = 1;

impl Context {
    /// Takes a request of a striped disk on its way: a part of it to each server that it concerns.
    pub(super) fn start_striped(&mut self, key: u32) {
        match self.tables.slots[key].request.op {
            Op::Flush => self.start_barrier(key),
            // Advice.
            Op::Cache => self.end_party(key, Ok(())),
            _ => self.start_range(key),
        }
    }

    /// Has every server flush that holds something of this disk that is not durable.
    fn start_barrier(&mut self, key: u32) {
        let Some(remote) = self.remote_of(key) else {
            return self.end_party(key, Err(IoError::Backend(libc::EBADF)));
        };
        let mut owing = self.links.take_scratch(remote);
        for (owes, member) in owing.iter_mut().zip(0..) {
            *owes = self.links.owes_flush(remote, member).then_some(member.into());
        }
        let members = || owing.iter().flatten().map(|&member| member as u16);
        let hopeless = members().any(|member| self.links.is_hopeless(remote, member));
        if hopeless || self.judge_flush(remote, key) == FlushDecision::Fail {
            self.end_party(key, Err(IoError::Backend(libc::EIO)));
        } else {
            self.tables.slots[key].parties = AND_ITS_BEGINNING + members().count() as u8;
            for member in members() {
                let part = self.tables.slots.take_part(Part { whole: key, member }, 0, 0);
                self.send_away(part, remote, member);
            }
            self.end_party(key, Ok(()));
        }
        self.links.give_scratch(remote, owing);
    }

    /// Sends each server its part of a range.
    fn start_range(&mut self, key: u32) {
        let Request { op, offset, len, .. } = self.tables.slots[key].request;
        let Some((remote, layout)) = self.remote_of(key).and_then(|remote| {
            let stripe = self.links.remotes.get(remote as usize)?.stripe.as_ref()?;
            Some((remote, stripe.layout))
        }) else {
            return self.end_party(key, Err(IoError::Backend(libc::EBADF)));
        };
        let len = if op == Op::BlockStatus { status::at_most(layout, len) } else { len };
        let mut parts = self.links.take_scratch(remote);
        parts.fill(None);
        let mut parties = AND_ITS_BEGINNING;
        for part in layout.parts(offset, len) {
            let of = Part { whole: key, member: part.member };
            let taken = self.tables.slots.take_part(of, part.offset, part.len);
            parts[usize::from(part.member)] = Some(taken);
            parties += 1;
        }
        self.tables.slots[key].parties = parties;
        self.share_buffers(key, layout, &parts);
        for (part, member) in parts.iter().zip(0..) {
            if let Some(part) = *part {
                self.send_away(part, remote, member);
            }
        }
        self.links.give_scratch(remote, parts);
        self.end_share(key, Ok(()));
    }

    /// Gives each part the pieces of the request's buffers that are its own. O(pieces).
    fn share_buffers(&mut self, key: u32, layout: Layout, parts: &[Option<u32>]) {
        let slots = &mut self.tables.slots;
        let Request { op, offset, len, .. } = slots[key].request;
        if !op.moves_data() {
            return;
        }
        let buffers = std::mem::take(&mut slots[key].buffers);
        let mut pieces = buffers.iter().copied();
        let mut piece = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        for run in layout.runs(offset, len) {
            let Some(part) = parts.get(usize::from(run.member)).copied().flatten() else {
                continue;
            };
            let mut left = run.len as usize;
            while left > 0 {
                while piece.iov_len == 0 {
                    // The shard has checked that the buffers hold the range.
                    let Some(next) = pieces.next() else { break };
                    piece = next;
                }
                let here = left.min(piece.iov_len);
                if here == 0 {
                    break;
                }
                slots[part].add_buffer(libc::iovec { iov_len: here, ..piece });
                piece.iov_base = piece.iov_base.cast::<u8>().wrapping_add(here).cast();
                piece.iov_len -= here;
                left -= here;
            }
        }
        slots[key].buffers = buffers;
    }

    /// A part of a request has ended: it tells its whole.
    pub(crate) fn end_part(&mut self, key: u32, part: Part) {
        let slot = &self.tables.slots[key];
        let (result, outage, zeroing) = (slot.result, slot.outage, slot.zeroing);
        if slot.request.op == Op::BlockStatus {
            self.keep_status(key, part);
        }
        let slots = &mut self.tables.slots;
        slots.free(key);
        let whole = &mut slots[part.whole];
        whole.outage |= outage;
        if zeroing == Zeroing::Written {
            whole.zeroing = zeroing;
        }
        self.end_share(part.whole, result);
    }

    /// A part of a question has ended.
    fn keep_status(&mut self, key: u32, part: Part) {
        let said = std::mem::take(&mut self.tables.slots[key].extents);
        if let Some((statuses, layout)) = self.statuses_of(part.whole) {
            statuses.keep(part, layout.members(), said);
        }
    }

    /// A share in a request of a striped disk has ended: a part, or its beginning. With the last
    /// share the request ends.
    fn end_share(&mut self, key: u32, result: Result<(), IoError>) {
        let slot = &self.tables.slots[key];
        let request = slot.request;
        if request.op == Op::BlockStatus
            && slot.parties == 1
            && let Some((statuses, layout)) = self.statuses_of(key)
        {
            self.tables.slots[key].extents = statuses.join(key, layout, request);
        }
        self.end_party(key, result);
    }

    fn statuses_of(&mut self, key: u32) -> Option<(&mut Statuses, Layout)> {
        let disk = self.tables.slots[key].disk;
        let remote = self.tables.disks[disk as usize].storage.remote()?;
        let stripe = self.links.remotes.get_mut(remote as usize)?.stripe.as_mut()?;
        Some((&mut stripe.statuses, stripe.layout))
    }

    /// The remote disk that a request is for.
    fn remote_of(&self, key: u32) -> Option<u32> {
        let disk = self.tables.slots[key].disk;
        self.tables.disks[disk as usize].storage.remote()
    }
}
