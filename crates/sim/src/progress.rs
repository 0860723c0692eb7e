//! How a run is watched, and why it can end without an outcome.

use headgate_units::Nanos;
use std::ops::ControlFlow;
use thiserror::Error;

/// Watches a run and may end it.
pub trait Progress {
    /// Simulated up to `at` of `end`, after so many events. Called every 65,536 events, some 10 ms
    /// apart, and at the end. `Break` cancels the run.
    fn step(&mut self, at: Nanos, end: Nanos, events: u64) -> ControlFlow<()>;
}

/// Lets every run go on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn step(&mut self, _: Nanos, _: Nanos, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Why a run has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The scenario has no such variant.
    #[error("the scenario has no variant '{given}'; its variants are {known}")]
    UnknownVariant {
        /// What was asked for.
        given: String,
        /// What there is.
        known: String,
    },
    /// [`Progress`] said so.
    #[error("the run was cancelled after {at} of simulated time")]
    Cancelled {
        /// How far it was.
        at: Nanos,
    },
    /// A trace is missing or damaged.
    #[error("{0}")]
    Trace(String),
    /// A device has no room for a disk.
    #[error("disk '{disk}': {why}")]
    Place {
        /// `VM/DISK`.
        disk: String,
        /// What the device says.
        why: headgate_devices::PlaceError,
    },
    /// A scheduler does not take its configuration.
    #[error(transparent)]
    Scheduler(#[from] headgate_qos::ConfigError),
    /// Nor does a window's controller.
    #[error(transparent)]
    Window(#[from] headgate_qos::window::ConfigError),
}
