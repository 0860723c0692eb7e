//! What servers forget that die, and what their clients hear of it.

use crate::support::PATIENCE;
use crate::support::far::{Bench, EIO, SIZE, ZEROES, pattern};
use crate::support::server::{Manner, Server};
use headgate_engine::backend::nbd::Connection;
use headgate_engine::port::Detach;
use headgate_engine::request::{Durability, Op};
use headgate_nbd::wire::command;
use headgate_nbd_io::ClientTls;

#[test]
fn a_flush_after_a_loss_does_not_vouch_for_what_the_server_forgot() {
    let mut server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let (one, other) = (bench.client(), bench.client());
    one.write(0, &[1; 4096], 0).unwrap();
    assert_eq!(one.run(Op::Flush, 0, 0).0, Ok(()));
    one.write(0, &[2; 4096], 0).unwrap();
    server.crash();
    server.listen();
    bench.reconnected(1);
    assert_eq!(bench.remote().losses, 1);
    assert_eq!(one.read(0, 4096, 0), [1; 4096], "this server forgets");
    assert_eq!(one.run(Op::Flush, 0, 0).0, EIO);
    assert_eq!(one.run(Op::Flush, 0, 0).0, Ok(()));
    assert_eq!(other.run(Op::Flush, 0, 0).0, EIO, "each client hears of it");
    assert_eq!(other.run(Op::Flush, 0, 0).0, Ok(()));
    let late = bench.client();
    assert_eq!(
        late.run(Op::Flush, 0, 0).0,
        Ok(()),
        "a client that came afterwards has lost nothing"
    );
}

#[test]
fn zeroes_that_nobody_flushed_are_a_loss_too() {
    let mut server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    client.write(0, &[7; 4096], 0).unwrap();
    assert_eq!(client.run(Op::Flush, 0, 0).0, Ok(()));
    assert_eq!(client.run(ZEROES, 0, 4096).0, Ok(()));
    server.crash();
    server.listen();
    bench.reconnected(1);
    assert_eq!(bench.remote().losses, 1);
    assert_eq!(client.read(0, 4096, 0), [7; 4096], "this server forgets");
    assert_eq!(client.run(Op::Flush, 0, 0).0, EIO);
    assert_eq!(client.run(Op::Flush, 0, 0).0, Ok(()));
}

#[test]
fn a_flush_that_a_server_dies_under_fails() {
    let mut server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    client.write(0, &[2; 4096], 0).unwrap();
    server.state().manner = Manner::DeafAfter(0);
    let flush = client.start(Op::Flush, 0, 0, vec![], 0);
    server.wait_for(command::FLUSH, 1);
    server.crash();
    server.state().manner = Manner::InOrder;
    server.listen();
    assert_eq!(flush.recv_timeout(PATIENCE).unwrap().0, EIO);
    bench.reconnected(1);
    assert_eq!(client.read(0, 4096, 0), [0; 4096], "this server forgets");
}

#[test]
fn a_write_of_which_a_server_took_a_part_is_made_whole_at_the_next() {
    let mut server = Server::start(SIZE);
    server.state().block_sizes = Some([4096, 4096, 8192]);
    let connection = Connection::open(&server.uri("disk"), PATIENCE, &ClientTls::by_uri()).unwrap();
    let bench = Bench::with(&server, Some(connection), 4096);
    let client = bench.client();
    server.state().manner = Manner::DeafAfter(1);
    let write = Op::Write(Durability::Cached);
    let write = client.start(write, 0, 16_384, pattern(3, 16_384), 0);
    server.wait_for(command::WRITE, 2);
    server.crash();
    server.state().manner = Manner::InOrder;
    server.listen();
    assert_eq!(write.recv_timeout(PATIENCE).unwrap().0, Ok(()));
    assert_eq!(client.run(Op::Flush, 0, 0).0, Ok(()), "nothing was acknowledged before");
    assert_eq!(server.state().durable[..16_384], pattern(3, 16_384));
}

#[test]
fn a_client_that_comes_back_hears_of_the_loss_that_it_missed() {
    let mut server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    client.write(0, &[2; 4096], 0).unwrap();
    server.crash();
    server.listen();
    bench.reconnected(1);
    client.0.detach(Detach::Drain);
    assert!(client.0.wait_gone(PATIENCE));
    let back = bench.client();
    assert_eq!(back.run(Op::Flush, 0, 0).0, EIO);
    assert_eq!(back.run(Op::Flush, 0, 0).0, Ok(()));
}

#[test]
fn durable_writes_are_no_loss() {
    let mut server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    assert_eq!(client.run(Op::Write(Durability::Fua), 0, 4096).0, Ok(()));
    client.write(8192, &[5; 4096], 0).unwrap();
    assert_eq!(client.run(Op::Flush, 0, 0).0, Ok(()));
    server.crash();
    server.listen();
    bench.reconnected(1);
    assert_eq!(bench.remote().losses, 0);
    assert_eq!(client.run(Op::Flush, 0, 0).0, Ok(()));
    assert_eq!(client.read(0, 4096, 0), [0xee; 4096]);
    assert_eq!(client.read(8192, 4096, 0), [5; 4096]);
}
