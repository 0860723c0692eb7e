//! What a block device is used for, before a disk is made of it.

use crate::ControlError;
use crate::signature::{Ends, HEAD, TAIL};
use headgate_api::types::Force;
use headgate_model::PlaneError;
use headgate_units::Bytes;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long others may have a device claimed that only look at it, as a daemon does here.
const PATIENCE: Duration = Duration::from_secs(1);

/// Refuses a device that is in use on this host, and, unless forced, one that holds something.
pub(super) fn check_new(device: &Path, force: Force) -> Result<(), ControlError> {
    let file = claim(device)?;
    if force == Force::Yes {
        return Ok(());
    }
    let read = |source| ControlError::Io { doing: format!("read {}", device.display()), source };
    let found = Content::read(file).map_err(read)?.ends().signatures();
    if found.is_empty() {
        return Ok(());
    }
    let name = device.display();
    Err(ControlError::Busy {
        error: format!("{name} holds {}", found.join(" and ")),
        hint: format!(
            "a disk on it would overwrite that: choose another device, or erase this one with \
             'wipefs --all {name}'. If it was a disk of Headgate's before, here or on another host, \
             this is its guest's: add it with --force, which keeps its content"
        ),
    })
}

/// The size of a device that is served here, or was.
pub(super) fn length(device: &Path) -> Result<Bytes, ControlError> {
    let length = File::open(device).and_then(|mut file| file.seek(SeekFrom::End(0)));
    length.map(Bytes).map_err(|source| ControlError::Io {
        doing: format!("measure {}", device.display()),
        source,
    })
}

/// Refuses a device whose user on this host is known, before a disk on it is opened. Of other users
/// the open itself tells.
pub(super) fn check_unused(device: &Path) -> Result<(), PlaneError> {
    let Some(user) = user_of(device) else { return Ok(()) };
    let (error, hint) = in_use(device, &user);
    Err(PlaneError { error, hint: Some(hint) })
}

/// The error, and what to do.
fn in_use(device: &Path, user: &str) -> (String, String) {
    (
        format!("{} is in use on this host: {user}", device.display()),
        "end that use first, or choose another device; --force does not help while it lasts".into(),
    )
}

/// Opens a device for reading, as its only user as far as the kernel knows of them. To be held for
/// a moment only: a lease decides which daemon serves it.
fn claim(device: &Path) -> Result<File, ControlError> {
    let deadline = Instant::now() + PATIENCE;
    let exclusive = rustix::fs::OFlags::EXCL.bits().cast_signed();
    loop {
        match OpenOptions::new().read(true).custom_flags(exclusive).open(device) {
            Ok(file) => return Ok(file),
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                let user = user_of(device);
                if user.is_some() || Instant::now() >= deadline {
                    let user =
                        user.as_deref().unwrap_or("another process or device has claimed it");
                    let (error, hint) = in_use(device, user);
                    return Err(ControlError::Busy { error, hint });
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(source) => {
                return Err(ControlError::Io {
                    doing: format!("open {}", device.display()),
                    source,
                });
            }
        }
    }
}

/// The bytes that [`Ends`] judges.
pub(super) struct Content {
    head: Vec<u8>,
    tail: Vec<u8>,
    size: u64,
}

impl Content {
    /// Of a file or a block device.
    pub(super) fn read(mut file: File) -> io::Result<Content> {
        let size = file.seek(SeekFrom::End(0))?;
        let read = |at: u64, len: u64| {
            let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
            file.read_exact_at(&mut bytes, at).map(|()| bytes)
        };
        let (head, tail) = (size.min(HEAD), size.min(TAIL));
        Ok(Content { head: read(0, head)?, tail: read(size - tail, tail)?, size })
    }

    pub(super) fn ends(&self) -> Ends<'_> {
        Ends { head: &self.head, tail: &self.tail, size: self.size }
    }
}

/// A block device or a partition of one.
struct Part {
    number: u64,
    name: String,
}

fn in_sysfs(number: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    Path::new("/sys/dev/block").join(format!("{major}:{minor}"))
}

fn number_of(device: &Path) -> Option<u64> {
    fs::metadata(device).ok().map(|meta| meta.rdev()).filter(|number| *number != 0)
}

fn entries(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// The device and its partitions.
fn parts_of(device: &Path) -> Vec<Part> {
    let Some(number) = number_of(device) else { return Vec::new() };
    let directory = in_sysfs(number);
    let partition = |name: String| {
        let dir = directory.join(&name);
        fs::metadata(dir.join("partition")).ok()?;
        let text = fs::read_to_string(dir.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        let number = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        Some(Part { number, name: format!("its partition {name}") })
    };
    let partitions = entries(&directory).into_iter().filter_map(partition);
    std::iter::once(Part { number, name: "it".into() }).chain(partitions).collect()
}

/// Who uses a device or a part of it, in words.
fn user_of(device: &Path) -> Option<String> {
    let parts = parts_of(device);
    let part = |number: u64| parts.iter().find(|part| part.number == number);
    let of_device = |path: &str| {
        // Other paths may lead to a file system that hangs.
        path.starts_with("/dev/").then(|| number_of(Path::new(path))).flatten().and_then(part)
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted = mounts.lines().filter_map(mount).find_map(|mount| {
        let part = part(mount.device).or_else(|| of_device(&mount.source))?;
        Some(format!("{} is mounted at {}", part.name, mount.point))
    });
    let swaps = || {
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        let swap = swaps.lines().find_map(|line| of_device(line.split_whitespace().next()?));
        swap.map(|part| format!("{} is swap", part.name))
    };
    let holder = || {
        parts.iter().find_map(|part| {
            let directory = in_sysfs(part.number).join("holders");
            let holder = entries(&directory).into_iter().min()?;
            let name = fs::read_to_string(directory.join(&holder).join("dm/name"));
            let name = name.map(|name| format!(" ({})", name.trim())).unwrap_or_default();
            Some(format!("{} is a part of {holder}{name}", part.name))
        })
    };
    mounted.or_else(swaps).or_else(holder)
}

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    device: u64,
    point: String,
    source: String,
}

fn mount(line: &str) -> Option<Mount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut words = mount.split(' ').skip(2);
    let (major, minor) = words.next()?.split_once(':')?;
    let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let point = words.nth(1)?.replace("\\040", " ");
    let source = file_system.split(' ').nth(1)?.replace("\\040", " ");
    Some(Mount { device, point, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use crate::{ControlError, ErrorKind};
    use headgate_api::types::ServiceState;
    use serde_json::json;
    use std::process::Command;

    /// A block device of a file.
    struct Loop {
        path: PathBuf,
        _file: tempfile::NamedTempFile,
    }

    fn run(program: &str, args: &[&Path]) -> Option<String> {
        let output = Command::new(program).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    impl Loop {
        fn attach() -> Option<Loop> {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(16 << 20).unwrap();
            let args = [Path::new("--find"), Path::new("--show"), file.path()];
            let path = run("losetup", &args).map(PathBuf::from);
            if path.is_none() {
                eprintln!("SKIPPED: no loop devices here");
            }
            Some(Loop { path: path?, _file: file })
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            run("losetup", &[Path::new("--detach"), &self.path]);
        }
    }

    fn add(bench: &Bench, device: &Path, force: &str) -> Result<(), ControlError> {
        let lun = json!({"name": "lun", "backend": {"block": device}, "force": force});
        bench.control.add_datastore(serde_json::from_value(lun).unwrap()).map(drop)
    }

    fn refused(outcome: Result<(), ControlError>, words: &[&str]) {
        let error = outcome.unwrap_err();
        let text = format!("{error}: {}", error.hint().unwrap_or_default());
        assert_eq!(error.kind(), ErrorKind::Conflict, "{text}");
        for word in words {
            assert!(text.contains(word), "no '{word}' in: {text}");
        }
    }

    #[test]
    fn a_device_with_content_is_added_by_force_only_and_an_empty_one_without() {
        let Some(device) = Loop::attach() else { return };
        let bench = Bench::new();
        let content = OpenOptions::new().write(true).open(&device.path).unwrap();
        content.write_all_at(b"\x53\xef", 1080).unwrap();
        content.sync_all().unwrap();
        refused(add(&bench, &device.path, "no"), &["ext4 file system", "wipefs", "--force"]);
        add(&bench, &device.path, "yes").unwrap();
        bench.control.remove_datastore(&"lun".parse().unwrap()).unwrap();
        content.write_all_at(&[0; 2], 1080).unwrap();
        content.sync_all().unwrap();
        drop(content);
        // The directory's owner named the device by a link, as those in /dev/disk/by-id are.
        let link = bench.temp.path().join("by-id");
        std::os::unix::fs::symlink(&device.path, &link).unwrap();
        add(&bench, &link, "no").unwrap();
    }

    #[test]
    fn a_device_that_is_claimed_is_refused_even_by_force() {
        let Some(device) = Loop::attach() else { return };
        let bench = Bench::new();
        let held = claim(&device.path).unwrap();
        for force in ["no", "yes"] {
            refused(add(&bench, &device.path, force), &["is in use on this host", "claimed"]);
        }
        drop(held);
        add(&bench, &device.path, "no").unwrap();
    }

    #[test]
    fn a_device_that_is_mounted_is_refused_with_its_mount_point() {
        let Some(device) = Loop::attach() else { return };
        let (bench, point) = (Bench::new(), tempfile::tempdir().unwrap());
        add(&bench, &device.path, "no").unwrap();
        let disk = json!({"name": "db", "datastore": "lun"});
        bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
        let made = run("mkfs.ext4", &[Path::new("-q"), &device.path])
            .and_then(|_| run("mount", &[&device.path, point.path()]));
        if made.is_none() {
            eprintln!("SKIPPED: no file system can be mounted here");
            return;
        }
        let bench = bench.restart();
        let failed = bench.control.disk(&"db".parse().unwrap()).unwrap();
        let other = Bench::new();
        let outcomes = ["no", "yes"].map(|force| add(&other, &device.path, force));
        run("umount", &[point.path()]).unwrap();
        let mounted = format!("it is mounted at {}", point.path().display());
        for outcome in outcomes {
            refused(outcome, &[&mounted]);
        }
        let reason = failed.reason.unwrap_or_default();
        assert!(failed.state == ServiceState::Failed && reason.contains(&mounted), "{reason}");
        // What the catalog has is not refused for what its guest wrote.
        let again = bench.restart().control.disk(&"db".parse().unwrap()).unwrap();
        assert_eq!(again.state, ServiceState::Serving, "{:?}", again.reason);
        refused(add(&other, &device.path, "no"), &["ext4 file system"]);
    }

    #[test]
    fn lines_of_mounts_are_read() {
        let line = "36 35 8:17 / /mnt/a\\040b rw,noatime master:1 shared:2 - ext4 /dev/sdb1 rw";
        let device = rustix::fs::makedev(8, 17);
        let expected = Mount { device, point: "/mnt/a b".into(), source: "/dev/sdb1".into() };
        assert_eq!(mount(line), Some(expected));
        assert_eq!(mount("36 35 8:17 / /mnt"), None);
    }
}
