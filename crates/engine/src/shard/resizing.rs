//! Disks that get another size while they are served.
//!
//! The storage is given its size by who asks for it, where that may block. A disk that grows is
//! told of it when its storage has; one that shrinks before.

use super::Shard;
use crate::backend::SIZE_MAX;
use crate::backend::execute::Execute as _;
use crate::backend::file::mapping::Mapping;
use crate::backend::file::shared::SharedImage;
use crate::backend::storage::Storage;
use crate::error::{EngineError, ResizeError};
use crate::tables::disk::SizeChange;
use headgate_units::Bytes;

/// What a disk had before, and its storage.
pub(crate) struct Resizing {
    pub before: u64,
    /// `None`: it has none.
    pub image: Option<SharedImage>,
}

impl Shard {
    /// Prepares for another size. A smaller one is in force at once.
    pub(crate) fn begin_resize(&mut self, key: usize, size: u64) -> Result<Resizing, EngineError> {
        let core = &mut self.core;
        let disk = core.ctx.tables.disks.get_mut(key).ok_or(EngineError::NoDisk)?;
        if disk.is_moving() || disk.successor.is_some() {
            return Err(ResizeError::Moving.into());
        }
        let block = u64::from(disk.info.block_size);
        if size == 0 || size > SIZE_MAX || !size.is_multiple_of(block) {
            return Err(ResizeError::Size { size, block }.into());
        }
        let image = match &disk.storage {
            Storage::File(file) => Some(file.image.share().map_err(ResizeError::Io)?),
            Storage::Null => None,
            Storage::Remote(_) => return Err(ResizeError::Export.into()),
            Storage::Moving => return Err(ResizeError::Moving.into()),
        };
        let before = disk.info.size;
        if size < before && !disk.ports.is_empty() {
            return Err(ResizeError::Clients { ports: disk.ports.len() }.into());
        }
        if size > before {
            let store = &mut core.datastores[disk.datastore];
            store.backend.resize(core.ctx.now, key as u32, Bytes(size))?;
        } else {
            // Should it grow again, this is not what it was.
            disk.note_change(size, before - size);
            disk.info.size = size;
        }
        disk.resizing = SizeChange::UnderWay;
        Ok(Resizing { before, image })
    }

    /// The storage has this size, and its pages these addresses: the disk has it, and its clients
    /// are told.
    pub(crate) fn end_resize(
        &mut self,
        key: usize,
        size: u64,
        mapping: Option<Mapping>,
    ) -> Result<(), EngineError> {
        let core = &mut self.core;
        let disk = core.ctx.tables.disks.get_mut(key).ok_or(EngineError::NoDisk)?;
        disk.resizing = SizeChange::None;
        if let Storage::File(file) = &mut disk.storage {
            file.image.remap(mapping);
        }
        disk.info.size = size;
        // It has room for what it had before, or for less.
        let store = &mut core.datastores[disk.datastore];
        let fits = store.backend.resize(core.ctx.now, key as u32, Bytes(size));
        debug_assert!(fits.is_ok(), "{fits:?}");
        let (info, ports) = (disk.info.clone(), disk.ports.clone());
        for port in ports {
            self.with_port(port, |p, io| p.on_resize(io, &info));
        }
        Ok(())
    }
}
