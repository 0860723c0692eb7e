//! A client's handshake, byte by byte and whole: the cuts in the stream change nothing, and the
//! length of the answers is bounded by the length of the questions.
//!
//! The first byte of the input says whether the rest is the stream itself, or a list of options to
//! make one from, so that names, queries and lengths get past the magic numbers.

use headgate_nbd::counters::{self, Lease, Version};
use headgate_nbd::policy::{self, Announcement};
use headgate_nbd::server::command::Session;
use headgate_nbd::server::contexts::BitmapName;
use headgate_nbd::server::negotiation::{
    Catalog, ExportName, Negotiation, NegotiationError, OpenError, Opened, Security, Step,
};
use headgate_nbd::server::{Export, Writes};

struct Disks;

impl Catalog for Disks {
    type Handle = ();

    fn list(&self) -> Vec<ExportName> {
        vec![ExportName { name: "a".into(), description: "a disk".into() }]
    }

    fn open(&self, name: &str) -> Result<Opened<()>, OpenError> {
        match name {
            "a" => Ok(Opened {
                name: "a".into(),
                export: Export {
                    size: 1 << 20,
                    block_size: 512,
                    preferred: 4096,
                    writes: Writes::Allowed,
                },
                description: "a disk".into(),
                handle: (),
            }),
            "b" => Err(OpenError::Refused("not now".into())),
            _ => Err(OpenError::Unknown),
        }
    }

    fn open_by(&self, name: &str, lease: Lease) -> Result<Opened<()>, OpenError> {
        assert!(lease.number > 0, "the lease of nobody");
        match lease.number % 3 {
            0 => Err(OpenError::Held("another's".into())),
            _ => self.open(name),
        }
    }

    fn announce(&self, said: &Announcement<'_>) -> Result<(), OpenError> {
        let cannot_be = said.lease.number == 0 || said.servers == 0;
        assert!(!cannot_be && said.policy.len() <= policy::MAX_POLICY, "{said:?}");
        self.open_by(said.export, said.lease).map(drop)
    }

    fn bitmaps_of(&self, (): &()) -> Vec<BitmapName> {
        BITMAPS.map(|name| name.parse().expect("a name")).into()
    }
}

/// The dirty bitmaps of the disk.
const BITMAPS: [&str; 2] = ["monday", "a:b"];

#[derive(Debug, PartialEq)]
enum End {
    Waiting,
    Transmission(Session, usize),
    Aborted,
    Dropped(NegotiationError),
}

/// What the server said before and after the start of TLS, and how it ended.
fn negotiate(security: Security, stream: &[u8], piece: usize) -> ([Vec<u8>; 2], End) {
    let mut negotiation = Negotiation::new(security);
    let (mut before, mut out, mut start, mut end) = (Vec::new(), Vec::new(), 0, 0);
    let mut inside = security == Security::Plain;
    while end < stream.len() {
        end = (end + piece).min(stream.len());
        loop {
            match negotiation.poll(&stream[start..end], &Disks, &mut out) {
                Err(error) => return ([before, out], End::Dropped(error)),
                Ok((used, step)) => {
                    start += used;
                    assert!(start <= end);
                    match step {
                        Step::NeedBytes => break,
                        Step::Answered => {}
                        Step::Aborted => return ([before, out], End::Aborted),
                        Step::StartTls => {
                            assert!(!inside, "there is TLS already, or there is none");
                            inside = true;
                            before = core::mem::take(&mut out);
                            negotiation.secure();
                        }
                        Step::Transmission(_, session) => {
                            assert!(inside, "it is served outside of TLS");
                            return ([before, out], End::Transmission(session, start));
                        }
                    }
                }
            }
        }
    }
    ([before, out], End::Waiting)
}

/// Where an announcement says how long the export's name is: two bytes.
const NAME_LEN: usize = 52;

/// The first eight are names of exports too.
const NAMES: [&str; 16] = [
    "a",
    "b",
    "",
    "none",
    "base:allocation",
    "base:",
    "base:x",
    "x-y:z",
    "qemu:",
    "qemu:dirty-bitmap:",
    "qemu:dirty-bitmap:monday",
    "qemu:dirty-bitmap:a:b",
    "qemu:dirty-bitmap:a",
    "qemu:dirty-bitmap",
    "qemu:allocation-depth",
    "dirty-bitmap:monday",
];

/// Options of few bytes: the option, what its data says, and by how much the announced lengths are
/// wrong.
fn options(mut input: &[u8]) -> Vec<u8> {
    let mut stream = 3u32.to_be_bytes().to_vec();
    while let Some((&[option, shape, names, lie], rest)) = input.split_first_chunk::<4>() {
        input = rest;
        let name = |which: u8| {
            let name = NAMES[usize::from(which % 16)];
            [&(name.len() as u32 + u32::from(lie >> 6 == 3)).to_be_bytes()[..], name.as_bytes()]
                .concat()
        };
        let number = u64::from(lie % 8);
        let lease = Lease { disk: [names; 16], number, host: [shape; 16] };
        let mut data = match shape % 6 {
            4 => {
                let version = if names & 64 == 0 { Version::Two } else { Version::Three };
                counters::option_data(version, (number > 0).then_some(lease)).to_vec()
            }
            5 => {
                let export = NAMES[usize::from(names % 8)];
                let (epoch, servers) = (u64::from(shape), u16::from(names / 8 % 4));
                let said = Announcement { lease, epoch, servers, export, policy: "{}" };
                let mut data = said.to_bytes().unwrap_or_default();
                if lie >> 6 == 3
                    && let Some(len) = data.get_mut(NAME_LEN + 1)
                {
                    *len = len.wrapping_add(names);
                }
                data
            }
            0 => Vec::new(),
            1 => NAMES[usize::from(names % 8)].as_bytes().to_vec(),
            2 => [&name(names % 8)[..], &[0, 1, 0, 3]].concat(),
            _ => {
                let queries = u32::from(shape / 4 % 4);
                let mut data = [&name(names % 8)[..], &queries.to_be_bytes()].concat();
                (0..queries).for_each(|i| data.extend(name((names >> 3) + i as u8)));
                data
            }
        };
        if lie % 16 == 15 {
            data.extend(input.iter().take(20));
        }
        stream.extend(b"IHAVEOPT");
        let option = match option % 15 {
            13 => counters::OPTION,
            14 => policy::OPTION,
            number => u32::from(number),
        };
        stream.extend(option.to_be_bytes());
        stream.extend((data.len() as u32).to_be_bytes());
        stream.extend(data);
    }
    stream
}

pub(super) fn run(input: &[u8]) {
    let Some((&form, rest)) = input.split_first() else { return };
    let made;
    let stream = if form % 2 == 0 {
        rest
    } else {
        made = options(rest);
        &made
    };
    let security = if form / 2 % 2 == 0 { Security::Plain } else { Security::TlsRequired };
    let whole = negotiate(security, stream, stream.len().max(1));
    assert_eq!(negotiate(security, stream, 1), whole);
    // Outside of TLS nothing is said of disks.
    let outside = if security == Security::Plain { &[][..] } else { &whole.0[0] };
    let tells = |name: &str| outside.windows(name.len()).any(|bytes| bytes == name.as_bytes());
    assert!(!tells("monday") && !tells("base:allocation"));
    if let End::Transmission(session, _) = whole.1 {
        assert!(session.contexts.ids().all(|id| id.get() <= 1 + BITMAPS.len() as u32));
    }
    // The largest answer to an option, and the smallest option.
    let said: usize = whole.0.iter().map(Vec::len).sum();
    assert!(said <= (stream.len() / 16 + 1) * 300);
}
