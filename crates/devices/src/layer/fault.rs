//! How a request fails on purpose.

use thiserror::Error;

/// Why a layer failed a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The storage cannot read or write it: `EIO`.
    #[error("EIO")]
    Io,
    /// The storage is full: `ENOSPC`.
    #[error("ENOSPC")]
    NoSpace,
}
