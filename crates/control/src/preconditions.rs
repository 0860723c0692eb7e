//! What is checked before a change, by the terms that it is made on.

use crate::configuration::{differences, tell};
use crate::terms::{self, Etag, Run, Seen, Terms};
use crate::thing::Thing;
use crate::{Control, ControlError};
use headgate_api::apply::FieldChange;
use headgate_api::terms::DryRun;
use headgate_catalog::{Catalog, PolicyChange};
use std::sync::MutexGuard;

/// The most values in an error that says what has changed.
const NAMED: usize = 6;

/// A dry run ends here, with what would be: all checks are behind it, and all changes ahead.
pub(crate) fn in_earnest(would: impl FnOnce() -> DryRun) -> Result<(), ControlError> {
    match terms::run() {
        Run::Real => Ok(()),
        Run::Dry => Err(ControlError::Dry(Box::new(would()))),
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
        terms::under(terms, || work(self))
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
        let Some((_, seen)) = terms::current().seen.filter(|(of, _)| of == thing) else {
            return Ok(());
        };
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
                match self.shown.then(thing, &tags).map(|then| differences(&then, &now)) {
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
#[path = "preconditions_tests.rs"]
mod tests;
