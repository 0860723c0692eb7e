//! Hours in which closed loops have less outstanding.

use super::event::Event;
use super::state::{TideState, World};
use crate::random::Stream;

/// Within an hour each loop has this part, in per cent, of what the hour gives at least.
const EACH_AT_LEAST: u64 = 80;

impl World<'_> {
    pub(super) fn add_tide(&mut self, seed: u64) {
        let Some(tide) = &self.setup.tide else { return };
        self.tide = Some(TideState { stream: Stream::new(seed, "tide"), high: true });
        for &(from, to) in &tide.during {
            self.queue.push(from, Event::Tide);
            self.queue.push(to, Event::Tide);
        }
    }

    /// Another hour begins.
    pub(super) fn turn_tide(&mut self) {
        let (Some(tide), now) = (&self.setup.tide, self.now) else { return };
        let within = tide.during.iter().find(|(from, to)| *from <= now && now < *to);
        let hour = within.map(|&(_, to)| {
            if now + tide.every < to {
                self.queue.push(now + tide.every, Event::Tide);
            }
            u64::from(tide.low)
        });
        let Some(state) = &mut self.tide else { return };
        if hour.is_none() && std::mem::replace(&mut state.high, true) {
            return;
        }
        state.high = hour.is_none();
        let all = hour.map(|low| low + state.stream.below(101 - low));
        for index in 0..self.workloads.len() {
            let Some(state) = &mut self.tide else { return };
            let percent = match all {
                Some(all) => all * (EACH_AT_LEAST + state.stream.below(101 - EACH_AT_LEAST)) / 100,
                None => 100,
            };
            if self.vms[self.workloads[index].vm as usize].running {
                self.drive(index as u32, |generator, orders| generator.scale(now, percent, orders));
            }
        }
    }
}
