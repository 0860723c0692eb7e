//! A daemon that dies at a write to its catalog: just before the kernel hears of it, or just after.
//!
//! A signal from outside comes at any instant, and hardly ever between two writes that follow each
//! other. A library in the daemon (`death.c`, built here) counts what it does to the catalog's
//! files and kills it at the one that was ordered.

use crate::process::run;
use crate::{Lab, workspace};
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a compiler may take for a page of C.
const COMPILES: Duration = Duration::from_secs(120);

/// On which side of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kernel never hears of it.
    Before,
    /// It has been carried out.
    After,
}

/// The order to die, which a daemon with the library obeys.
pub struct Death {
    library: PathBuf,
    order: PathBuf,
}

impl Death {
    /// Builds the library in the test's directory.
    ///
    /// # Errors
    /// When there is no C compiler, with what it said.
    pub fn prepare(lab: &Lab) -> anyhow::Result<Death> {
        let library = lab.dir().join("death.so");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library);
        cc.arg(workspace().join("tests/lab/death.c")).arg("-ldl");
        run(cc, COMPILES)?;
        Ok(Death { library, order: lab.dir().join("death") })
    }

    /// What goes before the program that is to obey.
    pub fn words(&self) -> Vec<String> {
        vec![
            "env".into(),
            format!("LD_PRELOAD={}", self.library.display()),
            format!("HEADGATE_DEATH={}", self.order.display()),
        ]
    }

    /// The daemon dies at the `nth` write from now on, the first being 1.
    ///
    /// # Errors
    /// When the order cannot be written.
    pub fn order(&self, nth: u64, side: Side) -> anyhow::Result<()> {
        self.forget_seen()?;
        let side = match side {
            Side::Before => "before",
            Side::After => "after",
        };
        // Never seen half written.
        let whole = self.order.with_extension("whole");
        fs::write(&whole, format!("{nth} {side}\n"))?;
        fs::rename(&whole, &self.order).context("ordering a death")
    }

    /// Writes are counted from now on, and nobody dies.
    ///
    /// # Errors
    /// As for [`order`](Self::order).
    pub fn count(&self) -> anyhow::Result<()> {
        self.order(u64::from(u32::MAX), Side::Before)
    }

    /// Nobody dies from now on. How many writes there were since the order, in all processes.
    ///
    /// # Errors
    /// When the order cannot be taken back.
    pub fn forget(&self) -> anyhow::Result<u64> {
        remove(&self.order)?;
        let seen = fs::metadata(self.seen()).map_or(0, |meta| meta.len());
        self.forget_seen()?;
        Ok(seen)
    }

    fn seen(&self) -> PathBuf {
        self.order.with_extension("seen")
    }

    fn forget_seen(&self) -> anyhow::Result<()> {
        remove(&self.seen())
    }
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}
