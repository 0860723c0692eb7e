//! Block status of disks on servers: what servers say is told, in the order of the disk, and what
//! they cannot mean is data.

use crate::stripes::{self, UNIT, Wide, labelled};
use crate::support::far::{Bench, SIZE, ZEROES, pattern};
use crate::support::server::{CONTEXT, Manner, Says, Server};
use crate::support::{Client, PATIENCE};
use headgate_engine::request::{Extent, ExtentKind, Op};
use headgate_engine::snapshot::RemoteState;
use headgate_nbd::counters::Window;
use headgate_nbd::wire::{STATE_HOLE, STATE_ZERO, command};

const BLOCK: usize = 4096;
const HOLE: u32 = STATE_HOLE | STATE_ZERO;

/// What is told of a range, of each block of it from its beginning on. All of it must be told of.
fn told(client: &Client, offset: usize, len: usize) -> Vec<ExtentKind> {
    let mut kinds = Vec::new();
    while kinds.len() * BLOCK < len {
        let at = kinds.len() * BLOCK;
        let (result, _, extents) =
            client.run(Op::BlockStatus, (offset + at) as u64, (len - at) as u64);
        result.unwrap();
        let all: u64 = extents.iter().map(|extent| extent.len).sum();
        assert!(all > 0 && all as usize <= len - at && extents.len() <= 4096, "{extents:?}");
        for Extent { len, kind } in extents {
            assert!(len > 0 && len % BLOCK as u64 == 0);
            kinds.extend(std::iter::repeat_n(kind, len as usize / BLOCK));
        }
    }
    kinds
}

/// The same from what the disk holds.
fn held(content: &[u8]) -> Vec<ExtentKind> {
    let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    let kind = |block| if is_zero(block) { ExtentKind::Hole } else { ExtentKind::Data };
    content.chunks(BLOCK).map(kind).collect()
}

fn saying(says: Says) -> Server {
    let server = Server::start(SIZE);
    server.state().says = says;
    server
}

#[test]
fn holes_are_where_nobody_has_written_and_nowhere_else() {
    let server = saying(Says::Zeroes);
    let bench = Bench::new(&server);
    let client = bench.client();
    assert_eq!(told(&client, 0, SIZE), vec![ExtentKind::Hole; SIZE / BLOCK]);
    for (n, (offset, len)) in
        [(0, BLOCK), (5 * BLOCK, 3 * BLOCK), (SIZE - BLOCK, BLOCK), (1 << 20, 512)]
            .into_iter()
            .enumerate()
    {
        client.write(offset as u64, &pattern(n as u8 | 1, len), n).unwrap();
        assert_eq!(told(&client, 0, SIZE), held(&server.state().content), "{offset} {len}");
    }
    assert_eq!(client.run(ZEROES, 5 * BLOCK as u64, BLOCK as u64).0, Ok(()));
    let content = server.state().content.clone();
    assert_eq!(told(&client, 4 * BLOCK, 9 * BLOCK), held(&content[4 * BLOCK..13 * BLOCK]));
    assert_eq!(
        client.run(Op::BlockStatus, 512, 512).2,
        [Extent { len: 512, kind: ExtentKind::Data }]
    );
}

/// Pieces come out of their order, and zeroes do not come at all.
#[test]
fn reads_in_pieces_and_holes_are_what_was_written() {
    let server = saying(Says::Zeroes);
    let bench = Bench::new(&server);
    let client = bench.client();
    let mut content = pattern(3, SIZE);
    for hole in [BLOCK..2 * BLOCK, 1 << 20..2 << 20, SIZE - 512..SIZE] {
        content[hole].fill(0);
    }
    server.state().content.copy_from_slice(&content);
    for manner in [Manner::InOrder, Manner::Reversed] {
        server.state().manner = manner;
        let asked: Vec<_> = [
            (0, 512),
            (512, BLOCK),
            (0, 4 * BLOCK),
            (1 << 20, 1 << 20),
            (0, SIZE),
            (SIZE - 1024, 1024),
        ]
        .into_iter()
        .zip(0..)
        .map(|((offset, len), skew)| {
            let answer = client.start(Op::Read, offset as u64, len as u64, vec![0xee; len], skew);
            (offset, len, answer)
        })
        .collect();
        for (offset, len, answer) in asked {
            let (result, data, _) = answer.recv_timeout(PATIENCE).unwrap();
            result.unwrap();
            assert!(data == content[offset..offset + len], "{offset} {len} {manner:?}");
        }
    }
}

#[test]
fn a_server_that_does_not_say_has_data_everywhere_and_is_not_asked() {
    let server = saying(Says::Nothing);
    let bench = Bench::new(&server);
    assert_eq!(told(&bench.client(), 0, SIZE), vec![ExtentKind::Data; SIZE / BLOCK]);
    assert_eq!(server.count(command::BLOCK_STATUS), 0);
}

fn said(context: u32, extents: &[(u32, u32)]) -> Says {
    let mut bytes = context.to_be_bytes().to_vec();
    for (len, flags) in extents {
        bytes.extend([len.to_be_bytes(), flags.to_be_bytes()].concat());
    }
    Says::Bytes(bytes)
}

/// The disk is all data, and every server says that it is holes, in a way that cannot be. Its
/// clients go on in any case.
#[test]
fn what_a_server_cannot_mean_is_never_told_as_a_hole() {
    let all = SIZE as u32;
    let understood = [
        said(CONTEXT, &[(all, 0)]),
        said(CONTEXT, &[(0, HOLE), (all, HOLE)]),
        said(CONTEXT, &[(all / 2, HOLE), (0, 0), (all / 2, HOLE)]),
        said(CONTEXT, &[(all, HOLE | 4)]),
        said(CONTEXT, &[(all, STATE_HOLE)]),
        said(CONTEXT, &[(all, u32::MAX)]),
        said(CONTEXT, &[(100, HOLE)]),
        said(CONTEXT, &[(511, HOLE), (all, 0)]),
        said(CONTEXT + 1, &[(all, HOLE)]),
    ];
    // Not even the framing is right: such a connection is given up.
    let breaches = [
        Says::Bytes(Vec::new()),
        Says::Bytes(vec![0; 3]),
        said(CONTEXT, &[]),
        Says::Bytes(vec![0; 4 + 12]),
        Says::Bytes(vec![0xff; (8 << 20) + 12]),
    ];
    for (says, breach) in
        understood.into_iter().map(|says| (says, false)).chain(breaches.map(|says| (says, true)))
    {
        let text: String = format!("{says:?}").chars().take(80).collect();
        let server = saying(says);
        server.state().content.fill(7);
        let bench = Bench::new(&server);
        let client = bench.client();
        let asked = client.start(Op::BlockStatus, 0, SIZE as u64, Vec::new(), 0);
        if breach {
            bench.wait_for("the connection should be lost", |remote| remote.reconnects >= 1);
            server.state().says = Says::Zeroes;
        }
        let (result, _, extents) = asked.recv_timeout(PATIENCE).unwrap();
        assert_eq!(result, Ok(()), "{text}");
        assert!(extents.iter().all(|extent| extent.kind == ExtentKind::Data), "{text}");
        assert!(!extents.is_empty(), "{text}");
        assert_eq!(client.read(0, BLOCK, 0), [7; BLOCK]);
        assert_eq!(breach, bench.remote().reconnects > 0, "{text}");
    }
}

#[test]
fn a_question_that_the_server_refuses_is_answered_with_data() {
    let server = saying(Says::Zeroes);
    let bench = Bench::new(&server);
    let client = bench.client();
    server.state().manner = Manner::Error(22);
    assert_eq!(told(&client, 0, SIZE), vec![ExtentKind::Data; SIZE / BLOCK]);
    server.state().manner = Manner::InOrder;
    assert_eq!(told(&client, 0, SIZE), vec![ExtentKind::Hole; SIZE / BLOCK]);
}

#[test]
fn of_very_many_extents_the_first_are_told() {
    let server = saying(Says::Alternating(BLOCK as u32));
    let bench = Bench::new(&server);
    let (result, _, extents) = bench.client().run(Op::BlockStatus, 0, SIZE as u64);
    assert_eq!(result, Ok(()));
    assert_eq!(extents.len(), 512);
    let kind = |n| if n % 2 == 0 { ExtentKind::Data } else { ExtentKind::Hole };
    assert!(extents.iter().enumerate().all(|(n, e)| e.len == BLOCK as u64 && e.kind == kind(n)));
    // Smaller ones than a block are holes nowhere.
    server.state().says = Says::Alternating(100);
    let (result, _, extents) = bench.client().run(Op::BlockStatus, 0, SIZE as u64);
    assert!(result.is_ok() && extents.iter().all(|extent| extent.kind == ExtentKind::Data));
}

/// What a lost connection had said is not believed: the server may have come back as it was before.
#[test]
fn a_question_is_asked_again_when_its_connection_is_lost() {
    let server = saying(Says::Zeroes);
    server.state().manner = Manner::DeafAfter(0);
    let bench = Bench::new(&server);
    let client = bench.client();
    let asked = client.start(Op::BlockStatus, 0, SIZE as u64, Vec::new(), 0);
    server.wait_for(command::BLOCK_STATUS, 1);
    server.state().content[..BLOCK].fill(1);
    server.state().manner = Manner::InOrder;
    server.hang_up();
    let (result, _, extents) = asked.recv_timeout(PATIENCE).unwrap();
    assert_eq!(result, Ok(()));
    let [block, rest] = [BLOCK as u64, (SIZE - BLOCK) as u64];
    let data = Extent { len: block, kind: ExtentKind::Data };
    assert_eq!(extents, [data, Extent { len: rest, kind: ExtentKind::Hole }]);
    assert_eq!(server.count(command::BLOCK_STATUS), 2);
}

/// A disk over servers of which some count, by either version.
fn wide(members: usize) -> Wide {
    let servers: Vec<Server> = (0..members).map(|index| labelled(members, index)).collect();
    for (n, server) in servers.iter().enumerate() {
        server.state().says = Says::Zeroes;
        server.state().counts = (n % 2 == 0).then_some([1_000_000, 0]);
        server.state().window = (n % 4 == 0).then_some(12_000_000);
    }
    let wide = Wide::over(servers, PATIENCE);
    wide.bench.wait_for("all connections", |r| r.state == RemoteState::Connected);
    wide
}

#[test]
fn what_servers_say_is_told_in_the_order_of_the_disk() {
    for members in [1, 2, 3, 5] {
        let wide = wide(members);
        let client = wide.bench.client();
        assert_eq!(told(&client, 0, stripes::SIZE), vec![ExtentKind::Hole; stripes::SIZE / BLOCK]);
        for n in 0..24 {
            let (at, len) = (n * 7919 % (stripes::SIZE / BLOCK - 9) * BLOCK, (n % 9 + 1) * BLOCK);
            client.write(at as u64, &pattern(n as u8, len), n % 3).unwrap();
            let content = wide.content(false);
            assert_eq!(told(&client, 0, stripes::SIZE), held(&content), "{members}: {at} {len}");
            let (from, to) = (at / 2 / BLOCK * BLOCK, (at + len + 2 * UNIT).min(stripes::SIZE));
            assert_eq!(told(&client, from, to - from), held(&content[from..to]), "{members}");
        }
        // One question at each server, with its charge and the window in the answer.
        let counted = |wide: &Wide| wide.bench.remote().servers[0].received.all;
        let (asked, before) = (wide.servers[0].count(command::BLOCK_STATUS), counted(&wide));
        wide.servers[0].state().window = Some(3_000_000);
        client.run(Op::BlockStatus, 0, stripes::SIZE as u64).0.unwrap();
        assert_eq!(wide.bench.remote().servers[0].window, Some(Window(3_000_000)));
        assert_eq!(wide.servers[0].count(command::BLOCK_STATUS), asked + 1);
        assert_eq!(counted(&wide), before + 1_000_000);
    }
}

#[test]
fn one_server_that_does_not_say_has_data_and_the_others_what_they_say() {
    let servers: Vec<Server> = (0..3).map(|index| labelled(3, index)).collect();
    servers.iter().for_each(|server| server.state().says = Says::Zeroes);
    servers[1].state().says = Says::Nothing;
    let wide = Wide::over(servers, PATIENCE);
    let client = wide.bench.client();
    let expected: Vec<ExtentKind> = (0..stripes::SIZE / BLOCK)
        .map(|block| match block * BLOCK / UNIT % 3 {
            1 => ExtentKind::Data,
            _ => ExtentKind::Hole,
        })
        .collect();
    assert_eq!(told(&client, 0, stripes::SIZE), expected);
}

/// Many questions, writes and reads at the same time, over connections that break: no written byte
/// is told as a hole once its write was answered.
#[test]
fn a_written_block_is_data_whatever_becomes_of_connections() {
    let wide = wide(3);
    let client = wide.bench.client();
    let mut written = [false; stripes::SIZE / BLOCK];
    for n in 0..60 {
        let block = n * 31 % written.len();
        client.write((block * BLOCK) as u64, &[n as u8 | 1; BLOCK], 0).unwrap();
        written[block] = true;
        let asked: Vec<_> = (0..4)
            .map(|_| client.start(Op::BlockStatus, 0, stripes::SIZE as u64, Vec::new(), 0))
            .collect();
        if n % 7 == 3 {
            wide.servers[n % 3].hang_up();
        }
        for asked in asked {
            let (result, _, extents) = asked.recv_timeout(PATIENCE).unwrap();
            result.unwrap();
            let kinds =
                extents.iter().flat_map(|e| std::iter::repeat_n(e.kind, e.len as usize / BLOCK));
            for (written, kind) in written.iter().zip(kinds) {
                assert_eq!(kind == ExtentKind::Data, *written, "round {n}");
            }
        }
    }
}
