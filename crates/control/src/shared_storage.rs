//! Which storage a datastore is, in words that are the same on all hosts that have it; and what
//! other hosts do there.
//!
//! A directory is known by a file in it that its first host makes. The file says its own number in
//! its file system, so that a directory that was copied elsewhere is another one.

use super::foreign::{Elsewhere, Foreign, pinned};
use super::takeover::name_of_device;
use super::{Control, ControlError};
use headgate_model::{Backend, BoardPlace, DatastoreRecord, Name};
use headgate_nbd::uri::{Address, Uri};
use headgate_placement as placement;
use headgate_units::Bytes;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, linkat, open, unlink};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

/// The file that says which storage a directory is.
const FILE: &str = ".headgate-storage";

/// How long storage may take to say which one it is.
const PATIENCE: Duration = Duration::from_secs(2);

fn is_of_this_host(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

/// What is known without asking the storage.
fn by_settings(record: &DatastoreRecord) -> Option<String> {
    if let BoardPlace::Etcd(board) = &record.window.board {
        return Some(format!("board {board}"));
    }
    match &record.backend {
        Backend::Nbd { server, .. } => match server.parse::<Uri>().ok()?.address {
            Address::Tcp { host, port, .. } if !is_of_this_host(&host) => {
                Some(format!("nbd {host}:{port}"))
            }
            Address::Tcp { .. } | Address::Unix(_) => None,
        },
        _ => None,
    }
}

impl Control {
    /// Which storage a datastore is: the same text on every host that has it. `None`: no other host
    /// can have it, or there is no telling. A directory may get a file for it.
    ///
    /// # Errors
    /// When there is no such datastore, or its storage does not answer within two seconds.
    pub fn storage_of(&self, name: &Name) -> Result<Option<String>, ControlError> {
        let record = self.model().datastore(name)?.record.clone();
        if let Some(known) = by_settings(&record) {
            return Ok(Some(known));
        }
        let backend = record.backend;
        match &backend {
            Backend::Dir { .. } | Backend::Block { .. } => {}
            _ => return Ok(None),
        }
        self.on_storage(name, "asking which storage it is", PATIENCE, move |control, _| {
            Ok(match &backend {
                Backend::Block { device, .. } => Some(format!("device {}", name_of_device(device))),
                _ => match control.image_directory(&backend)? {
                    Some(directory) => {
                        let failed = |source| ControlError::Io {
                            doing: format!("find out which storage {} is", directory.display()),
                            source,
                        };
                        Some(format!("directory {}", of_directory(&directory).map_err(failed)?))
                    }
                    None => None,
                },
            })
        })
    }

    /// What other hosts do on storage of this one, from now on. Advice and placement count it.
    pub fn set_foreign(&self, foreign: Foreign) {
        *self.foreign.write().unwrap_or_else(PoisonError::into_inner) = foreign;
    }

    /// Adds to a pool what other hosts do there. Their disks are nothing that could be moved from
    /// here; their space the file system counts as taken.
    pub(super) fn add_foreign(&self, pool: &mut placement::Pool) {
        let foreign = self.foreign.read().unwrap_or_else(PoisonError::into_inner);
        for (datastore, disks) in &*foreign {
            let datastore = placement::Name::from(datastore.as_str());
            if !pool.datastores.iter().any(|one| one.name == datastore) {
                continue;
            }
            pool.disks.extend(disks.iter().map(|disk| pinned(disk, &datastore)));
        }
    }

    /// Which disks of this host would better be on storage that only other hosts have: what BASIL
    /// advises when that is in the pool, too. Datastores of other hosts have no class here, so
    /// those of this host that have one take no part.
    ///
    /// # Errors
    /// When samples or file systems cannot be read, or the rules contradict each other.
    pub fn advice_elsewhere(
        &self,
        elsewhere: &[Elsewhere],
    ) -> Result<Vec<placement::Move>, ControlError> {
        if elsewhere.is_empty() {
            return Ok(Vec::new());
        }
        let mut pool = self.pool_with_foreign()?;
        for store in elsewhere {
            let name = placement::Name::from(store.name.as_str());
            pool.disks.extend(store.disks.iter().map(|disk| pinned(disk, &name)));
            pool.datastores.push(placement::Datastore {
                name,
                class: None,
                spindles: store.storage.as_deref().map(Into::into),
                volume: None,
                capacity: store.size,
                foreign: Bytes(store.size.0.saturating_sub(store.free.0)),
                provisioning: placement::Provisioning::Thin,
                reservable: store.reservable,
                promisable: None,
                state: placement::State::Active,
                model: store.model,
            });
        }
        let mut moves = Vec::new();
        for (_, pool) in super::pools::by_class(&pool) {
            let advice = placement::advise(&pool).map_err(|e| super::pools::contradiction(&e))?;
            moves.extend(advice.moves);
        }
        let is_there = |one: &placement::Move| one.to.as_str().contains('/');
        Ok(moves.into_iter().filter(is_there).collect())
    }
}

/// The identity in a directory's file, which is made where it is missing, or of another directory.
fn of_directory(directory: &Path) -> io::Result<String> {
    let path = directory.join(FILE);
    for _ in 0..2 {
        if let Some(found) = read(&path)? {
            return Ok(found);
        }
        make(directory, &path)?;
    }
    read(&path)?.ok_or_else(|| {
        let error = format!("{} does not hold what was written to it", path.display());
        io::Error::new(io::ErrorKind::InvalidData, error)
    })
}

fn line(id: &str, inode: u64) -> String {
    format!("headgate storage {id} in file {inode}\n")
}

/// `None`: there is none, or it was copied here.
fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match open(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let inode = fstat(&file)?.st_ino;
    let mut text = String::new();
    // What is no text is no identity.
    if file.take(256).read_to_string(&mut text).is_err() {
        return Ok(None);
    }
    let id = text.split(' ').nth(2).unwrap_or_default().to_owned();
    let is_ours = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    Ok(Some(id).filter(|id| is_ours && text == line(id, inode)))
}

/// Makes the file, unless another host is quicker. One that was copied here goes.
fn make(directory: &Path, path: &Path) -> io::Result<()> {
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let new = directory.join(format!("{FILE}.{id}"));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(open(&new, flags, Mode::from_raw_mode(0o640))?);
    let written = (|| {
        file.write_all(line(&id, fstat(&file)?.st_ino).as_bytes())?;
        file.sync_all()?;
        match linkat(CWD, &new, CWD, path, AtFlags::empty()) {
            // Either a host was quicker, or it was copied.
            Err(rustix::io::Errno::EXIST) if read(path)?.is_none() => {
                unlink(path)?;
                linkat(CWD, &new, CWD, path, AtFlags::empty())?;
                Ok(())
            }
            Err(rustix::io::Errno::EXIST) | Ok(()) => Ok(()),
            Err(e) => Err(io::Error::from(e)),
        }
    })();
    unlink(&new)?;
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::ForeignDisk;
    use crate::testing::Bench;
    use serde_json::json;
    use std::fs;

    #[test]
    fn a_directory_is_the_same_for_all_and_a_copy_of_it_another() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let id = of_directory(one.path()).unwrap();
        assert_eq!(of_directory(one.path()).unwrap(), id);
        assert_eq!(fs::read_dir(one.path()).unwrap().count(), 1, "nothing else is left there");
        fs::copy(one.path().join(FILE), other.path().join(FILE)).unwrap();
        let copied = of_directory(other.path()).unwrap();
        assert_ne!(copied, id);
        assert_eq!(of_directory(other.path()).unwrap(), copied);
        // Hosts that come at once agree.
        let third = tempfile::tempdir().unwrap();
        let all: Vec<String> = std::thread::scope(|scope| {
            let of = || scope.spawn(|| of_directory(third.path()).unwrap());
            let hosts: Vec<_> = (0..8).map(|_| of()).collect();
            hosts.into_iter().map(|host| host.join().unwrap()).collect()
        });
        assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    }

    #[test]
    fn what_is_no_identity_is_replaced_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        for text in [&b""[..], b"\xff\xfe", b"headgate storage + in file 1\n"] {
            fs::write(dir.path().join(FILE), text).unwrap();
            assert_eq!(of_directory(dir.path()).unwrap().len(), 32);
        }
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(dir.path().join(FILE), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.path().join(FILE)).unwrap();
        assert!(of_directory(dir.path()).is_err());
    }

    #[test]
    fn what_other_hosts_do_on_a_datastore_counts_in_its_advice() {
        let bench = Bench::new();
        let name: Name = "array".parse().unwrap();
        let of_array = |control: &Control| {
            let report = control.advice(headgate_model::Lookback::DAY).unwrap();
            let stores: Vec<_> = report
                .pools
                .iter()
                .flat_map(|pool| pool.advice.before.datastores.clone())
                .collect();
            let array = stores.iter().find(|one| one.name.as_str() == "array").unwrap().clone();
            let moves: usize = report.pools.iter().map(|pool| pool.advice.moves.len()).sum();
            (array.load, array.disks, moves)
        };
        let before = of_array(&bench.control);
        let profile = json!({"outstanding": 32_000, "size": 8192, "read": 700, "random": 1000});
        let disk = ForeignDisk {
            name: "other/db".into(),
            reservation: None,
            workload: Some(serde_json::from_value(profile).unwrap()),
        };
        bench.control.set_foreign(Foreign::from([(name.clone(), vec![disk])]));
        let with = of_array(&bench.control);
        assert!(with.0 > before.0, "{before:?} {with:?}");
        assert_eq!((with.1, with.2), (before.1 + 1, 0));
        bench.control.set_foreign(Foreign::new());
        assert_eq!(of_array(&bench.control), before);
    }
}
