//! What the crate promises, through its public interface. One program for all of it: built once,
//! and its tests run beside each other. `cargo test -p headgate-qos --test all limits::` runs a
//! part. The theorems have a program of their own (`theorems`).

mod common;
mod directions;
mod dmclock;
mod dmclock_pitfalls;
mod dmclock_totals;
mod floor;
mod fsync;
mod learned_costs;
mod limits;
mod paper;
mod parda;
mod peaks;
mod peers;
mod promises;
mod properties;
mod soft_limits;
mod stalls;
mod streams;
mod tracker;
mod vms;
mod work_window;
