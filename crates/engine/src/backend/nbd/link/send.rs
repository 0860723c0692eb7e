//! Requests on their way out: as many as there are leave in one message.

use super::super::command::{self, Data, Next};
use super::super::disk::{Remote, Stripe};
use super::super::loss::{Covered, Era};
use super::super::offer::Offer;
use super::state::{BATCH, Command, Head, Link, Links, State};
use crate::backend::context::Context;
use crate::kernel::buffers::{ZERO_BLOCK, remaining};
use crate::kernel::ring::{Owner, Way};
use crate::request::IoError;
use crate::tables::slots::Slot;
use crate::tables::slots::Zeroing;
use headgate_nbd::client::replies::Brings;
use headgate_nbd::counters::Counting;
use headgate_nbd::wire;
use headgate_qos::ioprio::{Ceiling, for_host};
use headgate_units::Nanos;
use io_uring::{opcode, types};

/// Most pieces in one message (`UIO_MAXIOV`).
pub(super) const VECTORS_MAX: usize = 1024;
/// Most pieces of one request: with its head they fit in a message.
const PIECES_MAX: usize = VECTORS_MAX - 1;
/// A message that has so many bytes gets no further request.
const MESSAGE_MAX: u64 = 4 << 20;

const _: () = assert!(2 * BATCH <= VECTORS_MAX, "a batch of requests, each with a piece, fits");

impl Context {
    /// Sends what waits, unless a message is under way.
    pub(super) fn send_next(&mut self, index: u32) {
        let Links { links, remotes, .. } = &mut self.links;
        let Some(link) = links.get_mut(index as usize) else { return };
        let State::Connected(connection) = &link.state else { return };
        if link.sending > 0 {
            return;
        }
        let (offer, fd) = (connection.offer(), connection.fd());
        let Some(Remote { stripe, servers, .. }) = remotes.get_mut(link.remote as usize) else {
            return;
        };
        let Some(server) = servers.get_mut(usize::from(link.member)) else { return };
        let mut stripe = match connection.counting() {
            Counting::Agreed(_) => stripe.as_mut(),
            Counting::None => None,
        };
        if link.commands.is_empty() {
            link.heard = self.now;
        }
        let mut ended = Vec::new();
        link.heads.clear();
        link.out.vectors.clear();
        link.messages += 1;
        let mut bytes = 0;
        while link.heads.len() < BATCH && bytes < MESSAGE_MAX {
            let Some(&key) = link.queue.front() else { break };
            let slot = &mut self.tables.slots[key];
            let left = slot.request.len.saturating_sub(slot.done);
            let (number, flags, mut len, data) =
                match command::next(slot.request.op, slot.step, left, offer) {
                    Next::Send { command, flags, len, data } => (command, flags, len, data),
                    Next::End(result) => {
                        ended.push((key, result));
                        link.queue.pop_front();
                        continue;
                    }
                };
            if data == Data::Sent || data == Data::Received {
                len = pieces(slot, len, offer);
                if len == 0 {
                    // Crumbs that no message holds a block of.
                    ended.push((key, Err(IoError::Invalid)));
                    link.queue.pop_front();
                    continue;
                }
            }
            if data == Data::Zeroes {
                slot.zeroing = Zeroing::Written;
            }
            let room = VECTORS_MAX - link.out.vectors.len();
            if data == Data::Sent && slot.rest.len() + 1 > room || room < 2 {
                break;
            }
            link.queue.pop_front();
            let is_flush = number == wire::command::FLUSH;
            let covers = is_flush.then(|| server.account.cover(link.born)).flatten();
            let era = server.era;
            let sent = Sent { number, flags, len, data, at: self.now, covers, era };
            bytes += link.append(key, slot, sent, stripe.as_deref_mut());
        }
        if !link.out.vectors.is_empty() {
            let until = link.heard + link.patience;
            link.sending = link.out.bytes();
            let flags = (libc::MSG_WAITALL | libc::MSG_NOSIGNAL) as u32;
            let entry = opcode::SendMsg::new(types::Fd(fd), link.out.seal()).flags(flags).build();
            // SAFETY: heads, vectors and header stay as they are while `sending` is not zero, and a
            // link is not dropped then. A request's buffers are valid until its completion, which
            // waits for the message that it is in.
            unsafe { self.ring.push(entry, Owner::Link { link: index, way: Way::Out }) };
            self.links.check_by(until);
        }
        for (key, result) in ended {
            self.end_at_server(key, result);
        }
    }

    /// A message has left, or not.
    pub(super) fn on_sent(&mut self, index: u32, result: i32) {
        let Some(link) = self.links.get_mut(index) else { return };
        let expected = std::mem::replace(&mut link.sending, 0);
        if !matches!(link.state, State::Connected(_)) {
            return self.settle(index);
        }
        if u64::try_from(result) != Ok(expected) {
            let reason = if result < 0 {
                std::io::Error::from_raw_os_error(-result).to_string()
            } else {
                "the server hung up".into()
            };
            return self.lose(index, &reason);
        }
        let message = link.messages;
        let answered =
            link.commands.iter().filter(|(_, c)| c.message == message && c.answer.is_some());
        let answered: Vec<usize> = answered.map(|(place, _)| place).collect();
        for place in answered {
            self.conclude(index, place);
        }
        self.links.set_ready(index);
    }
}

/// What a command asks for.
struct Sent {
    number: u16,
    flags: u16,
    len: u32,
    data: Data,
    at: Nanos,
    covers: Option<Covered>,
    era: Era,
}

impl Link {
    /// Puts a command at the end of the message that is being made, with what it sends; answers how
    /// many bytes of data those are.
    fn append(&mut self, key: u32, slot: &Slot, sent: Sent, counted: Option<&mut Stripe>) -> u64 {
        let Sent { number, flags, len, data, at, covers, era } = sent;
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        let offset = slot.request.offset + slot.done;
        let brings = match number {
            wire::command::READ => Brings::Data { offset, len },
            wire::command::BLOCK_STATUS => Brings::Status { len },
            _ => Brings::Nothing,
        };
        let message = self.messages;
        let (ticket, report) = counted
            .map(|stripe| {
                stripe.report(at, self.member, for_host(slot.priority, Ceiling::RealTime).0)
            })
            .unzip();
        let moves = if data == Data::None { 0 } else { len };
        let command = Command {
            key,
            serial,
            len,
            brings,
            covers,
            message,
            answer: None,
            ticket,
            moves,
            at,
            era,
        };
        self.long_reads += u32::from(command.is_long());
        let place = self.commands.insert(command) as u64;
        let request = wire::Request {
            flags,
            command: number,
            cookie: u64::from(serial) << 32 | place,
            offset: if number == wire::command::FLUSH { 0 } else { offset },
            len,
        };
        let head = Head::new(request, report);
        let iov_len = head.len;
        self.heads.push(head);
        let last = self.heads.len() - 1;
        let head = self.heads.as_mut_ptr().wrapping_add(last);
        let vectors = &mut self.out.vectors;
        vectors.push(libc::iovec { iov_base: head.cast(), iov_len });
        match data {
            Data::Sent => vectors.extend_from_slice(&slot.rest),
            Data::Zeroes => vectors.push(libc::iovec {
                // Only read from.
                iov_base: ZERO_BLOCK.0.as_ptr().cast_mut().cast(),
                iov_len: len as usize,
            }),
            Data::None | Data::Received => return 0,
        }
        len.into()
    }
}

/// Fills `slot.rest` with the buffers of the next step, of `len` bytes at most; answers how many
/// they hold, whole blocks.
fn pieces(slot: &mut Slot, len: u32, offer: Offer) -> u32 {
    let whole =
        slot.done == 0 && u64::from(len) == slot.request.len && slot.buffers.len() <= PIECES_MAX;
    if whole {
        slot.rest.clear();
        slot.rest.extend_from_slice(&slot.buffers);
        return len;
    }
    let mut held = remaining(&slot.buffers, slot.done, u64::from(len), &mut slot.rest);
    if slot.rest.len() > PIECES_MAX {
        held = slot.rest[..PIECES_MAX].iter().map(|piece| piece.iov_len as u64).sum();
    }
    // More pieces than that: as many whole blocks as they hold.
    let blocks = held / u64::from(offer.block_size) * u64::from(offer.block_size);
    remaining(&slot.buffers, slot.done, blocks, &mut slot.rest) as u32
}
