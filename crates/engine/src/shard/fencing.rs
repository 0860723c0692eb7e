//! What reaches the storage of a disk whose term ends. The test takes the shard's turns itself.

use super::Shard;
use super::control::Attached;
use super::place::PortPlace;
use super::waiting::Waiter;
use crate::backend::{Backend, BackendSpec, Image};
use crate::kernel::mailbox::Mailbox;
use crate::kernel::ring::Event;
use crate::port::{Detach, Port, PortCommand, PortEvent, PortIo, Rest};
use crate::request::{Completion, DiskInfo, Durability, IoError, Op, Request};
use crate::{Caching, clock};
use headgate_qos::{AnyScheduler, Config, Policy, SchedulerKind};
use headgate_units::{AtomicNanos, Bytes, Nanos};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const BLOCK: usize = 4096;

/// Writes one block of ones as it starts, and tells how that ended.
struct Writer {
    data: Vec<u8>,
    ended: Sender<Result<(), IoError>>,
}

impl Port for Writer {
    fn on_start(&mut self, io: &mut dyn PortIo) {
        let (op, len) = (Op::Write(Durability::Cached), BLOCK as u64);
        let buffer = libc::iovec { iov_base: self.data.as_mut_ptr().cast(), iov_len: BLOCK };
        let request = Request { op, offset: 0, len, cookie: 0, ioprio: 0 };
        // SAFETY: the shard drops the port after the request's end.
        unsafe { io.submit(request, &[buffer]) };
    }
    fn on_complete(&mut self, _io: &mut dyn PortIo, completion: Completion) {
        let _ = self.ended.send(completion.result);
    }
    fn on_event(&mut self, _io: &mut dyn PortIo, _event: PortEvent) {}
    fn on_command(&mut self, _io: &mut dyn PortIo, _command: PortCommand) {}
    fn on_room(&mut self, _io: &mut dyn PortIo) {}
    fn on_turn_end(&mut self, _io: &mut dyn PortIo) {}
    fn on_resize(&mut self, _io: &mut dyn PortIo, _info: &DiskInfo) {}
    fn come_to_rest(&mut self, _io: &mut dyn PortIo) -> Rest {
        Rest::Busy
    }
    fn on_arrive(&mut self, _io: &mut dyn PortIo) {}
    fn on_detach(&mut self, _io: &mut dyn PortIo, _how: Detach) {}
}

struct Rig {
    shard: Shard,
    datastore: usize,
    events: Vec<Event>,
    dir: TempDir,
}

/// A disk that one block of ones is being written to.
struct Disk {
    key: usize,
    path: PathBuf,
    port: Arc<PortPlace>,
    ended: Receiver<Result<(), IoError>>,
}

impl Disk {
    fn is_written(&self) -> bool {
        std::fs::read(&self.path).unwrap()[..BLOCK].iter().any(|&byte| byte != 0)
    }
}

impl Rig {
    fn new() -> Rig {
        let (mailbox, inbox) = Mailbox::new().unwrap();
        let mut shard =
            Shard::new("test", mailbox, inbox, Arc::default(), Waiter::plain()).unwrap();
        let kind = SchedulerKind::MClock;
        let scheduler = AnyScheduler::new(kind, Config::default()).unwrap();
        let backend = Backend::new(BackendSpec::Files, kind);
        let datastore = shard.add_datastore("lun".into(), backend, None, scheduler, 8);
        Rig { shard, datastore, events: Vec::new(), dir: tempfile::tempdir().unwrap() }
    }

    fn write(&mut self, name: &str, term: Option<&Arc<AtomicNanos>>) -> Disk {
        self.write_to(name, |image| match term {
            Some(term) => image.until(term.clone()),
            None => image,
        })
    }

    fn write_to(&mut self, name: &str, prepare: impl FnOnce(Image) -> Image) -> Disk {
        let path = self.dir.path().join(name);
        Image::create(&path, Bytes::from_mib(1)).unwrap();
        let image = Image::open(&path, Caching::PreferDirect, Duration::ZERO).unwrap();
        let opened = self.shard.open_disk(
            self.datastore,
            name.into(),
            prepare(image),
            Policy::default(),
            Vec::new(),
        );
        let key = opened.map_err(|(e, _)| e).unwrap();
        let (sender, ended) = channel();
        // The buffer may be in no particular place: the backend copies it where direct IO asks.
        let port = Writer { data: vec![1; BLOCK], ended: sender };
        let port = Mutex::new(Some(port));
        let new = move |_: &DiskInfo| -> Box<dyn Port> {
            Box::new(port.lock().unwrap().take().expect("it is built once"))
        };
        let Ok(Attached::Here(port)) = self.shard.attach(key, Box::new(new)) else {
            panic!("the disk is here")
        };
        Disk { key, path, port, ended }
    }

    /// Decides, without handing anything to the kernel.
    fn decide(&mut self) {
        self.shard.turn(&mut self.events, crate::clock::now());
    }

    /// Hands over what may go, and takes turns until what the kernel has is done.
    fn hand_over(&mut self) {
        for _ in 0..8 {
            self.shard.core.submit_fenced();
            self.shard.core.ctx.ring.submit(Some(Nanos::from_millis(20))).unwrap();
            self.decide();
        }
    }
}

fn term_until(instant: Nanos) -> Arc<AtomicNanos> {
    Arc::new(AtomicNanos::new(instant))
}

#[test]
fn what_a_term_does_not_cover_waits_until_it_is_prolonged_and_keeps_nobody_else() {
    let mut rig = Rig::new();
    let term = term_until(clock::boottime());
    let fenced = rig.write("fenced", Some(&term));
    let other = rig.write("other", None);
    rig.decide();
    rig.hand_over();
    assert_eq!(other.ended.try_recv(), Ok(Ok(())));
    assert!(other.is_written());
    assert!(fenced.ended.try_recv().is_err() && !fenced.is_written());
    assert!(
        rig.shard.wait(crate::clock::now()).is_some(),
        "nothing else would wake the shard for it"
    );

    term.set(Nanos::MAX);
    rig.hand_over();
    assert_eq!(fenced.ended.try_recv(), Ok(Ok(())));
    assert!(fenced.is_written());
    assert_eq!(rig.shard.wait(crate::clock::now()), None);
}

#[test]
fn a_daemon_that_stood_still_after_a_dispatch_hands_over_nothing() {
    let mut rig = Rig::new();
    let term = term_until(Nanos::MAX);
    let disk = rig.write("disk", Some(&term));
    // Dispatched while the term lasts; then the daemon is stopped, and goes on when it is over.
    rig.decide();
    term.set(clock::boottime());
    rig.hand_over();
    assert!(disk.ended.try_recv().is_err() && !disk.is_written());
}

#[test]
fn a_disk_whose_term_is_over_can_be_closed() {
    let mut rig = Rig::new();
    let term = term_until(Nanos::ZERO);
    let disk = rig.write("disk", Some(&term));
    rig.decide();
    rig.hand_over();
    let (slot, generation) = disk.port.slot();
    rig.shard.detach_port(slot, generation, Detach::Now);
    rig.hand_over();
    assert!(disk.port.is_gone(), "its request is at no storage, so nothing is waited for");
    assert!(rig.shard.take_disk(disk.key).is_ok());
    assert!(!disk.is_written());
}

/// A device that was taken from this host refuses one request; the others are not sent.
#[test]
fn a_device_that_refused_a_request_is_handed_no_more_and_keeps_nobody_else() {
    let mut rig = Rig::new();
    let refused = Arc::new(AtomicBool::new(false));
    let ours = rig.write_to("ours", |image| image.reserved(refused.clone()));
    rig.decide();
    rig.hand_over();
    assert_eq!(ours.ended.try_recv(), Ok(Ok(())));
    assert!(ours.is_written());

    let taken = rig.write_to("taken", |image| image.reserved(refused.clone()));
    let other = rig.write("other", None);
    rig.decide();
    refused.store(true, Ordering::Release);
    rig.hand_over();
    assert_eq!(other.ended.try_recv(), Ok(Ok(())));
    assert!(taken.ended.try_recv().is_err() && !taken.is_written());
    let (slot, generation) = taken.port.slot();
    rig.shard.detach_port(slot, generation, Detach::Now);
    rig.hand_over();
    assert!(taken.port.is_gone() && !taken.is_written());
}
