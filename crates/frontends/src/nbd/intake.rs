//! Requests of a connection on their way to the disk.

use super::buddy::Block;
use super::translate::Command;
use super::unaligned::Unaligned;
use headgate_engine::request::Op;

/// The longest range of a block status request that is looked at, in bytes.
const LONGEST_STATUS: u32 = 1 << 30;

/// A request at the disk.
#[derive(Debug)]
pub struct Taken {
    pub command: Command,
    pub buffer: Option<Block>,
    pub whole: Whole,
    /// The part of the range that is at the disk or was served: longer ranges than the disk takes
    /// at once go down piece by piece.
    pub piece: Piece,
}

/// Whether a request at the disk moves all the data of its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    Yes,
    /// It is a part of the command that is being taken.
    No,
}

#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub offset: u64,
    pub len: u32,
}

impl Piece {
    pub fn first(command: &Command, longest: u32) -> Piece {
        let longest = match command.op {
            Op::Read | Op::Splice | Op::Write(_) | Op::PlacedWrite => command.len,
            Op::BlockStatus => LONGEST_STATUS,
            _ => longest,
        };
        Piece { offset: command.offset, len: command.len.min(longest) }
    }

    /// The piece after this one, if the command has more and needs all of it done.
    pub fn next(self, command: &Command, longest: u32) -> Option<Piece> {
        let (Op::Discard | Op::WriteZeroes { .. }) = command.op else { return None };
        let offset = self.offset + u64::from(self.len);
        let left = command.offset + u64::from(command.len) - offset;
        (left > 0).then(|| Piece { offset, len: left.min(u64::from(longest)) as u32 })
    }
}

/// Where the payload of the request being taken goes.
#[derive(Debug)]
pub enum Target {
    /// Nowhere yet: it waits for its buffer. Or it has none.
    None,
    /// Into this buffer.
    Buffer(Block),
    /// To its place in the image, once the disk has granted the request.
    Asked,
    /// To its place in the image. The disk has granted the request with this key.
    Placed(usize, *mut u8),
    /// Part by part through one buffer.
    Parts(Parts),
    /// Part by part, because its range is not one of whole blocks.
    Unaligned(Unaligned),
}

/// How far a command is whose data moves part by part.
#[derive(Debug)]
pub struct Parts {
    /// Bytes that the disk has served.
    pub done: u32,
    /// The length of a part.
    pub longest: u32,
    pub buffer: PartBuffer,
}

/// Where the buffer of the current part is.
#[derive(Debug)]
pub enum PartBuffer {
    /// It is to be taken.
    Wanted,
    /// It is being filled.
    Filling(Block),
    /// It is at the disk.
    AtDisk,
}

impl Parts {
    /// The length of the part after what is done, of a command of this length.
    pub fn next_len(&self, len: u32) -> u32 {
        self.longest.min(len - self.done)
    }
}

// SAFETY: the pointer is into the image of the port's disk, which outlives the port on whatever
// thread the two are.
unsafe impl Send for Target {}

/// The request being taken: waits for its buffer, then its payload, then room at the disk. One
/// whose payload goes to its place in the image goes to the disk first.
#[derive(Debug)]
pub struct Assembling {
    pub command: Command,
    pub target: Target,
}
