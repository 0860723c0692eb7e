//! What moves stand in the way of, what stands in theirs, and what they take of a datastore.

use crate::datastores::volatile;
use crate::disks::being_created;
use crate::moving::Moving;
use crate::new_disk::NewDisk;
use crate::{Control, ControlError, DiskEntry, Model, Service, remote};
use headgate_api::moves::DiskMigrate;
use headgate_devices::ModelSpec;
use headgate_mirror::{Operation, Refused};
use headgate_model::{Backend, DiskRecord, MoveStep, Name};
use headgate_stripe::Layout;

fn refused(operation: Operation) -> Refused {
    match operation {
        Operation::Resize => Refused::Resize,
        Operation::Snapshot => Refused::Snapshot,
        Operation::Move => Refused::Move,
        Operation::Remove => Refused::Remove,
    }
}

/// A copy is there of a move that is over.
fn copy_left(moving: &Moving) -> ControlError {
    let disk = &moving.record.disk;
    let datastore = moving.record.datastore(moving.reclaimed());
    let why = moving.trouble.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    ControlError::Busy {
        error: format!(
            "the last move of disk '{disk}' is over, and its other copy on datastore '{datastore}' \
             is to be removed first{why}"
        ),
        hint: format!(
            "ask again in a moment: it is removed as soon as its storage lets it. 'headgate disk \
             migrate {disk} --cancel --force' forgets that copy and leaves it there"
        ),
    }
}

impl Model {
    /// Disks that a datastore has promised something to: those on it, and those on their way.
    pub(crate) fn promised_on<'a>(
        &'a self,
        datastore: &'a Name,
    ) -> impl Iterator<Item = &'a DiskEntry> {
        let arrives = move |moving: &&Moving| {
            !moving.is_within()
                && moving.record.target == *datastore
                && moving.record.step != MoveStep::Switched
        };
        let arriving = self.moves.values().filter(arrives);
        self.disks_on(datastore).chain(arriving.filter_map(|one| self.disks.get(&one.record.disk)))
    }

    /// Disks of which a datastore has a copy, whether it counts or not.
    pub(crate) fn copies_on<'a>(
        &'a self,
        datastore: &'a Name,
    ) -> impl Iterator<Item = &'a DiskEntry> {
        let leaves = move |moving: &&Moving| {
            !moving.is_within()
                && moving.record.source == *datastore
                && moving.record.step == MoveStep::Switched
        };
        let leaving = self.moves.values().filter(leaves);
        let left = leaving.filter_map(|one| self.disks.get(&one.record.disk));
        self.promised_on(datastore).chain(left)
    }

    /// A disk that moves keeps what it is until that is over.
    pub(crate) fn check_not_moving(
        &self,
        disk: &Name,
        operation: Operation,
    ) -> Result<(), ControlError> {
        self.check_not_copied(disk)?;
        let Some(moving) = self.moves.get(disk) else { return Ok(()) };
        if moving.is_over() {
            return Err(copy_left(moving));
        }
        Err(ControlError::Busy {
            error: format!("disk '{disk}': {}", refused(operation)),
            hint: format!(
                "'headgate disk moves' says how far it is; 'headgate disk migrate {disk} --cancel' \
                 ends it"
            ),
        })
    }

    /// A new disk must not have the name of a copy that is to be removed.
    pub(crate) fn check_no_copy(&self, disk: &Name) -> Result<(), ControlError> {
        self.moves.get(disk).map_or(Ok(()), |moving| Err(copy_left(moving)))
    }

    /// A datastore that a disk moves from or to stays.
    pub(crate) fn check_no_move_on(&self, datastore: &Name) -> Result<(), ControlError> {
        let touches = |moving: &&Moving| {
            moving.record.source == *datastore || moving.record.target == *datastore
        };
        match self.moves.values().find(touches) {
            None => Ok(()),
            Some(moving) if moving.is_over() => Err(copy_left(moving)),
            Some(moving) => Err(ControlError::Busy {
                error: format!(
                    "disk '{}' is being moved to datastore '{}'",
                    moving.record.disk, moving.record.target
                ),
                hint: format!(
                    "wait for its end, or end it with 'headgate disk migrate {} --cancel'",
                    moving.record.disk
                ),
            }),
        }
    }

    /// Two disks on one export would each write what the other has.
    pub(crate) fn check_export_not_moved_to(
        &self,
        server: &str,
        export: &str,
    ) -> Result<(), ControlError> {
        let is_there = |moving: &&Moving| {
            let backend = self.datastores.get(&moving.record.target).map(|d| &d.record.backend);
            moving.remote.as_ref().is_some_and(|remote| {
                let servers = remote::servers(remote, backend);
                remote.export == export && servers.iter().any(|other| other == server)
            })
        };
        match self.moves.values().find(is_there) {
            None => Ok(()),
            Some(moving) => Err(ControlError::Busy {
                error: format!(
                    "disk '{}' is being moved to export '{export}' of that server",
                    moving.record.disk
                ),
                hint: "name another export".into(),
            }),
        }
    }
}

/// Whether a disk can move within its datastore: one that is striped, and lies on other servers
/// than new disks do, goes to exports of another name.
fn check_rebalanced(
    record: &DiskRecord,
    backend: &Backend,
    request: &DiskMigrate,
) -> Result<(), ControlError> {
    let (disk, datastore) = (&record.name, &record.datastore);
    let stripe = record.remote.as_ref().and_then(|remote| remote.stripe.as_ref());
    let (Some(stripe), Backend::Stripe { servers, unit, .. }) = (stripe, backend) else {
        return Err(ControlError::invalid(
            format!("disk '{disk}' is on datastore '{datastore}' already"),
            "another datastore",
        ));
    };
    if stripe.servers == *servers {
        return Err(ControlError::invalid(
            format!("disk '{disk}' lies on all servers of datastore '{datastore}' already"),
            "another datastore, or a server more first: 'headgate datastore set --add-server'",
        ));
    }
    if request.export.is_some() {
        return Ok(());
    }
    let layout = Layout::new(*unit, servers.len() as u16, record.size);
    let needed = layout.map_err(headgate_model::PlaneError::new)?.member_size();
    Err(ControlError::invalid(
        format!(
            "disk '{disk}' lies on {} of the {} servers of datastore '{datastore}', and no exports \
             on all of them are named",
            stripe.servers.iter().filter(|server| servers.contains(server)).count(),
            servers.len()
        ),
        format!(
            "--export with a name that each of the servers has a new export by, of {} bytes or \
             more",
            needed.0
        ),
    ))
}

impl Control {
    /// Everything about a move that can be checked without asking storage. Returns warnings.
    pub(super) fn check_move(
        &self,
        model: &Model,
        disk: &Name,
        request: &DiskMigrate,
    ) -> Result<Vec<String>, ControlError> {
        let entry = model.disk(disk)?;
        let target = model.datastore(&request.to)?;
        if let Service::Creating = entry.service {
            return Err(being_created(disk));
        }
        model.check_not_moving(disk, Operation::Move)?;
        entry.check_size_stays()?;
        if let Some(reason) = entry.service.reason() {
            let (name, reason) = (disk.clone(), reason.to_owned());
            return Err(ControlError::DiskFailed { name, reason });
        }
        let source = model.datastore(&entry.record.datastore)?;
        let mut warnings = if source.record.name == target.record.name {
            check_rebalanced(&entry.record, &target.record.backend, request)?;
            // What it was promised there it is promised already.
            self.check_takes_disks(model, &request.to, request.force)?;
            Vec::new()
        } else {
            let class = entry.record.set.class.as_ref().and_then(|class| model.classes.get(class));
            if let Some(class) = class.filter(|_| entry.record.placement.class.is_none()) {
                model.check_place_of_class(class, &request.to, request.force)?;
            }
            let new = NewDisk { target: &request.to, ..NewDisk::of(&entry.record) };
            self.check_place(model, &new, request.force)?
        };
        if let Some(ModelSpec::Null) = target.device {
            return Err(ControlError::invalid(
                format!("datastore '{}' stores nothing, and the disk would be empty", request.to),
                "a datastore that keeps what it is given",
            ));
        }
        warnings.extend(volatile(&target.record));
        if let (Backend::Nbd { .. } | Backend::Stripe { .. }, Some(export)) =
            (&target.record.backend, &request.export)
        {
            warnings.push(format!(
                "export '{export}' is overwritten from its first byte on, also where the move is \
                 cancelled"
            ));
        }
        Ok(warnings)
    }
}
