//! What the model does not ask for: who is spared what, who is refused, how much there may be.

use headgate_mirror::*;
use headgate_units::Bytes;

const LIMITS: Limits = Limits { requests: 4, steps: 2, step: Bytes(10), look: Bytes(20), redo: 2 };

fn extent(start: u64, len: u64) -> Extent {
    Extent::new(Bytes(start), Bytes(len)).unwrap()
}

fn write(start: u64, len: u64) -> Request {
    Request::Write(extent(start, len), Durability::Cached)
}

/// A machine of 100 bytes whose start is recorded.
fn copying(limits: Limits) -> Mirror {
    let setup = Setup { size: Bytes(100), target: TargetContent::Zeroes, limits };
    let mut mirror = Mirror::new(setup, &mut Vec::new()).unwrap();
    mirror.recorded(Word::Made, &mut Vec::new()).unwrap();
    mirror
}

/// What it says to an input.
fn said<T>(
    mirror: &mut Mirror,
    input: impl FnOnce(&mut Mirror, &mut Vec<Action>) -> T,
) -> Vec<Action> {
    let mut out = Vec::new();
    input(mirror, &mut out);
    out
}

fn asked(mirror: &mut Mirror, id: u64, request: Request) -> Vec<Action> {
    said(mirror, |m, out| m.request(RequestId(id), request, out).unwrap())
}

fn done(mirror: &mut Mirror, side: Side, job: Job) -> Vec<Action> {
    said(mirror, |m, out| m.done(side, job, Completion::Done, out).unwrap())
}

fn failed(mirror: &mut Mirror, side: Side, job: Job) -> Vec<Action> {
    said(mirror, |m, out| m.done(side, job, Completion::Failed, out).unwrap())
}

fn request(id: u64) -> Job {
    Job::Request(RequestId(id))
}

fn copy(id: u32) -> Job {
    Job::Copy(StepId(id))
}

fn sides(actions: &[Action]) -> Vec<Side> {
    let side = |action: &Action| match action {
        Action::Send { side, .. } => Some(*side),
        _ => None,
    };
    actions.iter().filter_map(side).collect()
}

/// A step over the next bytes.
fn step(mirror: &mut Mirror, id: u32, found: Found, len: u64) -> Vec<Action> {
    assert_eq!(said(mirror, |m, out| assert_eq!(m.copy(out), Turn::Began)).len(), 1);
    said(mirror, |m, out| m.found(StepId(id), found, Bytes(len), out).unwrap())
}

/// All is copied, and the switch is asked for.
fn switching(mirror: &mut Mirror) {
    for _ in 0..5 {
        step(mirror, 0, Found::Hole, 20);
    }
    let out = said(mirror, |m, out| assert_eq!(m.copy(out), Turn::Began));
    assert_eq!(out, [Action::Send { side: Side::Target, job: Job::LastFlush, op: Op::Flush }]);
    assert_eq!(done(mirror, Side::Target, Job::LastFlush), [Action::Record(Record::Switched)]);
}

#[test]
fn what_lies_ahead_is_not_mirrored() {
    let mut mirror = copying(LIMITS);
    step(&mut mirror, 0, Found::Hole, 15);
    for (id, start, to) in [
        (0, 14, &[Side::Source, Side::Target][..]),
        (1, 15, &[Side::Source]),
        (2, 90, &[Side::Source]),
    ] {
        assert_eq!(sides(&asked(&mut mirror, id, write(start, 1))), to, "{start}");
    }
    assert_eq!(sides(&asked(&mut mirror, 3, Request::Read(extent(0, 1)))), [Side::Source]);
}

#[test]
fn who_waits_is_not_overtaken() {
    let mut mirror = copying(LIMITS);
    asked(&mut mirror, 0, write(10, 10));
    // Waits for the first; the third would have to wait for it alone.
    assert_eq!(asked(&mut mirror, 1, write(15, 10)), []);
    assert_eq!(asked(&mut mirror, 2, write(22, 10)), []);
    assert_eq!(asked(&mut mirror, 3, Request::Read(extent(50, 10))).len(), 1);
    let out = done(&mut mirror, Side::Source, request(0));
    assert_eq!(out.len(), 2, "the answer, and the second: {out:?}");
    let out = done(&mut mirror, Side::Source, request(1));
    assert_eq!(sides(&out), [Side::Source], "{out:?}");
}

fn send(side: Side, job: Job, op: Op) -> Action {
    Action::Send { side, job, op }
}

fn written(start: u64, len: u64) -> Op {
    Op::Write(extent(start, len), Durability::Cached)
}

const BOTH: [Side; 2] = [Side::Source, Side::Target];

#[test]
fn a_step_waits_for_a_change_where_it_begins_and_others_wait_for_neither() {
    let mut mirror = copying(LIMITS);
    asked(&mut mirror, 0, write(0, 2));
    let nothing = said(&mut mirror, |m, out| assert_eq!(m.copy(out), Turn::Began));
    assert_eq!(nothing, []);
    assert_eq!(asked(&mut mirror, 1, write(1, 1)), [], "it waits for the change, and so does this");
    assert_eq!(sides(&asked(&mut mirror, 2, write(6, 1))), [Side::Source], "that is ahead");
    assert_eq!(asked(&mut mirror, 3, Request::Read(extent(7, 1))).len(), 1);
    let out = done(&mut mirror, Side::Source, request(0));
    assert!(out.contains(&send(Side::Source, copy(0), Op::Examine(extent(0, 2)))), "{out:?}");
    // It looks, so the second passes it.
    for side in BOTH {
        assert!(out.contains(&send(side, request(1), written(1, 1))), "{side:?}: {out:?}");
    }
}

/// One write of the copy at the target is all that a change waits for.
#[test]
fn what_is_written_passes_a_step_that_looks_or_reads_and_is_not_written_by_it() {
    let mut mirror = copying(LIMITS);
    asked(&mut mirror, 0, write(9, 1));
    let out = said(&mut mirror, |m, out| assert_eq!(m.copy(out), Turn::Began));
    assert_eq!(out, [send(Side::Source, copy(0), Op::Examine(extent(0, 9)))]);
    assert_eq!(sides(&asked(&mut mirror, 1, write(2, 1))), BOTH, "while it looks");
    said(&mut mirror, |m, out| m.found(StepId(0), Found::Data, Bytes(9), out).unwrap());
    assert_eq!(sides(&asked(&mut mirror, 2, write(5, 2))), BOTH, "while it reads");
    assert_eq!(asked(&mut mirror, 3, Request::Discard(extent(8, 1))), [], "a discard waits");
    let out = done(&mut mirror, Side::Source, copy(0));
    assert_eq!(out, [send(Side::Target, copy(0), written(0, 2))]);
    done(&mut mirror, Side::Source, request(2));
    let out = done(&mut mirror, Side::Target, request(2));
    assert_eq!(out, [Action::Answer(RequestId(2), Answer::Done)]);
    assert_eq!(asked(&mut mirror, 2, write(1, 3)), [], "that is being written");
    // What has waited comes before what is to be written next, and passes that.
    let out = done(&mut mirror, Side::Target, copy(0));
    assert_eq!(sides(&out), [Side::Target; 1], "the second byte has a write under way: {out:?}");
    assert_eq!(out, [send(Side::Target, copy(0), written(3, 2))]);
    done(&mut mirror, Side::Source, request(1));
    assert_eq!(done(&mut mirror, Side::Target, request(1)).len(), 1, "the third is written yet");
    let out = done(&mut mirror, Side::Target, copy(0));
    let both = BOTH.map(|side| send(side, request(2), written(1, 3)));
    assert_eq!(out[..2], both, "{out:?}");
    assert_eq!(out[2], send(Side::Target, copy(0), written(7, 2)));
    assert_eq!(sides(&asked(&mut mirror, 1, write(6, 1))), BOTH, "others have brought that");
    let out = done(&mut mirror, Side::Target, copy(0));
    assert_eq!(sides(&out), BOTH, "the discard: {out:?}");
    assert_eq!(mirror.steps(), 0);
}

#[test]
fn so_many_changes_pass_a_step_in_places_of_their_own() {
    let limits = Limits { requests: 20, look: Bytes(40), ..LIMITS };
    let mut mirror = copying(limits);
    said(&mut mirror, |m, out| assert_eq!(m.copy(out), Turn::Began));
    for id in 0..8 {
        assert_eq!(sides(&asked(&mut mirror, id, write(4 * id, 1))), BOTH);
    }
    assert_eq!(asked(&mut mirror, 8, write(33, 1)), [], "there is no room for it");
    assert_eq!(sides(&asked(&mut mirror, 9, write(29, 2))), BOTH, "it lies beside one");
    let out = said(&mut mirror, |m, out| {
        m.found(StepId(0), Found::Data, Bytes(9), out).unwrap();
    });
    assert_eq!(sides(&out), [Side::Source, Side::Source], "the read, and what lies ahead: {out:?}");
}

/// Neither what was copied nor what is brought is at the target before the change has ended there.
#[test]
fn the_last_flush_waits_for_changes_that_passed_a_step() {
    let limits = Limits { step: Bytes(100), look: Bytes(100), ..LIMITS };
    let mut mirror = copying(limits);
    said(&mut mirror, |m, out| assert_eq!(m.copy(out), Turn::Began));
    assert_eq!(sides(&asked(&mut mirror, 0, write(0, 100))), BOTH);
    said(&mut mirror, |m, out| m.found(StepId(0), Found::Data, Bytes(100), out).unwrap());
    assert_eq!(done(&mut mirror, Side::Source, copy(0)), [], "nothing is the step's to write");
    assert_eq!(said(&mut mirror, |m, out| assert_eq!(m.copy(out), Turn::Later)), []);
    assert_eq!(sides(&asked(&mut mirror, 1, Request::Flush)), BOTH);
    done(&mut mirror, Side::Source, request(0));
    done(&mut mirror, Side::Target, request(0));
    let out = said(&mut mirror, |m, out| assert_eq!(m.copy(out), Turn::Began));
    assert_eq!(out, [send(Side::Target, Job::LastFlush, Op::Flush)]);
}

#[test]
fn no_step_is_larger_than_it_may_be_and_there_are_no_more_than_may_be() {
    let mut mirror = copying(LIMITS);
    let op = Op::Read(extent(0, 10));
    let sent = Action::Send { side: Side::Source, job: copy(0), op };
    assert_eq!(step(&mut mirror, 0, Found::Data, 500), [sent]);
    let op = Op::Read(extent(10, 10));
    let sent = Action::Send { side: Side::Source, job: copy(1), op };
    assert_eq!(step(&mut mirror, 1, Found::Data, 500), [sent]);
    assert_eq!(said(&mut mirror, |m, out| assert_eq!(m.copy(out), Turn::Later)), []);
    done(&mut mirror, Side::Source, copy(0));
    done(&mut mirror, Side::Target, copy(0));
    assert_eq!(said(&mut mirror, |m, out| assert_eq!(m.copy(out), Turn::Began)).len(), 1);
}

#[test]
fn holes_are_passed_where_the_target_is_new_and_made_where_it_was_written() {
    let mut mirror = copying(LIMITS);
    step(&mut mirror, 0, Found::Hole, 5);
    // Reaches beyond the cursor, so that the target has something there.
    asked(&mut mirror, 0, write(3, 10));
    done(&mut mirror, Side::Source, request(0));
    done(&mut mirror, Side::Target, request(0));
    let op = Op::Zero(extent(5, 8), Unmap::May, Durability::Cached);
    let sent = Action::Send { side: Side::Target, job: copy(0), op };
    assert_eq!(step(&mut mirror, 0, Found::Hole, 20), [sent]);
    assert_eq!(step(&mut mirror, 1, Found::Hole, 20), [], "nothing was sent there");
    let op = Op::Zero(extent(23, 20), Unmap::MustNot, Durability::Cached);
    let sent = Action::Send { side: Side::Target, job: copy(1), op };
    assert_eq!(step(&mut mirror, 1, Found::Zeroes, 20), [sent], "allocated they stay");
}

#[test]
fn a_step_examines_no_more_than_it_may_copy_behind_data_and_ever_more_behind_holes() {
    let mut mirror = copying(Limits { steps: 1, look: Bytes(40), ..LIMITS });
    let examined = |mirror: &mut Mirror| match said(mirror, |m, out| _ = m.copy(out))[..] {
        [Action::Send { op: Op::Examine(extent), .. }] => extent.len().0,
        ref other => panic!("{other:?}"),
    };
    let mut lengths = Vec::new();
    for found in [Found::Data, Found::Hole, Found::Hole, Found::Hole, Found::Data, Found::Hole] {
        let len = examined(&mut mirror);
        lengths.push(len);
        said(&mut mirror, |m, out| m.found(StepId(0), found, Bytes(len), out).unwrap());
        if found == Found::Data {
            done(&mut mirror, Side::Source, copy(0));
            done(&mut mirror, Side::Target, copy(0));
        }
    }
    assert_eq!(lengths, [40, 10, 20, 40, 20, 10]);
}

#[test]
fn requests_beyond_a_limit_are_not_taken() {
    let mut mirror = copying(LIMITS);
    let take = |m: &mut Mirror, id, request| m.request(RequestId(id), request, &mut Vec::new());
    assert_eq!(take(&mut mirror, 0, write(95, 6)), Err(NotTaken::OutOfRange));
    for id in 0..4 {
        assert_eq!(take(&mut mirror, id, write(id, 1)), Ok(()));
    }
    assert_eq!(take(&mut mirror, 3, Request::Flush), Err(NotTaken::Duplicate));
    assert_eq!(take(&mut mirror, 9, Request::Flush), Err(NotTaken::Full));
    done(&mut mirror, Side::Source, request(2));
    assert_eq!(take(&mut mirror, 9, Request::Flush), Ok(()));
}

#[test]
fn limits_that_nothing_can_keep_to_are_refused() {
    let with = |size, limits| {
        let setup = Setup { size: Bytes(size), target: TargetContent::Unknown, limits };
        Mirror::new(setup, &mut Vec::new()).map(|_| ())
    };
    assert_eq!(with(0, LIMITS), Err(SetupError::Empty));
    for none in [
        Limits { requests: 0, ..LIMITS },
        Limits { steps: 0, ..LIMITS },
        Limits { step: Bytes(0), ..LIMITS },
        Limits { redo: 0, ..LIMITS },
    ] {
        assert_eq!(with(1, none), Err(SetupError::Nothing), "{none:?}");
    }
    assert_eq!(with(1, Limits { look: Bytes(9), ..LIMITS }), Err(SetupError::StepBeyondLook));
    assert_eq!(with(1, Limits::default()), Ok(()));
}

#[test]
fn what_was_not_asked_for_is_refused() {
    let mut mirror = copying(LIMITS);
    let out = &mut Vec::new();
    let nothing = Err(Unexpected::NothingUnderWay);
    assert_eq!(mirror.done(Side::Target, copy(0), Completion::Done, out), nothing);
    assert_eq!(mirror.found(StepId(0), Found::Hole, Bytes(1), out), nothing);
    assert_eq!(mirror.recorded(Word::Made, out), Err(Unexpected::NoRecord));
    mirror.copy(out);
    assert_eq!(mirror.found(StepId(0), Found::Hole, Bytes(0), out), Err(Unexpected::FoundNothing));
    assert_eq!(mirror.found(StepId(1), Found::Hole, Bytes(1), out), Err(Unexpected::NotExamining));
    assert_eq!(mirror.found(StepId(0), Found::Hole, Bytes(1), out), Ok(()));
}

#[test]
fn operations_wait_for_the_end_and_a_cancel_for_the_word() {
    let mut mirror = copying(LIMITS);
    switching(&mut mirror);
    assert_eq!(mirror.progress().state, State::Switching);
    assert_eq!(mirror.cancel(&mut Vec::new()), Err(NotCancelled::Switching));
    for (operation, why) in [
        (Operation::Resize, Refused::Resize),
        (Operation::Snapshot, Refused::Snapshot),
        (Operation::Move, Refused::Move),
        (Operation::Remove, Refused::Remove),
    ] {
        assert_eq!(mirror.permits(operation), Err(why));
    }
    let out = said(&mut mirror, |m, out| m.recorded(Word::Made, out).unwrap());
    assert_eq!(out, [Action::Ended(Outcome::Switched), Action::Reclaim(Side::Source)]);
    assert_eq!(mirror.permits(Operation::Resize), Ok(()));
    assert_eq!(mirror.cancel(&mut Vec::new()), Err(NotCancelled::Over));
    assert!(mirror.is_over());
}

#[test]
fn each_end_says_why() {
    for (expected, input) in [
        (Reason::SourceUnreadable, (Side::Source, copy(0))),
        (Reason::TargetFailed, (Side::Target, copy(1))),
        (Reason::TargetFailed, (Side::Target, request(0))),
        (Reason::SourceNotDurable, (Side::Source, request(1))),
    ] {
        let mut mirror = copying(LIMITS);
        step(&mut mirror, 0, Found::Data, 10);
        step(&mut mirror, 1, Found::Zeroes, 10);
        asked(&mut mirror, 0, Request::Flush);
        asked(&mut mirror, 1, Request::Write(extent(90, 1), Durability::Fua));
        let out = failed(&mut mirror, input.0, input.1);
        assert!(out.contains(&Action::Ended(Outcome::Failed(expected))), "{expected}: {out:?}");
        assert_eq!(mirror.progress().state, State::Ended);
    }
    let mut mirror = copying(LIMITS);
    let out = said(&mut mirror, Mirror::lose_target);
    let ended = Action::Ended(Outcome::Failed(Reason::TargetLost));
    assert_eq!(out, [ended, Action::Reclaim(Side::Target)]);
    let setup = Setup { size: Bytes(1), target: TargetContent::Unknown, limits: LIMITS };
    let mut mirror = Mirror::new(setup, &mut Vec::new()).unwrap();
    let out = said(&mut mirror, |m, out| m.recorded(Word::NotMade, out).unwrap());
    let ended = Action::Ended(Outcome::Failed(Reason::NotStarted));
    assert_eq!(out, [ended, Action::Reclaim(Side::Target)]);
}

#[test]
fn progress_is_what_need_not_be_copied_any_more() {
    let mut mirror = copying(LIMITS);
    let copied = |m: &Mirror| m.progress().copied;
    step(&mut mirror, 0, Found::Data, 10);
    assert_eq!(copied(&mirror), Bytes(0));
    done(&mut mirror, Side::Source, copy(0));
    done(&mut mirror, Side::Target, copy(0));
    assert_eq!(copied(&mirror), Bytes(10));
    asked(&mut mirror, 0, write(4, 3));
    failed(&mut mirror, Side::Source, request(0));
    done(&mut mirror, Side::Target, request(0));
    assert_eq!(copied(&mirror), Bytes(7));
    mirror.pause();
    assert_eq!(mirror.progress().state, State::Paused);
    assert_eq!(said(&mut mirror, |m, out| assert_eq!(m.copy(out), Turn::Idle)), []);
    mirror.resume();
    let out = step(&mut mirror, 0, Found::Data, 1);
    let op = Op::Read(extent(4, 1));
    assert_eq!(out, [Action::Send { side: Side::Source, job: copy(0), op }]);
}
