//! What commands have told of their imports.

use crate::clock;
use crate::speed::Speed;
use headgate_api::imports::{Import, ImportProgress, ImportState};
use headgate_model::{DiskRecord, Name};
use headgate_units::Bytes;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// After what time without a word a command counts as gone. It says one each second.
const SILENCE: Duration = Duration::from_secs(30);

/// Whether an import may become a whole disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Open,
    Cancelled,
}

/// What a command has said last.
#[derive(Clone, Debug)]
pub(super) struct Importing {
    pub(super) told: ImportProgress,
    speed: Speed,
    heard: Instant,
    /// In seconds since 1970.
    began: u64,
    pub(super) fate: Fate,
}

/// Imports that were told of, by disk.
#[derive(Debug, Default)]
pub(crate) struct Imports(pub(super) BTreeMap<Name, Importing>);

impl Imports {
    /// What is known of a disk that is not whole.
    pub(super) fn view(&self, record: &DiskRecord, now: Instant) -> Import {
        let known = self.0.get(&record.name);
        let is_heard = |one: &&Importing| now.saturating_duration_since(one.heard) < SILENCE;
        let state = match known {
            Some(Importing { fate: Fate::Cancelled, .. }) => ImportState::Cancelling,
            known if known.as_ref().is_some_and(is_heard) => ImportState::Copying,
            _ => ImportState::Silent,
        };
        let going = known.filter(|_| state == ImportState::Copying);
        let copied = known.map_or(Bytes(0), |one| one.told.copied);
        let size = known.map_or(record.size, |one| one.told.size);
        let left = Bytes(size.0.saturating_sub(copied.0));
        Import {
            disk: record.name.clone(),
            datastore: record.datastore.clone(),
            state,
            source: known.map(|one| one.told.source.clone()),
            copied,
            size,
            rate: going.and_then(|one| one.speed.rate()),
            seconds_left: going.and_then(|one| one.speed.time_for(left)),
            began: known.map(|one| one.began),
        }
    }

    pub(super) fn hear(&mut self, disk: &Name, told: ImportProgress, now: Instant) {
        let began = clock::seconds_since_1970();
        let new = |told: ImportProgress| {
            let (speed, fate) = (Speed::default(), Fate::Open);
            Importing { told, speed, heard: now, began, fate }
        };
        let one = self.0.entry(disk.clone()).or_insert_with(|| new(told.clone()));
        one.speed.look(now, told.copied);
        (one.told, one.heard) = (told, now);
    }

    /// Whether somebody else says something of this disk than at first.
    pub(super) fn is_another(&self, disk: &Name, id: &str) -> bool {
        self.0.get(disk).is_some_and(|one| one.told.id != id)
    }

    pub(super) fn is_cancelled(&self, disk: &Name) -> bool {
        self.0.get(disk).is_some_and(|one| one.fate == Fate::Cancelled)
    }
}
