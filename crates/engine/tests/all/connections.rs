//! Disks with several connections to a server: where requests go, and what becomes of them, of
//! writes and of flushes when some of the connections are lost.

use crate::support::far::{Bench, EIO, SIZE, pattern};
use crate::support::server::{EVERYTHING, Manner, Server};
use crate::support::{Client, PATIENCE};
use headgate_engine::Image;
use headgate_engine::request::{Durability, Op};
use headgate_nbd::client::connections::Connections;
use headgate_nbd::wire::{command, export};
use headgate_units::Bytes;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

/// A server that can have several connections.
fn server() -> Server {
    let server = Server::start(SIZE);
    server.state().flags = EVERYTHING | export::CAN_MULTI_CONN;
    server
}

fn bench(server: &Server, connections: u8, patience: Duration) -> Bench {
    let image = Image::remote(server.uri("disk"), Bytes(SIZE as u64), 512, None).unwrap();
    let image = image.over(Connections::new(connections).unwrap()).patient(patience);
    let bench = Bench::on(image);
    bench.wait_for("connections", |r| r.servers[0].connections == usize::from(connections));
    bench
}

/// With these connections, which the server numbers 0 to 2.
fn three(server: &Server) -> (Bench, Client) {
    let bench = bench(server, 3, PATIENCE);
    let client = bench.client();
    (bench, client)
}

/// Ends one, and waits for its successor.
fn replace(server: &Server, bench: &Bench, number: usize) {
    let before = bench.remote().reconnects;
    server.hang_up_on(|one| one == number);
    bench.wait_for("a successor", |r| r.reconnects == before + 1 && r.servers[0].connections == 3);
}

fn flush(client: &Client) -> Result<(), headgate_engine::request::IoError> {
    client.run(Op::Flush, 0, 0).0
}

/// A write on each connection: several at once go to those with the least to do.
fn write_everywhere(server: &Server, client: &Client) {
    let before = server.state().came.len();
    server.state().stuck.extend(0..100);
    let write = Op::Write(Durability::Cached);
    let started: Vec<_> =
        (0..6).map(|n| client.start(write, n * 4096, 4096, vec![n as u8 + 1; 4096], 0)).collect();
    server.wait_for_any(before + 3);
    server.state().stuck.clear();
    for write in started {
        assert_eq!(write.recv_timeout(PATIENCE).unwrap().0, Ok(()));
    }
}

#[test]
fn requests_spread_over_the_connections_that_a_server_can_have() {
    let server = server();
    let bench = bench(&server, 4, PATIENCE);
    let client = bench.client();
    server.state().manner = Manner::Silent;
    let _waiting: Vec<_> =
        (0..40).map(|n| client.start(Op::Read, n * 4096, 4096, vec![0; 4096], 0)).collect();
    server.wait_for(command::READ, 40);
    let came = server.state().came.clone();
    for number in 0..4 {
        let here = came.iter().filter(|one| **one == (number, command::READ)).count();
        assert_eq!(here, 10, "{came:?}");
    }
    assert_eq!(bench.remote().servers[0].outstanding, 40);
}

#[test]
fn a_server_that_can_have_one_connection_has_one() {
    let mut server = server();
    let (bench, client) = three(&server);
    client.write(0, &[1; 4096], 0).unwrap();
    assert_eq!(flush(&client), Ok(()));
    server.crash();
    server.state().flags = EVERYTHING;
    server.listen();
    bench.reconnected(1);
    // Each of the three was dialled for, and two were refused.
    server.wait_for_clients(6);
    assert_eq!(bench.remote().reconnects, 1);
    for n in 0..20 {
        client.write(n * 4096, &pattern(n as u8, 4096), 0).unwrap();
        assert_eq!(client.read(n * 4096, 4096, 0), pattern(n as u8, 4096));
    }
    assert_eq!(flush(&client), Ok(()));
    bench.wait_for("one connection", |r| r.servers[0].connections == 1);
    let came = server.state().came.clone();
    let commands = came.iter().rev().filter(|(_, command)| *command != command::DISC);
    let connections: BTreeSet<usize> = commands.take(41).map(|(number, _)| *number).collect();
    assert_eq!(connections.len(), 1, "{came:?}");
}

#[test]
fn a_connection_that_ends_takes_nothing_along_that_another_vouches_for() {
    let mut server = server();
    let (bench, client) = three(&server);
    write_everywhere(&server, &client);
    for number in [1, 0] {
        replace(&server, &bench, number);
    }
    assert_eq!(bench.remote().losses, 0, "the last of the three stood all the time");
    assert_eq!(flush(&client), Ok(()));
    assert_eq!(server.state().durable[5 * 4096..6 * 4096], [6; 4096]);
    let oldest =
        server.state().came.iter().rfind(|(_, command)| *command == command::FLUSH).copied();
    assert_eq!(oldest, Some((2, command::FLUSH)), "its word counts");
    write_everywhere(&server, &client);
    server.crash();
    server.listen();
    bench.wait_for("connections", |r| r.servers[0].connections == 3);
    assert_eq!(bench.remote().losses, 1, "all of them at once are one loss");
    assert_eq!(flush(&client), EIO);
    assert_eq!(flush(&client), Ok(()));
}

#[test]
fn connections_that_are_younger_than_a_write_do_not_vouch_for_it() {
    let server = server();
    let (bench, client) = three(&server);
    write_everywhere(&server, &client);
    for number in [1, 2] {
        replace(&server, &bench, number);
    }
    assert_eq!(bench.remote().losses, 0);
    replace(&server, &bench, 0);
    assert_eq!(bench.remote().losses, 1, "the server may have been another since");
    assert_eq!(flush(&client), EIO);
    assert_eq!(flush(&client), Ok(()));
}

/// A host that loses its power ends no connection. Those that are replaced lead to the server that
/// was started in its place, and one stays that nobody answers on.
#[test]
fn a_successor_does_not_vouch_for_a_server_that_died_unnoticed() {
    let mut server = server();
    let bench = bench(&server, 3, Duration::from_millis(700));
    let client = bench.client();
    write_everywhere(&server, &client);
    server.crash_unnoticed_on(|number| number == 0);
    server.listen();
    bench.wait_for("the successor", |r| r.reconnects == 2 && r.servers[0].connections == 3);
    assert_eq!(bench.remote().losses, 0, "nobody knows yet");
    assert_eq!(flush(&client), EIO, "the only one that could vouch is silent");
    bench.wait_for("the loss", |r| r.losses == 1);
    assert_eq!(client.read(0, 4096, 0), [0; 4096], "this server forgets");
    assert_eq!(flush(&client), EIO, "the first that was sent after the loss");
    assert_eq!(flush(&client), Ok(()));
}

#[test]
fn a_write_without_an_answer_waits_for_the_successor_of_its_connection_and_reads_do_not() {
    let server = server();
    let (bench, client) = three(&server);
    server.state().stuck.extend(0..3);
    let write = Op::Write(Durability::Cached);
    // One to each connection.
    let write = client.start(write, 0, 4096, vec![7; 4096], 0);
    server.wait_for_any(1);
    let reads = [1, 2].map(|n| client.start(Op::Read, n * 4096, 4096, vec![0; 4096], 0));
    server.wait_for_any(3);
    let of = |what| {
        let came = server.state().came.clone();
        came.iter().find(|(_, command)| *command == what).map(|(number, _)| *number).unwrap()
    };
    let (with_write, with_read) = (of(command::WRITE), of(command::READ));
    // Nobody gets a connection until the write is done.
    server.state().closed = true;
    server.hang_up_on(|number| number == with_write || number == with_read);
    let left = (0..3).find(|&n| n != with_write && n != with_read).unwrap();
    server.state().stuck.remove(&left);
    for read in reads {
        assert_eq!(read.recv_timeout(PATIENCE).unwrap().0, Ok(()));
    }
    assert_eq!(server.count(command::WRITE), 0, "the server is at it still");
    let newer = client.write(0, &[8; 4096], 0);
    assert_eq!((newer, server.count(command::WRITE)), (Ok(()), 1));
    // It does the old one at last, and opens.
    server.state().stuck.clear();
    server.wait_for(command::WRITE, 2);
    server.state().closed = false;
    assert_eq!(write.recv_timeout(PATIENCE).unwrap().0, Ok(()));
    assert_eq!(server.count(command::WRITE), 3);
    bench.wait_for("connections", |r| r.servers[0].connections == 3);
}

/// What happens to a disk with three connections.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many writes at once, from this block on.
    Write(u8, u8),
    Flush,
    /// Of the connections that stand, this one ends.
    HangUp(u8),
    Crash,
    /// The server's host dies, and this one of the connections that stand does not end.
    CrashUnnoticed(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..16, 1u8..9).prop_map(|(block, count)| Step::Write(block, count)),
        3 => Just(Step::Flush),
        3 => (0u8..3).prop_map(Step::HangUp),
        1 => Just(Step::Crash),
        1 => (0u8..3).prop_map(Step::CrashUnnoticed),
    ]
}

const BLOCKS: usize = 24;

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    /// Whatever ends in whatever order: a flush that succeeds has made durable what was
    /// acknowledged before it and is not known to be lost. A client learns of a loss by a flush
    /// that fails.
    #[test]
    fn a_flush_that_succeeds_promises_what_is_true(
        steps in prop::collection::vec(step(), 1..16),
    ) {
        let mut server = server();
        let bench = bench(&server, 3, Duration::from_millis(300));
        let client = bench.client();
        let content = |server: &Server| server.state().content[..BLOCKS * 4096].to_vec();
        let mut known = content(&server);
        let (mut value, mut ends, mut failed) = (0u8, 0, 0);
        for step in steps {
            match step {
                Step::Write(first, count) => {
                    value = value.wrapping_add(1);
                    let write = Op::Write(Durability::Cached);
                    let all: Vec<_> = (first..first + count).map(|block| {
                        let at = u64::from(block) * 4096;
                        (block, client.start(write, at, 4096, vec![value; 4096], 0))
                    }).collect();
                    for (block, write) in all {
                        // It fails where nobody has answered for too long; then it holds either.
                        let at = usize::from(block) * 4096;
                        match write.recv_timeout(PATIENCE).unwrap().0 {
                            Ok(()) => known[at..at + 4096].fill(value),
                            Err(_) => {
                                let now = content(&server);
                                known[at..at + 4096].copy_from_slice(&now[at..at + 4096]);
                            }
                        }
                    }
                }
                Step::Flush => match flush(&client) {
                    Ok(()) => {
                        let durable = server.state().durable[..BLOCKS * 4096].to_vec();
                        prop_assert!(durable == known, "a flush vouches for what is lost");
                    }
                    Err(_) => {
                        failed += 1;
                        known = content(&server);
                    }
                },
                Step::HangUp(which) => {
                    ends += 1;
                    server.hang_up_on_nth(which.into());
                }
                Step::Crash => {
                    ends += 1;
                    server.crash();
                    server.listen();
                }
                Step::CrashUnnoticed(which) => {
                    ends += 2;
                    let stays = server.nth(which.into());
                    server.crash_unnoticed_on(|number| Some(number) == stays);
                    server.listen();
                }
            }
        }
        prop_assert!(failed <= 2 * ends, "{failed} flushes failed after {ends} ends");
    }
}
