//! Calls of a shard from other threads. None waits for a shard that stands still.

use crate::clock;
use crate::engine::{Engine, ShardGroup};
use crate::error::{EngineError, ShardGone};
use crate::kernel::mailbox::Mailbox;
use crate::known::Known;
use crate::pulse::{Activity, InKernel, Pulse, Stall};
use crate::shard::Shard;
use crate::waits::{ShardWaits, Waits};
use headgate_units::Nanos;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

/// A shard as other threads know it.
#[derive(Debug)]
pub(crate) struct Member {
    pub mailbox: Mailbox<Shard>,
    pub thread: Mutex<Option<JoinHandle<io::Result<()>>>>,
    pub datastores: AtomicUsize,
    /// Whose datastores alone it takes.
    pub group: Option<ShardGroup>,
    pub pulse: Arc<Pulse>,
    pub waits: Arc<Waits>,
    /// The names of its disks, by their numbers.
    disks: Mutex<BTreeMap<usize, String>>,
    /// What was last read of them.
    pub known: Mutex<Known>,
}

/// How often who waits for an answer looks whether the shard stands still.
const LOOK: Duration = Duration::from_millis(100);

/// How often the end of a thread is looked for.
const END: Duration = Duration::from_millis(2);

impl Member {
    pub(crate) fn new(
        mailbox: Mailbox<Shard>,
        (pulse, waits): (Arc<Pulse>, Arc<Waits>),
        thread: JoinHandle<io::Result<()>>,
        group: Option<ShardGroup>,
    ) -> Member {
        Member {
            mailbox,
            thread: Mutex::new(Some(thread)),
            datastores: AtomicUsize::new(0),
            group,
            pulse,
            waits,
            disks: Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// The names of its disks, by their numbers.
    pub(crate) fn disks(&self) -> MutexGuard<'_, BTreeMap<usize, String>> {
        self.disks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stall(&self, shard: usize, now: Nanos) -> Option<Stall> {
        let waited = self.pulse.stalled_for(now)?;
        let (disk, in_kernel) = match self.pulse.activity() {
            Activity::Client(disk) => (self.disks().get(&(disk as usize)).cloned(), InKernel::No),
            Activity::Kernel => (None, InKernel::Yes),
            Activity::Turn => (None, InKernel::No),
        };
        Some(Stall { shard, waited, thread: self.pulse.thread(), disk, in_kernel })
    }

    /// Stops the thread, and waits for its end unless it stands still.
    pub(crate) fn stop(&self, shard: usize) -> Result<(), ShardGone> {
        self.mailbox.send(Box::new(Shard::stop))?;
        self.pulse.ask(clock::now());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return Ok(()) };
        while !thread.is_finished() {
            if let Some(stall) = self.stall(shard, clock::now()) {
                tracing::error!(%stall, "it is left as it is");
                return Ok(());
            }
            sleep(END);
        }
        if thread.join().is_err() {
            tracing::error!("a shard panicked");
        }
        Ok(())
    }
}

/// Who decides over a call: the shard that begins it, or the caller that gives up.
#[derive(Debug, Default)]
struct Claim(AtomicBool);

impl Claim {
    /// The first one has it.
    fn is_mine(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

impl Engine {
    pub(crate) fn member(&self, shard: usize) -> Result<&Member, EngineError> {
        self.members.get(shard).ok_or(EngineError::NoDatastore)
    }

    /// Runs `f` on a shard's thread and waits for its answer. What fails because the shard stands
    /// still is not done later either.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        shard: usize,
        f: impl FnOnce(&mut Shard) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        let member = self.member(shard)?;
        if let Some(stall) = member.stall(shard, clock::now()) {
            return Err(EngineError::Stalled(stall));
        }
        let (answer, wait) = sync_channel(1);
        let claim = Arc::new(Claim::default());
        let command = {
            let (claim, pulse) = (claim.clone(), member.pulse.clone());
            Box::new(move |shard: &mut Shard| {
                pulse.answer(clock::now());
                if claim.is_mine() {
                    // A caller that is gone wants no answer.
                    let _ = answer.send(f(shard));
                }
            })
        };
        member.pulse.ask(clock::now());
        member.mailbox.send(command)?;
        loop {
            match wait.recv_timeout(LOOK) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err(ShardGone.into()),
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(stall) = member.stall(shard, clock::now())
                        && claim.is_mine()
                    {
                        return Err(EngineError::Stalled(stall));
                    }
                }
            }
        }
    }

    /// The shards that stand still: they have not answered for some seconds. Asks the
    /// others whether they do, unless somebody else did so a moment ago, and waits for none.
    pub fn stalls(&self) -> Vec<Stall> {
        let now = clock::now();
        let look = |(shard, member): (usize, &Member)| {
            let stall = member.stall(shard, now);
            if stall.is_none() && member.pulse.is_silent(now) {
                let pulse = member.pulse.clone();
                member.pulse.ask(now);
                // A shard that is gone is asked nothing.
                let _ = member.mailbox.send(Box::new(move |_| pulse.answer(clock::now())));
            }
            stall
        };
        self.members.iter().enumerate().filter_map(look).collect()
    }

    /// How the shards wait for work, in their order. Waits for none of them.
    pub fn waits(&self) -> Vec<ShardWaits> {
        let name = |(n, member): (usize, &Member)| match &member.group {
            Some(group) => group.name.clone(),
            None => n.to_string(),
        };
        let members = self.members.iter().enumerate();
        members.map(|each| each.1.waits.read(&name(each))).collect()
    }
}
