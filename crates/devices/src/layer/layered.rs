//! A device model under a stack of layers.

use super::{LayerSpec, Layers, Passage};
use crate::{DeviceIo, DeviceModel, DiskPlace, FlashCounters, FlashDrive, PlaceError, Readiness};
use alloc::collections::{BTreeMap, VecDeque};
use headgate_flash::Standing as FlashStanding;
use headgate_units::{Nanos, Shares};

/// A device model under a stack of layers: itself a device model.
///
/// A model has no failures to report. Requests that a layer fails end like others, without having
/// reached the device; [`Layered::failed`] counts them.
#[derive(Debug)]
pub struct Layered<D> {
    layers: Layers,
    device: D,
    /// Requests in the device.
    inside: BTreeMap<u64, DeviceIo>,
    /// Ended, not yet polled, with the times at which they ended.
    done: VecDeque<(Nanos, u64)>,
    failed: u64,
}

impl<D: DeviceModel> Layered<D> {
    /// Puts layers on a device, outermost first.
    pub fn new(layers: &[LayerSpec], device: D) -> Layered<D> {
        Layered {
            layers: Layers::new(layers),
            device,
            inside: BTreeMap::new(),
            done: VecDeque::new(),
            failed: 0,
        }
    }

    /// The device below.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Requests that a layer failed.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    fn start(&mut self, at: Nanos, id: u64, io: DeviceIo) {
        self.inside.insert(id, io);
        self.device.submit(at, id, io);
    }

    fn end(&mut self, at: Nanos, id: u64, result: Result<(), super::fault::Fault>) {
        self.failed += u64::from(result.is_err());
        self.done.push_back((at, id));
    }

    /// Moves what the layers release by `now`.
    fn release(&mut self, now: Nanos) {
        while let Some(released) = self.layers.poll(now) {
            match released.ended {
                None => self.start(released.at, released.id, released.io),
                Some(result) => self.end(released.at, released.id, result),
            }
        }
    }
}

impl<D: DeviceModel> DeviceModel for Layered<D> {
    fn submit(&mut self, now: Nanos, id: u64, io: DeviceIo) {
        self.release(now);
        match self.layers.submit(now, id, io) {
            Passage::Start => self.start(now, id, io),
            Passage::End(result) => self.end(now, id, result),
            Passage::Held => {}
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        let done = self.done.front().map(|&(at, _)| at);
        [done, self.layers.next_event(), self.device.next_event()].into_iter().flatten().min()
    }

    fn poll(&mut self, now: Nanos) -> Option<u64> {
        loop {
            self.release(now);
            if let Some((_, id)) = self.done.pop_front() {
                return Some(id);
            }
            let id = self.device.poll(now)?;
            let Some(io) = self.inside.remove(&id) else { return Some(id) };
            if let Passage::End(_) = self.layers.complete(now, id, io, Ok(())) {
                return Some(id);
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.layers.held() + self.inside.len() + self.done.len()
    }

    fn by_cache(&self) -> Option<u64> {
        self.device.by_cache()
    }

    fn add_disk(&mut self, now: Nanos, place: DiskPlace) -> Result<(), PlaceError> {
        self.device.add_disk(now, place)
    }

    fn resize_disk(&mut self, now: Nanos, offset: u64, place: DiskPlace) -> Result<(), PlaceError> {
        self.device.resize_disk(now, offset, place)
    }

    fn remove_disk(&mut self, now: Nanos, offset: u64) {
        self.device.remove_disk(now, offset);
    }

    fn set_shares(&mut self, now: Nanos, offset: u64, shares: Shares) {
        self.device.set_shares(now, offset, shares);
    }

    fn make_ready(&mut self, now: Nanos, pages: u32) -> Readiness {
        self.device.make_ready(now, pages)
    }

    fn flash(&self, offset: u64) -> Option<FlashCounters> {
        self.device.flash(offset)
    }

    fn flash_standing(&self, offset: u64) -> Option<FlashStanding> {
        self.device.flash_standing(offset)
    }

    fn flash_drive(&self) -> Option<FlashDrive> {
        self.device.flash_drive()
    }

    fn moved_for(&self, offset: u64, other: u64) -> Option<u64> {
        self.device.moved_for(offset, other)
    }
}
