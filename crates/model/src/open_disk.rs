//! A disk as the data plane is asked to serve it.

use crate::{Name, Noted, PlaneError, Policy, PriorityRecord, StripedDisk, Writes};
use headgate_access::Access;
use headgate_nbd::client::connections::Connections;
use headgate_nbd::uri::Uri;
use headgate_units::{AtomicNanos, Bytes};
use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The export of an NBD server that a disk is, or those that it is striped over.
#[derive(Debug)]
pub struct RemoteDisk {
    /// Where it is: one, or by member.
    pub uris: Vec<Uri>,
    /// Smallest unit of a request in bytes.
    pub block_size: u32,
    /// How it is striped, if it is.
    pub stripe: Option<StripedDisk>,
    /// A session with the one, if there is one already; else the disk dials until it has one.
    pub session: Option<Session>,
    /// How many connections there are to each, where it can have several.
    pub connections: Connections,
}

/// A virtual machine, and its directory of sockets: those of its disks, and one over which NBD
/// clients find these disks and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its name.
    pub name: Name,
    /// The directory. It is made when the first disk comes, and removed with the last one.
    pub directory: PathBuf,
}

/// A disk to bring into service.
#[derive(Debug)]
pub struct OpenDisk {
    /// Its name and that of its NBD export.
    pub name: Name,
    /// Where it lives.
    pub datastore: Name,
    /// The image file or the block device; empty for a remote disk.
    pub image: PathBuf,
    /// The export, of a remote disk.
    pub remote: Option<RemoteDisk>,
    /// Its size.
    pub size: Bytes,
    /// Whether its image may have another one.
    pub size_rule: SizeRule,
    /// Whether its clients may write.
    pub writes: Writes,
    /// Its policy.
    pub policy: Policy,
    /// The priority settings of its virtual machine.
    pub priorities: PriorityRecord,
    /// Its virtual machine, if it has one.
    pub machine: Option<Machine>,
    /// Where its vhost-user socket goes.
    pub vhost_socket: PathBuf,
    /// Who may connect to it.
    pub access: Access,
    /// Until when its requests may go to the storage, by `CLOCK_BOOTTIME`: the end of its lease's
    /// term, which moves on. `None`: as long as it is open.
    pub term: Option<Arc<AtomicNanos>>,
    /// Of a block device that is to be reserved for this host.
    pub fence: Option<Arc<dyn Fence>>,
    /// What is known to have changed of it before. Where its image has that stamp, its clients'
    /// changes are noted there from the first one on ([`DiskCopies::tracked_changes`]); else
    /// nowhere. It is no reason not to open it.
    ///
    /// [`DiskCopies::tracked_changes`]: crate::DiskCopies::tracked_changes
    pub noted: Option<Noted>,
}

/// What is done about an image that has another size than its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeRule {
    /// The disk is not opened.
    Exactly,
    /// The disk gets the size that the image has.
    AsFound,
}

/// Reserves a block device for this host.
pub trait Fence: Send + Sync + fmt::Debug {
    /// Reserves the device, which is open and locked, before anything of its disk is served.
    /// Blocks for as long as the device does.
    ///
    /// What it answers is set from then on when the device refuses a request, for it is another
    /// host's: nothing is handed to the device after that. `None`: it is not reserved, and the disk
    /// is served without.
    ///
    /// # Errors
    /// When the device is not to be had. The disk is not to be served then.
    fn raise(&self, device: BorrowedFd<'_>) -> Result<Option<Arc<AtomicBool>>, PlaneError>;
}

/// An established session with an NBD server, passed from
/// [`DataPlane::connect`](crate::DataPlane::connect) to
/// [`DataPlane::open_disk`](crate::DataPlane::open_disk). Opaque to all but the data plane that
/// made it.
pub struct Session(Box<dyn Any + Send>);

impl Session {
    /// Wraps a data plane's own connection.
    pub fn new(connection: impl Any + Send) -> Session {
        Session(Box::new(connection))
    }

    /// The connection, if it is of this type.
    pub fn into_inner<T: Any>(self) -> Option<T> {
        self.0.downcast().ok().map(|connection| *connection)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}
