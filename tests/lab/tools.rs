//! Where programs are, and real NBD clients driven by the lab.

use crate::process::{run, run_to_end};
use anyhow::{Context, ensure};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a client may take that moves a whole test disk.
const LONG: Duration = Duration::from_secs(120);

/// The path of a program, looking where administrators' programs are too.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}

/// The path of a shared library that is named by a path below the system's directories for them.
pub fn library(name: &str) -> anyhow::Result<PathBuf> {
    let directories = ["/usr/lib", "/usr/local/lib"].map(Path::new).into_iter().flat_map(|dir| {
        let below = std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()));
        below.chain([dir.to_owned()])
    });
    let found = directories.map(|dir| dir.join(name)).find(|candidate| candidate.is_file());
    found.with_context(|| format!("there is no {name} below /usr/lib: run tests/install"))
}

/// `nbdinfo --json`: what the server says of an export.
pub fn nbdinfo(uri: &str) -> anyhow::Result<serde_json::Value> {
    let mut command = Command::new("nbdinfo");
    command.args(["--json", uri]);
    Ok(serde_json::from_str(&run(command, LONG)?)?)
}

/// `nbdinfo --map --json`: what the server says is data and what are holes.
pub fn nbdinfo_map(uri: &str) -> anyhow::Result<serde_json::Value> {
    let mut command = Command::new("nbdinfo");
    command.args(["--map", "--json", uri]);
    Ok(serde_json::from_str(&run(command, LONG)?)?)
}

/// `nbdcopy`: copies a whole disk between URIs or files.
pub fn nbdcopy(from: &str, to: &str) -> anyhow::Result<()> {
    let mut command = Command::new("nbdcopy");
    command.args(["--", from, to]);
    run(command, LONG).map(drop)
}

/// `qemu-img compare`: succeeds when a URI or raw file has the very bytes of another.
pub fn qemu_img_compare(one: &str, other: &str) -> anyhow::Result<()> {
    let mut command = Command::new("qemu-img");
    // The server may still have the image open for writing: share it, the caller knows that nobody
    // writes.
    command.args(["compare", "--force-share", "-f", "raw", "-F", "raw", one, other]);
    run(command, LONG).map(drop)
}

/// `qemu-io`: runs commands (`write -P 7 0 64k`) on an export; a failed command or pattern check is
/// an error.
pub fn qemu_io(uri: &str, commands: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]);
    for c in commands {
        command.args(["-c", c]);
    }
    command.arg(uri);
    let said = run(command, LONG)?;
    anyhow::ensure!(!said.contains("failed"), "qemu-io: {said}");
    Ok(said)
}

/// Options of [`fio_nbd`]: four connections write 4 MiB each, and check all of it.
pub const FOUR_WRITERS: [&str; 9] = [
    "--rw=randwrite",
    "--bs=4k",
    "--iodepth=8",
    "--size=4m",
    "--offset_increment=4m",
    "--numjobs=4",
    "--verify=crc32c",
    "--verify_fatal=1",
    "--group_reporting",
];

/// `fio` over its NBD engine with further options; returns its JSON report.
pub fn fio_nbd(uri: &str, options: &[&str], within: Duration) -> anyhow::Result<serde_json::Value> {
    let mut command = Command::new("fio");
    command
        .args(["--name=nbd", "--ioengine=nbd", "--verify_state_save=0", "--output-format=json"])
        .arg(format!("--uri={uri}"));
    command.args(options);
    json_in(&run(command, within)?)
}

/// The JSON object in a program's output, which may begin with warnings.
pub fn json_in(said: &str) -> anyhow::Result<serde_json::Value> {
    let from = said.find('{').with_context(|| format!("no JSON in: {said}"))?;
    serde_json::from_str(&said[from..]).with_context(|| said.to_owned())
}

/// Creates a sparse file.
pub fn sparse_file(path: &Path, size: u64) -> anyhow::Result<()> {
    Ok(std::fs::File::create(path)?.set_len(size)?)
}

/// The SHA-256 of a file, as `sha256sum` prints it.
pub fn sha256(path: &Path) -> anyhow::Result<String> {
    let mut command = Command::new("sha256sum");
    command.arg(path);
    let said = run(command, LONG)?;
    Ok(said.split_whitespace().next().unwrap_or_default().to_owned())
}

/// The shared libraries of a program, loader included; none for a static one.
pub fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut command = Command::new("ldd");
    command.arg(program).env("LC_ALL", "C");
    let finished = run_to_end(command, Duration::from_secs(20))?;
    if finished.stderr.contains("not a dynamic executable")
        || finished.stdout.contains("statically linked")
    {
        return Ok(Vec::new());
    }
    ensure!(finished.status.success(), "ldd {}: {}", program.display(), finished.stderr);
    finished
        .stdout
        .lines()
        .filter(|line| !line.contains("linux-vdso"))
        .map(|line| {
            // "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)" or
            // "/lib64/ld-linux-x86-64.so.2 (0x...)".
            let path = line
                .split("=>")
                .last()
                .and_then(|l| l.split_whitespace().next())
                .unwrap_or_default();
            ensure!(path.starts_with('/'), "{}: {} is missing", program.display(), line.trim());
            Ok(PathBuf::from(path))
        })
        .collect()
}
