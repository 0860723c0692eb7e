//! Answers on their way to the client.
//!
//! While one send is under way, answers gather in a second batch; when the first is out, the second goes as one message.
//! So a busy client costs one system call for many answers. Answers without data lie side by side and need one vector.

use super::buddy::Block;
use super::memory::Arena;
use thiserror::Error;

/// The most vectors in one message (`UIO_MAXIOV`).
const MAX_VECTORS: usize = 1024;

/// The client no longer takes answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The connection is gone.
    #[error("the client is gone: {}", std::io::Error::from_raw_os_error(*.0))]
    Gone(i32),
    /// Less was taken than offered.
    #[error("the client went away in the middle of an answer")]
    Short,
}

/// A piece of a message.
#[derive(Debug)]
enum Part {
    /// A range of [`Batch::bytes`].
    Bytes { start: usize, len: usize },
    /// A buffer with data from the disk.
    Data { block: Block, len: usize },
}

#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    parts: Vec<Part>,
    replies: usize,
}

/// See the module's documentation.
pub struct Outbox {
    filling: Batch,
    sending: Batch,
    /// Parts of `sending` that are under way, and their length. No parts: nothing is under way.
    under_way: usize,
    expected: usize,
    vectors: Vec<libc::iovec>,
    message: Box<libc::msghdr>,
}

// SAFETY: the pointers in the vectors and the message lead to heap memory that the outbox or its port's arena owns, and move with them.
unsafe impl Send for Outbox {}

impl Default for Outbox {
    fn default() -> Outbox {
        // SAFETY: a `msghdr` is numbers and pointers, for which zero is a value.
        let message: libc::msghdr = unsafe { std::mem::zeroed() };
        Outbox {
            filling: Batch::default(),
            sending: Batch::default(),
            under_way: 0,
            expected: 0,
            vectors: Vec::with_capacity(MAX_VECTORS),
            message: Box::new(message),
        }
    }
}

impl Outbox {
    /// Queues an answer without data, which `write` appends.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let batch = &mut self.filling;
        let start = batch.bytes.len();
        write(&mut batch.bytes);
        let added = batch.bytes.len() - start;
        match batch.parts.last_mut() {
            Some(Part::Bytes { len, .. }) => *len += added,
            _ => batch.parts.push(Part::Bytes { start, len: added }),
        }
        batch.replies += 1;
    }

    /// Queues an answer with `len` bytes of data from `block` behind what `write` appends.
    pub fn push_data(&mut self, write: impl FnOnce(&mut Vec<u8>), block: Block, len: u32) {
        self.push(write);
        self.filling.parts.push(Part::Data { block, len: len as usize });
    }

    /// Answers that are not wholly out yet.
    pub fn replies(&self) -> usize {
        self.filling.replies + self.sending.replies
    }

    /// The next message to send, if there is one and none is under way. It and all it points to stay as they are
    /// until [`on_sent`](Outbox::on_sent), or as long as this outbox and the arena live.
    pub fn poll_send(&mut self, arena: &Arena) -> Option<*const libc::msghdr> {
        if self.under_way > 0 {
            return None;
        }
        if self.sending.parts.is_empty() {
            std::mem::swap(&mut self.filling, &mut self.sending);
        }
        self.under_way = self.sending.parts.len().min(MAX_VECTORS);
        if self.under_way == 0 {
            return None;
        }
        self.vectors.clear();
        self.expected = 0;
        let bytes = self.sending.bytes.as_ptr();
        for part in &self.sending.parts[..self.under_way] {
            let (base, len) = match part {
                // SAFETY: the part is a range of the batch's bytes.
                Part::Bytes { start, len } => (unsafe { bytes.add(*start) }.cast_mut(), *len),
                Part::Data { block, len } => (arena.at(block), *len),
            };
            self.vectors.push(libc::iovec { iov_base: base.cast(), iov_len: len });
            self.expected += len;
        }
        self.message.msg_iov = self.vectors.as_mut_ptr();
        self.message.msg_iovlen = self.vectors.len();
        Some(&raw const *self.message)
    }

    /// The send under way ended with this result of the kernel. Gives the buffers back.
    ///
    /// # Errors
    /// The client did not take all of it.
    pub fn on_sent(&mut self, result: i32, arena: &mut Arena) -> Result<(), SendError> {
        if matches!(-result, libc::EINTR | libc::EAGAIN) {
            // Nothing was sent: the same message is next again.
            self.under_way = 0;
            return Ok(());
        }
        let sent = usize::try_from(result).map_err(|_| SendError::Gone(-result))?;
        if sent != self.expected {
            return Err(SendError::Short);
        }
        for part in self.sending.parts.drain(..self.under_way) {
            if let Part::Data { block, .. } = part {
                arena.give(block);
            }
        }
        self.under_way = 0;
        if self.sending.parts.is_empty() {
            self.sending.bytes.clear();
            self.sending.replies = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a kernel would see.
    fn gather(message: *const libc::msghdr) -> (Vec<u8>, usize) {
        let mut bytes = Vec::new();
        // SAFETY: the message comes from `poll_send` and is under way.
        unsafe {
            let vectors = std::slice::from_raw_parts((*message).msg_iov, (*message).msg_iovlen);
            for v in vectors {
                bytes.extend_from_slice(std::slice::from_raw_parts(v.iov_base.cast(), v.iov_len));
            }
            (bytes, vectors.len())
        }
    }

    #[test]
    fn answers_without_data_share_a_vector_and_gather_while_a_send_is_under_way() {
        let (mut outbox, mut arena) = (Outbox::default(), Arena::map().unwrap());
        assert!(outbox.poll_send(&arena).is_none());
        outbox.push(|out| out.extend(b"one"));
        outbox.push(|out| out.extend(b"two"));
        assert_eq!(gather(outbox.poll_send(&arena).unwrap()), (b"onetwo".to_vec(), 1));
        for word in [b"aa", b"bb", b"cc"] {
            outbox.push(|out| out.extend(word));
        }
        assert!(outbox.poll_send(&arena).is_none());
        assert_eq!(outbox.replies(), 5);
        outbox.on_sent(6, &mut arena).unwrap();
        assert_eq!(gather(outbox.poll_send(&arena).unwrap()), (b"aabbcc".to_vec(), 1));
        outbox.on_sent(6, &mut arena).unwrap();
        assert_eq!(outbox.replies(), 0);
    }

    #[test]
    fn more_vectors_than_a_message_holds_go_in_turn_and_buffers_come_back() {
        let (mut outbox, mut arena) = (Outbox::default(), Arena::map().unwrap());
        for _ in 0..1000 {
            let block = arena.take(4096).unwrap();
            outbox.push_data(|out| out.extend(b"head"), block, 4096);
        }
        let mut total = 0;
        while let Some(message) = outbox.poll_send(&arena) {
            let (bytes, vectors) = gather(message);
            assert!(vectors <= MAX_VECTORS);
            total += bytes.len();
            outbox.on_sent(bytes.len() as i32, &mut arena).unwrap();
        }
        assert_eq!((total, outbox.replies()), (1000 * 4100, 0));
        assert!(arena.take(32 << 20).is_some() && arena.take(32 << 20).is_some());
    }

    #[test]
    fn an_interrupted_message_is_sent_again() {
        let (mut outbox, mut arena) = (Outbox::default(), Arena::map().unwrap());
        outbox.push(|out| out.extend(b"one"));
        outbox.poll_send(&arena).unwrap();
        outbox.on_sent(-libc::EINTR, &mut arena).unwrap();
        outbox.push(|out| out.extend(b"two"));
        assert_eq!(gather(outbox.poll_send(&arena).unwrap()), (b"one".to_vec(), 1));
        outbox.on_sent(3, &mut arena).unwrap();
        assert_eq!(gather(outbox.poll_send(&arena).unwrap()), (b"two".to_vec(), 1));
    }

    #[test]
    fn a_client_that_goes_away_is_noticed() {
        let (mut outbox, mut arena) = (Outbox::default(), Arena::map().unwrap());
        outbox.push(|out| out.extend(b"one"));
        outbox.poll_send(&arena).unwrap();
        assert_eq!(outbox.on_sent(2, &mut arena), Err(SendError::Short));
        assert_eq!(outbox.on_sent(-libc::EPIPE, &mut arena), Err(SendError::Gone(libc::EPIPE)));
    }
}
