//! One thread beside a shard for questions to the file system that may block.

use std::io;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Jobs that may wait. A client that asks for block status faster than the file system answers gets
/// an error, not our memory.
const JOBS_MAX: usize = 1024;

pub(crate) struct Worker {
    jobs: SyncSender<Job>,
}

impl Worker {
    /// The thread ends when the worker is dropped.
    pub(crate) fn start(name: &str) -> io::Result<Worker> {
        let (jobs, queue) = sync_channel::<Job>(JOBS_MAX);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            for job in queue {
                job();
            }
        })?;
        Ok(Worker { jobs })
    }

    pub(crate) fn run(&self, job: Job) -> Result<(), TrySendError<Job>> {
        self.jobs.try_send(job)
    }
}
