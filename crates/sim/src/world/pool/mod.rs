//! A pool at work: its disks and where they are, what is learnt of them and of the datastores, and
//! advice.

mod advice;
mod books;
mod build;
mod copies;
mod copy;
mod finish;
mod learn;
pub(super) mod state;
mod stats;
mod trial;
