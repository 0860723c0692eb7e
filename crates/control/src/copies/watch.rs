//! Follows a copy to its end, on a thread of its own: then the copy is a disk, or gone.

use crate::changed_blocks::Opened;
use crate::creation::{Creation, HandedOver};
use crate::leases::Eviction;
use crate::resize::not_resized;
use crate::snapshots::Snapshot;
use crate::{Control, ControlError, DiskEntry, Service, crash};
use headgate_events::{Entry, Outcome as Told, Who};
use headgate_mirror::instant::Outcome;
use headgate_model::{Backend, CopyEvent, CutOff, DiskRecord, DiskState, Name, Origin};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Weak};
use std::thread::sleep;
use std::time::Duration;
use tracing::{info, warn};

/// After what time something is tried again that failed.
#[cfg(not(test))]
const RETRY: Duration = Duration::from_secs(1);
#[cfg(test)]
const RETRY: Duration = Duration::from_millis(2);

/// How often: a shard that stands still for so long is not waited for.
const TRIES: u32 = 60;

/// Who hears how a copy goes.
pub(super) struct Watch {
    control: Weak<Control>,
    /// The disk that it will be.
    record: DiskRecord,
    backend: Backend,
    made: HandedOver,
    /// Of a snapshot: what it will know of the one before it.
    opened: Option<Opened>,
    events: Receiver<CopyEvent>,
}

impl Watch {
    pub(super) fn new(
        control: Weak<Control>,
        record: DiskRecord,
        backend: Backend,
        made: HandedOver,
        opened: Option<Opened>,
        events: Receiver<CopyEvent>,
    ) -> Watch {
        Watch { control, record, backend, made, opened, events }
    }

    /// Starts the thread, which tells what becomes of the instant. Without a thread the copy is
    /// ended.
    pub(super) fn start(self, told: Sender<Result<(), String>>) -> Result<(), ControlError> {
        let (control, copy) = (self.control.clone(), self.record.name.clone());
        let thread = std::thread::Builder::new().name("headgate-copy".into());
        #[cfg(test)]
        let plan = crash::testing::plan();
        let run = move || {
            #[cfg(test)]
            return crash::testing::under(plan, || self.run(&told));
            #[cfg(not(test))]
            self.run(&told)
        };
        thread.spawn(run).map(drop).map_err(|source| {
            if let Some(control) = control.upgrade() {
                let _ = control.plane.cancel_copy(&copy);
                // Its row says that it is to be removed, and it is when its service is looked at.
                control.set_service(&copy, Service::Failed("there was no thread for it".into()));
                control.forget_copy_of(&copy, Some("there was no thread for it".into()));
            }
            ControlError::Io { doing: "start a thread for the copy".into(), source }
        })
    }

    fn run(mut self, told: &Sender<Result<(), String>>) {
        let outcome = loop {
            match self.events.recv() {
                Ok(CopyEvent::Blocks(blocks)) => {
                    let Some(control) = self.control.upgrade() else { return };
                    control.note_blocks(&self.record.name, blocks);
                }
                Ok(CopyEvent::Instant) => {
                    let Some(control) = self.control.upgrade() else { return };
                    control.note_instant(&self.record.name);
                    if let Some(opened) = &mut self.opened {
                        opened.instant(self.record.size);
                    }
                    let _ = told.send(Ok(()));
                }
                Ok(CopyEvent::Ended(outcome)) => break Some(outcome),
                // The end comes first.
                Ok(CopyEvent::Released) | Err(_) => break None,
            }
        };
        let reason = match outcome {
            Some(Outcome::Complete) => None,
            Some(Outcome::Cancelled) => Some("it was cancelled".to_owned()),
            Some(Outcome::GivenUp(reason)) => Some(reason.to_string()),
            None => Some("the data path gave it up".to_owned()),
        };
        if let Some(control) = self.control.upgrade() {
            control.note_end(&self.record.name);
        }
        // Nothing is under way when that is said, or nobody says anything any more.
        while let Ok(event) = self.events.recv() {
            if event == CopyEvent::Released {
                break;
            }
        }
        // A daemon that ends leaves the row: the next one removes the copy.
        let Some(control) = self.control.upgrade() else { return };
        let failed = self.finish(&control, outcome, reason);
        let _ = told.send(failed.map_or(Ok(()), Err));
    }

    /// Brings the copy into service, or undoes it. Why, if it was undone.
    fn finish(
        self,
        control: &Arc<Control>,
        outcome: Option<Outcome>,
        reason: Option<String>,
    ) -> Option<String> {
        let Watch { record, backend, made, opened, .. } = self;
        let copy = record.name.clone();
        let mut creation = Creation::of(control.clone(), made);
        let reason = match reason {
            Some(reason) => Some(reason),
            None => {
                let served = control.serve_copy(record, &backend, opened, &mut creation);
                served.err().map(|e| e.to_string())
            }
        };
        if reason.is_some() {
            close(control, &copy);
            control.forget_known_changes(&copy);
        }
        match &reason {
            None => {
                creation.finish();
                info!(%copy, "the copy is complete, and a disk");
                control.note(Entry::done("disk copy complete").of_disk(&copy));
            }
            Some(reason) => {
                let undone = Entry::new(Who::Daemon, "disk copy undone", Told::Failed);
                control.note(undone.of_disk(&copy).because(reason));
                match outcome {
                    Some(Outcome::Cancelled) => info!(%copy, "the copy is cancelled, and undone"),
                    _ => warn!(%copy, %reason, "the copy is undone"),
                }
                drop(creation);
            }
        }
        match outcome {
            Some(Outcome::Cancelled) => control.forget_cancelled_copy(&copy),
            _ => control.forget_copy_of(&copy, reason.clone()),
        }
        reason
    }
}

/// Closes the storage of a copy that is no disk.
fn close(control: &Control, copy: &Name) {
    for _ in 0..TRIES {
        let Err(e) = control.plane.end_copy(copy) else { return };
        warn!(%copy, error = %e, "the storage of a copy that is over is not closed yet");
        sleep(RETRY);
    }
}

impl Control {
    /// Opens a copy that is complete, and writes down that it is a disk.
    fn serve_copy(
        &self,
        record: DiskRecord,
        backend: &Backend,
        mut opened: Option<Opened>,
        creation: &mut Creation,
    ) -> Result<(), ControlError> {
        let copy = record.name.clone();
        crash::point("copy complete");
        let (at, filled) = {
            let model = self.model();
            let copying = model.copies.get(&copy);
            let instant = copying.and_then(|copying| copying.instant);
            let began = record.origin.as_ref().map(|origin| origin.at);
            let filled = copying.map_or(record.size, |copying| copying.size);
            (instant.or(began).unwrap_or_default(), filled)
        };
        let snapshot = Snapshot { name: copy.clone(), at };
        // Before clients can come.
        if let Some(opened) = &mut opened {
            self.keep_opened(&snapshot, opened);
        }
        crash::point("what a snapshot knows kept");
        let as_filled = DiskRecord { size: filled, ..record.clone() };
        self.open_held_disk(&as_filled, backend, None, Eviction::Never)?;
        creation.serves();
        if filled < record.size {
            let grown = self.plane.resize_disk(&copy, record.size, CutOff::Keep);
            grown.map_err(|refusal| not_resized(&record, refusal))?;
        }
        let mut catalog = self.catalog();
        // With what was changed meanwhile.
        let now = self.model().disk(&copy)?.record.clone();
        let origin = now.origin.clone().map(|origin| Origin { at, ..origin });
        let record = DiskRecord { state: DiskState::Ready, origin, ..now };
        catalog.update_disk(&record)?;
        crash::point("copy written down");
        let entry = DiskEntry { record, service: Service::Serving };
        self.model_mut().disks.insert(copy, entry);
        if let Some(opened) = opened {
            self.advance_changes(snapshot, opened);
        }
        Ok(())
    }
}
