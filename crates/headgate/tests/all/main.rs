//! The program, run as its users run it. One program of tests for all of it: built once, and its
//! tests run beside each other. `cargo test -p headgate --test all trace::` runs a part.

mod api;
mod attach;
mod daemon;
mod jobs;
mod priorities;
mod reproduce;
mod sim;
mod support;
mod trace;
