//! Two hosts never serve one disk.
//!
//! | where | how | what it protects against |
//! |---|---|---|
//! | [`FileLease`] | a lock on a file of the datastore, and who holds it in its content | two daemons on one host; hosts on a file system whose locks reach all of them |
//! | [`EtcdLeases`](crate::EtcdLeases) | a key that lives as long as its holder proves to be alive | hosts on any storage, as long as they keep to their [`Term`] |
//!
//! Both number their holders: a [`Token`] is greater than all earlier ones of the disk, so what a
//! former holder still says or does can be told from what the present one does.
//!
//! Image locks (`docs/decisions/0002-image-locks.md`) remain under both: they wait for the last
//! write of a killed holder to leave the kernel.

mod file;
mod holder;
mod term;

pub use file::{FileLease, Grant, LEASE_SUFFIX, Standing};
pub use holder::{Holder, LeaseError, Token};
pub use term::{Duty, Term, Terms, TermsError};
