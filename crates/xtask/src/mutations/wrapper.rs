//! Stands between cargo and the compiler, so that crates of this workspace are compiled
//! incrementally: of a crate with a defect little is compiled anew.
//!
//! `CARGO_INCREMENTAL` would do that, too, and have everything built once more: cargo takes it for
//! another profile. It does not ask what is called in the place of the compiler.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Names the directory in which the compiler keeps what it needs for that; only we set it.
const KEPT: &str = "XTASK_INCREMENTAL";

/// This program in the place of the compiler.
pub struct Wrapper {
    program: PathBuf,
    kept: PathBuf,
}

impl Wrapper {
    /// With what it keeps in `dir`, which is `target/mutations` of a workspace. It is a copy: cargo
    /// may build this program anew meanwhile.
    pub fn new(dir: &Path) -> io::Result<Wrapper> {
        fs::create_dir_all(dir)?;
        let wrapper = Wrapper { program: dir.join("compiler"), kept: dir.join("incremental") };
        fs::copy(std::env::current_exe()?, &wrapper.program)?;
        Ok(wrapper)
    }

    /// Has a cargo call it.
    pub fn set(&self, cargo: &mut Command) {
        cargo.env("RUSTC_WRAPPER", &self.program).env(KEPT, &self.kept);
    }
}

/// Where this process was called in the place of the compiler, becomes that.
pub fn stand_in() -> Option<ExitCode> {
    let kept = std::env::var_os(KEPT)?;
    let mut words = std::env::args_os().skip(1);
    let Some(compiler) = words.next() else {
        eprintln!("error: {KEPT} is set, and no compiler named");
        return Some(ExitCode::FAILURE);
    };
    let mut command = Command::new(&compiler);
    command.args(words).args(more(Path::new(&kept), std::env::var_os("CARGO_MANIFEST_DIR")));
    command.env_remove(KEPT);
    eprintln!("error: cannot run {}: {}", compiler.display(), command.exec());
    Some(ExitCode::FAILURE)
}

/// What the compiler is told for a package with its manifest in `dir`, if it is one of those beside
/// which `kept` lies.
fn more(kept: &Path, dir: Option<OsString>) -> Vec<OsString> {
    // `kept` is `target/mutations/incremental` of the workspace.
    let root = kept.ancestors().nth(3);
    match (root, dir) {
        (Some(root), Some(dir)) if Path::new(&dir).starts_with(root) => {
            let mut option = OsString::from("incremental=");
            option.push(kept);
            vec!["-C".into(), option]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_the_workspace_are_compiled_incrementally_and_no_others() {
        let kept = PathBuf::from("/ws/target/mutations/incremental");
        let words = |dir: &str| more(&kept, Some(dir.into()));
        assert_eq!(words("/ws/crates/qos"), ["-C", "incremental=/ws/target/mutations/incremental"]);
        assert!(words("/registry/serde").is_empty());
        assert!(more(&kept, None).is_empty());
    }
}
