//! Block devices of files.

use crate::process::{Finished, run_to_end};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A block device of a file, at this path until dropped.
pub struct Loop(pub PathBuf);

impl Loop {
    /// `None` where there are no such devices for us.
    pub fn attach(file: &Path) -> Option<Loop> {
        Loop::attach_with(file, 512)
    }

    /// The same with sectors of so many bytes.
    pub fn attach_with(file: &Path, sector: u32) -> Option<Loop> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", "--sector-size", &sector.to_string()]).arg(file);
        let Finished { status, stdout, .. } = run_to_end(command, Duration::from_secs(60)).ok()?;
        status.success().then(|| Loop(stdout.trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}
