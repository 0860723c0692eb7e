//! Memory of this process in the role of guest memory.

use super::mapping::HostMapping;
use core::alloc::Layout;
use core::ptr::NonNull;

/// Page-aligned, zeroed memory of this process: guest memory of tests and of anything else that
/// plays both sides.
pub struct HeapMapping {
    base: NonNull<u8>,
    layout: Layout,
    #[cfg(feature = "loom")]
    words: super::explored::Words,
}

// SAFETY: owns its allocation; access is atomic, through this module.
unsafe impl Send for HeapMapping {}
// SAFETY: as above.
unsafe impl Sync for HeapMapping {}

impl HeapMapping {
    /// `len` zero bytes, rounded up to whole pages of 4,096.
    pub fn new(len: usize) -> HeapMapping {
        let len = len.max(1).next_multiple_of(4096);
        let Ok(layout) = Layout::from_size_align(len, 4096) else {
            alloc::alloc::handle_alloc_error(Layout::new::<[u8; 4096]>())
        };
        // SAFETY: the size is not zero.
        let base = unsafe { alloc::alloc::alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { alloc::alloc::handle_alloc_error(layout) };
        HeapMapping {
            base,
            layout,
            #[cfg(feature = "loom")]
            words: Default::default(),
        }
    }
}

impl Drop for HeapMapping {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`.
        unsafe { alloc::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

// SAFETY: the allocation is fixed until the drop, and only this module touches it, atomically.
unsafe impl HostMapping for HeapMapping {
    fn base(&self) -> NonNull<u8> {
        self.base
    }
    #[cfg(feature = "loom")]
    fn words(&self) -> &super::explored::Words {
        &self.words
    }
    fn len(&self) -> usize {
        self.layout.size()
    }
}
