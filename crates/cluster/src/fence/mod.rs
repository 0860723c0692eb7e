//! A persistent reservation as a fence: the device itself refuses the writes of a host that it was
//! taken from (SPC-4, 5.13; NVM Express Base 2.0, 8.19).
//!
//! | part | what it is |
//! |---|---|
//! | [`FenceKey`] | the key that a host registers, different at each start of its daemon |
//! | [`Claim`] | which command follows which answer until the device is reserved, or is not to be had; pure |
//! | [`Device`] | the commands, through Linux's `IOC_PR_*`, and to NVMe devices by themselves |
//!
//! The type is Write Exclusive, Registrants Only. A host's registration counts on each of its paths
//! to the device, which Write Exclusive alone, with its one holder, does not do. Others may read:
//! kernels look for partitions, multipath checks its paths, and a successor judges the content
//! before it takes the device. So it keeps a former holder from writing, and not from reading.
//!
//! Devices tell hosts apart, not processes: one host's daemons exclude each other by the locks of
//! images (`docs/decisions/0002-image-locks.md`). A claim begins with that lock, for then nothing
//! of an earlier daemon of this host is in the kernel, which the new registration would let pass.

mod claim;
mod device;
mod key;
mod nvme;
mod parse;
mod sys;

pub use claim::{Answer, Claim, Next, ROUNDS, Refusal, Right, Standing, Step, standing};
pub use device::{Device, DeviceError, Unsupported};
pub use key::{Cover, FenceKey, key_text};
pub use parse::{Kind, Registrants, Reservation};
