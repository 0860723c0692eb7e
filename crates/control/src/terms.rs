//! On which terms a change is made: only of what its maker has seen, and in earnest or not
//! (`docs/decisions/0122-terms-of-changes.md`).
//!
//! The terms belong to the thread that makes the change, as its request does, and go with it to the
//! worker of a datastore. So each change asks for them where it matters, which is while it holds
//! the catalog, and none of them has them in its signature.

use crate::configuration::{Thing, differences, tell};
use crate::{Control, ControlError};
use headgate_api::apply::FieldChange;
use headgate_api::terms::DryRun;
use headgate_catalog::{Catalog, PolicyChange};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// How many configurations are remembered that were shown to somebody.
const SHOWN: usize = 256;

/// The most values in an error that says what has changed.
const NAMED: usize = 6;

/// A tag of a thing's configuration: the same for the same one, also after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Etag(u128);

/// A text is no tag of this API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this is no tag of this API")]
pub struct UnknownEtag;

impl Etag {
    /// FNV-1a with 128 bits, of the kind, the name and what is set.
    fn of(thing: &Thing, view: &Value) -> Etag {
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

/// A dry run ends here, with what would be: all checks are behind it, and all changes ahead.
pub(crate) fn in_earnest(would: impl FnOnce() -> DryRun) -> Result<(), ControlError> {
    match run() {
        Run::Real => Ok(()),
        Run::Dry => Err(ControlError::Dry(Box::new(would()))),
    }
}

/// Configurations that were shown, the latest last: what has changed since is told by them.
#[derive(Debug, Default)]
pub(crate) struct Shown(Mutex<VecDeque<(Thing, Etag, Value)>>);

impl Shown {
    fn all(&self) -> MutexGuard<'_, VecDeque<(Thing, Etag, Value)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, thing: &Thing, tag: Etag, view: Value) {
        let mut all = self.all();
        all.retain(|(one, its, _)| (one, its) != (thing, &tag));
        if all.len() >= SHOWN {
            all.pop_front();
        }
        all.push_back((thing.clone(), tag, view));
    }

    /// What is different now from the latest of these that is remembered.
    fn since(&self, thing: &Thing, tags: &[Etag], now: &Value) -> Option<Vec<FieldChange>> {
        let all = self.all();
        let then = all.iter().rev().find(|(one, tag, _)| one == thing && tags.contains(tag))?;
        Some(differences(&then.2, now))
    }
}

fn words(changes: &[FieldChange]) -> String {
    let of = |one: &FieldChange| format!("{} {} -> {}", one.field, one.from, one.to);
    let named: Vec<String> = changes.iter().take(NAMED).map(of).collect();
    let more = changes.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", named.join(", "))
}

fn changed(thing: &Thing, error: String) -> ControlError {
    let read = match thing.name() {
        Some(name) => format!("headgate {} show {name}", thing.kind()),
        None => "headgate rules show".into(),
    };
    let hint = format!("look at it again ('{read}'), and make the change of what it is now");
    ControlError::Changed { error, hint }
}

impl Control {
    /// Does something on these terms.
    pub fn on_terms<T>(&self, terms: Terms, work: impl FnOnce(&Control) -> T) -> T {
        under(terms, || work(self))
    }

    /// The tag of what is set of a thing now, for whoever looks at it; `None`: there is none.
    pub fn show_etag(&self, thing: &Thing) -> Option<Etag> {
        let view = self.model().configuration(thing)?;
        let tag = Etag::of(thing, &view);
        self.shown.remember(thing, tag, view);
        Some(tag)
    }

    /// The catalog, for a change of this thing.
    ///
    /// # Errors
    /// [`ControlError::Changed`] when it is not what whoever makes the change has seen. Nothing
    /// changes it while the catalog is held.
    pub(crate) fn catalog_for(
        &self,
        thing: &Thing,
    ) -> Result<MutexGuard<'_, Box<dyn Catalog>>, ControlError> {
        let catalog = self.catalog();
        self.check_seen(thing)?;
        Ok(catalog)
    }

    fn check_seen(&self, thing: &Thing) -> Result<(), ControlError> {
        let Some((_, seen)) = current().seen.filter(|(of, _)| of == thing) else { return Ok(()) };
        let now = self.model().configuration(thing);
        match (seen, now) {
            (Seen::Unsaid, _) | (Seen::Existing, Some(_)) | (Seen::Nothing, None) => Ok(()),
            (Seen::Nothing, Some(_)) => {
                Err(changed(thing, format!("{thing} is there by now, made by somebody else")))
            }
            (Seen::Existing | Seen::OneOf(_), None) => {
                Err(changed(thing, format!("{thing} is not there, or not any more")))
            }
            (Seen::OneOf(tags), Some(now)) if tags.contains(&Etag::of(thing, &now)) => Ok(()),
            (Seen::OneOf(tags), Some(now)) => Err(changed(
                thing,
                match self.shown.since(thing, &tags, &now) {
                    Some(fields) => {
                        format!("{thing} was changed since it was looked at: {}", words(&fields))
                    }
                    None => format!(
                        "{thing} is not what it was when it was looked at; what it was then is \
                         not known any more"
                    ),
                },
            )),
        }
    }

    /// What a change would do, with what is to be said of it.
    pub(crate) fn would(&self, change: &PolicyChange, warnings: &[String]) -> DryRun {
        let changes = self.model().told(change);
        DryRun { changes, warnings: warnings.to_vec(), ..DryRun::default() }
    }

    /// That a thing would go.
    pub(crate) fn would_go(&self, thing: &Thing) -> DryRun {
        let was = self.model().configuration(thing);
        let changes = tell(thing, was.as_ref(), None).into_iter().collect();
        DryRun { changes, ..DryRun::default() }
    }
}

#[cfg(test)]
#[path = "terms_tests.rs"]
mod tests;
