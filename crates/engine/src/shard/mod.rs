//! A shard: one thread, one ring, whole datastores.
//!
//! Each turn of the loop: completions and events, commands, then for every datastore what its scheduler and window allow, then the
//! ends of turns (used rings published, replies sent), and one system call that submits all of it and waits.
//! Nothing here is shared or locked; other threads send closures through the [`Mailbox`].

mod bounce;
mod disk;
mod elevator;
mod inline;
mod io;
mod link;
mod mailbox;
mod ports;
mod ring;
mod room;
mod slots;
mod spin;
mod streams;
mod watch;
mod worker;

use crate::clock;
use crate::company::Company;
use crate::port::{Port, PortEvent};
use crate::request::{Completion, Op};
use disk::{Datastore, Disk};
use headgate_qos::Scheduler as _;
use headgate_units::Nanos;
use ports::{Io, PortState};
use ring::{Event, Owner, Ring, Wait};
use slab::Slab;
use slots::{Slots, Stage};
use spin::Spin;
use std::sync::mpsc::Receiver;
use worker::Worker;

pub(crate) use control::AttachedPort;
pub(crate) use disk::Backend;
pub use mailbox::ShardGone;
pub(crate) use mailbox::{Command, Mailbox};

mod control;

/// Everything of a shard but the ports themselves, so that a port can be called with it.
pub(crate) struct Core {
    now: Nanos,
    ring: Ring,
    mailbox: Mailbox,
    worker: Worker,
    slots: Slots,
    disks: Slab<Disk>,
    datastores: Slab<Datastore>,
    port_states: Slab<PortState>,
    next_generation: u32,
    /// The most that the host's elevator may be asked for.
    elevator: headgate_qos::ioprio::Ceiling,
    /// Requests that have ended and whose ports do not know yet.
    completed: Vec<u32>,
    /// Ports called in this turn.
    touched: Vec<u32>,
    /// Ports that wait for room.
    starved: Vec<u32>,
    /// Ports that are closing.
    ending: Vec<u32>,
    spare_bounces: Vec<bounce::Bounce>,
    links: link::Links,
    /// Bytes that may still be moved on this thread before the turn ends.
    turn_bytes: i64,
    /// The shard waits awake.
    awake: bool,
    company: Company,
    watched: watch::Watched,
}

/// The state of a shard's thread.
pub(crate) struct Shard {
    core: Core,
    ports: Vec<Option<Box<dyn Port>>>,
    spin: Spin,
    inbox: Receiver<Command>,
    stopping: bool,
}

/// How often a turn goes back for more before it publishes what it has: work that finishes at once (a null backend, a
/// cached page) would otherwise keep replies waiting.
const ROUNDS_PER_TURN: usize = 4;
/// How much a turn moves itself (a null backend, an image in memory) before it publishes: a client that has its first answers
/// works on them while the shard works on the rest. Measured: of 32 reads of 4 KiB, eight at a time make twice the
/// throughput of all at once.
const BYTES_PER_TURN: i64 = 32 << 10;

impl Shard {
    pub(crate) fn new(name: &str, mailbox: Mailbox, inbox: Receiver<Command>) -> std::io::Result<Shard> {
        let mut ring = Ring::new()?;
        let elevator = elevator::probe(&mut ring);
        let bell = io_uring::opcode::PollAdd::new(io_uring::types::Fd(mailbox.bell()), libc::POLLIN as u32);
        // SAFETY: the entry names no memory.
        unsafe { ring.push(bell.multi(true).build(), Owner::Wake) };
        let core = Core {
            now: clock::now(),
            ring,
            mailbox,
            worker: Worker::start(&format!("{name}-fs"))?,
            slots: Slots::default(),
            disks: Slab::new(),
            datastores: Slab::new(),
            port_states: Slab::new(),
            next_generation: 0,
            elevator,
            completed: Vec::new(),
            touched: Vec::new(),
            starved: Vec::new(),
            ending: Vec::new(),
            spare_bounces: Vec::new(),
            links: link::Links::default(),
            turn_bytes: 0,
            awake: false,
            company: Company::default(),
            watched: watch::Watched::default(),
        };
        Ok(Shard { core, ports: Vec::new(), spin: Spin::new(), inbox, stopping: false })
    }

    /// Serves until a command stops it.
    ///
    /// # Errors
    /// The ring itself failed: the kernel no longer takes our submissions.
    pub(crate) fn run(mut self) -> std::io::Result<()> {
        let mut events = Vec::with_capacity(1024);
        while !self.stopping {
            let wait = self.wait();
            self.rest(wait)?;
            self.core.now = clock::now();
            events.append(&mut self.core.watched.ended);
            self.core.ring.reap(&mut events);
            for event in events.drain(..) {
                self.on_ring(event);
            }
            while let Ok(command) = self.inbox.try_recv() {
                command(&mut self);
            }
            self.core.turn_bytes = BYTES_PER_TURN;
            self.look();
            self.work();
            self.core.drive_links();
            self.end_turn();
        }
        Ok(())
    }

    /// Submits, and waits for at most `wait` (`None`: until something happens), awake at first where that pays.
    fn rest(&mut self, wait: Option<Nanos>) -> std::io::Result<()> {
        if wait == Some(Nanos::ZERO) {
            // More may have come while there was work. Ends of operations are no work: a rest follows soon.
            if self.core.watched.ended.is_empty() {
                self.core.watched.try_receives();
            }
            return self.core.ring.submit(wait);
        }
        let start = clock::now();
        let mut outcome = Wait::GoesOn;
        if let Some(patience) = self.spin.patience() {
            self.core.ring.submit(Some(Nanos::ZERO))?;
            outcome = self.wait_awake(start + wait.map_or(patience, |wait| wait.min(patience)));
        }
        match outcome {
            Wait::Over => self.core.ring.submit(Some(Nanos::ZERO))?,
            Wait::GoesOn => self.sleep(start, wait)?,
        }
        let now = clock::now();
        self.spin.idle(now, now - start);
        self.core.awake = self.spin.patience().is_some();
        Ok(())
    }

    /// Submits, and gives up the processor until something happens or `wait` since `start` is over.
    fn sleep(&mut self, start: Nanos, wait: Option<Nanos>) -> std::io::Result<()> {
        self.core.awake = false;
        self.stop_looking();
        if self.core.touched.is_empty() {
            let wait = wait.map(|wait| wait - (clock::now() - start));
            return self.core.ring.submit(wait);
        }
        self.core.ring.submit(Some(Nanos::ZERO))
    }

    /// How long the loop may sleep: not at all while there is work, else until the next timer.
    fn wait(&self) -> Option<Nanos> {
        let core = &self.core;
        if !core.completed.is_empty() || !core.touched.is_empty() || !core.watched.ended.is_empty() {
            return Some(Nanos::ZERO);
        }
        let mut wake: Option<Nanos> = None;
        for (_, datastore) in &core.datastores {
            if datastore.dirty {
                return Some(Nanos::ZERO);
            }
            if let Some(at) = datastore.next_wake() {
                wake = Some(wake.map_or(at, |w| w.min(at)));
            }
        }
        wake.map(|at| at - clock::now())
    }

    fn on_ring(&mut self, event: Event) {
        match event.owner {
            Owner::Wake if !event.more => {
                let bell = io_uring::opcode::PollAdd::new(
                    io_uring::types::Fd(self.core.mailbox.bell()),
                    libc::POLLIN as u32,
                );
                // SAFETY: the entry names no memory.
                unsafe { self.core.ring.push(bell.multi(true).build(), Owner::Wake) };
            }
            Owner::Wake | Owner::Nobody => {}
            Owner::Request(key) => self.core.on_kernel(key, event.result),
            Owner::Link { link, way } => self.core.on_link(link, way, event.result),
            Owner::Port { port, key } => {
                let Some(state) = self.core.port_states.get_mut(port as usize) else { return };
                let mut result = event.result;
                if state.unsent.as_ref().is_some_and(|rest| rest.key == key)
                    && !state.closing
                    && matches!(-result, libc::EINTR | libc::EAGAIN)
                {
                    // A part is out already: only the rest may be tried again.
                    return self.core.send_rest(port, key);
                }
                if !event.more {
                    state.active.retain(|&k| k != key);
                    if let Some(rest) = state.unsent.take_if(|rest| rest.key == key)
                        && result >= 0
                    {
                        result += rest.sent;
                    }
                }
                if !state.closing {
                    let event = PortEvent { key, result, more: event.more };
                    self.with_port(port, |p, io| p.on_event(io, event));
                }
            }
        }
    }

    /// Completions, dispatches and refills, until nothing moves or the turn is long enough.
    fn work(&mut self) {
        for _ in 0..ROUNDS_PER_TURN {
            for index in 0..self.core.datastores.capacity() {
                let now = self.core.now;
                if self
                    .core
                    .datastores
                    .get(index)
                    .is_some_and(|d| d.dirty || d.next_wake().is_some_and(|at| at <= now))
                {
                    self.core.pump(index);
                }
            }
            self.deliver();
            self.tell_room();
            let more = !self.core.completed.is_empty() || self.core.datastores.iter().any(|(_, d)| d.dirty);
            if !more || self.core.turn_bytes <= 0 {
                return;
            }
        }
    }

    /// Tells ports of their requests' ends.
    fn deliver(&mut self) {
        let mut completed = std::mem::take(&mut self.core.completed);
        for key in completed.drain(..) {
            let completion = self.core.retire(key);
            let port = self.core.slots[key].port;
            self.core.slots.free(key);
            let state = &mut self.core.port_states[port as usize];
            state.requests -= 1;
            if !state.closing {
                self.with_port(port, |p, io| p.on_complete(io, completion));
            }
        }
        // Ports may have caused new completions meanwhile; keep the larger of the two buffers.
        if self.core.completed.is_empty() {
            self.core.completed = completed;
        }
    }

    fn tell_room(&mut self) {
        let mut waiting = std::mem::take(&mut self.core.starved);
        waiting.retain(|&port| {
            let Some(state) = self.core.port_states.get_mut(port as usize) else { return false };
            if state.closing {
                return false;
            }
            if !self.core.disks[state.disk as usize].room.is_worth_telling(state.queued) {
                return true;
            }
            state.starved = false;
            self.with_port(port, |p, io| p.on_room(io));
            false
        });
        self.core.starved.append(&mut waiting);
    }

    fn end_turn(&mut self) {
        // A port that is called here may touch itself again; that is this turn's business still.
        let mut touched = std::mem::take(&mut self.core.touched);
        self.core.company.after_turn(&touched);
        for &port in &touched {
            let Some(state) = self.core.port_states.get_mut(port as usize) else { continue };
            state.touched = false;
            if !state.closing {
                self.call(port, |p, io| p.on_turn_end(io));
            }
        }
        touched.clear();
        if self.core.touched.is_empty() {
            self.core.touched = touched;
        }
        self.bury();
    }

    /// Drops closing ports that nothing refers to any more.
    fn bury(&mut self) {
        let mut ending = std::mem::take(&mut self.core.ending);
        ending.retain(|&port| {
            let state = &self.core.port_states[port as usize];
            if !state.active.is_empty() || state.requests > 0 {
                return true;
            }
            let state = self.core.port_states.remove(port as usize);
            self.ports[port as usize] = None;
            self.core.disks[state.disk as usize].ports.retain(|&p| p != port);
            self.core.divide_room(state.disk);
            self.core.client_gone(state.disk, state.told);
            self.core.starved.retain(|&p| p != port);
            self.core.touched.retain(|&p| p != port);
            self.core.watched.forget_port(port);
            state.gone.set();
            false
        });
        self.core.ending.append(&mut ending);
    }

    /// Calls a port and remembers to end its turn.
    fn with_port(&mut self, port: u32, f: impl FnOnce(&mut dyn Port, &mut Io<'_>)) {
        let Some(state) = self.core.port_states.get_mut(port as usize) else { return };
        if !std::mem::replace(&mut state.touched, true) {
            self.core.touched.push(port);
        }
        self.call(port, f);
    }

    fn call(&mut self, port: u32, f: impl FnOnce(&mut dyn Port, &mut Io<'_>)) {
        let Some(slot) = self.ports.get_mut(port as usize).and_then(Option::as_mut) else { return };
        let disk = self.core.port_states[port as usize].disk;
        f(slot.as_mut(), &mut Io { core: &mut self.core, port, disk });
    }
}

impl Core {
    /// Takes a request out of the window and the counters.
    fn retire(&mut self, key: u32) -> Completion {
        let slot = &mut self.slots[key];
        let disk = &mut self.disks[slot.disk as usize];
        let datastore = &mut self.datastores[disk.datastore];
        match slot.stage {
            Stage::Queued | Stage::Free | Stage::Withdrawn => {}
            Stage::Dispatched => {
                disk.in_flight -= 1;
                datastore.pacer.completed(self.now);
                if let Some(meter) = &mut datastore.meter
                    && slot.request.op.is_transfer()
                    && slot.result.is_ok()
                    && !slot.outage
                {
                    meter.record(self.now - slot.dispatched, headgate_units::Bytes(slot.request.len));
                }
                datastore.scheduler.complete(self.now, disk.queue);
            }
            Stage::Expedited => disk.in_flight -= 1,
        }
        datastore.dirty = true;
        let request = slot.request;
        let bytes = headgate_units::Bytes(request.len);
        let latency =
            headgate_stats::Latency { device: self.now - slot.dispatched, total: self.now - slot.arrived };
        let outcome = stats_outcome(&slot.result);
        disk.stats.on_complete(self.now, stats_op(request.op), bytes, latency, outcome);
        Completion { cookie: request.cookie, result: slot.result, extents: std::mem::take(&mut slot.extents) }
    }
}

fn stats_op(op: Op) -> headgate_stats::Op {
    match op {
        Op::Read | Op::Lend => headgate_stats::Op::Read,
        Op::Write(_) | Op::Place => headgate_stats::Op::Write,
        Op::Flush => headgate_stats::Op::Flush,
        Op::Discard => headgate_stats::Op::Discard,
        Op::WriteZeroes { .. } => headgate_stats::Op::WriteZeroes,
        Op::BlockStatus | Op::Cache => headgate_stats::Op::Other,
    }
}

fn stats_phase(phase: headgate_qos::Phase) -> headgate_stats::Phase {
    match phase {
        headgate_qos::Phase::Reservation => headgate_stats::Phase::Reservation,
        headgate_qos::Phase::Weight => headgate_stats::Phase::Weight,
    }
}

fn stats_outcome(result: &Result<(), crate::request::IoError>) -> headgate_stats::Outcome {
    match result {
        Ok(()) => headgate_stats::Outcome::Done,
        Err(_) => headgate_stats::Outcome::Failed,
    }
}
