//! What models of devices do, through the crate's public interface. One program for all of it:
//! built once, and its tests run beside each other. `cargo test -p headgate-devices --test all
//! ssd::` runs a part.

mod any_model;
mod array;
mod capacity;
mod common;
mod depth;
mod fixed_rate;
mod published;
mod ssd;
