//! The daemon under test, driven as an operator drives it: by its command line and its sockets.

use crate::metrics::Metrics;
use crate::nbd::Handshake;
use crate::process::{Finished, Process, run, run_to_end};
use crate::{DiskSpec, Lab, Server, wait_for, workspace};
use anyhow::{Context, ensure};
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// How long a command may take that does not move data. The catalogue waits for the machine's disk,
/// which may have seconds of other work before it.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long the daemon may take to drain.
const DRAIN: Duration = Duration::from_secs(60);

/// The program: `HEADGATE_BIN`, or built from this workspace once per test run, in the profile
/// `dev`.
pub fn binary() -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| match env::var_os("HEADGATE_BIN") {
        Some(path) => Ok(path.into()),
        None => build().map_err(|e| format!("{e:#}")),
    });
    built.clone().map_err(anyhow::Error::msg)
}

fn build() -> anyhow::Result<PathBuf> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--quiet", "--package", "headgate"]).current_dir(workspace());
    // `tests/run` sets it for the harness; in a build it would have every package built anew.
    command.env_remove("RUSTC_BOOTSTRAP");
    run(command, Duration::from_secs(1800))?;
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    let path = target.join("debug/headgate");
    ensure!(path.is_file(), "cargo built no {}", path.display());
    Ok(path)
}

/// A running daemon with a state directory of its own.
pub struct Headgate {
    state: PathBuf,
    log: PathBuf,
    nbd: PathBuf,
    /// What its command line begins with, the program itself first unless another starts it.
    words: Vec<OsString>,
    process: Process,
}

impl Headgate {
    /// Starts a daemon on an empty state directory and waits until its API answers.
    pub fn start(lab: &Lab) -> anyhow::Result<Headgate> {
        Self::start_as(lab, "state", &[], &[])
    }

    /// Starts one of several daemons, called `name`: by another program if `through` names one, and
    /// with further arguments to `serve`.
    pub fn start_as(
        lab: &Lab,
        name: &str,
        through: &[&str],
        arguments: &[&str],
    ) -> anyhow::Result<Headgate> {
        let state = lab.subdir(name)?;
        let log = lab.dir().join(format!("headgate-{name}.log"));
        let mut words: Vec<OsString> = through.iter().map(OsString::from).collect();
        words.push(binary()?.into());
        words.push("serve".into());
        words.extend(arguments.iter().map(OsString::from));
        let process = launch(&words, &state, &log)?;
        Ok(Headgate { nbd: state.join("nbd.sock"), state, log, words, process })
    }

    /// Starts a daemon on a state directory that another has left.
    pub fn start_on(lab: &Lab, name: &str, state: &Path) -> anyhow::Result<Headgate> {
        let log = lab.dir().join(format!("headgate-{name}.log"));
        let words = vec![binary()?.into(), "serve".into()];
        let process = launch(&words, state, &log)?;
        Ok(Headgate { nbd: state.join("nbd.sock"), state: state.into(), log, words, process })
    }

    /// Starts a daemon and creates disks in its default datastore.
    pub fn with_disks(lab: &Lab, disks: &[DiskSpec]) -> anyhow::Result<Headgate> {
        let daemon = Headgate::start(lab)?;
        for disk in disks {
            daemon.command(&["disk", "create", &disk.name, "--size", &disk.size.to_string()])?;
        }
        Ok(daemon)
    }

    /// Runs a command against the daemon; anything but exit status 0 is an error.
    pub fn command(&self, args: &[&str]) -> anyhow::Result<String> {
        self.command_for(PATIENCE, args)
    }

    /// Runs a command that may take longer.
    pub fn command_for(&self, within: Duration, args: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(binary()?);
        command.args(args).env("HEADGATE_STATE_DIR", &self.state);
        let finished = run_to_end(command, within)?;
        let Finished { status, stdout, stderr } = finished;
        ensure!(status.success(), "headgate {}: {status}\n{stdout}{stderr}", args.join(" "));
        Ok(stdout)
    }

    /// Runs a reading command with `--json`.
    pub fn json(&self, args: &[&str]) -> anyhow::Result<serde_json::Value> {
        let said = self.command(&[args, &["--json"]].concat())?;
        serde_json::from_str(&said).with_context(|| format!("headgate {}: {said}", args.join(" ")))
    }

    /// Reads all metrics.
    pub fn metrics(&self) -> anyhow::Result<Metrics> {
        Metrics::scrape(&self.state.join("headgate.sock"))
    }

    /// Reads a path of the API.
    pub fn get(&self, path: &str) -> anyhow::Result<String> {
        crate::metrics::get(&self.state.join("headgate.sock"), path)
    }

    /// How it says that it is, whatever that is.
    pub fn health(&self) -> anyhow::Result<serde_json::Value> {
        let (_, body) = crate::metrics::answer(&self.state.join("headgate.sock"), "/healthz")?;
        serde_json::from_str(&body).with_context(|| body.clone())
    }

    /// The daemon's memory that is not shared with files, in KiB.
    pub fn memory_kib(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
        line.trim().trim_end_matches(" kB").parse().with_context(|| line.to_owned())
    }

    /// How many threads the daemon has.
    pub fn threads(&self) -> anyhow::Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/task", self.pid()))?.count())
    }

    /// The daemon's process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// How long the daemon's shards have been ready to run and had no CPU, all together.
    pub fn shard_wait(&self) -> anyhow::Result<Duration> {
        let is_shard = |name: &str| {
            let number = name.strip_prefix("shard-");
            number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
        };
        self.process.cpu_wait(is_shard)
    }

    /// The state directory.
    pub fn state_dir(&self) -> &Path {
        &self.state
    }

    /// All that it has logged so far.
    pub fn log(&self) -> anyhow::Result<String> {
        std::fs::read_to_string(&self.log).with_context(|| self.log.display().to_string())
    }

    /// Whether the daemon has ended, for whatever reason.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        self.process.has_ended()
    }

    /// Fails with the end of its log when the daemon has died.
    pub fn ensure_running(&mut self) -> anyhow::Result<()> {
        self.process.ensure_running()
    }
}

fn launch(words: &[OsString], state: &Path, log: &Path) -> anyhow::Result<Process> {
    let (program, arguments) = words.split_first().context("no program")?;
    let mut command = Command::new(program);
    command.args(arguments).arg("--state-dir").arg(state);
    let mut process = Process::spawn("headgate", command, log)?;
    wait_for("headgate should serve its API and NBD", PATIENCE, || {
        process.ensure_running()?;
        let ready = Metrics::scrape(&state.join("headgate.sock")).is_ok()
            && Handshake::connect(&state.join("nbd.sock")).is_ok();
        Ok(ready.then_some(()))
    })?;
    Ok(process)
}

impl Server for Headgate {
    fn name(&self) -> &'static str {
        "headgate"
    }

    fn nbd_socket(&self) -> &Path {
        &self.nbd
    }

    fn vhost_socket(&self, disk: &str) -> PathBuf {
        self.state.join(format!("vhost/{disk}.sock"))
    }

    fn image(&self, disk: &str) -> anyhow::Result<PathBuf> {
        // The default datastore is a directory of raw files named after their disks.
        let dir = self.state.join("default");
        let entries = std::fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
        let mut images = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let named = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == disk);
        images.find(named).with_context(|| format!("no image of {disk} in {}", dir.display()))
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        self.process.terminate(DRAIN)
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.process.ensure_running()?;
        self.process.kill()
    }

    fn start_again(&mut self) -> anyhow::Result<()> {
        self.process = launch(&self.words, &self.state, &self.log)?;
        Ok(())
    }
}
