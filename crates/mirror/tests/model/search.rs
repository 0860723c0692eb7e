//! Everything that may happen, breadth first, each state once.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};

/// Something that can be searched: a machine and all that is around it.
pub trait System: Hash + Sized {
    /// What it is made of, and what may happen to it.
    type Case;
    /// Something that happens.
    type Event: Copy + PartialEq + Debug;

    fn begin(case: &Self::Case) -> Result<Self, String>;
    /// All that may happen now.
    fn events(&self, case: &Self::Case) -> Vec<Self::Event>;
    /// What happens if nothing goes wrong any more and whoever may act does; `None` at the end.
    fn fair(&self) -> Option<Self::Event>;
    fn step(&self, case: &Self::Case, event: Self::Event) -> Result<Self, String>;
    /// What must hold in each state.
    fn check_always(&self, case: &Self::Case) -> Result<(), String>;
    /// What must hold when nothing is left to happen.
    fn check_end(&self) -> Result<(), String>;
    /// What happened, for people.
    fn story(case: &Self::Case, events: &[Self::Event]) -> String;
}

/// What a search has seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub states: usize,
    pub events: usize,
}

struct Search<'a, S: System> {
    case: &'a S::Case,
    numbers: HashMap<u128, u32>,
    /// For each state the one that it was reached from, and how.
    parents: Vec<(u32, Option<S::Event>)>,
    /// For each state the next one if nothing goes wrong.
    fair: Vec<u32>,
    events: usize,
}

const END: u32 = u32::MAX;

/// A hash of 128 bits, so that two states have the same name about as often as memory fails.
struct Name {
    high: u64,
    low: u64,
}

impl Name {
    fn mix(one: u64, other: u64) -> u64 {
        let product = u128::from(one) * u128::from(other);
        (product >> 64) as u64 ^ product as u64
    }
}

impl Hasher for Name {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.high = Name::mix(self.high ^ word, 0x9e37_79b9_7f4a_7c15) ^ word;
        let turned = word.rotate_left(32);
        self.low = Name::mix(self.low ^ turned, 0xd6e8_feb8_6659_fd93).wrapping_add(turned);
    }

    fn finish(&self) -> u64 {
        self.high
    }
}

fn name(state: &impl Hash) -> u128 {
    let mut name = Name { high: 1, low: 2 };
    state.hash(&mut name);
    u128::from(Name::mix(name.high, 0xa076_1d64_78bd_642f) ^ name.low) << 64
        | u128::from(Name::mix(name.low, 0xe703_7ed1_a0b4_28db) ^ name.high)
}

impl<S: System> Search<'_, S> {
    /// How a state came to be, for people.
    fn story(&self, mut at: u32, last: Option<S::Event>) -> String {
        let mut events: Vec<S::Event> = last.into_iter().collect();
        while let (parent, Some(event)) = self.parents[at as usize] {
            events.push(event);
            at = parent;
        }
        events.reverse();
        S::story(self.case, &events)
    }

    /// The number of a state, and whether it is a new one.
    fn number(&mut self, state: &S, parent: u32, event: Option<S::Event>) -> (u32, bool) {
        let next = self.parents.len() as u32;
        let number = *self.numbers.entry(name(state)).or_insert(next);
        if number == next {
            self.parents.push((parent, event));
            self.fair.push(END);
        }
        (number, number == next)
    }

    fn run(&mut self) -> Result<(), String> {
        let first = S::begin(self.case).map_err(|broken| format!("at the start: {broken}"))?;
        self.number(&first, 0, None);
        let mut here = vec![(0, first)];
        while !here.is_empty() {
            let mut there = Vec::new();
            for (at, world) in here {
                let fair = world.fair();
                if fair.is_none() {
                    world.check_end().map_err(|broken| self.story(at, None) + &broken)?;
                }
                for event in world.events(self.case) {
                    self.events += 1;
                    let next = world
                        .step(self.case, event)
                        .map_err(|broken| self.story(at, Some(event)) + &broken)?;
                    let (number, new) = self.number(&next, at, Some(event));
                    if fair == Some(event) {
                        self.fair[at as usize] = number;
                    }
                    if new {
                        next.check_always(self.case)
                            .map_err(|broken| self.story(number, None) + &broken)?;
                        there.push((number, next));
                    }
                }
            }
            here = there;
        }
        self.check_progress()
    }

    /// From each state the end is reached if nothing goes wrong any more.
    fn check_progress(&self) -> Result<(), String> {
        // 0 unknown, else the walk that came by; 1 if it leads to an end.
        let mut walks = vec![0_u32; self.fair.len()];
        for start in 0..self.fair.len() as u32 {
            let walk = start + 2;
            let mut at = start;
            while at != END && walks[at as usize] == 0 {
                walks[at as usize] = walk;
                at = self.fair[at as usize];
            }
            if at != END && walks[at as usize] == walk {
                return Err(self.story(at, None) + "and so on for ever, whoever does what he can");
            }
            let mut at = start;
            while at != END && walks[at as usize] == walk {
                walks[at as usize] = 1;
                at = self.fair[at as usize];
            }
        }
        Ok(())
    }
}

/// Tries everything that may happen.
pub fn search<S: System>(case: &S::Case) -> Result<Seen, String> {
    let (numbers, parents, fair) = (HashMap::new(), Vec::new(), Vec::new());
    let mut search = Search::<S> { case, numbers, parents, fair, events: 0 };
    search.run()?;
    Ok(Seen { states: search.parents.len(), events: search.events })
}
