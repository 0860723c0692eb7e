//! Signals to a front-end that does what it likes with its descriptors.

use super::*;
use rustix::fs::{OFlags, fcntl_setfl};
use std::io::Write;
use std::time::Duration;

/// The highest count that a `write` can leave behind: the next one waits.
const FULL: u64 = u64::MAX - 1;

/// Long enough for any machine. Only a port that waits for ever is stopped by it.
const FOR_EVER: Duration = Duration::from_secs(60);

fn block_writers(mut file: &File) {
    fcntl_setfl(file, OFlags::empty()).unwrap();
    file.write_all(&FULL.to_ne_bytes()).unwrap();
}

#[test]
fn a_full_counter_of_one_ring_holds_nobody() {
    let (done, ended) = sync_channel(1);
    std::thread::spawn(move || {
        let mut rig = Rig::started();
        (0..QUEUES).for_each(|q| _ = signals(&rig.guests[q].call));
        block_writers(&rig.guests[0].call);
        (0..QUEUES).for_each(|q| rig.offer(q));
        (0..QUEUES).for_each(|q| _ = rig.guests[q].driver.enable_calls());
        (0..QUEUES).for_each(|q| rig.kick(q));
        rig.complete(0);
        rig.complete(1);
        assert_eq!((rig.back(0), rig.back(1)), (1, 1));
        assert_eq!(signals(&rig.guests[1].call), 1, "the other ring");
        assert!(signals(&rig.guests[0].call) >= FULL, "a full counter is a signal");
        rig.offer(0);
        rig.guests[0].driver.enable_calls();
        rig.kick(0);
        rig.complete(2);
        assert_eq!(rig.back(0), 1);
        assert_eq!(signals(&rig.guests[0].call), 1, "once it is read, signals are counted again");
        done.send(()).unwrap();
    });
    ended.recv_timeout(FOR_EVER).expect("the port waits for the front-end, or a check failed");
}

#[test]
fn a_full_counter_for_errors_holds_nobody() {
    let (done, ended) = sync_channel(1);
    std::thread::spawn(move || {
        let mut rig = Rig::started();
        block_writers(&rig.guests[0].error);
        // More requests than the ring has entries.
        rig.guests[0].driver.raw().set_available_index(SIZE + 7);
        rig.kick(0);
        rig.offer(1);
        rig.kick(1);
        assert_eq!(rig.submitted(), [0]);
        assert!(signals(&rig.guests[0].error) > FULL, "the error was signalled");
        done.send(()).unwrap();
    });
    ended.recv_timeout(FOR_EVER).expect("the port waits for the front-end, or a check failed");
}
