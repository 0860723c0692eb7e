//! Which piece is copied next: pure, and the same for every source.

use crate::content::{Content, Run};
use std::collections::VecDeque;

/// How much is zeroed by one request at most, in bytes.
const ZERO_STEP: u64 = 32 << 20;
/// How much one question about content covers, in bytes.
const STATUS_STEP: u64 = 1 << 30;

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask the source what this range holds, and say it with [`Walk::learn`].
    Ask { offset: u64, len: u64 },
    /// Copy `read` bytes from there on. The piece takes `len` bytes of the target: the rest of them
    /// is zeroes.
    Data { offset: u64, read: u64, len: u64 },
    /// Zero this range.
    Zero { offset: u64, len: u64 },
    /// Everything was given out.
    End,
}

/// A walk over a source that is copied into a target of at least its size. Pieces are given out in
/// their order, are apart, and cover the whole target. They begin and end at multiples of the
/// granule, or at the end of the source or target.
#[derive(Debug)]
pub(crate) struct Walk {
    source: u64,
    target: u64,
    granule: u64,
    chunk: u64,
    /// Everything before was given out.
    at: u64,
    /// What is known: ends of runs, ascending. The first begins at or before `at`.
    known: VecDeque<(u64, Content)>,
}

/// A run that ends nowhere: the source contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadRun(pub(crate) u64);

impl Walk {
    /// `chunk`, the longest piece of data, is a multiple of `granule`, a power of two.
    pub(crate) fn new(source: u64, target: u64, granule: u64, chunk: u64) -> Walk {
        let known = VecDeque::new();
        Walk { source, target: target.max(source), granule, chunk, at: 0, known }
    }

    fn up(&self, offset: u64) -> u64 {
        offset.checked_next_multiple_of(self.granule).unwrap_or(u64::MAX)
    }

    /// What to do next.
    pub(crate) fn next(&mut self) -> Next {
        if self.at >= self.target {
            return Next::End;
        }
        if self.at >= self.source {
            return self.zero(self.target);
        }
        while self.known.front().is_some_and(|(end, _)| *end <= self.at) {
            self.known.pop_front();
        }
        let Some(&(end, content)) = self.known.front() else {
            let len = STATUS_STEP.min(self.source - self.at);
            return Next::Ask { offset: self.at, len };
        };
        // What is zero to the end of the source is zero to the end of the target.
        let whole = match content {
            Content::Zeroes if end >= self.source => return self.zero(self.target),
            Content::Zeroes => end / self.granule * self.granule,
            Content::Data => self.at,
        };
        if whole > self.at {
            return self.zero(whole);
        }
        // Data, or zeroes that end within a granule: what follows them may be data.
        let least = self.up(self.at + 1);
        let chunk_end = (self.at / self.chunk + 1) * self.chunk;
        let until = self.up(end).max(least).min(chunk_end);
        let (offset, stop) = (self.at, until.min(self.source));
        self.at = until.min(self.target);
        Next::Data { offset, read: stop - offset, len: self.at - offset }
    }

    fn zero(&mut self, end: u64) -> Next {
        let (offset, len) = (self.at, (end - self.at).min(ZERO_STEP));
        self.at += len;
        Next::Zero { offset, len }
    }

    /// The source's answer to [`Next::Ask`].
    ///
    /// # Errors
    /// [`BadRun`]: there is no run, or one without a length.
    pub(crate) fn learn(&mut self, runs: &[Run]) -> Result<(), BadRun> {
        let mut end = self.at;
        if runs.is_empty() {
            return Err(BadRun(0));
        }
        for run in runs {
            if run.len == 0 {
                return Err(BadRun(0));
            }
            end = end.saturating_add(run.len).min(self.source);
            match self.known.back_mut() {
                Some((last, content)) if *content == run.content => *last = end,
                _ => self.known.push_back((end, run.content)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(data: bool) -> Content {
        if data { Content::Data } else { Content::Zeroes }
    }

    proptest! {
        /// Pieces are in order, cover the target once, and no byte of data is taken for zeroes.
        #[test]
        fn nothing_is_left_out_and_nothing_comes_twice(
            runs in proptest::collection::vec((1u64..9000, any::<bool>()), 1..40),
            behind in 0u64..9000,
            granule in prop_oneof![Just(1u64), Just(512), Just(4096)],
            per_answer in 1usize..5,
        ) {
            let source: u64 = runs.iter().map(|(len, _)| len).sum();
            let target = source + behind;
            let is_data: Vec<bool> =
                runs.iter().flat_map(|(len, data)| (0..*len).map(|_| *data)).collect();
            let mut walk = Walk::new(source, target, granule, 8192);
            let mut at = 0;
            loop {
                match walk.next() {
                    Next::End => break,
                    Next::Ask { offset, len } => {
                        prop_assert!(offset == at && len > 0 && offset + len <= source);
                        let mut said = Vec::new();
                        let mut from = offset as usize;
                        while from < is_data.len() && said.len() < per_answer {
                            let now = is_data[from];
                            let end = is_data[from..].iter().position(|d| *d != now);
                            let len = end.unwrap_or(is_data.len() - from);
                            said.push(Run { len: len as u64, content: content(now) });
                            from += len;
                        }
                        walk.learn(&said).unwrap();
                    }
                    Next::Data { offset, read, len } => {
                        prop_assert!(offset == at && read > 0 && read <= len && len <= 8192);
                        prop_assert!(offset % granule == 0 && offset + read <= source);
                        let end = offset + len;
                        prop_assert!(end.is_multiple_of(granule) || end == target);
                        prop_assert!(read == len || offset + read == source);
                        at = end;
                    }
                    Next::Zero { offset, len } => {
                        prop_assert!(offset == at && len > 0);
                        let end = (offset + len).min(source) as usize;
                        let from = (offset as usize).min(end);
                        prop_assert!(!is_data[from..end].contains(&true));
                        at = offset + len;
                    }
                }
                prop_assert_eq!(at, walk.at);
            }
            prop_assert_eq!(at, target);
        }
    }

    #[test]
    fn a_run_without_a_length_is_refused() {
        let mut walk = Walk::new(100, 100, 1, 64);
        assert_eq!(walk.learn(&[]), Err(BadRun(0)));
        assert_eq!(walk.learn(&[Run { len: 0, content: Content::Data }]), Err(BadRun(0)));
        walk.learn(&[Run { len: u64::MAX, content: Content::Zeroes }]).unwrap();
        assert_eq!(walk.next(), Next::Zero { offset: 0, len: 100 });
    }
}
