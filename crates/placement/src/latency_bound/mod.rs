//! Whether a disk's latency target can be promised, and if not, why.
//!
//! # The question
//! A disk is to have its requests done within a time, all but one in a hundred. That depends on the
//! storage, on the window before it, on the others' reservations, and on the disk's own bursts.
//! [`judge`] takes what is recorded of these and answers with a bound and the window that it needs,
//! or with the reason for which there is none ([`Verdict`]).
//!
//! # The bound
//! A request is *due* once its reservation r has served what its disk sent before. From then on it
//! waits for the first slot of the window that falls free, for the requests that others may send
//! first, and for the M requests in the window, itself among them:
//!
//! > latency ≤ σ/r + t
//!
//! σ is what the disk's own requests are ahead of `r·t` (an arrival curve; [`BurstMeter`]). t is
//! the time that the storage takes for so many requests, and it is random. With D the time for a
//! window of M, D₁ that for one request alone, C all reservations in requests per second, and E the
//! requests that others send first (one of each reserved disk and what it may ask late, the floor's
//! part, one without a reservation):
//!
//! > P(t > x) ≤ φ₁(η)·φ(η)^(1 + E/M)·e^(-ηx)   for each η with   φ(η) ≤ e^(η·M/C)
//!
//! φ and φ₁ are the moment generating functions of D and D₁, taken from recorded times. The
//! condition makes the time that reservations are behind a supermartingale: it covers the backlog
//! that they build up while the storage is slow. The least x over η is the bound.
//!
//! Times that are rare and long, such as stalls, have no useful moments. So times beyond a bound τ
//! are set apart and counted: as the part of the *time* in which a slot waits for the rest of one,
//! `E(D - τ)⁺/E(D)`, for arrivals do not stop while the storage does; over `1 - C·E(D)/M`, the time
//! to catch up afterwards. The exempt part of the target is divided among the disk's bursts, what
//! is set apart, and the bound above. All divisions of a small grid are tried.
//!
//! D is taken from a record of as many requests in flight as the window or more. For one request it
//! is D₁. Storage that gains no more than a quarter by more requests in it serves them one after
//! the other; there it is also D₁ and what the others take at the rate of the busy record, m in
//! flight: `φ₁·φ_b^((M-1)/m)`.
//!
//! # What it takes for given
//! Storage that gets no faster by more requests in it, whose windows are independent of each other
//! but for what is set apart, and goes on as it was recorded.
//! `docs/decisions/0055-latency-admission.md` has how loose it is, and what it does not cover.
//!
//! # Complexity
//! O(W·n·B²·k) for a window W, n disks with targets, k busy records and B = 12 truncations of each
//! record, times the 109 steps of η; each recorded bucket is read once for each step and
//! truncation. 1 to 70 ms for a window of 64 and one target.
//!
//! # Source
//! R. Cruz, *A Calculus for Network Delay*, 1991, and J.-Y. Le Boudec, P. Thiran, *Network
//! Calculus*, for arrival and service curves. O. Yaron, M. Sidi, 1993, for bursts with a
//! probability. Y. Jiang, Y. Liu, *Stochastic Network Calculus*, for service as a moment generating
//! function; J. F. C. Kingman, *A martingale inequality in the theory of queues*, 1964, for the
//! condition on η. What is set apart is the principle of a single big jump, by renewal theory. The
//! combination is ours.

mod bound;
mod burst;
mod input;
mod meter;
mod reason;
mod record;
mod verdict;
mod work;

pub use burst::BurstMeter;
pub use input::{PromisedDisk, Storage};
pub use meter::ServiceMeter;
pub use reason::judge;
pub use record::{Beside, ServiceRecord};
pub use verdict::{Arrivals, Missing, Parts, Promise, Refusal, Verdict, Why};
pub use work::Work;

use headgate_units::{LatencyTarget, Nanos};

/// The part of a disk's requests that may take longer than its target.
fn exempt(target: LatencyTarget) -> f64 {
    f64::from(1_000 - target.quantile()) / 1e3
}

/// How late a disk may ask for its reservation that sends its requests as they come: what the
/// scheduler gives one whose queue was empty (`Config::anticipation`).
pub const PUNCTUAL: Nanos = Nanos::from_millis(2);

/// How late a disk with all its requests in flight may ask for its reservation and go first: half
/// of the scheduler's bound on debt, 250 ms.
pub const LATE: Nanos = Nanos::from_millis(125);
