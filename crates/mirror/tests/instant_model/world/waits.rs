//! Who may wait, and for what.

use super::{Broken, Case, Event, Order, Out, World, changes, check, is_copy};
use crate::machine::Machine;
use crate::search::System;
use crate::storage::{How, blocks};
use headgate_mirror::instant::Keeps;
use headgate_mirror::{Job, Op, Request, RequestId, Side};
use std::collections::HashSet;

/// Why a change of the guest waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// A chunk that it touches is being read.
    Read,
    /// There is no room.
    Room,
    Nothing,
}

impl<M: Machine, const N: usize> World<M, N> {
    pub(super) fn is_sent(&self, slot: usize) -> bool {
        self.flight(Side::Source, Job::Request(RequestId(slot as u64))).is_some()
    }

    /// Who waits has a reason that was promised.
    pub(super) fn check_waits(&self, case: &Case<N>) -> Result<(), Broken> {
        let waits = |(slot, _): &(usize, _)| !self.is_sent(*slot);
        let mut waiting: Vec<_> = self.asked().filter(waits).map(|(_, out)| *out).collect();
        waiting.sort_by_key(|out| out.value);
        let mut room_is_asked_for = false;
        for out in waiting {
            let request = out.request;
            check(self.ended.is_none(), || format!("{request:?} waits for a copy that is over"))?;
            let may = changes(request) && !matches!(request, Request::Discard(_));
            check(may, || format!("{request:?} waits"))?;
            if !self.drained {
                continue;
            }
            match self.why(case, request) {
                Why::Read => {}
                Why::Room => room_is_asked_for = true,
                // He stands behind somebody who waits for room, if he needs room as well.
                Why::Nothing if room_is_asked_for && self.needs(request) > 0 => {}
                // A piece of zeroes may be asked about first.
                Why::Nothing if self.reaches_far(case, request) && self.is_examined(request) => {}
                Why::Nothing => return Err(format!("{request:?} waits for nothing")),
            }
        }
        Ok(())
    }

    /// Room goes to who came first. Zeroes that reach far stand in line anew with each piece.
    pub(super) fn check_overtaking(&self, case: &Case<N>, before: &Self) -> Result<(), Broken> {
        let waits = |(slot, out): &(usize, &Out<N>)| {
            let needs = self.surely_needs_room(out.request);
            needs && !self.is_sent(*slot) && !self.reaches_far(case, out.request)
        };
        let first = self.asked().filter(waits).map(|(_, out)| out.value).min();
        let Some(first) = first.filter(|_| self.ended.is_none()) else { return Ok(()) };
        let allowed = |block: usize| {
            let mut before = self.asked().filter(|(_, out)| out.value <= first);
            before.any(|(_, out)| {
                let chunks = out.request.extent().map(|extent| self.whole_chunks(extent));
                chunks.is_some_and(|chunks| chunks.contains(&block))
            })
        };
        for flight in self.source.flights.iter().filter(|flight| is_copy(flight.job)) {
            let (Job::Copy(step), Op::Read(extent)) = (flight.job, flight.op) else { continue };
            let mine = blocks(extent).any(|block| !before.is_being_read(block) && !allowed(block));
            check(self.steps[step.0 as usize].order != Order::No || !mine, || {
                format!("a change is overtaken by one that needs {extent:?}")
            })?;
        }
        Ok(())
    }

    /// How much has to be read before all of a change.
    fn needs(&self, request: Request) -> u64 {
        let blocks = request.extent().into_iter().flat_map(|extent| self.whole_chunks(extent));
        blocks.filter(|b| !self.read[*b] && !self.hole[*b] && !self.is_being_read(*b)).count()
            as u64
    }

    /// Whether something of a change is neither read, nor being read, nor known. The machine need
    /// not make anything of zeroes that it knows of.
    fn surely_needs_room(&self, request: Request) -> bool {
        let mut blocks = request.extent().into_iter().flat_map(|extent| self.whole_chunks(extent));
        blocks.any(|block| !self.is_safe(block) && !self.is_being_read(block))
    }

    /// Whether these are zeroes that may go in pieces.
    fn reaches_far(&self, case: &Case<N>, request: Request) -> bool {
        let step = case.limits.step.0.max(self.chunk()) / self.chunk() * self.chunk();
        let chunks = request.extent().map(|extent| self.whole_chunks(extent));
        let far = chunks.is_some_and(|chunks| chunks.len() as u64 > step);
        far && matches!(request, Request::Zero(..))
    }

    fn is_examined(&self, request: Request) -> bool {
        self.source.flights.iter().any(|flight| match (flight.op, request.extent()) {
            (Op::Examine(asked), Some(extent)) => asked.overlaps(extent),
            _ => false,
        })
    }

    fn why(&self, case: &Case<N>, request: Request) -> Why {
        let mut blocks = request.extent().into_iter().flat_map(|extent| self.whole_chunks(extent));
        if blocks.any(|block| self.is_being_read(block)) {
            return Why::Read;
        }
        let needs = self.needs(request);
        if needs == 0 {
            return Why::Nothing;
        }
        let chunk = self.chunk();
        let flights = self.source.flights.iter().chain(&self.target.flights);
        let steps: HashSet<Job> = flights.map(|f| f.job).filter(|job| is_copy(*job)).collect();
        let no_step = steps.len() >= case.limits.steps as usize;
        // A chunk at the end of the disk may count as a whole one.
        let taken = self.buffers().0.next_multiple_of(chunk);
        let room = case.limits.buffers.0.saturating_sub(taken);
        let free = self.keeps == Keeps::Target;
        let once = case.limits.step.0.max(chunk).min(needs.next_multiple_of(chunk));
        if no_step || (!free && room < once) { Why::Room } else { Why::Nothing }
    }

    /// If the target does not answer any more: once the caller has said so, everybody is answered.
    pub(super) fn check_lost_target(&self, case: &Case<N>) -> Result<(), Broken> {
        let stuck = self.source.flights.is_empty() && self.asked().next().is_some();
        if !stuck || self.ended.is_some() || !self.drained {
            return Ok(());
        }
        let mut world = self.step(case, Event::LoseTarget)?;
        for _ in 0..64 {
            let Some(flight) = world.source.flights.first() else { break };
            let event = match flight.effect {
                Some(_) => Event::Report(Side::Source, flight.job),
                None => Event::Effect(Side::Source, flight.job, How::Done),
            };
            world = world.step(case, event)?;
        }
        check(world.asked().next().is_none(), || {
            "a request waits for a target that was given up".into()
        })
    }
}
