use crate::cli::CliError;
use crate::serve::signals::Signals;
use crate::sim::{Job, run_all};
use headgate_sim::{Outcome, RunError};
use indicatif::{ProgressBar, ProgressStyle};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Runs all jobs on all processors, with a progress bar where somebody sees it. Ctrl-C ends them.
pub(in crate::cli) fn run_jobs(jobs: &[Job<'_>]) -> Result<Vec<Outcome>, CliError> {
    let signals = Signals::catch().map_err(CliError::Print)?;
    let bar = ProgressBar::new(1_000);
    // The template is a constant, and its mistakes would show in every run.
    if let Ok(style) = ProgressStyle::with_template("{msg:>16} {wide_bar} {percent:>3} % {elapsed}") {
        bar.set_style(style);
    }
    let mut stopped = false;
    let start = Instant::now();
    let result = run_all(jobs, &mut |far| {
        bar.set_position(far.permille);
        bar.set_message(format!("{} of {} runs", far.done, jobs.len()));
        stopped |= signals.wait_for(Duration::ZERO).is_some();
        if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    match result {
        Ok(outcomes) => {
            let events: u64 = outcomes.iter().map(|outcome| outcome.events).sum();
            let millions = events as f64 / 1e6;
            eprintln!(
                "{} runs, {millions:.1} million events in {seconds:.1} s ({:.1} million per second)",
                outcomes.len(),
                millions / seconds.max(1e-9)
            );
            Ok(outcomes)
        }
        Err(RunError::Cancelled { .. }) => Err(CliError::Stopped("stopped: there are no results".into())),
        Err(e) => Err(CliError::Stopped(e.to_string())),
    }
}
