//! What a datastore's disks would have received under other policies, on the load that history has
//! of them.
//!
//! History keeps sums: for each disk and minute the requests that completed and what they waited
//! for, and every few seconds how many were outstanding. [`what_if`] makes clients of these
//! ([`LoadKind`]) and a device of what is known of the datastore ([`DeviceRecord`]), and runs them
//! through the product's own gate twice: with the policies of then, and with those asked for. The
//! first run says how far the second can be believed: its results stand beside the record.
//!
//! # The device
//! A request that is dispatched takes a random time. Its mean follows the datastore's latency over
//! the work in flight ([`Curve`]), brought to what each minute measured, times what the disk's
//! requests take beside those of others. Its spread is that of the recorded latencies ([`Spread`]).
//! Short runs choose both so that the recorded latencies come out.
//!
//! # Bounds
//! A run simulates about as many requests as [`Bounds`] say, of as many stretches of the record as
//! that allows, and gives up at four times as many. There are at most seven runs of a quarter of
//! it or more. Memory is linear in disks and recorded intervals.
//!
//! Equal records, bounds and seeds give equal answers. Every disk draws from random numbers of its
//! own, the same in both runs.

mod calibrate;
mod client;
mod device;
mod plan;
mod play;
mod record;
mod tally;

pub use client::LoadKind;
pub use device::{Curve, DeviceRecord, Spread};
pub use record::{DiskRecord, LoadRecord, PeriodRecord, Waited};
pub use tally::Simulated;

use calibrate::calibrate;
use headgate_qos::{ConfigError, GroupsError};
use headgate_units::Nanos;
use plan::Plan;
use play::{Cut, Side, play};
use thiserror::Error;

/// How much may be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Requests that a run is to simulate, about, as the record has them; 1,000 at least.
    pub requests: u64,
}

impl Default for Bounds {
    /// 400,000 requests: about a second in a release build.
    fn default() -> Bounds {
        Bounds { requests: 400_000 }
    }
}

/// What would have been.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// In the order of the record.
    pub disks: Vec<DiskAnswer>,
    /// How much of the recorded time was seen.
    pub recorded: Nanos,
    /// How much was simulated, once with each policy.
    pub simulated: Nanos,
    /// Requests that completed in the run with the new policies.
    pub requests: u64,
}

/// What a disk would have received.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskAnswer {
    /// What its client was taken for; `None`: it asked for nothing.
    pub load: Option<LoadKind>,
    /// With the policies of then.
    pub before: Simulated,
    /// With those asked for.
    pub after: Simulated,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoAnswer {
    /// Nothing was recorded, or next to nothing.
    #[error(
        "{requests} requests are recorded in {seen}, {} are needed",
        LoadRecord::LEAST_REQUESTS
    )]
    TooFew {
        /// All disks' together.
        requests: u64,
        /// How much of the time was seen.
        seen: Nanos,
    },
    /// It was not to go on.
    #[error("the simulation was cut")]
    Cut,
    /// Clients that are served better send more than can be simulated.
    #[error("with these policies more requests would come than can be simulated")]
    TooMany,
    /// The scheduler does not take its configuration.
    #[error(transparent)]
    Scheduler(#[from] ConfigError),
    /// Nor its groups.
    #[error(transparent)]
    Groups(#[from] GroupsError),
}

impl From<Cut> for NoAnswer {
    fn from(cut: Cut) -> NoAnswer {
        match cut {
            Cut::GivenUp => NoAnswer::Cut,
            Cut::TooMany => NoAnswer::TooMany,
            Cut::Scheduler(error) => error.into(),
            Cut::Groups(error) => error.into(),
        }
    }
}

/// Simulates the record with the policies of then and with those asked for. `give_up` is asked now
/// and then, some milliseconds apart at most, and cuts the work by saying so.
///
/// # Errors
/// [`NoAnswer`].
pub fn what_if(
    record: &LoadRecord,
    bounds: Bounds,
    seed: u64,
    give_up: &mut dyn FnMut() -> bool,
) -> Result<Answer, NoAnswer> {
    let (requests, seen) = (record.requests(), record.seen());
    if requests < LoadRecord::LEAST_REQUESTS {
        return Err(NoAnswer::TooFew { requests, seen });
    }
    let clients: Vec<Option<LoadKind>> =
        record.disks.iter().map(|disk| LoadKind::of(disk, &record.periods)).collect();
    let budget = bounds.requests.max(1_000);
    // Those who are served better send more: then the same with less of the record.
    for part in [1, 4, 16, 64] {
        let plan = Plan { most: 4 * budget, ..Plan::of(record, budget / part) };
        match attempt(record, &clients, &plan, budget / 4, seed, give_up) {
            Err(Cut::TooMany) => {}
            done => return Ok(done?),
        }
    }
    Err(NoAnswer::TooMany)
}

fn attempt(
    record: &LoadRecord,
    clients: &[Option<LoadKind>],
    plan: &Plan,
    budget: u64,
    seed: u64,
    give_up: &mut dyn FnMut() -> bool,
) -> Result<Answer, Cut> {
    let device = calibrate(record, clients, budget, seed, give_up)?;
    let mut run = |side| play(record, clients, plan, &device, side, seed, give_up);
    let (before, after) = (run(Side::Before)?, run(Side::After)?);
    let disks = clients.iter().zip(before.disks).zip(after.disks);
    Ok(Answer {
        disks: disks
            .map(|((load, before), after)| DiskAnswer { load: *load, before, after })
            .collect(),
        recorded: record.seen(),
        simulated: after.simulated,
        requests: after.requests,
    })
}

#[cfg(test)]
mod tests;
