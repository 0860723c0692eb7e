//! Events, one after the other, until the run ends.

use super::event::Event;
use super::state::World;
use crate::progress::{Progress, RunError};
use headgate_units::Nanos;

/// Events between two calls of [`Progress`].
const LOOK: u64 = 1 << 16;

impl World<'_> {
    /// Simulates until the end.
    pub(crate) fn run(&mut self, progress: &mut dyn Progress) -> Result<(), RunError> {
        let end = self.setup.duration;
        self.run_before(end, progress)?;
        self.now = end;
        self.tick();
        match progress.step(end, end, self.events) {
            std::ops::ControlFlow::Continue(()) => Ok(()),
            std::ops::ControlFlow::Break(()) => Err(RunError::Cancelled { at: end }),
        }
    }

    /// Simulates all that happens before this time, or before the end.
    pub(crate) fn run_before(
        &mut self,
        until: Nanos,
        progress: &mut dyn Progress,
    ) -> Result<(), RunError> {
        let end = self.setup.duration;
        let mut look = self.events + LOOK;
        while let Some((at, event)) = self.queue.pop_before(until.min(end)) {
            self.now = at;
            self.handle(event);
            self.settle();
            if let Some(why) = self.failure.take() {
                return Err(RunError::Trace(why));
            }
            if self.events >= look {
                look = self.events + LOOK;
                if progress.step(at, end, self.events).is_break() {
                    return Err(RunError::Cancelled { at });
                }
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        let now = self.now;
        self.events += 1;
        match event {
            Event::Device { node } => self.device(node),
            Event::Wake { gate } => {
                let woken = &mut self.gates[gate as usize];
                if woken.planned == now {
                    woken.planned = Nanos::MAX;
                }
                // Else it has asked for another time since.
                if woken.is_due(now) {
                    self.ask(gate);
                }
            }
            Event::Window { window } => self.end_period(window),
            Event::Guest { disk } => self.settle_guest(disk),
            Event::AtNode { request } => self.at_node(request),
            Event::Back { request } => self.back(request),
            Event::Workload { workload, token, epoch } => {
                if self.workloads[workload as usize].epoch == epoch {
                    self.drive(workload, |generator, orders| generator.timer(now, token, orders));
                }
            }
            Event::Begin { workload, epoch } => {
                if self.workloads[workload as usize].epoch == epoch {
                    self.drive(workload, |generator, orders| generator.start(now, orders));
                }
            }
            Event::Start { vm } => self.start(vm),
            Event::Timeline { index } => {
                let action = self.setup.timeline[index as usize].action.clone();
                self.act(action);
            }
            Event::Noise { node } => self.draw_noise(node),
            Event::Tick => {
                self.tick();
                self.queue.push_first(now + self.setup.interval, event);
            }
            Event::Sample => self.sample(),
            Event::Advise => self.take_advice(),
            Event::Copy { number } => self.wake_copy(number),
            Event::Tide => self.turn_tide(),
            Event::Sweep { sweep } => self.go_on_with_sweep(sweep),
            Event::Mark => {
                self.count_flash();
                self.disks.iter_mut().for_each(|disk| disk.recorder.mark(now));
                self.nodes.iter_mut().filter_map(|n| n.recorder.as_mut()).for_each(|r| r.mark(now));
                self.workloads
                    .iter_mut()
                    .filter_map(|w| w.transactions.as_mut())
                    .for_each(|t| t.mark());
                self.workloads
                    .iter_mut()
                    .filter_map(|w| w.recorder.as_mut())
                    .for_each(|r| r.mark(now));
                self.windows.iter_mut().for_each(|window| window.recorder.mark(now));
                self.pool_recorders().for_each(|r| r.mark(now));
            }
        }
    }

    /// Asks all gates that may have something to send, and plans for the devices that got
    /// something.
    fn settle(&mut self) {
        while !self.dirty.is_empty() {
            let mut next = 0;
            while let Some(&gate) = self.dirty.get(next) {
                next += 1;
                self.pump(gate);
            }
            self.dirty.clear();
            self.go_on_with_copies();
        }
        while let Some(node) = self.touched.pop() {
            self.plan_device(node);
        }
    }

    #[inline]
    pub(super) fn ask(&mut self, gate: u32) {
        let listed = &mut self.gates[gate as usize].listed;
        if !*listed {
            *listed = true;
            self.dirty.push(gate);
        }
    }

    fn tick(&mut self) {
        let now = self.now;
        self.count_flash();
        self.disks.iter_mut().for_each(|disk| disk.recorder.tick(now));
        self.nodes.iter_mut().filter_map(|node| node.recorder.as_mut()).for_each(|r| r.tick(now));
        self.workloads.iter_mut().filter_map(|w| w.transactions.as_mut()).for_each(|t| t.tick());
        self.workloads.iter_mut().filter_map(|w| w.recorder.as_mut()).for_each(|r| r.tick(now));
        self.windows.iter_mut().for_each(|window| window.recorder.tick(now));
        self.pool_recorders().for_each(|r| r.tick(now));
    }
}
