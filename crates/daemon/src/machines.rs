//! Each virtual machine's directory of sockets, which those that may use the machine's disks can
//! enter and nobody else.
//!
//! The directory has `DISK.vhost` for each disk, one name more of its vhost-user socket (a hard
//! link: the same socket, with the same rights), and `nbd.sock`, by which NBD clients find these
//! disks only. It is what a sandbox around the machine's QEMU needs of the state directory.

use crate::exports::{Exports, OfMachine};
use headgate_access::{Access, Kind, grant};
use headgate_frontends::nbd::server::{Caller, NbdServer, Right, Rule};
use headgate_model::{Machine, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The machines that have disks in service.
pub(crate) struct Machines {
    exports: Arc<Exports>,
    places: Mutex<BTreeMap<Name, Place>>,
}

struct Place {
    directory: PathBuf,
    /// Shared with the rule of its NBD socket.
    access: Arc<Mutex<Access>>,
    disks: BTreeSet<Name>,
    /// Its NBD socket, while clients are listened to there.
    nbd: Option<PathBuf>,
}

fn about(path: &Path, doing: &str) -> impl FnOnce(io::Error) -> io::Error {
    move |e| io::Error::new(e.kind(), format!("cannot {doing} {}: {e}", path.display()))
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(about(path, "remove")(e)),
        _ => Ok(()),
    }
}

/// Removes the sockets that an earlier daemon left.
fn clear(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory).map_err(about(directory, "list"))? {
        remove(&entry.map_err(about(directory, "list"))?.path())?;
    }
    Ok(())
}

/// Lets in those that `access` names; if that fails, nobody, rather than whoever was before.
fn grant_or_nobody(path: &Path, access: &Access, kind: Kind) -> io::Result<()> {
    grant(path, access, kind).map_err(|e| {
        // The first error is the one to tell.
        let _ = grant(path, &Access::default(), kind);
        about(path, "set who may use")(e)
    })
}

/// Who may use which disk over a machine's NBD socket: those that may use the machine's disks now,
/// and what is the machine's now.
fn rule(machine: &Name, exports: &Arc<Exports>, access: &Arc<Mutex<Access>>) -> Arc<Rule> {
    let (machine, exports, access) = (machine.clone(), exports.clone(), access.clone());
    Arc::new(move |disk, caller| {
        let Caller::Process(peer) = caller else { return Right::None };
        let of = disk.parse().ok().and_then(|disk: Name| exports.machine(&disk));
        let admits = || access.lock().unwrap_or_else(PoisonError::into_inner).admits(peer);
        if of.as_ref() == Some(&machine) && admits() { Right::Write } else { Right::None }
    })
}

impl Place {
    fn make(machine: &Machine, access: &Access) -> io::Result<Place> {
        let directory = machine.directory.clone();
        match DirBuilder::new().mode(0o700).create(&directory) {
            // Left by a daemon that has ended: whoever has it mounted keeps it.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => clear(&directory)?,
            made => made.map_err(about(&directory, "create"))?,
        }
        grant_or_nobody(&directory, access, Kind::Directory)?;
        let access = Arc::new(Mutex::new(access.clone()));
        Ok(Place { directory, access, disks: BTreeSet::new(), nbd: None })
    }

    fn access(&self) -> MutexGuard<'_, Access> {
        self.access.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link_of(&self, disk: &Name) -> PathBuf {
        // A disk may be called "nbd".
        self.directory.join(format!("{disk}.vhost"))
    }

    fn link(&self, disk: &Name, socket: &Path) -> io::Result<()> {
        let link = self.link_of(disk);
        remove(&link)?;
        fs::hard_link(socket, &link).map_err(about(&link, "create"))
    }

    /// Its disks are served whether or not this works: a client finds no socket then, and the log
    /// says why.
    fn listen(&mut self, machine: &Name, exports: &Arc<Exports>, server: &NbdServer) {
        let path = self.directory.join("nbd.sock");
        let of_machine = OfMachine { all: exports.clone(), machine: machine.clone() };
        let access = self.access().clone();
        let rule = rule(machine, exports, &self.access);
        match server.open(&path, &access, Arc::new(of_machine), rule) {
            Ok(()) => self.nbd = Some(path),
            Err(error) => {
                tracing::error!(%machine, %error, "the virtual machine has no NBD socket of its own");
            }
        }
    }
}

impl Machines {
    /// None yet. NBD clients will find the disks of `exports`.
    pub(crate) fn new(exports: Arc<Exports>) -> Machines {
        Machines { exports, places: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// NBD clients are served from now on.
    pub(crate) fn listen(&self, server: &NbdServer) {
        for (name, place) in self.lock().iter_mut() {
            place.listen(name, &self.exports, server);
        }
    }

    /// A disk with this vhost-user socket is the machine's from now on.
    pub(crate) fn enter(
        &self,
        machine: &Machine,
        access: &Access,
        disk: &Name,
        socket: &Path,
        server: Option<&NbdServer>,
    ) -> io::Result<()> {
        let mut places = self.lock();
        if !places.contains_key(&machine.name) {
            let mut place = Place::make(machine, access)?;
            if let Some(server) = server {
                place.listen(&machine.name, &self.exports, server);
            }
            places.insert(machine.name.clone(), place);
        }
        if let Some(place) = places.get_mut(&machine.name) {
            place.link(disk, socket)?;
            place.disks.insert(disk.clone());
        }
        Ok(())
    }

    /// A disk of the machine has a new socket.
    pub(crate) fn link(&self, machine: &Name, disk: &Name, socket: &Path) -> io::Result<()> {
        self.lock().get(machine).map_or(Ok(()), |place| place.link(disk, socket))
    }

    /// A disk is the machine's no more. The directory goes with the last one.
    pub(crate) fn leave(&self, machine: &Name, disk: &Name, server: Option<&NbdServer>) {
        let mut places = self.lock();
        let Some(place) = places.get_mut(machine) else { return };
        place.disks.remove(disk);
        let mut removed = remove(&place.link_of(disk));
        if place.disks.is_empty() {
            if let (Some(server), Some(path)) = (server, &place.nbd) {
                server.close(path);
            }
            removed = removed
                .and_then(|()| fs::remove_dir(&place.directory))
                .map_err(about(&place.directory, "remove"));
            places.remove(machine);
        }
        if let Err(error) = removed {
            tracing::warn!(%machine, %error, "something of the virtual machine's sockets is left");
        }
    }

    /// Those that `access` names may use the machine's sockets from now on, and nobody else. Those
    /// of its disks' own are the caller's.
    pub(crate) fn grant(&self, machine: &Name, access: &Access) -> io::Result<()> {
        let mut places = self.lock();
        let Some(place) = places.get_mut(machine) else { return Ok(()) };
        *place.access() = access.clone();
        let nbd = place.nbd.as_ref().map(|path| grant_or_nobody(path, access, Kind::Socket));
        grant_or_nobody(&place.directory, access, Kind::Directory)?;
        nbd.unwrap_or(Ok(()))
    }

    /// Nothing is served any more. The directories stay for the next daemon.
    pub(crate) fn close(&self) {
        for (_, place) in std::mem::take(&mut *self.lock()) {
            for disk in &place.disks {
                if let Err(error) = remove(&place.link_of(disk)) {
                    tracing::warn!(%error, "a socket is left");
                }
            }
        }
    }
}
