//! Mutations of inputs: the ways in which a stream of bytes is usually wrong.

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Numbers at which parsers tend to go wrong.
const EDGES: [u64; 18] = [
    0,
    1,
    2,
    3,
    7,
    15,
    16,
    31,
    127,
    128,
    255,
    256,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];

/// A number below `end`, which is above zero.
fn below(random: &mut Xoshiro256PlusPlus, end: usize) -> usize {
    (random.next_u64() % end as u64) as usize
}

/// Makes a new input from one of `inputs`: one to eight changes, at most `longest` bytes.
///
/// # Panics
/// When there are no inputs.
pub fn mutate(
    random: &mut Xoshiro256PlusPlus,
    inputs: &[Vec<u8>],
    words: &[&str],
    longest: usize,
) -> Vec<u8> {
    assert!(!inputs.is_empty(), "mutations are made from something");
    let mut input = inputs[below(random, inputs.len())].clone();
    for _ in 0..=below(random, 8) {
        let other = &inputs[below(random, inputs.len())];
        change(random, &mut input, other, words);
    }
    input.truncate(longest);
    input
}

/// A range of `bytes`, short ones more often.
fn range(random: &mut Xoshiro256PlusPlus, bytes: &[u8]) -> std::ops::Range<usize> {
    if bytes.is_empty() {
        return 0..0;
    }
    let start = below(random, bytes.len());
    let bound = if random.next_u64().is_multiple_of(4) { bytes.len() } else { 16 };
    let end = start + 1 + below(random, bound);
    start..end.min(bytes.len())
}

fn change(random: &mut Xoshiro256PlusPlus, input: &mut Vec<u8>, other: &[u8], words: &[&str]) {
    let at = below(random, input.len() + 1);
    match random.next_u64() % 12 {
        0 | 1 if at < input.len() => input[at] ^= 1 << (random.next_u64() % 8),
        2 | 3 if at < input.len() => input[at] = random.next_u64() as u8,
        4 if at < input.len() => {
            input[at] = input[at].wrapping_add((random.next_u64() % 9) as u8).wrapping_sub(4);
        }
        5 => {
            let value = EDGES[below(random, EDGES.len())];
            let width = 1 << (random.next_u64() % 4);
            let bytes = if random.next_u64().is_multiple_of(2) {
                value.to_le_bytes()[..width].to_vec()
            } else {
                value.to_be_bytes()[8 - width..].to_vec()
            };
            put(random, input, at, &bytes);
        }
        6 => drop(input.drain(range(random, input))),
        7 => {
            let part = input[range(random, input)].to_vec();
            put(random, input, at, &part);
        }
        8 => {
            let part = other[range(random, other)].to_vec();
            put(random, input, at, &part);
        }
        9 => {
            input.truncate(at);
            let from = below(random, other.len() + 1);
            input.extend_from_slice(&other[from..]);
        }
        10 => {
            let fresh: Vec<u8> = (0..=below(random, 8)).map(|_| random.next_u64() as u8).collect();
            put(random, input, at, &fresh);
        }
        _ if !words.is_empty() => {
            let word = words[below(random, words.len())];
            put(random, input, at, word.as_bytes());
        }
        // Numbers as text.
        _ => {
            let value = EDGES[below(random, EDGES.len())];
            put(random, input, at, value.to_string().as_bytes());
        }
    }
}

/// In place of what is there, or between.
fn put(random: &mut Xoshiro256PlusPlus, input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let replaced = if random.next_u64().is_multiple_of(2) { bytes.len() } else { 0 };
    let end = (at + replaced).min(input.len());
    input.splice(at..end, bytes.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;

    #[test]
    fn the_same_seed_makes_the_same_inputs_and_they_are_bounded() {
        let inputs = [b"hello world, how are you".to_vec(), Vec::new(), vec![0; 40]];
        let made = |seed| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            (0..2_000).map(|_| mutate(&mut random, &inputs, &["word"], 32)).collect::<Vec<_>>()
        };
        assert_eq!(made(1), made(1));
        assert_ne!(made(1), made(2));
        assert!(made(1).iter().all(|input| input.len() <= 32));
        let different: std::collections::BTreeSet<_> = made(1).into_iter().collect();
        assert!(different.len() > 1_500, "{}", different.len());
    }
}
