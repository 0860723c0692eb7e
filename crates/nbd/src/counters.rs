//! An extension of Headgate's: what a disk that is spread over several servers received at the
//! others travels with its requests, and what it received here with the answers. The algorithm is
//! dmClock (Gulati, Merchant, Varman, OSDI 2010, section 3.3): servers keep a disk's reservation,
//! limit and shares together, and do not communicate.
//!
//! # Negotiation
//! The client asks with option [`OPTION`] (`HG`, then 1), whose data are the [version](Version) in
//! two bytes, and [who may use the export](Lease). The server answers `NBD_REP_ACK`, or
//! `NBD_REP_ERR_UNSUP` to a version that it does not know; one that does not know the option says
//! the same. A client asks for the newest version first, and then for the one before. The option
//! excludes structured replies: `NBD_REP_ERR_INVALID`. Metadata contexts can be selected after it
//! all the same. It holds for the export that is opened then. Where another client holds that,
//! opening is answered with [`ERR_HELD`].
//!
//! # Transmission
//! The heads of requests and of simple replies are those of the specification. Behind the head of a
//! request, before its payload, come [`REQUEST_LEN`] bytes, but for `NBD_CMD_DISC`:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | δ: what the disk was charged at other servers since its last request to this one, in millionths of an IO |
//! | 8 | ρ: the part of that which was served by reservation, in millionths of an IO; at most δ |
//! | 8 | bytes that it moved there |
//! | 2 | the request's priority, in Linux's `ioprio` encoding; 0: that of the export |
//! | 6 | zero |
//!
//! Behind the head of each reply, before its payload, come [`Version::reply_len`] bytes. The first
//! [`REPLY_LEN`] of them are, in either version, what the disk was
//! charged here for what ended on this connection since the reply before, and the part of that
//! which was served by reservation, 8 bytes each, in millionths of an IO. A request that is served
//! in several pieces may so be told of in the replies to others that end meanwhile: sums are exact,
//! and nothing is told twice. In version 3 [`WINDOW_LEN`] bytes follow: the [`Window`] of the
//! storage behind the export.
//!
//! Requests for block status that succeed are answered by chunks, as in structured replies; the
//! [`Version::reply_len`] bytes come behind the last of them.
//!
//! All fields are big-endian. A ρ above its δ, more by reservation than in all, or a field that is
//! to be zero and is not, ends the connection: nobody says that by mistake.

use crate::wire::option_reply;

/// By what right a client uses an export: that of the one host that may serve a disk. Behind the
/// version it takes 40 bytes of the option's data: disk, number, host. All of them are zero for a
/// client without one.
///
/// A server ends the connections of a lease when it hears of one with a greater number, waits for
/// what they have under way, and refuses the older lease from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The disk, which may lie on other exports too.
    pub disk: [u8; 16],
    /// Counts the disk's holders: a later one has a greater number. Not 0.
    pub number: u64,
    /// The holder.
    pub host: [u8; 16],
}

/// What is wrong with the option's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadOption {
    /// Another version than those of [`Version`], or data that has none.
    Version,
    /// Another length, or a lease without a number.
    Malformed,
}

/// The versions of the extension that there are; the newest is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 2: replies say what the disk received.
    Two,
    /// 3: they say the [`Window`] too.
    Three,
}

impl Version {
    /// The one that a client asks for first.
    pub const NEWEST: Version = Version::Three;

    /// Its number.
    pub const fn number(self) -> u16 {
        match self {
            Version::Two => 2,
            Version::Three => 3,
        }
    }

    /// The one that a client asks for after the server has refused this one.
    pub const fn before(self) -> Option<Version> {
        match self {
            Version::Two => None,
            Version::Three => Some(Version::Two),
        }
    }

    /// What follows the head of a reply, in bytes.
    pub const fn reply_len(self) -> usize {
        match self {
            Version::Two => REPLY_LEN,
            Version::Three => REPLY_LEN + WINDOW_LEN,
        }
    }

    fn of(number: u16) -> Option<Version> {
        [Version::Two, Version::Three].into_iter().find(|version| version.number() == number)
    }
}

/// The data of the option. O(1).
pub fn option_data(version: Version, lease: Option<Lease>) -> [u8; OPTION_LEN] {
    let mut data = [0; OPTION_LEN];
    data[..2].copy_from_slice(&version.number().to_be_bytes());
    if let Some(Lease { disk, number, host }) = lease {
        data[2..18].copy_from_slice(&disk);
        data[18..26].copy_from_slice(&number.to_be_bytes());
        data[26..].copy_from_slice(&host);
    }
    data
}

/// Reads the data of the option. O(1).
///
/// # Errors
/// See [`BadOption`].
pub fn read_option(data: &[u8]) -> Result<(Version, Option<Lease>), BadOption> {
    let number = data.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
    let version = number.and_then(Version::of).ok_or(BadOption::Version)?;
    let data: &[u8; OPTION_LEN] = data.try_into().map_err(|_| BadOption::Malformed)?;
    let field = |at: usize| core::array::from_fn(|i| data[at + i]);
    let number = u64::from_be_bytes(core::array::from_fn(|i| data[18 + i]));
    match number {
        0 if data[2..].iter().any(|byte| *byte != 0) => Err(BadOption::Malformed),
        0 => Ok((version, None)),
        number => Ok((version, Some(Lease { disk: field(2), number, host: field(26) }))),
    }
}

/// Whether client and server agreed to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// Counts stand behind the heads of requests and of replies.
    Agreed(Version),
    /// They do not: the heads are those of the specification alone.
    #[default]
    None,
}

impl Counting {
    /// Whether they did.
    pub fn is_agreed(self) -> bool {
        self != Counting::None
    }

    /// What follows the head of a reply, in bytes.
    pub fn reply_len(self) -> usize {
        match self {
            Counting::Agreed(version) => version.reply_len(),
            Counting::None => 0,
        }
    }
}

/// The number of the option.
pub const OPTION: u32 = 0x4847_0001;
/// The data of the option, in bytes.
pub const OPTION_LEN: usize = 42;
/// The answer to a client that opens an export which is another's by its lease.
pub const ERR_HELD: u32 = option_reply::ERROR | 0x4847;
/// What follows the head of a request, in bytes.
pub const REQUEST_LEN: usize = 32;
/// What the disk received, as it follows the head of a reply, in bytes.
pub const REPLY_LEN: usize = 16;
/// The window behind it in version 3, in bytes.
pub const WINDOW_LEN: usize = 8;

/// How many requests the storage behind an export may have outstanding at once, those of other
/// disks and clients too: millionths of a request. 0: the server does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window(pub u64);

impl Window {
    /// As it goes over the wire.
    pub fn to_bytes(self) -> [u8; WINDOW_LEN] {
        self.0.to_be_bytes()
    }

    /// As it came: every number is one.
    pub fn from_bytes(bytes: [u8; WINDOW_LEN]) -> Window {
        Window(u64::from_be_bytes(bytes))
    }
}

/// What a request says of its disk. See the [module](self) for the units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// δ, in millionths of an IO.
    pub delta: u64,
    /// ρ, in millionths of an IO, at most `delta`.
    pub rho: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// The request's priority; 0: that of the export.
    pub ioprio: u16,
}

/// Counts that nobody sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Report {
    /// As it goes over the wire.
    pub fn to_bytes(self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        bytes[0..8].copy_from_slice(&self.delta.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.rho.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.bytes.to_be_bytes());
        bytes[24..26].copy_from_slice(&self.ioprio.to_be_bytes());
        bytes
    }

    /// As it came.
    ///
    /// # Errors
    /// ρ is above δ, or what is to be zero is not.
    pub fn from_bytes(bytes: &[u8; REQUEST_LEN]) -> Result<Report, Malformed> {
        let [
            d0,
            d1,
            d2,
            d3,
            d4,
            d5,
            d6,
            d7,
            r0,
            r1,
            r2,
            r3,
            r4,
            r5,
            r6,
            r7,
            b0,
            b1,
            b2,
            b3,
            b4,
            b5,
            b6,
            b7,
            p0,
            p1,
            zero @ ..,
        ] = *bytes;
        let read = Report {
            delta: u64::from_be_bytes([d0, d1, d2, d3, d4, d5, d6, d7]),
            rho: u64::from_be_bytes([r0, r1, r2, r3, r4, r5, r6, r7]),
            bytes: u64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7]),
            ioprio: u16::from_be_bytes([p0, p1]),
        };
        if read.rho > read.delta || zero != [0; 6] { Err(Malformed) } else { Ok(read) }
    }
}

/// What a disk received on a connection since the last reply there. See the [module](self) for the
/// unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// All of it.
    pub all: u64,
    /// The part that was served by reservation.
    pub by_reservation: u64,
}

impl Received {
    /// As it goes over the wire.
    pub fn to_bytes(self) -> [u8; REPLY_LEN] {
        let mut bytes = [0; REPLY_LEN];
        bytes[0..8].copy_from_slice(&self.all.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.by_reservation.to_be_bytes());
        bytes
    }

    /// As it came.
    ///
    /// # Errors
    /// More by reservation than in all.
    pub fn from_bytes(bytes: &[u8; REPLY_LEN]) -> Result<Received, Malformed> {
        let [a0, a1, a2, a3, a4, a5, a6, a7, r0, r1, r2, r3, r4, r5, r6, r7] = *bytes;
        let read = Received {
            all: u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            by_reservation: u64::from_be_bytes([r0, r1, r2, r3, r4, r5, r6, r7]),
        };
        if read.by_reservation > read.all { Err(Malformed) } else { Ok(read) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_that_of_the_documentation() {
        let report = Report { delta: 0x0102, rho: 0x03, bytes: 0x0405, ioprio: 0x0607 };
        let expected = [
            0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 4, 5, 6, 7, 0, 0, 0,
            0, 0, 0,
        ];
        assert_eq!(report.to_bytes(), expected);
        let received = Received { all: 0x0809, by_reservation: 0x0a };
        assert_eq!(received.to_bytes(), [0, 0, 0, 0, 0, 0, 8, 9, 0, 0, 0, 0, 0, 0, 0, 10]);
        assert_eq!(Window(0x0b0c).to_bytes(), [0, 0, 0, 0, 0, 0, 0x0b, 0x0c]);
        assert_eq!(Window::from_bytes([0, 0, 0, 0, 0, 0, 0x0b, 0x0c]), Window(0x0b0c));
        let lens =
            [Version::Two, Version::Three].map(|version| Counting::Agreed(version).reply_len());
        assert_eq!(lens, [16, 24]);
    }

    #[test]
    fn the_option_says_the_version_and_by_what_right() {
        let lease = Lease { disk: [0xD1; 16], number: 0x0102, host: [0x05; 16] };
        let mut expected = [0; OPTION_LEN];
        expected[1] = 2;
        assert_eq!(option_data(Version::Two, None), expected);
        expected[2..18].fill(0xD1);
        expected[24..26].copy_from_slice(&[1, 2]);
        expected[26..].fill(5);
        assert_eq!(option_data(Version::Two, Some(lease)), expected);
        expected[1] = 3;
        assert_eq!(option_data(Version::Three, Some(lease)), expected);
        for version in [Version::Two, Version::Three] {
            for lease in [None, Some(lease)] {
                assert_eq!(read_option(&option_data(version, lease)), Ok((version, lease)));
            }
        }
        assert_eq!(Version::NEWEST.before().and_then(Version::before), None);
        for at in [2, 17, 26, OPTION_LEN - 1] {
            let mut data = option_data(Version::Two, None);
            data[at] = 1;
            assert_eq!(read_option(&data), Err(BadOption::Malformed), "a lease without a number");
        }
        for (data, error) in [
            (&[][..], BadOption::Version),
            (&[2], BadOption::Version),
            (&[0, 1], BadOption::Version),
            (&[0, 4], BadOption::Version),
            (&[0, 3], BadOption::Malformed),
            (&[0, 2], BadOption::Malformed),
            (&[&[0, 2][..], &[0; OPTION_LEN]].concat(), BadOption::Malformed),
        ] {
            assert_eq!(read_option(data), Err(error), "{data:?}");
        }
    }

    #[test]
    fn the_whole_may_be_by_reservation_and_no_more() {
        for (all, by_reservation, fits) in [
            (0, 0, true),
            (5, 5, true),
            (5, 6, false),
            (0, 1, false),
            (u64::MAX, u64::MAX, true),
            (u64::MAX - 1, u64::MAX, false),
        ] {
            let sent = Received { all, by_reservation };
            let read = Received::from_bytes(&sent.to_bytes());
            assert_eq!(read, if fits { Ok(sent) } else { Err(Malformed) });
        }
    }

    proptest! {
        #[test]
        fn a_replys_counters_are_read_as_they_were_sent(bytes: [u8; REPLY_LEN]) {
            let (all, part) = bytes.split_at(8);
            let contradict = part > all;
            match Received::from_bytes(&bytes) {
                Ok(read) => prop_assert_eq!((read.to_bytes(), contradict), (bytes, false)),
                Err(Malformed) => prop_assert!(contradict),
            }
        }

        #[test]
        fn what_is_sent_is_read_and_nothing_else(bytes: [u8; REQUEST_LEN], delta: u64, rho: u64) {
            let sent = Report { delta, rho, bytes: 7, ioprio: 9 };
            let read = Report::from_bytes(&sent.to_bytes());
            prop_assert_eq!(read, if rho > delta { Err(Malformed) } else { Ok(sent) });
            if let Ok(read) = Report::from_bytes(&bytes) {
                prop_assert_eq!(read.to_bytes(), bytes);
            }
        }
    }
}
