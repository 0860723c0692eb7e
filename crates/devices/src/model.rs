//! What a device model is asked and what it answers.

use crate::{FlashCounters, FlashDrive};
use alloc::boxed::Box;
use alloc::string::String;
use headgate_flash::Standing as FlashStanding;
use headgate_units::{Bytes, Nanos, Shares};
use thiserror::Error;

/// What a request does to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// Moves data from the device.
    Read,
    /// Moves data to the device.
    Write,
    /// Makes completed writes durable. Offset and size mean nothing.
    Flush,
    /// Tells the device that a range is not needed. Moves no data.
    Discard,
}

/// One request to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceIo {
    /// What to do.
    pub kind: IoKind,
    /// First byte on the device. An offset past the capacity wraps around, a range is cut at the
    /// capacity.
    pub offset: u64,
    /// Length of the range.
    pub bytes: Bytes,
}

/// Where a disk lies on a device, and what it is worth: for devices that treat disks apart. To a
/// flash drive the place is a name: disks may lie anywhere, as long as they do not overlap and
/// there is room for them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPlace {
    /// Its first byte on the device.
    pub offset: u64,
    /// Its size.
    pub size: Bytes,
    /// Its weight.
    pub shares: Shares,
}

/// Why a device does not take a disk.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// There is no such place, or somebody has it.
    #[error(
        "the device has {capacity} for disks, {left} of it left, and the disk is {size}; give it another size, or remove others"
    )]
    NoSpace {
        /// The disk's size.
        size: Bytes,
        /// The device's.
        capacity: Bytes,
        /// What no disk has.
        left: Bytes,
    },
    /// As many disks as it can tell apart.
    #[error("the device has 65536 disks already; remove one")]
    TooMany,
    /// The device's own reason.
    #[error("the device does not take the disk: {0}")]
    Refused(String),
}

/// Whether a device has anything to do before its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Nothing (more).
    Ready,
    /// Some: it has to be asked again.
    Busy,
}

/// A device in virtual or real time.
///
/// The driver's loop:
///
/// ```
/// # use headgate_devices::{DeviceIo, DeviceModel, IoKind, ModelSpec};
/// # use headgate_units::{Bytes, Nanos};
/// # let mut device = "rate=1000".parse::<ModelSpec>().unwrap().build(Bytes::from_gib(1));
/// # let mut now = Nanos::ZERO;
/// device.submit(now, 7, DeviceIo { kind: IoKind::Read, offset: 0, bytes: Bytes::from_kib(4) });
/// while device.in_flight() > 0 {
///     while let Some(id) = device.poll(now) {
///         println!("request {id} is done");
///     }
///     if let Some(next) = device.next_event() {
///         now = next; // in real time: sleep until then, and take what the clock says
///     }
/// }
/// ```
///
/// What happens inside a device depends on the instants of the submissions only, never on when or
/// how often it is polled (but see [`FixedRate`](crate::FixedRate) for what a late driver is given
/// back).
pub trait DeviceModel {
    /// Hands the device a request. `id` is the caller's name for it and comes back from
    /// [`DeviceModel::poll`]; the model does not look at it. There is no bound on the number of
    /// requests inside: that is the caller's.
    fn submit(&mut self, now: Nanos, id: u64, io: DeviceIo);

    /// When to call [`DeviceModel::poll`] next: not later than the next completion. It may be an
    /// event inside the device, then `poll` returns `None`. After `poll(now)` returned `None` the
    /// answer is later than `now`, and it changes only with `submit` and `poll`.
    ///
    /// `None`: nothing will ever happen without another request. A driver may also stop waking up
    /// while [`DeviceModel::in_flight`] is zero: the device makes up for what happened meanwhile at
    /// the next call.
    fn next_event(&self) -> Option<Nanos>;

    /// One request that completed by `now`, in the order of completion; `None` when there is none
    /// (left).
    fn poll(&mut self, now: Nanos) -> Option<u64>;

    /// Requests submitted and not yet returned by [`DeviceModel::poll`].
    fn in_flight(&self) -> usize;

    /// Reads and writes so far that a write-back cache answered without waiting for a disk; `None`
    /// where there is no such cache.
    fn by_cache(&self) -> Option<u64> {
        None
    }

    /// Tells the device of a disk. To most it is nothing; a flash drive gives it pages, and blocks
    /// under isolation. The driver keeps disks apart: places do not overlap, and nothing of a disk
    /// is inside when it is removed.
    ///
    /// # Errors
    /// [`PlaceError`], from a device with a capacity of its own
    /// ([`ModelSpec::capacity`](crate::ModelSpec::capacity)).
    fn add_disk(&mut self, _now: Nanos, _place: DiskPlace) -> Result<(), PlaceError> {
        Ok(())
    }

    /// The disk that begins at `offset` lies at `place` from now on, with another size perhaps. Its
    /// data goes along; what is beyond a smaller size need not be kept.
    ///
    /// # Errors
    /// [`PlaceError`], and it stays as it was.
    fn resize_disk(
        &mut self,
        _now: Nanos,
        _offset: u64,
        _place: DiskPlace,
    ) -> Result<(), PlaceError> {
        Ok(())
    }

    /// The disk that begins there is no more, and its data need not be kept.
    fn remove_disk(&mut self, _now: Nanos, _offset: u64) {}

    /// The disk that begins there has another weight.
    fn set_shares(&mut self, _now: Nanos, _offset: u64, _shares: Shares) {}

    /// Does a part of the computing that a device has to do before the next request, and that takes
    /// no time of its own: what was written to a drive that is aged. `pages` is how many page
    /// writes, or a few more; five million take about a second. Who does not call it has all of it
    /// done by the next [`DeviceModel::submit`].
    fn make_ready(&mut self, _now: Nanos, _pages: u32) -> Readiness {
        Readiness::Ready
    }

    /// What a flash drive did for the disk that begins there; `None` where there is no flash, or no
    /// disk.
    fn flash(&self, _offset: u64) -> Option<FlashCounters> {
        None
    }

    /// What the disk that begins there has of a flash drive and is to have; `None` where there is
    /// no flash, or no disk.
    fn flash_standing(&self, _offset: u64) -> Option<FlashStanding> {
        None
    }

    /// What a flash drive did for all disks; `None` where there is no flash. O(disks).
    fn flash_drive(&self) -> Option<FlashDrive> {
        None
    }

    /// Of the pages that a flash drive moved because the disk at `offset` wrote, those of the disk
    /// at `other`. `None`: it is no flash drive, or has no such disks.
    fn moved_for(&self, _offset: u64, _other: u64) -> Option<u64> {
        None
    }
}

impl<D: DeviceModel + ?Sized> DeviceModel for Box<D> {
    fn submit(&mut self, now: Nanos, id: u64, io: DeviceIo) {
        (**self).submit(now, id, io);
    }
    fn next_event(&self) -> Option<Nanos> {
        (**self).next_event()
    }
    fn poll(&mut self, now: Nanos) -> Option<u64> {
        (**self).poll(now)
    }
    fn in_flight(&self) -> usize {
        (**self).in_flight()
    }
    fn by_cache(&self) -> Option<u64> {
        (**self).by_cache()
    }
    fn add_disk(&mut self, now: Nanos, place: DiskPlace) -> Result<(), PlaceError> {
        (**self).add_disk(now, place)
    }
    fn resize_disk(&mut self, now: Nanos, offset: u64, place: DiskPlace) -> Result<(), PlaceError> {
        (**self).resize_disk(now, offset, place)
    }
    fn remove_disk(&mut self, now: Nanos, offset: u64) {
        (**self).remove_disk(now, offset);
    }
    fn set_shares(&mut self, now: Nanos, offset: u64, shares: Shares) {
        (**self).set_shares(now, offset, shares);
    }
    fn make_ready(&mut self, now: Nanos, pages: u32) -> Readiness {
        (**self).make_ready(now, pages)
    }
    fn flash(&self, offset: u64) -> Option<FlashCounters> {
        (**self).flash(offset)
    }
    fn flash_standing(&self, offset: u64) -> Option<FlashStanding> {
        (**self).flash_standing(offset)
    }
    fn flash_drive(&self) -> Option<FlashDrive> {
        (**self).flash_drive()
    }
    fn moved_for(&self, offset: u64, other: u64) -> Option<u64> {
        (**self).moved_for(offset, other)
    }
}
