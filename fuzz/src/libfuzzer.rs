//! One process of libFuzzer: what it is told, what it said, and what it cost.

use crate::Target;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// An input that takes longer hangs. libFuzzer looks at the clock, and who fuzzes beside all else
/// that a machine does may have one hundredth of it.
const HANG: Duration = Duration::from_secs(600);
/// Memory of a process, in MiB.
const MEMORY: u64 = 4096;
/// How often it is looked at whether a process has ended.
const LOOK: Duration = Duration::from_millis(50);

/// Where a process finds and leaves things.
#[derive(Clone, Copy, Debug)]
pub struct Places<'p> {
    fuzzer: &'p Path,
    corpus: &'p Path,
    log: &'p Path,
}

impl<'p> Places<'p> {
    /// The program, a directory of inputs to which it adds, and a file for what it says.
    pub fn new(fuzzer: &'p Path, corpus: &'p Path, log: &'p Path) -> Places<'p> {
        Places { fuzzer, corpus, log }
    }

    fn start(&self, target: &Target, change: impl FnOnce(&mut Command)) -> Result<Child> {
        let log = File::create(self.log).with_context(|| format!("{}", self.log.display()))?;
        let mut command = Command::new(self.fuzzer);
        command.env("HEADGATE_FUZZ_TARGET", target.name);
        command.arg(format!("-max_len={}", target.longest));
        change(&mut command);
        command.arg(self.corpus).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().with_context(|| format!("{}", self.fuzzer.display()))
    }
}

/// How a process went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Inputs that it ran. When it was killed, as many as it had last said.
    pub executions: u64,
    /// Edges of the program that were reached, if it said so.
    pub edges: Option<u64>,
    /// Processor time of all of its threads.
    pub processor: Duration,
    /// How it ended.
    pub how: How,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Its time was up, or it was told to.
    Stopped,
    /// An input broke a promise.
    Found,
    /// A sanitiser ended it, it is no fuzzer, or it was killed by somebody else.
    Failed(ExitStatus),
}

/// Runs a process for so long, or until `stop` is set. An input that breaks a promise goes to a
/// file in `found` whose name begins with the target's. A process that does not end when it is
/// asked to is asked twice, `patience` apart, and then killed.
///
/// # Errors
/// When it does not start, or a file cannot be written.
pub fn run(
    target: &Target,
    places: Places<'_>,
    found: &Path,
    time: Duration,
    patience: Duration,
    stop: &AtomicBool,
) -> Result<Ended> {
    let words = places.log.with_extension("words");
    fs::write(&words, dictionary(target.words)).with_context(|| format!("{}", words.display()))?;
    let prefix = found.join(format!("{}-", target.name));
    let child = places.start(target, |command| {
        command
            .arg(format!("-max_total_time={}", time.as_secs().max(1)))
            .arg(format!("-timeout={}", HANG.as_secs()))
            .arg(format!("-report_slow_units={}", HANG.as_secs()))
            .arg(format!("-rss_limit_mb={MEMORY}"))
            .arg(format!("-artifact_prefix={}", prefix.display()))
            .args(["-print_final_stats=1", "-reload=0"]);
        if !target.words.is_empty() {
            command.arg(format!("-dict={}", words.display()));
        }
    })?;
    let pid = Pid::from_child(&child);
    let (status, processor) = wait(pid, patience, stop)?;
    let said = fs::read(places.log).with_context(|| format!("{}", places.log.display()))?;
    let said = String::from_utf8_lossy(&said);
    let (executions, edges) = (executions(&said), edges(&said));
    let how = match status.code() {
        Some(0 | INTERRUPTED) => How::Stopped,
        Some(CRASH | TIMEOUT | MEMORY_OUT) => How::Found,
        _ if stop.load(Relaxed) => How::Stopped,
        _ => How::Failed(status),
    };
    Ok(Ended { executions, edges, processor, how })
}

/// What libFuzzer ends with.
const INTERRUPTED: i32 = 72;
const CRASH: i32 = 77;
const TIMEOUT: i32 = 70;
const MEMORY_OUT: i32 = 71;

/// Waits for a process, and ends it when `stop` is set: between two inputs, at once, or for good.
fn wait(pid: Pid, patience: Duration, stop: &AtomicBool) -> Result<(ExitStatus, Duration)> {
    let mut asked: Option<Instant> = None;
    let mut means = [Signal::USR1, Signal::TERM, Signal::KILL].into_iter();
    loop {
        if let Some(ended) = reap(pid)? {
            return Ok(ended);
        }
        let due = asked.is_none_or(|asked| asked.elapsed() >= patience);
        if stop.load(Relaxed)
            && due
            && let Some(signal) = means.next()
        {
            // It may have ended meanwhile, which the next look tells.
            let _ = kill_process(pid, signal);
            asked = Some(Instant::now());
        }
        std::thread::sleep(LOOK);
    }
}

/// How a process ended, if it has, and its processor time.
fn reap(pid: Pid) -> Result<Option<(ExitStatus, Duration)>> {
    let mut status = 0;
    // SAFETY: all zeroes are a `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both places are valid, and the process is a child that nobody else waits for.
    let done =
        unsafe { libc::wait4(pid.as_raw_nonzero().get(), &mut status, libc::WNOHANG, &mut usage) };
    match done {
        0 => Ok(None),
        -1 => Err(std::io::Error::last_os_error()).context("a process that was started is gone"),
        _ => {
            let time = |time: libc::timeval| {
                Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000)
            };
            let processor = time(usage.ru_utime) + time(usage.ru_stime);
            Ok(Some((ExitStatus::from_raw(status), processor)))
        }
    }
}

/// The inputs that a process says it ran: at its end, or when it last said how far it was.
fn executions(said: &str) -> u64 {
    let last = |number: fn(&str) -> Option<u64>| said.lines().rev().find_map(number);
    let at_end =
        |line: &str| line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok();
    let under_way = |line: &str| line.strip_prefix('#')?.split_once('\t')?.0.parse().ok();
    last(at_end).or_else(|| last(under_way)).unwrap_or(0)
}

fn edges(said: &str) -> Option<u64> {
    let line = said.lines().rev().find(|line| line.starts_with('#') && line.contains(" cov: "))?;
    line.split_once(" cov: ")?.1.split(' ').next()?.parse().ok()
}

/// The words in libFuzzer's form.
fn dictionary(words: &[&str]) -> String {
    let mut text = String::new();
    for word in words {
        text.push('"');
        for byte in word.bytes() {
            match byte {
                b'"' | b'\\' => write!(text, "\\{}", char::from(byte)),
                b' '..=b'~' => write!(text, "{}", char::from(byte)),
                _ => write!(text, "\\x{byte:02X}"),
            }
            .expect("a text takes all");
        }
        text.push_str("\"\n");
    }
    text
}

/// Copies a smallest part of the corpus that reaches as much to the directory `to`.
///
/// # Errors
/// When the fuzzer fails.
pub fn merge(target: &Target, places: Places<'_>, to: &Path) -> Result<()> {
    let mut child = places.start(target, |command| {
        command.arg("-merge=1").arg(to);
    })?;
    let status = child.wait()?;
    if !status.success() {
        bail!("{}: {status}: {} has what was said", target.name, places.log.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_ran_is_what_it_said_last() {
        let under_way = "INFO: x\n#2\tINITED cov: 5 ft: 6\n#64\tpulse  cov: 7 ft: 8 corp: 2/3b\n";
        assert_eq!((executions(under_way), edges(under_way)), (64, Some(7)));
        let ended = format!("{under_way}stat::number_of_executed_units: 70\nstat::peak: 9\n");
        assert_eq!((executions(&ended), edges(&ended)), (70, Some(7)));
        assert_eq!((executions("== ERROR\n"), edges("#x\n")), (0, None));
    }

    #[test]
    fn words_are_written_as_libfuzzer_reads_them() {
        let words = dictionary(&["GET /", "\"a\\", "\n\0é"]);
        assert_eq!(words, "\"GET /\"\n\"\\\"a\\\\\"\n\"\\x0A\\x00\\xC3\\xA9\"\n");
    }
}
