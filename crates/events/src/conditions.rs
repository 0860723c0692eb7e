//! What lasts for a while: told when it begins, and when it is over.

use crate::{Entry, Subject};
use headgate_units::Nanos;
use std::collections::BTreeMap;

/// A kind of condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionKind {
    /// A datastore answers nothing.
    Hangs,
    /// A datastore or a disk could not be opened.
    Failed,
    /// A disk is served no more: its lease is lost or in doubt, or its device is another host's.
    Stopped,
    /// A disk holds requests that its storage failed.
    Holds,
    /// A disk's storage fails requests, and its clients were told.
    Fails,
    /// A disk on another server has no connection to it.
    Unconnected,
    /// Requests waited, and yet a reservation was not met.
    Missed,
    /// An IO thread takes no turns.
    Stalled,
    /// Leases cannot be renewed.
    LeasesInDoubt,
}

impl ConditionKind {
    /// What is told when it begins, and when it is over.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            ConditionKind::Hangs => ("hangs", "answers again"),
            ConditionKind::Failed => ("is out of service", "is in service again"),
            ConditionKind::Stopped => ("is stopped", "is served again"),
            ConditionKind::Holds => ("holds requests", "holds requests no more"),
            ConditionKind::Fails => ("fails requests", "fails requests no more"),
            ConditionKind::Unconnected => ("has no connection", "is connected again"),
            ConditionKind::Missed => ("reservation missed", "reservation met again"),
            ConditionKind::Stalled => ("stands still", "takes its turns again"),
            ConditionKind::LeasesInDoubt => ("cannot be renewed", "are renewed again"),
        }
    }
}

/// Something that lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What.
    pub kind: ConditionKind,
    /// Of what.
    pub object: Subject,
    /// The disks that it concerns.
    pub disks: Vec<String>,
    /// Why, if that is known.
    pub why: Option<String>,
}

impl Condition {
    /// Of a disk.
    pub fn of_disk(kind: ConditionKind, disk: &str, why: Option<String>) -> Condition {
        Condition { kind, object: Subject::new("disk", disk), disks: vec![disk.into()], why }
    }

    /// Of a datastore.
    pub fn of_datastore(kind: ConditionKind, name: &str, why: Option<String>) -> Condition {
        Condition { kind, object: Subject::new("datastore", name), disks: Vec::new(), why }
    }

    fn entry(&self, word: &str) -> Entry {
        let mut entry = Entry::noticed(format!("{} {word}", self.object.kind));
        entry.object = Some(self.object.clone());
        entry.disks.clone_from(&self.disks);
        entry
    }
}

/// What lasted when it was looked at last.
#[derive(Debug, Default)]
pub struct Conditions(BTreeMap<(Subject, ConditionKind), (Nanos, Condition)>);

impl Conditions {
    /// Looks at all that lasts now, and says what is new and what is over. What is no more is
    /// not said to be well again.
    pub fn see(
        &mut self,
        now: Nanos,
        standing: Vec<Condition>,
        is_there: impl Fn(&Subject) -> bool,
    ) -> Vec<Entry> {
        let mut before = std::mem::take(&mut self.0);
        let mut told = Vec::new();
        for condition in standing {
            let key = (condition.object.clone(), condition.kind);
            let known = before.remove(&key);
            if known.is_none() {
                let mut entry = condition.entry(condition.kind.words().0);
                entry.why.clone_from(&condition.why);
                told.push(entry);
            }
            self.0.insert(key, known.unwrap_or((now, condition)));
        }
        for (since, condition) in before.into_values() {
            if !is_there(&condition.object) {
                continue;
            }
            let seconds = now.since(since).0 / 1_000_000_000;
            let entry = condition.entry(condition.kind.words().1);
            told.push(entry.because(format!("after {seconds} s")));
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn see(conditions: &mut Conditions, now: Nanos, standing: Vec<Condition>) -> Vec<Entry> {
        conditions.see(now, standing, |_| true)
    }

    #[test]
    fn a_condition_is_told_when_it_begins_and_when_it_ends_and_not_between() {
        let mut conditions = Conditions::default();
        let holds = |why: &str| Condition::of_disk(ConditionKind::Holds, "db", Some(why.into()));
        let hangs = || Condition::of_datastore(ConditionKind::Hangs, "array", None);
        let at = Nanos::from_secs;
        let told = see(&mut conditions, at(1), vec![holds("full, 3 requests")]);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].operation.as_str(), told[0].disks.len()), ("disk holds requests", 1));
        assert_eq!(told[0].why.as_deref(), Some("full, 3 requests"));
        assert_eq!(see(&mut conditions, at(2), vec![holds("full, 9 requests")]), []);
        let told = see(&mut conditions, at(3), vec![holds(""), hangs()]);
        assert_eq!(told.iter().map(|one| &one.operation).collect::<Vec<_>>(), ["datastore hangs"]);
        let told = see(&mut conditions, at(61), vec![hangs()]);
        assert_eq!(told[0].operation, "disk holds requests no more");
        assert_eq!(told[0].why.as_deref(), Some("after 60 s"));
        assert_eq!(see(&mut conditions, at(62), Vec::new()).len(), 1);
        assert_eq!(see(&mut conditions, at(63), Vec::new()), []);
    }

    #[test]
    fn two_conditions_of_one_thing_are_two() {
        let mut conditions = Conditions::default();
        let both = [ConditionKind::Holds, ConditionKind::Missed]
            .map(|kind| Condition::of_disk(kind, "db", None));
        assert_eq!(see(&mut conditions, Nanos(1), both.to_vec()).len(), 2);
        assert_eq!(see(&mut conditions, Nanos(2), both[..1].to_vec()).len(), 1);
    }

    #[test]
    fn what_is_no_more_is_not_said_to_be_well() {
        let mut conditions = Conditions::default();
        let gone = Condition::of_disk(ConditionKind::Holds, "db", None);
        see(&mut conditions, Nanos(1), vec![gone]);
        assert_eq!(conditions.see(Nanos(2), Vec::new(), |_| false), []);
        assert_eq!(see(&mut conditions, Nanos(3), Vec::new()), []);
    }
}
