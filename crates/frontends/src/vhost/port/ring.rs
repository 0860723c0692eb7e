//! One virtqueue inside its shard: the rings, and the event descriptors of both sides.

use super::event::{Kick, Signal};
use super::holding::{Driver, Holding, Shown};
use headgate_engine::port::PollMode;
use headgate_vring::blk::Status;
use headgate_vring::{Completion, DeviceQueue, Kicks, QueueError, QueueLayout};
use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;

/// May requests be taken from a started ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enabled {
    /// Yes.
    Yes,
    /// Not now.
    No,
}

/// A ring as the control thread hands it over.
pub(crate) struct NewRing {
    pub index: u16,
    pub queue: DeviceQueue,
    pub enabled: Enabled,
    /// Without a negotiated flush, every write is durable when it completes (VIRTIO 1.2, section
    /// 5.2.6.2).
    pub durability: headgate_engine::request::Durability,
    pub kick: Kick,
    pub call: Option<Signal>,
    pub error: Option<Signal>,
}

/// Where a ring is in its life.
pub(super) enum Phase {
    Running,
    /// Takes nothing new; answers with the ring's position once nothing is in flight.
    Stopping(SyncSender<u16>),
    /// The driver broke its rings: nothing can be taken any more.
    Broken,
}

pub(super) struct Ring {
    pub queue: DeviceQueue,
    pub enabled: Enabled,
    pub durability: headgate_engine::request::Durability,
    pub kick: Kick,
    pub call: Option<Signal>,
    pub error: Option<Signal>,
    /// Key of its poll in the shard's ring; differs from every earlier ring's at the same index.
    pub key: u32,
    pub phase: Phase,
    /// In the list of rings that may hold requests.
    pub ready: bool,
    /// Waits for more room than is kept for other rings.
    pub held: bool,
    /// In the list of rings whose completions are to be published.
    pub dirty: bool,
    /// Empty, and the shard polls it: no kick was asked for.
    pub polled: bool,
    /// Finished while the ring was polled, not given back yet.
    answers: VecDeque<Answer>,
    holding: Holding,
    /// Whether answers may be held back now.
    may_hold: bool,
}

/// What the driver is to be told of a request.
struct Answer {
    completion: Completion,
    status: Status,
    written: u32,
}

impl Ring {
    pub(super) fn new(new: NewRing, key: u32) -> Ring {
        let NewRing { index: _, queue, enabled, durability, kick, call, error } = new;
        Ring {
            queue,
            enabled,
            durability,
            kick,
            call,
            error,
            key,
            phase: Phase::Running,
            ready: false,
            held: false,
            dirty: false,
            polled: false,
            answers: VecDeque::new(),
            holding: Holding::new(),
            may_hold: false,
        }
    }

    pub(super) fn may_take(&self) -> bool {
        matches!(self.phase, Phase::Running) && self.enabled == Enabled::Yes
    }

    /// A request is finished; the driver hears of it by [`publish`](Self::publish).
    pub(super) fn finish(&mut self, completion: Completion, status: Status, written: u32) {
        if self.polled {
            self.answers.push_back(Answer { completion, status, written });
        } else {
            self.queue.complete(completion, status, written);
        }
    }

    /// Are there answers that were not given back?
    pub(super) fn owes(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Publishes the answers that are due and calls the driver if it wants that.
    pub(super) fn publish(&mut self) {
        if !self.may_hold {
            return self.publish_all();
        }
        let driver = if self.queue.is_armed() { Driver::Armed } else { Driver::Awake };
        let due = self.holding.due(self.answers.len(), self.queue.in_flight(), driver);
        self.give(due);
    }

    /// Publishes all answers.
    pub(super) fn publish_all(&mut self) {
        self.holding.stop();
        self.give(self.answers.len());
    }

    /// Whether the driver has done something that the port must handle.
    pub(super) fn has_news(&self) -> bool {
        self.polled && (self.queue.has_new() || self.holding.is_on() && self.queue.is_armed())
    }

    /// The driver showed itself: it gets what was kept back.
    pub(super) fn on_shown(&mut self) {
        if self.holding.is_on() {
            let how = if self.queue.has_new() { Shown::Offers } else { Shown::Waits };
            self.holding.shown(how, self.answers.len());
        }
        if self.owes() {
            self.give(self.answers.len());
        }
    }

    /// The shard polls this ring from now on: the driver need not kick.
    pub(super) fn start_polling(&mut self, mode: PollMode) {
        self.queue.disable_kicks();
        self.polled = true;
        self.may_hold = mode == PollMode::Held;
    }

    fn give(&mut self, count: usize) {
        for Answer { completion, status, written } in self.answers.drain(..count) {
            self.queue.complete(completion, status, written);
        }
        self.queue.publish();
        if self.queue.needs_call()
            && let Some(call) = &mut self.call
        {
            call.signal();
        }
    }

    /// Asks for a kick, as the ring is empty. `true`: something came meanwhile.
    pub(super) fn arm_kick(&mut self) -> bool {
        self.queue.enable_kicks() == Kicks::MissedSome
    }

    pub(super) fn breaks(&mut self, disk: &str, index: u16, error: &QueueError) {
        tracing::warn!(disk, queue = index, %error, "the guest's driver broke its queue; it must reset the device");
        if let Some(error) = &mut self.error {
            error.signal();
        }
        if matches!(self.phase, Phase::Running) {
            self.phase = Phase::Broken;
        }
    }
}

/// Where a ring lies after the memory table changed.
pub(crate) struct MovedRing {
    pub index: u16,
    pub layout: QueueLayout,
}
