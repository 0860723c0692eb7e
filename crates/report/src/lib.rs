//! The tools around the simulator: parallel runs, figures, reports, and the built-in experiments.

mod breaks;
mod differences;
mod experiment;
mod experiments;
mod figure;
mod flash;
mod hosts;
mod html;
mod known;
mod levels;
mod marks;
mod models;
mod mutants;
mod notes;
pub mod plot;
mod predictions;
mod published;
mod runs;
mod sensitivity;
mod series;
mod tally;
#[cfg(test)]
mod testing;
mod traces;

pub use breaks::{Breaks, breaks};
pub use differences::difference_rows;
pub use experiment::Experiment;
pub use experiments::experiments;
pub use figure::figures;
pub use html::report;
pub use known::RunJobs;
pub use models::distributions;
pub use mutants::{Checked, known_unbroken, seeds_for_mutants, try_mutants};
pub use notes::{Note, notes};
pub use published::published;
pub use runs::{Far, Job, run_all, run_each};
pub use sensitivity::{At, Claim, Reach, Tried, Value, mismarked, sensitivity_report, try_values};
pub use tally::{PAPERS, Tally, by_paper};
pub use traces::FileTraces;
