//! Adversaries in virtual time, what they play against, and the search for the worst of them.

mod dice;
mod directed;
mod product;
mod search;
pub mod textbook;
mod world;

pub use directed::{Design, directed};
pub use product::product;
pub use search::{Case, Space, breaks, worst_of};
pub use textbook::{Mistake, textbook};
pub use world::{Action, Event, Observer, Order, Setup, Shape, Verdict, View, World};

use headgate_qos::Policy;
use headgate_units::{Iops, Shares};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;

/// Shares, reservation (0: none), limit (0: none), without idle credit.
pub fn policy(shares: u64, reservation: u64, limit: u64) -> Policy {
    Policy::shared(Shares::new(shares).unwrap())
        .with_burst(headgate_qos::Burst::NONE)
        .with_limit(Iops::new(limit).ok())
        .unwrap()
        .with_reservation(Iops::new(reservation).ok())
        .unwrap()
}
