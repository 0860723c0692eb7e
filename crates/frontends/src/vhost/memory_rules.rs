//! Which memory of a front-end is mapped, and how much of it.
//!
//! A page that is not there yet is brought by whoever keeps the file: on FUSE or a network file
//! system that is somebody who may take as long as he likes, and a shard that touches the page
//! waits. Pages of memory files come from the kernel. See
//! `docs/decisions/0057-front-end-border.md`.

use super::Refused;
use super::config::MAX_MEM_SLOTS;
use rustix::fs::fstatfs;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const TIB: u64 = 1 << 40;

/// Mapped for one front-end: its memory table, and what requests in flight keep of former ones.
const MAPPED_MAX: Amount = Amount { regions: 2 * MAX_MEM_SLOTS, bytes: 8 * TIB };

/// Mapped for all of them. The rest of the 128 TiB is the daemon's own.
const MAPPED_IN_ALL_MAX: Amount = Amount { regions: 16_384, bytes: 96 * TIB };

static MAPPED_IN_ALL: Mapped = Mapped::none();

/// Where guest memory may come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuestMemorySource {
    /// Memory files: memfd, tmpfs, hugetlbfs.
    #[default]
    MemoryFiles,
    /// Any file. Its file system can stop all disks of a shard.
    Any,
}

impl GuestMemorySource {
    fn check(self, file: &File) -> Result<(), Refused> {
        let failed = |e: std::io::Error| Refused::Memory(e.to_string());
        let kind = fstatfs(file).map_err(|e| failed(e.into()))?.f_type;
        let is_memory = kind == libc::TMPFS_MAGIC || kind == libc::HUGETLBFS_MAGIC;
        // Device nodes lie on a tmpfs, too, and their memory is their driver's.
        let is_file = file.metadata().map_err(failed)?.is_file();
        if self == GuestMemorySource::Any || is_memory && is_file {
            return Ok(());
        }
        Err(Refused::Memory(format!(
            "the file lies on a file system (type {kind:#x}) that may let a disk's thread wait for \
             a page; expected a memfd, or a file on tmpfs or hugetlbfs: use memory-backend-memfd, \
             or a mem-path in /dev/shm or on hugetlbfs, or start the daemon with --guest-memory any"
        )))
    }
}

/// Regions and their size.
#[derive(Clone, Copy)]
struct Amount {
    regions: u64,
    bytes: u64,
}

/// What is mapped. Atomics, for the last holder of a region may be a shard, which must not wait.
#[derive(Debug)]
struct Mapped {
    regions: AtomicU64,
    bytes: AtomicU64,
}

impl Mapped {
    const fn none() -> Mapped {
        Mapped { regions: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Adds a region, if that stays within `max`.
    fn take(&self, bytes: u64, max: Amount, whose: &str) -> Result<(), Refused> {
        let add = |count: &AtomicU64, n: u64, max: u64| {
            let sum = |old: u64| old.checked_add(n).filter(|sum| *sum <= max);
            count.fetch_update(Relaxed, Relaxed, sum)
        };
        let regions = add(&self.regions, 1, max.regions);
        if regions.is_ok() && add(&self.bytes, bytes, max.bytes).is_ok() {
            return Ok(());
        }
        if regions.is_ok() {
            self.regions.fetch_sub(1, Relaxed);
        }
        Err(Refused::Memory(format!(
            "a region of {bytes} bytes is too much: {whose} {} regions of {} bytes in all mapped, \
             and may have {} regions of {} bytes; requests in flight keep the regions of former \
             memory tables",
            self.regions.load(Relaxed),
            self.bytes.load(Relaxed),
            max.regions,
            max.bytes
        )))
    }

    fn give(&self, bytes: u64) {
        self.regions.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

/// The rules for one front-end's memory, and what of it is mapped.
#[derive(Clone, Debug)]
pub(crate) struct MemoryRules {
    source: GuestMemorySource,
    mapped: Arc<Mapped>,
}

impl MemoryRules {
    pub(crate) fn new(source: GuestMemorySource) -> MemoryRules {
        MemoryRules { source, mapped: Arc::new(Mapped::none()) }
    }

    /// Lets `bytes` of `file` be mapped, for as long as the answer lives.
    pub(crate) fn admit(&self, file: &File, bytes: u64) -> Result<Admitted, Refused> {
        self.source.check(file)?;
        self.mapped.take(bytes, MAPPED_MAX, "this front-end has")?;
        let in_all = MAPPED_IN_ALL.take(bytes, MAPPED_IN_ALL_MAX, "all front-ends together have");
        if let Err(refused) = in_all {
            self.mapped.give(bytes);
            return Err(refused);
        }
        Ok(Admitted { mapped: Arc::clone(&self.mapped), bytes })
    }
}

/// A region that counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    mapped: Arc<Mapped>,
    bytes: u64,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.mapped.give(self.bytes);
        MAPPED_IN_ALL.give(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    fn memfd() -> File {
        File::from(memfd_create(c"guest", MemfdFlags::CLOEXEC).unwrap())
    }

    #[test]
    fn only_memory_files_are_taken_unless_the_operator_says_so() {
        let (default, any) = (GuestMemorySource::default(), GuestMemorySource::Any);
        default.check(&memfd()).unwrap();
        // Of /proc and of a device: the one is no memory, and the other is no file.
        for path in ["/proc/self/maps", "/dev/null"] {
            let file = File::open(path).unwrap();
            let Err(Refused::Memory(text)) = default.check(&file) else { panic!("{path}") };
            for way_out in ["memory-backend-memfd", "/dev/shm", "--guest-memory any"] {
                assert!(text.contains(way_out), "{text}");
            }
            any.check(&file).unwrap();
        }
    }

    #[test]
    fn what_is_mapped_is_bounded_in_bytes_and_regions_and_comes_back() {
        let (rules, other) =
            (MemoryRules::new(Default::default()), MemoryRules::new(Default::default()));
        let (file, half) = (memfd(), MAPPED_MAX.bytes / 2);
        let first = rules.admit(&file, half).unwrap();
        let second = rules.admit(&file, half).unwrap();
        for bytes in [1, u64::MAX] {
            let text = rules.admit(&file, bytes).unwrap_err().to_string();
            assert!(text.contains("this front-end has 2 regions"), "{text}");
        }
        other.admit(&file, half).unwrap();
        drop(first);
        rules.admit(&file, half).unwrap();
        drop(second);
        let many: Vec<_> =
            (0..MAPPED_MAX.regions).map(|_| rules.admit(&file, 4096).unwrap()).collect();
        rules.admit(&file, 4096).unwrap_err();
        drop(many);
        let left = (rules.mapped.regions.load(Relaxed), rules.mapped.bytes.load(Relaxed));
        assert_eq!(left, (0, 0));
    }

    #[test]
    fn front_ends_together_leave_address_space_to_the_daemon() {
        let all = Mapped::none();
        all.take(MAPPED_IN_ALL_MAX.bytes - 4096, MAPPED_IN_ALL_MAX, "").unwrap();
        all.take(4096, MAPPED_IN_ALL_MAX, "").unwrap();
        all.take(1, MAPPED_IN_ALL_MAX, "").unwrap_err();
        all.give(4096);
        all.take(1, MAPPED_IN_ALL_MAX, "").unwrap();
    }
}
