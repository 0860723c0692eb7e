//! Starts a load, an attack or a replay, with signals handled.

use crate::args::{LoadArgs, ReplayArgs};
use crate::control::Control;
use crate::error::LoadError;
use crate::hostile;
use crate::replay::Recording;
use crate::report::Report;
use crate::run::{load_targets, replay_with};
use std::sync::Arc;

/// Runs a load as its arguments say. Ctrl-C ends it; a terminal shows a progress line.
///
/// # Errors
/// No target could be loaded. Later failures are in the report.
pub fn run(args: &LoadArgs) -> Result<Report, LoadError> {
    let control = Control::default();
    heed_signals(&control)?;
    run_with(args, &control)
}

fn heed_signals(control: &Control) -> Result<(), LoadError> {
    let interrupted = control.interrupt_flag();
    // The second Ctrl-C ends the process: the first may not have been heard.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let registered =
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&interrupted))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupted)));
        registered.map_err(|e| LoadError::Usage(format!("signals cannot be handled: {e}")))?;
    }
    Ok(())
}

/// Replays a recording. Ctrl-C ends it; a terminal shows a progress line.
///
/// # Errors
/// Nothing could be replayed. Later failures are in the report.
pub fn replay(args: &ReplayArgs, recording: Recording) -> Result<Report, LoadError> {
    let control = Control::default();
    heed_signals(&control)?;
    replay_with(args, recording, &control)
}

/// Runs a load; the caller ends and watches it through `control`.
///
/// # Errors
/// As [`run`].
pub fn run_with(args: &LoadArgs, control: &Control) -> Result<Report, LoadError> {
    match args.hostile.is_empty() {
        true => load_targets(args, control),
        false => hostile::run(args, control),
    }
}
