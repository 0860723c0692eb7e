//! What the scheduler's users may rely on, each theorem beside an adversary that tries to break it.
//!
//! The theorems are in `docs/theorems.md`. They follow from definitions and the literature, not
//! from the scheduler's rules, and this directory knows the public interface alone. An adversary is
//! a sequence of actions in virtual time. A search looks for the sequence that comes nearest to a
//! bound: all short ones, and longer ones by annealing. It is the same in every run. What it found
//! is printed: `cargo test -p headgate-qos --test theorems -- --nocapture`, with
//! `HEADGATE_SEARCH=large` for the long search.
//!
//! Each theorem is also held against schedulers that are wrong on purpose, and must fail there.

mod conservation;
mod delay;
mod directions;
mod fairness;
mod harness;
mod limits;
mod recovery;
