//! A shard: one thread, one ring, whole datastores.
//!
//! Each turn of the loop: completions and events, commands, then for every datastore what its
//! scheduler and window allow, then the ends of turns (used rings published, replies sent), and one
//! system call that submits all of it and waits. Nothing here is shared or locked; other threads
//! send closures through the [`Mailbox`].

mod changes;
#[cfg(test)]
mod compare;
pub(crate) mod control;
mod copies;
mod core;
mod datastore;
mod exclusion;
#[cfg(test)]
mod exclusion_tests;
#[cfg(test)]
mod fencing;
mod groups;
mod holding;
#[cfg(test)]
mod holding_tests;
#[cfg(test)]
mod hostile;
pub(crate) mod moving;
pub(crate) mod place;
mod poll;
mod polled;
mod ports;
#[cfg(test)]
mod ranges;
pub(crate) mod resizing;
pub(crate) mod telling;
#[cfg(test)]
mod testing;
pub(crate) mod waiting;

use self::core::Core;
use crate::backend::context::Context;
use crate::backend::execute::Execute;
use crate::backend::file::fence::Fenced;
use crate::backend::file::io_scheduler;
use crate::backend::nbd::link::state::Links;
use crate::clock;
use crate::kernel::mailbox::{Command, Mailbox};
use crate::kernel::ring::{Event, Owner, Ring, Wait};
use crate::kernel::worker::Worker;
use crate::port::{Port, PortEvent};
use crate::pulse::{Activity, Pulse};
use crate::sole_client::SoleClient;
use crate::tables::Tables;
use crate::tables::disks::Disks;
use crate::tables::port::Sender;
use crate::tables::slots::Slots;
use datastore::Ended;
use headgate_polling::Mode;
use headgate_units::Nanos;
use holding::Verdict;
use place::Hosted;
use polled::PolledPorts;
use ports::Io;
use slab::Slab;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use waiting::Waiter;

/// The state of a shard's thread.
pub(crate) struct Shard {
    pub(crate) core: Core,
    ports: Vec<Option<Hosted>>,
    waiter: Waiter,
    mailbox: Mailbox<Shard>,
    /// The shards of moves' targets, by the moves' numbers, where those are others.
    target_shards: BTreeMap<u32, Mailbox<Shard>>,
    /// The shards of the moves to disks of this one, by their numbers here.
    move_shards: BTreeMap<u32, Mailbox<Shard>>,
    inbox: Receiver<Command<Shard>>,
    pulse: Arc<Pulse>,
    stopping: bool,
}

/// How often a turn goes back for more before it publishes what it has: work that finishes at once
/// (a null backend, a cached page) would otherwise keep replies waiting.
const ROUNDS_PER_TURN: usize = 4;
/// How much a turn moves itself (a null backend, an image in memory) before it publishes: a client
/// that has its first answers works on them while the shard works on the rest. Measured: of 32
/// reads of 4 KiB, eight at a time make twice the throughput of all at once.
const BYTES_PER_TURN: i64 = 32 << 10;

impl Shard {
    pub(crate) fn new(
        name: &str,
        mailbox: Mailbox<Shard>,
        inbox: Receiver<Command<Shard>>,
        pulse: Arc<Pulse>,
        waiter: Waiter,
    ) -> std::io::Result<Shard> {
        pulse.begin();
        let mut ring = Ring::new()?;
        let ceiling = io_scheduler::probe(&mut ring);
        let bell = io_uring::opcode::PollAdd::new(
            io_uring::types::Fd(mailbox.bell()),
            libc::POLLIN as u32,
        );
        // SAFETY: the entry names no memory.
        unsafe { ring.push(bell.multi(true).build(), Owner::Wake) };
        let core = Core {
            ctx: Context {
                now: clock::now(),
                tables: Tables {
                    slots: Slots::default(),
                    disks: Disks::new(),
                    ports: Slab::new(),
                    completed: Vec::new(),
                    granted: Vec::new(),
                },
                ring,
                outlet: mailbox.outlet(Shard::context),
                worker: Worker::start(&format!("{name}-fs"))?,
                ceiling,
                spare_bounces: Vec::new(),
                links: Links::default(),
                fenced: Fenced::default(),
                relayed: Vec::new(),
                turn_bytes: 0,
                polled: false,
            },
            datastores: Slab::new(),
            windows: 0,
            next_generation: 0,
            moves: Slab::new(),
            next_move: 0,
            fars: BTreeMap::new(),
            landings: Slab::new(),
            touched: Vec::new(),
            starved: Vec::new(),
            held: Vec::new(),
            ending: Vec::new(),
            mode: Mode::Sleep,
            sole_client: SoleClient::default(),
            polled: PolledPorts::default(),
        };
        Ok(Shard {
            core,
            ports: Vec::new(),
            waiter,
            mailbox,
            target_shards: BTreeMap::new(),
            move_shards: BTreeMap::new(),
            inbox,
            pulse,
            stopping: false,
        })
    }

    /// The part of a shard that backends know.
    pub(crate) fn context(&mut self) -> &mut Context {
        &mut self.core.ctx
    }

    /// Serves until a command stops it.
    ///
    /// # Errors
    /// The ring itself failed: the kernel no longer takes our submissions.
    pub(crate) fn run(mut self) -> std::io::Result<()> {
        let mut events = Vec::with_capacity(1024);
        while !self.stopping {
            // Readings of the clock count: two for a turn and the wait before it.
            let ended = clock::now();
            let wait = self.wait(ended);
            self.core.submit_fenced();
            self.pulse.set(Activity::Kernel);
            let now = self.idle(wait, ended)?;
            self.pulse.set(Activity::Turn);
            self.turn(&mut events, now);
        }
        Ok(())
    }

    /// Handles what has happened. `events` is empty before and after.
    fn turn(&mut self, events: &mut Vec<Event>, now: Nanos) {
        self.core.ctx.now = now;
        events.append(&mut self.core.polled.ended);
        self.core.ctx.ring.reap(events);
        for event in events.drain(..) {
            self.on_ring(event);
        }
        while let Ok(command) = self.inbox.try_recv() {
            command(self);
        }
        self.core.ctx.turn_bytes = BYTES_PER_TURN;
        self.poll_ports();
        self.work();
        self.core.ctx.check_links();
        self.core.ctx.drive_links();
        self.end_turn();
    }

    /// Submits, and waits for at most `wait` since `start` (`None`: until something happens).
    /// Busy-polls first where that pays. Returns until when.
    fn idle(&mut self, wait: Option<Nanos>, start: Nanos) -> std::io::Result<Nanos> {
        if wait == Some(Nanos::ZERO) {
            // More may have come while there was work. Results of operations are not work: the
            // shard is idle soon.
            if self.core.polled.ended.is_empty() {
                self.core.polled.try_receives();
            }
            self.core.ctx.ring.submit(wait)?;
            return Ok(clock::now());
        }
        let (mut outcome, mut polled_until) = (Wait::GoesOn, start);
        if let Some(patience) = self.waiter.patience() {
            self.core.ctx.ring.submit(Some(Nanos::ZERO))?;
            outcome = self.busy_poll(start + wait.map_or(patience, |wait| wait.min(patience)));
            polled_until = clock::now();
        }
        match outcome {
            Wait::Over => self.core.ctx.ring.submit(Some(Nanos::ZERO))?,
            Wait::GoesOn => self.sleep(start, wait)?,
        }
        let now = clock::now();
        if outcome == Wait::GoesOn {
            self.waiter.slept(now - polled_until);
        }
        self.waiter.after_wait(now);
        self.core.mode = self.waiter.mode();
        Ok(now)
    }

    /// Submits, and gives up the processor until something happens or `wait` since `start` is over.
    fn sleep(&mut self, start: Nanos, wait: Option<Nanos>) -> std::io::Result<()> {
        self.core.mode = Mode::Sleep;
        self.disarm_poll();
        if self.core.touched.is_empty() {
            let wait = wait.map(|wait| wait - (clock::now() - start));
            return self.core.ctx.ring.submit(wait);
        }
        self.core.ctx.ring.submit(Some(Nanos::ZERO))
    }

    /// How long the loop may sleep: not at all while there is work, else until the next timer.
    fn wait(&self, now: Nanos) -> Option<Nanos> {
        let core = &self.core;
        if !core.ctx.tables.completed.is_empty()
            || !core.touched.is_empty()
            || !core.polled.ended.is_empty()
        {
            return Some(Nanos::ZERO);
        }
        let mut wake = core.ctx.fenced.next_try(now);
        if (!core.moves.is_empty() || !core.landings.is_empty())
            && let Some(at) = self.next_of_moves()
        {
            wake = Some(wake.map_or(at, |wake| wake.min(at)));
        }
        if let Some(at) = core.ctx.links.next_check() {
            wake = Some(wake.map_or(at, |wake| wake.min(at)));
        }
        for (_, datastore) in &core.datastores {
            if datastore.gate.is_due(core.ctx.now) {
                return Some(Nanos::ZERO);
            }
            if let Some(at) = datastore.next_wake() {
                wake = Some(wake.map_or(at, |w| w.min(at)));
            }
        }
        wake.map(|at| at - now)
    }

    fn on_ring(&mut self, event: Event) {
        match event.owner {
            Owner::Wake if !event.more => {
                let bell = io_uring::opcode::PollAdd::new(
                    io_uring::types::Fd(self.mailbox.bell()),
                    libc::POLLIN as u32,
                );
                // SAFETY: the entry names no memory.
                unsafe { self.core.ctx.ring.push(bell.multi(true).build(), Owner::Wake) };
            }
            Owner::Wake | Owner::Nobody => {}
            Owner::Request(key) => self.core.on_kernel(key, event.result),
            Owner::Link { link, way } => self.core.ctx.on_link(link, way, event.result),
            Owner::Port { port, key } => {
                let Some(state) = self.core.ctx.tables.ports.get_mut(port as usize) else { return };
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
                let now = self.core.ctx.now;
                if let Some(store) = self.core.datastores.get_mut(index)
                    && store.is_due(now)
                {
                    self.core.ctx.polled = self.core.polled.has_ports();
                    store.pump(&mut self.core.ctx);
                }
            }
            self.complete();
            self.drive_moves();
            self.notify_room();
            let more = !self.core.ctx.tables.completed.is_empty()
                || self.core.datastores.iter().any(|(_, d)| d.gate.is_due(self.core.ctx.now));
            if !more || self.core.ctx.turn_bytes <= 0 {
                return;
            }
        }
    }

    /// Completes requests to their ports.
    fn complete(&mut self) {
        let mut completed = std::mem::take(&mut self.core.ctx.tables.completed);
        for key in completed.drain(..) {
            let Core { ctx, datastores, .. } = &mut self.core;
            let disk = ctx.tables.slots[key].disk;
            let store = &mut datastores[ctx.tables.disks[disk as usize].datastore];
            if store.ended(ctx, key) == Ended::NotYet {
                continue;
            }
            if store.judge(ctx.now, &mut ctx.tables, key) == Verdict::Held {
                self.core.held.push(disk);
                continue;
            }
            let completion = store.complete(ctx.now, &mut ctx.tables, key);
            let (port, request) = (ctx.tables.slots[key].port, ctx.tables.slots[key].request);
            ctx.tables.slots.free(key);
            self.waiter.served += 1;
            let state = &mut ctx.tables.ports[port as usize];
            state.requests -= 1;
            let sender = state.sender;
            if sender != Sender::Client {
                self.end_for_sender(sender, request, completion);
            } else if !state.closing {
                self.with_port(port, |p, io| p.on_complete(io, completion));
            }
        }
        self.tell_granted();
        // Ports may have caused new completions meanwhile; keep the larger of the two buffers.
        if self.core.ctx.tables.completed.is_empty() {
            self.core.ctx.tables.completed = completed;
        }
        self.tell_of_holds();
    }

    /// Tells the ports of disks that hold more requests than before: one that is about to end need
    /// not wait for them.
    fn tell_of_holds(&mut self) {
        let mut held = std::mem::take(&mut self.core.held);
        held.sort_unstable();
        held.dedup();
        for disk in held {
            let home = self.core.home_of(disk as usize);
            let ports = self.core.ctx.tables.disks[home].ports.clone();
            for port in ports {
                match self.core.ctx.tables.ports[port as usize].closing {
                    false => self.with_port(port, |p, io| p.on_held(io)),
                    true => self.core.give_up_closing(port),
                }
            }
        }
    }

    /// Tells ports that the block that they asked for is theirs.
    fn tell_granted(&mut self) {
        while let Some(port) = self.core.ctx.tables.granted.pop() {
            let state = self.core.ctx.tables.ports.get(port as usize);
            if state.is_some_and(|state| !state.closing) {
                self.with_port(port, |p, io| p.on_block_locked(io));
            }
        }
    }

    /// Calls ports that waited for room in their disk's queue and have it now.
    fn notify_room(&mut self) {
        let mut waiting = std::mem::take(&mut self.core.starved);
        waiting.retain(|&port| {
            let Some(state) = self.core.ctx.tables.ports.get_mut(port as usize) else {
                return false;
            };
            if state.closing {
                return false;
            }
            if !self.core.ctx.tables.disks[state.disk as usize]
                .queue_slots
                .is_worth_notifying(state.queued)
            {
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
        self.core.sole_client.after_turn(&touched);
        for &port in &touched {
            let Some(state) = self.core.ctx.tables.ports.get_mut(port as usize) else { continue };
            state.touched = false;
            if !state.closing {
                self.call(port, |p, io| p.on_turn_end(io));
            }
        }
        touched.clear();
        if self.core.touched.is_empty() {
            self.core.touched = touched;
        }
        self.reap_closed_ports();
    }

    /// Drops closed ports that have no operation or request left.
    fn reap_closed_ports(&mut self) {
        let mut ending = std::mem::take(&mut self.core.ending);
        let before = ending.len();
        ending.retain(|&port| {
            let state = &self.core.ctx.tables.ports[port as usize];
            if !state.active.is_empty() || state.requests > 0 {
                return true;
            }
            // Nothing of its own is at the storage any more.
            self.core.unlock(port);
            if let Some(hosted) = self.forget_port(port) {
                hosted.end();
            }
            false
        });
        let is_one_gone = ending.len() < before;
        self.core.ending.append(&mut ending);
        if is_one_gone {
            // A move may have waited for no more than that.
            self.drive_moves();
        }
    }

    /// Takes a port out of the shard that has nothing under way.
    fn forget_port(&mut self, port: u32) -> Option<Hosted> {
        let state = self.core.ctx.tables.ports.remove(port as usize);
        self.core.ctx.tables.disks[state.disk as usize].ports.retain(|&p| p != port);
        self.core.divide_slots(state.disk);
        self.core.ctx.client_gone(state.disk, state.epoch);
        self.core.starved.retain(|&p| p != port);
        self.core.touched.retain(|&p| p != port);
        self.core.polled.forget_port(port);
        self.ports.get_mut(port as usize).and_then(Option::take)
    }

    /// Calls a port and remembers to end its turn.
    fn with_port(&mut self, port: u32, f: impl FnOnce(&mut dyn Port, &mut Io<'_>)) {
        let Some(state) = self.core.ctx.tables.ports.get_mut(port as usize) else { return };
        if !std::mem::replace(&mut state.touched, true) {
            self.core.touched.push(port);
        }
        self.call(port, f);
    }

    fn call(&mut self, port: u32, f: impl FnOnce(&mut dyn Port, &mut Io<'_>)) {
        let Some(found) = self.ports.get_mut(port as usize).and_then(Option::as_mut) else {
            return;
        };
        let disk = self.core.ctx.tables.ports[port as usize].disk;
        self.pulse.set(Activity::Client(disk));
        f(found.port.as_mut(), &mut Io { core: &mut self.core, port, disk });
        self.pulse.set(Activity::Turn);
    }
}

impl Core {
    /// The kernel has finished an operation of a request.
    #[inline]
    fn on_kernel(&mut self, key: u32, result: i32) {
        let disk = self.ctx.tables.slots[key].disk;
        let store = &mut self.datastores[self.ctx.tables.disks[disk as usize].datastore];
        store.backend.on_kernel(&mut self.ctx, key, result);
    }
}
