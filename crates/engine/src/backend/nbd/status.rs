//! Block status: what servers say of ranges of their exports, and what their disk says then.
//!
//! A server that does not say what a range holds, or not in a way that can be, has data there. A
//! question changes nothing, so it is asked again when a connection is lost.

use crate::request::{Extent, ExtentKind, Request};
use crate::tables::slots::Part;
use headgate_nbd::client::extents::{self, Content, in_blocks};
use headgate_stripe::{Layout, Stretch};
use std::collections::BTreeMap;

/// The most units of a striped disk that one question is about: joining what servers say takes time
/// for each. A client asks again from where the answer ends.
const UNITS_MAX: u64 = 1 << 14;

/// The most extents of one answer.
const EXTENTS_MAX: usize = 4096;

/// How much of a range of so many bytes one question is about.
pub(super) fn at_most(layout: Layout, len: u64) -> u64 {
    len.min(layout.unit().0 * UNITS_MAX)
}

/// Keeps what a server says of a range of `asked` bytes, in whole blocks.
pub(super) fn tell(kept: &mut Vec<Extent>, said: &[extents::Extent], asked: u32, block: u32) {
    kept.clear();
    in_blocks(said, asked.into(), block, &mut |extents::Extent { len, content }| {
        let kind = match content {
            Content::Data => ExtentKind::Data,
            Content::Zeroes => ExtentKind::Hole,
        };
        kept.push(Extent { len, kind });
    });
}

/// What has been said of the parts of the questions of a striped disk, by question and member.
#[derive(Debug, Default)]
pub(super) struct Statuses(BTreeMap<u32, Vec<Vec<Extent>>>);

impl Statuses {
    /// What is said of a part of a question.
    pub(super) fn keep(&mut self, part: Part, members: u16, said: Vec<Extent>) {
        let of_question = self.0.entry(part.whole).or_default();
        of_question.resize_with(members.into(), Vec::new);
        if let Some(place) = of_question.get_mut(usize::from(part.member)) {
            *place = said;
        }
    }

    /// All that was said of a question, in the order of the disk.
    pub(super) fn join(&mut self, key: u32, layout: Layout, request: Request) -> Vec<Extent> {
        let said = self.0.remove(&key).unwrap_or_default();
        let mut said: Vec<_> = said.iter().map(|said| said.iter()).collect();
        let next_of = |member: u16| {
            let Extent { len, kind } = *said.get_mut(usize::from(member))?.next()?;
            Some(Stretch { len, kind })
        };
        let joined = layout.join(request.offset, request.len, next_of);
        joined.take(EXTENTS_MAX).map(|Stretch { len, kind }| Extent { len, kind }).collect()
    }
}
