use super::*;
use crate::counters::Counting;
use proptest::prelude::*;

const SIZE: u64 = 1 << 30;

fn greeting() -> Vec<u8> {
    let mut bytes = GREETING_MAGIC.to_be_bytes().to_vec();
    bytes.extend(OPTION_MAGIC.to_be_bytes());
    bytes.extend(3u16.to_be_bytes());
    bytes
}

fn reply(to: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    [to, kind, data.len() as u32].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
    bytes.extend(data);
    bytes
}

fn export_info(flags: u16) -> Vec<u8> {
    let data = [&info::EXPORT.to_be_bytes()[..], &SIZE.to_be_bytes(), &flags.to_be_bytes()];
    reply(option::GO, option_reply::INFO, &data.concat())
}

fn block_sizes() -> Vec<u8> {
    let data = [&info::BLOCK_SIZE.to_be_bytes()[..], &[0, 0, 2, 0, 0, 0, 16, 0, 2, 0, 0, 0]];
    reply(option::GO, option_reply::INFO, &data.concat())
}

type End = Result<Option<ExportInfo>, HandshakeError>;

/// Feeds `stream` in pieces; returns what the client sent, what came of it, and the bytes used.
fn run(style: ReplyStyle, stream: &[u8], pieces: &[usize]) -> (Vec<u8>, End, usize) {
    run_with(&mut Handshake::new("x", style), stream, pieces)
}

fn run_with(handshake: &mut Handshake, stream: &[u8], pieces: &[usize]) -> (Vec<u8>, End, usize) {
    let (mut out, mut start, mut end) = (Vec::new(), 0, 0);
    let mut lengths = pieces.iter().cycle();
    while end < stream.len() {
        end = (end + lengths.next().copied().unwrap_or(stream.len())).min(stream.len());
        loop {
            match handshake.poll(&stream[start..end], &mut out) {
                Err(error) => return (out, Err(error), start),
                Ok((used, step)) => {
                    start += used;
                    match step {
                        Step::NeedBytes(least) => {
                            assert!(least > end - start);
                            break;
                        }
                        Step::Answered => assert!(used > 0),
                        Step::StartTls => panic!("nobody wants TLS"),
                        Step::Transmission(info) => return (out, Ok(Some(info)), start),
                    }
                }
            }
        }
    }
    (out, Ok(None), start)
}

#[test]
fn an_export_is_opened_with_what_the_server_says_of_it() {
    let ack = reply(option::GO, option_reply::ACK, &[]);
    let stream = [greeting(), export_info(5), block_sizes(), ack].concat();
    let (out, end, used) = run(ReplyStyle::Simple, &[&stream[..], b"more"].concat(), &[]);
    let info = ExportInfo {
        size: SIZE,
        flags: 5,
        min_block: Some(512),
        preferred_block: Some(4096),
        max_block: Some(32 << 20),
    };
    assert_eq!((end, used), (Ok(Some(info)), stream.len()));
    let mut expected = vec![0, 0, 0, 3];
    put_option(&mut expected, option::GO, b"\0\0\0\x01x\0\x01\0\x03");
    assert_eq!(out, expected);
}

#[test]
fn nothing_but_the_start_is_said_outside_of_tls() {
    let starts = [greeting(), reply(option::STARTTLS, option_reply::ACK, &[])].concat();
    let mut handshake = Handshake::new("x", ReplyStyle::Structured).over_tls();
    let mut out = Vec::new();
    let (greeted, step) = handshake.poll(&starts, &mut out).unwrap();
    assert_eq!((greeted, step), (GREETING_LEN, Step::Answered));
    let mut expected = vec![0, 0, 0, 3];
    put_option(&mut expected, option::STARTTLS, &[]);
    assert_eq!(out, expected);
    let (used, step) = handshake.poll(&starts[greeted..], &mut out).unwrap();
    assert_eq!((greeted + used, step), (starts.len(), Step::StartTls));
    assert_eq!(out, expected, "what follows is said inside");
    assert_eq!(handshake.poll(&[], &mut out), Ok((0, Step::Answered)));
    put_option(&mut expected, option::STRUCTURED_REPLY, &[]);
    assert_eq!(out, expected);
    assert_eq!(handshake.poll(&[], &mut out), Ok((0, Step::NeedBytes(OPTION_REPLY_LEN))));
}

#[test]
fn a_server_without_tls_gets_no_name_of_an_export() {
    let end_of = |kind, behind: &[u8]| {
        let answer = reply(option::STARTTLS, kind, b"not here");
        let stream = [&greeting()[..], &answer, behind].concat();
        let mut handshake = Handshake::new("secret", ReplyStyle::Simple).over_tls();
        let mut out = Vec::new();
        handshake.poll(&stream, &mut out).unwrap();
        let end = handshake.poll(&stream[GREETING_LEN..], &mut out).unwrap_err();
        assert!(!out.windows(6).any(|bytes| bytes == b"secret"));
        end
    };
    for code in [option_reply::ERR_UNSUP, option_reply::ERR_POLICY] {
        let text = ": not here".into();
        assert_eq!(end_of(code, &[]), HandshakeError::NoTls { code, text });
    }
    let malformed = HandshakeError::Malformed("there is something before TLS starts");
    assert_eq!(end_of(option_reply::ACK, b"injected"), malformed);
    for (style, asked) in [
        (ReplyStyle::Simple, option::GO),
        (ReplyStyle::Counted(None), counters::OPTION),
        (ReplyStyle::Structured, option::STRUCTURED_REPLY),
        (ReplyStyle::Allocation, option::STRUCTURED_REPLY),
    ] {
        let required = reply(asked, option_reply::ERR_TLS_REQD, b"");
        let (_, end, _) = run(style, &[greeting(), required].concat(), &[]);
        assert_eq!(end, Err(HandshakeError::TlsRequired));
    }
}

#[test]
fn structured_replies_are_asked_for_first() {
    let agreed = reply(option::STRUCTURED_REPLY, option_reply::ACK, &[]);
    let (out, end, _) = run(ReplyStyle::Structured, &[greeting(), agreed].concat(), &[]);
    let options: Vec<_> = [option::STRUCTURED_REPLY, option::GO].map(u32::to_be_bytes).concat();
    assert_eq!([&out[12..16], &out[28..32]].concat(), options);
    assert_eq!(end, Ok(None));
    let refused = reply(option::STRUCTURED_REPLY, option_reply::ERR_UNSUP, b"no");
    let (_, end, _) = run(ReplyStyle::Structured, &[greeting(), refused].concat(), &[]);
    assert_eq!(end, Err(HandshakeError::NoStructuredReplies));
}

const LEASE: Lease = Lease { disk: [3; 16], number: 4, host: [5; 16] };

#[test]
fn counters_are_asked_for_first_and_a_server_may_refuse_them() {
    let asked = |kind, text: &[u8]| {
        let answer = reply(counters::OPTION, kind, text);
        let go = [export_info(5), block_sizes(), reply(option::GO, option_reply::ACK, &[])];
        let stream = [greeting(), answer, go.concat()].concat();
        let mut handshake = Handshake::new("x", ReplyStyle::Counted(Some(LEASE)));
        let (out, end, _) = run_with(&mut handshake, &stream, &[]);
        (handshake.form().counting(), out, end)
    };
    let newest = Version::NEWEST;
    let mut sent = vec![0, 0, 0, 3];
    put_option(&mut sent, counters::OPTION, &counters::option_data(newest, Some(LEASE)));
    put_option(&mut sent, option::GO, &go_data(b"x"));
    let info = ExportInfo {
        size: SIZE,
        flags: 5,
        min_block: Some(512),
        preferred_block: Some(4096),
        max_block: Some(32 << 20),
    };
    for (kind, counting) in [
        (option_reply::ACK, Counting::Agreed(newest)),
        (option_reply::ERR_POLICY, Counting::None),
        (option_reply::ERR_INVALID, Counting::None),
        (option_reply::ERR_TOO_BIG, Counting::None),
        (option_reply::ERROR | 0x4847, Counting::None),
    ] {
        assert_eq!(asked(kind, b"text"), (counting, sent.clone(), Ok(Some(info))), "{kind:#x}");
    }
    for kind in [option_reply::INFO, option_reply::SERVER, 77] {
        let (counting, _, end) = asked(kind, b"");
        let malformed = HandshakeError::Malformed("unknown type of answer");
        assert_eq!((counting, end), (Counting::None, Err(malformed)), "{kind:#x}");
    }
    // The version before is asked for, and then nothing more.
    let mut sent = vec![0, 0, 0, 3];
    for version in [newest, Version::Two] {
        put_option(&mut sent, counters::OPTION, &counters::option_data(version, Some(LEASE)));
    }
    put_option(&mut sent, option::GO, &go_data(b"x"));
    for (kind, counting) in [
        (option_reply::ACK, Counting::Agreed(Version::Two)),
        (option_reply::ERR_UNSUP, Counting::None),
        (option_reply::ERR_INVALID, Counting::None),
    ] {
        let answers = [
            greeting(),
            reply(counters::OPTION, option_reply::ERR_UNSUP, b"what?"),
            reply(counters::OPTION, kind, b""),
            export_info(5),
            block_sizes(),
            reply(option::GO, option_reply::ACK, &[]),
        ];
        let mut handshake = Handshake::new("x", ReplyStyle::Counted(Some(LEASE)));
        let (out, end, _) = run_with(&mut handshake, &answers.concat(), &[]);
        assert_eq!(
            (handshake.form().counting(), out, end),
            (counting, sent.clone(), Ok(Some(info)))
        );
    }
    // Of an answer to something else nothing follows.
    let other = [greeting(), reply(option::STRUCTURED_REPLY, option_reply::ACK, &[])].concat();
    let (_, end, _) = run(ReplyStyle::Counted(None), &other, &[]);
    assert_eq!(end, Err(HandshakeError::Malformed("it answers another option")));
}

#[test]
fn the_context_of_allocation_is_asked_for_where_the_server_has_it() {
    let structured = |kind| reply(option::STRUCTURED_REPLY, kind, &[]);
    let context = |kind, data: &[u8]| reply(option::SET_META_CONTEXT, kind, data);
    let named = [&7u32.to_be_bytes()[..], BASE_ALLOCATION.as_bytes()].concat();
    let other = [&9u32.to_be_bytes()[..], b"x:y"].concat();
    let names = |data: &[u8]| context(option_reply::META_CONTEXT, data);
    let (ack, error) = (option_reply::ACK, option_reply::ERR_UNSUP);
    let cases = [
        (vec![structured(ack), names(&other), names(&named), context(ack, &[])], Some(7)),
        (vec![structured(ack), names(&other), context(ack, &[])], None),
        (vec![structured(ack), names(&named), context(error, b"no")], None),
        (vec![structured(ack), context(error, b"no")], None),
        (vec![structured(error)], None),
    ];
    for (answers, number) in cases {
        let go = [export_info(1), reply(option::GO, ack, &[])].concat();
        let stream = [greeting(), answers.concat(), go].concat();
        let mut handshake = Handshake::new("x", ReplyStyle::Allocation);
        let (mut at, mut out) = (0, Vec::new());
        while at < stream.len() {
            let (used, step) = handshake.poll(&stream[at..], &mut out).unwrap();
            assert!(used > 0, "{step:?}");
            at += used;
        }
        assert_eq!(handshake.form().allocation(), number);
        assert!(matches!(handshake.poll(&[], &mut out), Ok((0, Step::Transmission(_)))));
    }
    let short = [greeting(), structured(ack), names(&[0; 3])].concat();
    let (_, end, _) = run(ReplyStyle::Allocation, &short, &[]);
    let why = "NBD_REP_META_CONTEXT is too short";
    assert_eq!(end, Err(HandshakeError::Malformed(why)));
}

/// What follows the answer to the counters depends on it: the context, or structured replies first.
#[test]
fn block_status_is_asked_for_beside_counters_and_without_them() {
    let (ack, error) = (option_reply::ACK, option_reply::ERR_UNSUP);
    let counted = |kind| reply(counters::OPTION, kind, &[]);
    let structured = |kind| reply(option::STRUCTURED_REPLY, kind, &[]);
    let refused = reply(option::SET_META_CONTEXT, option_reply::ERR_INVALID, b"not here");
    let named = [&7u32.to_be_bytes()[..], BASE_ALLOCATION.as_bytes()].concat();
    let named = [
        reply(option::SET_META_CONTEXT, option_reply::META_CONTEXT, &named),
        reply(option::SET_META_CONTEXT, ack, &[]),
    ]
    .concat();
    let [with, without] = [Some(7), None];
    let context = |out: &mut Vec<u8>| {
        put_option(out, option::SET_META_CONTEXT, &context_data(b"x"));
    };
    let chunks = |out: &mut Vec<u8>| put_option(out, option::STRUCTURED_REPLY, &[]);
    let newest = |allocation| Form::Counted { version: Version::NEWEST, allocation };
    let before = |allocation| Form::Counted { version: Version::Two, allocation };
    let unsup = || counted(option_reply::ERR_UNSUP);
    let both = || [unsup(), unsup()].concat();
    let other = || counted(option_reply::ERR_POLICY);
    // How often counters are asked for, what is answered, and what comes of it.
    for (times, answers, form) in [
        (1, [counted(ack), named.clone()].concat(), newest(with)),
        (1, [counted(ack), refused.clone()].concat(), newest(without)),
        (2, [unsup(), counted(ack), named.clone()].concat(), before(with)),
        (2, [unsup(), counted(ack), refused.clone()].concat(), before(without)),
        (
            2,
            [both(), structured(ack), named.clone()].concat(),
            Form::Structured { allocation: with },
        ),
        (1, [other(), structured(ack), named].concat(), Form::Structured { allocation: with }),
        (2, [both(), structured(ack), refused].concat(), Form::Structured { allocation: without }),
        (2, [both(), structured(error)].concat(), Form::Simple),
    ] {
        let go = [export_info(1), reply(option::GO, ack, &[])].concat();
        let stream = [greeting(), answers, go].concat();
        let mut handshake = Handshake::new("x", ReplyStyle::CountedAllocation(Some(LEASE)));
        let (out, end, _) = run_with(&mut handshake, &stream, &[]);
        assert!(matches!(end, Ok(Some(_))), "{form:?}: {end:?}");
        assert_eq!(handshake.form(), form);
        let mut expected = vec![0, 0, 0, 3];
        for version in [Version::NEWEST, Version::Two].into_iter().take(times) {
            let data = counters::option_data(version, Some(LEASE));
            put_option(&mut expected, counters::OPTION, &data);
        }
        if form.counting() == Counting::None {
            chunks(&mut expected);
        }
        if form != Form::Simple {
            context(&mut expected);
        }
        put_option(&mut expected, option::GO, &go_data(b"x"));
        assert_eq!(out, expected, "{form:?}");
    }
}

#[test]
fn a_refusal_names_the_export_and_the_servers_reason() {
    let unknown = reply(option::GO, option_reply::ERR_UNKNOWN, b"no such disk");
    let (_, end, _) = run(ReplyStyle::Simple, &[greeting(), unknown].concat(), &[]);
    let text = "the server refuses export 'x' (code 0x80000006): no such disk";
    assert_eq!(end.unwrap_err().to_string(), text);
}

#[test]
fn what_breaks_the_protocol_ends_the_handshake() {
    let go = |kind, data: &[u8]| [greeting(), reply(option::GO, kind, data)].concat();
    let mut long = go(option_reply::INFO, &[]);
    let at = long.len() - 4;
    long[at..].copy_from_slice(&(MAX_OPTION_REPLY + 1).to_be_bytes());
    for (stream, why) in [
        (go(option_reply::ACK, &[]), "the size of the export is missing"),
        (go(option_reply::INFO, &[0, 0, 1]), "NBD_INFO_EXPORT is too short"),
        (go(77, &[]), "unknown type of answer"),
        ([greeting(), reply(option::INFO, 1, &[])].concat(), "it answers another option"),
        ([greeting(), vec![0; 20]].concat(), "wrong magic number"),
        (long, "it is longer than 64 KiB"),
    ] {
        let (_, end, _) = run(ReplyStyle::Simple, &stream, &[]);
        assert_eq!(end, Err(HandshakeError::Malformed(why)));
    }
    for (at, byte) in [(0, 0), (8, 0), (17, 2)] {
        let mut bytes = greeting();
        bytes[at] = byte;
        let (_, end, _) = run(ReplyStyle::Simple, &bytes, &[]);
        assert!(matches!(end, Err(HandshakeError::NotNbd(_))), "{end:?}");
    }
}

fn any_reply() -> impl Strategy<Value = Vec<u8>> {
    let data = proptest::collection::vec(any::<u8>(), 0..30);
    let kind = prop_oneof![Just(1u32), Just(3), any::<u32>()];
    let noise = (kind, data).prop_map(|(kind, data)| reply(option::GO, kind, &data));
    prop_oneof![Just(export_info(1)), Just(block_sizes()), noise]
}

proptest! {
    #[test]
    fn cuts_in_the_stream_change_nothing(
        replies in proptest::collection::vec(any_reply(), 0..6),
        pieces in proptest::collection::vec(1..40usize, 1..6),
        counters in prop_oneof![Just(1u32), Just(option_reply::ERR_UNSUP), any::<u32>()],
    ) {
        let of_counters = reply(counters::OPTION, counters, b"said");
        let styles = [
            (ReplyStyle::Simple, vec![]),
            (ReplyStyle::Counted(None), of_counters.clone()),
            (ReplyStyle::CountedAllocation(None), of_counters),
        ];
        for (style, first) in styles {
            let stream = [greeting(), first, replies.concat()].concat();
            let run = |pieces: &[usize]| {
                let mut handshake = Handshake::new("x", style);
                (run_with(&mut handshake, &stream, pieces), handshake.form())
            };
            let whole = run(&[]);
            prop_assert_eq!(run(&[1]), whole.clone());
            prop_assert_eq!(run(&pieces), whole);
        }
    }
}
