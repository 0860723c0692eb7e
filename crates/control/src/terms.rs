//! On which terms a change is made: only of what its maker has seen, and in earnest or not
//! (`docs/decisions/0122-terms-of-changes.md`).
//!
//! The terms belong to the thread that makes the change, as its request does, and go with it to the
//! worker of a datastore. So each change asks for them where it matters, which is while it holds
//! the catalog, and none of them has them in its signature.

use crate::thing::Thing;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// How many configurations are remembered that were shown to somebody.
const SHOWN: usize = 256;

/// A tag of a thing's configuration: the same for the same one, also after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Etag(u128);

/// A text is no tag of this API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this is no tag of this API")]
pub struct UnknownEtag;

impl Etag {
    /// FNV-1a with 128 bits, of the kind, the name and what is set.
    pub(crate) fn of(thing: &Thing, view: &Value) -> Etag {
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        let text = format!("{thing}\n{view}");
        let add = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(PRIME);
        Etag(text.bytes().fold(BASIS, add))
    }
}

/// As a strong entity tag of HTTP, with its quotes.
impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{:032x}\"", self.0)
    }
}

impl FromStr for Etag {
    type Err = UnknownEtag;

    fn from_str(text: &str) -> Result<Etag, UnknownEtag> {
        let digits = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let digits = digits.filter(|digits| digits.len() == 32).ok_or(UnknownEtag)?;
        u128::from_str_radix(digits, 16).map(Etag).map_err(|_| UnknownEtag)
    }
}

/// What whoever makes a change has seen of the thing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Seen {
    /// They do not say.
    #[default]
    Unsaid,
    /// That there is one.
    Existing,
    /// That there is none.
    Nothing,
    /// What had one of these tags.
    OneOf(Vec<Etag>),
}

/// Whether a change is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Run {
    /// It is.
    #[default]
    Real,
    /// It is checked as if it were, and told.
    Dry,
}

/// On which terms a change is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Of which thing what was seen.
    pub seen: Option<(Thing, Seen)>,
    /// Whether it is made.
    pub run: Run,
}

thread_local! {
    static TERMS: RefCell<Terms> = RefCell::default();
}

/// The terms of what this thread does.
pub(crate) fn current() -> Terms {
    TERMS.with_borrow(Clone::clone)
}

/// Whether this thread changes nothing.
pub(crate) fn run() -> Run {
    TERMS.with_borrow(|terms| terms.run)
}

/// Does something on these terms.
pub(crate) fn under<T>(terms: Terms, work: impl FnOnce() -> T) -> T {
    /// Puts back what was, also when the work panics.
    struct Before(Terms);
    impl Drop for Before {
        fn drop(&mut self) {
            TERMS.set(std::mem::take(&mut self.0));
        }
    }
    let _before = Before(TERMS.replace(terms));
    work()
}

/// Configurations that were shown, the latest last: what has changed since is told by them.
#[derive(Debug, Default)]
pub(crate) struct Shown(Mutex<VecDeque<(Thing, Etag, Value)>>);

impl Shown {
    fn all(&self) -> MutexGuard<'_, VecDeque<(Thing, Etag, Value)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn remember(&self, thing: &Thing, tag: Etag, view: Value) {
        let mut all = self.all();
        all.retain(|(one, its, _)| (one, its) != (thing, &tag));
        if all.len() >= SHOWN {
            all.pop_front();
        }
        all.push_back((thing.clone(), tag, view));
    }

    /// The latest of these that is remembered.
    pub(crate) fn then(&self, thing: &Thing, tags: &[Etag]) -> Option<Value> {
        let all = self.all();
        let then = all.iter().rev().find(|(one, tag, _)| one == thing && tags.contains(tag))?;
        Some(then.2.clone())
    }
}
