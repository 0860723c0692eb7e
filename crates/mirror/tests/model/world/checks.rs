//! What must hold at every instant, and at the end.

use super::{Broken, World, check};
use crate::storage::{Storage, one};
use headgate_mirror::{Action, Extent, Job, Op, Outcome, Record, Recovery, Request, Side};

impl<const N: usize> World<N> {
    /// What must be true when nothing is left to happen.
    pub(super) fn check_over(&self) -> Result<(), Broken> {
        check(self.slots.iter().all(Option::is_none), || "a request is never answered".into())?;
        check(self.ended.is_some(), || "the move never ends".into())?;
        check(self.reclaimed.is_some(), || "nothing is reclaimed".into())?;
        check(self.mirror.is_over(), || "the machine is not over".into())
    }

    /// A crash now, and a read now.
    pub(super) fn check_disk(&self) -> Result<(), Broken> {
        let after = match self.durable {
            None | Some(Record::Started) => Side::Source,
            Some(Record::Switched) => Side::Target,
        };
        if let Some(record) = self.durable {
            let recovery = Recovery::of(record);
            check(recovery.serve == after && recovery.reclaim == after.other(), || {
                format!("after {record:?}, {recovery:?}")
            })?;
        }
        check(self.reclaimed != Some(after), || "a crash would leave no disk".into())?;
        let side = |side| if side == Side::Source { &self.source } else { &self.target };
        for block in 0..N {
            let (found, may) = (side(after).maybe(block), self.guest.after_crash(block));
            check(found & !may == 0, || {
                format!("a crash: {after:?} block {block} may hold {found:b}, not only {may:b}")
            })?;
            let (reads, may) = (side(self.serving()).current(block), self.guest.possible(block));
            // Who is still to hear of a loss may be shown either.
            let told = !self.slots.iter().flatten().any(|out| out.lost);
            check(!told || one(reads) & may != 0, || {
                format!("{:?} block {block} holds {reads}, not of {may:b}", self.serving())
            })?;
        }
        self.check_nothing_waits()
    }

    /// Nobody waits for a side that does not count.
    fn check_nothing_waits(&self) -> Result<(), Broken> {
        let waits = self.slots.iter().any(Option::is_some);
        let of_guest = |storage: &Storage<N>, alone: bool| {
            storage.flights.iter().any(|f| match f.job {
                Job::Request(_) => !alone || f.synchronises() || matches!(f.op, Op::Read(_)),
                Job::Copy(_) | Job::LastFlush => false,
            })
        };
        let moves = match self.ended {
            None => true,
            Some(Outcome::Switched) => {
                of_guest(&self.target, false) || of_guest(&self.source, true)
            }
            Some(Outcome::Failed(_) | Outcome::Cancelled) => of_guest(&self.source, false),
        };
        check(!waits || moves, || "a request waits for a side that does not count".into())
    }

    /// A request that meets nothing is sent at once, whatever the move is doing.
    pub(super) fn check_no_pause(
        &self,
        before: &Self,
        request: Request,
        out: &[Action],
    ) -> Result<(), Broken> {
        let alone = before.slots.iter().all(Option::is_none);
        let met = |extent: Extent| {
            let flights = before.source.flights.iter().chain(&before.target.flights);
            let copies = flights.filter(|f| matches!(f.job, Job::Copy(_)));
            // A step that looks or reads lets what is written pass.
            let discards = matches!(request, Request::Discard(_));
            let looks = |op: Op| matches!(op, Op::Examine(_) | Op::Read(_));
            let copies = copies.filter(|f| discards || !looks(f.op));
            copies.filter_map(|f| f.extent()).any(|copied| copied.overlaps(extent))
        };
        let meets = !matches!(request, Request::Read(_)) && request.extent().is_some_and(met);
        let sent = out.iter().any(|a| matches!(a, Action::Send { job: Job::Request(_), .. }));
        check(!alone || meets || sent, || format!("{request:?} waits for nothing"))
    }
}
