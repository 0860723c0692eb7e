//! A pool at work: its disks and where they are, what is learnt of them and of the datastores, and
//! advice.

mod accounts;
mod advice;
mod beside;
mod books;
mod build;
mod carry;
mod copies;
mod copy;
mod finish;
mod learn;
mod mind;
pub(super) mod state;
mod stats;
mod trial;

pub(super) use carry::Arrival;
pub(crate) use mind::Mind;
