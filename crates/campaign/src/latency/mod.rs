//! How long requests of reserved disks take beside neighbours that keep the storage saturated.
//!
//! Reserved disks send requests at random (Poisson) at a part of their reservation. What they take
//! is compared with what the same requests take on a device of their own whose rate is the
//! reservation, and with schedulers that know deadlines only.
//!
//! # The bound
//! A server of rate r that serves one disk alone finishes its k-th request, which arrives at a_k,
//! at `F_k = max(a_k, F_{k-1}) + 1/r`: the virtual clock of Zhang (*VirtualClock*, SIGCOMM 1990),
//! and one reservation after the tag of mClock (OSDI 2010, section 3.1). Let storage serve T
//! requests per second one after the other, each in 1/T, let W be the window, and let reservations
//! add up to at most T. A scheduler that sends the earliest deadline first then completes each
//! request at `F_k + W/T` at the latest.
//!
//! *Why.* Let t be the last time before the request was sent at which one was sent that is due
//! later or never. At t at most W requests are in flight. All that is sent from then on came after
//! t and is due at F_k or before: of disk i at most `r_i (F_k - t)` requests, and T (F_k - t) of
//! all. The storage has served them and the W at `t + W/T + (F_k - t)`.
//!
//! So the p99 of a reserved disk is at most that of the disk alone and W/T more. This says nothing
//! of storage whose service times are random, or that stands still; there the same sum is what one
//! hopes for.

pub mod contest;
pub mod deadlines;
pub mod grid;
pub mod order;
pub mod server;
pub mod table;
pub mod times;
