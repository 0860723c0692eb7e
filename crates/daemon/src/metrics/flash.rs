//! Metrics of emulated flash drives.

use super::{Labels, Scrape, Writer};
use headgate_api::flash::{Flash, FlashDisk, FlashReach};
use std::fmt;

type Read = fn(&Flash) -> Option<f64>;
type ReadDisk = fn(&FlashDisk) -> Option<f64>;

const DRIVE_COUNTERS: [(&str, &str, Read); 3] = [
    ("flash_page_writes", "Pages that disks wrote", |f| Some(f.page_writes as f64)),
    ("flash_pages_moved", "Pages that collection and wear levelling moved", |f| {
        Some(f.pages_moved as f64)
    }),
    ("flash_blocks_erased", "Blocks erased", |f| Some(f.blocks_erased as f64)),
];

const DRIVE_GAUGES: [(&str, &str, Read); 3] = [
    ("flash_spare_blocks", "Over-provisioning space in blocks", |f| Some(f.spare_blocks.into())),
    ("flash_unassigned_blocks", "Blocks of it that are nobody's", |f| {
        Some(f.unassigned_blocks.into())
    }),
    (
        "flash_rated_page_writes_per_second",
        "What dynamic isolation divides by shares; absent without it, and while it is not known",
        |f| f.rated_page_writes_per_sec.map(|rated| rated as f64),
    ),
];

const DISK_COUNTERS: [(&str, &str, ReadDisk); 4] = [
    ("flash_page_writes", "Pages that the disk wrote", |d| Some(d.page_writes as f64)),
    ("flash_pages_moved_for", "Pages moved because it wrote", |d| Some(d.pages_moved_for as f64)),
    ("flash_pages_moved", "Its pages that were moved, whoever wrote", |d| {
        Some(d.pages_moved as f64)
    }),
    ("flash_blocks_collected", "Blocks collected because it wrote", |d| {
        Some(d.blocks_collected as f64)
    }),
];

const DISK_GAUGES: [(&str, &str, ReadDisk); 5] = [
    (
        "flash_spare_blocks",
        "Its over-provisioning space in blocks; absent where blocks are shared",
        |d| d.spare_blocks.map(f64::from),
    ),
    (
        "flash_utilisation_ratio",
        "Part of the blocks collected of late that was still of use",
        |d| d.utilisation,
    ),
    (
        "flash_target_utilisation_ratio",
        "What that has to be for its target; absent without one",
        |d| d.target_utilisation,
    ),
    ("flash_target_page_writes_per_second", "What it is to write by its shares", |d| {
        d.target_page_writes_per_sec.map(|target| target as f64)
    }),
    ("flash_target_out_of_reach", "1 when its target cannot be reached; absent without one", |d| {
        d.target_page_writes_per_sec?;
        Some(if d.reach == FlashReach::Open { 0.0 } else { 1.0 })
    }),
];

impl Scrape {
    pub(super) fn encode_flash(&self, out: &mut Writer<'_>) -> fmt::Result {
        let drives: Vec<(String, Flash)> =
            self.samples.iter().filter_map(|s| Some((s.name.to_string(), Flash::of(s)?))).collect();
        if drives.is_empty() {
            return Ok(());
        }
        let drive = |read: Read| -> Vec<(Labels, f64)> {
            let one = |(name, flash): &(String, Flash)| {
                Some((vec![("datastore", name.clone())], read(flash)?))
            };
            drives.iter().filter_map(one).collect()
        };
        let disk = |read: ReadDisk| -> Vec<(Labels, f64)> {
            let all = drives
                .iter()
                .flat_map(|(name, flash)| flash.disks.iter().map(move |disk| (name, disk)));
            let labels = |store: &String, disk: &FlashDisk| {
                vec![("datastore", store.clone()), ("disk", disk.name.to_string())]
            };
            all.filter_map(|(store, one)| Some((labels(store, one), read(one)?))).collect()
        };
        for (name, help, read) in DRIVE_COUNTERS {
            out.counters(&format!("datastore_{name}"), help, &drive(read))?;
        }
        for (name, help, read) in DRIVE_GAUGES {
            out.gauges(&format!("datastore_{name}"), help, &drive(read))?;
        }
        for (name, help, read) in DISK_COUNTERS {
            out.counters(&format!("disk_{name}"), help, &disk(read))?;
        }
        for (name, help, read) in DISK_GAUGES {
            out.gauges(&format!("disk_{name}"), help, &disk(read))?;
        }
        Ok(())
    }
}
