//! What simulations do, through the crate's public interface. One program for all of it: built
//! once, and its tests run beside each other. `cargo test -p headgate-sim --test all pools::` runs
//! a part.

mod bad_files;
mod branches;
mod common;
mod copies;
mod determinism;
mod flash;
mod judging;
mod large_requests;
mod learned_costs;
mod pools;
mod replay;
mod schema;
mod sensitivities;
mod storage;
mod what_if;
mod windows;
mod work_by_shares;
mod workloads;
