//! Attacks on vhost-user-blk devices by the event descriptors that a front-end shares with them.
//!
//! The flags and the counter of an eventfd belong to the open file, so this side keeps its hands on
//! both after the device has it.

use super::scenario::{ATTENTION, Attack, Scenario};
use super::vhost_rig::{
    Attacked, BODY, DATA, HEAD, NEXT, QUEUE, Raw, Rig, TAIL, WRITE, given, text,
};
use crate::reaction::Reaction;
use crate::vhost::{Event, as_event, event_fd};
use headgate_vring::blk::{ID_BYTES, RequestType};
use rustix::event::epoll;
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// A ring that holds more requests than a device answers in one turn.
const LONG_QUEUE: u16 = 1024;

/// The highest count: one more waits, unless the descriptor says otherwise.
const FULL: u64 = u64::MAX - 1;

/// How often the used ring is looked at.
const LOOK_EVERY: Duration = Duration::from_micros(200);

pub(super) const RULE_BREAKERS: &[Scenario<Path>] = &[
    Scenario {
        name: "full-call-counter",
        about: "requests whose call eventfd is full, and blocks",
        attack: Attack::Once(full_call_counter),
    },
    Scenario {
        name: "full-error-counter",
        about: "a broken ring whose error eventfd is full, and blocks",
        attack: Attack::Once(full_error_counter),
    },
    Scenario {
        name: "full-kick-counter",
        about: "a full ring whose kick eventfd is full, and blocks",
        attack: Attack::Once(full_kick_counter),
    },
    Scenario {
        name: "no-event-descriptors",
        about: "pipes, sockets and files instead of eventfds",
        attack: Attack::Bringing(no_event_descriptors),
    },
];

const READ: [Raw; 3] = [HEAD, BODY, TAIL];

/// Whoever writes to the descriptor waits, if there is no room.
fn make_blocking(fd: BorrowedFd<'_>) -> Result<(), String> {
    let flags = fcntl_getfl(fd).map_err(text)?;
    fcntl_setfl(fd, flags - OFlags::NONBLOCK).map_err(text)
}

/// Sets the counter to its highest. The device may signal it meanwhile: then it is as full.
fn fill(event: &EventFd) -> Result<(), String> {
    let _ = event.read();
    let _ = event.write(FULL);
    make_blocking(event_fd(event))
}

fn full_call_counter(path: &Path) -> Attacked {
    let mut rig = Rig::new(path)?;
    rig.header(RequestType::In as u32, 0)?;
    fill(&rig.call)?;
    rig.offer(&READ);
    Ok(vec![rig.reaction(ATTENTION)?])
}

fn full_error_counter(path: &Path) -> Attacked {
    let mut rig = Rig::new(path)?;
    rig.header(RequestType::In as u32, 0)?;
    let error = EventFd::new(EFD_NONBLOCK).map_err(text)?;
    rig.session.set_event(Event::Error, &error).map_err(text)?;
    fill(&error)?;
    rig.ring.raw().offer(QUEUE);
    Ok(vec![rig.reaction(ATTENTION)?])
}

/// More requests than a device answers in one turn, so that it may want to signal itself.
fn full_kick_counter(path: &Path) -> Attacked {
    let mut rig = Rig::attach_with(path, LONG_QUEUE)?;
    rig.start(rig.layout).map_err(text)?;
    rig.header(RequestType::GetId as u32, 0)?;
    let id = (DATA, ID_BYTES as u32, NEXT | WRITE, 2);
    rig.offer(&[HEAD, id, TAIL]);
    (1..LONG_QUEUE).for_each(|_| rig.ring.raw().offer(0));
    fill(&rig.kick)?;
    let end = Instant::now() + ATTENTION;
    for left in (0..LONG_QUEUE).rev() {
        while rig.ring.raw().take_used().is_none() {
            if rig.session.is_gone() {
                return Ok(vec![Reaction::Disconnected]);
            }
            if Instant::now() > end {
                return Ok(vec![Reaction::Error(format!("{left} of {LONG_QUEUE} unanswered"))]);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
    Ok(vec![rig.status()?])
}

/// Descriptors that can be written, full where they can be filled, and what keeps them open.
fn others(file: &File) -> Result<Vec<(OwnedFd, Option<OwnedFd>)>, String> {
    let (reader, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).map_err(text)?;
    while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (near, far) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(text)?;
    while rustix::io::write(&near, &[0; 4096]).is_ok() {}
    let memory = memfd_create("headgate-load", MemfdFlags::CLOEXEC).map_err(text)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(text)?;
    let null = File::options().read(true).write(true).open("/dev/null").map_err(text)?;
    let brought = file.try_clone().map_err(text)?;
    Ok(vec![
        (writer, Some(reader)),
        (near, Some(far)),
        (memory, None),
        (epoll, None),
        (null.into(), None),
        (brought.into(), None),
    ])
}

fn no_event_descriptors(path: &Path, file: &File) -> Attacked {
    let mut reactions = Vec::new();
    for event in [Event::Call, Event::Error, Event::Kick] {
        for (other, _open) in others(file)? {
            let mut rig = Rig::new(path)?;
            let ours = as_event(other.try_clone().map_err(text)?);
            let taken = given(rig.session.set_event(event, &ours));
            if taken != Reaction::Served {
                reactions.push(taken);
                continue;
            }
            make_blocking(other.as_fd())?;
            rig.header(RequestType::In as u32, 0)?;
            match event {
                Event::Error => rig.ring.raw().offer(QUEUE),
                Event::Call | Event::Kick => rig.offer(&READ),
            }
            reactions.push(rig.reaction(ATTENTION)?);
        }
    }
    Ok(reactions)
}
