//! The front-end's side of a connection, its memory, and the descriptors that it hands over.

use super::messages::Message;
use arbitrary::{Result, Unstructured};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, OFlags, fcntl_setfl, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Where the memory lies for the guest, and for the front-end.
pub(super) const BASE: u64 = 0x1_0000_0000;
pub(super) const USER: u64 = 0x7000_0000_0000;
/// Its size in bytes.
pub(super) const MEMORY: u64 = 256 << 10;
pub(super) const QUEUES: u64 = 2;
/// Descriptors of a queue.
pub(super) const QUEUE: u64 = 16;

/// Headers and data of requests.
const REQUESTS: u64 = 0x1_0000;

/// Where a queue's descriptor table, available ring and used ring are.
pub(super) fn ring(queue: u64) -> [u64; 3] {
    let start = queue * 0x4000;
    [start, start + 0x1000, start + 0x2000]
}

/// A kind of file to hand over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Descriptor {
    /// The guest's memory.
    Memory,
    /// Memory for requests in flight, which outlives rings.
    InFlight,
    /// The eventfd that kicks.
    Kick,
    /// The eventfd that is signalled.
    Call,
    /// An eventfd of its own, full and blocking.
    FullEvent,
    /// Memory without any bytes.
    NoMemory,
    Pipe,
    Socket,
    Null,
    Directory,
    /// A file of the kernel's.
    Proc,
    /// None at all.
    Nothing,
}

impl Descriptor {
    pub(super) const ALL: [Descriptor; 12] = [
        Descriptor::Memory,
        Descriptor::InFlight,
        Descriptor::Kick,
        Descriptor::Call,
        Descriptor::FullEvent,
        Descriptor::NoMemory,
        Descriptor::Pipe,
        Descriptor::Socket,
        Descriptor::Null,
        Descriptor::Directory,
        Descriptor::Proc,
        Descriptor::Nothing,
    ];
}

pub(super) struct FrontEnd {
    stream: UnixStream,
    memory: File,
    in_flight: File,
    kick: File,
    call: File,
}

fn memory(bytes: u64) -> File {
    let file = File::from(memfd_create(c"guest", MemfdFlags::CLOEXEC).expect("memory"));
    file.set_len(bytes).expect("memory");
    file
}

fn event(count: u32, flags: EventfdFlags) -> File {
    File::from(eventfd(count, flags).expect("an eventfd"))
}

impl FrontEnd {
    pub(super) fn connect(socket: &Path) -> FrontEnd {
        // libFuzzer's timer interrupts it.
        let stream = loop {
            match UnixStream::connect(socket) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => break done.expect("the server listens"),
            }
        };
        stream.set_nonblocking(true).expect("a socket");
        FrontEnd {
            stream,
            memory: memory(MEMORY),
            in_flight: memory(MEMORY),
            kick: event(0, EventfdFlags::NONBLOCK),
            call: event(0, EventfdFlags::NONBLOCK),
        }
    }

    /// A new descriptor for a file of this kind.
    pub(super) fn descriptor(&self, kind: Descriptor) -> Option<OwnedFd> {
        let again = |file: &File| file.try_clone().ok().map(OwnedFd::from);
        let open = |path: &str| File::open(path).ok().map(OwnedFd::from);
        match kind {
            Descriptor::Memory => again(&self.memory),
            Descriptor::InFlight => again(&self.in_flight),
            Descriptor::Kick => again(&self.kick),
            Descriptor::Call => again(&self.call),
            Descriptor::FullEvent => {
                let event = event(u32::MAX, EventfdFlags::empty());
                (&event).write_all(&(u64::MAX - 1 - u64::from(u32::MAX)).to_ne_bytes()).ok()?;
                Some(event.into())
            }
            Descriptor::NoMemory => Some(memory(0).into()),
            Descriptor::Pipe => std::io::pipe().ok().map(|(reader, _)| reader.into()),
            Descriptor::Socket => UnixStream::pair().ok().map(|(one, _)| one.into()),
            Descriptor::Null => open("/dev/null"),
            Descriptor::Directory => open("/"),
            Descriptor::Proc => open("/proc/self/maps"),
            Descriptor::Nothing => None,
        }
    }

    /// Sends a message. What the server no longer takes is lost.
    pub(super) fn send(&self, message: &Message) {
        let head = [message.kind, message.flags, message.size];
        let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(&message.body);
        let owned: Vec<OwnedFd> =
            message.descriptors.iter().filter_map(|kind| self.descriptor(*kind)).collect();
        let borrowed: Vec<BorrowedFd<'_>> = owned.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let few = &borrowed[..borrowed.len().min(16)];
        if !few.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(few)), "there is room for them");
        }
        let flags = SendFlags::NOSIGNAL;
        // The server may have hung up.
        let _ = sendmsg(&self.stream, &[IoSlice::new(&bytes)], &mut control, flags);
    }

    /// Reads what came, descriptors aside: those are closed with the socket.
    pub(super) fn drain(&self) {
        let mut bytes = [0; 4096];
        while matches!((&self.stream).read(&mut bytes), Ok(read) if read > 0) {}
    }

    /// # Panics
    /// When none comes in time.
    pub(super) fn wait_for_reply(&self, patience: Duration) {
        let mut polled = [PollFd::new(&self.stream, PollFlags::IN)];
        let time = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: 0 };
        let ready = poll(&mut polled, Some(&time)).expect("a socket");
        assert_eq!(ready, 1, "no answer");
        let mut bytes = [0; 64];
        let read = (&self.stream).read(&mut bytes).expect("a reply");
        assert!(read > 0, "the server hung up on a good front-end");
    }

    pub(super) fn write(&self, at: u64, bytes: &[u8]) {
        // Outside there is no memory; and it may have been shortened.
        let room = MEMORY.saturating_sub(at).min(bytes.len() as u64) as usize;
        let _ = self.memory.write_all_at(&bytes[..room], at);
    }

    fn read_u16(&self, at: u64) -> u16 {
        let mut bytes = [0; 2];
        match self.memory.read_exact_at(&mut bytes, at) {
            Ok(()) => u16::from_le_bytes(bytes),
            Err(_) => 0,
        }
    }

    /// The guest shortens its memory.
    pub(super) fn shorten(&self, bytes: u64) {
        self.memory.set_len(bytes).expect("memory");
    }

    /// Does to a shared descriptor what its owner may do.
    pub(super) fn meddle(&self, u: &mut Unstructured<'_>) -> Result<()> {
        let event = if u.arbitrary()? { &self.call } else { &self.kick };
        if u.arbitrary()? {
            fcntl_setfl(event, OFlags::empty()).expect("a flag");
            return Ok(());
        }
        // Full, unless it blocks: this thread would wait for itself.
        fcntl_setfl(event, OFlags::NONBLOCK).expect("a flag");
        let _ = (&*event).write(&(u64::MAX - 1).to_ne_bytes());
        Ok(())
    }

    pub(super) fn kick(&self, count: u8) {
        fcntl_setfl(&self.kick, OFlags::NONBLOCK).expect("a flag");
        // Full is as good as kicked.
        let _ = (&self.kick).write(&(u64::from(count) + 1).to_ne_bytes());
    }

    /// Puts a request of one to four descriptors into a ring, right but for what the input says.
    pub(super) fn offer(&self, u: &mut Unstructured<'_>) -> Result<()> {
        let queue = u.int_in_range(0..=QUEUES - 1)?;
        let head = u.int_in_range(0..=QUEUE - 4)?;
        let kind = if u.ratio(7, 8)? { *u.choose(&[0, 1, 4, 8, 11, 13])? } else { u.arbitrary()? };
        let sector: u64 = if u.ratio(7, 8)? { u.int_in_range(0..=2100)? } else { u.arbitrary()? };
        let len: u32 = if u.ratio(7, 8)? { 512 * u.int_in_range(1..=16)? } else { u.arbitrary()? };
        let request = REQUESTS + (queue * QUEUE + head) * 0x200;
        self.header(request, kind, sector);
        let data_flags = if kind == 0 || kind == 8 { 3 } else { 1 };
        let mut chain =
            vec![(request, 16, 1), (request + 0x2000, len, data_flags), (request + 32, 1, 2)];
        if kind == 4 {
            chain.remove(1);
        }
        if u.ratio(1, 4)? {
            let at = u.choose_index(chain.len())?;
            chain[at] = (u.arbitrary()?, u.arbitrary()?, u.arbitrary()?);
        }
        self.lay(queue, head, &chain, u.ratio(1, 16)?);
        if u.ratio(7, 8)? {
            self.kick(0);
        }
        Ok(())
    }

    /// A read of one sector, as it should be.
    #[cfg(test)]
    pub(super) fn offer_read(&self) {
        self.header(REQUESTS, 0, 0);
        let chain = [(REQUESTS, 16, 1), (REQUESTS + 0x2000, 512, 3), (REQUESTS + 32, 1, 2)];
        self.lay(0, 0, &chain, false);
    }

    #[cfg(test)]
    pub(super) fn used_index(&self, queue: u64) -> u16 {
        self.read_u16(ring(queue)[2] + 2)
    }

    fn header(&self, at: u64, kind: u32, sector: u64) {
        self.write(at, &kind.to_le_bytes());
        self.write(at + 4, &[0; 4]);
        self.write(at + 8, &sector.to_le_bytes());
    }

    /// Writes a chain (address, length, flags) and makes it available. `looped`: its end is its
    /// beginning.
    fn lay(&self, queue: u64, head: u64, chain: &[(u64, u32, u16)], looped: bool) {
        let [descriptors, available, _] = ring(queue);
        for (at, (address, len, flags)) in chain.iter().enumerate() {
            let last = at + 1 == chain.len();
            let next = if last { head } else { head + at as u64 + 1 };
            let flags = if last && !looped { flags & !1 } else { *flags };
            let address = if *address < MEMORY { BASE + address } else { *address };
            let entry = descriptors + (head + at as u64) * 16;
            self.write(entry, &address.to_le_bytes());
            self.write(entry + 8, &len.to_le_bytes());
            self.write(entry + 12, &flags.to_le_bytes());
            self.write(entry + 14, &(next as u16).to_le_bytes());
        }
        let index = self.read_u16(available + 2);
        let slot = available + 4 + u64::from(index) % QUEUE * 2;
        self.write(slot, &(head as u16).to_le_bytes());
        self.write(available + 2, &index.wrapping_add(1).to_le_bytes());
    }
}
