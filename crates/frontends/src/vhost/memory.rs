//! The front-end's memory, mapped here: guest memory and the in-flight region.

use super::Refused;
use super::config::MAX_MEM_SLOTS;
use super::lost_memory::Watched;
use super::memory_rules::{Admitted, MemoryRules};
use headgate_vring::{GuestAddress, GuestMemory, HostMapping, InflightRegion, Region};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::ptr::NonNull;
use std::sync::Arc;
use vhost::vhost_user::message::{VhostUserInflight, VhostUserMemoryRegion};
use vm_memory::{FileOffset, MmapRegion};

/// A file of the front-end, mapped shared, readable and writable.
struct Mapped {
    /// Before the mapping, so that the watch ends first.
    _watched: Watched,
    base: NonNull<u8>,
    region: MmapRegion,
    /// Last: it counts until the mapping is gone.
    _admitted: Admitted,
}

// SAFETY: the mapping is plain memory, reached only by the atomic accesses of `headgate_vring` and
// by the kernel.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

// SAFETY: `MmapRegion` keeps its range mapped in place until it is dropped, and no reference to its
// bytes is made here.
unsafe impl HostMapping for Mapped {
    fn base(&self) -> NonNull<u8> {
        self.base
    }
    fn len(&self) -> usize {
        self.region.size()
    }
}

/// Maps `len` bytes of `file` from `offset`. The file must be that long; should it be shortened
/// later, see [`lost_memory`](super::lost_memory).
fn map(
    file: File,
    offset: u64,
    len: u64,
    rules: &MemoryRules,
) -> Result<Arc<dyn HostMapping>, Refused> {
    let admitted = rules.admit(&file, len)?;
    let size = usize::try_from(len)
        .map_err(|_| Refused::Memory(format!("{len} bytes do not fit here")))?;
    let end = offset.checked_add(len);
    let known = file.metadata().map_err(|e| Refused::Memory(e.to_string()))?.len();
    if end.is_none_or(|end| end > known) {
        return Err(Refused::Memory(format!(
            "{len} bytes at offset {offset} of a file of {known}"
        )));
    }
    let region = MmapRegion::from_file(FileOffset::new(file, offset), size)
        .map_err(|e| Refused::Memory(format!("cannot map {len} bytes at offset {offset}: {e}")))?;
    let base =
        NonNull::new(region.as_ptr()).ok_or_else(|| Refused::Memory("mapped at zero".into()))?;
    let watched =
        Watched::new(region.as_ptr(), size).map_err(|e| Refused::Memory(e.to_string()))?;
    Ok(Arc::new(Mapped { _watched: watched, base, region, _admitted: admitted }))
}

/// One region as the front-end announced it.
struct Slot {
    guest: u64,
    user: u64,
    size: u64,
    region: Region,
}

impl Slot {
    fn new(
        announced: &VhostUserMemoryRegion,
        file: File,
        rules: &MemoryRules,
    ) -> Result<Slot, Refused> {
        let VhostUserMemoryRegion {
            guest_phys_addr: guest,
            memory_size: size,
            user_addr: user,
            mmap_offset,
        } = *announced;
        let mapping = map(file, mmap_offset, size, rules)?;
        let region = Region::new(GuestAddress(guest), mapping)
            .map_err(|e| Refused::Memory(e.to_string()))?;
        Ok(Slot { guest, user, size, region })
    }
}

/// The regions known of, and the table made of them.
pub(crate) struct MemoryTable {
    rules: MemoryRules,
    slots: Vec<Slot>,
    memory: Arc<GuestMemory>,
}

impl MemoryTable {
    /// No memory yet.
    pub(crate) fn empty(rules: MemoryRules) -> Result<MemoryTable, Refused> {
        MemoryTable::of(rules, Vec::new())
    }

    fn of(rules: MemoryRules, slots: Vec<Slot>) -> Result<MemoryTable, Refused> {
        let regions = slots.iter().map(|s| s.region.clone()).collect();
        let memory = GuestMemory::new(regions).map_err(|e| Refused::Memory(e.to_string()))?;
        Ok(MemoryTable { rules, slots, memory: Arc::new(memory) })
    }

    /// `SET_MEM_TABLE`: these regions and no others.
    pub(crate) fn replaced(
        &self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
    ) -> Result<MemoryTable, Refused> {
        let rules = self.rules.clone();
        let slots: Result<_, _> =
            regions.iter().zip(files).map(|(r, f)| Slot::new(r, f, &rules)).collect();
        MemoryTable::of(rules, slots?)
    }

    /// `ADD_MEM_REG`. Regions known before stay mapped where they are.
    pub(crate) fn with(
        &self,
        region: &VhostUserMemoryRegion,
        file: File,
    ) -> Result<MemoryTable, Refused> {
        if self.slots.len() as u64 >= MAX_MEM_SLOTS {
            return Err(Refused::Memory(format!("more than {MAX_MEM_SLOTS} regions")));
        }
        let mut slots = self.clone_slots();
        slots.push(Slot::new(region, file, &self.rules)?);
        MemoryTable::of(self.rules.clone(), slots)
    }

    /// `REM_MEM_REG`. Requests in flight keep the region mapped until they end.
    pub(crate) fn without(&self, region: &VhostUserMemoryRegion) -> Result<MemoryTable, Refused> {
        let (guest, size) = (region.guest_phys_addr, region.memory_size);
        let mut slots = self.clone_slots();
        let at = slots
            .iter()
            .position(|s| s.guest == guest && s.size == size)
            .ok_or_else(|| Refused::Memory(format!("no region of {size} bytes at {guest:#x}")))?;
        slots.remove(at);
        MemoryTable::of(self.rules.clone(), slots)
    }

    fn clone_slots(&self) -> Vec<Slot> {
        self.slots.iter().map(|s| Slot { region: s.region.clone(), ..*s }).collect()
    }

    /// What holds for this front-end's memory.
    pub(crate) fn rules(&self) -> &MemoryRules {
        &self.rules
    }

    /// The table for queues.
    pub(crate) fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Rings are announced by the front-end's own addresses.
    pub(crate) fn guest_address(&self, user: u64) -> Result<GuestAddress, Refused> {
        self.slots
            .iter()
            .find(|s| user.wrapping_sub(s.user) < s.size)
            .map(|s| GuestAddress(s.guest + (user - s.user)))
            .ok_or_else(|| {
                Refused::Memory(format!("no region holds the front-end's address {user:#x}"))
            })
    }
}

/// The in-flight regions of all queues, one after the other, in memory that the front-end keeps
/// while this process is gone.
pub(crate) struct InflightArea {
    mapping: Arc<dyn HostMapping>,
    queues: u16,
    queue_size: u16,
}

impl InflightArea {
    fn bytes(queues: u16, queue_size: u16) -> u64 {
        u64::from(queues) * InflightRegion::bytes(queue_size) as u64
    }

    /// `GET_INFLIGHT_FD`: fresh memory for so many queues. It cannot be shrunk by whoever holds it.
    pub(crate) fn create(
        queues: u16,
        queue_size: u16,
    ) -> Result<(VhostUserInflight, File), Refused> {
        let bytes = InflightArea::bytes(queues, queue_size);
        let file =
            sealed_memory(bytes).map_err(|e| Refused::Memory(format!("in-flight region: {e}")))?;
        Ok((VhostUserInflight::new(bytes, 0, queues, queue_size), file))
    }

    /// `SET_INFLIGHT_FD`.
    pub(crate) fn map(
        announced: &VhostUserInflight,
        file: File,
        rules: &MemoryRules,
    ) -> Result<InflightArea, Refused> {
        let VhostUserInflight { mmap_size, mmap_offset, num_queues: queues, queue_size } =
            *announced;
        let needed = InflightArea::bytes(queues, queue_size);
        if mmap_size < needed {
            let why = format!("in-flight region of {mmap_size} bytes, {needed} needed");
            return Err(Refused::Memory(why));
        }
        Ok(InflightArea { mapping: map(file, mmap_offset, mmap_size, rules)?, queues, queue_size })
    }

    /// One queue's region, if the area covers it.
    pub(crate) fn region(&self, queue: u16) -> Result<InflightRegion, Refused> {
        if queue >= self.queues {
            let why = format!("the in-flight region has {} queues, not queue {queue}", self.queues);
            return Err(Refused::Memory(why));
        }
        let at = usize::from(queue) * InflightRegion::bytes(self.queue_size);
        InflightRegion::new(Arc::clone(&self.mapping), at, self.queue_size)
            .map_err(|e| Refused::Memory(e.to_string()))
    }

    /// Queues with requests of a former process.
    pub(crate) fn marked(&self) -> Result<Vec<u16>, Refused> {
        let mut marked = Vec::new();
        for queue in 0..self.queues {
            if self.region(queue)?.has_marks() {
                marked.push(queue);
            }
        }
        Ok(marked)
    }
}

fn sealed_memory(bytes: u64) -> std::io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create(c"headgate-inflight", flags)?);
    file.set_len(bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::memory_rules::GuestMemorySource;
    use super::*;

    fn file(bytes: u64) -> File {
        let file = File::from(memfd_create(c"guest", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(bytes).unwrap();
        file
    }

    fn table(source: GuestMemorySource) -> MemoryTable {
        MemoryTable::empty(MemoryRules::new(source)).unwrap()
    }

    #[test]
    fn memory_and_inflight_region_obey_the_operators_rule() {
        let elsewhere = || File::open("/proc/self/maps").unwrap();
        let region = VhostUserMemoryRegion::new(0, 4096, 0x1000_0000, 0);
        let default = table(GuestMemorySource::MemoryFiles);
        let is_rule = |r: Refused| r.to_string().contains("--guest-memory any");
        assert!(default.replaced(&[region], vec![elsewhere()]).err().is_some_and(is_rule));
        assert!(default.with(&region, elsewhere()).err().is_some_and(is_rule));
        let (announced, _) = InflightArea::create(1, 128).unwrap();
        let inflight = InflightArea::map(&announced, elsewhere(), default.rules());
        assert!(inflight.err().is_some_and(is_rule));
        // Refused for its length, not by the rule.
        let any = table(GuestMemorySource::Any);
        assert!(any.with(&region, elsewhere()).err().is_some_and(|r| !is_rule(r)));
    }

    #[test]
    fn regions_of_a_table_are_bounded() {
        let file = file(4096);
        let mut table = table(GuestMemorySource::MemoryFiles);
        for n in 0..=MAX_MEM_SLOTS {
            let region = VhostUserMemoryRegion::new(n << 20, 4096, (n + 1) << 20, 0);
            match table.with(&region, file.try_clone().unwrap()) {
                Ok(more) => table = more,
                Err(refused) => {
                    assert_eq!(n, MAX_MEM_SLOTS, "{refused}");
                    return;
                }
            }
        }
        panic!("no bound");
    }

    #[test]
    fn a_region_longer_than_its_file_is_refused() {
        let region = |size, offset| VhostUserMemoryRegion::new(0, size, 0x1000_0000, offset);
        assert!(
            table(GuestMemorySource::MemoryFiles)
                .replaced(&[region(8192, 0)], vec![file(8192)])
                .is_ok()
        );
        for (size, offset) in [(8193, 0), (8192, 4096), (4096, u64::MAX - 4095)] {
            assert!(
                table(GuestMemorySource::MemoryFiles)
                    .replaced(&[region(size, offset)], vec![file(8192)])
                    .is_err(),
                "{size} {offset}"
            );
        }
        assert!(
            table(GuestMemorySource::MemoryFiles)
                .replaced(&[region(4096, 1)], vec![file(8192)])
                .is_err(),
            "not a page's start"
        );
    }

    #[test]
    fn regions_come_and_go_and_addresses_are_translated() {
        let low = VhostUserMemoryRegion::new(0, 8192, 0x7000_0000, 0);
        let high = VhostUserMemoryRegion::new(1 << 32, 4096, 0x9000_0000, 4096);
        let table =
            table(GuestMemorySource::MemoryFiles).replaced(&[low], vec![file(8192)]).unwrap();
        assert_eq!(table.guest_address(0x7000_0010).unwrap(), GuestAddress(0x10));
        assert!(table.guest_address(0x7000_2000).is_err());
        let more = table.with(&high, file(8192)).unwrap();
        assert_eq!(more.guest_address(0x9000_0fff).unwrap(), GuestAddress((1 << 32) + 0xfff));
        assert!(more.with(&low, file(8192)).is_err(), "overlap");
        let less = more.without(&low).unwrap();
        assert!(less.guest_address(0x7000_0010).is_err());
        assert!(less.without(&low).is_err());
        assert!(less.guest_address(0x9000_0000).is_ok());
    }

    #[test]
    fn the_inflight_area_has_room_for_every_queue_and_is_sealed() {
        let rules = MemoryRules::new(GuestMemorySource::MemoryFiles);
        let (announced, file) = InflightArea::create(256, 1024).unwrap();
        assert!(file.set_len(4096).is_err(), "sealed");
        let area = InflightArea::map(&announced, file.try_clone().unwrap(), &rules).unwrap();
        assert!(area.region(255).is_ok());
        assert!(area.region(256).is_err());
        assert_eq!(area.marked().unwrap(), Vec::<u16>::new());
        let short = VhostUserInflight::new(announced.mmap_size - 1, 0, 256, 1024);
        assert!(InflightArea::map(&short, file, &rules).is_err());
    }
}
