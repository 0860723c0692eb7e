//! A device in this process that dies again and again with its oldest request unanswered, so that
//! completions are out of order, and comes back with its in-flight region, or without looking at
//! it.

use super::SharedMemory;
use crate::args::LoadArgs;
use crate::control::Control;
use crate::report::Report;
use crate::start::run_with;
use clap::Parser;
use headgate_vring::blk::{Status, feature};
use headgate_vring::memory::{RegionHint, Segment};
use headgate_vring::{
    Completion, DeviceQueue, Fetched, GuestAddress, GuestMemory, HostMapping, InflightRegion,
    Operation, QueueFeatures, QueueLayout, Region, Scratch,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

const SIZE: usize = 1 << 20;
const QUEUE: u16 = 128;
/// Requests that a life completes.
const FUSE: u64 = 400;
/// Completions before one request is held. The check after a reconnect takes fewer, and it waits
/// for every one.
const HOLD_AFTER: u64 = 300;
const PROTOCOL_FEATURES: u64 = 1 << 30;
/// MQ, REPLY_ACK, CONFIG and INFLIGHT_SHMFD.
const PROTOCOL: u64 = 1 | 1 << 3 | 1 << 9 | 1 << 12;
const FEATURES: u64 = feature::VERSION_1
    | PROTOCOL_FEATURES
    | feature::FLUSH
    | feature::WRITE_ZEROES
    | feature::RING_INDIRECT_DESC
    | feature::RING_EVENT_IDX;

/// What the device does with what was in flight when it died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Revival {
    /// Takes it from the in-flight region and carries it out.
    Replays,
    /// Offers such a region and ignores it.
    Forgets,
}

/// Everything that ends with the connection.
#[derive(Default)]
struct Life {
    mapping: Option<Arc<SharedMemory>>,
    user_base: u64,
    size: u16,
    base: u16,
    layout: Option<QueueLayout>,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    inflight: Option<Arc<SharedMemory>>,
    queue: Option<DeviceQueue>,
    held: Option<(Completion, Todo)>,
    completed: u64,
}

/// A request without its borrowed buffers: guest addresses instead.
struct Todo {
    operation: Operation,
    buffers: Vec<(u64, usize)>,
}

struct Device {
    disk: Vec<u8>,
    revival: Revival,
    /// Requests that a life completes.
    fuse: Option<u64>,
    /// How often each IO priority was seen.
    priorities: BTreeMap<u32, u64>,
}

struct Message {
    request: u32,
    flags: u32,
    payload: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Message {
    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.payload[at..at + 8].try_into().unwrap())
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// `None`: the other side hung up.
fn receive(socket: &mut UnixStream) -> Option<Message> {
    let mut head = [0; 12];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got =
        recvmsg(&*socket, &mut [IoSliceMut::new(&mut head)], &mut ancillary, RecvFlags::empty())
            .ok()?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    socket.read_exact(&mut head[got.bytes..]).ok()?;
    let word = |i: usize| u32::from_ne_bytes(head[i..i + 4].try_into().unwrap());
    let mut payload = vec![0; word(8) as usize];
    socket.read_exact(&mut payload).ok()?;
    Some(Message { request: word(0), flags: word(4), payload, fds })
}

fn reply(socket: &UnixStream, request: u32, payload: &[u8], fd: Option<&SharedMemory>) {
    let mut bytes: Vec<u8> =
        [request, 1 | 4, payload.len() as u32].iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(payload);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(AsFd::as_fd);
    if let Some(fd) = &fds {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(fd))));
    }
    // The other side may be gone, which the next receive finds out.
    let _ = sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL);
}

impl Device {
    /// Serves one connection. Answers whether the device died of its fuse.
    fn live(&mut self, mut socket: UnixStream) -> bool {
        let mut life = Life::default();
        loop {
            let kicked = {
                let mut fds = vec![PollFd::new(&socket, PollFlags::IN)];
                if let (Some(kick), Some(_)) = (&life.kick, &life.queue) {
                    fds.push(PollFd::new(kick, PollFlags::IN));
                }
                poll(&mut fds, None).unwrap();
                if !fds[0].revents().is_empty() { None } else { Some(()) }
            };
            match kicked {
                None => {
                    let Some(message) = receive(&mut socket) else { return false };
                    self.handle(&socket, &mut life, message);
                }
                Some(()) => {
                    let _ = rustix::io::read(life.kick.as_ref().unwrap(), &mut [0; 8]);
                    self.pump(&mut life);
                }
            }
            if self.fuse.is_some_and(|fuse| life.completed >= fuse) {
                return true;
            }
        }
    }

    fn handle(&self, socket: &UnixStream, life: &mut Life, mut message: Message) {
        let guest = |life: &Life, address: u64| GuestAddress(address - life.user_base);
        let mut answer = None;
        match message.request {
            1 => answer = Some(FEATURES.to_ne_bytes().to_vec()),
            15 => answer = Some(PROTOCOL.to_ne_bytes().to_vec()),
            17 => answer = Some(1u64.to_ne_bytes().to_vec()),
            24 => {
                let mut config = message.payload.clone();
                config[12..20].copy_from_slice(&(SIZE as u64 / 512).to_le_bytes());
                answer = Some(config);
            }
            5 => {
                life.user_base = message.u64(24);
                let len = message.u64(16) as usize;
                life.mapping =
                    Some(Arc::new(SharedMemory::map(message.fds.remove(0), len).unwrap()));
            }
            8 => life.size = message.u32(4) as u16,
            9 => {
                life.layout = Some(QueueLayout {
                    size: life.size,
                    descriptors: guest(life, message.u64(8)),
                    used: guest(life, message.u64(16)),
                    available: guest(life, message.u64(24)),
                });
            }
            10 => life.base = message.u32(4) as u16,
            11 => {
                life.queue = None;
                answer = Some(message.payload.clone());
            }
            12 => life.kick = message.fds.pop(),
            13 => life.call = message.fds.pop(),
            18 => self.start(life),
            31 => {
                let len = InflightRegion::bytes(QUEUE);
                let region = SharedMemory::new(len).unwrap();
                let mut shape = (len as u64).to_ne_bytes().to_vec();
                shape.extend(&message.payload[8..]);
                reply(socket, 31, &shape, Some(&region));
                return;
            }
            32 => {
                let len = message.u64(0) as usize;
                life.inflight =
                    Some(Arc::new(SharedMemory::map(message.fds.remove(0), len).unwrap()));
            }
            _ => {}
        }
        match answer {
            Some(payload) => reply(socket, message.request, &payload, None),
            None if message.flags & 8 != 0 => {
                reply(socket, message.request, &0u64.to_ne_bytes(), None)
            }
            None => {}
        }
    }

    fn start(&self, life: &mut Life) {
        let mapping = Arc::clone(life.mapping.as_ref().unwrap()) as Arc<dyn HostMapping>;
        let memory =
            GuestMemory::new(vec![Region::new(GuestAddress(0), mapping).unwrap()]).unwrap();
        let region =
            life.inflight.as_ref().filter(|_| self.revival == Revival::Replays).map(|shared| {
                InflightRegion::new(Arc::clone(shared) as Arc<dyn HostMapping>, 0, QUEUE).unwrap()
            });
        let features = QueueFeatures::from_bits(FEATURES);
        let layout = life.layout.unwrap();
        life.queue = Some(
            DeviceQueue::start(Arc::new(memory), &layout, features, life.base, region).unwrap(),
        );
    }

    /// Takes what there is and completes it, newest first, but for one that is held until death.
    fn pump(&mut self, life: &mut Life) {
        let Some(queue) = &mut life.queue else { return };
        let base = life.mapping.as_ref().unwrap().base().as_ptr().addr();
        let mut scratch = Scratch::default();
        let mut batch = Vec::new();
        loop {
            let fetched = match queue.next_replay(&mut scratch) {
                Ok(None) => queue.next_request(&mut scratch),
                replay => replay,
            };
            match fetched {
                Ok(Some(Fetched::Request(request))) => {
                    *self.priorities.entry(request.ioprio).or_default() += 1;
                    let buffers = Segment::as_iovecs(request.data())
                        .iter()
                        .map(|iovec| ((iovec.iov_base.addr() - base) as u64, iovec.iov_len))
                        .collect();
                    batch
                        .push((request.completion, Todo { operation: request.operation, buffers }));
                }
                Ok(Some(Fetched::Rejected(rejected))) => {
                    queue.complete(rejected.completion, rejected.error.status(), 0);
                }
                Ok(None) => match queue.enable_kicks() {
                    headgate_vring::Kicks::MissedSome => {}
                    headgate_vring::Kicks::Armed => break,
                },
                // A device that forgot what it had taken finds its ring in disorder, and gives up.
                Err(_) => break,
            }
        }
        if life.held.is_none()
            && !batch.is_empty()
            && self.fuse.is_some()
            && life.completed >= HOLD_AFTER
        {
            life.held = Some(batch.remove(0));
        }
        for (completion, todo) in batch.into_iter().rev() {
            let written = carry_out(&mut self.disk, completion.memory(), &todo);
            queue.complete(completion, Status::Ok, written);
            life.completed += 1;
        }
        queue.publish();
        if queue.needs_call()
            && let Some(call) = &life.call
        {
            let _ = rustix::io::write(call, &1u64.to_ne_bytes());
        }
    }
}

fn carry_out(disk: &mut [u8], memory: &GuestMemory, todo: &Todo) -> u32 {
    let mut hint = RegionHint::default();
    let mut written = 0;
    match todo.operation {
        Operation::Read { offset, .. } | Operation::Write { offset, .. } => {
            let mut at = offset.0 as usize;
            for (address, len) in &todo.buffers {
                let part = &mut disk[at..at + len];
                if matches!(todo.operation, Operation::Read { .. }) {
                    memory.write(GuestAddress(*address), part).unwrap();
                    written += *len as u32;
                } else {
                    memory.read(GuestAddress(*address), part, &mut hint).unwrap();
                }
                at += len;
            }
        }
        Operation::WriteZeroes { offset, len, .. } => {
            disk[offset.0 as usize..(offset.0 + len.0) as usize].fill(0);
        }
        _ => {}
    }
    written
}

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    load: LoadArgs,
}

/// A verified load on a device that dies `deaths` times.
fn load(dir: &Path, revival: Revival, deaths: u64, more: &str) -> (Report, BTreeMap<u32, u64>) {
    let socket = dir.join("device.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let serve = move || {
        let mut device =
            Device { disk: vec![0; SIZE], revival, fuse: Some(FUSE), priorities: BTreeMap::new() };
        let mut died = 0;
        loop {
            let (socket, _) = listener.accept().unwrap();
            if died == deaths {
                device.fuse = None;
            }
            if device.live(socket) {
                died += 1;
            } else {
                return device.priorities;
            }
        }
    };
    std::thread::scope(|scope| {
        let device = scope.spawn(serve);
        let fixed = "--verify --read-percent 40 --write-zeroes-percent 10 --flush-every 10 --depth 8 --timeout 2";
        let words = ["load", socket.to_str().unwrap()].into_iter();
        let words = words.chain(fixed.split(' ')).chain(more.split_whitespace());
        let report = run_with(&Cli::parse_from(words).load, &Control::default()).unwrap();
        // A load that gave up leaves the device waiting for another front-end.
        drop(UnixStream::connect(&socket));
        (report, device.join().unwrap())
    })
}

#[test]
fn requests_in_flight_outlive_the_device_and_are_answered_by_the_next_one() {
    for form in ["", "--direct-descriptors", "--spin"] {
        let dir = tempfile::tempdir().unwrap();
        let (report, _) =
            load(dir.path(), Revival::Replays, 10, &format!("--ios 5000 --reconnect 10 {form}"));
        assert_eq!(report.exit_code(), 0, "'{form}': {report}");
        assert_eq!(report.targets[0].reconnects, 10, "'{form}': {report}");
        // Nothing is lost: every request sent was answered.
        assert_eq!(report.total.ios, 5000, "'{form}': {report}");
    }
}

#[test]
fn streams_keep_their_part_of_the_depth_and_are_reported_apart() {
    let dir = tempfile::tempdir().unwrap();
    let (report, seen) =
        load(dir.path(), Revival::Replays, 0, "--ios 2000 --streams --priority rt/0:6,idle:2");
    let streams = &report.targets[0].streams;
    let names: Vec<&str> = streams.iter().map(|s| s.priority.as_str()).collect();
    assert_eq!(names, ["0x2000", "0x6000"]);
    assert_eq!(streams.iter().map(|s| s.all.ios).sum::<u64>(), 2000);
    assert!(streams[0].all.ios > streams[1].all.ios && streams[1].all.ios > 100, "{streams:?}");
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[test]
fn every_request_carries_a_priority_in_the_proportions_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (report, seen) =
        load(dir.path(), Revival::Replays, 0, "--ios 2000 --priority rt/2:75,0x4009:25");
    assert_eq!(report.exit_code(), 0, "{report}");
    let count = |priority: u32| seen.get(&priority).copied().unwrap_or(0);
    assert!(count(0x2002) > 1400 && count(0x4009) > 400, "{seen:?}");
    // The reads of the check in the end have none.
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), [0, 0x2002, 0x4009]);
    assert_eq!(count(0x2002) + count(0x4009), 2000);
}

#[test]
fn a_device_that_forgets_what_was_in_flight_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let (report, _) = load(dir.path(), Revival::Forgets, 3, "--ios 5000 --reconnect 10");
    assert_eq!(report.exit_code(), 1, "{report}");
    let failure = report.targets[0].failure.as_deref().unwrap_or_default();
    assert!(failure.contains("not in flight") || failure.contains("neither answers"), "{report}");
}
