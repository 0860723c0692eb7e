use super::recorder::Chunk;
use super::store::SamplesFile;
use crate::name::Name;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use tracing::warn;

enum Work {
    Write(Chunk),
    ForgetDisk(Name),
    ForgetDatastore(Name),
    Settle(Sender<()>),
}

/// Writes samples on a thread of its own, in the order in which it is told, until dropped.
pub(super) struct Writer {
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub fn start(mut file: SamplesFile) -> io::Result<Writer> {
        let (work, todo) = channel();
        let thread = std::thread::Builder::new().name("headgate-samples".into()).spawn(move || {
            for work in todo {
                let done = match work {
                    Work::Write(chunk) => file.write(&chunk),
                    Work::ForgetDisk(disk) => file.forget_disk(&disk),
                    Work::ForgetDatastore(datastore) => file.forget_datastore(&datastore),
                    Work::Settle(waiting) => {
                        // Who does not wait any more does not need to know.
                        let _ = waiting.send(());
                        Ok(())
                    }
                };
                if let Err(e) = done {
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

    pub fn forget_disk(&self, disk: &Name) {
        self.tell(Work::ForgetDisk(disk.clone()));
    }

    pub fn forget_datastore(&self, datastore: &Name) {
        self.tell(Work::ForgetDatastore(datastore.clone()));
    }

    /// Waits until all that was told is done.
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
