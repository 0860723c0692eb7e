//! States of the machine in which servers are compared.

use headgate_lab::process::Process;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// What else the machine does, and who may run where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum State {
    /// Nothing else runs.
    Quiet,
    /// Each processor has a neighbour that computes all the time.
    Busy,
    /// The server stays on the first processor, the client on the second.
    Apart,
    /// Server and client stay on the first processor.
    Together,
    /// The server has half of a processor: 50 ms of every 100.
    Quota,
    /// The client polls its ring before it sleeps, as a guest that halts late does.
    Polled,
}

/// The quota: so much of every period.
const PERIOD: Duration = Duration::from_millis(100);
const BUDGET: Duration = Duration::from_millis(50);

/// Who runs where.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The one that is measured.
    Server,
    /// The one that measures.
    Client,
}

impl State {
    /// As in the tables.
    pub fn name(self) -> &'static str {
        match self {
            State::Quiet => "quiet",
            State::Busy => "busy",
            State::Apart => "apart",
            State::Together => "together",
            State::Quota => "quota",
            State::Polled => "polled",
        }
    }

    fn processor(self, side: Side) -> Option<&'static str> {
        match (self, side) {
            (State::Apart, Side::Client) => Some("1"),
            (State::Apart | State::Together, _) => Some("0"),
            _ => None,
        }
    }

    /// The command, kept where its side may run.
    pub fn place(self, side: Side, command: Command) -> Command {
        let Some(processor) = self.processor(side) else { return command };
        let mut placed = Command::new("taskset");
        placed.args(["--cpu-list", processor]).arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => placed.env(key, value),
                None => placed.env_remove(key),
            };
        }
        placed
    }

    /// Makes the state, until what is returned goes. `server` is the process that is measured.
    pub fn begin(self, server: u32, dir: &Path) -> anyhow::Result<Ongoing> {
        let neighbours = match self {
            State::Busy => std::thread::available_parallelism()?.get(),
            _ => 0,
        };
        let neighbour = |_| {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]);
            Process::spawn("neighbour", command, &dir.join("neighbour.log"))
        };
        let neighbours = (0..neighbours).map(neighbour).collect::<Result<_, _>>()?;
        let quota = (self == State::Quota).then(|| Quota::begin(server));
        Ok(Ongoing { _neighbours: neighbours, _quota: quota })
    }
}

/// A state that lasts.
pub struct Ongoing {
    _neighbours: Vec<Process>,
    _quota: Option<Quota>,
}

/// Stops a process that has used its part of the period, until the next one begins: what the
/// kernel's bandwidth control does to a group, without one.
struct Quota {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Quota {
    fn begin(pid: u32) -> Quota {
        let ends = Arc::new(AtomicBool::new(false));
        let thread = {
            let ends = ends.clone();
            std::thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    period(pid);
                }
            })
        };
        Quota { ends, thread: Some(thread) }
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn period(pid: u32) {
    let (begun, before) = (Instant::now(), cpu(pid));
    while begun.elapsed() < PERIOD {
        // Several threads use up what is left sooner than one.
        let left = BUDGET.saturating_sub(cpu(pid).saturating_sub(before));
        if left.is_zero() {
            signal(pid, libc::SIGSTOP);
            sleep(PERIOD.saturating_sub(begun.elapsed()));
            signal(pid, libc::SIGCONT);
            return;
        }
        sleep((left / 2).max(Duration::from_millis(1)).min(PERIOD.saturating_sub(begun.elapsed())));
    }
}

/// Processor time of all threads; what cannot be read counts nothing.
fn cpu(pid: u32) -> Duration {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let of = |task: std::fs::DirEntry| -> Option<u64> {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    Duration::from_nanos(tasks.flatten().filter_map(of).sum())
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: a plain system call; the process is a child of this one that nobody has waited for.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// The machine, in one line: its processors, kernel, and what it did lately.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |text| text.trim_start_matches([' ', '\t', ':']));
    let count = info.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease");
    let load: Vec<String> =
        read("/proc/loadavg").split_whitespace().take(3).map(str::to_owned).collect();
    format!("{count} x {model}, Linux {}, load {}", kernel.trim(), load.join(" "))
}

/// The part of the processors' time since the machine started that a hypervisor gave to others.
pub fn stolen() -> Option<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<f64> =
        text.lines().next()?.split_whitespace().skip(1).filter_map(|f| f.parse().ok()).collect();
    Some((*fields.get(7)?, fields.iter().take(8).sum()))
}
