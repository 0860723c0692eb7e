//! Which hosts' records still count, and which say that this machine was cloned.
//!
//! Who is alive is decided by [`headgate_qos::window::Sightings`], in the simulator as here. This
//! is what only records have: a farewell, and the identity of who wrote them.

use crate::identity::{HostId, Identity, InstanceId};
use crate::record::Record;
use headgate_qos::window::{self, ALIVE_PERIODS, Absence, Alive, Peer, Posted, Rank};
use headgate_units::Nanos;

/// Another host, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerHost {
    /// What it said last.
    pub record: Record,
    /// How long ago, by our clock.
    pub age: Nanos,
    /// Where its identity stands beside ours.
    pub rank: Rank,
}

impl PeerHost {
    /// What the window controller needs of it.
    pub fn peer(&self) -> Peer {
        Peer { report: self.record.report, age: self.age, rank: self.rank }
    }
}

type Key = (HostId, InstanceId);

fn key_of(record: &Record) -> Key {
    (record.host, record.instance)
}

/// What was read of a board so far.
#[derive(Clone, Debug)]
pub struct Sightings(window::Sightings<Key, Record>);

impl Sightings {
    /// Nothing read yet of a board on which absence means this.
    pub fn new(absence: Absence) -> Sightings {
        Sightings(window::Sightings::new(absence))
    }

    /// Takes in all records that were on the board at `now`, in periods of `period`.
    /// O(n log n) for n records.
    pub fn observe(
        &mut self,
        now: Nanos,
        period: Nanos,
        records: impl IntoIterator<Item = Record>,
    ) {
        let (farewells, records): (Vec<Record>, Vec<Record>) =
            records.into_iter().partition(Record::is_farewell);
        farewells.iter().for_each(|record| self.0.forget(&key_of(record)));
        let posted = |record: Record| Posted {
            host: key_of(&record),
            sequence: record.sequence,
            report: record,
        };
        self.0.observe(now, period, records.into_iter().map(posted));
    }

    /// Whether the board has been read for so long that every living host must have been seen to
    /// change.
    pub fn is_settled(&self, period: Nanos) -> bool {
        self.0.is_settled(period)
    }

    /// All hosts but this one that were seen to change, in the order of their identities. O(n).
    pub fn peers(&self, now: Nanos, own: &Identity) -> Vec<PeerHost> {
        let own = (own.host, own.instance);
        let others = self.0.alive(now).filter(|alive| *alive.host != own);
        let peer = |alive: Alive<'_, Key, Record>| PeerHost {
            record: alive.report.clone(),
            age: alive.age,
            rank: if *alive.host < own { Rank::Before } else { Rank::After },
        };
        others.map(peer).collect()
    }

    /// Another living instance of the same host: a clone. O(n).
    pub fn duplicate(&self, now: Nanos, own: &Identity, period: Nanos) -> Option<Record> {
        let recent = Nanos(period.0.saturating_mul(ALIVE_PERIODS));
        let is_clone = |alive: &Alive<'_, Key, Record>| {
            let (host, instance) = *alive.host;
            host == own.host && instance != own.instance && alive.age <= recent
        };
        self.0.alive(now).find(is_clone).map(|alive| alive.report.clone())
    }

    /// For how long this record has been seen not to change. O(log n).
    pub fn silent(&self, now: Nanos, record: &Record) -> Nanos {
        self.0.silent(now, &key_of(record))
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
        let mut sightings = Sightings::new(Absence::Lost);
        for s in [0, 4, 8, 12] {
            sightings.observe(
                at(s),
                at(4),
                [record(1, 1, s), record(2, 1, 7), record(3, 1, 100 + s)],
            );
        }
        let peers = sightings.peers(at(13), &own());
        let seen: Vec<_> = peers.iter().map(|p| (p.record.name.as_str(), p.age)).collect();
        // Changed between 8 and 12.
        assert_eq!(seen, [("host3", at(3))]);
        assert!(sightings.is_settled(at(4)) && !sightings.is_settled(at(7)));
        assert_eq!(sightings.silent(at(13), &record(2, 1, 7)), at(13));
    }

    #[test]
    fn a_host_that_stops_grows_old_and_an_older_board_brings_nobody_back() {
        let mut sightings = Sightings::new(Absence::Lost);
        sightings.observe(at(0), at(4), [record(2, 1, 10)]);
        sightings.observe(at(4), at(4), [record(2, 1, 11)]);
        sightings.observe(at(8), at(4), [record(2, 1, 5)]);
        sightings.observe(at(12), at(4), [record(2, 1, 6)]);
        let peers = sightings.peers(at(12), &own());
        assert_eq!((peers[0].record.sequence, peers[0].age), (11, at(10)));
        // Lost with the file, and remembered for 12 s after its last change, unless it says
        // farewell.
        let mut left = sightings.clone();
        sightings.observe(at(13), at(4), []);
        assert_eq!(sightings.peers(at(13), &own()).len(), 1);
        sightings.observe(at(14), at(4), []);
        assert!(sightings.peers(at(14), &own()).is_empty());
        left.observe(at(13), at(4), [record(2, 1, FAREWELL)]);
        assert!(left.peers(at(13), &own()).is_empty());
    }

    #[test]
    fn after_a_long_time_without_a_reading_the_view_settles_anew() {
        let mut sightings = Sightings::new(Absence::Lost);
        for (now, settled) in
            [(0, false), (4, false), (8, true), (20, true), (33, false), (37, false), (41, true)]
        {
            sightings.observe(at(now), at(4), [record(2, 1, now)]);
            assert_eq!(sightings.is_settled(at(4)), settled, "at {now} s");
        }
    }

    #[test]
    fn a_clone_is_noticed_when_it_lives() {
        let mut sightings = Sightings::new(Absence::Lost);
        // What a former life left.
        sightings.observe(at(0), at(4), [record(1, 1, 1), record(1, 9, 50)]);
        sightings.observe(at(4), at(4), [record(1, 1, 2), record(1, 9, 50)]);
        assert_eq!(sightings.duplicate(at(4), &own(), at(4)), None);
        sightings.observe(at(8), at(4), [record(1, 1, 3), record(1, 9, 51)]);
        assert_eq!(sightings.duplicate(at(8), &own(), at(4)), Some(record(1, 9, 51)));
        // As a host it counts.
        assert_eq!(sightings.peers(at(8), &own()).len(), 1);
        assert_eq!(sightings.duplicate(at(60), &own(), at(4)), None);
    }
}
