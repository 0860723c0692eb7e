//! Disks that move by being copied, under their guests' requests: when copies begin, take a step,
//! and end. The machine of a move is the daemon's ([`headgate_mirror`]), and so is what its copy
//! may take beside clients ([`headgate_qos::Background`]).
//!
//! What is not as in the daemon: a record in the journal takes no time, and a hole stays one,
//! whatever guests write there.

use super::copies::{DiskCopy, Order, Stage, Stirred};
use super::state::Pool;
use crate::scenario::{Copying, Moves};
use crate::world::event::Event;
use crate::world::request::{Course, Role};
use crate::world::state::World;
use headgate_mirror::{Limits, Mirror, Setup, TargetContent, Turn};
use headgate_qos::window::Admission;
use headgate_qos::{Background, PriorityPolicy};
use headgate_units::{Bytes, Nanos};
use std::collections::{BTreeMap, VecDeque};

impl Pool<'_> {
    /// Marks datastores with copies under way: their intervals are not learnt from.
    pub(in crate::world) fn mark_copies(&mut self) {
        for copy in &self.copies.active {
            self.stores[copy.from].copied = true;
            self.stores[copy.order.to].copied = true;
        }
    }

    /// The gates of a member's disk at two datastores.
    fn gates(&self, member: usize, stores: [usize; 2]) -> Option<[u32; 2]> {
        let placements = &self.members[member].placements;
        let [from, to] = stores.map(|store| placements.get(store).and_then(Option::as_ref));
        Some([from?.gate, to?.gate])
    }
}

impl World<'_> {
    /// Registers the queues of all copies that may be under way.
    pub(in crate::world) fn add_copiers(&mut self, copying: Copying) {
        let Some(pool) = &mut self.pool else { return };
        let policy = Background::new(Nanos::ZERO, copying.pace, copying.steps).policy();
        let placements = pool.members.iter().flat_map(|member| member.placements.iter().flatten());
        for gate in placements.map(|placement| placement.gate) {
            let registry = &mut self.gates[gate as usize];
            pool.copies.queues.entry(gate).or_insert_with(|| {
                let queue = |_| registry.register(policy, PriorityPolicy::default());
                (0..copying.at_once).map(queue).collect()
            });
        }
    }

    /// Begins as many of the copies that wait as may be under way.
    pub(in crate::world) fn begin_copies(&mut self) {
        loop {
            let Some(pool) = &mut self.pool else { return };
            let Moves::Copy(copying) = pool.spec.moves else { return };
            if pool.copies.active.len() >= copying.at_once as usize {
                return;
            }
            let Some(order) = pool.copies.waiting.pop_front() else { return };
            self.begin_copy(order, copying);
        }
    }

    fn begin_copy(&mut self, order: Order, copying: Copying) {
        let Some(pool) = &mut self.pool else { return };
        let Some(from) = pool.members[order.member].at else { return };
        let member = &pool.members[order.member];
        let spec = &self.setup.vms[member.vm].disks[member.index];
        let limits = Limits { steps: copying.steps, step: copying.step, ..Limits::default() };
        let setup = Setup { size: spec.size, target: TargetContent::Zeroes, limits };
        let mut out = Vec::new();
        // A disk has bytes, and a step at least some.
        let Ok(machine) = Mirror::new(setup, &mut out) else { return };
        let Some(gates) = pool.gates(order.member, [from, order.to]) else { return };
        let number = order.number;
        for gate in gates {
            pool.copies.beside.add(self.now, gate, number, copying.pace, copying.steps);
        }
        let is_elder = |request: &crate::world::request::Request| {
            (request.disk, request.role, request.course)
                == (order.disk, Role::Guest, Course::Straight)
        };
        let elders = self.requests.iter().filter(|(_, request)| is_elder(request)).count() as u32;
        let copy = DiskCopy {
            from,
            seat: pool.copies.free_seat(),
            machine,
            stage: Stage::Relaying,
            elders,
            held: VecDeque::new(),
            told: BTreeMap::new(),
            wake: Nanos::MAX,
            used: spec.membership.used,
            order,
        };
        pool.copies.active.push(copy);
        pool.mark_copies();
        self.carry_out(number, out);
        self.invite(number);
    }

    /// One of the requests from before a copy is over.
    #[inline]
    pub(in crate::world) fn elder_ended(&mut self, disk: u32) {
        let Some(pool) = &mut self.pool else { return };
        let of_disk = |copy: &&mut DiskCopy| copy.order.disk == disk;
        if let Some(copy) = pool.copies.active.iter_mut().find(of_disk) {
            // Those that came straight after it are not counted.
            copy.elders = copy.elders.saturating_sub(1);
            pool.copies.stirred = Stirred::Yes;
        }
    }

    /// Asks copies for steps, if anything happened that concerns them.
    #[inline]
    pub(in crate::world) fn go_on_with_copies(&mut self) {
        let Some(pool) = &mut self.pool else { return };
        if std::mem::take(&mut pool.copies.stirred) == Stirred::No {
            return;
        }
        let numbers: Vec<usize> = pool.copies.active.iter().map(|c| c.order.number).collect();
        numbers.into_iter().for_each(|number| self.invite(number));
    }

    /// The instant has come for which a copy had waited.
    pub(in crate::world) fn wake_copy(&mut self, number: u32) {
        let (now, number) = (self.now, number as usize);
        let copy = self.pool.as_mut().and_then(|pool| pool.copies.find(number));
        if let Some(copy) = copy.filter(|copy| copy.wake == now) {
            copy.wake = Nanos::MAX;
            self.invite(number);
        }
    }

    /// Has a copy take as many steps as both ends have to spare.
    fn invite(&mut self, number: usize) {
        loop {
            let mut out = Vec::new();
            match self.admit_step(number) {
                Admission::Now => {}
                Admission::At(at) => return self.plan_copy(number, at),
                Admission::None => return,
            }
            let copy = self.pool.as_mut().and_then(|pool| pool.copies.find(number));
            let Some(copy) = copy else { return };
            if copy.machine.copy(&mut out) != Turn::Began {
                return;
            }
            self.carry_out(number, out);
        }
    }

    /// Whether both ends have a step to spare for a copy.
    fn admit_step(&mut self, number: usize) -> Admission {
        let Some(pool) = &mut self.pool else { return Admission::None };
        let Some(copy) = pool.copies.find(number) else { return Admission::None };
        if copy.elders > 0 || copy.stage != Stage::Relaying {
            return Admission::None;
        }
        let under_way = copy.machine.steps();
        let (member, stores) = (copy.order.member, [copy.from, copy.order.to]);
        let Some(gates) = pool.gates(member, stores) else { return Admission::None };
        for gate in gates {
            let at = (gate, self.gates[gate as usize].in_flight());
            match pool.copies.beside.admit(self.now, at, number, under_way) {
                Admission::Now => {}
                other => return other,
            }
        }
        Admission::Now
    }

    fn plan_copy(&mut self, number: usize, at: Nanos) {
        let copy = self.pool.as_mut().and_then(|pool| pool.copies.find(number));
        let Some(copy) = copy else { return };
        if copy.wake != at {
            copy.wake = at;
            self.queue.push(at, Event::Copy { number: number as u32 });
        }
    }

    /// How long a step may be that holds data.
    pub(super) fn longest_step(&mut self, number: usize) -> Bytes {
        const ANY: Bytes = Bytes(u64::MAX);
        let Some(pool) = &mut self.pool else { return ANY };
        let Some(copy) = pool.copies.find(number) else { return ANY };
        let (member, stores) = (copy.order.member, [copy.from, copy.order.to]);
        let Some(gates) = pool.gates(member, stores) else { return ANY };
        let of = |gate: u32| {
            let at = (gate, self.gates[gate as usize].in_flight());
            pool.copies.beside.longest_step(self.now, at, number)
        };
        gates.into_iter().filter_map(of).min().unwrap_or(ANY)
    }

    /// Forgets a copy that has nothing left to do, and begins the next.
    pub(super) fn forget_copy(&mut self, number: usize) {
        let Some(pool) = &mut self.pool else { return };
        let active = &mut pool.copies.active;
        let is_over = |copy: &DiskCopy| {
            copy.order.number == number
                && copy.stage == Stage::Reclaimed
                && copy.machine.is_over()
                && copy.held.is_empty()
        };
        let Some(index) = active.iter().position(is_over) else { return };
        let copy = active.remove(index);
        for gate in pool.gates(copy.order.member, [copy.from, copy.order.to]).into_iter().flatten()
        {
            pool.copies.beside.remove(gate, number);
        }
        // Groups are divided for as long as their copies take.
        if pool.copies.are_done() {
            pool.violations += pool.broken(self.setup);
        }
        self.begin_copies();
    }
}
