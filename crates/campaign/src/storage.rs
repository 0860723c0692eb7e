//! The storage under a campaign.

use crate::setup::Setup;
use headgate_devices::{DeviceIo, DeviceModel, FixedRate, IoKind, LayerSpec, Layered, RateSpec};
use headgate_qos::CostModel;
use headgate_units::{Bytes, Iops, Nanos};
use std::collections::VecDeque;

/// Storage of one server: whatever the window, its rate is its rate.
pub enum Storage {
    /// The project's own model, where every request takes as long: random service times, stalls.
    Rate(Box<Layered<FixedRate>>),
    /// A server that takes as long as a request costs.
    Sized(SizedServer),
}

impl Storage {
    /// Storage with nothing in it.
    pub fn new(setup: &Setup, rate: Iops) -> Storage {
        if setup.cost_model != CostModel::Unit {
            return Storage::Sized(SizedServer::new(rate));
        }
        let spec =
            RateSpec { latency: setup.latency, service: setup.service, ..RateSpec::new(rate) };
        let layers: Vec<LayerSpec> = setup.stall.map(LayerSpec::Stall).into_iter().collect();
        Storage::Rate(Box::new(Layered::new(&layers, spec.device())))
    }

    /// Hands in a request.
    pub fn submit(&mut self, now: Nanos, id: u64, bytes: Bytes, cost: f64) {
        match self {
            Storage::Rate(device) => {
                device.submit(now, id, DeviceIo { kind: IoKind::Read, offset: 0, bytes });
            }
            Storage::Sized(server) => server.submit(now, id, cost),
        }
    }

    /// When to poll.
    pub fn next_event(&self) -> Option<Nanos> {
        match self {
            Storage::Rate(device) => device.next_event(),
            Storage::Sized(server) => server.inside.front().map(|&(at, _)| at),
        }
    }

    /// A request that completed.
    pub fn poll(&mut self, now: Nanos) -> Option<u64> {
        match self {
            Storage::Rate(device) => device.poll(now),
            Storage::Sized(server) => server.poll(now),
        }
    }

    /// Changes the rate.
    pub fn set_rate(&mut self, now: Nanos, rate: Iops) {
        match self {
            Storage::Rate(device) => device.device_mut().set_rate(now, rate),
            Storage::Sized(server) => server.rate = rate.get() as f64,
        }
    }
}

/// One server, first come, first served, that takes cost / rate for each request.
pub struct SizedServer {
    rate: f64,
    free: Nanos,
    inside: VecDeque<(Nanos, u64)>,
}

impl SizedServer {
    fn new(rate: Iops) -> SizedServer {
        SizedServer { rate: rate.get() as f64, free: Nanos::ZERO, inside: VecDeque::new() }
    }

    fn submit(&mut self, now: Nanos, id: u64, cost: f64) {
        self.free = self.free.max(now) + Nanos((cost / self.rate * 1e9) as u64);
        self.inside.push_back((self.free, id));
    }

    fn poll(&mut self, now: Nanos) -> Option<u64> {
        let &(at, id) = self.inside.front()?;
        if at > now {
            return None;
        }
        self.inside.pop_front();
        Some(id)
    }
}
