//! What the calculus answers.

use super::work::Work;
use core::fmt;
use core::num::NonZeroU32;
use headgate_units::{Iops, LatencyTarget, Nanos};
use serde::{Deserialize, Serialize};

/// Whether a latency target can be promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is kept, behind a window of this size.
    Kept(Promise),
    /// Nothing shows that it is kept. It may be, as long as the others leave room.
    Unlikely(Refusal),
    /// Nothing that a scheduler does keeps it.
    Impossible(Refusal),
    /// Too little is recorded to say.
    Unknown(Missing),
}

/// A target that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// The target.
    pub target: LatencyTarget,
    /// What as many requests as the target says do not exceed.
    pub bound: Nanos,
    /// The widest window behind which that and others' kept targets hold.
    pub window: NonZeroU32,
    /// What the bound is made of.
    pub parts: Parts,
    /// How much of its own work a request may find ahead of it, beyond what the reservation has
    /// served by then.
    pub room: Work,
    /// What the disk's arrivals are known by.
    pub arrivals: Arrivals,
}

/// What a bound is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// The wait for the disk's own requests before it, at the rate of its reservation.
    pub burst: Nanos,
    /// Requests of others that go first, and what they may ask late.
    pub others: Nanos,
    /// The window of requests in flight and the request itself, in the mean.
    pub window: Nanos,
    /// How much longer that takes where service varies.
    pub variation: Nanos,
}

/// What a disk's arrivals are known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Its requests, or how many it keeps outstanding.
    Recorded,
    /// Nothing: they are taken to come no faster than the reservation.
    Assumed,
}

/// A target that is not promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The target.
    pub target: LatencyTarget,
    /// Why.
    pub why: Why,
    /// The least latency that could be promised to as many requests, if any.
    pub nearest: Option<LatencyTarget>,
    /// The least reservation with which the target could be promised, if any.
    pub reservation: Option<Iops>,
}

/// Why a target is not promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The disk has no reservation.
    NoReservation,
    /// One request alone takes so long at the storage, at the quantile of the target.
    Storage {
        /// That time.
        alone: Nanos,
    },
    /// The storage stands still, or takes longer than the target, too often.
    Stalls {
        /// The part of the time in which it does, in millionths.
        part: u32,
        /// What the target exempts, in millionths.
        exempt: u32,
        /// The longest time recorded.
        longest: Nanos,
    },
    /// The reservations take all that the storage gives, or so much that late requests are caught
    /// up with too late.
    NoSlack {
        /// Sum of the reservations and the floor in reference IOs per second.
        reserved: u64,
        /// What the storage gives.
        rate: u64,
        /// Behind this window.
        window: u32,
    },
    /// The disk's own requests wait for each other at the rate of its reservation.
    Burst {
        /// So long, of the nearest target.
        wait: Nanos,
    },
    /// Reservations of other disks that ask late go first.
    Late {
        /// For so long.
        wait: Nanos,
    },
    /// Requests of other disks go first.
    Others {
        /// For so long.
        wait: Nanos,
    },
    /// Requests in flight take too long with nobody else there, however few they are.
    Window {
        /// The window in which they take least: the least one that there may be, unless the
        /// reservation needs a wider one.
        least: u32,
        /// What they take.
        wait: Nanos,
    },
    /// No window keeps this target and that of another disk.
    Target {
        /// The other disk, by its place in the list.
        disk: usize,
    },
}

/// What is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Missing {
    /// There is no such disk, or it has no target.
    Target,
    /// How long requests take at the storage.
    Times,
    /// So many requests that a target of this quantile can be judged.
    Requests {
        /// Requests recorded.
        have: u64,
        /// And needed.
        need: u64,
    },
    /// So many arrivals of the disk that rare bursts are known.
    Arrivals {
        /// Requests recorded.
        have: u64,
        /// And needed.
        need: u64,
    },
}

fn per_cent(millionths: u32) -> f64 {
    f64::from(millionths) / 1e4
}

/// The reason alone: `the storage takes 6.20 ms for one request alone`.
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::NoReservation => f.write_str("the disk has no reservation"),
            Why::Storage { alone } => {
                write!(f, "the storage takes {alone} for one request alone")
            }
            Why::Stalls { part, exempt, longest } => write!(
                f,
                "the storage takes longer for {:.2} % of the time, up to {longest}, and {:.2} % is allowed",
                per_cent(*part),
                per_cent(*exempt)
            ),
            Why::NoSlack { reserved, rate, window } => write!(
                f,
                "reservations and the floor take {reserved} of the {rate} IOPS that the storage gives behind a window of {window}"
            ),
            Why::Burst { wait } => write!(
                f,
                "the disk's own requests wait {wait} for each other at the rate of its reservation"
            ),
            Why::Late { wait } => {
                write!(f, "other reservations may ask late and go first for {wait}")
            }
            Why::Others { wait } => write!(f, "requests of other disks go first for {wait}"),
            Why::Window { least: 1, wait } => {
                write!(f, "the window would have to be below 1: one request in it takes {wait}")
            }
            Why::Window { least, wait } => write!(
                f,
                "the window would have to be below {least}: so many requests in it take {wait}"
            ),
            Why::Target { disk } => {
                write!(f, "no window keeps it and the target of disk {disk} of the datastore")
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.why)?;
        match (self.nearest, self.reservation) {
            (Some(nearest), Some(reservation)) => write!(
                f,
                "; {nearest} could be kept, or this with a reservation of {} IOPS",
                reservation.get()
            ),
            (Some(nearest), None) => write!(f, "; {nearest} could be kept"),
            (None, Some(reservation)) => {
                write!(f, "; it could with a reservation of {} IOPS", reservation.get())
            }
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Target => f.write_str("the disk has no latency target"),
            Missing::Times => {
                f.write_str("nothing is recorded of how long the storage takes for a request")
            }
            Missing::Requests { have, need } => write!(
                f,
                "{have} requests of the storage are recorded, and {need} are needed for this quantile"
            ),
            Missing::Arrivals { have, need } => write!(
                f,
                "{have} requests of the disk are recorded, and {need} are needed for this quantile"
            ),
        }
    }
}

/// A sentence: `p99=5.00 ms cannot be kept: the storage takes 6.20 ms for one request alone;
/// p99=7.40 ms could be kept`.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Kept(promise) => {
                write!(
                    f,
                    "{} is kept: {} with a window of {}",
                    promise.target, promise.bound, promise.window
                )?;
                match promise.arrivals {
                    Arrivals::Recorded => Ok(()),
                    Arrivals::Assumed => write!(
                        f,
                        ", while no request comes more than {} IOs ahead of the reservation",
                        promise.room
                    ),
                }
            }
            Verdict::Unlikely(refusal) => {
                write!(f, "{} cannot be promised: {refusal}", refusal.target)
            }
            Verdict::Impossible(refusal) => {
                write!(f, "{} cannot be kept: {refusal}", refusal.target)
            }
            Verdict::Unknown(missing) => write!(f, "the target cannot be judged: {missing}"),
        }
    }
}
