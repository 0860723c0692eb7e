use super::SamplesError;
use super::known::{Keeper, Shared};
use super::recorder::Chunk;
use super::store::{SamplesFile, set_aside_name};
use headgate_model::Name;
use headgate_units::Nanos;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use tracing::warn;

enum Work {
    Write(Chunk),
    Depart { disk: Name, datastore: Name, now: Nanos },
    Inherit { disk: Name, from: HistorySource, origin: Option<Name>, now: Nanos },
    ForgetDatastore(Name),
    Settle(Sender<()>),
}

/// The disk whose samples a new disk takes over.
pub(super) enum HistorySource {
    /// A disk that still exists; its samples are copied.
    Of(Name),
    /// A removed disk.
    Left(Name),
}

/// Writes samples on a thread of its own, in the order of its calls, until dropped.
pub(super) struct Writer {
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

struct Desk {
    file: SamplesFile,
    keeper: Keeper,
}

impl Desk {
    fn run(&mut self, work: Work) -> Result<(), SamplesError> {
        let Desk { file, keeper } = self;
        match work {
            Work::Write(chunk) => {
                let learnt = file.write(&chunk)?;
                keeper.wrote(file, &chunk, learnt)
            }
            Work::Depart { disk, datastore, now } => {
                file.depart(&disk, &datastore, now)?;
                keeper.departed(file, &disk, &datastore)
            }
            Work::Inherit { disk, from, origin, now } => {
                let from = match from {
                    HistorySource::Of(disk) => disk.to_string(),
                    HistorySource::Left(disk) => set_aside_name(&disk),
                };
                file.inherit(&disk, &from, origin.as_ref(), now)?;
                keeper.inherited(file, &disk, now)
            }
            Work::ForgetDatastore(datastore) => {
                file.forget_datastore(&datastore)?;
                keeper.forgot_datastore(file, &datastore)
            }
            Work::Settle(waiting) => {
                // Who does not wait any more does not need to know.
                let _ = waiting.send(());
                Ok(())
            }
        }
    }
}

impl Writer {
    pub fn start(file: SamplesFile, shared: Shared) -> io::Result<Writer> {
        let (work, todo) = channel();
        let thread =
            std::thread::Builder::new().name("headgate-samples".into()).spawn(move || {
                let mut desk = Desk { file, keeper: Keeper::new(shared) };
                if let Err(e) = desk.keeper.begin(&mut desk.file, super::wall_clock()) {
                    warn!(error = %e, "what was learnt before is not known");
                }
                for work in todo {
                    if let Err(e) = desk.run(work) {
                        warn!(error = %e, "samples are lost: advice will know less");
                    }
                }
            })?;
        Ok(Writer { work: Some(work), thread: Some(thread) })
    }

    fn tell(&self, work: Work) {
        if let Some(sender) = &self.work
            && sender.send(work).is_err()
        {
            warn!("the thread that writes samples has ended");
        }
    }

    pub fn write(&self, chunk: Chunk) {
        self.tell(Work::Write(chunk));
    }

    /// Sets a removed disk's samples aside.
    pub fn depart(&self, disk: &Name, datastore: &Name, now: Nanos) {
        self.tell(Work::Depart { disk: disk.clone(), datastore: datastore.clone(), now });
    }

    /// Lets a disk continue another; `origin` is the other's datastore if it is a different one.
    pub fn inherit(&self, disk: &Name, from: HistorySource, origin: Option<&Name>, now: Nanos) {
        self.tell(Work::Inherit { disk: disk.clone(), from, origin: origin.cloned(), now });
    }

    pub fn forget_datastore(&self, datastore: &Name) {
        self.tell(Work::ForgetDatastore(datastore.clone()));
    }

    /// Waits until all earlier calls are carried out.
    pub fn settle(&self) {
        let (done, waiting) = channel();
        self.tell(Work::Settle(done));
        // An error means that the thread has ended, which was said.
        let _ = waiting.recv();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
