//! Clients' ports, which go from the source to the front, and from there to the side that counts.

use super::departure::Departure;
use super::landing::HandedOver;
use crate::port::PageUse;
use crate::shard::Shard;
use crate::shard::core::Core;
use crate::tables::disk::Successor;
use crate::tables::moving::{Moving, Reach, Stage};
use crate::tables::port::Sender;
use headgate_mirror::Side;

impl Shard {
    /// Lets the clients' ports go where the move wants them, as soon as they can.
    pub(super) fn change_ports(&mut self, moving: &mut Moving, index: u32) {
        match moving.stage {
            Stage::Preparing if moving.reclaim.is_some() => {
                moving.stage = Stage::Draining;
                self.tell_of_storage(moving.source);
            }
            Stage::Preparing => {
                if self.can_leave(moving.source) {
                    self.core.hang(moving.source, moving.front, moving.senders.source);
                    self.core.ctx.tables.disks[moving.source as usize].successor =
                        Some(Successor::Here(moving.front));
                    moving.stage = Stage::Relaying;
                    let source = &self.core.ctx.tables.disks[moving.source as usize];
                    moving.undurable = source.undurable;
                }
            }
            Stage::Relaying => {
                let Some(reclaim) = moving.reclaim else { return };
                let counts = reclaim.other();
                if moving.has_switched() {
                    self.hand_over(moving, index);
                }
                moving.stage = Stage::Returning(counts);
                self.change_ports(moving, index);
            }
            Stage::Returning(Side::Target) if moving.reach == Reach::Elsewhere => {
                if self.send_ports_away(moving, index) == Departure::Over {
                    self.core.ctx.tables.disks[moving.source as usize].successor =
                        Some(self.core.successor_of(moving, index));
                    moving.stage = Stage::Draining;
                }
            }
            Stage::Returning(side) => {
                let (winner, answers) = match side {
                    Side::Source => (moving.source, moving.senders.source),
                    Side::Target => (moving.target, moving.senders.target),
                };
                if !self.core.ctx.tables.disks[moving.front as usize].locks.can_go() {
                    return;
                }
                self.core.hang(moving.front, winner, answers);
                self.core.ctx.tables.disks[moving.source as usize].successor =
                    (side == Side::Target).then_some(Successor::Here(moving.target));
                moving.stage = Stage::Draining;
                self.tell_of_storage(winner);
            }
            Stage::Draining => {}
        }
    }

    /// The target is the disk: it has its name, does about trouble what the source did, and notes
    /// changes where it did.
    fn hand_over(&mut self, moving: &Moving, index: u32) {
        let disks = &mut self.core.ctx.tables.disks;
        let source = &mut disks[moving.source as usize];
        let (name, policy) = (source.info.name.clone(), source.trouble.policy);
        let changes = source.changes.clone();
        let target = &mut disks[moving.target as usize];
        target.trouble.policy = policy;
        target.changes.clone_from(&changes);
        let other = std::mem::replace(&mut target.info.name, name.clone());
        disks[moving.source as usize].info.name = other;
        self.tell_target(index, move |shard, landing| {
            shard.hand_over_landing(landing, HandedOver { name, policy, changes });
        });
    }

    fn tell_of_storage(&mut self, disk: u32) {
        for port in self.core.ctx.tables.disks[disk as usize].ports.clone() {
            if !self.core.ctx.tables.ports[port as usize].closing {
                self.with_port(port, |p, io| p.on_new_storage(io));
            }
        }
    }

    /// Whether all ports of a disk can hang on another one: none moves data by the disk's pages or
    /// has a block for itself, and the disk holds nothing. Asks them to come to that.
    fn can_leave(&mut self, disk: u32) -> bool {
        let state = &self.core.ctx.tables.disks[disk as usize];
        if !state.locks.can_go() || state.trouble.hold.is_some() {
            return false;
        }
        let mut unused = true;
        for port in state.ports.clone() {
            if let Some(Some(found)) = self.ports.get_mut(port as usize) {
                unused &= found.port.leave_pages() == PageUse::None;
            }
        }
        unused
    }
}

impl Core {
    /// Hangs the ports of one disk on another. What they have queued stays where it is, and ends
    /// there. `answers` is the move's own port that answers to clients for what a server may have
    /// lost, before or afterwards.
    fn hang(&mut self, from: u32, to: u32, answers: u32) {
        let ports = std::mem::take(&mut self.ctx.tables.disks[from as usize].ports);
        for &port in &ports {
            // What it was not told of is told to who comes.
            let epoch = self.ctx.tables.ports[port as usize].epoch;
            self.ctx.client_gone(from, epoch);
        }
        let state = &self.ctx.tables.ports[answers as usize];
        let (disk, epoch) = (state.disk, state.epoch);
        self.ctx.client_gone(disk, epoch);
        let epoch = self.epoch_of_client(disk);
        self.ctx.tables.ports[answers as usize].epoch = epoch;
        for &port in &ports {
            let state = &mut self.ctx.tables.ports[port as usize];
            (state.disk, state.epoch) = (to, epoch);
        }
        let locks = std::mem::take(&mut self.ctx.tables.disks[from as usize].locks);
        let state = &mut self.ctx.tables.disks[to as usize];
        state.locks = locks;
        state.ports.extend(ports);
        self.divide_slots(from);
        self.divide_slots(to);
    }

    /// The disk that ports of this one hang on now, on this shard.
    pub(crate) fn home_of(&self, disk: usize) -> usize {
        match self.ctx.tables.disks.get(disk).and_then(|found| found.successor) {
            Some(Successor::Here(successor)) => successor as usize,
            Some(Successor::Elsewhere(_)) | None => disk,
        }
    }

    /// The move at whose sides requests of a disk's ports may be held: the ports hang on its front,
    /// or on the side that counts already.
    fn behind(&self, disk: u32) -> Option<&Moving> {
        let index = self.ctx.tables.disks[disk as usize].moving?;
        self.moves.get(index as usize)?.as_deref()
    }

    /// The clients' requests that a side of a move holds, by their slots there. `wanted` is asked
    /// of the port and the cookie that they have at the front.
    fn held_behind(&self, moving: &Moving, wanted: impl Fn(u32, u64) -> bool) -> Vec<u32> {
        let tables = &self.ctx.tables;
        let asked = |key: u32| {
            let slot = &tables.slots[key];
            let front = match tables.ports[slot.port as usize].sender {
                Sender::Client => return Some((slot.port, slot.request.cookie)),
                Sender::Landing(_) => return None,
                Sender::Move(..) => moving.clients.get(slot.request.cookie as usize)?.front?,
            };
            let front = &tables.slots[front];
            Some((front.port, front.request.cookie))
        };
        let is_wanted = |&key: &u32| asked(key).is_some_and(|(port, cookie)| wanted(port, cookie));
        let mut held = Vec::new();
        for side in [moving.source, moving.target] {
            let disk = &tables.disks[side as usize];
            let store = &self.datastores[disk.datastore];
            held.extend(store.held_requests(tables, side).filter(is_wanted));
        }
        held
    }

    /// How many of a port's requests its disk holds, or a side that its disk moves to or from.
    pub(crate) fn held_of(&self, port: u32) -> usize {
        let disk = self.ctx.tables.ports[port as usize].disk;
        match self.behind(disk) {
            Some(moving) => self.held_behind(moving, |of, _| of == port).len(),
            None => {
                let store = &self.datastores[self.ctx.tables.disks[disk as usize].datastore];
                store.held_of(&self.ctx.tables, port)
            }
        }
    }

    /// Has those of a port's requests that are held fail with their errors.
    pub(crate) fn give_up(&mut self, port: u32, cookies: &[u64]) {
        let disk = self.ctx.tables.ports[port as usize].disk;
        if self.behind(disk).is_some() {
            let wanted = |of: u32, cookie: u64| of == port && cookies.contains(&cookie);
            return self.fail_behind(disk, wanted);
        }
        let Core { ctx, datastores, .. } = self;
        let store = &mut datastores[ctx.tables.disks[disk as usize].datastore];
        store.give_up(ctx.now, &mut ctx.tables, port, cookies);
    }

    /// Has a closing port's requests fail that a side of its disk's move holds: nobody waits for
    /// them, and the port would wait for the end of the trouble.
    pub(in crate::shard) fn give_up_closing(&mut self, port: u32) {
        let disk = self.ctx.tables.ports[port as usize].disk;
        self.fail_behind(disk, |of, _| of == port);
    }

    fn fail_behind(&mut self, front: u32, wanted: impl Fn(u32, u64) -> bool) {
        let Some(moving) = self.behind(front) else { return };
        let (sides, held) = ([moving.source, moving.target], self.held_behind(moving, wanted));
        let Core { ctx, datastores, .. } = self;
        for side in sides {
            let slots = &ctx.tables.slots;
            let keys: Vec<u32> =
                held.iter().copied().filter(|&key| slots[key].disk == side).collect();
            let store = &mut datastores[ctx.tables.disks[side as usize].datastore];
            store.fail_held(ctx.now, &mut ctx.tables, side, &keys);
        }
    }
}
