use super::super::super::harness::{Harness, Outcome};
use super::super::tests::{DISK, request, write};
use super::*;
use headgate_engine::request::{Charge, IoError};
use headgate_nbd::client::form::Form;
use headgate_nbd::client::replies::{Brings, Event as Came, Replies as Reader};
use headgate_nbd::counters::{REPLY_LEN, Received, Report, Version, WINDOW_LEN, Window};
use headgate_nbd::server::command::{Replies, Session};
use headgate_nbd::server::contexts::{ContextId, Contexts};
use headgate_nbd::wire::{BASE_ALLOCATION_ID, REQUEST_LEN, SIMPLE_REPLY_MAGIC, command};
use headgate_qos::Phase;
use headgate_qos::ioprio::Ioprio;
use headgate_qos::window::Slots;
use headgate_units::Priority;
use proptest::prelude::*;

const COUNTED: Session = counted_by(Version::Two);
const DEPTH: usize = 64;

const fn counted_by(version: Version) -> Session {
    Session { replies: Replies::Counted(version), contexts: Contexts::NONE }
}

/// A request with what it says of other servers.
fn counted(request: Vec<u8>, said: Report) -> Vec<u8> {
    let (head, payload) = request.split_at(REQUEST_LEN);
    [head, &said.to_bytes(), payload].concat()
}

/// Cookie, error, all that was charged, and what of it by reservation.
type Reply = (u64, u32, u64, u64);

/// The replies, whose data has the length that `reads` says.
fn replies(mut output: &[u8], reads: impl Fn(u64) -> usize) -> Vec<Reply> {
    let mut all = Vec::new();
    while !output.is_empty() {
        let word = |at: usize| u32::from_be_bytes(output[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_be_bytes(output[at..at + 8].try_into().unwrap());
        assert_eq!(word(0), SIMPLE_REPLY_MAGIC);
        let reply = (long(8), word(4), long(16), long(24));
        let data = if reply.1 == 0 { reads(reply.0) } else { 0 };
        output = &output[16 + REPLY_LEN + data..];
        all.push(reply);
    }
    all
}

#[test]
fn what_a_request_says_of_other_servers_is_told_to_the_disk_once() {
    let mut harness = Harness::new(COUNTED, DISK, DEPTH, &[]);
    let said = |delta, rho| Report { delta, rho, bytes: 4096, ioprio: 0 };
    let read = |cookie| request(command::READ, cookie, 0, 4096);
    let beyond = request(command::READ, 3, DISK as u64, 4096);
    let stream = [
        counted(read(1), said(3_000_000, 1_000_000)),
        counted(read(2), Report::default()),
        counted(beyond, said(500_000, 0)),
        counted(write(4, 0, &[7; 512]), said(u64::MAX, u64::MAX)),
    ];
    harness.send(&stream.concat());
    let report = |delta, rho, bytes| {
        let [delta, rho] = [delta, rho].map(Cost::from_millionths);
        ServedElsewhere::new(delta, rho, Bytes(bytes)).unwrap()
    };
    // What nobody can have received is cut.
    let most = ServedElsewhere::MAX.as_millionths();
    let expected =
        [report(3_000_000, 1_000_000, 4096), report(500_000, 0, 4096), report(most, most, 4096)];
    assert_eq!(harness.shard.elsewhere, expected);
    assert_eq!(harness.shard.queue.len(), 3);
}

#[test]
fn who_says_what_cannot_be_is_cut_off_and_its_disk_hears_nothing() {
    let mut harness = Harness::new(COUNTED, DISK, DEPTH, &[]);
    let said = Report { delta: 1, rho: 2, ..Report::default() };
    harness.send(&counted(request(command::READ, 1, 0, 4096), said));
    assert!(harness.shard.closed && harness.shard.elsewhere.is_empty());
}

#[test]
fn a_requests_own_priority_comes_before_that_of_its_export() {
    let mut harness = Harness::new(COUNTED, DISK, DEPTH, &[]);
    let own = Ioprio::exactly(Priority::MAX).0;
    for (cookie, ioprio) in [(1, 0), (2, own), (3, 0)] {
        let said = Report { ioprio, ..Report::default() };
        harness.send(&counted(request(command::READ, cookie, 0, 4096), said));
    }
    let asked: Vec<u16> = harness.shard.queue.iter().map(|queued| queued.request.ioprio).collect();
    assert_eq!(asked, [0, own, 0]);
}

#[test]
fn an_answer_tells_what_was_charged_since_the_one_before() {
    let mut harness = Harness::new(COUNTED, DISK, DEPTH, &[]);
    for cookie in 1..=4 {
        let read = request(command::READ, cookie, 0, 512);
        harness.send(&counted(read, Report::default()));
    }
    let charge = |ios, phase| Charge { cost: Cost::from_ios(ios), phase };
    for (charge, outcome) in [
        (charge(2, Phase::Reservation), Outcome::Served),
        (charge(3, Phase::Weight), Outcome::Served),
        (charge(1, Phase::Reservation), Outcome::Failed(IoError::NoSpace)),
        // It was not let through.
        (Charge::NONE, Outcome::Failed(IoError::Cancelled)),
    ] {
        harness.shard.charge = charge;
        harness.complete(0, outcome);
    }
    harness.settle();
    let io = 1_000_000;
    let told = [(1, 0, 2 * io, 2 * io), (2, 0, 3 * io, 0), (3, 28, io, io), (4, 5, 0, 0)];
    assert_eq!(replies(&harness.output, |_| 512), told);
}

/// Where the disk's storage has a window, each answer says what it is by then.
#[test]
fn an_answer_tells_the_window_of_now_where_the_client_knows_of_it() {
    let mut harness = Harness::new(counted_by(Version::Three), DISK, DEPTH, &[]);
    let windows = [Some(Slots::whole(12)), None, Some(Slots::from_millionths(2_500_000))];
    for (cookie, window) in (1..).zip(windows) {
        let flush = request(command::FLUSH, cookie, 0, 0);
        harness.send(&counted(flush, Report::default()));
        harness.shard.window = window;
        harness.complete(0, Outcome::Served);
        harness.settle();
    }
    let answers: Vec<&[u8]> = harness.output.chunks(16 + REPLY_LEN + WINDOW_LEN).collect();
    let said: Vec<u64> = answers
        .iter()
        .map(|answer| u64::from_be_bytes(answer[16 + REPLY_LEN..].try_into().unwrap()))
        .collect();
    assert_eq!(said, [12_000_000, 0, 2_500_000]);
}

/// What a range holds is told by a chunk for each context: counters and window are behind the last.
#[test]
fn an_answer_in_chunks_has_its_counters_and_the_window_behind_the_last() {
    let contexts = Contexts::BASE_ALLOCATION.with(ContextId::of_bitmap(0).unwrap());
    for (version, window) in [(Version::Two, None), (Version::Three, Some(Window(12_000_000)))] {
        let session = Session { contexts, ..counted_by(version) };
        let mut harness = Harness::new(session, DISK, DEPTH, &[]);
        harness.shard.window = Some(Slots::whole(12));
        harness.shard.charge = Charge { cost: Cost::from_ios(2), phase: Phase::Reservation };
        for cookie in 1..=3 {
            let question = request(command::BLOCK_STATUS, cookie, 0, 4096);
            harness.send(&counted(question, Report::default()));
        }
        harness.complete(0, Outcome::Served);
        harness.complete(0, Outcome::Failed(IoError::NoSpace));
        harness.complete(0, Outcome::Served);
        harness.settle();
        let mut reader = Reader::new(harness.output.len());
        reader.clear(Form::Counted { version, allocation: Some(BASE_ALLOCATION_ID) });
        reader.spare(usize::MAX).copy_from_slice(&harness.output);
        reader.received(harness.output.len());
        let told = Received { all: 2_000_000, by_reservation: 2_000_000 };
        for (asked, number, len) in [(1, 0, 4096), (2, 28, 0), (3, 0, 4096)] {
            let event = reader.next(|_| Some(Brings::Status { len: 4096 })).unwrap();
            let Some(Came::End { cookie, error, received, extents }) = event else {
                panic!("{event:?}");
            };
            assert_eq!((cookie, error, received), (asked, number, told));
            assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), len);
            assert_eq!(reader.window(), window);
        }
        assert_eq!(reader.next(|_| None), Ok(None));
    }
}

/// A read or write, of whole blocks or not, or something without data.
fn any_request() -> impl Strategy<Value = (u16, u64, u32)> {
    let kind = prop_oneof![
        Just(command::READ),
        Just(command::WRITE),
        Just(command::FLUSH),
        Just(command::TRIM),
        Just(command::WRITE_ZEROES)
    ];
    let len = prop_oneof![Just(512u32), Just(64 << 10), Just(200 << 10), 1..9000u32];
    (kind, 0..(DISK as u64 - (200 << 10)), len)
}

proptest! {
    /// However requests are served, in one piece or in several, all that was charged is told by the
    /// next reply, and nothing twice.
    #[test]
    fn all_that_was_charged_is_told_once(
        requests in prop::collection::vec(any_request(), 1..24),
        charges in prop::collection::vec((0..5_000_000u64, any::<bool>()), 1..40),
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
    ) {
        let mut harness = Harness::splicing(COUNTED, DISK, DEPTH);
        let (mut all, mut by_reservation) = (0, 0);
        let (mut charges, mut order) = (charges.iter().cycle(), order.iter().cycle());
        let mut stream = Vec::new();
        for (cookie, (kind, offset, len)) in (0..).zip(requests.iter().copied()) {
            let bytes = match kind {
                command::WRITE => write(cookie, offset, &vec![1; len as usize]),
                command::FLUSH => request(kind, cookie, 0, 0),
                _ => request(kind, cookie, offset, len),
            };
            stream.extend(counted(bytes, Report::default()));
        }
        // A read's head goes out before its last piece is served.
        let last = requests.len() as u64;
        stream.extend(counted(request(command::FLUSH, last, 0, 0), Report::default()));
        let mut sent = 0;
        loop {
            sent += harness.send(&stream[sent..]);
            if !harness.shard.queue.is_empty() {
                let at = order.next().unwrap().index(harness.shard.queue.len());
                let (cost, reserved) = *charges.next().unwrap();
                let phase = if reserved { Phase::Reservation } else { Phase::Weight };
                harness.shard.charge = Charge { cost: Cost::from_millionths(cost), phase };
                all += cost;
                by_reservation += if reserved { cost } else { 0 };
                harness.complete(at, Outcome::Served);
            } else if !harness.grant_block() && !harness.read() {
                break;
            }
        }
        prop_assert_eq!(sent, stream.len());
        let lengths: Vec<usize> = requests
            .iter()
            .map(|(kind, _, len)| if *kind == command::READ { *len as usize } else { 0 })
            .collect();
        let len = |cookie| lengths.get(cookie as usize).copied().unwrap_or(0);
        let told = replies(&harness.output, len);
        prop_assert_eq!(told.len(), requests.len() + 1);
        prop_assert_eq!(told.iter().map(|reply| reply.2).sum::<u64>(), all);
        prop_assert_eq!(told.iter().map(|reply| reply.3).sum::<u64>(), by_reservation);
    }
}
