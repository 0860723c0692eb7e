//! The test lab: runs a server, real guests and real NBD clients against each other on one machine
//! without KVM.
//!
//! A test asks for the lab with [`with_lab`]; everything that the test starts lives in the
//! [`Lab`]'s directory and ends with the test. The server under test is a [`Server`]: Headgate, or
//! a peer, so that a test can show that it passes where it should and is no proof of itself.
//!
//! # Environment
//! - `HEADGATE_LAB=require`: a test that cannot run for want of a tool fails instead of skipping.
//! - `HEADGATE_LAB_DIR`: where the guest kernel and the initramfs are kept (default: `target/lab`).
//! - `HEADGATE_CUTS`, `HEADGATE_CUT_SEED`, `HEADGATE_KILLS`, `HEADGATE_EVICTIONS`: how many power
//!   cuts (and which), kills and evictions a test is about (`tests/README.md`).
//! - `HEADGATE_LAB_ACCEL`: QEMU's accelerator (default: `tcg`, which every machine has).

pub mod allocation;
pub mod beside;
pub mod booted;
pub mod browser;
pub mod counted;
pub mod death;
pub mod etcd;
pub mod faulty_fs;
pub mod file_system;
mod first;
pub mod fleet;
pub mod guest;
pub mod headgate;
pub mod ledger;
pub mod load;
pub mod loop_device;
pub mod metrics;
pub mod nbd;
pub mod pace;
pub mod peer;
pub mod power;
pub mod premise;
pub mod process;
pub mod prometheus;
pub mod qtest;
pub mod sample;
pub mod stolen;
pub mod streams;
pub mod stripes;
pub mod tls;
pub mod tools;
pub mod tools_disk;
mod turn;
pub mod write_log;
pub mod writer;

use anyhow::Context;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One disk that a server is asked for.
#[derive(Clone, Debug)]
pub struct DiskSpec {
    /// Name of the disk and of its NBD export.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
}

impl DiskSpec {
    /// A disk of `mib` MiB.
    pub fn mib(name: &str, mib: u64) -> DiskSpec {
        DiskSpec { name: name.to_owned(), size: mib << 20 }
    }
}

/// A server that offers disks over NBD and vhost-user-blk.
pub trait Server {
    /// What to call it in messages.
    fn name(&self) -> &'static str;

    /// The unix socket of its NBD server.
    fn nbd_socket(&self) -> &Path;

    /// The vhost-user-blk socket of a disk.
    fn vhost_socket(&self, disk: &str) -> PathBuf;

    /// The file that holds the disk's bytes, as any other program reads them once the server has
    /// stopped.
    fn image(&self, disk: &str) -> anyhow::Result<PathBuf>;

    /// Ends the server in good order.
    fn stop(&mut self) -> anyhow::Result<()>;

    /// Ends the server at once (SIGKILL).
    fn kill(&mut self) -> anyhow::Result<()>;

    /// Starts the server again on the same disks and waits until it serves them.
    fn start_again(&mut self) -> anyhow::Result<()>;

    /// The NBD URI of a disk.
    fn nbd_uri(&self, disk: &str) -> String {
        format!("nbd+unix:///{disk}?socket={}", self.nbd_socket().display())
    }
}

/// One test's directory and the things it may start.
pub struct Lab {
    dir: tempfile::TempDir,
}

impl Lab {
    /// Where this test keeps its files. Short enough for unix sockets below it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Makes a directory below [`dir`](Lab::dir).
    pub fn subdir(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    }
}

/// Runs a test in a lab of its own, or skips it aloud when one of `programs` or the guest kernel is
/// missing.
///
/// When the test fails, its directory (with the logs of all it started) stays and the message names
/// it.
pub fn with_lab(programs: &[&str], test: impl FnOnce(&Lab) -> anyhow::Result<()>) {
    with_lab_in(&env::temp_dir(), programs, test);
}

/// The same with the lab's directory in `base`.
fn with_lab_in(base: &Path, programs: &[&str], test: impl FnOnce(&Lab) -> anyhow::Result<()>) {
    let missing: Vec<&str> =
        programs.iter().copied().filter(|p| tools::find(p).is_none()).collect();
    if !missing.is_empty() {
        return skip(&format!("{} not installed", missing.join(", ")));
    }
    if programs.contains(&guest::QEMU)
        && let Err(reason) = guest::Kernel::find()
    {
        return skip(&format!("{reason:#}"));
    }
    let dir = tempfile::Builder::new()
        .prefix("headgate-lab-")
        .tempdir_in(base)
        .expect("a directory for temporary files");
    let lab = Lab { dir };
    if let Err(error) = test(&lab) {
        let kept = lab.dir.keep();
        panic!("{error:#}\n(files and logs are kept in {})", kept.display());
    }
}

fn skip(reason: &str) {
    let message = format!("{reason}; run tests/install");
    if env::var("HEADGATE_LAB").is_ok_and(|v| v == "require") {
        panic!("HEADGATE_LAB=require: {message}");
    }
    eprintln!("SKIPPED: {message}");
}

/// Where the lab keeps what is costly to make and the same for all tests.
pub fn cache_dir() -> PathBuf {
    match env::var_os("HEADGATE_LAB_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => workspace().join("target/lab"),
    }
}

/// How often to do something: what an environment variable says, or else the usual.
///
/// # Errors
/// When the variable is no number, or zero: a test that does nothing proves nothing.
pub fn count(variable: &str, usual: u32) -> anyhow::Result<u32> {
    let Ok(text) = env::var(variable) else { return Ok(usual) };
    let number = text.parse().ok().filter(|number| *number > 0);
    number.with_context(|| format!("{variable}={text}: expected a number above 0"))
}

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace")
}

/// Asks again and again until there is an answer or the time is up.
pub fn wait_for<T>(
    what: &str,
    within: Duration,
    mut ask: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let deadline = std::time::Instant::now() + within;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        anyhow::ensure!(std::time::Instant::now() < deadline, "{what}: not within {within:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
