//! The experiments of BASIL (FAST 2010) on spindle arrays in virtual time: relations that it found
//! on real ones.
//!
//! What each prints with `-- --nocapture` is in `docs/decisions/0030-placement.md`.

mod balancing;
mod beside;
mod devices;
mod fitted;
mod populations;
mod rig;
mod second_choice;
mod workloads;
