//! What the device says of itself: feature bits and the configuration space (VIRTIO 1.2, sections
//! 5.2.3 and 5.2.4).

use headgate_engine::request::{DiskInfo, MAX_REQUEST, Writes};
use headgate_vring::blk::{SECTOR, feature};
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};

/// Queues offered. QEMU asks for one per virtual CPU and refuses a back-end that has fewer.
pub(crate) const MAX_QUEUES: u16 = 256;

/// Memory regions a front-end may register: QEMU's number of DIMM slots.
pub(crate) const MAX_MEM_SLOTS: u64 = 256;

/// Data segments of one request that the driver may build: what fits QEMU's usual queue of 128
/// without indirect tables.
const SEG_MAX: u32 = 126;

/// Longest discard: 2 GiB. A longer one would hold the backend for too long.
pub(crate) const MAX_DISCARD: u64 = 2 << 30;

/// Longest write-zeroes: 32 MiB, as much as a write, because a backend may have to write them.
pub(crate) const MAX_WRITE_ZEROES: u64 = 32 << 20;

const _: () = assert!(MAX_WRITE_ZEROES <= MAX_REQUEST, "the engine refuses what is longer");

/// Ranges smaller than this seldom free anything.
const DISCARD_ALIGNMENT: u32 = 4096;

/// The features offered to the driver of a disk, and the bit that says that protocol features can
/// be negotiated.
pub(crate) fn features(disk: &DiskInfo) -> u64 {
    match disk.writes {
        Writes::Allowed => FEATURES,
        Writes::Refused => FEATURES | feature::RO,
    }
}

const FEATURES: u64 = feature::VERSION_1
    | feature::RING_INDIRECT_DESC
    | feature::RING_EVENT_IDX
    | feature::SEG_MAX
    | feature::BLK_SIZE
    | feature::FLUSH
    | feature::TOPOLOGY
    | feature::MQ
    | feature::DISCARD
    | feature::WRITE_ZEROES
    | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

/// The protocol features offered to the front-end.
pub(crate) const PROTOCOL_FEATURES: VhostUserProtocolFeatures = VhostUserProtocolFeatures::MQ
    .union(VhostUserProtocolFeatures::CONFIG)
    .union(VhostUserProtocolFeatures::BACKEND_REQ)
    .union(VhostUserProtocolFeatures::REPLY_ACK)
    .union(VhostUserProtocolFeatures::INFLIGHT_SHMFD)
    .union(VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    .union(VhostUserProtocolFeatures::RESET_DEVICE);

const CONFIG_BYTES: usize = 60;

/// `struct virtio_blk_config` for a disk.
fn config_space(disk: &DiskInfo) -> [u8; CONFIG_BYTES] {
    let mut space = [0; CONFIG_BYTES];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(disk.size / SECTOR).to_le_bytes());
    put(12, &SEG_MAX.to_le_bytes());
    put(20, &disk.block_size.to_le_bytes());
    put(24, &topology(disk));
    put(34, &MAX_QUEUES.to_le_bytes());
    put(36, &sectors(MAX_DISCARD).to_le_bytes());
    // One range per request: a guest's block layer merges neighbours itself.
    put(40, &1u32.to_le_bytes());
    put(44, &sectors(u64::from(DISCARD_ALIGNMENT.max(disk.block_size))).to_le_bytes());
    put(48, &sectors(MAX_WRITE_ZEROES).to_le_bytes());
    put(52, &1u32.to_le_bytes());
    // write_zeroes_may_unmap
    put(56, &[1]);
    space
}

/// `struct virtio_blk_topology`: an exponent, an offset and two sizes, in blocks of the disk. They
/// fit, by what [`Topology`](headgate_engine::topology::Topology) promises.
fn topology(disk: &DiskInfo) -> [u8; 8] {
    let (told, block) = (disk.topology, disk.block_size);
    let exponent = (told.physical_block / block).ilog2() as u8;
    let offset = u8::try_from(told.alignment_offset / block).unwrap_or(0);
    let [m0, m1] = u16::try_from(told.min_io / block).unwrap_or(1).to_le_bytes();
    let [o0, o1, o2, o3] = (told.opt_io / block).to_le_bytes();
    [exponent, offset, m0, m1, o0, o1, o2, o3]
}

fn sectors(bytes: u64) -> u32 {
    u32::try_from(bytes / SECTOR).unwrap_or(u32::MAX)
}

/// The part of the configuration space that a front-end asked for. What lies behind the known
/// fields reads as zero: the reply must have the length asked for.
pub(crate) fn read_config(disk: &DiskInfo, offset: u32, size: u32) -> Vec<u8> {
    let space = config_space(disk);
    let from = space.len().min(offset as usize);
    let mut part: Vec<u8> = space[from..].iter().copied().take(size as usize).collect();
    part.resize(size as usize, 0);
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_engine::topology::Topology;

    fn disk() -> DiskInfo {
        DiskInfo::plain("d", 10 << 30, 512)
    }

    #[test]
    fn a_reply_has_exactly_the_length_asked_for() {
        for (offset, size) in [(0, 60), (0, 256), (59, 4), (60, 8), (4000, 96), (0, 0)] {
            assert_eq!(read_config(&disk(), offset, size).len(), size as usize);
        }
        let whole = read_config(&disk(), 0, 256);
        assert_eq!(read_config(&disk(), 34, 6), whole[34..40]);
    }

    #[test]
    fn fields_lie_where_virtio_has_them() {
        let c = read_config(&disk(), 0, 60);
        let u32_at = |at: usize| u32::from_le_bytes(c[at..at + 4].try_into().unwrap());
        assert_eq!(u64::from_le_bytes(c[0..8].try_into().unwrap()), (10 << 30) / 512);
        assert_eq!((u32_at(12), u32_at(20)), (126, 512));
        assert_eq!(u16::from_le_bytes(c[34..36].try_into().unwrap()), 256);
        assert_eq!((u32_at(36), u32_at(40), u32_at(44)), (4 << 20, 1, 8));
        assert_eq!((u32_at(48), u32_at(52), c[56]), (65536, 1, 1));
        assert_eq!(c[24..32], [0, 0, 1, 0, 0, 0, 0, 0], "storage that says nothing");
    }

    #[test]
    fn the_topology_is_in_blocks_of_the_disk() {
        let topology = Topology {
            physical_block: 4096,
            alignment_offset: 3584,
            min_io: 64 << 10,
            opt_io: 1 << 20,
        };
        let of = |block_size| read_config(&DiskInfo { block_size, topology, ..disk() }, 24, 8);
        assert_eq!(of(512), [3, 7, 128, 0, 0, 8, 0, 0]);
        let aligned = Topology { alignment_offset: 0, ..topology };
        let coarse = DiskInfo { block_size: 4096, topology: aligned, ..disk() };
        assert_eq!(read_config(&coarse, 24, 8), [0, 0, 16, 0, 0, 1, 0, 0]);
        assert_eq!(FEATURES & feature::TOPOLOGY, 1 << 10);
    }
}
