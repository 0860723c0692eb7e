//! Zeroes within data.

use crate::content::Content;
use std::ops::Range;

/// The unit in which zeroes are looked for, in bytes: a cluster of qcow2 as it is made here, and a
/// request that storage does not mind.
const GRAIN: u64 = 64 << 10;

/// The parts of a chunk that begins at byte `offset`, by what they hold: as few as possible. They
/// end at multiples of [`GRAIN`], or with the chunk. Linear in its length.
pub(crate) fn parts(offset: u64, chunk: &[u8]) -> Vec<(Range<usize>, Content)> {
    let mut parts: Vec<(Range<usize>, Content)> = Vec::new();
    let mut from = 0;
    while from < chunk.len() {
        let at = offset + from as u64;
        let left = (GRAIN - at % GRAIN) as usize;
        let to = (from + left).min(chunk.len());
        let content = if is_zero(&chunk[from..to]) { Content::Zeroes } else { Content::Data };
        match parts.last_mut() {
            Some((last, same)) if *same == content => last.end = to,
            _ => parts.push((from..to, content)),
        }
        from = to;
    }
    parts
}

fn is_zero(bytes: &[u8]) -> bool {
    // By words: the compiler makes vectors of this.
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_at_grains_of_the_disk() {
        let grain = GRAIN as usize;
        let mut chunk = vec![0; 4 * grain];
        chunk[grain] = 1;
        let zero = (0..grain, Content::Zeroes);
        let data = (grain..2 * grain, Content::Data);
        assert_eq!(parts(0, &chunk), [zero, data, (2 * grain..4 * grain, Content::Zeroes)]);
        // Its grains begin elsewhere: the one with the byte has 4096 bytes more before it.
        let at = grain - 4096;
        let found = parts(GRAIN - at as u64, &chunk);
        assert_eq!(found[0], (0..at, Content::Zeroes));
        assert_eq!(found[1], (at..at + grain, Content::Data));
        assert!(parts(0, &[]).is_empty());
        assert_eq!(parts(5, &[0, 0, 7]), [(0..3, Content::Data)]);
    }
}
