//! What a client of a disk does while the power may go, and what must be there afterwards.
//!
//! The operations follow from a seed and a number, so that who checks need not hear of each: a
//! client inside a guest tells the host only what it may rely on.

use crate::ledger::splitmix;
use crate::write_log::SECTOR;
use anyhow::{Context, bail, ensure};
use std::collections::{BTreeMap, HashMap};

/// Bytes of a block.
pub const BLOCK: usize = 4096;

/// What an operation does to its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Writes the pattern of this operation.
    Write,
    /// The same with FUA.
    Forced,
    /// Zeroes.
    Zero,
    /// The same with FUA.
    ForcedZero,
    /// Trims, which zeroes.
    Trim,
}

impl Kind {
    fn has_data(self) -> bool {
        matches!(self, Kind::Write | Kind::Forced)
    }

    /// Whether it is durable when it is complete.
    pub fn is_forced(self) -> bool {
        matches!(self, Kind::Forced | Kind::ForcedZero)
    }
}

/// One operation on a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its number, from 1.
    pub number: u64,
    /// The block.
    pub block: u64,
    /// What it does.
    pub kind: Kind,
}

/// How a round of operations ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundEnd {
    /// With a flush.
    Flush,
    /// Without one, and with a pause.
    Quiet,
}

/// The operations on a disk of so many blocks.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What all operations follow from.
    pub seed: u64,
    /// Blocks of the disk.
    pub blocks: u64,
    /// Operations of a round: each of another block.
    pub round: u64,
    /// The first of those that no flush follows; the first of a round.
    pub quiet_from: u64,
}

impl Plan {
    /// The operation of this number.
    pub fn operation(&self, number: u64) -> Operation {
        let round = number / self.round;
        let dice = splitmix(self.seed ^ splitmix(number));
        // Within a round no block comes twice: the client has them under way at once.
        let first = splitmix(self.seed ^ round);
        let block = first.wrapping_add(number % self.round * 7) % self.blocks;
        let kind = match dice % 16 {
            0 | 1 => Kind::Forced,
            2 => Kind::Zero,
            // A file's is made durable by a flush of all.
            3 if number >= self.quiet_from => Kind::Forced,
            3 => Kind::ForcedZero,
            4 => Kind::Trim,
            _ => Kind::Write,
        };
        Operation { number, block, kind }
    }

    /// What the client does at the end of the round of this operation. A flush makes durable what
    /// should have been so already, so in the end there are none: power that goes then meets a disk
    /// with FUA alone behind what it promised.
    pub fn round_end(&self, number: u64) -> RoundEnd {
        if number < self.quiet_from { RoundEnd::Flush } else { RoundEnd::Quiet }
    }

    /// What a block holds after an operation; after none if the number is 0.
    pub fn content(&self, operation: Operation) -> Vec<u8> {
        (0..BLOCK / SECTOR).flat_map(|sector| self.sector(operation, sector)).collect()
    }

    /// The same of one of its sectors.
    fn sector(&self, operation: Operation, sector: usize) -> [u8; SECTOR] {
        const CELLS: usize = SECTOR / 16;
        let mut bytes = [0; SECTOR];
        if operation.number == 0 || !operation.kind.has_data() {
            return bytes;
        }
        let start = splitmix(operation.block);
        for (at, cell) in bytes.chunks_mut(16).enumerate() {
            let place = splitmix(self.seed ^ start ^ (sector * CELLS + at) as u64);
            cell[..8].copy_from_slice(&place.to_le_bytes());
            cell[8..].copy_from_slice(&operation.number.to_le_bytes());
        }
        bytes
    }
}

/// What the client said it may rely on, and when: the lines that it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// All operations up to this one were flushed.
    Flushed(u64),
    /// This operation had FUA and is complete.
    Forced(u64),
}

impl Promise {
    /// As a line.
    pub fn line(self) -> String {
        match self {
            Promise::Flushed(number) => format!("flushed {number}\n"),
            Promise::Forced(number) => format!("forced {number}\n"),
        }
    }

    /// From a line.
    pub fn parse(line: &str) -> anyhow::Result<Promise> {
        let (kind, number) = line.split_once(' ').with_context(|| format!("'{line}'"))?;
        let number = number.parse().with_context(|| format!("'{line}'"))?;
        match kind {
            "flushed" => Ok(Promise::Flushed(number)),
            "forced" => Ok(Promise::Forced(number)),
            _ => bail!("'{line}': expected flushed or forced, and a number"),
        }
    }
}

/// The operations on each block, and what was promised of them so far.
pub struct Expected {
    plan: Plan,
    /// By block: its operations in order, up to the last that was planned.
    operations: HashMap<u64, Vec<Operation>>,
    /// By block: the operation that must be there, or a later one.
    durable: BTreeMap<u64, u64>,
    flushed: u64,
}

impl Expected {
    /// Nothing promised yet. The client does at most so many operations.
    pub fn new(plan: Plan, operations: u64) -> Expected {
        let mut by_block: HashMap<u64, Vec<Operation>> = HashMap::new();
        for operation in (1..=operations).map(|number| plan.operation(number)) {
            by_block.entry(operation.block).or_default().push(operation);
        }
        Expected { plan, operations: by_block, durable: BTreeMap::new(), flushed: 0 }
    }

    /// From now on this is promised.
    pub fn promise(&mut self, promise: Promise) {
        match promise {
            Promise::Flushed(up_to) => {
                for number in self.flushed + 1..=up_to {
                    self.raise(number);
                }
                self.flushed = self.flushed.max(up_to);
            }
            Promise::Forced(number) => self.raise(number),
        }
    }

    fn raise(&mut self, number: u64) {
        let durable = self.durable.entry(self.plan.operation(number).block).or_default();
        *durable = number.max(*durable);
    }

    /// How many blocks something was promised of.
    pub fn promised(&self) -> usize {
        self.durable.len()
    }

    /// Checks a whole disk after a power cut. A sector has the content of its block after the
    /// operation that was promised, or after a later one: requests may be torn.
    pub fn check(&self, disk: &[u8]) -> anyhow::Result<()> {
        ensure!(disk.len() as u64 >= self.plan.blocks * BLOCK as u64, "{} bytes", disk.len());
        for (block, bytes) in (0..self.plan.blocks).zip(disk.chunks(BLOCK)) {
            let durable = self.durable.get(&block).copied().unwrap_or(0);
            for (sector, found) in bytes.chunks(SECTOR).enumerate() {
                ensure!(
                    self.allows(block, sector, durable, found),
                    "block {block}, sector {sector} holds {}; operation {durable} of it was durable",
                    describe(found)
                );
            }
        }
        Ok(())
    }

    /// Whether a sector may hold this when `durable` is the operation that must be there, or a
    /// later one.
    fn allows(&self, block: u64, sector: usize, durable: u64, found: &[u8]) -> bool {
        let all = self.operations.get(&block).into_iter().flatten();
        let mut later = all.filter(|operation| operation.number >= durable);
        if is_zero(found) {
            return durable == 0 || later.any(|operation| !operation.kind.has_data());
        }
        let number = number_in(found);
        later.any(|operation| {
            operation.number == number && self.plan.sector(*operation, sector) == *found
        })
    }
}

fn is_zero(sector: &[u8]) -> bool {
    sector.iter().all(|byte| *byte == 0)
}

fn number_in(sector: &[u8]) -> u64 {
    u64::from_le_bytes(sector[8..16].try_into().expect("eight bytes"))
}

fn describe(sector: &[u8]) -> String {
    if is_zero(sector) {
        return "zeroes".to_owned();
    }
    format!("what may be operation {}", number_in(sector))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { seed: 5, blocks: 64, round: 8, quiet_from: 80 };

    fn disk_after(operations: u64) -> Vec<u8> {
        let mut disk = vec![0; 64 * BLOCK];
        for operation in (1..=operations).map(|number| PLAN.operation(number)) {
            let at = operation.block as usize * BLOCK;
            disk[at..at + BLOCK].copy_from_slice(&PLAN.content(operation));
        }
        disk
    }

    #[test]
    fn no_block_comes_twice_in_a_round() {
        for round in 0..100 {
            let blocks = (0..8).map(|at| PLAN.operation(round * 8 + at).block);
            assert_eq!(blocks.collect::<std::collections::BTreeSet<_>>().len(), 8);
        }
    }

    #[test]
    fn what_was_flushed_must_be_there_and_later_operations_may_be() {
        let mut expected = Expected::new(PLAN, 80);
        expected.check(&disk_after(0)).unwrap();
        expected.check(&disk_after(80)).unwrap();
        expected.promise(Promise::Flushed(40));
        expected.check(&disk_after(40)).unwrap();
        expected.check(&disk_after(64)).unwrap();
        assert!(expected.check(&disk_after(32)).is_err());
        let foreign = Plan { seed: 6, ..PLAN };
        let mut disk = disk_after(64);
        disk[..BLOCK].copy_from_slice(&foreign.content(foreign.operation(9)));
        assert!(expected.check(&disk).is_err(), "content of another disk");
    }

    #[test]
    fn a_forced_operation_is_promised_alone() {
        // No later operation may zero its block, or zeroes would be right.
        let zeroed_later = |n: u64| {
            let mut later = (n + 1..=80).map(|later| PLAN.operation(later));
            later.any(|o| o.block == PLAN.operation(n).block && !o.kind.has_data())
        };
        let is_forced = |n: &u64| PLAN.operation(*n).kind == Kind::Forced;
        let forced = (1..80).filter(is_forced).find(|n| !zeroed_later(*n)).unwrap();
        let mut expected = Expected::new(PLAN, 80);
        expected.promise(Promise::Forced(forced));
        assert_eq!(expected.promised(), 1);
        assert!(expected.check(&disk_after(forced - 1)).is_err());
        let mut disk = vec![0; 64 * BLOCK];
        let operation = PLAN.operation(forced);
        let at = operation.block as usize * BLOCK;
        disk[at..at + BLOCK].copy_from_slice(&PLAN.content(operation));
        expected.check(&disk).unwrap();
        // One sector of it is missing.
        disk[at + SECTOR..at + 2 * SECTOR].fill(0);
        assert!(expected.check(&disk).is_err());
    }

    #[test]
    fn promises_are_lines() {
        for promise in [Promise::Flushed(3), Promise::Forced(12)] {
            assert_eq!(Promise::parse(promise.line().trim_end()).unwrap(), promise);
        }
        assert!(Promise::parse("lost 3").is_err());
    }
}
