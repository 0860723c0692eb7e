//! Against servers that answer what the test says.

use super::*;
use crate::{Control, NbdSink, NbdSource, Sink, Source, copy};
use headgate_nbd::server::negotiation::{self, Catalog, ExportName, Negotiation};
use headgate_nbd::server::negotiation::{OpenError, Opened, Step};
use headgate_nbd::server::{Export, Writes};
use headgate_nbd::wire::{
    BASE_ALLOCATION_ID, SIMPLE_REPLY_MAGIC, STATE_HOLE, STRUCTURED_REPLY_MAGIC, be16, be32, be64,
    chunk,
};
use std::os::unix::net::{UnixListener, UnixStream};

const SIZE: u64 = 4 << 20;

struct OneDisk;

impl Catalog for OneDisk {
    type Handle = ();

    fn list(&self) -> Vec<ExportName> {
        Vec::new()
    }

    fn open(&self, name: &str) -> Result<Opened<()>, OpenError> {
        let writes = Writes::Allowed;
        let export = Export { size: SIZE, block_size: 512, preferred: 4096, writes };
        let description = String::new();
        match name {
            "db" => Ok(Opened { name: name.into(), export, description, handle: () }),
            _ => Err(OpenError::Unknown),
        }
    }
}

/// Negotiates; `false` where the client has gone.
fn negotiate(stream: &mut UnixStream) -> bool {
    let (mut negotiation, mut input, mut out) = (Negotiation::default(), vec![], vec![]);
    negotiation::greeting(&mut out);
    loop {
        stream.write_all(&out).unwrap();
        out.clear();
        match negotiation.poll(&input, &OneDisk, &mut out).unwrap() {
            (_, Step::Transmission(..)) => {
                stream.write_all(&out).unwrap();
                return true;
            }
            (used, Step::NeedBytes) => {
                input.drain(..used);
                let mut bytes = [0; 64];
                match stream.read(&mut bytes).unwrap() {
                    0 => return false,
                    count => input.extend(&bytes[..count]),
                }
            }
            (used, _) => drop(input.drain(..used)),
        }
    }
}

/// A request as the server sees it.
#[derive(Clone, Copy, Debug)]
struct Asked {
    command: u16,
    cookie: u64,
    offset: u64,
    len: u32,
}

fn next_request(stream: &mut UnixStream) -> Option<Asked> {
    let mut head = [0; REQUEST_LEN];
    stream.read_exact(&mut head).ok()?;
    let asked = Asked {
        command: be16(&head, 6)?,
        cookie: be64(&head, 8)?,
        offset: be64(&head, 16)?,
        len: be32(&head, 24)?,
    };
    if asked.command == command::WRITE {
        stream.read_exact(&mut vec![0; asked.len as usize]).ok()?;
    }
    (asked.command != command::DISC).then_some(asked)
}

/// A connection to a server that answers requests with these bytes, until `None` ends it.
fn linked(
    mut answer: impl FnMut(Asked) -> Option<Vec<u8>> + Send + 'static,
) -> (Link, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nbd.sock");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        if !negotiate(&mut stream) {
            return;
        }
        while let Some(bytes) = next_request(&mut stream).and_then(&mut answer) {
            if stream.write_all(&bytes).is_err() {
                return;
            }
        }
    });
    let uri = format!("nbd+unix:///db?socket={}", path.display()).parse().unwrap();
    (Link::open(&uri, "the server").unwrap(), directory)
}

fn simple(asked: Asked, error: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend(error.to_be_bytes());
    bytes.extend(asked.cookie.to_be_bytes());
    bytes.extend(data);
    bytes
}

fn piece(asked: Asked, kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(asked.cookie.to_be_bytes());
    bytes.extend((body.len() as u32).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn data(asked: Asked, offset: u64, bytes: &[u8], flags: u16) -> Vec<u8> {
    piece(asked, chunk::OFFSET_DATA, flags, &[&offset.to_be_bytes()[..], bytes].concat())
}

fn extents(asked: Asked, context: u32, extents: &[(u32, u32)]) -> Vec<u8> {
    let mut body = context.to_be_bytes().to_vec();
    for (len, state) in extents {
        body.extend(len.to_be_bytes());
        body.extend(state.to_be_bytes());
    }
    piece(asked, chunk::BLOCK_STATUS, chunk::FLAG_DONE, &body)
}

fn pattern(asked: Asked) -> Vec<u8> {
    (0..u64::from(asked.len)).map(|n| ((asked.offset + n) / 512) as u8).collect()
}

#[test]
fn replies_in_any_order_and_form_reach_their_callers() {
    let mut held = Vec::new();
    let (link, _directory) = linked(move |asked| {
        held.push(asked);
        if held.len() < 4 {
            return Some(Vec::new());
        }
        // The last first: whole, in two pieces, with a hole, and as a simple reply.
        let mut bytes = Vec::new();
        for (n, asked) in held.drain(..).rev().enumerate() {
            let (content, half) = (pattern(asked), asked.len as usize / 2);
            let behind = asked.offset + half as u64;
            bytes.extend(match n {
                0 => simple(asked, 0, &content),
                1 => data(asked, asked.offset, &content, chunk::FLAG_DONE),
                _ => [
                    data(asked, behind, &content[half..], 0),
                    data(asked, asked.offset, &content[..half], 0),
                    piece(asked, chunk::NONE, chunk::FLAG_DONE, &[]),
                ]
                .concat(),
            });
        }
        Some(bytes)
    });
    thread::scope(|scope| {
        for n in 0..4 {
            let link = &link;
            scope.spawn(move || {
                let (offset, mut bytes) = (n * 8192, vec![0; 8192]);
                link.read(offset, &mut bytes).unwrap();
                let asked = Asked { command: command::READ, cookie: 0, offset, len: 8192 };
                assert!(bytes == pattern(asked), "at {offset}");
            });
        }
    });
}

/// What a read of 4 KiB from byte 8192 on ends with.
fn outcome(answer: impl Fn(Asked) -> Option<Vec<u8>> + Send + 'static) -> String {
    let (link, _directory) = linked(answer);
    let end = link.read(8192, &mut [0; 4096]);
    end.map_or_else(|e| e.to_string(), |()| "read".into())
}

#[test]
fn a_server_that_lies_is_told_and_not_believed() {
    assert_eq!(outcome(|asked| Some(simple(asked, 0, &[1; 4096]))), "read");
    let far = 1 << 40;
    let cases: [(&str, String); 8] = [
        ("no space left", outcome(|asked| Some(simple(asked, 28, &[])))),
        ("error 77", outcome(|asked| Some(simple(asked, 77, &[])))),
        ("4096 bytes with 512", outcome(|a| Some(data(a, 8192, &[1; 512], chunk::FLAG_DONE)))),
        ("another place", outcome(move |a| Some(data(a, far, &[1; 512], chunk::FLAG_DONE)))),
        ("another place", outcome(|a| Some(data(a, 8192 + 4000, &[1; 512], 0)))),
        ("not outstanding", outcome(|a| Some(simple(Asked { cookie: 99, ..a }, 0, &[])))),
        ("not asked for", outcome(|a| Some(extents(a, 1, &[(4096, 0)])))),
        ("has ended it", outcome(|_| None)),
    ];
    for (expected, said) in cases {
        assert!(said.starts_with("the server: ") && said.contains(expected), "{said}: {expected}");
    }
}

#[test]
fn a_caller_that_waits_is_freed_when_the_line_is_hung_up() {
    let (link, _directory) = linked(|_| Some(Vec::new()));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| link.flush());
        while link.shared.lock().requests.is_empty() {
            thread::yield_now();
        }
        link.hang_up();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, ImageError::Nbd { .. }), "{error}");
    });
    // And nobody waits from then on.
    link.flush().unwrap_err();
}

#[test]
fn a_status_is_that_of_the_context_that_was_asked_for() {
    let zero = STATE_HOLE | STATE_ZERO;
    let (link, _directory) = linked(move |asked| {
        let other = extents(asked, BASE_ALLOCATION_ID + 1, &[(4096, zero)]);
        let said = [(512, 0), (1024, zero), (2048, STATE_HOLE), (u32::MAX, STATE_ZERO)];
        // The first chunk of two.
        Some([&with_flags(other, 0)[..], &extents(asked, BASE_ALLOCATION_ID, &said)].concat())
    });
    let runs = link.status(0, SIZE).unwrap();
    let zeroes: Vec<_> = runs.iter().map(|run| run.content == Content::Zeroes).collect();
    assert_eq!(zeroes, [false, true, false, true]);
    assert_eq!(runs.iter().map(|run| run.len).sum::<u64>(), 3584 + u64::from(u32::MAX));
}

fn with_flags(mut chunk: Vec<u8>, flags: u16) -> Vec<u8> {
    chunk[4..6].copy_from_slice(&flags.to_be_bytes());
    chunk
}

/// A target that held something is zeroed where the source has zeroes; an empty one is let alone.
#[test]
fn zeroes_are_written_only_over_what_was_there() {
    for (before, zeroings) in [(0, 1), (STATE_ZERO, 0)] {
        let count = Arc::new(Mutex::new(Vec::new()));
        let seen = count.clone();
        let (link, _directory) = linked(move |asked| {
            seen.lock().unwrap().push(asked);
            Some(match asked.command {
                command::BLOCK_STATUS => extents(asked, BASE_ALLOCATION_ID, &[(asked.len, before)]),
                _ => simple(asked, 0, &[]),
            })
        });
        let sink = NbdSink::new(&link).unwrap();
        assert_eq!(sink.size().0, SIZE);
        copy(&Zeroes, &sink, &Control::default()).unwrap();
        let seen = count.lock().unwrap();
        let of = |kind| seen.iter().filter(|asked| asked.command == kind).count();
        assert_eq!((of(command::WRITE_ZEROES), of(command::WRITE)), (zeroings, 0));
        assert_eq!((seen.last().unwrap().command, of(command::FLUSH)), (command::FLUSH, 1));
    }
}

struct Zeroes;

impl Source for Zeroes {
    fn size(&self) -> headgate_units::Bytes {
        headgate_units::Bytes(SIZE / 2)
    }

    fn status(&self, _offset: u64, len: u64) -> Result<Vec<Run>, ImageError> {
        Ok(vec![Run { len, content: Content::Zeroes }])
    }

    fn read(&self, _offset: u64, _into: &mut [u8]) -> Result<(), ImageError> {
        panic!("there is nothing to read")
    }
}

/// A source whose extents have no length would be walked for ever.
#[test]
fn a_status_without_a_length_ends_the_copy() {
    for said in [vec![(0, 0)], vec![]] {
        let (link, directory) = linked(move |asked| {
            let other = BASE_ALLOCATION_ID + 1;
            Some(match said[..] {
                [] => extents(asked, other, &[(4096, 0)]),
                _ => extents(asked, BASE_ALLOCATION_ID, &said),
            })
        });
        let sink = crate::NewImage::begin(
            &directory.path().join("out"),
            crate::Format::Raw,
            headgate_units::Bytes(SIZE),
            crate::Replace::No,
        );
        let end = copy(&NbdSource::new(&link), sink.unwrap().sink(), &Control::default());
        assert!(matches!(end, Err(ImageError::BadRun(0))), "{end:?}");
    }
}
