//! What is taken from the rings: as much as the disk has room for, queue by queue.

use super::judgement::{Judgement, judge};
use super::ring::Ring;
use super::{BlkPort, InFlight, Kind};
use headgate_engine::port::{PollMode, PortIo};
use headgate_engine::request as engine;
use headgate_vring::{Fetched, Segment};

/// Requests taken from one queue before the next queue's turn.
const TAKE_AT_ONCE: usize = 64;

/// Places in the disk's queue that are kept for each of several queues, and for all of them
/// together: however many requests one has, the scheduler sees some of each. A queue alone has all.
pub(super) const KEPT_EACH: usize = 8;
const KEPT_IN_ALL: usize = 64;

/// Requests answered without the engine before the shard's other ports have their turn: such
/// requests take no room, and a guest could offer them as fast as they are answered.
const ANSWERS_AT_ONCE: usize = 256;

/// Whether requests are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intake {
    Open,
    /// Not now: the port is to go to another shard.
    Resting,
    /// Not any more: the daemon drains the disk.
    Draining,
}

enum Taken {
    /// A request went down.
    Submitted,
    /// Something was answered here, or came just now: look again.
    Answered,
    Nothing(Visit),
}

/// What becomes of a ring after its turn.
enum Visit {
    /// It may hold more.
    Again,
    /// It holds something that must wait, for replays or for room.
    Waits,
    /// It is empty or closed; a kick, or enabling it, makes it ready again.
    Rests,
}

impl BlkPort {
    /// May requests be taken that no former process had taken.
    fn takes_new(&self) -> bool {
        self.awaited.is_empty()
            && self.replays_left == 0
            && self.replaying == 0
            && self.intake == Intake::Open
    }

    /// Takes requests while the disk has room and the rings have some, queue by queue.
    pub(super) fn pump(&mut self, io: &mut dyn PortIo) {
        let mut room = 0;
        let mut answers_left = ANSWERS_AT_ONCE;
        // Each ring is visited until it rests; one that must wait for others is left for a later
        // pump.
        let mut waiting = 0;
        while waiting < self.ready.len() {
            let Some(&index) = self.ready.front() else { return };
            if room == 0 {
                room = io.room();
                if room == 0 {
                    self.starved = true;
                    return;
                }
            }
            let mut left = self.share_of(io, index, room).min(TAKE_AT_ONCE);
            let outcome = loop {
                if left == 0 {
                    break if self.ring(index).is_some_and(|r| r.held) {
                        Visit::Waits
                    } else {
                        Visit::Again
                    };
                }
                match self.take_one(io, index) {
                    Taken::Submitted => {
                        room -= 1;
                        left -= 1;
                    }
                    Taken::Answered if answers_left == 0 => {
                        self.recall.signal();
                        return;
                    }
                    Taken::Answered => {
                        answers_left -= 1;
                        left -= 1;
                    }
                    Taken::Nothing(visit) => break visit,
                }
            };
            self.ready.pop_front();
            match outcome {
                Visit::Again => {
                    self.ready.push_back(index);
                    waiting = 0;
                }
                Visit::Waits => {
                    self.ready.push_back(index);
                    waiting += 1;
                }
                Visit::Rests => {
                    if let Some(ring) = self.ring(index) {
                        ring.ready = false;
                    }
                }
            }
        }
    }

    /// How much of the room a queue may use, so that the others have the places kept for them.
    fn share_of(&mut self, io: &mut dyn PortIo, index: u16, room: usize) -> usize {
        let rings =
            || self.rings.iter().enumerate().filter_map(|(i, ring)| Some((i, ring.as_ref()?)));
        let each = match rings().count() {
            0 | 1 => return room,
            many => KEPT_EACH.min(KEPT_IN_ALL / many),
        };
        let unused = |ring: &Ring| each.saturating_sub(ring.queue.in_flight());
        let others =
            rings().filter(|(i, _)| *i != usize::from(index)).map(|(_, ring)| unused(ring)).sum();
        let Some(ring) = self.ring(index) else { return room };
        let own = unused(ring).min(room);
        if own == 0 && ring.held {
            return 0;
        }
        let share = room.saturating_sub(others).max(own);
        // Calls back once there is more.
        ring.held = share == 0 && io.room_beside(others) == 0;
        share
    }

    fn take_one(&mut self, io: &mut dyn PortIo, index: u16) -> Taken {
        let takes_new = self.takes_new();
        let Some(ring) = self.rings.get_mut(usize::from(index)).and_then(Option::as_mut) else {
            return Taken::Nothing(Visit::Rests);
        };
        if !ring.may_take() || self.intake != Intake::Open {
            // Enabling marks it ready again, and so does another shard; a draining port does not
            // come back.
            return Taken::Nothing(Visit::Rests);
        }
        let (fetched, kind) = if ring.queue.replays_left() > 0 {
            let fetched = ring.queue.next_replay(&mut self.scratch);
            self.replays_left -= 1;
            (fetched, Kind::Replay)
        } else if takes_new {
            (ring.queue.next_request(&mut self.scratch), Kind::New)
        } else {
            return Taken::Nothing(Visit::Waits);
        };
        let request = match fetched {
            Ok(Some(Fetched::Request(request))) => request,
            Ok(Some(Fetched::Rejected(rejected))) => {
                tracing::debug!(disk = self.info.name, queue = index, error = %rejected.error, "bad request");
                ring.queue.complete(rejected.completion, rejected.error.status(), 0);
                self.mark_dirty(index);
                return Taken::Answered;
            }
            Ok(None) => {
                let mode = match self.sole_client.is_sole() {
                    true => io.poll_mode(),
                    false => PollMode::Events,
                };
                if mode != PollMode::Events {
                    ring.start_polling(mode);
                    return Taken::Nothing(Visit::Rests);
                }
                return if ring.arm_kick() {
                    Taken::Answered
                } else {
                    Taken::Nothing(Visit::Rests)
                };
            }
            Err(error) => {
                ring.breaks(&self.info.name, index, &error);
                // The rest of its replays is lost with it.
                self.count_replays();
                self.mark_dirty(index);
                return Taken::Nothing(Visit::Rests);
            }
        };
        match judge(&request, &self.info, ring.durability) {
            Judgement::Answer(status, written) => {
                ring.queue.complete(request.completion, status, written);
                self.mark_dirty(index);
                Taken::Answered
            }
            Judgement::Submit { op, offset, len, writes } => {
                let ioprio = u16::try_from(request.ioprio).unwrap_or(0);
                let data = request.data();
                let key = ring.key;
                let in_flight =
                    InFlight { queue: index, key, completion: request.completion, writes, kind };
                let cookie = self.requests.insert(in_flight) as u64;
                if kind == Kind::Replay {
                    self.replaying += 1;
                }
                let down = engine::Request { op, offset: offset.0, len: len.0, cookie, ioprio };
                // SAFETY: the segments lie in the guest memory that `completion` keeps mapped, and
                // the completion stays in `requests` until the request is back or the port is
                // dropped.
                unsafe { io.submit(down, Segment::as_iovecs(data)) };
                Taken::Submitted
            }
        }
    }
}
