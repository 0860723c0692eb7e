//! What a change of policy would have done, on the load that history has
//! (`docs/decisions/0121-what-if.md`).

mod gather;
mod notes;
mod view;

use crate::disks::{changed_policy, check_policy};
use crate::new_disk::NewDisk;
use crate::{Control, ControlError};
use gather::{Gathered, Question};
use headgate_api::types::{DiskPatch, Force};
use headgate_api::what_if::{WhatIf, WhatIfAnswer};
use headgate_history::wall_clock;
use headgate_model::{Change, DiskRecord};
use headgate_sim::what_if::{Bounds, NoAnswer, what_if};
use std::ops::Range;

/// The time that is asked about where nothing is said, in seconds.
const USUAL: i64 = 600;
/// The longest, in seconds.
const LONGEST: i64 = 24 * 3_600;
/// How long hours are kept with which a device can be made, in seconds.
const KEPT: i64 = 30 * 24 * 3_600;
/// Random numbers: the same question has the same answer.
const SEED: u64 = 121;

/// A question, and all that is known of it: nothing more is asked of the daemon.
pub struct Asked {
    question: Question,
    gathered: Gathered,
}

impl Asked {
    /// What the disks of the datastore would have received. It may take seconds of a CPU: `give_up`
    /// is asked now and then, and cuts it by saying so.
    ///
    /// # Errors
    /// When the record does not hold enough to answer, or it was cut.
    pub fn answer(self, give_up: &mut dyn FnMut() -> bool) -> Result<WhatIfAnswer, ControlError> {
        let Asked { question, gathered } = self;
        let answer = what_if(&gathered.record, Bounds::default(), SEED, give_up);
        let answer = answer.map_err(|why| no_answer(&question, &gathered, &why))?;
        Ok(view::answer(question, &gathered, &answer))
    }
}

impl Control {
    /// Gathers what is known of a question: what the disks of a datastore would have received in a
    /// time if one of them had had another policy. Changes nothing.
    ///
    /// # Errors
    /// When there is no such disk, class or time, the policy contradicts itself, or samples cannot
    /// be read.
    pub fn what_if(&self, asked: &WhatIf) -> Result<Asked, ControlError> {
        only_policy(&asked.change)?;
        let within = time(asked)?;
        let question = self.question(asked, within)?;
        let gathered = self.gather(&question)?;
        Ok(Asked { question, gathered })
    }

    /// What is asked, and what of it is known without history.
    fn question(&self, asked: &WhatIf, within: Range<i64>) -> Result<Question, ControlError> {
        let window = self.plane.sample()?;
        let model = self.model();
        let record = &model.disk(&asked.disk)?.record;
        let patch = DiskPatch { force: Force::Yes, ..asked.change.clone() };
        let (set, policy) = changed_policy(&model, record, &patch)?;
        check_policy(&policy)?;
        let after = DiskRecord { set, policy, ..record.clone() };
        let datastore = model.datastore(&record.datastore)?;
        let member = NewDisk::of(&after).member();
        let refused = self.check_admission(&model, datastore, member, Force::No).err();
        let mut numbers = std::collections::BTreeMap::new();
        let groups = model.disk_groups(&datastore.record, &mut |key| {
            let next = headgate_qos::GroupId(numbers.len() as u32 + 1);
            *numbers.entry(key.clone()).or_insert(next)
        });
        let here = |disk: &&DiskRecord| disk.datastore == datastore.record.name;
        let disks = model.disks.values().map(|entry| &entry.record).filter(here).cloned();
        let now = window.iter().find(|sample| sample.name == datastore.record.name);
        Ok(Question {
            disk: record.name.clone(),
            after: policy,
            within,
            disks: disks.collect(),
            datastore: datastore.record.clone(),
            window: now.map(|sample| sample.window),
            groups,
            refused: refused.map(|error| error.to_string()),
        })
    }
}

/// That a change says something, and nothing but what the disk is promised.
fn only_policy(change: &DiskPatch) -> Result<(), ControlError> {
    let DiskPatch { class, inherit, .. } = change;
    if change.policy().is_empty() && inherit.is_empty() && class.is_keep() {
        let expected = "a field of a policy, such as 'reservation', or 'class'";
        return Err(ControlError::invalid("the change says nothing of the policy", expected));
    }
    let other = !matches!(change.vm, Change::Keep)
        || change.read_only.is_some()
        || !change.placement.is_empty();
    if other {
        let expected = "fields of a policy and 'class' alone: where a disk is and whose it is \
                        cannot be asked about";
        return Err(ControlError::invalid("the change is not one of policy alone", expected));
    }
    Ok(())
}

/// The time that is asked about.
fn time(asked: &WhatIf) -> Result<Range<i64>, ControlError> {
    let now = (wall_clock().0 / 1_000_000_000).cast_signed();
    let until = asked.until.unwrap_or(now + 1).min(now + 1);
    let since = asked.since.unwrap_or_else(|| until.saturating_sub(USUAL));
    if since >= until || since < 0 {
        return Err(ControlError::invalid(
            format!("there is no time from {since} to {until}"),
            "seconds since 1970, 'since' before 'until', and before now",
        ));
    }
    if until - since > LONGEST {
        return Err(ControlError::invalid(
            format!("the time is {} s long", until - since),
            "at most 24 h: ask about the hours in which something was missed",
        ));
    }
    if since < now - KEPT {
        return Err(ControlError::Busy {
            error: "that is too long ago: what the storage's latencies were is not kept any more"
                .into(),
            hint: "ask about the last 30 days; the last 24 hours are known best".into(),
        });
    }
    Ok(since..until)
}

fn no_answer(question: &Question, gathered: &Gathered, why: &NoAnswer) -> ControlError {
    let datastore = &question.datastore.name;
    let hint = match why {
        NoAnswer::TooFew { .. } if gathered.kept_since.is_none() => format!(
            "history has nothing of datastore '{datastore}' in that time: ask about another, as \
             'headgate disk show {} --history --since 24h' has it",
            question.disk
        ),
        NoAnswer::TooFew { .. } => "ask about a longer time, or a busier one".to_owned(),
        NoAnswer::Cut => "ask about a shorter time, or again when the host is less busy".to_owned(),
        NoAnswer::TooMany => "ask about a smaller change, or a shorter time".to_owned(),
        _ => format!("see 'headgate datastore show {datastore}'"),
    };
    ControlError::Busy { error: format!("there is no answer: {why}"), hint }
}

#[cfg(test)]
mod tests;
