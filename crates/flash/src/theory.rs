//! What collection costs under uniform random writes, by analysis: nothing here knows of the layer.
//!
//! `load` is the part of the blocks in circulation that valid pages would fill. Answers are
//! utilisations of victims u; a page written costs 1/(1 - u) programs.

/// Collecting in the order of filling (Desnoyers' LRW; Robinson's log): a page stays valid through
/// the n host writes between filling and collection with probability exp(-n/U), and victims must
/// give as many pages as hosts write. So (u - 1)/ln u = load.
///
/// `load` is above 0 and below 1.
pub fn first_in_first_out(load: f64) -> f64 {
    bisect(|u| (u - 1.0) / libm::log(u) - load)
}

/// Greedy in the mean field (N blocks, N → ∞; Desnoyers 2012, and Van Houdt's d choices for d → ∞),
/// with N_p pages in a block.
///
/// A block of i valid pages loses one at rate i/U for each host write. With g collections for each
/// host write, g blocks enter at N_p, so every level above the least, m, holds gU/i of them. At the
/// least level blocks are collected at once that arrive when those with m are used up: let h blocks
/// leave it downwards, then it holds hU/m. Pages written and gained are equal: g(N_p - m) + h = 1.
/// All blocks: g(1/N_p + ... + 1/(m+1)) + h/m = 1/(load·N_p). The m for which 0 ≤ h ≤ g is the one;
/// victims have m, or m - 1 where h.
///
/// `load` is above 0 and below 1. O(N_p).
pub fn greedy(load: f64, pages_per_block: u32) -> f64 {
    let blocks = 1.0 / (load * f64::from(pages_per_block));
    let mut harmonic = 0.0;
    for least in (1..=pages_per_block).rev() {
        let m = f64::from(least);
        let free = f64::from(pages_per_block - least);
        // g·harmonic + (1 - g·free)/m = blocks
        let (slope, rest) = (harmonic - free / m, blocks - 1.0 / m);
        if slope != 0.0 {
            let g = rest / slope;
            let h = 1.0 - g * free;
            if g > 0.0 && (0.0..=g).contains(&h) {
                return (m - h / g) / f64::from(pages_per_block);
            }
        }
        harmonic += 1.0 / m;
    }
    0.0
}

fn bisect(f: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (1e-12, 1.0 - 1e-12);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if f(middle) < 0.0 { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}
