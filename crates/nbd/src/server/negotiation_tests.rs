use super::*;
use crate::wire::OPTION_REPLY_MAGIC;
use proptest::prelude::*;

struct Disks;

impl Catalog for Disks {
    type Handle = ();

    fn list(&self) -> Vec<ExportName> {
        vec![
            ExportName { name: "web".into(), description: "the web server".into() },
            ExportName { name: "db".into(), description: String::new() },
        ]
    }

    fn open(&self, name: &str) -> Result<Opened<()>, OpenError> {
        match name {
            "web" | "db" => Ok(Opened {
                name: name.into(),
                export: Export {
                    size: 10 << 20,
                    block_size: 512,
                    preferred: 4096,
                    writes: Writes::Allowed,
                },
                description: "a disk".into(),
                handle: (),
            }),
            "look" => Ok(Opened {
                name: name.into(),
                export: Export {
                    size: 10 << 20,
                    block_size: 512,
                    preferred: 4096,
                    writes: Writes::Refused,
                },
                description: "a disk".into(),
                handle: (),
            }),
            "locked" => Err(OpenError::Refused("the disk is moving".into())),
            _ => Err(OpenError::Unknown),
        }
    }
}

/// Disks that are all held by host 7.
struct HeldBySeven;

impl Catalog for HeldBySeven {
    type Handle = ();

    fn list(&self) -> Vec<ExportName> {
        Disks.list()
    }

    fn open(&self, name: &str) -> Result<Opened<()>, OpenError> {
        Disks.open(name)
    }

    fn open_by(&self, name: &str, lease: Lease) -> Result<Opened<()>, OpenError> {
        match lease.host {
            [7, ..] => self.open(name),
            _ => Err(OpenError::Held("host 7 has it".into())),
        }
    }
}

#[test]
fn an_export_is_opened_by_the_lease_that_was_shown_last_and_inside_of_tls() {
    let lease = |host: u8| Some(Lease { disk: [1; 16], number: 3, host: [host; 16] });
    // What is shown, whether TLS begins after it, and how opening ends.
    for (shown, then_tls, opens) in [
        (&[][..], false, true),
        (&[None], false, true),
        (&[lease(7)], false, true),
        (&[lease(8)], false, false),
        (&[lease(7), lease(8)], false, false),
        (&[lease(8), lease(7)], false, true),
        (&[lease(8), None], false, true),
        (&[lease(8)], true, true),
    ] {
        let mut negotiation = Negotiation::default();
        let mut out = Vec::new();
        let mut tell = |negotiation: &mut Negotiation, bytes: &[u8]| {
            negotiation.poll(bytes, &HeldBySeven, &mut out).unwrap().1
        };
        tell(&mut negotiation, &[0, 0, 0, 3]);
        for lease in shown {
            let mut option = Vec::new();
            put(
                &mut option,
                counters::OPTION,
                &counters::option_data(counters::Version::Two, *lease),
            );
            tell(&mut negotiation, &option);
        }
        if then_tls {
            negotiation.secure();
        }
        let mut option = Vec::new();
        put(&mut option, option::GO, &go("db"));
        let step = tell(&mut negotiation, &option);
        assert_eq!(matches!(step, Step::Transmission(..)), opens, "{shown:?}");
        if !opens {
            let (_, kind, text) = replies(&out[..]).pop().unwrap();
            assert_eq!((kind, &text[..]), (counters::ERR_HELD, &b"host 7 has it"[..]));
            let mut option = Vec::new();
            put(&mut option, option::EXPORT_NAME, b"db");
            let end = negotiation.poll(&option, &HeldBySeven, &mut out).unwrap_err();
            assert_eq!(end, NegotiationError::NoExport(OpenError::Held("host 7 has it".into())));
        }
    }
}

/// What a handshake came to.
#[derive(Clone, Debug, PartialEq)]
enum End {
    Waiting,
    Transmission { disk: String, session: Session, early: usize },
    Aborted,
    Dropped(NegotiationError),
}

fn negotiate(stream: &[u8], pieces: &[usize]) -> (Vec<u8>, End) {
    negotiate_on(Security::Plain, stream, pieces)
}

fn negotiate_on(security: Security, stream: &[u8], pieces: &[usize]) -> (Vec<u8>, End) {
    let mut negotiation = Negotiation::new(security);
    let mut out = Vec::new();
    let (mut start, mut end) = (0, 0);
    let mut lengths = pieces.iter().cycle();
    while end < stream.len() {
        end = (end + lengths.next().copied().unwrap_or(stream.len())).min(stream.len());
        loop {
            match negotiation.poll(&stream[start..end], &Disks, &mut out) {
                Ok((used, step)) => {
                    start += used;
                    match step {
                        Step::NeedBytes => break,
                        Step::Answered => {}
                        Step::StartTls => {
                            out.extend(b"TLS");
                            negotiation.secure();
                        }
                        Step::Transmission(opened, session) => {
                            let early = stream.len() - start;
                            return (out, End::Transmission { disk: opened.name, session, early });
                        }
                        Step::Aborted => return (out, End::Aborted),
                    }
                }
                Err(error) => return (out, End::Dropped(error)),
            }
        }
    }
    (out, End::Waiting)
}

fn put(stream: &mut Vec<u8>, option: u32, data: &[u8]) {
    stream.extend(OPTION_MAGIC.to_be_bytes());
    stream.extend(option.to_be_bytes());
    stream.extend((data.len() as u32).to_be_bytes());
    stream.extend(data);
}

fn client(flags: u32, options: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut stream = flags.to_be_bytes().to_vec();
    options.iter().for_each(|(option, data)| put(&mut stream, *option, data));
    stream
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

fn go(name: &str) -> Vec<u8> {
    [string(name), vec![0, 1, 0, 3]].concat()
}

fn meta(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend(string(query)));
    data
}

/// The replies to options in `out`: option, type, payload.
fn replies(mut out: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut all = Vec::new();
    while !out.is_empty() {
        let word = |at: usize| u32::from_be_bytes(out[at..at + 4].try_into().unwrap());
        assert_eq!(out[..8], OPTION_REPLY_MAGIC.to_be_bytes());
        let len = word(16) as usize;
        all.push((word(8), word(12), out[20..20 + len].to_vec()));
        out = &out[20 + len..];
    }
    all
}

fn kinds(out: &[u8]) -> Vec<u32> {
    replies(out).into_iter().map(|(_, kind, _)| kind).collect()
}

#[test]
fn go_describes_the_disk_and_enters_transmission() {
    let options = [
        (option::STRUCTURED_REPLY, vec![]),
        (option::SET_META_CONTEXT, meta("web", &["qemu:dirty-bitmap:x", "base:allocation"])),
        (option::GO, go("web")),
    ];
    let (out, end) = negotiate(&client(3, &options), &[]);
    let session = Session { replies: Replies::Structured, contexts: Contexts::BASE_ALLOCATION };
    assert_eq!(end, End::Transmission { disk: "web".into(), session, early: 0 });
    let replies = replies(&out);
    assert_eq!(replies[1].2, [&[0, 0, 0, 1][..], b"base:allocation"].concat());
    let info = |kind: u16| {
        let found =
            replies.iter().find(|r| r.1 == option_reply::INFO && r.2[..2] == kind.to_be_bytes());
        found.unwrap().2[2..].to_vec()
    };
    assert_eq!(info(info::EXPORT)[..8], (10u64 << 20).to_be_bytes());
    let flags = u16::from_be_bytes(info(info::EXPORT)[8..].try_into().unwrap());
    assert_eq!(flags, 0b1101_1110_1101, "flags {flags:#b}");
    assert_eq!(info(info::NAME), b"web");
    assert_eq!(info(info::BLOCK_SIZE), [0, 0, 2, 0, 0, 0, 16, 0, 2, 0, 0, 0]);
    assert_eq!(replies.last().unwrap().1, option_reply::ACK);
}

#[test]
fn without_structured_replies_there_is_no_df_and_no_block_status() {
    let options = [
        (option::SET_META_CONTEXT, meta("web", &["base:allocation"])),
        (option::INFO, go("web")),
        (option::GO, go("web")),
    ];
    let (out, end) = negotiate(&client(1, &options), &[]);
    let session = Session { replies: Replies::Simple, contexts: Contexts::NONE };
    assert_eq!(end, End::Transmission { disk: "web".into(), session, early: 0 });
    assert_eq!(kinds(&out)[0], option_reply::ERR_INVALID);
    let export = &replies(&out)[1].2;
    assert_eq!(u16::from_be_bytes([export[10], export[11]]) & export::SEND_DF, 0);
}

#[test]
fn a_read_only_export_says_so_and_offers_nothing_that_writes() {
    let plain = client(1, &[(option::GO, go("look"))]);
    let (out, _) = negotiate(&plain, &[]);
    let export = &replies(&out)[0].2;
    let flags = u16::from_be_bytes([export[10], export[11]]);
    let offered = export::HAS_FLAGS
        | export::READ_ONLY
        | export::SEND_FLUSH
        | export::CAN_MULTI_CONN
        | export::SEND_CACHE;
    assert_eq!(flags, offered, "flags {flags:#b}");
    // And by the old way.
    let old = client(3, &[(option::EXPORT_NAME, b"look".to_vec())]);
    let (out, _) = negotiate(&old, &[]);
    assert_eq!(out[out.len() - 2..], offered.to_be_bytes());
}

#[test]
fn a_context_selected_for_another_export_does_not_count() {
    let options = [
        (option::STRUCTURED_REPLY, vec![]),
        (option::SET_META_CONTEXT, meta("db", &["base:allocation"])),
        (option::GO, go("web")),
    ];
    let (_, end) = negotiate(&client(3, &options), &[]);
    let session = Session { replies: Replies::Structured, contexts: Contexts::NONE };
    assert_eq!(end, End::Transmission { disk: "web".into(), session, early: 0 });
}

#[test]
fn a_failed_selection_forgets_the_one_before() {
    let options = [
        (option::STRUCTURED_REPLY, vec![]),
        (option::SET_META_CONTEXT, meta("web", &["base:allocation"])),
        (option::SET_META_CONTEXT, meta("nobody", &["base:allocation"])),
        (option::GO, go("web")),
    ];
    let (_, end) = negotiate(&client(3, &options), &[]);
    assert!(matches!(end, End::Transmission { session, .. } if session.contexts == Contexts::NONE));
}

#[test]
fn contexts_are_listed_by_wildcard_by_name_and_without_a_query() {
    for (queries, listed) in [
        (&[][..], 1),
        (&["base:"], 1),
        (&["base:allocation"], 1),
        (&["base:other"], 0),
        (&["x-y:z"], 0),
    ] {
        let options = [(option::LIST_META_CONTEXT, meta("web", queries))];
        let (out, _) = negotiate(&client(3, &options), &[]);
        assert_eq!(kinds(&out).len(), listed + 1, "{queries:?}");
    }
    let wildcard =
        [(option::STRUCTURED_REPLY, vec![]), (option::SET_META_CONTEXT, meta("web", &["base:"]))];
    assert_eq!(
        kinds(&negotiate(&client(3, &wildcard), &[]).0),
        [option_reply::ACK, option_reply::ACK]
    );
}

#[test]
fn export_name_answers_with_and_without_padding() {
    let (out, end) = negotiate(&client(3, &[(option::EXPORT_NAME, b"db".to_vec())]), &[]);
    assert_eq!(out.len(), 10);
    assert!(matches!(end, End::Transmission { .. }));
    let (out, _) = negotiate(&client(1, &[(option::EXPORT_NAME, b"db".to_vec())]), &[]);
    assert_eq!(out.len(), 134);
    let (_, end) = negotiate(&client(3, &[(option::EXPORT_NAME, b"nobody".to_vec())]), &[]);
    assert_eq!(end, End::Dropped(NegotiationError::NoExport(OpenError::Unknown)));
}

#[test]
fn every_refusal_has_its_reason_and_the_negotiation_goes_on() {
    let cases = [
        (option::GO, go("nobody"), option_reply::ERR_UNKNOWN),
        (option::GO, go("locked"), option_reply::ERR_POLICY),
        (option::GO, go(""), option_reply::ERR_UNKNOWN),
        (option::GO, vec![0, 0, 0, 9, b'w'], option_reply::ERR_INVALID),
        (option::GO, string("web"), option_reply::ERR_INVALID),
        (option::GO, [go("web"), vec![0]].concat(), option_reply::ERR_INVALID),
        (option::GO, go("we\0b"), option_reply::ERR_INVALID),
        (option::GO, [&[0, 0, 0, 1, 0xff, 0, 0][..]].concat(), option_reply::ERR_INVALID),
        (option::GO, go(&"x".repeat(5000)), option_reply::ERR_INVALID),
        (option::LIST, vec![1], option_reply::ERR_INVALID),
        (option::STRUCTURED_REPLY, vec![1], option_reply::ERR_INVALID),
        (option::STARTTLS, vec![], option_reply::ERR_POLICY),
        (option::STARTTLS, vec![1], option_reply::ERR_INVALID),
        (option::LIST_META_CONTEXT, meta("web", &["nocolon"]), option_reply::ERR_INVALID),
        (option::LIST_META_CONTEXT, meta("nobody", &[]), option_reply::ERR_UNKNOWN),
        (
            option::LIST_META_CONTEXT,
            [string("web"), vec![255; 4]].concat(),
            option_reply::ERR_INVALID,
        ),
        (11, vec![], option_reply::ERR_UNSUP),
        (4, vec![7; 100], option_reply::ERR_UNSUP),
        (u32::MAX, vec![0; MAX_OPTION as usize + 1], option_reply::ERR_TOO_BIG),
    ];
    for (option, data, expected) in cases {
        let (out, end) =
            negotiate(&client(3, &[(option, data), (option::EXPORT_NAME, b"db".to_vec())]), &[]);
        let refusals = replies(&out[..out.len() - 10]);
        assert_eq!(refusals.len(), 1);
        assert_eq!((refusals[0].0, refusals[0].1), (option, expected), "option {option}");
        assert!(std::str::from_utf8(&refusals[0].2).is_ok_and(|message| !message.is_empty()));
        assert!(matches!(end, End::Transmission { .. }), "{end:?}");
    }
}

#[test]
fn the_list_names_every_export() {
    let (out, _) = negotiate(&client(3, &[(option::LIST, vec![])]), &[]);
    let replies = replies(&out);
    assert_eq!(replies[0].2, [string("web"), b"the web server".to_vec()].concat());
    assert_eq!(replies[1].2, string("db"));
    assert_eq!(replies[2].1, option_reply::ACK);
}

#[test]
fn abort_is_acknowledged() {
    let (out, end) = negotiate(&client(3, &[(option::ABORT, vec![1, 2])]), &[]);
    assert_eq!((kinds(&out), end), (vec![option_reply::ACK], End::Aborted));
}

#[test]
fn a_client_out_of_step_is_dropped() {
    assert_eq!(negotiate(&client(4, &[]), &[]).1, End::Dropped(NegotiationError::ClientFlags(4)));
    let stream = [&3u32.to_be_bytes()[..], &[0; 16]].concat();
    assert_eq!(negotiate(&stream, &[]).1, End::Dropped(NegotiationError::BadMagic(0)));
    let mut stream = client(3, &[(option::LIST, vec![])]);
    stream[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(negotiate(&stream, &[]).1, End::Dropped(NegotiationError::OptionTooLong(u32::MAX)));
}

#[test]
fn bytes_after_the_last_option_are_left_to_the_transmission() {
    let mut stream = client(3, &[(option::GO, go("web"))]);
    stream.extend([9; 28]);
    assert!(matches!(negotiate(&stream, &[]).1, End::Transmission { early: 28, .. }));
}

fn any_option() -> impl Strategy<Value = (u32, Vec<u8>)> {
    let data = prop_oneof![
        Just(vec![]),
        Just(go("web")),
        Just(go("nobody")),
        Just(meta("web", &["base:allocation"])),
        Just(b"web".to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    (prop_oneof![0..13u32, any::<u32>()], data)
}

proptest! {
    #[test]
    fn the_cuts_in_the_stream_change_nothing(
        flags in prop_oneof![Just(3u32), Just(1), any::<u32>()],
        options in prop::collection::vec(any_option(), 0..8),
        pieces in prop::collection::vec(1..40usize, 1..6),
    ) {
        let stream = client(flags, &options);
        let whole = negotiate(&stream, &[]);
        prop_assert_eq!(negotiate(&stream, &[1]), whole.clone());
        prop_assert_eq!(negotiate(&stream, &pieces), whole);
    }
}

#[test]
fn without_tls_nothing_is_answered_where_it_is_required() {
    let asked = [
        (option::LIST, vec![]),
        (option::GO, go("db")),
        (option::INFO, go("db")),
        (option::STRUCTURED_REPLY, vec![]),
        (option::LIST_META_CONTEXT, meta("db", &[])),
        (option::SET_META_CONTEXT, meta("db", &["base:allocation"])),
        (77, vec![]),
    ];
    for (option, data) in asked {
        let (out, end) = negotiate_on(Security::TlsRequired, &client(3, &[(option, data)]), &[]);
        let told: Vec<_> = replies(&out).into_iter().map(|(_, kind, _)| kind).collect();
        assert_eq!((told, end), (vec![option_reply::ERR_TLS_REQD], End::Waiting), "{option}");
    }
    let name = client(3, &[(option::EXPORT_NAME, b"db".to_vec())]);
    let dropped = End::Dropped(NegotiationError::TlsRequired);
    assert_eq!(negotiate_on(Security::TlsRequired, &name, &[]).1, dropped);
    let gives_up = client(3, &[(option::ABORT, vec![])]);
    assert_eq!(negotiate_on(Security::TlsRequired, &gives_up, &[]).1, End::Aborted);
    let with_data = client(3, &[(option::STARTTLS, vec![0])]);
    let (out, end) = negotiate_on(Security::TlsRequired, &with_data, &[]);
    assert_eq!((replies(&out)[0].1, end), (option_reply::ERR_INVALID, End::Waiting));
}

/// The handshake itself is not in the stream here.
#[test]
fn inside_tls_everything_is_as_it_is_outside_and_what_was_agreed_outside_is_forgotten() {
    let options = [
        (option::STARTTLS, vec![]),
        (option::STARTTLS, vec![]),
        (option::SET_META_CONTEXT, meta("db", &["base:allocation"])),
        (option::LIST, vec![]),
        (option::GO, go("db")),
    ];
    for pieces in [&[][..], &[1], &[7, 30]] {
        let (out, end) = negotiate_on(Security::TlsRequired, &client(3, &options), pieces);
        let at = out.windows(3).position(|bytes| bytes == b"TLS").expect("it starts");
        assert_eq!(replies(&out[..at])[0].1, option_reply::ACK);
        let told: Vec<u32> = replies(&out[at + 3..]).iter().map(|(_, kind, _)| *kind).collect();
        let invalid = option_reply::ERR_INVALID;
        assert_eq!(told[..4], [invalid, invalid, option_reply::SERVER, option_reply::SERVER]);
        let End::Transmission { disk, session, early } = end else { panic!("{end:?}") };
        let plain = Session { replies: Replies::Simple, contexts: Contexts::NONE };
        assert_eq!((disk.as_str(), session, early), ("db", plain, 0));
    }
    // Whoever selects a context outside, where that is possible, has none inside.
    let mut negotiation = Negotiation::default();
    let before = [
        (option::STRUCTURED_REPLY, vec![]),
        (option::SET_META_CONTEXT, meta("db", &["base:allocation"])),
    ];
    let (stream, mut out, mut used) = (client(3, &before), Vec::new(), 0);
    while used < stream.len() {
        used += negotiation.poll(&stream[used..], &Disks, &mut out).unwrap().0;
    }
    negotiation.secure();
    let mut chosen = Vec::new();
    put(&mut chosen, option::GO, &go("db"));
    let (_, step) = negotiation.poll(&chosen, &Disks, &mut out).unwrap();
    let Step::Transmission(_, session) = step else { panic!("{step:?}") };
    assert_eq!((session.replies, session.contexts), (Replies::Simple, Contexts::NONE));
}

#[test]
fn counters_are_for_who_asks_for_their_version_and_have_contexts_without_structured_replies() {
    let raw = |data: &[u8]| (counters::OPTION, data.to_vec());
    use crate::counters::Version;
    let ask_for = |version| raw(&counters::option_data(version, None));
    let ask = || ask_for(Version::Two);
    let told = |options: &[(u32, Vec<u8>)]| {
        let (out, end) = negotiate(&client(3, options), &[]);
        let kinds: Vec<u32> = replies(&out[..]).into_iter().map(|(_, kind, _)| kind).collect();
        let form = match end {
            End::Transmission { session, .. } => Some(session.replies),
            _ => None,
        };
        (kinds, form)
    };
    let (ack, unsup, invalid) =
        (option_reply::ACK, option_reply::ERR_UNSUP, option_reply::ERR_INVALID);
    let (kinds, form) = told(&[ask(), ask(), (option::GO, go("db"))]);
    assert_eq!((&kinds[..2], form), (&[ack, ack][..], Some(Replies::Counted(Version::Two))));
    // The last one holds.
    let three = ask_for(Version::Three);
    let (kinds, form) = told(&[ask(), three.clone(), (option::GO, go("db"))]);
    assert_eq!((&kinds[..2], form), (&[ack, ack][..], Some(Replies::Counted(Version::Three))));
    let (kinds, form) = told(&[three, ask(), (option::GO, go("db"))]);
    assert_eq!((&kinds[..2], form), (&[ack, ack][..], Some(Replies::Counted(Version::Two))));
    for (version, answer) in [
        (&[0, 1][..], unsup),
        (&[0, 4], unsup),
        (&[0, 3], invalid),
        (&[1, 2], unsup),
        (&[], unsup),
        (&[0, 2], invalid),
        (&[&[0, 2][..], &[0; 41]].concat(), invalid),
    ] {
        let (kinds, form) = told(&[raw(version), (option::GO, go("db"))]);
        assert_eq!((kinds[0], form), (answer, Some(Replies::Simple)), "{version:?}");
    }
    let structured = (option::STRUCTURED_REPLY, vec![]);
    let (kinds, form) = told(&[structured.clone(), ask(), (option::GO, go("db"))]);
    assert_eq!((&kinds[..2], form), (&[ack, invalid][..], Some(Replies::Structured)));
    let context = (option::SET_META_CONTEXT, meta("db", &["base:allocation"]));
    let (kinds, form) = told(&[ask(), structured, context, (option::GO, go("db"))]);
    let named = option_reply::META_CONTEXT;
    assert_eq!(
        (&kinds[..4], form),
        (&[ack, invalid, named, ack][..], Some(Replies::Counted(Version::Two)))
    );
}
