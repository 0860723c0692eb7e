//! Disks over several servers through a running engine, against servers in this process. Where a
//! byte belongs is computed here from the definition, not by the crate that lays disks out.

use crate::support::far::{Bench, EIO, ZEROES, pattern};
use crate::support::server::{Manner, Said, Server};
use crate::support::{Client, PATIENCE};
use headgate_engine::request::{Durability, Op};
use headgate_engine::snapshot::RemoteState;
use headgate_engine::{Image, StripeMember};
use headgate_nbd::counters::{self, Window};
use headgate_nbd::wire::command;
use headgate_stripe::{HostName, Label, Layout, Lease, Stage, StripeId};
use headgate_units::Bytes;
use proptest::prelude::*;
use std::time::{Duration, Instant};

pub const UNIT: usize = 16 << 10;
/// Not a whole number of units.
pub const SIZE: usize = 41 * UNIT + 4096;
/// Where a member's data begins.
const DATA: usize = 1 << 20;
const ID: StripeId = StripeId([7; 16]);

pub struct Wide {
    pub servers: Vec<Server>,
    pub bench: Bench,
}

fn layout(members: usize) -> Layout {
    Layout::new(Bytes(UNIT as u64), members as u16, Bytes(SIZE as u64)).unwrap()
}

/// The member of a byte, and where it is there.
fn home(members: usize, at: usize) -> (usize, usize) {
    let unit = at / UNIT;
    (unit % members, DATA + unit / members * UNIT + at % UNIT)
}

fn lease() -> Lease {
    Lease { number: 3, host: [8; 16], name: HostName::new("gw1") }
}

pub fn labelled(members: usize, index: usize) -> Server {
    let server = Server::start(DATA + SIZE.div_ceil(UNIT * members) * UNIT);
    label(&server, ID, members, index);
    server
}

fn label(server: &Server, id: StripeId, members: usize, index: usize) {
    let (layout, lease, stage) = (layout(members), lease(), Stage::Made);
    put(server, &Label { id, index: index as u16, layout, lease, stage });
}

fn put(server: &Server, label: &Label) {
    let mut state = server.state();
    state.content[..4096].copy_from_slice(&label.to_bytes());
    state.durable[..4096].copy_from_slice(&label.to_bytes());
}

impl Wide {
    fn new(members: usize) -> Wide {
        Wide::over((0..members).map(|index| labelled(members, index)).collect(), PATIENCE)
    }

    pub fn over(servers: Vec<Server>, patience: Duration) -> Wide {
        let member = |server: &Server| StripeMember { uri: server.uri("disk"), connection: None };
        let members: Vec<StripeMember> = servers.iter().map(member).collect();
        let image = Image::striped(ID, layout(members.len()), lease(), 512, members).unwrap();
        let bench = Bench::on(image.patient(patience));
        Wide { servers, bench }
    }

    pub fn connected(members: usize) -> Wide {
        let wide = Wide::new(members);
        wide.bench.wait_for("all connections", |r| r.state == RemoteState::Connected);
        wide
    }

    /// What the disk holds, as the servers have it; or would have it after a crash.
    pub fn content(&self, durable: bool) -> Vec<u8> {
        let states: Vec<_> = self.servers.iter().map(Server::state).collect();
        let byte = |at| {
            let (member, offset) = home(self.servers.len(), at);
            if durable { states[member].durable[offset] } else { states[member].content[offset] }
        };
        (0..SIZE).map(byte).collect()
    }

    fn flushes(&self) -> Vec<usize> {
        self.servers.iter().map(|server| server.count(command::FLUSH)).collect()
    }

    fn flush(&self, client: &Client) -> Result<(), headgate_engine::request::IoError> {
        client.run(Op::Flush, 0, 0).0
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// Any requests, also odd buffers and ones over all servers: what is read is what was written,
    /// and lies where the definition says.
    #[test]
    fn what_was_written_is_where_it_belongs_and_read_back(
        members in 1usize..=5,
        reversed: bool,
        steps in prop::collection::vec(
            (0u8..6, 0usize..SIZE / 512, 1usize..400, 0usize..9, any::<u8>()), 1..40),
    ) {
        let wide = Wide::new(members);
        if reversed {
            wide.servers.iter().for_each(|server| server.state().manner = Manner::Reversed);
        }
        let client = wide.bench.client();
        let mut expected = vec![0; SIZE];
        for (step, block, blocks, skew, seed) in steps {
            let offset = block * 512;
            let len = (blocks * 512).min(SIZE - offset);
            let range = offset..offset + len;
            match step {
                0 | 1 => {
                    let data = pattern(seed, len);
                    prop_assert_eq!(client.write(offset as u64, &data, skew), Ok(()));
                    expected[range].copy_from_slice(&data);
                }
                2 => {
                    let op = if seed % 2 == 0 { ZEROES } else { Op::Discard };
                    prop_assert_eq!(client.run(op, offset as u64, len as u64).0, Ok(()));
                    expected[range].fill(0);
                }
                3 => {
                    prop_assert_eq!(wide.flush(&client), Ok(()));
                    prop_assert!(wide.content(true) == expected, "what was flushed is durable");
                }
                _ => prop_assert!(
                    client.read(offset as u64, len, skew) == expected[range], "{} {}", offset, len),
            }
        }
        prop_assert!(wide.content(false) == expected);
        let (layout, lease, stage) = (layout(members), lease(), Stage::Made);
        let label = Label { id: ID, index: 0, layout, lease, stage };
        prop_assert_eq!(&wide.servers[0].state().content[..4096], &label.to_bytes()[..]);
    }
}

#[test]
fn a_request_is_one_command_at_each_server_that_it_concerns() {
    let wide = Wide::connected(3);
    let client = wide.bench.client();
    // From the middle of a unit of the first server over all of the second and third twice.
    let (offset, len) = (UNIT / 2, 5 * UNIT);
    client.write(offset as u64, &pattern(1, len), 0).unwrap();
    let writes: Vec<(u64, u32)> = wide
        .servers
        .iter()
        .map(|server| {
            let log = &server.state().log;
            let mut writes = log.iter().filter(|(kind, ..)| *kind == command::WRITE);
            let &(.., offset, len) = writes.next().unwrap();
            assert_eq!(writes.next(), None);
            (offset - DATA as u64, len)
        })
        .collect();
    let unit = UNIT as u64;
    let all = [(unit / 2, 3 * UNIT / 2 + UNIT / 2), (0, 2 * UNIT), (0, 3 * UNIT / 2)];
    let expected = [
        (all[0].0, (UNIT / 2 + UNIT) as u32),
        (all[1].0, all[1].1 as u32),
        (all[2].0, all[2].1 as u32),
    ];
    assert_eq!(writes, expected.to_vec());
}

#[test]
fn a_flush_goes_to_all_servers_first_and_then_to_those_with_unflushed_writes() {
    let wide = Wide::connected(3);
    let client = wide.bench.client();
    // A predecessor of this process may have written anywhere.
    assert_eq!(wide.flush(&client), Ok(()));
    assert_eq!(wide.flushes(), [1, 1, 1]);
    assert_eq!(wide.flush(&client), Ok(()));
    assert_eq!(wide.flushes(), [1, 1, 1], "there is nothing to make durable");
    client.write(UNIT as u64, &[1; 4096], 0).unwrap();
    assert_eq!(wide.flush(&client), Ok(()));
    assert_eq!(wide.flushes(), [1, 2, 1]);
    client.write(0, &[1; 3 * UNIT], 0).unwrap();
    let fua = Op::Write(Durability::Fua);
    assert_eq!(client.run(fua, 4 * UNIT as u64, 4096).0, Ok(()));
    assert_eq!(wide.flush(&client), Ok(()));
    assert_eq!(wide.flushes(), [2, 3, 2]);
    assert_eq!(wide.flush(&client), Ok(()));
    assert_eq!(wide.flushes(), [2, 3, 2], "durable writes need none");
}

#[test]
fn a_flush_covers_what_was_trimmed() {
    let mut wide = Wide::connected(3);
    let client = wide.bench.client();
    client.write(0, &[1; 3 * UNIT], 0).unwrap();
    assert_eq!(wide.flush(&client), Ok(()));
    assert_eq!(client.run(Op::Discard, UNIT as u64, UNIT as u64).0, Ok(()));
    assert_eq!(wide.flush(&client), Ok(()));
    assert_eq!(wide.flushes(), [1, 2, 1]);
    assert_eq!(client.run(Op::Discard, 0, UNIT as u64).0, Ok(()));
    wide.servers[0].crash();
    wide.servers[0].listen();
    wide.bench.reconnected(1);
    assert_eq!(client.read(0, UNIT, 0), [1; UNIT], "this server forgets");
    assert_eq!(wide.flush(&client), EIO);
    assert_eq!(wide.flush(&client), Ok(()));
}

#[test]
fn a_flush_answers_when_the_last_server_has_and_fails_when_one_does() {
    let wide = Wide::connected(3);
    let client = wide.bench.client();
    client.write(0, &[1; 3 * UNIT], 0).unwrap();
    wide.servers[1].state().manner = Manner::DeafAfter(0);
    let flush = client.start(Op::Flush, 0, 0, vec![], 0);
    for server in &wide.servers {
        server.wait_for(command::FLUSH, 1);
    }
    let nothing = flush.recv_timeout(Duration::from_millis(100));
    assert!(nothing.is_err(), "one server has not answered: {nothing:?}");
    wide.servers[1].state().manner = Manner::InOrder;
    // It answers nothing that it was deaf for: the request is sent again on a new connection.
    wide.servers[1].hang_up();
    assert_eq!(flush.recv_timeout(PATIENCE).unwrap().0, EIO, "it had a write that nobody flushed");
    assert_eq!(wide.flush(&client), EIO);
    assert_eq!(wide.flush(&client), Ok(()));
    wide.servers[2].state().manner = Manner::Error(5);
    client.write(0, &[1; UNIT], 0).unwrap();
    assert_eq!(wide.flush(&client), Ok(()), "nothing of it is there");
    wide.servers[2].state().manner = Manner::InOrder;
    client.write(2 * UNIT as u64, &[1; UNIT], 0).unwrap();
    wide.servers[2].state().manner = Manner::Error(28);
    assert!(wide.flush(&client).is_err());
}

#[test]
fn what_a_dead_server_may_have_lost_fails_one_flush_of_each_client() {
    let mut wide = Wide::connected(3);
    let (one, other) = (wide.bench.client(), wide.bench.client());
    one.write(0, &[1; 3 * UNIT], 0).unwrap();
    assert_eq!(wide.flush(&one), Ok(()));
    one.write(2 * UNIT as u64, &[2; 4096], 0).unwrap();
    // This one has nothing that is not durable.
    wide.servers[0].crash();
    wide.servers[0].listen();
    wide.bench.reconnected(1);
    assert_eq!(wide.flush(&one), Ok(()));
    one.write(2 * UNIT as u64, &[2; 4096], 0).unwrap();
    wide.servers[2].crash();
    wide.servers[2].listen();
    wide.bench.reconnected(2);
    assert_eq!(wide.bench.remote().losses, 1);
    assert_eq!(wide.flush(&one), EIO);
    assert_eq!(wide.flush(&one), Ok(()));
    assert_eq!(wide.flush(&other), EIO);
    assert_eq!(wide.flush(&other), Ok(()));
}

#[test]
fn while_a_server_is_away_its_requests_wait_and_those_of_others_go_on() {
    let mut wide = Wide::connected(3);
    let client = wide.bench.client();
    let data = pattern(9, 3 * UNIT);
    client.write(0, &data, 0).unwrap();
    assert_eq!(wide.flush(&client), Ok(()));
    wide.servers[1].crash();
    let waiting = client.start(Op::Read, 0, 3 * UNIT as u64, vec![0; 3 * UNIT], 0);
    for _ in 0..10 {
        assert_eq!(client.read(0, UNIT, 0), data[..UNIT]);
        assert_eq!(client.read(2 * UNIT as u64, UNIT, 0), data[2 * UNIT..]);
    }
    assert!(waiting.try_recv().is_err());
    let remote = wide.bench.remote();
    assert_eq!(remote.state, RemoteState::Waiting);
    let states: Vec<RemoteState> = remote.servers.iter().map(|server| server.state).collect();
    let (on, off) = (RemoteState::Connected, RemoteState::Waiting);
    assert_eq!(states, [on, off, on]);
    wide.servers[1].listen();
    let (result, read, _) = waiting.recv_timeout(PATIENCE).unwrap();
    assert_eq!((result, read == data), (Ok(()), true));
}

#[test]
fn a_server_that_stays_away_fails_its_requests_and_no_others() {
    let mut wide = Wide::over((0..3).map(|i| labelled(3, i)).collect(), Duration::from_millis(300));
    wide.bench.wait_for("all connections", |r| r.state == RemoteState::Connected);
    let client = wide.bench.client();
    client.write(0, &[3; 3 * UNIT], 0).unwrap();
    assert_eq!(wide.flush(&client), Ok(()));
    wide.servers[1].crash();
    wide.bench.wait_for("no hope", |r| r.state == RemoteState::Failing);
    assert_eq!(client.run(Op::Read, 0, 3 * UNIT as u64).0, EIO);
    assert_eq!(client.read(0, UNIT, 0), [3; UNIT]);
    client.write(2 * UNIT as u64, &[4; UNIT], 0).unwrap();
    assert_eq!(wide.flush(&client), Ok(()), "all that was written is where it can be made durable");
    wide.servers[1].listen();
    wide.bench.reconnected(1);
    assert_eq!(client.read(UNIT as u64, UNIT, 0), [3; UNIT]);
}

#[test]
fn an_export_of_another_disk_or_place_is_not_taken_for_a_member() {
    for (index, id, words) in [(2, ID, "member"), (1, StripeId([8; 16]), "0808")] {
        let wide = {
            let servers: Vec<Server> = (0..3).map(|i| labelled(3, i)).collect();
            label(&servers[1], id, 3, index);
            Wide::over(servers, PATIENCE)
        };
        wide.bench.wait_for("a refusal", |r| r.state == RemoteState::Failing);
        let remote = wide.bench.remote();
        let reason = remote.reason.unwrap();
        assert!(reason.contains(words), "{reason}");
        assert!(reason.contains(&remote.servers[1].server), "{reason}");
        let client = wide.bench.client();
        assert_eq!(client.run(Op::Write(Durability::Cached), UNIT as u64, 4096).0, EIO);
        assert_eq!(wide.servers[1].count(command::WRITE), 0);
        // The operator has put it right.
        label(&wide.servers[1], ID, 3, 1);
        wide.bench.wait_for("a connection", |r| r.state == RemoteState::Connected);
        client.write(UNIT as u64, &[1; 4096], 0).unwrap();
    }
}

#[test]
fn a_server_that_comes_back_as_another_member_gets_no_requests() {
    let mut wide = Wide::connected(2);
    let client = wide.bench.client();
    client.write(0, &[1; 2 * UNIT], 0).unwrap();
    assert_eq!(wide.flush(&client), Ok(()));
    wide.servers[1].crash();
    label(&wide.servers[1], ID, 2, 0);
    wide.servers[1].listen();
    wide.bench.wait_for("a refusal", |r| r.state == RemoteState::Failing);
    assert_eq!(client.run(Op::Write(Durability::Fua), UNIT as u64, 4096).0, EIO);
    assert_eq!(client.run(Op::Write(Durability::Fua), 0, 4096).0, Ok(()));
}

/// Another host has taken the disk over, as a label says or as a server does.
#[test]
fn a_disk_that_another_host_holds_is_not_served_from_that_member() {
    let lease = |number, host| Lease { number, host: [host; 16], name: HostName::new("gw2") };
    let other_leases = [lease(4, 9), lease(2, 8), lease(3, 9), lease(3, 8).given_back()];
    for case in other_leases.map(Some).into_iter().chain([None]) {
        let mut wide = Wide::connected(2);
        let client = wide.bench.client();
        client.write(0, &[1; 2 * UNIT], 0).unwrap();
        let expected = counters::Lease { disk: ID.0, number: 3, host: [8; 16] };
        assert!(wide.servers.iter().all(|server| server.state().shown == Some(expected)));
        wide.servers[1].crash();
        match case {
            Some(lease) => {
                let (layout, stage) = (layout(2), Stage::Made);
                let label = Label { id: ID, index: 1, layout, lease, stage };
                put(&wide.servers[1], &label);
            }
            None => wide.servers[1].state().held = true,
        }
        wide.servers[1].state().log.clear();
        wide.servers[1].listen();
        wide.bench.wait_for("an eviction", |r| r.state == RemoteState::Evicted);
        let remote = wide.bench.remote();
        assert!(remote.reason.is_some_and(|why| why.contains("held by")), "{case:?}");
        assert_eq!(client.run(Op::Write(Durability::Fua), UNIT as u64, 4096).0, EIO);
        assert_eq!(wide.servers[1].count(command::WRITE), 0);
    }
}

/// Requests one after the other, in a known order over the servers.
#[test]
fn each_server_hears_once_of_all_that_the_others_gave() {
    let mut wide = {
        let servers: Vec<Server> = (0..3).map(|i| labelled(3, i)).collect();
        for (n, server) in (1..).zip(&servers) {
            server.state().counts = Some([n * 1_000_000, (n - 1) * 1_000_000]);
        }
        // Of the version before, of this one, and of this one without a window.
        servers[1].state().window = Some(12_500_000);
        servers[2].state().window = Some(0);
        Wide::over(servers, PATIENCE)
    };
    wide.bench.wait_for("all connections", |r| r.state == RemoteState::Connected);
    // The reads of labels are no business of the disk's.
    wide.servers.iter().for_each(|server| server.state().said.clear());
    let client = wide.bench.client();
    let mut last: Vec<Option<usize>> = vec![None; 3];
    let order = [0, 1, 2, 2, 0, 1, 1, 1, 0, 2, 0, 0, 0, 1, 2, 0];
    for (at, &server) in order.iter().enumerate() {
        client.read((server * UNIT) as u64, 4096, 0);
        let since = last[server].map_or(&[][..], |last| &order[last..at]);
        let others = || since.iter().filter(|&&other| other != server);
        let expected = Said {
            delta: others().map(|&other| (other as u64 + 1) * 1_000_000).sum(),
            rho: others().map(|&other| other as u64 * 1_000_000).sum(),
            bytes: others().count() as u64 * 4096,
            ioprio: 0x4004,
        };
        let said = wide.servers[server].state().said.last().copied();
        assert_eq!(said, Some(expected), "request {at} to server {server}");
        last[server] = Some(at);
    }
    let remote = wide.bench.remote();
    for (n, server) in (0..).zip(&remote.servers) {
        let requests = order.iter().filter(|&&other| other == n).count() as u64;
        let received = (server.received.all, server.received.by_reservation);
        let one = n as u64 * 1_000_000;
        assert_eq!(received, (requests * (one + 1_000_000), requests * one));
    }
    let windows: Vec<_> = remote.servers.iter().map(|server| server.window).collect();
    assert_eq!(windows, [None, Some(Window(12_500_000)), None]);
    // The next answer has the window of then, and without a connection nobody knows it.
    wide.servers[1].state().window = Some(3_000_000);
    client.read(UNIT as u64, 4096, 0);
    assert_eq!(wide.bench.remote().servers[1].window, Some(Window(3_000_000)));
    wide.servers[1].crash();
    wide.bench.wait_for("the loss", |r| r.servers[1].state != RemoteState::Connected);
    assert_eq!(wide.bench.remote().servers[1].window, None);
}

#[test]
fn what_was_received_elsewhere_is_told_after_a_reconnection_too() {
    let wide = {
        let servers: Vec<Server> = (0..2).map(|i| labelled(2, i)).collect();
        servers.iter().for_each(|server| server.state().counts = Some([1_000_000, 0]));
        Wide::over(servers, PATIENCE)
    };
    let client = wide.bench.client();
    client.read(UNIT as u64, 4096, 0);
    client.read(0, 4096, 0);
    wide.servers[1].hang_up();
    wide.bench.reconnected(1);
    for _ in 0..5 {
        client.read(0, 4096, 0);
    }
    client.read(UNIT as u64, 4096, 0);
    let said = wide.servers[1].state().said.last().copied().unwrap();
    assert_eq!((said.delta, said.rho, said.bytes), (6_000_000, 0, 6 * 4096));
}

#[test]
fn servers_that_do_not_count_serve_all_the_same() {
    let wide = {
        let servers: Vec<Server> = (0..3).map(|i| labelled(3, i)).collect();
        servers[0].state().counts = Some([1_000_000, 1_000_000]);
        Wide::over(servers, PATIENCE)
    };
    let client = wide.bench.client();
    let data = pattern(5, 6 * UNIT);
    client.write(0, &data, 1).unwrap();
    assert!(client.read(0, 6 * UNIT, 3) == data);
    assert!(wide.servers[1].state().said.is_empty());
    assert!(!wide.servers[0].state().said.is_empty());
}

#[test]
fn a_disk_that_is_closed_says_goodbye_to_all_of_its_servers() {
    let wide = Wide::connected(3);
    let client = wide.bench.client();
    client.write(0, &[1; 3 * UNIT], 0).unwrap();
    wide.bench.engine.close_disk(wide.bench.disk, PATIENCE).unwrap();
    let deadline = Instant::now() + PATIENCE;
    // A dialer's look at the label is a connection as well, whose goodbye is none of these.
    while wide.servers.iter().any(|server| server.state().goodbyes == 0) {
        assert!(Instant::now() < deadline, "a server hears no goodbye");
        std::thread::sleep(Duration::from_millis(5));
    }
}
