//! The sizes that a disk can have.

use crate::ControlError;
use crate::limits::{SIZE_MAX, SIZE_STEP};
use headgate_units::Bytes;

/// Whether disks, or what holds them, can have this size.
pub(crate) fn check(size: Bytes) -> Result<(), ControlError> {
    if size.0 == 0 || !size.0.is_multiple_of(SIZE_STEP) {
        return Err(ControlError::invalid(
            format!("a size of {} bytes is not a multiple of {SIZE_STEP}", size.0),
            format!("a multiple of {SIZE_STEP} bytes, at least {SIZE_STEP}"),
        ));
    }
    if size.0 > SIZE_MAX {
        return Err(ControlError::invalid(
            format!("a size of {} bytes is too large", size.0),
            format!("at most {} bytes", SIZE_MAX),
        ));
    }
    Ok(())
}
