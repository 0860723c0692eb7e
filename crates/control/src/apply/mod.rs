//! Documents that say what there is to be. What is different is found, judged and written down at
//! once; disks that are to be made are made one by one after that
//! (`docs/decisions/0111-classes.md`).

mod difference;
mod owners;

use crate::classes::check_class;
use crate::promises::Judged;
use crate::{Control, ControlError, Model};
use difference::{Difference, Known, Problem, difference};
use headgate_api::apply::{Applied, Apply};
use headgate_api::types::{ErrorBody, Force};
use owners::Owners;

impl Model {
    fn known(&self) -> Known {
        Known {
            classes: self.classes.clone(),
            datastores: self
                .datastores
                .iter()
                .map(|(name, entry)| (name.clone(), entry.record.clone()))
                .collect(),
            disks: self
                .disks
                .iter()
                .map(|(name, entry)| (name.clone(), entry.record.clone()))
                .collect(),
            planned: self.planned.clone(),
            owners: Owners { tenants: self.tenants.clone(), vms: self.vms.clone() },
        }
    }
}

impl From<Problem> for ControlError {
    fn from(problem: Problem) -> ControlError {
        let Problem { at, error, expected } = problem;
        ControlError::invalid(at.map_or(error.clone(), |at| format!("{at}: {error}")), expected)
    }
}

/// Where a thing stands in the documents.
fn placed(at: Option<&String>, what: String) -> String {
    at.map_or(what.clone(), |at| format!("{at}: {what}"))
}

impl Control {
    /// Makes classes and policies what documents say, in one step, and writes down which disks are
    /// to be made. What is different already is answered; nothing is changed where nothing is.
    ///
    /// # Errors
    /// When documents contradict each other or what there is, or what they promise does not fit;
    /// nothing is changed then. A dry run tells the last as an answer.
    pub fn apply(&self, wanted: &Apply) -> Result<Applied, ControlError> {
        for one in &wanted.datastores {
            if self.model().datastores.contains_key(&one.name) {
                self.check_new_board(&one.name, one.settings.window.clone()).map_err(|e| {
                    e.of(&placed(one.at.as_ref(), format!("datastore '{}'", one.name)))
                })?;
            }
        }
        let mut catalog = self.catalog();
        let (found, judged) = {
            let model = self.model();
            let found = difference(&model.known(), wanted)?;
            let judged = self.judge_documents(&model, wanted, &found);
            (found, judged)
        };
        let (judged, refused) = match judged {
            Ok(judged) => (judged, None),
            Err(e) if wanted.dry_run => (Judged::default(), Some(e)),
            Err(e) => return Err(e),
        };
        let Judged { mut warnings, promises } = judged;
        let changes = !found.change.is_empty();
        if changes && !wanted.dry_run {
            self.put_policies(&mut **catalog, &found.change)?;
            drop(catalog);
            warnings.extend(self.warn_of_class(&found.change));
            let stores = found.change.datastores.iter();
            warnings.extend(stores.flat_map(|store| self.window_warnings(store)));
        }
        let refused = refused.map(|e| ErrorBody {
            error: e.to_string(),
            expected: e.expected(),
            hint: e.hint(),
        });
        let Difference { things, to_create, to_remove, .. } = found;
        let changed = changes && !wanted.dry_run;
        Ok(Applied { changes: things, promises, to_create, to_remove, changed, refused, warnings })
    }

    /// Whether what was found may be made.
    fn judge_documents(
        &self,
        model: &Model,
        wanted: &Apply,
        found: &Difference,
    ) -> Result<Judged, ControlError> {
        for class in &found.change.classes {
            let at = wanted.classes.iter().find(|one| one.name == class.name);
            let at = at.and_then(|one| one.at.as_deref()).unwrap_or("the documents");
            check_class(class).map_err(|e| e.of(at))?;
        }
        for store in &found.change.datastores {
            let at = wanted.datastores.iter().find(|one| one.name == store.name);
            let at = at.and_then(|one| one.at.as_ref());
            let what = || placed(at, format!("datastore '{}'", store.name));
            self.check_window(store).map_err(|e| e.of(&what()))?;
        }
        for disk in &found.change.disks {
            model.check_settled(&model.disk(&disk.name)?.record)?;
        }
        let classes = found.change.classes.iter().map(|class| (&class.name, class));
        let classes: std::collections::BTreeMap<_, _> =
            model.classes.iter().chain(classes).collect();
        for planned in &found.change.planned {
            let at = wanted.disks.iter().find(|one| one.name == planned.name);
            let at = at.and_then(|one| one.at.as_ref());
            let what = || placed(at, format!("disk '{}'", planned.name));
            model.check_export_name(&planned.name)?;
            if let Some(class) = planned.class.as_ref().and_then(|class| classes.get(class)) {
                model
                    .check_place_of_class(class, &planned.datastore, wanted.force)
                    .map_err(|e| e.of(&what()))?;
            }
            self.check_takes_disks(model, &planned.datastore, Force::No)
                .map_err(|e| e.of(&what()))?;
        }
        self.judge_promises(model, &found.change, wanted.force)
    }
}

#[cfg(test)]
mod stores_tests;
#[cfg(test)]
mod tests;
