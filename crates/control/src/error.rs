use crate::workers::{Hang, NotDone};
use headgate_api::terms::DryRun;
use headgate_catalog::CatalogError;
use headgate_cluster::fence::Refusal;
use headgate_cluster::lease::LeaseError;
use headgate_devices::Sustained;
use headgate_history::SamplesError;
use headgate_model::{DENIED, Name, Overcommit, PlaneError, RemovedId};
use headgate_units::{Bytes, Iops};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The kind of a failure, which decides exit code and HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is invalid in any state of the daemon.
    Invalid,
    /// The named object does not exist.
    Missing,
    /// The request conflicts with the daemon's state.
    Conflict,
    /// The object is not what whoever asks has seen.
    Stale,
    /// Nothing failed: a dry run ended where the change would have begun.
    DryRun,
    /// Storage, catalog or engine failed.
    Failed,
}

/// The end of a sentence about what a datastore can promise.
pub(super) fn because(reason: Option<Sustained>) -> String {
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}

/// What to do about a device that is not to be had.
fn way_out(disk: &Name, datastore: &Name, device: &Path, refusal: &Refusal) -> String {
    let device = device.display();
    let off = format!("'headgate datastore set {datastore} --persistent-reservations off'");
    match refusal {
        Refusal::Held { .. } => format!(
            "stop the disk on that host, or take it from there with 'headgate disk takeover {disk} \
             --evict': the device then refuses that host's writes"
        ),
        Refusal::Foreign { key } => format!(
            "find out whose it is ('sg_persist --in --read-full-status {device}', or 'nvme \
             resv-report {device}'), and end that use. If it was left over, have the host that \
             registered it clear it: 'sg_persist --out --clear --param-rk={key:#x} {device}'. To \
             serve the disk beside it, without protection: {off}"
        ),
        Refusal::Kind { .. } | Refusal::Contended | Refusal::Failed => format!(
            "look at 'sg_persist --in --read-full-status {device}', or serve the disk without: {off}"
        ),
    }
}

/// Why an operation failed.
#[derive(Debug, Error)]
pub enum ControlError {
    /// The change was to be of something else than what is there.
    #[error("{error}")]
    Changed {
        /// What has changed since.
        error: String,
        /// What to do.
        hint: String,
    },
    /// A dry run passed all checks, and would have changed this.
    #[error("this is a dry run: nothing was changed")]
    Dry(Box<DryRun>),
    /// A field has an invalid value.
    #[error("{error}")]
    Invalid {
        /// What was wrong.
        error: String,
        /// What was expected.
        expected: String,
    },
    /// A text that does not parse: the parser's own words, which say what would fit.
    #[error("{0}")]
    Malformed(String),
    /// No such datastore or disk.
    #[error("there is no {kind} '{name}'")]
    Missing {
        /// "datastore", "disk", "export" or "virtual machine".
        kind: &'static str,
        /// The name asked for.
        name: Name,
        /// The names there are.
        known: Vec<Name>,
    },
    /// The name is taken.
    #[error("{kind} '{name}' exists already")]
    Exists {
        /// "datastore", "disk" or "export".
        kind: &'static str,
        /// The name.
        name: Name,
    },
    /// Another disk has the name of one that is to be restored.
    #[error("disk '{name}' exists already, so removed disk '{id}' cannot have that name again")]
    NameTaken {
        /// The name.
        name: Name,
        /// The removed disk.
        id: RemovedId,
    },
    /// A datastore that still has disks.
    #[error("datastore '{name}' still has {count} disk(s): {disks}")]
    HasDisks {
        /// The datastore.
        name: Name,
        /// How many.
        count: usize,
        /// The first of their names.
        disks: String,
    },
    /// A datastore on which removed disks are kept.
    #[error("datastore '{name}' still keeps {count} removed disk(s)")]
    HasRemoved {
        /// The datastore.
        name: Name,
        /// How many.
        count: usize,
    },
    /// No such removed disk.
    #[error("no removed disk '{which}' is kept")]
    NotRemoved {
        /// What was asked for.
        which: String,
        /// The first of those that are kept.
        known: Vec<String>,
    },
    /// A class that disks have.
    #[error("{count} disk(s) have class '{name}': {disks}")]
    ClassInUse {
        /// The class.
        name: Name,
        /// How many.
        count: usize,
        /// The first of their names.
        disks: String,
    },
    /// Reservations that do not fit together.
    #[error("the promises do not fit: {what}")]
    Unfit {
        /// Which datastores cannot keep them, by how much, and of which disks.
        what: String,
    },
    /// A group would promise more than its limit.
    #[error("{what}")]
    AboveLimit {
        /// Which one, where, and how much.
        what: String,
    },
    /// A tenant would have more than its quota.
    #[error("tenant '{tenant}' would have {what}")]
    OverQuota {
        /// The tenant.
        tenant: Name,
        /// What it would have, and what it may.
        what: String,
    },
    /// A disk that clients are connected to.
    #[error("disk '{name}' is in use by {clients} client(s)")]
    InUse {
        /// The disk.
        name: Name,
        /// How many.
        clients: usize,
    },
    /// The datastore could not be opened.
    #[error("datastore '{name}' is not serving: {reason}")]
    DatastoreFailed {
        /// The datastore.
        name: Name,
        /// What failed when it was opened.
        reason: String,
    },
    /// The disk could not be opened.
    #[error("disk '{name}' is not serving: {reason}")]
    DiskFailed {
        /// The disk.
        name: Name,
        /// What failed when it was opened.
        reason: String,
    },
    /// The reservation does not fit.
    #[error(
        "a reservation of {asked} IOPS does not fit on datastore '{datastore}': \
         {reserved} of {reservable} IOPS are reserved already, {shortfall} IOPS are missing{}",
        because(*reason)
    )]
    NotAdmitted {
        /// Where the disk should go.
        datastore: Name,
        /// The reservation requested.
        asked: Iops,
        /// Reservations of other disks, in IOPS.
        reserved: u64,
        /// What the datastore can promise, in IOPS.
        reservable: u64,
        /// By how much the promise would be exceeded, in IOPS.
        shortfall: u64,
        /// The datastore with the most room for it, and how much room that is.
        better: Option<(Name, u64)>,
        /// Why the datastore can promise no more, where its capacity alone does not say it.
        reason: Option<Sustained>,
    },
    /// A latency target that nothing shows to be kept.
    #[error("on datastore '{datastore}' {verdict}")]
    LatencyNotAdmitted {
        /// Where the disk is, or should go.
        datastore: Name,
        /// The target, why it is not promised, and what could be.
        verdict: String,
    },
    /// The device is too small for another disk.
    #[error(
        "a disk of {asked} does not fit on datastore '{datastore}': {left} of its {size} are left"
    )]
    NoSpace {
        /// Where the disk should go.
        datastore: Name,
        /// Its size.
        asked: Bytes,
        /// Capacity for all disks.
        size: Bytes,
        /// Free capacity.
        left: Bytes,
    },
    /// More would be promised of a file system than is allowed.
    #[error(
        "a disk of {asked} does not fit on datastore '{datastore}': its file system has {room} for \
         disks, {promised} are promised to others, and at most {bound} times that room may be"
    )]
    Overcommitted {
        /// Where the disk should go.
        datastore: Name,
        /// Its size.
        asked: Bytes,
        /// Sizes of the disks on the file system.
        promised: Bytes,
        /// What is free, and what those disks have allocated.
        room: Bytes,
        /// The bound.
        bound: Overcommit,
        /// What may still be promised.
        left: Bytes,
    },
    /// No datastore takes a new disk.
    #[error("no datastore takes the disk: {reasons}")]
    NoPlace {
        /// Why not, datastore by datastore.
        reasons: String,
    },
    /// The history cannot be read.
    #[error(transparent)]
    Samples(#[from] SamplesError),
    /// The datastore's storage does not answer.
    #[error("datastore '{name}' hangs: {hang}")]
    Hung {
        /// The datastore.
        name: Name,
        /// Since when, and what it does not do.
        hang: Hang,
    },
    /// The daemon gave up an operation that it had begun.
    #[error("the operation on datastore '{name}' was cut: {reason}")]
    Cut {
        /// The datastore.
        name: Name,
        /// Why.
        reason: String,
    },
    /// Another operation in progress excludes it.
    #[error("{error}")]
    Busy {
        /// The operation in progress.
        error: String,
        /// What to do.
        hint: String,
    },
    /// Another host serves the disk, or the lease cannot be checked.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// By the labels of a striped disk another host holds it.
    #[error("disk '{disk}' is held by host '{holder}' (lease {number}), as its exports say")]
    HeldOnLabels {
        /// The disk.
        disk: Name,
        /// The host's name.
        holder: String,
        /// Its lease's number.
        number: u64,
        /// A server that cannot end that host's connections, if eviction was asked for.
        server: Option<String>,
    },
    /// The device of a disk is reserved for others.
    #[error("disk '{disk}' is not served here, on {}: {refusal}", device.display())]
    Reserved {
        /// The disk.
        disk: Name,
        /// Its datastore.
        datastore: Name,
        /// The device.
        device: PathBuf,
        /// For whom.
        refusal: Refusal,
    },
    /// The data plane failed.
    #[error(transparent)]
    Plane(#[from] PlaneError),
    /// The catalog failed.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The file system failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was being done, with the path.
        doing: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl ControlError {
    /// An error about an invalid value, with what is expected instead.
    pub fn invalid(error: impl Into<String>, expected: impl Into<String>) -> ControlError {
        ControlError::Invalid { error: error.into(), expected: expected.into() }
    }

    /// An error about a text whose parser says what was wrong and what was expected.
    pub fn malformed<E: std::error::Error>(error: E) -> ControlError {
        ControlError::Malformed(error.to_string())
    }

    /// The same error, said of this thing.
    pub(super) fn of(self, what: &str) -> ControlError {
        match self {
            ControlError::Invalid { error, expected } => {
                ControlError::Invalid { error: format!("{what}: {error}"), expected }
            }
            ControlError::LatencyNotAdmitted { datastore, verdict } => {
                ControlError::LatencyNotAdmitted {
                    datastore,
                    verdict: format!("{verdict}, of {what}"),
                }
            }
            ControlError::Busy { error, hint } => {
                ControlError::Busy { error: format!("{what}: {error}"), hint }
            }
            other => other,
        }
    }

    /// A dry run with more to be said of it.
    pub(super) fn with_warnings(self, warnings: &[String]) -> ControlError {
        match self {
            ControlError::Dry(mut run) => {
                run.warnings.extend_from_slice(warnings);
                ControlError::Dry(run)
            }
            other => other,
        }
    }

    /// An operation of a daemon that is about to end.
    pub(super) fn stopping() -> ControlError {
        ControlError::Busy {
            error: "the daemon is stopping".into(),
            hint: "ask again when it has started".into(),
        }
    }

    /// What a worker says.
    pub(super) fn not_done(datastore: &Name, why: NotDone) -> ControlError {
        let name = datastore.clone();
        match why {
            NotDone::Hung(hang) => ControlError::Hung { name, hang },
            NotDone::Cut(reason) => ControlError::Cut { name, reason },
        }
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ControlError::Invalid { .. } | ControlError::Malformed(_) => ErrorKind::Invalid,
            ControlError::Changed { .. } => ErrorKind::Stale,
            ControlError::Dry(_) => ErrorKind::DryRun,
            ControlError::Missing { .. }
            | ControlError::NotRemoved { .. }
            | ControlError::Catalog(CatalogError::Missing { .. }) => ErrorKind::Missing,
            ControlError::Exists { .. }
            | ControlError::NameTaken { .. }
            | ControlError::HasDisks { .. }
            | ControlError::HasRemoved { .. }
            | ControlError::InUse { .. }
            | ControlError::ClassInUse { .. }
            | ControlError::Unfit { .. }
            | ControlError::AboveLimit { .. }
            | ControlError::OverQuota { .. }
            | ControlError::NotAdmitted { .. }
            | ControlError::LatencyNotAdmitted { .. }
            | ControlError::NoSpace { .. }
            | ControlError::Overcommitted { .. }
            | ControlError::Busy { .. }
            | ControlError::Reserved { .. }
            | ControlError::HeldOnLabels { .. }
            | ControlError::NoPlace { .. }
            | ControlError::DatastoreFailed { .. }
            | ControlError::DiskFailed { .. }
            | ControlError::Catalog(CatalogError::Exists { .. } | CatalogError::InUse { .. }) => {
                ErrorKind::Conflict
            }
            ControlError::Lease(LeaseError::Held { .. } | LeaseError::HeldByUnknown { .. }) => {
                ErrorKind::Conflict
            }
            ControlError::Lease(_)
            | ControlError::Plane(_)
            | ControlError::Hung { .. }
            | ControlError::Cut { .. }
            | ControlError::Catalog(_)
            | ControlError::Samples(_)
            | ControlError::Io { .. } => ErrorKind::Failed,
        }
    }

    /// What was expected, unless the error makes that obvious.
    pub fn expected(&self) -> Option<String> {
        match self {
            ControlError::Invalid { expected, .. } => Some(expected.clone()),
            ControlError::Missing { kind, known, .. } if known.is_empty() => {
                Some(format!("there is no {kind} yet"))
            }
            ControlError::Missing { known, .. } => {
                let names: Vec<&str> = known.iter().take(10).map(Name::as_str).collect();
                let more = if known.len() > 10 { ", ..." } else { "" };
                Some(format!("one of {}{more}", names.join(", ")))
            }
            ControlError::NotRemoved { known, .. } if !known.is_empty() => {
                Some(format!("one of {}", known.join(", ")))
            }
            ControlError::NotAdmitted { reserved, reservable, .. } => Some(format!(
                "a reservation of at most {} IOPS",
                reservable.saturating_sub(*reserved)
            )),
            ControlError::NoSpace { left: Bytes(0), .. }
            | ControlError::Overcommitted { left: Bytes(0), .. } => None,
            ControlError::NoSpace { left, .. } | ControlError::Overcommitted { left, .. } => {
                Some(format!("a size of at most {} bytes", left.0))
            }
            _ => None,
        }
    }

    /// What the user can do about classes, and about what concerns many disks.
    fn hint_of_many(&self) -> Option<String> {
        match self {
            ControlError::Changed { hint, .. } => Some(hint.clone()),
            ControlError::ClassInUse { name, .. } => Some(format!(
                "give them another class ('headgate disk set DISK --class'), or let them keep what \
                 they have as their own: 'headgate class remove {name} --force'"
            )),
            ControlError::HasRemoved { .. } => {
                Some("purge them first ('headgate disk purge NAME'), or restore them".into())
            }
            ControlError::Unfit { .. } => {
                Some("promise less, move disks away, or use --force to overbook".into())
            }
            ControlError::AboveLimit { .. } => Some(
                "promise less to what is in it, or raise its limit ('headgate tenant set', \
                 'headgate vm set')"
                    .into(),
            ),
            ControlError::OverQuota { tenant, .. } => Some(format!(
                "remove disks or promise less, or let it have more: see 'headgate tenant show \
                 {tenant}'"
            )),
            ControlError::Missing { kind: "tenant", .. } => {
                Some("see 'headgate tenant list'; 'headgate tenant set' makes one".into())
            }
            ControlError::Missing { kind: "class", .. } => {
                Some("see 'headgate class list'; a class of datastores is --datastore-class".into())
            }
            _ => None,
        }
    }

    /// What the user can do.
    pub fn hint(&self) -> Option<String> {
        if let Some(hint) = self.hint_of_many() {
            return Some(hint);
        }
        match self {
            ControlError::Missing { kind: "datastore", .. } => Some("see 'headgate datastore list'".into()),
            ControlError::Missing { kind: "disk", .. } => Some("see 'headgate disk list'".into()),
            ControlError::Missing { kind: "export", .. } => Some("see 'headgate export list'".into()),
            ControlError::Missing { .. } => Some("see 'headgate vm list'".into()),
            ControlError::Exists { kind, name } => {
                Some(format!("choose another name, or see 'headgate {kind} show {name}'"))
            }
            ControlError::NameTaken { id, .. } => Some(format!(
                "give it another name: 'headgate disk restore {id} --name NAME'"
            )),
            ControlError::HasDisks { .. } => Some("remove the disks first ('headgate disk remove NAME')".into()),
            ControlError::NotRemoved { .. } => Some("see 'headgate disk list --removed'".into()),
            ControlError::InUse { .. } => {
                Some("shut the guest down or disconnect the client first, or use --force".into())
            }
            ControlError::DatastoreFailed { .. } | ControlError::DiskFailed { .. } => Some(
                "repair the cause: the daemon tries again by itself; other datastores and disks keep serving".into(),
            ),
            ControlError::Hung { name, .. } => Some(format!(
                "see what is wrong with that storage ('headgate datastore show {name}'); what was begun is undone once it \
                 answers, but a removal is finished; other datastores serve meanwhile"
            )),
            ControlError::Cut { .. } => Some("see the daemon's log".into()),
            ControlError::NotAdmitted { better: Some((name, room)), .. } => Some(format!(
                "use --datastore {name}, which has room for {room} IOPS, or --force to overbook this one"
            )),
            ControlError::NotAdmitted { better: None, .. } => Some(
                "no other datastore has room for it: ask for less, lower another reservation, or use --force to \
                 overbook"
                    .into(),
            ),
            ControlError::LatencyNotAdmitted { .. } => Some(
                "ask for a latency that could be kept, move the disk, or use --force to have it tried and judged all \
                 the same"
                    .into(),
            ),
            ControlError::NoSpace { .. } => {
                Some("give another size or another datastore, or remove disks from this one".into())
            }
            ControlError::Overcommitted { datastore, .. } => Some(format!(
                "ask for less, use another datastore, enlarge the file system, or allow more with \
                 'headgate datastore set {datastore} --overcommit RATIO'"
            )),
            ControlError::Busy { hint, .. } => Some(hint.clone()),
            ControlError::NoPlace { .. } => Some(
                "make room, add a datastore, ask for less, or name one with --datastore".into(),
            ),
            ControlError::Lease(LeaseError::Held { disk, .. }) => Some(format!(
                "stop that daemon, or release the disk there with 'headgate disk remove {disk} --keep-image'; leases of a dead daemon \
                 end by themselves, in etcd after 15 s. Then run 'headgate disk takeover {disk}'"
            )),
            ControlError::HeldOnLabels { holder, server: None, .. } => Some(format!(
                "remove the disk on '{holder}' with --keep-image; or, if that host does not serve \
                 it any more, take the disk from it with --evict"
            )),
            ControlError::HeldOnLabels { holder, server: Some(server), .. } => Some(format!(
                "{server} cannot end the connections of host '{holder}': see that it has stopped, \
                 then take the disk with --evict --force"
            )),
            ControlError::Lease(LeaseError::HeldByUnknown { .. }) => {
                Some("stop the process that has locked the lease's file".into())
            }
            ControlError::Lease(LeaseError::Etcd(e)) => e.hint().map(Into::into),
            ControlError::Reserved { disk, datastore, device, refusal } => {
                Some(way_out(disk, datastore, device, refusal))
            }
            ControlError::Plane(e) => e.hint.clone(),
            ControlError::Io { source, .. } | ControlError::Lease(LeaseError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                Some(DENIED.into())
            }
            _ => None,
        }
    }
}
