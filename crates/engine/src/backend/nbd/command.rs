//! What to send for the next step of a request.

use super::offer::Offer;
use crate::kernel::buffers::ZEROES;
use crate::request::{Durability, IoError, Op, Step, Unmap, ZeroSpeed};
use headgate_nbd::wire::{command, command_flag as flag};

/// Where a command's payload comes from or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// It has none.
    None,
    /// From the server into the request's buffers.
    Received,
    /// From the request's buffers to the server.
    Sent,
    /// Zeroes to the server.
    Zeroes,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A command on `len` bytes behind those that are done.
    Send { command: u16, flags: u16, len: u32, data: Data },
    /// There is nothing to do, or it cannot be done.
    End(Result<(), IoError>),
}

/// Ranges without payload go in pieces of this length at most: a block-aligned number below 2^32,
/// and no server works at one for long.
const RANGE_MAX: u64 = 1 << 30;
/// Bytes of zeroes in one write.
pub(crate) const ZEROES_MAX: u32 = 256 << 10;

const _: () = assert!(ZEROES_MAX as usize <= ZEROES, "a write of zeroes reads beyond its block");

/// What to send for `op`, of which `left` bytes are not done.
pub(crate) fn next(op: Op, step: Step, left: u64, offer: Offer) -> Next {
    let payload = left.min(u64::from(offer.payload_max)) as u32;
    let fua = |durability| match durability {
        Durability::Fua if offer.fua() => flag::FUA,
        Durability::Fua | Durability::Cached => 0,
    };
    let send = |command, flags, len, data| Next::Send { command, flags, len, data };
    match (step, op) {
        // A server that does not offer it has nothing to flush: what it has acknowledged is
        // durable.
        (Step::Sync, _) | (_, Op::Flush) if offer.flush() => send(command::FLUSH, 0, 0, Data::None),
        (Step::Sync, _) | (_, Op::Flush) => Next::End(Ok(())),
        (Step::ZeroFill, Op::WriteZeroes { durability, .. }) => {
            send(command::WRITE, fua(durability), payload.min(ZEROES_MAX), Data::Zeroes)
        }
        (_, Op::Read) => send(command::READ, 0, payload, Data::Received),
        (_, Op::Write(durability)) => send(command::WRITE, fua(durability), payload, Data::Sent),
        (_, Op::Discard) if !offer.trim() => Next::End(Err(IoError::Unsupported)),
        (_, Op::Discard) => send(command::TRIM, 0, left.min(RANGE_MAX) as u32, Data::None),
        (_, Op::WriteZeroes { speed: ZeroSpeed::FastOnly, .. })
            if !offer.write_zeroes() || !offer.fast_zero() =>
        {
            Next::End(Err(IoError::Unsupported))
        }
        (_, Op::WriteZeroes { durability, .. }) if !offer.write_zeroes() => {
            send(command::WRITE, fua(durability), payload.min(ZEROES_MAX), Data::Zeroes)
        }
        (_, Op::WriteZeroes { unmap, speed, durability }) => {
            let hole = if unmap == Unmap::MustNot { flag::NO_HOLE } else { 0 };
            let fast = if speed == ZeroSpeed::FastOnly { flag::FAST_ZERO } else { 0 };
            let len = left.min(RANGE_MAX) as u32;
            send(command::WRITE_ZEROES, fua(durability) | hole | fast, len, Data::None)
        }
        (_, Op::BlockStatus) if offer.status() => {
            send(command::BLOCK_STATUS, 0, left.min(RANGE_MAX) as u32, Data::None)
        }
        // Advice, and a question to which "all data" is always a true answer.
        (_, Op::Cache | Op::BlockStatus) => Next::End(Ok(())),
        (_, Op::Splice | Op::PlacedWrite | Op::Share) => Next::End(Err(IoError::Unsupported)),
    }
}

/// What comes behind a command that succeeded, and with which the whole range is done.
pub(crate) fn after(op: Op, step: Step, offer: Offer) -> Option<Step> {
    let durability = match op {
        Op::Write(durability) | Op::WriteZeroes { durability, .. } => durability,
        _ => return None,
    };
    let unsynced = durability == Durability::Fua && !offer.fua() && offer.flush();
    (step != Step::Sync && unsynced).then_some(Step::Sync)
}

/// What comes behind a command that failed, if the request can still succeed.
pub(crate) fn otherwise(op: Op, step: Step, error: IoError) -> Option<Step> {
    let by_hand = matches!(op, Op::WriteZeroes { speed: ZeroSpeed::Any, .. });
    (step == Step::Main && by_hand && error == IoError::Unsupported).then_some(Step::ZeroFill)
}

/// Does the operation change what the disk holds.
pub(crate) fn modifies(op: Op) -> bool {
    matches!(op, Op::Write(_) | Op::WriteZeroes { .. } | Op::Discard)
}

/// Does its end promise that something can be read that only a flush makes durable. By the
/// specification a flush covers what was trimmed, too.
pub(crate) fn owes_flush(op: Op) -> bool {
    match op {
        Op::Write(durability) | Op::WriteZeroes { durability, .. } => {
            durability == Durability::Cached
        }
        Op::Discard => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::offer::tests::info;
    use super::*;
    use headgate_nbd::client::form::Form;
    use headgate_nbd::wire::export;

    const ALL: u16 = export::SEND_FLUSH
        | export::SEND_FUA
        | export::SEND_TRIM
        | export::SEND_WRITE_ZEROES
        | export::SEND_FAST_ZERO;

    fn offer(flags: u16) -> Offer {
        Offer::check(info(flags), Form::Simple).unwrap()
    }

    fn zeroes(unmap: Unmap, speed: ZeroSpeed, durability: Durability) -> Op {
        Op::WriteZeroes { unmap, speed, durability }
    }

    #[test]
    fn a_server_that_offers_everything_gets_plain_commands() {
        let next = |op, left| next(op, Step::Main, left, offer(ALL));
        let send = |command, flags, len, data| Next::Send { command, flags, len, data };
        assert_eq!(next(Op::Read, 4096), send(command::READ, 0, 4096, Data::Received));
        assert_eq!(
            next(Op::Write(Durability::Fua), 40 << 20),
            send(command::WRITE, flag::FUA, 32 << 20, Data::Sent)
        );
        assert_eq!(next(Op::Flush, 0), send(command::FLUSH, 0, 0, Data::None));
        assert_eq!(next(Op::Discard, 1 << 40), send(command::TRIM, 0, 1 << 30, Data::None));
        let op = zeroes(Unmap::MustNot, ZeroSpeed::FastOnly, Durability::Cached);
        assert_eq!(
            next(op, 512),
            send(command::WRITE_ZEROES, flag::NO_HOLE | flag::FAST_ZERO, 512, Data::None)
        );
        for op in [op, Op::Write(Durability::Fua), Op::Flush, Op::Read] {
            assert_eq!(after(op, Step::Main, offer(ALL)), None);
        }
    }

    #[test]
    fn a_server_that_offers_nothing_is_write_through_and_gets_zeroes_by_hand() {
        let offer = offer(0);
        let next = |op, left| next(op, Step::Main, left, offer);
        assert_eq!(next(Op::Flush, 0), Next::End(Ok(())));
        assert_eq!(next(Op::Discard, 512), Next::End(Err(IoError::Unsupported)));
        let op = zeroes(Unmap::May, ZeroSpeed::FastOnly, Durability::Cached);
        assert_eq!(next(op, 512), Next::End(Err(IoError::Unsupported)));
        let op = zeroes(Unmap::May, ZeroSpeed::Any, Durability::Fua);
        let by_hand =
            Next::Send { command: command::WRITE, flags: 0, len: ZEROES_MAX, data: Data::Zeroes };
        assert_eq!(next(op, 1 << 20), by_hand);
        assert_eq!(after(Op::Write(Durability::Fua), Step::Main, offer), None);
    }

    #[test]
    fn what_a_range_holds_is_asked_where_the_server_says_it() {
        let next = |form| {
            let offer = Offer::check(info(ALL), form).unwrap();
            next(Op::BlockStatus, Step::Main, 3 << 30, offer)
        };
        let (command, len) = (command::BLOCK_STATUS, 1 << 30);
        let asked = Next::Send { command, flags: 0, len, data: Data::None };
        assert_eq!(next(Form::Structured { allocation: Some(1) }), asked);
        assert_eq!(next(Form::Structured { allocation: None }), Next::End(Ok(())));
        assert_eq!(next(Form::Simple), Next::End(Ok(())));
    }

    #[test]
    fn fua_without_fua_is_a_write_and_a_flush() {
        let offer = offer(export::SEND_FLUSH);
        for op in [Op::Write(Durability::Fua), zeroes(Unmap::May, ZeroSpeed::Any, Durability::Fua)]
        {
            assert_eq!(after(op, Step::Main, offer), Some(Step::Sync));
            assert_eq!(after(op, Step::ZeroFill, offer), Some(Step::Sync));
            assert_eq!(after(op, Step::Sync, offer), None);
            let flush = Next::Send { command: command::FLUSH, flags: 0, len: 0, data: Data::None };
            assert_eq!(next(op, Step::Sync, 0, offer), flush);
        }
        assert_eq!(after(Op::Write(Durability::Cached), Step::Main, offer), None);
    }

    #[test]
    fn zeroing_that_the_server_refuses_is_done_by_hand_unless_it_must_be_fast() {
        let any = zeroes(Unmap::May, ZeroSpeed::Any, Durability::Cached);
        let fast = zeroes(Unmap::May, ZeroSpeed::FastOnly, Durability::Cached);
        assert_eq!(otherwise(any, Step::Main, IoError::Unsupported), Some(Step::ZeroFill));
        assert_eq!(otherwise(any, Step::ZeroFill, IoError::Unsupported), None);
        assert_eq!(otherwise(any, Step::Main, IoError::NoSpace), None);
        assert_eq!(otherwise(fast, Step::Main, IoError::Unsupported), None);
    }
}
