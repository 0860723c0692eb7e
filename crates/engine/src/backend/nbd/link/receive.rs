//! Replies on their way in: heads and short payloads into the link's buffer, long payloads straight
//! into their requests'.

use super::super::command;
use super::super::status;
use super::send::VECTORS_MAX;
use super::state::{Command, Links, State};
use crate::backend::context::Context;
use crate::kernel::buffers::remaining;
use crate::kernel::ring::{Owner, Way};
use crate::request::{IoError, Op};
use headgate_nbd::client::replies::{Brings, Event, ReplyError};
use headgate_nbd::counters::Received;
use headgate_units::Bytes;
use io_uring::{opcode, types};

/// Most pieces of a payload in one receive; one more is the link's own buffer.
const PIECES_MAX: usize = VECTORS_MAX - 1;

/// What the specification calls `NBD_ESHUTDOWN`: the server is about to go.
const SHUTDOWN: u32 = 108;

impl Context {
    /// Something happened on a link.
    pub(crate) fn on_link(&mut self, index: u32, way: Way, result: i32) {
        match way {
            Way::Out => self.on_sent(index, result),
            Way::In => self.on_received(index, result),
        }
    }

    /// Waits for replies, unless it does already.
    pub(super) fn receive_next(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index) else { return };
        let State::Connected(connection) = &link.state else { return };
        if link.receiving {
            return;
        }
        let vectors = &mut link.inn.vectors;
        vectors.clear();
        let mut whole = true;
        if let Some(payload) = link.replies.payload()
            && let Some(command) = link.commands.get(place(payload.cookie))
        {
            let slot = &mut self.tables.slots[command.key];
            let skip = slot.done + u64::from(payload.at);
            let held = remaining(&slot.buffers, skip, u64::from(payload.left), &mut slot.rest);
            let pieces = slot.rest.len().min(PIECES_MAX);
            whole = held == u64::from(payload.left) && pieces == slot.rest.len();
            vectors.extend_from_slice(&slot.rest[..pieces]);
        }
        if whole {
            // While long payloads are expected, no more than a head: what is behind it can go where
            // it belongs.
            let most = if link.long_reads > 0 { link.replies.head_lacks() } else { usize::MAX };
            let spare = link.replies.spare(most);
            vectors.push(libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() });
        }
        let entry = opcode::RecvMsg::new(types::Fd(connection.fd()), link.inn.seal()).build();
        link.receiving = true;
        // SAFETY: vectors and header stay as they are while `receiving` is set, and a link is not
        // dropped then. The buffer of replies is not touched until then, and the request's own are
        // valid until its completion, which waits for its payload.
        unsafe { self.ring.push(entry, Owner::Link { link: index, way: Way::In }) };
    }

    fn on_received(&mut self, index: u32, result: i32) {
        let Some(link) = self.links.get_mut(index) else { return };
        link.receiving = false;
        if !matches!(link.state, State::Connected(_)) {
            return self.settle(index);
        }
        match result {
            0 => return self.lose(index, "the server hung up"),
            1.. => {
                link.heard = self.now;
                link.replies.received(result as usize);
            }
            _ if matches!(-result, libc::EAGAIN | libc::EINTR) => {}
            _ => return self.lose(index, &std::io::Error::from_raw_os_error(-result).to_string()),
        }
        loop {
            match self.next_end(index) {
                Ok(Some((place, error, received))) => {
                    self.on_reply(index, place, error, received);
                }
                Ok(None) => break,
                Err(e) => return self.lose(index, &format!("the server breaks the protocol: {e}")),
            }
        }
        self.links.set_ready(index);
    }

    /// Takes payloads to where they belong, up to the next command's end: its place, error number,
    /// and what the server counted.
    fn next_end(&mut self, index: u32) -> Result<Option<(usize, u32, Received)>, ReplyError> {
        let Some(link) = self.links.get_mut(index) else { return Ok(None) };
        let commands = &link.commands;
        let outstanding = |cookie: u64| {
            let command = commands.get(place(cookie))?;
            let is_it = u64::from(command.serial) == cookie >> 32 && command.answer.is_none();
            is_it.then_some(command.brings)
        };
        if !matches!(link.state, State::Connected(_)) {
            return Ok(None);
        }
        while let Some(event) = link.replies.next(outstanding)? {
            match event {
                Event::End { cookie, error, received, extents } => {
                    let place = place(cookie);
                    if let Some(Command { key, brings: Brings::Status { len }, .. }) =
                        commands.get(place)
                    {
                        let disk = self.tables.slots[*key].disk as usize;
                        let block = self.tables.disks[disk].info.block_size;
                        status::tell(&mut self.tables.slots[*key].extents, extents, *len, block);
                    }
                    return Ok(Some((place, error, received)));
                }
                Event::Zeroes { cookie, at, len } => {
                    let Some(command) = commands.get(place(cookie)) else { continue };
                    let slot = &mut self.tables.slots[command.key];
                    let skip = slot.done + u64::from(at);
                    remaining(&slot.buffers, skip, u64::from(len), &mut slot.rest);
                    // SAFETY: the port keeps the request's buffers valid for writes until its
                    // completion.
                    unsafe { clear(&slot.rest) };
                }
                Event::Data { cookie, at, bytes } => {
                    let Some(command) = commands.get(place(cookie)) else { continue };
                    let slot = &self.tables.slots[command.key];
                    // SAFETY: the port keeps the request's buffers valid for writes until its
                    // completion.
                    unsafe { scatter(&slot.buffers, slot.done + u64::from(at), bytes) };
                }
            }
        }
        Ok(None)
    }

    fn on_reply(&mut self, index: u32, place: usize, error: u32, received: Received) {
        let Links { links, remotes, .. } = &mut self.links;
        let Some(link) = links.get_mut(index as usize) else { return };
        let Some(command) = link.commands.get_mut(place) else { return };
        command.answer = Some(error);
        let (took, message) = (self.now - command.at, command.message);
        if let Some(ticket) = command.ticket.take()
            && let Some(remote) = remotes.get_mut(link.remote as usize)
            && let Some(stripe) = &mut remote.stripe
        {
            stripe.heard(ticket, received, Bytes(command.moves.into()));
        }
        link.answered_after(took);
        // The kernel may be reading the request's buffers still.
        if link.sending == 0 || message != link.messages {
            self.conclude(index, place);
        }
    }

    /// Ends a command that was answered.
    pub(super) fn conclude(&mut self, index: u32, place: usize) {
        let Links { links, remotes, .. } = &mut self.links;
        let Some(link) = links.get_mut(index as usize) else { return };
        let State::Connected(connection) = &link.state else { return };
        let offer = connection.offer();
        let Some(command) = link.commands.try_remove(place) else { return };
        let key = command.key;
        link.long_reads -= u32::from(command.is_long());
        let slot = &mut self.tables.slots[key];
        let op = slot.request.op;
        let error = command.answer.unwrap_or(0);
        if error == SHUTDOWN {
            link.queue.push_front(key);
            return self.lose(index, "the server is shutting down");
        }
        link.answered = true;
        if op == Op::BlockStatus {
            // It is told from the beginning of the range on, and perhaps not to its end.
            return self.end_at_server(key, Ok(()));
        }
        if error != 0 {
            let error = io_error(error);
            return match command::otherwise(op, slot.step, error) {
                Some(step) => {
                    slot.step = step;
                    link.queue.push_back(key);
                }
                None => self.end_party(key, Err(error)),
            };
        }
        if let Some(covered) = command.covers
            && let Some(server) = remotes
                .get_mut(link.remote as usize)
                .and_then(|remote| remote.servers.get_mut(usize::from(link.member)))
        {
            server.account.on_flushed(covered);
        }
        slot.done += u64::from(command.len);
        if slot.done < slot.request.len {
            link.queue.push_back(key);
        } else if let Some(step) = command::after(op, slot.step, offer) {
            slot.step = step;
            link.queue.push_back(key);
        } else {
            if command::owes_flush(op)
                && offer.flush()
                && let Some(account) = self.links.account_of(index)
            {
                account.on_acknowledged(command.era);
            }
            self.end_party(key, Ok(()));
        }
    }
}

/// Where the command of a cookie is, if it is.
fn place(cookie: u64) -> usize {
    (cookie & 0xffff_ffff) as usize
}

/// The protocol's error numbers are Linux's; one that it does not know counts as a failure of the
/// storage.
fn io_error(number: u32) -> IoError {
    match number as i32 {
        known @ (libc::EPERM
        | libc::EIO
        | libc::ENOMEM
        | libc::EINVAL
        | libc::ENOSPC
        | libc::EOPNOTSUPP) => IoError::from_errno(known),
        _ => IoError::Backend(libc::EIO),
    }
}

/// Copies `bytes` into buffers, `at` bytes behind their beginning.
///
/// # Safety
/// The buffers are valid for writes and do not overlap the bytes.
unsafe fn scatter(buffers: &[libc::iovec], at: u64, bytes: &[u8]) {
    let (mut skip, mut rest) = (at, bytes);
    for buffer in buffers {
        let size = buffer.iov_len as u64;
        if skip >= size {
            skip -= size;
            continue;
        }
        let here = rest.len().min((size - skip) as usize);
        let to = buffer.iov_base.cast::<u8>().wrapping_add(skip as usize);
        // SAFETY: `here` bytes are in the buffer behind `skip`, which is below its size, and in
        // `rest`.
        unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), to, here) };
        rest = &rest[here..];
        skip = 0;
        if rest.is_empty() {
            return;
        }
    }
}

/// Fills buffers with zeroes.
///
/// # Safety
/// The buffers are valid for writes.
unsafe fn clear(buffers: &[libc::iovec]) {
    for buffer in buffers {
        // SAFETY: by the function's contract.
        unsafe { std::ptr::write_bytes(buffer.iov_base.cast::<u8>(), 0, buffer.iov_len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_go_where_they_belong() {
        let mut memory = [0u8; 30];
        let (a, b) = memory.split_at_mut(10);
        let iovec =
            |b: &mut [u8]| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: b.len() };
        let buffers = [iovec(a), iovec(b)];
        // SAFETY: live buffers of the test's own.
        unsafe {
            scatter(&buffers, 8, &[1, 2, 3, 4]);
            scatter(&buffers, 28, &[5, 6, 7]);
        }
        assert_eq!(memory[8..12], [1, 2, 3, 4]);
        assert_eq!(memory[28..], [5, 6]);
        assert!(memory[..8].iter().chain(&memory[12..28]).all(|&byte| byte == 0));
    }

    #[test]
    fn unknown_errors_are_failures_of_the_storage() {
        assert_eq!(io_error(28), IoError::NoSpace);
        assert_eq!(io_error(95), IoError::Unsupported);
        for odd in [2, 75, u32::MAX] {
            assert_eq!(io_error(odd), IoError::Backend(libc::EIO));
        }
    }
}
