//! Does what a move under way asks for, on a thread of its own: nobody else waits for it.

use crate::moving::{Phase, Verdict};
use crate::{Control, ControlError};
use headgate_api::moves::MoveOutcome;
use headgate_events::{Entry, Outcome, Who};
use headgate_mirror::{Record, Side, Word};
use headgate_model::{MoveEvent, Name, PlaneError};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Weak};
use std::thread::sleep;
use std::time::Duration;
use tracing::{info, warn};

/// After what time something is tried again that failed.
#[cfg(not(test))]
pub(super) const RETRY: Duration = Duration::from_secs(1);
#[cfg(test)]
pub(super) const RETRY: Duration = Duration::from_millis(2);

/// What becomes of the watch after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// There is more to come.
    Event,
    /// The data path has no more to do with the move.
    Over,
}

/// Who hears what a move asks for.
pub(super) struct Watch {
    control: Weak<Control>,
    disk: Name,
    events: Receiver<MoveEvent>,
    /// Came while something else was tried again.
    early: VecDeque<MoveEvent>,
}

impl Watch {
    pub(super) fn new(control: Weak<Control>, disk: Name, events: Receiver<MoveEvent>) -> Watch {
        Watch { control, disk, events, early: VecDeque::new() }
    }

    /// Starts the thread. Without one the move is ended.
    pub(super) fn start(self) -> Result<(), ControlError> {
        let (control, disk) = (self.control.clone(), self.disk.clone());
        let thread = std::thread::Builder::new().name("headgate-move".into());
        thread.spawn(move || self.run()).map(drop).map_err(|source| {
            if let Some(control) = control.upgrade() {
                let _ = control.plane.cancel_move(&disk);
                control.lose_move(&disk, "there was no thread for it");
            }
            ControlError::Io { doing: "start a thread for the move".into(), source }
        })
    }

    fn run(mut self) {
        loop {
            let event = self.early.pop_front().or_else(|| self.events.recv().ok());
            let Some(control) = self.control.upgrade() else { return };
            if self.take(&control, event) == Next::Over {
                return;
            }
        }
    }

    /// The next event, if there is one already.
    #[cfg(test)]
    pub(super) fn take_next(&mut self, control: &Arc<Control>) -> Next {
        let event = self.early.pop_front().or_else(|| self.events.recv().ok());
        self.take(control, event)
    }

    fn take(&mut self, control: &Arc<Control>, event: Option<MoveEvent>) -> Next {
        match event {
            Some(MoveEvent::Record(Record::Started)) => {
                // It was written down before the data path was asked.
                self.tell(control, Word::Made);
                Next::Event
            }
            Some(MoveEvent::Record(Record::Switched)) => {
                self.record_switch(control);
                Next::Event
            }
            Some(MoveEvent::Ended(outcome)) => {
                let verdict = Verdict::of(outcome);
                let (disk, reason) = (&self.disk, verdict.reason.as_deref());
                info!(%disk, outcome = verdict.outcome.as_str(), reason, "the move has ended");
                control.note(ended(disk, &verdict));
                control.put_phase(disk, Phase::Ended(verdict), None);
                Next::Event
            }
            Some(MoveEvent::Reclaim(side)) => {
                self.close(control, side);
                Next::Over
            }
            None => {
                control.lose_move(&self.disk, "the data path gave it up");
                Next::Over
            }
        }
    }

    /// Records the switch, and tells what became of that.
    fn record_switch(&mut self, control: &Control) {
        let mut word = match control.check_stands(&self.disk) {
            Ok(()) => control.write_switch(&self.disk),
            Err(why) => {
                warn!(disk = %self.disk, error = %why, "the move does not end with a switch");
                Word::NotMade
            }
        };
        while word == Word::Unknown {
            self.tell(control, word);
            sleep(RETRY);
            // Also when nobody waits for the word any more: the catalog is to say one thing.
            word = control.read_switch(&self.disk);
        }
        if word == Word::NotMade {
            // The data path asks again at once.
            sleep(RETRY);
        }
        self.tell(control, word);
        // While the switch was being recorded nothing could end the move.
        if word == Word::NotMade && control.check_held(&self.disk).is_err() {
            let _ = control.plane.cancel_move(&self.disk);
        }
    }

    fn close(&mut self, control: &Arc<Control>, side: Side) {
        let disk = self.disk.clone();
        if self.again(|| control.plane.end_move(&disk, side)).is_err() {
            return control.lose_move(&disk, "the data path gave it up");
        }
        control.close_move(&disk);
        control.reclaim_soon(&disk);
    }

    fn tell(&mut self, control: &Control, word: Word) {
        let disk = self.disk.clone();
        // One that is lost says so by the end of its events.
        let _ = self.again(|| control.plane.move_recorded(&disk, word));
    }

    /// Does something until it succeeds, or the data path has lost the move.
    fn again(&mut self, work: impl Fn() -> Result<(), PlaneError>) -> Result<(), PlaneError> {
        let mut told = None;
        loop {
            let Err(e) = work() else { return Ok(()) };
            if told.as_ref() != Some(&e) {
                warn!(disk = %self.disk, error = %e, "the data path does not take what it is told of a move");
            }
            if self.is_lost() {
                return Err(e);
            }
            told = Some(e);
            sleep(RETRY);
        }
    }

    /// Whether nothing comes any more.
    fn is_lost(&mut self) -> bool {
        match self.events.try_recv() {
            Ok(event) => {
                self.early.push_back(event);
                false
            }
            Err(TryRecvError::Empty) => false,
            Err(TryRecvError::Disconnected) => self.early.is_empty(),
        }
    }
}

fn ended(disk: &Name, verdict: &Verdict) -> Entry {
    let outcome = match verdict.outcome {
        MoveOutcome::Switched | MoveOutcome::Cancelled => Outcome::Taken,
        MoveOutcome::Failed | MoveOutcome::Interrupted => Outcome::Failed,
    };
    let what = format!("disk move {}", verdict.outcome.as_str());
    let mut entry = Entry::new(Who::Daemon, what, outcome).of_disk(disk);
    entry.why.clone_from(&verdict.reason);
    entry
}
