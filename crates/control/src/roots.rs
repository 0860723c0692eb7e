//! Where datastores may be.

use crate::StateDir;
use crate::error::ControlError;
use std::io;
use std::path::{Path, PathBuf};

/// Which directories and devices of the host datastores may be on. What is in the state directory
/// is always allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Roots {
    /// All that the daemon can open.
    #[default]
    Anywhere,
    /// What is in these, and these themselves. Paths are absolute; what they lead to is looked up
    /// at every use, for a file system may be mounted later.
    Within {
        /// For images and congestion boards.
        directories: Vec<PathBuf>,
        /// For block devices: a device node, or a directory of such nodes or of links to them.
        devices: Vec<PathBuf>,
    },
}

/// A path without links in it.
fn real(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize()
}

impl Roots {
    /// What is in these, or anywhere where none is given.
    ///
    /// # Errors
    /// When one of them is not an absolute path.
    pub fn of(directories: &[PathBuf], devices: &[PathBuf]) -> Result<Roots, ControlError> {
        if directories.is_empty() && devices.is_empty() {
            return Ok(Roots::Anywhere);
        }
        if let Some(path) = directories.iter().chain(devices).find(|path| !path.is_absolute()) {
            return Err(ControlError::invalid(
                format!("'{}' is not an absolute path", path.display()),
                "absolute paths for --allow-dir and --allow-block",
            ));
        }
        Ok(Roots::Within { directories: directories.to_vec(), devices: devices.to_vec() })
    }

    /// A directory as it is used: its path has no links, and is an allowed one now. A relative path
    /// is one of the state directory's own, which is always allowed.
    pub(super) fn real_directory(
        &self,
        dir: &StateDir,
        path: &Path,
    ) -> Result<PathBuf, ControlError> {
        let full = dir.resolve(path);
        let found = real(&full).map_err(|source| ControlError::Io {
            doing: format!("find {}", full.display()),
            source,
        })?;
        if path.is_relative() || self.allows_directory(&found) {
            return Ok(found);
        }
        let is_elsewhere =
            if found == full { String::new() } else { format!(" is {}, which", found.display()) };
        Err(ControlError::invalid(
            format!("{}{is_elsewhere} is not in a directory that is allowed", full.display()),
            self.expected("a directory", "--allow-dir"),
        ))
    }

    /// Whether images may be in this directory, whose path is real.
    fn allows_directory(&self, directory: &Path) -> bool {
        match self {
            Roots::Anywhere => true,
            Roots::Within { directories, .. } => {
                let mut roots = directories.iter().filter_map(|root| real(root).ok());
                roots.any(|root| directory.starts_with(root))
            }
        }
    }

    /// Whether the device of this name may be used. Links in the directory that it is in are not
    /// resolved: whoever may write to an allowed directory of devices says what is in it, as udev
    /// does in `/dev/disk/by-id`.
    pub(super) fn allows_device(&self, device: &Path) -> bool {
        match self {
            Roots::Anywhere => true,
            Roots::Within { devices, .. } => {
                let device = parent_resolved(device);
                let is_root = |root: &PathBuf| {
                    device == parent_resolved(root)
                        || real(root).is_ok_and(|root| root.is_dir() && device.starts_with(root))
                };
                devices.iter().any(is_root)
            }
        }
    }

    /// For an error: what is allowed.
    pub(super) fn expected(&self, what: &str, option: &str) -> String {
        let within = match self {
            Roots::Anywhere => return what.to_owned(),
            Roots::Within { directories, .. } if option == "--allow-dir" => directories,
            Roots::Within { devices, .. } => devices,
        };
        let within: Vec<String> = within.iter().map(|path| path.display().to_string()).collect();
        match within.is_empty() {
            true => format!("another kind of storage: no {what} is allowed ('serve {option}')"),
            false => format!("{what} in {} ('serve {option}')", within.join(" or ")),
        }
    }
}

/// The real path of the directory that a name is in, and the name.
fn parent_resolved(path: &Path) -> PathBuf {
    match (path.parent().and_then(|parent| real(parent).ok()), path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn devices_are_allowed_by_the_name_that_they_are_used_by() {
        let temp = tempfile::tempdir().unwrap();
        let by_id = temp.path().join("by-id");
        fs::create_dir(&by_id).unwrap();
        symlink("/dev/sda", by_id.join("lun")).unwrap();
        symlink(&by_id, temp.path().join("links")).unwrap();
        let roots = Roots::of(&[], &[by_id.clone(), "/dev/sdb".into()]).unwrap();
        assert!(roots.allows_device(&by_id.join("lun")));
        assert!(roots.allows_device(&temp.path().join("links/lun")));
        assert!(roots.allows_device(Path::new("/dev/sdb")));
        for bad in ["/dev/sda", "/dev/sdb1", "/dev/sdc"] {
            assert!(!roots.allows_device(Path::new(bad)), "{bad}");
        }
        assert!(!roots.allows_device(&by_id.join("../sda")));
        assert!(!roots.allows_directory(Path::new("/srv")), "only devices were allowed");
        assert!(Roots::of(&[], &[]).unwrap().allows_device(Path::new("/dev/sda")));
        Roots::of(&["srv".into()], &[]).unwrap_err();
    }
}
