//! The simulator as a tool: many runs at once, figures, reports, and the experiments inside the program.

mod breaks;
mod experiments;
mod figure;
mod flash;
mod hosts;
mod html;
mod models;
mod runs;
pub(crate) mod traces;

pub(crate) use breaks::{Breaks, breaks};
pub(crate) use experiments::experiments;
pub(crate) use figure::figures;
pub(crate) use html::{Experiment, report};
pub(crate) use models::distributions;
pub(crate) use runs::{Job, run_all};
pub(crate) use traces::FileTraces;
