//! What is particular to moves from one shard to another: the clients' ports go along. And what is
//! the same there as on one shard, at the instant of the switch.

use crate::support::blocker::Blocker;
use crate::support::moving::{
    BOTH, Mover, SIZE, Shards, datastore, engine, file, open, pair, place, ram, remote,
};
use crate::support::server::Server;
use crate::support::{Answer, Client, Message, PATIENCE};
use headgate_engine::port::Detach;
use headgate_engine::request::{Durability, IoError, Op};
use headgate_engine::{
    BackendSpec, Engine, EngineError, HoldWrites, MoveError, MoveEvent, TroublePolicy,
};
use headgate_mirror::{Outcome, Reason, Record, Side, TargetContent, Word};
use headgate_qos::Policy;
use headgate_units::{Bytes, BytesPerSec, Iops, Nanos, Shares};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Long enough for what must not happen.
const MOMENT: Duration = Duration::from_millis(300);

fn write(client: &Client, at: u64) -> Receiver<Answer> {
    client.start(Op::Write(Durability::Cached), at, 4096, vec![7; 4096], 0)
}

fn switched(mover: &Mover<'_>) {
    assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
    assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
}

/// Has requests of the named datastore treated so.
fn layer(engine: &Engine, name: &str, layers: &[&str]) {
    let stores = engine.snapshot().unwrap();
    let (store, _) = stores.iter().find(|(_, store)| store.name == name).unwrap();
    let layers: Vec<_> = layers.iter().map(|text| text.parse().unwrap()).collect();
    engine.set_layers(*store, &layers).unwrap();
}

#[test]
fn who_waits_for_the_storage_keeps_nobody_else_on_the_old_shard() {
    let engine = engine(Shards::Two);
    let (source, target) = pair(&engine, &[]);
    // Requests of the two overlap nowhere.
    let [slow, quick] = [Client::new(&engine, source), Client::new(&engine, source)];
    let mover = Mover::begin(&engine, source, target);
    assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
    layer(&engine, "b", &["delay=2s,on=write"]);
    let waits = write(&slow, 0);
    // It is at the target's storage by now.
    quick.run(Op::Read, 1 << 20, 4096).0.unwrap();
    engine.move_recorded(mover.id, Word::Made).unwrap();
    assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
    assert_eq!(quick.read(1 << 20, 4096, 0), [0; 4096]);
    assert!(waits.try_recv().is_err(), "the other was answered first");
    // What was sent meanwhile goes along.
    let reads = slow.start(Op::Read, 0, 4096, vec![0; 4096], 0);
    assert_eq!(waits.recv_timeout(PATIENCE).unwrap().0, Ok(()));
    assert_eq!(reads.recv_timeout(PATIENCE).unwrap().1, [7; 4096]);
    assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
    engine.close_disk(source, PATIENCE).unwrap();
    let stores = engine.snapshot().unwrap();
    let (_, store) = stores.iter().find(|(_, store)| store.name == "b").unwrap();
    assert_eq!(store.disks[0].ports, 2, "both are the target's");
    assert_eq!(store.stats.writes.counts.done, 1, "what clients wrote meanwhile is the disk's");
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_block_that_one_client_changes_is_not_written_by_another_meanwhile() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &[]);
        let [owner, other] = [Client::new(&engine, source), Client::new(&engine, source)];
        let mover = Mover::begin(&engine, source, target);
        assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
        let (answer, locked) = channel();
        owner.0.command(Box::new(Message::Keep(0, 512, answer))).unwrap();
        locked.recv_timeout(PATIENCE).unwrap();
        engine.move_recorded(mover.id, Word::Made).unwrap();
        assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
        let wait = write(&other, 0);
        assert!(wait.recv_timeout(MOMENT).is_err(), "the block is locked");
        owner.0.command(Box::new(Message::Unlock)).unwrap();
        assert_eq!(wait.recv_timeout(PATIENCE).unwrap().0, Ok(()));
        assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn what_the_target_fails_behind_the_switch_is_held_and_can_be_given_up() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &[]);
        let writes = HoldWrites::Always;
        engine.set_trouble(source, TroublePolicy { writes, ..Default::default() }).unwrap();
        let [first, second] = [Client::new(&engine, source), Client::new(&engine, source)];
        let mover = Mover::begin(&engine, source, target);
        assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
        // At the target when it becomes the disk.
        layer(&engine, "b", &["delay=500ms,on=write", "error=100%,on=write"]);
        let [held, other] = [write(&first, 0), write(&second, 8192)];
        first.run(Op::Read, 1 << 20, 4096).0.unwrap();
        engine.move_recorded(mover.id, Word::Made).unwrap();
        assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
        assert!(held.recv_timeout(3 * MOMENT).is_err(), "it is held: the guest hears nothing");
        first.0.detach(Detach::Now);
        assert!(first.0.wait_gone(PATIENCE), "who closes does not wait for the end of the trouble");
        layer(&engine, "b", &[]);
        assert_eq!(other.recv_timeout(PATIENCE).unwrap().0, Ok(()));
        assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
        assert_eq!(second.read(8192, 4096, 0), [7; 4096]);
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn what_the_targets_server_may_have_lost_is_told_after_the_switch() {
    for shards in BOTH {
        let mut server = Server::start(SIZE as usize);
        let engine = engine(shards);
        let near = open(&engine, datastore(&engine, "a", BackendSpec::Memory, &[]), ram());
        let far = remote(&engine, "b", &server);
        let client = Client::new(&engine, near);
        let mover = Mover::begin_unrecorded(&engine, near, far, TargetContent::Unknown);
        mover.record(Record::Started, Word::Made);
        assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
        assert_eq!(write(&client, 0).recv_timeout(PATIENCE).unwrap().0, Ok(()));
        server.crash();
        server.listen();
        engine.move_recorded(mover.id, Word::Made).unwrap();
        switched(&mover);
        assert_eq!(client.read(0, 4096, 0), [0; 4096], "the server has lost it");
        assert_eq!(client.run(Op::Flush, 0, 0).0, Err(IoError::Backend(libc::EIO)));
        assert_eq!(client.run(Op::Flush, 0, 0).0, Ok(()));
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn another_pace_is_in_force_on_both_sides() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &[]);
        let client = Client::new(&engine, source);
        client.write(0, &[3; 16 << 20], 0).unwrap();
        let (mut spec, events) = Mover::spec(source, target, TargetContent::Zeroes);
        spec.terms.pace = Policy::default().with_limit(Iops::new(1).ok()).unwrap();
        let mover = Mover { engine: &engine, id: engine.begin_move(spec).unwrap(), events };
        mover.record(Record::Started, Word::Made);
        assert!(mover.events.recv_timeout(MOMENT).is_err(), "a request in a second");
        engine.set_move_pace(mover.id, Policy::default()).unwrap();
        mover.finish();
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_bandwidth_is_of_what_is_copied_and_not_of_what_is_looked_at() {
    for shards in BOTH {
        let engine = engine(shards);
        let (source, target) = pair(&engine, &[]);
        let client = Client::new(&engine, source);
        client.write(0, &[3; 1 << 20], 0).unwrap();
        client.write(24 << 20, &[3; 1 << 20], 0).unwrap();
        let (mut spec, events) = Mover::spec(source, target, TargetContent::Zeroes);
        let half = BytesPerSec::new(512 << 10).unwrap();
        spec.terms.pace = Policy::default().with_limit_bandwidth(Some(half));
        let mover = Mover { engine: &engine, id: engine.begin_move(spec).unwrap(), events };
        mover.record(Record::Started, Word::Made);
        // Two seconds for each of the two, and 30 MiB of nothing. It would be a minute and more.
        mover.finish();
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_target_whose_shard_stands_still_is_given_up() {
    let engine = engine(Shards::Two);
    let (source, target) = pair(&engine, &[]);
    let client = Client::new(&engine, source);
    let (stores, mut spec) =
        (engine.snapshot().unwrap(), Mover::spec(source, target, TargetContent::Zeroes));
    let (b, _) = stores.iter().find(|(_, store)| store.name == "b").unwrap();
    let beside = open(&engine, *b, ram());
    let (blocked, is_blocked) = channel();
    let (release, go_on) = channel();
    let blocker = engine.attach(beside, move |_| Box::new(Blocker { blocked, go_on })).unwrap();
    spec.0.terms.patience = Nanos::from_millis(500);
    let id = engine.begin_move(spec.0).unwrap();
    let mover = Mover { engine: &engine, id, events: spec.1 };
    mover.record(Record::Started, Word::Made);
    assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
    blocker.command(Box::new(())).unwrap();
    is_blocked.recv().unwrap();
    engine.move_recorded(id, Word::NotMade).unwrap();
    let wait = write(&client, 0);
    // Somebody looks after shards, as the daemon does.
    let answer = (0..400).find_map(|_| {
        engine.stalls();
        wait.recv_timeout(Duration::from_millis(50)).ok()
    });
    let (result, ..) = answer.expect("the other shard is not waited for");
    assert_eq!(result, Ok(()), "it stands still all the while");
    release.send(()).unwrap();
    mover.fails(Outcome::Failed(Reason::TargetLost));
    assert_eq!(client.read(0, 4096, 0), [7; 4096]);
    drop(release);
    blocker.detach(Detach::Now);
    engine.close_disk(target, PATIENCE).unwrap();
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_target_can_be_the_target_of_one_move_only_and_becomes_free_again() {
    let engine = engine(Shards::Two);
    let (source, target) = pair(&engine, &[]);
    let stores = engine.snapshot().unwrap();
    let (a, _) = stores.iter().find(|(_, store)| store.name == "a").unwrap();
    let other = open(&engine, *a, ram());
    let mover = Mover::begin_unrecorded(&engine, source, target, TargetContent::Zeroes);
    for taken in [(other, target), (target, other), (source, other)] {
        let refused = engine.begin_move(Mover::spec(taken.0, taken.1, TargetContent::Zeroes).0);
        assert!(matches!(refused, Err(EngineError::Move(MoveError::Moving))), "{refused:?}");
    }
    let busy = engine.close_disk(target, Duration::ZERO);
    assert!(matches!(busy, Err(EngineError::Move(MoveError::Moving))), "{busy:?}");
    engine.cancel_move(mover.id).unwrap();
    mover.record(Record::Started, Word::Made);
    mover.fails(Outcome::Cancelled);
    // Now it can.
    let client = Client::new(&engine, other);
    client.write(0, &[5; 4096], 0).unwrap();
    Mover::begin_unrecorded(&engine, other, target, TargetContent::Unknown).all();
    assert_eq!(client.read(0, 4096, 0), [5; 4096]);
    // And back, from the shard that the client is on now.
    let back = open(&engine, *a, ram());
    Mover::begin(&engine, target, back).finish();
    assert_eq!(client.read(0, 4096, 0), [5; 4096]);
    engine.shutdown(PATIENCE).unwrap();
}

/// A slow array, on which nobody has to wait for a place.
fn array() -> BackendSpec {
    let model = "rate=1000,latency=4ms,depth=32,service=exponential".parse().unwrap();
    BackendSpec::Emulated(model, Bytes(SIZE))
}

#[test]
fn the_copy_gets_its_shares_beside_clients_that_never_wait_in_the_queue() {
    // A step at the source looks, which costs 1 IO, and reads, at the target it writes, which costs
    // 1 IO and one for each 300 KiB. A tenth of a client's shares pays that with ten times as much
    // of the client's, at 1.01 IOs a request. Beside clients a step is 256 KiB, else 1 MiB, as
    // where the shard of the copy does not see them.
    let due = |steps: f64, looks: f64, kib: f64| 10.0 * steps * (looks + 1.0 + kib / 300.0) / 1.013;
    for (busy, shards, due) in [
        (Side::Source, Shards::One, due(128.0, 1.0, 256.0)),
        (Side::Source, Shards::Two, due(128.0, 1.0, 256.0)),
        (Side::Target, Shards::One, due(128.0, 0.0, 256.0)),
        (Side::Target, Shards::Two, due(32.0, 0.0, 1024.0)),
    ] {
        let (engine, dir) = (engine(shards), place());
        let (slow, image) = (array(), file(&dir.path().join("slow.img")));
        let (from, to, images) = match busy {
            Side::Source => (slow, BackendSpec::Memory, [image, ram()]),
            Side::Target => (BackendSpec::Memory, slow, [ram(), image]),
        };
        let [from, to] = [datastore(&engine, "a", from, &[]), datastore(&engine, "b", to, &[])];
        let [first, second] = images;
        let [source, target] = [open(&engine, from, first), open(&engine, to, second)];
        let own = Client::new(&engine, source);
        own.write(0, &vec![1; SIZE as usize], 0).unwrap();
        let client = match busy {
            Side::Source => own,
            Side::Target => {
                let beside = file(&dir.path().join("beside.img"));
                Client::new(&engine, open(&engine, to, beside))
            }
        };
        let (mut spec, events) = Mover::spec(source, target, TargetContent::Zeroes);
        spec.terms.pace = Policy::shared(Shares::new(100).unwrap());
        let mover = Mover { engine: &engine, id: engine.begin_move(spec).unwrap(), events };
        let done = Arc::new(AtomicU64::new(0));
        let reads = (0..3).map(|n| (n * 4096, 4096)).collect();
        client.0.command(Box::new(Message::Repeat(reads, done.clone()))).unwrap();
        mover.record(Record::Started, Word::Made);
        assert_eq!(mover.next(), MoveEvent::Record(Record::Switched), "{busy:?}, {shards:?}");
        client.0.command(Box::new(Message::Enough)).unwrap();
        let done = done.load(Ordering::Relaxed);
        let due = due as u64;
        let near = due * 4 / 5..due * 6 / 5;
        assert!(near.contains(&done), "{busy:?}, {shards:?}: {done} requests, {due} are due");
        engine.move_recorded(mover.id, Word::Made).unwrap();
        switched(&mover);
        engine.shutdown(PATIENCE).unwrap();
    }
}
