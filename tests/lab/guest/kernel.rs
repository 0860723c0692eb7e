//! The guest's kernel: a Debian cloud kernel, unpacked by `tests/install` or installed on the host;
//! and a newer one, for what the usual one has not.

use anyhow::Context;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A kernel image and its modules.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The bzImage.
    pub image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// Finds the newest cloud kernel that comes with an index of its modules.
    pub fn find() -> anyhow::Result<Kernel> {
        let roots = [crate::cache_dir().join("kernel"), PathBuf::from("/")];
        let found = roots.iter().find_map(|root| Kernel::below(root));
        found.context("no guest kernel (linux-image-cloud-amd64)")
    }

    /// The newer one. Not every Debian archive has it: `None`, and said aloud, where it is not
    /// there.
    pub fn newer() -> Option<Kernel> {
        let found = Kernel::below(&crate::cache_dir().join("newer-kernel"));
        if found.is_none() {
            eprintln!(
                "SKIPPED: no newer guest kernel: tests/install says why it could not have it"
            );
        }
        found
    }

    fn below(root: &Path) -> Option<Kernel> {
        let mut found: Vec<Kernel> = fs::read_dir(root.join("lib/modules"))
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .filter(|release| release.ends_with("-cloud-amd64"))
            .map(|release| Kernel {
                image: root.join(format!("boot/vmlinuz-{release}")),
                modules: root.join("lib/modules").join(release),
            })
            .filter(|k| k.image.is_file() && k.modules.join("modules.dep").is_file())
            .collect();
        found.sort_by(|a, b| a.image.cmp(&b.image));
        found.pop()
    }

    /// The directory that module paths are relative to.
    pub fn module_dir(&self) -> &Path {
        &self.modules
    }

    /// The paths of the named modules and all that they depend on, each after what it needs. What
    /// is a part of the kernel itself has none.
    pub fn modules_in_order(&self, names: &[&str]) -> anyhow::Result<Vec<String>> {
        let index = fs::read_to_string(self.modules.join("modules.dep"))?;
        let built_in = fs::read_to_string(self.modules.join("modules.builtin"))?;
        let needs: HashMap<&str, Vec<&str>> = index
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(path, needs)| (path, needs.split_whitespace().collect()))
            .collect();
        let mut order: Vec<String> = Vec::new();
        for name in names {
            let file = format!("/{name}.ko");
            if built_in.lines().any(|path| path.ends_with(&file)) {
                continue;
            }
            let (path, needed) = needs
                .iter()
                .find(|(path, _)| path.ends_with(&file))
                .with_context(|| format!("kernel {} has no module {name}", self.image.display()))?;
            // modules.dep lists dependencies, nearest first, with theirs after them.
            for module in needed.iter().rev().chain([path]) {
                if !order.iter().any(|m| m == module) {
                    order.push((*module).to_owned());
                }
            }
        }
        Ok(order)
    }
}
