//! Small file systems, to be filled.

use crate::loop_device::Loop;
use crate::process::{Finished, run_to_end};
use crate::{Lab, tools};
use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// What a file system is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ext4 on a loop device: images on it have direct IO.
    Ext4,
    /// Memory: images on it are mapped.
    Tmpfs,
    /// The same as ext4, and files can share blocks. Of 300 MiB or more.
    Xfs,
    /// The same. Of 128 MiB or more.
    Btrfs,
}

/// A mounted file system, until dropped.
pub struct FileSystem {
    path: PathBuf,
    /// Detached after the file system is unmounted.
    _device: Option<Loop>,
}

fn run(program: &str, words: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.args(words);
    let Finished { status, stdout, stderr } = run_to_end(command, PATIENCE)?;
    ensure!(status.success(), "{program} {}: {status}\n{stdout}{stderr}", words.join(" "));
    Ok(())
}

/// Makes and mounts one on a loop device.
fn on_device(lab: &Lab, mib: u64, at: &str, kind: &str, words: &[&str]) -> anyhow::Result<Loop> {
    let file = lab.dir().join(format!("small.{kind}"));
    tools::sparse_file(&file, mib << 20)?;
    run(&format!("mkfs.{kind}"), &[words, &[&file.to_string_lossy()]].concat())?;
    let device = Loop::attach(&file).context("no loop device to be had")?;
    run("mount", &["-t", kind, &device.0.to_string_lossy(), at])?;
    Ok(device)
}

impl FileSystem {
    /// Makes and mounts one of so many MiB. Needs root.
    pub fn mount(lab: &Lab, kind: Kind, mib: u64) -> anyhow::Result<FileSystem> {
        let path = lab.subdir("small")?;
        let at = path.to_string_lossy().into_owned();
        let device = match kind {
            Kind::Tmpfs => {
                run("mount", &["-t", "tmpfs", "-o", &format!("size={mib}M"), "tmpfs", &at])?;
                None
            }
            Kind::Ext4 => Some(on_device(lab, mib, &at, "ext4", &["-q", "-F", "-m", "0"])?),
            Kind::Xfs => Some(on_device(lab, mib, &at, "xfs", &["-q", "-f", "-m", "reflink=1"])?),
            Kind::Btrfs => Some(on_device(lab, mib, &at, "btrfs", &["-q", "-f"])?),
        };
        Ok(FileSystem { path, _device: device })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is free of it, in bytes.
    pub fn free(&self) -> anyhow::Result<u64> {
        let found = rustix::fs::statvfs(&self.path)?;
        Ok(found.f_bavail * found.f_frsize)
    }

    /// A file that leaves so many MiB free, to be removed by the caller.
    pub fn fill(&self, leave_mib: u64) -> anyhow::Result<PathBuf> {
        let file = self.path.join("filler");
        let size = self.free()?.saturating_sub(leave_mib << 20);
        let filler = std::fs::File::create(&file)?;
        rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, size)?;
        Ok(file)
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        // What is in use yet goes with its last user.
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
    }
}
