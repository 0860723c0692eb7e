//! Events of a run: VMs start and stop, policies and rates change, nodes fail and return.

use super::event::Event;
use super::gate::GateSite;
use super::state::World;
use crate::device::Device;
use crate::scenario::Action;
use headgate_units::{Iops, Nanos};

impl World<'_> {
    pub(super) fn start(&mut self, index: u32) {
        if std::mem::replace(&mut self.vms[index as usize].running, true) {
            return;
        }
        self.count_running(index, 1);
        self.place_disks(index as usize);
        let now = self.now;
        for workload in self.vms[index as usize].workloads.clone() {
            let w = &mut self.workloads[workload as usize];
            w.epoch += 1;
            let (epoch, delay) = (w.epoch, w.delay);
            if delay > Nanos::ZERO {
                self.queue.push(now + delay, Event::Begin { workload, epoch });
            } else {
                self.drive(workload, |generator, orders| generator.start(now, orders));
            }
        }
    }

    pub(super) fn stop(&mut self, index: u32) {
        if !std::mem::replace(&mut self.vms[index as usize].running, false) {
            return;
        }
        self.count_running(index, -1);
        for workload in self.vms[index as usize].workloads.clone() {
            let w = &mut self.workloads[workload as usize];
            w.epoch += 1;
        }
    }

    /// A VM more or less runs: capacities may depend on their number.
    fn count_running(&mut self, vm: u32, change: isize) {
        let mut stores: Vec<usize> =
            self.setup.vms[vm as usize].disks.iter().map(|disk| disk.datastore).collect();
        stores.sort_unstable();
        stores.dedup();
        for store in stores {
            self.running[store] = self.running[store].saturating_add_signed(change);
            let rates = &self.setup.datastores[store].rate_by_vms;
            let Some(last) = rates.len().checked_sub(1) else { continue };
            let rate = rates[self.running[store].saturating_sub(1).min(last)];
            self.set_rates(store, None, rate);
        }
    }

    pub(super) fn set_rates(&mut self, datastore: usize, only: Option<usize>, rate: Iops) {
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            if node.datastore as usize == datastore && only.is_none_or(|only| only == node.index) {
                node.rate = node.rate.map(|_| rate);
                self.apply_rate(index as u32);
            }
        }
    }

    /// The nominal rate, as noise has it, goes to the device.
    fn apply_rate(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        let Some(rate) = node.rate else { return };
        let varied = u128::from(rate.get()) * u128::from(node.permille) / 1_000;
        let varied =
            u64::try_from(varied).unwrap_or(u64::MAX).clamp(Iops::MIN.get(), Iops::MAX.get());
        node.device.set_rate(self.now, Iops::new(varied).unwrap_or(rate));
        self.touched.push(index);
    }

    pub(super) fn draw_noise(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        let Some(noise) = self.setup.datastores[node.datastore as usize].noise else { return };
        let percent = u64::from(noise.percent);
        node.permille = 1_000 - 10 * percent + node.stream.below(20 * percent + 1);
        self.apply_rate(index);
        self.queue.push(self.now + noise.every, Event::Noise { node: index });
    }

    pub(super) fn act(&mut self, action: Action) {
        let now = self.now;
        match action {
            Action::Start { vm } => self.start(vm as u32),
            Action::Stop { vm } => self.stop(vm as u32),
            Action::Policy { vm, disk, policy } => {
                let disk = &mut self.disks[self.vms[vm].disks as usize + disk];
                disk.shares = policy.shares();
                let mut places = vec![(disk.gate, disk.id)];
                if let (Some(member), Some(pool)) = (disk.member, &self.pool) {
                    places = pool.gates_of(member).collect();
                }
                for &(node, index) in &disk.nodes {
                    self.nodes[node as usize].device.set_shares(now, disk.base, policy.shares());
                    self.touched.push(node);
                    places.extend(self.nodes[node as usize].gate.zip(disk.at_nodes[index]));
                }
                for (gate, id) in places {
                    self.gates[gate as usize].set_policy(now, id, policy);
                    self.ask(gate);
                }
            }
            Action::Rate { datastore, node, rate } => self.set_rates(datastore, node, rate),
            Action::QueueDepth { datastore, depth } => {
                for index in 0..self.gates.len() {
                    if self.gates[index].site == (GateSite::Host { datastore: datastore as u32 }) {
                        self.set_depth(index as u32, depth);
                    }
                }
            }
            Action::Fail { datastore, node } => self.fail(datastore, node),
            Action::Return { datastore, node } => self.restore(datastore, node),
        }
    }

    fn node(&self, datastore: usize, index: usize) -> Option<usize> {
        self.nodes
            .iter()
            .position(|node| node.datastore as usize == datastore && node.index == index)
    }

    /// From now on the node holds what it has and what it gets.
    fn fail(&mut self, datastore: usize, index: usize) {
        let Some(failed) = self.node(datastore, index) else { return };
        if self.nodes[failed].held.is_some() {
            return;
        }
        let mut inside: Vec<(Nanos, u32)> = self
            .requests
            .iter()
            .filter(|(_, request)| request.inside && request.node as usize == failed)
            .map(|(key, request)| (request.submitted, key as u32))
            .collect();
        inside.sort_unstable();
        let node = &mut self.nodes[failed];
        node.held = Some(inside.into_iter().map(|(_, key)| key).collect());
        node.scheduled = Nanos::MAX;
    }

    /// The node works again, with a device that has forgotten everything.
    fn restore(&mut self, datastore: usize, index: usize) {
        let Some(back) = self.node(datastore, index) else { return };
        let Some(held) = self.nodes[back].held.take() else { return };
        let spec = &self.setup.datastores[datastore].nodes[index].device;
        self.nodes[back].device = Device::new(spec, self.nodes[back].capacity);
        self.apply_rate(back as u32);
        if let Err(error) = self.tell_device(back) {
            self.failure = Some(error.to_string());
        }
        for key in held {
            self.submit(back as u32, key);
        }
    }
}
