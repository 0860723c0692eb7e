use super::*;
use proptest::prelude::*;

const ALL: [Counting; 3] =
    [Counting::None, Counting::Agreed(Version::Two), Counting::Agreed(Version::Three)];

/// Simple replies, with counters or without.
fn form(counting: Counting) -> Form {
    match counting {
        Counting::None => Form::Simple,
        Counting::Agreed(version) => Form::Counted { version, allocation: None },
    }
}

fn data(len: u32) -> Brings {
    Brings::Data { offset: 0, len }
}

fn reply(cookie: u64, error: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend(error.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The same with what the disk received, where that is counted.
fn counted(counting: Counting, cookie: u64, error: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = reply(cookie, error, &[]);
    if let Counting::Agreed(version) = counting {
        bytes.extend(received(counting, cookie).to_bytes());
        if version == Version::Three {
            bytes.extend(Window(cookie + 9).to_bytes());
        }
    }
    bytes.extend(payload);
    bytes
}

/// What the reply to a request says: something else of each.
fn received(counting: Counting, cookie: u64) -> Received {
    match counting {
        Counting::None => Received::default(),
        Counting::Agreed(_) => Received { all: cookie * 1_000_003 + 2, by_reservation: cookie },
    }
}

type End = (u64, u32, Received, Vec<u8>);

/// Receives `stream` in pieces of at most `cuts`, straight into payloads where it can; answers
/// every request's end, with its payload.
fn receive(
    counting: Counting,
    stream: &[u8],
    lens: &[u32],
    cuts: &[usize],
    most: usize,
) -> Result<Vec<End>, ReplyError> {
    let mut replies = Replies::new(64);
    replies.clear(form(counting));
    let mut payloads: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0; len as usize]).collect();
    let mut ended = Vec::new();
    let mut rest = stream;
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let cut = (*cuts.next().unwrap()).min(rest.len());
        let (mut piece, behind) = rest.split_at(cut);
        let mut taken = 0;
        if let Some(Payload { cookie, at, left }) = replies.payload() {
            let direct = piece.len().min(left as usize);
            payloads[cookie as usize][at as usize..][..direct].copy_from_slice(&piece[..direct]);
            piece = &piece[direct..];
            taken += direct;
        }
        let spare = replies.spare(most);
        assert!(!spare.is_empty());
        let buffered = piece.len().min(spare.len());
        spare[..buffered].copy_from_slice(&piece[..buffered]);
        taken += buffered;
        replies.received(taken);
        rest = if taken == cut { behind } else { &rest[taken..] };
        while let Some(event) =
            replies.next(|cookie| lens.get(cookie as usize).map(|len| data(*len)))?
        {
            match event {
                Event::Data { cookie, at, bytes } => {
                    payloads[cookie as usize][at as usize..][..bytes.len()].copy_from_slice(bytes)
                }
                Event::Zeroes { .. } => panic!("there are no holes in simple replies"),
                Event::End { cookie, error, received, extents } => {
                    assert_eq!(extents, []);
                    let payload = std::mem::take(&mut payloads[cookie as usize]);
                    ended.push((cookie, error, received, payload));
                }
            }
        }
    }
    assert_eq!(replies.payload(), None);
    Ok(ended)
}

proptest! {
    /// However the stream is cut, every request ends once, with its own bytes and counters.
    #[test]
    fn cuts_in_the_stream_change_nothing(
        counting in prop::sample::select(&ALL),
        lens in proptest::collection::vec(0u32..300, 1..20),
        cuts in proptest::collection::vec(1usize..400, 1..20),
        most in 1usize..100,
    ) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for (cookie, &len) in lens.iter().enumerate() {
            let payload: Vec<u8> = (0..len).map(|n| (n as u8) ^ (cookie as u8)).collect();
            // Every third request fails: no payload then.
            let cookie = cookie as u64;
            let told = received(counting, cookie);
            if cookie % 3 == 2 {
                stream.extend(counted(counting, cookie, 5, &[]));
                expected.push((cookie, 5, told, vec![0; len as usize]));
            } else {
                stream.extend(counted(counting, cookie, 0, &payload));
                expected.push((cookie, 0, told, payload));
            }
        }
        prop_assert_eq!(receive(counting, &stream, &lens, &cuts, most).unwrap(), expected);
    }

    #[test]
    fn noise_is_refused_and_never_panics(
        counting in prop::sample::select(&ALL),
        noise in proptest::collection::vec(any::<u8>(), 4..300),
        good in 0usize..3,
    ) {
        let mut stream = Vec::new();
        for _ in 0..good {
            stream.extend(counted(counting, 0, 0, b"abc"));
        }
        stream.extend(noise);
        let mut replies = Replies::new(1024);
        replies.clear(form(counting));
        replies.spare(usize::MAX)[..stream.len()].copy_from_slice(&stream);
        replies.received(stream.len());
        while let Ok(Some(_)) = replies.next(|_| Some(data(3))) {}
    }
}

#[test]
fn what_was_not_asked_for_is_an_error() {
    for counting in ALL {
        let unasked = counted(counting, 7, 0, &[]);
        let end = receive(counting, &unasked, &[0], &[400], 400);
        assert_eq!(end, Err(ReplyError::Cookie(7)));
        let structured = [0x66, 0x8e, 0x33, 0xef];
        let end = receive(counting, &structured, &[0], &[400], 400);
        assert_eq!(end, Err(ReplyError::Magic(0x668e_33ef)));
    }
}

#[test]
fn counters_that_contradict_each_other_are_an_error_of_any_reply() {
    for error in [0, 5] {
        let counting = Counting::Agreed(Version::Two);
        let mut stream = counted(counting, 0, error, &[]);
        for said in [Received { all: 8, by_reservation: 9 }, Received::default()] {
            stream.extend(reply(1, error, &[]));
            stream.extend(said.to_bytes());
        }
        for cuts in [400, 1] {
            let end = receive(counting, &stream, &[0, 0], &[cuts], 400).unwrap_err();
            assert_eq!(end, ReplyError::Counters { all: 8, by_reservation: 9 });
            assert_eq!(
                end.to_string(),
                "a reply's counters contradict each other: 9 millionths of an IO by \
                 reservation, and 8 in all"
            );
        }
    }
}

#[test]
fn the_window_is_that_of_the_last_answer_of_this_connection() {
    let mut replies = Replies::new(64);
    let said = |replies: &mut Replies, counting: Counting, window: Option<u64>| {
        let mut bytes = reply(0, 0, &[]);
        bytes.extend([0; REPLY_LEN]);
        bytes.extend(window.into_iter().flat_map(|window| Window(window).to_bytes()));
        replies.spare(usize::MAX)[..bytes.len()].copy_from_slice(&bytes);
        replies.received(bytes.len());
        while replies.next(|_| Some(Brings::Nothing)).unwrap().is_some() {}
        assert_eq!(bytes.len(), 16 + counting.reply_len());
        replies.window()
    };
    let [_, two, three] = ALL;
    replies.clear(form(three));
    assert_eq!(replies.window(), None);
    for window in [7, 9, u64::MAX] {
        assert_eq!(said(&mut replies, three, Some(window)), Some(Window(window)));
    }
    assert_eq!(said(&mut replies, three, Some(0)), None, "the server does not know it");
    assert_eq!(said(&mut replies, three, Some(5)), Some(Window(5)));
    replies.clear(form(two));
    assert_eq!(replies.window(), None, "of another connection");
    assert_eq!(said(&mut replies, two, None), None);
}

/// Who receives no more than a head lacks gets it whole by that, and none of what follows.
#[test]
fn a_head_lacks_what_has_not_come_of_it_and_its_counters() {
    for (counting, whole) in ALL.into_iter().zip([16, 32, 40]) {
        for error in [0, 5] {
            let head = counted(counting, 0, error, &[]);
            assert_eq!(head.len(), whole);
            for first in 0..whole {
                let mut replies = Replies::new(0);
                replies.clear(form(counting));
                let (begun, rest) = head.split_at(first);
                for (piece, lacks) in [(begun, whole), (rest, rest.len())] {
                    assert_eq!(replies.next(|_| Some(data(3))), Ok(None));
                    assert_eq!(replies.head_lacks(), lacks);
                    replies.spare(lacks)[..piece.len()].copy_from_slice(piece);
                    replies.received(piece.len());
                }
                let came = replies.next(|_| Some(data(3)));
                let received = received(counting, 0);
                let ended = Event::End { cookie: 0, error, received, extents: &[] };
                assert_eq!(came, Ok((error != 0).then_some(ended)));
                assert_eq!(replies.payload().is_some(), error == 0);
                assert_eq!(replies.head_lacks(), whole);
            }
        }
    }
}

#[test]
fn another_connection_begins_without_what_the_one_before_left() {
    let pairs = ALL.into_iter().flat_map(|before| ALL.map(|after| (before, after)));
    for (before, after) in pairs {
        let mut replies = Replies::new(64);
        replies.clear(form(before));
        let cut = &counted(before, 1, 0, b"abcde")[..];
        for left in [10, cut.len() - 2] {
            replies.spare(usize::MAX)[..left].copy_from_slice(&cut[..left]);
            replies.received(left);
            while replies.next(|_| Some(data(5))).unwrap().is_some() {}
            replies.clear(form(after));
            let stream = counted(after, 2, 5, &[]);
            replies.spare(usize::MAX)[..stream.len()].copy_from_slice(&stream);
            replies.received(stream.len());
            let received = received(after, 2);
            let end = Event::End { cookie: 2, error: 5, received, extents: &[] };
            assert_eq!(replies.next(|_| Some(data(5))), Ok(Some(end)));
            assert_eq!(replies.next(|_| Some(data(5))), Ok(None));
            replies.clear(form(before));
        }
    }
}
