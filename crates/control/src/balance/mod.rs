//! Advice that is carried out (`docs/decisions/0088-advice-carried-out.md`).
//!
//! Which move is next is decided by `headgate_placement`, which knows no clock and no disk. Here is
//! what that is told, and what is made of its answers. Moves that are carried out are moves like
//! any other: what is durable of them is theirs. What is to come is nobody's after a restart, for
//! advice is given anew.

mod automatic;
mod plan;
mod run;
mod state;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use state::CARRY;
pub(crate) use state::{Balancer, request};
