//! The guest's kernel: a Debian cloud kernel, unpacked by `tests/install` or installed on the host.

use anyhow::{Context, bail};
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
        for root in [crate::cache_dir().join("kernel"), PathBuf::from("/")] {
            let Ok(entries) = fs::read_dir(root.join("lib/modules")) else { continue };
            let mut found: Vec<Kernel> = entries
                .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
                .filter(|release| release.ends_with("-cloud-amd64"))
                .map(|release| Kernel {
                    image: root.join(format!("boot/vmlinuz-{release}")),
                    modules: root.join("lib/modules").join(release),
                })
                .filter(|k| k.image.is_file() && k.modules.join("modules.dep").is_file())
                .collect();
            found.sort_by(|a, b| a.image.cmp(&b.image));
            if let Some(kernel) = found.pop() {
                return Ok(kernel);
            }
        }
        bail!("no guest kernel (linux-image-cloud-amd64)")
    }

    /// The directory that module paths are relative to.
    pub fn module_dir(&self) -> &Path {
        &self.modules
    }

    /// The paths of the named modules and all that they depend on, each after what it needs.
    pub fn modules_in_order(&self, names: &[&str]) -> anyhow::Result<Vec<String>> {
        let index = fs::read_to_string(self.modules.join("modules.dep"))?;
        let needs: HashMap<&str, Vec<&str>> = index
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(path, needs)| (path, needs.split_whitespace().collect()))
            .collect();
        let mut order: Vec<String> = Vec::new();
        for name in names {
            let file = format!("/{name}.ko");
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
