//! Disks that move by being copied, under their guests' requests.
//!
//! A copier is a client of the schedulers at both ends, with a policy of its own. Pieces are read
//! from the source and written to the target in the order of addresses. A guest's write to what is
//! copied already, or being copied, goes to both ends and is done when both have it; all else goes
//! to the source alone. When the last piece is written, the disk is on the target.

use super::copies::DiskCopy;
use super::state::Pool;
use crate::scenario::{Copying, Moves};
use crate::world::request::{Request, Role};
use crate::world::route::request_io;
use crate::world::state::World;
use headgate_devices::IoKind;
use headgate_qos::{Cost, DiskId, Io, Phase, PriorityPolicy};
use headgate_units::{Bytes, Nanos};

impl Pool<'_> {
    /// Marks datastores with copies under way: their intervals are not learnt from.
    pub(in crate::world) fn mark_copies(&mut self) {
        for copy in &self.copies.active {
            self.stores[copy.from].copied = true;
            self.stores[copy.to].copied = true;
        }
    }
}

impl World<'_> {
    pub(in crate::world) fn add_copiers(&mut self, copying: Copying) {
        let Some(pool) = &mut self.pool else { return };
        let placements = pool.members.iter().flat_map(|member| member.placements.iter().flatten());
        for gate in placements.map(|placement| placement.gate) {
            let registry = &mut self.gates[gate as usize];
            pool.copies
                .copiers
                .entry(gate)
                .or_insert_with(|| registry.register(copying.policy, PriorityPolicy::default()));
        }
    }

    /// Begins as many of the copies that wait as may be under way.
    pub(in crate::world) fn begin_copies(&mut self) {
        let Some(pool) = &mut self.pool else { return };
        let Moves::Copy(copying) = pool.spec.moves else { return };
        let mut begun = Vec::new();
        while pool.copies.active.len() < copying.at_once as usize {
            let Some(mut copy) = pool.copies.waiting.pop_front() else { break };
            let member = &pool.members[copy.member];
            let Some(from) = member.at else { continue };
            let used = self.setup.vms[member.vm].disks[member.index].membership.used;
            (copy.from, copy.end) = (from, used.0);
            begun.push(copy.number);
            pool.copies.active.push(copy);
        }
        pool.mark_copies();
        begun.into_iter().for_each(|number| self.go_on_copying(number));
    }

    /// Reads as many pieces as may be under way, or ends the copy.
    fn go_on_copying(&mut self, number: usize) {
        loop {
            let Some(pool) = &mut self.pool else { return };
            let Moves::Copy(copying) = pool.spec.moves else { return };
            let Some(index) = pool.copies.active.iter().position(|copy| copy.number == number)
            else {
                return;
            };
            let copy = &mut pool.copies.active[index];
            if copy.written >= copy.end {
                let copy = pool.copies.active.swap_remove(index);
                if let Some(mut pool) = self.pool.take() {
                    self.arrive_there(&mut pool, copy.member, copy.to, number);
                    // Groups are divided for as long as their copies take.
                    if pool.copies.are_done() {
                        pool.violations += pool.broken(self.setup);
                    }
                    self.pool = Some(pool);
                }
                return self.begin_copies();
            }
            if copy.in_flight >= copying.outstanding || copy.next >= copy.end {
                return;
            }
            let bytes = Bytes(copying.piece.0.min(copy.end - copy.next));
            let (offset, from, member) = (copy.next, copy.from, copy.member);
            copy.next += bytes.0;
            copy.in_flight += 1;
            self.copy_piece(member, from, number, Role::CopyRead, offset, bytes);
        }
    }

    /// Sends a piece to one of the ends.
    fn copy_piece(
        &mut self,
        member: usize,
        store: usize,
        number: usize,
        role: Role,
        offset: u64,
        bytes: Bytes,
    ) {
        let Some(pool) = &self.pool else { return };
        let member = &pool.members[member];
        let Some(placement) = &member.placements[store] else { return };
        let (gate, node, base) = (placement.gate, placement.node, placement.base);
        let Some(&id) = pool.copies.copiers.get(&gate) else { return };
        let kind = if role == Role::CopyRead { IoKind::Read } else { IoKind::Write };
        let request = Request {
            disk: member.disk,
            tag: number as u32,
            node,
            kind,
            offset: base.wrapping_add(offset),
            bytes,
            store: store as u32,
            role,
            ..Request::unsent(self.now, gate, id)
        };
        self.hand_over(request, offset);
    }

    /// A request that no workload issued reaches its gate.
    fn hand_over(&mut self, request: Request, position: u64) -> u32 {
        self.events += 1;
        let (gate, id) = (request.gate, request.id);
        let io: Io = request_io(request.kind, request.bytes, position, None);
        let key = self.requests.insert(request) as u32;
        self.gates[gate as usize].enqueue(self.now, id, io, key);
        self.ask(gate);
        key
    }

    /// A guest's write to what is copied already goes to the target, too.
    pub(in crate::world) fn mirror(&mut self, key: u32, member: u32, position: u64) {
        let Some(pool) = &self.pool else { return };
        let copy = pool.copies.active.iter().find(|copy| copy.member == member as usize);
        let Some(copy) = copy.filter(|copy| position < copy.next) else { return };
        let (to, request) = (copy.to, &self.requests[key as usize]);
        let Some(Some(placement)) = pool.members[member as usize].placements.get(to) else {
            return;
        };
        let twin = Request {
            disk: request.disk,
            tag: key,
            node: placement.node,
            kind: request.kind,
            offset: placement.base.wrapping_add(position),
            bytes: request.bytes,
            store: to as u32,
            role: Role::Mirror,
            ..Request::unsent(self.now, placement.gate, placement.id)
        };
        self.requests[key as usize].mirrored = true;
        self.hand_over(twin, position);
    }

    /// A guest's write is done at the source and waits for its mirror.
    pub(in crate::world) fn wait_for_mirror(&mut self, key: u32) {
        let request = &mut self.requests[key as usize];
        request.released = true;
        let (gate, id, cost) = (request.gate, request.id, request.charged);
        self.leave(gate, id, key, cost);
    }

    /// A request completed that is no guest's.
    pub(in crate::world) fn copy_went_on(&mut self, key: u32, role: Role) {
        let request = self.requests.remove(key as usize);
        self.leave(request.gate, request.id, key, request.charged);
        let number = request.tag as usize;
        match role {
            Role::Guest => {}
            Role::Mirror => {
                let first = &mut self.requests[request.tag as usize];
                first.mirrored = false;
                if first.released {
                    self.back(request.tag);
                }
            }
            Role::CopyRead => {
                let Some(pool) = &self.pool else { return };
                let copy = pool.copies.active.iter().find(|copy| copy.number == number);
                let Some(&DiskCopy { member, from, to, .. }) = copy else { return };
                let base = pool.members[member].placements[from]
                    .as_ref()
                    .map_or(0, |placement| placement.base);
                let offset = request.offset.wrapping_sub(base);
                self.copy_piece(member, to, number, Role::CopyWrite, offset, request.bytes);
            }
            Role::CopyWrite => {
                let Some(pool) = &mut self.pool else { return };
                pool.copies.copied = Bytes(pool.copies.copied.0 + request.bytes.0);
                if let Some(copy) = pool.copies.active.iter_mut().find(|copy| copy.number == number)
                {
                    copy.in_flight -= 1;
                    copy.written += request.bytes.0;
                }
                self.go_on_copying(number);
            }
        }
    }
}

impl Request {
    /// One that begins now, with nothing said of it.
    fn unsent(now: Nanos, gate: u32, id: DiskId) -> Request {
        Request {
            disk: 0,
            workload: u32::MAX,
            epoch: 0,
            tag: 0,
            node: 0,
            kind: IoKind::Read,
            phase: Phase::Weight,
            offset: 0,
            bytes: Bytes(0),
            arrived: now,
            dispatched: now,
            reached_node: now,
            submitted: now,
            inside: false,
            charged: Cost::default(),
            cost: Cost::default(),
            ticket: None,
            gate,
            id,
            store: 0,
            role: Role::CopyRead,
            mirrored: false,
            released: false,
        }
    }
}
