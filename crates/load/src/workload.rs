//! Workloads: the mix of requests, their sizes and offsets. Pure and repeatable from a seed.

use crate::link::{Durability, Kind, Op};
pub use crate::priority::Priority;
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::SplitMix64;
use std::str::FromStr;

/// A repeatable sequence of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Rng(SplitMix64);

impl Rng {
    /// The sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(SplitMix64::seed_from_u64(seed))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, 0 when `bound` is 0. The bias is below `bound` / 2⁶⁴.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// The finaliser of SplitMix64: every input bit moves every output bit.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Values and how often each is to be drawn: `4k:70,64k:30`, or one value alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weighted<T> {
    /// Each value with the sum of the weights up to and including its own.
    choices: Vec<(u64, T)>,
}

impl<T: Copy> Weighted<T> {
    /// One value, always.
    pub fn only(value: T) -> Weighted<T> {
        Weighted { choices: vec![(1, value)] }
    }

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = T> + '_ {
        self.choices.iter().map(|(_, value)| *value)
    }

    /// The same weights for other values.
    pub fn map<U>(&self, f: impl Fn(T) -> U) -> Weighted<U> {
        Weighted {
            choices: self.choices.iter().map(|(up_to, value)| (*up_to, f(*value))).collect(),
        }
    }

    /// Draws one.
    pub fn draw(&self, rng: &mut Rng) -> T {
        let [.., (total, last)] = self.choices.as_slice() else {
            unreachable!("never empty, see `from_str`")
        };
        if self.choices.len() == 1 {
            return *last;
        }
        let ticket = rng.below(*total);
        self.choices.iter().find(|(up_to, _)| ticket < *up_to).map_or(*last, |(_, value)| *value)
    }
}

impl<T: FromStr> FromStr for Weighted<T>
where
    T::Err: std::fmt::Display,
{
    type Err = String;

    fn from_str(text: &str) -> Result<Weighted<T>, String> {
        let mut sum = 0u64;
        let mut choices = Vec::new();
        for item in text.split(',') {
            let (value, weight) = match item.split_once(':') {
                None => (item, 1),
                Some((value, weight)) => {
                    let weight: u32 = weight.parse().map_err(|_| {
                        format!(
                            "'{weight}' is not a weight: a whole number from 1 to {} was expected",
                            u32::MAX
                        )
                    })?;
                    (value, weight)
                }
            };
            if weight == 0 {
                return Err(format!(
                    "'{item}' has weight 0: leave it out, or give a weight from 1"
                ));
            }
            sum = sum.saturating_add(u64::from(weight));
            choices.push((sum, value.parse().map_err(|e: T::Err| e.to_string())?));
        }
        Ok(Weighted { choices })
    }
}

/// Odd, so that adding it goes through all 16-bit values; far, so that neighbours differ in class
/// and hint.
const STRIDE: u16 = 0x9e37;

/// The source of a request's priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Always the same.
    This(Priority),
    /// All 65,536 values, in a mixed order, each once before any comes again: what a hostile guest
    /// may write.
    EachInTurn,
}

impl FromStr for Given {
    type Err = String;

    /// `each`, or a [`Priority`].
    fn from_str(text: &str) -> Result<Given, String> {
        match text {
            "each" => Ok(Given::EachInTurn),
            _ => text.parse().map(Given::This).map_err(|e| format!("{e}, or each")),
        }
    }
}

/// Requests outstanding kept apart by priority: every slot of a queue belongs to one, so that none
/// waits for another's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streams(Vec<Priority>);

impl Streams {
    /// `depth` slots divided by weight.
    ///
    /// # Errors
    /// A priority would get none.
    pub fn new(priorities: &Weighted<Given>, depth: usize) -> Result<Streams, String> {
        let total = priorities.choices.last().map_or(1, |(total, _)| *total).max(1);
        let mut slots = Vec::with_capacity(depth);
        for slot in 0..depth as u64 {
            let ticket = slot.saturating_mul(total) / depth as u64;
            let choice = priorities.choices.iter().find(|(up_to, _)| ticket < *up_to);
            match choice.map(|(_, given)| *given) {
                Some(Given::This(priority)) => slots.push(priority),
                Some(Given::EachInTurn) | None => {
                    return Err("--streams: 'each' is not one priority".into());
                }
            }
        }
        for given in priorities.values() {
            if !slots.iter().any(|priority| given == Given::This(*priority)) {
                return Err(format!(
                    "--streams: a --depth of {depth} leaves one of the priorities without a request"
                ));
            }
        }
        Ok(Streams(slots))
    }

    /// The priority that a slot, counted over all queues, belongs to.
    pub fn of(&self, slot: usize) -> Priority {
        self.0[slot % self.0.len()]
    }

    /// Each priority once.
    pub fn priorities(&self) -> Vec<Priority> {
        let mut all = self.0.clone();
        all.dedup();
        all
    }
}

/// In which order places are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Uniformly at random.
    Random,
    /// One after the other, from the start again at the end.
    Sequential,
}

/// The part of a disk that the load touches: `first .. end`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub first: u64,
    /// First byte behind it.
    pub end: u64,
}

/// The recipe of a workload.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Reads among data requests, in percent.
    pub read_percent: u64,
    /// Write-zeroes among the requests that are not reads, in percent.
    pub zero_percent: u64,
    /// Sizes, in bytes.
    pub sizes: Weighted<u32>,
    /// Priorities.
    pub priorities: Weighted<Given>,
    /// Places.
    pub order: Order,
    /// Writes between two flushes; 0 for none.
    pub flush_every: u64,
    /// Writes that ask for stable storage themselves, in percent.
    pub fua_percent: u64,
}

/// The stream of requests that a mix makes on a span.
#[derive(Clone, Debug)]
pub struct Workload {
    mix: Mix,
    span: Span,
    align: u64,
    cursor: u64,
    writes_since_flush: u64,
    /// The next value of [`Given::EachInTurn`].
    turn: u16,
    rng: Rng,
}

impl Workload {
    /// A stream repeatable from `seed`. Places are multiples of the smallest size.
    ///
    /// # Errors
    /// The span is shorter than the largest request.
    pub fn new(mix: Mix, span: Span, seed: u64) -> Result<Workload, String> {
        let align = mix.sizes.values().min().map_or(1, u64::from).max(1);
        let largest = mix.sizes.values().max().map_or(0, u64::from);
        let first = span.first.next_multiple_of(align);
        if first.checked_add(largest).is_none_or(|end| end > span.end) {
            return Err(format!(
                "a request of {largest} bytes does not fit between bytes {first} and {}: the disk or --offset-range is too small",
                span.end
            ));
        }
        let span = Span { first, end: span.end };
        Ok(Workload {
            mix,
            span,
            align,
            cursor: first,
            writes_since_flush: 0,
            turn: 0,
            rng: Rng::new(seed),
        })
    }

    /// The next request.
    pub fn next_op(&mut self) -> Op {
        if self.mix.flush_every > 0 && self.writes_since_flush >= self.mix.flush_every {
            self.writes_since_flush = 0;
            let priority = self.priority();
            return Op {
                kind: Kind::Flush,
                offset: 0,
                len: 0,
                durability: Durability::AtFlush,
                priority,
            };
        }
        let kind = if self.rng.below(100) < self.mix.read_percent {
            Kind::Read
        } else if self.rng.below(100) < self.mix.zero_percent {
            Kind::WriteZeroes
        } else {
            Kind::Write
        };
        let len = self.mix.sizes.draw(&mut self.rng);
        let offset = self.place(u64::from(len));
        let mut durability = Durability::AtFlush;
        if kind != Kind::Read {
            self.writes_since_flush += 1;
            if self.rng.below(100) < self.mix.fua_percent {
                durability = Durability::Fua;
            }
        }
        Op { kind, offset, len, durability, priority: self.priority() }
    }

    fn priority(&mut self) -> Priority {
        match self.mix.priorities.draw(&mut self.rng) {
            Given::This(priority) => priority,
            Given::EachInTurn => {
                self.turn = self.turn.wrapping_add(STRIDE);
                Priority(self.turn)
            }
        }
    }

    fn place(&mut self, len: u64) -> u64 {
        match self.mix.order {
            Order::Random => {
                let places = (self.span.end - self.span.first - len) / self.align + 1;
                self.span.first + self.rng.below(places) * self.align
            }
            Order::Sequential => {
                if self.cursor + len > self.span.end {
                    self.cursor = self.span.first;
                }
                let place = self.cursor;
                self.cursor += len;
                place
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mix(sizes: &str, order: Order) -> Mix {
        Mix {
            read_percent: 70,
            zero_percent: 0,
            sizes: sizes.parse().unwrap(),
            priorities: Weighted::only(Given::This(Priority(0))),
            order,
            flush_every: 10,
            fua_percent: 50,
        }
    }

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        let mut rng = super::Rng::new(1);
        let drawn = [(); 3].map(|()| rng.next_u64());
        assert_eq!(drawn, [0x910a_2dec_8902_5cc1, 0xbeeb_8da1_658e_ec67, 0xf893_a2ee_fb32_555e]);
    }

    proptest! {
        #[test]
        fn requests_stay_inside_the_span_and_aligned(
            first in 0u64..100_000, length in 65_536u64..10_000_000, seed: u64, sequential: bool,
        ) {
            let order = if sequential { Order::Sequential } else { Order::Random };
            let span = Span { first, end: first + length + 4096 };
            let mut workload = Workload::new(mix("4096:70,65536:30", order), span, seed).unwrap();
            for _ in 0..200 {
                let op = workload.next_op();
                if op.kind != Kind::Flush {
                    prop_assert!(op.offset >= first && op.offset + u64::from(op.len) <= span.end);
                    prop_assert_eq!(op.offset % 4096, 0);
                }
            }
        }

        #[test]
        fn the_same_seed_makes_the_same_requests(seed: u64) {
            let span = Span { first: 0, end: 1 << 30 };
            let mut a = Workload::new(mix("4096", Order::Random), span, seed).unwrap();
            let mut b = a.clone();
            for _ in 0..50 {
                prop_assert_eq!(a.next_op(), b.next_op());
            }
        }
    }

    #[test]
    fn proportions_are_as_asked() {
        let span = Span { first: 0, end: 1 << 30 };
        let mut workload = Workload::new(mix("4096:70,65536:30", Order::Random), span, 1).unwrap();
        let ops: Vec<Op> = (0..20_000).map(|_| workload.next_op()).collect();
        let count = |f: &dyn Fn(&Op) -> bool| ops.iter().filter(|op| f(op)).count();
        let flushes = count(&|op| op.kind == Kind::Flush);
        let data = ops.len() - flushes;
        let near = |part: usize, whole: usize, percent: usize| {
            (part * 100).abs_diff(whole * percent) < whole * 2
        };
        assert!(near(count(&|op| op.kind == Kind::Read), data, 70));
        assert!(near(count(&|op| op.len == 65536), data, 30));
        assert!(near(
            count(&|op| op.durability == Durability::Fua),
            count(&|op| op.kind == Kind::Write),
            50
        ));
        assert_eq!(flushes, count(&|op| op.kind == Kind::Write) / 10);
    }

    #[test]
    fn a_span_too_small_is_refused() {
        let error = Workload::new(mix("65536", Order::Random), Span { first: 0, end: 65535 }, 0)
            .unwrap_err();
        assert!(error.contains("--offset-range"), "{error}");
        assert!(
            Workload::new(mix("65536", Order::Random), Span { first: 1, end: 65536 }, 0).is_err()
        );
        assert!(
            Workload::new(mix("65536", Order::Random), Span { first: 0, end: 65536 }, 0).is_ok()
        );
    }

    #[test]
    fn each_value_comes_in_turn() {
        let priorities = "each".parse().unwrap();
        let mix = Mix { priorities, ..mix("4096", Order::Random) };
        let mut workload = Workload::new(mix, Span { first: 0, end: 1 << 20 }, 1).unwrap();
        let seen: std::collections::BTreeSet<u16> =
            (0..=u16::MAX).map(|_| workload.next_op().priority.0).collect();
        assert_eq!(seen.len(), 1 << 16);
    }

    #[test]
    fn streams_have_their_part_of_the_depth() {
        let streams = |text: &str, depth| Streams::new(&text.parse().unwrap(), depth);
        let [rt, be] = [Priority(0x2000), Priority(0x4007)];
        let two = streams("rt/0:1,be/7:3", 8).unwrap();
        let slots: Vec<Priority> = (0..16).map(|slot| two.of(slot)).collect();
        let queue = [rt, rt, be, be, be, be, be, be];
        assert_eq!((&slots[..8], &slots[8..]), (&queue[..], &queue[..]));
        assert_eq!(two.priorities(), [rt, be]);
        assert!(streams("rt/0:30,be/7:1", 8).unwrap_err().contains("--depth of 8"));
        assert!(streams("each", 8).unwrap_err().contains("'each'"));
    }

    #[test]
    fn weights_and_priorities_parse_or_say_what_was_expected() {
        assert!("1:0".parse::<Weighted<u32>>().unwrap_err().contains("weight 0"));
        assert!("1:x".parse::<Weighted<u32>>().is_err());
        assert!("".parse::<Weighted<u32>>().is_err());
        for (text, value) in [
            ("none", 0),
            ("rt/0", 0x2000),
            ("be/7", 0x4007),
            ("idle", 0x6000),
            ("0x4009", 0x4009),
            ("5", 5),
            ("fine/200", 0x2e44),
        ] {
            assert_eq!(text.parse(), Ok(Priority(value)), "{text}");
        }
        for text in
            ["rt", "rt/8", "xx/1", "0x10000", "70000", "idle/1", "fine/0", "fine/255", "each"]
        {
            assert!(text.parse::<Priority>().is_err(), "{text}");
        }
    }
}
