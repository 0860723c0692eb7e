//! Landlock: which files the daemon may open, held by the kernel even against the daemon itself.
//!
//! A thread's domain holds for the threads that it starts, so the domain is entered before there
//! are any (docs/decisions/0072-landlock.md).

use headgate_api::health::{self as api, ConfinementState};
use headgate_control::{Roots, StateDir};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use thiserror::Error;
use tracing::{info, warn};

/// Without it the kernel refuses every link and rename from one directory to another: removed disks
/// and the sockets of machines need both.
const NEEDED: ABI = ABI::V2;

/// What is asked for where the kernel has it: truncation (V3) and device commands (V5) besides.
const WANTED: ABI = ABI::V5;

/// Whether the daemon confines itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LandlockMode {
    /// Where the kernel can, and it is said where datastores may be
    #[default]
    Auto,
    /// Or do not start
    Require,
    /// Do not
    Off,
}

/// Why the daemon is not confined.
#[derive(Debug, Error)]
pub(super) enum Unconfined {
    #[error("it is turned off")]
    Off,
    #[error("datastores may be anywhere: --allow-dir and --allow-block say where they may be")]
    NoRoots,
    #[error(
        "the kernel has none, has not turned it on (lsm=), or is older than Linux 5.19; or a filter \
         forbids its system calls (SystemCallFilter=)"
    )]
    NoKernel,
}

/// The daemon cannot be confined, although it must be.
#[derive(Debug, Error)]
pub enum ConfinementError {
    /// There is no reason to go on without.
    #[error("Landlock is required, and there is none: {0}")]
    Required(String),
    /// The kernel refuses.
    #[error("Landlock cannot be set up: {0}")]
    Ruleset(#[from] RulesetError),
}

/// Why it is confined by a part of the rights.
const OLDER_KERNEL: &str = "by the rights of this kernel; Linux 6.10 has all";

/// Whether the daemon is confined, for the log and the API.
#[derive(Debug)]
pub(super) enum Confinement {
    /// By all rights of [`WANTED`], or those of an older kernel. These roots could not be opened,
    /// and are closed to the daemon until its next start.
    Confined {
        extent: Extent,
        absent: Vec<PathBuf>,
    },
    Unconfined(Unconfined),
}

/// How many of the rights that are [`WANTED`] the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    All,
    Some,
}

/// What may be done beneath a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    /// Read files and list directories.
    Read,
    /// Read, and write files that are there.
    Write,
    /// Read and write devices, and ask what they are.
    Device,
    /// Whatever images need.
    Images,
    /// The same, and sockets.
    State,
}

impl Right {
    fn access(self) -> BitFlags<AccessFs> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let images = read
            | AccessFs::WriteFile
            | AccessFs::Truncate
            | AccessFs::MakeReg
            | AccessFs::MakeDir
            | AccessFs::RemoveFile
            | AccessFs::RemoveDir
            | AccessFs::Refer;
        match self {
            Right::Read => read,
            Right::Write => AccessFs::ReadFile | AccessFs::WriteFile,
            Right::Device => read | AccessFs::WriteFile | AccessFs::IoctlDev,
            Right::Images => images,
            Right::State => images | AccessFs::MakeSock,
        }
    }
}

/// What the daemon reads besides its storage. Users, groups and hosts are looked up by the C
/// library, whose modules are loaded then; its files are exchanged by others, so the directory is
/// what is allowed. The rest is what the kernel tells of this process, of devices and of the host.
const SYSTEM: [&str; 15] = [
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/sys",
    "/proc/self",
    "/proc/meminfo",
    "/proc/swaps",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/kernel/random/uuid",
    "/dev/urandom",
];

/// Devices without content.
const EMPTY_DEVICES: [&str; 2] = ["/dev/null", "/dev/zero"];

/// The rules of a daemon with these directories and devices, by path.
fn rules(
    state: &Path,
    directories: &[PathBuf],
    devices: &[PathBuf],
    readable: &[PathBuf],
) -> Vec<(PathBuf, Right)> {
    let fixed = |paths: &[&str], right| -> Vec<(PathBuf, Right)> {
        paths.iter().map(|path| (PathBuf::from(path), right)).collect()
    };
    let mut rules = fixed(&SYSTEM, Right::Read);
    rules.extend(fixed(&EMPTY_DEVICES, Right::Write));
    rules.push((state.to_owned(), Right::State));
    rules.extend(readable.iter().map(|path| (path.clone(), Right::Read)));
    rules.extend(directories.iter().map(|path| (path.clone(), Right::Images)));
    for device in devices {
        rules.push((device.clone(), Right::Device));
        // Its links lead to nodes beside it, and to others tomorrow.
        if device.is_dir() {
            rules.push((PathBuf::from("/dev"), Right::Device));
        }
    }
    rules
}

/// Whether something is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Something,
    Nothing,
}

/// Adds a rule, where there is something at this path that can be opened.
fn add(ruleset: &mut RulesetCreated, path: &Path, right: Right) -> Result<Found, RulesetError> {
    let Ok(opened) = PathFd::new(path) else { return Ok(Found::Nothing) };
    let mut access = right.access();
    if !path.is_dir() {
        access &= AccessFs::from_file(WANTED);
    }
    ruleset.add_rule(PathBeneath::new(opened, access))?;
    Ok(Found::Something)
}

/// Confines this thread, and those that it starts from now on. `state` is there.
fn enter(
    state: &Path,
    directories: &[PathBuf],
    devices: &[PathBuf],
    readable: &[PathBuf],
) -> Result<Confinement, RulesetError> {
    let made = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))
        .and_then(|ruleset| {
            let ruleset = ruleset.set_compatibility(CompatLevel::BestEffort);
            ruleset.handle_access(AccessFs::from_all(WANTED))?.create()
        });
    let mut ruleset = match made {
        Ok(ruleset) => ruleset,
        Err(RulesetError::HandleAccesses(_)) => {
            return Ok(Confinement::Unconfined(Unconfined::NoKernel));
        }
        Err(e) => return Err(e),
    };
    let mut absent = Vec::new();
    for (path, right) in rules(state, directories, devices, readable) {
        let is_root = directories.contains(&path) || devices.contains(&path);
        if add(&mut ruleset, &path, right)? == Found::Nothing && is_root {
            absent.push(path);
        }
    }
    let status = ruleset.restrict_self()?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Ok(Confinement::Unconfined(Unconfined::NoKernel)),
        RulesetStatus::PartiallyEnforced => {
            Ok(Confinement::Confined { extent: Extent::Some, absent })
        }
        RulesetStatus::FullyEnforced => Ok(Confinement::Confined { extent: Extent::All, absent }),
    }
}

/// Confines this thread, and those that it starts from now on, to the state directory, which is
/// there, to what datastores may be on, and to reading what is `readable`: certificates and the
/// like.
///
/// # Errors
/// When it is required and cannot be, or when the kernel has Landlock and refuses.
pub(super) fn confine(
    mode: LandlockMode,
    dir: &StateDir,
    roots: &Roots,
    readable: &[PathBuf],
) -> Result<Confinement, ConfinementError> {
    let confinement = match (mode, roots) {
        (LandlockMode::Off, _) => Confinement::Unconfined(Unconfined::Off),
        (_, Roots::Anywhere) => Confinement::Unconfined(Unconfined::NoRoots),
        (_, Roots::Within { directories, devices }) => {
            enter(dir.root(), directories, devices, readable)?
        }
    };
    match (mode, &confinement) {
        (LandlockMode::Require, Confinement::Unconfined(why)) => {
            Err(ConfinementError::Required(why.to_string()))
        }
        _ => Ok(confinement),
    }
}

impl Confinement {
    /// As `GET /healthz` says it.
    pub(super) fn to_api(&self) -> api::Confinement {
        let (state, reason, absent) = match self {
            Confinement::Confined { extent: Extent::All, absent } => {
                (ConfinementState::Confined, None, &absent[..])
            }
            Confinement::Confined { extent: Extent::Some, absent } => {
                (ConfinementState::Partly, Some(OLDER_KERNEL.into()), &absent[..])
            }
            Confinement::Unconfined(why) => {
                (ConfinementState::Unconfined, Some(why.to_string()), &[][..])
            }
        };
        let closed = absent.iter().map(|path| path.display().to_string()).collect();
        api::Confinement { state, reason, closed }
    }

    /// Says it in the log.
    pub(super) fn tell(&self) {
        match self {
            Confinement::Confined { extent, absent } => {
                let rights = match extent {
                    Extent::All => "by all rights",
                    Extent::Some => OLDER_KERNEL,
                };
                info!(rights, "Landlock confines the daemon to its files");
                for path in absent {
                    warn!(path = %path.display(),
                        "this is allowed and was not there when the daemon started: Landlock keeps \
                         it closed until the next start");
                }
            }
            Confinement::Unconfined(why @ Unconfined::Off) => {
                info!("not confined by Landlock: {why}")
            }
            Confinement::Unconfined(why) => warn!("not confined by Landlock: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, OpenOptions};
    use std::io;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// Does something in a thread of its own that is confined to `state` and `allowed`; `None`:
    /// this kernel has no Landlock.
    fn confined<T: Send>(
        state: &Path,
        allowed: &Path,
        act: impl FnOnce() -> T + Send,
    ) -> Option<T> {
        let inside = || match enter(state, &[allowed.to_owned()], &[], &[]).unwrap() {
            Confinement::Confined { .. } => Some(act()),
            Confinement::Unconfined(why) => {
                eprintln!("SKIPPED: {why}");
                None
            }
        };
        thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }

    fn is_denied<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
    }

    #[test]
    fn what_is_not_beneath_a_root_cannot_be_opened_however_it_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let [state, allowed, other] = ["state", "allowed", "other"].map(|name| {
            let dir = temp.path().join(name);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("f"), "before").unwrap();
            dir
        });
        std::os::unix::fs::symlink(&other, allowed.join("out")).unwrap();
        let tried = confined(&state, &allowed, || {
            // A thread that starts later is confined as well.
            thread::scope(|scope| {
                let later = || {
                    for path in [other.join("f"), allowed.join("out/f"), state.join("../other/f")] {
                        assert!(is_denied(fs::read(&path)), "{}", path.display());
                        assert!(is_denied(OpenOptions::new().write(true).open(&path)));
                    }
                    assert!(is_denied(fs::rename(allowed.join("f"), other.join("g"))));
                    // Not "permission denied", but "another device", so that a move is tried as a
                    // copy.
                    fs::hard_link(other.join("f"), allowed.join("h")).unwrap_err();
                    assert!(is_denied(fs::read_dir(&other)));
                    assert!(is_denied(fs::remove_file(other.join("f"))));
                    assert!(is_denied(File::create("/etc/headgate-test")));
                    assert!(is_denied(fs::read("/proc/1/status")));
                    // It runs no programs.
                    let run = std::process::Command::new("/bin/true").status();
                    assert!(is_denied(run));
                };
                scope.spawn(later).join().unwrap();
            });
        });
        if tried.is_some() {
            assert_eq!(fs::read_to_string(other.join("f")).unwrap(), "before");
        }
    }

    #[test]
    fn what_the_daemon_does_with_its_storage_it_still_can() {
        let temp = tempfile::tempdir().unwrap();
        let [state, allowed] = ["state", "allowed"].map(|name| {
            let dir = temp.path().join(name);
            fs::create_dir(&dir).unwrap();
            dir
        });
        confined(&state, &allowed, || {
            // Images, their records, removal into a directory, and back.
            fs::create_dir(allowed.join("removed")).unwrap();
            File::create(allowed.join("a.img")).unwrap().set_len(4096).unwrap();
            fs::rename(allowed.join("a.img"), allowed.join("removed/a.img")).unwrap();
            OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(allowed.join("removed/a.img"))
                .unwrap();
            fs::remove_file(allowed.join("removed/a.img")).unwrap();
            fs::remove_dir(allowed.join("removed")).unwrap();
            // Sockets, with a second name in their machine's directory; no others elsewhere.
            fs::create_dir(state.join("vm")).unwrap();
            let _listener = UnixListener::bind(state.join("s")).unwrap();
            fs::hard_link(state.join("s"), state.join("vm/s")).unwrap();
            assert!(is_denied(UnixListener::bind(allowed.join("s"))));
            // Users, and what the kernel tells of this process.
            headgate_access::user("root").unwrap();
            fs::read("/proc/self/mountinfo").unwrap();
            fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
            File::open("/dev/zero").unwrap();
        });
    }

    #[test]
    fn devices_are_those_that_are_named() {
        let (state, devices) = (Path::new("/s"), ["/dev/sda".into(), "/dev/disk".into()]);
        let of = |path: &str| {
            let found: Vec<Right> = rules(state, &["/srv".into()], &devices, &["/tls".into()])
                .into_iter()
                .filter(|(one, _)| one == Path::new(path))
                .map(|(_, right)| right)
                .collect();
            found
        };
        assert_eq!(of("/dev/sda"), [Right::Device]);
        assert_eq!(of("/srv"), [Right::Images]);
        assert_eq!(of("/s"), [Right::State]);
        assert_eq!(of("/tls"), [Right::Read]);
        let is_dir = Path::new("/dev/disk").is_dir();
        assert_eq!(of("/dev").len(), usize::from(is_dir), "links lead to nodes in /dev");
        assert!(
            rules(state, &[], &["/dev/sda".into()], &[])
                .iter()
                .all(|(path, _)| path != Path::new("/dev"))
        );
        let images = Right::Images.access();
        let never =
            AccessFs::Execute | AccessFs::MakeBlock | AccessFs::MakeChar | AccessFs::MakeSym;
        assert!(
            (images | Right::State.access() | Right::Device.access()) & never == BitFlags::EMPTY
        );
    }

    #[test]
    fn without_roots_one_is_told_or_does_not_start() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::new(temp.path()).unwrap();
        let confine = |mode| confine(mode, &dir, &Roots::Anywhere, &[]);
        for (mode, words) in [
            (LandlockMode::Auto, "datastores may be anywhere"),
            (LandlockMode::Off, "it is turned off"),
        ] {
            let told = confine(mode).unwrap().to_api();
            assert_eq!(told.state, ConfinementState::Unconfined, "{mode:?}");
            assert!(told.reason.as_ref().unwrap().contains(words), "{told:?}");
        }
        let error = confine(LandlockMode::Require).unwrap_err().to_string();
        assert!(error.contains("required") && error.contains("--allow-dir"), "{error}");
    }
}
