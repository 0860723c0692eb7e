//! Programs that a test starts: their output is kept, their end is waited for, none outlives its
//! test.

use crate::wait_for;
use anyhow::{Context, bail};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// How many lines of a log an error message repeats.
const TAIL_LINES: usize = 40;

/// A program running beside the test. Dropping it kills it.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its output appended to the file `log`.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> anyhow::Result<Process> {
        let out = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let child = command.spawn().with_context(|| format!("starting {name}: {command:?}"))?;
        Ok(Process { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// The process's id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How long the threads of the process that `counts` accepts by their name have been ready to
    /// run and had no CPU, all together.
    pub fn cpu_wait(&self, counts: impl Fn(&str) -> bool) -> anyhow::Result<Duration> {
        let mut nanos = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let task = task?.path();
            // Empty when the thread has ended meanwhile.
            let read = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
            if counts(read("comm").trim_end()) {
                // Nanoseconds on a CPU, nanoseconds waiting for one, number of slices.
                let wait = read("schedstat").split_whitespace().nth(1).and_then(|n| n.parse().ok());
                nanos += wait.unwrap_or(0_u64);
            }
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// Fails with the end of the log when the process has ended.
    pub fn ensure_running(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status})\n{}", self.name, tail(&self.log)),
        }
    }

    /// Whether the process has ended.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// The end of the log.
    pub fn said(&self) -> String {
        tail(&self.log)
    }

    /// Waits for the process's own end.
    pub fn wait(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        let what = format!("{} should end", self.name);
        wait_for(&what, within, || Ok(self.child.try_wait()?)).with_context(|| tail(&self.log))
    }

    /// Asks the process to end (SIGTERM) and insists on exit status 0.
    pub fn terminate(&mut self, within: Duration) -> anyhow::Result<()> {
        self.signal(libc::SIGTERM)?;
        let status = self.wait(within)?;
        if !status.success() {
            bail!("{} ended with {status} on SIGTERM\n{}", self.name, tail(&self.log));
        }
        Ok(())
    }

    /// Asks the process to come to an end and report (SIGINT).
    pub fn interrupt(&mut self) -> anyhow::Result<()> {
        self.signal(libc::SIGINT)
    }

    fn signal(&mut self, signal: libc::c_int) -> anyhow::Result<()> {
        self.ensure_running()?;
        // SAFETY: the child has not been waited for, so its id is still its own.
        match unsafe { libc::kill(self.child.id() as libc::pid_t, signal) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().into()),
        }
    }

    /// Ends the process at once (SIGKILL).
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program that ran to its end left behind.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

/// Runs a program to its end, or kills it when the time is up.
pub fn run_to_end(mut command: Command, within: Duration) -> anyhow::Result<Finished> {
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let ended = wait_for("the program should end", within, || Ok(child.try_wait()?));
    if ended.is_err() {
        child.kill()?;
        child.wait()?;
    }
    let read = |file: &mut File| -> anyhow::Result<String> {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (stdout, stderr) = (read(&mut stdout)?, read(&mut stderr)?);
    let status = ended.with_context(|| format!("{command:?}\n{stdout}\n{stderr}"))?;
    Ok(Finished { status, stdout, stderr })
}

/// Runs a program and returns its standard output; anything but exit status 0 is an error that
/// tells all it said.
pub fn run(command: Command, within: Duration) -> anyhow::Result<String> {
    let shown = format!("{command:?}");
    let finished = run_to_end(command, within)?;
    if !finished.status.success() {
        bail!("{shown}: {}\n{}\n{}", finished.status, finished.stdout, finished.stderr);
    }
    Ok(finished.stdout)
}

/// The last lines of a log, for error messages.
pub fn tail(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    format!("--- end of {} ---\n{}\n---", log.display(), lines[from..].join("\n"))
}

/// Lets this process have as many file descriptors as the kernel gives it.
pub fn raise_own_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let found = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: found.maximum, maximum: found.maximum };
    if let Err(e) = setrlimit(Resource::Nofile, wanted) {
        eprintln!("the limit of file descriptors stays as it is: {e}");
    }
}
