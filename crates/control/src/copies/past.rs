//! How copies were.

use headgate_api::copies::Copy;
use std::collections::VecDeque;

/// Copies that are over and are remembered.
const PAST: usize = 100;

/// Copies that are over since the daemon began.
#[derive(Debug, Default)]
pub(crate) struct Copied(VecDeque<Copy>);

impl Copied {
    /// All of them, the last one first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Copy> {
        self.0.iter()
    }

    pub(super) fn add(&mut self, over: Copy) {
        self.0.push_front(over);
        self.0.truncate(PAST);
    }
}
