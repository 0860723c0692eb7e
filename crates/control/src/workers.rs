//! Workers: a thread for each datastore does what may wait for its storage, one thing after the
//! other. Nobody else waits for storage, so a datastore that hangs is the only one that does.
//!
//! Who has a worker do something waits for a bounded time. What has not begun by then is not begun,
//! and what has begun is told that nobody waits for it any more ([`Ticket::commit`]).

use headgate_model::Name;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Storage that has not answered for so long hangs. It is more than an image may stay locked by a
/// daemon that was just killed.
pub(crate) const HUNG: Duration = Duration::from_secs(8);

/// How often who waits looks whether that is still of use.
const LOOK: Duration = Duration::from_millis(50);

/// A datastore whose storage does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hang {
    /// Since when, in seconds since 1970.
    pub since: u64,
    /// For how long.
    pub lasted: Duration,
    /// What it does not do.
    pub doing: String,
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it has not answered for {} s: {}", self.lasted.as_secs(), self.doing)
    }
}

/// Seconds since 1970, so long ago.
pub(crate) fn wall_seconds_ago(lasted: Duration) -> u64 {
    let then = SystemTime::now().checked_sub(lasted).unwrap_or(UNIX_EPOCH);
    then.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Why a worker did not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotDone {
    /// The storage does not answer.
    Hung(Hang),
    /// It broke off, or there is no thread.
    Cut(String),
}

/// Who decides over the end of something under way: who does it, or who waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    /// It is done, whoever waits.
    Committed,
    /// Nobody waits any more.
    GivenUp,
}

/// What a worker is doing.
#[derive(Debug)]
struct Task {
    doing: String,
    /// Since when it has waited for the storage; `None` while it waits for something else.
    since: Option<Instant>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is under way, as the one who does it sees it.
pub(crate) struct Ticket {
    task: Arc<Mutex<Option<Task>>>,
    fate: Arc<Mutex<Fate>>,
}

impl Ticket {
    /// From here on it is done. `false`: nobody waits for it any more, so it is to be undone.
    pub(crate) fn commit(&self) -> bool {
        let mut fate = locked(&self.fate);
        if *fate == Fate::Open {
            *fate = Fate::Committed;
        }
        *fate == Fate::Committed
    }

    /// Waits for something that is not the storage.
    pub(crate) fn rest<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.watch(None);
        let outcome = wait();
        self.watch(Some(Instant::now()));
        outcome
    }

    /// The storage has answered; what it is asked next is a new question.
    pub(crate) fn step(&self, doing: impl Into<String>) {
        if let Some(task) = &mut *locked(&self.task) {
            *task = Task { doing: doing.into(), since: Some(Instant::now()) };
        }
    }

    fn watch(&self, since: Option<Instant>) {
        if let Some(task) = &mut *locked(&self.task) {
            task.since = since;
        }
    }
}

type Work = Box<dyn FnOnce(&Ticket) + Send>;

/// Something to do. Who gives it up takes it out.
struct Job {
    doing: String,
    work: Arc<Mutex<Option<Work>>>,
    fate: Arc<Mutex<Fate>>,
    end: Option<End>,
}

/// Forgets a datastore's thread behind a job, unless more has come for it since.
struct End {
    datastore: Name,
    workers: Weak<Mutex<BTreeMap<Name, Worker>>>,
}

impl End {
    /// The job that this is behind still counts as pending.
    fn forget(self, pending: &Mutex<usize>) {
        let Some(workers) = self.workers.upgrade() else { return };
        let mut workers = locked(&workers);
        if *locked(pending) == 1 {
            workers.remove(&self.datastore);
        }
    }
}

/// Whether a datastore's thread is of use behind a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    More,
    /// The datastore is no more.
    Nothing,
}

#[derive(Clone)]
struct Worker {
    jobs: Sender<Job>,
    task: Arc<Mutex<Option<Task>>>,
    /// Jobs that wait or are under way.
    pending: Arc<Mutex<usize>>,
}

impl Worker {
    fn start(name: &Name) -> std::io::Result<Worker> {
        let (jobs, queue) = channel();
        let (task, pending) = (Arc::default(), Arc::default());
        let worker = Worker { jobs, task, pending };
        let its = (worker.task.clone(), worker.pending.clone());
        // The kernel's names of threads have 15 bytes.
        let thread: String = format!("store {name}").chars().take(15).collect();
        std::thread::Builder::new().name(thread).spawn(move || run(&queue, &its.0, &its.1))?;
        Ok(worker)
    }

    fn hang(&self) -> Option<Hang> {
        let task = locked(&self.task);
        let task = task.as_ref()?;
        let lasted = task.since?.elapsed();
        (lasted >= HUNG).then(|| Hang {
            since: wall_seconds_ago(lasted),
            lasted,
            doing: task.doing.clone(),
        })
    }
}

fn run(queue: &Receiver<Job>, task: &Arc<Mutex<Option<Task>>>, pending: &Mutex<usize>) {
    for Job { doing, work, fate, end } in queue {
        let work = locked(&work).take();
        if let Some(work) = work {
            *locked(task) = Some(Task { doing, since: Some(Instant::now()) });
            let ticket = Ticket { task: task.clone(), fate };
            if catch_unwind(AssertUnwindSafe(|| work(&ticket))).is_err() {
                tracing::error!("an operation on storage panicked");
            }
            *locked(task) = None;
        }
        if let Some(end) = end {
            end.forget(pending);
        }
        *locked(pending) -= 1;
    }
}

/// The workers of all datastores. Threads end when it is dropped and they have nothing to do.
#[derive(Default)]
pub(crate) struct Workers(Arc<Mutex<BTreeMap<Name, Worker>>>);

impl Workers {
    /// A datastore's thread, which has one more job pending from here on: it is not forgotten
    /// before that has come.
    fn of(&self, datastore: &Name) -> Result<Worker, NotDone> {
        let mut workers = locked(&self.0);
        let worker = match workers.get(datastore) {
            Some(worker) => worker.clone(),
            None => {
                let worker = Worker::start(datastore)
                    .map_err(|e| NotDone::Cut(format!("cannot start a thread: {e}")))?;
                workers.insert(datastore.clone(), worker.clone());
                worker
            }
        };
        *locked(&worker.pending) += 1;
        Ok(worker)
    }

    fn send(worker: &Worker, job: Job) -> Result<(), NotDone> {
        let sent = worker.jobs.send(job);
        sent.map_err(|_| NotDone::Cut("the datastore's thread has ended".into()))
    }

    /// Has the datastore's thread do something, and waits for it: until the storage hangs, or for
    /// `patience` once it has begun.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        datastore: &Name,
        doing: impl Into<String>,
        patience: Duration,
        work: impl FnOnce(&Ticket) -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        self.run_and(datastore, doing, patience, Behind::More, work)
    }

    /// The same for a datastore that is no more: its thread is not needed behind that. What is
    /// asked of a new one of the same name comes behind it, and not beside it.
    pub(crate) fn run_last<T: Send + 'static>(
        &self,
        datastore: &Name,
        doing: impl Into<String>,
        patience: Duration,
        work: impl FnOnce(&Ticket) -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        self.run_and(datastore, doing, patience, Behind::Nothing, work)
    }

    fn run_and<T: Send + 'static>(
        &self,
        datastore: &Name,
        doing: impl Into<String>,
        patience: Duration,
        behind: Behind,
        work: impl FnOnce(&Ticket) -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        let (worker, doing) = (self.of(datastore)?, doing.into());
        // What a thread does last is sent all the same, for behind it the thread ends.
        if behind == Behind::More
            && let Some(hang) = worker.hang()
        {
            *locked(&worker.pending) -= 1;
            return Err(NotDone::Hung(hang));
        }
        let end = (behind == Behind::Nothing)
            .then(|| End { datastore: datastore.clone(), workers: Arc::downgrade(&self.0) });
        let (answer, wait) = sync_channel(1);
        let (begin, begun) = sync_channel(1);
        let fate = Arc::new(Mutex::new(Fate::Open));
        #[cfg(test)]
        let plan = crate::crash::testing::plan();
        let work: Work = Box::new(move |ticket| {
            let _ = begin.send(Instant::now());
            // All that it holds is gone before its end is known.
            #[cfg(not(test))]
            let outcome = work(ticket);
            #[cfg(test)]
            let outcome = crate::crash::testing::under(plan, || work(ticket));
            let _ = answer.send(outcome);
        });
        let slot = Arc::new(Mutex::new(Some(work)));
        let (work, its) = (slot.clone(), fate.clone());
        Workers::send(&worker, Job { doing: doing.clone(), work, fate: its, end })?;
        let mut began: Option<Instant> = None;
        loop {
            match wait.recv_timeout(LOOK) {
                Ok(outcome) => return Ok(outcome),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(NotDone::Cut("it was cut: see the daemon's log".into()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            began = began.or_else(|| begun.try_recv().ok());
            let Some(hang) = (match began {
                None => worker.hang(),
                Some(began) => worker.hang().or_else(|| {
                    let lasted = began.elapsed();
                    let since = wall_seconds_ago(lasted);
                    (lasted >= patience).then(|| Hang { since, lasted, doing: doing.clone() })
                }),
            }) else {
                continue;
            };
            // What has not begun never will.
            let untouched = locked(&slot).take();
            if untouched.is_some() {
                return Err(NotDone::Hung(hang));
            }
            let mut fate = locked(&fate);
            if *fate == Fate::Open {
                *fate = Fate::GivenUp;
                return Err(NotDone::Hung(hang));
            }
            // It is done, and its answer is on its way.
            drop(fate);
            let answer = wait.recv_timeout(HUNG);
            return answer.map_err(|_| NotDone::Hung(hang));
        }
    }

    /// Has the datastore's thread do something that nobody waits for.
    pub(crate) fn start(
        &self,
        datastore: &Name,
        doing: impl Into<String>,
        work: impl FnOnce(&Ticket) + Send + 'static,
    ) -> Result<(), NotDone> {
        let worker = self.of(datastore)?;
        let work: Work = Box::new(work);
        let (work, fate) = (Arc::new(Mutex::new(Some(work))), Arc::new(Mutex::new(Fate::Open)));
        Workers::send(&worker, Job { doing: doing.into(), work, fate, end: None })
    }

    /// Whether a datastore's thread has nothing to do.
    pub(crate) fn is_idle(&self, datastore: &Name) -> bool {
        locked(&self.0).get(datastore).is_none_or(|worker| *locked(&worker.pending) == 0)
    }

    /// Whether a datastore's storage hangs.
    pub(crate) fn hang(&self, datastore: &Name) -> Option<Hang> {
        let worker = locked(&self.0).get(datastore).cloned();
        worker?.hang()
    }

    /// Forgets a datastore that is no more.
    pub(crate) fn forget(&self, datastore: &Name) {
        locked(&self.0).remove(datastore);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn one_that_hangs_holds_up_neither_others_nor_who_asks_again() {
        let workers = Workers::default();
        let (release, held) = channel::<()>();
        let (late, ended) = channel();
        let stuck = workers.run(&name("a"), "looking", Duration::from_millis(100), move |ticket| {
            held.recv().unwrap();
            late.send(ticket.commit()).unwrap();
        });
        let Err(NotDone::Hung(hang)) = stuck else { panic!("{stuck:?}") };
        assert_eq!(hang.doing, "looking");
        assert_eq!(workers.run(&name("b"), "", MINUTE, |_| 7), Ok(7));
        // Who comes behind it is told as soon as it counts as hanging, and is not served later.
        let (begun, never) = channel();
        let behind = workers.run(&name("a"), "", MINUTE, move |_| begun.send(()).unwrap());
        assert!(matches!(behind, Err(NotDone::Hung(_))), "{behind:?}");
        assert!(workers.hang(&name("a")).is_some());
        release.send(()).unwrap();
        assert!(!ended.recv().unwrap(), "nobody waits for it");
        while workers.hang(&name("a")).is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(workers.run(&name("a"), "", MINUTE, |_| 8), Ok(8), "it is back");
        assert!(never.try_recv().is_err());
        assert_eq!(workers.hang(&name("a")), None);
    }

    #[test]
    fn the_thread_of_a_datastore_that_is_no_more_ends_unless_more_has_come() {
        let workers = Workers::default();
        let threads = |workers: &Workers| locked(&workers.0).len();
        assert_eq!(workers.run_last(&name("a"), "", MINUTE, |_| 7), Ok(7));
        while threads(&workers) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // A datastore of the same name is made while the last job of the former hangs.
        let (release, held) = channel::<()>();
        let (go_on, waits) = channel::<()>();
        let (order, done) = channel();
        let (first, second) = (order.clone(), order.clone());
        let given_up = workers.run_last(&name("a"), "", Duration::ZERO, move |_| {
            held.recv().unwrap();
            first.send("former").unwrap();
        });
        assert!(matches!(given_up, Err(NotDone::Hung(_))), "{given_up:?}");
        let of_the_new = move |_: &Ticket| {
            second.send("new").unwrap();
            waits.recv().unwrap();
            second.send("new, done").unwrap();
        };
        workers.start(&name("a"), "", of_the_new).unwrap();
        release.send(()).unwrap();
        assert_eq!([done.recv().unwrap(), done.recv().unwrap()], ["former", "new"]);
        // What comes now comes behind the new one's first job, on the same thread.
        assert!(!workers.is_idle(&name("a")), "its thread was forgotten with the former's");
        workers.start(&name("a"), "", move |_| order.send("next").unwrap()).unwrap();
        go_on.send(()).unwrap();
        assert_eq!([done.recv().unwrap(), done.recv().unwrap()], ["new, done", "next"]);
        assert_eq!(workers.run(&name("a"), "", MINUTE, |_| 8), Ok(8));
        assert_eq!(threads(&workers), 1, "it is the new one's");
    }

    #[test]
    fn what_panics_is_an_error_and_the_next_is_done() {
        let workers = Workers::default();
        let cut = workers.run(&name("a"), "", MINUTE, |_| -> u8 { panic!("on purpose") });
        assert!(matches!(cut, Err(NotDone::Cut(_))), "{cut:?}");
        assert_eq!(workers.run(&name("a"), "", MINUTE, |_| 7), Ok(7));
    }
}
