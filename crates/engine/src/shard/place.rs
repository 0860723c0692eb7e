//! Where a port is, for threads that speak to it: on one shard until it goes to another.

use super::Shard;
use crate::backend::nbd::loss::LossEpoch;
use crate::error::{EngineError, ShardGone};
use crate::kernel::mailbox::Mailbox;
use crate::port::{Detach, Port, PortCommand};
use crate::tables::port::Gone;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a port is told from outside.
pub(crate) enum Errand {
    Command(PortCommand),
    Detach(Detach),
}

/// A port as its shard hosts it.
pub(crate) struct Hosted {
    pub port: Box<dyn Port>,
    pub place: Arc<PortPlace>,
}

impl Hosted {
    /// The port's end: nothing of it is at the backend or in the kernel.
    pub(super) fn end(self) {
        let Hosted { port, place } = self;
        drop(port);
        place.gone.set();
    }
}

struct At {
    shard: Mailbox<Shard>,
    slot: u32,
    generation: u32,
    /// What the port was not told yet. The shards' mailboxes say only that there is something:
    /// whatever way that takes, the port hears all in the order in which it was sent.
    errands: VecDeque<Errand>,
}

/// Where a port is.
pub(crate) struct PortPlace {
    at: Mutex<At>,
    gone: Gone,
}

impl fmt::Debug for PortPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortPlace").field("gone", &self.gone).finish_non_exhaustive()
    }
}

impl PortPlace {
    pub(super) fn new(shard: Mailbox<Shard>, slot: u32, generation: u32) -> PortPlace {
        let at = At { shard, slot, generation, errands: VecDeque::new() };
        PortPlace { at: Mutex::new(at), gone: Gone::default() }
    }

    fn lock(&self) -> MutexGuard<'_, At> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the port something. It hears it, unless it ends first.
    pub(crate) fn send(self: &Arc<Self>, errand: Errand) -> Result<(), ShardGone> {
        let place = self.clone();
        let mut at = self.lock();
        at.errands.push_back(errand);
        at.shard.send(Box::new(move |shard| shard.run_errands(&place)))
    }

    /// The port's slot and its generation.
    pub(crate) fn slot(&self) -> (u32, u32) {
        let at = self.lock();
        (at.slot, at.generation)
    }

    /// The next errand for a port that is on this shard, with its slot there.
    fn next_for(&self, shard: &Mailbox<Shard>) -> Option<(u32, u32, Errand)> {
        let mut at = self.lock();
        if !at.shard.is(shard) {
            return None;
        }
        let errand = at.errands.pop_front()?;
        Some((at.slot, at.generation, errand))
    }

    /// The port goes to another shard: `arrive` takes it there, before anything that it is told
    /// from now on.
    pub(super) fn leave(
        &self,
        shard: &Mailbox<Shard>,
        arrive: impl FnOnce(&mut Shard) + Send + 'static,
    ) -> Result<(), ShardGone> {
        let mut at = self.lock();
        at.shard = shard.clone();
        at.shard.send(Box::new(arrive))
    }

    /// The port has come to a shard.
    fn arrived(&self, slot: u32, generation: u32) {
        let mut at = self.lock();
        (at.slot, at.generation) = (slot, generation);
    }

    pub(super) fn gone(&self) -> &Gone {
        &self.gone
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.is_set()
    }

    pub(crate) fn wait_gone(&self, patience: Duration) -> bool {
        self.gone.wait(patience)
    }
}

impl Shard {
    /// Hangs a port that has come from another shard into a disk, and tells it what it was sent
    /// meanwhile.
    pub(super) fn take_in(
        &mut self,
        disk: u32,
        hosted: Hosted,
        epoch: LossEpoch,
    ) -> Result<(), EngineError> {
        let (slot, generation) = match self.next_port() {
            Ok(next) => next,
            Err(e) => {
                hosted.end();
                return Err(e);
            }
        };
        let place = hosted.place.clone();
        place.arrived(slot, generation);
        self.host(disk, hosted, epoch);
        self.with_port(slot, |p, io| p.on_arrive(io));
        self.run_errands(&place);
        Ok(())
    }

    /// Tells a port of this shard what it was sent. A port that has gone to another shard is told
    /// there.
    pub(super) fn run_errands(&mut self, place: &PortPlace) {
        while let Some((slot, generation, errand)) = place.next_for(&self.mailbox) {
            match errand {
                Errand::Command(command) => self.command_port(slot, generation, command),
                Errand::Detach(how) => self.detach_port(slot, generation, how),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Backend, BackendSpec, Image};
    use crate::kernel::mailbox::Command;
    use crate::port::{PortEvent, PortIo, Rest};
    use crate::request::{Completion, DiskInfo};
    use crate::shard::waiting::Waiter;
    use headgate_qos::{AnyScheduler, Config, Policy, SchedulerKind};
    use headgate_units::Bytes;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Tells what it is told.
    struct Parrot(Sender<u32>);

    impl Port for Parrot {
        fn on_command(&mut self, _io: &mut dyn PortIo, command: PortCommand) {
            let _ = self.0.send(*command.downcast::<u32>().unwrap());
        }
        fn on_start(&mut self, _io: &mut dyn PortIo) {}
        fn on_complete(&mut self, _io: &mut dyn PortIo, _completion: Completion) {}
        fn on_event(&mut self, _io: &mut dyn PortIo, _event: PortEvent) {}
        fn on_room(&mut self, _io: &mut dyn PortIo) {}
        fn on_turn_end(&mut self, _io: &mut dyn PortIo) {}
        fn on_resize(&mut self, _io: &mut dyn PortIo, _info: &DiskInfo) {}
        fn come_to_rest(&mut self, _io: &mut dyn PortIo) -> Rest {
            Rest::Ready
        }
        fn on_arrive(&mut self, _io: &mut dyn PortIo) {}
        fn on_detach(&mut self, _io: &mut dyn PortIo, _how: Detach) {}
    }

    /// A shard with a disk, whose commands are carried out when the test wants it.
    struct Rig {
        shard: Shard,
        mailbox: Mailbox<Shard>,
        inbox: Receiver<Command<Shard>>,
        disk: u32,
    }

    impl Rig {
        fn new() -> Rig {
            let (mailbox, inbox) = Mailbox::new().unwrap();
            let (_, unused) = channel();
            let mut shard =
                Shard::new("test", mailbox.clone(), unused, Arc::default(), Waiter::plain())
                    .unwrap();
            let kind = SchedulerKind::Fifo;
            let scheduler = AnyScheduler::new(kind, Config::default()).unwrap();
            let backend = Backend::new(BackendSpec::Null, kind);
            let store = shard.add_datastore("store".into(), backend, None, scheduler, 8);
            let image = Image::null(Bytes::from_mib(1)).unwrap();
            let opened =
                shard.open_disk(store, "disk".into(), image, Policy::default(), Vec::new());
            let disk = opened.map_err(|(e, _)| e).unwrap() as u32;
            Rig { shard, mailbox, inbox, disk }
        }

        fn run(&mut self) {
            while let Ok(command) = self.inbox.try_recv() {
                command(&mut self.shard);
            }
        }
    }

    #[test]
    fn a_port_hears_all_in_order_wherever_it_is_and_on_its_way() {
        let (mut here, mut there) = (Rig::new(), Rig::new());
        let (tell, heard) = channel();
        let (slot, generation) = here.shard.next_port().unwrap();
        let place = Arc::new(PortPlace::new(here.mailbox.clone(), slot, generation));
        let hosted = Hosted { port: Box::new(Parrot(tell)), place: place.clone() };
        here.shard.host(here.disk, hosted, Default::default());
        let say = |what: u32| place.send(Errand::Command(Box::new(what))).unwrap();
        say(1);
        here.run();
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [1]);

        // Two of its errands are in the old shard's mailbox when it leaves, and nothing wakes the
        // new one but its arrival.
        say(2);
        say(3);
        let hosted = here.shard.forget_port(slot).unwrap();
        let disk = there.disk;
        let arrive =
            move |shard: &mut Shard| shard.take_in(disk, hosted, Default::default()).unwrap();
        place.leave(&there.mailbox, arrive).unwrap();
        here.run();
        assert_eq!(heard.try_iter().count(), 0, "it is not there any more");
        there.run();
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [2, 3]);
        say(4);
        here.run();
        there.run();
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [4]);
        // What comes for a port that has gone is for nobody.
        there.shard.forget_port(place.slot().0).unwrap().end();
        assert!(place.is_gone());
        say(5);
        there.run();
    }
}
