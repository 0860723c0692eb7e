use headgate_devices::{
    DeviceIo, DeviceModel, DiskPlace, FixedRate, FlashCounters, Layered, ModelSpec, PlaceError,
    SpindleArray, Utilisation,
};
use headgate_units::{Bytes, Iops, Nanos, Shares};

/// A device model; that of a fixed rate apart, because its rate can be changed and calls to it need
/// no table.
pub(crate) enum Device {
    Rate(FixedRate),
    /// The same under layers, which are rare.
    LayeredRate(Box<Layered<FixedRate>>),
    /// Apart, because it can be doubled, and most experiments are about arrays.
    Array(Box<SpindleArray>),
    Other(Box<dyn DeviceModel + Send>),
}

impl Device {
    pub(crate) fn new(spec: &ModelSpec, capacity: Bytes) -> Device {
        match spec {
            ModelSpec::Rate(spec) => {
                let (device, layers) = (spec.device(), spec.layers());
                if layers.is_empty() {
                    return Device::Rate(device);
                }
                Device::LayeredRate(Box::new(Layered::new(&layers, device)))
            }
            ModelSpec::Array(spec) => Device::Array(Box::new(SpindleArray::new(spec, capacity))),
            other => Device::Other(other.build(capacity)),
        }
    }

    /// Another in the same state; `None` for those that cannot be doubled.
    pub(crate) fn fork(&self) -> Option<Device> {
        match self {
            Device::Rate(device) => Some(Device::Rate(device.clone())),
            Device::Array(device) => Some(Device::Array(device.clone())),
            Device::LayeredRate(_) | Device::Other(_) => None,
        }
    }

    /// Changes the rate; other models have none.
    pub(crate) fn set_rate(&mut self, now: Nanos, rate: Iops) {
        match self {
            Device::Rate(device) => device.set_rate(now, rate),
            Device::LayeredRate(device) => device.device_mut().set_rate(now, rate),
            Device::Array(_) | Device::Other(_) => {}
        }
    }

    /// Tells the device of a disk, where it wants to know.
    pub(crate) fn add_disk(&mut self, now: Nanos, place: DiskPlace) -> Result<(), PlaceError> {
        match self {
            Device::Rate(_) | Device::LayeredRate(_) | Device::Array(_) => Ok(()),
            Device::Other(device) => device.add_disk(now, place),
        }
    }

    /// Another weight for the disk that begins there.
    pub(crate) fn set_shares(&mut self, now: Nanos, offset: u64, shares: Shares) {
        if let Device::Other(device) = self {
            device.set_shares(now, offset, shares);
        }
    }

    /// What flash did for the disk that begins there.
    pub(crate) fn flash(&self, offset: u64) -> Option<FlashCounters> {
        match self {
            Device::Rate(_) | Device::LayeredRate(_) | Device::Array(_) => None,
            Device::Other(device) => device.flash(offset),
        }
    }

    /// How full the victims of the disk that begins there are to be; `None` also where no space
    /// brings its target about.
    pub(crate) fn target_utilisation(&self, offset: u64) -> Option<Utilisation> {
        match self {
            Device::Rate(_) | Device::LayeredRate(_) | Device::Array(_) => None,
            Device::Other(device) => device.flash_standing(offset)?.target_utilisation,
        }
    }

    /// Of the pages that flash moved because the one disk wrote, those of the other; both by where
    /// they begin.
    pub(crate) fn moved_for(&self, offset: u64, other: u64) -> Option<u64> {
        match self {
            Device::Rate(_) | Device::LayeredRate(_) | Device::Array(_) => None,
            Device::Other(device) => device.moved_for(offset, other),
        }
    }

    /// Requests so far that a write-back cache answered.
    pub(crate) fn by_cache(&self) -> Option<u64> {
        match self {
            Device::Rate(_) | Device::LayeredRate(_) => None,
            Device::Array(device) => device.by_cache(),
            Device::Other(device) => device.by_cache(),
        }
    }

    #[inline]
    pub(crate) fn submit(&mut self, now: Nanos, id: u64, io: DeviceIo) {
        match self {
            Device::Rate(device) => device.submit(now, id, io),
            Device::LayeredRate(device) => device.submit(now, id, io),
            Device::Array(device) => device.submit(now, id, io),
            Device::Other(device) => device.submit(now, id, io),
        }
    }

    #[inline]
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        match self {
            Device::Rate(device) => device.next_event(),
            Device::LayeredRate(device) => device.next_event(),
            Device::Array(device) => device.next_event(),
            Device::Other(device) => device.next_event(),
        }
    }

    #[inline]
    pub(crate) fn poll(&mut self, now: Nanos) -> Option<u64> {
        match self {
            Device::Rate(device) => device.poll(now),
            Device::LayeredRate(device) => device.poll(now),
            Device::Array(device) => device.poll(now),
            Device::Other(device) => device.poll(now),
        }
    }
}
