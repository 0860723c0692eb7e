//! What a guest may see of one disk, block by block: a register that its requests change at one
//! instant each, between their arrival and their answer.

use super::storage::{Value, Values, blocks, one};
use headgate_mirror::{Durability, Request};

/// The most requests without an answer.
pub const SLOTS: usize = 4;

/// One thing that may have happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Past {
    value: Value,
    /// Discarded: it reads as it was or as zeroes, from one read to the next.
    discarded: bool,
    /// For each request under way: 0 if it has not happened yet, else 1, and for a read also what
    /// it saw.
    happened: [u8; SLOTS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked<const N: usize> {
    request: Request,
    value: Value,
    /// What a crash may leave of each block once it is answered, if it makes anything durable.
    leaves: [Values; N],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guest<const N: usize> {
    pasts: [Vec<Past>; N],
    asked: [Option<Asked<N>>; SLOTS],
    /// What may be found after a crash.
    after_crash: [Values; N],
}

impl<const N: usize> Guest<N> {
    pub fn new(content: [Value; N]) -> Guest<N> {
        let past = |value| vec![Past { value, discarded: false, happened: [0; SLOTS] }];
        Guest { pasts: content.map(past), asked: [None; SLOTS], after_crash: content.map(one) }
    }

    /// What the request makes of a block.
    fn brings(&self, slot: usize, block: usize) -> Option<Value> {
        let asked = self.asked[slot]?;
        let (extent, value) = match asked.request {
            Request::Write(extent, _) => (extent, asked.value),
            Request::Discard(extent) | Request::Zero(extent, ..) => (extent, 0),
            Request::Read(_) | Request::Flush => return None,
        };
        blocks(extent).contains(&block).then_some(value)
    }

    /// A request arrives.
    pub fn ask(&mut self, slot: usize, request: Request, value: Value) {
        self.asked[slot] = Some(Asked { request, value, leaves: [0; N] });
        for block in 0..N {
            if let Some(value) = self.brings(slot, block) {
                self.after_crash[block] |= one(value);
                for other in self.asked.iter_mut().flatten() {
                    other.leaves[block] |= one(value);
                }
            }
            self.close(block);
            self.pasts[block].sort_unstable();
        }
        let leaves: [Values; N] = std::array::from_fn(|block| {
            let coming = (0..SLOTS).filter_map(|slot| self.brings(slot, block)).map(one);
            let coming = coming.fold(0, |all, value| all | value);
            match request {
                // What was answered before, or anything later.
                Request::Flush => coming | self.possible(block),
                // It itself, or what it overlaps in time.
                Request::Write(_, Durability::Fua) | Request::Zero(_, _, Durability::Fua)
                    if self.brings(slot, block).is_some() =>
                {
                    coming
                }
                _ => Values::MAX,
            }
        });
        if let Some(asked) = &mut self.asked[slot] {
            asked.leaves = leaves;
        }
    }

    /// What the block may read as if nothing else comes.
    pub fn possible(&self, block: usize) -> Values {
        self.pasts[block].iter().fold(0, |all, past| all | past.reads())
    }

    pub fn after_crash(&self, block: usize) -> Values {
        self.after_crash[block]
    }

    /// Adds what may have happened by now.
    fn close(&mut self, block: usize) {
        let mut at = 0;
        while let Some(past) = self.pasts[block].get(at).copied() {
            at += 1;
            for slot in (0..SLOTS).filter(|slot| past.happened[*slot] == 0) {
                let Some(asked) = self.asked[slot] else { continue };
                let mut next = past;
                if let Some(value) = self.brings(slot, block) {
                    next.happened[slot] = 1;
                    match asked.request {
                        Request::Discard(_) => next.discarded = true,
                        _ => (next.value, next.discarded) = (value, false),
                    }
                    self.add(block, next);
                } else if let Request::Read(extent) = asked.request
                    && blocks(extent).contains(&block)
                {
                    for seen in (0..32).filter(|seen| past.reads() & one(*seen) != 0) {
                        next.happened[slot] = 1 + seen;
                        self.add(block, next);
                    }
                }
            }
        }
    }

    fn add(&mut self, block: usize, past: Past) {
        if !self.pasts[block].contains(&past) {
            self.pasts[block].push(past);
        }
    }

    /// A request is answered. For a read with what it returns.
    pub fn answer(
        &mut self,
        slot: usize,
        failed: bool,
        read: Option<[Value; N]>,
    ) -> Result<(), String> {
        let asked = self.asked[slot].ok_or("an answer to nothing")?;
        for block in 0..N {
            let concerned = asked.request.extent().is_some_and(|e| blocks(e).contains(&block));
            if concerned && !failed {
                let happened = match (asked.request, read) {
                    (Request::Read(_), Some(content)) => 1 + content[block],
                    (Request::Read(_), None) => return Err("a read without content".into()),
                    _ => 1,
                };
                self.pasts[block].retain(|past| past.happened[slot] == happened);
                if self.pasts[block].is_empty() {
                    return Err(format!(
                        "block {block} cannot read as {} here: {:?}",
                        happened - 1,
                        asked.request
                    ));
                }
            }
            if !failed {
                self.after_crash[block] &= asked.leaves[block];
            }
        }
        self.asked[slot] = None;
        for pasts in &mut self.pasts {
            pasts.iter_mut().for_each(|past| past.happened[slot] = 0);
            pasts.sort_unstable();
            pasts.dedup();
        }
        Ok(())
    }

    /// A storage lost what was not durable, as it may when it fails to make it so. Until the
    /// failure is told that may go and come, between one read and the next.
    pub fn lose_cache(&mut self) {
        for block in 0..N {
            let kept = self.after_crash[block];
            // Whoever asked for durability meanwhile may have been told of what was left.
            self.asked.iter_mut().flatten().for_each(|asked| asked.leaves[block] |= kept);
            let mut known = 0;
            while known < self.pasts[block].len() {
                known = self.pasts[block].len();
                for past in self.pasts[block].clone() {
                    for value in (0..32).filter(|value| kept & one(*value) != 0) {
                        self.add(block, Past { value, discarded: false, ..past });
                    }
                }
                self.close(block);
            }
            self.pasts[block].sort_unstable();
        }
    }
}

impl Past {
    fn reads(&self) -> Values {
        one(self.value) | if self.discarded { one(0) } else { 0 }
    }
}
