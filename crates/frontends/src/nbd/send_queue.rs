//! Answers on their way to the client.
//!
//! While one send is under way, answers gather in a second batch; when the first is out, the second
//! goes as one message. So a busy client costs one system call for many answers. Answers without
//! data lie side by side and need one vector.

use super::buddy::Block;
use super::memory::Arena;
use super::splice::Spliced;
use headgate_engine::request::Charge;
use headgate_nbd::counters::{Received, Version, Window};
use headgate_qos::Phase;
use headgate_qos::window::Slots;
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
    /// An answer was begun whose data cannot be had any more.
    #[error("the image failed in the middle of an answer: {}", std::io::Error::from_raw_os_error(*.0))]
    Splice(i32),
}

/// A piece of a message.
#[derive(Debug)]
enum Part {
    /// A range of [`Batch::bytes`].
    Bytes { start: usize, len: usize },
    /// A buffer with data from the disk.
    Data { block: Block, from: usize, len: usize },
    /// A head, a range of [`Batch::bytes`], and data that is spliced from the image. It goes out by
    /// itself.
    Spliced { start: usize, head: usize, spliced: Spliced },
}

/// What goes out next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// Nothing, or something is under way.
    Nothing,
    /// A message. It and all it points to stay as they are until [`SendQueue::on_sent`], or as long
    /// as the queue and the arena live.
    Message(*const libc::msghdr),
    /// A head, and behind it data that is spliced from the image.
    Spliced(&'a [u8], Spliced),
}

#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    parts: Vec<Part>,
    replies: usize,
}

/// See the module's documentation.
pub struct SendQueue {
    filling: Batch,
    sending: Batch,
    /// Parts of `sending` that are under way, and their length. No parts: nothing is under way.
    under_way: usize,
    expected: usize,
    vectors: Vec<libc::iovec>,
    message: Box<libc::msghdr>,
    /// What the disk was charged since the last answer, where clients are told.
    received: Option<Received>,
    /// The window of the disk's storage, where clients are told that too.
    window: Option<Window>,
}

// SAFETY: the pointers in the vectors and the message lead to heap memory that the queue or its
// port's arena owns, and move with them.
unsafe impl Send for SendQueue {}

impl Default for SendQueue {
    fn default() -> SendQueue {
        // SAFETY: a `msghdr` is numbers and pointers, for which zero is a value.
        let message: libc::msghdr = unsafe { std::mem::zeroed() };
        SendQueue {
            filling: Batch::default(),
            sending: Batch::default(),
            under_way: 0,
            expected: 0,
            vectors: Vec::with_capacity(MAX_VECTORS),
            message: Box::new(message),
            received: None,
            window: None,
        }
    }
}

impl SendQueue {
    /// Tells clients with each answer what was charged since the one before.
    pub fn tell_charges(&mut self, version: Version) {
        self.received = Some(Received::default());
        self.window = (version >= Version::Three).then(Window::default);
    }

    /// The window of the disk's storage from now on; `None`: nobody knows.
    pub fn know_window(&mut self, now: impl FnOnce() -> Option<Slots>) {
        if let Some(window) = &mut self.window {
            *window = now().map_or_else(Window::default, |now| Window(now.as_millionths()));
        }
    }

    /// Notes what the disk was charged.
    pub fn charge(&mut self, charge: Charge) {
        let Some(received) = &mut self.received else { return };
        let cost = charge.cost.as_millionths();
        received.all = received.all.saturating_add(cost);
        if charge.phase == Phase::Reservation {
            received.by_reservation = received.by_reservation.saturating_add(cost);
        }
    }

    /// Has `write` append an answer's head, or nothing, and what goes with a head; answers where it
    /// begins and how long it is.
    fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> (usize, usize) {
        let bytes = &mut self.filling.bytes;
        let start = bytes.len();
        write(bytes);
        if bytes.len() > start
            && let Some(received) = &mut self.received
        {
            bytes.extend_from_slice(&std::mem::take(received).to_bytes());
            if let Some(window) = self.window {
                bytes.extend_from_slice(&window.to_bytes());
            }
        }
        (start, bytes.len() - start)
    }

    /// Queues an answer without data, which `write` appends.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let (start, added) = self.write(write);
        let batch = &mut self.filling;
        match batch.parts.last_mut() {
            Some(Part::Bytes { len, .. }) => *len += added,
            _ => batch.parts.push(Part::Bytes { start, len: added }),
        }
        batch.replies += 1;
    }

    /// Queues an answer with `len` bytes of data from `block` behind what `write` appends.
    pub fn push_data(&mut self, write: impl FnOnce(&mut Vec<u8>), block: Block, len: u32) {
        self.push_data_from(write, block, 0, len);
    }

    /// The same, with the data that begins `from` bytes behind the buffer's first.
    pub fn push_data_from(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>),
        block: Block,
        from: u32,
        len: u32,
    ) {
        self.push(write);
        let (from, len) = (from as usize, len as usize);
        self.filling.parts.push(Part::Data { block, from, len });
    }

    /// Queues an answer with data that the image is_spliced behind what `write` appends.
    pub fn push_spliced(&mut self, write: impl FnOnce(&mut Vec<u8>), spliced: Spliced) {
        let (start, head) = self.write(write);
        let batch = &mut self.filling;
        batch.parts.push(Part::Spliced { start, head, spliced });
        batch.replies += 1;
    }

    /// Whether an answer waits whose data is spliced from the image.
    pub fn has_spliced(&self) -> bool {
        let is_spliced = |part: &Part| matches!(part, Part::Spliced { .. });
        self.filling.parts.iter().chain(&self.sending.parts).any(is_spliced)
    }

    /// Answers that are not wholly out yet.
    pub fn replies(&self) -> usize {
        self.filling.replies + self.sending.replies
    }

    /// Bytes of answers that are not wholly out yet, without their data.
    pub fn unsent_bytes(&self) -> usize {
        self.filling.bytes.len() + self.sending.bytes.len()
    }

    /// Gives memory back if there are no answers.
    pub fn shrink(&mut self) {
        if self.replies() == 0 {
            (self.filling, self.sending) = (Batch::default(), Batch::default());
        }
    }

    /// What to send now. It is under way then.
    pub fn poll_send(&mut self, arena: &Arena) -> Next<'_> {
        if self.under_way > 0 {
            return Next::Nothing;
        }
        if self.sending.parts.is_empty() {
            std::mem::swap(&mut self.filling, &mut self.sending);
        }
        if let Some(&Part::Spliced { start, head, spliced }) = self.sending.parts.first() {
            self.under_way = 1;
            return Next::Spliced(&self.sending.bytes[start..start + head], spliced);
        }
        let is_spliced = |part: &Part| matches!(part, Part::Spliced { .. });
        let together =
            self.sending.parts.iter().position(is_spliced).unwrap_or(self.sending.parts.len());
        self.under_way = together.min(MAX_VECTORS);
        if self.under_way == 0 {
            return Next::Nothing;
        }
        self.vectors.clear();
        self.expected = 0;
        let bytes = self.sending.bytes.as_ptr();
        for part in &self.sending.parts[..self.under_way] {
            let (base, len) = match part {
                // SAFETY: the part is a range of the batch's bytes.
                Part::Bytes { start, len } => (unsafe { bytes.add(*start) }.cast_mut(), *len),
                Part::Data { block, from, len } => (arena.at(block).wrapping_add(*from), *len),
                Part::Spliced { .. } => break,
            };
            self.vectors.push(libc::iovec { iov_base: base.cast(), iov_len: len });
            self.expected += len;
        }
        self.message.msg_iov = self.vectors.as_mut_ptr();
        self.message.msg_iovlen = self.vectors.len();
        Next::Message(&raw const *self.message)
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
        self.finish(arena);
        Ok(())
    }

    /// The spliced answer under way is out.
    pub fn on_spliced(&mut self, arena: &mut Arena) {
        self.finish(arena);
    }

    fn finish(&mut self, arena: &mut Arena) {
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
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::Budget;
    use super::*;

    fn arena() -> Arena {
        Arena::map(Budget::new(1 << 30).account("disk")).unwrap()
    }

    fn message(next: Next<'_>) -> *const libc::msghdr {
        let Next::Message(message) = next else { panic!("{next:?} is not a message") };
        message
    }

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
        let (mut send_queue, mut arena) = (SendQueue::default(), arena());
        assert_eq!(send_queue.poll_send(&arena), Next::Nothing);
        send_queue.push(|out| out.extend(b"one"));
        send_queue.push(|out| out.extend(b"two"));
        assert_eq!(gather(message(send_queue.poll_send(&arena))), (b"onetwo".to_vec(), 1));
        for word in [b"aa", b"bb", b"cc"] {
            send_queue.push(|out| out.extend(word));
        }
        assert_eq!(send_queue.poll_send(&arena), Next::Nothing);
        assert_eq!(send_queue.replies(), 5);
        send_queue.on_sent(6, &mut arena).unwrap();
        assert_eq!(gather(message(send_queue.poll_send(&arena))), (b"aabbcc".to_vec(), 1));
        send_queue.on_sent(6, &mut arena).unwrap();
        assert_eq!(send_queue.replies(), 0);
    }

    #[test]
    fn more_vectors_than_a_message_holds_go_in_turn_and_buffers_come_back() {
        let (mut send_queue, mut arena) = (SendQueue::default(), arena());
        for _ in 0..1000 {
            let block = arena.take(4096).unwrap();
            send_queue.push_data(|out| out.extend(b"head"), block, 4096);
        }
        let mut total = 0;
        while let Next::Message(message) = send_queue.poll_send(&arena) {
            let (bytes, vectors) = gather(message);
            assert!(vectors <= MAX_VECTORS);
            total += bytes.len();
            send_queue.on_sent(bytes.len() as i32, &mut arena).unwrap();
        }
        assert_eq!((total, send_queue.replies()), (1000 * 4100, 0));
        assert!(arena.take(32 << 20).is_ok() && arena.take(32 << 20).is_ok());
    }

    #[test]
    fn an_interrupted_message_is_sent_again() {
        let (mut send_queue, mut arena) = (SendQueue::default(), arena());
        send_queue.push(|out| out.extend(b"one"));
        message(send_queue.poll_send(&arena));
        send_queue.on_sent(-libc::EINTR, &mut arena).unwrap();
        send_queue.push(|out| out.extend(b"two"));
        assert_eq!(gather(message(send_queue.poll_send(&arena))), (b"one".to_vec(), 1));
        send_queue.on_sent(3, &mut arena).unwrap();
        assert_eq!(gather(message(send_queue.poll_send(&arena))), (b"two".to_vec(), 1));
    }

    #[test]
    fn a_client_that_goes_away_is_noticed() {
        let (mut send_queue, mut arena) = (SendQueue::default(), arena());
        send_queue.push(|out| out.extend(b"one"));
        message(send_queue.poll_send(&arena));
        assert_eq!(send_queue.on_sent(2, &mut arena), Err(SendError::Short));
        assert_eq!(send_queue.on_sent(-libc::EPIPE, &mut arena), Err(SendError::Gone(libc::EPIPE)));
    }

    #[test]
    fn lent_answers_go_out_by_themselves_and_in_their_place() {
        let (mut send_queue, mut arena) = (SendQueue::default(), arena());
        let spliced = |offset| Spliced { offset, len: 65536 };
        send_queue.push(|out| out.extend(b"one"));
        send_queue.push_spliced(|out| out.extend(b"head"), spliced(4096));
        send_queue.push_spliced(|out| out.extend(b"next"), spliced(8192));
        send_queue.push(|out| out.extend(b"two"));
        assert_eq!(gather(message(send_queue.poll_send(&arena))), (b"one".to_vec(), 1));
        assert_eq!(send_queue.poll_send(&arena), Next::Nothing);
        send_queue.on_sent(3, &mut arena).unwrap();
        assert_eq!(send_queue.poll_send(&arena), Next::Spliced(b"head", spliced(4096)));
        assert_eq!(send_queue.poll_send(&arena), Next::Nothing);
        send_queue.on_spliced(&mut arena);
        assert_eq!(send_queue.poll_send(&arena), Next::Spliced(b"next", spliced(8192)));
        send_queue.on_spliced(&mut arena);
        assert_eq!(gather(message(send_queue.poll_send(&arena))), (b"two".to_vec(), 1));
        send_queue.on_sent(3, &mut arena).unwrap();
        assert_eq!(send_queue.poll_send(&arena), Next::Nothing);
        assert_eq!(send_queue.replies(), 0);
    }
}
