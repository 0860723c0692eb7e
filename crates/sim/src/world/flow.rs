//! The way of a request: from a workload through gates and nodes to the device and back.

use super::event::Event;
use super::gate::GateSite;
use super::pool::Arrival;
use super::request::{Course, MOST_OUTSTANDING, Request, Role};
use super::route::request_io;
use super::state::World;
use crate::workload::{Generator, Issue, Orders};
use headgate_devices::{DeviceIo, IoKind};
use headgate_qos::dmclock::{Served, Ticket};
use headgate_qos::{Cost, Decision, DiskId, Dispatched, ServedElsewhere, Took};
use headgate_units::Nanos;

impl World<'_> {
    pub(super) fn pump(&mut self, index: u32) {
        let now = self.now;
        self.gates[index as usize].on_asked(now);
        loop {
            let gate = &mut self.gates[index as usize];
            match gate.next(now) {
                Decision::Dispatch(choice) => match gate.site {
                    GateSite::Host { .. } => {
                        let comparisons = gate.comparisons();
                        self.send(choice, comparisons);
                    }
                    GateSite::Node { node } => self.serve(node, choice),
                },
                Decision::WaitUntil(at) => return self.wake_gate(index, at),
                Decision::Idle => return,
            }
        }
    }

    fn wake_gate(&mut self, index: u32, at: Nanos) {
        let (gate, at) = (&mut self.gates[index as usize], at.max(self.now));
        if gate.planned != at {
            gate.planned = at;
            self.queue.push(at, Event::Wake { gate: index });
        }
    }

    /// A host lets a request go.
    fn send(&mut self, choice: Dispatched<u32>, comparisons: u64) {
        let now = self.now;
        self.events += 1;
        let request = &mut self.requests[choice.request as usize];
        request.dispatched = now;
        request.phase = choice.phase;
        request.charged = choice.cost;
        let role = request.role;
        self.copies_saw_dispatch(choice.request);
        if role != Role::Guest {
            return self.send_of_move(choice.request);
        }
        let request = &mut self.requests[choice.request as usize];
        let disk = &mut self.disks[request.disk as usize];
        disk.recorder.on_dispatch(now - request.arrived, choice.phase, choice.cost.as_millionths());
        disk.recorder.on_comparisons(comparisons);
        if let Some(recorder) = &mut self.workloads[request.workload as usize].recorder {
            recorder.on_dispatch(now - request.arrived, choice.phase, choice.cost.as_millionths());
        }
        if let (Some(member), Some(pool)) = (disk.member, &mut self.pool) {
            pool.on_dispatch(now, member, request, choice.cost.as_millionths());
        }
        if let (Some(tracker), Some(_)) =
            (&mut disk.tracker, self.nodes[request.node as usize].gate)
        {
            request.ticket = Some(tracker.send(now, request.node).0);
        }
        if let Some(truth) = &mut disk.truth {
            let report = request.ticket.as_ref().map_or(ServedElsewhere::NONE, Ticket::carried);
            if let Some(error) = truth.on_send(self.nodes[request.node as usize].index, report) {
                disk.recorder.on_told(error.delta, error.beyond_bound);
            }
        }
        match disk.lane {
            None => self.at_node(choice.request),
            Some(lane) => {
                self.queue.push_lane(
                    lane,
                    now + disk.network,
                    Event::AtNode { request: choice.request },
                );
            }
        }
    }

    pub(super) fn at_node(&mut self, key: u32) {
        let now = self.now;
        let request = &mut self.requests[key as usize];
        request.reached_node = now;
        let index = request.node;
        let node = &mut self.nodes[index as usize];
        if let Some(recorder) = &mut node.recorder {
            recorder.on_arrival(now);
        }
        let Some(gate) = node.gate else { return self.submit(index, key) };
        let priority = self.workloads[request.workload as usize].priority;
        let io = request_io(request.kind, request.bytes, request.offset, priority);
        let Some(id) = self.disks[request.disk as usize].at_nodes[node.index] else { return };
        let elsewhere = request.ticket.as_ref().map_or(ServedElsewhere::NONE, Ticket::carried);
        self.gates[gate as usize].enqueue_dmclock(now, id, io, elsewhere, key);
        self.ask(gate);
    }

    /// A node lets a request go.
    fn serve(&mut self, node: u32, choice: Dispatched<u32>) {
        self.events += 1;
        let request = &mut self.requests[choice.request as usize];
        let recorder = &mut self.disks[request.disk as usize].recorder;
        recorder.correct_phase(request.phase, choice.phase);
        if let Some(recorder) = &mut self.workloads[request.workload as usize].recorder {
            recorder.correct_phase(request.phase, choice.phase);
        }
        request.phase = choice.phase;
        request.cost = choice.cost;
        if let Some(recorder) = &mut self.nodes[node as usize].recorder {
            let queue = self.now - request.reached_node;
            recorder.on_dispatch(queue, choice.phase, choice.cost.as_millionths());
        }
        self.submit(node, choice.request);
    }

    pub(super) fn submit(&mut self, index: u32, key: u32) {
        let request = &mut self.requests[key as usize];
        request.submitted = self.now;
        request.inside = true;
        let node = &mut self.nodes[index as usize];
        match &mut node.held {
            Some(held) => held.push(key),
            None => {
                let io =
                    DeviceIo { kind: request.kind, offset: request.offset, bytes: request.bytes };
                node.device.submit(self.now, u64::from(key), io);
                self.touched.push(index);
            }
        }
    }

    pub(super) fn plan_device(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        match node.device.next_event() {
            Some(at) if node.held.is_none() => {
                let at = at.max(self.now);
                if at != node.scheduled {
                    node.scheduled = at;
                    self.queue.push(at, Event::Device { node: index });
                }
            }
            _ => node.scheduled = Nanos::MAX,
        }
    }

    pub(super) fn device(&mut self, index: u32) {
        // Else the device has planned something else since.
        if self.nodes[index as usize].scheduled != self.now {
            return;
        }
        self.nodes[index as usize].scheduled = Nanos::MAX;
        while let Some(key) = self.nodes[index as usize].device.poll(self.now) {
            self.served(index, key as u32);
        }
        self.touched.push(index);
    }

    /// A device completed a request.
    fn served(&mut self, index: u32, key: u32) {
        let now = self.now;
        let node = &mut self.nodes[index as usize];
        let request = &mut self.requests[key as usize];
        request.inside = false;
        if let Some(recorder) = &mut node.recorder {
            let queue = request.submitted - request.reached_node;
            recorder.on_complete(now, request.bytes, queue, now - request.submitted);
        }
        let disk = &mut self.disks[request.disk as usize];
        let (lane, network) = (disk.lane, disk.network);
        if let Some(truth) = &mut disk.truth {
            truth.on_served(node.index, request.phase, request.cost);
        }
        if let (Some(gate), Some(id)) = (node.gate, disk.at_nodes[node.index]) {
            let cost = request.cost;
            self.leave(gate, id, key, cost);
        }
        match lane {
            None => self.back(key),
            Some(lane) => self.queue.push_lane(lane, now + network, Event::Back { request: key }),
        }
    }

    /// A request of a gate completed.
    #[inline]
    pub(super) fn leave(&mut self, index: u32, id: DiskId, request: u32, cost: Cost) {
        self.gates[index as usize].complete(self.now, id, request, cost);
        self.ask(index);
    }

    /// A request leaves its host's gate.
    #[inline]
    pub(super) fn leave_host(&mut self, key: u32, request: &Request) {
        let (gate, id) = (request.gate, request.id);
        if matches!(request.kind, IoKind::Read | IoKind::Write) && request.bytes.0 > 0 {
            let device = self.now - request.dispatched;
            let took = Took { queued: request.dispatched - request.arrived, device };
            self.gates[gate as usize].measure(self.now, id, took, request.bytes);
        }
        self.leave(gate, id, key, request.charged);
        self.copies_saw_completion(request);
    }

    /// A completion reaches its host.
    pub(super) fn back(&mut self, key: u32) {
        self.events += 1;
        match self.requests[key as usize] {
            Request { role: Role::Guest, course: Course::At(side), .. } => {
                self.back_from_side(key, side);
            }
            Request { role: Role::Guest, .. } => self.answer(key),
            _ => self.back_of_move(key),
        }
    }

    /// A guest's request is done.
    pub(super) fn answer(&mut self, key: u32) {
        let now = self.now;
        let mut request = match self.requests[key as usize].course {
            Course::At(side) => self.leave_behind(key, side),
            _ => self.requests.remove(key as usize),
        };
        let disk = &mut self.disks[request.disk as usize];
        let device = now - request.dispatched;
        if let (Some(member), Some(pool)) = (disk.member, &mut self.pool) {
            pool.on_complete(now, member, &request);
        }
        disk.recorder.on_complete(now, request.bytes, request.dispatched - request.arrived, device);
        if let (Some(tracker), Some(ticket)) = (&mut disk.tracker, request.ticket.take()) {
            let Request { phase, cost, bytes, .. } = request;
            tracker.complete(ticket, Served::one(phase, cost, bytes));
        }
        if let Some(io_scheduler) = &mut disk.io_scheduler {
            io_scheduler.completed(now, request.workload, request.kind);
            self.settle_guest(request.disk);
        }
        if request.course == Course::Straight {
            self.leave_host(key, &request);
            self.elder_ended(request.disk);
        }
        let workload = &mut self.workloads[request.workload as usize];
        workload.outstanding -= 1;
        if let Some(recorder) = &mut workload.recorder {
            recorder.on_complete(now, request.bytes, request.dispatched - request.arrived, device);
        }
        if workload.epoch == request.epoch {
            self.drive(request.workload, |generator, orders| {
                generator.completed(now, request.tag, orders)
            });
        }
    }

    /// Lets a workload say what to do, and does it.
    pub(super) fn drive(&mut self, index: u32, say: impl FnOnce(&mut Generator, &mut Orders)) {
        let mut orders = std::mem::take(&mut self.orders);
        let workload = &mut self.workloads[index as usize];
        say(&mut workload.generator, &mut orders);
        let epoch = workload.epoch;
        for (at, token) in orders.timers.drain(..) {
            self.queue.push(at, Event::Workload { workload: index, token, epoch });
        }
        if let (Some(response), Some(recorder)) =
            (orders.transaction.take(), &mut workload.transactions)
        {
            recorder.record(response);
        }
        self.failure = self.failure.take().or(orders.failure.take());
        for issue in orders.issues.drain(..) {
            self.issue(index, issue);
        }
        self.orders = orders;
    }

    fn issue(&mut self, index: u32, issue: Issue) {
        let now = self.now;
        self.events += 1;
        let workload = &mut self.workloads[index as usize];
        let key = self.vms[workload.vm as usize].disks + issue.disk as u32;
        let disk = &mut self.disks[key as usize];
        if workload.outstanding >= MOST_OUTSTANDING {
            disk.recorder.on_drop();
            if let Some(recorder) = &mut workload.recorder {
                recorder.on_drop();
            }
            return;
        }
        workload.outstanding += 1;
        disk.recorder.on_arrival(now);
        if let Some(recorder) = &mut workload.recorder {
            recorder.on_arrival(now);
        }
        let (node, offset) = disk.route(issue.offset);
        let request = self.requests.insert(Request {
            disk: key,
            workload: index,
            epoch: workload.epoch,
            tag: issue.tag,
            node,
            kind: issue.kind,
            offset,
            bytes: issue.bytes,
            store: disk.store,
            role: Role::Guest,
            ..Request::unsent(now, disk.gate, disk.id)
        }) as u32;
        if let (Some(member), Some(pool)) = (disk.member, &mut self.pool) {
            pool.on_arrival(now, member, disk.store, &issue);
        }
        match self.disks[key as usize].io_scheduler {
            Some(_) => self.order_in_guest(request, index, issue),
            None => self.arrive(request, issue.offset),
        }
    }

    /// A request reaches its host, with its place on the virtual disk.
    #[inline]
    pub(super) fn arrive(&mut self, key: u32, position: u64) {
        if let Arrival::Taken = self.offer_to_move(key) {
            return;
        }
        self.requests[key as usize].course = Course::Straight;
        self.enqueue(key, position);
    }

    /// A request comes to its gate.
    #[inline]
    pub(super) fn enqueue(&mut self, key: u32, position: u64) {
        let request = &self.requests[key as usize];
        let priority = self.workloads[request.workload as usize].priority;
        let io = request_io(request.kind, request.bytes, position, priority);
        let (gate, id) = (request.gate, request.id);
        self.gates[gate as usize].enqueue(self.now, id, io, key);
        self.ask(gate);
    }
}
