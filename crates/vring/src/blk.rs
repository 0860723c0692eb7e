//! The formats of virtio-blk (VIRTIO 1.2, section 5.2.6). All fields are little-endian.

/// Bytes of a sector: the unit of every address and length in virtio-blk, whatever the disk's block
/// size.
pub const SECTOR: u64 = 512;

/// Most bytes of data in one request: 32 MiB, as QEMU and the NBD clients in use have it.
pub const MAX_DATA: u64 = 32 << 20;

/// Most descriptors in one chain: the largest queue, so that every chain a driver may build passes.
pub const MAX_CHAIN: u32 = 1024;

/// Most segments of one request: what one `readv` takes (`IOV_MAX`).
pub const MAX_SEGMENTS: usize = 1024;

/// Bytes of the answer to [`RequestType::GetId`], padded with zeroes.
pub const ID_BYTES: usize = 20;

/// Bytes of a request's header.
pub const HEADER_BYTES: usize = 16;

/// Bytes of the one range that a discard or write-zeroes request names.
pub const RANGE_BYTES: usize = 16;

/// Feature bits of a virtio-blk device that Headgate knows of.
pub mod feature {
    /// `seg_max` in the configuration space holds.
    pub const SEG_MAX: u64 = 1 << 2;
    /// The device is read-only.
    pub const RO: u64 = 1 << 5;
    /// `blk_size` holds.
    pub const BLK_SIZE: u64 = 1 << 6;
    /// The flush request exists, and the device has a volatile cache.
    pub const FLUSH: u64 = 1 << 9;
    /// `topology` holds: the sizes of requests that the storage serves best.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// `num_queues` holds.
    pub const MQ: u64 = 1 << 12;
    /// The discard request exists.
    pub const DISCARD: u64 = 1 << 13;
    /// The write-zeroes request exists.
    pub const WRITE_ZEROES: u64 = 1 << 14;
    /// Indirect descriptors (section 2.7.5.3).
    pub const RING_INDIRECT_DESC: u64 = 1 << 28;
    /// `used_event` and `avail_event` (sections 2.7.7 and 2.7.10).
    pub const RING_EVENT_IDX: u64 = 1 << 29;
    /// The device follows VIRTIO 1.0 or later.
    pub const VERSION_1: u64 = 1 << 32;
}

/// The request types that Headgate serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RequestType {
    /// `VIRTIO_BLK_T_IN`: read.
    In = 0,
    /// `VIRTIO_BLK_T_OUT`: write.
    Out = 1,
    /// `VIRTIO_BLK_T_FLUSH`.
    Flush = 4,
    /// `VIRTIO_BLK_T_GET_ID`.
    GetId = 8,
    /// `VIRTIO_BLK_T_DISCARD`.
    Discard = 11,
    /// `VIRTIO_BLK_T_WRITE_ZEROES`.
    WriteZeroes = 13,
}

impl RequestType {
    /// Reads the header's type field.
    pub fn from_wire(value: u32) -> Option<RequestType> {
        Some(match value {
            0 => RequestType::In,
            1 => RequestType::Out,
            4 => RequestType::Flush,
            8 => RequestType::GetId,
            11 => RequestType::Discard,
            13 => RequestType::WriteZeroes,
            _ => return None,
        })
    }
}

/// The byte that ends every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// `VIRTIO_BLK_S_OK`.
    Ok = 0,
    /// `VIRTIO_BLK_S_IOERR`.
    IoError = 1,
    /// `VIRTIO_BLK_S_UNSUPP`.
    Unsupported = 2,
}

/// `struct virtio_blk_req` up to the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Raw request type; [`RequestType::from_wire`] knows the valid ones.
    pub kind: u32,
    /// IO priority. Linux puts its 16-bit `ioprio` here; the upper half is zero.
    pub ioprio: u32,
    /// First sector of a read or write.
    pub sector: u64,
}

impl RequestHeader {
    /// Reads the wire format.
    pub fn from_bytes(bytes: [u8; HEADER_BYTES]) -> RequestHeader {
        let [a, b, c, d, e, f, g, h, sector @ ..] = bytes;
        RequestHeader {
            kind: u32::from_le_bytes([a, b, c, d]),
            ioprio: u32::from_le_bytes([e, f, g, h]),
            sector: u64::from_le_bytes(sector),
        }
    }

    /// Writes the wire format.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.ioprio.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sector.to_le_bytes());
        bytes
    }
}

/// `struct virtio_blk_discard_write_zeroes`: the data of a discard or write-zeroes request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeHeader {
    /// First sector.
    pub sector: u64,
    /// How many sectors.
    pub sectors: u32,
    /// Bit 0: unmap. The others are reserved.
    pub flags: u32,
}

impl RangeHeader {
    /// The unmap flag.
    pub const UNMAP: u32 = 1;

    /// Reads the wire format.
    pub fn from_bytes(bytes: [u8; RANGE_BYTES]) -> RangeHeader {
        let [a, b, c, d, e, f, g, h, i, j, k, l, flags @ ..] = bytes;
        RangeHeader {
            sector: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            sectors: u32::from_le_bytes([i, j, k, l]),
            flags: u32::from_le_bytes(flags),
        }
    }

    /// Writes the wire format.
    pub fn to_bytes(self) -> [u8; RANGE_BYTES] {
        let mut bytes = [0; RANGE_BYTES];
        bytes[0..8].copy_from_slice(&self.sector.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sectors.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.flags.to_le_bytes());
        bytes
    }
}
