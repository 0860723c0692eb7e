//! Attacks on vhost-user-blk devices by the memory that a front-end shares with them: files whose
//! pages come when somebody likes, pages that go, and more regions than there is room for.

use super::scenario::{ATTENTION, Attack, Scenario};
use super::vhost_floods::Flood;
use super::vhost_rig::{
    Attacked, BLOCK, BODY, DATA, HEAD, HEADER, MEMORY, NEXT, QUEUE, Raw, Rig, TAIL, WRITE, given,
    text,
};
use crate::reaction::Reaction;
use crate::vhost::{Part, Unanswered};
use headgate_vring::blk::{HEADER_BYTES, RequestType};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where further regions lie, for the guest.
const ELSEWHERE: u64 = 1 << 40;
/// Bytes of a file that is brought as memory.
const BROUGHT: u64 = 1 << 20;
/// Regions that take all of a process's address space, and their size: 134 TB.
const HUGE: (u64, u64) = (30, 4_472_832 << 20);
/// More regions than any server has slots for.
const MANY: u64 = 2_000;
/// How long a device whose memory went is looked at.
const GLANCE: Duration = Duration::from_millis(50);

pub(super) const RULE_BREAKERS: &[Scenario<Path>] = &[
    Scenario {
        name: "foreign-memory",
        about: "memory and in-flight regions in a file system's file",
        attack: Attack::Bringing(foreign_memory),
    },
    Scenario {
        name: "missing-pages",
        about: "memory whose faults the front-end never answers",
        attack: Attack::Once(missing_pages),
    },
    Scenario {
        name: "huge-regions",
        about: "30 regions of 134 TB together",
        attack: Attack::Once(huge_regions),
    },
    Scenario {
        name: "many-regions",
        about: "2000 regions of a page each",
        attack: Attack::Once(many_regions),
    },
    Scenario {
        name: "overlapping-regions",
        about: "regions over others, and over the end of all addresses",
        attack: Attack::Once(overlapping_regions),
    },
];

pub(super) const FLOODS: &[Scenario<Path>] = &[
    Scenario {
        name: "punched-memory",
        about: "holes punched into memory while requests run, in a loop",
        attack: Attack::Flood(punched_memory),
    },
    Scenario {
        name: "shrinking-memory",
        about: "memory files cut off while requests run, in a loop",
        attack: Attack::Flood(shrinking_memory),
    },
];

/// The ways in which a device hears of memory.
#[derive(Clone, Copy)]
enum Way {
    Table,
    Added,
}

/// Gives the device this file as memory [`ELSEWHERE`], beside that of its rings.
fn bring(rig: &mut Rig, file: &File, way: Way) -> Reaction {
    let shared = rig.shared.part();
    let user = shared.user.wrapping_add(ELSEWHERE);
    let part = Part { file: file.as_fd(), offset: 0, len: BROUGHT, guest: ELSEWHERE, user };
    given(match way {
        Way::Table => rig.session.set_table(&[shared, part]),
        Way::Added => rig.session.add_part(&part),
    })
}

/// The device's reaction to memory: to the message, or if it took that, to a request.
fn asked(
    rig: &mut Rig,
    taken: Reaction,
    kind: RequestType,
    chain: &[Raw],
) -> Result<Reaction, String> {
    if taken != Reaction::Served {
        return Ok(taken);
    }
    let started = given(rig.start(rig.layout));
    if started != Reaction::Served {
        return Ok(started);
    }
    rig.header(kind as u32, 0)?;
    rig.offer(chain);
    rig.reaction(ATTENTION)
}

/// If the device takes the file, it has to fetch a header, and data to be written and read, from
/// pages that nobody has touched.
fn foreign_memory(path: &Path, file: &File) -> Attacked {
    if file.metadata().map_err(text)?.len() < BROUGHT {
        file.set_len(BROUGHT).map_err(text)?;
    }
    let at = |page: u64| ELSEWHERE + page * u64::from(BLOCK);
    let header: Raw = (at(1), HEADER_BYTES as u32, NEXT, 1);
    let (source, target) = ((at(2), BLOCK, NEXT, 2), (at(3), BLOCK, NEXT | WRITE, 2));
    let requests = [
        (RequestType::In, [HEAD, target, TAIL]),
        (RequestType::Out, [HEAD, source, TAIL]),
        (RequestType::In, [header, BODY, TAIL]),
    ];
    let mut reactions = Vec::new();
    for way in [Way::Table, Way::Added] {
        for (kind, chain) in requests {
            let mut rig = Rig::attach(path)?;
            let taken = bring(&mut rig, file, way);
            reactions.push(asked(&mut rig, taken, kind, &chain)?);
        }
    }
    let mut rig = Rig::attach(path)?;
    reactions.push(given(rig.session.set_inflight(file.as_fd(), BROUGHT, QUEUE)));
    Ok(reactions)
}

/// Registered are the pages of this process's own mapping: the device's faults are its own, and
/// the kernel brings their pages.
fn missing_pages(path: &Path) -> Attacked {
    let mut reactions = Vec::new();
    for (kind, body) in [(RequestType::In, BODY), (RequestType::Out, (DATA, BLOCK, NEXT, 2))] {
        let mut rig = Rig::new(path)?;
        rig.header(kind as u32, 0)?;
        let _unanswered = Unanswered::pages(&rig.shared, DATA..MEMORY as u64)
            .map_err(|e| format!("userfaultfd: {e}"))?;
        rig.offer(&[HEAD, body, TAIL]);
        reactions.push(rig.reaction(ATTENTION)?);
    }
    Ok(reactions)
}

fn sparse(len: u64) -> Result<OwnedFd, String> {
    let file = memfd_create("headgate-load", MemfdFlags::CLOEXEC).map_err(text)?;
    ftruncate(&file, len).map_err(text)?;
    Ok(file)
}

/// Adds so many regions of this size, one after the other, as far as the device takes them.
fn regions(path: &Path, count: u64, len: u64) -> Attacked {
    let mut rig = Rig::new(path)?;
    let file = sparse(len)?;
    let user = rig.shared.part().user;
    for n in 1..=count {
        // Nothing looks at the front-end's own addresses but its rings: they need not be real.
        let (guest, user) = (n * len.max(ELSEWHERE), user.wrapping_add(n * len.max(ELSEWHERE)));
        let part = Part { file: file.as_fd(), offset: 0, len, guest, user };
        let taken = given(rig.session.add_part(&part));
        if taken != Reaction::Served {
            return Ok(vec![taken]);
        }
    }
    // It took them all: is it still there?
    rig.header(RequestType::In as u32, 0)?;
    rig.offer(&[HEAD, BODY, TAIL]);
    Ok(vec![rig.reaction(ATTENTION)?])
}

fn huge_regions(path: &Path) -> Attacked {
    regions(path, HUGE.0, HUGE.1)
}

fn many_regions(path: &Path) -> Attacked {
    regions(path, MANY, u64::from(BLOCK))
}

fn overlapping_regions(path: &Path) -> Attacked {
    let file = sparse(BROUGHT)?;
    let block = u64::from(BLOCK);
    let end = u64::MAX - block + 1;
    // Where they lie for the guest, and in the front-end beyond the memory of the rings.
    let places = [(0, ELSEWHERE), (DATA, ELSEWHERE), (ELSEWHERE, 0), (end, ELSEWHERE), (7, 7)];
    let mut reactions = Vec::new();
    for way in [Way::Table, Way::Added] {
        for (guest, beyond) in places {
            let mut rig = Rig::attach(path)?;
            let shared = rig.shared.part();
            let user = shared.user.wrapping_add(beyond);
            let part = Part { file: file.as_fd(), offset: 0, len: BROUGHT, guest, user };
            let taken = given(match way {
                Way::Table => rig.session.set_table(&[shared, part]),
                Way::Added => rig.session.add_part(&part),
            });
            reactions.push(asked(&mut rig, taken, RequestType::In, &[HEAD, BODY, TAIL])?);
        }
    }
    Ok(reactions)
}

/// Header, status and data become zeroes at any moment: a read of the first sector.
fn punched_memory(path: &Path, time: Duration) -> Attacked {
    let flood = Flood::reads(Rig::new(path)?)?;
    let memory = flood.memory();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let punch = || {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            while !over.load(Ordering::Relaxed) {
                fallocate(&*memory, how, HEADER, MEMORY as u64 - HEADER).map_err(text)?;
            }
            Ok(())
        };
        let puncher = scope.spawn(punch);
        let reactions = flood.run(time);
        over.store(true, Ordering::Relaxed);
        let punched: Result<(), String> = puncher.join().expect("a puncher does not panic");
        punched.and(reactions)
    })
}

/// This side must not touch what it has cut off either.
fn shrinking_memory(path: &Path, time: Duration) -> Attacked {
    let end = Instant::now() + time;
    let mut reactions = Vec::new();
    while Instant::now() < end {
        for kept in [DATA, 0] {
            let mut flood = Flood::reads(Rig::new(path)?)?;
            flood.fill()?;
            ftruncate(&*flood.memory(), kept).map_err(text)?;
            reactions.push(flood.wait_for_hang_up(GLANCE));
        }
    }
    Ok(reactions)
}
