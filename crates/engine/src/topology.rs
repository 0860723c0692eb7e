//! The sizes of requests that a disk's storage serves best. Guests align partitions, file systems
//! and databases by them.
//!
//! The words are Linux's (`queue/physical_block_size`, `queue/minimum_io_size`,
//! `queue/optimal_io_size`, `alignment_offset`), as in VIRTIO 1.2, section 5.2.4
//! (`virtio_blk_topology`).

use rustix::fs::fstat;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The largest physical block that guests are told of, in bytes. What has larger ones is told as
/// having these: aligned to them is better than not aligned at all.
pub const PHYSICAL_BLOCK_MAX: u32 = 64 << 10;

/// The largest request that a guest is told to prefer, in bytes: half of the longest that there is.
const PREFERRED_IO_MAX: u64 = 16 << 20;

/// A file system's block, in bytes, at most: a file that asks for longer transfers does not write
/// in such units.
const FILE_BLOCK_MAX: u64 = 4096;

/// What storage says of the requests that it likes, in bytes; 0 where it says nothing. Nothing of
/// it is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub physical_block: u64,
    pub alignment_offset: u64,
    pub min_io: u64,
    pub opt_io: u64,
}

/// The sizes of requests that a disk's storage serves best, in bytes. Fixed while a disk is open:
/// what a client was told holds as long as it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// What the storage writes without reading first: a power of two, from the disk's block size to
    /// [`PHYSICAL_BLOCK_MAX`].
    pub physical_block: u32,
    /// Where the first physical block begins: whole blocks of the disk, less than a physical block.
    pub alignment_offset: u32,
    /// The smallest request that is not slow: whole physical blocks, at least one, at most 16 MiB.
    pub min_io: u32,
    /// The best size of long requests: whole physical blocks, at most 16 MiB; 0: none is better.
    pub opt_io: u32,
}

impl Topology {
    /// Storage that says nothing: every block of the disk (512 to 4096 bytes) is as good as any.
    pub fn plain(block_size: u32) -> Topology {
        Topology::of(block_size, Told::default())
    }

    /// What may be told to guests of what storage says, for a disk with blocks of 512 to 4096
    /// bytes. What cannot be true is left out.
    pub(crate) fn of(block_size: u32, told: Told) -> Topology {
        let physical_block = match u32::try_from(told.physical_block) {
            Ok(size) if size.is_power_of_two() => {
                size.clamp(block_size, PHYSICAL_BLOCK_MAX.max(block_size))
            }
            _ => block_size,
        };
        let whole = |size: u64, unit: u32| size.is_multiple_of(u64::from(unit));
        let first = told.alignment_offset % u64::from(physical_block);
        let alignment_offset = if whole(first, block_size) { first as u32 } else { 0 };
        let preferred = |size: u64| {
            let fits = size != 0 && size <= PREFERRED_IO_MAX && whole(size, physical_block);
            if fits { size as u32 } else { 0 }
        };
        Topology {
            physical_block,
            alignment_offset,
            min_io: preferred(told.min_io).max(physical_block),
            opt_io: preferred(told.opt_io),
        }
    }
}

/// `linux/fs.h`: `_IO(0x12, 120)` and those that follow.
const BLKIOMIN: libc::Ioctl = 0x1278;
const BLKIOOPT: libc::Ioctl = 0x1279;
const BLKALIGNOFF: libc::Ioctl = 0x127a;
const BLKPBSZGET: libc::Ioctl = 0x127b;

/// The answer to one of the four requests above, each of which writes one `int`. A negative one is
/// none: the kernel calls a device misaligned so.
fn ask(device: &File, request: libc::Ioctl) -> io::Result<u64> {
    let mut answer: libc::c_int = 0;
    // SAFETY: these requests write one `int` to where the pointer leads, which is ours.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), request, &raw mut answer) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(answer).unwrap_or(0))
}

/// What the kernel knows of a block device.
pub(crate) fn of_device(device: &File) -> io::Result<Told> {
    Ok(Told {
        physical_block: ask(device, BLKPBSZGET)?,
        alignment_offset: ask(device, BLKALIGNOFF)?,
        min_io: ask(device, BLKIOMIN)?,
        opt_io: ask(device, BLKIOOPT)?,
    })
}

/// What a file's file system says: its block, and the length of transfers that it asks for.
pub(crate) fn of_file(file: &File) -> io::Result<Told> {
    let transfer = u64::try_from(fstat(file)?.st_blksize).unwrap_or(0);
    Ok(of_transfers(transfer))
}

fn of_transfers(transfer: u64) -> Told {
    Told {
        physical_block: transfer.min(FILE_BLOCK_MAX),
        opt_io: if transfer > FILE_BLOCK_MAX { transfer } else { 0 },
        ..Told::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(physical_block: u64, alignment_offset: u64, min_io: u64, opt_io: u64) -> Told {
        Told { physical_block, alignment_offset, min_io, opt_io }
    }

    #[test]
    fn what_usual_storage_says_is_passed_on() {
        let of = |block, told| {
            let t = Topology::of(block, told);
            (t.physical_block, t.alignment_offset, t.min_io, t.opt_io)
        };
        // A disk of 4096-byte sectors that takes 512 (512e), its first one aligned at sector 7.
        assert_eq!(of(512, told(4096, 3584, 4096, 0)), (4096, 3584, 4096, 0));
        // A RAID of six disks, stripes of 64 KiB.
        assert_eq!(of(512, told(512, 0, 65_536, 327_680)), (512, 0, 65_536, 327_680));
        // A file of ext4, and one on NFS.
        assert_eq!(of(4096, of_transfers(4096)), (4096, 0, 4096, 0));
        assert_eq!(of(512, of_transfers(1 << 20)), (4096, 0, 4096, 1 << 20));
    }

    #[test]
    fn what_cannot_be_true_is_left_out() {
        let of = |told| Topology::of(512, told);
        assert_eq!(of(Told::default()), of(told(512, 0, 512, 0)), "nothing is said");
        assert_eq!(of(told(3000, 0, 0, 0)).physical_block, 512, "no power of two");
        assert_eq!(of(told(1 << 20, 0, 0, 0)).physical_block, PHYSICAL_BLOCK_MAX);
        assert_eq!(Topology::of(4096, told(512, 0, 0, 0)).physical_block, 4096);
        // What USB bridges say: 65,535 sectors.
        assert_eq!(of(told(4096, 0, 4096, 33_553_920)).opt_io, 0);
        assert_eq!(of(told(4096, 100, 6000, u64::MAX)), of(told(4096, 0, 4096, 0)));
    }

    proptest! {
        /// Section 5.2.4 has the exponent, the offset in a byte and the smallest request in two,
        /// all in blocks; `blk_validate_limits` of Linux has the rest.
        #[test]
        fn whatever_storage_says_guests_get_sizes_that_virtio_has(
            shift in 9_u32..=12,
            sizes in prop::array::uniform4(prop_oneof![
                any::<u64>(),
                (0_u32..64).prop_map(|n| 1 << n),
                0_u64..100_000,
            ]),
        ) {
            let block = 1 << shift;
            let [physical, alignment, min_io, opt_io] = sizes;
            let t = Topology::of(block, told(physical, alignment, min_io, opt_io));
            prop_assert!(t.physical_block.is_power_of_two());
            prop_assert!((block..=PHYSICAL_BLOCK_MAX).contains(&t.physical_block));
            prop_assert!(t.alignment_offset < t.physical_block);
            prop_assert!(t.alignment_offset.is_multiple_of(block));
            prop_assert!(t.alignment_offset / block <= u32::from(u8::MAX));
            prop_assert!(t.min_io >= t.physical_block);
            prop_assert!(t.min_io.is_multiple_of(t.physical_block));
            prop_assert!(t.min_io / block <= u32::from(u16::MAX));
            prop_assert!(t.opt_io.is_multiple_of(t.physical_block));
        }
    }

    #[test]
    fn a_file_says_what_stat_says() {
        let file = tempfile::tempfile().unwrap();
        let size = u64::try_from(fstat(&file).unwrap().st_blksize).unwrap();
        assert_eq!(of_file(&file).unwrap(), of_transfers(size));
        of_device(&file).unwrap_err();
    }
}
