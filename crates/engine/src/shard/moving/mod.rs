//! Live moves of disks between datastores: what the machine of a move
//! ([`headgate_mirror`]) says, done with the shard's disks.
//!
//! | disk | who sends to it |
//! |---|---|
//! | front | the clients' ports, from the beginning of the move to its end; it is on a datastore of its own, whose backend hands all to the machine |
//! | source | the move, for clients and for its copy; before and after it, the clients' ports |
//! | target | the move likewise; after it, the clients' ports |
//!
//! A target on another shard is reached by messages ([`far`], [`landing`]), and after the switch
//! the clients' ports go there ([`departure`]).
//!
//! A request that the front has dispatched is answered when the machine says so. What may wait
//! longer than that (limits, trouble of the source's storage, ranges that are zeroed one after the
//! other) does so at the source and at the target, as on any disk.

mod awaited;
mod begin;
mod carry;
mod clients;
mod departure;
mod far;
mod landing;
mod late;
mod ports;
mod progress;

pub(crate) use begin::{Beginning, Target};
pub(crate) use far::Way;
pub(crate) use landing::Landed;

use super::Shard;
use crate::request::{Completion, Request};
use crate::tables::moving::{Ended, Moving, Permit, Stage};
use crate::tables::port::Sender;

/// Whether a move is still of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    GoesOn,
    Over,
}

impl Shard {
    /// A request that no client's port has sent has ended.
    pub(super) fn end_for_sender(
        &mut self,
        sender: Sender,
        request: Request,
        completion: Completion,
    ) {
        match sender {
            Sender::Client => {}
            Sender::Landing(landing) => self.end_for_landing(landing, completion),
            Sender::Move(index, part) => {
                if let Some(Some(moving)) = self.core.moves.get_mut(index as usize) {
                    moving.ended.push_back(Ended { part, request, completion });
                }
            }
        }
    }
}

impl Shard {
    /// Brings all moves as far as they can go now.
    #[inline]
    pub(super) fn drive_moves(&mut self) {
        if !self.core.moves.is_empty() {
            self.drive_each_move();
        }
        if !self.core.landings.is_empty() {
            self.drive_landings();
        }
    }

    fn drive_each_move(&mut self) {
        self.relay();
        for index in 0..self.core.moves.capacity() {
            let Some(mut moving) = self.core.moves.get_mut(index).and_then(Option::take) else {
                continue;
            };
            match self.drive_move(&mut moving, index as u32) {
                Life::GoesOn => self.core.moves[index] = Some(moving),
                Life::Over => _ = self.core.moves.remove(index),
            }
        }
    }

    /// Hands on what the moves' own disks have dispatched: the fronts' to the machines, the others'
    /// to the shards that they stand for.
    fn relay(&mut self) {
        let mut relayed = std::mem::take(&mut self.core.ctx.relayed);
        for key in relayed.drain(..) {
            let tables = &self.core.ctx.tables;
            let disk = tables.slots[key].disk;
            let Some(index) = tables.disks[disk as usize].moving else { continue };
            match self.core.moves.get_mut(index as usize) {
                Some(Some(moving)) if moving.front == disk => moving.waiting.push_back(key),
                _ => self.send_far(index, key),
            }
        }
        self.core.ctx.relayed = relayed;
    }

    fn drive_move(&mut self, moving: &mut Moving, index: u32) -> Life {
        self.change_ports(moving, index);
        let core = &mut self.core;
        moving.give_up_slow_target(core, index);
        loop {
            moving.take_ended(core);
            moving.take_requests(core);
            moving.invite(core);
            if moving.out.is_empty() {
                break;
            }
            moving.carry_out(core);
        }
        if moving.permit == Permit::Wanted {
            let under_way = moving.machine.steps();
            self.tell_target(index, move |shard, landing| shard.ask_for_step(landing, under_way));
            moving.permit = Permit::Asked(under_way);
        }
        moving.machine.show();
        self.give_up_target(moving, index);
        self.change_ports(moving, index);
        if moving.stage == Stage::Draining && self.core.is_drained(moving) {
            self.forget_move(moving, index);
            self.count_windows();
            return Life::Over;
        }
        Life::GoesOn
    }
}
