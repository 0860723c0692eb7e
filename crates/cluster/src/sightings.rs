//! Whose word still counts, judged by our own clock alone.
//!
//! A record carries no time: the clocks of two hosts may be hours apart. It counts from the moment in which it was first seen to *change*, and
//! for as long as it keeps changing. So a record that somebody left years ago never counts, and nobody's clock matters.

use crate::identity::{HostId, Identity, InstanceId};
use crate::record::Record;
use headgate_qos::window::Peer;
use headgate_units::Nanos;
use std::collections::HashMap;

/// Another host, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerHost {
    /// What it said last.
    pub record: Record,
    /// How long ago, by our clock.
    pub age: Nanos,
}

impl PeerHost {
    /// What the window controller needs of it.
    pub fn peer(&self) -> Peer {
        Peer { report: self.record.report, age: self.age }
    }
}

#[derive(Clone, Debug)]
struct Sighting {
    record: Record,
    /// When it was read first.
    first: Nanos,
    /// When it changed last, if it ever did.
    changed: Option<Nanos>,
    /// Whether it stood there at the last reading.
    present: bool,
}

impl Sighting {
    fn new(record: Record, now: Nanos) -> Sighting {
        Sighting { record, first: now, changed: None, present: true }
    }
}

/// What it means that a host's record is not on the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The host has left, or died.
    Left,
    /// The board may have lost it: the host is remembered until its word is three periods old.
    Lost,
}

/// Nobody's word counts for longer than so many periods.
const OLDEST: u64 = 3;

/// What was read so far.
#[derive(Clone, Debug, Default)]
pub struct Sightings {
    seen: HashMap<(HostId, InstanceId), Sighting>,
    /// The first and the last reading.
    read: Option<(Nanos, Nanos)>,
}

impl Sightings {
    /// Takes in all records that stood on the board at `now`, in periods of `period`. O(records).
    ///
    /// A change is dated between this reading and the one before. After three periods without a reading nobody's word is known to be fresh: the
    /// view has to settle anew.
    pub fn observe(
        &mut self,
        now: Nanos,
        period: Nanos,
        records: impl IntoIterator<Item = Record>,
        absence: Absence,
    ) {
        let oldest = Nanos(period.0.saturating_mul(OLDEST));
        let (first, last) = self.read.filter(|(_, last)| now.since(*last) <= oldest).unwrap_or((now, now));
        let between = last + Nanos(now.since(last).0 / 2);
        self.read = Some((first, now));
        self.seen.values_mut().for_each(|sighting| sighting.present = false);
        for record in records {
            let key = (record.host, record.instance);
            if record.is_farewell() {
                self.seen.remove(&key);
                continue;
            }
            let sighting = self.seen.entry(key).or_insert_with(|| Sighting::new(record.clone(), now));
            sighting.present = true;
            // Otherwise the same, or one from a copy of an older board.
            if record.sequence > sighting.record.sequence {
                sighting.record = record;
                sighting.changed = Some(between);
            }
        }
        let keep = match absence {
            Absence::Lost => oldest,
            Absence::Left => Nanos::ZERO,
        };
        let remembered = |s: &Sighting| s.changed.is_some_and(|changed| now.since(changed) < keep);
        self.seen.retain(|_, sighting| sighting.present || remembered(sighting));
    }

    /// Whether the board was read for so long that every living host must have been seen to change, as far as it is known who lives.
    pub fn is_settled(&self, period: Nanos, absence: Absence) -> bool {
        let settled = match absence {
            // A block may have been lost to another and be written again a period late.
            Absence::Lost => Nanos(period.0.saturating_mul(2)),
            // Two readings, a period apart but for what threads are late.
            Absence::Left => Nanos(period.0 / 8 * 7),
        };
        self.read.is_some_and(|(first, last)| last.since(first) >= settled)
    }

    /// All hosts but this one that were seen to live, in the order of their identities.
    pub fn peers(&self, now: Nanos, own: &Identity) -> Vec<PeerHost> {
        let is_own = |r: &Record| r.host == own.host && r.instance == own.instance;
        let others = self.seen.values().filter(|s| !is_own(&s.record));
        let mut peers: Vec<PeerHost> = others
            .filter_map(|s| Some(PeerHost { record: s.record.clone(), age: now.since(s.changed?) }))
            .collect();
        peers.sort_by_key(|peer| (peer.record.host, peer.record.instance));
        peers
    }

    /// Another living instance of the same host: a clone.
    pub fn duplicate(&self, now: Nanos, own: &Identity, period: Nanos) -> Option<Record> {
        let recent = Nanos(period.0.saturating_mul(OLDEST));
        let clones = self.seen.values().filter(|s| s.record.host == own.host);
        clones
            .filter(|s| s.record.instance != own.instance)
            .find(|s| s.changed.is_some_and(|changed| now.since(changed) <= recent))
            .map(|s| s.record.clone())
    }

    /// For how long this record has been seen not to change.
    pub fn silent(&self, now: Nanos, record: &Record) -> Nanos {
        let sighting = self.seen.get(&(record.host, record.instance));
        sighting.map_or(Nanos::ZERO, |s| now.since(s.changed.unwrap_or(s.first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::HostName;
    use crate::record::FAREWELL;
    use crate::record::tests::record;

    fn own() -> Identity {
        Identity {
            host: HostId([1; 16]),
            instance: InstanceId([1; 16]),
            epoch: 1,
            name: HostName::new("own").unwrap(),
        }
    }

    fn at(s: u64) -> Nanos {
        Nanos::from_secs(s)
    }

    #[test]
    fn who_was_never_seen_to_change_does_not_count() {
        let mut sightings = Sightings::default();
        for s in [0, 4, 8, 12] {
            sightings.observe(
                at(s),
                at(4),
                [record(1, 1, s), record(2, 1, 7), record(3, 1, 100 + s)],
                Absence::Lost,
            );
        }
        let peers = sightings.peers(at(13), &own());
        let seen: Vec<_> = peers.iter().map(|p| (p.record.name.as_str(), p.age)).collect();
        // Changed between 8 and 12.
        assert_eq!(seen, [("host3", at(3))]);
        assert!(sightings.is_settled(at(4), Absence::Lost) && !sightings.is_settled(at(7), Absence::Lost));
        assert_eq!(sightings.silent(at(13), &record(2, 1, 7)), at(13));
    }

    #[test]
    fn a_host_that_stops_grows_old_and_an_older_board_brings_nobody_back() {
        let mut sightings = Sightings::default();
        sightings.observe(at(0), at(4), [record(2, 1, 10)], Absence::Lost);
        sightings.observe(at(4), at(4), [record(2, 1, 11)], Absence::Lost);
        sightings.observe(at(8), at(4), [record(2, 1, 5)], Absence::Lost);
        sightings.observe(at(12), at(4), [record(2, 1, 6)], Absence::Lost);
        let peers = sightings.peers(at(12), &own());
        assert_eq!((peers[0].record.sequence, peers[0].age), (11, at(10)));
        // Lost with the file, and remembered for 12 s after its last change, unless it says farewell.
        let mut left = sightings.clone();
        sightings.observe(at(13), at(4), [], Absence::Lost);
        assert_eq!(sightings.peers(at(13), &own()).len(), 1);
        sightings.observe(at(14), at(4), [], Absence::Lost);
        assert!(sightings.peers(at(14), &own()).is_empty());
        left.observe(at(13), at(4), [record(2, 1, FAREWELL)], Absence::Lost);
        assert!(left.peers(at(13), &own()).is_empty());
    }

    #[test]
    fn after_a_long_time_without_a_reading_the_view_settles_anew() {
        let mut sightings = Sightings::default();
        for (now, settled) in
            [(0, false), (4, false), (8, true), (20, true), (33, false), (37, false), (41, true)]
        {
            sightings.observe(at(now), at(4), [record(2, 1, now)], Absence::Lost);
            assert_eq!(sightings.is_settled(at(4), Absence::Lost), settled, "at {now} s");
        }
    }

    #[test]
    fn a_clone_is_noticed_when_it_lives() {
        let mut sightings = Sightings::default();
        // What a former life left.
        sightings.observe(at(0), at(4), [record(1, 1, 1), record(1, 9, 50)], Absence::Lost);
        sightings.observe(at(4), at(4), [record(1, 1, 2), record(1, 9, 50)], Absence::Lost);
        assert_eq!(sightings.duplicate(at(4), &own(), at(4)), None);
        sightings.observe(at(8), at(4), [record(1, 1, 3), record(1, 9, 51)], Absence::Lost);
        assert_eq!(sightings.duplicate(at(8), &own(), at(4)), Some(record(1, 9, 51)));
        // As a host it counts.
        assert_eq!(sightings.peers(at(8), &own()).len(), 1);
        assert_eq!(sightings.duplicate(at(60), &own(), at(4)), None);
    }
}
