//! The data path of one front-end: a [`Port`] in its disk's shard.
//!
//! Kicks come as readiness of eventfds from the shard's ring; requests go down with their buffers
//! where they lie in guest memory; completions are written to the used rings and published once per
//! turn.

mod alarm;
mod event;
mod holding;
mod intake;
mod judgement;
mod keys;
mod rest;
mod ring;
mod stopping;
#[cfg(test)]
mod tests;

pub(crate) use event::{BadEvent, Kick, Recall, Signal, Trust};
pub(crate) use ring::{Enabled, MovedRing, NewRing};

use super::config::MAX_QUEUES;
use super::view::View;
use headgate_engine::port::{Detach, PollResult, Port, PortCommand, PortEvent, PortIo, Rest};
use headgate_engine::request::{self as engine, DiskInfo};
use headgate_engine::sole_client::SoleClient;
use headgate_vring::blk::Status;
use headgate_vring::{Completion, GuestMemory, Scratch};
use intake::Intake;
use judgement::status_of;
use keys::{RECALL_KEY, next_generation, poll_key, queue_of};
use ring::{Phase, Ring};
use slab::Slab;
use std::collections::{BTreeSet, VecDeque};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// What the control thread tells its port.
pub(crate) enum Command {
    /// A ring was set up and kicked off.
    Start(Box<NewRing>),
    /// `SET_VRING_ENABLE` on a started ring.
    Enable(u16, Enabled),
    /// `SET_VRING_CALL` on a started ring.
    Call(u16, Option<Signal>),
    /// `SET_VRING_ERR` on a started ring.
    Error(u16, Option<Signal>),
    /// Stop a ring: the answer is its position in the available ring, sent when nothing of it is in
    /// flight. A ring that does not run drops the sender.
    Stop(u16, SyncSender<u16>),
    /// A new memory table, and where the started rings lie in it. The answer is the queues whose
    /// rings do not.
    Memory(Arc<GuestMemory>, Vec<MovedRing>, SyncSender<Vec<u16>>),
    /// These queues, and no others, hold requests of a former process: take nothing new before they
    /// were started and replayed, or stopped.
    ExpectReplays(Vec<u16>),
}

/// A request at the engine.
struct InFlight {
    queue: u16,
    /// The ring it came from: a ring at the same index started later has another.
    key: u32,
    /// Keeps the buffers' memory mapped.
    completion: Completion,
    /// Bytes that success writes into guest memory.
    writes: u32,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    New,
    Replay,
}

/// The data path of one connection. See the module's documentation.
pub(crate) struct BlkPort {
    info: DiskInfo,
    /// The front-end's view of `info`.
    view: Arc<View>,
    /// By queue index, up to the highest started.
    rings: Vec<Option<Ring>>,
    requests: Slab<InFlight>,
    scratch: Scratch,
    /// Rings that may hold requests, in the order of their turns.
    ready: VecDeque<u16>,
    /// Rings with completions to publish.
    dirty: Vec<u16>,
    /// Waits for `on_room`.
    starved: bool,
    /// Number of the ring started last, see [`next_generation`].
    generation: u32,
    /// Queues not started yet whose requests must be replayed first.
    awaited: BTreeSet<u16>,
    /// Replays not handed to the engine yet, and those not completed yet.
    replays_left: usize,
    replaying: usize,
    intake: Intake,
    /// Which ring had requests: one that is alone may be polled instead of kicked.
    sole_client: SoleClient,
    /// Brings the port back after it left its turn to others.
    recall: Recall,
    /// The connection, to be cut when the port ends.
    peer: UnixStream,
}

impl Drop for BlkPort {
    fn drop(&mut self) {
        // Wakes the control thread if it does not know yet. A socket that is closed already is as
        // good.
        let _ = self.peer.shutdown(Shutdown::Both);
    }
}

impl BlkPort {
    /// The port of the connection `peer`.
    pub(crate) fn new(
        info: &DiskInfo,
        view: Arc<View>,
        recall: Recall,
        peer: UnixStream,
    ) -> BlkPort {
        // It may have changed since the view was made.
        view.change(info);
        BlkPort {
            info: info.clone(),
            view,
            rings: Vec::new(),
            requests: Slab::new(),
            scratch: Scratch::default(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            starved: false,
            generation: 0,
            awaited: BTreeSet::new(),
            replays_left: 0,
            replaying: 0,
            intake: Intake::Open,
            sole_client: SoleClient::default(),
            recall,
            peer,
        }
    }

    fn ring(&mut self, index: u16) -> Option<&mut Ring> {
        self.rings.get_mut(usize::from(index)).and_then(Option::as_mut)
    }

    fn mark_ready(&mut self, index: u16) {
        let Some(ring) = self.ring(index) else { return };
        if !std::mem::replace(&mut ring.ready, true) {
            self.ready.push_back(index);
        }
    }

    /// A ring has requests: an event or a poll found them.
    fn wake(&mut self, index: u16) {
        self.sole_client.after_turn(&[u32::from(index)]);
        if let Some(ring) = self.ring(index) {
            ring.polled = false;
            ring.on_shown();
        }
        self.mark_ready(index);
    }

    fn mark_dirty(&mut self, index: u16) {
        let Some(ring) = self.ring(index) else { return };
        if !std::mem::replace(&mut ring.dirty, true) {
            self.dirty.push(index);
        }
    }

    fn start(&mut self, io: &mut dyn PortIo, new: NewRing) {
        let index = new.index;
        debug_assert!(index < MAX_QUEUES, "the control thread checks indices");
        self.remove(io, index);
        self.generation = next_generation(self.generation);
        let key = poll_key(index, self.generation);
        let ring = Ring::new(new, key);
        io.poll_readable(ring.kick.raw(), key);
        let place = usize::from(index);
        if self.rings.len() <= place {
            self.rings.resize_with(place + 1, || None);
        }
        self.rings[place] = Some(ring);
        self.awaited.remove(&index);
        self.count_replays();
        // What came before the poll brought no event, and a predecessor may have published without
        // calling.
        self.mark_ready(index);
        self.mark_dirty(index);
    }

    /// Forgets a ring. Requests of it that are still in flight end without an answer.
    fn remove(&mut self, io: &mut dyn PortIo, index: u16) {
        let Some(ring) = self.rings.get_mut(usize::from(index)).and_then(Option::take) else {
            return;
        };
        io.cancel(ring.key);
        self.count_replays();
        self.ready.retain(|r| *r != index);
        self.dirty.retain(|r| *r != index);
    }

    fn count_replays(&mut self) {
        self.replays_left = self.rings.iter().flatten().map(|r| r.queue.replays_left()).sum();
    }

    /// Publishes what was completed, and lets stopping rings go that waited for that.
    fn settle(&mut self, io: &mut dyn PortIo) {
        let mut dirty = std::mem::take(&mut self.dirty);
        let is_open = self.intake == Intake::Open;
        for index in dirty.drain(..) {
            if let Some(ring) = self.ring(index) {
                ring.dirty = false;
                if ring.polled && is_open && matches!(ring.phase, Phase::Running) {
                    ring.publish();
                } else {
                    ring.publish_all();
                }
                if let Phase::Stopping(answer) = &ring.phase
                    && ring.queue.in_flight() == 0
                {
                    // A control thread that is gone wants no answer.
                    let _ = answer.try_send(ring.queue.next_available());
                    self.remove(io, index);
                }
            }
        }
        self.dirty = dirty;
    }

    /// Nothing new is taken, and nothing kept back.
    fn drain(&mut self) {
        self.intake = Intake::Draining;
        for index in 0..self.rings.len() as u16 {
            if self.ring(index).is_some_and(|ring| ring.owes()) {
                self.mark_dirty(index);
            }
        }
    }

    fn set_memory(&mut self, memory: &Arc<GuestMemory>, moved: &[MovedRing]) -> Vec<u16> {
        let mut lost = Vec::new();
        for MovedRing { index, layout } in moved {
            if let Some(ring) = self.ring(*index)
                && ring.queue.set_memory(Arc::clone(memory), layout).is_err()
            {
                ring.phase = Phase::Broken;
                lost.push(*index);
            }
        }
        lost
    }
}

impl Port for BlkPort {
    fn on_start(&mut self, io: &mut dyn PortIo) {
        io.poll_readable(self.recall.raw(), RECALL_KEY);
    }

    fn on_event(&mut self, io: &mut dyn PortIo, event: PortEvent) {
        if event.key == RECALL_KEY {
            // What was left is still in the list of ready rings: the end of the turn looks there.
            if event.result >= 0 && !event.more && self.intake != Intake::Resting {
                io.poll_readable(self.recall.raw(), RECALL_KEY);
            }
            return;
        }
        let index = queue_of(event.key);
        let is_resting = self.intake == Intake::Resting;
        let Some(ring) = self.ring(index).filter(|r| r.key == event.key && !is_resting) else {
            // The ring is gone; this is the last of its poll. Or the ring is looked at when the
            // port has arrived.
            return;
        };
        if event.result < 0 {
            let error = std::io::Error::from_raw_os_error(-event.result);
            tracing::warn!(disk = self.info.name, queue = index, %error, "cannot wait for the guest's kicks");
            return;
        }
        if !event.more {
            io.poll_readable(ring.kick.raw(), ring.key);
        }
        self.wake(index);
        if !self.starved {
            self.pump(io);
        }
    }

    fn poll(&self) -> PollResult {
        if self.rings.iter().flatten().any(Ring::has_news) {
            PollResult::Ready
        } else {
            PollResult::Idle
        }
    }

    fn on_poll(&mut self, io: &mut dyn PortIo) {
        for index in 0..self.rings.len() as u16 {
            let Some(ring) = self.ring(index).filter(|ring| ring.has_news()) else { continue };
            if ring.queue.has_new() {
                self.wake(index);
            } else {
                ring.on_shown();
            }
        }
        if !self.starved {
            self.pump(io);
        }
    }

    fn disarm_poll(&mut self) -> PollResult {
        let mut result = PollResult::Idle;
        for index in 0..self.rings.len() as u16 {
            let Some(ring) = self.ring(index).filter(|ring| ring.polled) else { continue };
            ring.polled = false;
            ring.publish_all();
            if ring.arm_kick() {
                self.mark_ready(index);
                result = PollResult::Ready;
            }
        }
        result
    }

    fn on_command(&mut self, io: &mut dyn PortIo, command: PortCommand) {
        let Ok(command) = command.downcast::<Command>() else { return };
        match *command {
            Command::Start(new) => self.start(io, *new),
            Command::Enable(index, enabled) => {
                if let Some(ring) = self.ring(index) {
                    ring.enabled = enabled;
                    self.mark_ready(index);
                }
            }
            Command::Call(index, call) => {
                if let Some(ring) = self.ring(index) {
                    ring.call = call;
                    // Calls made while there was no descriptor, or another one, may be lost.
                    if let Some(call) = &mut ring.call {
                        call.signal();
                    }
                }
            }
            Command::Error(index, error) => {
                if let Some(ring) = self.ring(index) {
                    ring.error = error;
                }
            }
            Command::Stop(index, answer) => self.stop(io, index, answer),
            Command::Memory(memory, moved, answer) => {
                let lost = self.set_memory(&memory, &moved);
                let _ = answer.try_send(lost);
            }
            Command::ExpectReplays(queues) => self.awaited = queues.into_iter().collect(),
        }
    }

    fn come_to_rest(&mut self, io: &mut dyn PortIo) -> Rest {
        self.rest(io)
    }

    fn on_arrive(&mut self, io: &mut dyn PortIo) {
        self.arrive(io);
    }

    fn on_room(&mut self, io: &mut dyn PortIo) {
        self.starved = false;
        self.rings.iter_mut().flatten().for_each(|ring| ring.held = false);
        self.pump(io);
    }

    fn on_complete(&mut self, _io: &mut dyn PortIo, done: engine::Completion) {
        let Some(request) =
            usize::try_from(done.cookie).ok().and_then(|key| self.requests.try_remove(key))
        else {
            return;
        };
        if request.kind == Kind::Replay {
            self.replaying -= 1;
        }
        let Some(status) = status_of(done.result) else { return };
        let written = if status == Status::Ok { request.writes } else { 0 };
        if let Some(ring) = self.ring(request.queue)
            && ring.key == request.key
        {
            ring.finish(request.completion, status, written);
            self.mark_dirty(request.queue);
        }
    }

    fn on_held(&mut self, io: &mut dyn PortIo) {
        self.let_go_of_held(io);
    }

    fn on_turn_end(&mut self, io: &mut dyn PortIo) {
        if !self.starved && !self.ready.is_empty() {
            self.pump(io);
        }
        self.settle(io);
        // What the disk holds is not waited for, nor answered: a successor replays it.
        if self.intake == Intake::Draining && self.requests.len() == io.held() {
            io.close();
        }
    }

    fn on_resize(&mut self, _io: &mut dyn PortIo, info: &DiskInfo) {
        self.info = info.clone();
        self.view.change(info);
    }

    fn on_detach(&mut self, io: &mut dyn PortIo, how: Detach) {
        match how {
            Detach::Drain => self.drain(),
            Detach::Now => {
                self.drain();
                self.settle(io);
                io.close();
            }
        }
    }
}
