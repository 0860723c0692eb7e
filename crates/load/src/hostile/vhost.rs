//! Attacks on vhost-user-blk devices.

use super::scenario::{ATTENTION, Attack, BROKEN, Scenario};
use super::vhost_rig::{
    Attacked, BLOCK, BODY, DATA, HEAD, HEADER, INDIRECT, MEMORY, NEXT, QUEUE, Raw, Rig, STATUS,
    TABLE, TAIL, WRITE, text,
};
use crate::link::LinkError;
use crate::reaction::Reaction;
use headgate_vring::blk::{HEADER_BYTES, ID_BYTES, RequestType};
use headgate_vring::{Buffer, GuestAddress, Placement, QueueLayout};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const OUTSIDE: u64 = 1 << 40;

pub(super) const RULE_BREAKERS: &[Scenario<Path>] = &[
    Scenario {
        name: "descriptor-loop",
        about: "a chain that never ends",
        attack: Attack::Once(descriptor_loop),
    },
    Scenario {
        name: "indirect-loop",
        about: "an indirect table that never ends",
        attack: Attack::Once(indirect_loop),
    },
    Scenario {
        name: "indirect-in-indirect",
        about: "a table inside a table",
        attack: Attack::Once(indirect_in_indirect),
    },
    Scenario {
        name: "bad-tables",
        about: "tables of no, odd and too many bytes, and outside memory",
        attack: Attack::Once(bad_tables),
    },
    Scenario {
        name: "out-of-range-address",
        about: "header, data or status outside memory",
        attack: Attack::Once(out_of_range),
    },
    Scenario {
        name: "zero-length",
        about: "descriptors of no bytes",
        attack: Attack::Once(zero_length),
    },
    Scenario {
        name: "huge-descriptor",
        about: "a descriptor of 4 GiB less one byte",
        attack: Attack::Once(huge),
    },
    Scenario {
        name: "wrong-direction",
        about: "reads into what is read-only, status nobody may write",
        attack: Attack::Once(wrong_direction),
    },
    Scenario {
        name: "short-chain",
        about: "no status, no header, no data",
        attack: Attack::Once(short_chain),
    },
    Scenario {
        name: "odd-length",
        about: "data that is no whole sector",
        attack: Attack::Once(odd_length),
    },
    Scenario {
        name: "behind-the-end",
        about: "sectors that the disk does not have",
        attack: Attack::Once(behind_the_end),
    },
    Scenario {
        name: "unknown-request",
        about: "request types that do not exist",
        attack: Attack::Once(unknown_request),
    },
    Scenario {
        name: "bad-head",
        about: "a head that the queue does not have",
        attack: Attack::Once(bad_head),
    },
    Scenario {
        name: "avail-index-jump",
        about: "an available index far ahead",
        attack: Attack::Once(avail_jump),
    },
    Scenario {
        name: "bad-queue-size",
        about: "queues of 0, 3 and 65535 descriptors",
        attack: Attack::Once(bad_queue_size),
    },
    Scenario {
        name: "ring-outside-memory",
        about: "rings at addresses that are not shared",
        attack: Attack::Once(ring_outside),
    },
    Scenario {
        name: "unknown-message",
        about: "a message that does not exist",
        attack: Attack::Once(unknown_message),
    },
    Scenario {
        name: "huge-message",
        about: "a message of 4 GiB",
        attack: Attack::Once(huge_message),
    },
    Scenario {
        name: "half-message",
        about: "half a message, then silence",
        attack: Attack::Once(half_message),
    },
    Scenario {
        name: "noise",
        about: "random bytes instead of messages",
        attack: Attack::Once(noise),
    },
    Scenario {
        name: "broken-connections",
        about: "2000 connections that break the protocol",
        attack: Attack::Once(broken_connections),
    },
    Scenario {
        name: "vanishing-memory",
        about: "a memory file cut off under the device",
        attack: Attack::Once(vanishing),
    },
];

/// Checks that a new, well-behaved front-end is served.
pub(super) fn probe(path: &Path) -> Result<(), String> {
    let mut rig = Rig::new(path)?;
    let status = Buffer::Writable { at: GuestAddress(STATUS), len: 1 };
    let data = Buffer::Writable { at: GuestAddress(DATA), len: BLOCK };
    rig.header(RequestType::In as u32, 0)?;
    rig.ring.add(&[HEADER_BUFFER, data, status], Placement::Direct).map_err(text)?;
    rig.ring.publish();
    let served = match rig.reaction(Duration::from_secs(5))? {
        Reaction::Served => Ok(()),
        other => Err(format!("a read of the first block: {other}")),
    };
    let stopped = rig.session.stop(0).map_err(text);
    served.and(stopped.map(drop))
}

const HEADER_BUFFER: Buffer =
    Buffer::Readable { at: GuestAddress(HEADER), len: HEADER_BYTES as u32 };

/// One request per chain, each on a device of its own: descriptors 0, 1, 2 and so on, offered from
/// 0.
fn chains(path: &Path, kind: u32, sector: u64, chains: &[&[Raw]]) -> Attacked {
    let attack = |chain: &&[Raw]| {
        let mut rig = Rig::new(path)?;
        rig.header(kind, sector)?;
        rig.offer(chain);
        rig.reaction(ATTENTION)
    };
    chains.iter().map(attack).collect()
}

fn read(path: &Path, list: &[&[Raw]]) -> Attacked {
    chains(path, RequestType::In as u32, 0, list)
}

fn write(path: &Path, list: &[&[Raw]]) -> Attacked {
    chains(path, RequestType::Out as u32, 0, list)
}

/// The same with one table, whose descriptor in the ring is `(TABLE, bytes, INDIRECT)`.
fn table(path: &Path, bytes: u32, at: u64, entries: &[Raw]) -> Result<Reaction, String> {
    let mut rig = Rig::new(path)?;
    rig.header(RequestType::In as u32, 0)?;
    for (i, (addr, len, flags, next)) in entries.iter().enumerate() {
        let mut raw = addr.to_le_bytes().to_vec();
        raw.extend(len.to_le_bytes());
        raw.extend(flags.to_le_bytes());
        raw.extend(next.to_le_bytes());
        rig.memory.write(GuestAddress(TABLE + 16 * i as u64), &raw).map_err(text)?;
    }
    rig.ring.raw().set_descriptor(0, GuestAddress(at), bytes, INDIRECT, 0);
    rig.ring.raw().offer(0);
    rig.reaction(ATTENTION)
}

fn descriptor_loop(path: &Path) -> Attacked {
    let itself = (HEADER, HEADER_BYTES as u32, NEXT, 0);
    let back = (DATA, BLOCK, NEXT | WRITE, 0);
    let beyond = (DATA, BLOCK, NEXT | WRITE, QUEUE);
    read(
        path,
        &[&[itself], &[HEAD, back], &[HEAD, beyond], &[HEAD, (DATA, BLOCK, NEXT | WRITE, 0xffff)]],
    )
}

fn indirect_loop(path: &Path) -> Attacked {
    let back = (DATA, BLOCK, NEXT | WRITE, 1);
    let beyond = (DATA, BLOCK, NEXT | WRITE, 77);
    Ok(vec![table(path, 32, TABLE, &[HEAD, back])?, table(path, 32, TABLE, &[HEAD, beyond])?])
}

fn indirect_in_indirect(path: &Path) -> Attacked {
    Ok(vec![table(path, 48, TABLE, &[HEAD, (TABLE, 48, INDIRECT | NEXT, 2), TAIL])?])
}

fn bad_tables(path: &Path) -> Attacked {
    let good = [HEAD, BODY, TAIL];
    [
        (0, TABLE),
        (17, TABLE),
        (u32::MAX, TABLE),
        (48, OUTSIDE),
        (48, u64::MAX - 15),
        (48, MEMORY as u64 - 16),
    ]
    .into_iter()
    .map(|(bytes, at)| table(path, bytes, at, &good))
    .collect()
}

fn out_of_range(path: &Path) -> Attacked {
    let mut reactions = Vec::new();
    for at in [OUTSIDE, u64::MAX, u64::MAX - 100, MEMORY as u64 - 4] {
        let header = (at, HEADER_BYTES as u32, NEXT, 1);
        let data = (at, BLOCK, NEXT | WRITE, 2);
        let status = (at.max(MEMORY as u64), 1, WRITE, 0);
        reactions.extend(read(
            path,
            &[&[header, BODY, TAIL], &[HEAD, data, TAIL], &[HEAD, BODY, status]],
        )?);
    }
    Ok(reactions)
}

fn zero_length(path: &Path) -> Attacked {
    let no_header = (HEADER, 0, NEXT, 1);
    let no_data = (DATA, 0, NEXT | WRITE, 2);
    let no_status = (STATUS, 0, WRITE, 0);
    read(path, &[&[no_header, BODY, TAIL], &[HEAD, no_data, TAIL], &[HEAD, BODY, no_status]])
}

fn huge(path: &Path) -> Attacked {
    let data = (DATA, u32::MAX, NEXT | WRITE, 2);
    let header = (HEADER, u32::MAX, NEXT, 1);
    let source = (DATA, u32::MAX, NEXT, 2);
    let mut reactions = read(path, &[&[HEAD, data, TAIL], &[header, BODY, TAIL]])?;
    reactions.extend(write(path, &[&[HEAD, source, TAIL]])?);
    Ok(reactions)
}

fn wrong_direction(path: &Path) -> Attacked {
    let read_only = (DATA, BLOCK, NEXT, 2);
    let status = (STATUS, 1, 0, 0);
    let header = (HEADER, HEADER_BYTES as u32, NEXT | WRITE, 1);
    let mut reactions =
        read(path, &[&[HEAD, read_only, TAIL], &[HEAD, BODY, status], &[header, BODY, TAIL]])?;
    reactions.extend(write(path, &[&[HEAD, BODY, TAIL]])?);
    Ok(reactions)
}

fn short_chain(path: &Path) -> Attacked {
    let only_header = (HEADER, HEADER_BYTES as u32, 0, 0);
    let half_header = (HEADER, 7, NEXT, 1);
    let no_data = (STATUS, 1, WRITE, 0);
    read(
        path,
        &[&[only_header], &[(STATUS, 1, WRITE, 0)], &[half_header, no_data], &[HEAD, no_data]],
    )
}

fn odd_length(path: &Path) -> Attacked {
    let odd = |len| (DATA, len, NEXT | WRITE, 2);
    read(path, &[&[HEAD, odd(1), TAIL], &[HEAD, odd(511), TAIL], &[HEAD, odd(513), TAIL]])
}

fn behind_the_end(path: &Path) -> Attacked {
    let mut reactions = Vec::new();
    for sector in [1 << 54, u64::MAX, u64::MAX / 512] {
        let source = (DATA, BLOCK, NEXT, 2);
        reactions.extend(chains(path, RequestType::In as u32, sector, &[&[HEAD, BODY, TAIL]])?);
        reactions.extend(chains(path, RequestType::Out as u32, sector, &[&[HEAD, source, TAIL]])?);
    }
    Ok(reactions)
}

fn unknown_request(path: &Path) -> Attacked {
    let mut reactions = Vec::new();
    for kind in [2, 3, 99, 1 << 31, u32::MAX] {
        reactions.extend(chains(path, kind, 0, &[&[HEAD, BODY, TAIL]])?);
    }
    Ok(reactions)
}

fn bad_head(path: &Path) -> Attacked {
    [QUEUE, 60_000, u16::MAX]
        .into_iter()
        .map(|head| {
            let mut rig = Rig::new(path)?;
            rig.header(RequestType::In as u32, 0)?;
            rig.ring.raw().offer(head);
            rig.reaction(ATTENTION)
        })
        .collect()
}

fn avail_jump(path: &Path) -> Attacked {
    [QUEUE + 1, 1000, 0x8000, u16::MAX]
        .into_iter()
        .map(|index| {
            let mut rig = Rig::new(path)?;
            rig.header(RequestType::In as u32, 0)?;
            rig.ring.raw().set_available_index(index);
            rig.reaction(ATTENTION)
        })
        .collect()
}

/// The device's reaction to an impossible queue.
fn queue_reaction(
    path: &Path,
    layout: impl Fn(QueueLayout) -> QueueLayout,
) -> Result<Reaction, String> {
    let mut rig = Rig::attach(path)?;
    let layout = layout(rig.layout);
    match rig.start(layout) {
        Err(LinkError::Down(_)) => Ok(Reaction::Disconnected),
        Err(e) => Ok(Reaction::Error(e.to_string())),
        Ok(()) => {
            rig.header(RequestType::In as u32, 0)?;
            rig.ring.raw().offer(0);
            rig.reaction(ATTENTION)
        }
    }
}

fn bad_queue_size(path: &Path) -> Attacked {
    [0, 3, 0x8000, u16::MAX]
        .into_iter()
        .map(|size| queue_reaction(path, |layout| QueueLayout { size, ..layout }))
        .collect()
}

fn ring_outside(path: &Path) -> Attacked {
    let at = |address: u64| GuestAddress(address);
    let mut reactions = Vec::new();
    for outside in [OUTSIDE, MEMORY as u64 - 16, 0x7fff_ffff_f000] {
        reactions.push(queue_reaction(path, |l| QueueLayout { descriptors: at(outside), ..l })?);
        reactions.push(queue_reaction(path, |l| QueueLayout { available: at(outside), ..l })?);
        reactions.push(queue_reaction(path, |l| QueueLayout { used: at(outside), ..l })?);
    }
    reactions.push(queue_reaction(path, |l| QueueLayout { descriptors: at(8), ..l })?);
    Ok(reactions)
}

/// Cuts off the data alone, then everything. From then on this side must not touch its own mapping
/// either.
fn vanishing(path: &Path) -> Attacked {
    let mut reactions = Vec::new();
    for (kept, kind) in [(DATA, RequestType::In), (DATA, RequestType::GetId), (0, RequestType::In)]
    {
        let mut rig = Rig::new(path)?;
        rig.header(kind as u32, 0)?;
        let len = if kind == RequestType::GetId { ID_BYTES as u32 } else { BLOCK };
        let data = Buffer::Writable { at: GuestAddress(DATA), len };
        let status = Buffer::Writable { at: GuestAddress(STATUS), len: 1 };
        rig.ring.add(&[HEADER_BUFFER, data, status], Placement::Direct).map_err(text)?;
        rig.ring.publish();
        rustix::fs::ftruncate(&*rig.shared, kept).map_err(text)?;
        reactions.push(if kept > 0 {
            rig.reaction(ATTENTION)?
        } else {
            rig.kick.write(1).map_err(text)?;
            rig.wait_for_hang_up(ATTENTION)
        });
    }
    Ok(reactions)
}

/// Sends raw bytes on a new connection, and waits for an answer.
fn raw(path: &Path, bytes: &[u8]) -> Result<Reaction, String> {
    let mut socket = UnixStream::connect(path).map_err(text)?;
    socket
        .set_read_timeout(Some(ATTENTION))
        .and(socket.set_write_timeout(Some(ATTENTION)))
        .map_err(text)?;
    let _ = socket.write_all(bytes);
    Ok(match socket.read(&mut [0; 64]) {
        Ok(0) => Reaction::Disconnected,
        Ok(_) => Reaction::Error("an answer".into()),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Reaction::Silence
        }
        Err(_) => Reaction::Disconnected,
    })
}

/// The head of a vhost-user message: version 1, an answer wanted.
fn message(request: u32, size: u32) -> Vec<u8> {
    [request, 1 | 8, size].iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn unknown_message(path: &Path) -> Attacked {
    Ok(vec![
        raw(path, &message(9999, 0))?,
        raw(path, &message(0, 0))?,
        raw(path, &message(u32::MAX, 0))?,
    ])
}

/// One after the other, as the device takes them.
fn broken_connections(path: &Path) -> Attacked {
    (0..BROKEN).map(|_| raw(path, &message(u32::MAX, 0))).collect()
}

fn huge_message(path: &Path) -> Attacked {
    let mut bytes = message(5, u32::MAX);
    bytes.resize(64 << 10, 0x5a);
    Ok(vec![raw(path, &bytes)?])
}

fn half_message(path: &Path) -> Attacked {
    let features = message(2, 8);
    Ok(vec![raw(path, &features[..5])?, raw(path, &features)?])
}

fn noise(path: &Path) -> Attacked {
    let mut rng = crate::workload::Rng::new(1);
    let bytes: Vec<u8> = (0..4096).map(|_| rng.next_u64() as u8).collect();
    Ok(vec![raw(path, &bytes)?])
}
