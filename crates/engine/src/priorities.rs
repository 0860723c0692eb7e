use crate::request::{Op, Request};
use headgate_qos::ioprio::{Ioprio, IoprioMap};
use headgate_qos::{Io, IoKind, PriorityPolicy};
use headgate_units::Bytes;

/// What a disk's requests may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priorities {
    /// What it is worth.
    pub policy: PriorityPolicy,
    /// How it is read.
    pub map: IoprioMap,
}

impl Priorities {
    /// A request as the scheduler sees it.
    pub(crate) fn io(&self, request: &Request) -> Io {
        let field = Ioprio(request.ioprio);
        let kind = match request.op {
            Op::Flush => IoKind::Flush,
            Op::Write(_) if field == Ioprio::JOURNAL => IoKind::Journal,
            Op::Write(_) | Op::PlacedWrite | Op::WriteZeroes { .. } => IoKind::Write,
            Op::Discard => IoKind::Discard,
            Op::Read | Op::Splice | Op::BlockStatus | Op::Cache | Op::Share => IoKind::Read,
        };
        let bytes = if request.op.is_transfer() { request.len } else { 0 };
        Io { bytes: Bytes(bytes), position: request.offset, priority: self.map.given(field), kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Durability;
    use headgate_units::Priority;

    #[test]
    fn the_scheduler_sees_what_is_given_and_whose_priority_is_another_s() {
        let io = |op, ioprio| {
            let request = Request { op, offset: 8192, len: 4096, cookie: 0, ioprio };
            let io = Priorities::default().io(&request);
            assert_eq!(io.position, 8192);
            (io.bytes.0, io.priority.map(Priority::get), io.kind)
        };
        let write = Op::Write(Durability::Cached);
        assert_eq!(io(Op::Read, 0x2000), (4096, Some(254), IoKind::Read));
        assert_eq!(io(Op::Read, 0x4003), (4096, Some(120), IoKind::Read));
        assert_eq!(io(write, 0x4004), (4096, None, IoKind::Write));
        assert_eq!(io(write, 0x4003), (4096, Some(120), IoKind::Journal));
        assert_eq!(io(Op::Discard, 0x6000), (0, Some(10), IoKind::Discard));
        assert_eq!(io(Op::Flush, 0), (0, None, IoKind::Flush));
    }
}
