//! Sockets that wait, without a thread each.
//!
//! A front-end sends some dozens of messages when its machine starts, and then none for weeks. One
//! thread waits for all sockets; what has come on one is handled by a worker, which may block as
//! long as its peer likes: there is another worker for everybody else, started when none is idle.
//! So there are as many threads as front-ends that are in the middle of something.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A worker without work ends after so long.
const IDLE: Duration = Duration::from_secs(5);
/// Stack of a worker, and of the thread that waits.
const STACK: usize = 256 << 10;
/// The eventfd that ends the waiting.
const END: u64 = 0;

type Task = Box<dyn FnOnce() + Send>;

/// A socket that is waited for.
pub(crate) type Socket = Arc<dyn AsFd + Send + Sync>;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ticket(u64);

/// Whether somebody was in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgotten {
    /// The task was not begun, and is gone.
    InTime,
    /// It has been given to a worker.
    TooLate,
}

/// Waits for sockets, and works. It ends with its last clone; then tasks that were not begun are
/// gone, with the sockets that they own.
#[derive(Clone)]
pub struct Reactor(Arc<Handle>);

impl Reactor {
    /// Starts the thread that waits.
    ///
    /// # Errors
    /// The system has no descriptor or no thread left.
    pub fn start() -> io::Result<Reactor> {
        let shared = Arc::new(Shared {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            end: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            sockets: Mutex::default(),
            jobs: Mutex::default(),
            more: Condvar::new(),
        });
        epoll::add(&shared.epoll, &shared.end, EventData::new_u64(END), EventFlags::IN)?;
        let waiting = Arc::clone(&shared);
        thread("vhost-poll", move || waiting.wait())?;
        Ok(Reactor(Arc::new(Handle(shared))))
    }

    /// Runs `task` on a worker, once, as soon as there is something to read from the socket or its
    /// peer is gone.
    ///
    /// # Errors
    /// The system's; the task is gone then.
    pub(crate) fn when_readable(
        &self,
        socket: Socket,
        task: impl FnOnce() + Send + 'static,
    ) -> io::Result<Ticket> {
        self.0.0.register(socket, Box::new(task))
    }

    /// Takes a task back that was not begun.
    pub(crate) fn forget(&self, ticket: Ticket) -> Forgotten {
        match self.0.0.take(ticket.0) {
            Some(_) => Forgotten::InTime,
            None => Forgotten::TooLate,
        }
    }
}

/// Ends the thread that waits when the last [`Reactor`] goes.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        // The counter is far from full.
        let _ = rustix::io::write(&self.0.end, &1u64.to_ne_bytes());
        self.0.sockets().waiting.clear();
    }
}

#[derive(Default)]
struct Sockets {
    waiting: HashMap<u64, (Socket, Task)>,
    last: u64,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Task>,
    /// Workers that wait for one.
    idle: usize,
}

struct Shared {
    epoll: OwnedFd,
    end: OwnedFd,
    sockets: Mutex<Sockets>,
    jobs: Mutex<Jobs>,
    more: Condvar,
}

impl Shared {
    fn sockets(&self) -> MutexGuard<'_, Sockets> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, socket: Socket, task: Task) -> io::Result<Ticket> {
        let mut sockets = self.sockets();
        sockets.last += 1;
        let ticket = sockets.last;
        let events = EventFlags::IN | EventFlags::RDHUP | EventFlags::ONESHOT;
        epoll::add(&self.epoll, &*socket, EventData::new_u64(ticket), events)?;
        sockets.waiting.insert(ticket, (socket, task));
        Ok(Ticket(ticket))
    }

    /// What waited with this ticket; its socket is not waited for any more.
    fn take(&self, ticket: u64) -> Option<Task> {
        let mut sockets = self.sockets();
        let (socket, task) = sockets.waiting.remove(&ticket)?;
        // It cannot fail for a socket that was added, and is still open.
        let _ = epoll::delete(&self.epoll, &*socket);
        Some(task)
    }

    /// The thread that waits.
    fn wait(self: Arc<Shared>) {
        let mut events = [const { MaybeUninit::uninit() }; 64];
        loop {
            let ready = match epoll::wait(&self.epoll, &mut events[..], None) {
                Ok((ready, _)) => ready,
                Err(Errno::INTR) => continue,
                Err(error) => return tracing::error!(%error, "front-ends are heard no more"),
            };
            for event in ready.iter() {
                match event.data.u64() {
                    END => return,
                    ticket => {
                        if let Some(task) = self.take(ticket) {
                            self.run(task);
                        }
                    }
                }
            }
        }
    }

    /// Gives the task to a worker.
    fn run(self: &Arc<Shared>, task: Task) {
        let mut jobs = self.jobs();
        jobs.queue.push_back(task);
        if jobs.idle >= jobs.queue.len() {
            return self.more.notify_one();
        }
        drop(jobs);
        let worker = Arc::clone(self);
        if let Err(error) = thread("vhost-user", move || worker.work()) {
            // The task waits for the next worker that is done.
            tracing::warn!(%error, "no thread for a front-end's messages");
        }
    }

    /// A worker's thread.
    fn work(&self) {
        let mut jobs = self.jobs();
        loop {
            if let Some(task) = jobs.queue.pop_front() {
                drop(jobs);
                task();
                jobs = self.jobs();
                continue;
            }
            jobs.idle += 1;
            let (after, timeout) =
                self.more.wait_timeout(jobs, IDLE).unwrap_or_else(PoisonError::into_inner);
            jobs = after;
            jobs.idle -= 1;
            if timeout.timed_out() && jobs.queue.is_empty() {
                return;
            }
        }
    }
}

fn thread(name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(f).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{Receiver, channel};

    const PATIENCE: Duration = Duration::from_secs(30);

    fn pair() -> (Arc<UnixStream>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Arc::new(ours), theirs)
    }

    /// Says when the socket can be read.
    fn told(reactor: &Reactor, socket: &Arc<UnixStream>) -> (Ticket, Receiver<()>) {
        let (tell, told) = channel();
        let ticket = reactor.when_readable(socket.clone(), move || _ = tell.send(())).unwrap();
        (ticket, told)
    }

    #[test]
    fn a_task_runs_once_when_something_comes_or_the_peer_goes() {
        let reactor = Reactor::start().unwrap();
        let (ours, mut theirs) = pair();
        theirs.write_all(b"before").unwrap();
        let (_, there_already) = told(&reactor, &ours);
        there_already.recv_timeout(PATIENCE).unwrap();
        (&*ours).read_exact(&mut [0; 6]).unwrap();
        let (_, to_come) = told(&reactor, &ours);
        assert!(to_come.try_recv().is_err());
        theirs.write_all(b"later").unwrap();
        to_come.recv_timeout(PATIENCE).unwrap();
        assert!(to_come.recv_timeout(PATIENCE).is_err(), "the task is gone: it ran once");
        (&*ours).read_exact(&mut [0; 5]).unwrap();
        let (_, gone) = told(&reactor, &ours);
        drop(theirs);
        gone.recv_timeout(PATIENCE).unwrap();
    }

    #[test]
    fn peers_that_say_half_a_word_hold_nobody_else_up() {
        let reactor = Reactor::start().unwrap();
        let slow: Vec<_> = (0..20).map(|_| pair()).collect();
        let (end, ended) = channel();
        for (ours, theirs) in &slow {
            let (socket, end) = (ours.clone(), end.clone());
            let wait = move || {
                let mut word = [0; 8];
                let whole = (&*socket).read_exact(&mut word);
                end.send(whole.is_ok()).unwrap();
            };
            reactor.when_readable(ours.clone(), wait).unwrap();
            (&mut &*theirs).write_all(b"half").unwrap();
        }
        let (ours, mut theirs) = pair();
        let (_, quick) = told(&reactor, &ours);
        theirs.write_all(b"all").unwrap();
        quick.recv_timeout(PATIENCE).unwrap();
        assert!(ended.try_recv().is_err(), "the slow ones are still waiting");
        for (_, mut theirs) in slow {
            theirs.write_all(b"rest").unwrap();
            assert!(ended.recv_timeout(PATIENCE).unwrap());
        }
    }

    #[test]
    fn a_forgotten_task_does_not_run_and_gives_its_socket_back() {
        let reactor = Reactor::start().unwrap();
        let (ours, mut theirs) = pair();
        let (ticket, told) = told(&reactor, &ours);
        assert_eq!(reactor.forget(ticket), Forgotten::InTime);
        assert_eq!(reactor.forget(ticket), Forgotten::TooLate);
        theirs.write_all(b"too late").unwrap();
        assert!(told.recv_timeout(PATIENCE).is_err(), "its end of the channel is gone");
        assert_eq!(Arc::strong_count(&ours), 1);
        let (_, again) = super::tests::told(&reactor, &ours);
        again.recv_timeout(PATIENCE).unwrap();
    }

    #[test]
    fn what_waits_goes_with_the_reactor() {
        let reactor = Reactor::start().unwrap();
        let (ours, _theirs) = pair();
        let (_, told) = told(&reactor, &ours);
        drop(reactor);
        assert!(told.recv_timeout(PATIENCE).is_err());
        assert_eq!(Arc::strong_count(&ours), 1);
    }

    #[test]
    fn workers_are_used_again() {
        let reactor = Reactor::start().unwrap();
        let (ours, mut theirs) = pair();
        let mut threads = std::collections::HashSet::new();
        for _ in 0..100 {
            let (tell, told) = channel();
            let (socket, task) = (ours.clone(), ours.clone());
            let read = move || {
                (&*task).read_exact(&mut [0]).unwrap();
                tell.send(std::thread::current().id()).unwrap();
            };
            reactor.when_readable(socket, read).unwrap();
            theirs.write_all(b"x").unwrap();
            threads.insert(told.recv_timeout(PATIENCE).unwrap());
        }
        assert!(threads.len() < 50, "{} threads for one peer", threads.len());
    }
}
