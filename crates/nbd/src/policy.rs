//! An extension of Headgate's: a gateway says what a disk that is spread over several servers is
//! promised, and each server takes it for its part, within what it lets that gateway promise. So a
//! policy is set in one place (dmClock, OSDI 2010, section 3.3: servers know a client's
//! reservation, limit and weight, and do not communicate).
//!
//! It is said during the handshake, before the export is opened, with option [`OPTION`] (`HG`, then
//! 2). Its data, all numbers big-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 2 | version: 1 |
//! | 40 | the [lease](Lease): disk, number, host |
//! | 8 | epoch: a later policy of the same lease has a greater one |
//! | 2 | over how many servers the disk lies, from 1 |
//! | 2 | length of the export's name |
//! | n | the export's name |
//! | the rest | the policy: text, at most [`MAX_POLICY`] bytes |
//!
//! | answer | when |
//! |---|---|
//! | `NBD_REP_ACK` | it is in force |
//! | `NBD_REP_ERR_POLICY` | it is not; the text says why. The policy of before holds |
//! | [`ERR_HELD`](crate::counters::ERR_HELD) | another client holds the export |
//! | `NBD_REP_ERR_UNKNOWN` | there is no such export |
//! | `NBD_REP_ERR_UNSUP` | the server knows another version, or not the option |
//! | `NBD_REP_ERR_INVALID` | the data is malformed |

use crate::counters::Lease;
use alloc::vec::Vec;

/// The number of the option.
pub const OPTION: u32 = 0x4847_0002;
/// The version that this is.
pub const VERSION: u16 = 1;
/// The longest policy, in bytes.
pub const MAX_POLICY: usize = 4096;

/// What a gateway says of a disk. The policy is text whose meaning is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement<'a> {
    /// By what right.
    pub lease: Lease,
    /// Which of the policies that were in force under this lease: later ones are greater.
    pub epoch: u64,
    /// Over how many servers the disk lies.
    pub servers: u16,
    /// The export.
    pub export: &'a str,
    /// What it is promised.
    pub policy: &'a str,
}

/// What is wrong with the option's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadAnnouncement {
    /// Another version than [`VERSION`], or data that has none.
    Version,
    /// Something else, in words.
    Malformed(&'static str),
}

const LEASE: usize = 2;
const EPOCH: usize = 42;
const SERVERS: usize = 50;
const NAME_LEN: usize = 52;
const NAME: usize = 54;

impl<'a> Announcement<'a> {
    /// The data of the option. `None` for a name of more than 65,535 bytes or a policy of more than
    /// [`MAX_POLICY`]. O(length).
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let name_len = u16::try_from(self.export.len()).ok()?;
        if self.policy.len() > MAX_POLICY {
            return None;
        }
        let Lease { disk, number, host } = self.lease;
        let mut data = VERSION.to_be_bytes().to_vec();
        data.extend(disk);
        data.extend(number.to_be_bytes());
        data.extend(host);
        data.extend(self.epoch.to_be_bytes());
        data.extend(self.servers.to_be_bytes());
        data.extend(name_len.to_be_bytes());
        data.extend(self.export.as_bytes());
        data.extend(self.policy.as_bytes());
        Some(data)
    }

    /// Reads the data of the option. O(length).
    ///
    /// # Errors
    /// See [`BadAnnouncement`].
    pub fn read(data: &'a [u8]) -> Result<Announcement<'a>, BadAnnouncement> {
        let bad = BadAnnouncement::Malformed;
        if data.first_chunk().map(|bytes| u16::from_be_bytes(*bytes)) != Some(VERSION) {
            return Err(BadAnnouncement::Version);
        }
        let Some(head) = data.first_chunk::<NAME>() else {
            return Err(bad("a lease, an epoch, a number of servers and a name were expected"));
        };
        let number = u64::from_be_bytes(field(head, LEASE + 16));
        let lease = Lease { disk: field(head, LEASE), number, host: field(head, LEASE + 24) };
        let servers = u16::from_be_bytes(field(head, SERVERS));
        if number == 0 || servers == 0 {
            return Err(bad("the number of a lease and the number of servers are at least 1"));
        }
        let name_len = usize::from(u16::from_be_bytes(field(head, NAME_LEN)));
        let rest = &data[NAME..];
        let Some((export, policy)) = rest.split_at_checked(name_len) else {
            return Err(bad("the export's name is longer than the data"));
        };
        if policy.len() > MAX_POLICY {
            return Err(bad("the policy is longer than 4096 bytes"));
        }
        let text = |bytes| core::str::from_utf8(bytes).map_err(|_| bad("UTF-8 was expected"));
        let (export, policy) = (text(export)?, text(policy)?);
        let epoch = u64::from_be_bytes(field(head, EPOCH));
        Ok(Announcement { lease, epoch, servers, export, policy })
    }
}

fn field<const LEN: usize>(head: &[u8; NAME], at: usize) -> [u8; LEN] {
    core::array::from_fn(|i| head[at + i])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    const LEASE: Lease = Lease { disk: [0xD1; 16], number: 0x0102, host: [5; 16] };
    const GOOD: Announcement<'_> =
        Announcement { lease: LEASE, epoch: 0x0304, servers: 3, export: "db", policy: "{}" };

    #[test]
    fn the_layout_is_that_of_the_documentation() {
        let mut expected = vec![0, 1];
        expected.extend([0xD1; 16]);
        expected.extend([0, 0, 0, 0, 0, 0, 1, 2]);
        expected.extend([5; 16]);
        expected.extend([0, 0, 0, 0, 0, 0, 3, 4]);
        expected.extend([0, 3, 0, 2]);
        expected.extend(b"db{}");
        assert_eq!(GOOD.to_bytes(), Some(expected));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = GOOD.to_bytes().unwrap();
        let with = |at: usize, bytes: &[u8]| {
            let mut data = good.clone();
            data[at..at + bytes.len()].copy_from_slice(bytes);
            Announcement::read(&data).err()
        };
        assert_eq!(with(0, &[0, 2]), Some(BadAnnouncement::Version));
        assert_eq!(Announcement::read(&[1]), Err(BadAnnouncement::Version));
        for (at, bytes) in [(18, &[0; 8][..]), (50, &[0, 0]), (52, &[0, 5]), (54, &[0xFF])] {
            let malformed = matches!(with(at, bytes), Some(BadAnnouncement::Malformed(_)));
            assert!(malformed, "{at}");
        }
        for len in 2..NAME {
            let malformed =
                matches!(Announcement::read(&good[..len]), Err(BadAnnouncement::Malformed(_)));
            assert!(malformed, "{len}");
        }
        let longest = "x".repeat(MAX_POLICY);
        let longest = Announcement { policy: &longest, ..GOOD };
        let mut data = longest.to_bytes().unwrap();
        assert_eq!(Announcement::read(&data), Ok(longest));
        data.push(b'x');
        assert!(matches!(Announcement::read(&data), Err(BadAnnouncement::Malformed(_))));
        let longer = "x".repeat(MAX_POLICY + 1);
        assert_eq!(Announcement { policy: &longer, ..GOOD }.to_bytes(), None);
        let name = "x".repeat(1 << 16);
        assert_eq!(Announcement { export: &name, ..GOOD }.to_bytes(), None);
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(
            disk: [u8; 16], host: [u8; 16], number in 1..=u64::MAX, epoch: u64,
            servers in 1..=u16::MAX, export in "\\PC{0,40}", policy in "\\PC{0,80}",
            noise in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let lease = Lease { disk, number, host };
            let said =
                Announcement { lease, epoch, servers, export: &export, policy: &policy };
            let bytes = said.to_bytes().unwrap();
            prop_assert_eq!(Announcement::read(&bytes), Ok(said));
            let mut data = GOOD.to_bytes().unwrap();
            data.truncate(noise.len());
            data.extend(&noise);
            for data in [&noise, &data] {
                if let Ok(read) = Announcement::read(data) {
                    let again = read.to_bytes();
                    prop_assert_eq!(again.as_ref(), Some(data));
                }
            }
        }
    }
}
