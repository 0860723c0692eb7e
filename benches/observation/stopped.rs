//! Threads of another process that are stopped, each by itself, until this is dropped.

use anyhow::{Context, ensure};
use std::fs;
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread may take to fall asleep.
const PATIENCE: Duration = Duration::from_secs(10);

/// Threads that are stopped.
pub struct Stopped(Vec<i32>);

impl Stopped {
    /// Stops threads while they sleep, so that they hold nothing that others wait for.
    pub fn stop(threads: impl Iterator<Item = i32>) -> anyhow::Result<Stopped> {
        let mut stopped = Stopped(Vec::new());
        for thread in threads {
            await_sleep(thread)?;
            ask(libc::PTRACE_SEIZE, thread)?;
            stopped.0.push(thread);
            ask(libc::PTRACE_INTERRUPT, thread)?;
            let mut status = 0;
            // SAFETY: the status is written to a local of the right type.
            let found = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
            ensure!(found == thread && libc::WIFSTOPPED(status), "thread {thread}: {status:x}");
        }
        Ok(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for thread in &self.0 {
            // One that has ended needs nothing.
            let _ = ask(libc::PTRACE_DETACH, *thread);
        }
    }
}

fn ask(request: libc::c_uint, thread: i32) -> anyhow::Result<()> {
    // SAFETY: none of these requests reads or writes memory of this process.
    let answer = unsafe { libc::ptrace(request, thread, null_mut::<u8>(), null_mut::<u8>()) };
    let error = std::io::Error::last_os_error();
    ensure!(answer == 0, "ptrace of thread {thread}: {error}; it needs the rights of root");
    Ok(())
}

/// Waits until a thread is asleep, a few times in a row.
fn await_sleep(thread: i32) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut asleep = 0;
    while asleep < 3 {
        ensure!(Instant::now() < deadline, "thread {thread} never sleeps");
        let stat = fs::read_to_string(format!("/proc/{thread}/stat"))?;
        let (_, state) = stat.rsplit_once(") ").context("no state")?;
        asleep = if state.starts_with('S') { asleep + 1 } else { 0 };
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
