//! Who a host is to the others: the same after a restart, and nobody else.
//!
//! A host is a random number in a file of the daemon's state directory, made at its first start.
//! The file also says for which machine (`/etc/machine-id`) and which directory it was made: a
//! state directory that was copied elsewhere is noticed at the next start and gets a number of its
//! own. A virtual machine that was cloned whole has everything in common with the original. What
//! tells the two apart is the [`InstanceId`], random for every start; the board
//! [notices](crate::View::duplicate) when two of them live.

use crate::record::Record;
use headgate_qos::window::HostReport;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The file in the state directory.
const FILE: &str = "host-id";

/// The longest name of a host, in bytes.
pub const NAME_MAX: usize = 64;

macro_rules! id {
    ($name:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        /// Prints 32 hexadecimal digits.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id!(HostId, "A host, the same after a restart.");
id!(InstanceId, "One run of a host's daemon.");

impl HostId {
    fn parse(text: &str) -> Option<HostId> {
        parse_hex(text).map(HostId)
    }
}

impl HostId {
    /// The host of a state directory, as its file says; `None` when it has none. Whether the
    /// directory was copied from elsewhere is not looked at.
    pub fn of_state_dir(state_dir: &Path) -> Option<HostId> {
        read(&fs::read(state_dir.join(FILE)).ok()?).map(|(host, _)| host)
    }
}

fn parse_hex(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

/// A host's name, for people: 1 to [`NAME_MAX`] bytes without control characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

impl HostName {
    /// `None` when it is empty, too long, or not fit to be printed.
    pub fn new(name: &str) -> Option<HostName> {
        let good =
            !name.is_empty() && name.len() <= NAME_MAX && !name.chars().any(char::is_control);
        good.then(|| HostName(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who this host is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The host.
    pub host: HostId,
    /// This run of its daemon.
    pub instance: InstanceId,
    /// How often its daemon was started with this state directory.
    pub epoch: u64,
    /// What people call it.
    pub name: HostName,
}

impl Identity {
    /// What this host says.
    pub(crate) fn record(&self, sequence: u64, report: &HostReport) -> Record {
        let Identity { host, instance, epoch, ref name } = *self;
        Record { host, instance, epoch, sequence, name: name.clone(), report: *report }
    }
}

/// What an identity file said at this start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The same host as before.
    Kept,
    /// There was no file: a new host.
    New,
    /// The file was another machine's or another directory's: a new host.
    Copied,
    /// The file was not readable as an identity: a new host. The old file was kept under this name.
    Damaged(PathBuf),
}

/// Why a host has no identity.
#[derive(Debug, Error)]
#[error("cannot {doing} {path}: {source}")]
pub struct IdentityError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// What the file holds.
#[derive(Serialize, Deserialize)]
struct Stored {
    host: String,
    machine: String,
    directory: PathBuf,
    epoch: u64,
}

impl Identity {
    /// Reads the identity of the daemon that owns this state directory, or makes one, and counts
    /// this start.
    ///
    /// The caller holds the state directory's lock: two daemons never have one.
    ///
    /// # Errors
    /// When the directory, the file or the kernel's random numbers cannot be read, or the file not
    /// be written.
    pub fn load(state_dir: &Path) -> Result<(Identity, Origin), IdentityError> {
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned();
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Identity::of(state_dir, &machine, name.trim())
    }

    fn of(
        state_dir: &Path,
        machine: &str,
        name: &str,
    ) -> Result<(Identity, Origin), IdentityError> {
        let directory = state_dir.canonicalize().map_err(failed("find", state_dir))?;
        let path = directory.join(FILE);
        let (kept, origin) = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => (None, Origin::New),
            Err(e) => return Err(failed("read", &path)(e)),
            Ok(bytes) => match read(&bytes) {
                Some((host, stored))
                    if stored.machine == machine && stored.directory == directory =>
                {
                    (Some((host, stored.epoch)), Origin::Kept)
                }
                Some(_) => (None, Origin::Copied),
                None => {
                    let aside = directory.join(format!("{FILE}.damaged"));
                    fs::rename(&path, &aside).map_err(failed("move aside", &path))?;
                    (None, Origin::Damaged(aside))
                }
            },
        };
        let (host, epoch) = match kept {
            Some((host, epoch)) => (host, epoch.saturating_add(1)),
            None => (HostId(random()?), 1),
        };
        let stored =
            Stored { host: host.to_string(), machine: machine.to_owned(), directory, epoch };
        write(&path, &stored)?;
        let name = HostName::new(name).or_else(|| HostName::new(&host.to_string()));
        let name = name.unwrap_or_else(|| HostName("host".to_owned()));
        Ok((Identity { host, instance: InstanceId(random()?), epoch, name }, origin))
    }
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_owned();
    move |source| IdentityError { doing, path, source }
}

fn read(bytes: &[u8]) -> Option<(HostId, Stored)> {
    let stored: Stored = serde_json::from_slice(bytes).ok()?;
    Some((HostId::parse(&stored.host)?, stored))
}

/// Either the old content or the new one survives a crash.
fn write(path: &Path, stored: &Stored) -> Result<(), IdentityError> {
    let new = path.with_extension("new");
    let write = || {
        let mut text = serde_json::to_vec_pretty(stored)?;
        text.push(b'\n');
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        match path.parent() {
            Some(parent) => fs::File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(failed("write", path))
}

/// 122 random bits, from the kernel.
fn random() -> Result<[u8; 16], IdentityError> {
    const SOURCE: &str = "/proc/sys/kernel/random/uuid";
    let path = Path::new(SOURCE);
    let text = fs::read_to_string(path).map_err(failed("read", path))?;
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    parse_hex(&digits).ok_or_else(|| failed("read", path)(io::ErrorKind::InvalidData.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_a_restart_and_is_not_copied() {
        let dir = tempfile::tempdir().unwrap();
        let (first, origin) = Identity::of(dir.path(), "m1", "h1").unwrap();
        assert_eq!((origin, first.epoch), (Origin::New, 1));
        let (second, origin) = Identity::of(dir.path(), "m1", "h1").unwrap();
        assert_eq!((origin, second.epoch, second.host), (Origin::Kept, 2, first.host));
        assert_ne!(first.instance, second.instance);

        // The directory on another machine, and a copy of it on the same machine.
        let (moved, origin) = Identity::of(dir.path(), "m2", "h1").unwrap();
        assert_eq!((origin, moved.epoch), (Origin::Copied, 1));
        assert_ne!(moved.host, first.host);
        let copy = tempfile::tempdir().unwrap();
        fs::copy(dir.path().join(FILE), copy.path().join(FILE)).unwrap();
        let (copied, origin) = Identity::of(copy.path(), "m2", "h1").unwrap();
        assert_eq!(origin, Origin::Copied);
        assert_ne!(copied.host, moved.host);
    }

    #[test]
    fn a_damaged_file_is_kept_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "{}", r#"{"host":"+f","machine":"m","directory":"/","epoch":1}"#, "\0\0"] {
            fs::write(dir.path().join(FILE), text).unwrap();
            let (identity, origin) = Identity::of(dir.path(), "m1", "\u{1b}[2J").unwrap();
            let Origin::Damaged(aside) = origin else { panic!("{origin:?}") };
            assert_eq!(fs::read_to_string(aside).unwrap(), text);
            assert_eq!(identity.name.as_str(), identity.host.to_string());
        }
        assert!(Identity::of(&dir.path().join("absent"), "m1", "h1").is_err());
    }
}
