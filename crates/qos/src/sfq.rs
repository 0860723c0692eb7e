use crate::config::{Config, ConfigError, Floor};
use crate::cost::Io;
use crate::dmclock::ServedElsewhere;
use crate::learned_cost::Charging;
use crate::mclock::MClock;
use crate::policy::{Burst, Policy};
use crate::priority::PriorityPolicy;
use crate::scheduler::{Decision, DiskCounters, DiskId, Phase, Rejected, Scheduler, UnknownDisk};
use alloc::vec::Vec;
use headgate_units::Nanos;

/// Start-time fair queueing, SFQ(D): shares alone, D being the caller's window.
///
/// Jin, Chase, Kaur: *Interposed Proportional Sharing for a Storage Service Utility*, SIGMETRICS
/// 2004. A request's start tag is `S = max(v, F)` with F the finish tag `S + cost/w` of the disk's
/// request before it and v the start tag of the request dispatched last; the smallest S goes first.
/// That is mClock's share clock without reservations, limits and burst credit, and is what runs
/// here: the baseline differs from the product in its policy alone. Applications' priorities are
/// reported and not enforced.
#[derive(Clone)]
pub struct Sfq<R> {
    inner: MClock<R>,
    /// By slot, as given: policies are reported even where they are not enforced.
    policies: Vec<Policy>,
}

impl<R> Sfq<R> {
    /// An empty scheduler. Of the configuration only the cost model is used.
    ///
    /// # Errors
    /// The configuration is out of range.
    pub fn new(config: Config) -> Result<Sfq<R>, ConfigError> {
        config.validate()?;
        let config = Config {
            cost_model: config.cost_model,
            batch: None,
            floor: Floor::Nothing,
            ..Config::default()
        };
        Ok(Sfq { inner: MClock::without_streams(config)?, policies: Vec::new() })
    }

    pub(crate) fn charging(&mut self) -> &mut Charging {
        self.inner.charging()
    }

    fn enforced(policy: Policy) -> Policy {
        Policy::shared(policy.shares()).with_burst(Burst::NONE)
    }
}

impl<R> Scheduler<R> for Sfq<R> {
    fn register(&mut self, now: Nanos, policy: Policy) -> DiskId {
        let id = self.inner.register(now, Self::enforced(policy));
        let slot = id.slot as usize;
        if slot == self.policies.len() {
            self.policies.push(policy);
        } else {
            self.policies[slot] = policy;
        }
        id
    }

    fn set_policy(&mut self, now: Nanos, disk: DiskId, policy: Policy) -> Result<(), UnknownDisk> {
        self.inner.set_policy(now, disk, Self::enforced(policy))?;
        self.policies[disk.slot as usize] = policy;
        Ok(())
    }

    fn policy(&self, disk: DiskId) -> Result<Policy, UnknownDisk> {
        self.inner.policy(disk)?;
        Ok(self.policies[disk.slot as usize])
    }

    fn set_priorities(
        &mut self,
        now: Nanos,
        disk: DiskId,
        policy: PriorityPolicy,
    ) -> Result<(), UnknownDisk> {
        self.inner.set_priorities(now, disk, policy)
    }

    fn priorities(&self, disk: DiskId) -> Result<PriorityPolicy, UnknownDisk> {
        self.inner.priorities(disk)
    }

    fn unregister(&mut self, now: Nanos, disk: DiskId) -> Result<Vec<R>, UnknownDisk> {
        self.inner.unregister(now, disk)
    }

    fn extract(
        &mut self,
        now: Nanos,
        disk: DiskId,
        wanted: &mut dyn FnMut(&R) -> bool,
    ) -> Result<Vec<R>, UnknownDisk> {
        self.inner.extract(now, disk, wanted)
    }

    fn enqueue(&mut self, now: Nanos, disk: DiskId, io: Io, request: R) -> Result<(), Rejected<R>> {
        self.inner.enqueue(now, disk, io, request)
    }

    fn served_elsewhere(
        &mut self,
        now: Nanos,
        disk: DiskId,
        elsewhere: ServedElsewhere,
    ) -> Result<(), UnknownDisk> {
        self.inner.served_elsewhere(now, disk, elsewhere)
    }

    fn dispatch(&mut self, now: Nanos) -> Decision<R> {
        let decision = self.inner.dispatch(now);
        debug_assert!(!matches!(&decision, Decision::Dispatch(d) if d.phase == Phase::Reservation));
        decision
    }

    fn complete(&mut self, now: Nanos, disk: DiskId) {
        self.inner.complete(now, disk);
    }

    fn queued(&self) -> usize {
        self.inner.queued()
    }

    fn counters(&self, disk: DiskId) -> Result<DiskCounters, UnknownDisk> {
        self.inner.counters(disk)
    }

    fn comparisons(&self) -> u64 {
        self.inner.comparisons()
    }
}
