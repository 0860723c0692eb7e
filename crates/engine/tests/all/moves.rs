//! Live moves of disks with clients at work: every kind of storage, failures of the target, and the
//! end of the engine in between.

use crate::support::moving::{
    BLOCK, BOTH, Mover, SIZE, Worker, datastore, engine, file, kinds, open, pair, place, ram,
    remote,
};
use crate::support::server::Server;
use crate::support::{Answer, Client, Message, PATIENCE};
use headgate_engine::port::{Detach, PageUse};
use headgate_engine::request::{Durability, ExtentKind, IoError, Op, Unmap, ZeroSpeed};
use headgate_engine::{
    BackendSpec, DiskSpec, Engine, EngineError, HoldReads, HoldWrites, Image, MoveError, MoveEvent,
    TroublePolicy,
};
use headgate_mirror::{Outcome, Reason, Record, Side, State, TargetContent, Word};
use headgate_nbd::wire::export;
use headgate_qos::Policy;
use headgate_units::{Bytes, Nanos};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

#[test]
fn a_disk_moves_between_all_kinds_of_storage_with_a_client_at_work() {
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
                let mut worker = Worker::new(&client, (from * 3 + to) as u64);
                (0..400).for_each(|_| worker.step(16));
                let before = worker.done;
                let mover = Mover::begin(&engine, source, target);
                // The record of the switch is asked for while the client works.
                let deadline = Instant::now() + 6 * PATIENCE;
                let asked = loop {
                    worker.step(16);
                    match mover.events.try_recv() {
                        Ok(event) => break event,
                        Err(_) => {
                            assert!(
                                Instant::now() < deadline,
                                "{:?}",
                                engine.move_progress(mover.id)
                            )
                        }
                    }
                };
                assert_eq!(asked, MoveEvent::Record(Record::Switched));
                (0..200).for_each(|_| worker.step(16));
                let during = worker.done - before;
                assert!(during > 100, "{during} requests during the move");
                engine.move_recorded(mover.id, Word::Made).unwrap();
                (0..200).for_each(|_| worker.step(16));
                worker.settle();
                assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
                assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
                engine.close_disk(source, PATIENCE).unwrap();
                (0..200).for_each(|_| worker.step(16));
                worker.check();
                worker.client.run(Op::Flush, 0, 0).0.unwrap();
                let content = std::mem::take(&mut worker.content);
                engine.shutdown(PATIENCE).unwrap();
                if let Some(path) = path {
                    assert!(std::fs::read(path).unwrap() == content, "the image at the target");
                }
            }
        }
    }
}

#[test]
fn a_hole_stays_a_hole_and_what_comes_behind_the_copy_is_copied_too() {
    for shards in BOTH {
        let (here, there) = (place(), place());
        let engine = engine(shards);
        let source = open(
            &engine,
            datastore(&engine, "a", BackendSpec::Files, &[]),
            file(&here.path().join("d.img")),
        );
        let target = open(
            &engine,
            datastore(&engine, "b", BackendSpec::Files, &[]),
            file(&there.path().join("d.img")),
        );
        let client = Client::new(&engine, source);
        client.write(3 << 20, &[7; 1 << 20], 0).unwrap();
        client.write(SIZE - BLOCK, &[9; BLOCK as usize], 0).unwrap();
        let mover = Mover::begin(&engine, source, target);
        mover.finish();
        assert_eq!(client.read(3 << 20, 1 << 20, 0), [7; 1 << 20]);
        let (result, _, extents) = client.run(Op::BlockStatus, 0, SIZE);
        result.unwrap();
        let found: Vec<_> = extents.iter().map(|e| (e.kind, e.len)).collect();
        let (hole, data) = (ExtentKind::Hole, ExtentKind::Data);
        let rest = SIZE - (4 << 20) - BLOCK;
        assert_eq!(found, [(hole, 3 << 20), (data, 1 << 20), (hole, rest), (data, BLOCK)]);
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_target_that_holds_something_else_is_overwritten_whole() {
    for shards in BOTH {
        let engine = engine(shards);
        let source = open(&engine, datastore(&engine, "a", BackendSpec::Memory, &[]), ram());
        let target = open(&engine, datastore(&engine, "b", BackendSpec::Memory, &[]), ram());
        let other = Client::new(&engine, target);
        other.write(0, &vec![0xaa; SIZE as usize], 0).unwrap();
        let refused = engine.begin_move(Mover::spec(source, target, TargetContent::Unknown).0);
        assert!(matches!(refused, Err(EngineError::DiskBusy { ports: 1 })), "{refused:?}");
        other.0.detach(Detach::Now);
        assert!(other.0.wait_gone(PATIENCE));
        let client = Client::new(&engine, source);
        let mut worker = Worker::new(&client, 4);
        (0..20).for_each(|_| worker.step(4));
        let mover = Mover::begin_unrecorded(&engine, source, target, TargetContent::Unknown);
        mover.record(Record::Started, Word::Made);
        mover.finish();
        worker.check();
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_failing_target_ends_the_move_and_no_client_hears_of_it() {
    for shards in BOTH {
        for on in ["write", "flush", "all"] {
            let engine = engine(shards);
            let (source, target) = pair(&engine, &[&format!("error=100%,on={on}")]);
            let client = Client::new(&engine, source);
            let mut worker = Worker::new(&client, 5);
            (0..300).for_each(|_| worker.step(16));
            let mover = Mover::begin(&engine, source, target);
            for _ in 0..300 {
                worker.step(16);
            }
            worker.settle();
            mover.fails(Outcome::Failed(Reason::TargetFailed));
            engine.close_disk(target, PATIENCE).unwrap();
            (0..300).for_each(|_| worker.step(16));
            worker.check();
            engine.shutdown(PATIENCE).unwrap();
        }
    }
}

#[test]
fn a_cancelled_move_leaves_the_disk_where_it_was() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &[]);
        let client = Client::new(&engine, source);
        let mut worker = Worker::new(&client, 6);
        let mover = Mover::begin_unrecorded(&engine, source, target, TargetContent::Zeroes);
        engine.pause_move(mover.id).unwrap();
        mover.record(Record::Started, Word::Made);
        (0..300).for_each(|_| worker.step(16));
        let progress = engine.move_progress(mover.id).unwrap();
        assert_eq!(progress.state, State::Paused);
        let again = engine.begin_move(Mover::spec(source, target, TargetContent::Zeroes).0);
        assert!(matches!(again, Err(EngineError::Move(MoveError::Moving))), "{again:?}");
        let busy = engine.close_disk(source, Duration::ZERO);
        assert!(matches!(busy, Err(EngineError::Move(MoveError::Moving))), "{busy:?}");
        client.run(Op::Flush, 0, 0).0.unwrap();
        let late = Client::try_new(&engine, source);
        assert_eq!(late.unwrap().run(Op::Flush, 0, 0).0, Ok(()));
        engine.cancel_move(mover.id).unwrap();
        worker.settle();
        mover.fails(Outcome::Cancelled);
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_client_that_comes_during_or_after_a_move_is_served() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &[]);
        let first = Client::new(&engine, source);
        first.write(0, &[1; 4096], 0).unwrap();
        let mover = Mover::begin(&engine, source, target);
        assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
        let during = Client::new(&engine, source);
        during.write(4096, &[2; 4096], 0).unwrap();
        engine.move_recorded(mover.id, Word::Made).unwrap();
        assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
        assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
        let after = Client::new(&engine, source);
        engine.close_disk(source, PATIENCE).unwrap();
        assert_eq!(after.read(0, 8192, 0), [[1; 4096], [2; 4096]].concat());
        let new = Client::new(&engine, target);
        assert_eq!(new.read(0, 8192, 0), [[1; 4096], [2; 4096]].concat());
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_switch_that_is_not_recorded_is_tried_again_and_in_doubt_nothing_is_decided() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &[]);
        let client = Client::new(&engine, source);
        let mut worker = Worker::new(&client, 8);
        (0..100).for_each(|_| worker.step(8));
        let mover = Mover::begin(&engine, source, target);
        mover.record(Record::Switched, Word::NotMade);
        (0..100).for_each(|_| worker.step(8));
        assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
        engine.move_recorded(mover.id, Word::Unknown).unwrap();
        let refused = engine.cancel_move(mover.id);
        assert!(
            matches!(refused, Err(EngineError::Move(MoveError::NotCancelled(_)))),
            "{refused:?}"
        );
        (0..100).for_each(|_| worker.step(8));
        worker.settle();
        engine.move_recorded(mover.id, Word::Made).unwrap();
        assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
        assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
        engine.close_disk(source, PATIENCE).unwrap();
        worker.check();
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn an_engine_ends_in_the_middle_of_a_move() {
    for shards in BOTH {
        for word in [None, Some(Word::Unknown)] {
            let engine = engine(shards);
            let (source, target) = pair(&engine, &["delay=1ms"]);
            let client = Client::new(&engine, source);
            let mut worker = Worker::new(&client, 9);
            let mover = Mover::begin(&engine, source, target);
            if let Some(word) = word {
                mover.record(Record::Switched, word);
            }
            (0..50).for_each(|_| worker.step(8));
            worker.settle();
            let left = engine.clone().shutdown(PATIENCE).unwrap().left;
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

#[test]
fn an_engine_ends_though_a_request_waits_for_the_word_on_the_switch() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &[]);
        let client = Client::new(&engine, source);
        let mover = Mover::begin(&engine, source, target);
        mover.record(Record::Switched, Word::Unknown);
        let store = engine.snapshot().unwrap()[0].0;
        engine.set_layers(store, &["error=100%,on=write".parse().unwrap()]).unwrap();
        let wait = client.start(Op::Write(Durability::Cached), 0, 4096, vec![1; 4096], 0);
        client.run(Op::Read, 1 << 20, 4096).0.unwrap();
        assert!(wait.try_recv().is_err(), "the source failed it, and the target may count");
        let left = engine.clone().shutdown(Duration::from_millis(500)).unwrap().left;
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_target_that_does_not_answer_is_given_up() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &["delay=5s"]);
        let client = Client::new(&engine, source);
        client.write(0, &[1; 1 << 20], 0).unwrap();
        let (mut spec, events) = Mover::spec(source, target, TargetContent::Zeroes);
        spec.terms.patience = Nanos::from_millis(200);
        let mover = Mover { engine: &engine, id: engine.begin_move(spec).unwrap(), events };
        mover.record(Record::Started, Word::Made);
        // Behind the step of the copy that hangs.
        let begun = Instant::now();
        let wait = client.start(Op::Write(Durability::Cached), 0, 4096, vec![2; 4096], 0);
        let (result, ..) = wait.recv_timeout(PATIENCE).unwrap();
        result.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(4), "it waited for the target");
        mover.fails(Outcome::Failed(Reason::TargetLost));
        assert_eq!(client.read(0, 4096, 0), [2; 4096]);
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_disk_moves_to_a_server_and_back_and_the_server_has_it_durably() {
    for shards in BOTH {
        let server = Server::start(SIZE as usize);
        server.state().content.fill(0x55);
        let engine = engine(shards);
        let near = open(&engine, datastore(&engine, "a", BackendSpec::Memory, &[]), ram());
        let far = remote(&engine, "b", &server);
        let client = Client::new(&engine, near);
        let mut worker = Worker::new(&client, 10);
        (0..50).for_each(|_| worker.step(8));
        let mover = Mover::begin_unrecorded(&engine, near, far, TargetContent::Unknown);
        mover.record(Record::Started, Word::Made);
        let asked = loop {
            worker.step(8);
            if let Ok(event) = mover.events.try_recv() {
                break event;
            }
        };
        assert_eq!(asked, MoveEvent::Record(Record::Switched));
        worker.settle();
        let flush = client.run(Op::Flush, 0, 0);
        flush.0.unwrap();
        assert!(server.state().durable == worker.content, "it is durable before it counts");
        engine.move_recorded(mover.id, Word::Made).unwrap();
        assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
        assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
        engine.close_disk(near, PATIENCE).unwrap();
        (0..50).for_each(|_| worker.step(8));
        let back = open(&engine, datastore(&engine, "c", BackendSpec::Memory, &[]), ram());
        let mover = Mover::begin(&engine, far, back);
        mover.finish();
        engine.close_disk(far, PATIENCE).unwrap();
        worker.check();
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn what_a_server_may_have_lost_before_a_move_is_told_during_it() {
    for shards in BOTH {
        let mut server = Server::start(SIZE as usize);
        let engine = engine(shards);
        let far = remote(&engine, "a", &server);
        let near = open(&engine, datastore(&engine, "b", BackendSpec::Memory, &[]), ram());
        let client = Client::new(&engine, far);
        client.write(0, &[1; 4096], 0).unwrap();
        server.crash();
        server.listen();
        // Answered by the server that came back.
        assert_eq!(client.read(0, 4096, 0), [0; 4096]);
        let mover = Mover::begin_unrecorded(&engine, far, near, TargetContent::Zeroes);
        engine.pause_move(mover.id).unwrap();
        mover.record(Record::Started, Word::Made);
        client.run(Op::Read, 0, 4096).0.unwrap();
        let lost = client.run(Op::Flush, 0, 0).0;
        assert_eq!(lost, Err(IoError::Backend(libc::EIO)), "the write is lost");
        mover.fails(Outcome::Failed(Reason::SourceNotDurable));
        client.run(Op::Flush, 0, 0).0.unwrap();
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn what_a_side_holds_can_be_given_up() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &[]);
        let writes = HoldWrites::Always;
        engine.set_trouble(source, TroublePolicy { writes, ..Default::default() }).unwrap();
        let client = Client::new(&engine, source);
        let mover = Mover::begin(&engine, source, target);
        assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
        let store = engine.snapshot().unwrap()[0].0;
        engine.set_layers(store, &["error=100%,on=write".parse().unwrap()]).unwrap();
        let held = client.start(Op::Write(Durability::Cached), 0, 4096, vec![1; 4096], 0);
        assert!(held.recv_timeout(Duration::from_millis(300)).is_err(), "it is held");
        let (answer, count) = channel();
        client.0.command(Box::new(Message::GiveUp(answer))).unwrap();
        assert_eq!(count.recv_timeout(PATIENCE).unwrap(), 1);
        // The journal may say that the target counts, and that has the write.
        assert!(held.recv_timeout(Duration::from_millis(100)).is_err(), "nobody knows yet");
        engine.move_recorded(mover.id, Word::Made).unwrap();
        assert_eq!(held.recv_timeout(PATIENCE).unwrap().0, Ok(()));
        assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
        assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
        assert_eq!(client.read(0, 4096, 0), [1; 4096]);
        // The target does about trouble what the source did.
        let snapshot = &engine.snapshot().unwrap()[1].1;
        assert_eq!(snapshot.disks[0].trouble.policy.writes, writes);
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn both_sides_have_the_same_however_a_guest_changes_its_buffers() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &["delay=300ms,on=write"]);
        let client = Client::new(&engine, source);
        let mover = Mover::begin(&engine, source, target);
        assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
        let wait = client.start(Op::Write(Durability::Cached), 0, 4096, vec![1; 4096], 0);
        // The source has it by now; the target takes it later.
        client.run(Op::Flush, 0, 0).0.unwrap();
        let (answer, done) = channel();
        client.0.command(Box::new(Message::Scribble(2, answer))).unwrap();
        done.recv_timeout(PATIENCE).unwrap();
        assert_eq!(wait.recv_timeout(PATIENCE).unwrap().0, Ok(()));
        let before = client.read(0, 4096, 0);
        engine.move_recorded(mover.id, Word::Made).unwrap();
        assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
        assert_eq!(client.read(0, 4096, 0), before);
        engine.shutdown(PATIENCE).unwrap();
    }
}

/// A slow source, with a write under way that came before the move, and a move.
fn elder<'a>(engine: &'a Engine, client: &mut Option<Client>) -> (Receiver<Answer>, Mover<'a>) {
    let slow = &["delay=400ms,on=write"];
    let source = open(engine, datastore(engine, "a", BackendSpec::Memory, slow), ram());
    let target = open(engine, datastore(engine, "b", BackendSpec::Memory, &[]), ram());
    let client = client.insert(Client::new(engine, source));
    let wait = client.start(Op::Write(Durability::Cached), 0, 4096, vec![1; 4096], 0);
    // Who asks behind it is answered when it is at the storage.
    client.run(Op::Read, 1 << 20, 4096).0.unwrap();
    (wait, Mover::begin(engine, source, target))
}

#[test]
fn what_came_before_the_move_is_copied() {
    for shards in BOTH {
        let (engine, mut client) = (engine(shards), None);
        let (wait, mover) = elder(&engine, &mut client);
        mover.finish();
        assert_eq!(wait.recv_timeout(PATIENCE).unwrap().0, Ok(()));
        assert_eq!(client.unwrap().read(0, 4096, 0), [1; 4096]);
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_block_is_not_locked_while_a_write_from_before_the_move_is_under_way() {
    for shards in BOTH {
        let (engine, mut client) = (engine(shards), None);
        let (wait, mover) = elder(&engine, &mut client);
        let client = client.unwrap();
        // By now the ports hang on the front.
        client.run(Op::Read, 1 << 20, 4096).0.unwrap();
        let (answer, locked) = channel();
        client.0.command(Box::new(Message::Lock(0, 512, answer))).unwrap();
        locked.recv_timeout(PATIENCE).unwrap();
        assert_eq!(wait.try_recv().unwrap().0, Ok(()), "it was waited for");
        mover.finish();
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_move_waits_until_no_client_has_to_do_with_the_images_pages() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &[]);
        let client = Client::new(&engine, source);
        client.0.command(Box::new(Message::Pages(PageUse::Some))).unwrap();
        let mover = Mover::begin(&engine, source, target);
        for _ in 0..200 {
            client.run(Op::Read, 0, 4096).0.unwrap();
        }
        assert!(mover.events.try_recv().is_err(), "nothing is copied yet");
        client.0.command(Box::new(Message::Pages(PageUse::None))).unwrap();
        mover.finish();
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_target_that_can_do_little_ends_no_move() {
    for shards in BOTH {
        let server = Server::start(SIZE as usize);
        server.state().flags = export::HAS_FLAGS | export::SEND_FLUSH;
        let engine = engine(shards);
        let near = open(&engine, datastore(&engine, "a", BackendSpec::Memory, &[]), ram());
        let far = remote(&engine, "b", &server);
        let client = Client::new(&engine, near);
        client.write(0, &[1; 16 << 10], 0).unwrap();
        let mover = Mover::begin_unrecorded(&engine, near, far, TargetContent::Unknown);
        mover.record(Record::Started, Word::Made);
        assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
        assert!(
            server.state().durable[..16 << 10] == [1; 16 << 10],
            "it is durable before it counts"
        );
        let (unmap, durability) = (Unmap::May, Durability::Cached);
        let zeroes = |speed| Op::WriteZeroes { unmap, speed, durability };
        client.run(zeroes(ZeroSpeed::FastOnly), 0, 4096).0.unwrap();
        client.run(zeroes(ZeroSpeed::Any), 4096, 4096).0.unwrap();
        client.run(Op::Discard, 8192, 4096).0.unwrap();
        engine.move_recorded(mover.id, Word::Made).unwrap();
        assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
        let held = client.read(0, 16 << 10, 0);
        assert!(held[..8192] == [0; 8192] && held[12 << 10..] == [1; 4 << 10]);
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn the_copy_is_in_no_statistics_and_is_never_held() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &[]);
        let reads = HoldReads::Always;
        engine.set_trouble(source, TroublePolicy { reads, ..Default::default() }).unwrap();
        let client = Client::new(&engine, source);
        client.write(0, &[1; 4 << 20], 0).unwrap();
        let store = engine.snapshot().unwrap()[0].0;
        engine.set_layers(store, &["error=100%,on=read".parse().unwrap()]).unwrap();
        Mover::begin(&engine, source, target).fails(Outcome::Failed(Reason::SourceUnreadable));
        engine.set_layers(store, &[]).unwrap();
        Mover::begin(&engine, source, target).finish();
        for (_, store) in engine.snapshot().unwrap() {
            let [read, write] = [&store.stats.reads, &store.stats.writes].map(|of| of.counts.done);
            let wanted = if store.name == "a" { [0, 1] } else { [0, 0] };
            assert_eq!([read, write], wanted, "on '{}'", store.name);
        }
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_larger_target_is_as_large_as_the_disk_and_has_its_name() {
    for shards in BOTH {
        let engine = engine(shards);
        let source = open(&engine, datastore(&engine, "a", BackendSpec::Memory, &[]), ram());
        let b = datastore(&engine, "b", BackendSpec::Memory, &[]);
        let image = Image::memory(Bytes(2 * SIZE)).unwrap();
        let spec = DiskSpec { name: ".disk".into(), image, policy: Policy::default() };
        let target = engine.open_disk(b, spec).unwrap();
        Mover::begin(&engine, source, target).finish();
        let info = engine.disk_info(target).unwrap();
        assert_eq!((info.name.as_str(), info.size), ("disk", SIZE));
        assert_eq!(engine.disk_info(source).unwrap().name, ".disk");
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_port_closes_though_a_side_holds_its_requests() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &[]);
        let writes = HoldWrites::Always;
        engine.set_trouble(source, TroublePolicy { writes, ..Default::default() }).unwrap();
        let client = Client::new(&engine, source);
        let mover = Mover::begin(&engine, source, target);
        assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
        engine.pause_move(mover.id).unwrap();
        engine.move_recorded(mover.id, Word::NotMade).unwrap();
        let store = engine.snapshot().unwrap()[0].0;
        engine.set_layers(store, &["error=100%,on=write".parse().unwrap()]).unwrap();
        let write = |at: u64| client.start(Op::Write(Durability::Cached), at, 512, vec![1; 512], 0);
        let held: Vec<_> = (0..16).map(|n| write(n * 4096)).collect();
        assert!(held[0].recv_timeout(Duration::from_millis(300)).is_err(), "it is held");
        client.0.detach(Detach::Now);
        assert!(client.0.wait_gone(PATIENCE));
        engine.set_layers(store, &[]).unwrap();
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn sides_that_do_not_fit_are_refused() {
    for shards in BOTH {
        let engine = engine(shards);
        let source = open(&engine, datastore(&engine, "a", BackendSpec::Memory, &[]), ram());
        let b = datastore(&engine, "b", BackendSpec::Memory, &[]);
        let small = open(&engine, b, Image::memory(Bytes(SIZE / 2)).unwrap());
        let refused = engine.begin_move(Mover::spec(source, small, TargetContent::Zeroes).0);
        let small_is = MoveError::Small { size: Bytes(SIZE), target: Bytes(SIZE / 2) };
        assert!(matches!(refused, Err(EngineError::Move(e)) if e == small_is), "{refused:?}");
        // It is nobody's target.
        engine.close_disk(small, Duration::ZERO).unwrap();
        engine.shutdown(PATIENCE).unwrap();
    }
}
