//! What changed between two copies of a disk as of one instant: judged by the bytes of the copies.

use crate::support::copying::{Copier, spec};
use crate::support::moving::{
    BLOCK, BOTH, Mover, Numbers, SIZE, datastore, engine, file, open, place, ram, remote,
};
use crate::support::server::Server;
use crate::support::{Answer, Client, PATIENCE};
use headgate_engine::port::Detach;
use headgate_engine::request::{Durability, Op, Unmap, ZeroSpeed};
use headgate_engine::{
    BackendSpec, CopyEvent, CutOff, DiskId, Engine, EngineError, Image, MoveError,
};
use headgate_mirror::TargetContent;
use headgate_mirror::changes::{ChangedBlocks, Changes, Difference, GRAIN};
use headgate_mirror::instant::Outcome;
use headgate_qos::Policy;
use headgate_units::{Bytes, Iops};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// A client with eight requests under way, which notes what grains it has asked to change.
struct Guest<'a> {
    client: &'a Client,
    numbers: Numbers,
    under_way: VecDeque<Receiver<Answer>>,
    asked: BTreeSet<u64>,
}

impl<'a> Guest<'a> {
    fn new(client: &'a Client, seed: u64) -> Guest<'a> {
        let numbers = Numbers::new(seed);
        Guest { client, numbers, under_way: VecDeque::new(), asked: BTreeSet::new() }
    }

    /// Reads anywhere, and changes what begins in the first half of each MiB.
    fn step(&mut self) {
        let len = [1, 1, 2, 40][self.numbers.below(4) as usize] * BLOCK;
        let at = self.numbers.below(SIZE >> 20) << 20;
        let at = at + self.numbers.below((1 << 19) / BLOCK) * BLOCK;
        let zeroes = Op::WriteZeroes {
            unmap: Unmap::May,
            speed: ZeroSpeed::Any,
            durability: Durability::Cached,
        };
        let op = match self.numbers.below(16) {
            0 => Op::Discard,
            1 => zeroes,
            2 => Op::Flush,
            3..=7 => Op::Read,
            _ => Op::Write(Durability::Cached),
        };
        let (at, len) = match op {
            Op::Read => ((at + (1 << 19)).min(SIZE - len), len),
            Op::Flush => (0, 0),
            _ => (at, len),
        };
        let data = match op {
            Op::Read => vec![0; len as usize],
            Op::Write(_) => vec![1 + self.numbers.below(255) as u8; len as usize],
            _ => Vec::new(),
        };
        if matches!(op, Op::Write(_) | Op::Discard | Op::WriteZeroes { .. }) {
            self.asked.extend(at / GRAIN.0..=(at + len - 1) / GRAIN.0);
        }
        self.under_way.push_back(self.client.start(op, at, len, data, 0));
        while self.under_way.len() > 8 {
            self.hear();
        }
    }

    fn hear(&mut self) {
        if let Some(answer) = self.under_way.pop_front() {
            answer.recv_timeout(PATIENCE).unwrap().0.unwrap();
        }
    }

    fn settle(&mut self) {
        while !self.under_way.is_empty() {
            self.hear();
        }
    }
}

/// What a disk without clients holds.
fn content(engine: &Engine, disk: DiskId) -> Vec<u8> {
    let client = Client::new(engine, disk);
    let parts = (0..SIZE).step_by(1 << 20);
    let content = parts.flat_map(|offset| client.read(offset, 1 << 20, 0)).collect();
    client.0.detach(Detach::Now);
    assert!(client.0.wait_gone(PATIENCE));
    content
}

fn named(changed: &ChangedBlocks) -> BTreeSet<u64> {
    let mut all = BTreeSet::new();
    let mut at = 0;
    while let Some((len, is)) = changed.run_at(at) {
        if is == Difference::Possible {
            all.extend(at / GRAIN.0..(at + len).div_ceil(GRAIN.0));
        }
        at += len;
    }
    all
}

fn different(one: &[u8], other: &[u8]) -> BTreeSet<u64> {
    let grains = one.chunks(GRAIN.0 as usize).zip(other.chunks(GRAIN.0 as usize));
    (0..).zip(grains).filter(|(_, (one, other))| one != other).map(|(grain, _)| grain).collect()
}

/// Copies the disk while its client works, and says what changed since the base. The copy is the
/// base from now on.
fn copied(
    engine: &Engine,
    (source, target): (DiskId, DiskId),
    changes: &Changes,
    guest: &mut Guest<'_>,
) -> ChangedBlocks {
    changes.open();
    let copier = Copier::begin(engine, source, target);
    while copier.events.try_recv() != Ok(CopyEvent::Instant) {
        guest.step();
    }
    let changed = changes.since_base(Bytes(SIZE));
    // What comes from now on belongs to the next one.
    guest.asked.clear();
    loop {
        guest.step();
        match copier.events.try_recv() {
            Ok(event) => break assert_eq!(event, CopyEvent::Ended(Outcome::Complete)),
            Err(_) => continue,
        }
    }
    assert_eq!(copier.next(), CopyEvent::Released);
    changes.advance();
    changed
}

#[test]
fn what_differs_between_two_copies_is_named_wherever_the_disk_moved_meanwhile() {
    for shards in BOTH {
        let (dir, seed) = (place(), 11);
        let engine = engine(shards);
        let here = datastore(&engine, "a", BackendSpec::Files, &[]);
        let there = datastore(&engine, "b", BackendSpec::Memory, &[]);
        let mut disk = open(&engine, here, file(&dir.path().join("d.img")));
        let changes = Arc::new(Changes::new(Bytes(SIZE)));
        engine.track_changes(disk, Arc::clone(&changes)).unwrap();
        let client = Client::new(&engine, disk);
        let mut guest = Guest::new(&client, seed);
        (0..400).for_each(|_| guest.step());
        let first = open(&engine, there, ram());
        copied(&engine, (disk, first), &changes, &mut guest);
        let mut before = content(&engine, first);
        for to in [there, here, there] {
            (0..30).for_each(|_| guest.step());
            // What it asks for after the move has begun, and behind its switch.
            let image = match to == here {
                true => file(&dir.path().join("again.img")),
                false => ram(),
            };
            let target = open(&engine, to, image);
            let mover = Mover::begin(&engine, disk, target);
            (0..30).for_each(|_| guest.step());
            mover.finish();
            engine.close_disk(disk, PATIENCE).unwrap();
            disk = target;
            let tracked = engine.tracked_changes(disk).unwrap();
            assert!(tracked.is_some_and(|tracked| Arc::ptr_eq(&tracked, &changes)));
            (0..30).for_each(|_| guest.step());
            let copy = open(&engine, there, ram());
            let asked = guest.asked.clone();
            let changed = named(&copied(&engine, (disk, copy), &changes, &mut guest));
            let now = content(&engine, copy);
            let missed: Vec<_> = different(&before, &now).difference(&changed).copied().collect();
            assert!(missed.is_empty(), "grains {missed:?} differ, and are not named");
            assert!(asked.is_subset(&changed), "what was asked for long before is named");
            // Nothing but what a client asked to change, and half of the disk is never changed.
            let untouched = |grain: &u64| grain % 16 >= 11;
            assert!(!changed.iter().any(untouched), "what nobody has changed is not named");
            assert!(!different(&before, &now).is_empty() && changed.len() < 400, "{changed:?}");
            before = now;
        }
        guest.settle();
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_copy_that_failed_takes_nothing_away() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = crate::support::moving::pair(&engine, &["error=100%,on=write"]);
        let changes = Arc::new(Changes::new(Bytes(SIZE)));
        engine.track_changes(source, Arc::clone(&changes)).unwrap();
        let client = Client::new(&engine, source);
        client.write(5 * GRAIN.0, &[1; 4096], 0).unwrap();
        changes.open();
        let (spec, gauge, events) = spec(source, target, TargetContent::Zeroes);
        let copier = Copier::of(&engine, (spec, gauge, events));
        assert_eq!(copier.next(), CopyEvent::Instant);
        client.write(9 * GRAIN.0 - 1024, &[2; 4096], 0).unwrap();
        assert!(matches!(copier.next(), CopyEvent::Ended(Outcome::GivenUp(_))));
        assert_eq!(copier.next(), CopyEvent::Released);
        client.write(64 * GRAIN.0, &[3; 4096], 0).unwrap();
        let changed = named(&changes.since_base(Bytes(SIZE)));
        assert_eq!(changed, BTreeSet::from([5, 8, 9, 64]));
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn where_changes_are_noted_stays_while_a_disk_is_copied() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = crate::support::moving::pair(&engine, &[]);
        let changes = Arc::new(Changes::new(Bytes(SIZE)));
        engine.track_changes(source, Arc::clone(&changes)).unwrap();
        let client = Client::new(&engine, source);
        client.write(0, &vec![6; SIZE as usize], 0).unwrap();
        let (mut spec, gauge, events) = spec(source, target, TargetContent::Zeroes);
        // A step in a second, and what is not written is no step: it is under way for long.
        spec.terms.pace = Policy::default().with_limit(Iops::new(1).ok()).unwrap();
        let copier = Copier::of(&engine, (spec, gauge, events));
        assert_eq!(copier.next(), CopyEvent::Instant);
        let refused = engine.track_changes(source, Arc::new(Changes::new(Bytes(SIZE))));
        assert!(matches!(refused, Err(EngineError::Move(MoveError::Moving))), "{refused:?}");
        let tracked = engine.tracked_changes(source).unwrap();
        assert!(tracked.is_some_and(|tracked| Arc::ptr_eq(&tracked, &changes)));
        engine.shutdown(PATIENCE).unwrap();
    }
}

/// What a client had an answer for was copied, and is gone: nobody has asked for that.
#[test]
fn after_a_loss_everything_may_have_changed() {
    let engine = engine(BOTH[0]);
    let all: BTreeSet<u64> = (0..SIZE / GRAIN.0).collect();
    let tracked = |disk| {
        let changes = Arc::new(Changes::new(Bytes(SIZE)));
        engine.track_changes(disk, Arc::clone(&changes)).unwrap();
        changes
    };
    // A storage that cannot make durable what it has taken.
    let store = datastore(&engine, "failing", BackendSpec::Memory, &["error=100%,on=flush"]);
    let disk = open(&engine, store, ram());
    let changes = tracked(disk);
    let client = Client::new(&engine, disk);
    client.write(0, &[1; 4096], 0).unwrap();
    assert_eq!(named(&changes.since_base(Bytes(SIZE))), BTreeSet::from([0]));
    client.run(Op::Flush, 0, 0).0.unwrap_err();
    assert_eq!(named(&changes.since_base(Bytes(SIZE))), all);
    // A server that dies with what nobody has flushed, and one that has nothing of that kind.
    for flushed in [false, true] {
        let mut server = Server::start(SIZE as usize);
        let disk = remote(&engine, &format!("remote-{flushed}"), &server);
        let changes = tracked(disk);
        let client = Client::new(&engine, disk);
        client.write(0, &[1; 4096], 0).unwrap();
        if flushed {
            client.run(Op::Flush, 0, 0).0.unwrap();
        }
        server.crash();
        server.listen();
        let expected = if flushed { vec![1] } else { vec![0; 4096] };
        assert_eq!(client.read(0, 4096, 0)[..expected.len()], expected);
        let named = named(&changes.since_base(Bytes(SIZE)));
        assert_eq!(named, if flushed { BTreeSet::from([0]) } else { all.clone() });
    }
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn what_was_cut_off_has_changed_and_a_disk_that_is_opened_anew_knows_nothing() {
    let dir = place();
    let path = dir.path().join("d.img");
    let engine = engine(BOTH[0]);
    let store = datastore(&engine, "a", BackendSpec::Files, &[]);
    let disk = open(&engine, store, file(&path));
    assert!(engine.tracked_changes(disk).unwrap().is_none());
    let changes = Arc::new(Changes::new(Bytes(SIZE)));
    engine.track_changes(disk, Arc::clone(&changes)).unwrap();
    let cut = SIZE - 3 * GRAIN.0;
    engine.resize_disk(disk, Bytes(cut), CutOff::Discard).unwrap();
    engine.resize_disk(disk, Bytes(SIZE), CutOff::Keep).unwrap();
    let changed = named(&changes.since_base(Bytes(SIZE)));
    assert_eq!(changed, (cut / GRAIN.0..SIZE / GRAIN.0).collect());
    engine.close_disk(disk, PATIENCE).unwrap();
    let image = Image::open(&path, headgate_engine::Caching::PreferDirect, PATIENCE).unwrap();
    let again = open(&engine, store, image);
    assert!(engine.tracked_changes(again).unwrap().is_none());
    engine.shutdown(PATIENCE).unwrap();
}
