//! What an emulated drive does, through the crate's public interface. One program for all of it:
//! built once, and its tests run beside each other. `cargo test -p headgate-flash --test all
//! wear::` runs a part.

mod analytic;
mod background;
mod common;
mod isolation;
mod oracle;
mod wear;
