//! Where is noted what clients change of a disk.

use super::Shard;
use crate::backend::storage::Storage;
use crate::error::{EngineError, MoveError};
use crate::tables::disk::ShardDisk;
use headgate_mirror::changes::Changes;
use std::sync::Arc;

impl Shard {
    pub(crate) fn track_changes(
        &mut self,
        disk: usize,
        changes: Arc<Changes>,
    ) -> Result<(), EngineError> {
        let found = self.core.ctx.tables.disks.get_mut(disk).ok_or(EngineError::NoDisk)?;
        if found.is_moving() || found.successor.is_some() {
            return Err(MoveError::Moving.into());
        }
        found.changes = Some(changes);
        Ok(())
    }

    pub(crate) fn tracked_changes(
        &mut self,
        disk: usize,
    ) -> Result<Option<Arc<Changes>>, EngineError> {
        let found = self.core.ctx.tables.disks.get(disk).ok_or(EngineError::NoDisk)?;
        Ok(found.changes.clone())
    }

    /// Where is noted what clients change of a disk, if what it holds will be known when it has no
    /// clients any more.
    pub(crate) fn settling_changes(
        &mut self,
        disk: usize,
    ) -> Result<Option<Arc<Changes>>, EngineError> {
        let found = self.core.ctx.tables.disks.get(disk).ok_or(EngineError::NoDisk)?;
        Ok(found.settling_changes())
    }

    /// Takes out a disk as [`take_disk`](Shard::take_disk) does, for good. With its storage comes
    /// where its changes are noted, if what it holds is known.
    pub(crate) fn take_settled(
        &mut self,
        disk: usize,
    ) -> Result<(Storage, Option<Arc<Changes>>), EngineError> {
        let found = self.core.ctx.tables.disks.get(disk).ok_or(EngineError::NoDisk)?;
        let changes = found.settling_changes().filter(|_| found.in_flight == 0);
        Ok((self.take_disk(disk)?, changes))
    }
}

impl ShardDisk {
    /// Not while it moves, is copied or is given another size, nor where content may have been lost
    /// or is still to be written.
    fn settling_changes(&self) -> Option<Arc<Changes>> {
        let keeps_its_size = self.check_size_stays().is_ok();
        let stays = !self.is_moving() && self.successor.is_none() && keeps_its_size;
        let is_sound = self.undurable == 0 && self.trouble.hold.is_none();
        self.changes.clone().filter(|_| stays && is_sound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::IoError;
    use crate::shard::testing::Rig;
    use crate::tables::disk::{SizeChange, Successor};
    use headgate_qos::window::Slots;
    use headgate_qos::{Config, SchedulerKind};
    use headgate_units::{Bytes, Nanos};

    /// Has a disk be one of which is not known what it will hold.
    type Spoil = fn(&mut ShardDisk);

    #[test]
    fn nothing_is_told_of_a_disk_with_something_under_way_or_lost() {
        let spoil: [(&str, Spoil); 7] = [
            ("it is the source of a move", |disk| disk.moving = Some(0)),
            ("it is the target of a move", |disk| disk.landing = Some(0)),
            ("its clients are another disk's", |disk| disk.successor = Some(Successor::Here(0))),
            ("it is given another size", |disk| disk.resizing = SizeChange::UnderWay),
            ("a flush failed", |disk| disk.undurable = 1),
            ("it holds requests", |disk| {
                disk.trouble.begin(Nanos::ZERO, IoError::from_errno(libc::EIO));
            }),
            ("nothing is noted", |disk| disk.changes = None),
        ];
        for (what, spoil) in spoil {
            let mut rig = Rig::new(SchedulerKind::MClock, Config::default(), Slots::ONE, None);
            let key = rig.add_disk(Nanos::ZERO, Default::default(), Default::default());
            let disk = &mut rig.tables.disks[key as usize];
            disk.changes = Some(Arc::new(Changes::new(Bytes::from_mib(1))));
            assert!(disk.settling_changes().is_some());
            spoil(disk);
            assert!(disk.settling_changes().is_none(), "{what}");
        }
    }
}
