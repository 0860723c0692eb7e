//! Programs that are run to their end, for so long at most, or until a signal comes.

use crate::tree::Failure;
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Whether a signal has come that asks for the end.
#[derive(Clone)]
pub struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    /// From now on SIGINT, SIGTERM and SIGHUP are noted.
    pub fn watch() -> Result<Interrupted, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in
            [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
        {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Interrupted(flag))
    }

    /// Fails if one has come.
    pub fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) {
            return Err("interrupted".into());
        }
        Ok(())
    }
}

/// How a program ended.
#[derive(Debug)]
pub enum End {
    /// By itself.
    Exited(ExitStatus),
    /// It was killed after its time.
    TooLong,
}

/// A process group that ends when this goes.
struct Group(Child);

impl Group {
    fn end(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // It leads its group, and is not waited for yet: the number is its own.
            if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(pid, Signal::KILL);
            }
            let _ = self.0.wait();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a program in a process group of its own, so that a signal from a terminal comes to us
/// alone.
pub fn run(
    command: &mut Command,
    patience: Duration,
    interrupted: &Interrupted,
) -> Result<End, Failure> {
    interrupted.check()?;
    command.stdin(Stdio::null()).process_group(0);
    let started = Instant::now();
    let child = command.spawn().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    let mut group = Group(child);
    loop {
        if let Some(status) = group.0.try_wait()? {
            return Ok(End::Exited(status));
        }
        interrupted.check()?;
        if started.elapsed() > patience {
            return Ok(End::TooLong);
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, patience: Duration, interrupted: bool) -> Result<End, Failure> {
        let flag = Interrupted(Arc::new(AtomicBool::new(interrupted)));
        run(Command::new("sh").args(["-c", script]), patience, &flag)
    }

    #[test]
    fn the_status_is_told() {
        let end = shell("exit 3", Duration::MAX, false).unwrap();
        assert!(matches!(end, End::Exited(status) if status.code() == Some(3)));
    }

    #[test]
    fn who_takes_too_long_is_killed_with_all_that_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let script = format!("mkfifo {0}; sleep 1000 >{0} & exec sleep 1000", pipe.display());
        let end = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !pipe.exists() {
                    thread::sleep(LOOK);
                }
                // Ends when nobody can write any more.
                std::fs::read(&pipe)
            });
            let end = shell(&script, Duration::from_millis(500), false);
            reader.join().unwrap().unwrap();
            end
        });
        assert!(matches!(end.unwrap(), End::TooLong));
    }

    #[test]
    fn nothing_is_started_after_a_signal() {
        assert_eq!(shell("exit 0", Duration::MAX, true).unwrap_err().to_string(), "interrupted");
    }
}
