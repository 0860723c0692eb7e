//! The copy in order: what it passes over, and what it leaves to others.

use super::*;

#[test]
fn what_is_copied_in_order_is_passed_over_where_others_copied_it() {
    let mut copy = copying(40, Limits { buffers: Bytes(40), ..LIMITS });
    asked(&mut copy, 0, write(8, 1));
    done(&mut copy, Side::Source, step(0));
    assert_eq!(invite(&mut copy, Turn::Began), [examine(1, 0, 32)]);
    assert_eq!(invite(&mut copy, Turn::Later), [], "one examines at a time");
    // An examination keeps nobody from anything.
    assert_eq!(asked(&mut copy, 1, write(0, 1)), [read(2, 0, 4)]);
    assert_eq!(found(&mut copy, 1, Found::Data, 14), [read(1, 4, 4)]);
    assert_eq!(copy.steps(), 1);
    done(&mut copy, Side::Target, step(0));
    done(&mut copy, Side::Source, step(1));
    done(&mut copy, Side::Target, step(1));
    // The last two bytes of the data are part of a chunk, which is read, and known without asking.
    assert_eq!(invite(&mut copy, Turn::Began), [read(0, 12, 4)]);
    assert_eq!(invite(&mut copy, Turn::Began), [examine(1, 16, 24)]);
    assert_eq!(invite(&mut copy, Turn::Later), []);
}

#[test]
fn a_hole_spares_the_target_but_not_what_is_part_of_a_chunk_or_being_read() {
    let mut copy = copying(40, LIMITS);
    assert_eq!(invite(&mut copy, Turn::Began), [examine(0, 0, 32)]);
    assert_eq!(asked(&mut copy, 0, write(4, 1)), [read(1, 4, 4)]);
    assert_eq!(found(&mut copy, 0, Found::Hole, 15), []);
    assert_eq!(copy.progress().copied, Bytes(8));
    assert_eq!(asked(&mut copy, 1, write(9, 1)), [wrote(1, 9, 1)]);
    assert_eq!(asked(&mut copy, 2, write(5, 1)), [], "its chunk is still being read");
    let out = said(&mut copy, |c, out| c.read_zeroes(StepId(1), out).unwrap());
    assert_eq!(out, [wrote(0, 4, 1), wrote(2, 5, 1)], "the target is of zeroes");
    assert_eq!(copy.progress().buffers, Bytes(0));
    assert_eq!(invite(&mut copy, Turn::Began), [examine(0, 12, 28)]);
    // Less than a chunk is no hole.
    assert_eq!(found(&mut copy, 0, Found::Hole, 3), [read(0, 12, 4)]);
    assert_eq!(invite(&mut copy, Turn::Began), [examine(1, 16, 24)]);
    // The end of the disk is a border, and what is beyond is none of it.
    assert_eq!(found(&mut copy, 1, Found::Zeroes, 500), []);
    assert_eq!(copy.progress().copied, Bytes(36));
}

#[test]
fn a_target_of_anything_is_told_of_zeroes_and_written_once() {
    let mut copy = new(40, TargetContent::Unknown, LIMITS);
    copy.drained(Completion::Done, &mut Vec::new()).unwrap();
    asked(&mut copy, 0, write(8, 1));
    let zeroes = |id, start, len| {
        at_target(step(id), Op::Zero(extent(start, len), Unmap::May, Durability::Cached))
    };
    assert_eq!(invite(&mut copy, Turn::Began), [examine(1, 0, 32)]);
    assert_eq!(found(&mut copy, 1, Found::Hole, 32), [zeroes(1, 0, 8)]);
    assert_eq!(asked(&mut copy, 1, write(0, 8)), [wrote(1, 0, 8)]);
    assert_eq!(invite(&mut copy, Turn::Began), [zeroes(2, 12, 20)]);
    assert_eq!(asked(&mut copy, 2, write(12, 4)), [wrote(2, 12, 4)]);
    let out = said(&mut copy, |c, out| c.read_zeroes(StepId(0), out).unwrap());
    assert_eq!(out, [zeroes(0, 8, 4), wrote(0, 8, 1)]);
    assert_eq!(copy.progress().buffers, Bytes(0), "zeroes need none");
    assert_eq!(invite(&mut copy, Turn::Later), [], "as many steps in order as may be");
}

#[test]
fn an_examination_that_fails_is_followed_by_a_read() {
    let mut copy = copying(40, Limits { buffers: Bytes(32), ..LIMITS });
    invite(&mut copy, Turn::Began);
    assert_eq!(failed(&mut copy, Side::Source, step(0)), [read(0, 0, 8)]);
    assert_eq!(invite(&mut copy, Turn::Began), [read(1, 8, 8)], "all of it counts as data");
}

#[test]
fn the_copy_in_order_leaves_half_of_the_buffers_to_changes() {
    let mut copy = copying(80, LIMITS);
    invite(&mut copy, Turn::Began);
    assert_eq!(found(&mut copy, 0, Found::Data, 32), [read(0, 0, 8)]);
    assert_eq!(invite(&mut copy, Turn::Later), []);
    assert_eq!(asked(&mut copy, 0, write(40, 8)), [read(1, 40, 8)]);
    done(&mut copy, Side::Source, step(0));
    done(&mut copy, Side::Target, step(0));
    assert_eq!(invite(&mut copy, Turn::Later), [], "half of them are in use by changes");
    let small = Limits { buffers: Bytes(4), ..LIMITS };
    let mut copy = copying(80, small);
    invite(&mut copy, Turn::Began);
    assert_eq!(found(&mut copy, 0, Found::Data, 32), [read(0, 0, 4)], "one chunk at least");
}

#[test]
fn what_was_not_asked_is_not_known() {
    let mut copy = copying(40, LIMITS);
    invite(&mut copy, Turn::Began);
    assert_eq!(found(&mut copy, 0, Found::Hole, 500), []);
    assert_eq!(copy.progress().copied, Bytes(32));
}

#[test]
fn a_step_that_finds_zeroes_makes_them_before_others_take_its_place() {
    let mut copy = new(32, TargetContent::Unknown, Limits { steps: 1, ..LIMITS });
    copy.drained(Completion::Done, &mut Vec::new()).unwrap();
    assert_eq!(invite(&mut copy, Turn::Began), [examine(0, 0, 32)]);
    assert_eq!(asked(&mut copy, 0, write(0, 1)), []);
    let op = Op::Zero(extent(0, 32), Unmap::May, Durability::Cached);
    let out = found(&mut copy, 0, Found::Hole, 32);
    assert_eq!(out, [at_target(step(0), op), wrote(0, 0, 1)]);
}
