//! A connection on which client and server count what a disk receives: the input says what the
//! client sends, and when, how and for what charge the disk answers. What the disk hears of other
//! servers was said, and what the client is told was charged.

use headgate_engine::request::{Charge, IoError};
use headgate_frontends::nbd::harness::{Harness, Outcome};
use headgate_nbd::counters::Version;
use headgate_nbd::server::command::{Replies, Session};
use headgate_nbd::server::contexts::Contexts;
use headgate_qos::window::Slots;
use headgate_qos::{Cost, Phase};

const SIZE: u64 = 100 << 10;
const READ: u8 = 0;
const WRITE: u8 = 1;

/// A request, with counters that may be wrong. Its cookie says what its answer brings.
fn request(bytes: &[u8]) -> Vec<u8> {
    let [kind, offset, len, delta, rho, rest] =
        [0, 1, 2, 3, 4, 5].map(|i| bytes.get(i).copied().unwrap_or(0));
    let kind = kind & 7;
    let (offset, len) = (u64::from(offset) * 256, u32::from(len) * 256);
    let brings = if kind == READ { len } else { 0 };
    let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
    request.extend([0, 0, 0, kind]);
    request.extend(u64::from(brings).to_be_bytes());
    request.extend(offset.to_be_bytes());
    request.extend(len.to_be_bytes());
    for count in [delta, rho] {
        request.extend((u64::from(count) << (count % 57)).to_be_bytes());
    }
    request.extend([rest; 8]);
    request.extend([0, rest]);
    request.extend([0, 0, 0, 0, 0, u8::from(rest == 255)]);
    if kind == WRITE {
        request.resize(request.len() + len as usize, rest);
    }
    request
}

/// What the answers told in all, and of that by reservation.
fn told(version: Version, mut output: &[u8]) -> (u64, u64) {
    let (mut all, mut by_reservation) = (0, 0);
    let long = |bytes: &[u8], at: usize| {
        u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    };
    while !output.is_empty() {
        assert_eq!(output[..4], 0x6744_6698u32.to_be_bytes(), "a simple reply");
        let data = if output[4..8] == [0; 4] { long(output, 8) as usize } else { 0 };
        let (here, part) = (long(output, 16), long(output, 24));
        assert!(part <= here, "more by reservation than in all");
        (all, by_reservation) = (all + here, by_reservation + part);
        let window = version >= Version::Three;
        if window {
            let said = long(output, 32);
            assert!(said == 0 || (said / 1_000_000).is_power_of_two(), "a window that never was");
        }
        output = &output[if window { 40 } else { 32 } + data..];
    }
    (all, by_reservation)
}

pub(super) fn run(input: &[u8]) {
    let Some((&depth, steps)) = input.split_first() else { return };
    let version = if depth & 8 == 0 { Version::Two } else { Version::Three };
    let session = Session { replies: Replies::Counted(version), contexts: Contexts::NONE };
    let mut harness = Harness::new(session, SIZE as usize, usize::from(depth % 8) + 1, &[]);
    let (mut all, mut by_reservation) = (0, 0);
    let mut raw = false;
    for step in steps.chunks(7) {
        let (what, rest) = (step[0], &step[1..]);
        match what % 4 {
            0 | 1 => drop(harness.send(&request(rest))),
            2 if !harness.shard.queue.is_empty() => {
                let index = usize::from(what) % harness.shard.queue.len();
                let cost = u64::from(what) * 10_000;
                let phase = if what & 64 == 0 { Phase::Weight } else { Phase::Reservation };
                harness.shard.charge = Charge { cost: Cost::from_millionths(cost), phase };
                harness.shard.window = (what & 16 == 0).then(|| Slots::whole(1 << (what >> 5)));
                all += cost;
                by_reservation += if phase == Phase::Reservation { cost } else { 0 };
                let failed = Outcome::Failed(IoError::NoSpace);
                harness.complete(index, if what & 32 == 0 { Outcome::Served } else { failed });
            }
            3 if what == 255 => {
                raw = true;
                harness.send(rest);
            }
            3 => drop(harness.read() || harness.grant_block()),
            _ => {}
        }
    }
    harness.shard.charge = Charge::NONE;
    harness.settle();
    let most = headgate_qos::ServedElsewhere::MAX;
    for said in &harness.shard.elsewhere {
        assert!(said.rho() <= said.delta() && said.delta() <= most && !said.is_none());
    }
    // A client that sends anything chooses any cookie, and knows not what an answer brings.
    if !raw && !harness.shard.closed {
        let told = told(version, &harness.output);
        assert!(told.0 <= all && told.1 <= by_reservation, "{told:?} of {all}, {by_reservation}");
    }
}
