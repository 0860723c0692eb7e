//! What a driver may do, done as often as it goes, over vhost-user-blk.

use super::scenario::{Attack, Scenario};
use super::vhost_rig::{
    Attacked, BLOCK, BODY, DATA, HEAD, HEADER, INDIRECT, NEXT, QUEUE, Raw, Rig, STATUS, TABLE,
    TAIL, WRITE, text,
};
use crate::link::LinkError;
use crate::reaction::Reaction;
use crate::vhost::SharedMemory;
use headgate_vring::GuestAddress;
use headgate_vring::blk::RequestType;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most segments of a request that QEMU's devices offer their drivers.
const SEGMENTS: u16 = 126;
/// How long a device may take to stop a ring: as long as its disk's limit holds up what it has
/// begun.
const STOP: Duration = Duration::from_secs(60);
/// How often the used ring is looked at.
const LOOK_EVERY: Duration = Duration::from_micros(200);

pub(super) const FLOODS: &[Scenario<Path>] = &[
    Scenario {
        name: "reset-loop",
        about: "a ring filled, stopped and started anew, in a loop",
        attack: Attack::Flood(reset_loop),
    },
    Scenario {
        name: "stop-loop",
        about: "a ring filled, stopped and gone on with, in a loop",
        attack: Attack::Flood(stop_loop),
    },
    Scenario {
        name: "reconnect-loop",
        about: "a ring filled and left, to be replayed, in a loop",
        attack: Attack::Flood(reconnect_loop),
    },
    Scenario {
        name: "flush-flood",
        about: "flushes, as many as the ring holds",
        attack: Attack::Flood(flush_flood),
    },
    Scenario {
        name: "zeroes-flood",
        about: "write-zeroes of 4 MiB, as many as the ring holds",
        attack: Attack::Flood(zeroes_flood),
    },
    Scenario {
        name: "segments-flood",
        about: "writes of 126 segments, as many as the ring holds",
        attack: Attack::Flood(segments_flood),
    },
];

/// Requests of one kind that fill a ring.
pub(super) struct Flood {
    rig: Rig,
    heads: Vec<u16>,
}

impl Flood {
    /// Lays down as many equal chains as there are descriptors for. They share their buffers.
    fn new(rig: Rig, kind: RequestType, chain: &[Raw]) -> Result<Flood, String> {
        rig.header(kind as u32, 0)?;
        let mut flood = Flood { rig, heads: Vec::new() };
        let len = chain.len() as u16;
        for n in 0..QUEUE / len {
            let first = n * len;
            for (i, (addr, bytes, flags, _)) in (first..).zip(chain) {
                let (at, next) = (GuestAddress(*addr), i + 1);
                flood.rig.ring.raw().set_descriptor(i, at, *bytes, *flags, next);
            }
            flood.heads.push(first);
        }
        Ok(flood)
    }

    /// Reads of one block.
    pub(super) fn reads(rig: Rig) -> Result<Flood, String> {
        Flood::new(rig, RequestType::In, &READ)
    }

    pub(super) fn memory(&self) -> Arc<SharedMemory> {
        Arc::clone(&self.rig.shared)
    }

    /// Also when memory is gone.
    pub(super) fn wait_for_hang_up(&self, at_most: Duration) -> Reaction {
        self.rig.wait_for_hang_up(at_most)
    }

    pub(super) fn fill(&mut self) -> Result<(), String> {
        self.heads.iter().for_each(|head| self.rig.ring.raw().offer(*head));
        self.rig.kick.write(1).map_err(text)
    }

    /// Offers again whatever comes back, until the time is over.
    pub(super) fn run(mut self, time: Duration) -> Attacked {
        let end = Instant::now() + time;
        let mut reaction = Reaction::Silence;
        self.fill()?;
        while Instant::now() < end {
            if self.rig.session.is_gone() {
                return Ok(vec![Reaction::Disconnected]);
            }
            let mut came = 0;
            while let Some((head, _)) = self.rig.ring.raw().take_used() {
                self.rig.ring.raw().offer(head as u16);
                came += 1;
            }
            if came == 0 {
                std::thread::sleep(LOOK_EVERY);
                continue;
            }
            self.rig.kick.write(1).map_err(text)?;
            reaction = self.rig.status()?;
        }
        Ok(vec![reaction])
    }
}

/// A read of one block.
const READ: [Raw; 3] = [HEAD, BODY, TAIL];

fn hung_up(error: LinkError) -> Attacked {
    match error {
        LinkError::Down(_) => Ok(vec![Reaction::Disconnected]),
        other => Err(other.to_string()),
    }
}

/// As a guest makes its front-end do by writing 0 to its device's status: the ring is empty and
/// begins at 0 again.
fn reset_loop(path: &Path, time: Duration) -> Attacked {
    let end = Instant::now() + time;
    let mut rig = Rig::new(path)?;
    rig.session.set_patience(STOP);
    while Instant::now() < end {
        let mut flood = Flood::reads(rig)?;
        flood.fill()?;
        rig = flood.rig;
        if let Err(e) = rig.session.stop(0) {
            return hung_up(e);
        }
        rig.clear_ring()?;
        if let Err(e) = rig.start(rig.layout) {
            return hung_up(e);
        }
    }
    Ok(vec![Reaction::Served])
}

/// As `stop` and `cont` do: what was not served stays in the ring.
fn stop_loop(path: &Path, time: Duration) -> Attacked {
    let end = Instant::now() + time;
    let rig = Rig::new(path)?;
    rig.session.set_patience(STOP);
    let mut flood = Flood::reads(rig)?;
    flood.fill()?;
    while Instant::now() < end {
        let rig = &mut flood.rig;
        let base = match rig.session.stop(0) {
            Ok(base) => base as u16,
            Err(e) => return hung_up(e),
        };
        while let Some((head, _)) = rig.ring.raw().take_used() {
            rig.ring.raw().offer(head as u16);
        }
        if let Err(e) = rig.start_at(rig.layout, base) {
            return hung_up(e);
        }
    }
    Ok(vec![Reaction::Served])
}

/// Leaves with all requests in flight, and comes back with the region that says so.
fn reconnect_loop(path: &Path, time: Duration) -> Attacked {
    let end = Instant::now() + time;
    let mut flood = Flood::reads(Rig::new(path)?)?;
    flood.fill()?;
    while Instant::now() < end {
        flood.rig = flood.rig.reconnect(path)?;
        if let Err(e) = flood.rig.start(flood.rig.layout) {
            return hung_up(e);
        }
        while let Some((head, _)) = flood.rig.ring.raw().take_used() {
            flood.rig.ring.raw().offer(head as u16);
        }
        flood.rig.kick.write(1).map_err(text)?;
    }
    Ok(vec![Reaction::Served])
}

fn flush_flood(path: &Path, time: Duration) -> Attacked {
    Flood::new(Rig::new(path)?, RequestType::Flush, &[HEAD, TAIL])?.run(time)
}

/// Sector, sectors and flags: may not be unmapped.
fn zeroes_flood(path: &Path, time: Duration) -> Attacked {
    let rig = Rig::new(path)?;
    let sectors = (rig.session.disk.size / 512).min(u64::from(ZEROES_MAX));
    let mut segment = [0; 16];
    segment[8..12].copy_from_slice(&(sectors as u32).to_le_bytes());
    rig.memory.write(GuestAddress(DATA), &segment).map_err(text)?;
    let range = (DATA, segment.len() as u32, NEXT, 0);
    Flood::new(rig, RequestType::WriteZeroes, &[HEAD, range, TAIL])?.run(time)
}

/// Sectors of a write-zeroes: 4 MiB, which storage in memory writes as fast as limits let it.
const ZEROES_MAX: u32 = 1 << 13;

/// Each request takes one descriptor: all the others are in a table.
fn segments_flood(path: &Path, time: Duration) -> Attacked {
    let rig = Rig::new(path)?;
    let mut table = Vec::new();
    let mut entry = |(addr, len, flags, next): Raw| {
        table.extend(addr.to_le_bytes());
        table.extend(len.to_le_bytes());
        table.extend(flags.to_le_bytes());
        table.extend(next.to_le_bytes());
    };
    entry((HEADER, 16, NEXT, 1));
    (1..=SEGMENTS).for_each(|n| entry((DATA, BLOCK, NEXT, n + 1)));
    entry((STATUS, 1, WRITE, 0));
    rig.memory.write(GuestAddress(TABLE), &table).map_err(text)?;
    let indirect = (TABLE, table.len() as u32, INDIRECT, 0);
    Flood::new(rig, RequestType::Out, &[indirect])?.run(time)
}
