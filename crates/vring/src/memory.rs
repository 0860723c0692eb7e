//! Memory of a guest as another process sees it: mapped here, written there, at any time.
//!
//! With its submodules this is the crate's only place with `unsafe`. Its invariant: a pointer
//! into a [`HostMapping`] is made only from a range checked against that mapping, and whoever holds
//! the pointer holds an `Arc` of the mapping, or (a [`Segment`]) says that its user must. All
//! accesses are atomic, so a guest that writes at the same time yields odd values but no undefined
//! behaviour.

#[cfg(feature = "loom")]
pub mod explored;
mod heap;
mod mapping;
mod shared;
#[cfg(not(feature = "loom"))]
mod words;

use alloc::boxed::Box;
use alloc::vec::Vec;
pub use heap::HeapMapping;
pub use mapping::{HostMapping, MemoryError};
#[cfg(test)]
pub(crate) use shared::crash_point;
pub(crate) use shared::{SharedArea, full_fence};

use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering};
use shared::{read_shared, stores_are_cut, write_shared};

/// A guest physical address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestAddress(pub u64);

/// One run of guest physical addresses and the mapping behind it. Cheap to clone: a changed memory
/// table shares the regions that stayed.
#[derive(Clone)]
pub struct Region {
    start: u64,
    len: u64,
    base: NonNull<u8>,
    mapping: Arc<dyn HostMapping>,
}

// SAFETY: `base` points into `mapping`, which is itself `Send + Sync` and held alive beside it.
unsafe impl Send for Region {}
// SAFETY: as above; all access through `base` is atomic.
unsafe impl Sync for Region {}

impl Region {
    /// The whole of `mapping` appears to the guest at `start`.
    ///
    /// # Errors
    /// [`MemoryError::BadRegion`].
    pub fn new(start: GuestAddress, mapping: Arc<dyn HostMapping>) -> Result<Region, MemoryError> {
        let (base, len) = (mapping.base(), mapping.len() as u64);
        if len == 0 || start.0.checked_add(len).is_none() {
            return Err(MemoryError::BadRegion(start.0));
        }
        Ok(Region { start: start.0, len, base, mapping })
    }

    /// First guest address.
    pub fn start(&self) -> GuestAddress {
        GuestAddress(self.start)
    }

    /// Length in bytes.
    pub fn size(&self) -> u64 {
        self.len
    }

    /// How many of `len` bytes from `address` lie in here, if any, and where.
    #[inline]
    fn part(&self, address: u64, len: usize) -> Option<(NonNull<u8>, usize)> {
        let offset = address.wrapping_sub(self.start);
        if offset >= self.len {
            return None;
        }
        let here = (self.len - offset).min(len as u64) as usize;
        // SAFETY: `offset < len`, and `base .. base + len` is the mapping.
        Some((unsafe { self.base.add(offset as usize) }, here))
    }
}

/// The place in the region table where the last look-up ended: most look-ups end in the same
/// region.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegionHint(usize);

/// The guest's memory: disjoint regions, sorted.
pub struct GuestMemory {
    regions: Box<[Region]>,
}

impl fmt::Debug for GuestMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.regions.iter().map(|r| (r.start, r.len))).finish()
    }
}

impl GuestMemory {
    /// A table of these regions, in any order.
    ///
    /// # Errors
    /// [`MemoryError::Overlap`].
    pub fn new(mut regions: Vec<Region>) -> Result<GuestMemory, MemoryError> {
        regions.sort_by_key(|r| r.start);
        for pair in regions.windows(2) {
            if pair[0].start + pair[0].len > pair[1].start {
                return Err(MemoryError::Overlap(pair[1].start));
            }
        }
        Ok(GuestMemory { regions: regions.into() })
    }

    /// The regions, by address.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The run of host memory at `address`: at most `len` bytes, fewer when a region ends there.
    /// O(1) when the hint is right, else O(log regions).
    #[inline]
    fn span(
        &self,
        address: u64,
        len: usize,
        hint: &mut RegionHint,
    ) -> Option<(NonNull<u8>, usize)> {
        if let Some(found) = self.regions.get(hint.0).and_then(|r| r.part(address, len)) {
            return Some(found);
        }
        hint.0 = self.regions.partition_point(|r| r.start <= address).checked_sub(1)?;
        self.regions[hint.0].part(address, len)
    }

    /// Calls `each` with the consecutive runs of host memory behind a range of guest memory.
    #[inline]
    fn spans(
        &self,
        address: GuestAddress,
        len: usize,
        hint: &mut RegionHint,
        mut each: impl FnMut(NonNull<u8>, usize),
    ) -> Result<(), MemoryError> {
        let error = MemoryError::OutOfRange { address: address.0, len };
        let (mut at, mut left) = (address.0, len);
        while left > 0 {
            let (base, here) = self.span(at, left, hint).ok_or(error)?;
            each(base, here);
            left -= here;
            // A region never reaches the end of the address space, so this cannot wrap while bytes
            // are left in it.
            at = at.checked_add(here as u64).ok_or(error)?;
        }
        Ok(())
    }

    /// Copies out of guest memory; each byte is read once.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    pub fn read(
        &self,
        address: GuestAddress,
        into: &mut [u8],
        hint: &mut RegionHint,
    ) -> Result<(), MemoryError> {
        let mut done = 0;
        self.spans(address, into.len(), hint, |base, here| {
            // SAFETY: `span` answers `here` valid bytes at `base`, kept alive by `self`.
            unsafe { read_shared(base, &mut into[done..done + here]) };
            done += here;
        })
    }

    /// Copies into guest memory. Bytes before the first that is out of range may have been written.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    pub fn write(&self, address: GuestAddress, from: &[u8]) -> Result<(), MemoryError> {
        let mut done = 0;
        self.spans(address, from.len(), &mut RegionHint::default(), |base, here| {
            // SAFETY: as in `read`.
            unsafe { write_shared(base, &from[done..done + here]) };
            done += here;
        })
    }

    /// Appends the host memory behind a range, one segment per region crossed; a segment that
    /// continues the last one in `out` extends it.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; `out` may then hold a part.
    #[inline]
    pub fn segments(
        &self,
        address: GuestAddress,
        len: usize,
        out: &mut Vec<Segment>,
        hint: &mut RegionHint,
    ) -> Result<(), MemoryError> {
        self.spans(address, len, hint, |base, here| match out.last_mut() {
            Some(last) if last.ends_at(base) => last.len += here,
            _ => out.push(Segment { base: base.as_ptr(), len: here }),
        })
    }

    /// One byte's place, for a later write.
    #[inline]
    pub(crate) fn byte(&self, address: GuestAddress, hint: &mut RegionHint) -> Option<ByteCell> {
        self.span(address.0, 1, hint).map(|(base, _)| ByteCell(base))
    }

    /// Writes the byte that [`byte`](Self::byte) of this very table found.
    #[inline]
    pub(crate) fn set_byte(&self, cell: ByteCell, value: u8) {
        let base = cell.0;
        debug_assert!(self.regions.iter().any(|r| r.contains(base)));
        if stores_are_cut() {
            return;
        }
        // SAFETY: the cell was made by `byte` of this table (see `Completion`, the only holder of
        // both), which lives.
        unsafe { AtomicU8::from_ptr(base.as_ptr()) }.store(value, Ordering::Relaxed);
    }

    /// A checked, fixed piece of one region, for a ring.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`] and [`MemoryError::Misaligned`].
    pub(crate) fn area(
        &self,
        address: GuestAddress,
        len: usize,
        align: usize,
    ) -> Result<SharedArea, MemoryError> {
        let out_of_range = MemoryError::OutOfRange { address: address.0, len };
        let mut hint = RegionHint::default();
        let (_, here) = self.span(address.0, len, &mut hint).ok_or(out_of_range)?;
        if here < len {
            return Err(out_of_range);
        }
        let region = &self.regions[hint.0];
        let offset = (address.0 - region.start) as usize;
        if !address.0.is_multiple_of(align as u64) {
            return Err(MemoryError::Misaligned { address: address.0, align });
        }
        SharedArea::new(Arc::clone(&region.mapping), offset, len, align)
    }
}

impl Region {
    fn contains(&self, base: NonNull<u8>) -> bool {
        (base.as_ptr() as usize).wrapping_sub(self.base.as_ptr() as usize) < self.len as usize
    }
}

/// Where one byte of guest memory lies. Means nothing without the [`GuestMemory`] it came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteCell(NonNull<u8>);

// SAFETY: an address; only `GuestMemory::set_byte` follows it.
unsafe impl Send for ByteCell {}

/// A buffer in guest memory, laid out as `struct iovec`.
///
/// It is only an address: whoever hands it to the kernel keeps the [`GuestMemory`] it came from
/// alive until the kernel is done with it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Segment {
    base: *mut u8,
    len: usize,
}

#[cfg(unix)]
const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    assert!(size_of::<Segment>() == size_of::<libc::iovec>());
    assert!(align_of::<Segment>() == align_of::<libc::iovec>());
    assert!(offset_of!(Segment, base) == offset_of!(libc::iovec, iov_base));
    assert!(offset_of!(Segment, len) == offset_of!(libc::iovec, iov_len));
};

// SAFETY: an address and a length; following the address is `unsafe` for whoever does it.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}+{}", self.base, self.len)
    }
}

impl Segment {
    /// Length in bytes.
    pub fn size(&self) -> usize {
        self.len
    }

    /// The same segments as the kernel wants them.
    #[cfg(unix)]
    pub fn as_iovecs(segments: &[Segment]) -> &[libc::iovec] {
        // SAFETY: `Segment` has the layout of `iovec`, by the assertions at its definition.
        unsafe { core::slice::from_raw_parts(segments.as_ptr().cast(), segments.len()) }
    }

    fn ends_at(&self, base: NonNull<u8>) -> bool {
        self.base.wrapping_add(self.len) == base.as_ptr()
    }
}

#[cfg(test)]
impl GuestMemory {
    /// Does the host range lie in one of the regions (segments may merge regions that touch in the
    /// host too).
    pub(crate) fn host_range_is_guest_memory(&self, base: usize, len: usize) -> bool {
        let mut at = base;
        while at < base + len {
            let Some(region) = self.regions.iter().find(|r| {
                let start = r.base.as_ptr() as usize;
                (start..start + r.len as usize).contains(&at)
            }) else {
                return false;
            };
            at = region.base.as_ptr() as usize + region.len as usize;
        }
        true
    }
}
