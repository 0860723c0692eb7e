//! Moves as a test plays them.

use super::MemoryPlane;
use headgate_mirror::{Progress, Record, Side, State, Word};
use headgate_model::{LiveMoves, MoveEvent, MoveOrder, MovePace, Name, PlaneError};
use headgate_units::Bytes;
use std::sync::mpsc::Sender;

/// A move under way.
pub(super) struct FakeMove {
    pace: MovePace,
    size: Bytes,
    state: State,
    events: Sender<MoveEvent>,
    words: Vec<Word>,
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

impl MemoryPlane {
    /// The data path has something to say of a move. Nobody may hear it any more.
    pub(crate) fn play(&self, disk: &str, event: MoveEvent) {
        let mut state = self.0.lock().unwrap();
        let one = state.moves.get_mut(&name(disk)).unwrap();
        if event == MoveEvent::Record(Record::Switched) {
            one.state = State::Switching;
        }
        let _ = one.events.send(event);
    }

    /// What was said of records that were asked for.
    pub(crate) fn words(&self, disk: &str) -> Vec<Word> {
        self.0.lock().unwrap().moves.get(&name(disk)).map_or(Vec::new(), |m| m.words.clone())
    }

    /// What a move may take, if there is one.
    pub(crate) fn pace(&self, disk: &str) -> Option<MovePace> {
        self.0.lock().unwrap().moves.get(&name(disk)).map(|one| one.pace)
    }

    /// The data path loses a move, and what it had to say.
    pub(crate) fn lose_move(&self, disk: &str) {
        self.0.lock().unwrap().moves.remove(&name(disk));
    }

    fn change_move(
        &self,
        operation: &'static str,
        disk: &Name,
        work: impl FnOnce(&mut FakeMove) -> Result<(), PlaneError>,
    ) -> Result<(), PlaneError> {
        let absent = || PlaneError::new(format!("disk '{disk}' does not move"));
        self.run(operation, |s| work(s.moves.get_mut(disk).ok_or_else(absent)?))?
    }
}

impl LiveMoves for MemoryPlane {
    fn begin_move(&self, order: MoveOrder, events: Sender<MoveEvent>) -> Result<(), PlaneError> {
        let MoveOrder { disk, target, pace, .. } = order;
        if !target.image.as_os_str().is_empty() && !target.image.exists() {
            return Err(PlaneError::new(format!("{} does not exist", target.image.display())));
        }
        self.run("begin_move", |s| {
            assert!(s.disks.contains_key(&disk));
            events.send(MoveEvent::Record(Record::Started)).unwrap();
            let (size, state) = (target.size, State::Starting);
            let one = FakeMove { pace, size, state, events, words: Vec::new() };
            assert!(s.moves.insert(disk, one).is_none());
        })
    }

    fn move_recorded(&self, disk: &Name, word: Word) -> Result<(), PlaneError> {
        self.change_move("move_recorded", disk, |one| {
            one.words.push(word);
            one.state = match (one.state, word) {
                (State::Switching, Word::Made) => State::Switched,
                (State::Switching, Word::Unknown) => State::Switching,
                _ => State::Copying,
            };
            Ok(())
        })
    }

    fn set_move_pace(&self, disk: &Name, pace: MovePace) -> Result<(), PlaneError> {
        self.change_move("set_move_pace", disk, |one| {
            one.pace = pace;
            Ok(())
        })
    }

    fn pause_move(&self, disk: &Name) -> Result<(), PlaneError> {
        self.change_move("pause_move", disk, |one| {
            one.state = State::Paused;
            Ok(())
        })
    }

    fn resume_move(&self, disk: &Name) -> Result<(), PlaneError> {
        self.change_move("resume_move", disk, |one| {
            one.state = State::Copying;
            Ok(())
        })
    }

    fn cancel_move(&self, disk: &Name) -> Result<(), PlaneError> {
        self.change_move("cancel_move", disk, |one| match one.state {
            State::Switching | State::Switched => {
                Err(PlaneError::new(headgate_mirror::NotCancelled::Switching))
            }
            _ => {
                one.state = State::Ended;
                let cancelled = MoveEvent::Ended(headgate_mirror::Outcome::Cancelled);
                one.events.send(cancelled).unwrap();
                one.events.send(MoveEvent::Reclaim(Side::Target)).unwrap();
                Ok(())
            }
        })
    }

    fn move_progress(&self, disk: &Name) -> Option<Progress> {
        let state = self.0.lock().unwrap();
        let one = state.moves.get(disk)?;
        Some(Progress { copied: Bytes(one.size.0 / 2), size: one.size, state: one.state })
    }

    fn end_move(&self, disk: &Name, _side: Side) -> Result<(), PlaneError> {
        self.run("end_move", |s| assert!(s.moves.remove(disk).is_some()))
    }
}
