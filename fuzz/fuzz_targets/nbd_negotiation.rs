//! A client's handshake, byte by byte and whole: it must not matter how the stream is cut, and the answers stay in proportion
//! to what was asked.

#![no_main]

use headgate_engine::request::DiskInfo;
use headgate_frontends::nbd::proto::command::Session;
use headgate_frontends::nbd::proto::negotiation::{
    Catalog, ExportName, Negotiation, NegotiationError, OpenError, Opened, Step,
};
use libfuzzer_sys::fuzz_target;

struct Disks;

impl Catalog for Disks {
    type Handle = ();

    fn list(&self) -> Vec<ExportName> {
        vec![ExportName { name: "a".into(), description: "a disk".into() }]
    }

    fn open(&self, name: &str) -> Result<Opened<()>, OpenError> {
        match name {
            "a" => Ok(Opened {
                disk: DiskInfo { name: "a".into(), size: 1 << 20, block_size: 512 },
                description: "a disk".into(),
                handle: (),
            }),
            "b" => Err(OpenError::Refused("not now".into())),
            _ => Err(OpenError::Unknown),
        }
    }
}

#[derive(Debug, PartialEq)]
enum End {
    Waiting,
    Transmission(Session, usize),
    Aborted,
    Dropped(NegotiationError),
}

fn negotiate(stream: &[u8], piece: usize) -> (Vec<u8>, End) {
    let mut negotiation = Negotiation::default();
    let (mut out, mut start, mut end) = (Vec::new(), 0, 0);
    while end < stream.len() {
        end = (end + piece).min(stream.len());
        loop {
            match negotiation.poll(&stream[start..end], &Disks, &mut out) {
                Err(error) => return (out, End::Dropped(error)),
                Ok((used, step)) => {
                    start += used;
                    assert!(start <= end);
                    match step {
                        Step::NeedBytes => break,
                        Step::Answered => {}
                        Step::Aborted => return (out, End::Aborted),
                        Step::Transmission(_, session) => return (out, End::Transmission(session, start)),
                    }
                }
            }
        }
    }
    (out, End::Waiting)
}

fuzz_target!(|stream: &[u8]| {
    let whole = negotiate(stream, stream.len().max(1));
    assert_eq!(negotiate(stream, 1), whole);
    // The largest answer to an option, and the smallest option.
    assert!(whole.0.len() <= (stream.len() / 16 + 1) * 300);
});
