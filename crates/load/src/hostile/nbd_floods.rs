//! What a client may do, done as often as it goes, over NBD.

use super::nbd::{Attacked, greeted, next_bytes, request, send_option, text, transmission};
use super::scenario::{Attack, NbdVictim, Scenario};
use crate::reaction::Reaction;
use headgate_nbd::client::handshake::{OPTION_REPLY_LEN, go_data, option_reply_head};
use headgate_nbd::wire::{
    SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, be32, command, option, option_reply,
};
use headgate_nbd_io::Socket;
use std::io::Write;
use std::time::{Duration, Instant};

/// Requests that each connection keeps outstanding.
const OUTSTANDING: usize = 256;
/// How long a reply may take: as long as the disk's limit holds it up.
const REPLY: Duration = Duration::from_secs(60);
/// Before who was refused tries again.
const PAUSE: Duration = Duration::from_millis(10);
const BLOCK: u32 = 4096;

pub(super) const FLOODS: &[Scenario<NbdVictim>] = &[
    Scenario {
        name: "reconnect-loop",
        about: "256 reads, and a hang-up before their answers, in a loop",
        attack: Attack::Flood(reconnect_loop),
    },
    Scenario {
        name: "flush-flood",
        about: "256 flushes at a time",
        attack: Attack::Flood(flush_flood),
    },
    Scenario {
        name: "zeroes-flood",
        about: "256 write-zeroes of the whole disk at a time",
        attack: Attack::Flood(zeroes_flood),
    },
    Scenario {
        name: "status-flood",
        about: "256 questions for what the whole disk holds at a time",
        attack: Attack::Flood(status_flood),
    },
];

fn reconnect_loop(victim: &NbdVictim, time: Duration) -> Attacked {
    let end = Instant::now() + time;
    let mut reactions = Vec::new();
    while Instant::now() < end {
        let (mut socket, _) = match transmission(victim) {
            Ok(begun) => begun,
            // It has not yet closed as many as it takes: that is a reaction to this.
            Err(e) if !reactions.is_empty() => {
                reactions.push(Reaction::Error(e));
                std::thread::sleep(PAUSE);
                continue;
            }
            Err(e) => return Err(e),
        };
        reactions.push(Reaction::Served);
        let reads = request(command::READ, 0, BLOCK).to_bytes().repeat(OUTSTANDING);
        if socket.write_all(&reads).is_err() {
            reactions.push(Reaction::Disconnected);
            break;
        }
    }
    Ok(reactions)
}

fn flush_flood(victim: &NbdVictim, time: Duration) -> Attacked {
    let (socket, _) = transmission(victim)?;
    flood(socket, time, command::FLUSH, 0)
}

fn zeroes_flood(victim: &NbdVictim, time: Duration) -> Attacked {
    let (socket, info) = transmission(victim)?;
    flood(socket, time, command::WRITE_ZEROES, info.size.min(1 << 31) as u32)
}

fn status_flood(victim: &NbdVictim, time: Duration) -> Attacked {
    let (_, info) = transmission(victim)?;
    let mut socket = greeted(victim)?;
    let name = victim.target.export.as_bytes();
    let mut contexts = (name.len() as u32).to_be_bytes().to_vec();
    contexts.extend_from_slice(name);
    contexts.extend(1u32.to_be_bytes());
    contexts.extend(15u32.to_be_bytes());
    contexts.extend(b"base:allocation");
    let options = [
        (option::STRUCTURED_REPLY, Vec::new()),
        (option::SET_META_CONTEXT, contexts),
        (option::GO, go_data(name)),
    ];
    for (number, data) in options {
        send_option(&mut socket, number, &data).map_err(text)?;
        if let Some(refused) = acknowledged(&mut socket, number) {
            return Ok(vec![refused]);
        }
    }
    flood(socket, time, command::BLOCK_STATUS, info.size.min(1 << 31) as u32)
}

/// Waits for the end of an option. Returns the server's reaction if it is another.
fn acknowledged(socket: &mut Socket, number: u32) -> Option<Reaction> {
    loop {
        let mut head = [0; OPTION_REPLY_LEN];
        if let Some(reaction) = next_bytes(socket, &mut head) {
            return Some(reaction);
        }
        let (kind, len) = match option_reply_head(&head, number) {
            Ok(read) => read,
            Err(e) => return Some(Reaction::Error(e.to_string())),
        };
        if let Some(reaction) = next_bytes(socket, &mut vec![0; len as usize]) {
            return Some(reaction);
        }
        if kind == option_reply::ACK {
            return None;
        }
        if kind & option_reply::ERROR != 0 {
            return Some(Reaction::Error(format!("option reply {kind:#x}")));
        }
    }
}

/// Keeps that many of a request outstanding.
fn flood(mut socket: Socket, time: Duration, command: u16, len: u32) -> Attacked {
    let end = Instant::now() + time;
    socket.set_timeouts(Some(REPLY)).map_err(text)?;
    let message = request(command, 0, len).to_bytes();
    if socket.write_all(&message.repeat(OUTSTANDING)).is_err() {
        return Ok(vec![Reaction::Disconnected]);
    }
    let mut last = Reaction::Silence;
    while Instant::now() < end {
        match reply(&mut socket)? {
            gone @ (Reaction::Disconnected | Reaction::Silence) => return Ok(vec![gone]),
            answer => last = answer,
        }
        if socket.write_all(&message).is_err() {
            return Ok(vec![Reaction::Disconnected]);
        }
    }
    Ok(vec![last])
}

/// Reads one reply, simple or structured, without data of the disk's.
fn reply(socket: &mut Socket) -> Result<Reaction, String> {
    let mut head = [0; 16];
    if let Some(reaction) = next_bytes(socket, &mut head) {
        return Ok(reaction);
    }
    match be32(&head, 0) {
        Some(SIMPLE_REPLY_MAGIC) => Ok(match be32(&head, 4) {
            Some(0) => Reaction::Served,
            code => Reaction::Error(format!("code {}", code.unwrap_or(0))),
        }),
        Some(STRUCTURED_REPLY_MAGIC) => {
            let mut len = [0; 4];
            if let Some(reaction) = next_bytes(socket, &mut len) {
                return Ok(reaction);
            }
            let mut data = vec![0; u32::from_be_bytes(len).min(1 << 20) as usize];
            Ok(next_bytes(socket, &mut data).unwrap_or(Reaction::Served))
        }
        _ => Err("the reply is none".into()),
    }
}
