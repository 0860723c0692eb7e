use crate::cli::error::CliError;
use headgate_daemon::serve::signals::{EndSignal, Signals};
use headgate_report::{Far, Job, run_each};
use headgate_sim::Outcome;
use indicatif::{ProgressBar, ProgressStyle};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Ctrl-C ends what is computed, but nothing that is printed or written: either all of it is there
/// or nothing.
pub(in crate::cli) struct Interrupts {
    signals: Signals,
}

impl Interrupts {
    /// From now on signals do not end the process by themselves.
    pub(in crate::cli) fn catch() -> Result<Interrupts, CliError> {
        Ok(Interrupts { signals: Signals::catch().map_err(CliError::Print)? })
    }

    fn seen(&self) -> Option<EndSignal> {
        self.signals.wait_for(Duration::ZERO)
    }

    /// To be asked before the first result is printed or written.
    ///
    /// # Errors
    /// [`CliError::Interrupted`] when a signal came.
    pub(in crate::cli) fn check(&self) -> Result<(), CliError> {
        self.seen().map_or(Ok(()), |signal| Err(CliError::Interrupted(signal)))
    }
}

/// Runs all jobs on all processors, with a progress bar where somebody sees it, and says how fast.
///
/// # Errors
/// See [`run_jobs_each`].
pub(in crate::cli) fn run_jobs(
    jobs: &[Job<'_>],
    interrupts: &Interrupts,
) -> Result<Vec<Outcome>, CliError> {
    let mut outcomes = Vec::with_capacity(jobs.len());
    run_jobs_each(jobs, interrupts, &mut |outcome| {
        outcomes.push(outcome);
        Ok(())
    })?;
    Ok(outcomes)
}

/// The same, and gives each outcome to `ended` once those of earlier jobs are there; later jobs run
/// meanwhile.
///
/// # Errors
/// [`CliError::Interrupted`] when a signal came; else the first of `ended`; else that of a run.
pub(in crate::cli) fn run_jobs_each(
    jobs: &[Job<'_>],
    interrupts: &Interrupts,
    ended: &mut dyn FnMut(Outcome) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let bar = ProgressBar::new(1_000);
    // The template is a constant, and its mistakes would show in every run.
    if let Ok(style) = ProgressStyle::with_template("{msg:>16} {wide_bar} {percent:>3} % {elapsed}")
    {
        bar.set_style(style);
    }
    let (mut stopped, mut failed, mut events) = (None, None, 0u64);
    let start = Instant::now();
    let mut tell = |far: Far| {
        bar.set_position(far.permille);
        bar.set_message(format!("{} of {} runs", far.done, jobs.len()));
        stopped = stopped.or_else(|| interrupts.seen());
        if stopped.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let result = run_each(jobs, &mut tell, &mut |outcome| {
        events += outcome.events;
        if failed.is_none() {
            failed = bar.suspend(|| ended(outcome)).err();
        }
        if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    // A run that ended just before it heard of the signal ended for nobody.
    if let Some(signal) = stopped {
        return Err(CliError::Interrupted(signal));
    }
    if let Some(error) = failed {
        return Err(error);
    }
    result.map_err(|e| CliError::Stopped(e.to_string()))?;
    let millions = events as f64 / 1e6;
    eprintln!(
        "{} runs, {millions:.1} million events in {seconds:.1} s ({:.1} million per second)",
        jobs.len(),
        millions / seconds.max(1e-9)
    );
    Ok(())
}
