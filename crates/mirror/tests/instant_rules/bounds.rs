//! What is refused.

use super::*;

#[test]
fn requests_beyond_a_limit_are_not_taken() {
    let mut copy = copying(80, Limits { requests: 2, ..LIMITS });
    let take = |c: &mut PointInTime, id, request| c.request(RequestId(id), request, &mut vec![]);
    assert_eq!(take(&mut copy, 0, write(79, 2)), Err(NotTaken::OutOfRange));
    assert_eq!(take(&mut copy, 0, write(79, 1)), Ok(()));
    assert_eq!(take(&mut copy, 0, Request::Flush), Err(NotTaken::Duplicate));
    assert_eq!(take(&mut copy, 1, Request::Flush), Ok(()));
    assert_eq!(take(&mut copy, 2, Request::Flush), Err(NotTaken::Full));
    done(&mut copy, Side::Source, request(1));
    assert_eq!(take(&mut copy, 2, Request::Flush), Ok(()));
}

#[test]
fn limits_that_nothing_can_keep_to_are_refused() {
    let with = |size, limits| {
        let (target, keeps) = (TargetContent::Unknown, Keeps::Buffers);
        let setup = Setup { size: Bytes(size), target, keeps, limits };
        PointInTime::new(setup).map(|_| ())
    };
    assert_eq!(with(0, LIMITS), Err(SetupError::Empty));
    for none in [
        Limits { requests: 0, ..LIMITS },
        Limits { steps: 0, ..LIMITS },
        Limits { ahead: 0, ..LIMITS },
        Limits { step: Bytes(0), ..LIMITS },
        Limits { look: Bytes(0), ..LIMITS },
        Limits { buffers: Bytes(0), ..LIMITS },
        Limits { bitmap: Bytes(0), ..LIMITS },
    ] {
        assert_eq!(with(1, none), Err(SetupError::Nothing), "{none:?}");
    }
    let chunk = |chunk| Limits { chunk: Bytes(chunk), ..LIMITS };
    assert_eq!(with(8, chunk(3)), Err(SetupError::ChunkNotAPowerOfTwo));
    assert_eq!(with(80, chunk(32)), Err(SetupError::BuffersBelowChunk));
    assert_eq!(with(16, chunk(32)), Ok(()), "the disk is less than a chunk");
    assert_eq!(
        with(4096, Limits { bitmap: Bytes(1), ..LIMITS }),
        Err(SetupError::BuffersBelowChunk)
    );
    for much in [
        Limits { requests: usize::MAX, ..LIMITS },
        Limits { chunk: Bytes(1), bitmap: Bytes(u64::MAX), ..LIMITS },
    ] {
        assert_eq!(
            with(u64::MAX, Limits { buffers: Bytes(u64::MAX), ..much }),
            Err(SetupError::NoMemory)
        );
    }
    let made = new(8 << 40, TargetContent::Unknown, Limits::default());
    assert_eq!(made.chunk(), Bytes::from_mib(1));
}

#[test]
fn what_was_not_asked_for_is_refused() {
    let mut copy = copying(80, LIMITS);
    let out = &mut Vec::new();
    let nothing = Err(Unexpected::NothingUnderWay);
    for (side, job) in [
        (Side::Source, step(0)),
        (Side::Target, step(0)),
        (Side::Source, request(0)),
        (Side::Target, Job::LastFlush),
    ] {
        assert_eq!(copy.done(side, job, Completion::Done, out), nothing, "{job:?}");
    }
    assert_eq!(copy.found(StepId(0), Found::Hole, Bytes(1), out), Err(Unexpected::NotExamining));
    assert_eq!(copy.read_zeroes(StepId(0), out), Err(Unexpected::NotReading));
    copy.copy(out);
    assert_eq!(copy.found(StepId(0), Found::Hole, Bytes(0), out), Err(Unexpected::FoundNothing));
    assert_eq!(copy.found(StepId(1), Found::Hole, Bytes(1), out), Err(Unexpected::NotExamining));
    assert_eq!(copy.read_zeroes(StepId(0), out), Err(Unexpected::NotReading));
    let examined = copy.done(Side::Source, step(0), Completion::Done, out);
    assert_eq!(examined, Err(Unexpected::FoundWhat));
    assert_eq!(copy.done(Side::Target, step(0), Completion::Done, out), nothing);
    copy.request(RequestId(0), write(70, 1), out).unwrap();
    assert_eq!(copy.done(Side::Source, request(0), Completion::Done, out), nothing, "it waits");
    copy.request(RequestId(1), Request::Flush, out).unwrap();
    assert_eq!(copy.done(Side::Target, request(1), Completion::Done, out), nothing);
    assert_eq!(copy.done(Side::Source, request(1), Completion::Done, out), Ok(()));
    assert_eq!(copy.done(Side::Source, request(1), Completion::Done, out), nothing);
}
