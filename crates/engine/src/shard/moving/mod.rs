//! Live moves of disks between datastores of a shard: what the machine of a move
//! ([`headgate_mirror`]) says, done with the shard's disks.
//!
//! | disk | who sends to it |
//! |---|---|
//! | front | the clients' ports, from the beginning of the move to its end; it is on a datastore of its own, whose backend hands all to the machine |
//! | source | the move, for clients and for its copy; before and after it, the clients' ports |
//! | target | the move likewise; after it, the clients' ports |
//!
//! A request that the front has dispatched is answered when the machine says so. What may wait
//! longer than that (limits, trouble of the source's storage, ranges that are zeroed one after the
//! other) does so at the source and at the target, as on any disk.

mod begin;
mod carry;
mod clients;
mod ports;
mod progress;

pub(crate) use begin::Beginning;

use super::Shard;
use super::core::Core;
use crate::request::{Completion, Request};
use crate::tables::moving::{Ended, Moving, Stage};
use crate::tables::port::Sender;

/// Whether a move is still of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    GoesOn,
    Over,
}

impl Core {
    /// A request that a move has sent has ended.
    pub(super) fn end_for_move(
        &mut self,
        sender: Sender,
        request: Request,
        completion: Completion,
    ) {
        let Sender::Move(index, part) = sender else { return };
        if let Some(Some(moving)) = self.moves.get_mut(index as usize) {
            moving.ended.push_back(Ended { part, request, completion });
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
    }

    fn drive_each_move(&mut self) {
        let Core { ctx, moves, .. } = &mut self.core;
        for key in ctx.relayed.drain(..) {
            let front = &ctx.tables.disks[ctx.tables.slots[key].disk as usize];
            let moving = front.moving.and_then(|index| moves.get_mut(index as usize));
            if let Some(Some(moving)) = moving {
                moving.waiting.push_back(key);
            }
        }
        for index in 0..self.core.moves.capacity() {
            let Some(mut moving) = self.core.moves.get_mut(index).and_then(Option::take) else {
                continue;
            };
            match self.drive_move(&mut moving) {
                Life::GoesOn => self.core.moves[index] = Some(moving),
                Life::Over => _ = self.core.moves.remove(index),
            }
        }
    }

    fn drive_move(&mut self, moving: &mut Moving) -> Life {
        self.change_ports(moving);
        let core = &mut self.core;
        moving.give_up_slow_target(core);
        loop {
            moving.take_ended(core);
            moving.take_requests(core);
            moving.invite(core);
            if moving.out.is_empty() {
                break;
            }
            moving.carry_out(core);
        }
        moving.gauge.set(Some(moving.mirror.progress()));
        self.change_ports(moving);
        if moving.stage == Stage::Draining && self.core.is_drained(moving) {
            self.core.forget_move(moving);
            self.count_windows();
            return Life::Over;
        }
        Life::GoesOn
    }
}
