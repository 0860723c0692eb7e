//! What is to be looked after every now and then, by the model.

use crate::state::{Model, Service};
use headgate_model::{Backend, Name};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// What is to be looked after every now and then.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ToTend {
    /// Datastores that do not serve.
    pub(crate) unserved: Vec<Name>,
    /// Disks that are tried again, each with its datastore, which serves.
    pub(crate) waiting: Vec<(Name, Name)>,
    /// Disks that move, or have moved.
    moves: usize,
    /// Datastores that serve and that disks are on, with their directories.
    pub(crate) in_use: Vec<(Name, PathBuf)>,
}

impl ToTend {
    /// O(disks).
    pub(crate) fn of(model: &Model, directory: impl Fn(&Backend) -> Option<PathBuf>) -> ToTend {
        let mut to_tend = ToTend { moves: model.moves.len(), ..ToTend::default() };
        let mut used = BTreeSet::new();
        for disk in model.disks.values() {
            let store = &disk.record.datastore;
            used.insert(store);
            let serves = model.datastores.get(store).map(|entry| &entry.service);
            if disk.service.is_tried_again() && serves == Some(&Service::Serving) {
                to_tend.waiting.push((store.clone(), disk.record.name.clone()));
            }
        }
        for (name, entry) in &model.datastores {
            if entry.service != Service::Serving {
                to_tend.unserved.push(name.clone());
            } else if used.contains(name)
                && let Some(directory) = directory(&entry.record.backend)
            {
                to_tend.in_use.push((name.clone(), directory));
            }
        }
        to_tend
    }

    pub(crate) fn is_nothing(&self) -> bool {
        *self == ToTend::default()
    }
}
