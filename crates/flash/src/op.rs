use crate::geometry::{BlockId, PageAddr};
use alloc::vec::Vec;

/// One thing that the medium does, in the order in which it must take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads a page and brings it to the controller: a cell read, then a transfer.
    Read {
        /// Which page.
        page: PageAddr,
        /// For what.
        cause: Cause,
    },
    /// Brings a page from the controller and programs it: a transfer, then a cell program.
    Program {
        /// Which page.
        page: PageAddr,
        /// For what.
        cause: Cause,
    },
    /// Copies a page within its plane: a cell read and a cell program, no transfer.
    CopyBack {
        /// From.
        from: PageAddr,
        /// To: a page of the same plane.
        to: PageAddr,
        /// For what.
        cause: Cause,
    },
    /// Erases a block.
    Erase {
        /// Which.
        block: BlockId,
        /// For what.
        cause: Cause,
    },
}

/// What an operation is done for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The owner's own request.
    Host,
    /// Garbage collection: valid pages leave a block, the block is erased.
    Collection,
    /// Wear levelling: cold pages leave a young block, the block is erased.
    Levelling,
}

impl Op {
    /// For what it is done.
    pub fn cause(&self) -> Cause {
        match *self {
            Op::Read { cause, .. }
            | Op::Program { cause, .. }
            | Op::CopyBack { cause, .. }
            | Op::Erase { cause, .. } => cause,
        }
    }
}

/// Takes operations as the translation layer decides on them. A device model puts times on them; a
/// `Vec` keeps them.
pub trait Sink {
    /// One more operation, to take effect after those before it wherever they touch the same block.
    fn op(&mut self, op: Op);
}

impl Sink for Vec<Op> {
    fn op(&mut self, op: Op) {
        self.push(op);
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    fn op(&mut self, op: Op) {
        (**self).op(op);
    }
}

/// Wants to know of no operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ignore;

impl Sink for Ignore {
    fn op(&mut self, _op: Op) {}
}
