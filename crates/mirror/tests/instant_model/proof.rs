//! A model that finds nothing proves nothing: each wrong machine has to be found, and for what is
//! wrong with it.

use crate::cases::{full, limits, plain, request, shared, troubled};
use crate::defect::Defect;
use crate::guest::Guest;
use crate::search::search;
use crate::simple::Simple;
use crate::storage::{Discards, Init};
use crate::world::{Case, Effects, Looks, Nonsense, World, data};
use headgate_mirror::TargetContent;

/// Small set-ups, each with something that the others lack.
fn places() -> Vec<Case<2>> {
    let two = |name, kinds| plain(name, kinds, 2);
    let one = |name, kinds| plain(name, kinds, 1);
    let (source, half) = ([data(0), Init::Zeroes], [Init::Hole, data(1)]);
    vec![
        Case { looks: Looks::Never, limits: limits(1, 2, 4), ..plain("no request", "", 0) },
        one("one request", "rwfdzZs"),
        full(two("two writes", "w")),
        troubled(one("a failure", "wfzs"), 1, 0),
        full(troubled(one("an end", "wz"), 0, 1)),
        Case { effects: Effects::Before, ..troubled(one("a failed flush", "sw"), 1, 0) },
        Case { source, ..one("zeroes", "w") },
        Case { target: TargetContent::Unknown, ..one("an unknown target", "w") },
        Case { old: request('s', 0, 0).into_iter().collect(), ..troubled(one("old", "w"), 1, 0) },
        Case { limits: limits(1, 2, 1), ..full(two("room for one", "w")) },
        Case { limits: limits(1, 1, 2), ..full(two("one step", "w")) },
        Case { limits: limits(2, 2, 2), source: half, ..one("one chunk", "w") },
        Case { nonsense: Nonsense::Tried, ..troubled(one("nonsense", "w"), 0, 1) },
        shared(Case { limits: limits(1, 2, 1), ..full(two("blocks are shared", "w")) }, 1),
        Case { discards: (Discards::Keep, Discards::Keep), ..one("kept discards", "d") },
    ]
}

/// What is said of a machine, in each place in which it is found to be wrong.
fn find(defect: Defect) -> impl Iterator<Item = String> {
    let tried = places().into_iter().map(move |case| Case { defect, ..case });
    tried.filter_map(|case| search::<World<Simple, 2>>(&case).err())
}

fn check_found(list: &[(Defect, &str)]) {
    for (defect, why) in list {
        let is_meant = |found: &String| found.lines().last().is_some_and(|l| l.contains(why));
        let Some(found) = find(*defect).find(is_meant) else {
            let other: Vec<String> = find(*defect).collect();
            panic!("{defect:?} is not found, but:\n{}", other.join("\n"));
        };
        let last = found.lines().last().unwrap_or_default();
        println!("{defect:28?} {:3} lines: {last}", found.lines().count() - 4);
    }
}

#[test]
fn a_right_machine_is_right() {
    assert_eq!(find(Defect::None).next(), None);
}

/// 1: what a complete copy holds.
#[test]
fn a_copy_that_is_not_the_disk_of_the_instant() {
    check_found(&[
        (Defect::WritesBeforeRead, "is not read yet"),
        (Defect::DiscardsUncopied, "is not read yet"),
        (Defect::CopiesBeforeDrained, "before all is drained"),
        (Defect::CompletesWithoutFlush, "a crash of the target leaves"),
        (Defect::FlushesEarly, "a crash of the target leaves"),
        (Defect::SkipsHolesOfUnknownTargets, "a crash of the target leaves"),
        (Defect::MarksHalfAHole, "it is not so"),
        (Defect::CompletesDespiteDoubt, "may still have lost"),
        (Defect::IgnoresFailedFlush, "ought to have ended"),
        (Defect::IgnoresFailedOldFlush, "ought to have ended"),
        (Defect::IgnoresFailedRead, "is not read yet"),
        (Defect::IgnoresFailedTarget, "ought to have ended"),
        (Defect::PassesRefused, "is not read yet"),
    ]);
}

/// 2: answers, once each, and always.
#[test]
fn answers_that_are_wrong_or_do_not_come() {
    check_found(&[
        (Defect::AnswersBeforeTheSource, "is answered before it is done"),
        (Defect::AnswersTwice, "answered twice"),
        (Defect::SwallowsFailures, "the source says otherwise"),
        (Defect::FailsRequestsWithTarget, "the source says otherwise"),
        (Defect::ForgetsWaitingAtTheEnd, "waits for a copy that is over"),
        (Defect::KeepsTarget, "ought to have ended"),
        (Defect::NeverWakes, "waits for nothing"),
        (Defect::ForgetsRefused, "waits for nothing"),
        (Defect::NeverCopiesTheLast, "and so on for ever"),
    ]);
}

/// 3: what waits, and for what.
#[test]
fn requests_that_wait_for_more_than_was_promised() {
    check_found(&[
        (Defect::ReadsWait, "waits"),
        (Defect::FlushesWait, "waits"),
        (Defect::DiscardsWait, "waits"),
        (Defect::WaitsForTarget, "waits for nothing"),
        (Defect::Overtakes, "is overtaken"),
    ]);
}

/// 5: memory.
#[test]
fn memory_beyond_its_limits() {
    check_found(&[
        (Defect::IgnoresMemory, "bytes of buffers in all"),
        (Defect::IgnoresShareInOrder, "bytes of buffers for steps in order"),
        (Defect::IgnoresSteps, "more steps than may be"),
        (Defect::KeepsBuffers, "buffers of nobody"),
        (Defect::SharesForEver, "bytes of buffers in all"),
    ]);
}

/// 6: nothing twice, nothing for nothing.
#[test]
fn storages_that_are_sent_too_much() {
    check_found(&[
        (Defect::SendsTwice, "is sent twice"),
        (Defect::ReadsAgain, "is read twice"),
        (Defect::WritesHoles, "is a hole, and takes space"),
        (Defect::WritesZeroes, "zeroes are written to a target of zeroes"),
    ]);
}

/// 7: the end.
#[test]
fn ends_that_are_none() {
    check_found(&[
        (Defect::EndsTwice, "a second end"),
        (Defect::CopiesAfterTheEnd, "after the end"),
        (Defect::ReleasesEarly, "with steps under way"),
        (Defect::NeverReleases, "released: false"),
    ]);
}

/// 8: calls that make no sense.
#[test]
fn nonsense_that_is_taken() {
    check_found(&[
        (Defect::TakesAnyEnd, "nonsense: an end of"),
        (Defect::TakesAnyNumber, "nonsense: a number twice"),
        (Defect::TakesAnyRange, "nonsense: a write beyond the end"),
        (Defect::CancelsTwice, "nonsense: cancelled after the end"),
    ]);
}

/// 4: what a guest may read. No machine gets so far: it would have to send the source something
/// that nobody asked for, or answer too early, and is found before anybody reads.
#[test]
fn disks_that_are_not_what_was_written() {
    let read = |before: &[(char, u64, u64)], seen| {
        let mut guest = Guest::<2>::new([5, 6]);
        for (number, (kind, start, len)) in before.iter().enumerate() {
            let request = request(*kind, *start, *len).expect("a request");
            guest.ask(0, request, 7 + number as u8);
            guest.answer(0, false, None).expect("an answer");
        }
        guest.ask(0, request('r', 0, 2).expect("a read"), 0);
        guest.answer(0, false, Some(seen))
    };
    assert_eq!(read(&[], [5, 6]), Ok(()));
    assert_eq!(read(&[('w', 0, 1), ('w', 0, 2)], [8, 8]), Ok(()));
    assert!(read(&[('w', 0, 1), ('w', 0, 2)], [7, 8]).is_err());
    assert!(read(&[('z', 0, 1)], [5, 6]).is_err());
    assert!(read(&[('d', 0, 1)], [5, 0]).is_err());
    assert_eq!(read(&[('d', 0, 1)], [0, 6]), Ok(()));
}
