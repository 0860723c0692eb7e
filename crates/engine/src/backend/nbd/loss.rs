//! What a lost server may have lost.
//!
//! A write that was acknowledged without FUA is in the server's cache until a flush. If the
//! connection is lost in between, the server may have died and the write with it; nobody can tell.
//! So a flush that covers such a write must fail: success would promise what nobody keeps. As a
//! SCSI device reports its reset once to each initiator, each client hears of each loss once
//! (SPC-4, unit attention): the first flush that it *sends after the loss* covers every write that
//! was acknowledged before, and fails. Flushes that were under way fail too, but do not count as
//! told: a write may have been acknowledged behind them.
//!
//! A server may have several connections. Then a write whose connection is lost is still there, if
//! another connection vouches that the server is the one that acknowledged it: if that connection
//! was made before the write was sent, the server has lived since then. A connection that was made
//! later may lead to a successor. The oldest connection vouches for the most, so flushes go there.

use headgate_units::Nanos;
use std::collections::VecDeque;

/// Counts the connections that were made to a server: when a connection was made, or a command
/// sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Era(u64);

impl Era {
    /// A connection is made.
    pub(crate) fn next(self) -> Era {
        Era(self.0 + 1)
    }
}

/// One server's account of acknowledged and flushed writes.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Writes acknowledged that only a flush makes durable.
    acknowledged: u64,
    /// Of those, how many a completed flush covers.
    flushed: u64,
    /// Those that none covers, between flushes that were sent.
    stretches: VecDeque<Stretch>,
    /// Whether a flush has succeeded since the disk was opened.
    asked: Asked,
}

/// Writes that were acknowledged between two flushes.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// The number of the last.
    last: u64,
    /// When the first of them was sent.
    sent: Era,
    /// Whether a flush that covers all of them was sent.
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Covered,
}

/// Most stretches that are kept apart: flushes that failed leave them.
const STRETCHES: usize = 64;

/// Whether a server was ever asked to flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asked {
    /// It may have writes of a predecessor of this process in its cache.
    #[default]
    Never,
    Once,
}

/// What a flush covers: what was acknowledged when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Covered(u64);

/// Whether a connection took writes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Everything acknowledged is durable, or still there.
    Nothing,
    /// Some may be lost.
    Perhaps,
}

impl Account {
    /// A write was acknowledged that only a flush makes durable. O(1).
    pub(crate) fn on_acknowledged(&mut self, sent: Era) {
        self.acknowledged += 1;
        let last = self.acknowledged;
        match self.stretches.back_mut() {
            Some(open) if open.end == End::Open => {
                open.last = last;
                open.sent = open.sent.min(sent);
            }
            _ => self.stretches.push_back(Stretch { last, sent, end: End::Open }),
        }
        if self.stretches.len() > STRETCHES {
            // One for both: what the second is vouched for by vouches for less than it could.
            let first = self.stretches.pop_front();
            if let (Some(first), Some(second)) = (first, self.stretches.front_mut()) {
                second.sent = second.sent.min(first.sent);
            }
        }
    }

    /// A flush is sent, on a connection of this era. `None`: it covers nothing, for another server
    /// may have acknowledged the writes.
    pub(crate) fn cover(&mut self, connection: Era) -> Option<Covered> {
        if !self.is_vouched_for(connection) {
            return None;
        }
        if let Some(open) = self.stretches.back_mut() {
            open.end = End::Covered;
        }
        Some(Covered(self.acknowledged))
    }

    /// A flush has succeeded, on the connection that it was sent on.
    pub(crate) fn on_flushed(&mut self, covered: Covered) {
        self.flushed = self.flushed.max(covered.0);
        self.asked = Asked::Once;
        while self.stretches.front().is_some_and(|first| first.last <= self.flushed) {
            self.stretches.pop_front();
        }
    }

    /// Whether a flush has anything to make durable there.
    pub(crate) fn owes_flush(&self) -> bool {
        self.asked == Asked::Never || self.acknowledged > self.flushed
    }

    /// A connection is lost; of those that are left, the oldest is of this era.
    pub(crate) fn on_lost(&mut self, oldest: Option<Era>) -> Lost {
        if oldest.is_some_and(|oldest| self.is_vouched_for(oldest)) {
            return Lost::Nothing;
        }
        let lost = if self.acknowledged > self.flushed { Lost::Perhaps } else { Lost::Nothing };
        self.flushed = self.acknowledged;
        self.stretches.clear();
        lost
    }

    /// Whether whoever answers on a connection of this era is who has acknowledged all that nobody
    /// has flushed.
    fn is_vouched_for(&self, connection: Era) -> bool {
        self.stretches.iter().all(|stretch| connection <= stretch.sent)
    }
}

/// One disk's losses, at all of its servers, and who was told of them.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Connections that were lost with writes that no flush covered.
    count: u64,
    /// When the last of them was lost.
    at: Nanos,
    /// A client went away without having been told.
    untold: bool,
}

/// How many of the losses a client has been told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LossEpoch(u64);

/// Whether a flush may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushDecision {
    /// It may.
    Send,
    /// It fails: it covers writes that may be lost.
    Fail,
}

impl Losses {
    /// A connection was lost with writes that no flush covered.
    pub(crate) fn on_loss(&mut self, now: Nanos) {
        self.count += 1;
        self.at = now;
    }

    /// A client comes. It answers for one that left untold: that may have been the same machine.
    pub(crate) fn on_client(&mut self) -> LossEpoch {
        let epoch = if self.untold { self.count - 1 } else { self.count };
        self.untold = false;
        LossEpoch(epoch)
    }

    /// A client has gone.
    pub(crate) fn on_client_gone(&mut self, epoch: LossEpoch) {
        if epoch.0 < self.count {
            self.untold = true;
        }
    }

    /// A client's flush that arrived at this time.
    pub(crate) fn judge(&self, arrived: Nanos, epoch: &mut LossEpoch) -> FlushDecision {
        if epoch.0 >= self.count {
            return FlushDecision::Send;
        }
        if arrived > self.at {
            epoch.0 = self.count;
        }
        FlushDecision::Fail
    }

    /// Connections that were lost with writes that no flush covered.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Nanos = Nanos(5);
    const LOST: Nanos = Nanos(10);
    const AFTER: Nanos = Nanos(11);

    /// A loss, and a client that came before.
    fn after_a_loss() -> (Losses, LossEpoch) {
        let mut losses = Losses::default();
        let epoch = losses.on_client();
        losses.on_loss(LOST);
        (losses, epoch)
    }

    /// Eras of connections and commands.
    const FIRST: Era = Era(1);
    const SECOND: Era = Era(2);
    const THIRD: Era = Era(3);

    fn flush(account: &mut Account, connection: Era) {
        let covered = account.cover(connection).unwrap();
        account.on_flushed(covered);
    }

    #[test]
    fn flushed_writes_are_not_lost() {
        let mut account = Account::default();
        assert_eq!(account.on_lost(None), Lost::Nothing);
        account.on_acknowledged(FIRST);
        flush(&mut account, FIRST);
        assert_eq!(account.on_lost(None), Lost::Nothing);
        account.on_acknowledged(FIRST);
        assert_eq!(account.on_lost(None), Lost::Perhaps);
    }

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it_was_sent() {
        let mut account = Account::default();
        account.on_acknowledged(FIRST);
        let covered = account.cover(FIRST).unwrap();
        account.on_acknowledged(FIRST);
        account.on_flushed(covered);
        assert!(account.owes_flush());
        assert_eq!(account.on_lost(None), Lost::Perhaps);
    }

    #[test]
    fn a_server_is_asked_once_for_what_a_predecessor_has_written_and_then_for_ours() {
        let mut account = Account::default();
        assert!(account.owes_flush());
        flush(&mut account, FIRST);
        assert!(!account.owes_flush());
        account.on_acknowledged(FIRST);
        assert!(account.owes_flush());
        assert_eq!(account.on_lost(None), Lost::Perhaps);
        assert!(!account.owes_flush(), "what is lost is told of by the losses");
    }

    #[test]
    fn a_connection_vouches_for_what_was_sent_after_it_was_made() {
        let mut account = Account::default();
        flush(&mut account, FIRST);
        account.on_acknowledged(SECOND);
        assert_eq!(account.on_lost(Some(SECOND)), Lost::Nothing);
        assert!(account.owes_flush(), "it is to be flushed all the same");
        assert_eq!(account.on_lost(Some(THIRD)), Lost::Perhaps, "it may lead to a successor");
        assert!(!account.owes_flush());
    }

    #[test]
    fn the_earliest_write_that_nobody_has_flushed_decides() {
        let mut account = Account::default();
        account.on_acknowledged(SECOND);
        account.on_acknowledged(FIRST);
        account.on_acknowledged(THIRD);
        assert_eq!(account.cover(SECOND), None);
        flush(&mut account, FIRST);
        account.on_acknowledged(THIRD);
        assert_eq!(account.on_lost(Some(SECOND)), Lost::Nothing, "the others are durable");
    }

    #[test]
    fn what_comes_behind_a_flush_is_no_part_of_it() {
        let mut account = Account::default();
        account.on_acknowledged(FIRST);
        let covered = account.cover(FIRST).unwrap();
        account.on_acknowledged(SECOND);
        let later = account.cover(FIRST).unwrap();
        account.on_flushed(covered);
        assert_eq!(account.on_lost(Some(SECOND)), Lost::Nothing);
        assert_eq!(account.on_lost(Some(THIRD)), Lost::Perhaps);
        account.on_acknowledged(THIRD);
        account.on_flushed(later);
        assert!(account.owes_flush(), "a flush of before the loss covers nothing of after it");
    }

    #[test]
    fn flushes_that_fail_cost_a_bounded_room_and_forget_nothing() {
        let mut account = Account::default();
        account.on_acknowledged(FIRST);
        account.cover(FIRST).unwrap();
        for _ in 0..1000 {
            account.on_acknowledged(THIRD);
            account.cover(FIRST).unwrap();
        }
        assert!(account.stretches.len() <= STRETCHES);
        assert_eq!(account.on_lost(Some(SECOND)), Lost::Perhaps);
    }

    #[test]
    fn each_client_hears_of_a_loss_once() {
        let (mut losses, mut first) = after_a_loss();
        let mut second = LossEpoch(0);
        assert_eq!(losses.judge(AFTER, &mut first), FlushDecision::Fail);
        assert_eq!(losses.judge(AFTER, &mut first), FlushDecision::Send);
        assert_eq!(losses.judge(AFTER, &mut second), FlushDecision::Fail);
        assert_eq!(losses.judge(AFTER, &mut second), FlushDecision::Send);
        losses.on_loss(Nanos(20));
        assert_eq!(losses.judge(Nanos(21), &mut first), FlushDecision::Fail);
        assert_eq!(losses.judge(Nanos(21), &mut first), FlushDecision::Send);
    }

    #[test]
    fn a_flush_from_before_the_loss_fails_and_tells_nothing() {
        let (losses, mut epoch) = after_a_loss();
        assert_eq!(losses.judge(BEFORE, &mut epoch), FlushDecision::Fail);
        assert_eq!(losses.judge(LOST, &mut epoch), FlushDecision::Fail);
        assert_eq!(losses.judge(AFTER, &mut epoch), FlushDecision::Fail);
        assert_eq!(losses.judge(AFTER, &mut epoch), FlushDecision::Send);
    }

    #[test]
    fn a_client_that_comes_back_hears_what_it_missed() {
        let (mut losses, epoch) = after_a_loss();
        losses.on_client_gone(epoch);
        let mut back = losses.on_client();
        let mut other = losses.on_client();
        assert_eq!(losses.judge(AFTER, &mut other), FlushDecision::Send);
        assert_eq!(losses.judge(AFTER, &mut back), FlushDecision::Fail);
        losses.on_client_gone(back);
        let mut again = losses.on_client();
        assert_eq!(losses.judge(AFTER, &mut again), FlushDecision::Send, "told already");
    }
}
