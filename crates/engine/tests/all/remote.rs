//! Remote disks through a running engine, against a server in this process.

use crate::support::far::{Bench, EIO, SIZE, ZEROES, pattern};
use crate::support::server::{EVERYTHING, Manner, Server};
use crate::support::{Client, PATIENCE};
use headgate_engine::backend::nbd::Connection;
use headgate_engine::request::{Durability, Extent, ExtentKind, IoError, Op, Unmap, ZeroSpeed};
use headgate_engine::snapshot::RemoteState;
use headgate_engine::topology::Topology;
use headgate_engine::{EngineError, Image};
use headgate_nbd::wire::{command, command_flag, export};
use headgate_nbd_io::ClientTls;
use headgate_qos::CostModel;
use headgate_qos::window::{Fraction, LatencyMeter, Smoothing};
use headgate_units::Bytes;
use std::time::{Duration, Instant};

#[test]
fn what_was_written_is_at_the_server_and_read_back_with_any_buffers() {
    for manner in [Manner::InOrder, Manner::Reversed] {
        let server = Server::start(SIZE);
        server.state().manner = manner;
        let bench = Bench::new(&server);
        let client = bench.client();
        for (n, (offset, len, skew)) in
            [(0, 512, 0), (8192, 65536, 0), (1 << 20, 4096, 13), (2 << 20, 3 << 20, 1)]
                .into_iter()
                .enumerate()
        {
            let data = pattern(n as u8, len);
            client.write(offset, &data, skew).unwrap();
            assert!(client.read(offset, len, skew) == data, "{offset} {len} {skew}");
            assert_eq!(server.state().content[offset as usize..][..len], data);
        }
        assert_eq!(client.run(Op::Flush, 0, 0).0, Ok(()));
        let state = server.state();
        assert!(state.durable == state.content);
    }
}

#[test]
fn requests_to_a_server_that_is_silent_for_too_long_fail_and_it_comes_back() {
    let server = Server::start(SIZE);
    let connection = Connection::open(&server.uri("disk"), PATIENCE, &ClientTls::by_uri()).unwrap();
    let image = Image::remote(server.uri("disk"), Bytes(SIZE as u64), 512, Some(connection));
    let bench = Bench::on(image.unwrap().patient(Duration::from_millis(300)));
    let client = bench.client();
    client.write(0, &pattern(1, 4096), 0).unwrap();
    // One that owes nothing may be silent.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(bench.remote().reconnects, 0);
    server.state().manner = Manner::Silent;
    assert_eq!(client.run(Op::Read, 0, 4096).0, EIO);
    assert_eq!(client.run(Op::Write(Durability::Cached), 4096, 4096).0, EIO);
    server.state().manner = Manner::InOrder;
    bench.reconnected(1);
    // What had been written may be lost with a server that did not flush it.
    assert_eq!(client.run(Op::Flush, 0, 0).0, EIO);
    assert_eq!(client.run(Op::Flush, 0, 0).0, Ok(()));
    assert_eq!(client.read(0, 4096, 0), pattern(1, 4096));
    assert_eq!(bench.remote().losses, 1);
}

#[test]
fn many_requests_of_all_lengths_in_flight_are_told_apart() {
    let server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    let content = pattern(3, SIZE);
    server.state().content.copy_from_slice(&content);
    server.state().manner = Manner::Reversed;
    let lens = [512, 4096, 70_144, 1 << 20, 8192, 512, 16_384, 33_280];
    let asked: Vec<_> = (0..64)
        .map(|n| {
            let (offset, len) = ((n * 37 % 56) << 17, lens[n % lens.len()]);
            let answer = client.start(Op::Read, offset as u64, len as u64, vec![0; len], n % 3);
            (offset, len, answer)
        })
        .collect();
    for (offset, len, answer) in asked {
        let (result, data, _) = answer.recv_timeout(PATIENCE).unwrap();
        result.unwrap();
        assert!(data == content[offset..offset + len], "{offset} {len}");
    }
}

#[test]
fn a_server_that_takes_little_at_a_time_gets_it_in_pieces() {
    let server = Server::start(SIZE);
    server.state().block_sizes = Some([4096, 4096, 8192]);
    let connection = Connection::open(&server.uri("disk"), PATIENCE, &ClientTls::by_uri()).unwrap();
    assert_eq!((connection.size(), connection.block_size()), (Bytes(SIZE as u64), 4096));
    let bench = Bench::with(&server, Some(connection), 4096);
    let client = bench.client();
    let data = pattern(9, 1 << 20);
    client.write(4096, &data, 5).unwrap();
    assert_eq!(client.read(4096, 1 << 20, 3), data);
    let state = server.state();
    assert!(state.log.iter().all(|(.., len)| *len <= 8192));
    assert_eq!(state.log.len(), 256);
}

#[test]
fn guests_are_told_what_the_server_prefers_where_it_can_be_true() {
    let server = Server::start(SIZE);
    for (preferred, told) in
        [(16 << 10, 16 << 10), (512, 512), (0, 512), (1000, 512), (64 << 20, 512), (u32::MAX, 512)]
    {
        server.state().block_sizes = Some([512, preferred, 1 << 20]);
        let connection =
            Connection::open(&server.uri("disk"), PATIENCE, &ClientTls::by_uri()).unwrap();
        let image = |connection| {
            Image::remote(server.uri("disk"), Bytes(SIZE as u64), 512, connection).unwrap()
        };
        let topology = image(Some(connection)).topology();
        assert_eq!((topology.physical_block, topology.min_io), (512, told), "{preferred}");
        assert_eq!(image(None).topology(), Topology::plain(512), "who did not answer said nothing");
    }
}

#[test]
fn operations_take_the_form_that_the_server_offers() {
    let server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    let fua = Op::Write(Durability::Fua);
    let keep = Op::WriteZeroes {
        unmap: Unmap::MustNot,
        speed: ZeroSpeed::FastOnly,
        durability: Durability::Fua,
    };
    for (op, len) in
        [(fua, 4096), (Op::Discard, 1 << 20), (ZEROES, 1 << 20), (keep, 4096), (Op::Flush, 0)]
    {
        assert_eq!(client.run(op, 0, len).0, Ok(()), "{op:?}");
    }
    let zero_flags = command_flag::FUA | command_flag::NO_HOLE | command_flag::FAST_ZERO;
    assert_eq!(
        server.state().log,
        [
            (command::WRITE, command_flag::FUA, 0, 4096),
            (command::TRIM, 0, 0, 1 << 20),
            (command::WRITE_ZEROES, 0, 0, 1 << 20),
            (command::WRITE_ZEROES, zero_flags, 0, 4096),
            (command::FLUSH, 0, 0, 0),
        ]
    );
    let (result, _, extents) = client.run(Op::BlockStatus, 4096, 8192);
    assert_eq!((result, extents), (Ok(()), vec![Extent { len: 8192, kind: ExtentKind::Data }]));
    assert_eq!(client.run(Op::Cache, 0, 4096).0, Ok(()));
    assert_eq!(client.run(Op::Splice, 0, 4096).0, Err(IoError::Unsupported));
}

#[test]
fn what_a_server_does_not_offer_is_done_by_hand_or_refused() {
    let server = Server::start(SIZE);
    server.state().flags = export::HAS_FLAGS | export::SEND_FLUSH;
    let bench = Bench::new(&server);
    let client = bench.client();
    client.write(0, &pattern(1, 1 << 20), 0).unwrap();
    server.state().log.clear();
    assert_eq!(client.run(Op::Discard, 0, 4096).0, Err(IoError::Unsupported));
    let fast = Op::WriteZeroes {
        unmap: Unmap::May,
        speed: ZeroSpeed::FastOnly,
        durability: Durability::Cached,
    };
    assert_eq!(client.run(fast, 0, 4096).0, Err(IoError::Unsupported));
    assert_eq!(server.state().log, []);
    assert_eq!(client.run(ZEROES, 0, 600 << 10).0, Ok(()));
    assert!(server.state().content[..600 << 10].iter().all(|&byte| byte == 0));
    assert_eq!(server.state().content[600 << 10..1 << 20], pattern(1, 1 << 20)[600 << 10..]);
    assert_eq!(server.count(command::WRITE), 3);
    assert_eq!(client.run(Op::Write(Durability::Fua), 0, 4096).0, Ok(()));
    assert_eq!(server.count(command::FLUSH), 1);
    assert_eq!(server.state().durable[..4096], [0xee; 4096]);
}

#[test]
fn a_server_without_flush_keeps_everything_and_a_flush_is_done_at_once() {
    let server = Server::start(SIZE);
    server.state().flags = export::HAS_FLAGS;
    let bench = Bench::new(&server);
    let client = bench.client();
    client.write(0, &[7; 4096], 0).unwrap();
    assert_eq!(client.run(Op::Flush, 0, 0).0, Ok(()));
    server.hang_up();
    bench.reconnected(1);
    assert_eq!(client.run(Op::Flush, 0, 0).0, Ok(()), "what it has acknowledged is durable");
    assert_eq!(server.count(command::FLUSH), 0);
}

#[test]
fn errors_are_the_requests_own() {
    let server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    for (number, error) in [
        (5, IoError::Backend(libc::EIO)),
        (28, IoError::NoSpace),
        (95, IoError::Unsupported),
        (1234, IoError::Backend(libc::EIO)),
    ] {
        server.state().manner = Manner::Error(number);
        assert_eq!(client.run(Op::Write(Durability::Cached), 0, 4096).0, Err(error));
        assert_eq!(client.run(Op::Read, 0, 4096).0, Err(error));
    }
    server.state().manner = Manner::InOrder;
    assert_eq!(client.run(Op::Read, 0, 4096).0, Ok(()));
    assert_eq!(bench.remote().reconnects, 0);
}

#[test]
fn a_server_that_breaks_the_protocol_is_left_and_asked_again() {
    for manner in [Manner::WrongMagic, Manner::WrongCookie] {
        let server = Server::start(SIZE);
        let bench = Bench::new(&server);
        let client = bench.client();
        client.write(0, &[3; 4096], 0).unwrap();
        server.state().manner = manner;
        assert_eq!(client.read(0, 4096, 0), [3; 4096]);
        assert_eq!(bench.remote().reconnects, 1, "{manner:?}");
        assert_eq!(server.count(command::READ), 2);
    }
}

#[test]
fn a_reply_that_comes_twice_ends_the_connection() {
    let server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    server.state().manner = Manner::Twice;
    assert_eq!(client.read(0, 4096, 0), [0; 4096]);
    bench.reconnected(1);
    assert_eq!(client.read(0, 4096, 0), [0; 4096]);
}

#[test]
fn a_server_that_says_it_is_going_is_asked_again_when_it_is_back() {
    let server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    server.state().manner = Manner::ShuttingDown;
    client.write(0, &[6; 4096], 0).unwrap();
    assert_eq!(bench.remote().reconnects, 1);
    assert_eq!(server.count(command::WRITE), 2);
}

#[test]
fn a_server_that_hangs_up_on_its_clients_is_not_asked_without_pause() {
    let server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    server.state().manner = Manner::HangUp;
    server.hang_up();
    let read = client.start(Op::Read, 0, 4096, vec![0; 4096], 0);
    bench.wait_for("attempts", |r| r.reconnects >= 3);
    server.state().manner = Manner::InOrder;
    assert_eq!(read.recv_timeout(PATIENCE).unwrap().0, Ok(()));
    assert!(bench.remote().reconnects < 20, "{:?}", bench.remote());
}

#[test]
fn a_write_that_is_answered_too_early_ends_when_it_has_left() {
    let server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    server.state().manner = Manner::Early;
    let data = pattern(4, 6 << 20);
    client.write(0, &data, 0).unwrap();
    assert_eq!(client.read(0, 6 << 20, 0), data);
    assert_eq!(bench.remote().reconnects, 0);
}

#[test]
fn requests_survive_their_connection_wherever_it_is_cut() {
    let server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    let content = pattern(5, SIZE);
    server.state().content.copy_from_slice(&content);
    server.state().manner = Manner::CutReads(7);
    let asked: Vec<_> = (0..200usize)
        .map(|n| {
            let (offset, len) = ((n % 50) << 16, if n.is_multiple_of(3) { 65_536 } else { 4096 });
            let answer = client.start(Op::Read, offset as u64, len as u64, vec![0; len], 0);
            (offset, len, answer)
        })
        .collect();
    for (offset, len, answer) in asked {
        let (result, data, _) = answer.recv_timeout(PATIENCE * 3).unwrap();
        result.unwrap();
        assert!(data == content[offset..offset + len], "{offset} {len}");
    }
    assert!(bench.remote().reconnects > 10);
    assert_eq!(bench.remote().losses, 0);
}

#[test]
fn writes_that_wait_for_a_server_are_done_when_it_is_back() {
    let mut server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    server.crash();
    bench.wait_for("the loss", |r| r.state == RemoteState::Waiting && r.reason.is_some());
    let writes: Vec<_> = (0..32u64)
        .map(|n| {
            client.start(
                Op::Write(Durability::Cached),
                n << 16,
                65_536,
                vec![n as u8 + 1; 65_536],
                0,
            )
        })
        .collect();
    let flush = client.start(Op::Flush, 0, 0, vec![], 0);
    std::thread::sleep(Duration::from_millis(300));
    server.listen();
    for write in writes {
        write.recv_timeout(PATIENCE).unwrap().0.unwrap();
    }
    assert_eq!(flush.recv_timeout(PATIENCE).unwrap().0, Ok(()), "nothing was acknowledged before");
    assert_eq!(client.run(Op::Flush, 0, 0).0, Ok(()));
    let state = server.state();
    assert!(
        (0..32usize).all(|n| state.durable[n << 16..][..65_536].iter().all(|&b| b == n as u8 + 1))
    );
}

#[test]
fn an_export_of_another_size_is_not_the_disk() {
    let mut server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    client.write(0, &[5; 4096], 0).unwrap();
    server.crash();
    server.state().content = vec![9; SIZE / 2];
    let waiting = client.start(Op::Read, 0, 4096, vec![0; 4096], 0);
    server.listen();
    assert_eq!(waiting.recv_timeout(PATIENCE).unwrap().0, EIO);
    let remote = bench.remote();
    assert_eq!(remote.state, RemoteState::Failing);
    let reason = remote.reason.unwrap();
    assert!(reason.contains("4194304") && reason.contains("8388608"), "{reason}");
    assert_eq!(client.run(Op::Read, 0, 4096).0, EIO);
    server.state().content = vec![9; SIZE];
    bench.reconnected(1);
    assert_eq!(client.read(0, 4096, 0), [9; 4096]);
}

#[test]
fn a_disk_whose_server_comes_late_serves_then() {
    let mut server = Server::stopped(SIZE);
    let bench = Bench::with(&server, None, 512);
    let client = bench.client();
    let early = client.start(Op::Read, 0, 4096, vec![1; 4096], 0);
    bench.wait_for("the reason", |r| {
        r.reason.as_ref().is_some_and(|r| r.contains("cannot connect"))
    });
    server.listen();
    assert_eq!(early.recv_timeout(PATIENCE).unwrap().0, Ok(()));
    assert_eq!(bench.remote().reconnects, 0);
}

#[test]
fn what_waited_for_a_lost_server_is_no_latency_of_the_storage() {
    let mut server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    let smoothing = Smoothing::PerPeriod { past: Fraction::from_millionths(2_000).unwrap() };
    let meter = LatencyMeter::new(CostModel::Unit, smoothing).unwrap();
    bench.engine.set_meter(bench.datastore, Some(meter)).unwrap();
    server.state().manner = Manner::Silent;
    let sent = client.start(Op::Read, 0, 4096, vec![0; 4096], 0);
    while server.count(command::READ) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.crash();
    bench.wait_for("the loss", |r| r.state == RemoteState::Waiting);
    let late = client.start(Op::Read, 0, 4096, vec![0; 4096], 0);
    server.state().manner = Manner::InOrder;
    server.listen();
    for answer in [sent, late] {
        assert_eq!(answer.recv_timeout(PATIENCE).unwrap().0, Ok(()));
    }
    assert_eq!(bench.engine.end_period(bench.datastore).unwrap().latency, None);
    client.read(0, 4096, 0);
    assert_eq!(bench.engine.end_period(bench.datastore).unwrap().latency.unwrap().ios, 1);
}

#[test]
fn a_closed_disk_says_goodbye_and_is_not_held_up_by_a_silent_server() {
    let server = Server::start(SIZE);
    let bench = Bench::new(&server);
    bench.engine.close_disk(bench.disk, PATIENCE).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while server.state().goodbyes == 0 {
        assert!(Instant::now() < deadline, "no goodbye");
        std::thread::sleep(Duration::from_millis(5));
    }

    let server = Server::start(SIZE);
    let bench = Bench::new(&server);
    let client = bench.client();
    server.state().manner = Manner::Silent;
    let asked = client.start(Op::Read, 0, 4096, vec![0; 4096], 0);
    while server.count(command::READ) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    bench.engine.close_disk(bench.disk, Duration::from_millis(50)).unwrap();
    assert!(
        asked.recv_timeout(PATIENCE).is_err(),
        "not answered: a machine repeats it to the next daemon"
    );
    assert!(matches!(Client::try_new(&bench.engine, bench.disk), Err(EngineError::NoDisk)));
}

#[test]
fn only_exports_that_can_be_disks_are_opened() {
    let server = Server::start(SIZE);
    let why = |export: &str| {
        Connection::open(&server.uri(export), PATIENCE, &ClientTls::by_uri())
            .unwrap_err()
            .to_string()
    };
    assert!(why("other").contains("refuses export 'other'"), "{}", why("other"));
    server.state().flags = EVERYTHING | export::READ_ONLY;
    assert!(why("disk").contains("read-only"), "{}", why("disk"));
    server.state().flags = EVERYTHING;
    server.state().block_sizes = Some([65_536, 65_536, 1 << 20]);
    assert!(why("disk").contains("65536"), "{}", why("disk"));
    let nobody = Server::stopped(SIZE);
    let error = Connection::open(&nobody.uri("disk"), PATIENCE, &ClientTls::by_uri())
        .unwrap_err()
        .to_string();
    assert!(error.contains("cannot connect to nbd+unix:///?socket="), "{error}");
}
