//! VMs that go through every combination of some values, each time on a device that is as new.

use super::event::Event;
use super::state::{SweepPhase, SweepState, World};
use crate::device::Device;
use crate::outcome::sweep::{SweepOutcome, SweepPoint};
use crate::random::Stream;
use crate::scenario::{Pattern, TimeDistribution, WorkloadKind};
use crate::workload::Generator;
use headgate_units::Nanos;

/// How often it is looked whether all requests of the combination before have ended.
const LOOK: Nanos = Nanos::from_millis(20);

impl World<'_> {
    pub(super) fn add_sweeps(&mut self) {
        for index in 0..self.setup.sweeps.len() {
            self.sweeps.push(SweepState { next: 0, phase: SweepPhase::Ending, points: Vec::new() });
            self.queue.push(Nanos::ZERO, Event::Sweep { sweep: index as u32 });
        }
    }

    pub(super) fn go_on_with_sweep(&mut self, index: u32) {
        let (now, sweep) = (self.now, &self.setup.sweeps[index as usize]);
        let disk = self.vms[sweep.vm].disks as usize;
        let workload = self.vms[sweep.vm].workloads.start;
        let again = Event::Sweep { sweep: index };
        match self.sweeps[index as usize].phase {
            SweepPhase::Ending => {
                // At the beginning the VM has just started by itself, or will.
                self.stop(sweep.vm as u32);
                if self.workloads[workload as usize].outstanding > 0 {
                    return self.queue.push(now + LOOK, again);
                }
                if self.sweeps[index as usize].next == sweep.points() {
                    return;
                }
                let node = self.disks[disk].nodes[0].0 as usize;
                self.nodes[node].device = Device::new(&sweep.device, self.nodes[node].capacity);
                let generator = self.combination(index as usize);
                self.workloads[workload as usize].generator = generator;
                self.start(sweep.vm as u32);
                self.sweeps[index as usize].phase = SweepPhase::Settling;
                self.queue.push(now + sweep.settle, again);
            }
            SweepPhase::Settling => {
                let before = self.disks[disk].recorder.so_far(now);
                self.sweeps[index as usize].phase = SweepPhase::Measuring { before };
                self.queue.push(now + sweep.measure, again);
            }
            SweepPhase::Measuring { before } => {
                let done = self.disks[disk].recorder.so_far(now).since(&before);
                let (outstanding, bytes, read, random) =
                    sweep.combination(self.sweeps[index as usize].next);
                let state = &mut self.sweeps[index as usize];
                state.points.push(SweepPoint {
                    outstanding,
                    size: bytes,
                    read,
                    random,
                    latency: done.mean_latency(),
                });
                state.next += 1;
                state.phase = SweepPhase::Ending;
                self.go_on_with_sweep(index);
            }
        }
    }

    fn combination(&self, index: usize) -> Generator {
        let (sweep, next) = (&self.setup.sweeps[index], self.sweeps[index].next);
        let own = &self.setup.vms[sweep.vm].workloads[0];
        let (outstanding, size, read, random) = sweep.combination(next);
        let kind = WorkloadKind::Closed { outstanding, think: TimeDistribution::ZERO };
        let pattern =
            Pattern { read, random, hot: None, sizes: vec![(size, 1)], extent: own.pattern.extent };
        let stream = Stream::new(self.seed, &format!("sweep {}/{next}", sweep.name));
        Generator::new(own.disk, &kind, &pattern, stream, None)
    }

    pub(super) fn finish_sweeps(&mut self) -> Vec<SweepOutcome> {
        let mut done: Vec<SweepOutcome> = Vec::new();
        for (sweep, state) in self.setup.sweeps.iter().zip(std::mem::take(&mut self.sweeps)) {
            let constants = sweep.constants_of.as_ref().map(|(of, percent)| {
                (done.iter().find(|other| other.name == *of).and_then(|other| other.fit), *percent)
            });
            done.push(SweepOutcome::new(
                sweep.name.clone(),
                state.points,
                sweep.points(),
                constants,
            ));
        }
        done
    }
}
