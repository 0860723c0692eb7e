//! Copies of disks as of one instant (`docs/decisions/0092-copies-of-disks.md`).
//!
//! A copy is a disk whose creation lasts until the data path has filled it. Until then its row says
//! `copying`, and a daemon that finds such a row removes what is there: nobody has noted how far
//! the copy was, and what the disk has changed since is lost to it.

mod begin;
mod orders;
mod past;
#[cfg(test)]
mod tests;
mod views;
mod watch;

pub(crate) use past::Copied;
