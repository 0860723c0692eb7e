//! Client and server of the counters against each other, in memory.

use headgate_nbd::client::extents::Content;
use headgate_nbd::client::form::Form;
use headgate_nbd::client::handshake::{
    ExportInfo, Handshake, PolicyAnswer, ReplyStyle, Step as ClientStep,
};
use headgate_nbd::client::replies::{Brings, Event as Reply, Replies};
use headgate_nbd::counters::{self, Counting, Lease, Received, Report, Version, Window};
use headgate_nbd::policy::{self, Announcement};
use headgate_nbd::server::command::{Command, ExtentCount, Op, Replies as Said, Session};
use headgate_nbd::server::contexts::{ContextId, Contexts};
use headgate_nbd::server::negotiation::{
    Catalog, ExportName, Negotiation, OpenError, Opened, Security, Step, greeting,
};
use headgate_nbd::server::reply::{self, ExtentKind, StatusRequest};
use headgate_nbd::server::stream::{Event, Requests};
use headgate_nbd::server::{Export, Writes};
use headgate_nbd::wire::{BASE_ALLOCATION_ID, NbdError, Request, command, option};
use proptest::prelude::*;

const EXPORT: Export =
    Export { size: 1 << 20, block_size: 512, preferred: 4096, writes: Writes::Allowed };

struct OneDisk;

impl Catalog for OneDisk {
    type Handle = ();

    fn list(&self) -> Vec<ExportName> {
        Vec::new()
    }

    fn open(&self, name: &str) -> Result<Opened<()>, OpenError> {
        let description = String::new();
        Ok(Opened { name: name.into(), export: EXPORT, description, handle: () })
    }
}

/// What a client of one style and a server agree on. Bytes go through `between` on their way to the
/// server.
fn agreed(
    style: ReplyStyle,
    security: Security,
    between: impl Fn(&mut [u8]),
) -> (ExportInfo, Form, Session) {
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    let mut server = Negotiation::new(security);
    let mut client = Handshake::new("db", style);
    if security == Security::TlsRequired {
        client = client.over_tls();
    }
    greeting(&mut to_client);
    let mut session = None;
    loop {
        let before = to_server.len();
        let (used, step) = client.poll(&to_client, &mut to_server).unwrap();
        between(&mut to_server[before..]);
        to_client.drain(..used);
        if let ClientStep::Transmission(info) = step {
            assert_eq!((to_client.len(), to_server.len()), (0, 0));
            return (info, client.form(), session.unwrap());
        }
        let (used, step) = server.poll(&to_server, &OneDisk, &mut to_client).unwrap();
        to_server.drain(..used);
        match step {
            Step::StartTls => server.secure(),
            Step::Transmission(_, agreed) => session = Some(agreed),
            _ => {}
        }
    }
}

const LEASE: Option<Lease> = Some(Lease { disk: [1; 16], number: 2, host: [3; 16] });

/// Makes the version that is asked for another one.
fn other_version(sent: &mut [u8]) {
    let head = counters::OPTION.to_be_bytes();
    if let Some(at) = sent.windows(4).position(|bytes| bytes == head) {
        sent[at + 8] = 0x7f;
    }
}

/// The same of the newest version alone.
fn not_newest(sent: &mut [u8]) {
    let newest = counters::option_data(Version::NEWEST, LEASE);
    if let Some(at) = sent.windows(newest.len()).position(|bytes| bytes == newest) {
        sent[at] = 0x7f;
    }
}

fn counted(version: Version, allocation: Option<u32>) -> Form {
    Form::Counted { version, allocation }
}

#[test]
fn a_client_and_a_server_that_know_the_counters_agree_on_them() {
    for security in [Security::Plain, Security::TlsRequired] {
        let (plain, form, session) = agreed(ReplyStyle::Simple, security, |_| ());
        assert_eq!((form, session.replies), (Form::Simple, Said::Simple));
        let (info, form, session) = agreed(ReplyStyle::Counted(LEASE), security, |_| ());
        let newest = Version::NEWEST;
        assert_eq!((form, session.replies), (counted(newest, None), Said::Counted(newest)));
        assert_eq!((info, session.contexts), (plain, Contexts::NONE));
        // A server that knows the version before has that one.
        let (info, form, session) = agreed(ReplyStyle::Counted(LEASE), security, not_newest);
        let two = Version::Two;
        assert_eq!((form, session.replies), (counted(two, None), Said::Counted(two)));
        assert_eq!((info, session.contexts), (plain, Contexts::NONE));
        // Nobody counts alone.
        let (info, form, session) = agreed(ReplyStyle::Counted(LEASE), security, other_version);
        assert_eq!((form, session.replies), (Form::Simple, Said::Simple));
        assert_eq!((info, session.contexts), (plain, Contexts::NONE));
    }
}

/// Makes the name of the export that contexts are asked of longer than the option.
fn no_contexts(sent: &mut [u8]) {
    let head = [&b"IHAVEOPT"[..], &option::SET_META_CONTEXT.to_be_bytes()].concat();
    if let Some(at) = sent.windows(12).position(|bytes| bytes == head) {
        sent[at + 16] = 0x7f;
    }
}

#[test]
fn what_ranges_hold_is_told_with_counters_and_without_as_far_as_the_server_has_them() {
    let style = ReplyStyle::CountedAllocation(LEASE);
    let [with, without] = [Some(BASE_ALLOCATION_ID), None];
    let neither = |sent: &mut [u8]| {
        other_version(sent);
        no_contexts(sent);
    };
    for security in [Security::Plain, Security::TlsRequired] {
        let of = |between: &dyn Fn(&mut [u8])| {
            let (_, form, session) = agreed(style, security, between);
            let contexts = form.allocation().map_or(Contexts::NONE, |_| Contexts::BASE_ALLOCATION);
            assert_eq!(session.contexts, contexts);
            (form, session.replies)
        };
        for version in [Version::NEWEST, Version::Two] {
            let before = |sent: &mut [u8]| {
                if version != Version::NEWEST {
                    not_newest(sent);
                }
            };
            let said = Said::Counted(version);
            assert_eq!(of(&before), (counted(version, with), said));
            // As a server that knows the counters only answers.
            let no_contexts = |sent: &mut [u8]| {
                before(sent);
                no_contexts(sent);
            };
            assert_eq!(of(&no_contexts), (counted(version, without), said));
        }
        assert_eq!(of(&other_version), (Form::Structured { allocation: with }, Said::Structured));
        assert_eq!(of(&neither), (Form::Structured { allocation: without }, Said::Structured));
    }
}

/// A server's answer to a question is understood by the client, counters and all.
#[test]
fn a_counted_answer_says_what_a_range_holds() {
    let contexts = Contexts::BASE_ALLOCATION;
    let request = StatusRequest { cookie: 3, contexts, len: 8192, extents: ExtentCount::Many };
    let extents = [(4096, ExtentKind::Hole), (4096, ExtentKind::Data)];
    let extents = extents.map(|(len, kind)| reply::Extent { len, kind });
    let told = Received { all: 9, by_reservation: 2 };
    for (version, window) in [(Version::Two, None), (Version::Three, Some(Window(7)))] {
        let mut stream = Vec::new();
        reply::block_status(&mut stream, request, ContextId::BASE_ALLOCATION, extents);
        stream.extend(told.to_bytes());
        stream.extend(window.into_iter().flat_map(Window::to_bytes));
        let mut replies = Replies::new(256);
        replies.clear(counted(version, Some(BASE_ALLOCATION_ID)));
        replies.spare(usize::MAX)[..stream.len()].copy_from_slice(&stream);
        replies.received(stream.len());
        let event = replies.next(|_| Some(Brings::Status { len: 8192 })).unwrap();
        let Some(Reply::End { cookie: 3, error: 0, received, extents }) = event else {
            panic!("{event:?}");
        };
        let held: Vec<_> = extents.iter().map(|extent| (extent.len, extent.content)).collect();
        let expected = [(4096, Content::Zeroes), (4096, Content::Data)];
        assert_eq!((received, &held[..]), (told, &expected[..]));
        assert_eq!(replies.window(), window);
    }
}

/// A server that takes policies of an even epoch.
struct Taking;

impl Catalog for Taking {
    type Handle = ();

    fn list(&self) -> Vec<ExportName> {
        Vec::new()
    }

    fn open(&self, name: &str) -> Result<Opened<()>, OpenError> {
        OneDisk.open(name)
    }

    fn announce(&self, said: &Announcement<'_>) -> Result<(), OpenError> {
        assert_eq!((said.export, said.policy, said.servers), ("db", "{}", 3));
        match said.epoch % 2 {
            0 => Ok(()),
            _ => Err(OpenError::Refused("an odd one".into())),
        }
    }
}

/// What a client hears that announces a policy of this epoch, over a server that takes them or not.
fn announced<C: Catalog<Handle = ()>>(
    catalog: &C,
    epoch: u64,
    between: impl Fn(&mut [u8]),
) -> (Option<PolicyAnswer>, Counting) {
    let lease = LEASE.unwrap();
    let said = Announcement { lease, epoch, servers: 3, export: "db", policy: "{}" };
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    let mut server = Negotiation::default();
    let client = Handshake::new("db", ReplyStyle::Counted(LEASE));
    let mut client = client.announcing(said.to_bytes().unwrap());
    greeting(&mut to_client);
    loop {
        let before = to_server.len();
        let (used, step) = client.poll(&to_client, &mut to_server).unwrap();
        between(&mut to_server[before..]);
        to_client.drain(..used);
        if let ClientStep::Transmission(_) = step {
            return (client.policy().cloned(), client.form().counting());
        }
        let (used, _) = server.poll(&to_server, catalog, &mut to_client).unwrap();
        to_server.drain(..used);
    }
}

#[test]
fn a_policy_is_announced_before_the_export_is_opened_whatever_the_answer() {
    let refused = |why: &str| Some(PolicyAnswer::Refused(why.into()));
    let agreed = Counting::Agreed(Version::NEWEST);
    assert_eq!(announced(&Taking, 2, |_| ()), (Some(PolicyAnswer::Taken), agreed));
    assert_eq!(announced(&Taking, 3, |_| ()), (refused("an odd one"), agreed));
    let (answer, counting) = announced(&OneDisk, 2, |_| ());
    assert!(matches!(answer, Some(PolicyAnswer::Refused(_))) && counting == agreed);
    let other_version = |sent: &mut [u8]| {
        let head = policy::OPTION.to_be_bytes();
        if let Some(at) = sent.windows(4).position(|bytes| bytes == head) {
            sent[at + 8] = 0x7f;
        }
    };
    assert_eq!(announced(&Taking, 2, other_version), (Some(PolicyAnswer::Unknown), agreed));
}

/// A request of the client, and what the server makes of it.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    command: u16,
    len: u32,
    said: Report,
    told: Received,
    window: Window,
    error: Option<NbdError>,
}

fn any_version() -> impl Strategy<Value = Version> {
    prop::sample::select(&[Version::Two, Version::Three])
}

/// What follows the head of an answer.
fn counts(version: Version, exchange: &Exchange) -> Vec<u8> {
    let mut bytes = exchange.told.to_bytes().to_vec();
    if version == Version::Three {
        bytes.extend(exchange.window.to_bytes());
    }
    bytes
}

fn any_exchange() -> impl Strategy<Value = Exchange> {
    let command = prop::sample::select(&[command::READ, command::WRITE, command::FLUSH]);
    // What is not whole blocks is refused.
    let len = prop_oneof![4 => (1..5u32).prop_map(|blocks| blocks * 512), 1 => 1..2048u32];
    let count = || prop_oneof![Just(0), 0..u64::from(u32::MAX)];
    let counts = || (count(), 0..=100u64).prop_map(|(all, part)| (all, all * part / 100));
    let error = prop_oneof![3 => Just(None), 1 => Just(Some(NbdError::Io))];
    let window = prop_oneof![Just(0), any::<u64>()].prop_map(Window);
    (command, len, counts(), counts(), count(), any::<u16>(), window, error).prop_map(
        |(command, len, (delta, rho), (all, by_reservation), bytes, ioprio, window, error)| {
            let said = Report { delta, rho, bytes, ioprio };
            let len = if command == command::FLUSH { 0 } else { len };
            Exchange { command, len, said, told: Received { all, by_reservation }, window, error }
        },
    )
}

fn payload(cookie: u64, len: u32) -> impl Iterator<Item = u8> {
    (0..len).map(move |n| (u64::from(n) ^ (cookie * 7)) as u8)
}

fn requests(script: &[Exchange]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (cookie, exchange) in (0..).zip(script) {
        let Exchange { command, len, said, .. } = *exchange;
        stream.extend(Request { flags: 0, command, cookie, offset: 0, len }.to_bytes());
        stream.extend(said.to_bytes());
        if command == command::WRITE {
            stream.extend(payload(cookie, len));
        }
    }
    stream
}

/// The cuts of a stream: where each piece ends.
fn ends(len: usize, cuts: &[usize]) -> impl Iterator<Item = usize> {
    let mut end = 0;
    cuts.iter().cycle().map_while(move |cut| {
        let more = end < len;
        end = (end + cut).min(len);
        more.then_some(end)
    })
}

/// The server reads its requests in pieces, and answers each: the answers, and what it heard.
fn serve(
    version: Version,
    script: &[Exchange],
    stream: &[u8],
    cuts: &[usize],
) -> (Vec<u8>, Vec<Report>) {
    let session = Session { replies: Said::Counted(version), contexts: Contexts::NONE };
    let mut requests = Requests::new(session);
    let (mut out, mut heard, mut start) = (Vec::new(), Vec::new(), 0);
    for end in ends(stream.len(), cuts) {
        loop {
            let taken = (end - start).min(requests.payload_left() as usize);
            requests.on_payload(taken as u32);
            start += taken;
            let (used, event) = requests.poll(&stream[start..end], EXPORT).unwrap();
            start += used;
            match event {
                Event::NeedBytes => break,
                Event::Disconnect => panic!("nobody said so"),
                Event::Refused { cookie, error } => {
                    reply::error(&mut out, session.replies, cookie, error);
                    out.extend(counts(version, &script[cookie as usize]));
                }
                Event::Command(command) => {
                    answer(version, &mut out, command, &script[heard.len()]);
                }
            }
            heard.push(requests.report());
        }
    }
    (out, heard)
}

fn answer(version: Version, out: &mut Vec<u8>, command: Command, exchange: &Exchange) {
    let replies = Said::Counted(version);
    let Command { cookie, op, offset, len, .. } = command;
    match (exchange.error, op) {
        (Some(error), _) => reply::error(out, replies, cookie, error),
        (None, Op::Read) => reply::data(out, replies, cookie, offset, len),
        (None, _) => reply::done(out, cookie),
    }
    out.extend(counts(version, exchange));
    if exchange.error.is_none() && op == Op::Read {
        out.extend(payload(cookie, len));
    }
}

/// What a client makes of the answers: the error, the counters and the payload of each. The window
/// is that of the last answer.
fn receive(
    version: Version,
    script: &[Exchange],
    stream: &[u8],
    cuts: &[usize],
    size: usize,
) -> Vec<(u64, u32, Received, Vec<u8>)> {
    let mut replies = Replies::new(size);
    replies.clear(counted(version, None));
    let (mut ended, mut data, mut start) = (Vec::new(), Vec::new(), 0);
    let mut windows: Vec<(u64, Window)> = Vec::new();
    for end in ends(stream.len(), cuts) {
        while start < end {
            let left = replies.payload().map_or(0, |payload| payload.left as usize);
            let direct = left.min(end - start);
            data.extend(&stream[start..start + direct]);
            let most = if size.is_multiple_of(2) { replies.head_lacks() } else { usize::MAX };
            let spare = replies.spare(most);
            let behind = &stream[start + direct..end];
            let buffered = behind.len().min(spare.len());
            spare[..buffered].copy_from_slice(&behind[..buffered]);
            replies.received(direct + buffered);
            start += direct + buffered;
            let brings = |cookie| {
                let Exchange { command, len, .. } = script.get(cookie as usize)?;
                let data = Brings::Data { offset: 0, len: *len };
                Some(if *command == command::READ { data } else { Brings::Nothing })
            };
            while let Some(event) = replies.next(brings).unwrap() {
                match event {
                    Reply::Data { at, bytes, .. } => {
                        assert_eq!(at as usize, data.len());
                        data.extend(bytes);
                    }
                    Reply::Zeroes { .. } => panic!("there are no holes in simple replies"),
                    Reply::End { cookie, error, received, .. } => {
                        let window = script[cookie as usize].window;
                        windows.push((cookie, window));
                        ended.push((cookie, error, received, std::mem::take(&mut data)));
                    }
                }
            }
        }
    }
    let last = windows.last().map(|(_, window)| *window);
    let said = last.filter(|window| version == Version::Three && *window != Window::default());
    assert_eq!(replies.window(), said);
    ended
}

proptest! {
    /// Each side hears what the other says, of each request and in all, however both streams are
    /// cut, and whether requests are served, fail or are refused.
    #[test]
    fn what_one_side_counts_the_other_hears(
        version in any_version(),
        script in prop::collection::vec(any_exchange(), 1..20),
        cuts in prop::collection::vec(1usize..700, 1..8),
        back in prop::collection::vec(1usize..700, 1..8),
        size in 0usize..300,
    ) {
        let (answers, heard) = serve(version, &script, &requests(&script), &cuts);
        let said: Vec<Report> = script.iter().map(|exchange| exchange.said).collect();
        prop_assert_eq!(&heard, &said);
        let sum = |reports: &[Report]| {
            reports.iter().fold((0, 0, 0), |(delta, rho, bytes), report| {
                (delta + report.delta, rho + report.rho, bytes + report.bytes)
            })
        };
        prop_assert_eq!(sum(&heard), sum(&said));

        let ended = receive(version, &script, &answers, &back, size);
        prop_assert_eq!(ended.len(), script.len());
        let (mut sent, mut told) = ((0, 0), (0, 0));
        for (cookie, (exchange, end)) in (0..).zip(script.iter().zip(ended)) {
            let Exchange { command, len, error, .. } = *exchange;
            let error = if len.is_multiple_of(512) { error } else { Some(NbdError::Invalid) };
            let read = command == command::READ && error.is_none();
            let bytes = if read { payload(cookie, len).collect() } else { Vec::new() };
            let code = error.map_or(0, NbdError::code);
            sent = (sent.0 + exchange.told.all, sent.1 + exchange.told.by_reservation);
            told = (told.0 + end.2.all, told.1 + end.2.by_reservation);
            prop_assert_eq!(end, (cookie, code, exchange.told, bytes));
        }
        prop_assert_eq!(told, sent);
    }
}
