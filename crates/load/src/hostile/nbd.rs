//! Attacks on NBD servers.

use super::scenario::{ATTENTION, Attack, BROKEN, NbdVictim, Scenario};
use crate::nbd;
use crate::reaction::Reaction;
use crate::workload::Rng;
use headgate_nbd::client::handshake::{
    ExportInfo, GREETING_LEN, OPTION_REPLY_LEN, ReplyStyle, answer_greeting, go_data,
    option_reply_head, put_option,
};
use headgate_nbd::wire::{
    REQUEST_MAGIC, Request, SIMPLE_REPLY_MAGIC, be32, command, handshake, option, option_head,
    option_reply,
};
use headgate_nbd_io::{Socket, handshake as shake_hands};
use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

pub(super) type Attacked = Result<Vec<Reaction>, String>;

/// Bytes of a request that is itself in order: what every disk takes, whatever its block size.
const BLOCK: u32 = 4096;
/// Requests sent at once by a client that never reads.
const UNREAD: usize = 2048;
/// Connections of a storm.
const STORM: usize = 300;

pub(super) const RULE_BREAKERS: &[Scenario<NbdVictim>] = &[
    Scenario {
        name: "garbage-handshake",
        about: "noise instead of an option",
        attack: Attack::Once(garbage_handshake),
    },
    Scenario {
        name: "unknown-flags",
        about: "handshake flags that do not exist",
        attack: Attack::Once(unknown_flags),
    },
    Scenario {
        name: "unknown-option",
        about: "an option that does not exist",
        attack: Attack::Once(unknown_option),
    },
    Scenario {
        name: "oversized-option",
        about: "an option of 4 GiB, of which a part arrives",
        attack: Attack::Once(oversized_option),
    },
    Scenario {
        name: "oversized-name",
        about: "export names of 4097 and 65000 bytes",
        attack: Attack::Once(oversized_name),
    },
    Scenario {
        name: "lying-name",
        about: "a name longer than the option around it",
        attack: Attack::Once(lying_name),
    },
    Scenario {
        name: "unknown-export",
        about: "an export that does not exist",
        attack: Attack::Once(unknown_export),
    },
    Scenario {
        name: "half-handshake",
        about: "a handshake that stops in the middle",
        attack: Attack::Once(half_handshake),
    },
    Scenario {
        name: "wrong-magic",
        about: "a request without the magic number",
        attack: Attack::Once(wrong_magic),
    },
    Scenario {
        name: "unknown-command",
        about: "commands that do not exist",
        attack: Attack::Once(unknown_command),
    },
    Scenario {
        name: "unknown-command-flags",
        about: "all flags on a read",
        attack: Attack::Once(unknown_command_flags),
    },
    Scenario {
        name: "misaligned",
        about: "reads and writes of odd bytes",
        attack: Attack::Once(misaligned),
    },
    Scenario {
        name: "out-of-range",
        about: "reads and writes behind the end",
        attack: Attack::Once(out_of_range),
    },
    Scenario {
        name: "no-length",
        about: "reads and writes of no bytes",
        attack: Attack::Once(no_length),
    },
    Scenario {
        name: "huge-read",
        about: "a read of 4 GiB less one byte",
        attack: Attack::Once(huge_read),
    },
    Scenario {
        name: "huge-write",
        about: "a write of 4 GiB less one byte, of which a part arrives",
        attack: Attack::Once(huge_write),
    },
    Scenario {
        name: "cut-payload",
        about: "a write whose data stops in the middle, hanging up",
        attack: Attack::Once(cut_payload),
    },
    Scenario {
        name: "half-header",
        about: "half a request, then silence",
        attack: Attack::Once(half_header),
    },
    Scenario {
        name: "stops-reading",
        about: "2048 reads of 64 KiB whose answers are never read",
        attack: Attack::Once(stops_reading),
    },
    Scenario {
        name: "connect-storm",
        about: "300 connections that say nothing",
        attack: Attack::Once(connect_storm),
    },
    Scenario {
        name: "broken-connections",
        about: "2000 connections that break the protocol",
        attack: Attack::Once(broken_connections),
    },
];

/// Checks that a new, well-behaved client is served.
pub(super) fn probe(victim: &NbdVictim) -> Result<(), String> {
    let (mut socket, _) = transmission(victim)?;
    match exchange(&mut socket, &request(command::READ, 0, BLOCK))? {
        Reaction::Served => Ok(()),
        other => Err(format!("a read of the first block: {other}")),
    }
}

pub(super) fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn connect(victim: &NbdVictim) -> Result<Socket, String> {
    let deadline = Instant::now() + ATTENTION;
    let socket = nbd::connect(&victim.target, victim.reach, deadline).map_err(text)?;
    socket.set_timeouts(Some(ATTENTION)).map_err(text)?;
    Ok(socket)
}

/// Past the greeting: options may follow.
pub(super) fn greeted(victim: &NbdVictim) -> Result<Socket, String> {
    let mut socket = connect(victim)?;
    let mut greeting = [0; GREETING_LEN];
    socket.read_exact(&mut greeting).map_err(text)?;
    socket.write_all(&answer_greeting(&greeting).map_err(text)?).map_err(text)?;
    Ok(socket)
}

/// Past the whole handshake: requests may follow.
pub(super) fn transmission(victim: &NbdVictim) -> Result<(Socket, ExportInfo), String> {
    let mut socket = connect(victim)?;
    let deadline = Instant::now() + ATTENTION;
    let info = shake_hands(&mut socket, &victim.target.export, ReplyStyle::Simple, deadline)
        .map_err(text)?;
    socket.set_timeouts(Some(ATTENTION)).map_err(text)?;
    Ok((socket, info))
}

/// Reads the next bytes; returns the server's reaction if they do not come.
pub(super) fn next_bytes(socket: &mut Socket, bytes: &mut [u8]) -> Option<Reaction> {
    match socket.read_exact(bytes) {
        Ok(()) => None,
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Some(Reaction::Silence)
        }
        Err(_) => Some(Reaction::Disconnected),
    }
}

pub(super) fn send_option(socket: &mut Socket, number: u32, data: &[u8]) -> io::Result<()> {
    let mut message = Vec::new();
    put_option(&mut message, number, data);
    socket.write_all(&message)
}

fn option_reaction(socket: &mut Socket, number: u32) -> Reaction {
    let mut head = [0; OPTION_REPLY_LEN];
    if let Some(reaction) = next_bytes(socket, &mut head) {
        return reaction;
    }
    let (kind, len) = match option_reply_head(&head, number) {
        Ok(read) => read,
        Err(e) => return Reaction::Error(e.to_string()),
    };
    if let Some(reaction) = next_bytes(socket, &mut vec![0; len as usize]) {
        return reaction;
    }
    if kind & option_reply::ERROR != 0 {
        Reaction::Error(format!("option reply {kind:#x}"))
    } else {
        Reaction::Served
    }
}

pub(super) fn request(command: u16, offset: u64, len: u32) -> Request {
    Request { flags: 0, command, cookie: 0x1234, offset, len }
}

/// Sends a request with as much data as it announces, and reads the simple reply with its data.
fn exchange(socket: &mut Socket, request: &Request) -> Result<Reaction, String> {
    let mut message = request.to_bytes().to_vec();
    if request.command == command::WRITE {
        message.resize(message.len() + request.len as usize, 0x5a);
    }
    if socket.write_all(&message).is_err() {
        return Ok(Reaction::Disconnected);
    }
    simple_reply(socket, request)
}

fn simple_reply(socket: &mut Socket, request: &Request) -> Result<Reaction, String> {
    let mut head = [0; 16];
    if let Some(reaction) = next_bytes(socket, &mut head) {
        return Ok(reaction);
    }
    if be32(&head, 0) != Some(SIMPLE_REPLY_MAGIC) || head[8..] != request.cookie.to_be_bytes() {
        return Err("the reply is none to this request".into());
    }
    match be32(&head, 4) {
        Some(0) if request.command == command::READ => {
            let mut left = u64::from(request.len);
            let mut data = vec![0; 64 << 10];
            while left > 0 {
                let n = left.min(data.len() as u64) as usize;
                if let Some(reaction) = next_bytes(socket, &mut data[..n]) {
                    return Ok(reaction);
                }
                left -= n as u64;
            }
            Ok(Reaction::Served)
        }
        Some(0) => Ok(Reaction::Served),
        code => Ok(Reaction::Error(format!("code {}", code.unwrap_or(0)))),
    }
}

/// Each request on a connection of its own.
fn each(victim: &NbdVictim, requests: impl Fn(u64) -> Vec<Request>) -> Attacked {
    let (_, info) = transmission(victim)?;
    requests(info.size)
        .iter()
        .map(|request| {
            let (mut socket, _) = transmission(victim)?;
            exchange(&mut socket, request)
        })
        .collect()
}

fn garbage_handshake(victim: &NbdVictim) -> Attacked {
    let mut rng = Rng::new(1);
    let mut socket = greeted(victim)?;
    let noise: Vec<u8> = (0..4096).map(|_| rng.next_u64() as u8).collect();
    let _ = socket.write_all(&noise);
    let mut answer = [0; 20];
    Ok(vec![
        next_bytes(&mut socket, &mut answer)
            .unwrap_or_else(|| Reaction::Error("an option reply".into())),
    ])
}

fn unknown_flags(victim: &NbdVictim) -> Attacked {
    let mut socket = connect(victim)?;
    socket.read_exact(&mut [0; GREETING_LEN]).map_err(text)?;
    let flags = 0xffff_fff0 | u32::from(handshake::FIXED_NEWSTYLE);
    let _ = socket.write_all(&flags.to_be_bytes());
    let _ = send_option(&mut socket, option::GO, &go_data(victim.target.export.as_bytes()));
    Ok(vec![option_reaction(&mut socket, option::GO)])
}

fn unknown_option(victim: &NbdVictim) -> Attacked {
    let mut socket = greeted(victim)?;
    let _ = send_option(&mut socket, 0xdead_beef, b"data");
    Ok(vec![option_reaction(&mut socket, 0xdead_beef)])
}

fn oversized_option(victim: &NbdVictim) -> Attacked {
    let mut socket = greeted(victim)?;
    let _ = socket.write_all(&option_head(option::GO, u32::MAX));
    let _ = socket.write_all(&[b'x'; 64 << 10]);
    Ok(vec![option_reaction(&mut socket, option::GO)])
}

fn oversized_name(victim: &NbdVictim) -> Attacked {
    [4097, 65_000]
        .into_iter()
        .map(|len| {
            let mut socket = greeted(victim)?;
            let _ = send_option(&mut socket, option::GO, &go_data(&vec![b'x'; len]));
            Ok(option_reaction(&mut socket, option::GO))
        })
        .collect()
}

fn lying_name(victim: &NbdVictim) -> Attacked {
    [u32::MAX, 100]
        .into_iter()
        .map(|len| {
            let mut data = go_data(b"name");
            data[..4].copy_from_slice(&len.to_be_bytes());
            let mut socket = greeted(victim)?;
            let _ = send_option(&mut socket, option::GO, &data);
            Ok(option_reaction(&mut socket, option::GO))
        })
        .collect()
}

fn unknown_export(victim: &NbdVictim) -> Attacked {
    let mut socket = greeted(victim)?;
    let _ = send_option(&mut socket, option::GO, &go_data(b"\xff no such export \0"));
    Ok(vec![option_reaction(&mut socket, option::GO)])
}

fn half_handshake(victim: &NbdVictim) -> Attacked {
    let mut socket = greeted(victim)?;
    let _ = socket.write_all(&option_head(option::GO, 10)[..9]);
    Ok(vec![option_reaction(&mut socket, option::GO)])
}

fn wrong_magic(victim: &NbdVictim) -> Attacked {
    let (mut socket, _) = transmission(victim)?;
    let mut bytes = request(command::READ, 0, BLOCK).to_bytes();
    bytes[..4].copy_from_slice(&(REQUEST_MAGIC ^ 1).to_be_bytes());
    let _ = socket.write_all(&bytes);
    Ok(vec![simple_reply(&mut socket, &request(command::READ, 0, BLOCK))?])
}

fn unknown_command(victim: &NbdVictim) -> Attacked {
    each(victim, |_| [9, 77, 0xffff].map(|command| request(command, 0, BLOCK)).to_vec())
}

fn unknown_command_flags(victim: &NbdVictim) -> Attacked {
    each(victim, |_| vec![Request { flags: 0xffff, ..request(command::READ, 0, BLOCK) }])
}

fn misaligned(victim: &NbdVictim) -> Attacked {
    each(victim, |_| {
        [(1, 3), (511, 2), (4095, 4098)]
            .into_iter()
            .flat_map(|(at, len)| [command::READ, command::WRITE].map(|c| request(c, at, len)))
            .collect()
    })
}

fn out_of_range(victim: &NbdVictim) -> Attacked {
    each(victim, |size| {
        [size, size.saturating_sub(512), u64::MAX - 511, u64::MAX, 1 << 63]
            .into_iter()
            .flat_map(|at| {
                [command::READ, command::WRITE, command::WRITE_ZEROES].map(|c| request(c, at, 1024))
            })
            .collect()
    })
}

fn no_length(victim: &NbdVictim) -> Attacked {
    each(victim, |_| {
        [command::READ, command::WRITE, command::WRITE_ZEROES].map(|c| request(c, 0, 0)).to_vec()
    })
}

fn huge_read(victim: &NbdVictim) -> Attacked {
    let (mut socket, _) = transmission(victim)?;
    let request = request(command::READ, 0, u32::MAX);
    let _ = socket.write_all(&request.to_bytes());
    let mut head = [0; 16];
    Ok(vec![next_bytes(&mut socket, &mut head).unwrap_or_else(|| match be32(&head, 4) {
        Some(0) => Reaction::Served,
        code => Reaction::Error(format!("code {}", code.unwrap_or(0))),
    })])
}

fn huge_write(victim: &NbdVictim) -> Attacked {
    let (mut socket, _) = transmission(victim)?;
    let request = request(command::WRITE, 0, u32::MAX);
    let _ = socket.write_all(&request.to_bytes());
    let _ = socket.write_all(&[0x5a; 64 << 10]);
    Ok(vec![simple_reply(&mut socket, &request)?])
}

fn cut_payload(victim: &NbdVictim) -> Attacked {
    for sent in [0, 1, 4096, 65_535] {
        let (mut socket, _) = transmission(victim)?;
        let _ = socket.write_all(&request(command::WRITE, 0, 65_536).to_bytes());
        let _ = socket.write_all(&vec![0x5a; sent]);
    }
    Ok(vec![Reaction::Silence])
}

fn half_header(victim: &NbdVictim) -> Attacked {
    let (mut socket, _) = transmission(victim)?;
    let request = request(command::READ, 0, BLOCK);
    let _ = socket.write_all(&request.to_bytes()[..14]);
    Ok(vec![simple_reply(&mut socket, &request)?])
}

/// The server may stop taking requests, or hang up; both end the sending.
fn stops_reading(victim: &NbdVictim) -> Attacked {
    let (mut socket, info) = transmission(victim)?;
    let len = info.size.min(65_536) as u32;
    for _ in 0..UNREAD {
        match socket.write_all(&request(command::READ, 0, len).to_bytes()) {
            Ok(()) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(vec![Reaction::Silence]);
            }
            Err(_) => return Ok(vec![Reaction::Disconnected]),
        }
    }
    // All were taken, and the answers wait: others must be served meanwhile.
    std::thread::sleep(ATTENTION);
    Ok(vec![Reaction::Silence])
}

/// In turn noise instead of an option, and instead of a request.
fn broken_connections(victim: &NbdVictim) -> Attacked {
    let broken = |n| {
        let mut socket = if n % 2 == 0 { greeted(victim)? } else { transmission(victim)?.0 };
        // The server may have hung up.
        let _ = socket.write_all(&[0x5a; 64]);
        let answered = next_bytes(&mut socket, &mut [0; 20]);
        Ok(answered.unwrap_or_else(|| Reaction::Error("an option reply".into())))
    };
    (0..BROKEN).map(broken).collect()
}

fn connect_storm(victim: &NbdVictim) -> Attacked {
    let mut held = Vec::new();
    let mut refused = false;
    for _ in 0..STORM {
        match connect(victim) {
            Ok(socket) => held.push(socket),
            Err(_) => refused = true,
        }
    }
    // New clients must be served while the others do nothing.
    let served = probe(victim).err();
    drop(held);
    Ok(match (served, refused) {
        (Some(e), _) => vec![Reaction::Error(format!("no new client was served meanwhile: {e}"))],
        (None, true) => vec![Reaction::Disconnected],
        (None, false) => vec![Reaction::Served],
    })
}
