//! The share clock.

/// The share clock's V, in share units since the start. Tags of disks hold the lower half of it and
/// are within 2^63 of V while the disk is ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct VirtualTime(pub(super) u128);

impl VirtualTime {
    pub(super) fn new() -> VirtualTime {
        // One circle from zero, so that a tag behind V is not below zero.
        VirtualTime(1 << 64)
    }

    /// V on the circle on which disks' tags are compared with it.
    #[inline]
    pub(super) fn at(self) -> u64 {
        self.0 as u64
    }

    /// A ready disk's tag in full.
    #[inline]
    pub(super) fn full(self, tag: u64) -> u128 {
        self.0.wrapping_add_signed(i128::from(tag.wrapping_sub(self.at()) as i64))
    }

    #[inline]
    pub(super) fn raise_to(&mut self, tag: u64) {
        self.0 = self.0.max(self.full(tag));
    }

    /// Counts eighths of the circle, so that a tag left behind long ago is not taken for one ahead.
    #[inline]
    pub(super) fn turn(self) -> u32 {
        (self.0 >> 61) as u32
    }

    /// Has V come so far since `turn` that tags of that time are all behind it. A tag's lead is
    /// below one eighth of the circle.
    #[inline]
    pub(super) fn has_left(self, turn: u32) -> bool {
        self.turn().wrapping_sub(turn) >= 3
    }
}

/// The upper bound of the share tag in the disk's own largest recent costs.
pub(super) const LEAD_IN_OWN_COSTS: u64 = 4;
