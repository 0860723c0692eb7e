//! Changes of the guest: who waits for what, and who does not.

use super::*;

#[test]
fn changes_wait_for_those_from_before_and_reads_and_flushes_for_nothing() {
    let mut copy = new(32, TargetContent::Zeroes, LIMITS);
    assert_eq!(asked(&mut copy, 0, write(5, 2)), []);
    assert_eq!(asked(&mut copy, 1, zero(20, 2)), []);
    let whole = Op::Read(extent(0, 32));
    assert_eq!(asked(&mut copy, 2, Request::Read(extent(0, 32))), [at_source(request(2), whole)]);
    assert_eq!(asked(&mut copy, 3, Request::Flush), [at_source(request(3), Op::Flush)]);
    assert_eq!(asked(&mut copy, 4, Request::Discard(extent(0, 32))), [answered(4)]);
    assert_eq!(invite(&mut copy, Turn::Later), []);
    assert_eq!(copy.progress().state, State::Draining);
    assert_eq!(copy.progress().waiting, 2);
    let out = said(&mut copy, |c, out| c.drained(Completion::Done, out).unwrap());
    assert_eq!(out, [read(0, 4, 4), read(1, 20, 4)]);
    let again = copy.drained(Completion::Done, &mut Vec::new());
    assert_eq!(again, Err(Unexpected::AlreadyDrained));
    // Where it reads, nothing keeps other reads and flushes.
    assert_eq!(asked(&mut copy, 5, Request::Read(extent(4, 4))).len(), 1);
    assert_eq!(asked(&mut copy, 6, Request::Flush).len(), 1);
}

#[test]
fn a_write_waits_for_one_read_of_its_chunks_and_not_for_the_target() {
    let mut copy = copying(32, LIMITS);
    assert_eq!(asked(&mut copy, 0, write(7, 2)), [read(0, 4, 8)]);
    assert_eq!(copy.progress().buffers, Bytes(8));
    // What is being read is not read again, and nobody waits for whom he does not meet.
    assert_eq!(asked(&mut copy, 1, write(4, 1)), []);
    assert_eq!(asked(&mut copy, 2, write(10, 3)), [read(1, 12, 4)]);
    let out = done(&mut copy, Side::Source, step(0));
    assert_eq!(out, [written(0, 4, 8), wrote(0, 7, 2), wrote(1, 4, 1)]);
    assert_eq!(copy.progress().copied, Bytes(8));
    assert_eq!(copy.progress().buffers, Bytes(12), "the target has it not yet");
    let out = done(&mut copy, Side::Source, step(1));
    assert_eq!(out, [written(1, 12, 4), wrote(2, 10, 3)]);
    assert_eq!(asked(&mut copy, 3, write(4, 12)), [wrote(3, 4, 12)], "copied is copied");
    assert_eq!(done(&mut copy, Side::Source, request(0)), [answered(0)]);
    assert_eq!(done(&mut copy, Side::Target, step(0)), []);
    assert_eq!(copy.progress().buffers, Bytes(4));
    let failure = Action::Answer(RequestId(1), Completion::Failed);
    assert_eq!(failed(&mut copy, Side::Source, request(1)), [failure]);
    assert_eq!(copy.progress().state, State::Copying, "the guest's failure is the guest's");
}

#[test]
fn chunks_are_taken_whole_and_end_with_the_disk() {
    let mut copy = copying(10, LIMITS);
    assert_eq!(asked(&mut copy, 0, write(9, 1)), [read(0, 8, 2)]);
    assert_eq!(asked(&mut copy, 1, write(3, 1)), [read(1, 0, 4)]);
    assert_eq!(asked(&mut copy, 2, write(4, 1)), [read(2, 4, 4)], "neighbours do not meet");
    assert_eq!(copy.progress().buffers, Bytes(10));
}

#[test]
fn room_is_given_in_order_and_used_up_by_nobody_else() {
    let mut copy = copying(80, LIMITS);
    assert_eq!(asked(&mut copy, 0, write(0, 12)), [read(0, 0, 8), read(1, 8, 4)]);
    // There is room for one chunk of the two, and that is taken.
    assert_eq!(asked(&mut copy, 1, write(20, 8)), [read(2, 20, 4)]);
    assert_eq!(asked(&mut copy, 2, write(40, 1)), []);
    assert_eq!(copy.progress().buffers, Bytes(16));
    assert_eq!(invite(&mut copy, Turn::Later), []);
    let out = done(&mut copy, Side::Source, step(0));
    assert_eq!(out, [written(0, 0, 8)], "the buffer is in use until the target has it");
    assert_eq!(done(&mut copy, Side::Source, step(2)), [written(2, 20, 4)]);
    assert_eq!(done(&mut copy, Side::Target, step(2)), [read(2, 24, 4)], "the first that waits");
    assert_eq!(asked(&mut copy, 3, write(60, 1)), [], "nor does a new one pass");
    assert_eq!(done(&mut copy, Side::Target, step(0)), [read(0, 40, 4), read(3, 60, 4)]);
    let out = done(&mut copy, Side::Source, step(1));
    assert_eq!(out, [written(1, 8, 4), wrote(0, 0, 12)]);
}

#[test]
fn steps_are_no_more_than_may_be() {
    let mut copy = copying(80, Limits { steps: 2, ..LIMITS });
    asked(&mut copy, 0, write(0, 1));
    asked(&mut copy, 1, write(8, 1));
    assert_eq!(asked(&mut copy, 2, write(16, 1)), []);
    assert_eq!(invite(&mut copy, Turn::Later), []);
    done(&mut copy, Side::Source, step(1));
    assert_eq!(done(&mut copy, Side::Target, step(1)), [read(1, 16, 4)]);
}

#[test]
fn a_write_that_is_larger_than_all_buffers_is_copied_for_bit_by_bit() {
    let mut copy = copying(80, LIMITS);
    let mut out = asked(&mut copy, 0, write(1, 77));
    assert_eq!(out, [read(0, 0, 8), read(1, 8, 8)]);
    let mut reads = 0;
    while !out.contains(&wrote(0, 1, 77)) {
        assert!(copy.progress().buffers <= Bytes(16));
        let id = (reads % 2) as u32;
        reads += 1;
        out = done(&mut copy, Side::Source, step(id));
        if reads < 10 {
            out = done(&mut copy, Side::Target, step(id));
        }
    }
    assert_eq!(reads, 10);
}

#[test]
fn no_chunk_is_read_in_part() {
    let mut copy = copying(80, Limits { buffers: Bytes(10), ..LIMITS });
    assert_eq!(asked(&mut copy, 0, write(0, 12)), [read(0, 0, 8)]);
    assert_eq!(copy.progress().waiting, 1);
}
