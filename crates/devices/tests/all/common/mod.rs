//! A driver in virtual time.

use headgate_devices::{DeviceIo, DeviceModel, IoKind};
use headgate_units::{Bytes, Nanos};
use std::collections::HashMap;

pub const READ_4K: DeviceIo = DeviceIo { kind: IoKind::Read, offset: 0, bytes: Bytes::from_kib(4) };

/// Runs the device until it is empty: who completed when.
pub fn completion_times(device: &mut impl DeviceModel, mut now: Nanos) -> Vec<(u64, Nanos)> {
    let mut times = Vec::new();
    loop {
        while let Some(id) = device.poll(now) {
            times.push((id, now));
        }
        if device.in_flight() == 0 {
            return times;
        }
        let next = device.next_event().expect("a device with requests in it has a next event");
        assert!(next > now, "after poll returned none the next event is in the future");
        now = next;
    }
}

/// A client that keeps a number of requests outstanding.
pub struct ClosedLoop<D> {
    pub device: D,
    pub now: Nanos,
    pub completed: u64,
    pub bytes: u64,
    /// How late the driver comes to an event.
    pub late: fn(Nanos, u64) -> Nanos,
    /// From a completion to the next submission.
    pub think: Nanos,
    pub next_io: Box<dyn FnMut(u64) -> DeviceIo>,
    random: u64,
    submitted: HashMap<u64, (Nanos, DeviceIo)>,
    waited: Nanos,
    next_id: u64,
}

impl<D: DeviceModel> ClosedLoop<D> {
    pub fn new(device: D, now: Nanos, outstanding: usize) -> ClosedLoop<D> {
        ClosedLoop::with_io(device, now, outstanding, |_| READ_4K)
    }

    pub fn with_io(
        device: D,
        now: Nanos,
        outstanding: usize,
        next_io: impl FnMut(u64) -> DeviceIo + 'static,
    ) -> ClosedLoop<D> {
        let mut new = ClosedLoop {
            device,
            now,
            completed: 0,
            bytes: 0,
            late: |_, _| Nanos::ZERO,
            think: Nanos::ZERO,
            next_io: Box::new(next_io),
            random: 1,
            submitted: HashMap::new(),
            waited: Nanos::ZERO,
            next_id: 0,
        };
        (0..outstanding).for_each(|_| new.submit());
        new
    }

    fn submit(&mut self) {
        let io = (self.next_io)(self.next_id);
        self.device.submit(self.now, self.next_id, io);
        self.submitted.insert(self.next_id, (self.now, io));
        self.next_id += 1;
    }

    /// Runs to `end`, which the device sees.
    pub fn run_until(&mut self, end: Nanos) {
        while let Some(next) = self.device.next_event().filter(|&next| next <= end) {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.now = self.now.max(next) + (self.late)(next, self.random >> 33);
            let mut replies = 0;
            while let Some(id) = self.device.poll(self.now) {
                let (submitted, io) =
                    self.submitted.remove(&id).expect("every request completes once");
                self.waited += self.now - submitted;
                self.completed += 1;
                self.bytes += io.bytes.0;
                replies += 1;
            }
            self.now += if replies > 0 { self.think } else { Nanos::ZERO };
            (0..replies).for_each(|_| self.submit());
        }
        self.now = self.now.max(end);
    }

    pub fn mean_latency(&self) -> Nanos {
        Nanos(self.waited.0 / self.completed.max(1))
    }
}

/// The same scattered number for the same `i`.
pub fn scatter(i: u64) -> u64 {
    let mixed = (i ^ (i >> 3)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ (mixed >> 27)
}
