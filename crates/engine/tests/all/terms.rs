//! Terms of leases that are over for ever while a disk moves: what waits for them keeps neither the
//! move from its end nor a client from being closed.

use crate::support::moving::{
    BOTH, Mover, SIZE, Shards, datastore, engine, file, open, place, ram,
};
use crate::support::{Answer, Client, PATIENCE};
use headgate_engine::port::Detach;
use headgate_engine::request::{Durability, Op};
use headgate_engine::{BackendSpec, DiskId, Engine, MoveEvent};
use headgate_mirror::{Outcome, Record, Side, TargetContent, Word};
use headgate_units::{AtomicNanos, Nanos};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Long enough for what must not happen.
const MOMENT: Duration = Duration::from_millis(300);

/// An engine with two disks, one of them in memory, and the term of the other.
struct Rig {
    engine: Engine,
    source: DiskId,
    target: DiskId,
    term: Arc<AtomicNanos>,
}

impl Rig {
    fn new(shards: Shards, of: Side, dir: &Path) -> Rig {
        let (engine, term) = (engine(shards), Arc::new(AtomicNanos::new(Nanos::MAX)));
        let disk = |name, side| {
            let path = dir.join(format!("{name}.img"));
            match side == of {
                true => {
                    let store = datastore(&engine, name, BackendSpec::Files, &[]);
                    open(&engine, store, file(&path).until(term.clone()))
                }
                false => open(&engine, datastore(&engine, name, BackendSpec::Memory, &[]), ram()),
            }
        };
        let (source, target) = (disk("a", Side::Source), disk("b", Side::Target));
        Rig { engine, source, target, term }
    }

    /// The term ends when all is copied and the switch is asked for; then the client writes, and is
    /// not answered.
    fn end_term_at_the_switch(&self, client: &Client) -> (Mover<'_>, Receiver<Answer>) {
        let mover = Mover::begin(&self.engine, self.source, self.target);
        assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
        self.term.set(Nanos::ZERO);
        let waits = write(client, 0);
        assert!(waits.recv_timeout(MOMENT).is_err(), "nobody knows which copy counts");
        (mover, waits)
    }

    fn end(self) {
        self.engine.shutdown(PATIENCE).unwrap();
    }
}

fn write(client: &Client, at: u64) -> Receiver<Answer> {
    client.start(Op::Write(Durability::Cached), at, 4096, vec![7; 4096], 0)
}

fn is_written(waits: &Receiver<Answer>) {
    assert_eq!(waits.recv_timeout(PATIENCE).unwrap().0, Ok(()));
}

#[test]
fn a_copy_that_may_not_be_written_any_more_is_given_up() {
    for shards in BOTH {
        let dir = place();
        let rig = Rig::new(shards, Side::Target, dir.path());
        let client = Client::new(&rig.engine, rig.source);
        client.write(0, &vec![5; SIZE as usize], 0).unwrap();
        // A step of the copy waits for the term, and so does the half of a client's write.
        rig.term.set(Nanos::ZERO);
        let content = TargetContent::Zeroes;
        let mover = Mover::begin_unrecorded(&rig.engine, rig.source, rig.target, content);
        mover.record(Record::Started, Word::Made);
        assert!(mover.events.recv_timeout(MOMENT).is_err());
        let waits = write(&client, 0);
        assert!(waits.recv_timeout(MOMENT).is_err(), "both copies are to have it");
        rig.engine.cancel_move(mover.id).unwrap();
        is_written(&waits);
        mover.fails(Outcome::Cancelled);
        rig.engine.close_disk(rig.target, PATIENCE).unwrap();
        assert_eq!(client.read(0, 4096, 0), [7; 4096]);
        let written = std::fs::read(dir.path().join("b.img")).unwrap();
        assert!(written.iter().all(|&byte| byte == 0), "it was another's");
        rig.end();
    }
}

#[test]
fn a_disk_that_has_moved_away_from_what_was_taken_goes_on() {
    for shards in BOTH {
        let dir = place();
        let rig = Rig::new(shards, Side::Source, dir.path());
        let client = Client::new(&rig.engine, rig.source);
        let (mover, waits) = rig.end_term_at_the_switch(&client);
        rig.engine.move_recorded(mover.id, Word::Made).unwrap();
        is_written(&waits);
        assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
        assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
        rig.engine.close_disk(rig.source, PATIENCE).unwrap();
        assert_eq!(client.read(0, 4096, 0), [7; 4096]);
        rig.end();
    }
}

#[test]
fn a_client_of_a_disk_that_was_taken_while_it_moves_can_be_closed() {
    for shards in BOTH {
        let dir = place();
        let rig = Rig::new(shards, Side::Source, dir.path());
        let [first, second] =
            [Client::new(&rig.engine, rig.source), Client::new(&rig.engine, rig.source)];
        let mover = Mover::begin(&rig.engine, rig.source, rig.target);
        assert_eq!(mover.next(), MoveEvent::Record(Record::Switched));
        // What becomes of a request is known once it is known which copy counts.
        rig.engine.pause_move(mover.id).unwrap();
        rig.engine.move_recorded(mover.id, Word::NotMade).unwrap();
        rig.term.set(Nanos::ZERO);
        let [_, stays] = [write(&first, 0), write(&second, 8192)];
        assert!(stays.recv_timeout(MOMENT).is_err(), "the disk may not be written");
        first.0.detach(Detach::Now);
        assert!(first.0.wait_gone(PATIENCE), "nobody waits for its request");
        assert!(stays.recv_timeout(MOMENT).is_err(), "who stays, waits");
        // The lease was in doubt only.
        rig.term.set(Nanos::MAX);
        is_written(&stays);
        rig.end();
    }
}

#[test]
fn a_client_of_a_disk_that_was_taken_behind_its_switch_can_be_closed() {
    for shards in BOTH {
        let dir = place();
        let rig = Rig::new(shards, Side::Target, dir.path());
        let client = Client::new(&rig.engine, rig.source);
        let (mover, waits) = rig.end_term_at_the_switch(&client);
        rig.engine.move_recorded(mover.id, Word::Made).unwrap();
        assert_eq!(mover.next(), MoveEvent::Ended(Outcome::Switched));
        assert!(waits.recv_timeout(MOMENT).is_err(), "the disk may not be written");
        client.0.detach(Detach::Now);
        assert!(client.0.wait_gone(PATIENCE), "nobody waits for its request");
        assert_eq!(mover.next(), MoveEvent::Reclaim(Side::Source));
        rig.engine.close_disk(rig.target, PATIENCE).unwrap();
        rig.end();
    }
}
