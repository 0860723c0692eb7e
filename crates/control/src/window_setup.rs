//! The settings of datastores' windows, and their application.

use super::window_views::{change_text, patched_window};
use super::{Control, ControlError};
use crate::balance::CARRY;
use crate::clock;
use crate::leases::Next;
use crate::windows::{Followed, Meeting, Setup};
use headgate_api::windows::WindowPatch;
use headgate_events::Entry;
use headgate_model::Name;
use headgate_model::PlaneError;
use headgate_model::{BoardPlace, DatastoreRecord, FollowedThreshold, Threshold};

/// How long a board's directory may take to be found.
const BOARD: std::time::Duration = std::time::Duration::from_secs(10);

impl Control {
    /// What a record asks for; `None` without control.
    fn window_setup(&self, record: &DatastoreRecord) -> Option<Setup> {
        let config = record.window.control(record.queue_depth)?;
        let meeting = match &record.window.board {
            BoardPlace::None => Meeting::Alone,
            BoardPlace::Directory(path) => Meeting::Directory(path.clone()),
            BoardPlace::Etcd(name) => Meeting::Etcd(name.clone()),
            BoardPlace::Auto => match self.shared_directory(&record.backend) {
                Some(path) => Meeting::Directory(path),
                None => Meeting::Alone,
            },
        };
        let followed = record.window.followed.map(|followed| followed.threshold);
        Some(Setup { config, cost_model: record.cost_model, meeting, followed })
    }

    /// Refuses what cannot be brought into force.
    pub(super) fn check_window(&self, record: &DatastoreRecord) -> Result<(), ControlError> {
        let Some(setup) = self.window_setup(record) else { return Ok(()) };
        setup.config.validate().map_err(|e| {
            ControlError::invalid(
                e.to_string(),
                "a threshold of 10us to 10s, a period of 10ms to 60s, and --window-min not above --window-max, which is the \
                 queue depth unless it was set",
            )
        })?;
        match &setup.meeting {
            Meeting::Etcd(_) if self.windows.myself().etcd.is_none() => Err(ControlError::invalid(
                "this daemon was not told where etcd is",
                "a daemon started with --etcd http://HOST:2379 (or the key 'etcd' in its configuration file)",
            )),
            _ => Ok(()),
        }
    }

    /// Refuses a board that is in no directory. Blocks.
    pub(super) fn check_board(&self, record: &DatastoreRecord) -> Result<(), ControlError> {
        match self.window_setup(record).map(|setup| setup.meeting) {
            Some(Meeting::Directory(path)) if !path.is_dir() => Err(ControlError::invalid(
                format!("{} is not a directory", path.display()),
                "a directory that all hosts of the datastore reach",
            )),
            _ => match &record.window.board {
                BoardPlace::Directory(path) => self.real_directory(path).map(drop),
                BoardPlace::Auto | BoardPlace::None | BoardPlace::Etcd(_) => Ok(()),
            },
        }
    }

    /// The same for a change of a datastore's window, where that has another board.
    pub(super) fn check_new_board(
        &self,
        name: &Name,
        patch: WindowPatch,
    ) -> Result<(), ControlError> {
        let before = self.model().datastore(name)?.record.clone();
        let window = patched_window(patch, before.window.clone())?;
        let after = DatastoreRecord { window, ..before.clone() };
        let meeting = |record| self.window_setup(record).map(|setup| setup.meeting);
        if meeting(&after) == meeting(&before) {
            return Ok(());
        }
        self.on_storage(name, "looking at the board", BOARD, move |control, _| {
            control.check_board(&after)
        })
    }

    /// Controls the datastore's window, or leaves it at its queue depth.
    pub(super) fn set_window(&self, record: &DatastoreRecord) -> Result<(), PlaneError> {
        match self.window_setup(record) {
            Some(setup) => self.windows.control(&record.name, setup),
            None => self.windows.release(&record.name, record.queue_depth),
        }
    }

    /// Writes down where thresholds that follow the storage have got to, and tells it. What a crash
    /// loses is a step at most.
    /// Returns when to look again.
    pub(super) fn keep_thresholds(&self) -> Next {
        let names: Vec<Name> = {
            let model = self.model();
            let follow = model.datastores.values().map(|entry| &entry.record);
            let follow = follow.filter(|record| record.window.threshold == Threshold::Auto);
            follow.map(|record| record.name.clone()).collect()
        };
        for name in &names {
            if let Err(error) = self.keep_threshold(name) {
                tracing::warn!(datastore = %name, %error, "the threshold that it follows is not kept");
            }
        }
        if names.is_empty() { Next::WhenRung } else { Next::After(CARRY) }
    }

    fn keep_threshold(&self, name: &Name) -> Result<(), ControlError> {
        let followed = self.windows.status(name).and_then(|status| status.following);
        match followed {
            Some(followed) if followed.changes > 0 => self.write_threshold(name, &followed),
            Some(_) | None => Ok(()),
        }
    }

    fn write_threshold(&self, name: &Name, followed: &Followed) -> Result<(), ControlError> {
        let mut catalog = self.catalog();
        let Ok(mut record) = self.model().datastore(name).map(|entry| entry.record.clone()) else {
            return Ok(());
        };
        let is_kept = record.window.followed.is_some_and(|kept| kept.threshold == followed.base);
        if is_kept || record.window.threshold != Threshold::Auto {
            return Ok(());
        }
        let at = clock::seconds_since_1970();
        record.window.followed = Some(FollowedThreshold { threshold: followed.base, at });
        catalog.update_datastore(&record)?;
        if let Some(entry) = self.model_mut().datastores.get_mut(name) {
            entry.record.window.followed = record.window.followed;
        }
        drop(catalog);
        let what = followed.last.map_or_else(|| followed.base.to_string(), |c| change_text(&c));
        tracing::info!(datastore = %name, "the latency threshold follows the storage: {what}");
        self.note(Entry::noticed("latency threshold changed").of_datastore(name).because(what));
        Ok(())
    }

    pub(super) fn window_warnings(&self, record: &DatastoreRecord) -> Vec<String> {
        let mut warnings = Vec::new();
        let name = &record.name;
        let is_to_be_found =
            matches!(record.window.threshold, Threshold::Auto | Threshold::Calibrated);
        if is_to_be_found && record.window.found.is_none() {
            warnings.push(format!(
                "the latency threshold of datastore '{name}' is yet to be found: {} until \
                 'headgate datastore calibrate {name}' has measured it",
                Threshold::Fixed(headgate_qos::window::Config::default().threshold),
            ));
        }
        if record.window.board == BoardPlace::Auto
            && record.window.threshold != Threshold::None
            && self.shared_directory(&record.backend).is_none()
        {
            warnings.push(format!(
                "datastore '{name}' has no directory that other hosts could reach: its window goes by this host's latency alone. If \
                 other hosts use the storage, give all of them the same --board"
            ));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;
    use crate::thing::Thing;
    use crate::windows::Followed;
    use crate::{ControlError, ErrorKind};
    use headgate_api::types::DatastorePatch;
    use headgate_events::Filter;
    use headgate_model::{Capacity, CapacitySource, FoundThreshold};
    use headgate_qos::window::{Activity, Change, Reason, Slots};
    use headgate_units::{Iops, Nanos};
    use serde_json::json;
    use std::time::Duration;

    fn set(bench: &Bench, patch: serde_json::Value) -> Result<Vec<String>, ControlError> {
        let patch: DatastorePatch = serde_json::from_value(json!({ "window": patch })).unwrap();
        Ok(bench.control.set_datastore(&"array".parse().unwrap(), patch)?.warnings)
    }

    #[test]
    fn a_threshold_controls_the_window_across_restarts_and_none_ends_it() {
        let bench = Bench::new();
        let depth = Slots::whole(32);
        assert_eq!(bench.plane.window("array"), (Some(depth), false));
        let warnings = set(&bench, json!({"latency_threshold": "20ms", "max": 24})).unwrap();
        set(&bench, json!({"law": "published"})).unwrap();
        assert!(warnings[0].contains("goes by this host's latency alone"), "{warnings:?}");
        assert_eq!(bench.plane.window("array"), (Some(Slots::whole(24)), true));
        let name = "array".parse().unwrap();
        let view = bench.control.datastore(&name).unwrap().window;
        assert_eq!((view.latency_threshold.as_str(), view.min, view.max), ("20ms", 4, 24));
        assert_eq!(view.now.unwrap().slots, 24.0);
        assert_eq!(view.law, "published");
        let bench = bench.restart();
        assert_eq!(bench.plane.window("array"), (Some(Slots::whole(24)), true));
        assert_eq!(bench.control.datastore(&name).unwrap().window.law, "published");
        set(&bench, json!({"latency_threshold": "none"})).unwrap();
        assert_eq!(bench.plane.window("array"), (Some(depth), false));
        assert_eq!(bench.control.datastore(&name).unwrap().window.now, None);
        bench.control.remove_datastore(&name).unwrap();
    }

    #[test]
    fn what_cannot_be_in_force_is_refused_and_changes_nothing() {
        let bench = Bench::new();
        set(&bench, json!({"latency_threshold": "20ms", "board": "none"})).unwrap();
        let name = "array".parse().unwrap();
        let before = bench.control.datastore(&name).unwrap();
        for (patch, said) in [
            (json!({"latency_threshold": "1us"}), "10 us to 10 s"),
            (json!({"latency_threshold": "soon"}), "'soon' is no latency threshold"),
            (json!({"min": 48, "max": 24}), "min <= max"),
            (json!({"min": 0}), "a window of 0 is out of range"),
            (json!({"max": 5000}), "a window of 5000 is out of range"),
            (json!({"period_ns": 1}), "period"),
            (json!({"board": "etcd=array"}), "was not told where etcd is"),
            (json!({"board": "/nowhere/at/all"}), "/nowhere/at/all is not a directory"),
            (json!({"board": "here"}), "'here' is no place"),
            (json!({"law": "printed"}), "'printed' is no window law"),
        ] {
            let error = set(&bench, patch).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(said), "{error}");
        }
        assert_eq!(bench.control.datastore(&name).unwrap(), before);
    }

    #[test]
    fn an_automatic_threshold_says_that_it_is_yet_to_be_found() {
        let bench = Bench::new();
        let warnings = set(&bench, json!({"latency_threshold": "auto", "board": "none"})).unwrap();
        assert!(
            warnings[0].contains("30ms until 'headgate datastore calibrate array'"),
            "{warnings:?}"
        );
    }

    #[test]
    fn a_threshold_that_follows_is_kept_over_restarts_and_told_once() {
        let bench = Bench::new();
        let name = "array".parse().unwrap();
        set(&bench, json!({"latency_threshold": "auto", "board": "none"})).unwrap();
        let base = |bench: &Bench| {
            let now = bench.control.datastore(&name).unwrap().window.now.unwrap();
            now.following.map(|following| following.threshold_ns)
        };
        assert_eq!(base(&bench), Some(30_000_000));
        let tag = bench.control.show_etag(&Thing::Datastore(name.clone()));
        let reason = Reason::Rate(854_321);
        let (from, to) = (Nanos::from_millis(30), Nanos::from_millis(33));
        let last = Some(Change { from, to, reason });
        let followed = Followed { base: to, activity: Activity::Resting, changes: 1, last };
        bench.control.write_threshold(&name, &followed).unwrap();
        bench.control.write_threshold(&name, &followed).unwrap();
        let events = &bench.control.events;
        assert!(events.settle(events.last(), Duration::from_secs(60)));
        let page = events.read(&Filter::default(), 100).unwrap();
        let mut told = page.events.into_iter().map(|event| event.entry);
        let mut told = told.by_ref().filter(|e| e.operation == "latency threshold changed");
        let why = told.next().and_then(|entry| entry.why).unwrap();
        assert_eq!(told.next(), None);
        assert!(why.contains("30.00 ms to 33.00 ms: 85.4 % of the highest rate"), "{why}");
        // It is no setting: nobody's terms of a change are broken by it.
        assert_eq!(bench.control.show_etag(&Thing::Datastore(name.clone())), tag);
        let bench = bench.restart();
        assert_eq!(base(&bench), Some(33_000_000));
        let kept = bench.control.datastore(&name).unwrap().window.followed;
        assert_eq!(kept.map(|kept| kept.threshold), Some(to));
        // Another setting of the window leaves it as it is; another kind of threshold ends it.
        set(&bench, json!({"max": 24})).unwrap();
        assert_eq!(base(&bench), Some(33_000_000));
        set(&bench, json!({"latency_threshold": "calibrated"})).unwrap();
        assert_eq!(base(&bench), None);
        set(&bench, json!({"latency_threshold": "auto"})).unwrap();
        assert_eq!(base(&bench), Some(30_000_000));
        assert_eq!(bench.control.datastore(&name).unwrap().window.followed, None);
    }

    #[test]
    fn a_calibration_begins_anew() {
        let bench = Bench::new();
        let name = "array".parse().unwrap();
        set(&bench, json!({"latency_threshold": "auto", "board": "none"})).unwrap();
        let to = Nanos::from_millis(33);
        let followed = Followed { base: to, activity: Activity::Resting, changes: 1, last: None };
        bench.control.write_threshold(&name, &followed).unwrap();
        let bench = bench.restart();
        let found = FoundThreshold {
            threshold: Nanos::from_millis(12),
            peak: 1_600,
            unloaded: Nanos::from_millis(5),
            saturated: true,
            at: 1_795_368_944,
        };
        let capacity = Capacity { iops: Iops::new(1_600).unwrap(), source: CapacitySource::Set };
        bench.control.set_measured(&name, capacity, Some(found)).unwrap();
        let window = bench.control.datastore(&name).unwrap().window;
        assert_eq!(window.followed, None);
        let now = window.now.unwrap();
        assert_eq!(now.following.unwrap().threshold_ns, 12_000_000);
    }

    #[test]
    fn the_board_of_a_directory_is_in_it() {
        let bench = Bench::new();
        let dir = bench.temp.path().join("shared");
        std::fs::create_dir(&dir).unwrap();
        let create = json!({"name": "shared", "backend": {"dir": dir}, "window": {"latency_threshold": "30ms", "period_ns": 10_000_000}});
        bench.control.add_datastore(serde_json::from_value(create).unwrap()).unwrap();
        let name = "shared".parse().unwrap();
        let place = bench.control.datastore(&name).unwrap().window.now.unwrap().board_place;
        assert_eq!(place, Some(dir.display().to_string()));
        // Its thread writes the board without anybody's doing.
        let board = dir.join(headgate_cluster::BOARD_FILE);
        while !board.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        bench.control.remove_datastore(&name).unwrap();
    }
}
