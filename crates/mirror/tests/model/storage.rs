//! A storage, from the definition: what it was sent takes effect in any order, and what it has not
//! been told to keep may be lost, in whole or in part.

use headgate_mirror::{Completion, Durability, Extent, Found, Job, Op, Unmap};

/// A content of a block; 0 is zeroes.
pub type Value = u8;

/// A set of contents.
pub type Values = u32;

/// The set that holds one content.
pub fn one(value: Value) -> Values {
    1 << value
}

/// The blocks of an extent: a block is a byte here.
pub fn blocks(extent: Extent) -> std::ops::Range<usize> {
    extent.start().0 as usize..extent.end().0 as usize
}

/// What a discard leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Discards {
    /// Zeroes, in a hole.
    Zero,
    /// What was there.
    Keep,
}

/// A block at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Init {
    Hole,
    Zeroes,
    Data(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Block {
    current: Value,
    /// What it falls back to when a flush fails.
    durable: Value,
    /// What may be found after a crash.
    maybe: Values,
    allocated: bool,
}

/// What is done to a block while something fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    Nothing,
    FirstBlock,
    Everything,
}

/// Whether what was not durable is gone after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cache {
    Stays,
    IsLost,
}

/// How something that was sent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    Done,
    Failed(Written, Cache),
}

/// What a storage says of something that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Effect<const N: usize> {
    pub failed: bool,
    /// What was read; or what was there before a change.
    pub content: [Value; N],
}

impl<const N: usize> Effect<N> {
    pub fn completion(self) -> Completion {
        if self.failed { Completion::Failed } else { Completion::Done }
    }
}

/// Something that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flight<const N: usize> {
    pub job: Job,
    pub op: Op,
    /// What a write brings.
    data: [Value; N],
    /// For a flush: what it need not have made durable.
    still: [Values; N],
    pub effect: Option<Effect<N>>,
    /// Of changes that overlap and took effect, the later has the larger number.
    turn: u8,
}

impl<const N: usize> Flight<N> {
    /// What it makes of a block.
    fn brings(&self, block: usize) -> Option<Value> {
        let (extent, value) = match self.op {
            Op::Write(extent, _) => (extent, self.data[block]),
            Op::Discard(extent) | Op::Zero(extent, ..) => (extent, 0),
            Op::Examine(_) | Op::Read(_) | Op::Flush => return None,
        };
        blocks(extent).contains(&block).then_some(value)
    }

    /// Whether both change the block.
    fn shares(&self, other: &Flight<N>, block: usize) -> bool {
        self.brings(block).is_some() && other.brings(block).is_some()
    }

    pub fn extent(&self) -> Option<Extent> {
        match self.op {
            Op::Examine(extent)
            | Op::Read(extent)
            | Op::Write(extent, _)
            | Op::Discard(extent)
            | Op::Zero(extent, ..) => Some(extent),
            Op::Flush => None,
        }
    }

    /// Whether its failure may be that of the storage's cache.
    pub fn synchronises(&self) -> bool {
        let fua =
            matches!(self.op, Op::Write(_, Durability::Fua) | Op::Zero(_, _, Durability::Fua));
        fua || self.op == Op::Flush
    }

    /// All ways in which it may fail.
    pub fn failures(&self) -> Vec<How> {
        let writes = match self.op {
            Op::Examine(_) | Op::Read(_) | Op::Flush => vec![Written::Nothing],
            _ if self.extent().is_some_and(|extent| extent.len().0 > 1) => {
                vec![Written::Nothing, Written::FirstBlock, Written::Everything]
            }
            _ => vec![Written::Nothing, Written::Everything],
        };
        let caches: &[Cache] = match self.synchronises() {
            true => &[Cache::Stays, Cache::IsLost],
            false => &[Cache::Stays],
        };
        writes.iter().flat_map(|w| caches.iter().map(|c| How::Failed(*w, *c))).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Storage<const N: usize> {
    blocks: [Block; N],
    discards: Discards,
    pub flights: Vec<Flight<N>>,
}

impl<const N: usize> Storage<N> {
    pub fn new(init: [Init; N], discards: Discards) -> Storage<N> {
        let block = |init: Init| {
            let (value, allocated) = match init {
                Init::Hole => (0, false),
                Init::Zeroes => (0, true),
                Init::Data(value) => (value, true),
            };
            Block { current: value, durable: value, maybe: one(value), allocated }
        };
        Storage { blocks: init.map(block), discards, flights: Vec::new() }
    }

    pub fn current(&self, block: usize) -> Value {
        self.blocks[block].current
    }

    pub fn maybe(&self, block: usize) -> Values {
        self.blocks[block].maybe
    }

    pub fn is_allocated(&self, block: usize) -> bool {
        self.blocks[block].allocated
    }

    /// Whether something that was completed may be gone after a crash.
    pub fn is_dirty(&self) -> bool {
        (0..N).any(|block| {
            let coming = self.flights.iter().filter_map(|f| f.brings(block)).map(one);
            let coming = coming.fold(0, |all, value| all | value);
            let block = &self.blocks[block];
            block.maybe & !coming & !one(block.current) != 0
        })
    }

    pub fn send(&mut self, job: Job, op: Op, data: [Value; N]) {
        let mut flight = Flight { job, op, data, still: [0; N], effect: None, turn: 0 };
        for block in 0..N {
            if let Some(value) = flight.brings(block) {
                self.blocks[block].maybe |= one(value);
                for other in self.flights.iter_mut().filter(|f| f.op == Op::Flush) {
                    other.still[block] |= one(value);
                }
            }
            if op == Op::Flush {
                flight.still[block] = self.not_kept_by_a_flush(block);
            }
        }
        self.flights.push(flight);
        self.flights.sort_by_key(|f| (format_key(f.job), f.effect));
    }

    /// A flush keeps what was completed before it was sent. What is under way it may keep or not.
    fn not_kept_by_a_flush(&self, block: usize) -> Values {
        let mut still = one(self.blocks[block].current);
        for other in &self.flights {
            if let Some(value) = other.brings(block) {
                still |= one(value);
                still |= other.effect.map_or(0, |effect| one(effect.content[block]));
            }
        }
        still
    }

    /// Something takes effect; whoever sent it does not know yet.
    pub fn take_effect(&mut self, at: usize, how: How) {
        let mut flight = self.flights.remove(at);
        flight.turn = self.next_turn(&flight);
        let before = self.blocks.map(|block| block.current);
        let failed = how != How::Done;
        for block in 0..N {
            let reached = match how {
                How::Done | How::Failed(Written::Everything, _) => true,
                How::Failed(Written::Nothing, _) => false,
                How::Failed(Written::FirstBlock, _) => {
                    flight.extent().is_some_and(|e| blocks(e).start == block)
                }
            };
            if let (Some(value), true) = (flight.brings(block), reached) {
                self.change(block, flight.op, value, how);
            }
        }
        if flight.op == Op::Flush && !failed {
            for (block, still) in self.blocks.iter_mut().zip(flight.still) {
                block.maybe &= still;
                if block.maybe & one(block.durable) == 0 {
                    // The oldest that a flush may have kept, if there is one before the newest.
                    let kept = (0..32).find(|v| block.maybe & one(*v) != 0 && *v != block.current);
                    block.durable = kept.unwrap_or(block.current);
                }
            }
        }
        if let How::Failed(_, Cache::IsLost) = how {
            for block in &mut self.blocks {
                block.current = block.durable;
            }
            // Nor does a flush that is under way find any more what is lost.
            for flush in self.flights.iter_mut().filter(|f| f.op == Op::Flush) {
                for (still, block) in flush.still.iter_mut().zip(&self.blocks) {
                    *still |= one(block.durable);
                }
            }
        }
        flight.effect = Some(Effect { failed, content: before });
        self.flights.push(flight);
        self.flights.sort_by_key(|f| (format_key(f.job), f.effect));
    }

    fn next_turn(&self, flight: &Flight<N>) -> u8 {
        let shared = |other: &&Flight<N>| (0..N).any(|block| flight.shares(other, block));
        let others = self.flights.iter().filter(|other| other.effect.is_some()).filter(shared);
        others.map(|other| other.turn + 1).max().unwrap_or(0)
    }

    /// Whoever sent it hears of its end. What it has changed is completed, so a flush that is sent
    /// from now on does not keep anything older.
    pub fn report(&mut self, at: usize) -> Flight<N> {
        let flight = self.flights.remove(at);
        let nothing = matches!(flight.op, Op::Discard(_)) && self.discards == Discards::Keep;
        if nothing || flight.effect.is_none_or(|effect| effect.failed) {
            return flight;
        }
        for other in self.flights.iter_mut().filter(|other| other.turn < flight.turn) {
            for block in 0..N {
                let shared = flight.shares(other, block);
                if let (true, Some(value)) = (shared, flight.brings(block))
                    && let Some(effect) = &mut other.effect
                {
                    effect.content[block] = value;
                }
            }
        }
        self.flights.sort_by_key(|f| (format_key(f.job), f.effect));
        flight
    }

    fn change(&mut self, at: usize, op: Op, value: Value, how: How) {
        if matches!(op, Op::Discard(_)) && self.discards == Discards::Keep {
            return;
        }
        let others = self.flights.iter().filter_map(|f| f.brings(at)).map(one);
        let others = others.fold(0, |all, value| all | value);
        let block = &mut self.blocks[at];
        block.current = value;
        block.allocated = !matches!(op, Op::Discard(_) | Op::Zero(_, Unmap::May, _));
        let fua = matches!(op, Op::Write(_, Durability::Fua) | Op::Zero(_, _, Durability::Fua));
        if fua && how == How::Done {
            block.durable = value;
            block.maybe = one(value) | others;
        }
    }

    /// What an examination says: what the extent begins with, and how far that goes.
    pub fn examine(&self, extent: Extent) -> (Found, u64) {
        let kind = |block: &Block| match block {
            Block { allocated: false, .. } => Found::Hole,
            Block { current: 0, .. } => Found::Zeroes,
            _ => Found::Data,
        };
        let here = &self.blocks[blocks(extent)];
        let first = kind(&here[0]);
        (first, here.iter().take_while(|block| kind(block) == first).count() as u64)
    }
}

/// An order of flights that does not depend on when they were sent.
fn format_key(job: Job) -> (u8, u64) {
    match job {
        Job::Request(id) => (0, id.0),
        Job::Copy(id) => (1, id.0.into()),
        Job::LastFlush => (2, 0),
    }
}
