//! How a shard waits for work, chosen by measuring.
//!
//! A shard that sleeps has to be woken, and wakes others; one that polls burns its processor. Which
//! of the two serves more, and at which price, depends on the machine (what it costs to wake a
//! halted processor, whether client and server have a processor each, whether somebody else wants
//! them) and on the load. No constant is right everywhere, so nothing here is decided by one: the
//! [`Chooser`] serves by turns in two [`Mode`]s, and keeps the one that brings more.
//!
//! # What is compared
//!
//! In two stretches of time under load, one right after the other, the requests served and the
//! processor time spent on each. With `r` the ratio of the rates and `c` that of the processor
//! times per request, a mode's gain is
//!
//! ```text
//! gain = ln r - ln c / 2
//! ```
//!
//! So a mode that serves 10 % more may take up to 21 % more processor time for each request, and
//! where the client sets the rate (`r = 1`) the one that takes less wins.
//!
//! # Trials
//!
//! A trial compares the mode in force, the incumbent, with one challenger. It has two scales:
//!
//! | scale | a stretch | pairs | what it sees |
//! |---|---|---|---|
//! | [`Scale::Short`] | 4 to 8 ms | 4 to 8 | the cost of waking, of calls, of working by turns |
//! | [`Scale::Long`] | 200 to 300 ms | 2 to 4 | what comes late: a quota that runs out, a scheduler's revenge |
//!
//! A challenger wins when the mean gain is more than two of its standard errors above 0, and more
//! than a margin; it loses as soon as it does much worse. The order within pairs alternates, so
//! that a load that rises or falls favours neither. The lengths vary, so that a load with a period
//! of its own is not met at the same point each time.
//!
//! # The price of trying
//!
//! A challenger that loses is tried again after twice the time, up to [`PAUSE_MAX`]. A polling mode
//! is confirmed against [`Mode::Sleep`] on the long scale when it has won on the short one, and
//! again from time to time: it is never in force for long where sleeping is better. A load that
//! changes calls for trials before their time, at a rate that is bounded as well.
//!
//! # Idleness
//!
//! Sleeps of more than [`AWAY_AFTER`] count for nobody: all times here are times under load. Below
//! [`FEWEST`] requests in [`IDLE_AFTER`] of it there is nothing to win: the mode is
//! [`Mode::Sleep`], and what was learnt waits.
//!
//! All calls are O(1), allocate nothing, and take the time as a parameter.

#![cfg_attr(not(test), no_std)]

mod agenda;
mod chooser;
mod mode;
mod trial;

pub use agenda::{CONFIRM_MAX, PAUSE_MAX};
pub use chooser::{Chooser, FEWEST, IDLE_AFTER, Rule, State};
pub use mode::{AWAY_AFTER, Mode, Totals};
pub use trial::{Rate, Scale, gain};
