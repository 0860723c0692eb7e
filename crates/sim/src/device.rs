use headgate_devices::{DeviceIo, DeviceModel, FixedRate, ModelSpec};
use headgate_units::{Bytes, Iops, Nanos};

/// A device model; that of a fixed rate apart, because its rate can be changed and calls to it need no table.
pub(crate) enum Device {
    Rate(FixedRate),
    Other(Box<dyn DeviceModel + Send>),
}

impl Device {
    pub(crate) fn new(spec: &ModelSpec, capacity: Bytes) -> Device {
        match spec {
            &ModelSpec::Rate { rate, latency, depth, stragglers } => {
                Device::Rate(FixedRate::new(rate, latency, depth).with_stragglers(stragglers))
            }
            other => Device::Other(other.build(capacity)),
        }
    }

    /// Changes the rate; other models have none.
    pub(crate) fn set_rate(&mut self, now: Nanos, rate: Iops) {
        if let Device::Rate(device) = self {
            device.set_rate(now, rate);
        }
    }

    #[inline]
    pub(crate) fn submit(&mut self, now: Nanos, id: u64, io: DeviceIo) {
        match self {
            Device::Rate(device) => device.submit(now, id, io),
            Device::Other(device) => device.submit(now, id, io),
        }
    }

    #[inline]
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        match self {
            Device::Rate(device) => device.next_event(),
            Device::Other(device) => device.next_event(),
        }
    }

    #[inline]
    pub(crate) fn poll(&mut self, now: Nanos) -> Option<u64> {
        match self {
            Device::Rate(device) => device.poll(now),
            Device::Other(device) => device.poll(now),
        }
    }
}
