//! A disk with programs for a guest that has few.

use crate::guest::Kernel;
use crate::process::run;
use crate::{Lab, tools};
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A disk image with these programs and their libraries, and with modules of a kernel and all they
/// need. Mounted at `/host`, programs want `LD_LIBRARY_PATH=/host`, and `/host/modules` names the
/// modules in the order in which they go in.
pub fn tools_disk(
    lab: &Lab,
    kernel: &Kernel,
    programs: &[PathBuf],
    modules: &[&str],
) -> anyhow::Result<PathBuf> {
    let dir = lab.subdir("tools")?;
    for program in programs {
        let name = program.file_name().context("a program has a name")?;
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(dir.join(name)).arg(program);
        run(strip, MINUTE)?;
        for library in tools::libraries(program)? {
            let name = library.file_name().context("a library has a name")?;
            fs::copy(&library, dir.join(name))?;
        }
    }
    copy_modules(&dir, kernel, modules)?;
    let image = lab.dir().join("tools.img");
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-O", "^has_journal", "-d"]).arg(&dir).arg(&image).arg("256M");
    run(make, MINUTE)?;
    Ok(image)
}

fn copy_modules(dir: &Path, kernel: &Kernel, modules: &[&str]) -> anyhow::Result<()> {
    let mut names = String::new();
    for module in kernel.modules_in_order(modules)? {
        let from = kernel.module_dir().join(&module);
        let name = from.file_name().context("a module has a name")?.to_string_lossy().into_owned();
        fs::copy(&from, dir.join(&name))?;
        names += &format!("/host/{name}\n");
    }
    Ok(fs::write(dir.join("modules"), names)?)
}
