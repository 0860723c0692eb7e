//! Discards and zeroes, which reach far.

use super::*;

#[test]
fn discards_go_for_what_is_copied_and_wait_for_nothing() {
    let mut copy = copying(80, LIMITS);
    assert_eq!(asked(&mut copy, 0, Request::Discard(extent(0, 80))), [answered(0)]);
    for (id, start) in [(0, 8), (1, 12), (2, 40)] {
        asked(&mut copy, 1, write(start, 1));
        done(&mut copy, Side::Source, step(id));
        done(&mut copy, Side::Source, request(1));
    }
    let sent = |start, len| at_source(request(0), Op::Discard(extent(start, len)));
    assert_eq!(asked(&mut copy, 0, Request::Discard(extent(9, 33))), [sent(9, 7)]);
    assert_eq!(done(&mut copy, Side::Source, request(0)), [sent(40, 2)]);
    assert_eq!(done(&mut copy, Side::Source, request(0)), [answered(0)]);
    assert_eq!(asked(&mut copy, 0, Request::Discard(extent(0, 80))), [sent(8, 8)]);
    let failure = Action::Answer(RequestId(0), Completion::Failed);
    assert_eq!(failed(&mut copy, Side::Source, request(0)), [failure], "the rest is left");
}

#[test]
fn a_discard_of_many_stretches_is_cut_short() {
    let size = 8 * (u64::from(DISCARD_PIECES) + 3);
    let mut copy = copying(size, LIMITS);
    for chunk in 0..size / 8 {
        asked(&mut copy, 1, write(chunk * 8, 1));
        done(&mut copy, Side::Source, step(0));
        done(&mut copy, Side::Target, step(0));
        done(&mut copy, Side::Source, request(1));
    }
    let mut out = asked(&mut copy, 0, Request::Discard(extent(0, size)));
    let mut pieces = 0;
    while out != [answered(0)] {
        assert_eq!(out.len(), 1);
        pieces += 1;
        out = done(&mut copy, Side::Source, request(0));
    }
    assert_eq!(pieces, DISCARD_PIECES);
}

#[test]
fn zeroes_that_reach_far_are_done_piece_by_piece() {
    let mut copy = copying(400, LIMITS);
    assert_eq!(asked(&mut copy, 0, zero(2, 100)), [examine(0, 0, 32)]);
    // What they do not meet goes on, and so does what they do.
    assert_eq!(asked(&mut copy, 1, write(50, 1)), [read(1, 48, 4)]);
    let out = done(&mut copy, Side::Source, step(1));
    assert_eq!(out, [written(1, 48, 4), wrote(1, 50, 1)]);
    done(&mut copy, Side::Target, step(1));
    assert_eq!(found(&mut copy, 0, Found::Data, 20), [read(0, 0, 8)]);
    // A piece that is less than a step's worth waits for more.
    assert_eq!(done(&mut copy, Side::Source, step(0)), [written(0, 0, 8), read(1, 8, 8)]);
    let out = done(&mut copy, Side::Source, step(1));
    assert_eq!(out, [written(1, 8, 8), zeroed(0, 2, 14)], "and the buffers are in use");
    assert_eq!(done(&mut copy, Side::Target, step(0)), [read(0, 16, 4)]);
    assert_eq!(done(&mut copy, Side::Source, step(0)), [written(0, 16, 4), examine(2, 20, 32)]);
    // One piece at a time.
    assert_eq!(found(&mut copy, 2, Found::Hole, 32), [examine(2, 52, 32)]);
    assert_eq!(done(&mut copy, Side::Source, request(0)), [zeroed(0, 16, 36)]);
    assert_eq!(found(&mut copy, 2, Found::Hole, 32), [examine(2, 84, 20)]);
    assert_eq!(found(&mut copy, 2, Found::Hole, 32), []);
    assert_eq!(done(&mut copy, Side::Source, request(0)), [zeroed(0, 52, 50)]);
    assert_eq!(done(&mut copy, Side::Source, request(0)), [answered(0)]);
}

#[test]
fn zeroes_that_are_short_go_whole_and_without_asking() {
    let mut copy = copying(80, LIMITS);
    asked(&mut copy, 0, write(0, 4));
    done(&mut copy, Side::Source, step(0));
    assert_eq!(asked(&mut copy, 1, zero(1, 7)), [read(1, 4, 4)]);
    let out = done(&mut copy, Side::Source, step(1));
    assert_eq!(out, [written(1, 4, 4), zeroed(1, 1, 7)]);
}

#[test]
fn zeroes_that_reach_far_let_others_go_first_after_each_piece() {
    let mut copy = copying(400, Limits { buffers: Bytes(8), ..LIMITS });
    asked(&mut copy, 0, zero(0, 100));
    assert_eq!(found(&mut copy, 0, Found::Data, 100), [read(0, 0, 8)]);
    assert_eq!(asked(&mut copy, 1, write(200, 1)), []);
    assert_eq!(asked(&mut copy, 2, zero(300, 20)), []);
    done(&mut copy, Side::Source, step(0));
    // The write, and the other zeroes, which have to ask first.
    let out = done(&mut copy, Side::Target, step(0));
    assert_eq!(out, [read(0, 200, 4), examine(1, 300, 20), read(2, 8, 4)]);
    assert_eq!(found(&mut copy, 1, Found::Data, 20), []);
    assert_eq!(done(&mut copy, Side::Source, step(2)), [written(2, 8, 4)]);
    assert_eq!(done(&mut copy, Side::Target, step(2)), [read(1, 300, 4)], "each in turn");
}

#[test]
fn a_failed_piece_ends_zeroes_and_their_name_is_free() {
    let mut copy = copying(400, LIMITS);
    asked(&mut copy, 0, zero(0, 100));
    found(&mut copy, 0, Found::Hole, 32);
    let failure = Action::Answer(RequestId(0), Completion::Failed);
    assert_eq!(failed(&mut copy, Side::Source, request(0)), [failure]);
    // The step of the old ones says nothing about the new ones.
    assert_eq!(asked(&mut copy, 0, zero(200, 100)), [examine(1, 200, 32)]);
    assert_eq!(found(&mut copy, 0, Found::Data, 32), []);
    assert_eq!(found(&mut copy, 1, Found::Data, 4), [read(0, 200, 4)]);
}

#[test]
fn what_is_under_way_as_the_copy_ends_is_followed_by_all_of_the_rest() {
    let mut copy = copying(400, LIMITS);
    let request_of = |durability| Request::Zero(extent(0, 100), Unmap::MustNot, durability);
    let sent = |id, start, len, durability| {
        at_source(request(id), Op::Zero(extent(start, len), Unmap::MustNot, durability))
    };
    asked(&mut copy, 0, request_of(Durability::Fua));
    let out = found(&mut copy, 0, Found::Hole, 32);
    assert_eq!(out, [sent(0, 0, 32, Durability::Fua), examine(0, 32, 32)]);
    let sent_discard = |start, len| at_source(request(1), Op::Discard(extent(start, len)));
    assert_eq!(asked(&mut copy, 1, Request::Discard(extent(8, 90))), [sent_discard(8, 24)]);
    let ended = Action::Ended(Outcome::Cancelled);
    assert_eq!(said(&mut copy, |c, out| c.cancel(out).unwrap()), [ended]);
    let out = done(&mut copy, Side::Source, request(0));
    assert_eq!(out, [sent(0, 32, 68, Durability::Fua)]);
    assert_eq!(done(&mut copy, Side::Source, request(1)), [sent_discard(32, 66)]);
    assert_eq!(done(&mut copy, Side::Source, request(0)), [answered(0)]);
    assert_eq!(done(&mut copy, Side::Source, request(1)), [answered(1)]);
    assert_eq!(found(&mut copy, 0, Found::Hole, 32), [Action::Release]);
    assert!(copy.is_over());
}

#[test]
fn what_the_step_of_old_zeroes_finds_is_nothing_to_new_ones_of_their_name() {
    let mut copy = new(400, TargetContent::Unknown, LIMITS);
    copy.drained(Completion::Done, &mut Vec::new()).unwrap();
    asked(&mut copy, 0, zero(200, 100));
    found(&mut copy, 0, Found::Hole, 32);
    let failure = Action::Answer(RequestId(0), Completion::Failed);
    // The hole was made, so the first of them went. What lies behind is being examined.
    assert_eq!(failed(&mut copy, Side::Source, request(0)), [failure]);
    assert_eq!(asked(&mut copy, 0, zero(0, 100)), [examine(2, 0, 32)]);
    assert_eq!(found(&mut copy, 2, Found::Data, 4), [read(2, 0, 4)]);
    let zeroes = Op::Zero(extent(232, 32), Unmap::May, Durability::Cached);
    assert_eq!(found(&mut copy, 1, Found::Hole, 32), [at_target(step(1), zeroes)]);
    let out = done(&mut copy, Side::Source, step(2));
    assert!(out.contains(&examine(3, 4, 32)), "{out:?}");
}

#[test]
fn zeroes_that_have_asked_stand_behind_those_who_came_meanwhile() {
    let mut copy = copying(400, Limits { buffers: Bytes(8), ..LIMITS });
    asked(&mut copy, 0, write(0, 8));
    assert_eq!(asked(&mut copy, 1, zero(100, 100)), [examine(1, 100, 32)]);
    assert_eq!(asked(&mut copy, 2, write(300, 1)), []);
    assert_eq!(found(&mut copy, 1, Found::Data, 32), []);
    done(&mut copy, Side::Source, step(0));
    assert_eq!(done(&mut copy, Side::Target, step(0)), [read(0, 300, 4), read(1, 100, 4)]);
}
