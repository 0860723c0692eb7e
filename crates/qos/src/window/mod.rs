//! How many requests a host may have at a datastore that it shares with others: the PARDA control
//! law.
//!
//! Hosts that share storage divide its queue. Each has a window, the number of requests it may have
//! in flight; all see the same congestion, as latency; and each opens or closes its window by that
//! latency and by the shares of its VMs. Nothing else is needed from the storage, and nothing is
//! asked of a central point.
//!
//! # The law
//! With w the window, 𝓛 the [threshold](Config::threshold), L the mean latency of all IOs of all
//! hosts, γ the [step](Config::step) and β the host's part, once a [period](Config::period)
//! (section 3.1, equation 2):
//!
//! > w ← (1 - γ)·w + γ·((𝓛/L)·w + β), held to [w_min, w_max]
//!
//! Since L is the same for all, each comes to rest where w = β·L/(L - 𝓛): windows are as β is. If
//! the storage does X IOs per second, then W = X·L for the sum of the windows (Little's law), and
//! so L = 𝓛 + Σβ/X. The sum gets there in two or three periods, the ratios at a rate of 1 - γ·Σβ/W
//! per period.
//!
//! # What replaces the published choices
//! - **β follows the storage** ([`Gain::Excess`]). A fixed number of slots per share suits one
//!   array: Σβ/X is half a millisecond here and half a minute there, and with shares of 1,000 per
//!   VM it is the latter. Instead ε·U, a part of all slots in use, is divided by shares: β =
//!   ε·U·s/Σs, and 𝓛 makes room for it: 𝓛' = (1 - ε)·𝓛. All rests at L = 𝓛 exactly; the ratios get
//!   there at a rate of 1 - γ·ε per period on any storage. U is known from what the hosts report, Σ
//!   n·l/T by Little's law. Hosts at a bound take no part in U and Σs, or their slots would be
//!   given to others twice.
//! - **Work is divided, not slots** ([`Division::Service`]). What a slot does is as the storage
//!   likes: requests near others come first on a disk, and cached writes at once. With x of X work
//!   per second done by q of U requests in flight, e = (q/x)/(U/X) is what a host's slots take for
//!   their work relative to all. So β = ε·U·e·s/Σ(e·s): at rest w = β/ε, and a full window is q =
//!   w, so that x is as s, whatever a slot does and however that depends on the windows. Σβ is as
//!   before. A host's own q is counted and not timed, and e is a mean over some four periods, so
//!   that reports that are late do not make it ring.
//! - **The latency belongs to the window it was measured under** ([`Feedback::Matched`]). A report
//!   that is two periods old tells of a window that is no more; multiplied with the present one it
//!   makes the sum swing: with many hosts and r = 𝓛/L the roots of λ³ = (1 - γ + γr)·λ² - γr leave
//!   the unit circle from γ = 0.62 on (eight hosts: between 0.8 and 0.9). With the window of that
//!   time, (𝓛/L)·w is the host's part of X·𝓛 whatever the delay d, and λ^(d+1) = (1 - γ)·λ^d + γ·c
//!   with c < 1 has all its roots inside, for every γ in (0, 1] and every d.
//! - **The lower bound is divided by shares** ([`LowerBound::ByShares`]), or foreign load would
//!   press all hosts to the same window.
//!
//! [`Config::published`] is the law as printed.
//!
//! # Who counts
//! A VM that does not use its part of the window counts for as much as it uses (equation 4,
//! [`ActiveShares`]). A host's report counts for three periods, by the reader's clock. Latencies
//! are weighted by IOs.
//!
//! # What bounds a window
//! It holds Σ reservations · 𝓛 requests at least, which is what they need by Little's law; while
//! requests take longer, as many as they need then, up to the configured maximum. Otherwise
//! [`Config::min`] and [`Config::max`]. When the board cannot be read, the window stays as it is
//! ([`Held`]): by its own latency alone each host would drift its own way, for they measure
//! differently (section 3.2).
//!
//! # A threshold that follows
//! Where [`Config::follow`] says so, 𝓛 is only where the threshold begins: [`Following`] moves it
//! as the storage changes, and all hosts that follow act by the same.
//!
//! High latency at the lower bounds is an [event](LoadEvent): something uses the storage that
//! nobody here answers for.
//!
//! # Arithmetic
//! Windows, β and shares are integers in millionths, latencies in nanoseconds, as everywhere in
//! this crate: the same input gives the same windows on every machine. Products are taken in 128
//! bits, quotients rounded to the nearest, sums saturate; no report, however wrong, makes anything
//! panic or leave its bounds.
//!
//! # Source
//! Gulati, Ahmad, Waldspurger: *PARDA: Proportional Allocation of Resources for Distributed Storage
//! Access*, FAST 2009. What the paper leaves open is decided in `docs/decisions/0020-windows.md`.

mod board;
mod config;
mod controller;
mod curve;
mod demand;
mod following;
mod history;
mod in_flight;
mod latency;
mod pacer;
mod periods;
mod sightings;
mod slots;
pub mod threshold;
mod watch;
mod work;

pub use board::{BoardView, Bound, Fill, HostReport, Load, Peer, Rank};
pub use config::{
    Alarm, Config, ConfigError, Division, Feedback, Follow, Gain, LowerBound, Smoothing,
};
pub use controller::{Controller, Held, Update};
pub use demand::{ActiveShares, Demand, DemandMeter, Usage};
pub use following::{Activity, Change, Following, PERIODS_OF_A_TRIAL, Reason};
pub use latency::{LatencyMeter, Observation};
pub use pacer::{Admission, Pacer};
pub use periods::{DiskTotals, Ended, Periods, board_patience};
pub use sightings::{ALIVE_PERIODS, Absence, Alive, Posted, Sightings};
pub use slots::{Fraction, Slots};
pub use watch::{Cause, LoadEvent, Unmanaged};
pub use work::WorkWindow;
