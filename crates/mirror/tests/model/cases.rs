//! Small disks: everything that may happen to them.

use crate::search::search;
use crate::storage::{Discards, Init};
use crate::world::{Budget, Case, Effects, World, data};
use headgate_mirror::{Durability, Extent, Limits, Request, TargetContent, Unmap};
use headgate_units::Bytes;

/// Reads, writes, writes through, discards, zeroes, zeroes through that stay allocated, flushes.
const EVERY_KIND: &str = "rwfdzZs";

/// Requests of these kinds, of every extent of a disk.
pub fn requests(blocks: u64, kinds: &str) -> Vec<Request> {
    let extents = (0..blocks).flat_map(|start| {
        (1..=blocks - start).filter_map(move |len| Extent::new(Bytes(start), Bytes(len)))
    });
    let mut all: Vec<Request> =
        kinds.chars().filter(|k| *k == 's').map(|_| Request::Flush).collect();
    for extent in extents {
        all.extend(kinds.chars().filter_map(|kind| {
            Some(match kind {
                'r' => Request::Read(extent),
                'w' => Request::Write(extent, Durability::Cached),
                'f' => Request::Write(extent, Durability::Fua),
                'd' => Request::Discard(extent),
                'z' => Request::Zero(extent, Unmap::May, Durability::Cached),
                'Z' => Request::Zero(extent, Unmap::MustNot, Durability::Fua),
                _ => return None,
            })
        }));
    }
    all
}

pub fn limits(steps: u32, step: u64, look: u64) -> Limits {
    Limits { requests: 4, steps, step: Bytes(step), look: Bytes(look), redo: 1 }
}

/// Two blocks, data and a hole, two steps at once, a new file as target, nothing goes wrong.
fn plain(name: &'static str, kinds: &str, requests_left: u8) -> Case<2> {
    Case {
        name,
        source: [data(0), Init::Hole],
        target: TargetContent::Zeroes,
        discards: (Discards::Zero, Discards::Zero),
        limits: limits(2, 1, 2),
        requests: requests(2, kinds),
        budget: Budget { requests: requests_left, failures: 0, records: 0, pauses: 0, ends: 0 },
        effects: Effects::WhenReported,
    }
}

/// The same with troubles.
fn troubled(mut case: Case<2>, failures: u8, records: u8, pauses: u8, ends: u8) -> Case<2> {
    case.budget = Budget { failures, records, pauses, ends, ..case.budget };
    case
}

fn is_large() -> bool {
    std::env::var("HEADGATE_SEARCH").is_ok_and(|size| size == "large")
}

/// Tries everything in each case; those of the second list in the large search only.
fn try_all<const N: usize>(small: &[Case<N>], large: &[Case<N>]) {
    let larger = large.iter().filter(|_| is_large());
    for case in small.iter().chain(larger) {
        match search::<World<N>>(case) {
            Ok(seen) => {
                println!("{:60} {:9} states {:10} events", case.name, seen.states, seen.events,)
            }
            Err(broken) => panic!("{broken}"),
        }
    }
}

#[test]
fn two_requests_of_every_kind() {
    try_all(
        &[plain("two requests of every kind", EVERY_KIND, 2)],
        &[
            troubled(plain("two of every kind, a failure", EVERY_KIND, 2), 1, 0, 0, 0),
            plain("three of five kinds", "rwfds", 3),
        ],
    );
}

#[test]
fn one_request_and_every_trouble() {
    try_all(
        &[troubled(plain("one request, all troubles once", EVERY_KIND, 1), 1, 1, 1, 1)],
        &[troubled(plain("one request, all troubles twice", EVERY_KIND, 1), 2, 2, 2, 2)],
    );
}

#[test]
fn two_requests_and_a_failure() {
    try_all(
        &[
            troubled(plain("two requests, a failure", "rws", 2), 1, 0, 0, 0),
            troubled(plain("two writes, two failures", "w", 2), 2, 0, 0, 0),
            Case {
                source: [data(0), data(1)],
                ..troubled(plain("two blocks of data, a failure", "wz", 2), 1, 0, 0, 0)
            },
        ],
        &[
            troubled(plain("two requests, two failures", "rwfs", 2), 2, 0, 0, 0),
            troubled(plain("two requests, two failures, a record", "rws", 2), 2, 1, 0, 0),
        ],
    );
}

#[test]
fn two_requests_and_a_record() {
    try_all(
        &[troubled(plain("two requests, a failure, a record", "ws", 2), 1, 1, 0, 0)],
        &[troubled(plain("two requests, all troubles", "rwfs", 2), 1, 1, 1, 1)],
    );
}

#[test]
fn three_requests() {
    try_all(
        &[plain("three writes", "w", 3)],
        &[
            plain("three requests", "rws", 3),
            troubled(plain("three requests, a failure", "rws", 3), 1, 0, 0, 0),
        ],
    );
    // A number comes again as soon as it is free.
    let one = |case: Case<2>| Case { limits: Limits { requests: 1, ..case.limits }, ..case };
    try_all(
        &[one(troubled(plain("three requests one after another", "ws", 3), 1, 0, 0, 0))],
        &[one(troubled(plain("four requests one after another", "rwfs", 4), 1, 1, 0, 1))],
    );
    try_all(&[], &[plain("four requests", "rw", 4)]);
}

/// Few requests to choose from, so that more may come.
#[test]
fn one_block_for_long() {
    let first = |kinds: &str| {
        let of_one = |request: &Request| request.extent().is_none_or(|e| e.end() == Bytes(1));
        requests(2, kinds).into_iter().filter(of_one).collect::<Vec<_>>()
    };
    let case = |name, kinds, left| Case { requests: first(kinds), ..plain(name, kinds, left) };
    try_all(
        &[
            troubled(case("one block, three requests, two failures", "rws", 3), 2, 0, 0, 0),
            troubled(case("one block, three requests, a failure, a record", "rws", 3), 1, 1, 0, 0),
        ],
        &[
            troubled(case("one block, three of five kinds, all troubles", "rwfzs", 3), 1, 1, 1, 1),
            troubled(case("one block, four requests, two failures", "rws", 4), 2, 1, 0, 0),
        ],
    );
}

#[test]
fn targets_and_discards() {
    let mut cases = Vec::new();
    for discards in [
        (Discards::Keep, Discards::Zero),
        (Discards::Zero, Discards::Keep),
        (Discards::Keep, Discards::Keep),
    ] {
        let target = TargetContent::Unknown;
        cases.push(Case { target, discards, ..plain("an unknown target", "wdz", 2) });
        let (target, source) = (TargetContent::Zeroes, [Init::Zeroes, Init::Hole]);
        cases.push(Case { target, discards, source, ..plain("zeroes and a hole", "wdz", 2) });
    }
    try_all(&cases[..3], &cases[3..]);
}

#[test]
fn steps_of_other_sizes() {
    let with = |name, limits, source| Case { limits, source, ..plain(name, "rwd", 2) };
    try_all(
        &[
            with("one step at once, of one block", limits(1, 1, 1), [data(0), data(1)]),
            with("one step of the whole disk", limits(1, 2, 2), [data(0), data(1)]),
            with("two holes", limits(2, 1, 1), [Init::Hole, Init::Hole]),
        ],
        &[],
    );
}

#[test]
fn effects_before_their_reports() {
    let before = |case: Case<2>| Case { effects: Effects::Before, ..case };
    try_all(
        &[
            before(plain("two requests, effects before reports", "rw", 2)),
            before(troubled(plain("a failure, effects before reports", "wfs", 1), 1, 1, 0, 0)),
        ],
        &[
            before(plain("two of four kinds, effects before reports", "rwfs", 2)),
            before(troubled(plain("two, a failure, effects before reports", "rws", 2), 1, 0, 0, 0)),
        ],
    );
}

#[test]
fn three_blocks() {
    let three = |name, kinds, count, failures| Case {
        name,
        source: [data(0), Init::Hole, data(2)],
        target: TargetContent::Zeroes,
        discards: (Discards::Zero, Discards::Zero),
        limits: limits(2, 1, 2),
        requests: requests(3, kinds),
        budget: Budget { requests: count, failures, records: 0, pauses: 0, ends: 0 },
        effects: Effects::WhenReported,
    };
    try_all(
        &[
            three("three blocks, one request of every kind", EVERY_KIND, 1, 1),
            three("three blocks, two writes", "w", 2, 0),
        ],
        &[
            three("three blocks, two of every kind", EVERY_KIND, 2, 0),
            three("three blocks, two requests, a failure", "rws", 2, 1),
        ],
    );
}
