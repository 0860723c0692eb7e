//! Events: who changed what, and what the daemon did or noticed by itself.
//!
//! - [`Event`]: one of them, with its number and its time; [`Entry`], before it has these.
//! - [`encode`], [`decode`]: its line in a file, which shows whether it was torn.
//! - [`Shelf`]: which files there are, so that they never take more than they may.
//! - [`Allowance`]: how often what anybody can cause is written down.
//! - [`Conditions`]: what begins and ends, told once each.
//! - [`Filter`]: which of them somebody asks for.
//! - [`hide_in_text`], [`hide_in_value`]: no secret is in an event.
//!
//! Nothing here has a clock or a file: `headgate-control` has them.

mod allowance;
mod conditions;
mod event;
mod filter;
mod line;
mod secrets;
mod shelf;

pub use allowance::{Allowance, Pace, Verdict};
pub use conditions::{Condition, ConditionKind, Conditions};
pub use event::{Entry, Event, Outcome, Stream, Subject, Who};
pub use filter::Filter;
pub use line::{Damage, decode, encode, lines};
pub use secrets::{hide_in_text, hide_in_value};
pub use shelf::{Placement, SIZE_MIN, Segment, Shelf};
