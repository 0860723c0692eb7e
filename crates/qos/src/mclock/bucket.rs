//! What a limit with a peak allows in the long run.
//!
//! # Definition
//! A disk has a limit l, a peak p > l and a time T. Its tokens are those of a bucket that is filled
//! at l and holds `D·l` IOs, where
//!
//! ```text
//! D  =  max(T·(p/l - 1), H)
//! ```
//!
//! in time at the limit, and that starts full. A dispatch takes its cost and needs only that
//! nothing is owed: the bucket runs empty at the end of the last. Beside that the disk has a limit
//! at rate p (`limit.rs`), which says how fast tokens may be used.
//!
//! # Never more
//! In any time W the disk gets at most
//!
//! ```text
//! l·W + max((p - l)·T, l·H) + c        and what a limit of p allows in W.
//! ```
//!
//! *Proof.* Let d be the first dispatch and t the last. The tag is raised to `d - D` at least
//! before d advances it, and is `t` or less at t, so that it advances by `t - d + D` at most before
//! the last: `l·(W + D)`. The rest is the theorem of a limit of p. ∎
//!
//! # Never less
//! A disk with a full bucket that the storage lets go at p does so for T: after x at p it has used
//! `p·x` and been given `l·x`, and the bucket is empty when `(p - l)·x = D·l`. While the bucket
//! holds a backlogged disk back, the disk has had l or more since its tag was last raised, and D of
//! l on top. Tokens for D - H are lost to nobody: they are what the bucket holds.
//!
//! That is QEMU's `iops-total` (l), `iops-total-max` (p) and `iops-total-max-length` (T), with one
//! difference. QEMU's bucket holds `p·T` and goes on leaking at l meanwhile, so that a burst at p
//! lasts `T·p/(p - l)` there, and T here.

use crate::rate::Tag;
use core::num::NonZeroU64;

/// A limit, and how far above it and for how long the disk may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rates {
    pub(super) limit: NonZeroU64,
    pub(super) peak: Option<PeakRate>,
}

/// A rate above the limit, and for how long, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeakRate {
    pub(super) rate: NonZeroU64,
    pub(super) time: u16,
}

impl Rates {
    /// The most that is ever allowed.
    pub(super) fn highest(self) -> NonZeroU64 {
        self.peak.map_or(self.limit, |peak| peak.rate)
    }

    /// What the bucket holds beyond the limit, as time at the limit, rounded down: below 2^51 by
    /// the bounds of a policy. None without a peak.
    pub(super) fn depth(self, least: u64) -> Option<u64> {
        self.peak.map(|peak| {
            let beyond = u128::from(peak.rate.get().saturating_sub(self.limit.get()));
            let tokens = beyond * u128::from(peak.time) * 1_000_000_000;
            let depth = tokens / u128::from(self.limit.get());
            u64::try_from(depth).unwrap_or(u64::MAX).min(DEEPEST).max(least)
        })
    }
}

/// Less than the inner clock shows when it starts.
const DEEPEST: u64 = 1 << 51;

/// How full it is when a disk gets one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// A disk that was not there before has sent nothing.
    Full,
    /// What a disk got before it had this limit is not known.
    Empty,
}

/// Tokens beyond a limit, as the lateness of a tag. Times are inner nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    tag: Tag,
    depth: u64,
}

impl Bucket {
    /// A full one.
    pub(super) fn full(now: u64, limit: NonZeroU64, depth: u64) -> Bucket {
        Bucket { tag: Tag::new(now - depth, limit), depth }
    }

    /// An empty one, of which so much is owed already.
    pub(super) fn owing(tag: Tag, depth: u64) -> Bucket {
        Bucket { tag, depth }
    }

    /// What is owed: the tag, where it is ahead.
    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    /// From when on the next request may go.
    #[inline]
    pub(super) fn open(&self) -> u64 {
        self.tag.at
    }

    /// A dispatch.
    #[inline]
    pub(super) fn charge(&mut self, amount: u64, now: u64) {
        self.tag.raise_to(now - self.depth);
        self.tag.advance(amount);
    }

    /// Service at other servers: charges `amount`, but no further than `bound`.
    pub(super) fn charge_elsewhere(&mut self, amount: u128, bound: u64, now: u64) {
        self.tag.raise_to(now - self.depth);
        self.tag.advance_within(amount, bound);
    }
}
