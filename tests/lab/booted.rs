//! A machine that boots Debian with systemd from memory, runs one script as root when the system is
//! up, and powers off: for tests of the unit.

use crate::guest::{Archive, Kernel, QEMU};
use crate::process::{Process, run_to_end};
use crate::{Lab, cache_dir, workspace};
use anyhow::{Context, ensure};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long the root file system may take to be made, and a machine to come up and go down.
const MAKE: Duration = Duration::from_secs(1800);
const RUN: Duration = Duration::from_secs(1800);

/// The script's unit. It says what it has to say on the console.
const UNIT: &str = "[Unit]
Description=The test
After=headgate.service multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash /lab/script
ExecStopPost=/bin/systemctl --no-block poweroff
TimeoutStartSec=infinity
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
";

/// A file that the machine has beside Debian's own.
pub struct Extra {
    /// Where, without the slash in front. Directories that Debian does not have come first.
    pub path: String,
    /// Permissions.
    pub mode: u32,
    /// Content.
    pub content: Vec<u8>,
}

/// Debian with systemd, made once. `None`, with the reason, where it cannot be made: without root,
/// a mirror, or the programs for it.
fn root() -> Result<PathBuf, String> {
    let path = cache_dir().join("systemd-root.cpio");
    if path.exists() {
        return Ok(path);
    }
    let mut command = Command::new(workspace().join("tests/systemd-root"));
    command.arg(&path);
    let made = run_to_end(command, MAKE).map_err(|e| format!("{e:#}"))?;
    match made.status.success() {
        true => Ok(path),
        false => Err(format!("tests/systemd-root: {}", made.stderr.trim())),
    }
}

/// What the console said until the machine was off. `None`: there is no such machine here, as was
/// said aloud.
pub fn boot(lab: &Lab, extras: &[Extra], script: &str) -> anyhow::Result<Option<String>> {
    let root = match root() {
        Ok(root) => root,
        Err(reason) => {
            eprintln!("SKIPPED: no Debian to boot: {reason}");
            return Ok(None);
        }
    };
    let initrd = lab.dir().join("initrd");
    fs::copy(&root, &initrd)?;
    let to = fs::File::options().append(true).open(&initrd)?;
    let mut archive = Archive::new(std::io::BufWriter::new(to));
    archive.directory("lab")?;
    archive.file("lab/script", 0o755, script.as_bytes())?;
    archive.file("etc/systemd/system/lab.service", 0o644, UNIT.as_bytes())?;
    for extra in extras {
        match extra.content.is_empty() {
            true => archive.directory(&extra.path)?,
            false => archive.file(&extra.path, extra.mode, &extra.content)?,
        }
    }
    archive.finish()?;
    let kernel = Kernel::find()?;
    let console = lab.dir().join("console");
    let accel = env::var("HEADGATE_LAB_ACCEL").unwrap_or_else(|_| "tcg".to_owned());
    let mut command = Command::new(QEMU);
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    command.args(["-accel", &accel, "-machine", "q35", "-smp", "2", "-m", "2G"]);
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&initrd);
    // A busy host is late with timer interrupts, which must not be taken for broken hardware.
    // The whole system is in memory, and systemd is its first process.
    command.args([
        "-append",
        "console=ttyS0 panic=-1 quiet no_timer_check rdinit=/lib/systemd/systemd \
        systemd.unit=multi-user.target systemd.wants=lab.service systemd.show_status=no",
    ]);
    command.arg("-serial").arg(format!("file:{}", console.display()));
    let mut machine = Process::spawn("the booted machine", command, &lab.dir().join("qemu.log"))?;
    let ended = machine.wait(RUN);
    let said = fs::read_to_string(&console).with_context(|| console.display().to_string())?;
    ended.with_context(|| said.clone())?;
    ensure!(said.contains("lab: done"), "the script did not come to its end:\n{said}");
    Ok(Some(said))
}

/// The program without what debuggers need of it.
pub fn stripped(program: &Path, lab: &Lab) -> anyhow::Result<Vec<u8>> {
    let to = lab.dir().join("stripped");
    let mut command = Command::new("strip");
    command.arg("-o").arg(&to).arg(program);
    let done = run_to_end(command, Duration::from_secs(120))?;
    ensure!(done.status.success(), "strip: {}", done.stderr);
    fs::read(&to).context("reading the stripped program")
}
