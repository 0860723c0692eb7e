//! A host's report as bytes: what stands on the board.
//!
//! 512 bytes, so that it fits into one sector of any disk and is written whole or not at all.
//! Little endian:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | `HGBOARD1` |
//! | 8 | 4 | CRC-32 (IEEE) of all 512 bytes, this field taken as 0 |
//! | 12 | 4 | number of the block it was written to, or 2³² - 1 where there are none |
//! | 16 | 16 | host |
//! | 32 | 16 | instance |
//! | 48 | 8 | epoch of the instance |
//! | 56 | 8 | sequence, one more with every report; 2⁶⁴ - 1 when the host leaves |
//! | 64 | 8 | mean latency, ns |
//! | 72 | 8 | IOs |
//! | 80 | 8 | window, millionths |
//! | 88 | 8 | active shares, millionths |
//! | 96 | 8 | latency threshold, ns |
//! | 104 | 8 | period, ns |
//! | 112 | 1 | bound: 0 free, 1 min, 2 reservations, 3 max |
//! | 113 | 1 | length of the name |
//! | 114 | 64 | name |
//! | 178 | 8 | work, millionths of a reference IO; 0 from versions that did not tell |
//! | 186 | 8 | latency threshold that follows the storage, without what a trial adds, ns; 0 where it was set by hand, and from versions that did not tell |
//! | 194 | 318 | 0 |

use crate::identity::{HostId, HostName, InstanceId, NAME_MAX};
use headgate_qos::window::{ActiveShares, Bound, HostReport, Slots};
use headgate_units::Nanos;
use thiserror::Error;

/// The length of a record, in bytes.
pub const RECORD: usize = 512;

/// The sequence of a host that leaves.
pub(crate) const FAREWELL: u64 = u64::MAX;

const MAGIC: &[u8; 8] = b"HGBOARD1";
const CHECKSUM: usize = 8;
const BLOCK: usize = 12;
const HOST: usize = 16;
const INSTANCE: usize = 32;
const EPOCH: usize = 48;
const SEQUENCE: usize = 56;
const LATENCY: usize = 64;
const IOS: usize = 72;
const WINDOW: usize = 80;
const SHARES: usize = 88;
const THRESHOLD: usize = 96;
const PERIOD: usize = 104;
const BOUND: usize = 112;
const NAME_LENGTH: usize = 113;
const NAME: usize = 114;
const END: usize = NAME + NAME_MAX;
const WORK: usize = END;
const FOLLOWS: usize = WORK + 8;

const _: () =
    assert!(FOLLOWS + 8 <= RECORD && NAME_MAX <= u8::MAX as usize, "the longest name fits");

/// What one host says at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who.
    pub host: HostId,
    /// Which run of its daemon.
    pub instance: InstanceId,
    /// How often its daemon was started.
    pub epoch: u64,
    /// One more with every report of an instance.
    pub sequence: u64,
    /// What people call the host.
    pub name: HostName,
    /// What it says.
    pub report: HostReport,
}

/// Where a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKey {
    /// In this block of a file.
    Block(u32),
    /// Where there are no blocks.
    Key,
}

impl RecordKey {
    fn number(self) -> u32 {
        match self {
            RecordKey::Block(number) => number,
            RecordKey::Key => u32::MAX,
        }
    }
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// Zeroes: nobody wrote here.
    #[error("empty")]
    Empty,
    /// Not ours, or of a version that this one does not know.
    #[error("not a record of this version")]
    Foreign,
    /// The checksum is another: half written, or damaged.
    #[error("damaged or half written")]
    Torn,
    /// Written for another place, and copied here.
    #[error("written for another place")]
    Misplaced,
    /// A value that no host writes.
    #[error("{0} out of range")]
    Value(&'static str),
}

impl Record {
    /// Whether the host says that it is gone.
    pub fn is_farewell(&self) -> bool {
        self.sequence == FAREWELL
    }

    /// The record as bytes.
    pub fn encode(&self, key: RecordKey) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
        put(0, MAGIC);
        put(BLOCK, &key.number().to_le_bytes());
        put(HOST, &self.host.0);
        put(INSTANCE, &self.instance.0);
        let report = &self.report;
        for (at, value) in [
            (EPOCH, self.epoch),
            (SEQUENCE, self.sequence),
            (LATENCY, report.latency.0),
            (IOS, report.ios),
            (WINDOW, report.window.as_millionths()),
            (SHARES, report.shares.as_millionths()),
            (THRESHOLD, report.threshold.0),
            (PERIOD, report.period.0),
            (WORK, report.work),
            (FOLLOWS, report.follows.map_or(0, |Nanos(n)| n)),
        ] {
            put(at, &value.to_le_bytes());
        }
        let bound = match report.bound {
            Bound::Free => 0,
            Bound::Min => 1,
            Bound::Reservations => 2,
            Bound::Max => 3,
        };
        let name = self.name.as_str().as_bytes();
        put(BOUND, &[bound, name.len() as u8]);
        put(NAME, name);
        let checksum = checksum(&bytes);
        bytes[CHECKSUM..CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a record that stands at `key`.
    ///
    /// # Errors
    /// Why the bytes are none. No bytes panic.
    pub fn decode(bytes: &[u8; RECORD], key: RecordKey) -> Result<Record, RecordError> {
        if bytes.iter().all(|b| *b == 0) {
            return Err(RecordError::Empty);
        }
        if bytes[..8] != *MAGIC {
            return Err(RecordError::Foreign);
        }
        let number = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        let id = |at: usize| {
            let mut sixteen = [0; 16];
            sixteen.copy_from_slice(&bytes[at..at + 16]);
            sixteen
        };
        if number(CHECKSUM) as u32 != checksum(bytes) {
            return Err(RecordError::Torn);
        }
        if (number(CHECKSUM) >> 32) as u32 != key.number() {
            return Err(RecordError::Misplaced);
        }
        let bound = match bytes[BOUND] {
            0 => Bound::Free,
            1 => Bound::Min,
            2 => Bound::Reservations,
            3 => Bound::Max,
            _ => return Err(RecordError::Value("bound")),
        };
        let name = bytes[NAME..END].get(..usize::from(bytes[NAME_LENGTH]));
        let name = name.and_then(|name| std::str::from_utf8(name).ok()).and_then(HostName::new);
        let within = |what, at: usize, low: u64, high: u64| match number(at) {
            value if (low..=high).contains(&value) => Ok(value),
            _ => Err(RecordError::Value(what)),
        };
        let ios = within("IOs", IOS, 0, 1 << 48)?;
        let work = match within("work", WORK, 0, 1 << 60)? {
            // As if each were a reference IO.
            0 => ios.saturating_mul(1_000_000),
            work => work,
        };
        let follows = match number(FOLLOWS) {
            0 => None,
            _ => Some(Nanos(within("followed threshold", FOLLOWS, 10_000, 10_000_000_000)?)),
        };
        let report = HostReport {
            latency: Nanos(within("latency", LATENCY, 0, 1 << 48)?),
            ios,
            work,
            window: Slots::from_millionths(within(
                "window",
                WINDOW,
                1,
                Slots::WINDOW_MAX.as_millionths(),
            )?),
            bound,
            shares: ActiveShares::from_millionths(within("shares", SHARES, 0, 1 << 56)?),
            threshold: Nanos(within("threshold", THRESHOLD, 10_000, 10_000_000_000)?),
            period: Nanos(within("period", PERIOD, 10_000_000, 60_000_000_000)?),
            follows,
        };
        Ok(Record {
            host: HostId(id(HOST)),
            instance: InstanceId(id(INSTANCE)),
            epoch: number(EPOCH),
            sequence: number(SEQUENCE),
            name: name.ok_or(RecordError::Value("name"))?,
            report,
        })
    }
}

fn checksum(bytes: &[u8; RECORD]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..CHECKSUM]);
    hasher.update(&[0; 4]);
    hasher.update(&bytes[CHECKSUM + 4..]);
    hasher.finalize()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn report() -> HostReport {
        HostReport {
            latency: Nanos::from_millis(31),
            ios: 1_700,
            work: 1_900_000_000,
            window: Slots::from_millionths(26_100_000),
            bound: Bound::Free,
            shares: ActiveShares::from_millionths(1_500_000_000),
            threshold: Nanos::from_millis(30),
            period: Nanos::from_secs(4),
            follows: Some(Nanos::from_millis(25)),
        }
    }

    pub(crate) fn record(host: u8, instance: u8, sequence: u64) -> Record {
        Record {
            host: HostId([host; 16]),
            instance: InstanceId([instance; 16]),
            epoch: 3,
            sequence,
            name: HostName::new(&format!("host{host}")).unwrap(),
            report: report(),
        }
    }

    #[test]
    fn who_does_not_tell_its_work_did_one_for_each_request() {
        let mut bytes = record(1, 2, 3).encode(RecordKey::Key);
        bytes[WORK..WORK + 8].fill(0);
        let checksum = checksum(&bytes);
        bytes[CHECKSUM..CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
        let read = Record::decode(&bytes, RecordKey::Key).unwrap();
        assert_eq!(read.report.work, report().ios * 1_000_000);
    }

    #[test]
    fn what_is_written_is_read() {
        let longest = HostName::new(&"é".repeat(32)).unwrap();
        for bound in [Bound::Free, Bound::Min, Bound::Reservations, Bound::Max] {
            let mut record = Record { name: longest.clone(), ..record(1, 2, u64::MAX) };
            record.report.bound = bound;
            for key in [RecordKey::Block(7), RecordKey::Key] {
                assert_eq!(Record::decode(&record.encode(key), key), Ok(record.clone()));
            }
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let key = RecordKey::Block(7);
        let good = record(1, 2, 3).encode(key);
        for at in 0..RECORD {
            for bit in 0..8 {
                let mut bytes = good;
                bytes[at] ^= 1 << bit;
                let error = if at < 8 { RecordError::Foreign } else { RecordError::Torn };
                assert_eq!(Record::decode(&bytes, key), Err(error), "byte {at}");
            }
        }
        // Half of the next one, as a device that tears sectors would leave it.
        let next = record(1, 2, 4).encode(key);
        for cut in 1..RECORD {
            let mut bytes = good;
            bytes[..cut].copy_from_slice(&next[..cut]);
            let read = Record::decode(&bytes, key);
            assert!(
                read == Err(RecordError::Torn) || bytes == good || bytes == next,
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn what_is_not_ours_is_named() {
        let key = RecordKey::Block(0);
        assert_eq!(Record::decode(&[0; RECORD], key), Err(RecordError::Empty));
        assert_eq!(Record::decode(&[0xff; RECORD], key), Err(RecordError::Foreign));
        let copied = record(1, 2, 3).encode(RecordKey::Block(1));
        assert_eq!(Record::decode(&copied, key), Err(RecordError::Misplaced));
        let mut wrong = record(1, 2, 3);
        wrong.report.threshold = Nanos(1);
        assert_eq!(Record::decode(&wrong.encode(key), key), Err(RecordError::Value("threshold")));
    }

    proptest! {
        /// Whatever decodes, with a checksum that was made to fit, encodes to the same bytes but
        /// for the unused ones.
        #[test]
        fn no_bytes_panic(mut bytes in prop::array::uniform32(any::<u8>()), fill in any::<u8>(), honest in any::<bool>()) {
            let mut block = [fill; RECORD];
            block[..8].copy_from_slice(MAGIC);
            bytes[0] &= 3;
            block[BOUND..BOUND + 32].copy_from_slice(&bytes);
            if honest {
                let checksum = checksum(&block);
                block[CHECKSUM..CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
            }
            let key = RecordKey::Block(u32::from_le_bytes([fill; 4]));
            if let Ok(record) = Record::decode(&block, key) {
                prop_assert_eq!(Record::decode(&record.encode(key), key), Ok(record));
            }
        }
    }
}
