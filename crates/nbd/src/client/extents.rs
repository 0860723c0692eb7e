//! What a server says of a range: which parts of it read as zeroes.
//!
//! It may say anything. What it cannot mean counts as not said, for of data that is taken for
//! zeroes nobody would have a copy.

use crate::wire::{STATE_HOLE, STATE_ZERO};
use alloc::vec::Vec;

/// The most extents that are kept of a reply. What comes behind them is asked for again.
pub const MAX_EXTENTS: usize = 512;

/// What a part of a range holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Anything.
    Data,
    /// It reads as zeroes.
    Zeroes,
}

/// Bytes in a row of one content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// In bytes, never 0.
    pub len: u64,
    /// What they hold.
    pub content: Content,
}

/// The extents of one reply.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    extents: Vec<Extent>,
    at: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// There are as many as are kept, or the range is at its end.
    Full,
    /// Nothing of it is believed.
    Nonsense,
}

impl Gathered {
    pub(super) fn clear(&mut self) {
        self.extents.clear();
        (self.at, self.state) = (0, State::Open);
    }

    /// The server says this of the next bytes of a range of `asked` bytes. The last extent may go
    /// beyond that.
    pub(super) fn push(&mut self, asked: u32, len: u32, flags: u32) {
        if len == 0 {
            self.extents.clear();
            self.state = State::Nonsense;
        }
        if self.state != State::Open {
            return;
        }
        let len = u64::from(len).min(u64::from(asked).saturating_sub(self.at));
        if len == 0 {
            self.state = State::Full;
            return;
        }
        let zeroes = flags & STATE_ZERO != 0 && flags & !(STATE_HOLE | STATE_ZERO) == 0;
        let content = if zeroes { Content::Zeroes } else { Content::Data };
        let count = self.extents.len();
        match self.extents.last_mut() {
            Some(last) if last.content == content => last.len += len,
            _ if count == MAX_EXTENTS => {
                self.state = State::Full;
                return;
            }
            _ => self.extents.push(Extent { len, content }),
        }
        self.at += len;
    }

    /// What is believed: from the range's beginning on, perhaps not to its end, and perhaps
    /// nothing.
    pub(super) fn extents(&self) -> &[Extent] {
        &self.extents
    }
}

/// What a server says of a range of `asked` bytes, in whole blocks: a block is zeroes where all of
/// it is. Both are in bytes, and `asked` is a multiple of `block`. `told` gets at least one extent,
/// and all of them together are at most as long as the range. O(extents).
pub fn in_blocks(said: &[Extent], asked: u64, block: u32, told: &mut dyn FnMut(Extent)) {
    let block = u64::from(block.max(1));
    let (mut at, mut out) = (0, 0);
    let mut tell = |out: &mut u64, until: u64, content| {
        if until > *out {
            told(Extent { len: until - *out, content });
            *out = until;
        }
    };
    for extent in said {
        let end = (at + extent.len).min(asked);
        if extent.content == Content::Zeroes {
            let (first, last) = (at.next_multiple_of(block), end / block * block);
            if first < last {
                tell(&mut out, first, Content::Data);
                tell(&mut out, last, Content::Zeroes);
            }
        }
        at = end;
    }
    let end = if said.is_empty() { asked } else { (at / block * block).max(block).min(asked) };
    tell(&mut out, end, Content::Data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gathered(asked: u32, said: &[(u32, u32)]) -> Vec<(u64, Content)> {
        let mut gathered = Gathered::default();
        said.iter().for_each(|(len, flags)| gathered.push(asked, *len, *flags));
        gathered.extents().iter().map(|extent| (extent.len, extent.content)).collect()
    }

    const HOLE: u32 = STATE_HOLE | STATE_ZERO;
    use Content::{Data, Zeroes};

    #[test]
    fn zeroes_are_what_the_server_says_is_zeroes_in_words_that_are_known() {
        for flags in [HOLE, STATE_ZERO] {
            assert_eq!(gathered(4096, &[(4096, flags)]), [(4096, Zeroes)]);
        }
        // A hole may read as anything, and a word that nobody knows may say so of zeroes.
        for flags in [0, STATE_HOLE, HOLE | 4, 1 << 31 | STATE_ZERO, u32::MAX] {
            assert_eq!(gathered(4096, &[(4096, flags)]), [(4096, Data)]);
        }
    }

    #[test]
    fn what_goes_beyond_the_range_or_has_no_length_is_not_believed() {
        assert_eq!(gathered(4096, &[(u32::MAX, HOLE)]), [(4096, Zeroes)]);
        let beyond = [(4000, 0), (4000, HOLE), (u32::MAX, 0), (1, HOLE)];
        assert_eq!(gathered(4096, &beyond), [(4000, Data), (96, Zeroes)]);
        for at in 0..3 {
            let mut said = [(1024, HOLE), (1024, 0), (1024, HOLE)];
            said[at].0 = 0;
            assert_eq!(gathered(4096, &said), []);
        }
    }

    #[test]
    fn of_many_extents_the_first_are_kept_and_neighbours_are_one() {
        let said: Vec<(u32, u32)> =
            (0..5000).map(|n| (1, if n % 4 < 2 { 0 } else { HOLE })).collect();
        let kept = gathered(u32::MAX, &said);
        assert_eq!(kept.len(), MAX_EXTENTS);
        assert!(kept.iter().enumerate().all(|(n, (len, content))| {
            *len == 2 && *content == if n % 2 == 0 { Data } else { Zeroes }
        }));
    }

    proptest! {
        /// Byte by byte: a block is told to be zeroes when all of its bytes are.
        #[test]
        fn a_block_is_zeroes_where_all_of_it_is(
            said in prop::collection::vec((1u32..40, any::<bool>()), 0..12),
            blocks in 1u64..12,
            block in prop::sample::select(&[1u32, 8, 16]),
        ) {
            let asked = blocks * u64::from(block);
            let flags = |zeroes: &bool| if *zeroes { HOLE } else { 0 };
            let mut gathered = Gathered::default();
            said.iter().for_each(|(len, zeroes)| gathered.push(asked as u32, *len, flags(zeroes)));
            let mut told = Vec::new();
            in_blocks(gathered.extents(), asked, block, &mut |extent| told.push(extent));
            prop_assert!(!told.is_empty() && told.iter().all(|extent| extent.len > 0));
            prop_assert!(told.windows(2).all(|pair| pair[0].content != pair[1].content));
            let bytes: Vec<bool> = said
                .iter()
                .flat_map(|(len, zeroes)| std::iter::repeat_n(*zeroes, *len as usize))
                .take(asked as usize)
                .collect();
            let told: Vec<Content> = told
                .iter()
                .flat_map(|extent| std::iter::repeat_n(extent.content, extent.len as usize))
                .collect();
            // All of the range where nothing is said; else the blocks of which all is, or one.
            let all = if bytes.is_empty() { asked } else { bytes.len() as u64 };
            let all = (all / u64::from(block)).max(1) * u64::from(block);
            prop_assert_eq!(told.len() as u64, all);
            for (n, told) in told.chunks(block as usize).enumerate() {
                let said = bytes.get(n * block as usize..(n + 1) * block as usize);
                let zeroes = said.is_some_and(|said| said.iter().all(|zero| *zero));
                let expected = if zeroes { Zeroes } else { Data };
                prop_assert!(told.iter().all(|content| *content == expected));
            }
        }
    }
}
