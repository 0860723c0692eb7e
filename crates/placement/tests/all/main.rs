//! What is advised, through the crate's public interface. One program for all of it: built once,
//! and its tests run beside each other. `cargo test -p headgate-placement --test all carry::` runs
//! a part. BASIL's models and bounds of latency have programs of their own (`basil`,
//! `latency_bound`).

mod carry;
mod common;
mod oracle;
mod properties;
mod reasons;
mod rollback;
mod simulated;
