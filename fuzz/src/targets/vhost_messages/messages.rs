//! Messages of the vhost-user protocol, good and bad.

use super::front_end::{BASE, Descriptor, MEMORY, QUEUE, QUEUES, USER, ring};
use arbitrary::{Result, Unstructured};

pub(super) const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const GET_QUEUE_NUM: u32 = 17;
const SET_VRING_ENABLE: u32 = 18;
const GET_CONFIG: u32 = 24;
const SET_CONFIG: u32 = 25;
const GET_INFLIGHT_FD: u32 = 31;
const SET_INFLIGHT_FD: u32 = 32;
const RESET_DEVICE: u32 = 34;
const GET_MAX_MEM_SLOTS: u32 = 36;
const ADD_MEM_REG: u32 = 37;
const REM_MEM_REG: u32 = 38;

/// No type of the protocol is higher.
const HIGHEST: u32 = 50;

const VERSION: u32 = 1;
const NEED_REPLY: u32 = 8;

/// `VIRTIO_F_VERSION_1`, protocol features, indirect descriptors, flush.
const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 28 | 1 << 9;
/// MQ, CONFIG, REPLY_ACK, INFLIGHT_SHMFD, CONFIGURE_MEM_SLOTS, RESET_DEVICE.
const PROTOCOL_FEATURES: u64 = 1 << 0 | 1 << 9 | 1 << 3 | 1 << 12 | 1 << 15 | 1 << 13;

/// Bytes and descriptors of one message.
pub(super) struct Message {
    pub(super) kind: u32,
    pub(super) flags: u32,
    /// The length that it announces.
    pub(super) size: u32,
    pub(super) body: Vec<u8>,
    pub(super) descriptors: Vec<Descriptor>,
}

impl Message {
    pub(super) fn of(kind: u32, words: &[u64]) -> Message {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Message { kind, flags: VERSION, size: body.len() as u32, body, descriptors: Vec::new() }
    }

    fn with(mut self, descriptor: Descriptor) -> Message {
        self.descriptors.push(descriptor);
        self
    }

    /// One thing of it is wrong, or several.
    pub(super) fn spoil(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        for _ in 0..u.int_in_range(1..=3u8)? {
            match u.int_in_range(0..=7u8)? {
                0 => self.flags = u.arbitrary()?,
                1 => self.size = u.int_in_range(0..=5_000)?,
                2 => self.body.truncate(u.int_in_range(0..=self.body.len())?),
                3 => self.descriptors.push(descriptor(u)?),
                4 => self.descriptors.clear(),
                5 => self.kind = u.int_in_range(0..=HIGHEST)?,
                _ if self.body.is_empty() => self.body = u.arbitrary()?,
                _ => {
                    let at = u.choose_index(self.body.len())?;
                    let len = u.int_in_range(1..=8usize)?;
                    let new = u.bytes(len)?;
                    self.body[at..].iter_mut().zip(new).for_each(|(byte, new)| *byte = *new);
                }
            }
        }
        Ok(())
    }
}

fn descriptor(u: &mut Unstructured<'_>) -> Result<Descriptor> {
    u.choose(&Descriptor::ALL).copied()
}

/// One region that holds all of the memory.
fn region() -> [u64; 4] {
    [BASE, MEMORY, USER, 0]
}

fn addresses(queue: u64) -> Message {
    let [descriptors, available, used] = ring(queue);
    let words = [queue, USER + descriptors, USER + used, USER + available, 0];
    Message::of(SET_VRING_ADDR, &words)
}

/// Number and value of a queue are half words.
fn of_queue(kind: u32, queue: u64, value: u64) -> Message {
    Message::of(kind, &[queue | value << 32])
}

/// What a good front-end sends until all its rings run.
pub(super) fn negotiation() -> Vec<Message> {
    let mut messages = vec![
        Message::of(SET_OWNER, &[]),
        Message::of(GET_FEATURES, &[]),
        Message::of(GET_PROTOCOL_FEATURES, &[]),
        Message::of(SET_PROTOCOL_FEATURES, &[PROTOCOL_FEATURES]),
        Message::of(SET_FEATURES, &[FEATURES]),
        memory_table(),
    ];
    for queue in 0..QUEUES {
        messages.extend([
            of_queue(SET_VRING_NUM, queue, QUEUE),
            of_queue(SET_VRING_BASE, queue, 0),
            addresses(queue),
            Message::of(SET_VRING_CALL, &[queue]).with(Descriptor::Call),
            Message::of(SET_VRING_KICK, &[queue]).with(Descriptor::Kick),
            of_queue(SET_VRING_ENABLE, queue, 1),
        ]);
    }
    messages
}

fn memory_table() -> Message {
    let mut words = vec![1];
    words.extend(region());
    Message::of(SET_MEM_TABLE, &words).with(Descriptor::Memory)
}

/// `u64` size, `u64` offset, `u16` queues, `u16` their size.
fn in_flight(kind: u32, queues: u64, size: u64) -> Message {
    let mut message = Message::of(kind, &[MEMORY, 0]);
    message.body.extend((queues as u16).to_le_bytes());
    message.body.extend((size as u16).to_le_bytes());
    message.size = message.body.len() as u32;
    message
}

/// `u32` offset, size and flags, and as many bytes.
fn config(kind: u32, offset: u32, size: u32) -> Message {
    let mut message = Message::of(kind, &[]);
    message.body.extend([offset, size, 0].iter().flat_map(|word| word.to_le_bytes()));
    message.body.resize(message.body.len() + size.min(300) as usize, 0);
    message.size = message.body.len() as u32;
    message
}

/// A message that a front-end might send, at any time.
pub(super) fn good(u: &mut Unstructured<'_>) -> Result<Message> {
    let queue = u.int_in_range(0..=QUEUES)?;
    let mut message = match u.int_in_range(0..=22u8)? {
        0 => Message::of(GET_FEATURES, &[]),
        1 => Message::of(SET_FEATURES, &[FEATURES & !(1 << u.int_in_range(0..=40)?)]),
        2 => Message::of(RESET_DEVICE, &[]),
        3 => memory_table(),
        4 => of_queue(SET_VRING_NUM, queue, 1 << u.int_in_range(0..=16)?),
        5 => addresses(queue),
        6 => of_queue(SET_VRING_BASE, queue, u.int_in_range(0..=70_000)?),
        7 | 8 => of_queue(GET_VRING_BASE, queue, 0),
        9 | 10 => Message::of(SET_VRING_KICK, &[queue]).with(Descriptor::Kick),
        11 => Message::of(SET_VRING_CALL, &[queue]).with(Descriptor::Call),
        12 => Message::of(SET_VRING_CALL, &[queue | 1 << 8]),
        13 => Message::of(SET_VRING_ERR, &[queue]).with(descriptor(u)?),
        14 => of_queue(SET_VRING_ENABLE, queue, u.int_in_range(0..=1)?),
        15 => config(GET_CONFIG, u.int_in_range(0..=300)?, u.int_in_range(0..=300)?),
        16 => config(SET_CONFIG, u.int_in_range(0..=70)?, u.int_in_range(0..=8)?),
        17 => in_flight(GET_INFLIGHT_FD, QUEUES, QUEUE),
        18 | 19 => in_flight(SET_INFLIGHT_FD, QUEUES, QUEUE).with(Descriptor::InFlight),
        20 => Message::of(*u.choose(&[GET_QUEUE_NUM, GET_MAX_MEM_SLOTS, SET_OWNER])?, &[]),
        21 => {
            let at = u.int_in_range(1..=4u64)? * MEMORY;
            let words = [0, BASE + at, MEMORY, USER + at, 0];
            Message::of(ADD_MEM_REG, &words).with(Descriptor::Memory)
        }
        _ => {
            let at = u.int_in_range(0..=4u64)? * MEMORY;
            Message::of(REM_MEM_REG, &[0, BASE + at, MEMORY, USER + at, 0])
        }
    };
    if u.arbitrary()? {
        message.flags |= NEED_REPLY;
    }
    Ok(message)
}

/// Nothing that the protocol knows.
pub(super) fn anything(u: &mut Unstructured<'_>) -> Result<Message> {
    let mut descriptors = Vec::new();
    for _ in 0..u.int_in_range(0..=4u8)? {
        descriptors.push(descriptor(u)?);
    }
    let len = u.int_in_range(0..=64usize)?;
    Ok(Message {
        kind: u.int_in_range(0..=HIGHEST)?,
        flags: VERSION | u.arbitrary::<u8>()? as u32,
        size: if u.ratio(7, 8)? { len as u32 } else { u.arbitrary()? },
        body: u.bytes(len)?.to_vec(),
        descriptors,
    })
}
