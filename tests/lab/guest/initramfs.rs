//! Builds the guest's initramfs from programs of the host: busybox, fio and file system tools with
//! their libraries, and the kernel modules that a guest needs. Built once and kept under a name
//! that changes when any ingredient does.

use super::Kernel;
use super::newc::Archive;
use crate::tools;
use anyhow::{Context, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const INIT: &str = include_str!("init.sh");
const PROGRAMS: [&str; 6] = ["fio", "mkfs.ext4", "e2fsck", "resize2fs", "fstrim", "blkdiscard"];
const MODULES: [&str; 3] = ["virtio_pci", "virtio_blk", "virtio_console"];
/// Loaded by scripts that want them: `insmod $(find /kernel -name bfq.ko)`.
const MODULES_AT_WILL: [&str; 2] = ["bfq", "kyber-iosched"];
/// mkfs.ext4 refuses to work without its profile.
const FILES: [&str; 1] = ["/etc/mke2fs.conf"];

/// The path of the initramfs for this kernel, building it if need be.
pub(super) fn path(kernel: &Kernel) -> anyhow::Result<PathBuf> {
    let recipe = Recipe::new(kernel)?;
    let dir = crate::cache_dir();
    let path = dir.join(format!("initramfs-{:016x}.cpio", recipe.fingerprint()?));
    if !path.exists() {
        fs::create_dir_all(&dir)?;
        // Under a name of its own first: another test may be building it too.
        let mut draft = tempfile::NamedTempFile::new_in(&dir)?;
        recipe.write(&mut draft)?;
        draft.persist(&path)?;
    }
    Ok(path)
}

/// What goes into the archive: path in the guest and where its content is on the host.
struct Recipe {
    files: BTreeMap<String, PathBuf>,
    modules: Vec<String>,
}

impl Recipe {
    fn new(kernel: &Kernel) -> anyhow::Result<Recipe> {
        let mut files = BTreeMap::new();
        let busybox =
            tools::find("busybox").context("busybox is not installed; run tests/install")?;
        ensure!(
            tools::libraries(&busybox)?.is_empty(),
            "busybox is not static; install busybox-static (tests/install)"
        );
        files.insert("/bin/busybox".to_owned(), busybox);
        for program in PROGRAMS {
            let host = tools::find(program)
                .with_context(|| format!("{program} is not installed; run tests/install"))?;
            for library in tools::libraries(&host)? {
                files.insert(library.display().to_string(), library);
            }
            files.insert(format!("/usr/bin/{program}"), host);
        }
        for file in FILES {
            files.insert(file.to_owned(), PathBuf::from(file));
        }
        let modules = kernel.modules_in_order(&MODULES)?;
        for module in &modules {
            files.insert(format!("/{module}"), kernel.module_dir().join(module));
        }
        for module in kernel.modules_in_order(&MODULES_AT_WILL)? {
            files.insert(format!("/{module}"), kernel.module_dir().join(&module));
        }
        Ok(Recipe { files, modules })
    }

    /// Changes when a path, a file's identity (inode, size, time of change) or the init script
    /// does.
    fn fingerprint(&self) -> anyhow::Result<u64> {
        let mut hasher = DefaultHasher::new();
        INIT.hash(&mut hasher);
        for (guest, host) in &self.files {
            let meta = fs::metadata(host).with_context(|| format!("reading {}", host.display()))?;
            (guest, host, meta.ino(), meta.size(), meta.ctime(), meta.ctime_nsec())
                .hash(&mut hasher);
        }
        Ok(hasher.finish())
    }

    fn write(&self, to: impl std::io::Write) -> anyhow::Result<()> {
        let mut archive = Archive::new(std::io::BufWriter::new(to));
        // Paths of the host that are links there (/lib, /lib64, /bin, /sbin) are plain directories
        // in the guest, which finds a library under the path that ldd told.
        let mut directories = BTreeSet::from([PathBuf::from("dev"), PathBuf::from("lab")]);
        for guest in self.files.keys() {
            let inside = Path::new(guest.trim_start_matches('/'));
            directories.extend(inside.ancestors().skip(1).map(Path::to_owned));
        }
        directories.remove(Path::new(""));
        for directory in &directories {
            archive.directory(&directory.display().to_string())?;
        }
        archive.character_device("dev/console", 5, 1)?;
        for (guest, host) in &self.files {
            let bytes = fs::read(host).with_context(|| format!("reading {}", host.display()))?;
            archive.file(guest.trim_start_matches('/'), 0o755, &bytes)?;
        }
        let modules: String = self.modules.iter().map(|m| format!("/{m}\n")).collect();
        archive.file("lab/modules", 0o644, modules.as_bytes())?;
        archive.file("init", 0o755, INIT.as_bytes())?;
        archive.finish()?;
        Ok(())
    }
}
