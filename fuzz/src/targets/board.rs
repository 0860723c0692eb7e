//! Blocks of a congestion board, read one after the other: none panics, what decodes is a record
//! that encodes to itself, and whatever the hosts say, the window that follows stays within its
//! bounds.
//!
//! The input is pieces of 64 bytes. The first of each says whether the block is those bytes as they
//! are, or a good record with some of its bytes replaced by them and a checksum that fits.

use headgate_cluster::sightings::Sightings;
use headgate_cluster::{
    HostId, HostName, Identity, InstanceId, PeerHost, RECORD, Record, RecordKey,
};
use headgate_qos::window::{
    Absence, ActiveShares, BoardView, Bound, Config, Controller, HostReport, Observation, Slots,
};
use headgate_units::Nanos;

const CHECKSUM: std::ops::Range<usize> = 8..12;
/// Where the host's number and its name begin.
const HOST: usize = 16;
const NAME: usize = 114;
/// Where the fields that a window follows from begin.
const FIELDS: usize = 56;

fn good(host: u8) -> Record {
    Record {
        host: HostId([host; 16]),
        instance: InstanceId([host; 16]),
        epoch: 1,
        sequence: 1,
        name: HostName::new("host").expect("a name"),
        report: HostReport {
            latency: Nanos::from_millis(30),
            ios: 100,
            work: 100_000_000,
            window: Slots::whole(32),
            bound: Bound::Free,
            shares: ActiveShares::from_millionths(1_000_000),
            threshold: Nanos::from_millis(30),
            period: Nanos::from_secs(4),
            follows: Some(Nanos::from_millis(30)),
        },
    }
}

fn block(piece: &[u8], key: RecordKey) -> [u8; RECORD] {
    let [how, rest @ ..] = piece else { return [0; RECORD] };
    if how % 4 == 0 {
        let mut bytes = [0; RECORD];
        bytes[..rest.len()].copy_from_slice(rest);
        return bytes;
    }
    let mut bytes = good(how % 8).encode(key);
    bytes[FIELDS..FIELDS + rest.len()].iter_mut().zip(rest).for_each(|(byte, new)| *byte ^= new);
    bytes[CHECKSUM].fill(0);
    let checksum = crc32fast::hash(&bytes).to_le_bytes();
    bytes[CHECKSUM].copy_from_slice(&checksum);
    bytes
}

/// A good record with one byte changed, each of those that may be.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let changed = |at: usize| {
        [1, 4, 0x80].map(|by| {
            let mut piece = vec![0; 64];
            (piece[0], piece[1 + at]) = (1, by);
            piece
        })
    };
    (0..63).flat_map(changed).collect()
}

pub(super) fn run(input: &[u8]) {
    let key = RecordKey::Block(3);
    let own = Identity {
        host: HostId([1; 16]),
        instance: InstanceId([255; 16]),
        epoch: 1,
        name: HostName::new("own").expect("a name"),
    };
    let config = Config::default();
    let mut controller = Controller::new(config).expect("the default is valid");
    let mut sightings = Sightings::new(Absence::Lost);
    let mut now = Nanos::ZERO;
    for pieces in input.chunks(4 * 64) {
        now += config.period;
        let mut records = Vec::new();
        for block in pieces.chunks(64).map(|piece| block(piece, key)) {
            let Ok(record) = Record::decode(&block, key) else { continue };
            let again = record.encode(key);
            assert_eq!(Record::decode(&again, key).as_ref(), Ok(&record));
            // From the host's number to its name a value stands for one record and no other.
            let said = HOST..NAME + record.name.as_str().len();
            assert_eq!(again[said.clone()], block[said], "read as something else: {record:?}");
            records.push(record);
        }
        for record in &records {
            assert!(!record.name.as_str().chars().any(char::is_control));
        }
        sightings.observe(now, config.period, records);
        let peers: Vec<_> = sightings.peers(now, &own).iter().map(PeerHost::peer).collect();
        let (ios, work) = (100, 100_000_000);
        let seen = Some(Observation { latency: Nanos::from_millis(31), ios, work });
        let update = controller.update(seen, &[], BoardView::Shared(&peers));
        assert!(update.window >= Slots::ONE && update.window <= config.max, "{update:?}");
    }
}
