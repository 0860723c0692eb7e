//! A client in the test's own process.

pub mod blocker;
pub mod copying;
pub mod far;
pub mod moving;
pub mod server;

use headgate_engine::port::{Detach, PageUse, Port, PortCommand, PortEvent, PortIo, Rest};
use headgate_engine::request::{Completion, DiskInfo, Durability, Extent, IoError, Op, Request};
use headgate_engine::{DiskId, Engine, EngineError, PortRef};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Long enough for any answer that will come at all.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What comes back for a request: its result, its data, its extents.
pub type Answer = (Result<(), IoError>, Vec<u8>, Vec<Extent>);

/// A request as the test sends it to its port. `skew` bytes before the data make the buffer odd.
pub struct Ask {
    op: Op,
    offset: u64,
    len: u64,
    data: Vec<u8>,
    skew: usize,
    answer: Sender<Answer>,
}

pub enum Message {
    Ask(Ask),
    /// Take back all that nobody has begun to serve, and say how many they were.
    TakeBack(Sender<usize>),
    /// Give up all that the disk holds, and say how many that were.
    GiveUp(Sender<usize>),
    /// Write this over the buffers of all requests under way, as a guest may, and say so.
    Scribble(u8, Sender<()>),
    /// Lock a block, say so when it is this client's, and unlock it.
    Lock(u64, u32, Sender<()>),
    /// Lock a block, say so when it is this client's, and keep it until it is to be unlocked.
    Keep(u64, u32, Sender<()>),
    Unlock,
    /// Say from now on what size the disk gets.
    Sizes(Sender<u64>),
    /// From now on the port has to do with the pages of its disk, or not any more.
    Pages(PageUse),
    /// Ask for each of these reads again when it completes, and count that: a client that is never
    /// late, however late the test's own thread is.
    Repeat(Vec<(u64, u64)>, Arc<AtomicU64>),
    /// Ask for none of them again.
    Enough,
}

/// A client in this process: submits what it is told, as room allows.
#[derive(Default)]
struct TestPort {
    waiting: VecDeque<Ask>,
    running: HashMap<u64, Ask>,
    next: u64,
    draining: bool,
    /// It is to go to another shard.
    resting: bool,
    locking: Option<Sender<()>>,
    /// It keeps the block that it locks, or has locked.
    keeping: bool,
    pages: Option<PageUse>,
    sizes: Option<Sender<u64>>,
    /// Counts the reads that are repeated.
    repeated: Option<Arc<AtomicU64>>,
}

impl TestPort {
    /// Whether this read, which has completed, was asked for again.
    fn again(&mut self, ask: &mut Option<Ask>) -> bool {
        let Some(repeated) = &self.repeated else { return false };
        if ask.as_ref().is_some_and(|ask| ask.op == Op::Read) {
            repeated.fetch_add(1, Ordering::Relaxed);
            self.waiting.extend(ask.take());
        }
        ask.is_none()
    }

    fn feed(&mut self, io: &mut dyn PortIo) {
        while !self.resting && io.room() > 0 {
            let Some(mut ask) = self.waiting.pop_front() else { break };
            let cookie = self.next;
            self.next += 1;
            let request =
                Request { op: ask.op, offset: ask.offset, len: ask.len, cookie, ioprio: 0 };
            let half = (ask.data.len() - ask.skew) / 2;
            let start = ask.data[ask.skew..].as_mut_ptr();
            let buffers = match (ask.op.moves_data(), half) {
                (false, _) => vec![],
                (true, 0..4096) => {
                    vec![libc::iovec { iov_base: start.cast(), iov_len: ask.data.len() - ask.skew }]
                }
                (true, _) => vec![
                    libc::iovec { iov_base: start.cast(), iov_len: half },
                    libc::iovec {
                        iov_base: start.wrapping_add(half).cast(),
                        iov_len: ask.data.len() - ask.skew - half,
                    },
                ],
            };
            // SAFETY: `running` keeps the data, which does not move, until the completion.
            unsafe { io.submit(request, &buffers) };
            self.running.insert(cookie, ask);
        }
    }
}

impl Port for TestPort {
    fn on_start(&mut self, _io: &mut dyn PortIo) {}
    fn on_event(&mut self, _io: &mut dyn PortIo, _event: PortEvent) {}
    fn on_command(&mut self, io: &mut dyn PortIo, command: PortCommand) {
        match *command.downcast::<Message>().unwrap() {
            Message::Ask(ask) => self.waiting.push_back(ask),
            Message::Scribble(with, answer) => {
                self.running.values_mut().for_each(|ask| ask.data.fill(with));
                let _ = answer.send(());
            }
            Message::Lock(offset, len, answer) => {
                self.locking = Some(answer);
                io.lock_block(offset, len);
            }
            Message::Keep(offset, len, answer) => {
                (self.locking, self.keeping) = (Some(answer), true);
                io.lock_block(offset, len);
            }
            Message::Unlock => {
                self.keeping = false;
                io.unlock_block();
            }
            Message::Pages(used) => self.pages = Some(used),
            Message::Sizes(tell) => self.sizes = Some(tell),
            Message::Repeat(reads, count) => {
                self.repeated = Some(count);
                for (offset, len) in reads {
                    let (answer, _) = channel();
                    let data = vec![0; len as usize];
                    self.waiting.push_back(Ask {
                        op: Op::Read,
                        offset,
                        len,
                        data,
                        skew: 0,
                        answer,
                    });
                }
            }
            Message::Enough => self.repeated = None,
            Message::GiveUp(answer) => {
                let held = io.held();
                let cookies: Vec<u64> = self.running.keys().copied().collect();
                io.give_up(&cookies);
                let _ = answer.send(held);
            }
            Message::TakeBack(answer) => {
                let mut newest_first: Vec<u64> = self.running.keys().copied().collect();
                newest_first.sort_unstable_by(|a, b| b.cmp(a));
                let count = io.take_back(&newest_first);
                newest_first[..count].iter().for_each(|cookie| _ = self.running.remove(cookie));
                let _ = answer.send(count);
                return;
            }
        }
        self.feed(io);
    }
    fn on_room(&mut self, io: &mut dyn PortIo) {
        self.feed(io);
    }
    fn on_complete(&mut self, io: &mut dyn PortIo, completion: Completion) {
        let mut ask = self.running.remove(&completion.cookie);
        if completion.result.is_err() || !self.again(&mut ask) {
            let mut ask = ask.unwrap();
            let data = ask.data.split_off(ask.skew);
            let _ = ask.answer.send((completion.result, data, completion.extents));
        }
        self.feed(io);
    }
    fn on_block_locked(&mut self, io: &mut dyn PortIo) {
        if let Some(answer) = self.locking.take() {
            let _ = answer.send(());
        }
        if !self.keeping {
            io.unlock_block();
        }
    }
    fn leave_pages(&mut self) -> PageUse {
        self.pages.unwrap_or(PageUse::None)
    }
    fn on_turn_end(&mut self, io: &mut dyn PortIo) {
        if self.draining && self.running.is_empty() {
            io.close();
        }
    }
    fn on_resize(&mut self, io: &mut dyn PortIo, info: &DiskInfo) {
        assert_eq!(io.disk().size, info.size);
        if let Some(sizes) = &self.sizes {
            let _ = sizes.send(info.size);
        }
    }
    fn come_to_rest(&mut self, _io: &mut dyn PortIo) -> Rest {
        self.resting = true;
        // Its requests are the shard's to wait for.
        if self.locking.is_none() && !self.keeping { Rest::Ready } else { Rest::Busy }
    }
    fn on_arrive(&mut self, io: &mut dyn PortIo) {
        self.resting = false;
        self.feed(io);
    }
    fn on_detach(&mut self, _io: &mut dyn PortIo, how: Detach) {
        self.draining |= how == Detach::Drain;
        self.waiting.clear();
    }
}

pub struct Client(pub PortRef);

impl Client {
    pub fn try_new(engine: &Engine, disk: DiskId) -> Result<Client, EngineError> {
        engine.attach(disk, |_| Box::new(TestPort::default())).map(Client)
    }

    pub fn new(engine: &Engine, disk: DiskId) -> Client {
        Client::try_new(engine, disk).unwrap()
    }

    pub fn start(
        &self,
        op: Op,
        offset: u64,
        len: u64,
        data: Vec<u8>,
        skew: usize,
    ) -> Receiver<Answer> {
        let (answer, wait) = channel();
        let mut padded = vec![0; skew];
        padded.extend(data);
        // A port that is gone drops the request, and with it the sender: the receiver tells.
        let _ = self.0.command(Box::new(Message::Ask(Ask {
            op,
            offset,
            len,
            data: padded,
            skew,
            answer,
        })));
        wait
    }

    pub fn run(&self, op: Op, offset: u64, len: u64) -> Answer {
        let data = if op.moves_data() { vec![0xee; len as usize] } else { vec![] };
        self.start(op, offset, len, data, 0).recv_timeout(PATIENCE).unwrap()
    }

    pub fn write(&self, offset: u64, data: &[u8], skew: usize) -> Result<(), IoError> {
        let op = Op::Write(Durability::Cached);
        self.start(op, offset, data.len() as u64, data.to_vec(), skew)
            .recv_timeout(PATIENCE)
            .unwrap()
            .0
    }

    pub fn read(&self, offset: u64, len: usize, skew: usize) -> Vec<u8> {
        let answer = self.start(Op::Read, offset, len as u64, vec![0xee; len], skew);
        let (result, data, _) = answer.recv_timeout(PATIENCE).unwrap();
        result.unwrap();
        data
    }
}

/// Directories for images: on a file system that is on a device, and on one in memory, where
/// transfers take another way.
pub fn places() -> Vec<tempfile::TempDir> {
    let mut places = vec![tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()];
    match tempfile::tempdir_in("/dev/shm") {
        Ok(dir) => places.push(dir),
        Err(e) => eprintln!("SKIPPED on a file system in memory: /dev/shm: {e}"),
    }
    places
}
