use crate::{DeviceIo, DeviceModel};
use alloc::collections::VecDeque;
use headgate_units::Nanos;

/// A device that completes every request at the instant it is submitted: what is measured above it
/// is overhead.
#[derive(Debug, Default)]
pub struct Null {
    done: VecDeque<(Nanos, u64)>,
}

impl Null {
    /// An empty device.
    pub fn new() -> Null {
        Null::default()
    }
}

impl DeviceModel for Null {
    fn submit(&mut self, now: Nanos, id: u64, _: DeviceIo) {
        self.done.push_back((now, id));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.done.front().map(|&(at, _)| at)
    }

    fn poll(&mut self, _: Nanos) -> Option<u64> {
        self.done.pop_front().map(|(_, id)| id)
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}
