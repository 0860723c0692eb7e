use crate::config::{Config, ConfigError};
use crate::cost::Io;
use crate::dmclock::ServedElsewhere;
use crate::learned_cost::{Charging, QueuedSize};
use crate::policy::Policy;
use crate::priority::{Given, PriorityPolicy};
use crate::scheduler::{
    Decision, DiskCounters, DiskId, Dispatched, Phase, Rejected, Scheduler, UnknownDisk,
};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use headgate_units::Nanos;

/// Arrival order over all disks: what a host without control does. Policies and priorities are kept
/// and not enforced.
#[derive(Clone)]
pub struct Fifo<R> {
    charging: Charging,
    disks: Vec<FifoDisk>,
    free: Vec<u32>,
    queue: VecDeque<Waiting<R>>,
}

#[derive(Clone)]
struct Waiting<R> {
    slot: u32,
    size: QueuedSize,
    given: Given,
    request: R,
}

#[derive(Clone)]
struct FifoDisk {
    generation: u32,
    registered: Option<Policy>,
    priorities: PriorityPolicy,
    counters: DiskCounters,
}

impl<R> Fifo<R> {
    /// An empty scheduler. Of the configuration only the cost model is used.
    ///
    /// # Errors
    /// The configuration is out of range.
    pub fn new(config: Config) -> Result<Fifo<R>, ConfigError> {
        config.validate()?;
        Ok(Fifo {
            charging: Charging::new(config.cost_model)?,
            disks: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
        })
    }

    pub(crate) fn charging(&mut self) -> &mut Charging {
        &mut self.charging
    }

    fn disk(&self, id: DiskId) -> Result<(&FifoDisk, Policy), UnknownDisk> {
        match self.disks.get(id.slot as usize) {
            Some(disk @ FifoDisk { generation, registered: Some(policy), .. })
                if *generation == id.generation =>
            {
                Ok((disk, *policy))
            }
            _ => Err(UnknownDisk(id)),
        }
    }

    fn disk_mut(&mut self, id: DiskId) -> Result<&mut FifoDisk, UnknownDisk> {
        self.disk(id)?;
        Ok(&mut self.disks[id.slot as usize])
    }
}

impl<R> Scheduler<R> for Fifo<R> {
    fn register(&mut self, _now: Nanos, policy: Policy) -> DiskId {
        if let Some(slot) = self.free.pop() {
            self.charging.register(slot as usize);
            let disk = &mut self.disks[slot as usize];
            disk.registered = Some(policy);
            disk.priorities = PriorityPolicy::default();
            disk.counters = DiskCounters::default();
            return DiskId { slot, generation: disk.generation };
        }
        let slot = self.disks.len() as u32;
        self.charging.register(slot as usize);
        self.disks.push(FifoDisk {
            generation: 0,
            registered: Some(policy),
            priorities: PriorityPolicy::default(),
            counters: DiskCounters::default(),
        });
        DiskId { slot, generation: 0 }
    }

    fn set_policy(&mut self, _now: Nanos, disk: DiskId, policy: Policy) -> Result<(), UnknownDisk> {
        self.disk_mut(disk)?.registered = Some(policy);
        Ok(())
    }

    fn policy(&self, disk: DiskId) -> Result<Policy, UnknownDisk> {
        self.disk(disk).map(|(_, policy)| policy)
    }

    fn set_priorities(
        &mut self,
        _now: Nanos,
        disk: DiskId,
        policy: PriorityPolicy,
    ) -> Result<(), UnknownDisk> {
        self.disk_mut(disk)?.priorities = policy;
        Ok(())
    }

    fn priorities(&self, disk: DiskId) -> Result<PriorityPolicy, UnknownDisk> {
        self.disk(disk).map(|(disk, _)| disk.priorities)
    }

    /// O(all queued).
    fn unregister(&mut self, now: Nanos, disk: DiskId) -> Result<Vec<R>, UnknownDisk> {
        let queued = self.extract(now, disk, &mut |_| true)?;
        let gone = self.disk_mut(disk)?;
        gone.registered = None;
        if let Some(next) = gone.generation.checked_add(1) {
            gone.generation = next;
            self.free.push(disk.slot);
        }
        Ok(queued)
    }

    /// O(all queued).
    fn extract(
        &mut self,
        _now: Nanos,
        disk: DiskId,
        wanted: &mut dyn FnMut(&R) -> bool,
    ) -> Result<Vec<R>, UnknownDisk> {
        self.disk(disk)?;
        let mut taken = Vec::new();
        for _ in 0..self.queue.len() {
            let Some(waiting) = self.queue.pop_front() else { break };
            if waiting.slot == disk.slot && wanted(&waiting.request) {
                taken.push(waiting.request);
            } else {
                self.queue.push_back(waiting);
            }
        }
        self.disk_mut(disk)?.counters.queued -= taken.len();
        Ok(taken)
    }

    fn enqueue(
        &mut self,
        _now: Nanos,
        disk: DiskId,
        io: Io,
        request: R,
    ) -> Result<(), Rejected<R>> {
        match self.disk_mut(disk) {
            Ok(known) => known.counters.queued += 1,
            Err(reason) => return Err(Rejected { reason, request }),
        }
        let given = Given::new(io.priority);
        let size = self.charging.size(disk.slot as usize, &io);
        self.queue.push_back(Waiting { slot: disk.slot, size, given, request });
        Ok(())
    }

    /// Changes nothing: the order of arrival does not depend on it.
    fn served_elsewhere(
        &mut self,
        _now: Nanos,
        disk: DiskId,
        _elsewhere: ServedElsewhere,
    ) -> Result<(), UnknownDisk> {
        self.disk(disk).map(|_| ())
    }

    fn dispatch(&mut self, _now: Nanos) -> Decision<R> {
        let Some(Waiting { slot, size, given, request }) = self.queue.pop_front() else {
            return Decision::Idle;
        };
        let (cost, _) = self.charging.charge(size);
        let disk = &mut self.disks[slot as usize];
        disk.counters.queued -= 1;
        disk.counters.in_flight += 1;
        disk.counters.by_weight += 1;
        disk.counters.cost += cost;
        let id = DiskId { slot, generation: disk.generation };
        let priority = disk.priorities.resolve(given.get());
        Decision::Dispatch(Dispatched {
            disk: id,
            request,
            phase: Phase::Weight,
            cost,
            priority,
            size,
        })
    }

    fn complete(&mut self, _now: Nanos, disk: DiskId) {
        if let Ok(disk) = self.disk_mut(disk) {
            disk.counters.in_flight = disk.counters.in_flight.saturating_sub(1);
        }
    }

    fn queued(&self) -> usize {
        self.queue.len()
    }

    fn counters(&self, disk: DiskId) -> Result<DiskCounters, UnknownDisk> {
        self.disk(disk).map(|(disk, _)| disk.counters)
    }
}
