//! From a descriptor chain to a virtio-blk request: one pass, every descriptor and every header
//! byte read once.

use crate::blk::{
    HEADER_BYTES, ID_BYTES, MAX_CHAIN, MAX_DATA, MAX_SEGMENTS, RANGE_BYTES, RangeHeader,
    RequestHeader, RequestType, SECTOR, Status,
};
use crate::device::Completion;
use crate::layout::{
    Areas, DESCRIPTOR_BYTES, Descriptor, FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE, IndirectTables,
};
use crate::memory::{ByteCell, GuestAddress, GuestMemory, MemoryError, RegionHint, Segment};
use alloc::vec::Vec;
use headgate_units::Bytes;
use thiserror::Error;

/// May a write-zeroes request leave a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmap {
    /// The range may be deallocated.
    May,
    /// The range must stay allocated.
    MustNot,
}

/// What a request asks for. Offsets and lengths are whole sectors, and `offset + len` does not
/// overflow; whether they lie inside the disk is not known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fill the request's data from the disk.
    Read {
        /// First byte.
        offset: Bytes,
        /// 512 bytes to [`MAX_DATA`].
        len: Bytes,
    },
    /// Write the request's data to the disk.
    Write {
        /// First byte.
        offset: Bytes,
        /// 512 bytes to [`MAX_DATA`].
        len: Bytes,
    },
    /// Make completed writes durable.
    Flush,
    /// The range is not needed any more.
    Discard {
        /// First byte.
        offset: Bytes,
        /// 512 bytes to 2 TiB.
        len: Bytes,
    },
    /// The range shall read as zeroes.
    WriteZeroes {
        /// First byte.
        offset: Bytes,
        /// 512 bytes to 2 TiB.
        len: Bytes,
        /// May it become a hole.
        unmap: Unmap,
    },
    /// Tell the disk's name: [`Request::write_id`].
    GetId,
}

/// What is wrong with a chain or with the request in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChainError {
    /// More descriptors than the table has, so some came twice.
    #[error("the descriptor chain is longer than its table or than {MAX_CHAIN}: a loop")]
    Loop,
    /// `next` outside the table.
    #[error("descriptor {next} does not exist in a table of {entries}")]
    NextOutOfRange {
        /// The index.
        next: u16,
        /// The table's length.
        entries: u32,
    },
    /// Indirect, though the feature was not negotiated.
    #[error("indirect descriptor without VIRTIO_F_INDIRECT_DESC")]
    IndirectNotNegotiated,
    /// A table inside a table.
    #[error("indirect descriptor inside an indirect table")]
    NestedIndirect,
    /// Both INDIRECT and NEXT.
    #[error("indirect descriptor with a next descriptor")]
    IndirectWithNext,
    /// Not a multiple of 16, or zero.
    #[error("an indirect table of {0} bytes: not a positive multiple of {DESCRIPTOR_BYTES}")]
    IndirectLength(u32),
    /// The table is not in guest memory.
    #[error("indirect table: {0}")]
    IndirectOutOfRange(MemoryError),
    /// A buffer is not in guest memory.
    #[error("buffer: {0}")]
    BufferOutOfRange(MemoryError),
    /// A buffer of zero bytes.
    #[error("descriptor of zero length")]
    ZeroLength,
    /// A device-readable buffer behind a device-writable one.
    #[error("device-readable descriptor after a device-writable one")]
    ReadableAfterWritable,
    /// Fewer than 16 readable bytes.
    #[error("the request header has {0} of {HEADER_BYTES} bytes")]
    ShortHeader(usize),
    /// The chain does not end in a writable byte.
    #[error("no writable byte for the status")]
    NoStatus,
    /// More than [`MAX_DATA`] bytes.
    #[error("more than {MAX_DATA} bytes of data")]
    TooLarge,
    /// More than [`MAX_SEGMENTS`] buffers, or buffers in pieces.
    #[error("more than {MAX_SEGMENTS} pieces of data")]
    TooManySegments,
    /// A request type that the device does not know.
    #[error("unknown request type {0}")]
    UnknownType(u32),
    /// Data in a direction in which the request type has none.
    #[error("data in the wrong direction for its request type")]
    UnexpectedData,
    /// Data that is not a positive number of whole sectors, or not the fixed length that its type
    /// demands.
    #[error("{bytes} bytes of data, expected {expected}")]
    DataLength {
        /// Bytes found.
        bytes: u64,
        /// What its type demands.
        expected: &'static str,
    },
    /// `sector * 512 + length` exceeds 2⁶⁴.
    #[error("sector {0} overflows")]
    SectorOverflow(u64),
    /// Reserved flags, or flags that the request type must not have.
    #[error("discard or write-zeroes flags {0:#x} are not supported")]
    RangeFlags(u32),
}

impl ChainError {
    /// What the guest is told, as VIRTIO 1.2, section 5.2.6.2 has it.
    pub fn status(self) -> Status {
        match self {
            ChainError::UnknownType(_) | ChainError::RangeFlags(_) => Status::Unsupported,
            _ => Status::IoError,
        }
    }
}

/// Buffers that a queue's caller keeps and passes to every call, so that the steady state does not
/// allocate.
#[derive(Debug, Default)]
pub struct Scratch {
    segments: Vec<Segment>,
    id_buffers: Vec<(GuestAddress, u32)>,
    hint: RegionHint,
}

/// A request taken from a queue. It owes the guest an answer: pass [`completion`](Self::completion)
/// to [`DeviceQueue::complete`](crate::DeviceQueue::complete) when it is done.
#[derive(Debug)]
#[must_use = "a request that is not completed stays in flight for ever"]
pub struct Request<'s> {
    /// What to do.
    pub operation: Operation,
    /// The header's priority field as it came. Linux puts a 16-bit `ioprio` here.
    pub ioprio: u32,
    /// The answer that is owed.
    pub completion: Completion,
    segments: &'s [Segment],
    id_buffers: &'s [(GuestAddress, u32)],
}

impl<'s> Request<'s> {
    /// Buffers of a read or write, at most [`MAX_SEGMENTS`]; empty otherwise. They stay valid as
    /// long as the completion lives, or any other holder of the [`GuestMemory`] that the queue was
    /// started on.
    pub fn data(&self) -> &'s [Segment] {
        self.segments
    }

    /// Answers [`Operation::GetId`]: the name, cut to 20 bytes, padded with zeroes. Answers the
    /// bytes written.
    pub fn write_id(&self, name: &str) -> u32 {
        let mut id = [0; ID_BYTES];
        for (to, from) in id.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        let mut rest = &id[..];
        for (address, len) in self.id_buffers {
            let (now, later) = rest.split_at(rest.len().min(*len as usize));
            // The range was checked against the same memory when the chain was parsed.
            if self.completion.memory().write(*address, now).is_err() {
                break;
            }
            rest = later;
        }
        (ID_BYTES - rest.len()) as u32
    }
}

/// The result of walking one chain.
pub(crate) struct Parsed {
    pub status: ByteCell,
    pub outcome: Result<(Operation, u32), ChainError>,
}

impl Scratch {
    /// The request that [`parse`] put here.
    pub(crate) fn request(
        &self,
        operation: Operation,
        ioprio: u32,
        completion: Completion,
    ) -> Request<'_> {
        Request {
            operation,
            ioprio,
            completion,
            segments: &self.segments,
            id_buffers: &self.id_buffers,
        }
    }
}

/// Where descriptors are read from.
enum Table {
    Ring,
    Indirect { at: GuestAddress, entries: u32 },
}

/// Walks the chain at `head` and reads the request in it.
///
/// # Errors
/// The chain is so broken that its status byte cannot be found. Every other error is in
/// [`Parsed::outcome`].
pub(crate) fn parse(
    areas: &Areas,
    memory: &GuestMemory,
    indirect: IndirectTables,
    head: u16,
    scratch: &mut Scratch,
) -> Result<Parsed, ChainError> {
    scratch.segments.clear();
    scratch.id_buffers.clear();
    let mut walk = Walk {
        memory,
        scratch,
        header: [0; HEADER_BYTES],
        header_len: 0,
        kind: None,
        payload: [0; RANGE_BYTES],
        readable: 0,
        writable: 0,
        seen_writable: false,
        error: None,
    };
    let mut table = Table::Ring;
    let mut index = head;
    let (mut in_table, mut in_chain) = (0, 0);
    loop {
        let (descriptor, entries) = match table {
            Table::Ring => (areas.descriptor(index), u32::from(areas.size)),
            Table::Indirect { at, entries } => (
                walk.indirect_descriptor(at, index).map_err(ChainError::IndirectOutOfRange)?,
                entries,
            ),
        };
        let last = descriptor.flags & FLAG_NEXT == 0;
        if descriptor.flags & FLAG_INDIRECT != 0 {
            if indirect == IndirectTables::Refused {
                return Err(ChainError::IndirectNotNegotiated);
            }
            if matches!(table, Table::Indirect { .. }) {
                return Err(ChainError::NestedIndirect);
            }
            if !last {
                return Err(ChainError::IndirectWithNext);
            }
            if descriptor.len == 0 || !descriptor.len.is_multiple_of(DESCRIPTOR_BYTES as u32) {
                return Err(ChainError::IndirectLength(descriptor.len));
            }
            table = Table::Indirect {
                at: descriptor.addr,
                entries: descriptor.len / DESCRIPTOR_BYTES as u32,
            };
            (index, in_table) = (0, 0);
            continue;
        }
        in_table += 1;
        in_chain += 1;
        if in_table > entries || in_chain > MAX_CHAIN {
            return Err(ChainError::Loop);
        }
        if last {
            let status =
                walk.last(descriptor).ok_or_else(|| walk.error.unwrap_or(ChainError::NoStatus))?;
            return Ok(Parsed { status, outcome: walk.finish() });
        }
        walk.buffer(descriptor.addr, descriptor.len, descriptor.flags & FLAG_WRITE != 0);
        if u32::from(descriptor.next) >= entries {
            return Err(ChainError::NextOutOfRange { next: descriptor.next, entries });
        }
        index = descriptor.next;
    }
}

struct Walk<'a> {
    memory: &'a GuestMemory,
    scratch: &'a mut Scratch,
    header: [u8; HEADER_BYTES],
    header_len: usize,
    /// Known once the header is complete and its type is.
    kind: Option<RequestType>,
    payload: [u8; RANGE_BYTES],
    /// Bytes behind the header.
    readable: u64,
    /// Bytes before the status.
    writable: u64,
    seen_writable: bool,
    /// The first thing found wrong. The walk goes on, to find the status byte.
    error: Option<ChainError>,
}

impl Walk<'_> {
    fn indirect_descriptor(
        &mut self,
        at: GuestAddress,
        index: u16,
    ) -> Result<Descriptor, MemoryError> {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        let offset = u64::from(index) * DESCRIPTOR_BYTES as u64;
        let address = at.0.checked_add(offset).ok_or(MemoryError::OutOfRange {
            address: at.0,
            len: DESCRIPTOR_BYTES * (usize::from(index) + 1),
        })?;
        self.memory.read(GuestAddress(address), &mut bytes, &mut self.scratch.hint)?;
        Ok(Descriptor::from_bytes(bytes))
    }

    /// The chain's last descriptor: its last byte is the status, if it is writable.
    fn last(&mut self, descriptor: Descriptor) -> Option<ByteCell> {
        let writable = descriptor.flags & FLAG_WRITE != 0;
        if !writable || descriptor.len == 0 {
            self.buffer(descriptor.addr, descriptor.len, writable);
            return None;
        }
        let len = descriptor.len - 1;
        if len > 0 {
            self.buffer(descriptor.addr, len, true);
        }
        let at = descriptor.addr.0.checked_add(u64::from(len))?;
        self.memory.byte(GuestAddress(at), &mut self.scratch.hint)
    }

    fn buffer(&mut self, at: GuestAddress, len: u32, writable: bool) {
        if self.error.is_some() {
            return;
        }
        let result = if len == 0 {
            Err(ChainError::ZeroLength)
        } else if writable {
            self.seen_writable = true;
            self.on_writable(at, len)
        } else if self.seen_writable {
            Err(ChainError::ReadableAfterWritable)
        } else {
            self.on_readable(at, len)
        };
        self.error = result.err();
    }

    fn on_readable(&mut self, mut at: GuestAddress, mut len: u32) -> Result<(), ChainError> {
        if self.header_len < HEADER_BYTES {
            let here = (HEADER_BYTES - self.header_len).min(len as usize);
            let into = &mut self.header[self.header_len..self.header_len + here];
            self.memory
                .read(at, into, &mut self.scratch.hint)
                .map_err(ChainError::BufferOutOfRange)?;
            self.header_len += here;
            if self.header_len == HEADER_BYTES {
                let raw = RequestHeader::from_bytes(self.header).kind;
                self.kind = Some(RequestType::from_wire(raw).ok_or(ChainError::UnknownType(raw))?);
            }
            len -= here as u32;
            if len == 0 {
                return Ok(());
            }
            // In range: a region never ends at the top of the address space.
            at = GuestAddress(at.0 + here as u64);
        }
        let before = self.readable;
        self.readable += u64::from(len);
        match self.kind {
            Some(RequestType::Out) => self.data(at, len, self.readable),
            Some(RequestType::Discard | RequestType::WriteZeroes) => {
                let from = RANGE_BYTES.min(before as usize);
                let to = RANGE_BYTES.min(from + len as usize);
                self.memory
                    .read(at, &mut self.payload[from..to], &mut self.scratch.hint)
                    .map_err(ChainError::BufferOutOfRange)
            }
            _ => Err(ChainError::UnexpectedData),
        }
    }

    fn on_writable(&mut self, at: GuestAddress, len: u32) -> Result<(), ChainError> {
        self.writable += u64::from(len);
        match self.kind {
            Some(RequestType::In) => self.data(at, len, self.writable),
            Some(RequestType::GetId) => {
                // Checked now, written by `write_id`.
                self.data(at, len, self.writable)?;
                self.scratch.id_buffers.push((at, len));
                Ok(())
            }
            Some(_) => Err(ChainError::UnexpectedData),
            None => Err(ChainError::ShortHeader(self.header_len)),
        }
    }

    fn data(&mut self, at: GuestAddress, len: u32, total: u64) -> Result<(), ChainError> {
        if total > MAX_DATA {
            return Err(ChainError::TooLarge);
        }
        self.memory
            .segments(at, len as usize, &mut self.scratch.segments, &mut self.scratch.hint)
            .map_err(ChainError::BufferOutOfRange)?;
        if self.scratch.segments.len() > MAX_SEGMENTS {
            return Err(ChainError::TooManySegments);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(Operation, u32), ChainError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let header = RequestHeader::from_bytes(self.header);
        let kind = self.kind.ok_or(ChainError::ShortHeader(self.header_len))?;
        let operation = match kind {
            RequestType::In => {
                let (offset, len) = sectors(header.sector, self.writable)?;
                Operation::Read { offset, len }
            }
            RequestType::Out => {
                let (offset, len) = sectors(header.sector, self.readable)?;
                Operation::Write { offset, len }
            }
            RequestType::Flush => Operation::Flush,
            RequestType::GetId => {
                if self.writable != ID_BYTES as u64 {
                    return Err(ChainError::DataLength { bytes: self.writable, expected: "20" });
                }
                self.scratch.segments.clear();
                Operation::GetId
            }
            RequestType::Discard => {
                let range = self.range()?;
                // An unmap flag means nothing here, and section 5.2.6.2 has it refused.
                if range.flags != 0 {
                    return Err(ChainError::RangeFlags(range.flags));
                }
                let (offset, len) = sectors(range.sector, u64::from(range.sectors) * SECTOR)?;
                Operation::Discard { offset, len }
            }
            RequestType::WriteZeroes => {
                let range = self.range()?;
                if range.flags & !RangeHeader::UNMAP != 0 {
                    return Err(ChainError::RangeFlags(range.flags));
                }
                let (offset, len) = sectors(range.sector, u64::from(range.sectors) * SECTOR)?;
                let unmap = if range.flags == 0 { Unmap::MustNot } else { Unmap::May };
                Operation::WriteZeroes { offset, len, unmap }
            }
        };
        Ok((operation, header.ioprio))
    }

    fn range(&self) -> Result<RangeHeader, ChainError> {
        if self.readable != RANGE_BYTES as u64 {
            return Err(ChainError::DataLength { bytes: self.readable, expected: "16: one range" });
        }
        Ok(RangeHeader::from_bytes(self.payload))
    }
}

fn sectors(sector: u64, bytes: u64) -> Result<(Bytes, Bytes), ChainError> {
    if bytes == 0 || !bytes.is_multiple_of(SECTOR) {
        return Err(ChainError::DataLength { bytes, expected: "a positive multiple of 512" });
    }
    let offset = sector.checked_mul(SECTOR).ok_or(ChainError::SectorOverflow(sector))?;
    offset.checked_add(bytes).ok_or(ChainError::SectorOverflow(sector))?;
    Ok((Bytes(offset), Bytes(bytes)))
}
