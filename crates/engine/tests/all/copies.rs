//! Copies of disks as of one instant with clients at work: every kind of storage, failures of
//! either side, and the end of the engine in between.

use crate::support::copying::{Asks, Copier, Historian, spec};
use crate::support::moving::{
    BLOCK, BOTH, SIZE, datastore, engine, file, kinds, open, pair, place,
};
use crate::support::{Client, PATIENCE};
use headgate_engine::request::{Durability, ExtentKind, Op};
use headgate_engine::{BackendSpec, CopyEvent, Engine, EngineError, Image, MoveError};
use headgate_mirror::TargetContent;
use headgate_mirror::instant::{Outcome, Reason, State};
use headgate_qos::Policy;
use headgate_units::{Bytes, Iops, Nanos};
use std::time::{Duration, Instant};

/// What a disk without clients holds.
fn content(engine: &Engine, disk: headgate_engine::DiskId) -> Vec<u8> {
    let client = Client::new(engine, disk);
    let parts = (0..SIZE).step_by(1 << 20);
    let content = parts.flat_map(|offset| client.read(offset, 1 << 20, 0)).collect();
    client.0.detach(headgate_engine::port::Detach::Now);
    assert!(client.0.wait_gone(PATIENCE));
    content
}

#[test]
fn a_copy_is_of_one_instant_whatever_the_client_does() {
    for shards in BOTH {
        for from in 0..3 {
            for to in 0..3 {
                let (here, there) = (place(), place());
                let engine = engine(shards);
                let (from_kind, backend, image, _) = kinds(here.path()).swap_remove(from);
                let source = open(&engine, datastore(&engine, "a", backend, &[]), image);
                let (to_kind, backend, image, path) = kinds(there.path()).swap_remove(to);
                let target = open(&engine, datastore(&engine, "b", backend, &[]), image);
                eprintln!("from {from_kind} to {to_kind}");
                let client = Client::new(&engine, source);
                let mut guest = Historian::new(&client, (from * 3 + to) as u64);
                (0..400).for_each(|_| guest.step(Asks::Everything, 16));
                while !guest.only_writes() {
                    guest.step(Asks::Writes, 16);
                }
                let begun = guest.now();
                let copier = Copier::begin(&engine, source, target);
                while copier.events.try_recv() != Ok(CopyEvent::Instant) {
                    guest.step(Asks::Writes, 16);
                }
                let taken = guest.now();
                let before = guest.done();
                let ended = loop {
                    guest.step(Asks::Everything, 16);
                    if let Ok(event) = copier.events.try_recv() {
                        break event;
                    }
                };
                assert_eq!(ended, CopyEvent::Ended(Outcome::Complete));
                assert!(guest.done() > before + 20, "the client did something meanwhile");
                (0..200).for_each(|_| guest.step(Asks::Everything, 16));
                guest.settle();
                assert_eq!(copier.next(), CopyEvent::Released);
                guest.check(&content(&engine, target), (begun, taken));
                if let Some(path) = path {
                    // What is durable there: nobody has flushed it but the copy.
                    guest.check(&std::fs::read(path).unwrap(), (begun, taken));
                }
                // The disk has lost nothing.
                let now = guest.now();
                guest.check(&content(&engine, source), (now, now));
                engine.shutdown(PATIENCE).unwrap();
            }
        }
    }
}

#[test]
fn a_hole_stays_a_hole_and_zeroes_that_were_read_become_one() {
    for shards in BOTH {
        let (here, there) = (place(), place());
        let engine = engine(shards);
        let [source, target] = [(&here, "a"), (&there, "b")].map(|(place, name)| {
            let store = datastore(&engine, name, BackendSpec::Files, &[]);
            open(&engine, store, file(&place.path().join("d.img")))
        });
        let client = Client::new(&engine, source);
        client.write(3 << 20, &[7; 1 << 20], 0).unwrap();
        client.write(8 << 20, &[0; 1 << 20], 0).unwrap();
        client.write(SIZE - BLOCK, &[9; BLOCK as usize], 0).unwrap();
        let copier = Copier::begin(&engine, source, target);
        assert_eq!(copier.next(), CopyEvent::Instant);
        copier.ends(Outcome::Complete);
        let reader = Client::new(&engine, target);
        let (result, _, extents) = reader.run(Op::BlockStatus, 0, SIZE);
        result.unwrap();
        let found: Vec<_> = extents.iter().map(|e| (e.kind, e.len)).collect();
        let (hole, data) = (ExtentKind::Hole, ExtentKind::Data);
        // The last chunk is copied whole.
        let chunk = 64 << 10;
        let rest = SIZE - (4 << 20) - chunk;
        assert_eq!(found, [(hole, 3 << 20), (data, 1 << 20), (hole, rest), (data, chunk)]);
        assert_eq!(reader.read(3 << 20, 1 << 20, 0), [7; 1 << 20]);
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_target_that_holds_something_else_is_overwritten_whole() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &[]);
        let other = Client::new(&engine, target);
        other.write(0, &vec![0xaa; SIZE as usize], 0).unwrap();
        let (refused, ..) = spec(source, target, TargetContent::Unknown);
        let refused = engine.begin_copy(refused);
        assert!(matches!(refused, Err(EngineError::DiskBusy { ports: 1 })), "{refused:?}");
        other.0.detach(headgate_engine::port::Detach::Now);
        assert!(other.0.wait_gone(PATIENCE));
        let client = Client::new(&engine, source);
        client.write(5 << 20, &[3; 1 << 20], 0).unwrap();
        let copier = Copier::of(&engine, spec(source, target, TargetContent::Unknown));
        assert_eq!(copier.next(), CopyEvent::Instant);
        copier.ends(Outcome::Complete);
        let held = content(&engine, target);
        let wanted = |at: usize| if (5 << 20..6 << 20).contains(&at) { 3 } else { 0 };
        assert!(held.iter().enumerate().all(|(at, byte)| *byte == wanted(at)));
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_side_that_fails_ends_the_copy_and_no_client_hears_of_the_target() {
    for shards in BOTH {
        for on in ["write", "flush", "all"] {
            let engine = engine(shards);
            let (source, target) = pair(&engine, &[&format!("error=100%,on={on}")]);
            let client = Client::new(&engine, source);
            let mut guest = Historian::new(&client, 5);
            (0..300).for_each(|_| guest.step(Asks::Everything, 16));
            let copier = Copier::begin(&engine, source, target);
            (0..300).for_each(|_| guest.step(Asks::Everything, 16));
            guest.settle();
            assert_eq!(copier.next(), CopyEvent::Instant);
            copier.ends(Outcome::GivenUp(Reason::TargetFailed));
            engine.close_disk(target, PATIENCE).unwrap();
            (0..300).for_each(|_| guest.step(Asks::Everything, 16));
            guest.settle();
            let now = guest.now();
            guest.check(&content(&engine, source), (now, now));
            engine.shutdown(PATIENCE).unwrap();
        }
    }
}

#[test]
fn a_source_that_cannot_be_read_ends_the_copy_and_takes_writes_as_before() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &[]);
        let client = Client::new(&engine, source);
        client.write(0, &[1; 1 << 20], 0).unwrap();
        let store = engine.snapshot().unwrap()[0].0;
        engine.set_layers(store, &["error=100%,on=read".parse().unwrap()]).unwrap();
        let copier = Copier::begin(&engine, source, target);
        // What it would destroy cannot be read: the copy is lost, and not the write.
        client.write(0, &[2; 4096], 0).unwrap();
        assert_eq!(copier.next(), CopyEvent::Instant);
        copier.ends(Outcome::GivenUp(Reason::SourceUnreadable));
        engine.set_layers(store, &[]).unwrap();
        assert_eq!(client.read(0, 8192, 0), [[2; 4096], [1; 4096]].concat());
        engine.shutdown(PATIENCE).unwrap();
    }
}

/// A flush from before the copy fails after it has begun: nobody knows what the disk held then.
#[test]
fn a_flush_that_fails_across_the_instant_ends_the_copy() {
    for shards in BOTH {
        for (op, ends) in [(Op::Flush, true), (Op::Write(Durability::Fua), true), (Op::Read, false)]
        {
            let engine = engine(shards);
            let (source, target) = pair(&engine, &[]);
            let client = Client::new(&engine, source);
            let on = if op == Op::Read { "read" } else { "all" };
            let store = engine.snapshot().unwrap()[0].0;
            let layers = ["delay=300ms".to_owned(), format!("error=100%,on={on},count=1")];
            let layers: Vec<_> = layers.iter().map(|layer| layer.parse().unwrap()).collect();
            engine.set_layers(store, &layers).unwrap();
            let (len, data) = if op == Op::Flush { (0, vec![]) } else { (4096, vec![7; 4096]) };
            let early = client.start(op, 0, len, data, 0);
            // It is at the storage when the copy begins.
            while engine.snapshot().unwrap()[0].1.disks[0].in_flight == 0 {
                std::thread::yield_now();
            }
            let copier = Copier::begin(&engine, source, target);
            early.recv_timeout(PATIENCE).unwrap().0.unwrap_err();
            engine.set_layers(store, &[]).unwrap();
            if ends {
                let first = copier.next();
                let outcome = Outcome::GivenUp(Reason::SourceNotDurable);
                assert!(matches!(first, CopyEvent::Instant | CopyEvent::Ended(_)), "{first:?}");
                if first == CopyEvent::Instant {
                    assert_eq!(copier.next(), CopyEvent::Ended(outcome));
                } else {
                    assert_eq!(first, CopyEvent::Ended(outcome));
                }
            } else {
                assert_eq!(copier.next(), CopyEvent::Instant);
                copier.ends(Outcome::Complete);
            }
            engine.shutdown(PATIENCE).unwrap();
        }
    }
}

#[test]
fn a_copy_is_cancelled_and_leaves_the_disk_as_it_was() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &["delay=50ms"]);
        let client = Client::new(&engine, source);
        client.write(0, &vec![6; SIZE as usize], 0).unwrap();
        let copier = Copier::begin(&engine, source, target);
        assert_eq!(copier.next(), CopyEvent::Instant);
        assert!(matches!(
            engine.copy_progress(copier.id).unwrap().state,
            State::Copying | State::Finishing
        ));
        let again = engine.begin_copy(spec(source, target, TargetContent::Zeroes).0);
        assert!(matches!(again, Err(EngineError::Move(MoveError::Moving))), "{again:?}");
        for disk in [source, target] {
            let busy = engine.close_disk(disk, Duration::ZERO);
            assert!(matches!(busy, Err(EngineError::Move(MoveError::Moving))), "{busy:?}");
        }
        let late = Client::try_new(&engine, source).unwrap();
        assert_eq!(late.read(0, 4096, 0), [6; 4096]);
        engine.cancel_copy(copier.id).unwrap();
        copier.ends(Outcome::Cancelled);
        let over = engine.cancel_copy(copier.id);
        assert!(matches!(over, Err(EngineError::Move(MoveError::Over))), "{over:?}");
        assert!(content(&engine, source).iter().all(|byte| *byte == 6));
        engine.close_disk(target, PATIENCE).unwrap();
        engine.shutdown(PATIENCE).unwrap();
    }
}

/// A target that hangs is felt by nobody while there is room for what is read, and is given up.
#[test]
fn a_target_that_does_not_answer_is_given_up() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &["delay=5s"]);
        let client = Client::new(&engine, source);
        client.write(0, &[1; 1 << 20], 0).unwrap();
        let (mut asked, gauge, events) = spec(source, target, TargetContent::Zeroes);
        asked.terms.patience = Nanos::from_millis(200);
        let copier = Copier { id: engine.begin_copy(asked).unwrap(), gauge, events };
        assert_eq!(copier.next(), CopyEvent::Instant);
        let begun = Instant::now();
        client.write(0, &[2; 4096], 0).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(4), "it waited for the target");
        assert_eq!(copier.next(), CopyEvent::Ended(Outcome::GivenUp(Reason::TargetLost)));
        assert_eq!(client.read(0, 8192, 0), [[2; 4096], [1; 4096]].concat());
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn an_engine_ends_in_the_middle_of_a_copy() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &["delay=20ms"]);
        let client = Client::new(&engine, source);
        client.write(0, &vec![6; SIZE as usize], 0).unwrap();
        let copier = Copier::begin(&engine, source, target);
        assert_eq!(copier.next(), CopyEvent::Instant);
        let mut guest = Historian::new(&client, 9);
        (0..50).for_each(|_| guest.step(Asks::Everything, 8));
        guest.settle();
        let left = engine.clone().shutdown(PATIENCE).unwrap().left;
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_copy_without_a_listener_ends_and_the_disk_goes_on() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &["delay=20ms"]);
        let client = Client::new(&engine, source);
        client.write(0, &vec![6; SIZE as usize], 0).unwrap();
        let (mut asked, _, events) = spec(source, target, TargetContent::Zeroes);
        asked.terms.pace = Policy::default().with_limit(Iops::new(1).ok()).unwrap();
        drop(events);
        engine.begin_copy(asked).unwrap();
        let deadline = Instant::now() + PATIENCE;
        // It is over when the target can be closed.
        while engine.close_disk(target, Duration::ZERO).is_err() {
            assert!(Instant::now() < deadline, "the copy goes on for nobody");
            client.write(0, &[7; 4096], 0).unwrap();
        }
        client.write(4096, &[8; 4096], 0).unwrap();
        assert_eq!(client.read(4096, 4096, 0), [8; 4096]);
        engine.shutdown(PATIENCE).unwrap();
    }
}

/// A disk of 100 IOPS writes to 50 chunks that are not copied yet: each is read first, at its cost.
#[test]
fn what_a_change_has_copied_is_charged_to_the_disk() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &[]);
        let client = Client::new(&engine, source);
        client.write(0, &vec![6; SIZE as usize], 0).unwrap();
        let (mut asked, gauge, events) = spec(source, target, TargetContent::Zeroes);
        let limited = |iops| Policy::default().with_limit(Iops::new(iops).ok()).unwrap();
        asked.terms.pace = limited(1);
        let copier = Copier { id: engine.begin_copy(asked).unwrap(), gauge, events };
        assert_eq!(copier.next(), CopyEvent::Instant);
        engine.set_policy(source, limited(100)).unwrap();
        let begun = Instant::now();
        let chunk = 64 << 10;
        let writes: Vec<_> = (0..50)
            .map(|n| SIZE - (n + 1) * chunk)
            .map(|at| client.start(Op::Write(Durability::Cached), at, 4096, vec![7; 4096], 0))
            .collect();
        for write in writes {
            write.recv_timeout(PATIENCE).unwrap().0.unwrap();
        }
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(900), "100 requests of 100 per second in {took:?}");
        engine.cancel_copy(copier.id).unwrap();
        copier.ends(Outcome::Cancelled);
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_smaller_target_is_refused() {
    let engine = engine(crate::support::moving::Shards::One);
    let (source, _) = pair(&engine, &[]);
    let small = Image::memory(Bytes(SIZE / 2)).unwrap();
    let small = open(&engine, datastore(&engine, "c", BackendSpec::Memory, &[]), small);
    let refused = engine.begin_copy(spec(source, small, TargetContent::Zeroes).0);
    assert!(matches!(refused, Err(EngineError::Move(MoveError::Small { .. }))), "{refused:?}");
    engine.shutdown(PATIENCE).unwrap();
}
