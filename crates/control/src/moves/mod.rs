//! Live moves of disks to other datastores: what is durable of them, and what is left when one is
//! over (`docs/decisions/0087-journal-of-moves.md`).
//!
//! The data path copies and mirrors. Here is the journal that it asks for: a row of the catalog for
//! as long as a disk may have two copies. The row is there before the second copy, and goes after
//! the copy that does not count.

mod begin;
mod checks;
mod orders;
mod past;
mod reclaim;
mod switch;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_crashes;
#[cfg(test)]
mod tests_of_leases;
#[cfg(test)]
mod tests_within;
mod views;
mod watch;

pub(crate) use past::Moved;
