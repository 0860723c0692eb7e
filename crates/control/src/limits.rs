//! Bounds of what a user may ask for. The daemon holds them to those of the engine.

/// The deepest queue at a device.
pub const QUEUE_DEPTH_MAX: u32 = 4096;

/// Sizes of disks are multiples of this, in bytes.
pub const SIZE_STEP: u64 = 4096;

/// The largest size of a disk, in bytes: the engine's.
pub const SIZE_MAX: u64 = 16 << 40;
