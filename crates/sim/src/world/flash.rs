//! Flash drives: which disks lie on them, and what they counted.

use super::state::{SimDisk, World};
use crate::outcome::MovedPages;
use crate::progress::RunError;
use headgate_devices::{DiskPlace, FlashCounters};
use headgate_units::Bytes;
use std::collections::BTreeMap;

impl World<'_> {
    /// Tells a node's device of all disks on its datastore.
    pub(super) fn tell_device(&mut self, index: usize) -> Result<(), RunError> {
        let node = &mut self.nodes[index];
        let spec = &self.setup.datastores[node.datastore as usize].nodes[node.index].device;
        if spec.capacity().is_none() {
            return Ok(());
        }
        let named =
            self.setup.vms.iter().flat_map(|vm| vm.disks.iter().map(move |disk| (vm, disk)));
        for ((vm, disk), placed) in named.zip(&self.disks) {
            if disk.datastore == node.datastore as usize {
                let place = DiskPlace {
                    offset: placed.base,
                    size: Bytes(placed.size),
                    shares: placed.shares,
                };
                let told = node.device.add_disk(self.now, place);
                told.map_err(|why| RunError::Place {
                    disk: format!("{}/{}", vm.name, disk.name),
                    why,
                })?;
            }
        }
        Ok(())
    }

    /// Asks the drives under all disks what they counted.
    pub(super) fn count_flash(&mut self) {
        let now = self.now;
        for SimDisk { nodes, base, recorder, .. } in &mut self.disks {
            let (mut sum, mut target): (Option<FlashCounters>, _) = (None, None);
            for &(node, _) in nodes.iter() {
                let Some(one) = self.nodes[node as usize].device.flash(*base) else { continue };
                sum = Some(sum.map_or(one, |sum| sum.plus(&one)));
                target = target.or(self.nodes[node as usize].device.target_utilisation(*base));
            }
            if let Some(sum) = sum {
                recorder.on_flash(now, &sum, target);
            }
        }
    }

    /// Moved pages by writer and owner; none without flash.
    pub(super) fn moved_pages(&self) -> Option<MovedPages> {
        let disks = || {
            self.setup.vms.iter().zip(&self.vms).flat_map(|(vm, of)| {
                let own = of.disks as usize..of.disks as usize + vm.disks.len();
                let on_flash = |disk: &&SimDisk| {
                    disk.nodes.iter().any(|&(node, _)| {
                        self.nodes[node as usize].device.flash(disk.base).is_some()
                    })
                };
                let disks = own.filter_map(|disk| self.disks.get(disk)).filter(on_flash);
                disks.map(|disk| (vm.name.as_str(), disk)).collect::<Vec<_>>()
            })
        };
        let mut moved: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let mut vms: Vec<&str> = Vec::new();
        for (writer, own) in disks() {
            for (owner, other) in disks() {
                for &(node, _) in own.nodes.iter().filter(|&node| other.nodes.contains(node)) {
                    let Some(pages) =
                        self.nodes[node as usize].device.moved_for(own.base, other.base)
                    else {
                        continue;
                    };
                    *moved.entry((writer, owner)).or_default() += pages;
                    if !vms.contains(&writer) {
                        vms.push(writer);
                    }
                }
            }
        }
        let of = |writer: &&str| {
            vms.iter().map(|owner| moved.get(&(*writer, *owner)).copied().unwrap_or(0)).collect()
        };
        let pages = vms.iter().map(of).collect();
        (!vms.is_empty())
            .then(|| MovedPages { vms: vms.iter().map(|&vm| vm.to_owned()).collect(), pages })
    }
}
