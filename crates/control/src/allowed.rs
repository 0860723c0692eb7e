//! Whether datastores are where they may be, each time before their storage is used.

use super::{Control, ControlError};
use headgate_model::{Backend, BoardPlace, DatastoreRecord};
use std::path::{Path, PathBuf};

impl Control {
    /// A directory as it is used: its path has no links, and is an allowed one now.
    ///
    /// # Errors
    /// When it is not there, or not allowed.
    pub(super) fn real_directory(&self, path: &Path) -> Result<PathBuf, ControlError> {
        self.options.roots.real_directory(&self.dir, path)
    }

    /// The directory of a datastore's images as they are opened: the path has no links, and is an
    /// allowed one now. `None` for storage without files.
    ///
    /// # Errors
    /// When it is not there, or not allowed.
    pub fn image_directory(&self, backend: &Backend) -> Result<Option<PathBuf>, ControlError> {
        match backend {
            Backend::Dir { path } | Backend::Emulated { path, .. } => {
                self.real_directory(path).map(Some)
            }
            Backend::Block { .. }
            | Backend::Nbd { .. }
            | Backend::Stripe { .. }
            | Backend::Memory { .. } => Ok(None),
        }
    }

    /// Fails when a datastore may not be on this device.
    pub(super) fn check_device_allowed(&self, device: &Path) -> Result<(), ControlError> {
        if self.options.roots.allows_device(device) {
            return Ok(());
        }
        Err(ControlError::invalid(
            format!("{} is not a device that is allowed", device.display()),
            self.options.roots.expected("a block device", "--allow-block"),
        ))
    }

    /// Fails when a datastore, or its congestion board, may not be where it is.
    pub(super) fn check_allowed(&self, record: &DatastoreRecord) -> Result<(), ControlError> {
        if let Backend::Block { device, .. } = &record.backend {
            self.check_device_allowed(device)?;
        }
        self.image_directory(&record.backend)?;
        match &record.window.board {
            BoardPlace::Directory(path) => self.real_directory(path).map(drop),
            BoardPlace::Auto | BoardPlace::None | BoardPlace::Etcd(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Roots;
    use crate::testing::Bench;
    use serde_json::json;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn add(bench: &Bench, name: &str, backend: serde_json::Value) -> Result<(), String> {
        let body = json!({"name": name, "backend": backend});
        let added = bench.control.add_datastore(serde_json::from_value(body).unwrap());
        added.map(drop).map_err(|e| format!("{e}; expected {}", e.expected().unwrap_or_default()))
    }

    fn within(directories: &[&Path], devices: &[&Path]) -> Bench {
        let own = |paths: &[&Path]| paths.iter().map(|p| p.to_path_buf()).collect::<Vec<_>>();
        Bench::with_roots(Roots::of(&own(directories), &own(devices)).unwrap())
    }

    #[test]
    fn a_directory_outside_is_refused_by_whatever_way_it_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let (allowed, other) = (temp.path().join("allowed"), temp.path().join("other"));
        for dir in [&allowed, &other, &allowed.join("in"), &temp.path().join("allowed-too")] {
            fs::create_dir(dir).unwrap();
        }
        let link = allowed.join("out");
        symlink(&other, &link).unwrap();
        let bench = within(&[&allowed], &[]);
        add(&bench, "in", json!({"dir": allowed.join("in")})).unwrap();
        for bad in [&other, &link, &allowed.join("../other"), &temp.path().join("allowed-too")] {
            let error = add(&bench, "out", json!({ "dir": bad })).unwrap_err();
            assert!(error.contains("not in a directory that is allowed"), "{error}");
            assert!(error.contains(&format!("in {}", allowed.display())), "{error}");
        }
        let board = json!({"window": {"board": other, "latency_threshold": "25ms"}});
        let patch = serde_json::from_value(board).unwrap();
        let error = bench.control.set_datastore(&"in".parse().unwrap(), patch).unwrap_err();
        assert!(error.to_string().contains("not in a directory that is allowed"), "{error}");
        // The daemon's own directories need no leave.
        let disk = json!({"name": "a", "size": 4096, "datastore": "default"});
        bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    }

    #[test]
    fn a_directory_that_becomes_a_link_to_elsewhere_is_not_used_any_more() {
        let temp = tempfile::tempdir().unwrap();
        let (allowed, other) = (temp.path().join("allowed"), temp.path().join("other"));
        fs::create_dir_all(allowed.join("in")).unwrap();
        fs::create_dir(&other).unwrap();
        let bench = within(&[&allowed], &[]);
        add(&bench, "in", json!({"dir": allowed.join("in")})).unwrap();
        // The writer of records may add a file to it meanwhile.
        while allowed.join("in").exists() {
            let _ = fs::remove_dir_all(allowed.join("in"));
        }
        symlink(&other, allowed.join("in")).unwrap();
        let disk = json!({"name": "a", "size": 4096, "datastore": "in"});
        let error = bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap_err();
        assert!(error.to_string().contains("is not in a directory that is allowed"), "{error}");
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0, "nothing was made there");
    }

    #[test]
    fn what_was_allowed_once_is_not_served_when_it_is_no_more() {
        let temp = tempfile::tempdir().unwrap();
        let bench = within(&[temp.path()], &[]);
        add(&bench, "in", json!({"dir": temp.path()})).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let roots = Roots::of(&[elsewhere.path().to_owned()], &[]).unwrap();
        let bench = bench.restart_with(roots);
        let store = bench.control.datastore(&"in".parse().unwrap()).unwrap();
        assert!(store.reason.unwrap_or_default().contains("not in a directory that is allowed"));
    }
}
