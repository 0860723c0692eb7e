//! Flash drives: which disks lie on them, and what they counted.

use super::{Disk, World};
use crate::run::RunError;
use headgate_devices::{DiskPlace, FlashCounters};
use headgate_units::Bytes;

impl World<'_> {
    /// Tells a node's device of all disks on its datastore.
    pub(super) fn tell_device(&mut self, index: usize) -> Result<(), RunError> {
        let node = &mut self.nodes[index];
        let spec = &self.setup.datastores[node.datastore as usize].nodes[node.index].device;
        if spec.capacity().is_none() {
            return Ok(());
        }
        let named = self.setup.vms.iter().flat_map(|vm| vm.disks.iter().map(move |disk| (vm, disk)));
        for ((vm, disk), placed) in named.zip(&self.disks) {
            if disk.datastore == node.datastore as usize {
                let place =
                    DiskPlace { offset: placed.base, size: Bytes(placed.size), shares: placed.shares };
                let told = node.device.add_disk(self.now, place);
                told.map_err(|why| RunError::Place { disk: format!("{}/{}", vm.name, disk.name), why })?;
            }
        }
        Ok(())
    }

    /// Asks the drives under all disks what they counted.
    pub(super) fn count_flash(&mut self) {
        let now = self.now;
        for Disk { nodes, base, recorder, .. } in &mut self.disks {
            let mut sum: Option<FlashCounters> = None;
            for &(node, _) in nodes.iter() {
                let Some(one) = self.nodes[node as usize].device.flash(*base) else { continue };
                sum = Some(sum.map_or(one, |sum| sum.plus(&one)));
            }
            if let Some(sum) = sum {
                recorder.on_flash(now, &sum);
            }
        }
    }
}
