//! How a copy ends, and what it waits for.

use super::*;

#[test]
fn the_target_is_flushed_when_all_was_written_and_then_the_copy_is_complete() {
    let mut copy = copying(12, LIMITS);
    asked(&mut copy, 0, write(0, 1));
    done(&mut copy, Side::Source, step(0));
    assert_eq!(invite(&mut copy, Turn::Began), [examine(1, 4, 8)]);
    assert_eq!(found(&mut copy, 1, Found::Hole, 8), [], "the target is still written");
    assert_eq!(copy.progress().state, State::Finishing);
    assert_eq!(invite(&mut copy, Turn::Idle), []);
    assert_eq!(done(&mut copy, Side::Target, step(0)), [FLUSHED]);
    assert_eq!(asked(&mut copy, 1, write(0, 12)), [wrote(1, 0, 12)]);
    assert_eq!(done(&mut copy, Side::Target, Job::LastFlush), COMPLETE);
    assert_eq!(copy.progress().state, State::Complete);
    assert_eq!(copy.cancel(&mut Vec::new()), Err(Over));
    assert_eq!(copy.lose_target(&mut Vec::new()), Err(Over));
    assert_eq!(asked(&mut copy, 2, Request::Discard(extent(0, 12))).len(), 1);
    assert!(!copy.is_over());
    for id in 0..3 {
        assert_eq!(done(&mut copy, Side::Source, request(id)), [answered(id)]);
    }
    assert!(copy.is_over());
}

#[test]
fn a_copy_waits_for_what_may_tell_of_a_loss_that_its_reads_have_met() {
    let mut copy = copying(8, LIMITS);
    asked(&mut copy, 0, Request::Flush);
    copy_all(&mut copy, 8);
    asked(&mut copy, 1, Request::Flush);
    assert_eq!(done(&mut copy, Side::Target, Job::LastFlush), []);
    let failure = Action::Answer(RequestId(1), Completion::Failed);
    assert_eq!(failed(&mut copy, Side::Source, request(1)), [failure], "sent when all was read");
    let out = done(&mut copy, Side::Source, request(0));
    assert_eq!(out, [&[answered(0)][..], &COMPLETE].concat());

    let mut copy = copying(8, LIMITS);
    asked(&mut copy, 0, Request::Flush);
    copy_all(&mut copy, 8);
    done(&mut copy, Side::Target, Job::LastFlush);
    let out = failed(&mut copy, Side::Source, request(0));
    assert!(out.contains(&Action::Ended(Outcome::GivenUp(Reason::SourceNotDurable))), "{out:?}");
}

#[test]
fn each_end_says_why_and_lets_go_of_all_that_waits() {
    type End = fn(&mut PointInTime, &mut Vec<Action>);
    let ends: [(Outcome, End); 6] = [
        (Outcome::GivenUp(Reason::SourceUnreadable), |c, out| {
            c.done(Side::Source, step(1), Completion::Failed, out).unwrap();
        }),
        (Outcome::GivenUp(Reason::TargetFailed), |c, out| {
            c.done(Side::Target, step(0), Completion::Failed, out).unwrap();
        }),
        (Outcome::GivenUp(Reason::SourceNotDurable), |c, out| {
            c.done(Side::Source, request(2), Completion::Failed, out).unwrap();
        }),
        (Outcome::GivenUp(Reason::SourceNotDurable), |c, out| {
            c.done(Side::Source, request(3), Completion::Failed, out).unwrap();
        }),
        (Outcome::GivenUp(Reason::TargetLost), |c, out| c.lose_target(out).unwrap()),
        (Outcome::Cancelled, |c, out| c.cancel(out).unwrap()),
    ];
    for (outcome, end) in ends {
        let mut copy = copying(80, LIMITS);
        asked(&mut copy, 0, write(0, 1));
        done(&mut copy, Side::Source, step(0));
        asked(&mut copy, 1, write(8, 8));
        asked(&mut copy, 2, Request::Flush);
        asked(&mut copy, 3, through(1, 1));
        asked(&mut copy, 4, zero(20, 40));
        let out = said(&mut copy, end);
        for expected in [Action::Ended(outcome), wrote(1, 8, 8), zeroed(4, 20, 40)] {
            assert_eq!(out.iter().filter(|a| **a == expected).count(), 1, "{expected:?}: {out:?}");
        }
        assert_eq!(copy.progress().state, State::GivenUp);
        assert_eq!(copy.progress().waiting, 0);
        assert_eq!(asked(&mut copy, 5, write(70, 1)), [wrote(5, 70, 1)]);
        assert_eq!(invite(&mut copy, Turn::Idle), []);
        assert!(!out.contains(&Action::Release), "{out:?}");
        // Buffers are in use until all has ended, and nothing is done with what was read.
        let mut last = Vec::new();
        for (side, job) in [(Side::Source, 1), (Side::Target, 0)] {
            let mut ended = Vec::new();
            if copy.done(side, step(job), Completion::Failed, &mut ended).is_ok() {
                assert!(last.is_empty(), "{last:?}");
                last.extend(ended);
            }
        }
        let mut ended = Vec::new();
        copy.found(StepId(2), Found::Data, Bytes(4), &mut ended).unwrap();
        last.extend(ended);
        assert_eq!(last, [Action::Release]);
    }
}

#[test]
fn the_flush_of_the_target_may_fail_or_be_waited_for() {
    let mut copy = copying(8, LIMITS);
    assert_eq!(copy_all(&mut copy, 8), [FLUSHED]);
    let out = failed(&mut copy, Side::Target, Job::LastFlush);
    let ended = Action::Ended(Outcome::GivenUp(Reason::TargetFailed));
    assert_eq!(out, [ended, Action::Release]);

    let mut copy = copying(8, LIMITS);
    copy_all(&mut copy, 8);
    let out = said(&mut copy, |c, out| c.cancel(out).unwrap());
    assert_eq!(out, [Action::Ended(Outcome::Cancelled)]);
    assert_eq!(done(&mut copy, Side::Target, Job::LastFlush), [Action::Release]);
}

#[test]
fn a_source_that_lost_something_before_the_copy_began_ends_it() {
    let mut copy = new(8, TargetContent::Zeroes, LIMITS);
    asked(&mut copy, 0, write(0, 1));
    let out = said(&mut copy, |c, out| c.drained(Completion::Failed, out).unwrap());
    let ended = Action::Ended(Outcome::GivenUp(Reason::SourceNotDurable));
    assert_eq!(out, [ended, Action::Release, wrote(0, 0, 1)]);

    let mut copy = new(8, TargetContent::Zeroes, LIMITS);
    asked(&mut copy, 0, Request::Flush);
    let out = failed(&mut copy, Side::Source, request(0));
    assert!(out.contains(&ended), "{out:?}");
    assert_eq!(said(&mut copy, |c, out| c.drained(Completion::Done, out).unwrap()), []);
    assert_eq!(copy.progress().state, State::GivenUp);
}

#[test]
fn a_write_through_before_all_is_read_is_waited_for() {
    let mut copy = copying(16, LIMITS);
    asked(&mut copy, 0, through(0, 1));
    assert_eq!(done(&mut copy, Side::Source, step(0)).len(), 2);
    done(&mut copy, Side::Target, step(0));
    invite(&mut copy, Turn::Began);
    assert_eq!(found(&mut copy, 0, Found::Hole, 12), [FLUSHED]);
    assert_eq!(done(&mut copy, Side::Target, Job::LastFlush), []);
    let out = done(&mut copy, Side::Source, request(0));
    assert_eq!(out, [&[answered(0)][..], &COMPLETE].concat());
}

#[test]
fn what_is_found_after_the_end_changes_nothing() {
    let mut copy = copying(32, LIMITS);
    invite(&mut copy, Turn::Began);
    said(&mut copy, |c, out| c.cancel(out).unwrap());
    assert_eq!(found(&mut copy, 0, Found::Hole, 32), [Action::Release]);
    assert_eq!(copy.progress().state, State::GivenUp);
    assert_eq!(copy.progress().copied, Bytes(0));
}

#[test]
fn what_is_read_after_the_end_is_not_written() {
    for content in [Found::Data, Found::Zeroes] {
        let mut copy = new(32, TargetContent::Unknown, LIMITS);
        copy.drained(Completion::Done, &mut Vec::new()).unwrap();
        asked(&mut copy, 0, write(0, 1));
        said(&mut copy, |c, out| c.cancel(out).unwrap());
        let out = match content {
            Found::Data => done(&mut copy, Side::Source, step(0)),
            _ => said(&mut copy, |c, out| c.read_zeroes(StepId(0), out).unwrap()),
        };
        assert_eq!(out, [Action::Release]);
    }
}
