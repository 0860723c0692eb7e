//! Small disks: everything that may happen to them.

use crate::defect::Defect;
use crate::machine::Machine;
use crate::search::search;
use crate::simple::Simple;
use crate::storage::{Discards, Init};
use crate::world::{Budget, Case, Effects, Looks, Nonsense, World, data};
use headgate_mirror::instant::{Keeps, Limits};
use headgate_mirror::{Durability, Extent, Request, TargetContent, Unmap};
use headgate_units::Bytes;

/// Reads, writes, writes through, discards, zeroes, zeroes through that stay allocated, flushes.
const EVERY_KIND: &str = "rwfdzZs";

/// A request of this kind.
pub fn request(kind: char, start: u64, len: u64) -> Option<Request> {
    if kind == 's' {
        return Some(Request::Flush);
    }
    let extent = Extent::new(Bytes(start), Bytes(len))?;
    Some(match kind {
        'r' => Request::Read(extent),
        'w' => Request::Write(extent, Durability::Cached),
        'f' => Request::Write(extent, Durability::Fua),
        'd' => Request::Discard(extent),
        'z' => Request::Zero(extent, Unmap::May, Durability::Cached),
        'Z' => Request::Zero(extent, Unmap::MustNot, Durability::Fua),
        _ => return None,
    })
}

/// Requests of these kinds, of every extent of a disk.
pub fn requests(blocks: u64, kinds: &str) -> Vec<Request> {
    let flushes = kinds.chars().filter(|kind| *kind == 's');
    let mut all: Vec<Request> = flushes.map(|_| Request::Flush).collect();
    for start in 0..blocks {
        for len in 1..=blocks - start {
            let kinds = kinds.chars().filter(|kind| *kind != 's');
            all.extend(kinds.filter_map(|kind| request(kind, start, len)));
        }
    }
    all
}

/// Steps of one chunk.
pub fn limits(chunk: u64, steps: u32, buffers: u64) -> Limits {
    Limits {
        requests: 2,
        steps,
        ahead: steps,
        step: Bytes(chunk),
        look: Bytes(2 * chunk),
        buffers: Bytes(buffers),
        chunk: Bytes(chunk),
        bitmap: Bytes(1),
    }
}

/// Data and holes in turn, chunks of one block, two steps at once, a new file as target, nothing
/// goes wrong.
pub fn plain<const N: usize>(name: &'static str, kinds: &str, requests_left: u8) -> Case<N> {
    Case {
        name,
        source: std::array::from_fn(|at| if at % 2 == 0 { data(at as u8) } else { Init::Hole }),
        target: TargetContent::Zeroes,
        keeps: Keeps::Buffers,
        discards: (Discards::Zero, Discards::Zero),
        old: Vec::new(),
        limits: limits(1, 2, 2),
        requests: requests(N as u64, kinds),
        budget: Budget { requests: requests_left, failures: 0, ends: 0, refusals: 0 },
        effects: Effects::WhenReported,
        looks: Looks::Always,
        nonsense: Nonsense::NotTried,
        defect: Defect::None,
    }
}

/// The same with troubles.
pub fn troubled<const N: usize>(case: Case<N>, failures: u8, ends: u8) -> Case<N> {
    Case { budget: Budget { failures, ends, ..case.budget }, ..case }
}

/// The same with a target that shares blocks, until it refuses to.
pub fn shared<const N: usize>(case: Case<N>, refusals: u8) -> Case<N> {
    Case { keeps: Keeps::Target, budget: Budget { refusals, ..case.budget }, ..case }
}

/// The same on a disk without holes.
pub fn full<const N: usize>(case: Case<N>) -> Case<N> {
    Case { source: std::array::from_fn(|at| data(at as u8)), ..case }
}

fn is_large() -> bool {
    std::env::var("HEADGATE_SEARCH").is_ok_and(|size| size == "large")
}

/// Tries everything in each case; those of the second list in the large search only.
fn try_all<M: Machine, const N: usize>(small: &[Case<N>], large: &[Case<N>]) {
    let larger = large.iter().filter(|_| is_large());
    for case in small.iter().chain(larger) {
        match search::<World<M, N>>(case) {
            Ok(seen) => {
                println!("{:60} {:9} states {:10} events", case.name, seen.states, seen.events)
            }
            Err(broken) => panic!("{broken}"),
        }
    }
}

fn two_requests_of_every_kind<M: Machine>() {
    try_all::<M, 2>(
        &[plain("two requests of every kind", EVERY_KIND, 2)],
        &[
            troubled(plain("two of every kind, a failure", EVERY_KIND, 2), 1, 0),
            full(plain("two of every kind, no hole", EVERY_KIND, 2)),
        ],
    );
    try_all::<M, 2>(&[], &[plain("three of five kinds", "rwfds", 3)]);
}

fn one_request_and_every_trouble<M: Machine>() {
    let tried = |case| Case { nonsense: Nonsense::Tried, ..case };
    try_all::<M, 2>(
        &[tried(troubled(plain("one request, all troubles, nonsense", EVERY_KIND, 1), 1, 1))],
        &[troubled(plain("one request, all troubles twice", EVERY_KIND, 1), 2, 2)],
    );
    try_all::<M, 3>(
        &[full(troubled(plain("three blocks, one request, a failure", "rwfdz", 1), 1, 0))],
        &[full(troubled(plain("three blocks, one request, troubles", EVERY_KIND, 1), 1, 1))],
    );
}

fn two_requests_and_troubles<M: Machine>() {
    try_all::<M, 2>(
        &[
            troubled(plain("two requests, a failure", "wfs", 2), 1, 0),
            full(troubled(plain("no hole, two requests, an end", "wd", 2), 0, 1)),
        ],
        &[
            troubled(plain("two requests, two failures, an end", "rwfs", 2), 2, 1),
            full(troubled(plain("no hole, two requests, all troubles", "wfs", 2), 1, 1)),
        ],
    );
}

/// What is under way at the instant.
fn requests_from_before<M: Machine>() {
    let old = |name, kinds: &[(char, u64, u64)], asked, count, failures| {
        let of = |(kind, start, len): &(char, u64, u64)| request(*kind, *start, *len);
        let old = kinds.iter().filter_map(of).collect();
        Case { old, ..troubled(plain(name, asked, count), failures, 0) }
    };
    try_all::<M, 2>(
        &[
            old("an old write and a read", &[('w', 0, 2), ('r', 0, 1)], "wds", 1, 1),
            old("an old flush and a write", &[('s', 0, 0), ('w', 0, 1)], "w", 1, 1),
            old("two old writes of one block", &[('w', 0, 1), ('f', 0, 1)], "wz", 1, 0),
            old("an old discard", &[('d', 0, 2)], "wrd", 2, 0),
        ],
        &[
            old("old zeroes and a discard", &[('Z', 0, 2), ('d', 0, 1)], EVERY_KIND, 1, 1),
            old("an old flush and a write, two new", &[('s', 0, 0), ('w', 0, 1)], "wfs", 2, 1),
        ],
    );
    let end = |case: Case<2>| Case { budget: Budget { ends: 1, ..case.budget }, ..case };
    try_all::<M, 2>(&[end(old("an old write, an end", &[('w', 0, 1)], "wd", 1, 0))], &[]);
}

/// Changes wait for the target when there is no room.
fn memory_of_one_chunk<M: Machine>() {
    let one = limits(1, 2, 1);
    let writes = [('w', 0, 2), ('w', 2, 1), ('w', 1, 1)];
    try_all::<M, 3>(
        &[
            some("a buffer for one chunk, two writes", &writes, 2, one),
            troubled(some("a buffer for one chunk, an end", &writes[..2], 2, one), 0, 1),
        ],
        &[troubled(full(plain("a buffer for one chunk, all troubles", "wzd", 2)), 1, 1)],
    );
    let three = Limits { requests: 3, ..limits(1, 1, 1) };
    let case = |name| Case { limits: three, ..full(plain::<2>(name, "w", 3)) };
    try_all::<M, 2>(&[case("one step at once, three writes")], &[]);
}

/// Blocks that are copied together.
fn chunks_of_two_blocks<M: Machine>() {
    let two = |case: Case<3>| Case { limits: limits(2, 2, 4), ..case };
    let sources = [data(0), Init::Hole, data(2)];
    try_all::<M, 3>(
        &[
            two(Case { source: sources, ..plain("chunks of two, a half at the end", "rwd", 2) }),
            two(troubled(plain("chunks of two, a failure", "wdz", 1), 1, 0)),
        ],
        &[two(full(plain("chunks of two, every kind", EVERY_KIND, 2)))],
    );
    let four = |case: Case<4>| Case { limits: limits(2, 2, 4), ..case };
    let source = [Init::Hole, Init::Hole, Init::Zeroes, Init::Hole];
    let holes = four(Case { source, ..plain("chunks of two, holes and zeroes", "wd", 1) });
    let never = Case { looks: Looks::Never, name: "chunks of two, nobody looks", ..holes.clone() };
    try_all::<M, 4>(&[holes, never], &[]);
}

/// These requests, on a disk without holes.
fn some<const N: usize>(
    name: &'static str,
    list: &[(char, u64, u64)],
    count: u8,
    limits: Limits,
) -> Case<N> {
    let of = |(kind, start, len): &(char, u64, u64)| request(*kind, *start, *len);
    let requests = list.iter().filter_map(of).collect();
    Case { requests, limits, ..full(plain(name, "", count)) }
}

/// Zeroes and discards that reach over much.
fn far_reaching_requests<M: Machine>() {
    let (two, one) = (limits(1, 2, 2), limits(1, 1, 1));
    let mixed = [('z', 0, 3), ('w', 2, 1), ('d', 0, 3)];
    try_all::<M, 3>(
        &[
            some("zeroes of three chunks, a write", &mixed[..2], 2, one),
            some("zeroes of three chunks, room for two", &mixed[..1], 1, two),
            troubled(some("zeroes of three chunks, a failure", &[('Z', 0, 3)], 1, one), 1, 0),
        ],
        &[
            some("zeroes of three chunks, a write and a discard", &mixed, 2, two),
            troubled(some("zeroes of three chunks, all troubles", &mixed, 2, two), 1, 1),
        ],
    );
    let wide = Limits { step: Bytes(2), look: Bytes(4), ..limits(1, 2, 3) };
    let zeroes = [('z', 0, 4), ('Z', 1, 3), ('w', 0, 4)];
    try_all::<M, 4>(
        &[some("steps of two chunks", &zeroes, 1, wide)],
        &[some("steps of two chunks, two requests", &zeroes, 2, wide)],
    );
}

fn targets_and_discards<M: Machine>() {
    let source = [Init::Zeroes, Init::Hole];
    let mut cases = Vec::new();
    for discards in [
        (Discards::Keep, Discards::Zero),
        (Discards::Zero, Discards::Keep),
        (Discards::Keep, Discards::Keep),
    ] {
        let plain = || plain("an unknown target", "wdz", 2);
        let target = TargetContent::Unknown;
        cases.push(Case { target, discards, source, ..plain() });
        cases.push(Case { target, discards, looks: Looks::Never, ..plain() });
        cases.push(Case { discards, source, looks: Looks::Never, ..plain() });
    }
    try_all::<M, 2>(&cases[..3], &cases[3..]);
}

fn effects_before_their_reports<M: Machine>() {
    let before = |case: Case<2>| Case { effects: Effects::Before, ..case };
    try_all::<M, 2>(
        &[
            before(full(plain("two requests, effects before reports", "rw", 2))),
            before(troubled(plain("a failure, effects before reports", "wfds", 1), 1, 0)),
        ],
        &[
            before(plain("two of four kinds, effects before reports", "rwfs", 2)),
            before(troubled(plain("two, a failure, effects before reports", "fs", 2), 1, 0)),
        ],
    );
}

fn one_block_for_long<M: Machine>() {
    let case = |name, kinds, left| {
        let of_one = |request: &Request| request.extent().is_none_or(|e| e.end() == Bytes(1));
        let requests = requests(2, kinds).into_iter().filter(of_one).collect();
        let limits = Limits { requests: 3, ..limits(1, 2, 2) };
        Case { requests, limits, ..full(plain::<2>(name, kinds, left)) }
    };
    try_all::<M, 2>(
        &[
            case("one block, three requests", "rwd", 3),
            troubled(case("one block, three requests, a failure", "ws", 3), 1, 0),
        ],
        &[troubled(case("one block, three requests, all troubles", "rwfs", 3), 1, 1)],
    );
}

/// A step in order reads all that was found, and what a refusal leaves is read in buffers.
fn blocks_that_are_shared<M: Machine>() {
    let wide =
        |case: Case<4>| Case { limits: Limits { look: Bytes(4), ..limits(1, 2, 1) }, ..case };
    let half = |case: Case<4>| {
        let source = [data(0), data(1), Init::Hole, data(3)];
        wide(Case { source, ..case })
    };
    let write = |case: Case<4>| Case { requests: requests(4, "w"), ..case };
    try_all::<M, 4>(
        &[
            shared(wide(full(plain("shared, a write, refused twice", "w", 1))), 2),
            shared(half(plain("shared with a hole, three kinds, refused", "wdz", 1)), 1),
            shared(troubled(wide(full(plain("shared, a failure, refused", "w", 1))), 1, 0), 1),
        ],
        &[
            shared(half(plain("shared with a hole, every kind, refused", EVERY_KIND, 1)), 1),
            shared(troubled(wide(full(plain("shared, zeroes, a failure", "wz", 1))), 1, 0), 1),
            shared(write(wide(full(plain("shared, two writes, refused twice", "w", 2)))), 2),
            shared(troubled(half(plain("shared, all troubles", "wdz", 1)), 1, 1), 2),
        ],
    );
    // What was read is refused while a hole behind it is found, or made zeroes.
    let behind = |case: Case<4>| Case {
        source: [data(0), data(1), Init::Hole, Init::Hole],
        target: TargetContent::Unknown,
        limits: Limits { look: Bytes(2), ..limits(1, 2, 1) },
        ..case
    };
    try_all::<M, 4>(
        &[
            shared(behind(plain("shared, a hole behind a refusal", "", 0)), 2),
            shared(behind(plain("shared, a hole behind a refusal, a write", "w", 1)), 1),
        ],
        &[shared(troubled(behind(plain("shared, a hole, all troubles", "wz", 1)), 1, 1), 2)],
    );
    let two = |case: Case<3>| Case { limits: limits(2, 2, 2), ..case };
    let tried = |case| Case { nonsense: Nonsense::Tried, ..case };
    try_all::<M, 3>(
        &[
            shared(two(full(plain("shared, chunks of two, two writes", "w", 2))), 1),
            tried(shared(full(plain("shared, nonsense", "wd", 1)), 1)),
        ],
        &[shared(full(plain("shared, two of three kinds", "wdz", 2)), 1)],
    );
}

/// Each of these is tried with each machine.
macro_rules! try_machines {
    ($($name:ident),* $(,)?) => {
        mod simple {
            $(#[test]
            fn $name() {
                super::$name::<super::Simple>();
            })*
        }

        mod machine {
            $(#[test]
            fn $name() {
                super::$name::<headgate_mirror::instant::PointInTime>();
            })*
        }
    };
}

try_machines!(
    two_requests_of_every_kind,
    one_request_and_every_trouble,
    two_requests_and_troubles,
    requests_from_before,
    memory_of_one_chunk,
    chunks_of_two_blocks,
    far_reaching_requests,
    targets_and_discards,
    effects_before_their_reports,
    one_block_for_long,
    blocks_that_are_shared,
);
