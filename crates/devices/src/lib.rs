//! Device models: storage of a known speed, for the simulator and for emulated datastores.
//!
//! | model | what it is | text form |
//! |---|---|---|
//! | [`FixedRate`] | so many requests per second, whatever they are, with a least service time; evenly or at random | `rate=1600,latency=5ms,depth=32`, `rate=2000,service=exponential` |
//! | [`SpindleArray`] | disks with arms and platters, RAID, a write-back cache | `array=10,raid=5,disk=fc15k,cache=256M` |
//! | [`Ssd`] | a flash drive that collects garbage, of one disk for another or each for itself | `ssd=2G,op=15%,isolation=dynamic,aged=yes` |
//! | [`Null`] | completes at once | `null` |
//!
//! [Layers](layer) add delay, errors, stragglers, stalls, a rate or a trace to any of them, and to storage
//! that is no model.
//!
//! A model is a state machine without a clock. Its caller, the *driver*, tells it the time with
//! every call and asks it when to come back. The same model runs in simulated time, where the
//! driver leaps from event to event, and in real time, where it sleeps until
//! [`DeviceModel::next_event`] and is always a little late.
//!
//! All times are integer nanoseconds on the driver's clock. A clock that steps back is taken to
//! stand still.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod array;
mod capacity;
mod fixed_rate;
pub mod layer;
mod model;
mod null;
mod options;
mod rate_spec;
mod rng;
mod service;
mod spec;
mod ssd;

pub use array::{Ageing, ArraySpec, ArraySpecError, CachePower, DiskKind, Raid, SpindleArray};
pub use capacity::{Bound, Sustained, ceiling};
pub use fixed_rate::FixedRate;
pub use headgate_flash::{Reach, Standing as FlashStanding, Utilisation};
pub use layer::{LayerSpec, Layered, Layers, Stall, Stragglers};
pub use model::{DeviceIo, DeviceModel, DiskPlace, IoKind, PlaceError, Readiness};
pub use null::Null;
pub use options::ModelSpecError;
pub use rate_spec::RateSpec;
pub use service::ServiceTime;
pub use spec::{ModelSpec, SizeCost};
pub use ssd::{
    FlashCounters, FlashDrive, Ssd, SsdAge, SsdIsolation, SsdRating, SsdSpec, SsdSpecError,
    SsdTargets, SsdVictims, Switch,
};

use headgate_units::Bytes;

/// The capacity that the daemon and the simulator give a device unless told: disks on it are places
/// on its platters.
pub const DEFAULT_CAPACITY: Bytes = Bytes(4 << 40);
