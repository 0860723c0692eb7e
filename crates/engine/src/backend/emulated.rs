//! The emulated backend: image files behind a device model in real time.

use super::context::Context;
use super::execute::{Execute, Opening, Refused};
use super::file::{self, File};
use super::storage::Storage;
use crate::error::EngineError;
use crate::snapshot::FlashSnapshot;
use crate::topology::{Told, Topology};
use headgate_devices::{DeviceModel, DiskPlace, FlashDrive, ModelSpec, Readiness};
use headgate_qos::SchedulerKind;
use headgate_units::{Bytes, Nanos, Shares};

/// A device model in front of files: a request ends when both have executed it.
pub(crate) struct Emulated {
    model: Box<dyn DeviceModel + Send>,
    /// Where the ranges of disks on it end, in bytes.
    end: u64,
    /// Where each disk lies, by its number in the shard.
    ranges: Vec<Option<DiskRange>>,
    files: File,
}

#[derive(Clone, Copy, Debug)]
struct DiskRange {
    base: u64,
    size: u64,
}

/// Page writes of an emulated drive's past that are made up in one round: about 100 us.
const AGED_PER_ROUND: u32 = 256;

impl Emulated {
    /// A device of this capacity, unless the model has its own.
    pub(crate) fn new(model: &ModelSpec, capacity: Bytes) -> Emulated {
        // A model with a capacity of its own counts what it has left itself.
        let end = if model.capacity().is_some() { u64::MAX / 2 } else { capacity.0 };
        Emulated {
            model: model.build(capacity),
            end,
            ranges: Vec::new(),
            // The model orders requests; the kernel gets no priorities.
            files: File::new(SchedulerKind::Fifo),
        }
    }

    /// A flash drive writes pages; other models have no unit of their own.
    pub(crate) fn topology(&self, block_size: u32) -> Topology {
        let page = self.model.flash_drive().map_or(0, |drive| drive.page.0);
        Topology::of(block_size, Told { physical_block: page, ..Told::default() })
    }

    fn base(&self, disk: u32) -> Option<u64> {
        self.ranges.get(disk as usize).copied().flatten().map(|range| range.base)
    }
}

impl Execute for Emulated {
    fn open(&mut self, ctx: &mut Context, disk: Opening) -> Result<Storage, Refused> {
        let (key, size, shares) = (disk.key, disk.size, disk.shares);
        let base = find_gap(self.ranges.iter().flatten().copied(), size.0, self.end);
        let range = DiskPlace { offset: base, size, shares };
        if let Err(refusal) = self.model.add_disk(ctx.now, range) {
            return Err((refusal.into(), Box::new(disk.source)));
        }
        let storage = self.files.open(ctx, disk);
        if storage.is_err() {
            self.model.remove_disk(ctx.now, base);
        } else {
            if self.ranges.len() <= key as usize {
                self.ranges.resize(key as usize + 1, None);
            }
            self.ranges[key as usize] = Some(DiskRange { base, size: size.0 });
        }
        storage
    }

    fn resize(&mut self, now: Nanos, disk: u32, size: Bytes) -> Result<(), EngineError> {
        let known = self.ranges.get(disk as usize).copied().flatten();
        let (Some(known), size) = (known, size.0) else { return Ok(()) };
        let others = self.ranges.iter().enumerate().filter(|&(key, _)| key != disk as usize);
        let others = others.filter_map(|(_, range)| *range);
        let meets = |other: DiskRange| {
            other.base < known.base.saturating_add(size)
                && known.base < other.base.saturating_add(other.size)
        };
        let fits = known.base.saturating_add(size) <= self.end && !others.clone().any(meets);
        let base = if fits { known.base } else { find_gap(others, size, self.end) };
        // A model keeps the weight that it knows.
        let place = DiskPlace { offset: base, size: Bytes(size), shares: Shares::default() };
        self.model.resize_disk(now, known.base, place)?;
        self.ranges[disk as usize] = Some(DiskRange { base, size });
        Ok(())
    }

    fn close(&mut self, ctx: &mut Context, key: u32, storage: &Storage) {
        if let Some(range) = self.ranges.get_mut(key as usize).and_then(Option::take) {
            self.model.remove_disk(ctx.now, range.base);
        }
        self.files.close(ctx, key, storage);
    }

    fn start(&mut self, ctx: &mut Context, key: u32) {
        let slot = &mut ctx.tables.slots[key];
        slot.parties = 2;
        let io = slot.request.device_io(self.base(slot.disk).unwrap_or(0));
        self.model.submit(ctx.now, u64::from(key), io);
        file::issue(ctx, key);
    }

    fn on_kernel(&mut self, ctx: &mut Context, key: u32, result: i32) {
        self.files.on_kernel(ctx, key, result);
    }

    fn poll(&mut self, ctx: &mut Context) {
        while let Some(id) = self.model.poll(ctx.now) {
            ctx.end_party(id as u32, Ok(()));
        }
    }

    #[inline]
    fn next_event(&self) -> Option<Nanos> {
        self.model.next_event()
    }

    fn prepare(&mut self, now: Nanos) -> Readiness {
        self.model.make_ready(now, AGED_PER_ROUND)
    }

    fn set_shares(&mut self, now: Nanos, disk: u32, shares: Shares) {
        if let Some(base) = self.base(disk) {
            self.model.set_shares(now, base, shares);
        }
    }

    fn flash_drive(&self) -> Option<FlashDrive> {
        self.model.flash_drive()
    }

    fn flash(&self, disk: u32) -> Option<FlashSnapshot> {
        let base = self.base(disk)?;
        Some(FlashSnapshot {
            counters: self.model.flash(base)?,
            standing: self.model.flash_standing(base)?,
        })
    }
}

/// The first gap of `len` bytes between the ranges that are taken, 0 when there is none: then disks
/// share ranges from the beginning.
fn find_gap(taken: impl Iterator<Item = DiskRange>, len: u64, capacity: u64) -> u64 {
    let mut taken: Vec<DiskRange> = taken.collect();
    taken.sort_unstable_by_key(|range| (range.base, range.size));
    let mut at = 0u64;
    for DiskRange { base, size } in taken {
        if base.saturating_sub(at) >= len {
            return at;
        }
        at = at.max(base.saturating_add(size));
    }
    if capacity.saturating_sub(at) >= len { at } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_lie_side_by_side_and_fill_gaps() {
        let find = |taken: &[(u64, u64)], len, capacity| {
            find_gap(taken.iter().map(|&(base, size)| DiskRange { base, size }), len, capacity)
        };
        assert_eq!(find(&[], 10, 100), 0);
        assert_eq!(find(&[(0, 10), (10, 20)], 10, 100), 30);
        assert_eq!(find(&[(30, 10), (0, 10)], 20, 100), 10);
        assert_eq!(find(&[(30, 10), (0, 10)], 21, 100), 40);
        assert_eq!(find(&[(0, 95)], 10, 100), 0, "a full device is shared from its beginning");
    }
}
