//! A publisher, what stands there after it, and what a view makes of that.

use crate::words::{datastore, disk, header};
use headgate_fleet::*;
use headgate_units::Nanos;
use proptest::prelude::*;
use std::collections::BTreeMap;

const HOST: HostKey = HostKey([1; 16]);

fn word() -> HostWord {
    HostWord {
        name: "one".into(),
        version: "0.1.0".into(),
        api: None,
        running: Running::Yes,
        period: period(3),
        datastore_chunks: 0,
        disk_chunks: 0,
        disks: 0,
        failed: 0,
        missed: 0,
        received: Rate(0),
        bandwidth: Rate(0),
        queued: 0,
    }
}

fn summary(datastores: &[DatastoreWord], disks: &[DiskWord]) -> Summary {
    let (datastores, disks) = (datastores.to_vec(), disks.to_vec());
    Summary { host: word(), datastores, disks, advice: Vec::new() }
}

/// The meeting place: keys in their order, and how many bytes were written.
#[derive(Default)]
struct Place {
    keys: BTreeMap<String, Vec<u8>>,
    puts: BTreeMap<String, u32>,
}

impl Place {
    fn write(&mut self, writes: &[Write]) {
        for write in writes {
            match write {
                Write::Put(key, value) => {
                    *self.puts.entry(key.to_string()).or_default() += 1;
                    self.keys.insert(key.to_string(), value.clone());
                }
                Write::RemoveFrom(key) => {
                    let (from, to) = (key.to_string(), key.end_of_kind());
                    self.keys.retain(|key, _| *key < from || *key >= to);
                }
            }
        }
    }

    fn read(&self) -> View {
        let mut view = View::new(HostKey([9; 16]));
        view.begin_reading();
        for (key, value) in &self.keys {
            view.put(Nanos(0), Found::Told, key.as_bytes(), value);
        }
        view.end_reading();
        view
    }
}

fn shown(view: &View) -> (Vec<DatastoreWord>, Vec<DiskWord>) {
    let host = view.hosts(Nanos(0)).next().expect("one host");
    let datastores = host.datastores().map(|(one, _)| one.clone()).collect();
    (datastores, host.disks().map(|(one, _)| one.clone()).collect())
}

/// Within a twentieth, or 1, by the definition of what may be held back.
fn about(shown: u64, is: u64) -> bool {
    shown.abs_diff(is) * 19 <= is.max(19) && (shown == 0) == (is == 0)
}

fn unique<T>(list: Vec<T>, name: impl Fn(&T) -> String) -> Vec<T> {
    let mut seen = std::collections::BTreeSet::new();
    list.into_iter().filter(|one| seen.insert(name(one))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Whatever was there, whatever of it was lost on the way: when a host has had its turns, the
    /// view shows what it has.
    #[test]
    fn in_the_end_the_view_shows_what_is(
        turns in prop::collection::vec(
            (prop::collection::vec(datastore(), 0..20), prop::collection::vec(disk(), 0..150),
             0u8..4), 1..6),
    ) {
        let mut place = Place::default();
        let mut publisher = Publisher::new(HOST);
        let mut now = Nanos::from_secs(100);
        let mut last = None;
        for (datastores, disks, fate) in turns {
            let datastores = unique(datastores, |one| one.name.clone());
            let disks = unique(disks, |one| one.name.clone());
            now += period(3);
            let writes = publisher.turn(now, header(), summary(&datastores, &disks));
            match fate {
                // Nobody heard it.
                0 => {}
                // It was done, and the answer was lost.
                1 => place.write(&writes),
                // The daemon was killed, and is another one.
                2 => {
                    place.write(&writes);
                    publisher = Publisher::new(HOST);
                }
                _ => {
                    place.write(&writes);
                    publisher.told();
                }
            }
            last = Some((datastores, disks));
        }
        let (datastores, disks) = last.unwrap();
        for _ in 0..4 {
            now += period(3);
            place.write(&publisher.turn(now, header(), summary(&datastores, &disks)));
            publisher.told();
        }
        let (shown_stores, shown_disks) = shown(&place.read());
        let names = |list: &[DiskWord]| list.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        prop_assert_eq!(names(&shown_disks), names(&disks));
        prop_assert_eq!(shown_stores.len(), datastores.len());
        for (shown, is) in shown_disks.iter().zip(&disks) {
            prop_assert!(about(shown.received.0, is.received.0), "{:?} {:?}", shown, is);
            prop_assert!(about(shown.queued, is.queued));
            prop_assert_eq!(
                (&shown.vm, shown.reservation, shown.service, shown.promise, shown.size),
                (&is.vm, is.reservation, is.service, is.promise, is.size)
            );
        }
        for (shown, is) in shown_stores.iter().zip(&datastores) {
            prop_assert_eq!(&shown.name, &is.name);
            prop_assert!(about(shown.bandwidth.0, is.bandwidth.0));
        }
    }
}

fn many(count: usize, rate: u64) -> Vec<DiskWord> {
    let disk = |n: usize| DiskWord {
        name: format!("d{n:04}"),
        vm: None,
        datastore: "ds".into(),
        service: Service::Serving,
        size: headgate_units::Bytes(1 << 30),
        reservation: None,
        limit: None,
        shares: 1_000,
        received: Rate(rate),
        bandwidth: Rate(rate * 4096),
        promise: Promise::Kept,
        queued: 0,
        latency: None,
        waits: None,
        workload: None,
    };
    (0..count).map(disk).collect()
}

/// By the definition of the rates: the host once a period, disks once in three at most, and what
/// has not changed not at all.
#[test]
fn what_changes_is_told_at_a_bounded_rate_and_what_does_not_is_not() {
    let (mut place, mut publisher) = (Place::default(), Publisher::new(HOST));
    let mut now = Nanos::from_secs(100);
    for turn in 0..31 {
        // The second half of 128 disks changes all the time, the first by 2 %.
        let mut disks = many(128, 1_000 + 20 * (turn % 2));
        for disk in &mut disks[64..] {
            disk.received = Rate(1_000 * (1 + turn));
        }
        place.write(&publisher.turn(now, header(), summary(&[], &disks)));
        publisher.told();
        now += period(1);
    }
    let puts = |kind| place.puts[&PartKey { host: HOST, kind }.to_string()];
    assert_eq!(puts(PartKind::Host), 31);
    assert_eq!([puts(PartKind::Disks(0)), puts(PartKind::Disks(1))], [1, 11]);
    assert_eq!(puts(PartKind::Advice), 1);
}

#[test]
fn a_part_that_is_gone_is_told_again() {
    let (mut place, mut publisher) = (Place::default(), Publisher::new(HOST));
    let mut now = Nanos::from_secs(100);
    let mut turn = |publisher: &mut Publisher, place: &mut Place| {
        now += period(1);
        place.write(&publisher.turn(now, header(), summary(&[], &many(3, 5))));
        publisher.told();
    };
    turn(&mut publisher, &mut place);
    let key = PartKey { host: HOST, kind: PartKind::Disks(0) }.to_string();
    place.keys.remove(&key);
    turn(&mut publisher, &mut place);
    assert!(!place.keys.contains_key(&key), "nobody said that it is gone");
    publisher.lost(PartKind::Disks(0));
    turn(&mut publisher, &mut place);
    assert!(place.keys.contains_key(&key));
    place.keys.clear();
    publisher.lost_all();
    turn(&mut publisher, &mut place);
    assert_eq!(place.keys.len(), 3);
}

#[test]
fn the_more_hosts_the_less_often_each() {
    let seconds = |hosts| period(hosts).0 / 1_000_000_000;
    assert_eq!([0, 1, 50, 200, 600, 1_024].map(seconds), [5, 5, 5, 20, 60, 60]);
}

#[test]
fn more_disks_than_are_told_are_counted() {
    let (mut place, mut publisher) = (Place::default(), Publisher::new(HOST));
    let all = many(DISKS_MAX + 5, 1);
    let mut summary = summary(&[], &all);
    summary.host.disks = all.len() as u64;
    place.write(&publisher.turn(Nanos::from_secs(1), header(), summary));
    let view = place.read();
    let host = view.hosts(Nanos(0)).next().unwrap();
    assert_eq!((host.disks().count(), host.word.disks), (DISKS_MAX, all.len() as u64));
}

/// Also those that an earlier run of the daemon has left.
#[test]
fn chunks_that_are_no_more_are_removed() {
    let (mut place, mut publisher) = (Place::default(), Publisher::new(HOST));
    let now = Nanos::from_secs(100);
    let turn = |publisher: &mut Publisher, place: &mut Place, count, periods| {
        let now = now + Nanos(period(3).0 * periods);
        place.write(&publisher.turn(now, header(), summary(&[], &many(count, 5))));
        publisher.told();
        place.keys.keys().filter(|key| key.contains("/disks-")).count()
    };
    assert_eq!(turn(&mut publisher, &mut place, 3 * DISKS_EACH, 0), 3);
    let mut publisher = Publisher::new(HOST);
    assert_eq!(turn(&mut publisher, &mut place, DISKS_EACH + 1, 1), 2);
    assert_eq!(turn(&mut publisher, &mut place, 1, 4), 1);
}
